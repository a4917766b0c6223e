//! Responses that end too early or are cut in pieces: how they are counted, and what is said of them.

use crate::cause::Cause;
use crate::describe::ModelKind;
use crate::http::description::{self, DESCRIPTION, SCHEMES};
use crate::http::{Device, Params};
use crate::meter::Failure;
use crate::target::Target;
use crate::testing::Bench;
use std::sync::Arc;

fn web(json: &str) -> Bench<Device> {
    let params: Params = serde_json::from_str(json).expect(json);
    let target = Target { scheme: SCHEMES[1], host: "web".into(), port: 443, ipv6: false };
    let mut web = Bench::of(Arc::new(params.compile(&target).expect(json)).device(0), &DESCRIPTION);
    web.start_connected();
    web
}

/// What is said of a response of which only `part` came, and how it counts.
fn cut(part: &str, why: Failure) -> (String, String) {
    let mut web = web(r#"{"method": "POST"}"#);
    web.feed(part.as_bytes());
    web.closed(why);
    assert_eq!(web.measured().messages_delivered, 0, "{part}");
    (web.cause.expect("explained").detail.to_string(), web.examples.concat())
}

#[test]
fn where_a_response_was_cut_is_said() {
    let said = |name: &str, what: &str| (name.to_owned(), format!("the connection ended {what}"));
    let head = "HTTP/1.1 200 OK\r\n";
    for why in [Failure::Closed, Failure::Reset] {
        let body = said("in the body", "after 10 of 100 bytes of the body");
        assert_eq!(cut(&format!("{head}Content-Length: 100\r\n\r\n0123456789"), why), body);
        assert_eq!(cut(&head[..9], why), said("in the head", "in the head of the response"));
        let interim = said("after an interim response", "after the interim response 100");
        assert_eq!(cut("HTTP/1.1 100 Continue\r\n\r\n", why), interim);
        let chunk = said("in the body", "before the last chunk of the body");
        assert_eq!(cut(&format!("{head}Transfer-Encoding: chunked\r\n\r\n4\r\nab"), why), chunk);
        let large = said("in the body", "4294967299 bytes before the end of the body");
        assert_eq!(cut(&format!("{head}Content-Length: 4294967300\r\n\r\n0"), why), large);
    }
    let reset = said("in the body", "in a body that ends with the connection");
    assert_eq!(cut(&format!("{head}\r\n01"), Failure::Reset), reset);
    // and one that stops coming
    let mut web = web(r#"{"timeout": "1s"}"#);
    web.feed(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n01");
    web.run_to_ms(2000);
    assert_eq!(web.examples, ["no whole response in time: it stopped after 2 of 100 bytes of the body"]);
}

#[test]
fn a_body_that_ends_with_the_connection_is_whole_only_with_the_alert_of_tls() {
    // RFC 9112 section 9.8; curl takes the others too
    let until_close = "HTTP/1.1 200 OK\r\n\r\nhello";
    for (truncated, delivered) in [(false, 1), (true, 0)] {
        let mut web = web(r#"{"requests": 1}"#);
        web.truncated = truncated;
        web.feed(until_close.as_bytes());
        web.closed(Failure::Closed);
        assert_eq!((web.measured().messages_delivered, web.excused), (delivered, !truncated));
        if truncated {
            let cause = web.cause.expect("explained");
            assert_eq!(cause, Cause::named(Failure::Closed, "ended without TLS close_notify"));
            assert!(web.examples[0].contains("it may be cut short"), "{:?}", web.examples);
        }
    }
    // what has a length of its own needs none
    for response in ["Content-Length: 2\r\n\r\nok", "Transfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n"]
    {
        let mut web = web(r#"{"requests": 2}"#);
        web.truncated = true;
        web.feed(format!("HTTP/1.1 200 OK\r\n{response}").as_bytes());
        web.closed(Failure::Closed);
        assert_eq!((web.measured().messages_delivered, web.excused), (1, true), "{response}");
    }
}

#[test]
fn the_servers_words_are_those_of_the_body_and_not_its_coding() {
    let head = "HTTP/1.1 413 Payload Too Large\r\nTransfer-Encoding: chunked\r\n\r\n";
    let mut web = web("{}");
    web.feed(format!("{head}7;x=y\r\ntoo big\r\n0\r\nX-Sum: 1\r\n\r\n").as_bytes());
    assert_eq!(web.examples, ["status 413 Payload Too Large: too big"]);
}

#[test]
fn a_captured_value_that_chunks_divide_is_masked() {
    let mut web = web(r#"{"capture": {"t": {"json": "/t"}}}"#);
    web.feed(b"HTTP/1.1 200 OK\r\nContent-Length: 26\r\n\r\n{\"t\": \"eyJhbGciOi.secret\"}");
    web.feed(b"HTTP/1.1 401 No\r\nTransfer-Encoding: chunked\r\n\r\n9\r\nbad eyJhb\r\nc\r\nGciOi.secret\r\n0\r\n\r\n");
    assert_eq!(web.examples, ["status 401 No: bad ***"]);
}

#[test]
fn a_status_of_no_class_is_an_error_of_the_server() {
    let mut web = web(r#"{"requests": 3}"#);
    for status in [600, 999, 503] {
        web.feed(format!("HTTP/1.1 {status} x\r\nContent-Length: 0\r\n\r\n").as_bytes());
    }
    assert_eq!((web.failures(Failure::Rejected), web.own(description::CLASS_2XX + 3)), (3, 3));
}
