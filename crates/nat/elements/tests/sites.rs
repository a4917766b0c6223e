//! Sites that two workers divide, between ports, in time that a test lets pass: each has its address at its own worker, both directions
//! of what it says meet there, and an address that goes to a site of the other worker is that one's alone.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use crate::common::{End, eal};
use crate::stand_in::Server;
use crate::start;
use dataplane::graph::GraphRun;
use engine::View;
use engine::clock::testing;
use nat_core::config::SECOND;
use nat_elements::control::{Sessions, Status, StatusView};
use nat_elements::sites::view::{self, SiteView};
use packet::arp::{self, Arp, Operation};
use packet::signature::Signature;
use packet::{Flow, Mac, Program, ipv4};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::net::{Ipv4Addr, SocketAddr};
use std::time::{Duration, Instant};

const ROUTER: (Ipv4Addr, Mac) = (Ipv4Addr::new(203, 0, 113, 1), [2, 0, 0, 0, 9, 1]);
const INSIDE: Mac = [2, 0, 0, 0, 9, 3];
const SERVER: Ipv4Addr = Ipv4Addr::new(198, 51, 100, 9);
/// So many that no worker is without, whatever the secret is that they are divided by.
const SITES: u8 = 24;
const HOSTS: u8 = 2;
const LEASE: u32 = 120;
/// Rings that a packet passes at most, and one for what is answered.
const STAGES: usize = 6;
const PATIENCE: Duration = Duration::from_secs(60);

/// A host in a site's VLAN.
type Who = (u8, u8);

fn who() -> impl Iterator<Item = Who> {
    (1..=SITES).flat_map(|vlan| (1..=HOSTS).map(move |host| (vlan, host)))
}

fn graph(name: &str, more: &Value) -> Value {
    let sites = json!({"most": 32, "by": "vlan"});
    let mut graph = json!({
        "ports": {
            "inside": {"device": format!("pair:{name}-in"), "ip": "10.0.0.254/24", "mac": "02:00:00:00:09:03"},
            "outside": {"device": format!("pair:{name}-out"), "ip": "203.0.113.2/24", "mac": "02:00:00:00:09:02"},
        },
        "elements": {
            "in-validity": {"kind": "validity", "port": "inside", "own_mac": true},
            "out-validity": {"kind": "validity", "port": "outside", "dhcp": true, "own_mac": true, "macs": {"count": 32}},
            "subscribers": {"kind": "subscriber-table", "most_subscribers": 200},
            "nat44": {
                "kind": "nat44", "inside": "inside", "outside": "outside", "sites": sites,
                "sessions": 4096, "most_subscribers": 200,
            },
            "in-host": {"kind": "nat-host", "port": "inside"},
            "sites": {"kind": "nat-sites", "port": "outside", "sites": sites},
            "out-host": {"kind": "nat-host", "port": "outside", "gateway": "203.0.113.1"},
        },
        "edges": [
            "inside.rx -> in-validity",
            "in-validity.out -> subscribers -> nat44",
            "outside.rx -> out-validity",
            "out-validity.out -> nat44",
            "nat44.outside -> outside.tx",
            "nat44.inside -> inside.tx",
            "in-validity.local -> in-host -> inside.tx",
            "out-validity.local -> sites",
            "sites.out -> out-host -> outside.tx",
            "sites.tx -> outside.tx",
        ],
    });
    for (key, value) in more.as_object().unwrap() {
        graph[key] = value.clone();
    }
    graph
}

/// What a host says.
fn said((vlan, host): Who) -> Vec<u8> {
    let flow = Flow {
        source_mac: [2, 0, 0, 0, vlan, host],
        destination_mac: INSIDE,
        source: SocketAddr::new(Ipv4Addr::new(10, 0, 0, host).into(), 5_000),
        destination: SocketAddr::new(SERVER.into(), 53),
    };
    let mut frame = vec![0; 80];
    let signature = Signature { stream: vlan.into(), sequence: host.into(), sent_ns: 3 };
    Program::udp(&flow, 80).unwrap().write(&mut frame, 0, &signature);
    frame.splice(12..12, [0x81, 0, 0, vlan]);
    frame
}

