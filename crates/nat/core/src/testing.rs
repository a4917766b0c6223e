//! A NAT and packets for tests.

use crate::config::{Config, PoolAddress, SECOND};
use crate::{Endpoint, Frame, Hop, Nat, Side, Verdict};
use packet::frame::{Flow, Program};
use packet::signature::Signature;
use std::net::{Ipv4Addr, SocketAddrV4};

/// When packets come.
pub const NOW: u64 = 100 * SECOND;
/// Whom subscribers talk to.
pub const REMOTE: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::new(198, 51, 100, 9), 53);

/// A subscriber's endpoint.
pub fn inside(last: u8, port: u16) -> SocketAddrV4 {
    SocketAddrV4::new(Ipv4Addr::new(10, 0, 0, last), port)
}

/// One address outside, room for 8,192 sessions.
pub fn config() -> Config {
    let pool = vec![PoolAddress::all_ports(Ipv4Addr::new(203, 0, 113, 1))];
    Config { pool, sessions: 8192, subscribers: 64, ..Config::default() }
}

/// A NAT without memory of anything.
pub fn nat() -> Nat {
    Nat::new(config()).expect("a NAT")
}

/// A UDP packet of 66 bytes.
pub fn datagram(from: SocketAddrV4, to: SocketAddrV4) -> Vec<u8> {
    let flow =
        Flow { source_mac: [2; 6], destination_mac: [4; 6], source: from.into(), destination: to.into() };
    let (mut bytes, mark) = (vec![0; 80], Signature { stream: 1, sequence: 2, sent_ns: 3 });
    let _written = Program::udp(&flow, 80).expect("a frame").write(&mut bytes, 0, &mark);
    bytes
}

/// Let a subscriber send a datagram.
pub fn send(nat: &mut Nat, from: SocketAddrV4, to: SocketAddrV4) {
    let mut bytes = datagram(from, to);
    let mut frames = [Frame::new(&mut bytes)];
    nat.process(Side::Inside, &mut frames, NOW);
    assert!(matches!(frames[0].verdict, Verdict::Forward(_)), "{from} to {to}: {:?}", frames[0].verdict);
}

/// By which next hop a datagram from the outside goes on; none: it is dropped.
pub fn hop_in(nat: &mut Nat, from: SocketAddrV4, to: Endpoint) -> Option<Hop> {
    let mut bytes = datagram(from, SocketAddrV4::new(Ipv4Addr::from_bits(to.address), to.port));
    let mut frames = [Frame::new(&mut bytes)];
    nat.process(Side::Outside, &mut frames, NOW);
    match frames[0].verdict {
        Verdict::Forward(forward) => Some(forward.hop),
        _ => None,
    }
}
