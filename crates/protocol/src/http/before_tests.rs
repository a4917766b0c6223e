//! Requests at the start of a flow, and values that are taken from responses.

use super::description::SCHEMES;
use super::*;
use crate::data::Data;
use crate::describe::{ModelKind, ModelParams};
use crate::model::FlowEnd;
use crate::target::Target;
use crate::testing::Bench;

pub(super) fn params(json: &str) -> Params {
    let mut params: Params = serde_json::from_str(json).expect(json);
    params.set_data(&Data::default());
    params
}

pub(super) fn web(json: &str) -> Bench<Device> {
    let target = Target { scheme: SCHEMES[0], host: "web".into(), port: 80, ipv6: false };
    Bench::new(Arc::new(params(json).compile(&target).expect(json)).device(0))
}

const LOGIN: &str = r#"{"before": [{"method": "POST", "path": "/login", "body": "{{}}", "capture": {"token": {"json": "/token"},
    "place": {"header": "Location"}}}], "path": "{response.place}", "headers": {"Authorization": "Bearer {response.token}"},
    "requests": 2, "interval": "10ms"}"#;

pub(super) fn response(head: &str, body: &str) -> Vec<u8> {
    format!("HTTP/1.1 200 OK\r\n{head}Content-Length: {}\r\n\r\n{body}", body.len()).into_bytes()
}

#[test]
fn a_login_comes_first_and_its_values_are_sent() {
    let mut web = web(LOGIN);
    web.start_connected();
    assert!(web.sent_text().starts_with("POST /login HTTP/1.1\r\n"));
    web.run_to_ms(50);
    assert_eq!(web.sent_text(), "", "nothing is sent before the login is answered");
    web.feed(&response("Location: /a b\r\n", r#"{"token": "x.y"}"#));
    let sent = web.sent_text();
    assert!(
        sent.starts_with("GET /a%20b HTTP/1.1\r\n") && sent.contains("\r\nAuthorization: Bearer x.y\r\n"),
        "{sent}"
    );
    web.feed(&response("", "ok"));
    web.run_to_ms(59);
    assert_eq!((web.sent_text(), web.end), (String::new(), None), "the pace begins behind the login");
    web.run_to_ms(60);
    assert!(web.sent_text().starts_with("GET /a%20b "));
    web.feed(&response("", "ok"));
    assert_eq!((web.end, web.measured().messages_delivered), (Some(FlowEnd::Completed), 3));
}

#[test]
fn a_login_in_chunks_is_read_without_their_sizes() {
    let mut web = web(LOGIN);
    web.start_connected();
    web.sent();
    web.feed(b"HTTP/1.1 200 OK\r\nLocation: /x\r\nTransfer-Encoding: chunked\r\n\r\n6\r\n{\"toke\r\n");
    web.feed(b"a\r\nn\": \"abc\"}\r\n0\r\n\r\n");
    assert!(web.sent_text().contains("Bearer abc\r\n"));
}

#[test]
fn a_flow_ends_where_its_login_fails() {
    for (answer, why) in [
        (&b"HTTP/1.1 403 No\r\nContent-Length: 0\r\n\r\n"[..], "status 403"),
        (&response("Location: /x\r\n", "{}"), "no value for the capture token"),
        (&response("", r#"{"token": "x"}"#), "no value for the capture place"),
    ] {
        let mut web = web(LOGIN);
        web.start_connected();
        web.sent();
        web.feed(answer);
        assert_eq!((web.end, web.failures(Failure::Rejected)), (Some(FlowEnd::Failed), 1), "{why}");
        assert!(web.examples[0].contains(why), "{:?}", web.examples);
        assert_eq!(web.sent_text(), "", "nothing is sent behind it");
    }
}

#[test]
fn each_response_may_give_the_value_for_the_next_request() {
    let mut web = web(
        r#"{"path": "/?after={response.next}", "capture": {"next": {"regex": "next=([0-9]+)"}}, "requests": 3}"#,
    );
    web.start_connected();
    assert!(web.sent_text().starts_with("GET /?after= HTTP"));
    web.feed(&response("", "next=7"));
    assert!(web.sent_text().starts_with("GET /?after=7 HTTP"));
    web.feed(&response("", "nothing"));
    assert_eq!(web.failures(Failure::Rejected), 1, "but the flow goes on");
    assert!(web.sent_text().starts_with("GET /?after= HTTP"));
}

#[test]
fn what_cannot_be_is_refused() {
    for (json, why) in [
        (r#"{"path": "/{response.token}"}"#, "path: {response.token}: no capture is called so"),
        (r#"{"pipelining": 2, "capture": {"t": {"json": "/t"}}}"#, "pipelining: sends requests before"),
        (r#"{"before": [{"path": "x y"}]}"#, "before[0].path"),
        (r#"{"before": [{}, {"capture": {"t": {"json": "t"}}}]}"#, "before[1].capture.t.json"),
    ] {
        let said = params(json).check().expect_err(json).to_string();
        assert!(said.contains(why), "{said}");
    }
}
