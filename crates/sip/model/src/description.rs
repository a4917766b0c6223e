//! Description of the `sip` model: delays, counters and indices, by their RFC 6076 names where there is one.

use protocol::describe::{Better, Confirmed, Counter, Delay, Description, Index, Text, Unit, Value};
use protocol::target::{Carrier, Scheme};

/// UDP, TCP and TLS (RFC 3261 section 19.1.2: default ports), and WebSocket (RFC 6455 section 3) without and with TLS.
pub(crate) const SCHEMES: &[Scheme] = &[
    Scheme::udp("sip", Some(5060)),
    Scheme::tcp("sip+tcp", Some(5060)),
    Scheme::tls("sips", Some(5061)),
    Scheme::tcp("sip+ws", Some(80)),
    Scheme::tls("sip+wss", Some(443)),
];

/// Whether SIP is in WebSocket messages (RFC 7118).
pub(crate) fn is_websocket(scheme: Scheme) -> bool {
    matches!(scheme.name, "sip+ws" | "sip+wss")
}

/// The transport in a Via header field (RFC 3261 section 20.42, RFC 7118 section 5.2).
pub(crate) fn via_transport(scheme: Scheme) -> &'static str {
    match (scheme.carrier, scheme.tls) {
        (_, true) if is_websocket(scheme) => "WSS",
        (_, false) if is_websocket(scheme) => "WS",
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
    Delay { name: "first_audio", about: "from the answer to the first audio from the other side" },
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

/// Counters, by their place in [`DESCRIPTION`].
pub(crate) mod counter {
    pub const REGISTRATIONS: usize = 0;
    pub const REGISTRATIONS_ACCEPTED: usize = 1;
    pub const REGISTRATIONS_INEFFECTIVE: usize = 2;
    pub const SESSION_REQUESTS: usize = 3;
    pub const SESSIONS_ANSWERED: usize = 4;
    pub const SESSIONS_REDIRECTED: usize = 5;
    pub const SESSION_REQUESTS_EFFECTIVE: usize = 6;
    pub const SESSION_ATTEMPTS_INEFFECTIVE: usize = 7;
    pub const SESSIONS_COMPLETED: usize = 8;
    pub const DISCONNECT_REQUESTS: usize = 9;
    pub const DISCONNECTS_ACCEPTED: usize = 10;
    pub const CALLS_RECEIVED: usize = 11;
    pub const ANSWERS_ACKNOWLEDGED: usize = 12;
    pub const CHALLENGES: usize = 13;
    pub const PROVISIONAL_RESPONSES: usize = 14;
    pub const REGISTER_RETRANSMISSIONS: usize = 15;
    pub const INVITE_RETRANSMISSIONS: usize = 16;
    pub const BYE_RETRANSMISSIONS: usize = 17;
    pub const OTHER_RETRANSMISSIONS: usize = 18;
    pub const RESPONSE_RETRANSMISSIONS: usize = 19;
    pub const REQUESTS_REPEATED: usize = 20;
    pub const RESPONSES_REPEATED: usize = 21;
    pub const UNRELATED_MESSAGES: usize = 22;
    pub const MALFORMED_MESSAGES: usize = 23;
    pub const FORKS_RELEASED: usize = 24;
    pub const AUDIO_CALLS: usize = 25;
    pub const AUDIO_REFUSED: usize = 26;
    pub const AUDIO_JUDGED_CALLS: usize = 27;
    pub const ONE_WAY_AUDIO_CALLS: usize = 28;
    pub const AUDIO_HEARD_BY_CALLER_ONLY: usize = 29;
    pub const AUDIO_HEARD_BY_CALLEE_ONLY: usize = 30;
    pub const AUDIO_HEARD_BY_NONE: usize = 31;
    pub const AUDIO_SILENT_CALLS: usize = 32;
    pub const RTP_SENT: usize = 33;
    pub const RTP_UNSENT: usize = 34;
    pub const RTP_RECEIVED: usize = 35;
    pub const RTP_LOST: usize = 36;
    pub const RTP_LATE: usize = 37;
    pub const RTP_REORDERED: usize = 38;
    pub const RTP_DUPLICATED: usize = 39;
    pub const RTP_UNRELATED: usize = 40;
    pub const RTP_OTHER_ADDRESS: usize = 41;
    pub const RTP_LOSS_BURSTS: usize = 42;
    pub const RTP_LOST_IN_BURSTS: usize = 43;
    pub const RTCP_SENT: usize = 44;
    pub const RTCP_RECEIVED: usize = 45;
    pub const PRACKS: usize = 46;
    pub const PRACKS_ACCEPTED: usize = 47;
    pub const PROVISIONALS_ACKNOWLEDGED: usize = 48;
    pub const KEYS_SENT: usize = 49;
    pub const KEYS_RECEIVED: usize = 50;
    pub const KEYS_REFUSED: usize = 51;
    pub const KEYS_UNSENT_CALLS: usize = 52;
    pub const KEYS_WRONG_CALLS: usize = 53;
    pub const SRTP_PLAIN_CALLS: usize = 54;
    pub const SRTP_SUITE_REFUSED: usize = 55;
    pub const SRTP_WRONG_KEY_CALLS: usize = 56;
    pub const SRTP_UNAUTHENTICATED: usize = 57;
    pub const SRTP_REPLAYED: usize = 58;
    pub const SRTP_EARLY: usize = 59;
    pub const SRTCP_UNAUTHENTICATED: usize = 60;
    pub const REQUESTS_MOVED: usize = 61;
    pub const CALLS_DROPPED: usize = 62;
    pub const AUDIO_DISTURBED_CALLS: usize = 63;
    pub const CALLS_ENDED_BY_CALLEE: usize = 64;
    pub const TRYING_RESPONSES: usize = 65;
}

const fn counts(name: &'static str, unit: Unit, about: &'static str, better: Better) -> Counter {
    Counter { name, unit, about, better }
}

const COUNTERS: &[Counter] = &[
    counts(
        "registrations",
        Unit::Sessions,
        "Registration attempts, each with its challenge.",
        Better::Neither,
    ),
    counts("registrations_accepted", Unit::Sessions, "Registrations answered with 200.", Better::More),
    counts(
        "registrations_ineffective",
        Unit::Sessions,
        "Registrations that failed: a final response from 400 up, none before Timer F, or a 200 that has no binding of ours.",
        Better::Less,
    ),
    counts(
        "session_requests",
        Unit::Sessions,
        "INVITEs that ask for a session, each with its challenge.",
        Better::Neither,
    ),
    counts("sessions_answered", Unit::Sessions, "Session requests answered with 200.", Better::More),
    counts("sessions_redirected", Unit::Sessions, "Session requests answered with 3xx.", Better::Neither),
    counts(
        "session_requests_effective",
        Unit::Sessions,
        "Session requests that reached the callee: answered with 200, 480, 486, 600 or 603.",
        Better::More,
    ),
    counts(
        "session_attempts_ineffective",
        Unit::Sessions,
        "Session requests that a server or the network failed: 408, 500, 503, 504, or no final response before Timer B.",
        Better::Less,
    ),
    counts(
        "sessions_completed",
        Unit::Sessions,
        "Sessions set up and ended by a BYE of either side that was accepted.",
        Better::More,
    ),
    counts("disconnect_requests", Unit::Sessions, "BYEs sent.", Better::Neither),
    counts("disconnects_accepted", Unit::Sessions, "BYEs answered with 200.", Better::More),
    counts("calls_received", Unit::Sessions, "INVITEs received that ask for a session.", Better::Neither),
    counts("answers_acknowledged", Unit::Sessions, "200s to INVITE whose ACK came.", Better::More),
    counts("challenges", Unit::Messages, "Requests challenged with 401 or 407.", Better::Neither),
    counts(
        "provisional_responses",
        Unit::Messages,
        "Responses 101 to 199 received, repeated ones included.",
        Better::Neither,
    ),
    counts("register_retransmissions", Unit::Messages, "REGISTERs sent again.", Better::Less),
    counts("invite_retransmissions", Unit::Messages, "INVITEs sent again.", Better::Less),
    counts("bye_retransmissions", Unit::Messages, "BYEs sent again.", Better::Less),
    counts("other_retransmissions", Unit::Messages, "Other requests sent again.", Better::Less),
    counts("response_retransmissions", Unit::Messages, "Responses sent again.", Better::Less),
    counts("requests_repeated", Unit::Messages, "Requests received again.", Better::Less),
    counts("responses_repeated", Unit::Messages, "Final responses received again.", Better::Less),
    counts(
        "unrelated_messages",
        Unit::Messages,
        "Messages received that belong to no transaction or dialog of their device.",
        Better::Less,
    ),
    counts("malformed_messages", Unit::Messages, "Messages received that are no SIP.", Better::Less),
    counts(
        "forks_released",
        Unit::Sessions,
        "Answers of further callees to a call that a proxy forked: acknowledged and ended.",
        Better::Neither,
    ),
    counts("audio_calls", Unit::Sessions, "Calls with audio agreed on in SDP.", Better::Neither),
    counts(
        "audio_refused",
        Unit::Sessions,
        "Calls answered without usable audio, although it was offered.",
        Better::Less,
    ),
    counts(
        "audio_judged_calls",
        Unit::Sessions,
        "Calls with audio that lasted a second or longer: long enough to judge whether each side was heard.",
        Better::Neither,
    ),
    counts(
        "one_way_audio_calls",
        Unit::Sessions,
        "Judged calls in which audio that was agreed on was not heard: none came here, or the other side reports by RTCP that none came there.",
        Better::Less,
    ),
    counts(
        "audio_heard_by_caller_only",
        Unit::Sessions,
        "Of one_way_audio_calls: the caller heard the callee.",
        Better::Less,
    ),
    counts(
        "audio_heard_by_callee_only",
        Unit::Sessions,
        "Of one_way_audio_calls: the callee heard the caller.",
        Better::Less,
    ),
    counts(
        "audio_heard_by_none",
        Unit::Sessions,
        "Of one_way_audio_calls: no side is known to have heard the other.",
        Better::Less,
    ),
    counts(
        "audio_silent_calls",
        Unit::Sessions,
        "Calls in which audio came, and nothing of it above -50 dBm0.",
        Better::Neither,
    ),
    counts("rtp_sent", Unit::Datagrams, "RTP packets sent.", Better::Neither),
    counts(
        "rtp_unsent",
        Unit::Datagrams,
        "RTP packets that fell due and were given up, as the generator was over half a second late.",
        Better::Less,
    ),
    counts("rtp_received", Unit::Datagrams, "RTP packets received, each once.", Better::More),
    counts(
        "rtp_lost",
        Unit::Datagrams,
        "RTP packets of the other side that never came, by their sequence numbers.",
        Better::Less,
    ),
    counts(
        "rtp_late",
        Unit::Datagrams,
        "RTP packets received too late for the playout buffer: lost to the listener.",
        Better::Less,
    ),
    counts("rtp_reordered", Unit::Datagrams, "RTP packets received behind a later one.", Better::Less),
    counts("rtp_duplicated", Unit::Datagrams, "RTP packets received again.", Better::Less),
    counts(
        "rtp_unrelated",
        Unit::Datagrams,
        "Datagrams at media sockets that are no RTP or belong to no stream of a call.",
        Better::Less,
    ),
    counts(
        "rtp_other_address",
        Unit::Datagrams,
        "RTP packets from another address than SDP names, as those of a NAT or of symmetric RTP.",
        Better::Neither,
    ),
    counts(
        "rtp_loss_bursts",
        Unit::Events,
        "Loss bursts (RFC 3611 section 4.7.2): losses, late packets included, with fewer than 16 packets between them.",
        Better::Less,
    ),
    counts("rtp_lost_in_bursts", Unit::Datagrams, "Lost and late RTP packets in loss bursts.", Better::Less),
    counts("rtcp_sent", Unit::Messages, "RTCP reports sent.", Better::Neither),
    counts("rtcp_received", Unit::Messages, "RTCP reports received.", Better::Neither),
    counts(
        "pracks",
        Unit::Messages,
        "PRACKs sent, each to a reliable provisional response (RFC 3262).",
        Better::Neither,
    ),
    counts("pracks_accepted", Unit::Messages, "PRACKs answered with 200.", Better::More),
    counts(
        "provisionals_acknowledged",
        Unit::Messages,
        "Reliable provisional responses sent whose PRACK came.",
        Better::More,
    ),
    counts("keys_sent", Unit::Events, "Keys pressed, as telephone events (RFC 4733).", Better::Neither),
    counts("keys_received", Unit::Events, "Keys heard, as telephone events.", Better::Neither),
    counts(
        "keys_refused",
        Unit::Sessions,
        "Calls in which keys were to be pressed or heard and the other side does not take telephone events.",
        Better::Less,
    ),
    counts(
        "keys_unsent_calls",
        Unit::Sessions,
        "Calls that ended before all their keys were pressed.",
        Better::Less,
    ),
    counts(
        "keys_wrong_calls",
        Unit::Sessions,
        "Calls in which other keys were heard than expected_keys.",
        Better::Less,
    ),
    counts(
        "srtp_plain_calls",
        Unit::Sessions,
        "Of audio_refused: SRTP was wanted, and the other side offered or answered RTP without it.",
        Better::Less,
    ),
    counts(
        "srtp_suite_refused",
        Unit::Sessions,
        "Of audio_refused: SRTP was wanted, and the other side named no suite and key (RFC 4568) that fit.",
        Better::Less,
    ),
    counts(
        "srtp_wrong_key_calls",
        Unit::Sessions,
        "Calls in which packets came and none was authentic: they had another key than SDP said, or were not protected.",
        Better::Less,
    ),
    counts(
        "srtp_unauthenticated",
        Unit::Datagrams,
        "Packets of SRTP whose authentication failed: they are lost to the listener.",
        Better::Less,
    ),
    counts(
        "srtp_replayed",
        Unit::Datagrams,
        "Authentic or not, packets of SRTP and SRTCP that had come before, or were over 128 packets late.",
        Better::Less,
    ),
    counts(
        "srtp_early",
        Unit::Datagrams,
        "Packets of SRTP that came before the answer with their key, and were given up: more than 16, or with another key.",
        Better::Neither,
    ),
    counts(
        "srtcp_unauthenticated",
        Unit::Messages,
        "Reports (SRTCP) whose authentication failed: they are not read.",
        Better::Less,
    ),
    counts(
        "requests_moved",
        Unit::Messages,
        "Requests that went on to another server, where one was silent, refused, closed the connection or answered 503.",
        Better::Less,
    ),
    counts(
        "calls_dropped",
        Unit::Sessions,
        "Calls that were up when their server failed: the server that took their BYE did not know them (481).",
        Better::Less,
    ),
    counts(
        "audio_disturbed_calls",
        Unit::Sessions,
        "Calls in which the generator itself sent audio over half a playout buffer late: they are not rated.",
        Better::Neither,
    ),
    counts(
        "calls_ended_by_callee",
        Unit::Sessions,
        "Calls that the other side ended, or a server in its name: of sessions_completed.",
        Better::Neither,
    ),
    counts(
        "trying_responses",
        Unit::Messages,
        "Responses 100 received, repeated ones included.",
        Better::Neither,
    ),
];

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
        assert_eq!(COUNTERS.len(), counter::TRYING_RESPONSES + 1);
        assert_eq!(COUNTERS[counter::KEYS_SENT].name, "keys_sent");
        assert_eq!(COUNTERS[counter::PRACKS].name, "pracks");
        assert_eq!(DELAYS[delay::RTP_ROUND_TRIP].name, "rtp_round_trip");
        assert_eq!(COUNTERS[counter::RTP_LATE].name, "rtp_late");
        assert_eq!(COUNTERS[counter::CHALLENGES].name, "challenges");
        assert_eq!(COUNTERS[counter::RESPONSE_RETRANSMISSIONS].name, "response_retransmissions");
        let known = |name: &&str| COUNTERS.iter().any(|counter| counter.name == *name);
        for index in INDICES {
            assert!([index.over, index.under, index.less].concat().iter().all(known), "{}", index.name);
        }
    }
}