/// Who said this, by what it carries.
fn speaker(payload: &[u8]) -> Option<Who> {
    who().find(|who| said(*who)[46..] == *payload)
}

/// How a host's packet is seen: its Ethernet address, address and port.
type SentFrom = (Mac, Ipv4Addr, u16);

fn seen(frame: &[u8]) -> Option<(Who, SentFrom)> {
    let is_datagram = frame[12..14] == [8, 0] && frame[23] == 17 && frame[36..38] == [0, 53];
    let who = is_datagram.then(|| speaker(&frame[42..])).flatten()?;
    let (source, _) = ipv4::addresses(frame, 14)?;
    Some((who, (frame[6..12].try_into().unwrap(), source, u16::from_be_bytes([frame[34], frame[35]]))))
}

/// The NAT, its subscribers, and the world with a router that is the DHCP server.
struct World {
    near: End,
    far: End,
    server: Server,
    run: Option<GraphRun>,
    view: View,
    /// What leaves and is nobody's question.
    heard: Vec<Vec<u8>>,
}

impl World {
    fn new(name: &str, more: &Value) -> Self {
        eal();
        testing::pass(SECOND);
        let run = start(&graph(name, more));
        let mut server = Server::new(ROUTER.1, ROUTER.0, Ipv4Addr::new(203, 0, 113, 100), LEASE);
        server.unicast = true;
        let (near, far) = (End::new(&format!("{name}-in")), End::new(&format!("{name}-out")));
        let view = run.view();
        let mut world = Self { near, far, server, run: Some(run), view, heard: Vec::new() };
        world.near.ignores = Box::new(|frame| frame[16..18] != [8, 0]);
        world.pass(2);
        world
    }

    /// Until each worker has done what it was handed, from stage to stage.
    fn settle(&self) {
        let turns = || self.view.workers().iter().map(|worker| worker.turns).collect::<Vec<_>>();
        let end = Instant::now() + PATIENCE;
        for _ in 0..STAGES {
            let before = turns();
            while turns().iter().zip(&before).any(|(now, before)| *now < before + 2) {
                assert!(Instant::now() < end, "a worker stands still");
                std::thread::yield_now();
            }
        }
    }

    /// Let time pass, in which the world answers.
    fn pass(&mut self, seconds: u64) {
        self.pass_by(seconds, SECOND / 4);
    }

    fn pass_by(&mut self, seconds: u64, step: u64) {
        for _ in 0..seconds * SECOND / step {
            testing::pass(step);
            self.hear();
        }
    }

    fn hear(&mut self) {
        loop {
            self.settle();
            let frames = self.far.drain();
            if frames.is_empty() {
                return;
            }
            for frame in frames {
                let arp = Arp::parse(&frame).filter(|arp| arp.operation == Operation::Request);
                if let Some(answer) = self.server.handle_frame(&frame) {
                    self.far.send(&[answer]);
                } else if let Some(arp) = arp.filter(|arp| arp.target == ROUTER.0) {
                    let mut answer = [0; arp::FRAME];
                    arp.answer(ROUTER.1).emit(&mut answer);
                    self.far.send(&[answer.to_vec()]);
                } else {
                    self.heard.push(frame);
                }
            }
        }
    }

    /// Hosts say something; how the world sees them.
    fn say(&mut self, hosts: impl IntoIterator<Item = Who>) -> BTreeMap<Who, SentFrom> {
        self.heard.clear();
        let frames: Vec<Vec<u8>> = hosts.into_iter().map(said).collect();
        self.near.send(&frames);
        self.hear();
        self.heard.iter().filter_map(|frame| seen(frame)).collect()
    }

