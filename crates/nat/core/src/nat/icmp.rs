//! ICMP (RFC 5508): queries are flows whose identifier is their port; errors are translated by the packet that they quote, and neither
//! keep a session alive nor end it.

use super::Nat;
use super::slow_path_packet::{SlowPathPacket, back_in};
use crate::headers::Headers;
use crate::key::Endpoint;
use crate::reason::Reason;
use crate::rewrite::{self, End};
use crate::session::Session;
use crate::untranslated::RealmLookup;
use crate::verdict::{Forward, Side, StopReason};
use packet::checksum;
use packet::layers::protocol;

/// Bytes before the quoted packet.
const HEADER: usize = 8;

/// What a message is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Request,
    Reply,
    Error,
    Other,
}

impl Kind {
    pub(crate) fn of(number: u8) -> Self {
        match number {
            8 | 13 => Self::Request,
            0 | 14 => Self::Reply,
            3 | 11 | 12 => Self::Error,
            _ => Self::Other,
        }
    }
}

/// A packet that an error quotes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Quote {
    pub(crate) source: Endpoint,
    pub(crate) destination: Endpoint,
    protocol: u8,
    /// Where its IP header is, and what it carries.
    l3: usize,
    l4: usize,
}

impl Quote {
    /// The packet quoted in the message at `l4`, as far as `end`.
    pub(crate) fn of(frame: &[u8], l4: usize, end: usize) -> Result<Self, Reason> {
        let l3 = l4 + HEADER;
        let packet = frame.get(l3..end).ok_or(Reason::IcmpQuote)?;
        let header: &[u8; 20] = packet.first_chunk().ok_or(Reason::IcmpQuote)?;
        let length = usize::from(header[0] & 0x0f) * 4;
        let later = u16::from_be_bytes([header[6], header[7]]) & 0x1fff != 0;
        let options = packet.get(..length).ok_or(Reason::IcmpQuote)?;
        // RFC 5508 REQ-3 a: its IP checksum counts, that of what it carries does not.
        if header[0] >> 4 != 4 || length < 20 || later || checksum::of(options) != 0 {
            return Err(Reason::IcmpQuote);
        }
        let [a, b, c, d, e, f, _, _] =
            *packet.get(length..).and_then(|rest| rest.first_chunk()).ok_or(Reason::IcmpQuote)?;
        let word = |high, low| u16::from_be_bytes([high, low]);
        let (from, to) = match (header[9], Kind::of(a)) {
            (protocol::TCP | protocol::UDP, _) => (word(a, b), word(c, d)),
            (protocol::ICMP, Kind::Request) => (word(e, f), 0),
            (protocol::ICMP, Kind::Reply) => (0, word(e, f)),
            (protocol::ICMP, _) => return Err(Reason::IcmpNested),
            // Without ports: no session has it, but it may go without translation.
            _ => (0, 0),
        };
        let address =
            |at: usize| u32::from_be_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]]);
        Ok(Self {
            source: Endpoint::new(address(12), from),
            destination: Endpoint::new(address(16), to),
            protocol: header[9],
            l3,
            l4: l3 + length,
        })
    }

    /// Replace one of its ends.
    fn rewrite(&self, frame: &mut [u8], end: End, to: Endpoint, (l3, l4): (u16, u16)) -> Option<()> {
        rewrite::address(frame, self.l3, end, to.address, l3, false)?;
        rewrite::port(frame, self.l4, self.protocol, end, to.port, l4)
    }
}

/// The subscriber whom a packet from the inside reports to have got something, if it is an ICMP error: a router between may have sent
/// it (RFC 5508 REQ-5).
pub fn reported_subscriber(frame: &[u8], headers: &Headers) -> Option<u32> {
    reported(frame, headers).map(|quote| quote.destination.address)
}

/// The same for one from the outside: who has sent what it quotes (RFC 5508 REQ-4).
pub fn reported_sender(frame: &[u8], headers: &Headers) -> Option<u32> {
    reported(frame, headers).map(|quote| quote.source.address)
}

/// What an ICMP error quotes.
fn reported(frame: &[u8], headers: &Headers) -> Option<Quote> {
    let kind = Kind::of(*frame.get(usize::from(headers.l4))?);
    let is_error =
        headers.protocol == protocol::ICMP && !headers.is(Headers::FRAGMENT) && kind == Kind::Error;
    is_error.then(|| Quote::of(frame, headers.l4.into(), headers.end.into()).ok())?
}

impl Nat {
    /// Whether it is an ICMP error about what a subscriber has sent outside.
    pub(crate) fn reports_sent(&self, frame: &[u8], headers: &Headers) -> bool {
        let Some(quote) = reported(frame, headers) else { return false };
        let session = self.find_down(quote.destination, quote.source, quote.protocol);
        headers.destination().address == quote.source.address
            && (session.is_some() || self.has_sent_untranslated(&quote))
    }

    /// Whether a subscriber may have sent a packet without translation. Of one that has not sent anything nobody can have an error to report.
    fn has_sent_untranslated(&self, quote: &Quote) -> bool {
        let subscriber = quote.source.address;
        self.is_exempt(quote.destination)
            && self.is_inside(subscriber)
            && self.untranslated.realm_of(subscriber) != RealmLookup::Unknown
    }

