//! Packets that are no plain ones of a steady session: they open and close sessions, come in pieces, report errors, or go back in.

use super::Nat;
use super::icmp_reply::Error;
use super::lifecycle::Flow;
use super::mapping::Mapped;
use super::slow_path_packet::{OriginalHeaders, SlowPathPacket, back_in};
use super::tcp;
use crate::event::EventKind;
use crate::headers::Headers;
use crate::key::{Endpoint, Key, Realm};
use crate::reason::Reason;
use crate::rewrite::{self, End};
use crate::session::{Session, State, tick};
use crate::untranslated::RealmLookup;
use crate::verdict::{Forward, Side, StopReason};
use packet::layers::protocol;
use std::net::Ipv4Addr;

impl Nat {
    pub(crate) fn slow(
        &mut self,
        side: Side,
        frame: &mut [u8],
        headers: &Headers,
        now: u64,
    ) -> Result<Forward, StopReason> {
        if let Err(reason) = self.passes_filter(side, frame, headers) {
            if reason == Reason::InsideDestination {
                self.report(side, frame, headers, Error::Prohibited, now);
            }
            return Err(reason.into());
        }
        if headers.is(Headers::LAST_HOP) {
            self.report(side, frame, headers, Error::TimeExceeded, now);
            return Err(Reason::Ttl.into());
        }
        let result = if headers.is(Headers::FRAGMENT) {
            self.fragment(side, frame, headers, now)
        } else {
            self.translate(side, frame, headers, now)
        };
        if let Err(StopReason::Drop(reason)) = result {
            self.refuse(side, frame, headers, reason, now);
        }
        result
    }

    /// Say why a new flow was refused: in the log, and to the subscriber (RFC 5508 REQ-8).
    fn refuse(&mut self, side: Side, frame: &[u8], headers: &Headers, reason: Reason, now: u64) {
        use Reason::{PoolExhausted, SessionsFull, SubscriberPorts, SubscriberSessions, SubscribersFull};
        // RFC 1812 section 5.2.7.1: what is filtered is said to be, to subscribers.
        if side == Side::Inside && reason == Reason::Acl {
            self.report(side, frame, headers, Error::Prohibited, now);
        }
        let limits = [PoolExhausted, SessionsFull, SubscriberPorts, SubscriberSessions, SubscribersFull];
        // No limit of the subscriber's, and over when the site has an address again: nothing for the log.
        if side == Side::Inside && reason == Reason::NoPublicAddress {
            self.report(side, frame, headers, Error::Unreachable, now);
        }
        if side == Side::Inside && limits.contains(&reason) {
            self.report(side, frame, headers, Error::Prohibited, now);
            let (address, realm) = self.limited(headers);
            self.events.push_refusal(now, EventKind::Refused(reason, address, realm));
        }
        // A piece that is not the first is no packet to report (RFC 1122 section 3.2.2).
        if side == Side::Inside && reason == Reason::FragmentsFull {
            let address = Ipv4Addr::from_bits(headers.source().address);
            self.events.push_refusal(now, EventKind::Refused(reason, address, headers.realm));
        }
    }

    /// Whose limit the packet of a subscriber met: its own, or, on its way back in, that of whom it is for.
    fn limited(&self, headers: &Headers) -> (Ipv4Addr, Realm) {
        let (source, destination) = (headers.source(), headers.destination());
        let went_up = self.find_up(source, destination, headers.protocol, headers.realm).is_some();
        let receiver = went_up
            .then(|| {
                self.mapped_outside(destination, headers.protocol)
                    .and_then(|mapped| self.inside_endpoint(mapped))
            })
            .flatten();
        let (inside, realm) = receiver.unwrap_or((source, headers.realm));
        (Ipv4Addr::from_bits(inside.address), realm)
    }

    /// Whom a mapping leads to.
    pub(crate) fn inside_endpoint(&self, mapped: Mapped) -> Option<(Endpoint, Realm)> {
        match mapped {
            Mapped::Session(of) => self.sessions.at(of).map(|session| (session.inside(), session.realm())),
            Mapped::Static(number) => {
                self.forwards.get(number as usize).map(|forward| (forward.inside_endpoint(), forward.realm))
            }
        }
    }

