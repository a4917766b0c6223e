//! Audio of one call: sends RTP by a schedule, listens, exchanges reports, and sums up what was heard.

mod summary;

pub use summary::{PeerView, Quality, Summary};

use crate::clip::Clip;
use crate::g711::{Law, RATE};
use crate::keys::Keys;
use crate::rtcp::{Reports, Sent};
use crate::srtp::{Keys as SrtpKeys, Srtp};
use crate::stream::{Arrival, Stream};
use protocol::media::{Channel, MediaOutbox, MediaPacket};
use protocol::time::Time;
use rtp_types::{RtpPacket, RtpPacketBuilder};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

/// Time of a packet where the peer asks for no other.
pub const PTIME: Duration = Duration::from_millis(20);
/// Packets that a late generator makes up for at once; those before are given up.
const CATCH_UP: u64 = 25;
/// Sources of one call whose packets are kept apart; more are an attack.
const SOURCES_MAX: usize = 4;
/// Protected packets that wait for their key: those of a third of a second.
const EARLY_MAX: usize = 16;
/// A sample louder than this is heard: −50 dBm0.
const LOUD: u16 = 70;
/// Samples of each packet that are listened to.
const LISTENED: usize = 24;

/// What a side does with audio.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Mode {
    /// Sends its own, and listens.
    #[default]
    SendReceive,
    /// Sends back what it hears.
    Echo,
    /// Sends, and is sent nothing.
    SendOnly,
    /// Listens, and sends nothing.
    ReceiveOnly,
}

impl Mode {
    /// Whether it sends, and whether it listens.
    pub fn directions(self) -> (bool, bool) {
        (!matches!(self, Self::ReceiveOnly), !matches!(self, Self::SendOnly))
    }
}

/// What is the same for all calls of a group.
#[derive(Debug, Clone)]
pub struct Config {
    /// What is played.
    pub clip: Clip,
    /// What is done.
    pub mode: Mode,
    /// How long the playout buffer holds the fastest packet.
    pub buffer: Duration,
    /// Whether the listener conceals lost packets.
    pub concealment: bool,
    /// Mean time from one report to the next; none: no reports.
    pub reports: Option<Duration>,
    /// Events of the keys that are pressed (RFC 4733).
    pub keys: Vec<u8>,
    /// Whether packets are protected (RFC 3711), so that none is taken before its key is known.
    pub srtp: bool,
}

/// Result of the SDP negotiation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Agreed {
    /// Where RTP is sent.
    pub rtp: SocketAddr,
    /// Where reports are sent.
    pub rtcp: SocketAddr,
    /// Codec.
    pub law: Law,
    /// Its payload type.
    pub payload_type: u8,
    /// Payload type of telephone events; none: they are not agreed on.
    pub events: Option<u8>,
    /// Time of a packet.
    pub ptime: Duration,
    /// Whether this side sends, and is sent to.
    pub send: bool,
    /// The other way.
    pub receive: bool,
}

/// A protected packet that waits for its key.
#[derive(Debug)]
struct EarlyPacket {
    channel: Channel,
    from: SocketAddr,
    at: Time,
    bytes: Vec<u8>,
}

impl EarlyPacket {
    fn of(channel: Channel, packet: &MediaPacket<'_>) -> Self {
        Self { channel, from: packet.from, at: packet.at, bytes: packet.bytes.to_vec() }
    }

    fn with<'a>(&self, bytes: &'a [u8]) -> MediaPacket<'a> {
        MediaPacket { channel: self.channel, from: self.from, at: self.at, bytes }
    }
}

/// One received source.
#[derive(Debug)]
struct Source {
    stream: Stream,
    /// Packets with the codec agreed on, and whether one was loud.
    audio: u64,
    loud: bool,
    /// Its first timestamp, for an echo.
    timestamp: u32,
}

