use super::description::{RETRIED, SCHEMES};
use super::wire::HEAD_MAX;
use super::*;
use crate::describe::{ModelKind, ModelParams};
use crate::meter::{Phase, Window};
use crate::model::{FlowEnd, Link};
use crate::target::Scheme;
use crate::target::Target;
use crate::testing::{Bench, assault};
use proptest::prelude::*;

const OK: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello";

fn config(json: &str) -> Arc<Config> {
    let params: Params = serde_json::from_str(json).expect(json);
    let target = Target { scheme: SCHEMES[0], host: "web".into(), port: 80, ipv6: false };
    Arc::new(params.compile(&target).expect(json))
}

fn bench(json: &str) -> Bench<Device> {
    Bench::new(config(json).device(0))
}

fn problem(json: &str) -> String {
    let params: Params = serde_json::from_str(json).expect(json);
    params.check().expect_err(json).to_string()
}

#[test]
fn a_device_is_small() {
    let size = std::mem::size_of::<Device>();
    assert!(size <= 128, "{size}");
}

#[test]
fn a_request_looks_as_rfc_9112_has_it() {
    let mut web = bench("{}");
    web.start_connected();
    let agent = concat!("netdyno/", env!("CARGO_PKG_VERSION"));
    assert_eq!(web.sent_text(), format!("GET / HTTP/1.1\r\nHost: web\r\nUser-Agent: {agent}\r\n\r\n"));
    let params = Params { method: "PUT".into(), keep_alive: false, ..Params::default() };
    let target =
        Target { scheme: Scheme::tls("https", Some(443)), host: "[::1]".into(), port: 8443, ipv6: true };
    let mut web = Bench::new(Arc::new(params.compile(&target).expect("fine")).device(0));
    web.start_connected();
    assert_eq!(
        web.sent_text(),
        format!(
            "PUT / HTTP/1.1\r\nHost: [::1]:8443\r\nUser-Agent: {agent}\r\nConnection: close\r\n\
             Content-Length: 0\r\n\r\n"
        )
    );
}

#[test]
fn templates_are_filled_and_the_body_is_measured() {
    let mut web = bench(
        r#"{"method": "POST", "path": "/{seq}", "headers": {"user-agent": "x{device}", "host": "h"},
            "body": "n={seq}", "requests": 11}"#,
    );
    web.start_connected();
    for _ in 0..10 {
        web.feed(OK);
    }
    let text = web.sent_text();
    let line = |seq: u32, len: u32| {
        format!("POST /{seq} HTTP/1.1\r\nhost: h\r\nuser-agent: x0\r\nContent-Length:{len:10}\r\n\r\nn={seq}")
    };
    assert!(text.starts_with(&line(0, 3)), "{text}");
    assert!(text.ends_with(&line(10, 4)), "{text}");
    let mut sized = bench(r#"{"method": "POST", "body": "abc{seq}", "size": "6B"}"#);
    sized.start_connected();
    assert!(sized.sent_text().ends_with("Content-Length: 6\r\n\r\nabc0  "));
}

