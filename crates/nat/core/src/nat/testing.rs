//! What tests of the NAT have in common.

use super::Nat;
use crate::key::Endpoint;
use crate::verdict::{Frame, Side, Verdict};
use packet::frame::{Flow, Program};
use packet::signature::Signature;
use std::net::{Ipv4Addr, SocketAddr};

/// Let a UDP datagram come in by a side: what becomes of it.
pub(crate) fn send(nat: &mut Nat, side: Side, from: Endpoint, to: Endpoint, now: u64) -> Verdict {
    let address = |end: Endpoint| SocketAddr::from((Ipv4Addr::from_bits(end.address), end.port));
    let flow =
        Flow { source_mac: [2; 6], destination_mac: [4; 6], source: address(from), destination: address(to) };
    let (mut bytes, mark) = (vec![0; 80], Signature { stream: 1, sequence: 2, sent_ns: 3 });
    let _written = Program::udp(&flow, 80).unwrap().write(&mut bytes, 0, &mark);
    let mut frames = [Frame::new(&mut bytes)];
    nat.process(side, &mut frames, now);
    frames[0].verdict
}