    /// A packet, or the first piece of one.
    pub(crate) fn translate(
        &mut self,
        side: Side,
        frame: &mut [u8],
        headers: &Headers,
        now: u64,
    ) -> Result<Forward, StopReason> {
        let way = SlowPathPacket { headers: *headers, hop: true, now };
        match (headers.protocol, side) {
            (protocol::ICMP, _) => self.icmp(side, frame, &way),
            (protocol::TCP | protocol::UDP, _) if headers.is(Headers::SHORT) => Err(Reason::Truncated.into()),
            (protocol::TCP | protocol::UDP, Side::Inside) => self.translate_outbound(frame, &way),
            (protocol::TCP | protocol::UDP, Side::Outside) => self.translate_inbound(frame, &way),
            _ if side == Side::Inside && self.is_exempt(headers.destination()) => {
                self.untouched(side, frame, &way)
            }
            _ if side == Side::Outside && self.is_exempt_answer(headers) => self.untouched(side, frame, &way),
            _ => Err(Reason::Protocol.into()),
        }
    }

    pub(crate) fn find_up(&self, inside: Endpoint, remote: Endpoint, carried: u8, realm: u32) -> Option<u32> {
        let key = Key::outbound(inside, remote, carried, realm);
        let sessions = self.sessions.get();
        self.table.find(self.hash(key), |index| {
            sessions.get(index as usize).is_some_and(|session| session.up_key() == key)
        })
    }

    pub(crate) fn find_down(&self, remote: Endpoint, outside: Endpoint, carried: u8) -> Option<u32> {
        let key = Key::inbound(remote, outside, carried);
        let sessions = self.sessions.get();
        self.table.find(self.hash(key), |index| {
            sessions.get(index as usize).is_some_and(|session| session.down_key() == key)
        })
    }

    /// Whether translation is turned off for this destination (RFC 6888 REQ-6).
    pub(crate) fn is_exempt(&self, to: Endpoint) -> bool {
        self.config.exempt.iter().any(|exempt| {
            exempt.destination.has(to.address)
                && exempt.ports.as_ref().is_none_or(|ports| ports.contains(&to.port))
        })
    }

    /// Whether a packet from the outside is for an inside address that is spoken to without translation.
    fn is_exempt_answer(&self, headers: &Headers) -> bool {
        self.is_inside(headers.destination().address) && self.is_exempt(headers.source())
    }

    /// Whether an address is a subscriber's.
    pub(crate) fn is_inside(&self, address: u32) -> bool {
        self.config.inside.iter().any(|prefix| prefix.has(address))
    }

    /// Forward without translation; from the inside it says where its sender is.
    pub(crate) fn untouched(
        &mut self,
        side: Side,
        frame: &mut [u8],
        way: &SlowPathPacket,
    ) -> Result<Forward, StopReason> {
        self.permits(side, &way.headers)?;
        if side == Side::Inside {
            self.untranslated.learn(way.headers.source().address, way.headers.realm, way.now);
        }
        self.pass(side, frame, way)
    }

    /// The same for what says nothing of its sender.
    pub(crate) fn pass(
        &mut self,
        side: Side,
        frame: &mut [u8],
        way: &SlowPathPacket,
    ) -> Result<Forward, StopReason> {
        let forward = match side {
            Side::Inside => Forward { to: Side::Outside, hop: 0, realm: 0 },
            Side::Outside => {
                let realm = match self.untranslated.realm_of(way.headers.destination().address) {
                    RealmLookup::In(realm) => realm,
                    RealmLookup::Unknown => 0,
                    RealmLookup::Contested => return Err(Reason::InsideOverlap.into()),
                };
                Forward { to: Side::Inside, hop: 0, realm }
            }
        };
        self.check_mtu(side, forward.to, frame, way)?;
        let (l3, source) = (usize::from(way.headers.l3), way.headers.source().address);
        rewrite::address(frame, l3, End::Source, source, 0, way.hop).ok_or(Reason::Truncated)?;
        self.send_on(frame, &way.headers, forward)
    }

