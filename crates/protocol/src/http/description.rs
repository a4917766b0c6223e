//! What the HTTP client measures and how quick runs use it.

use crate::describe::{
    Better, Confirmed, Counter, Delay, Description, Index, SizeOption, Text, Unit, UrlMapping,
};
use crate::target::Scheme;

pub(super) const SCHEMES: &[Scheme] = &[Scheme::tcp("http", Some(80)), Scheme::tls("https", Some(443))];
pub(super) const CONNECT: usize = 0;
pub(super) const RESPONSE: usize = 1;
pub(super) const FIRST_BYTE: usize = 2;
/// Counters of responses by class (RFC 9110 §15), from 2xx to 5xx, and of connections.
pub(super) const CLASS_2XX: usize = 0;
pub(super) const CONNECTIONS: usize = 4;
pub(super) const IDLE_CLOSES: usize = 5;
pub(super) const RETRIED: usize = 6;

/// What it is.
pub const DESCRIPTION: Description = Description {
    name: "http",
    about: "HTTP/1.1 client",
    schemes: SCHEMES,
    delays: &[
        Delay { name: "connect", about: "from the start of the flow to the connection being up" },
        Delay { name: "response", about: "from the intended send time to the last byte of the response" },
        Delay { name: "first_byte", about: "from the intended send time to the first byte of the response" },
    ],
    values: &[],
    counters: &[
        Counter {
            name: "responses_2xx",
            unit: Unit::Messages,
            about: "Whole responses with a status from 200 to 299.",
            better: Better::More,
        },
        Counter {
            name: "responses_3xx",
            unit: Unit::Messages,
            about: "Whole responses with a status from 300 to 399.",
            better: Better::Neither,
        },
        Counter {
            name: "responses_4xx",
            unit: Unit::Messages,
            about: "Whole responses with a status from 400 to 499.",
            better: Better::Less,
        },
        Counter {
            name: "responses_5xx",
            unit: Unit::Messages,
            about: "Whole responses with a status from 500 on; 600 and above count as 5xx (RFC 9110 section 15).",
            better: Better::Less,
        },
        Counter {
            name: "connections",
            unit: Unit::Sessions,
            about: "Connections that came up.",
            better: Better::Neither,
        },
        Counter {
            name: "idle_closes",
            unit: Unit::Sessions,
            about: "Connections that the server closed between two responses, as it may: no failures.",
            better: Better::Neither,
        },
        Counter {
            name: "retried",
            unit: Unit::Messages,
            about: "Requests sent again on a new connection, since the server closed the one before without answering them.",
            better: Better::Less,
        },
    ],
    indices: &[Index {
        name: "server_errors",
        unit: Unit::Ratio,
        about: "Share of the responses whose status is 500 or above.",
        better: Better::Less,
        over: &["responses_5xx"],
        under: &["responses_2xx", "responses_3xx", "responses_4xx", "responses_5xx"],
        less: &[],
    }],
    confirmed: Confirmed::Always,
    ordered: false,
    quick: Some(UrlMapping {
        messages: "requests",
        device: "connection",
        devices: 10,
        count: "requests",
        interval: "interval",
        rate: None,
        size: SizeOption::Refused {
            why: "the server chooses the size of an HTTP answer",
            fix: "Name a path: http://HOST/index.html",
        },
        path: Some("path"),
        options: &[("method", "method"), ("header", "headers"), ("data", "body"), ("user", "target")],
    }),
    texts: &[
        ("path", Text::Template),
        ("headers", Text::Template),
        ("body", Text::Template),
        ("before.path", Text::Template),
        ("before.headers", Text::Template),
        ("before.body", Text::Template),
        ("then.path", Text::Template),
        ("then.headers", Text::Template),
        ("then.body", Text::Template),
    ],
};
