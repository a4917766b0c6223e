//! Several requests in turn, and rests between them.

use super::before_tests::{params, response, web};
use super::*;
use crate::describe::ModelParams;
use crate::model::FlowEnd;
use crate::testing::Bench;

const ROUND: &str = r#"{"path": "/a", "pause": "10ms", "requests": 4, "then": [
    {"method": "POST", "path": "/b?n={seq}", "body": "x", "pause": "30ms", "expect": ["201"]}]}"#;

/// What was sent, up to the version; nothing else may be.
fn asked(web: &mut Bench<Device>) -> String {
    web.sent_text().split(" HTTP/1.1").next().unwrap_or_default().to_owned()
}

#[test]
fn requests_take_turns_on_one_connection_and_rest_after_each_response() {
    let mut web = web(ROUND);
    web.start_connected();
    assert_eq!(asked(&mut web), "GET /a");
    web.run_to_ms(5);
    web.feed(&response("", "ok"));
    web.run_to_ms(14);
    assert_eq!(asked(&mut web), "", "10 ms after the response, not after the request");
    web.run_to_ms(15);
    assert_eq!(asked(&mut web), "POST /b?n=1");
    web.feed(b"HTTP/1.1 201 Created\r\nContent-Length: 0\r\n\r\n");
    web.run_to_ms(44);
    assert_eq!(asked(&mut web), "");
    web.run_to_ms(45);
    assert_eq!(asked(&mut web), "GET /a");
    web.feed(&response("", "ok"));
    web.run_to_ms(55);
    assert_eq!(asked(&mut web), "POST /b?n=3");
    web.feed(&response("", "ok"));
    assert_eq!((web.end, web.connects), (Some(FlowEnd::Completed), 1), "nothing rests behind the last");
    assert_eq!(
        (web.measured().messages_delivered, web.failures(Failure::Rejected)),
        (3, 1),
        "200 is not 201"
    );
}

#[test]
fn a_connection_closed_in_a_rest_is_made_again_for_the_next_request() {
    let mut web = web(ROUND);
    web.start_connected();
    web.sent();
    web.feed(&response("Connection: close\r\n", "ok"));
    assert_eq!(web.connects, 1, "and not before it is needed");
    web.run_to_ms(10);
    assert_eq!(web.connects, 2);
    web.run_to_ms(12);
    web.connected();
    assert_eq!(asked(&mut web), "POST /b?n=1");
    let before = web.delay(RESPONSE).1;
    web.feed(b"HTTP/1.1 201 Created\r\nContent-Length: 0\r\n\r\n");
    assert!(web.delay(RESPONSE).1 > before, "its delay counts from the end of the rest");
    assert_eq!(web.end, None);
}

#[test]
fn a_rest_is_over_when_the_load_ends() {
    let mut web = web(r#"{"pause": "1h"}"#);
    web.start_connected();
    web.sent();
    web.feed(&response("", "ok"));
    web.run_to_ms(10);
    web.stop();
    assert_eq!(web.end, Some(FlowEnd::Completed));
}

#[test]
fn a_login_rests_too() {
    let mut web = web(r#"{"before": [{"path": "/login", "pause": "20ms"}], "requests": 2}"#);
    web.start_connected();
    assert_eq!(asked(&mut web), "GET /login");
    web.feed(&response("", "ok"));
    web.run_to_ms(19);
    assert_eq!(asked(&mut web), "");
    web.run_to_ms(20);
    assert_eq!(asked(&mut web), "GET /");
    web.feed(&response("", "ok"));
    assert_eq!(asked(&mut web), "GET /", "the others do not");
}

#[test]
fn a_rest_that_is_drawn_lies_between_its_ends() {
    let mut web = web(r#"{"pause": "10ms", "pause_spread": "20ms"}"#);
    web.start_connected();
    let mut seen = std::collections::BTreeSet::new();
    for _ in 0..50 {
        web.sent();
        web.feed(&response("", "ok"));
        let from = web.now;
        while web.sent_text().is_empty() {
            web.run_to(Time(web.now.0 + 1_000_000));
        }
        seen.insert((web.now.0 - from.0) / 1_000_000);
    }
    assert!(seen.iter().all(|ms| (10..=30).contains(ms)) && seen.len() > 10, "{seen:?}");
}

#[test]
fn a_rest_waits_for_a_response() {
    for (json, why) in [
        (r#"{"pause": "1s", "interval": "1s"}"#, "pause: rests after the response, and `interval`"),
        (r#"{"pause_spread": "1s", "pipelining": 2}"#, "pause: rests after the response, and `pipelining`"),
        (r#"{"then": [{"pause": "1s"}], "interval": "1s"}"#, "then[0].pause: rests"),
        (r#"{"before": [{"pause": "1s"}], "interval": "1s"}"#, "before[0].pause: rests"),
        (r#"{"then": [{"path": "x y"}]}"#, "then[0].path"),
    ] {
        let said = params(json).check().expect_err(json).to_string();
        assert!(said.contains(why), "{said}");
    }
}
