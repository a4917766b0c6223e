//! Description of the `sip` model: delays, counters and indices, by their RFC 6076 names where there is one.

use protocol::describe::{Better, Confirmed, Counter, Delay, Description, Index, Text, Unit, Value};
use protocol::target::{Carrier, Scheme};

/// UDP, TCP and TLS (RFC 3261 section 19.1.2: default ports), WebSocket (RFC 6455 section 3) without and with TLS, and SCTP
/// (RFC 4168).
pub(crate) const SCHEMES: &[Scheme] = &[
    Scheme::udp("sip", Some(5060)),
    Scheme::tcp("sip+tcp", Some(5060)),
    Scheme::tls("sips", Some(5061)),
    Scheme::tcp("sip+ws", Some(80)),
    Scheme::tls("sip+wss", Some(443)),
    Scheme::tcp("sip+sctp", Some(5060)),
];

/// Whether SIP is in WebSocket messages (RFC 7118).
pub(crate) fn is_websocket(scheme: Scheme) -> bool {
    matches!(scheme.name, "sip+ws" | "sip+wss")
}

/// The transport in a Via header field (RFC 3261 section 20.42, RFC 4168 section 5.2, RFC 7118 section 5.2).
pub(crate) fn via_transport(scheme: Scheme) -> &'static str {
    match (scheme.carrier, scheme.tls) {
        (_, true) if is_websocket(scheme) => "WSS",
        (_, false) if is_websocket(scheme) => "WS",
        _ if scheme.is_sctp() => "SCTP",
        (Carrier::Stream, true) => "TLS",
        (Carrier::Stream, false) => "TCP",
        _ => "UDP",
    }
}

/// Delays, by their place in [`DESCRIPTION`].
pub(crate) mod delay {
    pub const REGISTRATION: usize = 0;
    pub const SESSION_REQUEST: usize = 1;
    pub const SESSION_REQUEST_FAILED: usize = 2;
    pub const SESSION_SETUP: usize = 3;
    pub const ANSWER_SIGNAL: usize = 4;
    pub const SESSION_DISCONNECT: usize = 5;
    pub const REDIRECT: usize = 6;
    pub const RESPONSE: usize = 7;
    pub const FIRST_AUDIO: usize = 8;
    pub const RTP_JITTER: usize = 9;
    pub const RTP_ROUND_TRIP: usize = 10;
    pub const FAILOVER: usize = 11;
}

const DELAYS: &[Delay] = &[
    Delay {
        name: "registration",
        about: "registration request delay (RRD, RFC 6076 section 4.1): from the first REGISTER to the 200, challenge included",
    },
    Delay {
        name: "session_request",
        about: "session request delay (SRD, RFC 6076 section 4.3.1): from INVITE to the first 18x, or to the 200 where none came",
    },
    Delay {
        name: "session_request_failed",
        about: "failed session request delay (RFC 6076 section 4.3.2): from INVITE to a final response that is neither 2xx nor 3xx",
    },
    Delay { name: "session_setup", about: "from INVITE to its 200" },
    Delay { name: "answer_signal", about: "answer-signal delay, at the callee: from the 200 to its ACK" },
    Delay {
        name: "session_disconnect",
        about: "session disconnect delay (SDD, RFC 6076 section 4.4): from BYE to its 200",
    },
    Delay { name: "redirect", about: "redirect delay: from INVITE to a 3xx" },
    Delay {
        name: "response",
        about: "from any other request, or a REGISTER or BYE that was rejected, to its final response",
    },
    Delay {
        name: "first_audio",
        about: "from the answer to the first audio from the other side; 0 where that came before",
    },
    Delay {
        name: "rtp_jitter",
        about: "mean interarrival jitter (RFC 3550 section 6.4.1) of a call, by the kernel's time stamps",
    },
    Delay {
        name: "rtp_round_trip",
        about: "shortest round-trip time of a call, from RTCP reports or an echo of its packets",
    },
    Delay {
        name: "failover",
        about: "from when a request was due to its 2xx, where a server that it had been sent to failed and another one answered (RFC 3263 section 4.3)",
    },
];

