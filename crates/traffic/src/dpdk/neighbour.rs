//! Being a neighbour: whose address is whose, and answers to those who ask for ours.

use dpdk::{Batch, Mbuf, Mempool, RxQueue, TxQueue};
use engine::{About, Cx, Element};
use packet::arp::{Arp, Operation};
use packet::ethernet::Tags;
use packet::nd::{self, Nd};
use packet::{Layers, Mac, icmp, ipv4, ipv6};
use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::{Duration, Instant};

/// A port's own addresses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Station {
    /// In Ethernet.
    pub mac: Mac,
    /// In IP; unspecified: it has none, and answers nobody.
    pub ip: IpAddr,
    /// Of its VLANs; none: it is in whatever VLAN it is asked in.
    pub tags: Tags,
}

/// All stations that a port is, at one Ethernet address and in the same VLANs.
#[derive(Debug, Clone)]
pub struct Stations {
    /// The port's own addresses, of each kind one or none.
    own: Vec<Station>,
    /// Without an address: what they have in common.
    bare: Station,
    /// All addresses that it answers for, in order.
    all: Vec<IpAddr>,
}

impl Stations {
    /// With addresses of its own, and `more` that its streams come from.
    pub fn new(mac: Mac, tags: Tags, own: &[IpAddr], more: &[IpAddr]) -> Self {
        let bare = Station { mac, ip: Ipv4Addr::UNSPECIFIED.into(), tags };
        let all: BTreeSet<IpAddr> =
            own.iter().chain(more).copied().filter(|ip| !ip.is_unspecified()).collect();
        let mut stations = Self { own: Vec::new(), bare, all: all.into_iter().collect() };
        // Where it has none of a kind, it asks as the first of those that its streams come from.
        let kinds = [IpAddr::is_ipv4, IpAddr::is_ipv6].map(|kind| own.iter().chain(more).find(|ip| kind(ip)));
        let named = kinds.into_iter().flatten().filter(|ip| !ip.is_unspecified());
        stations.own = named.map(|ip| Station { ip: *ip, ..bare }).collect();
        stations
    }

    /// What all have in common.
    pub fn bare(&self) -> &Station {
        &self.bare
    }

    /// The station that speaks to `other`: of its kind of address.
    pub fn like(&self, other: IpAddr) -> Option<&Station> {
        self.own.iter().find(|station| station.ip.is_ipv4() == other.is_ipv4())
    }

    /// Whether an address is one of these. Who has none takes everything.
    #[inline]
    pub fn takes(&self, ip: Option<IpAddr>) -> bool {
        self.all.is_empty() || ip.is_some_and(|ip| self.owns(ip))
    }

    /// Whether an address is one of these.
    #[inline]
    pub fn owns(&self, ip: IpAddr) -> bool {
        self.all.binary_search(&ip).is_ok()
    }

    /// Answer what the packet asks, in its place. False when it asks nothing of these.
    pub fn respond(&self, mbuf: &mut Mbuf) -> bool {
        let Some(ip) = asked(mbuf.data()).filter(|ip| self.owns(*ip)) else { return false };
        Station { ip, ..self.bare }.respond(mbuf)
    }
}

impl From<Station> for Stations {
    fn from(one: Station) -> Self {
        Self::new(one.mac, one.tags, &[one.ip], &[])
    }
}

/// Whom a frame asks something, if it asks.
fn asked(frame: &[u8]) -> Option<IpAddr> {
    if let Some(arp) = Arp::parse(frame) {
        return Some(arp.target.into());
    }
    if let Some(nd) = Nd::parse(frame) {
        return Some(nd.target.into());
    }
    destination(frame, &Layers::find(frame).ok()?)
}

/// Where a packet goes to.
#[inline]
pub fn destination(frame: &[u8], layers: &Layers) -> Option<IpAddr> {
    match layers.is_v6() {
        true => ipv6::addresses(frame, layers.ip).map(|(_, to)| to.into()),
        false => ipv4::addresses(frame, layers.ip).map(|(_, to)| to.into()),
    }
}

/// Whose Ethernet address is asked for, and in which VLAN.
#[derive(Debug, Clone, Copy)]
pub struct Wanted {
    /// The holder of this address.
    pub ip: IpAddr,
    /// Of the question.
    pub tags: Tags,
}

/// The largest message of those that a station sends on its own account; ports may not pad smaller frames.
const MESSAGE: usize = nd::FRAME + 2 * packet::ethernet::TAG;
/// The smallest frame.
const SHORTEST: usize = 60;

impl Station {
    fn ipv4(&self) -> Option<Ipv4Addr> {
        match self.ip {
            IpAddr::V4(ip) if !ip.is_unspecified() => Some(ip),
            _ => None,
        }
    }

    fn ipv6(&self) -> Option<Ipv6Addr> {
        match self.ip {
            IpAddr::V6(ip) if !ip.is_unspecified() => Some(ip),
            _ => None,
        }
    }

