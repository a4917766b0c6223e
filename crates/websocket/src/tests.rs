use super::*;

const MOST: usize = 1000;

fn sent(socket: &mut Socket) -> Vec<u8> {
    let mut out = Vec::new();
    socket.take(&mut out);
    out
}

fn give(from: &mut Socket, to: &mut Socket) {
    // byte by byte: no boundary is of any meaning
    for byte in sent(from) {
        to.receive(&[byte]);
    }
}

fn pair() -> (Socket, Socket) {
    let mut client = Socket::client("example.net", "/ws", "sip", MOST).expect("a client");
    let mut server = Socket::server("sip", MOST).expect("a server");
    give(&mut client, &mut server);
    assert_eq!(server.poll(), Ok(Some(Incoming::Open)));
    give(&mut server, &mut client);
    assert_eq!(client.poll(), Ok(Some(Incoming::Open)));
    (client, server)
}

/// What a client makes of a response, and of frames behind it.
fn answered(response: &str, frames: &[u8]) -> Result<Vec<Incoming>, Fault> {
    let mut client = Socket::client("example.net:8080", "/", "sip", MOST).expect("a client");
    let request = String::from_utf8(sent(&mut client)).expect("text");
    let key = request.lines().find_map(|line| line.strip_prefix("Sec-WebSocket-Key: ")).expect("a key");
    let accept = tungstenite::handshake::derive_accept_key(key.as_bytes());
    client.receive(response.replace("ACCEPT", &accept).as_bytes());
    client.receive(frames);
    let mut all = Vec::new();
    while let Some(one) = client.poll()? {
        all.push(one);
    }
    Ok(all)
}

const GOOD: &str = "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
                    Sec-WebSocket-Accept: ACCEPT\r\nSec-WebSocket-Protocol: sip\r\n\r\n";

#[test]
fn the_request_is_that_of_rfc_6455() {
    let mut client = Socket::client("[fd00::1]:8080", "/ws?a=b", "sip", MOST).expect("a client");
    let request = String::from_utf8(sent(&mut client)).expect("text");
    assert!(request.starts_with("GET /ws?a=b HTTP/1.1\r\nHost: [fd00::1]:8080\r\n"), "{request}");
    for field in
        ["Sec-WebSocket-Protocol: sip\r\n", "Sec-WebSocket-Version: 13\r\n", "Upgrade: websocket\r\n"]
    {
        assert!(request.contains(field), "{field}: {request}");
    }
}

#[test]
fn messages_go_both_ways_and_only_a_clients_are_masked() {
    let (mut client, mut server) = pair();
    client.send(b"OPTIONS sip:b SIP/2.0");
    client.send(&[0xff; 200]);
    let wire = sent(&mut client);
    assert!(!wire.windows(7).any(|part| part == b"OPTIONS"));
    server.receive(&wire);
    assert_eq!(server.poll(), Ok(Some(Incoming::Message(b"OPTIONS sip:b SIP/2.0".to_vec()))));
    assert_eq!(server.poll(), Ok(Some(Incoming::Message(vec![0xff; 200]))));
    assert_eq!(server.poll(), Ok(None));
    server.send(b"SIP/2.0 200 OK");
    let wire = sent(&mut server);
    assert_eq!(wire, b"\x81\x0eSIP/2.0 200 OK");
    client.receive(&wire);
    assert_eq!(client.poll(), Ok(Some(Incoming::Message(b"SIP/2.0 200 OK".to_vec()))));
}

#[test]
fn fragments_are_joined_and_a_ping_between_them_is_answered() {
    let (mut client, _) = pair();
    client.receive(b"\x01\x03SIP\x89\x02hi\x80\x04/2.0");
    assert_eq!(client.poll(), Ok(Some(Incoming::Message(b"SIP/2.0".to_vec()))));
    let pong = sent(&mut client);
    assert_eq!((pong[0], pong[1], pong.len()), (0x8a, 0x82, 8), "masked, of two bytes");
}

#[test]
fn who_closes_is_told_with_its_code_and_answered() {
    let (mut client, mut server) = pair();
    client.receive(b"\x88\x08\x03\xf1no SIP");
    let closed = Fault::Closed { code: Some(1009), reason: "no SIP".into() };
    assert_eq!(client.poll(), Err(closed.clone()));
    assert_eq!(closed.to_string(), "the other side closed the WebSocket connection with code 1009: no SIP");
    let reply = sent(&mut client);
    assert_eq!((reply[0], reply[1]), (0x88, 0x88));
    assert!(!client.is_open());
    server.close();
    assert_eq!(sent(&mut server), b"\x88\x00");
}

