//! Affinity keys of a NAT's two sides, against what they promise.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod common;

use common::eal;
use dpdk::{Batch, Mbuf, Mempool, MetaFlags};
use engine::affinity::{BySide, InsideAddress, PortBlock, PortBlocks, RoundRobin, SymmetricFlow};
use engine::{Affinity, Cx, Element, Engine, Graph, Options, Parser, Placement};
use packet::checksum;
use packet::signature::Signature;
use packet::{Flow, Program};
use proptest::prelude::*;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::OnceLock;
use std::sync::mpsc::{Sender, channel};
use std::time::Duration;

fn pool() -> &'static Mempool {
    static POOL: OnceLock<Mempool> = OnceLock::new();
    POOL.get_or_init(|| Mempool::new(eal(), 1023, 256).unwrap())
}

fn udp(source: SocketAddr, destination: SocketAddr) -> Vec<u8> {
    let flow =
        Flow { source_mac: [2, 0, 0, 0, 0, 1], destination_mac: [2, 0, 0, 0, 0, 2], source, destination };
    let mut frame = vec![0; 100];
    Program::udp(&flow, 100).unwrap().write(&mut frame, 0, &Signature { stream: 1, sequence: 2, sent_ns: 3 });
    frame
}

fn tagged(mut frame: Vec<u8>, vlan: u16) -> Vec<u8> {
    let [high, low] = vlan.to_be_bytes();
    frame.splice(12..12, [0x81, 0, high, low]);
    frame
}

/// The packets as they are behind a parser of port `in_port`.
fn parsed(frames: &[Vec<u8>], in_port: u16) -> Vec<Mbuf> {
    struct Source(Batch);
    impl Element for Source {
        fn about(&self) -> engine::About {
            engine::About { kind: "source", takes: false, outputs: &["out"], drops: &[], polled: true }
        }

        fn poll(&mut self, batch: &mut Batch, _: &mut Cx<'_>) {
            self.0.move_to(batch);
        }
    }
    struct Collect(Sender<Mbuf>);
    impl Element for Collect {
        fn about(&self) -> engine::About {
            engine::About { kind: "collect", takes: true, outputs: &[], drops: &[], polled: false }
        }

        fn push(&mut self, batch: &mut Batch, _: &mut Cx<'_>) {
            std::mem::take(batch).into_iter().for_each(|mbuf| self.0.send(mbuf).unwrap());
        }
    }
    let mut batch = Batch::new();
    frames.iter().for_each(|frame| batch.push(pool().packet(frame).unwrap()).unwrap());
    let (put, take) = channel();
    let mut graph = Graph::new();
    let source = graph.add("source", Source(batch));
    let parser = graph.add("parse", Parser::new(in_port).verifying());
    let sink = graph.add("collect", Collect(put));
    graph.chain(&[source, parser, sink]);
    let engine = Engine::start(eal(), graph, &Placement::single(None), &Options::default()).unwrap();
    let came = frames.iter().map_while(|_| take.recv_timeout(Duration::from_secs(1)).ok()).collect();
    drop(engine);
    came
}

/// Without a parser: only the port is not known.
fn bare(frame: &[u8]) -> Mbuf {
    pool().packet(frame).unwrap()
}

const INSIDE: u16 = 0;
const OUTSIDE: u16 = 1;

fn address() -> impl Strategy<Value = IpAddr> {
    prop_oneof![any::<[u8; 4]>().prop_map(IpAddr::from), any::<[u8; 16]>().prop_map(IpAddr::from)]
}