    /// Packets from the world, from their IP headers on, to sites; to which hosts they go on, in their order.
    fn tell(&mut self, packets: &[(Mac, Vec<u8>)]) -> Vec<Who> {
        self.near.drain();
        let frame = |(mac, ip): &(Mac, Vec<u8>)| [&mac[..], &ROUTER.1, &[8, 0], ip].concat();
        self.far.send(&packets.iter().map(frame).collect::<Vec<_>>());
        self.settle();
        let mut hosts: Vec<Who> = self.near.drain().iter().map(|frame| whom(frame)).collect();
        hosts.sort_unstable();
        hosts
    }

    fn sites(&self) -> BTreeMap<u8, SiteView> {
        let asked = view::Sites { from: 0, limit: 100 };
        let page = self.view.request("sites", asked, PATIENCE).unwrap();
        page.sites.into_iter().map(|site| (site.vlans.ids()[0] as u8, site)).collect()
    }

    fn status(&self) -> [StatusView; 2] {
        [0, 1].map(|i| self.view.request(&format!("nat44#{i}"), Status, PATIENCE).unwrap())
    }
}

impl Drop for World {
    fn drop(&mut self) {
        if let Some(run) = self.run.take() {
            run.stop();
        }
    }
}

/// The way back of what was said, in three ways: an answer, an error of a router, and an answer in pieces. From the IP header on.
fn answers(who: Who, (_, address, port): SentFrom) -> [Vec<Vec<u8>>; 3] {
    let mut sent = said(who)[18..].to_vec();
    sent[12..16].copy_from_slice(&address.octets());
    sent[20..22].copy_from_slice(&port.to_be_bytes());
    let mut answer = sent.clone();
    ipv4::swap(&mut answer, 0);
    packet::udp::swap(&mut answer, 20);
    // No checksum of UDP, so that nothing has to be done about it.
    answer[26..28].fill(0);
    sent[26..28].fill(0);
    let packet = |protocol: u8, (source, destination), payload: &[u8], fragment: u16| {
        let payload_len = payload.len() as u16;
        let head = ipv4::Ipv4 { source, destination, protocol, ttl: 64, dscp: 0, payload: payload_len };
        let mut bytes = [0; ipv4::LEN];
        head.emit(&mut bytes);
        // Pieces of one packet have its identification, and no other the same.
        bytes[5] = who.1;
        bytes[6..8].copy_from_slice(&fragment.to_be_bytes());
        bytes[10..12].fill(0);
        let sum = packet::checksum::of(&bytes).to_be_bytes();
        bytes[10..12].copy_from_slice(&sum);
        [&bytes[..], payload].concat()
    };
    let back = (SERVER, address);
    let quoted = packet(17, (address, SERVER), &sent[20..], 0);
    let mut error = [&[3, 1, 0, 0, 0, 0, 0, 0][..], &quoted[..28]].concat();
    let sum = packet::checksum::of(&error).to_be_bytes();
    error[2..4].copy_from_slice(&sum);
    let error = packet(1, (Ipv4Addr::new(192, 0, 2, 1), address), &error, 0);
    let (first, later) = answer[20..].split_at(24);
    let pieces = vec![packet(17, back, first, 1 << 13), packet(17, back, later, 3)];
    [vec![packet(17, back, &answer[20..], 0)], vec![error], pieces]
}

/// An echo request to the box.
fn echo(source: Ipv4Addr) -> Vec<u8> {
    let to = Ipv4Addr::new(203, 0, 113, 2);
    let mut head = [0; ipv4::LEN];
    ipv4::Ipv4 { source, destination: to, protocol: 1, ttl: 64, dscp: 0, payload: 8 }.emit(&mut head);
    [&[2, 0, 0, 0, 9, 2][..], &ROUTER.1, &[8, 0], &head, &[8, 0, 0xf7, 0xff, 0, 0, 0, 0], &[0; 18]].concat()
}

/// To which host a frame goes, by its tag and its address.
fn whom(frame: &[u8]) -> Who {
    assert_eq!(frame[12..14], [0x81, 0]);
    let (_, to) = ipv4::addresses(frame, 18).unwrap();
    let (vlan, host) = (frame[15], to.octets()[3]);
    assert_eq!(frame[..6], [2, 0, 0, 0, vlan, host]);
    (vlan, host)
}

