//! Sites of a NAT with public addresses by DHCP, between ports: what leaves has the site's address and virtual MAC address, and without
//! a lease nothing leaves.

use super::*;
use crate::stand_in::{DISCOVER, Server};
use nat_elements::sites::view;

const PATIENCE: Duration = Duration::from_secs(60);

fn public(last: u8) -> Ipv4Addr {
    Ipv4Addr::new(203, 0, 113, last)
}

fn site_mac(number: u8) -> Mac {
    [2, 0x4e, 0x44, 0, 0, number]
}

fn by_dhcp(name: &str, known: &str) -> Value {
    json!({
        "ports": {
            "inside": {"device": format!("pair:{name}-in"), "ip": "10.0.0.254/24", "mac": "02:00:00:00:09:03"},
            "outside": {"device": format!("pair:{name}-out"), "ip": "203.0.113.2/24", "mac": "02:00:00:00:09:02"},
        },
        "elements": {
            "in-validity": {"kind": "validity", "port": "inside", "own_mac": true},
            "out-validity": {"kind": "validity", "port": "outside", "dhcp": true, "own_mac": true, "macs": {"count": 4}},
            "subscribers": {"kind": "subscriber-table", "most_subscribers": 100},
            "nat44": {
                "kind": "nat44", "inside": "inside", "outside": "outside",
                "sites": {"most": 4, "by": "prefix", "prefix": 30}, "sessions": 4096, "most_subscribers": 100,
            },
            "in-host": {"kind": "nat-host", "port": "inside"},
            "sites": {
                "kind": "nat-sites", "port": "outside", "sites": {"most": 4, "by": "prefix", "prefix": 30},
                "least_lease": "1s", "known": known,
            },
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
    })
}

/// The router and DHCP server, who hears everything that leaves.
struct World {
    end: End,
    server: Server,
    /// What else left.
    heard: Vec<Vec<u8>>,
}

impl World {
    fn new(name: &str) -> Self {
        let server = Server::new(ROUTER.1, ROUTER.0, public(100), 2);
        Self { end: End::new(name), server, heard: Vec::new() }
    }

    /// Answer what there is.
    fn turn(&mut self) {
        for frame in self.end.take_soon(1) {
            if let Some(answer) = self.server.handle_frame(&frame) {
                self.end.send(&[answer]);
            } else if let Some(arp) = Arp::parse(&frame)
                && arp.operation == Operation::Request
                && arp.target == ROUTER.0
            {
                let mut answer = [0; packet::arp::FRAME];
                arp.answer(ROUTER.1).emit(&mut answer);
                self.end.send(&[answer.to_vec()]);
            } else {
                self.heard.push(frame);
            }
        }
    }

    fn until<T>(&mut self, what: &str, mut done: impl FnMut(&mut Self) -> Option<T>) -> T {
        let end = Instant::now() + PATIENCE;
        loop {
            self.turn();
            if let Some(found) = done(self) {
                return found;
            }
            assert!(Instant::now() < end, "{what}: {:?}", self.server);
        }
    }
}

fn from_host(host: u8, port: u16) -> Vec<u8> {
    let flow = Flow {
        source_mac: [2, 0, 0, 0, 0, host],
        destination_mac: INSIDE,
        source: SocketAddr::new(Ipv4Addr::new(10, 0, 0, host).into(), port),
        destination: SocketAddr::new(SERVER.into(), 53),
    };
    let mut frame = vec![0; 80];
    let signature = Signature { stream: 1, sequence: host.into(), sent_ns: 3 };
    Program::udp(&flow, 80).unwrap().write(&mut frame, 0, &signature);
    frame
}

/// What a host's packet left with: a MAC address and an address.
fn from(frame: &[u8], host: u8) -> Option<(Mac, Ipv4Addr)> {
    let translated = frame[12..14] == [8, 0] && frame[36..38] == [0, 53];
    let translated = translated && frame[42..] == from_host(host, 1)[42..];
    let (source, to) = ipv4::addresses(frame, 14)?;
    (translated && to == SERVER).then(|| (frame[6..12].try_into().unwrap(), source))
}

/// Let a host send until something of it leaves.
fn until_out(near: &mut End, world: &mut World, host: u8, port: u16) -> (Mac, Ipv4Addr) {
    world.heard.clear();
    world.until("nothing leaves", |world| {
        near.send(&[from_host(host, port)]);
        world.heard.iter().find_map(|frame| from(frame, host))
    })
}

#[test]
fn a_site_has_its_address_loses_it_and_has_it_again_after_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    let known = folder.path().join("sites.json");
    let graph = by_dhcp("nat-sites", known.to_str().unwrap());
    let run = start(&graph);
    let (mut near, mut world) = (End::new("nat-sites-in"), World::new("nat-sites-out"));
    world.server.unicast = true;
    // two sites: each with its address and its MAC address, which the subscribers of one share
    assert_eq!(until_out(&mut near, &mut world, 1, 5_000), (site_mac(0), public(100)));
    assert_eq!(until_out(&mut near, &mut world, 2, 5_000), (site_mac(0), public(100)));
    assert_eq!(until_out(&mut near, &mut world, 5, 5_000), (site_mac(1), public(101)));
    // who has the address is told to who asks, and what comes for it gets through
    let mut question = [0; packet::arp::FRAME];
    Arp::request(ROUTER.1, ROUTER.0, public(100)).emit(&mut question);
    world.end.send(&[question.to_vec()]);
    let answer = world.until("no ARP", |world| {
        world.heard.iter().filter_map(|frame| Arp::parse(frame)).find(|arp| arp.operation == Operation::Reply)
    });
    assert_eq!((answer.sender, answer.sender_mac, answer.target_mac), (public(100), site_mac(0), ROUTER.1));
    let sent = world.until("no packet", |world| {
        near.send(&[from_host(1, 5_000)]);
        world.heard.iter().rev().find(|frame| from(frame, 1) == Some((site_mac(0), public(100)))).cloned()
    });
    let mut back = sent;
    back[..12].copy_from_slice(&[site_mac(0), ROUTER.1].concat());
    ipv4::swap(&mut back, 14);
    packet::udp::swap(&mut back, 34);
    world.end.send(&[back]);
    // A host without public address was told so (ICMP).
    near.ignores = Box::new(|frame| frame[12..14] != [8, 0] || frame[23] != 17);
    let heard = near.take(1);
    assert_eq!(ipv4::addresses(&heard[0], 14), Some((SERVER, Ipv4Addr::new(10, 0, 0, 1))));
    // hostile: a server that is not the chosen one, for others' addresses; it changes nothing
    let asked = *world.server.heard.iter().find(|heard| heard.kind == DISCOVER).unwrap();
    let hostile = Server::new([2; 6], public(66), public(200), 4);
    for kind in [crate::stand_in::OFFER, crate::stand_in::ACK, crate::stand_in::NAK] {
        world.end.send(&[hostile.answer(kind, &asked, public(200))]);
    }
    let sites = |from| run.view().request("sites", view::Sites { from, limit: 10 }, PATIENCE).unwrap().sites;
    let shown = sites(0);
    assert_eq!(shown.len(), 2);
    assert_eq!(
        (shown[0].site.as_str(), shown[0].address, shown[0].subscribers),
        ("10.0.0.0/30", Some(public(100)), 2)
    );
    assert_eq!((shown[1].mac.as_str(), shown[1].state), ("02:4e:44:00:00:01", "bound"));
    // the server is gone, and so is the address with its sessions: nothing leaves any more
    world.server.silent = true;
    let dropped = |reason: &str| {
        let all = run.observe().elements();
        all.iter()
            .find(|one| one.name == "nat44")
            .map_or(0, |one| one.drops.get(reason).copied().unwrap_or(0))
    };
    world.until("it keeps its address", |_| (sites(0)[0].address.is_none()).then_some(()));
    let mut refused = |world: &mut World| {
        let before = dropped("no_public_address");
        world.until("it is not refused", |_| {
            near.send(&[from_host(1, 5_000)]);
            (dropped("no_public_address") > before).then_some(())
        });
    };
    refused(&mut world);
    // What left before that.
    while !world.end.take_soon(64).is_empty() {}
    world.heard.clear();
    refused(&mut world);
    let status = || run.view().request("nat44", nat_elements::control::Status, PATIENCE).unwrap();
    world.until("sessions are left", |_| (status().sessions == 0 && status().addresses == 0).then_some(()));
    assert!(
        world.heard.iter().all(|frame| from(frame, 1).is_none()),
        "nothing leaves with an address that is lost"
    );
    run.stop();
    // it comes back after a restart, and the site has its own again, though another site comes first
    (world.server.silent, world.server.lease) = (false, 1000);
    let run = start(&graph);
    assert_eq!(until_out(&mut near, &mut world, 9, 5_000), (site_mac(2), public(102)));
    assert_eq!(until_out(&mut near, &mut world, 1, 5_000), (site_mac(0), public(100)));
    assert_eq!(run.end_reason(), None);
    run.stop();
}