    /// An ICMP message.
    pub(crate) fn icmp(
        &mut self,
        side: Side,
        frame: &mut [u8],
        way: &SlowPathPacket,
    ) -> Result<Forward, StopReason> {
        let Headers { l4, end, .. } = way.headers;
        let (source, destination) = (way.headers.source(), way.headers.destination());
        if way.headers.is(Headers::SHORT) {
            return Err(Reason::Truncated.into());
        }
        let kind = frame.get(usize::from(l4)).map_or(Kind::Other, |number| Kind::of(*number));
        match (kind, side) {
            (Kind::Request, Side::Inside) => self.translate_outbound(frame, way),
            (Kind::Reply, Side::Outside) => {
                // The identifier is the receiver's.
                let from = Endpoint::new(source.address, 0);
                let headers = way.headers.between(from, Endpoint::new(destination.address, source.port));
                self.translate_inbound(frame, &SlowPathPacket { headers, ..*way })
            }
            (Kind::Error, _) if way.headers.is(Headers::FRAGMENT) => Err(Reason::IcmpQuote.into()),
            (Kind::Error, _) => {
                let message = frame.get(usize::from(l4)..usize::from(end)).ok_or(Reason::Truncated)?;
                // RFC 5508 REQ-3: a wrong checksum is no error that anybody reported.
                if checksum::of(message) != 0 {
                    return Err(Reason::BadChecksum.into());
                }
                let forward = match side {
                    Side::Inside => self.error_up(frame, way)?,
                    Side::Outside => self.error_down(frame, way)?,
                };
                self.send_on(frame, &way.headers, forward)
            }
            (Kind::Reply, Side::Inside) if self.is_exempt(destination) => self.untouched(side, frame, way),
            (Kind::Request, Side::Outside) => {
                let from = Endpoint::new(source.address, 0);
                if self.is_exempt(from) && self.is_inside(destination.address) {
                    return self.untouched(side, frame, way);
                }
                Err(Reason::NoMapping.into())
            }
            _ => Err(Reason::IcmpType.into()),
        }
    }

    /// An error from the inside about a packet from the outside (RFC 5508 REQ-5).
    fn error_up(&mut self, frame: &mut [u8], way: &SlowPathPacket) -> Result<Forward, StopReason> {
        let Headers { realm, l3, l4, end, .. } = way.headers;
        let (source, destination) = (way.headers.source(), way.headers.destination());
        let quote = Quote::of(frame, l4.into(), end.into())?;
        let session = self
            .find_up(quote.destination, quote.source, quote.protocol, realm)
            .and_then(|index| self.sessions.at(index).copied());
        // Only of a subscriber in the same VLAN: whoever reports it, it is about that one's packets.
        let subscriber = quote.destination.address;
        let untranslated = self.is_exempt(quote.source)
            && self.is_inside(subscriber)
            && match self.untranslated.realm_of(subscriber) {
                RealmLookup::In(its) => its == realm,
                RealmLookup::Unknown => realm == 0,
                RealmLookup::Contested => false,
            };
        if session.is_none() && !untranslated {
            return Err(Reason::IcmpNoSession.into());
        }
        // It is for who sent what it quotes.
        if destination.address != quote.source.address {
            return Err(Reason::IcmpQuote.into());
        }
        let Some(session) = session else { return self.pass(Side::Inside, frame, way) };
        let frame_end = usize::from(end);
        let packet = frame.get_mut(..frame_end).ok_or(Reason::Truncated)?;
        let deltas = (session.l3_delta, session.l4_delta);
        quote.rewrite(packet, End::Destination, session.outside(), deltas).ok_or(Reason::IcmpQuote)?;
        // Whoever inside reports it, a router as well: no inside address is seen outside.
        let bare = |address| Endpoint::new(address, 0);
        let (delta, _) = rewrite::deltas(bare(source.address), bare(session.outside), protocol::ICMP);
        rewrite::address(packet, l3.into(), End::Source, session.outside, delta, way.hop)
            .ok_or(Reason::Truncated)?;
        sum_again(packet, l4.into());
        if session.has(Session::HAIRPIN) {
            return self.error_down(frame, &back_in(way, bare(session.outside), destination));
        }
        Ok(Forward { to: Side::Outside, hop: session.up_hop, realm: 0 })
    }

    /// An error from the outside about a packet from the inside (RFC 5508 REQ-4).
    fn error_down(&mut self, frame: &mut [u8], way: &SlowPathPacket) -> Result<Forward, StopReason> {
        let Headers { l3, l4, end, .. } = way.headers;
        let quote = Quote::of(frame, l4.into(), end.into())?;
        let session = self
            .find_down(quote.destination, quote.source, quote.protocol)
            .and_then(|index| self.sessions.at(index).copied());
        if session.is_none() && !self.has_sent_untranslated(&quote) {
            return Err(Reason::IcmpNoSession.into());
        }
        if way.headers.destination().address != quote.source.address {
            return Err(Reason::IcmpQuote.into());
        }
        let Some(session) = session else { return self.pass(Side::Outside, frame, way) };
        let packet = frame.get_mut(..usize::from(end)).ok_or(Reason::Truncated)?;
        let deltas = (!session.l3_delta, !session.l4_delta);
        quote.rewrite(packet, End::Source, session.inside(), deltas).ok_or(Reason::IcmpQuote)?;
        rewrite::address(packet, l3.into(), End::Destination, session.inside, deltas.0, way.hop)
            .ok_or(Reason::Truncated)?;
        sum_again(packet, l4.into());
        Ok(Forward { to: Side::Inside, hop: session.down_hop, realm: session.realm() })
    }
}

/// Sum up a message whose checksum was right before it changed.
fn sum_again(packet: &mut [u8], l4: usize) {
    if let Some(message) = packet.get_mut(l4..)
        && message.len() >= HEADER
    {
        message[2..4].fill(0);
        let sum = checksum::of(message).to_be_bytes();
        message[2..4].copy_from_slice(&sum);
    }
}
