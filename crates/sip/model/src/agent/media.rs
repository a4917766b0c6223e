//! Audio of a user agent's call: offered and answered in SDP, played while the call is up, summed up at its end.

use super::UserAgent;
use crate::description::{counter, delay, value};
use crate::media::session_parameters;
use crate::message::session_description;
use protocol::cause::Cause;
use protocol::media::MediaPacket;
use protocol::meter::{Failure, record};
use protocol::model::Cx;
use protocol::time::Time;
use rand::Rng;
use sip_core::sdp::{Crypto, Direction, NegotiationError, Session as Sdp, answer, check_answer, offer};
use sip_media::{PeerView, Session, Summary, e_model};
use std::sync::Arc;

#[cfg(test)]
mod tests;

/// Audio of the present call.
#[derive(Debug)]
pub(crate) struct CallMedia {
    session: Session,
    /// Number of its dialog; the others have no audio meanwhile.
    leg: u8,
    /// When the call was asked for.
    asked: Time,
    /// Whether this side called.
    called: bool,
    /// Our offer, until it is answered.
    offer: Option<Sdp>,
    /// Our answer to the offer of the INVITE under way.
    answer: Option<Sdp>,
    version: u64,
    /// Our keys of SRTP, which stay for the call.
    crypto: Vec<Crypto>,
}

impl UserAgent {
    /// When audio is due.
    #[inline]
    pub(super) fn media_due(&self) -> Time {
        self.media.as_ref().map_or(Time::NEVER, |media| media.session.due())
    }

    /// Whether a call has keys that are still to be pressed.
    pub(super) fn is_pressing(&self) -> bool {
        self.media.as_ref().is_some_and(|media| media.session.is_pressing())
    }

    /// Send the audio that is due.
    #[inline]
    pub(super) fn send_media(&mut self, cx: &mut Cx<'_>) {
        let Some(media) = self.media.as_mut().filter(|media| media.session.due() <= cx.now) else { return };
        let (phases, window, now) = (&mut *cx.meter, cx.window, cx.now);
        let (late, excuse) = (&self.config.late_audio, media.session.buffer() / 2);
        media.session.send(now, &mut cx.out.media, |due| {
            record(&mut phases[window.phase(due) as usize].lateness, now.since(due));
            if now > due + excuse {
                late.note(due, now);
            }
        });
    }

    /// A datagram came to a media socket.
    pub(super) fn hear(&mut self, cx: &mut Cx<'_>, packet: &MediaPacket<'_>) {
        cx.arrived(cx.now, packet.bytes.len());
        match &mut self.media {
            Some(media) => media.session.receive(packet, &mut cx.out.media),
            None => cx.count(cx.now, counter::RTP_UNRELATED),
        }
    }

    /// The session description of a request: an offer, where calls have audio. `hold`: we want to hear nothing.
    pub(super) fn describe_session(&mut self, cx: &mut Cx<'_>, calls: bool, hold: bool, out: &mut Vec<u8>) {
        let config = Arc::clone(&self.config);
        let elsewhere = self.has_media_elsewhere();
        let (Some(media), Some(at), false) = (&config.media, self.media_address, elsewhere) else {
            return session_description(cx.device, self.local.ip(), config.sdp_size, out);
        };
        if self.media.is_none() {
            let session = Session::new(Arc::clone(&media.session), cx.rng.random(), self.stale);
            let (leg, asked) = (self.dialogs.selected(), self.due);
            let crypto = media.crypto();
            let call = CallMedia {
                session,
                leg,
                asked,
                called: calls,
                offer: None,
                answer: None,
                version: 0,
                crypto,
            };
            self.media = Some(Box::new(call));
        }
        let Some(call) = &mut self.media else { return };
        // a challenged request is sent again with the same offer
        if call.offer.is_none() {
            call.version += 1;
        }
        let mut audio = media.audio(at, &call.crypto);
        if hold {
            audio.direction = Direction::new(audio.direction.sends(), false);
        }
        let description = offer(&audio, cx.device.into(), call.version);
        append(&description, config.sdp_size, out);
        call.offer = Some(description);
    }