#[test]
fn a_refusal_is_told_in_the_servers_words() {
    let refused = answered("HTTP/1.1 403 Forbidden\r\nContent-Length: 9\r\n\r\nno  entry", b"");
    let fault = refused.expect_err("refused");
    assert_eq!(fault.to_string(), "the server refused the WebSocket handshake: 403 Forbidden: no entry");
    let other = answered(&GOOD.replace("Protocol: sip", "Protocol: mqtt"), b"").expect_err("another");
    assert_eq!(other.to_string(), "the server chose the subprotocol \"mqtt\", and \"sip\" was offered");
    let none = answered(&GOOD.replace("Sec-WebSocket-Protocol: sip\r\n", ""), b"").expect_err("none");
    assert_eq!(none.to_string(), "the server chose no subprotocol, and \"sip\" was offered");
    for (response, word) in [
        (GOOD.replace("ACCEPT", "x"), "Key mismatch"),
        (GOOD.replace("Upgrade: websocket\r\n", ""), "Upgrade"),
        ("SIP/2.0 400 Bad Request\r\n\r\n".into(), "SIP/2.0 400"),
    ] {
        let fault = answered(&response, b"").expect_err(word);
        assert!(matches!(&fault, Fault::Handshake(what) if what.contains(word)), "{fault:?}");
    }
}

const BAD_KEYS: &[&str] = &[
    "GET / HTTP/1.1\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n\
     Sec-WebSocket-Key: \r\nSec-WebSocket-Protocol: sip\r\n\r\n",
    "GET / HTTP/1.1\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n\
     Sec-WebSocket-Key: dGhlIHNhbXBsZQ==\r\nSec-WebSocket-Protocol: sip\r\n\r\n",
    "GET / HTTP/1.1\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n\
     Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZR==\r\nSec-WebSocket-Protocol: sip\r\n\r\n",
];

#[test]
fn a_fault_closes_with_the_code_that_names_it() {
    let large = [&[0x82, 0x7e, 0x04, 0x00][..], &[b'a'; 1024]].concat();
    for (frames, code) in [
        (&b"\xc1\x01a"[..], 1002),
        (b"\x80\x01a", 1002),
        (b"\x81\x83abcdxyz", 1002),
        (b"\x81\x01\xff", 1007),
        (&large, 1009),
    ] {
        let (mut client, _) = pair();
        client.receive(frames);
        assert!(client.poll().is_err());
        let close = sent(&mut client);
        // masked: the mask is behind the length
        assert_eq!(close[..2], [0x88, 0x82], "{frames:?}");
        assert_eq!(u16::from_be_bytes([close[6] ^ close[2], close[7] ^ close[3]]), code);
    }
    let (_, mut server) = pair();
    server.receive(&[0x82, 0xfe, 0x04, 0x00, 0, 0, 0, 0]);
    assert!(matches!(server.poll(), Err(Fault::Large(_))));
    assert_eq!(sent(&mut server), b"\x88\x02\x03\xf1", "1009, before the whole message has come");
}

#[test]
fn a_server_refuses_what_does_not_offer_its_subprotocol() {
    for (request, word) in [
        ("GET / HTTP/1.1\r\nHost: h\r\n\r\n", "400 Bad Request"),
        ("OPTIONS sip:b SIP/2.0\r\n\r\n", "400 Bad Request"),
        (
            "GET / HTTP/1.1\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n\
             Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Protocol: mqtt\r\n\r\n",
            "Sec-WebSocket-Protocol: sip is missing",
        ),
    ]
    .into_iter()
    .chain(BAD_KEYS.iter().map(|request| (*request, "Sec-WebSocket-Key is not 16 bytes")))
    {
        let mut server = Socket::server("sip", MOST).expect("a server");
        server.receive(request.as_bytes());
        assert!(server.poll().is_err(), "{request}");
        let said = String::from_utf8(sent(&mut server)).expect("text");
        assert!(said.starts_with("HTTP/1.1 400 ") && said.contains(word), "{said}");
    }
}

#[test]
fn frames_that_are_not_allowed_end_it() {
    let cases: [(&[u8], &str); 6] = [
        (b"\x81\x83abcdxyz", "masked frame"),
        (b"\x81\x7e\x04\x00", "too large"),
        (b"\x81\x01\xff", "no UTF-8"),
        (b"\xc1\x01a", "Reserved bits"),
        (b"\x80\x01a", "nothing to continue"),
        (b"\x89\x7e\x00\x80", "Control frame too big"),
    ];
    for (frames, word) in cases {
        let frames = [frames, &[b'a'; 200]].concat();
        let fault = answered(GOOD, &frames).expect_err(word);
        assert!(fault.to_string().contains(word), "{fault}");
    }
    assert_eq!(answered(GOOD, b"\x81\x01a").expect("good").len(), 2);
}

#[test]
fn a_message_of_the_limit_passes_and_one_byte_more_does_not() {
    let frame = |length: u16| {
        let mut frame = vec![0x82, 0x7e];
        frame.extend(length.to_be_bytes());
        frame.resize(4 + usize::from(length), b'a');
        frame
    };
    assert_eq!(answered(GOOD, &frame(MOST as u16)).expect("good").len(), 2);
    assert!(matches!(answered(GOOD, &frame(MOST as u16 + 1)), Err(Fault::Large(_))));
}
