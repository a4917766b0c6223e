//! Audio of one call: sends RTP by a schedule, listens, exchanges reports, and sums up what was heard.

use crate::clip::Clip;
use crate::e_model::{self, G711_CONCEALED, G711_ROBUSTNESS, Impairments};
use crate::g711::{Law, RATE};
use crate::keys::Keys;
use crate::loss_pattern::LossPattern;
use crate::rtcp::{Reports, Sent};
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
/// A call is judged that lasted as long: in a shorter one audio may still have been on its way.
const JUDGED: Duration = Duration::from_secs(1);
/// Silence at the end of a call is loss from this length on.
const SILENCE: Duration = Duration::from_millis(500);
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

/// Quality of what one side heard.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Quality {
    /// Rating factor of listening alone: loss without delay.
    pub listening: f64,
    /// The same with delay; none where that was not measured.
    pub conversational: Option<f64>,
}

/// What the peer heard, as its reports say.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PeerView {
    /// There was no report that would tell.
    Unknown,
    /// It has received some.
    Heard,
    /// It has received none.
    Unheard,
}

/// Audio of a call, summed up.
#[derive(Debug, Clone, PartialEq)]
pub struct Summary {
    /// RTP packets sent, and those that fell due and were given up.
    pub sent: u64,
    /// Given up.
    pub skipped: u64,
    /// RTP packets received, each once.
    pub received: u64,
    /// Packets that never came.
    pub lost: u64,
    /// Packets too late to be played.
    pub late: u64,
    /// Packets that came behind a later one.
    pub reordered: u64,
    /// Packets that came again.
    pub duplicated: u64,
    /// Packets that belong to no stream of the call, or are no RTP.
    pub unrelated: u64,
    /// Packets from another address than was agreed on.
    pub other_address: u64,
    /// Whether the call is judged: it lasted long enough.
    pub judged: bool,
    /// Whether this side was to hear, and to be heard.
    pub listens: bool,
    /// To be heard.
    pub speaks: bool,
    /// Whether audio came with the codec agreed on.
    pub heard: bool,
    /// Whether it was silence only.
    pub silent: bool,
    /// What the peer heard.
    pub peer: PeerView,
    /// From the answer to the first audio, ns.
    pub first_audio: Option<u64>,
    /// Mean interarrival jitter, ns.
    pub jitter: Option<f64>,
    /// Shortest round-trip time, ns.
    pub round_trip: Option<u64>,
    /// Losses and how they follow one another.
    pub pattern: LossPattern,
    /// How good it was; none where too little came to tell.
    pub quality: Option<Quality>,
    /// Reports sent and received.
    pub reports: (u32, u32),
    /// Keys whose tones were sent.
    pub pressed: usize,
    /// Keys that were heard.
    pub keys: Vec<u8>,
    /// Whether telephone events were agreed on.
    pub takes_keys: bool,
}

/// Audio of one call.
#[derive(Debug)]
pub struct Session {
    config: Arc<Config>,
    ssrc: u32,
    agreed: Option<Agreed>,
    began: Option<Time>,
    ended: Option<Time>,
    ended_by_us: bool,
    /// Next packet: when it is due, its number and timestamp, and where in the clip it begins.
    due: Time,
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
    /// State of a small random number generator.
    random: u64,
}

impl Session {
    /// Audio of a call that is offered or asked for now. `random` is a seed of its own; `stale` the source of the call before.
    pub fn new(config: Arc<Config>, random: u64, stale: Option<u32>) -> Self {
        let mut random = random | 1;
        let (ssrc, sequence, timestamp) = (next(&mut random), next(&mut random) as u16, next(&mut random));
        Self {
            config,
            ssrc,
            agreed: None,
            began: None,
            ended: None,
            ended_by_us: false,
            due: Time::NEVER,
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
            random,
        }
    }

    /// Whether there is an agreement.
    pub fn is_agreed(&self) -> bool {
        self.agreed.is_some()
    }

    /// Whether the call is answered and audio under way.
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

    /// SDP is agreed on, or has changed: a peer on hold is sent nothing.
    pub fn agree(&mut self, agreed: Agreed, now: Time) {
        self.agreed = Some(agreed);
        if self.began.is_some() {
            self.schedule(now);
        }
    }

    /// The call is answered: what is to be sent begins now.
    pub fn begin(&mut self, now: Time) {
        if self.began.is_none() && self.agreed.is_some() {
            self.began = Some(now);
            self.schedule(now);
            // section 6.2: between two parties the first report may be sent at once; there is nothing to say yet
            self.report_due = if self.config.reports.is_some() { now + self.ptime() } else { Time::NEVER };
        }
    }

    fn ptime(&self) -> Duration {
        self.agreed.map_or(PTIME, |agreed| agreed.ptime)
    }

