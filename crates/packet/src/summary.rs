//! A frame in one line of text.

use crate::arp::{Arp, Operation};
use crate::bytes::take;
use crate::ethernet::{self, Ethernet, kind};
use crate::frame::MacAddress;
use crate::layers::{Layers, protocol};
use crate::{ipv4, ipv6};
use std::fmt::Write;
use std::net::IpAddr;

/// A frame of `len` bytes, of which perhaps only the first are there, in one line.
pub fn summary(data: &[u8], len: usize) -> String {
    // What was cut off is not looked at; that it was there is, as lengths are checked.
    let mut frame = data.to_vec();
    frame.resize(len.max(data.len()), 0);
    let mut line = String::new();
    let Some(header) = Ethernet::parse(&frame) else { return format!("{len} B, not even a header") };
    let mut at = ethernet::LEN;
    let mut found = header.kind;
    while let (kind::VLAN | kind::QINQ, Some([tag @ .., k0, k1])) = (found, take::<4>(&frame, at)) {
        let _infallible = write!(line, "VLAN {} ", u16::from_be_bytes(*tag) & 0x0fff);
        found = u16::from_be_bytes([*k0, *k1]);
        at += ethernet::TAG;
    }
    line += &match (Layers::find(&frame), Arp::parse(&frame)) {
        (Ok(layers), _) => ip(&frame, &layers),
        (_, Some(arp)) => match arp.operation {
            Operation::Request => format!("ARP who has {}? tell {}", arp.target, arp.sender),
            Operation::Reply => format!("ARP {} is at {}", arp.sender, MacAddress(arp.sender_mac)),
        },
        (Err(fault), _) => {
            let ends = format!("{} > {}", MacAddress(header.source), MacAddress(header.destination));
            match found {
                kind::IPV4 | kind::IPV6 => format!("{ends} IP: {fault}"),
                other => format!("{ends} type 0x{other:04x}"),
            }
        }
    };
    let _infallible = write!(line, ", {len} B");
    line
}

fn ip(frame: &[u8], layers: &Layers) -> String {
    let ends = if layers.is_v6() {
        ipv6::addresses(frame, layers.ip).map(|(from, to)| (IpAddr::from(from), IpAddr::from(to)))
    } else {
        ipv4::addresses(frame, layers.ip).map(|(from, to)| (IpAddr::from(from), IpAddr::from(to)))
    };
    let Some((from, to)) = ends else { return String::new() };
    let ports = || take::<4>(frame, layers.l4);
    let [a, b, c, d] = *ports().unwrap_or(&[0; 4]);
    let (source, destination) = (u16::from_be_bytes([a, b]), u16::from_be_bytes([c, d]));
    let flow = || match from {
        IpAddr::V4(_) => format!("{from}:{source} > {to}:{destination}"),
        IpAddr::V6(_) => format!("[{from}]:{source} > [{to}]:{destination}"),
    };
    match layers.protocol {
        protocol::UDP => format!("{} UDP", flow()),
        protocol::TCP => format!("{} TCP{}", flow(), flags(frame.get(layers.l4 + 13).copied().unwrap_or(0))),
        protocol::ICMP | protocol::ICMPV6 => {
            format!("{from} > {to} ICMP{} {}", version(layers), message(layers, a))
        }
        other => format!("{from} > {to} protocol {other}"),
    }
}

fn version(layers: &Layers) -> &'static str {
    if layers.is_v6() { "v6" } else { "" }
}

/// What an ICMP message says (RFC 792, RFC 4443, RFC 4861).
fn message(layers: &Layers, kind: u8) -> String {
    let known = match (layers.is_v6(), kind) {
        (false, 8) | (true, 128) => "echo request",
        (false, 0) | (true, 129) => "echo reply",
        (false, 3) | (true, 1) => "destination unreachable",
        (false, 11) | (true, 3) => "time exceeded",
        (true, 135) => "neighbour solicitation",
        (true, 136) => "neighbour advertisement",
        _ => return format!("type {kind}"),
    };
    known.to_owned()
}

