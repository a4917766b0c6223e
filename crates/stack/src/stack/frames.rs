//! Frames that arrive, by what they carry, and the replies to them.

use super::{REPLIES, Stack};
use crate::config::Config;
use crate::connection::Tuple;
use crate::counters::{Counters, DropReason};
use crate::neighbours::own;
use crate::share::Recipient;
use crate::wire::{Link, Transmit, send_segment};
use packet::arp::Arp;
use packet::ethernet::{self, Ethernet, Tags, kind};
use packet::layers::{Fault, protocol};
use packet::nd::{self, Nd};
use packet::tcp::{Header, Options, flag as control};
use packet::{Layers, Mac, arp, ipv4, ipv6};
use std::collections::VecDeque;
use std::net::{IpAddr, Ipv4Addr};

/// Whether a host can have this address.
fn is_host(ip: IpAddr) -> bool {
    let is_broadcast = ip == IpAddr::V4(Ipv4Addr::BROADCAST);
    !(ip.is_unspecified() || ip.is_loopback() || ip.is_multicast() || is_broadcast)
}

/// Whether a frame with these tags is of the VLAN that `own` says. The VLAN 0 is none: such a tag has a priority alone (IEEE 802.1Q).
fn is_of_vlan(own: &Tags, tags: &Tags) -> bool {
    let priority = || Tags::vlans(&[0]).is_some_and(|zero| zero.same_vlans(tags));
    own.same_vlans(tags) || (*own == Tags::NONE && priority())
}

/// Whether a host can have this Ethernet address. Ours can be another's: the kernel's end of a tap has the same.
pub(super) fn is_station(mac: Mac) -> bool {
    mac[0] & 1 == 0 && mac != [0; 6]
}

/// Whether an IPv6 packet is to be sent on from here, by a routing header of whatever type: none is done here (RFC 8200 section
/// 4.4, RFC 5095).
fn is_source_routed(frame: &[u8], layers: &Layers) -> bool {
    const ROUTING: u8 = 43;
    let (mut at, mut next) = (layers.ip + ipv6::LEN, frame.get(layers.ip + 6).copied());
    while layers.is_v6()
        && at < layers.l4
        && let Some([after, len, _, left]) = frame.get(at..).and_then(|rest| rest.first_chunk::<4>())
    {
        if next == Some(ROUTING) && *left > 0 {
            return true;
        }
        (at, next) = (at + 8 + usize::from(*len) * 8, Some(*after));
    }
    false
}

/// Whether what this protocol carries is of a flow, which one worker has.
fn is_of_flow(carried: u8) -> bool {
    matches!(carried, protocol::TCP | protocol::UDP | protocol::ICMP | protocol::ICMPV6)
}

/// A place for one reply.
pub(super) struct Replies<'a> {
    pub replies: &'a mut VecDeque<Vec<u8>>,
    pub spare: &'a mut Vec<Vec<u8>>,
}

impl Transmit for Replies<'_> {
    fn frame(&mut self, len: usize) -> Option<&mut [u8]> {
        if self.replies.len() >= REPLIES {
            return None;
        }
        let mut frame = self.spare.pop().unwrap_or_default();
        frame.clear();
        frame.resize(len, 0);
        self.replies.push_back(frame);
        self.replies.back_mut().map(Vec::as_mut_slice)
    }
}

/// Send the frames that are ready, as long as `to` takes them; whether that was all.
pub(super) fn send_ready(
    replies: &mut VecDeque<Vec<u8>>,
    spare: &mut Vec<Vec<u8>>,
    counters: &mut Counters,
    to: &mut impl Transmit,
) -> bool {
    while let Some(reply) = replies.front() {
        let Some(frame) = to.frame(reply.len()) else { return false };
        frame.copy_from_slice(reply);
        counters.frames_sent += 1;
        spare.extend(replies.pop_front());
    }
    true
}

/// Ask for the Ethernet address of `ip`.
pub(super) fn solicit(
    config: &Config,
    ip: IpAddr,
    replies: &mut VecDeque<Vec<u8>>,
    spare: &mut Vec<Vec<u8>>,
    counters: &mut Counters,
) {
    let tags = config.tags.bytes().len();
    let mut to = Replies { replies, spare };
    let asked = match (own(config, ip), ip) {
        (Some(IpAddr::V4(own)), IpAddr::V4(target)) => to
            .frame(arp::FRAME + tags)
            .and_then(|frame| Arp::request(config.mac, own, target).emit_tagged(frame, &config.tags)),
        (Some(IpAddr::V6(own)), IpAddr::V6(target)) => to
            .frame(nd::FRAME + tags)
            .and_then(|frame| Nd::solicitation(config.mac, own, target).emit(frame, &config.tags)),
        _ => None,
    };
    if asked.is_none() {
        counters.drop(DropReason::ReplyQueueFull);
    }
}