    fn schedule(&mut self, now: Time) {
        let sends = self.agreed.is_some_and(|agreed| agreed.send) && self.config.mode != Mode::Echo;
        self.due = match (sends, self.due) {
            (false, _) => Time::NEVER,
            (true, Time::NEVER) => now,
            (true, due) => due,
        };
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
            out.push(Channel::Rtp, agreed.rtp, |bytes| {
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
        out.push(Channel::Rtp, agreed.rtp, |bytes| {
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
            timestamp: self.timestamp,
        };
        let heard =
            self.sources.iter().rfind(|source| source.stream.received > 1).map(|source| &source.stream);
        let reports = &mut self.reports;
        out.push(Channel::Rtcp, agreed.rtcp, |bytes| reports.write(sent, heard, now, goodbye, bytes));
        // section 6.3.1: half the interval for the second, and between half and one and a half of it
        let mean = if self.reports.sent == 1 { interval / 2 } else { interval };
        let factor = 0.5 + f64::from(next(&mut self.random)) / f64::from(u32::MAX);
        self.report_due = now + mean.mul_f64(factor);
    }

    /// A datagram came. An echo is sent at once.
    pub fn receive(&mut self, packet: &MediaPacket<'_>, out: &mut MediaOutbox) {
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
            self.keys.hear(rtp.timestamp(), rtp.payload());
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
        out.push(Channel::Rtp, agreed.rtp, |bytes| {
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

    /// Packets that the peer sent behind the last that came.
    fn missing(&self, stream: &Stream, agreed: &Agreed) -> u64 {
        // what came just now may still wait to be read
        let silent = self.ended.map_or(0, |ended| ended.since(stream.last));
        if silent < SILENCE.as_nanos() as u64 {
            return 0;
        }
        if self.reports.goodbye && self.sources.len() == 1 {
            let sent = u64::from(self.reports.peer_sent.unwrap_or(0));
            return sent.saturating_sub(stream.expected());
        }
        // the peer may have stopped before we heard that it hung up; when we did it was still to speak
        if self.ended_by_us { silent / agreed.ptime.as_nanos().max(1) as u64 } else { 0 }
    }

    /// What the peer heard of this side.
    fn peer(&self, ended: Time, began: Time) -> PeerView {
        match (self.reports.peer, self.reports.peer_at) {
            (Some(report), _) if report.lost as u64 <= self.sent || report.highest > 0 => PeerView::Heard,
            // a report of the first second could not know
            (None, Some(at)) if self.sent > 0 && at.min(ended) >= began + JUDGED => PeerView::Unheard,
            _ if self.returned.is_some() => PeerView::Heard,
            _ => PeerView::Unknown,
        }
    }

    /// Sum up; none where there was no audio to be.
    pub fn summary(&self, now: Time) -> Option<Summary> {
        let (agreed, began) = (self.agreed?, self.began?);
        let ended = self.ended.unwrap_or(now);
        // one packet is no source yet (RFC 3550 appendix A.1)
        let valid = || self.sources.iter().filter(|source| source.stream.received > 1);
        let sum = |count: fn(&Stream) -> u64| valid().map(|source| count(&source.stream)).sum::<u64>();
        let last = valid().next_back();
        let missing = last.map_or(0, |source| self.missing(&source.stream, &agreed));
        let mut pattern = LossPattern::default();
        for source in valid() {
            let behind =
                if last.is_some_and(|last| last.stream.ssrc == source.stream.ssrc) { missing } else { 0 };
            pattern.merge(&source.stream.pattern(behind));
        }
        let heard = valid().any(|source| source.audio > 0);
        let strays = self.sources.len() - valid().count();
        let round_trip = self.reports.round_trip.or(self.returned);
        let jitters: Vec<f64> = valid().filter_map(|source| source.stream.mean_jitter()).collect();
        Some(Summary {
            sent: self.sent,
            skipped: self.skipped,
            received: sum(|stream| stream.received),
            lost: sum(Stream::lost) + missing,
            late: sum(|stream| stream.late),
            reordered: sum(|stream| stream.reordered),
            duplicated: sum(|stream| stream.duplicates),
            unrelated: self.unrelated + strays as u64,
            other_address: self.other_address,
            judged: ended.since(began) >= JUDGED.as_nanos() as u64,
            listens: agreed.receive,
            speaks: agreed.send,
            heard,
            silent: heard && !valid().any(|source| source.loud),
            peer: self.peer(ended, began),
            first_audio: self.first_audio.filter(|_| heard).map(|at| at.since(began)),
            jitter: (!jitters.is_empty()).then(|| jitters.iter().sum::<f64>() / jitters.len() as f64),
            round_trip,
            quality: (heard && pattern.packets > 1).then(|| self.quality(&pattern, round_trip, &agreed)),
            pattern,
            reports: (self.reports.sent, self.reports.received),
            pressed: self.keys.pressed(),
            keys: self.keys.heard().to_vec(),
            takes_keys: agreed.events.is_some(),
        })
    }

    fn quality(&self, pattern: &LossPattern, round_trip: Option<u64>, agreed: &Agreed) -> Quality {
        let listening = Impairments {
            loss: pattern.percent(),
            burst_ratio: pattern.burst_ratio(),
            robustness: if self.config.concealment { G711_CONCEALED } else { G711_ROBUSTNESS },
            ..Impairments::default()
        };
        // half the round trip, a packet's time until it is full, and the playout buffer
        let fixed = (agreed.ptime + self.config.buffer).as_nanos() as f64;
        let delay = |round_trip: u64| (round_trip as f64 / 2.0 + fixed) / 1e6;
        let conversational =
            round_trip.map(|time| e_model::rating(&Impairments { delay: delay(time), ..listening }));
        Quality { listening: e_model::rating(&listening), conversational }
    }
}

/// Whether a datagram at a port that carries both is RTCP (RFC 5761 section 4).
fn is_rtcp(bytes: &[u8]) -> bool {
    bytes.get(1).is_some_and(|kind| (192..=223).contains(kind))
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