    /// The session description of an answer to the INVITE that came last; an offer, where that had none.
    pub(super) fn answer_session(&mut self, cx: &mut Cx<'_>, out: &mut Vec<u8>) {
        let config = Arc::clone(&self.config);
        if self.has_media_elsewhere() {
            return session_description(cx.device, self.local.ip(), config.sdp_size, out);
        }
        let (Some(media), Some(at), Some(offered)) = (&config.media, self.media_address, self.offered.take())
        else {
            // a provisional response had it, and the final one repeats it (RFC 3261 section 13.3.1.1)
            return match self.media.as_ref().and_then(|call| call.answer.as_ref()) {
                Some(answer) => append(answer, config.sdp_size, out),
                None => self.describe_session(cx, false, false, out),
            };
        };
        let version = self.media.as_ref().map_or(1, |call| call.version + 1);
        let crypto = self.media.as_ref().map_or_else(|| media.crypto(), |call| call.crypto.clone());
        let made = answer(&offered, &media.audio(at, &crypto), cx.device.into(), version);
        let why = made.as_ref().err().copied();
        let negotiated = made
            .ok()
            .and_then(|(description, agreement)| Some((description, session_parameters(&agreement)?)));
        let Some((description, (agreement, keys))) = negotiated else {
            count_refusal(cx, cx.now, why);
            return session_description(cx.device, self.local.ip(), config.sdp_size, out);
        };
        if self.media.is_none() {
            let session = Session::new(Arc::clone(&media.session), cx.rng.random(), self.stale);
            let (leg, asked) = (self.dialogs.selected(), cx.now);
            let call =
                CallMedia { session, leg, asked, called: false, offer: None, answer: None, version, crypto };
            self.media = Some(Box::new(call));
        }
        if let Some(call) = &mut self.media {
            call.version = version;
            call.session.agree(agreement, keys, cx.now);
        }
        append(&description, config.sdp_size, out);
        if let Some(call) = &mut self.media {
            call.answer = Some(description);
        }
    }

    /// Whether the audio is that of another dialog.
    fn has_media_elsewhere(&self) -> bool {
        self.media.as_ref().is_some_and(|call| call.leg != self.dialogs.selected())
    }

    /// A message came that may carry the answer to our offer. `last`: none comes after it.
    pub(super) fn take_answer(&mut self, cx: &mut Cx<'_>, body: &[u8], last: bool) {
        let (Some(config), Some(at)) = (&self.config.media, self.media_address) else { return };
        let Some(call) = self.media.as_mut().filter(|call| call.leg == self.dialogs.selected()) else {
            return;
        };
        let Some(sent) = call.offer.as_ref().filter(|_| last || !body.is_empty()) else { return };
        let read =
            Sdp::parse(body).ok().map(|answer| check_answer(sent, &config.audio(at, &call.crypto), &answer));
        match read.as_ref().and_then(|read| session_parameters(read.as_ref().ok()?)) {
            Some((agreement, keys)) => {
                call.session.agree(agreement, keys, cx.now);
                call.offer = call.offer.take().filter(|_| !last);
            }
            None if last => {
                call.offer = None;
                if !call.session.is_agreed() {
                    count_refusal(cx, call.asked, read.and_then(Result::err));
                }
            }
            None => {}
        }
    }

    /// An INVITE came: keep what it offers.
    pub(super) fn keep_offer(&mut self, body: &[u8]) {
        if self.has_media_elsewhere() {
            return;
        }
        if let Some(call) = &mut self.media {
            call.answer = None;
        }
        self.offered = match &self.config.media {
            Some(_) if !body.is_empty() => Sdp::parse(body).ok().map(Box::new),
            _ => None,
        };
    }