impl Stack {
    pub(super) fn take_frame(&mut self, frame: &[u8], is_checked: bool, now: u64) -> Recipient {
        let Some(header) = Ethernet::parse(frame) else { return self.dropped(DropReason::Malformed) };
        let group = header.destination[0] & 1 != 0;
        if !(group || header.destination == self.config.mac) {
            return self.dropped(DropReason::OtherHost);
        }
        if !is_of_vlan(&self.config.tags, &Tags::of(frame)) {
            return self.dropped(DropReason::OtherVlan);
        }
        match ethernet::payload(frame) {
            Some((kind::ARP, _)) => {
                self.take_arp(frame, now);
                return Recipient::All;
            }
            Some((kind::IPV4 | kind::IPV6, _)) => {}
            _ => return self.dropped(DropReason::NotForUs),
        }
        let layers = match Layers::find(frame) {
            Ok(layers) => layers,
            // which flow it is of is known when it is whole
            Err(Fault::Fragment) if !group => {
                self.take_fragment(frame, header.source, now);
                return Recipient::All;
            }
            Err(Fault::Fragment) => return self.dropped(DropReason::Fragment),
            Err(Fault::BadChecksum) => return self.dropped(DropReason::BadChecksum),
            Err(_) => return self.dropped(DropReason::Malformed),
        };
        match layers.protocol {
            protocol::TCP | protocol::UDP if group => self.dropped(DropReason::NotForUs),
            _ => self.take_packet(frame, (&layers, is_checked), header.source, now),
        }
    }

    fn dropped(&mut self, why: DropReason) -> Recipient {
        self.counters.drop(why);
        Recipient::Here
    }

    /// `is_checked`: whoever received it found the checksum of UDP or TCP right.
    fn take_packet(
        &mut self,
        frame: &[u8],
        (layers, is_checked): (&Layers, bool),
        from: Mac,
        now: u64,
    ) -> Recipient {
        let Some(ips) = Self::destination(frame, layers) else { return Recipient::Here };
        // who looks for an address of its own has none yet (RFC 4862 section 5.4.2)
        let has_none = layers.protocol == protocol::ICMPV6 && ips.0.is_unspecified();
        if !has_none && (!is_host(ips.0) || self.owns(ips.0)) {
            if layers.protocol == protocol::ICMPV6 && from != self.config.mac && Nd::parse(frame).is_some() {
                return self.duplicate_address();
            }
            // nobody may send from there (RFC 9293 section 3.9.2.3, RFC 1122 section 3.2.1.3)
            return self.dropped(DropReason::BadSource);
        }
        if is_source_routed(frame, layers) {
            return self.dropped(DropReason::RoutingHeader);
        }
        let recipient = self.config.share.recipient(frame, layers, ips);
        if matches!(recipient, Recipient::Worker(_)) {
            return recipient;
        }
        match layers.protocol {
            protocol::TCP => self.take_tcp(frame, (layers, is_checked), from, now),
            protocol::UDP => self.take_udp(frame, (layers, is_checked), from, now),
            protocol::ICMP | protocol::ICMPV6 => self.take_icmp(frame, (layers, recipient), now),
            _ => self.counters.drop(DropReason::NotForUs),
        }
        recipient
    }

    /// A fragment arrived: with the last that was missing the packet is taken.
    fn take_fragment(&mut self, frame: &[u8], from: Mac, now: u64) {
        let mut whole = std::mem::take(&mut self.whole);
        match self.fragments.take(frame, now, &mut whole) {
            Ok(true) => match Layers::find(&whole) {
                Ok(layers) if self.takes_whole(&whole, &layers) => {
                    self.take_packet(&whole, (&layers, false), from, now);
                }
                Ok(_) => {}
                Err(_) => self.drop_once(Recipient::All, DropReason::Malformed),
            },
            Ok(false) => {}
            Err(why) => self.drop_once(Recipient::All, why),
        }
        for _ in 0..self.fragments.given_up() {
            self.drop_once(Recipient::All, DropReason::Fragment);
        }
        self.whole = whole;
    }

