//! ARP and neighbour discovery: answers for a port's addresses, and questions for those of its peers.

use crate::interface_addr::{AddressQuery, InterfaceAddr, InterfaceAddrs};
use crate::kind::{Build, ElementKind};
use dpdk::{Batch, Mempool, RxQueue, TxQueue};
use engine::{Cx, Element, ElementInfo};
use packet::{Mac, nd};
use profile::Error as SetupError;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::time::{Duration, Instant};

/// Answers ARP, neighbour discovery and echo for its port's addresses; what is no question for them is dropped.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Options {
    /// The port whose addresses it answers for.
    pub port: String,
}

impl ElementKind for Options {
    const KIND: &'static str = "arp-nd";
    const DROPS: &'static [&'static str] = &["not_for_us", "segmented"];
    const REPLICABLE: bool = true;
    const EXAMPLE: &'static str = r#"{"port": "a"}"#;

    fn ports(&self) -> Vec<(&'static str, &str)> {
        vec![("port", &self.port)]
    }

    fn build(&self, cx: &mut Build<'_>) -> Result<Box<dyn Element>, SetupError> {
        Ok(Box::new(ArpNd(cx.port("port", &self.port)?.1.addrs.clone())))
    }
}

/// Element: answers requests for its addresses.
#[derive(Debug)]
pub struct ArpNd(pub InterfaceAddrs);

impl Element for ArpNd {
    fn about(&self) -> ElementInfo {
        ElementInfo {
            kind: Options::KIND,
            takes: true,
            outputs: &["out"],
            drops: Options::DROPS,
            polled: false,
        }
    }

    fn push(&mut self, batch: &mut Batch, cx: &mut Cx<'_>) {
        cx.drop_rejected(batch, |mbuf| match mbuf.is_whole() {
            true if self.0.respond(mbuf) => Ok(()),
            true => Err(0),
            // Nobody asks in so many words; and the rest would go back with the answer.
            false => Err(1),
        });
    }
}

/// How often the question is asked again.
const AGAIN: Duration = Duration::from_millis(100);

/// The largest message of those that an interface sends by itself; ports may not pad smaller frames.
const MESSAGE: usize = nd::FRAME + 2 * packet::ethernet::TAG;
/// The smallest frame.
const SHORTEST: usize = 60;

/// Send what `write` writes.
fn send(tx: &mut TxQueue, pool: &Mempool, write: impl FnOnce(&mut [u8]) -> Option<usize>) {
    let mut batch = Batch::new();
    if !pool.fill(&mut batch, 1) {
        return;
    }
    let sent = batch.frames_mut().first_mut().and_then(|mbuf| {
        let out = mbuf.set_len(MESSAGE)?;
        out.fill(0);
        let len = write(out)?;
        mbuf.set_len(len.max(SHORTEST))
    });
    if sent.is_some() {
        tx.send(&mut batch);
    }
}

/// Announce all addresses: gratuitous ARP, unsolicited neighbour advertisements.
pub fn announce(addrs: &InterfaceAddrs, tx: &mut TxQueue, pool: &Mempool) {
    for addr in addrs.own() {
        send(tx, pool, |out| addr.announce(out));
    }
}