/// Values, by their place in [`DESCRIPTION`].
pub(crate) mod value {
    pub const MOS: usize = 0;
    pub const R: usize = 1;
    pub const MOS_LISTENING: usize = 2;
    pub const R_LISTENING: usize = 3;
    pub const HEARD: usize = 4;
}

const VALUES: &[Value] = &[
    Value {
        name: "mos",
        about: "estimated MOS in a conversation (MOS-CQE, ITU-T G.107), from 1 to 4.5: loss, its bursts, and delay; of calls whose round-trip time was measured",
        better: Better::More,
    },
    Value {
        name: "r_factor",
        about: "rating factor R in a conversation (ITU-T G.107), from 0 to 93.2; of the same calls",
        better: Better::More,
    },
    Value {
        name: "mos_listening",
        about: "estimated MOS of listening alone: loss and its bursts without delay, from 1 to 4.41; of all calls that were heard",
        better: Better::More,
    },
    Value {
        name: "r_listening",
        about: "rating factor R of listening alone; of the same calls",
        better: Better::More,
    },
    Value {
        name: "heard",
        about: "share of the audio that was heard, from 0 to 1, in the direction in which less of it was: lost and late packets taken off, at the other side as its reports say; of judged calls",
        better: Better::More,
    },
];

/// Declares the counters from one line each, in the order of [`DESCRIPTION`]: constant and name, unit, which way is better, meaning.
macro_rules! counters {
    ($( $place:ident $name:literal: $unit:ident, $better:ident, $about:literal; )+) => {
        /// Counters, by their place in [`DESCRIPTION`].
        pub(crate) mod counter {
            #[expect(non_camel_case_types, clippy::upper_case_acronyms, reason = "named like the constants that they number")]
            enum Place { $( $place ),+ }
            $( pub const $place: usize = Place::$place as usize; )+
        }

        const COUNTERS: &[Counter] = &[$(
            Counter { name: $name, unit: Unit::$unit, about: $about, better: Better::$better }
        ),+];
    };
}

