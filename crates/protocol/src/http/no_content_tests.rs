//! Responses that have no content, whatever their fields say (RFC 9112 section 6.3), and servers that send it.

use super::description::SCHEMES;
use super::*;
use crate::describe::ModelKind;
use crate::meter::Phase;
use crate::model::{FlowEnd, Link};
use crate::target::Target;
use crate::testing::Bench;

fn bench(json: &str) -> Bench<Device> {
    let params: Params = serde_json::from_str(json).expect(json);
    let target = Target { scheme: SCHEMES[0], host: "web".into(), port: 80, ipv6: false };
    let mut web = Bench::new(Arc::new(params.compile(&target).expect(json)).device(0));
    web.start_connected();
    web
}

const CASES: [(&str, u16, &str); 3] = [
    ("HEAD", 200, "content in a response to HEAD"),
    ("GET", 204, "content in a 204 response"),
    ("GET", 304, "content in a 304 response"),
];

fn head(status: u16) -> String {
    format!("HTTP/1.1 {status} X\r\nContent-Length: 6\r\n\r\n")
}

#[test]
fn a_length_without_content_is_fine() {
    for (method, status, _) in CASES {
        let mut web = bench(&format!(r#"{{"method": "{method}", "requests": 2, "pipelining": 2}}"#));
        web.feed(head(status).repeat(2).as_bytes());
        assert_eq!((web.measured().messages_delivered, web.end), (2, Some(FlowEnd::Completed)), "{method}");
    }
}

#[test]
fn content_behind_it_is_a_failure_with_its_cause_and_no_response() {
    for (method, status, name) in CASES {
        for (pipelining, pieces) in [(1, 1), (1, 2), (3, 1), (3, 2)] {
            let json = format!(r#"{{"method": "{method}", "pipelining": {pipelining}}}"#);
            let mut web = bench(&json);
            let all = head(status) + "hello!";
            let cut = if pieces == 1 { all.len() } else { all.len() - 6 };
            let (first, rest) = all.split_at(cut);
            [first, rest]
                .into_iter()
                .filter(|piece| !piece.is_empty())
                .for_each(|piece| web.feed(piece.as_bytes()));
            let case = format!("{method} {status} {pipelining} {pieces}");
            assert_eq!(
                (web.measured().messages_delivered, web.failures(Failure::Protocol)),
                (1, 1),
                "{case}"
            );
            assert_eq!((web.end, web.link), (Some(FlowEnd::Failed), Link::Close), "{case}");
            let causes = web.tally_of(Phase::Measure).causes().expect("told");
            assert_eq!(causes.count_of(Cause::named(Failure::Protocol, name)), 1, "{case}");
            assert!(web.examples[0].contains("which has none (RFC 9112"), "{:?}", web.examples);
        }
    }
}

#[test]
fn a_response_that_answers_nothing_is_not_taken_for_the_next() {
    let mut web = bench(r#"{"method": "HEAD", "interval": "1s"}"#);
    web.feed((head(200) + "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n").as_bytes());
    assert_eq!((web.measured().messages_delivered, web.failures(Failure::Protocol)), (1, 1));
    // the next flow knows nothing of it
    web.start_connected();
    web.feed(b"SSH-2.0-x\r\n");
    assert_eq!(web.examples.last().map(String::as_str), Some("no HTTP: SSH on this port"));
}

#[test]
fn it_may_close_the_connection() {
    let mut web = bench(r#"{"method": "HEAD", "requests": 2}"#);
    web.feed(b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nhello");
    web.run_to_ms(0);
    web.connected();
    web.feed(head(200).as_bytes());
    assert_eq!((web.end, web.failures(Failure::Protocol)), (Some(FlowEnd::Completed), 0));
}