    /// Whether the frame is of the station's VLANs.
    #[inline]
    pub fn hears(&self, frame: &[u8]) -> bool {
        self.tags == Tags::NONE || self.tags.same_vlans(&Tags::of(frame))
    }

    /// Turn a question for this station into its answer, in place: ARP, neighbour discovery and echo. False,
    /// and nothing changed, when it is none, or the answer [is longer](Self::longer).
    pub fn answer(&self, frame: &mut [u8]) -> bool {
        if self.ip.is_unspecified() || !self.hears(frame) {
            return false;
        }
        let tags = Tags::of(frame);
        let written = if let Some(asked) = Arp::parse(frame) {
            let ours = asked.operation == Operation::Request && self.ipv4() == Some(asked.target);
            // An announcement is no question.
            let ours = ours && asked.sender != asked.target;
            ours.then(|| asked.answer(self.mac).emit_tagged(frame, &tags)).flatten()
        } else if let Some(asked) = self.asked(frame) {
            asked.answer(self.mac).emit(frame, &tags)
        } else {
            return Layers::find(frame).is_ok_and(|layers| icmp::answer(frame, &layers, self.ip));
        };
        // What else was in the question is padding now.
        written.and_then(|len| frame.get_mut(len..)).into_iter().for_each(|rest| rest.fill(0));
        written.is_some()
    }

    /// The length of the answer to `frame`, if it is a question for this station and shorter than its answer:
    /// one by somebody who has no address yet, and looks whether ours is free.
    pub fn longer(&self, frame: &[u8]) -> Option<usize> {
        let len = nd::FRAME + Tags::of(frame).bytes().len();
        (frame.len() < len && self.hears(frame) && self.asked(frame).is_some()).then_some(len)
    }

    fn asked(&self, frame: &[u8]) -> Option<Nd> {
        let ours = |nd: &Nd| nd.operation == nd::Operation::Solicitation && self.ipv6() == Some(nd.target);
        Nd::parse(frame).filter(ours)
    }

    /// Answer what the packet asks, in its place. False when it asks nothing of this station.
    pub fn respond(&self, mbuf: &mut Mbuf) -> bool {
        self.answer(mbuf.data_mut())
            || self.longer(mbuf.data()).is_some_and(|len| {
                // Growing keeps what is there.
                mbuf.set_len(len).is_some_and(|frame| self.answer(frame))
            })
    }

    /// Ask who has an address; the length of the question. `None`: this station has none of that kind to be
    /// answered at.
    pub fn ask(&self, wanted: &Wanted, out: &mut [u8]) -> Option<usize> {
        match wanted.ip {
            IpAddr::V4(target) => Arp::request(self.mac, self.ipv4()?, target).emit_tagged(out, &wanted.tags),
            IpAddr::V6(target) => Nd::solicitation(self.mac, self.ipv6()?, target).emit(out, &wanted.tags),
        }
    }

    /// Tell everybody whose address it is (RFC 5227 section 3, RFC 4861 section 7.2.6); the length of the frame.
    pub fn tell(&self, out: &mut [u8]) -> Option<usize> {
        match self.ip {
            IpAddr::V4(_) => Arp::announcement(self.mac, self.ipv4()?).emit_tagged(out, &self.tags),
            IpAddr::V6(_) => Nd::announcement(self.mac, self.ipv6()?).emit(out, &self.tags),
        }
    }

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
}

impl Wanted {
    /// The Ethernet address, if `frame` says it.
    pub fn heard(&self, frame: &[u8]) -> Option<Mac> {
        if !self.tags.same_vlans(&Tags::of(frame)) {
            return None;
        }
        if let Some(heard) = Arp::parse(frame) {
            return (self.ip == heard.sender).then_some(heard.sender_mac);
        }
        let heard = Nd::parse(frame).filter(|nd| nd.operation != nd::Operation::Solicitation)?;
        heard.mac.filter(|_| self.ip == heard.target)
    }
}

/// Element: answers what is for its stations.
#[derive(Debug)]
pub struct Neighbour(pub Stations);

impl Element for Neighbour {
    fn about(&self) -> About {
        let drops = &["not_for_us", "segmented"];
        About { kind: "neighbour", takes: true, outputs: &["out"], drops, polled: false }
    }

    fn push(&mut self, batch: &mut Batch, cx: &mut Cx<'_>) {
        cx.sift(batch, |mbuf| match mbuf.is_whole() {
            true if self.0.respond(mbuf) => Ok(()),
            true => Err(0),
            // Nobody asks in so many words; and the rest would go back with the answer.
            false => Err(1),
        });
    }
}

/// How often the question is asked again.
const AGAIN: Duration = Duration::from_millis(100);

/// Tell the others on the link whose address it is.
pub fn announce(stations: &Stations, tx: &mut TxQueue, pool: &Mempool) {
    for station in &stations.own {
        Station::send(tx, pool, |out| station.tell(out));
    }
}