    /// A packet from the inside.
    pub(crate) fn translate_outbound(
        &mut self,
        frame: &mut [u8],
        way: &SlowPathPacket,
    ) -> Result<Forward, StopReason> {
        let Headers { protocol: carried, realm, l4, .. } = way.headers;
        let (source, destination) = (way.headers.source(), way.headers.destination());
        let flags = if carried == protocol::TCP { tcp::flags(frame, l4.into()) } else { 0 };
        let found = self.find_up(source, destination, carried, realm);
        if found.is_none() {
            if self.is_exempt(destination) {
                return self.untouched(Side::Inside, frame, way);
            }
            if carried == protocol::TCP && !tcp::opens(flags) {
                return Err(Reason::NotSyn.into());
            }
            self.begins(&way.headers)?;
        }
        let known = found.and_then(|index| self.sessions.at(index));
        let goes_back =
            known.map_or_else(|| self.goes_back(destination), |session| session.has(Session::HAIRPIN));
        let to = if goes_back { Side::Inside } else { Side::Outside };
        self.check_mtu(Side::Inside, to, frame, way)?;
        let index = match found {
            Some(index) => index,
            None => {
                let state = if carried == protocol::TCP { State::SynUp } else { State::Open };
                let last_seen = tick(way.now);
                let (inside, remote) = (source, destination);
                let flow = Flow { inside, remote, protocol: carried, realm, state, last_seen };
                self.open(&flow, way.now)?
            }
        };
        self.touch(index, flags, true, way)?;
        let session = self.sessions.at(index).ok_or(Reason::NoMapping)?;
        let (outside, up_hop) = (session.outside(), session.up_hop);
        let original = session.has(Session::HAIRPIN).then(|| OriginalHeaders::of(frame, &way.headers));
        self.clamp(frame, way, flags);
        let deltas = (session.l3_delta, session.l4_delta);
        rewrite::endpoint(frame, &way.headers, End::Source, outside, deltas, way.hop)
            .ok_or(Reason::Truncated)?;
        if let Some(original) = original {
            let result = self.translate_inbound(frame, &back_in(way, outside, destination));
            if matches!(result, Err(StopReason::Drop(_) | StopReason::Held)) {
                original.put_back(frame);
            }
            return result;
        }
        self.send_on(frame, &way.headers, Forward { to: Side::Outside, hop: up_hop, realm: 0 })
    }

    /// A packet from the outside, or one that goes back in.
    pub(crate) fn translate_inbound(
        &mut self,
        frame: &mut [u8],
        way: &SlowPathPacket,
    ) -> Result<Forward, StopReason> {
        let Headers { protocol: carried, l4, .. } = way.headers;
        let (source, destination) = (way.headers.source(), way.headers.destination());
        let flags = if carried == protocol::TCP { tcp::flags(frame, l4.into()) } else { 0 };
        let index = match self.find_down(source, destination, carried) {
            Some(index) => index,
            None if self.is_exempt_answer(&way.headers) => return self.untouched(Side::Outside, frame, way),
            None => match self.accept(way, carried, flags) {
                Ok(index) => index,
                // An unsolicited SYN is answered later or never (RFC 5382 REQ-4); one that goes back in as well.
                Err(reason @ (Reason::NoMapping | Reason::Filtered))
                    if carried == protocol::TCP
                        && tcp::opens(flags)
                        && self.pool.has(destination.address) =>
                {
                    return Err(self.hold_syn(frame, way, reason).into());
                }
                Err(reason) => return Err(reason.into()),
            },
        };
        self.check_mtu(Side::Outside, Side::Inside, frame, way)?;
        self.touch(index, flags, false, way)?;
        let session = self.sessions.at(index).ok_or(Reason::NoMapping)?;
        self.clamp(frame, way, flags);
        let deltas = (!session.l3_delta, !session.l4_delta);
        rewrite::endpoint(frame, &way.headers, End::Destination, session.inside(), deltas, way.hop)
            .ok_or(Reason::Truncated)?;
        let forward = Forward { to: Side::Inside, hop: session.down_hop, realm: session.realm() };
        self.send_on(frame, &way.headers, forward)
    }