counters! {
    REGISTRATIONS "registrations": Sessions, Neither, "Registration attempts, each with its challenge.";
    REGISTRATIONS_ACCEPTED "registrations_accepted": Sessions, More, "Registrations answered with 200.";
    REGISTRATIONS_INEFFECTIVE "registrations_ineffective": Sessions, Less, "Registrations that failed: a final response from 400 up, none before Timer F, or a 200 that has no binding of ours.";
    SESSION_REQUESTS "session_requests": Sessions, Neither, "INVITEs that ask for a session, each with its challenge.";
    SESSIONS_ANSWERED "sessions_answered": Sessions, More, "Session requests answered with 200.";
    SESSIONS_REDIRECTED "sessions_redirected": Sessions, Neither, "Session requests answered with 3xx.";
    SESSION_REQUESTS_EFFECTIVE "session_requests_effective": Sessions, More, "Session requests that reached the callee: answered with 200, 480, 486, 600 or 603.";
    SESSION_ATTEMPTS_INEFFECTIVE "session_attempts_ineffective": Sessions, Less, "Session requests that a server or the network failed: 408, 500, 503, 504, or no final response before Timer B.";
    SESSIONS_COMPLETED "sessions_completed": Sessions, More, "Sessions set up and ended by a BYE of either side that was accepted.";
    DISCONNECT_REQUESTS "disconnect_requests": Sessions, Neither, "BYEs sent.";
    DISCONNECTS_ACCEPTED "disconnects_accepted": Sessions, More, "BYEs answered with 200.";
    CALLS_RECEIVED "calls_received": Sessions, Neither, "INVITEs received that ask for a session.";
    ANSWERS_ACKNOWLEDGED "answers_acknowledged": Sessions, More, "200s to INVITE whose ACK came.";
    CHALLENGES "challenges": Messages, Neither, "Requests challenged with 401 or 407.";
    PROVISIONAL_RESPONSES "provisional_responses": Messages, Neither, "Responses 101 to 199 received, repeated ones included.";
    REGISTER_RETRANSMISSIONS "register_retransmissions": Messages, Less, "REGISTERs sent again.";
    INVITE_RETRANSMISSIONS "invite_retransmissions": Messages, Less, "INVITEs sent again.";
    BYE_RETRANSMISSIONS "bye_retransmissions": Messages, Less, "BYEs sent again.";
    OTHER_RETRANSMISSIONS "other_retransmissions": Messages, Less, "Other requests sent again.";
    RESPONSE_RETRANSMISSIONS "response_retransmissions": Messages, Less, "Responses sent again.";
    REQUESTS_REPEATED "requests_repeated": Messages, Less, "Requests received again.";
    RESPONSES_REPEATED "responses_repeated": Messages, Less, "Final responses received again.";
    UNRELATED_MESSAGES "unrelated_messages": Messages, Less, "Messages received that belong to no transaction or dialog of their device.";
    MALFORMED_MESSAGES "malformed_messages": Messages, Less, "Messages received that are no SIP.";
    FORKS_RELEASED "forks_released": Sessions, Neither, "Answers of further callees to a call that a proxy forked: acknowledged and ended.";
    AUDIO_CALLS "audio_calls": Sessions, Neither, "Calls with audio agreed on in SDP.";
    AUDIO_REFUSED "audio_refused": Sessions, Less, "Calls answered without usable audio, although it was offered.";
    AUDIO_JUDGED_CALLS "audio_judged_calls": Sessions, Neither, "Answered calls with audio that lasted a second or longer: long enough to judge whether each side was heard.";
    ONE_WAY_AUDIO_CALLS "one_way_audio_calls": Sessions, Less, "Judged calls in which audio that was agreed on was not heard: none came here, or the other side reports by RTCP that none came there.";
    AUDIO_HEARD_BY_CALLER_ONLY "audio_heard_by_caller_only": Sessions, Less, "Of one_way_audio_calls: the caller heard the callee.";
    AUDIO_HEARD_BY_CALLEE_ONLY "audio_heard_by_callee_only": Sessions, Less, "Of one_way_audio_calls: the callee heard the caller.";
    AUDIO_HEARD_BY_NONE "audio_heard_by_none": Sessions, Less, "Of one_way_audio_calls: no side is known to have heard the other.";
    AUDIO_SILENT_CALLS "audio_silent_calls": Sessions, Neither, "Calls in which audio came, and nothing of it above -50 dBm0.";
    RTP_SENT "rtp_sent": Datagrams, Neither, "RTP packets sent.";
    RTP_UNSENT "rtp_unsent": Datagrams, Less, "RTP packets that fell due and were given up, as the generator was over half a second late.";
    RTP_RECEIVED "rtp_received": Datagrams, More, "RTP packets received, each once.";
    RTP_LOST "rtp_lost": Datagrams, Less, "RTP packets of the other side that never came, by their sequence numbers.";
    RTP_LATE "rtp_late": Datagrams, Less, "RTP packets received too late for the playout buffer: lost to the listener.";
    RTP_REORDERED "rtp_reordered": Datagrams, Less, "RTP packets received behind a later one.";
    RTP_DUPLICATED "rtp_duplicated": Datagrams, Less, "RTP packets received again.";
    RTP_UNRELATED "rtp_unrelated": Datagrams, Less, "Datagrams at media sockets that are no RTP or belong to no stream of a call.";
    RTP_OTHER_ADDRESS "rtp_other_address": Datagrams, Neither, "RTP packets from another address than SDP names, as those of a NAT or of symmetric RTP.";
    RTP_LOSS_BURSTS "rtp_loss_bursts": Events, Less, "Loss bursts (RFC 3611 section 4.7.2): losses, late packets included, with fewer than 16 packets between them.";
    RTP_LOST_IN_BURSTS "rtp_lost_in_bursts": Datagrams, Less, "Lost and late RTP packets in loss bursts.";
    RTCP_SENT "rtcp_sent": Messages, Neither, "RTCP reports sent.";
    RTCP_RECEIVED "rtcp_received": Messages, Neither, "RTCP reports received.";
    PRACKS "pracks": Messages, Neither, "PRACKs sent, each to a reliable provisional response (RFC 3262).";
    PRACKS_ACCEPTED "pracks_accepted": Messages, More, "PRACKs answered with 200.";
    PROVISIONALS_ACKNOWLEDGED "provisionals_acknowledged": Messages, More, "Reliable provisional responses sent whose PRACK came.";
    KEYS_SENT "keys_sent": Events, Neither, "Keys pressed, as telephone events (RFC 4733).";
    KEYS_RECEIVED "keys_received": Events, Neither, "Keys heard, as telephone events.";
    KEYS_REFUSED "keys_refused": Sessions, Less, "Calls in which keys were to be pressed or heard and the other side does not take telephone events.";
    KEYS_UNSENT_CALLS "keys_unsent_calls": Sessions, Less, "Calls that ended before all their keys were pressed.";
    KEYS_WRONG_CALLS "keys_wrong_calls": Sessions, Less, "Calls in which other keys were heard than expected_keys.";
    SRTP_PLAIN_CALLS "srtp_plain_calls": Sessions, Less, "Of audio_refused: SRTP was wanted, and the other side offered or answered RTP without it.";
    SRTP_SUITE_REFUSED "srtp_suite_refused": Sessions, Less, "Of audio_refused: SRTP was wanted, and the other side named no suite and key (RFC 4568) that fit.";
    SRTP_WRONG_KEY_CALLS "srtp_wrong_key_calls": Sessions, Less, "Calls in which packets came and none was authentic: they had another key than SDP said, or were not protected.";
    SRTP_UNAUTHENTICATED "srtp_unauthenticated": Datagrams, Less, "Packets of SRTP whose authentication failed: they are lost to the listener.";
    SRTP_REPLAYED "srtp_replayed": Datagrams, Less, "Authentic or not, packets of SRTP and SRTCP that had come before, or were over 128 packets late.";
    SRTP_EARLY "srtp_early": Datagrams, Neither, "Packets of SRTP that came before the answer with their key, and were given up: more than 16, or with another key.";
    SRTCP_UNAUTHENTICATED "srtcp_unauthenticated": Messages, Less, "Reports (SRTCP) whose authentication failed: they are not read.";
    REQUESTS_MOVED "requests_moved": Messages, Less, "Requests that went on to another server, where one was silent, refused, closed the connection or answered 503.";
    CALLS_DROPPED "calls_dropped": Sessions, Less, "Calls that were up when their server failed: the server that took their BYE did not know them (481).";
    AUDIO_DISTURBED_CALLS "audio_disturbed_calls": Sessions, Neither, "Calls in which the generator itself sent audio over half a playout buffer late: they are not rated.";
    CALLS_ENDED_BY_CALLEE "calls_ended_by_callee": Sessions, Neither, "Calls that the other side ended, or a server in its name: of sessions_completed.";
    TRYING_RESPONSES "trying_responses": Messages, Neither, "Responses 100 received, repeated ones included.";
    BINDINGS_REMOVED "bindings_removed": Messages, Neither, "Registrations that were taken back when the run was over: they are in no other figure.";
    BINDINGS_LEFT "bindings_left": Messages, Less, "Registrations that the server still has after the run: taking them back failed, or took too long.";
    CALLS_CANCELLED "calls_cancelled": Sessions, Neither, "Calls that still rang when the run was over, and were cancelled: their end is in no other figure.";
    CALLS_RELEASED "calls_released": Sessions, Neither, "Calls that were still up when the run was over, and were ended by a BYE: it is in no other figure.";
    CALLS_LEFT "calls_left": Sessions, Less, "Calls that may go on after the run: their CANCEL or BYE had no answer.";
    LIFETIMES_RAISED "lifetimes_raised": Messages, Neither, "Requests answered with 423 or 422, and sent again with the interval that the server named.";
    LIFETIMES_REFUSED "lifetimes_refused": Messages, Less, "Of these, requests answered with 423 or 422 again.";
    SESSION_REFRESHES "session_refreshes": Messages, Neither, "Refreshes of calls sent: UPDATE or re-INVITE of the session timer (RFC 4028).";
    SESSIONS_EXPIRED "sessions_expired": Sessions, Less, "Calls that ended as the session timer was over, or the other side did not know them at the refresh.";
}