/// Audio of one call.
#[derive(Debug)]
pub struct Session {
    config: Arc<Config>,
    ssrc: u32,
    agreed: Option<Agreed>,
    began: Option<Time>,
    /// When the call was answered; audio may have begun before.
    answered: Option<Time>,
    ended: Option<Time>,
    ended_by_us: bool,
    /// Next packet: when it is due, its number and timestamp, and where in the clip it begins.
    due: Time,
    /// When the packet would have been due that was not sent, since the call is on hold.
    paused: Option<Time>,
    /// When the other side was to speak again.
    resumed: Time,
    sequence: u16,
    timestamp: u32,
    at: usize,
    sent: u64,
    skipped: u64,
    bytes: u64,
    sources: Vec<Source>,
    /// SSRC of the call before, whose last packets may still come.
    stale: Option<u32>,
    unrelated: u64,
    other_address: u64,
    first_audio: Option<Time>,
    /// Shortest time from sending a packet to its coming back as it was, ns.
    returned: Option<u64>,
    reports: Reports,
    report_due: Time,
    keys: Keys,
    srtp: Option<Srtp>,
    /// Protected packets that came before their key, and how many of them were given up.
    waiting: Vec<EarlyPacket>,
    early: u64,
    /// State of a small random number generator.
    random: u64,
}

impl Session {
    /// Audio of a call that is offered or asked for now. `random` is a seed of its own; `stale` the source of the call before.
    pub fn new(config: Arc<Config>, random: u64, stale: Option<u32>) -> Self {
        let mut random = random | 1;
        let (ssrc, sequence, timestamp) = (next(&mut random), next(&mut random) as u16, next(&mut random));
        // RFC 4568 section 6.4: a listener that joins late must not miss that the numbers have begun anew
        let sequence = if config.srtp { sequence >> 1 } else { sequence };
        Self {
            config,
            ssrc,
            agreed: None,
            began: None,
            answered: None,
            ended: None,
            ended_by_us: false,
            due: Time::NEVER,
            paused: None,
            resumed: Time::ZERO,
            sequence,
            timestamp,
            at: 0,
            sent: 0,
            skipped: 0,
            bytes: 0,
            sources: Vec::new(),
            stale,
            unrelated: 0,
            other_address: 0,
            first_audio: None,
            returned: None,
            reports: Reports::default(),
            report_due: Time::NEVER,
            keys: Keys::default(),
            srtp: None,
            waiting: Vec::new(),
            early: 0,
            random,
        }
    }

    /// Whether there is an agreement.
    pub fn is_agreed(&self) -> bool {
        self.agreed.is_some()
    }

    /// Whether audio is under way.
    pub fn is_under_way(&self) -> bool {
        self.began.is_some() && self.ended.is_none()
    }

    /// Whether keys are still to be pressed.
    pub fn is_pressing(&self) -> bool {
        let takes = self.agreed.is_some_and(|agreed| agreed.events.is_some() && agreed.send);
        takes && self.is_under_way() && self.keys.pressed() < self.config.keys.len()
    }

    /// The source of the peer, for the next call's `stale`.
    pub fn source(&self) -> Option<u32> {
        self.sources.last().map(|source| source.stream.ssrc)
    }

    /// SDP is agreed on, or has changed: a peer on hold is sent nothing. `keys`: those of SRTP.
    pub fn agree(&mut self, agreed: Agreed, keys: Option<SrtpKeys>, now: Time) {
        let before = self.agreed.replace(agreed);
        if before.is_some_and(|before| before.receive != agreed.receive) {
            self.sources.iter_mut().for_each(|source| source.stream.hold(!agreed.receive));
            self.resumed = now;
        }
        match (keys, &mut self.srtp) {
            (Some(keys), Some(srtp)) => srtp.change(keys),
            (keys, _) => self.srtp = keys.and_then(Srtp::new),
        }
        for packet in std::mem::take(&mut self.waiting) {
            let opened = self.srtp.as_mut().and_then(|srtp| srtp.try_open(packet.channel, &packet.bytes));
            match opened {
                // an echo begins with the call
                Some(bytes) => self.take(&packet.with(&bytes), &mut MediaOutbox::default()),
                None => self.early += 1,
            }
        }
        if self.began.is_some() {
            self.schedule(now);
        }
    }

    /// The call is answered.
    pub fn answer(&mut self, now: Time) {
        if self.agreed.is_some() {
            self.answered.get_or_insert(now);
        }
    }

    /// What is to be sent begins now, with the answer or before it.
    pub fn begin(&mut self, now: Time) {
        if self.began.is_none() && self.agreed.is_some() {
            self.began = Some(now);
            self.schedule(now);
            // section 6.2: between two parties the first report may be sent at once; there is nothing to say yet
            self.report_due = if self.config.reports.is_some() { now + self.ptime() } else { Time::NEVER };
        }
    }

