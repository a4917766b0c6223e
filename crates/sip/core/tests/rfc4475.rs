//! The torture messages of RFC 4475, bit by bit as in its archive, and what each is read as.
//!
//! Messages whose problem is one of transactions or elements (an unknown scheme, an unknown content type, Max-Forwards of zero)
//! are well formed here: the grammar allows them.

use sip_core::message::header::Contact;
use sip_core::message::header::{Date, Warning, parse};
use sip_core::message::{CSeq, Start};
use sip_core::{Fault, Message, Name, Uri, scan};

macro_rules! message {
    ($name:literal) => {
        include_bytes!(concat!("rfc4475/", $name, ".dat")).as_slice()
    };
}

/// Reads what both ways accept.
fn both(bytes: &[u8]) -> (Message, sip_core::Scanned<'_>) {
    (Message::parse(bytes).unwrap(), scan(bytes).unwrap())
}

macro_rules! well_formed {
    ($($test:ident $name:literal $section:literal $why:literal;)*) => {$(
        #[doc = concat!("Section ", $section, ": ", $why)]
        #[test]
        fn $test() {
            let (message, scanned) = both(message!($name));
            let again = Message::parse(&message.to_bytes()).unwrap();
            assert_eq!(again.to_bytes(), message.to_bytes());
            assert_eq!(message.call_id().unwrap().as_bytes(), scanned.call_id);
            let compact = message.to_compact_bytes();
            assert_eq!(Message::parse(&compact).unwrap().to_bytes(), message.to_bytes());
        }
    )*};
}

well_formed! {
    wsinv "wsinv" "3.1.1.1" "folds, white space, compact names and odd case everywhere";
    intmeth "intmeth" "3.1.1.2" "every character that may stand somewhere does";
    esc01 "esc01" "3.1.1.3" "escapes in URIs";
    escnull "escnull" "3.1.1.4" "escaped NULs in URIs";
    esc02 "esc02" "3.1.1.5" "percent signs that are no escapes, in a method and a name";
    lwsdisp "lwsdisp" "3.1.1.6" "no white space between display name and bracket";
    longreq "longreq" "3.1.1.7" "long values";
    dblreq "dblreq" "3.1.1.8" "a second request behind the first in one datagram is ignored";
    semiuri "semiuri" "3.1.1.9" "a semicolon in the user part";
    transports "transports" "3.1.1.10" "transports known and unknown";
    mpart01 "mpart01" "3.1.1.11" "a multipart body with octets of any value";
    unreason "unreason" "3.1.1.12" "a reason phrase that is not ASCII";
    noreason "noreason" "3.1.1.13" "an empty reason phrase";
    badbranch "badbranch" "3.2.1" "a branch that is the cookie and no more: a transaction's matter";
    unkscm "unkscm" "3.3.2" "a Request-URI of an unknown scheme";
    novelsc "novelsc" "3.3.3" "a Request-URI of a known scheme that is not SIP's";
    unksm2 "unksm2" "3.3.4" "unknown schemes in From, To and Contact";
    bext01 "bext01" "3.3.5" "unknown options in Require and Proxy-Require";
    invut "invut" "3.3.6" "an unknown content type";
    regaut01 "regaut01" "3.3.7" "an unknown authorization scheme";
    bcast "bcast" "3.3.10" "a response with a broadcast address in Via";
    zeromf "zeromf" "3.3.11" "Max-Forwards of zero";
    cparam01 "cparam01" "3.3.12" "an unknown parameter of Contact";
    cparam02 "cparam02" "3.3.13" "an unknown parameter of a URI in Contact";
    regescrt "regescrt" "3.3.14" "an escaped Route in a URI of Contact";
    sdp01 "sdp01" "3.3.15" "an Accept without application/sdp";
    inv2543 "inv2543" "3.4.1" "a request of RFC 2543: no branch, no tag, no Content-Length";
}

