//! For tests and fuzz targets: comparison of the one-pass scan and the full grammar.

use crate::message::header::{Contact, parse};
use crate::message::{Fault, Message, Name, Scanned, Start, StartLine, scan};
use crate::uri::Uri;

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Without white space: a fold in a value that one gives as written is a space in the other.
fn dense(value: &str) -> String {
    value.split_ascii_whitespace().collect()
}

/// Both accept or both refuse, but for what `scan` documents; what both give is the same.
pub fn agree(bytes: &[u8]) {
    match (scan(bytes), Message::read(bytes)) {
        (Err(_), Err(_)) => {}
        (Err(error), Ok(message)) => {
            let faults = message.faults();
            let known = faults.iter().any(|fault| fault.fault == error.fault);
            assert!(known, "{error:?} {faults:?} {:?}", text(bytes));
        }
        (Ok(_), Err(error)) => assert_eq!(error.fault, Fault::Utf8, "{:?}", text(bytes)),
        (Ok(scanned), Ok(message)) => {
            for fault in message.faults() {
                assert!(documented(fault.fault, &scanned, &message), "{fault:?} {:?}", text(bytes));
            }
            same_values(&scanned, &message);
        }
    }
}

fn documented(fault: Fault, scanned: &Scanned<'_>, message: &Message) -> bool {
    let malformed = |uri: &[u8]| Uri::parse(&text(uri)).is_none();
    match fault {
        Fault::RequestUri => true,
        Fault::Value(Name::Via) => message.top_via().is_ok(),
        Fault::Value(Name::From) => malformed(scanned.from.uri),
        Fault::Value(Name::To) => malformed(scanned.to.uri),
        Fault::Value(name) => !matches!(
            name,
            Name::CallId
                | Name::CSeq
                | Name::MaxForwards
                | Name::Expires
                | Name::MinExpires
                | Name::ContentLength
                | Name::RSeq
        ),
        Fault::Repeated(name) => !matches!(
            name,
            Name::From
                | Name::To
                | Name::CallId
                | Name::CSeq
                | Name::MaxForwards
                | Name::Expires
                | Name::MinExpires
                | Name::ContentLength
                | Name::RSeq
                | Name::RetryAfter
                | Name::ContentType
        ),
        _ => false,
    }
}

/// Both have the same values.
pub fn same_values(scanned: &Scanned<'_>, message: &Message) {
    match (&scanned.start, &message.start) {
        (Start::Request { method, uri }, StartLine::Request { method: other, uri: other_uri }) => {
            assert_eq!((text(method).as_str(), &text(uri)), (other.as_str(), other_uri));
        }
        (Start::Response { code, reason }, StartLine::Response { code: other, reason: other_reason }) => {
            assert_eq!((code, &text(reason)), (other, other_reason));
        }
        other => panic!("{other:?}"),
    }
    assert_eq!(text(scanned.call_id), message.call_id().expect("there is a Call-ID"));
    let cseq = message.cseq().expect("there is a CSeq");
    assert_eq!(
        (scanned.cseq.number, text(scanned.cseq.method).as_str()),
        (cseq.number, cseq.method.as_str())
    );
    let (one, via) = (&scanned.via, message.top_via().expect("there is a Via"));
    assert_eq!(
        (text(one.transport), text(one.host), one.port),
        (via.transport.clone(), via.host.clone(), via.port)
    );
    assert_eq!(one.branch.map(text).as_deref(), via.branch());
    assert_eq!(one.received.map(text).as_deref(), via.params.get("received"));
    assert_eq!(one.rport, via.rport());
    for (party, tag, read) in
        [(&scanned.from, scanned.from_tag, message.from()), (&scanned.to, scanned.to_tag, message.to())]
    {
        if let Ok(read) = read {
            assert_eq!(Uri::parse(&text(party.uri)), Some(read.uri.clone()));
            assert_eq!(tag.map(text).as_deref(), read.tag());
        }
    }
    let number = |name| message.get::<u32>(name).ok().flatten();
    assert_eq!(scanned.max_forwards.map(u32::from), number(Name::MaxForwards));
    assert_eq!(scanned.expires, number(Name::Expires));
    assert_eq!(scanned.min_expires, number(Name::MinExpires));
    assert_eq!(scanned.content_length, number(Name::ContentLength));
    assert_eq!(scanned.rseq, number(Name::RSeq));
    assert_eq!(text(scanned.body), text(&message.body));
    assert_eq!(scanned.record_route, message.values(Name::RecordRoute).next().is_some());
    let first = |name| message.values(name).next().map(dense);
    assert_eq!(scanned.require.map(|value| dense(&text(value))), first(Name::Require));
    assert_eq!(scanned.content_type.map(|value| dense(&text(value))), first(Name::ContentType));
    assert_eq!(scanned.authorization.map(|value| dense(&text(value))), first(Name::Authorization));
    for (challenges, name) in [
        (&scanned.www_authenticate, Name::WwwAuthenticate),
        (&scanned.proxy_authenticate, Name::ProxyAuthenticate),
    ] {
        let values: Vec<_> = challenges.as_slice().iter().map(|value| dense(&text(value))).collect();
        assert_eq!(values, message.values(name).take(4).map(dense).collect::<Vec<_>>());
    }
    if let Ok(contacts) = message.contacts() {
        let one = scanned
            .contact
            .map(|value| parse::<Contact>(&text(value)).expect("it is the first of a valid list"));
        let written = |contact: &Contact| dense(&contact.to_string());
        assert_eq!(one.as_ref().map(written), contacts.first().map(written));
    }
}