    /// How late a packet may come to be played.
    pub fn buffer(&self) -> Duration {
        self.config.buffer
    }

    fn ptime(&self) -> Duration {
        self.agreed.map_or(PTIME, |agreed| agreed.ptime)
    }

    fn schedule(&mut self, now: Time) {
        let sends = self.agreed.is_some_and(|agreed| agreed.send) && self.config.mode != Mode::Echo;
        self.due = match (sends, self.due) {
            (false, Time::NEVER) => Time::NEVER,
            (false, due) => {
                self.paused = Some(due);
                Time::NEVER
            }
            (true, Time::NEVER) => {
                self.timestamp = self.timestamp_at(now);
                self.paused.take().map_or(now, |due| due.max(now))
            }
            (true, due) => due,
        };
    }

    /// The timestamp of now: it goes on while nothing is sent (RFC 3550 section 5.1).
    fn timestamp_at(&self, now: Time) -> u32 {
        let paused = self.paused.map_or(0, |since| now.since(since));
        self.timestamp.wrapping_add((paused / (1_000_000_000 / u64::from(RATE))) as u32)
    }

    /// When something is due.
    #[inline]
    pub fn due(&self) -> Time {
        self.due.min(self.report_due)
    }

    /// Send what is due by `now`; `late` is told when each packet was due that is sent after the first.
    pub fn send(&mut self, now: Time, out: &mut MediaOutbox, mut late: impl FnMut(Time)) {
        let Some(agreed) = self.agreed.filter(|_| self.is_under_way()) else { return };
        if self.due <= now {
            let overdue = now.since(self.due) / agreed.ptime.as_nanos().max(1) as u64 + 1;
            let given_up = overdue.saturating_sub(CATCH_UP);
            for n in 0..overdue {
                if n > given_up {
                    late(self.due);
                }
                if n < given_up { self.skip(&agreed) } else { self.packet(&agreed, out) }
            }
        }
        if self.report_due <= now {
            self.report(now, out, false);
        }
    }

    fn samples(agreed: &Agreed) -> usize {
        (agreed.ptime.as_millis() as usize) * (RATE as usize / 1000)
    }

    fn skip(&mut self, agreed: &Agreed) {
        let samples = Self::samples(agreed);
        self.skipped += 1;
        self.timestamp = self.timestamp.wrapping_add(samples as u32);
        self.due = self.due + agreed.ptime;
        self.at = (self.at + samples) % self.config.clip.bytes(agreed.law).len().max(1);
    }

    fn packet(&mut self, agreed: &Agreed, out: &mut MediaOutbox) {
        let samples = Self::samples(agreed);
        if let Some(events) = agreed.events
            && let Some(event) = self.keys.press(&self.config.keys, self.timestamp, samples as u32)
        {
            let header = RtpPacketBuilder::<&[u8], &[u8]>::new()
                .payload_type(events)
                .marker_bit(event.first)
                .sequence_number(self.sequence)
                .timestamp(event.timestamp)
                .ssrc(self.ssrc);
            push(out, Channel::Rtp, self.srtp.as_mut(), agreed.rtp, |bytes| {
                header.write_into_vec_unchecked(bytes);
                bytes.extend_from_slice(&event.payload);
            });
            return self.sent_packet(agreed, samples, event.payload.len());
        }
        let clip = Arc::clone(self.config.clip.bytes(agreed.law));
        let header = RtpPacketBuilder::<&[u8], &[u8]>::new()
            .payload_type(agreed.payload_type)
            // RFC 3551 section 4.1: the first packet of a talkspurt
            .marker_bit(self.sent == 0)
            .sequence_number(self.sequence)
            .timestamp(self.timestamp)
            .ssrc(self.ssrc);
        let mut at = self.at;
        push(out, Channel::Rtp, self.srtp.as_mut(), agreed.rtp, |bytes| {
            header.write_into_vec_unchecked(bytes);
            let mut left = samples;
            while left > 0 {
                let piece = &clip[at..(at + left).min(clip.len())];
                bytes.extend_from_slice(piece);
                left -= piece.len();
                at = (at + piece.len()) % clip.len();
            }
        });
        self.at = at;
        self.sent_packet(agreed, samples, samples);
    }

