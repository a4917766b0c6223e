//! The dialog of a user agent (RFC 3261 section 12).

use crate::agent::SessionClock;
use protocol::time::Time;
use sip_core::message::header::Refresher;
use sip_core::message::{Fields, Name};

/// A dialog, or a call that is to become one: what requests within it are made from.
#[derive(Debug, Default)]
pub(crate) struct Dialog {
    pub call_id: Box<[u8]>,
    /// Our side and the other, as From and To have them, with their tags.
    pub local: Box<[u8]>,
    pub remote: Box<[u8]>,
    /// Remote target; empty until the other side has told its Contact.
    pub target: Box<[u8]>,
    /// Route header fields, ready to send.
    pub routes: Box<[u8]>,
    /// Authorization header fields of our last INVITE, which its ACK repeats (section 22.1).
    pub credentials: Box<[u8]>,
    /// CSeq of our last request in it.
    pub cseq: u32,
    /// CSeq of the last request of the other side.
    pub remote_cseq: u32,
    /// CSeq of our last INVITE, which its ACK has too.
    pub invite_cseq: u32,
    /// When our INVITE was due, where we asked for it: a session that is completed counts to the phase of that time.
    pub asked: Option<Time>,
    /// Whether the other side's tag is known.
    pub confirmed: bool,
    /// Whether a session is up: a 2xx to INVITE has been sent or received.
    pub session: bool,
    /// The connection that the session was set up over is gone, or its server was left: who takes its BYE may not know it.
    pub cut: bool,
    /// Its session timer, and what the last INVITE or UPDATE of the other side said of it, until that is answered.
    pub clock: Option<SessionClock>,
    pub interval_asked: Option<(u32, Option<Refresher>)>,
}

/// Where the URI of an address is between angle brackets: behind `<`, and at `>`. Those in quotes, of a display name or of a
/// parameter as `+sip.instance="<urn:uuid:…>"`, are others.
fn brackets(address: &[u8]) -> Option<(usize, usize)> {
    let (mut quoted, mut escaped) = (false, false);
    let open = address.iter().position(|byte| {
        let is_open = *byte == b'<' && !quoted;
        if *byte == b'"' && !escaped {
            quoted = !quoted;
        }
        escaped = quoted && *byte == b'\\' && !escaped;
        is_open
    })?;
    let close = open + address[open..].iter().position(|byte| *byte == b'>')?;
    Some((open + 1, close))
}

/// The URI of a Contact, `<sip:a@b;transport=tcp>;expires=60` or `sip:a@b`.
pub(crate) fn contact_uri(contact: &[u8]) -> &[u8] {
    match brackets(contact) {
        Some((from, to)) => &contact[from..to],
        // section 20.10: without brackets the parameters are the header field's
        None => contact.split(|b| *b == b';').next().unwrap_or_default().trim_ascii(),
    }
}

/// What stands behind the URI of an address: its parameters, from a `;` on.
pub(crate) fn parameters(address: &[u8]) -> &[u8] {
    match brackets(address) {
        Some((_, to)) => &address[to + 1..],
        None => address,
    }
}

/// Route header fields of a dialog: the Record-Routes of the message whose header fields begin at `fields`; the one who
/// sent the request takes them in reverse (section 12.1.2).
pub(crate) fn routes(bytes: &[u8], fields: usize, reversed: bool) -> Box<[u8]> {
    let mut all: Vec<&[u8]> = Vec::new();
    let mut read = Fields::new(bytes, fields);
    while let Ok(Some(field)) = read.next() {
        if field.name == Name::RecordRoute {
            all.extend(values(field.value));
        }
    }
    if reversed {
        all.reverse();
    }
    let mut out = Vec::new();
    for route in all {
        out.extend_from_slice(b"Route: ");
        out.extend_from_slice(route);
        out.extend_from_slice(b"\r\n");
    }
    out.into()
}

/// The values of a header field, which commas part that stand neither in quotes nor in brackets.
pub(crate) fn values(value: &[u8]) -> impl Iterator<Item = &[u8]> {
    let (mut quoted, mut bracketed) = (false, false);
    value
        .split(move |byte| {
            match byte {
                b'"' if !bracketed => quoted = !quoted,
                b'<' if !quoted => bracketed = true,
                b'>' if !quoted => bracketed = false,
                _ => {}
            }
            *byte == b',' && !quoted && !bracketed
        })
        .map(<[u8]>::trim_ascii)
        .filter(|route| !route.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_contact_is_its_uri() {
        for (contact, uri) in [
            ("<sip:a@b;transport=tcp>;expires=60", "sip:a@b;transport=tcp"),
            ("\"A\" <sip:a@b>", "sip:a@b"),
            ("sip:a@b;expires=60", "sip:a@b"),
            ("sip:a@b", "sip:a@b"),
            // RFC 5626: user agents with an instance have brackets in a parameter, too
            ("<sip:a@b>;+sip.instance=\"<urn:uuid:7ba1>\"", "sip:a@b"),
            ("sip:a@b;+sip.instance=\"<urn:uuid:7ba1>\"", "sip:a@b"),
            ("\"<A\\\" >\" <sip:a@b>;+sip.instance=\"<urn:uuid:7ba1>\"", "sip:a@b"),
            ("<sip:a@b", "<sip:a@b"),
        ] {
            assert_eq!(contact_uri(contact.as_bytes()), uri.as_bytes(), "{contact}");
        }
    }

    #[test]
    fn parameters_are_behind_the_uri() {
        for (address, behind) in [
            (
                "<sip:a@b;x=1>;tag=2;+sip.instance=\"<urn:uuid:7ba1>\"",
                ";tag=2;+sip.instance=\"<urn:uuid:7ba1>\"",
            ),
            ("\"<\" <sip:a@b>;tag=2", ";tag=2"),
            ("sip:a@b;tag=2", "sip:a@b;tag=2"),
        ] {
            assert_eq!(parameters(address.as_bytes()), behind.as_bytes());
        }
    }

    #[test]
    fn routes_are_reversed_for_the_caller() {
        let message = b"SIP/2.0 200 OK\r\nRecord-Route: <sip:p2;lr>, <sip:p1;lr;a=\"1,2\">\r\nVia: x\r\nRecord-Route: <sip:p0;lr>\r\n\r\n";
        let text = |reversed| String::from_utf8(routes(message, 16, reversed).into()).expect("text");
        assert_eq!(
            text(false),
            "Route: <sip:p2;lr>\r\nRoute: <sip:p1;lr;a=\"1,2\">\r\nRoute: <sip:p0;lr>\r\n"
        );
        assert_eq!(
            text(true),
            "Route: <sip:p0;lr>\r\nRoute: <sip:p1;lr;a=\"1,2\">\r\nRoute: <sip:p2;lr>\r\n"
        );
    }
}