    /// Audio begins: the call is `answered`, or has audio while it rings.
    pub(super) fn begin_media(&mut self, cx: &mut Cx<'_>, answered: bool) {
        if let Some(call) = self.media.as_mut().filter(|call| call.leg == self.dialogs.selected()) {
            if answered {
                call.session.answer(cx.now);
            }
            call.session.begin(cx.now);
        }
        self.send_media(cx);
    }

    /// A BYE is sent (`by_us`) or came.
    pub(super) fn end_media(&mut self, cx: &mut Cx<'_>, by_us: bool) {
        if let Some(call) = self.media.as_mut().filter(|call| call.leg == self.dialogs.selected()) {
            call.session.end(cx.now, by_us, &mut cx.out.media);
        }
    }

    /// The call of the selected dialog is over: count what was heard.
    pub(super) fn sum_up_call(&mut self, cx: &mut Cx<'_>) {
        if !self.has_media_elsewhere() {
            self.sum_up_media(cx);
        }
    }

    /// All calls are over: count what was heard.
    pub(super) fn sum_up_media(&mut self, cx: &mut Cx<'_>) {
        let Some(mut call) = self.media.take() else { return };
        call.session.end(cx.now, false, &mut cx.out.media);
        self.stale = call.session.source();
        self.offered = None;
        if let Some(summary) = call.session.summary(cx.now) {
            // its last packets may have left late, and are on their way
            let (began, ended) = summary.span;
            let disturbed = self.config.late_audio.during(began, ended);
            count(cx, call.asked, call.called, &summary);
            if disturbed {
                cx.count(call.asked, counter::AUDIO_DISTURBED_CALLS);
            } else if summary.answered {
                // who rings only need not be heard
                rate(cx, call.asked, &summary);
            }
            self.count_keys(cx, call.asked, &summary);
        }
    }
}

impl UserAgent {
    /// Count the keys of a call, and whether they are those that were to be.
    fn count_keys(&self, cx: &mut Cx<'_>, asked: Time, audio: &Summary) {
        let Some(config) = &self.config.media else { return };
        let (keys, expected) = (&config.session.keys, &config.expected);
        let tally = cx.at(asked);
        let mut add = |counter: usize, n: usize| tally.own[counter] += n as u64;
        add(counter::KEYS_SENT, audio.pressed);
        add(counter::KEYS_RECEIVED, audio.keys.len());
        if !audio.answered {
            return;
        }
        let refused = !(audio.takes_keys || keys.is_empty() && expected.is_none());
        add(counter::KEYS_REFUSED, usize::from(refused));
        add(counter::KEYS_UNSENT_CALLS, usize::from(!refused && audio.pressed < keys.len()));
        let Some(expected) = expected.as_ref().filter(|expected| !refused && audio.keys != **expected) else {
            return;
        };
        add(counter::KEYS_WRONG_CALLS, 1);
        // what ended a call too early says more
        if cx.example.is_none() {
            let text = |keys: &[u8]| String::from_utf8_lossy(keys).into_owned();
            let what = format!("keys heard: {:?}, and {:?} were expected", text(&audio.keys), text(expected));
            cx.failure(asked, Cause::named(Failure::Rejected, "other keys heard"), || what);
        }
    }
}

/// Count a call without usable audio, and apart from that one without usable SRTP.
fn count_refusal(cx: &mut Cx<'_>, asked: Time, why: Option<NegotiationError>) {
    cx.count(asked, counter::AUDIO_REFUSED);
    match why {
        Some(NegotiationError::Unprotected) => cx.count(asked, counter::SRTP_PLAIN_CALLS),
        Some(NegotiationError::NoSuite) => cx.count(asked, counter::SRTP_SUITE_REFUSED),
        _ => {}
    }
}