    fn sent_packet(&mut self, agreed: &Agreed, samples: usize, bytes: usize) {
        self.sequence = self.sequence.wrapping_add(1);
        self.timestamp = self.timestamp.wrapping_add(samples as u32);
        self.due = self.due + agreed.ptime;
        self.sent += 1;
        self.bytes += bytes as u64;
    }

    fn report(&mut self, now: Time, out: &mut MediaOutbox, goodbye: bool) {
        let (Some(agreed), Some(interval)) = (self.agreed, self.config.reports) else { return };
        let sent = Sent {
            ssrc: self.ssrc,
            packets: self.sent as u32,
            bytes: self.bytes as u32,
            timestamp: self.timestamp_at(now),
        };
        let heard =
            self.sources.iter().rfind(|source| source.stream.received > 1).map(|source| &source.stream);
        let reports = &mut self.reports;
        push(out, Channel::Rtcp, self.srtp.as_mut(), agreed.rtcp, |bytes| {
            reports.write(sent, heard, now, goodbye, bytes);
        });
        // section 6.3.1: half the interval for the second, and between half and one and a half of it
        let mean = if self.reports.sent == 1 { interval / 2 } else { interval };
        let factor = 0.5 + f64::from(next(&mut self.random)) / f64::from(u32::MAX);
        self.report_due = now + mean.mul_f64(factor);
    }

    /// A datagram came. An echo is sent at once.
    pub fn receive(&mut self, packet: &MediaPacket<'_>, out: &mut MediaOutbox) {
        if !self.config.srtp {
            return self.take(packet, out);
        }
        let is_report = packet.channel == Channel::Rtcp || is_rtcp(packet.bytes);
        let channel = if is_report { Channel::Rtcp } else { Channel::Rtp };
        let at = if is_report { 4 } else { 8 };
        // the source is in the clear; that of the call before had another key
        let source =
            packet.bytes.get(at..at + 4).and_then(|bytes| bytes.try_into().ok()).map(u32::from_be_bytes);
        if source.is_some() && source == self.stale && source != Some(self.ssrc) {
            self.unrelated += 1;
            return;
        }
        match &mut self.srtp {
            None if self.waiting.len() < EARLY_MAX => self.waiting.push(EarlyPacket::of(channel, packet)),
            None => self.early += 1,
            Some(srtp) => {
                if let Some(bytes) = srtp.open(channel, packet.bytes) {
                    self.take(&MediaPacket { bytes: &bytes, ..*packet }, out);
                }
            }
        }
    }

    /// A datagram in the clear.
    fn take(&mut self, packet: &MediaPacket<'_>, out: &mut MediaOutbox) {
        if packet.channel == Channel::Rtcp || is_rtcp(packet.bytes) {
            self.reports.read(packet.bytes, self.ssrc, packet.at);
            return;
        }
        let Ok(rtp) = RtpPacket::parse(packet.bytes) else {
            self.unrelated += 1;
            return;
        };
        if Some(rtp.ssrc()) == self.stale && rtp.ssrc() != self.ssrc {
            self.unrelated += 1;
            return;
        }
        self.other_address += u64::from(self.agreed.is_some_and(|agreed| agreed.rtp != packet.from));
        let is_event = self.agreed.is_some_and(|agreed| agreed.events == Some(rtp.payload_type()));
        let Some((arrival, place)) = self.file(&rtp, packet.at, is_event) else { return };
        if matches!(arrival, Arrival::Duplicate | Arrival::Astray) {
            return;
        }
        if is_event {
            self.keys.event_received(rtp.timestamp(), rtp.payload());
        }
        let law = match self.agreed {
            Some(agreed) => (agreed.payload_type == rtp.payload_type()).then_some(agreed.law),
            // audio may overtake the answer
            None => Law::of(rtp.payload_type()),
        };
        if let Some(law) = law.filter(|_| rtp.payload_len() > 0) {
            self.first_audio.get_or_insert(packet.at);
            let source = &mut self.sources[place];
            source.audio += 1;
            source.loud = source.loud
                || rtp.payload().iter().take(LISTENED).any(|byte| law.decode(*byte).unsigned_abs() > LOUD);
        }
        if rtp.ssrc() == self.ssrc {
            self.measure_return(rtp.sequence_number(), packet.at);
        }
        if self.config.mode == Mode::Echo {
            self.echo(&rtp, place, out);
        }
    }