/// TCP's flags that are set (RFC 9293 section 3.1).
fn flags(bits: u8) -> String {
    let names = ["FIN", "SYN", "RST", "PSH", "ACK", "URG"];
    let set = names.iter().enumerate().filter(|(bit, _)| bits & 1 << bit != 0);
    set.map(|(_, name)| format!(" {name}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checksum;
    use proptest::prelude::*;

    fn frame(kind: &[u8], rest: &[u8]) -> Vec<u8> {
        [&[2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1], kind, rest].concat()
    }

    fn v4(protocol: u8, payload: &[u8]) -> Vec<u8> {
        let len = 20 + payload.len() as u8;
        let mut header = [0x45, 0, 0, len, 0, 0, 0, 0, 64, protocol, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2];
        let sum = checksum::of(&header).to_be_bytes();
        header[10..12].copy_from_slice(&sum);
        [&header[..], payload].concat()
    }

    fn text(frame: &[u8]) -> String {
        summary(frame, frame.len())
    }

    #[test]
    fn each_kind_has_its_words() {
        let udp = [0xc0, 0, 0, 7, 0, 8, 0, 0];
        let plain = frame(&[8, 0], &v4(17, &udp));
        assert_eq!(text(&plain), "10.0.0.1:49152 > 10.0.0.2:7 UDP, 42 B");
        let tagged = frame(&[0x88, 0xa8, 0, 10, 0x81, 0, 0x20, 100, 8, 0], &v4(17, &udp));
        assert_eq!(text(&tagged), "VLAN 10 VLAN 100 10.0.0.1:49152 > 10.0.0.2:7 UDP, 50 B");
        let mut tcp = [0; 20];
        (tcp[1], tcp[3], tcp[13]) = (80, 9, 0x12);
        assert_eq!(text(&frame(&[8, 0], &v4(6, &tcp))), "10.0.0.1:80 > 10.0.0.2:9 TCP SYN ACK, 54 B");
        assert_eq!(
            text(&frame(&[8, 0], &v4(1, &[8, 0, 0, 0]))),
            "10.0.0.1 > 10.0.0.2 ICMP echo request, 38 B"
        );
        assert_eq!(text(&frame(&[8, 0], &v4(1, &[40; 4]))), "10.0.0.1 > 10.0.0.2 ICMP type 40, 38 B");
        assert_eq!(text(&frame(&[8, 0], &v4(47, &[]))), "10.0.0.1 > 10.0.0.2 protocol 47, 34 B");
        assert_eq!(
            text(&frame(&[0x88, 0xcc], &[0; 46])),
            "02:00:00:00:00:01 > 02:00:00:00:00:02 type 0x88cc, 60 B"
        );
    }

    #[test]
    fn ipv6_and_arp_too() {
        let mut header = [0; 40];
        (header[0], header[5], header[6], header[23], header[39]) = (0x60, 8, 58, 1, 2);
        let mut solicitation = [0; 8];
        solicitation[0] = 135;
        let line = text(&frame(&[0x86, 0xdd], &[&header[..], &solicitation].concat()));
        assert_eq!(line, "::1 > ::2 ICMPv6 neighbour solicitation, 62 B");
        header[6] = 17;
        let line = text(&frame(&[0x86, 0xdd], &[&header[..], &[0, 5, 0, 7, 0, 8, 0, 0]].concat()));
        assert_eq!(line, "[::1]:5 > [::2]:7 UDP, 62 B");
        let ask = Arp::request([2, 0, 0, 0, 0, 1], [10, 0, 0, 1].into(), [10, 0, 0, 2].into());
        let mut out = [0; crate::arp::FRAME];
        ask.emit(&mut out);
        assert_eq!(text(&out), "ARP who has 10.0.0.2? tell 10.0.0.1, 42 B");
        ask.answer([2, 0, 0, 0, 0, 2]).emit(&mut out);
        assert_eq!(text(&out), "ARP 10.0.0.2 is at 02:00:00:00:00:02, 42 B");
    }

    #[test]
    fn what_is_cut_or_wrong_is_told_as_far_as_it_goes() {
        let udp = frame(&[8, 0], &v4(17, &[0xc0, 0, 0, 7, 0, 8, 0, 0]));
        assert_eq!(summary(&udp[..38], 42), text(&udp));
        let mut wrong = udp.clone();
        wrong[24] ^= 1;
        assert_eq!(text(&wrong), "02:00:00:00:00:01 > 02:00:00:00:00:02 IP: a wrong checksum, 42 B");
        assert_eq!(text(&udp[..13]), "13 B, not even a header");
    }

    proptest! {
        #[test]
        fn no_bytes_panic(data in proptest::collection::vec(any::<u8>(), 0..128), more in 0usize..2000) {
            prop_assert!(!summary(&data, data.len() + more).is_empty());
        }
    }
}