const fn ratio(
    name: &'static str,
    about: &'static str,
    better: Better,
    over: &'static [&'static str],
    under: &'static [&'static str],
    less: &'static [&'static str],
) -> Index {
    Index { name, unit: Unit::Ratio, about, better, over, under, less }
}

const INDICES: &[Index] = &[
    ratio(
        "registration_success",
        "Registration success ratio: 1 − IRA.",
        Better::More,
        &["registrations_accepted"],
        &["registrations"],
        &[],
    ),
    ratio(
        "ira",
        "Ineffective registration attempts (RFC 6076 section 4.2).",
        Better::Less,
        &["registrations_ineffective"],
        &["registrations"],
        &[],
    ),
    ratio(
        "ser",
        "Session establishment ratio (RFC 6076 section 4.6).",
        Better::More,
        &["sessions_answered"],
        &["session_requests"],
        &["sessions_redirected"],
    ),
    ratio(
        "seer",
        "Session establishment effectiveness ratio (RFC 6076 section 4.7).",
        Better::More,
        &["session_requests_effective"],
        &["session_requests"],
        &["sessions_redirected"],
    ),
    ratio(
        "isa",
        "Ineffective session attempts (RFC 6076 section 4.8).",
        Better::Less,
        &["session_attempts_ineffective"],
        &["session_requests"],
        &[],
    ),
    ratio(
        "scr",
        "Session completion ratio (RFC 6076 section 4.9).",
        Better::More,
        &["sessions_completed"],
        &["session_requests"],
        &[],
    ),
    ratio(
        "ended_by_callee",
        "Session requests whose call the other side ended, or a server in its name.",
        Better::Neither,
        &["calls_ended_by_callee"],
        &["session_requests"],
        &[],
    ),
    ratio(
        "redirect_success",
        "Session requests that were redirected.",
        Better::More,
        &["sessions_redirected"],
        &["session_requests"],
        &[],
    ),
    ratio(
        "one_way_audio",
        "Share of judged calls in which audio that was agreed on was not heard.",
        Better::Less,
        &["one_way_audio_calls"],
        &["audio_judged_calls"],
        &[],
    ),
    ratio(
        "rtp_loss",
        "Share of RTP packets that never came.",
        Better::Less,
        &["rtp_lost"],
        &["rtp_lost", "rtp_received"],
        &[],
    ),
];