/// Resolve an address from `addr` by ARP or neighbour discovery, for at most `patience`. Requests of others are answered
/// meanwhile, as they may come first.
pub fn resolve(
    (addrs, addr): (&InterfaceAddrs, &InterfaceAddr),
    query: &AddressQuery,
    (rx, tx): (&mut [RxQueue], &mut TxQueue),
    pool: &Mempool,
    patience: Duration,
) -> Option<Mac> {
    let begun = Instant::now();
    let mut asked: Option<Instant> = None;
    let mut batch = Batch::new();
    while begun.elapsed() < patience {
        if asked.is_none_or(|asked| asked.elapsed() >= AGAIN) {
            asked = Some(Instant::now());
            send(tx, pool, |out| addr.solicit(query, out));
        }
        // The answer may come by any queue.
        for rx in rx.iter_mut() {
            rx.receive(&mut batch);
            if let Some(mac) = batch.frames().iter().find_map(|mbuf| query.answer(mbuf.data())) {
                return Some(mac);
            }
            batch.retain(|mbuf| mbuf.is_whole() && addrs.respond(mbuf));
            tx.send(&mut batch);
            batch.clear();
        }
        std::thread::sleep(Duration::from_micros(100));
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use packet::ethernet::Tags;
    use packet::nd::Nd;
    use std::net::Ipv6Addr;

    const MAC: Mac = [2, 0, 0, 0, 0, 7];
    const OTHER: Mac = [2, 0, 0, 0, 0, 1];

    fn addr(ip: &str, vlans: &[u16]) -> InterfaceAddr {
        let tags = Tags::vlans(vlans).expect("at most two");
        InterfaceAddr { mac: MAC, ip: ip.parse().expect("an address"), tags }
    }

    /// What `asker` sends to know who has `ip`.
    fn question(asker: &str, ip: &str, vlans: &[u16]) -> Vec<u8> {
        let asker = InterfaceAddr { mac: OTHER, ..addr(asker, vlans) };
        let mut frame = vec![0; MESSAGE];
        let query = AddressQuery { ip: ip.parse().expect("an address"), tags: asker.tags };
        let len = asker.solicit(&query, &mut frame).expect("it can ask");
        frame.truncate(len.max(SHORTEST));
        frame
    }

    /// What it says to the question, if anything.
    fn said(addr: &InterfaceAddr, mut frame: Vec<u8>, ip: &str, vlans: &[u16]) -> Option<Mac> {
        let before = frame.clone();
        if !addr.answer(&mut frame) {
            assert_eq!(frame, before, "what is not answered is left alone");
            return None;
        }
        assert_eq!(frame[..12], [OTHER, MAC].concat());
        assert!(!addr.answer(&mut frame), "an answer is no question");
        let tags = Tags::vlans(vlans).expect("at most two");
        AddressQuery { ip: ip.parse().expect("an address"), tags }.answer(&frame)
    }

    #[test]
    fn it_answers_for_itself_only() {
        for (ours, theirs, nobody) in [("10.0.0.7", "10.0.0.1", "0.0.0.0"), ("fd00::7", "fd00::1", "::")] {
            let us = addr(ours, &[]);
            assert_eq!(said(&us, question(theirs, ours, &[]), ours, &[]), Some(MAC));
            assert_eq!(said(&us, question(theirs, theirs, &[]), ours, &[]), None);
            assert_eq!(said(&addr(nobody, &[]), question(theirs, nobody, &[]), nobody, &[]), None);
            // Of the other kind of address it has none, and asks for none.
            let other = if ours == "10.0.0.7" { "fd00::9" } else { "10.0.0.9" };
            let query = AddressQuery { ip: other.parse().expect("an address"), tags: Tags::NONE };
            assert_eq!(us.solicit(&query, &mut [0; MESSAGE]), None);
            assert_eq!(addr(nobody, &[]).announce(&mut [0; MESSAGE]), None);
        }
    }

    #[test]
    fn it_answers_in_its_own_vlans_only() {
        for (ours, theirs) in [("10.0.0.7", "10.0.0.1"), ("fd00::7", "fd00::1")] {
            for vlans in [&[][..], &[100], &[200, 100]] {
                let ask = || question(theirs, ours, vlans);
                assert_eq!(said(&addr(ours, vlans), ask(), ours, vlans), Some(MAC));
                // A port in no VLAN is asked in any, and answers there.
                assert_eq!(said(&addr(ours, &[]), ask(), ours, vlans), Some(MAC));
                assert_eq!(said(&addr(ours, &[101]), ask(), ours, vlans), None);
                let elsewhere = if vlans.is_empty() { &[100][..] } else { &[] };
                assert_eq!(said(&addr(ours, vlans), ask(), ours, elsewhere), None, "heard elsewhere");
            }
        }
    }

    #[test]
    fn it_defends_its_address_against_those_who_have_none_yet() {
        let us = addr("fd00::7", &[]);
        let mut probe =
            Nd::solicitation(OTHER, Ipv6Addr::UNSPECIFIED, "fd00::7".parse().expect("an address"));
        probe.mac = None;
        let mut frame = vec![0; MESSAGE];
        let len = probe.emit(&mut frame, &Tags::NONE).expect("it fits");
        frame.truncate(len);
        assert!(!us.answer(&mut frame), "the answer is longer");
        let longer = us.longer(&frame).expect("it is for us");
        assert_eq!(addr("fd00::8", &[]).longer(&frame), None);
        frame.resize(longer, 0xaa);
        assert!(us.answer(&mut frame));
        let said = Nd::parse(&frame).expect("an answer");
        assert_eq!(
            (said.mac, said.destination, said.link),
            (Some(MAC), nd::ALL_NODES, (MAC, [0x33, 0x33, 0, 0, 0, 1]))
        );
    }

    #[test]
    fn what_it_tells_is_heard_by_those_who_want_to_know() {
        for ip in ["10.0.0.7", "fd00::7"] {
            for vlans in [&[][..], &[100], &[200, 100]] {
                let us = addr(ip, vlans);
                let mut frame = [0; MESSAGE];
                let len = us.announce(&mut frame).expect("it has an address");
                assert_eq!(AddressQuery { ip: us.ip, tags: us.tags }.answer(&frame[..len]), Some(MAC));
                assert!(!us.answer(&mut frame), "nobody asked");
            }
        }
    }

    #[test]
    fn a_question_is_not_taken_for_an_answer() {
        let query = AddressQuery { ip: "fd00::7".parse().expect("an address"), tags: Tags::NONE };
        assert_eq!(query.answer(&question("fd00::1", "fd00::7", &[])), None);
    }
}
