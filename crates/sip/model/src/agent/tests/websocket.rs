//! User agents over WebSocket, whose server is the other side of the same library.

use super::*;
use ::websocket::{Incoming, Socket};
use protocol::model::Cx;

const WS: usize = 3;

fn bench() -> Bench<UserAgent> {
    let options = Scenario::Preset(Preset::Options);
    bench_of(WS, Params { scenario: options, websocket_path: Some("/ws".into()), ..Params::default() })
}

/// What the server makes of what was sent; its answers reach the user agent.
fn exchange(bench: &mut Bench<UserAgent>, server: &mut Socket) -> Vec<String> {
    let bytes = std::mem::take(&mut bench.out.bytes);
    server.receive(&bytes);
    let mut came = Vec::new();
    while let Ok(Some(one)) = server.poll() {
        if let Incoming::Message(message) = one {
            came.push(String::from_utf8(message).expect("text"));
        }
    }
    give(bench, server);
    came
}

fn give(bench: &mut Bench<UserAgent>, server: &mut Socket) {
    let mut bytes = Vec::new();
    server.take(&mut bytes);
    if !bytes.is_empty() {
        bench.call(|device, cx| device.received(cx, &bytes));
    }
}

fn send(bench: &mut Bench<UserAgent>, server: &mut Socket, message: &str) {
    server.send(message.as_bytes());
    give(bench, server);
}

/// The connection that was asked for is up, and the handshake done; the first request.
fn up(bench: &mut Bench<UserAgent>) -> (Socket, String) {
    bench.call(|device, cx| device.connected(cx));
    let mut server = Socket::server("sip", 60_000).expect("a server");
    assert_eq!(exchange(bench, &mut server), [""; 0], "the handshake alone");
    let mut all = exchange(bench, &mut server);
    assert_eq!(all.len(), 1, "{all:?}");
    (server, all.remove(0))
}

fn start(bench: &mut Bench<UserAgent>, kept: bool) {
    let local = bench.local;
    bench.local = local.filter(|_| kept);
    bench.end = None;
    bench.call(|device, cx| device.start(cx));
    bench.local = local;
}

/// A flow that went well.
fn complete(bench: &mut Bench<UserAgent>) -> Socket {
    start(bench, false);
    assert_eq!(bench.link, Link::Connect);
    let (mut server, request) = up(bench);
    send(bench, &mut server, &response(&request, 200, "t", ""));
    assert_eq!(bench.end, Some(FlowEnd::Completed));
    server
}

#[test]
fn a_message_goes_once_the_handshake_is_done_and_names_no_address() {
    let mut bench = bench();
    start(&mut bench, false);
    bench.call(|device, cx| device.connected(cx));
    let asked = String::from_utf8(bench.out.bytes.clone()).expect("text");
    assert!(asked.starts_with("GET /ws HTTP/1.1\r\nHost: sip.example.net:5060\r\n"), "{asked}");
    bench.out.clear();
    let (_, request) = up(&mut bench);
    assert!(request.contains("Via: SIP/2.0/WS nd00000000000000ab.invalid;branch="), "{request}");
    assert!(value(&request, "Contact").ends_with("@nd00000000000000ab.invalid;transport=ws>"), "{request}");
}

#[test]
fn a_registration_belongs_to_its_connection() {
    let mut bench = bench_of(WS, Params::default());
    start(&mut bench, false);
    let (_, request) = up(&mut bench);
    let contact = value(&request, "Contact");
    let instance = ";reg-id=1;+sip.instance=\"<urn:uuid:00000000-0000-4000-8000-0000000000ab>\"";
    assert!(contact.ends_with(instance), "{contact}");
    assert_eq!(value(&request, "Supported"), "path, outbound");
}

#[test]
fn the_next_flow_uses_the_connection_or_another_where_the_server_closed_it() {
    let mut bench = bench();
    let mut server = complete(&mut bench);
    start(&mut bench, true);
    assert_eq!((bench.connects, exchange(&mut bench, &mut server).len()), (1, 1));
    let mut bench = self::bench();
    let mut server = complete(&mut bench);
    server.close();
    give(&mut bench, &mut server);
    assert_eq!((bench.link, bench.out.bytes[0]), (Link::Close, 0x88), "the close is answered");
    bench.out.clear();
    start(&mut bench, false);
    assert_eq!((bench.connects, up(&mut bench).1.is_empty()), (2, false));
    assert_eq!(Failure::ALL.map(|why| bench.failures(why)), [0; 10]);
}

#[test]
fn what_met_the_close_of_an_idle_connection_is_sent_again() {
    let mut bench = bench();
    let mut server = complete(&mut bench);
    server.close();
    start(&mut bench, true);
    give(&mut bench, &mut server);
    assert_eq!((bench.link, bench.connects), (Link::Connect, 2));
    assert!(bench.out.bytes.is_empty(), "nothing of the old connection goes to the new one");
    let (mut server, request) = up(&mut bench);
    send(&mut bench, &mut server, &response(&request, 200, "t", ""));
    assert_eq!(bench.end, Some(FlowEnd::Completed));
    assert_eq!(Failure::ALL.map(|why| bench.failures(why)), [0; 10]);
}

