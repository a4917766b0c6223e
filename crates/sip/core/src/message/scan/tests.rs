use super::*;
use crate::message::{Framer, MAX_FIELD, MAX_FIELDS, frame};

/// RFC 3261 section 24.2, F1, with a body.
const INVITE: &str = "INVITE sip:bob@biloxi.com SIP/2.0\r
Via: SIP/2.0/UDP pc33.atlanta.com:5066;branch=z9hG4bK776asdhds;rport\r
Max-Forwards: 70\r
To: Bob <sip:bob@biloxi.com>\r
From: \"Alice; tag=x\" <sip:alice@atlanta.com>;tag=1928301774\r
Call-ID: a84b4c76e66710@pc33.atlanta.com\r
CSeq: 314159 INVITE\r
Contact: \"a, b\" <sip:alice@pc33.atlanta.com;x=1,2>;expires=5, <sip:other@host>\r
Content-Type: application/sdp\r
Content-Length: 5\r
\r
v=0\r
more";

fn fault(message: &str) -> Fault {
    scan(message.as_bytes()).unwrap_err().fault
}

fn changed(from: &str, to: &str) -> String {
    assert!(INVITE.contains(from), "{from}");
    INVITE.replacen(from, to, 1)
}

#[test]
fn a_request_is_read() {
    let scanned = scan(INVITE.as_bytes()).unwrap();
    assert_eq!(scanned.start, Start::Request { method: b"INVITE", uri: b"sip:bob@biloxi.com" });
    assert_eq!(scanned.call_id, b"a84b4c76e66710@pc33.atlanta.com");
    assert_eq!(scanned.cseq, CSeq { number: 314_159, method: b"INVITE" });
    let via = TopVia {
        transport: b"UDP",
        host: b"pc33.atlanta.com",
        port: Some(5066),
        branch: Some(b"z9hG4bK776asdhds"),
        received: None,
        rport: Some(None),
    };
    assert_eq!(scanned.via, via);
    assert_eq!((scanned.from_tag, scanned.to_tag), (Some(&b"1928301774"[..]), None));
    assert_eq!(scanned.contact, Some(&b"\"a, b\" <sip:alice@pc33.atlanta.com;x=1,2>;expires=5"[..]));
    assert_eq!(scanned.max_forwards, Some(70));
    assert_eq!(scanned.body, b"v=0\r\n");
    assert!(scanned.is_request("INVITE") && scanned.code().is_none());
    assert_eq!(&INVITE[scanned.header_end..], "v=0\r\nmore");
}