#[test]
fn one_request_follows_the_other_and_the_flow_ends_well() {
    let mut web = bench(r#"{"requests": 2}"#);
    web.start();
    web.run_to_ms(3);
    web.connected();
    web.run_to_ms(10);
    web.feed(&OK[..20]);
    web.run_to_ms(12);
    web.feed(&OK[20..]);
    assert_eq!(web.end, None);
    web.feed(OK);
    assert_eq!((web.end, web.link), (Some(FlowEnd::Completed), Link::Close));
    let counts = web.measured();
    assert_eq!((counts.messages_intended, counts.messages_sent, counts.messages_delivered), (2, 2, 2));
    assert_eq!(counts.bytes_received, 2 * OK.len() as u64);
    assert_eq!(counts.bytes_sent as usize, web.sent().len());
    assert_eq!((web.delay(CONNECT), web.delay(FIRST_BYTE)), ((1, 3), (2, 7)));
    assert_eq!(web.delay(RESPONSE), (2, 9));
}

#[test]
fn a_slow_server_shows_as_delay_from_the_intended_time() {
    let mut web = bench(r#"{"interval": "10ms", "requests": 3}"#);
    web.start_connected();
    web.run_to_ms(100);
    assert_eq!(web.measured().messages_sent, 1, "one at a time");
    web.feed(OK);
    web.feed(OK);
    web.feed(OK);
    // due at 0, 10 and 20 ms, all answered at 100
    assert_eq!(web.delay(RESPONSE), (3, 100));
    assert_eq!(web.tally.delay_sum, 270_000_000);
    assert_eq!(web.end, Some(FlowEnd::Completed));
}

#[test]
fn requests_are_pipelined_up_to_the_depth() {
    let mut web = bench(r#"{"pipelining": 3, "requests": 5}"#);
    web.start_connected();
    assert_eq!(web.sent_text().matches("GET").count(), 3);
    web.feed(&[OK, OK].concat());
    assert_eq!(web.sent_text().matches("GET").count(), 2);
    web.feed(&[OK, OK, OK].concat());
    assert_eq!(web.end, Some(FlowEnd::Completed));
}

#[test]
fn what_was_pipelined_behind_a_close_is_asked_again() {
    let mut web = bench(r#"{"pipelining": 3, "requests": 3, "path": "/{seq}"}"#);
    web.start_connected();
    web.sent();
    web.feed(b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 0\r\n\r\n");
    assert_eq!(web.link, Link::Close);
    web.run_to_ms(0);
    assert_eq!((web.link, web.connects), (Link::Connect, 2));
    web.connected();
    let again = web.sent_text();
    assert!(again.starts_with("GET /1 ") && again.contains("GET /2 "), "{again}");
    web.feed(&[OK, OK].concat());
    assert_eq!(web.end, Some(FlowEnd::Completed));
    assert_eq!(web.measured().messages_sent, 3, "each counts once");
    assert_eq!(closes(&web), (0, 2), "two were sent again, and the server said that it closes");
}

#[test]
fn without_keep_alive_each_request_has_its_connection() {
    let mut web = bench(r#"{"keep_alive": false, "requests": 3}"#);
    web.start_connected();
    for _ in 0..3 {
        web.feed(OK);
        web.run_to(web.now);
        if web.link == Link::Connect {
            web.connected();
        }
    }
    assert_eq!((web.connects, web.end), (3, Some(FlowEnd::Completed)));
    assert_eq!(web.measured().messages_delivered, 3);
}

#[test]
fn a_body_may_end_with_the_connection() {
    let mut web = bench(r#"{"requests": 2}"#);
    web.start_connected();
    web.feed(b"HTTP/1.0 200 OK\r\n\r\nsome");
    web.feed(b"thing");
    web.closed(Failure::Closed);
    assert!(web.excused && web.end.is_none());
    assert_eq!((web.link, web.connects), (Link::Connect, 2));
    web.connected();
    web.feed(b"HTTP/1.0 200 OK\r\n\r\n");
    web.closed(Failure::Closed);
    assert_eq!(web.end, Some(FlowEnd::Completed));
    assert_eq!(web.measured().messages_delivered, 2);
}

#[test]
fn an_idle_connection_may_be_closed() {
    let mut web = bench(r#"{"interval": "1s", "requests": 2}"#);
    web.start_connected();
    web.feed(OK);
    web.closed(Failure::Closed);
    assert!(web.excused && web.end.is_none());
    assert_eq!(web.connects, 1, "connects when the next is due");
    web.run_to_ms(1000);
    assert_eq!(web.connects, 2);
    web.connected();
    web.feed(OK);
    assert_eq!(web.end, Some(FlowEnd::Completed));
}

/// Idle closes, and requests sent again.
fn closes(web: &Bench<Device>) -> (u64, u64) {
    (web.own(IDLE_CLOSES), web.own(RETRIED))
}

const TIMED_OUT: &[u8] = b"HTTP/1.1 408 Request Timeout\r\nConnection: close\r\nContent-Length: 0\r\n\r\n";

#[test]
fn with_nothing_outstanding_a_fin_a_reset_and_a_408_are_an_idle_close() {
    for how in ["fin", "rst", "408"] {
        let mut web = bench(r#"{"interval": "1s", "requests": 2, "method": "POST"}"#);
        web.start_connected();
        web.feed(OK);
        web.run_to_ms(500);
        match how {
            "fin" => web.closed(Failure::Closed),
            "rst" => web.closed(Failure::Reset),
            _ => {
                web.feed(&TIMED_OUT[..30]);
                assert_eq!(web.link, Link::Connect, "it is not whole");
                web.feed(&TIMED_OUT[30..]);
                assert_eq!(web.link, Link::Close);
            }
        }
        assert!(web.excused || how == "408", "{how}");
        assert_eq!((web.end, web.connects), (None, 1), "{how}: it connects when the next is due");
        web.run_to_ms(1000);
        assert_eq!(web.connects, 2, "{how}");
        web.connected();
        web.feed(OK);
        assert_eq!((web.end, web.measured().messages_delivered), (Some(FlowEnd::Completed), 2), "{how}");
        assert_eq!((closes(&web), web.tally.failed), ((1, 0), 0), "{how}");
    }
}

#[test]
fn what_meets_an_idle_close_is_sent_once_more_if_that_is_allowed() {
    for (method, how) in [("GET", "fin"), ("PUT", "rst"), ("DELETE", "408"), ("POST", "408")] {
        let mut web = bench(&format!(r#"{{"interval": "1s", "requests": 2, "method": "{method}"}}"#));
        web.start_connected();
        web.feed(OK);
        web.run_to_ms(1000);
        let sent = web.sent_text();
        match how {
            "408" => web.feed(TIMED_OUT),
            "fin" => web.closed(Failure::Closed),
            _ => web.closed(Failure::Reset),
        }
        web.run_to_ms(1000);
        assert_eq!((web.link, web.connects, web.end), (Link::Connect, 2, None), "{method} {how}");
        web.run_to_ms(1020);
        web.connected();
        let again = web.sent_text();
        assert_eq!(format!("{again}{again}"), sent, "{method}");
        web.run_to_ms(1030);
        web.feed(OK);
        let counts = web.measured();
        assert_eq!((counts.messages_sent, counts.messages_delivered), (2, 2), "{method} {how}");
        assert_eq!(counts.bytes_sent as usize, sent.len() + again.len(), "what was sent twice left twice");
        assert_eq!(web.delay(RESPONSE), (2, 30), "from when it was first due");
        assert_eq!((closes(&web), web.tally.failed, web.end), ((1, 1), 0, Some(FlowEnd::Completed)));
    }
}

#[test]
fn what_may_not_be_sent_again_is_a_failure_with_its_cause() {
    let mut post = bench(r#"{"interval": "1s", "method": "POST"}"#);
    post.start_connected();
    post.feed(OK);
    post.run_to_ms(1000);
    post.closed(Failure::Reset);
    assert_eq!((post.excused, post.end, closes(&post)), (false, Some(FlowEnd::Failed), (0, 0)));
    assert!(post.examples[0].contains("a POST was on its way"), "{:?}", post.examples);
    // at most once
    let mut twice = bench(r#"{"pipelining": 2, "requests": 3}"#);
    twice.start_connected();
    twice.feed(OK);
    twice.closed(Failure::Closed);
    twice.connected();
    twice.feed(OK);
    twice.closed(Failure::Closed);
    assert_eq!((twice.excused, twice.end, closes(&twice)), (false, Some(FlowEnd::Failed), (1, 2)));
    assert!(twice.examples[0].contains("twice"), "{:?}", twice.examples);
    // the first request of a connection does not meet an idle close, and one that was answered in part is not sent again
    for part in [0, 1] {
        let mut web = bench(r#"{"pipelining": 2}"#);
        web.start_connected();
        web.feed(&[&OK[..part * OK.len()], &OK[..part * 10]].concat());
        web.closed(Failure::Closed);
        assert_eq!((web.excused, web.end, closes(&web)), (false, Some(FlowEnd::Failed), (0, 0)));
    }
    let mut first = bench("{}");
    first.start_connected();
    first.feed(TIMED_OUT);
    assert_eq!(
        (first.failures(Failure::Rejected), first.examples[0].as_str()),
        (1, "status 408 Request Timeout")
    );
}

#[test]
fn what_was_pipelined_on_a_connection_that_was_lost_is_not_pipelined_at_once() {
    let mut web = bench(r#"{"pipelining": 3, "requests": 5, "path": "/{seq}"}"#);
    web.start_connected();
    web.feed(OK);
    web.sent();
    web.closed(Failure::Reset);
    web.connected();
    // RFC 9112 §9.3.2
    let first = web.sent_text();
    assert!(first.starts_with("GET /1 ") && first.matches("GET").count() == 1, "{first}");
    web.feed(OK);
    let rest = web.sent_text();
    assert!(rest.starts_with("GET /2 ") && rest.matches("GET").count() == 3, "{rest}");
    web.feed(&[OK, OK, OK].concat());
    assert_eq!((web.end, closes(&web)), (Some(FlowEnd::Completed), (1, 3)));
}

#[test]
fn no_request_is_sent_to_a_server_that_has_closed() {
    let mut web = bench(r#"{"requests": 2, "method": "POST"}"#);
    web.start_connected();
    web.sent();
    // the FIN was there with the response, and nobody has read it yet
    web.ended = true;
    web.feed(OK);
    assert_eq!((web.sent().len(), web.link, web.connects), (0, Link::Connect, 2));
    web.connected();
    web.feed(OK);
    assert_eq!((web.end, closes(&web)), (Some(FlowEnd::Completed), (1, 0)));
}

#[test]
fn a_connection_is_not_used_longer_than_the_server_says_that_it_keeps_it() {
    // a margin of a quarter, and of a second at most
    for (timeout, interval, connects) in [(1, 700, 1), (1, 800, 2), (8, 6900, 1), (8, 7100, 2), (0, 1, 2)] {
        let mut web = bench(&format!(r#"{{"interval": "{interval}ms", "requests": 2, "method": "POST"}}"#));
        web.start_connected();
        web.feed(
            format!("HTTP/1.1 200 OK\r\nKeep-Alive: timeout={timeout}\r\nContent-Length: 0\r\n\r\n")
                .as_bytes(),
        );
        web.run_to_ms(interval);
        assert_eq!(web.connects, connects, "{timeout} s, used after {interval} ms");
        assert_eq!(closes(&web), (0, 0), "we have closed it");
    }
}

#[test]
fn empty_lines_between_responses_are_nothing() {
    let mut web = bench(r#"{"interval": "1s", "requests": 2}"#);
    web.start_connected();
    web.feed(&[OK, b"\r\n"].concat());
    web.run_to_ms(1000);
    web.feed(&[b"\r\n", OK, b"\r\n\r\n"].concat());
    assert_eq!((web.end, web.measured().messages_delivered), (Some(FlowEnd::Completed), 2));
    assert_eq!(web.delay(FIRST_BYTE).0, 2);
}

#[test]
fn a_connection_lost_in_a_response_fails_the_flow() {
    for part in [0, 10, OK.len() - 1] {
        let mut web = bench("{}");
        web.start_connected();
        web.feed(&OK[..part]);
        web.closed(Failure::Closed);
        assert!(!web.excused);
        assert_eq!(web.end, Some(FlowEnd::Failed));
        web.run_to_ms(60_000);
        assert_eq!(web.connects, 1, "a new flow is up to the load");
    }
}

/// The only cause of failures of a kind, and what they looked like.
fn cause(web: &Bench<Device>, kind: Failure) -> (String, String) {
    let causes = web.tally_of(Phase::Measure).causes().expect("told");
    let told: Vec<_> = causes.of(kind).map(|(detail, n)| format!("{detail} × {n}")).collect();
    (told.join(", "), web.examples.join("; "))
}

#[test]
fn a_servers_words_are_kept_however_they_come() {
    let ways = [
        ("Content-Length: 16\r\n\r\n<p>no such</p>\r\n", false),
        ("Transfer-Encoding: chunked\r\n\r\n10\r\n<p>no such</p>\r\n\r\n0\r\n\r\n", false),
        ("\r\n<p>no such</p>", true),
    ];
    for (rest, closes) in ways {
        for size in [1, 1000] {
            let mut web = bench(r#"{"requests": 1}"#);
            web.start_connected();
            let text = format!("HTTP/1.1 404 Not Found\r\n{rest}");
            text.as_bytes().chunks(size).for_each(|part| web.feed(part));
            if closes {
                web.closed(Failure::Closed);
            }
            let (told, shown) = cause(&web, Failure::Rejected);
            assert_eq!(told, "404 × 1", "{rest}");
            assert!(shown.starts_with("status 404 Not Found: ") && shown.contains("no such"), "{shown}");
            assert!(!shown.contains("<p>"), "{shown}");
        }
    }
}

#[test]
fn a_port_with_another_protocol_is_named() {
    let mut web = bench(r#"{"requests": 1}"#);
    web.start_connected();
    web.feed(b"\x15\x03\x01\x00\x02\x02\x46");
    let (told, shown) = cause(&web, Failure::Protocol);
    assert_eq!((told.as_str(), shown.as_str()), ("TLS on this port × 1", "no HTTP: TLS on this port"));
    let mut web = bench(r#"{"requests": 1}"#);
    web.start_connected();
    let words = "Client sent an HTTP request to an HTTPS server.\n";
    web.feed(format!("HTTP/1.0 400 Bad Request\r\n\r\n{words}").as_bytes());
    web.closed(Failure::Closed);
    assert_eq!(cause(&web, Failure::Rejected).0, "TLS on this port × 1");
}

#[test]
fn statuses_that_are_not_expected_are_rejected_and_the_flow_goes_on() {
    let mut web = bench(r#"{"requests": 3, "expect": ["200", "3xx"]}"#);
    web.start_connected();
    for status in [404, 302, 201] {
        web.feed(format!("HTTP/1.1 {status} -\r\nContent-Length: 0\r\n\r\n").as_bytes());
    }
    assert_eq!((web.measured().messages_delivered, web.failures(Failure::Rejected)), (1, 2));
    assert_eq!(web.examples, ["status 404 -", "status 201 -"]);
    let causes = web.tally_of(Phase::Measure).causes().expect("told");
    let told: Vec<_> = causes.of(Failure::Rejected).map(|(detail, n)| (detail.to_string(), n)).collect();
    assert_eq!(told, [("404".to_owned(), 1), ("201".to_owned(), 1)]);
    assert_eq!(web.end, Some(FlowEnd::Completed));
}

#[test]
fn interim_responses_are_skipped_but_not_a_switch() {
    let mut web = bench(r#"{"requests": 1}"#);
    web.start_connected();
    web.feed(b"HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n");
    assert_eq!(web.measured().messages_delivered, 0);
    web.feed(OK);
    assert_eq!((web.measured().messages_delivered, web.end), (1, Some(FlowEnd::Completed)));
    let mut web = bench("{}");
    web.start_connected();
    web.feed(b"HTTP/1.1 101 Switching Protocols\r\n\r\n");
    assert_eq!((web.failures(Failure::Protocol), web.end), (1, Some(FlowEnd::Failed)));
}

#[test]
fn malformed_answers_fail_the_flow_and_the_next_one_runs() {
    let long = format!("HTTP/1.1 200 {}", "x".repeat(HEAD_MAX));
    for bad in ["SSH-2.0\r\n", "HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\n", &long] {
        let mut web = bench("{}");
        web.start_connected();
        web.feed(bad.as_bytes());
        assert_eq!(
            (web.failures(Failure::Protocol), web.end, web.link),
            (1, Some(FlowEnd::Failed), Link::Close)
        );
        web.start_connected();
        web.feed(OK);
        assert_eq!(web.measured().messages_delivered, 1);
    }
    let mut web = bench(r#"{"interval": "1s"}"#);
    web.start_connected();
    web.feed(&[OK, OK].concat());
    assert_eq!(web.examples, ["a response without a request"]);
}

#[test]
fn the_longest_head_is_what_the_profile_says() {
    let head = |len: usize| {
        let rest = "\r\nContent-Length: 0\r\n\r\n".len() + "HTTP/1.1 200 ".len();
        format!("HTTP/1.1 200 {}\r\nContent-Length: 0\r\n\r\n", "x".repeat(len - rest))
    };
    for (json, limit) in
        [("{}", HEAD_MAX), (r#"{"head_limit": "1KiB"}"#, 1024), (r#"{"head_limit": "512KiB"}"#, 524_288)]
    {
        let mut web = bench(json);
        web.start_connected();
        web.feed(head(limit).as_bytes());
        assert_eq!((web.measured().messages_delivered, web.end), (1, None), "{json}");
        web.feed(head(limit + 1).as_bytes());
        assert_eq!((web.failures(Failure::Protocol), web.end), (1, Some(FlowEnd::Failed)), "{json}");
        assert_eq!(web.examples, [format!("response head longer than {limit} bytes: see head_limit")]);
    }
    assert!(problem(r#"{"head_limit": "1023B"}"#).contains("1KiB to 512KiB"));
    assert!(problem(r#"{"head_limit": "513KiB"}"#).contains("1KiB to 512KiB"));
}

#[test]
fn no_answer_in_time_fails_the_flow() {
    let mut web = bench(r#"{"timeout": "2s"}"#);
    web.start();
    web.run_to_ms(1999);
    assert_eq!(web.end, None);
    web.run_to_ms(2000);
    assert_eq!((web.end, web.failures(Failure::Timeout)), (Some(FlowEnd::Failed), 1));
    web.now = Time(10_000_000_000);
    web.start_connected();
    web.run_to_ms(11_000);
    web.feed(OK);
    web.run_to_ms(12_999);
    assert_eq!(web.end, None, "the second request left at 11 s");
    web.run_to_ms(13_000);
    assert_eq!((web.end, web.failures(Failure::Timeout)), (Some(FlowEnd::Failed), 2));
}

#[test]
fn stop_waits_for_what_is_on_its_way() {
    let mut web = bench(r#"{"interval": "10ms"}"#);
    web.window.drain = Time(35_000_000);
    web.start_connected();
    web.run_to_ms(35);
    web.stop();
    assert_eq!(web.end, None);
    web.run_to_ms(40);
    web.feed(OK);
    assert_eq!(web.end, Some(FlowEnd::Completed));
    let counts = web.measured();
    // due at 0, 10, 20 and 30 ms
    assert_eq!((counts.messages_intended, counts.messages_sent, counts.messages_delivered), (4, 1, 1));
    assert_eq!(web.counts(Phase::Drain).messages_intended, 0);
    let mut idle = bench(r#"{"interval": "1s"}"#);
    idle.start_connected();
    idle.feed(OK);
    idle.stop();
    assert_eq!((idle.end, idle.link), (Some(FlowEnd::Completed), Link::Close));
}

#[test]
fn a_failure_counts_when_it_happens() {
    // due in the warm-up, refused or given up in the measure phase or while draining
    for (happens, counted) in [(500, Phase::Warmup), (1_500, Phase::Measure), (2_500, Phase::Measure)] {
        let mut web = bench(r#"{"timeout": "9s"}"#);
        web.window = Window { measure: Time(1_000_000_000), drain: Time(2_000_000_000) };
        web.start_connected();
        web.run_to_ms(happens);
        web.feed(b"HTTP/1.1 503 -\r\nContent-Length: 0\r\n\r\n");
        assert_eq!(web.counts(counted).failures[Failure::Rejected as usize], 1, "{happens} ms");
        let mut silent = bench(&format!(r#"{{"timeout": "{happens}ms"}}"#));
        silent.window = web.window;
        silent.start_connected();
        silent.run_to_ms(happens);
        assert_eq!(silent.counts(counted).failures[Failure::Timeout as usize], 1, "{happens} ms");
    }
}

#[test]
fn each_request_without_a_response_is_one_failure() {
    let mut web = bench(r#"{"pipelining": 4, "requests": 8, "method": "POST"}"#);
    web.start_connected();
    web.feed(&[OK, OK].concat());
    web.closed(Failure::Reset);
    // six were sent and two answered; the transport counts the reset for the oldest of the four
    assert_eq!((web.measured().messages_sent, web.failures(Failure::Unanswered)), (6, 3));
    assert_eq!(web.tally.failed, 3);
    let mut slow = bench(r#"{"pipelining": 4, "timeout": "1s"}"#);
    slow.start_connected();
    slow.run_to_ms(1000);
    assert_eq!((slow.failures(Failure::Timeout), slow.failures(Failure::Unanswered)), (1, 3));
}

#[test]
fn what_is_waited_for_to_the_end_is_unanswered() {
    let window = Window { measure: Time(1_000_000_000), drain: Time(2_000_000_000) };
    let mut web = bench(r#"{"pipelining": 2, "timeout": "1h"}"#);
    web.window = window;
    web.start_connected();
    web.run_to_ms(2_000);
    web.stop();
    web.run_to_ms(3_000);
    web.abandon();
    // sent in the warm-up, and waited for all through the measure phase
    assert_eq!(web.measured().failures[Failure::Unanswered as usize], 2);
    assert_eq!(web.examples.last().map(String::as_str), Some("no response by the end of the drain"));
    let mut deaf = bench(r#"{"timeout": "1h"}"#);
    deaf.window = window;
    deaf.start();
    deaf.run_to_ms(3_000);
    deaf.abandon();
    assert_eq!(deaf.measured().failures[Failure::Unanswered as usize], 1, "the connection itself");
    let mut idle = bench(r#"{"interval": "1h"}"#);
    idle.start_connected();
    idle.feed(OK);
    idle.abandon();
    assert_eq!(idle.failures(Failure::Unanswered), 0, "nothing was asked");
}

#[test]
fn it_waits_from_the_oldest_request_without_a_response() {
    let mut web = bench(r#"{"interval": "10ms", "pipelining": 2}"#);
    web.start_connected();
    assert_eq!(web.model.waiting_since(), Time::ZERO);
    web.run_to_ms(15);
    web.feed(OK);
    assert_eq!(web.model.waiting_since(), Time(10_000_000));
    web.feed(OK);
    assert_eq!(web.model.waiting_since(), Time::NEVER, "until the next is due");
    web.run_to_ms(20);
    web.closed(Failure::Reset);
    assert_eq!(web.model.waiting_since(), Time(20_000_000), "it is sent again");
    web.closed(Failure::Refused);
    assert_eq!(web.model.waiting_since(), Time::NEVER);
}

#[test]
fn wrong_parameters_are_explained() {
    assert!(problem(r#"{"method": "GE T"}"#).starts_with("method: \"GE T\" is no method"));
    assert!(problem(r#"{"method": "CONNECT"}"#).contains("tunnel"));
    assert!(problem(r#"{"path": "/a b"}"#).contains("%20"));
    assert!(problem(r#"{"path": "/{sqe}"}"#).contains("did you mean {seq}?"));
    assert!(problem(r#"{"headers": {"A:": "b"}}"#).starts_with("headers.A:"));
    assert!(problem(r#"{"headers": {"A": "b\r\nC: d"}}"#).contains("control character"));
    assert!(problem(r#"{"headers": {"content-length": "3"}}"#).contains("size"));
    assert!(problem(r#"{"headers": {"Connection": "close"}}"#).contains("keep_alive"));
    assert!(problem(r#"{"pipelining": 0}"#).contains("1 to 1024"));
    assert!(problem(r#"{"pipelining": 1025}"#).contains("1 to 1024"));
    assert!(problem(r#"{"pipelining": 2, "keep_alive": false}"#).contains("keep_alive"));
    assert!(problem(r#"{"expect": ["200", "2x"]}"#).starts_with("expect[1]"));
    assert!(problem(r#"{"expect": ["399-200"]}"#).starts_with("expect[0]"));
    assert!(problem(r#"{"expect": []}"#).contains("no status"));
    assert!(problem(r#"{"timeout": "0s"}"#).contains("zero"));
    assert!(problem(r#"{"size": "17MiB"}"#).contains("16MiB"));
    config(r#"{"size": "16MiB", "pipelining": 1024, "expect": ["599", "1xx"]}"#);
}

proptest! {
    #[test]
    fn any_split_of_the_answer_gives_the_same(cuts in prop::collection::vec(1usize..40, 0..20)) {
        let answer = b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n\
            4\r\nWiki\r\n0\r\nT: x\r\n\r\nHTTP/1.1 404 No\r\nContent-Length: 3\r\n\r\nabcHTTP/1.1 204 -\r\n\r\n";
        let mut web = bench(r#"{"pipelining": 3, "requests": 3}"#);
        web.start_connected();
        let mut rest = &answer[..];
        for cut in cuts {
            let (piece, after) = rest.split_at(cut.min(rest.len()));
            web.feed(piece);
            rest = after;
        }
        web.feed(rest);
        prop_assert_eq!(web.end, Some(FlowEnd::Completed));
        prop_assert_eq!(web.measured().bytes_received, answer.len() as u64);
        prop_assert_eq!((web.measured().messages_delivered, web.failures(Failure::Rejected)), (2, 1));
    }

    #[test]
    fn nothing_a_server_does_breaks_a_device(
        data in prop::collection::vec(any::<u8>(), 0..400),
        pipelining in 1u16..4,
        interval in 0u64..3,
        requests in 0u32..4,
    ) {
        let json = format!(r#"{{"pipelining": {pipelining}, "interval": "{interval}ms", "requests": {requests}}}"#);
        // random bytes rarely look like HTTP: put a good answer in between
        let mut mixed = vec![OK.len() as u8 - 1];
        mixed.extend_from_slice(OK);
        mixed.extend_from_slice(&data);
        assault(config(&json).device(0), &mixed, HEAD_MAX);
    }
}

#[test]
fn responses_are_counted_by_class_and_connections_as_they_come_up() {
    let mut web = bench(r#"{"requests": 5}"#);
    web.start_connected();
    for status in [200, 204, 301, 404, 503] {
        let body = if status == 204 { "" } else { "Content-Length: 0\r\n" };
        web.feed(format!("HTTP/1.1 {status} X\r\n{body}\r\n").as_bytes());
    }
    let counted: Vec<u64> = (0..DESCRIPTION.counters.len()).map(|counter| web.own(counter)).collect();
    assert_eq!(counted, [2, 1, 1, 1, 1, 0, 0]);
    let count = |name: &str| {
        DESCRIPTION.counters.iter().position(|counter| counter.name == name).map_or(0, |at| counted[at])
    };
    assert_eq!(DESCRIPTION.indices[0].of(count), Some(0.2));
}
