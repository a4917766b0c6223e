//! The exception path: which frames the host's kernel gets, because they are for the box itself.

use ::element::interface_addr::InterfaceAddrs;
use packet::arp::{Arp, Operation};
use packet::ethernet::{self, Tags, kind};
use packet::nd::Nd;
use packet::{ipv4, ipv6};
use std::net::IpAddr;

/// Which of the host's frames it is: whoever floods the box with packets must not keep it from being found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    /// ARP and neighbour discovery.
    Resolution,
    /// All other.
    Traffic,
}

/// What of a frame on a port with these addresses is the host's. `None`: it is for somebody else.
///
/// A kernel takes what is for any of its addresses, by whatever interface it comes; so only what is for the port's own goes there, and IPv4
/// for `also`.
pub fn part(frame: &[u8], addrs: &InterfaceAddrs, also: &[IpAddr]) -> Option<Part> {
    let bare = addrs.bare();
    let (to, from) = (frame.get(..6)?, frame.get(6..12)?);
    let for_us = to == bare.mac || to[0] & 1 == 1;
    if !for_us || from == bare.mac || !bare.tags.same_vlans(&Tags::of(frame)) {
        return None;
    }
    let own = |ip: IpAddr| addrs.own().iter().any(|own| own.ip == ip);
    let (carried, at) = ethernet::payload(frame)?;
    match carried {
        kind::ARP => {
            let arp = Arp::parse(frame)?;
            // Of questions those for us, and announcements, which are asked of nobody.
            let ours = arp.operation != Operation::Request || arp.sender == arp.target;
            (ours || own(arp.target.into())).then_some(Part::Resolution)
        }
        kind::IPV4 => {
            let (_, to) = ipv4::addresses(frame, at)?;
            let ours = to.is_multicast() || to.is_broadcast() || own(to.into()) || also.contains(&to.into());
            ours.then_some(Part::Traffic)
        }
        kind::IPV6 => {
            let (_, to) = ipv6::addresses(frame, at)?;
            if !addrs.own().iter().any(|own| own.ip.is_ipv6()) {
                return None;
            }
            let ours = to.is_multicast() || to.is_unicast_link_local() || own(to.into());
            let part = if Nd::parse(frame).is_some() { Part::Resolution } else { Part::Traffic };
            ours.then_some(part)
        }
        _ => Some(Part::Traffic),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use packet::frame::{Flow, Program};
    use packet::signature::Signature;
    use packet::{Mac, arp};
    use std::net::{Ipv4Addr, SocketAddr};

    const OWN: Mac = [2, 0, 0, 0, 9, 3];
    const OTHER: Mac = [2, 0, 0, 0, 0, 1];
    const BOX: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 254);
    const PEER: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);

    fn part(frame: &[u8], addrs: &InterfaceAddrs) -> Option<Part> {
        super::part(frame, addrs, &[])
    }

    fn addrs(vlans: &[u16]) -> InterfaceAddrs {
        InterfaceAddrs::new(OWN, Tags::vlans(vlans).expect("tags"), &[BOX.into()], &[])
    }

    fn udp(to_mac: Mac, from_mac: Mac, to: &str) -> Vec<u8> {
        let destination: SocketAddr = to.parse().expect("an endpoint");
        let source = if destination.is_ipv4() { "10.0.0.1:68" } else { "[fe80::1]:68" };
        let source = source.parse().expect("an endpoint");
        let flow = Flow { source_mac: from_mac, destination_mac: to_mac, source, destination };
        let mut frame = vec![0; 100];
        let _written = Program::udp(&flow, 100).expect("a frame").write(
            &mut frame,
            0,
            &Signature { stream: 1, sequence: 2, sent_ns: 3 },
        );
        frame
    }

    fn resolution(arp: &Arp) -> Vec<u8> {
        let mut frame = [0; arp::FRAME];
        arp.emit(&mut frame);
        frame.to_vec()
    }

    fn tagged(frame: &[u8], id: u8) -> Vec<u8> {
        [&frame[..12], &[0x81, 0, 0, id], &frame[12..]].concat()
    }

    #[test]
    fn what_is_for_the_box_is_the_hosts() {
        let own = addrs(&[]);
        for to in ["10.0.0.254:22", "255.255.255.255:67", "224.0.0.251:5353"] {
            assert_eq!(part(&udp(OWN, OTHER, to), &own), Some(Part::Traffic), "{to}");
        }
        assert_eq!(part(&udp([0xff; 6], OTHER, "255.255.255.255:67"), &own), Some(Part::Traffic));
        let also = Ipv4Addr::new(192, 0, 2, 1).into();
        assert_eq!(super::part(&udp(OWN, OTHER, "192.0.2.1:22"), &own, &[also]), Some(Part::Traffic));
        // Another address of this host, maybe; and frames of others.
        assert_eq!(part(&udp(OWN, OTHER, "192.0.2.1:22"), &own), None);
        assert_eq!(part(&udp([2, 0, 0, 0, 0, 7], OTHER, "10.0.0.254:22"), &own), None);
        assert_eq!(part(&udp([0xff; 6], OWN, "255.255.255.255:67"), &own), None, "our own");
        // It has no IPv6.
        for to in ["[ff02::1]:5353", "[fe80::2]:22", "[2001:db8::1]:22"] {
            assert_eq!(part(&udp(OWN, OTHER, to), &own), None, "{to}");
        }
        let lldp = [&[1, 0x80, 0xc2, 0, 0, 0xe][..], &OTHER, &[0x88, 0xcc], &[0; 46]].concat();
        assert_eq!(part(&lldp, &own), Some(Part::Traffic));
        for len in 0..14 {
            assert_eq!(part(&lldp[..len], &own), None, "{len}");
        }
    }

    #[test]
    fn who_asks_for_others_asks_not_the_host() {
        let own = addrs(&[]);
        let asked = |target| resolution(&Arp::request(OTHER, PEER, target));
        assert_eq!(part(&asked(BOX), &own), Some(Part::Resolution));
        assert_eq!(part(&asked(Ipv4Addr::new(10, 0, 0, 7)), &own), None);
        assert_eq!(part(&resolution(&Arp::announcement(OTHER, PEER)), &own), Some(Part::Resolution));
        let answer = Arp::request(OWN, BOX, PEER).answer(OTHER);
        assert_eq!(part(&resolution(&answer), &own), Some(Part::Resolution));
    }

    #[test]
    fn only_the_boxs_own_tags_are_the_hosts() {
        let plain = udp(OWN, OTHER, "10.0.0.254:22");
        for (vlans, frame, expected) in [
            (&[][..], plain.clone(), true),
            (&[], tagged(&plain, 100), false),
            (&[100], tagged(&plain, 100), true),
            (&[100], tagged(&plain, 101), false),
            (&[100], plain.clone(), false),
            (&[100], tagged(&tagged(&plain, 100), 100), false),
            (&[7, 9], tagged(&tagged(&plain, 9), 7), true),
            (&[7, 9], tagged(&tagged(&plain, 7), 9), false),
        ] {
            assert_eq!(part(&frame, &addrs(vlans)).is_some(), expected, "{vlans:?}");
        }
    }

    #[test]
    fn with_an_ipv6_address_of_its_own_it_is_a_host_there_too() {
        let ip = ["10.0.0.254", "2001:db8::254"].map(|ip| ip.parse().expect("an address"));
        let own = InterfaceAddrs::new(OWN, Tags::NONE, &ip, &[]);
        for (to, expected) in [("[ff02::1]:1", true), ("[fe80::2]:1", true), ("[2001:db8::254]:1", true)] {
            assert_eq!(part(&udp(OWN, OTHER, to), &own).is_some(), expected, "{to}");
        }
        assert_eq!(part(&udp(OWN, OTHER, "[2001:db8::1]:1"), &own), None);
    }
}