fn like(address: IpAddr, seed: u64) -> IpAddr {
    match address {
        IpAddr::V4(_) => IpAddr::V4(Ipv4Addr::from_bits(seed as u32)),
        IpAddr::V6(_) => IpAddr::V6((u128::from(seed) << 64 | u128::from(!seed)).into()),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn both_directions_have_one_replica(
        a in address(), seed in any::<u64>(), ports in any::<(u16, u16)>(), replicas in 1usize..=32,
    ) {
        let (a, b) = (SocketAddr::new(a, ports.0), SocketAddr::new(like(a, seed), ports.1));
        let mut flow = SymmetricFlow::new();
        let there = flow.replica(&bare(&udp(a, b)), replicas);
        prop_assert!(there < replicas);
        prop_assert_eq!(flow.replica(&bare(&udp(b, a)), replicas), there);
        prop_assert_eq!(flow.replica(&bare(&tagged(udp(b, a), 7)), replicas), there, "tags are no part of a flow");
    }
}

#[test]
fn a_subscriber_is_on_one_replica_whatever_it_does() {
    const REPLICAS: usize = 7;
    let mut rule = InsideAddress::new([INSIDE]);
    for i in 0..8u8 {
        let subscriber = IpAddr::from([100, 64, 0, i]);
        let owner = rule.owner(subscriber, [300, 0], REPLICAS);
        let remote = |n: u16| SocketAddr::new([198, 51, 100, n as u8].into(), 80 + n);
        let out: Vec<_> =
            (0..8).map(|n| tagged(udp((subscriber, 1000 + n).into(), remote(n)), 300 | n << 13)).collect();
        let back: Vec<_> =
            (0..8).map(|n| tagged(udp(remote(n), (subscriber, 1000 + n).into()), 300)).collect();
        for (frames, port) in [(&out, INSIDE), (&back, OUTSIDE)] {
            let came = parsed(frames, port);
            assert_eq!(came.len(), 8);
            assert!(came.iter().all(|mbuf| rule.replica(mbuf, REPLICAS) == owner), "subscriber {subscriber}");
        }
    }
    // The same address in other VLANs is another subscriber's.
    let owners: std::collections::BTreeSet<_> =
        (1..64).map(|vlan| rule.owner([10, 0, 0, 1].into(), [vlan, 0], REPLICAS)).collect();
    assert!(owners.len() > 1);
}

fn block(address: IpAddr, first: u16, last: u16, owner: usize) -> PortBlock {
    PortBlock { address, ports: first..=last, owner }
}

const POOL: IpAddr = IpAddr::V4(Ipv4Addr::new(203, 0, 113, 1));

/// ICMP "port unreachable" about a datagram that `sender` sent.
fn error_about(sender: SocketAddr) -> Vec<u8> {
    let quoted = udp(sender, "198.51.100.1:9".parse().unwrap());
    let IpAddr::V4(to) = sender.ip() else { panic!("IPv4") };
    let mut icmp = [&[3u8, 3, 0, 0, 0, 0, 0, 0], &quoted[14..14 + 28]].concat();
    let sum = checksum::of(&icmp).to_be_bytes();
    icmp[2..4].copy_from_slice(&sum);
    let mut ip = vec![0x45, 0, 0, 20 + icmp.len() as u8, 0, 0, 0, 0, 64, 1, 0, 0, 192, 0, 2, 9];
    ip.extend(to.octets());
    let sum = checksum::of(&ip).to_be_bytes();
    ip[10..12].copy_from_slice(&sum);
    [&quoted[..14], &ip, &icmp].concat()
}

#[test]
fn an_outside_port_leads_to_its_owner_and_so_do_errors_about_it() {
    let other: IpAddr = [203, 0, 113, 2].into();
    let mut rule = PortBlocks::new([
        block(POOL, 2048, 3071, 2),
        block(POOL, 1024, 2047, 1),
        block(POOL, 65_000, 65_535, 3),
        block(other, 1024, 65_535, 0),
    ])
    .unwrap();
    let remote: SocketAddr = "198.51.100.1:443".parse().unwrap();
    let mut owner = |address: IpAddr, port: u16| rule.replica(&bare(&udp(remote, (address, port).into())), 4);
    for (port, expected) in [(1024, 1), (2047, 1), (2048, 2), (3071, 2), (65_000, 3), (65_535, 3)] {
        assert_eq!(owner(POOL, port), expected, "{port}");
        assert_eq!(owner(other, port), 0);
    }
    // Nobody's: one of them, the same for all of the address.
    let nobody = owner(POOL, 5);
    assert!(nobody < 4 && [owner(POOL, 1023), owner(POOL, 3072), owner(POOL, 64_999)] == [nobody; 3]);
    for (port, expected) in [(1500, 1), (2500, 2), (65_001, 3), (80, nobody)] {
        assert_eq!(rule.replica(&bare(&error_about((POOL, port).into())), 4), expected, "{port}");
    }
    let mut piece = udp(remote, (POOL, 2500).into());
    piece[20..22].copy_from_slice(&[0, 5]);
    piece[24..26].fill(0);
    let sum = checksum::of(&piece[14..34]).to_be_bytes();
    piece[24..26].copy_from_slice(&sum);
    assert_eq!(rule.replica(&bare(&piece), 4), nobody, "a later fragment has no port");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn blocks_are_found_as_by_looking_at_each(
        cuts in proptest::collection::btree_set(any::<u16>(), 2..20),
        owned in proptest::collection::vec(proptest::option::of(0usize..5), 20),
        ports in proptest::collection::vec(any::<u16>(), 20),
    ) {
        let cuts: Vec<u16> = cuts.into_iter().collect();
        let blocks: Vec<_> = cuts.windows(2).zip(&owned)
            .filter_map(|(cut, owner)| Some(block(POOL, cut[0], cut[1] - 1, (*owner)?)))
            .collect();
        let mut rule = PortBlocks::new(blocks.iter().rev().cloned()).unwrap();
        let frame = |port| udp("198.51.100.1:443".parse().unwrap(), (POOL, port).into());
        for port in ports.iter().copied().chain(cuts.iter().copied()) {
            if let Some(found) = blocks.iter().find(|block| block.ports.contains(&port)) {
                prop_assert_eq!(rule.replica(&bare(&frame(port)), 5), found.owner);
            }
        }
    }
}

#[test]
fn no_port_has_two_owners() {
    let why =
        PortBlocks::new([block(POOL, 2000, 2999, 1), block(POOL, 1000, 2000, 0)]).unwrap_err().to_string();
    assert_eq!(why, "203.0.113.1: ports 1000 to 2000 and 2000 to 2999 have owners each");
    assert!(PortBlocks::new([block(POOL, 1, 2, 1), block([203, 0, 113, 2].into(), 2, 3, 0)]).is_ok());
}

/// What a subscriber sends and what comes back to the outside ports that its replica owns meet there.
#[test]
fn each_side_goes_by_its_own_rule() {
    const REPLICAS: usize = 3;
    let inside = InsideAddress::new([INSIDE]);
    let subscriber = IpAddr::from([100, 64, 3, 7]);
    let owner = inside.owner(subscriber, [0, 0], REPLICAS);
    let outside =
        PortBlocks::new([block(POOL, 4096, 5119, owner), block(POOL, 5120, 6143, (owner + 1) % REPLICAS)]);
    let mut rule = BySide::new([INSIDE], inside, outside.unwrap());
    let remote: SocketAddr = "198.51.100.1:443".parse().unwrap();
    let out = parsed(&[udp((subscriber, 5000).into(), remote)], INSIDE);
    let back = parsed(&[udp(remote, (POOL, 4100).into()), udp(remote, (POOL, 5200).into())], OUTSIDE);
    assert_eq!(rule.replica(&out[0], REPLICAS), owner);
    assert_eq!(rule.replica(&back[0], REPLICAS), owner);
    assert_eq!(rule.replica(&back[1], REPLICAS), (owner + 1) % REPLICAS);
}

#[test]
fn what_is_no_ip_goes_somewhere_too() {
    let arp = [&[0xffu8; 6][..], &[2, 0, 0, 0, 0, 1, 8, 6], &[0; 46]].concat();
    for frame in [&arp[..], &arp[..20], &arp[..3], &[]] {
        let mut mbuf = bare(&[0; 60]);
        mbuf.set_len(frame.len()).unwrap().copy_from_slice(frame);
        let mut rules: [Box<dyn Affinity>; 4] = [
            Box::new(SymmetricFlow::new()),
            Box::new(InsideAddress::new([INSIDE])),
            Box::new(PortBlocks::new([]).unwrap()),
            Box::new(RoundRobin::default()),
        ];
        assert!(rules.iter_mut().all(|rule| rule.replica(&mbuf, 3) < 3));
    }
}

#[test]
fn a_parser_writes_what_later_stages_read() {
    let (a, b) = ("10.0.0.1:5000".parse().unwrap(), "10.0.0.2:7".parse().unwrap());
    let frame = tagged(udp(a, b), 0x2064);
    let mut broken = frame.clone();
    broken[90] ^= 1;
    let arp = [&[0xffu8; 6][..], &[2, 0, 0, 0, 0, 1, 8, 6], &[0; 46]].concat();
    let came = parsed(&[broken, frame.clone(), arp, frame[..30].to_vec()], 5);
    assert_eq!(came.len(), 2, "a wrong checksum and a cut header are dropped");
    let meta = came[0].meta().unwrap();
    assert_eq!((meta.tags, meta.tagged, meta.l3, meta.l4, meta.end), ([0x2064, 0], 1, 18, 38, 104));
    assert_eq!((meta.kind, meta.protocol, meta.in_port), (0x0800, 17, 5));
    assert!(meta.flags.has(MetaFlags::IP.with(MetaFlags::L4).with(MetaFlags::CHECKED)));
    assert!(!meta.flags.has(MetaFlags::V6) && !meta.flags.has(MetaFlags::FRAGMENT));
    let arp = came[1].meta().unwrap();
    assert_eq!((arp.kind, arp.l3, arp.flags), (0x0806, 14, MetaFlags::NONE));
    assert_ne!(meta.hash, arp.hash);
}