/// Ask as `station` who has an address, for at most `patience`. Answers others meanwhile, as they may ask first.
pub fn resolve(
    (stations, station): (&Stations, &Station),
    wanted: &Wanted,
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
            Station::send(tx, pool, |out| station.ask(wanted, out));
        }
        // The answer may come by any queue.
        for rx in rx.iter_mut() {
            rx.receive(&mut batch);
            if let Some(mac) = batch.frames().iter().find_map(|mbuf| wanted.heard(mbuf.data())) {
                return Some(mac);
            }
            batch.retain(|mbuf| mbuf.is_whole() && stations.respond(mbuf));
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

    const MAC: Mac = [2, 0, 0, 0, 0, 7];
    const OTHER: Mac = [2, 0, 0, 0, 0, 1];

    fn station(ip: &str, vlans: &[u16]) -> Station {
        let tags = Tags::vlans(vlans).expect("at most two");
        Station { mac: MAC, ip: ip.parse().expect("an address"), tags }
    }

    /// What `asker` sends to know who has `ip`.
    fn question(asker: &str, ip: &str, vlans: &[u16]) -> Vec<u8> {
        let asker = Station { mac: OTHER, ..station(asker, vlans) };
        let mut frame = vec![0; MESSAGE];
        let wanted = Wanted { ip: ip.parse().expect("an address"), tags: asker.tags };
        let len = asker.ask(&wanted, &mut frame).expect("it can ask");
        frame.truncate(len.max(SHORTEST));
        frame
    }

    /// What it says to the question, if anything.
    fn said(station: &Station, mut frame: Vec<u8>, ip: &str, vlans: &[u16]) -> Option<Mac> {
        let before = frame.clone();
        if !station.answer(&mut frame) {
            assert_eq!(frame, before, "what is not answered is left alone");
            return None;
        }
        assert_eq!(frame[..12], [OTHER, MAC].concat());
        assert!(!station.answer(&mut frame), "an answer is no question");
        let tags = Tags::vlans(vlans).expect("at most two");
        Wanted { ip: ip.parse().expect("an address"), tags }.heard(&frame)
    }

    #[test]
    fn it_answers_for_itself_only() {
        for (ours, theirs, nobody) in [("10.0.0.7", "10.0.0.1", "0.0.0.0"), ("fd00::7", "fd00::1", "::")] {
            let us = station(ours, &[]);
            assert_eq!(said(&us, question(theirs, ours, &[]), ours, &[]), Some(MAC));
            assert_eq!(said(&us, question(theirs, theirs, &[]), ours, &[]), None);
            assert_eq!(said(&station(nobody, &[]), question(theirs, nobody, &[]), nobody, &[]), None);
            // Of the other kind of address it has none, and asks for none.
            let other = if ours == "10.0.0.7" { "fd00::9" } else { "10.0.0.9" };
            let wanted = Wanted { ip: other.parse().expect("an address"), tags: Tags::NONE };
            assert_eq!(us.ask(&wanted, &mut [0; MESSAGE]), None);
            assert_eq!(station(nobody, &[]).tell(&mut [0; MESSAGE]), None);
        }
    }

    #[test]
    fn it_answers_in_its_own_vlans_only() {
        for (ours, theirs) in [("10.0.0.7", "10.0.0.1"), ("fd00::7", "fd00::1")] {
            for vlans in [&[][..], &[100], &[200, 100]] {
                let ask = || question(theirs, ours, vlans);
                assert_eq!(said(&station(ours, vlans), ask(), ours, vlans), Some(MAC));
                // A port in no VLAN is asked in any, and answers there.
                assert_eq!(said(&station(ours, &[]), ask(), ours, vlans), Some(MAC));
                assert_eq!(said(&station(ours, &[101]), ask(), ours, vlans), None);
                let elsewhere = if vlans.is_empty() { &[100][..] } else { &[] };
                assert_eq!(said(&station(ours, vlans), ask(), ours, elsewhere), None, "heard elsewhere");
            }
        }
    }

    #[test]
    fn it_defends_its_address_against_those_who_have_none_yet() {
        let us = station("fd00::7", &[]);
        let mut probe =
            Nd::solicitation(OTHER, Ipv6Addr::UNSPECIFIED, "fd00::7".parse().expect("an address"));
        probe.mac = None;
        let mut frame = vec![0; MESSAGE];
        let len = probe.emit(&mut frame, &Tags::NONE).expect("it fits");
        frame.truncate(len);
        assert!(!us.answer(&mut frame), "the answer is longer");
        let longer = us.longer(&frame).expect("it is for us");
        assert_eq!(station("fd00::8", &[]).longer(&frame), None);
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
                let us = station(ip, vlans);
                let mut frame = [0; MESSAGE];
                let len = us.tell(&mut frame).expect("it has an address");
                assert_eq!(Wanted { ip: us.ip, tags: us.tags }.heard(&frame[..len]), Some(MAC));
                assert!(!us.answer(&mut frame), "nobody asked");
            }
        }
    }

    #[test]
    fn a_question_is_not_taken_for_an_answer() {
        let wanted = Wanted { ip: "fd00::7".parse().expect("an address"), tags: Tags::NONE };
        assert_eq!(wanted.heard(&question("fd00::1", "fd00::7", &[])), None);
    }
}