    /// Begin a session from the outside, if there is a mapping whose filter lets it.
    fn accept(&mut self, way: &SlowPathPacket, carried: u8, flags: u8) -> Result<u32, Reason> {
        let (remote, outside, now) = (way.headers.source(), way.headers.destination(), way.now);
        // What goes back in was permitted when it came.
        if way.hop {
            self.permits(Side::Outside, &way.headers)?;
        }
        let mapped = self.mapped_outside(outside, carried).ok_or(Reason::NoMapping)?;
        match mapped {
            Mapped::Session(of) if self.is_pinned(of) && !self.asked.lets_in(of, remote) => {
                return Err(Reason::Filtered);
            }
            Mapped::Session(of) if self.filters(carried) && !self.is_pinned(of) => {
                return Err(Reason::Filtered);
            }
            _ => {}
        }
        let (inside, realm) = self.inside_endpoint(mapped).ok_or(Reason::NoMapping)?;
        if carried == protocol::TCP && !tcp::opens(flags) {
            return Err(Reason::NotSyn);
        }
        // An endpoint that is mapped twice, by forwards: what it sends to one remote endpoint leaves by one of them.
        if self.find_up(inside, remote, carried, realm).is_some() {
            return Err(Reason::OtherMapping);
        }
        self.leaves_room(inside, realm)?;
        let state = if carried == protocol::TCP { State::SynDown } else { State::Open };
        let last_seen = self.idle_since(mapped, carried, now);
        self.open_on(&Flow { inside, remote, protocol: carried, realm, state, last_seen }, mapped, now)
    }

    /// Whether one more session may begin from the outside: nobody there can use up what a subscriber, or all of them, may have
    /// (RFC 6888 REQ-5).
    fn leaves_room(&self, inside: Endpoint, realm: Realm) -> Result<(), Reason> {
        if self.sessions.is_short() {
            return Err(Reason::SessionsFull);
        }
        let limit = self.config.sessions_per_subscriber;
        let number = self.subscribers.find(&self.hasher, inside.address, realm);
        let has = number.and_then(|number| self.subscribers.at(number)).map_or(0, |line| line.sessions);
        if has >= limit - limit / 4 { Err(Reason::SubscriberSessions) } else { Ok(()) }
    }

    /// Since when a session is idle that begins from the outside. If what comes from there does not keep a mapping alive, a session
    /// more from there does not either (RFC 4787 REQ-6).
    fn idle_since(&self, mapped: Mapped, carried: u8, now: u64) -> u32 {
        let of = match mapped {
            Mapped::Session(of) if carried != protocol::TCP && !self.config.refresh_inbound => {
                self.sessions.at(of)
            }
            _ => None,
        };
        // What was asked for lives without packets.
        let of = of.filter(|of| of.state() != State::Pinned && !of.has(Session::EXTENDED));
        of.map_or(tick(now), |of| of.last_seen)
    }

    /// What a packet changes in its session: state, time, counters.
    pub(crate) fn touch(
        &mut self,
        index: u32,
        flags: u8,
        up: bool,
        way: &SlowPathPacket,
    ) -> Result<(), Reason> {
        let refresh_inbound = self.config.refresh_inbound;
        let session = self.sessions.at_mut(index).ok_or(Reason::NoMapping)?;
        let tcp = session.protocol() == protocol::TCP;
        let before = session.state();
        let known = if session.has(Session::EXTENDED) { tcp::under_way(before, flags, up) } else { before };
        let after = if tcp { tcp::next(known, flags, up) } else { before };
        session.state = after as u8;
        let refreshes = if tcp { tcp::refreshes(before, after) } else { up || refresh_inbound };
        if before != after {
            self.changes.session(index);
        }
        if refreshes {
            session.last_seen = tick(way.now);
        }
        self.add_volume(index, up, way.headers.len(), way.now);
        self.touched[usize::from(!up)] = index;
        Ok(())
    }

    /// Bytes of a packet are of its session's volume.
    pub(crate) fn add_volume(&mut self, index: u32, up: bool, bytes: u64, now: u64) {
        let Some(session) = self.sessions.at_mut(index) else { return };
        let traffic = if up { &mut session.up } else { &mut session.down };
        traffic.add(bytes);
        if traffic.is_due() {
            let record = EventKind::SessionInterim(session.record(), session.volume());
            (session.up, session.down) = Default::default();
            if self.config.log_sessions {
                self.events.push(now, record);
            }
        }
    }

    fn clamp(&self, frame: &mut [u8], way: &SlowPathPacket, flags: u8) {
        let segment = usize::from(way.headers.l4)..usize::from(way.headers.end);
        if let (Some(most), true, Some(segment)) =
            (self.config.mss, flags & tcp::SYN != 0, frame.get_mut(segment))
        {
            tcp::clamp_mss(segment, most);
        }
    }
}
