//! What a call's audio was like, at its end.

use super::{Agreed, Session};
use crate::e_model::{self, G711_CONCEALED, G711_ROBUSTNESS, Impairments};
use crate::loss_pattern::LossPattern;
use crate::srtp::Refused;
use crate::stream::Stream;
use protocol::time::Time;
use std::time::Duration;

/// A call is judged that lasted as long: in a shorter one audio may still have been on its way.
const JUDGED: Duration = Duration::from_secs(1);
/// Silence at the end of a call is loss from this length on.
const SILENCE: Duration = Duration::from_millis(500);

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
    /// Whether the call was answered; without that there may have been audio while it rang.
    pub answered: bool,
    /// Whether the call is judged: it was answered, and its audio lasted long enough.
    pub judged: bool,
    /// Whether this side was to hear, and to be heard.
    pub listens: bool,
    /// To be heard.
    pub speaks: bool,
    /// Whether audio came with the codec agreed on.
    pub heard: bool,
    /// Share of the audio that was heard, in the direction in which less of it was: there as the peer reports.
    pub heard_share: Option<f64>,
    /// From the beginning of its audio to the end.
    pub span: (Time, Time),
    /// Whether it was silence only.
    pub silent: bool,
    /// What the peer heard.
    pub peer: PeerView,
    /// From the answer to the first audio, ns; 0 where that came before.
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
    /// Packets of SRTP that were not taken.
    pub refused: Refused,
    /// Whether packets came with another key than agreed on, and none with that.
    pub wrong_key: bool,
}

impl Session {
    /// Packets that the peer sent behind the last that came.
    fn missing(&self, stream: &Stream, agreed: &Agreed) -> u64 {
        // a peer that is on hold sends nothing
        if !agreed.receive {
            return 0;
        }
        // what came just now may still wait to be read
        let silent = self.ended.map_or(0, |ended| ended.since(stream.last.max(self.resumed)));
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

    /// Since when both sides were to be heard: from the answer on, or before where audio came before.
    fn open(&self, began: Time) -> Option<Time> {
        let answered = self.answered?;
        Some(if self.first_audio.is_some_and(|at| at < answered) { began } else { answered })
    }

    /// What the peer heard of this side.
    fn peer(&self, ended: Time, answered: Time) -> PeerView {
        match (self.reports.peer, self.reports.peer_at) {
            (Some(report), _) if report.lost as u64 <= self.sent || report.highest > 0 => PeerView::Heard,
            // a report of the first second could not know
            (None, Some(at)) if self.sent > 0 && at.min(ended) >= answered + JUDGED => PeerView::Unheard,
            _ if self.returned.is_some() => PeerView::Heard,
            _ => PeerView::Unknown,
        }
    }

    /// Share of the packets that the peer has heard, by its last report; those in flight then are no loss.
    fn heard_there(&self) -> Option<f64> {
        let report = self.reports.peer.filter(|_| self.sent > 0)?;
        // more came than were sent: some twice (RFC 3550 section 6.4.1)
        let lost = if report.lost > 0x7f_ffff { 0 } else { report.lost };
        Some((1.0 - f64::from(lost) / self.sent as f64).max(0.0))
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
        let refused = self.srtp.as_ref().map_or(Refused::default(), |srtp| srtp.refused);
        let heard_here = (agreed.receive && heard).then(|| 1.0 - pattern.percent() / 100.0);
        let heard_there = self.heard_there().filter(|_| agreed.send);
        let refused = Refused { early: self.early + self.waiting.len() as u64, ..refused };
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
            answered: self.answered.is_some(),
            judged: self.open(began).is_some_and(|open| ended.since(open) >= JUDGED.as_nanos() as u64),
            listens: agreed.receive,
            speaks: agreed.send,
            heard,
            heard_share: heard_here.into_iter().chain(heard_there).reduce(f64::min),
            span: (began, ended),
            silent: heard && !valid().any(|source| source.loud),
            peer: self.peer(ended, self.answered.unwrap_or(began)),
            first_audio: self
                .first_audio
                .filter(|_| heard)
                .zip(self.answered)
                .map(|(at, answered)| at.since(answered)),
            jitter: (!jitters.is_empty()).then(|| jitters.iter().sum::<f64>() / jitters.len() as f64),
            round_trip,
            quality: (heard && pattern.packets > 1).then(|| self.quality(&pattern, round_trip, &agreed)),
            pattern,
            reports: (self.reports.sent, self.reports.received),
            pressed: self.keys.pressed(),
            keys: self.keys.digits().to_vec(),
            takes_keys: agreed.events.is_some(),
            refused,
            wrong_key: refused.unauthenticated > 0
                && self.srtp.as_ref().is_some_and(|srtp| srtp.authentic == 0),
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