fn two_workers_divide_sites(name: &str, more: &Value) {
    let mut world = World::new(name, more);
    assert!(world.say(who()).is_empty(), "nobody has an address yet");
    world.pass(3);
    // Each site has its address and its MAC address, which its hosts share, at its worker.
    let all = world.say(who());
    let sites = world.sites();
    assert_eq!((all.len(), sites.len()), (usize::from(SITES * HOSTS), usize::from(SITES)));
    for ((vlan, _), (mac, address, _)) in &all {
        assert_eq!((dhcp_text(*mac), Some(*address)), (sites[vlan].mac.clone(), sites[vlan].address));
    }
    let endpoints: BTreeSet<_> = all.values().map(|(_, address, port)| (address, port)).collect();
    assert_eq!(endpoints.len(), all.len());
    let has = |worker| sites.values().filter(|site| site.worker == worker).count() as u64;
    let status = world.status();
    for (worker, status) in status.iter().enumerate() {
        assert_eq!((status.addresses, status.sessions), (has(worker), has(worker) * u64::from(HOSTS)));
    }
    assert!(has(0) > 0 && has(1) > 0);
    // What comes back meets it there, whoever reports it and in whatever pieces.
    for way in 0..3 {
        let packets = all.iter().flat_map(|(who, seen)| {
            answers(*who, *seen)[way]
                .iter()
                .map(|packet| (*who, (seen.0, packet.clone())))
                .collect::<Vec<_>>()
        });
        let (to, packets): (Vec<Who>, Vec<_>) = packets.unzip();
        assert_eq!(world.tell(&packets), to, "way {way}");
    }
    // Who has an address is told by the virtual MAC address.
    let has_address: BTreeSet<_> = all.values().map(|(mac, address, _)| (*address, *mac)).collect();
    let questions = has_address.iter().map(|(address, _)| {
        let mut question = [0; arp::FRAME];
        Arp::request(ROUTER.1, ROUTER.0, *address).emit(&mut question);
        question.to_vec()
    });
    world.heard.clear();
    world.far.send(&questions.collect::<Vec<_>>());
    world.hear();
    let answered = world.heard.iter().filter_map(|frame| Arp::parse(frame));
    let answered = answered.filter(|arp| arp.operation == Operation::Reply);
    assert_eq!(answered.map(|arp| (arp.sender, arp.sender_mac)).collect::<BTreeSet<_>>(), has_address);
    // The box answers the router's echo, and nobody who says to be a site.
    let of_site = *has_address.first().map(|(address, _)| address).unwrap();
    world.heard.clear();
    world.far.send(&[echo(of_site), echo(ROUTER.0)]);
    world.hear();
    let is_reply = |frame: &&Vec<u8>| frame[12..14] == [8, 0] && frame[23] == 1 && frame[34] == 0;
    let replies: Vec<_> = world.heard.iter().filter(is_reply).map(|frame| frame[30..34].to_vec()).collect();
    assert_eq!(replies, [ROUTER.0.octets()]);
    let elements = world.view.elements();
    let drops = elements.into_iter().filter(|one| one.name == "sites").flat_map(|one| one.drops);
    let spoofed: u64 = drops.filter(|(reason, _)| reason == "spoofed_source").map(|(_, count)| count).sum();
    assert_eq!(spoofed, 1);
    // The server swaps the addresses of two sites of different workers, as they renew.
    let of = |worker| *sites.iter().find(|(_, site)| site.worker == worker).unwrap().0;
    let (one, other) = (of(0), of(1));
    let [first, second] = [one, other].map(|vlan| all[&(vlan, 1)]);
    world.server.leases.insert(first.0, second.1);
    world.server.leases.insert(second.0, first.1);
    let mut swapped = BTreeSet::new();
    for _ in 0..LEASE / 2 {
        world.pass_by(2, SECOND);
        for ((vlan, _), (mac, address, _)) in world.say([(one, 1), (other, 1)]) {
            let [own, others] = if vlan == one { [first, second] } else { [second, first] };
            assert_eq!(mac, own.0);
            assert!(address == others.1 || address == own.1 && !swapped.contains(&vlan), "{vlan}: {address}");
            if address == others.1 {
                swapped.insert(vlan);
            }
        }
        let addresses: u64 = world.status().iter().map(|status| status.addresses).sum();
        assert!(addresses <= u64::from(SITES), "an address is at both");
        if swapped.len() == 2 {
            break;
        }
    }
    let now = world.say([(one, 1), (other, 1)]);
    assert_eq!(
        [one, other].map(|vlan| (now[&(vlan, 1)].0, now[&(vlan, 1)].1)),
        [(first.0, second.1), (second.0, first.1)]
    );
    assert_eq!(world.status().map(|status| status.addresses), [has(0), has(1)]);
    // What comes for an address now is for who has it, at its worker; what was before is over.
    for (vlan, before) in [(one, first), (other, second)] {
        let seen = now[&(vlan, 1)];
        let [whole, ..] = answers((vlan, 1), seen);
        assert_eq!(world.tell(&[(seen.0, whole[0].clone())]), [(vlan, 1)]);
        let [old, ..] = answers((vlan, 1), before);
        let back = world.tell(&[(before.0, old[0].clone())]);
        assert!(back.iter().all(|who| who.0 != vlan), "a session outlived its address");
    }
    // All leases are lost, and so is everything at both workers.
    world.server.silent = true;
    world.pass_by(u64::from(LEASE) + 2, 2 * SECOND);
    // Workers hear of it, and then end what there was, each at its next look.
    world.pass(1);
    assert!(world.say(who()).is_empty(), "nothing leaves with an address that is lost");
    let filter = nat_elements::control::SessionFilter::default();
    for (i, status) in world.status().iter().enumerate() {
        assert_eq!((status.addresses, status.blocks, status.sessions), (0, 0, 0));
        let asked = Sessions { from: 0, limit: 10, filter };
        let page = world.view.request(&format!("nat44#{i}"), asked, PATIENCE).unwrap();
        assert!(page.sessions.is_empty());
    }
    // And comes back.
    world.server.silent = false;
    world.pass_by(70, 2 * SECOND);
    let all = world.say(who());
    assert_eq!(all.len(), usize::from(SITES * HOSTS));
}