/// Malformed for both ways: section, name, message, and every fault that the grammar finds. The one pass reports the first.
#[test]
fn malformed_for_both() {
    use Fault::{MethodMismatch, Missing, Repeated, Value};
    let cases: &[(&str, &str, &[u8], &[Fault])] = &[
        ("3.1.2.1", "badinv01", message!("badinv01"), &[Value(Name::Via), Value(Name::Contact)]),
        ("3.1.2.3", "ncl", message!("ncl"), &[Value(Name::ContentLength)]),
        (
            "3.1.2.4",
            "scalar02",
            message!("scalar02"),
            &[Value(Name::CSeq), Value(Name::MaxForwards), Value(Name::Expires), Value(Name::Contact)],
        ),
        (
            "3.1.2.5",
            "scalarlg",
            message!("scalarlg"),
            &[Value(Name::CSeq), Value(Name::RetryAfter), Value(Name::Warning)],
        ),
        ("3.1.2.6", "quotbal", message!("quotbal"), &[Value(Name::To)]),
        ("3.1.2.14", "badaspec", message!("badaspec"), &[Value(Name::To)]),
        ("3.1.2.15", "baddn", message!("baddn"), &[Value(Name::From), Value(Name::To)]),
        ("3.1.2.17", "mismatch01", message!("mismatch01"), &[MethodMismatch]),
        ("3.1.2.18", "mismatch02", message!("mismatch02"), &[MethodMismatch]),
        (
            "3.3.1",
            "insuf",
            message!("insuf"),
            &[Missing(Name::From), Missing(Name::To), Missing(Name::CallId)],
        ),
        (
            "3.3.8",
            "multi01",
            message!("multi01"),
            &[
                Repeated(Name::CSeq),
                Repeated(Name::CallId),
                Repeated(Name::To),
                Repeated(Name::From),
                Repeated(Name::MaxForwards),
            ],
        ),
        ("3.3.9", "mcl01", message!("mcl01"), &[Repeated(Name::ContentLength)]),
    ];
    for (section, name, bytes, expected) in cases {
        let faults: Vec<_> = Message::read(bytes).unwrap().faults().iter().map(|error| error.fault).collect();
        assert_eq!(faults, *expected, "{section} {name}");
        assert_eq!(scan(bytes).unwrap_err().fault, expected[0], "{section} {name}");
    }
}

/// Messages that cannot be split into header fields and body.
#[test]
fn unreadable_for_both() {
    for (section, bytes, expected) in [
        ("3.1.2.2, Content-Length is larger than the datagram", message!("clerr"), Fault::ShortBody),
        ("3.1.2.7, the Request-URI is in angle brackets", message!("ltgtruri"), Fault::RequestUri),
        ("3.1.2.8, white space in the Request-URI", message!("lwsruri"), Fault::StartLine),
        ("3.1.2.9, two spaces in the request line", message!("lwsstart"), Fault::RequestUri),
        ("3.1.2.10, spaces at the end of the request line", message!("trws"), Fault::StartLine),
        ("3.1.2.16, version 7.0", message!("badvers"), Fault::Version),
        ("3.1.2.19, a status code of 4294967301", message!("bigcode"), Fault::StatusCode),
    ] {
        assert_eq!(Message::read(bytes).unwrap_err().fault, expected, "{section}");
        assert_eq!(scan(bytes).unwrap_err().fault, expected, "{section}");
    }
    // Of the first the head is readable, so that it can be refused with a response.
    let (head, body) = Message::read_head(message!("clerr")).unwrap();
    let refusal = Message::response(&head, 400, "Bad Request", Some("t"));
    assert_eq!((refusal.faults(), head.get::<u32>(Name::ContentLength)), (Vec::new(), Ok(Some(9_999))));
    assert!(message!("clerr")[body..].starts_with(b"v=0"));
}

/// Malformed in a place that the one pass does not read: differences that `scan` documents.
#[test]
fn malformed_where_the_one_pass_does_not_look() {
    for (section, bytes, expected) in [
        ("3.1.2.11, header fields in the Request-URI", message!("escruri"), Fault::RequestUri),
        ("3.1.2.12, a Date that is not GMT", message!("baddate"), Fault::Value(Name::Date)),
        ("3.1.2.13, a question mark without brackets", message!("regbadct"), Fault::Value(Name::Contact)),
    ] {
        let faults: Vec<_> = Message::read(bytes).unwrap().faults().iter().map(|error| error.fault).collect();
        assert_eq!(faults, [expected], "{section}");
        assert!(scan(bytes).is_ok(), "{section}");
    }
}