/// Append a description, padded to `size`.
fn append(description: &Sdp, size: usize, out: &mut Vec<u8>) {
    let start = out.len();
    out.extend_from_slice(description.to_string().as_bytes());
    crate::message::pad(start, size, out);
}

fn count(cx: &mut Cx<'_>, asked: Time, called: bool, audio: &Summary) {
    let tally = cx.at(asked);
    let mut add = |counter: usize, n: u64| tally.own[counter] += n;
    add(counter::AUDIO_CALLS, 1);
    add(counter::RTP_SENT, audio.sent);
    add(counter::RTP_UNSENT, audio.skipped);
    add(counter::RTP_RECEIVED, audio.received);
    add(counter::RTP_LOST, audio.lost);
    add(counter::RTP_LATE, audio.late);
    add(counter::RTP_REORDERED, audio.reordered);
    add(counter::RTP_DUPLICATED, audio.duplicated);
    add(counter::RTP_UNRELATED, audio.unrelated);
    add(counter::RTP_OTHER_ADDRESS, audio.other_address);
    let (bursts, _, lost) = audio.pattern.bursts();
    add(counter::RTP_LOSS_BURSTS, bursts);
    add(counter::RTP_LOST_IN_BURSTS, lost);
    add(counter::RTCP_SENT, audio.reports.0.into());
    add(counter::RTCP_RECEIVED, audio.reports.1.into());
    add(counter::AUDIO_SILENT_CALLS, u64::from(audio.silent));
    add(counter::SRTP_UNAUTHENTICATED, audio.refused.unauthenticated);
    add(counter::SRTCP_UNAUTHENTICATED, audio.refused.unauthenticated_reports);
    add(counter::SRTP_REPLAYED, audio.refused.replayed);
    add(counter::SRTP_EARLY, audio.refused.early);
    add(counter::SRTP_WRONG_KEY_CALLS, u64::from(audio.wrong_key));
    let here = !audio.listens || audio.heard;
    let there = !audio.speaks || audio.peer != PeerView::Unheard;
    if audio.judged {
        add(counter::AUDIO_JUDGED_CALLS, 1);
        if !(here && there) {
            add(counter::ONE_WAY_AUDIO_CALLS, 1);
            let heard_there = audio.speaks && audio.peer == PeerView::Heard;
            let by_caller = if called { audio.heard } else { heard_there };
            let by_callee = if called { heard_there } else { audio.heard };
            match (by_caller, by_callee) {
                (true, false) => add(counter::AUDIO_HEARD_BY_CALLER_ONLY, 1),
                (false, true) => add(counter::AUDIO_HEARD_BY_CALLEE_ONLY, 1),
                _ => add(counter::AUDIO_HEARD_BY_NONE, 1),
            }
        }
    }
    let mut time = |delay: usize, ns: u64| record(&mut tally.delays[delay], ns);
    if let Some(ns) = audio.first_audio {
        time(delay::FIRST_AUDIO, ns);
    }
    if let Some(ns) = audio.jitter {
        time(delay::RTP_JITTER, ns as u64);
    }
    if let Some(ns) = audio.round_trip {
        time(delay::RTP_ROUND_TRIP, ns);
    }
}

/// Rate what was heard of a call.
fn rate(cx: &mut Cx<'_>, asked: Time, audio: &Summary) {
    let tally = cx.at(asked);
    // thousandths; a rating below 0 is the worst there is
    let mut keep = |value: usize, number: f64| {
        record(&mut tally.values[value], (number.max(0.0) * 1000.0).round() as u64);
    };
    if let Some(share) = audio.heard_share.filter(|_| audio.judged) {
        keep(value::HEARD, share);
    }
    let Some(quality) = audio.quality else { return };
    keep(value::MOS_LISTENING, e_model::mos(quality.listening));
    keep(value::R_LISTENING, quality.listening);
    if let Some(rating) = quality.conversational {
        keep(value::MOS, e_model::mos(rating));
        keep(value::R, rating);
    }
}
