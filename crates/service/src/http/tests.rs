//! Requests in, responses out.

use super::Http;
use crate::settings::Protocol;
use crate::{ConnectionId, Output, Service, Settings};
use proptest::prelude::{ProptestConfig, any, proptest};

const ID: ConnectionId = ConnectionId { slot: 0, generation: 0 };

fn settings() -> Settings {
    Settings {
        protocol: Protocol::Http,
        listen: "127.0.0.1:0".parse().expect("an address"),
        workers: 1,
        delay_ns: 0,
        size: 2,
        notify_ns: 1,
        script: None,
        sink: false,
        error_share: 0.0,
        error_status: 503,
        drop_share: 0.0,
        seed: 1,
    }
}

/// What a server answers on one connection when `parts` come one after the other; whether it closes.
fn play(settings: &Settings, parts: &[&[u8]]) -> (String, bool, Http) {
    let (mut server, mut out) = (Http::new(settings), Output::default());
    server.opened(ID, &mut out);
    let (mut waiting, mut answers, mut closes) = (Vec::new(), Vec::new(), false);
    for part in parts {
        waiting.extend_from_slice(part);
        loop {
            let used = server.received(ID, &waiting, &mut out);
            waiting.drain(..used);
            let (sent, closed, _) = out.take();
            for (_, bytes) in sent {
                server.sent(ID, bytes.len());
                answers.extend(bytes);
            }
            closes |= !closed.is_empty();
            if used == 0 || waiting.is_empty() {
                break;
            }
        }
    }
    (String::from_utf8(answers).expect("text"), closes, server)
}

fn answers(parts: &[&[u8]]) -> (String, bool) {
    let (text, closes, _) = play(&settings(), parts);
    (text, closes)
}

fn statuses(text: &str) -> Vec<&str> {
    text.split("HTTP/1.1 ").skip(1).map(|one| &one[..3]).collect()
}

#[test]
fn the_path_says_how_long_the_body_is() {
    for (path, length) in [("/", 2), ("/10", 10), ("/a/7?x=9", 7), ("/7z", 2), ("/67108864", 67_108_864)] {
        let (text, closes) = answers(&[format!("GET {path} HTTP/1.1\r\nHost: h\r\n\r\n").as_bytes()]);
        assert!(text.contains(&format!("Content-Length: {length}\r\n")), "{path}: {text}");
        assert!(text.ends_with(&format!("\r\n\r\n{}", "x".repeat(length))) && !closes, "{path}: {text}");
    }
    let (head, _) = answers(&[b"HEAD /10 HTTP/1.1\r\nHost: h\r\n\r\n"]);
    assert!(head.contains("Content-Length: 10\r\n") && head.ends_with("\r\n\r\n"));
}

#[test]
fn there_is_nothing_where_the_path_names_more_than_the_largest_body() {
    for path in ["/67108865", "/99999999999", "/99999999999999999999999"] {
        let request = format!("GET {path} HTTP/1.1\r\nHost: h\r\n\r\n");
        let (text, closes, server) = play(&settings(), &[request.as_bytes()]);
        assert!(text.starts_with("HTTP/1.1 404 Not Found\r\n") && !closes, "{path}: {text}");
        assert!(text.ends_with("\r\n\r\nThe largest body has 67108864 bytes.\n"), "{path}: {text}");
        let counters = server.counters();
        assert_eq!((counters["responses"], counters["bad_requests"]), (1, 1));
        let (head, _) = answers(&[request.replace("GET", "HEAD").as_bytes()]);
        assert!(head.contains("Content-Length: 37\r\n") && head.ends_with("\r\n\r\n"), "{head}");
    }
}

#[test]
fn a_response_counts_when_the_network_has_taken_all_of_it() {
    let (mut server, mut out) = (Http::new(&settings()), Output::default());
    server.opened(ID, &mut out);
    let post = b"POST /5 HTTP/1.1\r\nHost: h\r\nExpect: 100-continue\r\nContent-Length: 1\r\n\r\n";
    assert_eq!(server.received(ID, post, &mut out), post.len());
    assert_eq!(server.received(ID, b"a", &mut out), 1);
    let get = b"GET /70000 HTTP/1.1\r\nHost: h\r\n\r\n";
    assert_eq!(server.received(ID, get, &mut out), get.len());
    let all: Vec<u8> = out.take().0.into_iter().flat_map(|(_, bytes)| bytes).collect();
    let second = all.len() - 70_000;
    let counts = |server: &Http| {
        let counters = server.counters();
        ["requests", "responses", "broken_responses", "body_bytes"].map(|name| counters[name])
    };
    let first = all.windows(12).rposition(|bytes| bytes == b"HTTP/1.1 200").expect("the second head");
    server.sent(ID, first - 1);
    assert_eq!(counts(&server), [2, 0, 0, 0]);
    server.sent(ID, 1);
    assert_eq!(counts(&server), [2, 1, 0, 5]);
    server.sent(ID, second - first + 69_999);
    assert_eq!(counts(&server), [2, 1, 0, 5]);
    server.closed(ID, &mut out);
    assert_eq!(counts(&server), [2, 1, 1, 5]);
}