#[test]
fn values_of_the_short_tortuous_invite() {
    let (message, scanned) = both(message!("wsinv"));
    let start = Start::Request { method: b"INVITE", uri: b"sip:vivekg@chair-dnrc.example.com;unknownparam" };
    assert_eq!(scanned.start, start);
    assert_eq!((scanned.from_tag, scanned.to_tag), (Some(&b"98asjd8"[..]), Some(&b"1918181833n"[..])));
    assert_eq!(scanned.cseq, CSeq { number: 9, method: b"INVITE" });
    assert_eq!((scanned.max_forwards, scanned.content_length), (Some(68), Some(150)));
    assert_eq!((scanned.via.host, scanned.via.branch), (&b"192.0.2.2"[..], Some(&b"390skdjuw"[..])));
    assert_eq!(scanned.body.len(), 150);

    assert_eq!(message.from().unwrap().display_text().as_deref(), Some("J Rosenberg \\\""));
    assert_eq!(message.values(Name::Subject).collect::<Vec<_>>(), [""]);
    let vias = message.all::<sip_core::message::header::Via>(Name::Via).unwrap();
    let hosts: Vec<_> = vias.iter().map(|via| (via.transport.as_str(), via.host.as_str())).collect();
    assert_eq!(hosts, [("UDP", "192.0.2.2"), ("TCP", "spindle.example.com"), ("UDP", "192.168.255.111")]);
    let other: Vec<_> = message.headers.iter().filter(|header| header.name == Name::Other).collect();
    assert_eq!(other[0].value, "newfangled value continued newfangled value");
    assert_eq!(other[1].value, ";;,,;;,;");
    let contact = message.contacts().unwrap();
    let Contact::Address(address) = &contact[0] else { panic!("{contact:?}") };
    assert_eq!(address.display_text().as_deref(), Some("Quoted string \"\""));
    assert_eq!(address.params.get("newparam"), Some("newvalue"));
    assert!(address.params.has("secondparam"));
}

#[test]
fn values_of_others() {
    let (message, scanned) = both(message!("intmeth"));
    assert_eq!(scanned.from_tag, Some(&b"_token~1'+`*%!-."[..]));
    let from = message.from().unwrap();
    assert_eq!(from.params.get("fromParam''~+*_!.-%"), Some("работающий"));
    assert_eq!(from.display.as_deref(), Some("token1~` token2'+_ token3*%!.-"));
    assert_eq!(message.to().unwrap().display_text().as_deref(), Some("BEL:\u{7} NUL:\0 DEL:\u{7f}"));

    let (message, _) = both(message!("esc01"));
    let uri = message.uri().unwrap();
    assert_eq!(uri.sip().unwrap().user.as_deref(), Some("sips%3Auser%40example.com"));
    let contact = message.contacts().unwrap()[0].address().unwrap().uri.clone();
    let same = Uri::parse("sip:caller@host5.example.net;lr;name=value%25%34%31").unwrap();
    assert!(contact.equivalent(&same), "{contact}");

    let (message, scanned) = both(message!("dblreq"));
    assert_eq!((message.body.len(), scanned.body.len()), (0, 0));

    let (message, _) = both(message!("esc02"));
    assert_eq!(message.contacts().unwrap().len(), 2, "C%6Fntact is another name");

    let (message, scanned) = both(message!("unreason"));
    assert_eq!(scanned.code(), message.code());
    let Start::Response { reason, .. } = scanned.start else { panic!() };
    assert_eq!(std::str::from_utf8(reason), Ok("= 2**3 * 5**2 но сто девяносто девять - простое"));

    assert_eq!(parse::<Date>("Fri, 01 Jan 2010 16:00:00 EST"), None);
    assert_eq!(parse::<Warning>("1812 overture \"In Progress\""), None);
}