    /// Each stack has put this packet together: whether it is this one's. What is of no flow is the first one's.
    fn takes_whole(&self, whole: &[u8], layers: &Layers) -> bool {
        let share = self.config.share;
        let ips = Self::destination(whole, layers);
        match ips.map(|ips| share.recipient(whole, layers, ips)) {
            Some(Recipient::Worker(_)) => false,
            Some(Recipient::All) => true,
            Some(Recipient::Here) if is_of_flow(layers.protocol) => true,
            Some(Recipient::Here) | None => share.answers(),
        }
    }

    /// A frame that `recipient` takes is dropped. What each stack is given is counted by the one that answers for all.
    pub(super) fn drop_once(&mut self, recipient: Recipient, why: DropReason) {
        if recipient != Recipient::All || self.config.share.answers() {
            self.counters.drop(why);
        }
    }

    pub(super) fn reply(&mut self, len: usize) -> Option<&mut [u8]> {
        if self.replies.len() >= REPLIES {
            self.counters.drop(DropReason::ReplyQueueFull);
            return None;
        }
        let Self { replies, spare, .. } = self;
        let mut frame = spare.pop().unwrap_or_default();
        frame.clear();
        frame.resize(len, 0);
        replies.push_back(frame);
        replies.back_mut().map(Vec::as_mut_slice)
    }

    /// Another host has an address of ours.
    pub(super) fn duplicate_address(&mut self) -> Recipient {
        self.drop_once(Recipient::All, DropReason::DuplicateAddress);
        Recipient::All
    }

    fn take_arp(&mut self, frame: &[u8], now: u64) {
        let Some(message) = Arp::parse(frame) else {
            return self.drop_once(Recipient::All, DropReason::Malformed);
        };
        let is_echo = message.sender_mac == self.config.mac && self.owns(message.sender.into());
        if is_echo || !is_station(message.sender_mac) {
            return self.drop_once(Recipient::All, DropReason::BadSource);
        }
        if self.owns(message.sender.into()) {
            // RFC 5227 section 2.4
            self.duplicate_address();
            return;
        }
        let config = &self.config;
        let owns = |ip| config.share.answers() && config.addresses.binary_search(&ip).is_ok();
        let (change, answer) = self.neighbours.arp(&message, config.mac, owns, now);
        let tags = config.tags;
        if let Some(answer) = answer
            && let Some(to) = self.reply(arp::FRAME + tags.bytes().len())
        {
            answer.emit_tagged(to, &tags);
        }
        if let Some(change) = change {
            self.neighbour_changed(change, now);
        }
    }

    pub(super) fn destination(frame: &[u8], layers: &Layers) -> Option<(IpAddr, IpAddr)> {
        match layers.is_v6() {
            false => ipv4::addresses(frame, layers.ip).map(|(from, to)| (from.into(), to.into())),
            true => ipv6::addresses(frame, layers.ip).map(|(from, to)| (from.into(), to.into())),
        }
    }

    fn take_tcp(&mut self, frame: &[u8], (layers, is_checked): (&Layers, bool), from: Mac, now: u64) {
        let Some((remote, local)) = Self::destination(frame, layers) else { return };
        if !self.owns(local) {
            return self.counters.drop(DropReason::NotForUs);
        }
        if !is_checked && !layers.is_intact(frame) {
            return self.counters.drop(DropReason::BadChecksum);
        }
        let Some((header, payload)) = Header::parse(layers.segment(frame)) else {
            return self.counters.drop(DropReason::Malformed);
        };
        let tuple = Tuple { local, remote, local_port: header.destination, remote_port: header.source };
        self.segment(tuple, &header, payload, from, now);
    }

    /// RFC 9293 section 3.10.7.1: what belongs to no connection is reset, unless it resets itself.
    pub(super) fn reply_reset(&mut self, tuple: &Tuple, header: &Header, payload: usize, to: Mac) {
        if header.has(control::RST) {
            return;
        }
        let len = payload as u32 + u32::from(header.has(control::SYN)) + u32::from(header.has(control::FIN));
        let (sequence, acknowledgment, flags) = match header.has(control::ACK) {
            true => (header.acknowledgment, 0, control::RST),
            false => (0, header.sequence.wrapping_add(len), control::RST | control::ACK),
        };
        let reset = Header {
            source: tuple.local_port,
            destination: tuple.remote_port,
            sequence,
            acknowledgment,
            flags,
            window: 0,
            options: Options::default(),
        };
        let link = Link { source: self.config.mac, destination: to, tags: self.config.tags };
        let Self { replies, spare, .. } = self;
        if send_segment(&mut Replies { replies, spare }, &link, tuple, &reset, (&[], 0)) {
            self.counters.resets_sent += 1;
        } else {
            self.counters.drop(DropReason::ReplyQueueFull);
        }
    }
}
