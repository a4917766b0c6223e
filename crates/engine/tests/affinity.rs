//! Affinity keys, against what they promise.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use crate::common::eal;
use dpdk::{Batch, Mbuf, Mempool, MetaFlags};
use engine::affinity::{RoundRobin, SymmetricFlow};
use engine::{Affinity, Cx, Element, Engine, Graph, Options, Parser, Placement};
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
        fn about(&self) -> engine::ElementInfo {
            engine::ElementInfo { kind: "source", takes: false, outputs: &["out"], drops: &[], polled: true }
        }

        fn poll(&mut self, batch: &mut Batch, _: &mut Cx<'_>) {
            self.0.move_to(batch);
        }
    }
    struct Collect(Sender<Mbuf>);
    impl Element for Collect {
        fn about(&self) -> engine::ElementInfo {
            engine::ElementInfo { kind: "collect", takes: true, outputs: &[], drops: &[], polled: false }
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
fn what_is_no_ip_goes_somewhere_too() {
    let arp = [&[0xffu8; 6][..], &[2, 0, 0, 0, 0, 1, 8, 6], &[0; 46]].concat();
    for frame in [&arp[..], &arp[..20], &arp[..3], &[]] {
        let mut mbuf = bare(&[0; 60]);
        mbuf.set_len(frame.len()).unwrap().copy_from_slice(frame);
        let mut rules: [Box<dyn Affinity>; 2] =
            [Box::new(SymmetricFlow::new()), Box::new(RoundRobin::default())];
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
    assert_eq!((arp.kind, arp.l3, arp.flags), (0x0806, 14, MetaFlags::HASHED));
    assert_ne!(meta.hash, arp.hash);
}