#[test]
fn requests_are_cut_apart_wherever_they_are_cut() {
    let all: &[u8] = b"POST /3 HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\n\r\nhello\
        PUT /4 HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n1;x=y\r\nd\r\n0\r\nT: v\r\n\r\n\
        \r\nGET /5 HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\nGET /6 HTTP/1.1\r\nHost: h\r\n\r\n";
    let (whole, closes) = answers(&[all]);
    assert_eq!((statuses(&whole), closes), (vec!["200"; 3], true));
    for cut in 1..all.len() {
        let (before, after) = all.split_at(cut);
        assert_eq!(answers(&[before, after]), (whole.clone(), closes), "cut at {cut}");
    }
    let bytes: Vec<&[u8]> = all.chunks(1).collect();
    assert_eq!(answers(&bytes), (whole, closes));
}

#[test]
fn connections_stay_open_as_the_version_says() {
    let of = |request: &str| answers(&[request.as_bytes()]);
    assert!(of("GET / HTTP/1.0\r\n\r\n").1);
    let (text, closes) = of("GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n");
    assert!(text.contains("Connection: keep-alive\r\n") && !closes);
    let (text, closes) = of("GET / HTTP/1.1\r\nHost: h\r\nConnection: x, Close\r\n\r\n");
    assert!(text.contains("Connection: close\r\n") && closes);
    let (text, _) =
        answers(&[b"POST / HTTP/1.1\r\nHost: h\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\n", b"ab"]);
    assert!(text.starts_with("HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\n"), "{text}");
}

#[test]
fn what_is_no_request_is_refused_and_the_connection_closed() {
    let long = format!("GET / HTTP/1.1\r\nHost: h\r\nX: {}\r\n\r\n", "y".repeat(70_000));
    for (request, status) in [
        ("GET /\r\n\r\n", "400"),
        ("\0\0\0\0", "400"),
        ("GET / HTTP/1.1\r\n\r\n", "400"),
        ("GET / HTTP/2.0\r\n\r\n", "505"),
        ("GET / HTTP/1.1\r\nHost: h\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n", "400"),
        ("GET / HTTP/1.1\r\nHost: h\r\nContent-Length: -1\r\n\r\n", "400"),
        ("GET / HTTP/1.1\r\nHost: h\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n", "400"),
        ("GET / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: gzip, chunked\r\n\r\n", "501"),
        ("GET / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\nz\r\n", "400"),
        ("GET / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nabc", "400"),
        (long.as_str(), "431"),
    ] {
        let (text, closes, server) = play(&settings(), &[request.as_bytes()]);
        assert_eq!((statuses(&text), closes), (vec![status], true), "{request:.60}");
        assert_eq!((server.counters()["bad_requests"], server.counters()["responses"]), (1, 0));
    }
}

#[test]
fn a_share_is_refused_and_a_share_unanswered() {
    let requests = b"GET / HTTP/1.1\r\nHost: h\r\n\r\n".repeat(1000);
    let (text, _, server) = play(&Settings { error_share: 0.25, ..settings() }, &[&requests]);
    let refused = statuses(&text).iter().filter(|status| **status == "503").count();
    assert!((200..300).contains(&refused), "{refused}");
    let counters = server.counters();
    assert_eq!(
        (counters["requests"], counters["responses"], counters["refused_requests"]),
        (1000, 1000, refused as u64)
    );
    let (text, _, server) = play(&Settings { drop_share: 1.0, ..settings() }, &[&requests]);
    assert_eq!((text.as_str(), server.counters()["unanswered_requests"]), ("", 1));
}

#[test]
fn a_large_body_keeps_later_requests_waiting() {
    let (mut server, mut out) = (Http::new(&settings()), Output::default());
    server.opened(ID, &mut out);
    let requests = b"GET /1000000 HTTP/1.1\r\nHost: h\r\n\r\n".repeat(2);
    let used = server.received(ID, &requests, &mut out);
    assert_eq!(used, requests.len() / 2);
    let sent: usize = out.take().0.iter().map(|(_, bytes)| bytes.len()).sum();
    assert!(sent > 1_000_000);
    assert_eq!(server.received(ID, &requests[used..], &mut out), used);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]
    #[test]
    fn no_bytes_break_it(parts: Vec<Vec<u8>>, head in any::<bool>()) {
        let begin: &[u8] = if head { b"POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n" } else { b"" };
        let mut all = vec![begin];
        all.extend(parts.iter().map(Vec::as_slice));
        let (mut server, mut out) = (Http::new(&settings()), Output::default());
        server.opened(ID, &mut out);
        for part in all {
            assert!(server.received(ID, part, &mut out) <= part.len());
        }
        server.closed(ID, &mut out);
        assert_eq!(server.counters()["open_connections"], 0);
    }
}
