//! What must hold for any frame in everything that receives; and the frames that nobody should send.

use crate::expected::{ExpectedGroup, PlainUdp};
use crate::receiver::Measurements;
use crate::stream_table::Lane;
use dpdk::Checked;
use element::interface_addr::InterfaceAddr;
use element::reflect::reflect;
use packet::arp::{Arp, Operation};
use packet::ethernet::{self, Tags};
use packet::frame::Sizes;
use packet::nd::{self, Nd};
use packet::{Layers, ipv4, ipv6};
use protocol::meter::{Tally, Window};
use protocol::time::Time;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

const ADDR: InterfaceAddr =
    InterfaceAddr { mac: [2, 0, 0, 0, 0, 2], ip: IpAddr::V4(Ipv4Addr::new(10, 0, 0, 2)), tags: Tags::NONE };
const ADDR6: InterfaceAddr =
    InterfaceAddr { ip: IpAddr::V6(Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 2)), ..ADDR };

/// What a receiver knows that expects one stream.
fn measured() -> Measurements {
    let window = Window { measure: Time(1), drain: Time::NEVER };
    Measurements::new(vec![expected(None)], Lane::ALL, true, window)
}

fn expected(plain: Option<PlainUdp>) -> ExpectedGroup {
    let meter = [(); 3].map(|()| Tally::new(1));
    ExpectedGroup { group: 0, streams: 0..1, meter, delay: Some(0), whole: false, plain }
}

/// The group's frames are plain datagrams between the reflecting address and the requesting one.
fn plain(v6: bool) -> PlainUdp {
    let sources = vec![if v6 { ADDR6.ip } else { ADDR.ip }];
    let peer: IpAddr = match v6 {
        false => Ipv4Addr::new(10, 0, 0, 1).into(),
        true => Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 1).into(),
    };
    PlainUdp::new((sources, 1), SocketAddr::new(peer, 7), (&Sizes::Cycle(vec![100]), 42), true)
}

/// Show `frame` to everything that receives. Panics when one of them does, or does what it must not.
pub fn show(frame: &[u8]) {
    let _any = measured().frame(frame, 9_000);
    for v6 in [false, true] {
        let window = Window { measure: Time(1), drain: Time::NEVER };
        let mut strict = Measurements::new(vec![expected(Some(plain(v6)))], Lane::ALL, true, window);
        for said in [Checked::Unknown, Checked::Good, Checked::Bad] {
            let _any = strict.checked(frame, 9_000, said);
        }
    }
    let mut copy = frame.to_vec();
    let anybody = InterfaceAddr { ip: Ipv4Addr::UNSPECIFIED.into(), ..ADDR }.into();
    if reflect(&mut copy, &anybody).is_ok() {
        assert_eq!(reflect(&mut copy, &anybody), Ok(()), "what was sent back can be sent back");
    }
    assert_eq!(copy, frame, "dropped frames are left alone, and there and back is where it was");
    answers(&ADDR, frame);
    answers(&ADDR6, frame);
}

/// The reply of `addr` to it is right.
fn answers(addr: &InterfaceAddr, frame: &[u8]) {
    let mut copy = frame.to_vec();
    if !addr.answer(&mut copy) {
        assert_eq!(copy, frame, "what is not answered is left alone");
        let Some(longer) = addr.longer(frame) else { return };
        copy.resize(longer, 0xff);
        assert!(addr.answer(&mut copy), "with room it is answered");
    }
    assert!(!addr.answer(&mut copy), "an answer is no question");
    assert_eq!(Tags::of(&copy), Tags::of(frame), "an answer stays in its VLAN");
    let ethernet = ethernet::Ethernet::parse(&copy).expect("answers are frames");
    if let Some(said) = Arp::parse(&copy) {
        let asked = Arp::parse(frame).expect("answers are for questions");
        assert_eq!((said.operation, said.sender_mac), (Operation::Reply, addr.mac));
        assert_eq!((IpAddr::from(said.sender), said.target), (addr.ip, asked.sender));
        return assert_eq!((ethernet.destination, ethernet.source), (asked.sender_mac, addr.mac));
    }
    if let Some(said) = Nd::parse(&copy) {
        let asked = Nd::parse(frame).expect("answers are for questions");
        let solicited = !asked.source.is_unspecified();
        assert_eq!(said.operation, nd::Operation::Advertisement { solicited, overrides: true });
        assert_eq!((IpAddr::from(said.target), said.mac), (addr.ip, Some(addr.mac)));
        let back = if solicited { asked.source } else { nd::ALL_NODES };
        return assert_eq!((IpAddr::from(said.source), said.destination), (addr.ip, back));
    }
    let layers = Layers::find(&copy).expect("a whole packet");
    let (source, reply) = match layers.is_v6() {
        false => (ipv4::addresses(&copy, layers.ip).map(|(source, _)| IpAddr::from(source)), 0),
        true => (ipv6::addresses(&copy, layers.ip).map(|(source, _)| IpAddr::from(source)), 129),
    };
    assert_eq!((source, &ethernet.destination[..]), (Some(addr.ip), &frame[6..12]));
    assert_eq!((copy[layers.l4], layers.is_intact(&copy)), (reply, true), "a right echo reply");
}

#[cfg(test)]
mod corpus;
#[cfg(test)]
mod tests;
