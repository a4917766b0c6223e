//! Sends every datagram back where it came from: something to point load at.

use crate::interface_addr::{InterfaceAddrs, destination};
use crate::kind::{Build, ElementKind};
use dpdk::Batch;
use engine::{Cx, Element, ElementInfo};
use packet::layers::protocol;
use packet::{Fault, Layers, ethernet, ipv4, ipv6, udp};
use profile::Error as SetupError;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Sends UDP datagrams back where they came from, and answers ARP, neighbour discovery and echo for its port's addresses.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Options {
    /// The port whose addresses it has.
    pub port: String,
}

impl ElementKind for Options {
    const KIND: &'static str = "reflector";
    const DROPS: &'static [&'static str] = &DROPS;
    const REPLICABLE: bool = true;
    const EXAMPLE: &'static str = r#"{"port": "a"}"#;

    fn ports(&self) -> Vec<(&'static str, &str)> {
        vec![("port", &self.port)]
    }

    fn build(&self, cx: &mut Build<'_>) -> Result<Box<dyn Element>, SetupError> {
        Ok(Box::new(Reflector(cx.port("port", &self.port)?.1.addrs.clone())))
    }
}

/// Element: swaps Ethernet and IP addresses and UDP ports; answers questions and pings for its own address.
#[derive(Debug)]
pub struct Reflector(pub InterfaceAddrs);

/// A UDP datagram for another address than the interface's.
const NOT_FOR_US: usize = Fault::NAMES.len();
/// Its headers may be in order, but not all of it is at hand.
const SEGMENTED: usize = NOT_FOR_US + 1;

const DROPS: [&str; SEGMENTED + 1] = {
    let mut names = ["not_for_us"; SEGMENTED + 1];
    let mut i = 0;
    while i < NOT_FOR_US {
        names[i] = Fault::NAMES[i];
        i += 1;
    }
    names[SEGMENTED] = "segmented";
    names
};

/// Send `frame` back, in place. Checksums stay right: no sum changes when its parts change places.
#[inline]
pub fn reflect(frame: &mut [u8], addrs: &InterfaceAddrs) -> Result<(), usize> {
    let layers = match Layers::find(frame) {
        Ok(layers) if layers.protocol == protocol::UDP => layers,
        other => return Err(other.err().unwrap_or(Fault::NotUdp) as usize),
    };
    if layers.end - layers.l4 < udp::LEN {
        return Err(Fault::Truncated as usize);
    }
    if !addrs.bare().accepts_vlan(frame) || !addrs.accepts(destination(frame, &layers)) {
        return Err(NOT_FOR_US);
    }
    ethernet::swap(frame);
    if layers.is_v6() {
        ipv6::swap(frame, layers.ip)
    } else {
        ipv4::swap(frame, layers.ip)
    }
    udp::swap(frame, layers.l4);
    Ok(())
}

impl Element for Reflector {
    fn about(&self) -> ElementInfo {
        ElementInfo { kind: Options::KIND, takes: true, outputs: &["out"], drops: &DROPS, polled: false }
    }

    fn push(&mut self, batch: &mut Batch, cx: &mut Cx<'_>) {
        cx.drop_rejected(batch, |mbuf| match mbuf.is_whole() {
            true => reflect(mbuf.data_mut(), &self.0)
                .or_else(|why| if self.0.respond(mbuf) { Ok(()) } else { Err(why) }),
            false => Err(SEGMENTED),
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::interface_addr::InterfaceAddr;
    use packet::ethernet::Tags;
    use packet::frame::Written;
    use packet::signature::Signature;
    use packet::udp::Datagram;
    use packet::{Flow, Program};
    use proptest::prelude::*;
    use std::net::{IpAddr, SocketAddr};

    fn frame(from: &str, to: &str) -> Vec<u8> {
        let flow = Flow {
            source_mac: [2, 0, 0, 0, 0, 1],
            destination_mac: [2, 0, 0, 0, 0, 2],
            source: from.parse::<SocketAddr>().expect("an address"),
            destination: to.parse().expect("an address"),
        };
        let mut program = Program::udp(&flow, 100).expect("it fits");
        let mut frame = vec![0; 100];
        assert_eq!(
            program.write(&mut frame, 0, &Signature { stream: 1, sequence: 2, sent_ns: 3 }),
            Written::Signed
        );
        frame
    }

    fn addr(ip: &str) -> InterfaceAddrs {
        one(ip).into()
    }

    fn one(ip: &str) -> InterfaceAddr {
        InterfaceAddr { mac: [2, 0, 0, 0, 0, 2], ip: ip.parse().expect("an address"), tags: Tags::NONE }
    }

    #[test]
    fn it_comes_back_as_if_the_other_side_had_sent_it() {
        for (from, to, ip) in [
            ("10.0.0.1:5", "10.0.0.2:7", "10.0.0.2"),
            ("[fd00::1]:5", "[fd00::2]:7", "fd00::2"),
            ("1.1.1.1:5", "2.2.2.2:7", "0.0.0.0"),
        ] {
            let mut there = frame(from, to);
            assert_eq!(reflect(&mut there, &addr(ip)), Ok(()));
            let mut back = frame(to, from);
            ethernet::swap(&mut back);
            assert_eq!(there, back);
            let layers = Layers::find(&there).expect("whole");
            assert!(Datagram::parse(&there, &layers).is_ok());
        }
    }

    #[test]
    fn what_is_not_for_it_is_named() {
        let other = addr("10.0.0.9");
        let why = reflect(&mut frame("10.0.0.1:5", "10.0.0.2:7"), &other).expect_err("not for us");
        assert_eq!(DROPS[why], "not_for_us");
        let mut broken = frame("10.0.0.1:5", "10.0.0.9:7");
        broken[20] = 1;
        assert_eq!(DROPS[reflect(&mut broken, &other).expect_err("broken")], "bad_checksum");
        assert_eq!(DROPS[reflect(&mut [0; 60], &other).expect_err("nothing")], "not_ip");
    }

    #[test]
    fn what_is_of_another_vlan_is_not_for_it() {
        let tags = |ids: &[u16]| Tags::vlans(ids).expect("at most two");
        let here = InterfaceAddr { tags: tags(&[100]), ..one("0.0.0.0") }.into();
        for (ids, ok) in [(&[100][..], true), (&[], false), (&[101], false), (&[100, 100], false)] {
            let mut frame = frame("10.0.0.1:5", "10.0.0.2:7");
            frame.splice(12..12, tags(ids).bytes().iter().copied());
            let back = reflect(&mut frame, &here).map_err(|why| DROPS[why]);
            assert_eq!(back, if ok { Ok(()) } else { Err("not_for_us") }, "{ids:?}");
        }
    }

    proptest! {
        #[test]
        fn nothing_makes_it_panic(mut bytes in proptest::collection::vec(any::<u8>(), 0..128), at in 0usize..64, with in any::<u8>()) {
            let any = InterfaceAddr { mac: [0; 6], ip: IpAddr::from([0, 0, 0, 0]), tags: Tags::NONE }.into();
            let _any = reflect(&mut bytes, &any);
            let mut frame = frame("10.0.0.1:5", "10.0.0.2:7");
            frame[at] = with;
            frame.truncate(bytes.len().max(1));
            let _any = reflect(&mut frame, &any);
        }
    }
}
