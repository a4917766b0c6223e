//! Requests that HTTP allows, and none that it forbids.

use super::description::SCHEMES;
use super::*;
use crate::describe::{ModelKind, ModelParams};
use crate::target::Target;
use crate::testing::Bench;
use proptest::prelude::*;
use std::collections::BTreeMap;

fn sent(params: &Params) -> String {
    let target = Target { scheme: SCHEMES[0], host: "web".into(), port: 80, ipv6: false };
    let mut web = Bench::new(Arc::new(params.compile(&target).expect("fine")).device(0));
    web.start_connected();
    web.sent_text()
}

fn line(params: &Params) -> String {
    sent(params).lines().next().expect("a request line").to_owned()
}

#[test]
fn a_url_without_a_path_asks_for_the_root() {
    let asked = |path: &str| {
        let mut params = Params::default();
        params.set_path(path);
        line(&params)
    };
    // RFC 9112 section 3.2.1, RFC 3986 section 3.5
    assert_eq!(asked("?q=1"), "GET /?q=1 HTTP/1.1");
    assert_eq!(asked("#x"), "GET / HTTP/1.1");
    assert_eq!(asked("/a?b#x"), "GET /a?b HTTP/1.1");
    assert_eq!(asked("?a=/ü"), "GET /?a=/%C3%BC HTTP/1.1");
}

#[test]
fn what_is_no_request_target_is_refused() {
    let with =
        |method: &str, path: &str| Params { method: method.into(), path: path.into(), ..Params::default() };
    for (method, path, why) in [
        ("GET", "", "is empty"),
        ("GET", "v1/x", "does not begin with /"),
        ("GET", "?q=1", "does not begin with /"),
        ("GET", "{seq}/x", "does not begin with /"),
        ("GET", "*", "OPTIONS alone"),
        ("OPTIONS", "*x", "does not begin with /"),
        ("GET", "/a b", "a space"),
        ("GET", "/a\tb", "a space or a control"),
        ("GET", "/a\r\nX: y", "a control"),
        ("GET", "/a\0", "a control"),
        ("GET", "/a#b", "not sent"),
    ] {
        let problem = with(method, path).check().expect_err(path);
        assert!(problem.key == "path" && problem.what.contains(why), "{path}: {problem}");
    }
    assert_eq!(line(&with("OPTIONS", "*")), "OPTIONS * HTTP/1.1");
    assert_eq!(
        line(&with("GET", "http://other/x")),
        "GET http://other/x HTTP/1.1",
        "to a proxy, section 3.2.2"
    );
}

#[test]
fn fields_that_would_be_read_as_others_are_refused() {
    let with = |fields: &[(&str, &str)]| {
        let headers = fields.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        Params { headers, ..Params::default() }
    };
    for (fields, why) in [
        (&[("", "x")][..], "no field name"),
        (&[("X Y", "x")], "no field name"),
        (&[("X:", "x")], "no field name"),
        (&[("X\r\nY", "x")], "no field name"),
        (&[("X", "a\r\nY: b")], "control character"),
        (&[("X", "a\0")], "control character"),
        (&[("Host", "a"), ("host", "b")], "twice"),
        (&[("Host", "a b")], "no host"),
        (&[("Host", "a/b")], "no host"),
        (&[("content-LENGTH", "3")], "by the model itself"),
        (&[("Transfer-Encoding", "chunked")], "by the model itself"),
    ] {
        let problem = with(fields).check().expect_err(why);
        assert!(problem.what.contains(why), "{fields:?}: {problem}");
    }
    let host = sent(&with(&[("host", "other:{device}")]));
    assert!(host.contains("\r\nhost: other:0\r\n") && !host.contains("Host: web"), "{host}");
    let trace = Params { method: "TRACE".into(), body: Some("x".into()), ..Params::default() };
    assert_eq!(trace.check().expect_err("RFC 9110 section 9.3.8").key, "body");
}

#[test]
fn the_credentials_of_a_url_are_basic_ones() {
    // RFC 7617 sections 2 and 2.1
    let basic = |name: &str, password: Option<&str>| {
        let mut params = Params::default();
        params.set_credentials(name, password).expect("fine");
        params.check().expect("fine");
        sent(&params).lines().find_map(|line| line.strip_prefix("Authorization: Basic ").map(str::to_owned))
    };
    assert_eq!(basic("Aladdin", Some("open sesame")).as_deref(), Some("QWxhZGRpbjpvcGVuIHNlc2FtZQ=="));
    assert_eq!(basic("test", Some("123£")).as_deref(), Some("dGVzdDoxMjPCow=="));
    assert_eq!(basic("t{seq}", None).as_deref(), Some("dHtzZXF9Og=="));
    let mut params = Params::default();
    assert!(params.set_credentials("a:b", None).is_err());
    params.headers = BTreeMap::from([("authorization".to_owned(), "x".to_owned())]);
    assert!(params.set_credentials("a", None).is_err());
}

proptest! {
    /// Whatever a profile says, a request that passes the checks has the lines that it is to have and no others.
    #[test]
    fn a_request_has_no_line_that_is_not_its_own(
        method in "[A-O*! ]{0,4}", path in "[/*?#a{}\r\n\0 é%]{0,6}", name in "[X: \r\n]{0,3}", value in "[a\t\r\n\0:{}é]{0,5}",
    ) {
        let headers = BTreeMap::from([(name, value)]);
        let params = Params { method, path, headers, ..Params::default() };
        if params.check().is_ok() {
            let text = sent(&params);
            let lines: Vec<&str> = text.split("\r\n").collect();
            prop_assert_eq!(lines.len(), 6, "{:?}", text);
            prop_assert!(!lines.iter().any(|line| line.contains(['\r', '\n', '\0'])), "{:?}", text);
            prop_assert_eq!(lines[0].split(' ').count(), 3);
            prop_assert!(lines[0].is_ascii());
        }
    }
}

#[test]
fn fields_for_the_next_hop_are_named_in_connection() {
    let with = |keep_alive: bool, names: &[&str]| {
        let headers = names.iter().map(|name| ((*name).to_owned(), "x".to_owned())).collect();
        let text = sent(&Params { keep_alive, headers, ..Params::default() });
        text.lines().find_map(|line| line.strip_prefix("Connection: ").map(str::to_owned))
    };
    assert_eq!(with(true, &["Accept"]), None);
    assert_eq!(with(true, &["te"]).as_deref(), Some("TE"));
    assert_eq!(with(false, &["UPGRADE", "Te"]).as_deref(), Some("Upgrade, TE, close"));
    assert_eq!(with(true, &["HTTP2-Settings", "Upgrade"]).as_deref(), Some("Upgrade, HTTP2-Settings"));
}