/// What the `sip` model says about itself.
pub const DESCRIPTION: Description = Description {
    name: "sip",
    about: "SIP user agents: registrations and calls",
    schemes: SCHEMES,
    delays: DELAYS,
    values: VALUES,
    counters: COUNTERS,
    indices: INDICES,
    confirmed: Confirmed::Always,
    ordered: false,
    quick: None,
    texts: &[
        ("user", Text::Template),
        ("auth_user", Text::Template),
        ("password", Text::Template),
        ("callee", Text::Template),
        ("domain", Text::Template),
        ("headers", Text::Template),
        ("scenario.steps", Text::Template),
    ],
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_place_names_its_entry() {
        assert_eq!(DELAYS[delay::RESPONSE].name, "response");
        assert_eq!(DELAYS[delay::ANSWER_SIGNAL].name, "answer_signal");
        assert_eq!(DELAYS[delay::RTP_ROUND_TRIP].name, "rtp_round_trip");
        assert_eq!(COUNTERS[counter::RESPONSE_RETRANSMISSIONS].name, "response_retransmissions");
        let known = |name: &&str| COUNTERS.iter().any(|counter| counter.name == *name);
        for index in INDICES {
            assert!([index.over, index.under, index.less].concat().iter().all(known), "{}", index.name);
        }
    }
}
