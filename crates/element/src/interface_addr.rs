//! The addresses of a port, and its answers to those who ask for them.

use dpdk::Mbuf;
use packet::arp::{Arp, Operation};
use packet::ethernet::{self, Tags};
use packet::nd::{self, Nd};
use packet::{Layers, Mac, icmp, ipv4, ipv6};
use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// A port's own addresses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct InterfaceAddr {
    /// In Ethernet.
    pub mac: Mac,
    /// In IP; unspecified: it has none, and answers nobody.
    pub ip: IpAddr,
    /// Of its VLANs; none: it is in whatever VLAN it is asked in.
    pub tags: Tags,
}

/// All addresses of a port, at one Ethernet address and in the same VLANs.
#[derive(Debug, Clone)]
pub struct InterfaceAddrs {
    /// The port's own addresses, of each kind one or none.
    own: Vec<InterfaceAddr>,
    /// Without an address: what they have in common.
    bare: InterfaceAddr,
    /// All addresses that it answers for, in order.
    all: Vec<IpAddr>,
}

impl InterfaceAddrs {
    /// With addresses of its own, and `more` that its streams come from.
    pub fn new(mac: Mac, tags: Tags, own: &[IpAddr], more: &[IpAddr]) -> Self {
        let bare = InterfaceAddr { mac, ip: Ipv4Addr::UNSPECIFIED.into(), tags };
        let all: BTreeSet<IpAddr> =
            own.iter().chain(more).copied().filter(|ip| !ip.is_unspecified()).collect();
        let mut addrs = Self { own: Vec::new(), bare, all: all.into_iter().collect() };
        // Where it has none of a kind, it asks as the first of those that its streams come from.
        let kinds = [IpAddr::is_ipv4, IpAddr::is_ipv6].map(|kind| own.iter().chain(more).find(|ip| kind(ip)));
        let named = kinds.into_iter().flatten().filter(|ip| !ip.is_unspecified());
        addrs.own = named.map(|ip| InterfaceAddr { ip: *ip, ..bare }).collect();
        addrs
    }

    /// The same port, which answers for these in place of all others.
    #[must_use]
    pub fn answering_for(&self, mut all: Vec<IpAddr>) -> Self {
        all.sort_unstable();
        all.dedup();
        Self { own: Vec::new(), bare: self.bare, all }
    }

    /// All addresses that it answers for, in order.
    pub fn all(&self) -> &[IpAddr] {
        &self.all
    }

    /// The port's own addresses, of each kind one or none.
    pub fn own(&self) -> &[InterfaceAddr] {
        &self.own
    }

    /// What all have in common.
    pub fn bare(&self) -> &InterfaceAddr {
        &self.bare
    }

    /// The address that is used towards `other`: of its family.
    pub fn matching_family(&self, other: IpAddr) -> Option<&InterfaceAddr> {
        self.own.iter().find(|addr| addr.ip.is_ipv4() == other.is_ipv4())
    }

    /// Whether an address is one of these. Who has none takes everything.
    #[inline]
    pub fn accepts(&self, ip: Option<IpAddr>) -> bool {
        self.all.is_empty() || ip.is_some_and(|ip| self.owns(ip))
    }

    /// Whether an address is one of these.
    #[inline]
    pub fn owns(&self, ip: IpAddr) -> bool {
        self.all.binary_search(&ip).is_ok()
    }

    /// Answer what the packet asks, in its place. False when it asks nothing of these.
    pub fn respond(&self, mbuf: &mut Mbuf) -> bool {
        self.respond_if(mbuf, |ip| self.owns(ip))
    }

    /// The same for whichever addresses `owns` says.
    pub fn respond_if(&self, mbuf: &mut Mbuf, owns: impl Fn(IpAddr) -> bool) -> bool {
        let Some(ip) = arp_nd_target(mbuf.data()).filter(|ip| owns(*ip)) else { return false };
        InterfaceAddr { ip, ..self.bare }.respond(mbuf)
    }
}

impl From<InterfaceAddr> for InterfaceAddrs {
    fn from(one: InterfaceAddr) -> Self {
        Self::new(one.mac, one.tags, &[one.ip], &[])
    }
}