fn dhcp_text(mac: Mac) -> String {
    mac.map(|byte| format!("{byte:02x}")).join(":")
}

/// One after the other: time is that of the whole program.
#[test]
fn two_workers_divide_sites_wherever_they_run() {
    let (owner, any) =
        (json!({"count": 2, "affinity": "owner"}), json!({"count": 2, "affinity": "round_robin"}));
    // Whatever comes for a site may come by either worker, as with a queue for each.
    let to_completion = json!({
        "replicas": {"in-validity": any, "out-validity": any, "subscribers": owner, "nat44": owner},
        "placement": [
            {"elements": [
                "inside.rx", "outside.rx", "in-validity#0", "out-validity#0", "subscribers#0", "nat44#0",
                "in-host", "sites", "out-host", "inside.tx", "outside.tx",
            ]},
            {"elements": ["in-validity#1", "out-validity#1", "subscribers#1", "nat44#1"]},
        ],
    });
    let pipeline = json!({
        "replicas": {"subscribers": owner, "nat44": owner},
        "placement": [
            {"elements": ["inside.rx", "outside.rx"]},
            {"elements": ["in-validity", "out-validity", "subscribers#0", "nat44#1"]},
            {"elements": ["subscribers#1", "nat44#0"]},
            {"elements": ["inside.tx", "outside.tx", "in-host", "sites", "out-host"]},
        ],
    });
    two_workers_divide_sites("sites-rtc", &to_completion);
    two_workers_divide_sites("sites-pipe", &pipeline);
}
