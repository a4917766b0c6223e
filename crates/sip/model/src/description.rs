//! Description of the `sip` model: delays, counters and indices, by their RFC 6076 names where there is one.

use protocol::describe::{Better, Confirmed, Counter, Delay, Description, Index, Text, Unit};
use protocol::target::{Carrier, Scheme};

/// UDP, TCP and TLS (RFC 3261 section 19.1.2: default ports).
pub(crate) const SCHEMES: &[Scheme] =
    &[Scheme::udp("sip", Some(5060)), Scheme::tcp("sip+tcp", Some(5060)), Scheme::tls("sips", Some(5061))];

/// The transport in a Via header field (RFC 3261 section 20.42).
pub(crate) fn via_transport(scheme: Scheme) -> &'static str {
    match (scheme.carrier, scheme.tls) {
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
        "Registrations that failed: a final response from 400 up, or none before Timer F.",
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
        "Sessions set up and ended by a BYE that was accepted.",
        Better::More,
    ),
    counts("disconnect_requests", Unit::Sessions, "BYEs sent.", Better::Neither),
    counts("disconnects_accepted", Unit::Sessions, "BYEs answered with 200.", Better::More),
    counts("calls_received", Unit::Sessions, "INVITEs received that ask for a session.", Better::Neither),
    counts("answers_acknowledged", Unit::Sessions, "200s to INVITE whose ACK came.", Better::More),
    counts("challenges", Unit::Messages, "Requests challenged with 401 or 407.", Better::Neither),
    counts("provisional_responses", Unit::Messages, "Responses 1xx received, 100 excluded.", Better::Neither),
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
        "redirect_success",
        "Session requests that were redirected.",
        Better::More,
        &["sessions_redirected"],
        &["session_requests"],
        &[],
    ),
];

/// What the `sip` model says about itself.
pub const DESCRIPTION: Description = Description {
    name: "sip",
    about: "SIP user agents: registrations and calls",
    schemes: SCHEMES,
    delays: DELAYS,
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
        assert_eq!(COUNTERS.len(), counter::FORKS_RELEASED + 1);
        assert_eq!(COUNTERS[counter::CHALLENGES].name, "challenges");
        assert_eq!(COUNTERS[counter::RESPONSE_RETRANSMISSIONS].name, "response_retransmissions");
        let known = |name: &&str| COUNTERS.iter().any(|counter| counter.name == *name);
        for index in INDICES {
            assert!([index.over, index.under, index.less].concat().iter().all(known), "{}", index.name);
        }
    }
}