/// Whom a frame asks something, if it asks.
fn arp_nd_target(frame: &[u8]) -> Option<IpAddr> {
    // Most frames are IPv4 packets without tags for somebody else, which one look tells. Whether it is a question is looked
    // at by who answers.
    if let Some(head) = frame.first_chunk::<{ ethernet::LEN + packet::ipv4::LEN }>()
        && [head[12], head[13], head[14]] == [0x08, 0x00, 0x45]
    {
        return Some(Ipv4Addr::new(head[30], head[31], head[32], head[33]).into());
    }
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

impl InterfaceAddr {
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

    /// Whether the frame is of the interface's VLANs.
    #[inline]
    pub fn accepts_vlan(&self, frame: &[u8]) -> bool {
        self.tags == Tags::NONE || self.tags.same_vlans(&Tags::of(frame))
    }

    /// Turn a request for this address into its reply, in place: ARP, neighbour discovery and echo. False,
    /// and nothing changed, when it is none, or the answer [is longer](Self::longer).
    pub fn answer(&self, frame: &mut [u8]) -> bool {
        if self.ip.is_unspecified() || !self.accepts_vlan(frame) {
            return false;
        }
        let tags = Tags::of(frame);
        let written = if let Some(asked) = Arp::parse(frame) {
            let ours = asked.operation == Operation::Request && self.ipv4() == Some(asked.target);
            // An announcement is no question.
            let ours = ours && asked.sender != asked.target;
            ours.then(|| asked.answer(self.mac).emit_tagged(frame, &tags)).flatten()
        } else if let Some(asked) = self.solicitation(frame) {
            asked.answer(self.mac).emit(frame, &tags)
        } else {
            return Layers::find(frame).is_ok_and(|layers| icmp::answer(frame, &layers, self.ip));
        };
        // What else was in the question is padding now.
        written.and_then(|len| frame.get_mut(len..)).into_iter().for_each(|rest| rest.fill(0));
        written.is_some()
    }

    /// The length of the answer to `frame`, if it is a request for this address and shorter than its reply:
    /// one by somebody who has no address yet, and looks whether ours is free.
    pub fn longer(&self, frame: &[u8]) -> Option<usize> {
        let len = nd::FRAME + Tags::of(frame).bytes().len();
        (frame.len() < len && self.accepts_vlan(frame) && self.solicitation(frame).is_some()).then_some(len)
    }

    fn solicitation(&self, frame: &[u8]) -> Option<Nd> {
        let ours = |nd: &Nd| nd.operation == nd::Operation::Solicitation && self.ipv6() == Some(nd.target);
        Nd::parse(frame).filter(ours)
    }

    /// Turn the packet into its reply. False when it is no request for this address.
    pub fn respond(&self, mbuf: &mut Mbuf) -> bool {
        self.answer(mbuf.data_mut())
            || self.longer(mbuf.data()).is_some_and(|len| {
                // Growing keeps what is there.
                mbuf.set_len(len).is_some_and(|frame| self.answer(frame))
            })
    }

    /// Write an ARP request or a neighbour solicitation; its length. `None`: there is no own address of that family to be
    /// answered at.
    pub fn solicit(&self, query: &AddressQuery, out: &mut [u8]) -> Option<usize> {
        match query.ip {
            IpAddr::V4(target) => Arp::request(self.mac, self.ipv4()?, target).emit_tagged(out, &query.tags),
            IpAddr::V6(target) => Nd::solicitation(self.mac, self.ipv6()?, target).emit(out, &query.tags),
        }
    }

    /// Write an announcement of the address (RFC 5227 section 3, RFC 4861 section 7.2.6); the length of the frame.
    pub fn announce(&self, out: &mut [u8]) -> Option<usize> {
        match self.ip {
            IpAddr::V4(_) => Arp::announcement(self.mac, self.ipv4()?).emit_tagged(out, &self.tags),
            IpAddr::V6(_) => Nd::announcement(self.mac, self.ipv6()?).emit(out, &self.tags),
        }
    }
}

/// A query for the Ethernet address of `ip` by ARP or ND, in the VLAN of `tags`.
#[derive(Debug, Clone, Copy)]
pub struct AddressQuery {
    /// The holder of this address.
    pub ip: IpAddr,
    /// Of the question.
    pub tags: Tags,
}

impl AddressQuery {
    /// The Ethernet address, if `frame` answers the query.
    pub fn answer(&self, frame: &[u8]) -> Option<Mac> {
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