#[test]
fn a_server_that_does_not_answer_the_handshake_is_given_up() {
    let mut bench = bench();
    start(&mut bench, false);
    bench.call(|device, cx| device.connected(cx));
    assert_eq!(bench.wake, bench.now + Duration::from_secs(32));
    after(&mut bench, 32_000 * MS);
    assert_eq!((bench.end, bench.failures(Failure::Timeout)), (Some(FlowEnd::Failed), 1));
    assert_eq!(bench.link, Link::Close);
    // and one that closes instead
    let mut bench = self::bench();
    start(&mut bench, false);
    bench.call(|device, cx| device.connected(cx));
    bench.call(|device, cx| device.closed(cx, Failure::Closed));
    assert_eq!(bench.end, Some(FlowEnd::Failed));
    assert_eq!(bench.examples, ["the server closed the connection during the WebSocket handshake"]);
}

#[test]
fn the_drain_ends_a_handshake() {
    let mut bench = bench();
    start(&mut bench, false);
    bench.call(|device, cx| device.connected(cx));
    bench.call(|device, cx| device.abandoned(cx));
    assert_eq!(bench.failures(Failure::Unanswered), 1);
}

/// Call the model, whose target has a further server.
fn with_next(bench: &mut Bench<UserAgent>, f: impl FnOnce(&mut UserAgent, &mut Cx<'_>)) {
    bench.link = Link::Keep;
    bench.call(|device, cx| {
        cx.has_next = true;
        f(device, cx);
    });
}

#[test]
fn a_server_that_fails_in_the_handshake_is_left() {
    type Fault = fn(&mut Bench<UserAgent>);
    let faults: [Fault; 3] = [
        |bench| with_next(bench, |device, cx| device.closed(cx, Failure::Reset)),
        |bench| {
            let refused = b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\n\r\n";
            with_next(bench, |device, cx| {
                device.received(cx, refused);
            });
        },
        |bench| {
            bench.now = bench.now + Duration::from_secs(32);
            with_next(bench, |device, cx| device.timer(cx));
        },
    ];
    for fault in faults {
        let mut bench = bench();
        start(&mut bench, false);
        bench.call(|device, cx| device.connected(cx));
        bench.out.clear();
        fault(&mut bench);
        assert!(matches!(bench.link, Link::Next(_)) && bench.end.is_none(), "{:?}", bench.link);
        let (mut server, request) = up(&mut bench);
        send(&mut bench, &mut server, &response(&request, 200, "t", ""));
        assert_eq!(bench.end, Some(FlowEnd::Completed));
        assert_eq!(Failure::ALL.map(|why| bench.failures(why)), [0; 10]);
    }
}

#[test]
fn a_request_goes_to_the_next_server_when_its_server_closes_or_is_silent() {
    type Fault = fn(&mut Bench<UserAgent>, &mut Socket);
    let faults: [Fault; 3] = [
        |bench, server| {
            server.close();
            let mut bytes = Vec::new();
            server.take(&mut bytes);
            with_next(bench, |device, cx| {
                device.received(cx, &bytes);
            });
        },
        |bench, _| with_next(bench, |device, cx| device.closed(cx, Failure::Reset)),
        |bench, _| {
            bench.now = bench.now + Duration::from_secs(32);
            with_next(bench, |device, cx| device.timer(cx));
        },
    ];
    for fault in faults {
        let mut bench = bench();
        start(&mut bench, false);
        let (mut server, first) = up(&mut bench);
        fault(&mut bench, &mut server);
        assert!(matches!(bench.link, Link::Next(_)) && bench.end.is_none(), "{:?}", bench.link);
        bench.out.clear();
        let (mut server, request) = up(&mut bench);
        assert_ne!(value(&first, "Via"), value(&request, "Via"), "another branch");
        send(&mut bench, &mut server, &response(&request, 200, "t", ""));
        assert_eq!(bench.end, Some(FlowEnd::Completed));
        assert_eq!(Failure::ALL.map(|why| bench.failures(why)), [0; 10]);
    }
}

#[test]
fn a_call_goes_on_over_another_connection_where_the_server_closes_an_idle_one() {
    let (scenario, hold) = (Scenario::Preset(Preset::Call), Interval::secs(60));
    let mut bench = bench_of(WS, Params { scenario, hold, ..Params::default() });
    start(&mut bench, false);
    let (mut server, invite) = up(&mut bench);
    send(&mut bench, &mut server, &response(&invite, 200, "b1", "Contact: <sip:b@10.0.0.9>\r\n"));
    assert!(exchange(&mut bench, &mut server)[0].starts_with("ACK "));
    server.close();
    give(&mut bench, &mut server);
    assert_eq!((bench.link, bench.end), (Link::Close, None));
    bench.out.clear();
    after(&mut bench, 60_000 * MS);
    assert_eq!(bench.link, Link::Connect);
    let (mut server, bye) = up(&mut bench);
    assert!(bye.starts_with("BYE "), "{bye}");
    send(&mut bench, &mut server, &response(&bye, 200, "", ""));
    assert_eq!(bench.end, Some(FlowEnd::Completed));
    assert_eq!(Failure::ALL.map(|why| bench.failures(why)), [0; 10]);
}