#[test]
fn a_response_is_read() {
    let message = "SIP/2.0 401 Not  you\r\nv:SIP / 2.0 / TCP [2001:db8::1] : 5061 ; RECEIVED=192.0.2.1\r\n ;rport=40000;\r
\tbranch=z9, SIP/2.0/UDP x\r\nf:sip:a@b;tag=1\r\nt:<sip:c@d>;x=\"y;tag=no\";tag=2\r\ni:1\r\nCSEQ:\r\n 2\r\n REGISTER\r
www-authenticate: Digest a\r\nWWW-Authenticate: Digest b\r\nProxy-Authenticate: c\r\nExpires: 60\r\nMin-Expires:70\r
Retry-After: 18 (I'm in a meeting) ;duration=3600\r\nRSeq: 9\r\nRequire: 100rel\r\nRecord-Route: <sip:p;lr>\r\n\r\nrest";
    let scanned = scan(message.as_bytes()).unwrap();
    assert_eq!(scanned.start, Start::Response { code: 401, reason: b"Not  you" });
    assert_eq!((scanned.via.host, scanned.via.port), (&b"[2001:db8::1]"[..], Some(5061)));
    assert_eq!((scanned.via.received, scanned.via.rport), (Some(&b"192.0.2.1"[..]), Some(Some(40_000))));
    assert_eq!(scanned.via.branch, Some(&b"z9"[..]));
    assert_eq!((scanned.from_tag, scanned.to_tag), (Some(&b"1"[..]), Some(&b"2"[..])));
    assert_eq!(scanned.cseq, CSeq { number: 2, method: b"REGISTER" });
    assert_eq!(scanned.www_authenticate.as_slice(), [b"Digest a", b"Digest b"]);
    assert_eq!(scanned.proxy_authenticate.as_slice(), [b"c"]);
    assert_eq!((scanned.expires, scanned.min_expires, scanned.retry_after), (Some(60), Some(70), Some(18)));
    assert_eq!((scanned.rseq, scanned.require), (Some(9), Some(&b"100rel"[..])));
    assert!(scanned.record_route);
    assert_eq!((scanned.content_length, scanned.body), (None, &b"rest"[..]));
}

#[test]
fn start_lines_are_checked() {
    let with = |line: &str| changed("INVITE sip:bob@biloxi.com SIP/2.0", line);
    assert!(scan(with("INVITE sip:bob@biloxi.com sip/2.0").as_bytes()).is_ok());
    assert!(scan(format!("\r\n\r\n{INVITE}").as_bytes()).is_ok());
    for (line, expected) in [
        ("INVITE sip:bob@biloxi.com SIP/7.0", Fault::Version),
        ("INVITE sip:bob@biloxi.com HTTP/1.1", Fault::StartLine),
        ("INVITE  sip:bob@biloxi.com SIP/2.0", Fault::RequestUri),
        ("INVITE sip:bob@biloxi.com  SIP/2.0", Fault::StartLine),
        ("INVITE sip:bob@biloxi.com SIP/2.0 ", Fault::StartLine),
        ("INVITE <sip:bob@biloxi.com> SIP/2.0", Fault::RequestUri),
        ("INVITE sip:bob@bil oxi.com SIP/2.0", Fault::StartLine),
        ("INVITE bob SIP/2.0", Fault::RequestUri),
        ("IN<VITE sip:bob@biloxi.com SIP/2.0", Fault::StartLine),
        ("ACK sip:bob@biloxi.com SIP/2.0", Fault::MethodMismatch),
        ("SIP/3.0 200 OK", Fault::Version),
        ("SIP/2.0 99 x", Fault::StatusCode),
        ("SIP/2.0 700 x", Fault::StatusCode),
        ("SIP/2.0 4294967301 x", Fault::StatusCode),
        ("SIP/2.0 200", Fault::StartLine),
        ("SIP/2.0  200 OK", Fault::StartLine),
        ("", Fault::StartLine),
    ] {
        // An empty line leaves the next as start line.
        assert_eq!(fault(&with(line)), expected, "{line}");
    }
    assert_eq!(scan(with("SIP/2.0 100 ").as_bytes()).unwrap().code(), Some(100));
}

#[test]
fn missing_and_repeated_fields_are_named() {
    for (line, name) in [
        ("Via: SIP/2.0/UDP pc33.atlanta.com:5066;branch=z9hG4bK776asdhds;rport\r\n", Name::Via),
        ("To: Bob <sip:bob@biloxi.com>\r\n", Name::To),
        ("From: \"Alice; tag=x\" <sip:alice@atlanta.com>;tag=1928301774\r\n", Name::From),
        ("Call-ID: a84b4c76e66710@pc33.atlanta.com\r\n", Name::CallId),
        ("CSeq: 314159 INVITE\r\n", Name::CSeq),
    ] {
        assert_eq!(fault(&changed(line, "")), Fault::Missing(name));
        let twice = scan(changed(line, &line.repeat(2)).as_bytes()).map(|_| ()).map_err(|e| e.fault);
        assert_eq!(twice, if name == Name::Via { Ok(()) } else { Err(Fault::Repeated(name)) });
    }
    assert_eq!(fault(&changed("Max-Forwards", "l: 5\r\nMax-Forwards")), Fault::Repeated(Name::ContentLength));
}

#[test]
fn malformed_values_are_named_with_their_place() {
    for (from, to, name) in [
        ("SIP/2.0/UDP pc33", "SIP/2.0/UDP;pc33", Name::Via),
        ("SIP/2.0/UDP pc33", "SIP/2.0 pc33", Name::Via),
        (":5066", ":65536", Name::Via),
        (";branch=", ";;branch=", Name::Via),
        (";branch=", ";branch=x;branch=", Name::Via),
        (";branch=z9hG4bK776asdhds", ";branch=\"x\"", Name::Via),
        (";rport", ";rport=x", Name::Via),
        ("pc33.atlanta.com:5066", "[2001:db8::x]", Name::Via),
        ("Bob <sip", "Bob, <sip", Name::To),
        ("Bob <sip", "\"Bob <sip", Name::To),
        ("Bob <sip", "Bob < sip", Name::To),
        ("<sip:bob@biloxi.com>\r\n", "sip:bob@biloxi.com?x=y\r\n", Name::To),
        ("<sip:bob@biloxi.com>\r\n", "<sip:bob@biloxi.com>;\r\n", Name::To),
        (";tag=1928301774", ";tag", Name::From),
        (";tag=1928301774", ";tag=1;tag=1", Name::From),
        (";tag=1928301774", ";tag=\"1\"", Name::From),
        (": a84b4c76e66710@pc33.atlanta.com", ": a@b@c", Name::CallId),
        (": a84b4c76e66710@pc33.atlanta.com", ":", Name::CallId),
        ("314159 INVITE", "2147483648 INVITE", Name::CSeq),
        ("314159 INVITE", "314159INVITE", Name::CSeq),
        ("314159 INVITE", "314159 INVITE x", Name::CSeq),
        ("Forwards: 70", "Forwards: 256", Name::MaxForwards),
        ("Length: 5", "Length: -5", Name::ContentLength),
        ("Length: 5", "Length: 99999999999999999999", Name::ContentLength),
    ] {
        let message = changed(from, to);
        let error = scan(message.as_bytes()).unwrap_err();
        assert_eq!(error.fault, Fault::Value(name), "{to}");
        let line = message[..error.offset].rfind("\r\n").unwrap() + 2;
        assert!(message[line..].starts_with(name.as_str()), "{to}: {error}");
    }
}

#[test]
fn bodies_are_as_long_as_content_length() {
    assert_eq!(scan(changed("Length: 5", "Length: 9").as_bytes()).unwrap().body, b"v=0\r\nmore");
    assert_eq!(fault(&changed("Length: 5", "Length: 10")), Fault::ShortBody);
    assert_eq!(fault(&changed("Length: 5", "Length: 4194305")), Fault::LongBody);
    assert_eq!(scan(changed("Length: 5", "Length: 0").as_bytes()).unwrap().body, b"");
}

#[test]
fn lines_end_with_crlf() {
    assert_eq!(fault(&changed("70\r\n", "70\n")), Fault::LineEnd);
    assert_eq!(fault(&changed("70\r\n", "70\rX: y\r\n")), Fault::LineEnd);
    // A line that begins with white space belongs to Via.
    assert_eq!(fault(&changed("Max-Forwards", " Max-Forwards")), Fault::Value(Name::Via));
    for end in 0..INVITE.len() - 9 {
        assert_eq!(fault(&INVITE[..end]), Fault::UnterminatedHead, "{end}");
    }
}

#[test]
fn limits_hold() {
    let with = |extra: String| changed("Max-Forwards", &format!("{extra}Max-Forwards"));
    let field = |length: usize| with(format!("X: {}\r\n", "y".repeat(length - 3)));
    assert!(scan(field(MAX_FIELD).as_bytes()).is_ok());
    assert_eq!(fault(&field(MAX_FIELD + 1)), Fault::LongField);
    assert_eq!(fault(&with(format!("X:{}\r\n", "\r\n y".repeat(MAX_FIELD / 4)))), Fault::LongField);
    let fields = |count: usize| with("X:\r\n".repeat(count - 9));
    assert!(scan(fields(MAX_FIELDS).as_bytes()).is_ok());
    assert_eq!(fault(&fields(MAX_FIELDS + 1)), Fault::ManyFields);
    let head = with(format!("X: {}\r\n", "y".repeat(16_000)).repeat(5));
    assert_eq!(fault(&head), Fault::LongHead);
    assert_eq!(frame(head.as_bytes()).unwrap_err().fault, Fault::LongHead);
}

#[test]
fn messages_are_found_in_a_stream() {
    let message = &INVITE[..INVITE.len() - 4];
    let stream = format!("{message}\r\n\r\n{message}\r\n");
    let bytes = stream.as_bytes();
    let (mut framer, mut begin, mut found) = (Framer::default(), 0, Vec::new());
    for end in 0..=bytes.len() {
        assert_eq!(frame(&bytes[begin..end]).unwrap(), framer.clone().frame(&bytes[begin..end]).unwrap());
        if let Some(length) = framer.frame(&bytes[begin..end]).unwrap() {
            assert!(scan(&bytes[begin..begin + length]).is_ok());
            begin += length;
            found.push(length);
        }
    }
    assert_eq!(found, [message.len(), message.len() + 4]);
    assert_eq!(leading_crlf(&bytes[begin..]), 2);
    let other = message.replacen("SIP/2.0", "SIP/7.0", 1);
    assert_eq!(frame(other.as_bytes()), Ok(Some(other.len())), "another version");
    let none = changed("Content-Length: 5\r\n", "");
    assert_eq!(frame(none.as_bytes()).unwrap_err().fault, Fault::Missing(Name::ContentLength));
    assert_eq!(frame(&[b'x'; 70_000]).unwrap_err().fault, Fault::LongHead);
}
