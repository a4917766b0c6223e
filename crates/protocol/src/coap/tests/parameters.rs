//! What a profile says.

use super::*;
use crate::unit::Interval;

fn problem(json: &str) -> String {
    let params: Params = serde_json::from_str(json).expect(json);
    params.check().expect_err(json).to_string()
}

fn first(json: &str, host: &str) -> String {
    let params: Params = serde_json::from_str(json).expect(json);
    let target = Target { scheme: DESCRIPTION.schemes[0], host: host.into(), port: 5683, ipv6: false };
    let mut ladder = Ladder::of("{}");
    ladder.bench.model = Arc::new(params.compile(&target).expect(json)).device(0);
    ladder.bench.start();
    ladder.settle();
    ladder.next().expect("a request")
}

#[test]
fn wrong_parameters_are_explained() {
    for (json, start) in [
        (r#"{"path": "t"}"#, "path: \"t\" does not begin with /"),
        (r#"{"path": "/a b"}"#, "path"),
        (r#"{"path": "/a#b"}"#, "path"),
        (r#"{"path": "/a/../b"}"#, "path: has . or .."),
        (r#"{"path": "/%2e%2E/a"}"#, "path: has . or .."),
        (r#"{"path": "/%ff"}"#, "path: \"%ff\" stands for no text"),
        (r#"{"path": "/%4"}"#, "path: \"%4\" has a %"),
        (r#"{"path": "/%zz"}"#, "path"),
        (r#"{"path": "/{colour}"}"#, "path"),
        (r#"{"path": "/{random:256}"}"#, "path: \"{random:256}\" may be 256 bytes"),
        (r#"{"payload": "x"}"#, "payload: is for POST and PUT"),
        (r#"{"size": "1B"}"#, "size: is for POST and PUT"),
        (r#"{"content_format": 0, "method": "DELETE"}"#, "content_format"),
        (r#"{"method": "PUT", "payload": "{x}"}"#, "payload"),
        (r#"{"method": "PUT", "size": "16777217B"}"#, "size: may be 16777217B; use at most 16MiB"),
        (r#"{"block_size": "8B"}"#, "block_size"),
        (r#"{"block_size": "24B"}"#, "block_size"),
        (r#"{"block_size": "2KiB"}"#, "block_size"),
        (r#"{"observe": true, "method": "PUT"}"#, "observe: is for GET only"),
        (r#"{"observe": true, "interval": "1s"}"#, "interval: has no meaning"),
        (r#"{"observe": true, "rate": "1/s"}"#, "rate: has no meaning"),
        (r#"{"interval": "1s", "rate": "1/s"}"#, "interval: stands beside rate"),
        (r#"{"rate": "0/s"}"#, "rate"),
        (r#"{"rate": "11M/s"}"#, "rate"),
        (r#"{"nstart": 0}"#, "nstart"),
        (r#"{"nstart": 1025}"#, "nstart"),
        (r#"{"ack_timeout": "0s"}"#, "ack_timeout"),
        (r#"{"timeout": "0s"}"#, "timeout"),
        (r#"{"ack_random_factor": 0.99}"#, "ack_random_factor"),
        (r#"{"ack_random_factor": 10.01}"#, "ack_random_factor"),
        (r#"{"max_retransmit": 21}"#, "max_retransmit"),
        (r#"{"max_response": "0B"}"#, "max_response"),
        (r#"{"max_response": "1025MiB"}"#, "max_response"),
        (r#"{"expect": []}"#, "expect"),
        (r#"{"expect": ["2.xx", "200"]}"#, "expect[1]"),
        (r#"{"expect": ["2.32"]}"#, "expect[0]"),
        (r#"{"expect": ["2.5"]}"#, "expect[0]"),
        (r#"{"expect": ["3.00"]}"#, "expect[0]"),
        (r#"{"expect": ["2.+5"]}"#, "expect[0]"),
    ] {
        let problem = problem(json);
        assert!(problem.starts_with(start), "{json}: {problem}");
    }
    let segment = "{random:255}";
    config(&format!(
        r#"{{"path": "/{segment}/{segment}?{segment}", "block_size": "16B", "method": "PUT", "size": "16MiB", "nstart": 1024,
            "ack_random_factor": 10, "max_retransmit": 20, "max_response": "1GiB", "rate": "10M/s", "expect": ["2.31", "5.xx"]}}"#
    ));
}

/// RFC 7252 section 6.4.
#[test]
fn a_url_becomes_options() {
    for (path, host, shown) in [
        ("/", "192.0.2.1", "/"),
        ("/?a=1&b", "192.0.2.1", "/?a=1&b"),
        ("/a//b/", "[2001:db8::1]", "/a//b/"),
        ("/%41%2fb%7b%25?%26=%3d", "192.0.2.1", "/A/b{%?&=="),
        ("/sensors/{device}?n={seq}", "Example.org", "/sensors/0?n=0 host=example.org"),
    ] {
        let params = Params { path: path.into(), ..Params::default() };
        let json = serde_json::to_string(&params).expect("JSON");
        assert_eq!(first(&json, host), format!("CON 0 GET {shown}"));
    }
    let json =
        r#"{"method": "POST", "path": "/p", "payload": "{{{seq}}}", "content_format": 50, "accept": 60}"#;
    assert_eq!(first(json, "192.0.2.1"), "CON 0 POST /p 12=50 17=60 \"{0}\"");
    assert_eq!(first(r#"{"method": "PUT", "content_format": 0}"#, "192.0.2.1"), "CON 0 PUT /");
    assert_eq!(
        first(r#"{"method": "PUT", "payload": "abc", "size": "2B"}"#, "192.0.2.1"),
        "CON 0 PUT / \"ab\""
    );
    assert_eq!(first(r#"{"method": "DELETE", "path": "/d"}"#, "192.0.2.1"), "CON 0 DELETE /d");
}

/// Section 4.8.2.
#[test]
fn the_defaults_are_those_of_the_rfc() {
    let mut config = config("{}");
    let config = Arc::get_mut(&mut config).expect("the only one");
    assert_eq!(
        (config.ack_timeout, config.max_retransmit, config.nstart),
        ((2_000_000_000, 1_000_000_000), 4, 1)
    );
    assert_eq!(config.timeout, Interval::secs(93).0);
    assert_eq!(super::config(r#"{"confirmable": false}"#).timeout, Interval::secs(2).0);
    assert_eq!(super::config(r#"{"max_retransmit": 0, "ack_timeout": "1s"}"#).timeout, Interval::ms(1500).0);
}

#[test]
fn a_rate_or_an_interval_paces_it() {
    let paced = |json: &str| {
        let params: Params = serde_json::from_str(json).expect(json);
        params.send_rate().map(|paced| (paced.key, paced.per_second))
    };
    assert_eq!(paced("{}"), Some(("interval", 1.0)));
    assert_eq!(paced(r#"{"rate": "50/s"}"#), Some(("rate", 50.0)));
    assert_eq!(paced(r#"{"observe": true}"#), None);
    let mut ladder = Ladder::start(r#"{"rate": "50/s", "nstart": 1000, "path": "/t"}"#);
    ladder.until_ms(999);
    assert_eq!(ladder.bench.measured().messages_sent, 50);
}