    /// Count a packet to its source. `is_event`: its timestamp is when a tone began, and says nothing of when it was sent.
    fn file(&mut self, rtp: &RtpPacket<'_>, at: Time, is_event: bool) -> Option<(Arrival, usize)> {
        let (ssrc, sequence, timestamp) = (rtp.ssrc(), rtp.sequence_number(), rtp.timestamp());
        if let Some(place) = self.sources.iter().position(|source| source.stream.ssrc == ssrc) {
            let stream = &mut self.sources[place].stream;
            let arrival = match is_event {
                true => stream.push_untimed(sequence, at),
                false => stream.push(sequence, timestamp, at),
            };
            return Some((arrival, place));
        }
        if self.sources.len() == SOURCES_MAX {
            self.unrelated += 1;
            return None;
        }
        let stream = Stream::new(ssrc, sequence, timestamp, at, self.config.buffer);
        self.sources.push(Source { stream, audio: 0, loud: false, timestamp });
        Some((Arrival::InTime, self.sources.len() - 1))
    }

    /// Our own packet came back as it was.
    fn measure_return(&mut self, sequence: u16, at: Time) {
        let behind = self.sequence.wrapping_sub(sequence);
        let known = u64::from(behind) <= self.sent && behind > 0 && self.due != Time::NEVER;
        if known {
            let due = self.due.0.saturating_sub(u64::from(behind) * self.ptime().as_nanos() as u64);
            let took = at.since(Time(due));
            self.returned = Some(self.returned.map_or(took, |known| known.min(took)));
        }
    }

    /// Send back what came, as a stream of our own.
    fn echo(&mut self, rtp: &RtpPacket<'_>, place: usize, out: &mut MediaOutbox) {
        let Some(agreed) = self.agreed.filter(|agreed| agreed.send && self.is_under_way()) else { return };
        let offset = rtp.timestamp().wrapping_sub(self.sources[place].timestamp);
        let header = RtpPacketBuilder::<&[u8], &[u8]>::new()
            .payload_type(rtp.payload_type())
            .marker_bit(self.sent == 0)
            .sequence_number(self.sequence)
            .timestamp(self.timestamp.wrapping_add(offset))
            .ssrc(self.ssrc);
        push(out, Channel::Rtp, self.srtp.as_mut(), agreed.rtp, |bytes| {
            header.write_into_vec_unchecked(bytes);
            bytes.extend_from_slice(rtp.payload());
        });
        self.sequence = self.sequence.wrapping_add(1);
        self.sent += 1;
        self.bytes += rtp.payload_len() as u64;
    }

    /// The call ends: say goodbye. `by_us`: this side hung up.
    pub fn end(&mut self, now: Time, by_us: bool, out: &mut MediaOutbox) {
        if !self.is_under_way() {
            return;
        }
        self.report(now, out, true);
        self.ended = Some(now);
        self.ended_by_us = by_us;
        (self.due, self.report_due) = (Time::NEVER, Time::NEVER);
    }
}

/// Whether a datagram at a port that carries both is RTCP (RFC 5761 section 4).
fn is_rtcp(bytes: &[u8]) -> bool {
    bytes.get(1).is_some_and(|kind| (192..=223).contains(kind))
}

/// Send what `write` writes, protected where the call is.
fn push(
    out: &mut MediaOutbox,
    channel: Channel,
    srtp: Option<&mut Srtp>,
    to: SocketAddr,
    write: impl FnOnce(&mut Vec<u8>),
) {
    out.push(channel, to, |bytes| {
        let start = bytes.len();
        write(bytes);
        if let Some(srtp) = srtp {
            srtp.protect(channel, start, bytes);
        }
    });
}

/// The next number of a small generator (xorshift64*).
fn next(state: &mut u64) -> u32 {
    *state ^= *state >> 12;
    *state ^= *state << 25;
    *state ^= *state >> 27;
    (state.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 32) as u32
}

#[cfg(test)]
mod tests;
