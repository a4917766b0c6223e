//! A received request, as its responses need it.

use super::reliable::names_100rel;
use crate::message::fingerprint;
use crate::method::Method;
use crate::transaction::Server;
use protocol::template::decimal;
use protocol::time::Time;
use sip_core::message::{Fields, Name, Scanned};
use std::io::Write;
use std::net::{IpAddr, SocketAddr};

/// A received request, with the header fields that its responses repeat (section 8.2.6.2).
/// `source`: who sent it, where that is known; `to`: who that is, if not the server.
pub(super) fn server(
    bytes: &[u8],
    message: &Scanned<'_>,
    method: Method,
    source: Option<SocketAddr>,
    to: Option<SocketAddr>,
) -> Server {
    let call = fingerprint(message.call_id);
    let branch = fingerprint(message.via.branch.unwrap_or_default());
    let mut head = Vec::with_capacity(message.header_end.min(1024) + 40);
    let (mut bindings, mut reliable_asked, mut topmost) = (Vec::new(), false, true);
    let mut fields = Fields::new(bytes, message.fields);
    while let Ok(Some(field)) = fields.next() {
        match (method, field.name) {
            // section 10.3: the 200 to a registration names its bindings
            (Method::Register, Name::Contact | Name::Expires) => {
                bindings.extend_from_slice(field.name.as_str().as_bytes());
                bindings.extend_from_slice(b": ");
                bindings.extend_from_slice(field.value);
                bindings.extend_from_slice(b"\r\n");
            }
            (Method::Invite, Name::Supported | Name::Require) => {
                reliable_asked |= names_100rel(field.value);
            }
            _ => {}
        }
        if matches!(field.name, Name::Via | Name::RecordRoute | Name::From | Name::CallId | Name::CSeq) {
            head.extend_from_slice(field.name.as_str().as_bytes());
            head.extend_from_slice(b": ");
            match source.filter(|_| field.name == Name::Via && std::mem::take(&mut topmost)) {
                Some(source) => write_via(field.value, message, source, &mut head),
                None => head.extend_from_slice(field.value),
            }
            head.extend_from_slice(b"\r\n");
        }
    }
    // at the end, so that our tag can follow
    head.extend_from_slice(b"To: ");
    head.extend_from_slice(message.to.value);
    Server {
        method,
        cseq: message.cseq.number,
        call,
        branch,
        to,
        head: head.into(),
        tagged: message.to_tag.is_some(),
        bindings: bindings.into(),
        reliable_asked,
        rseq: 0,
        described: false,
        response: Box::default(),
        status: 0,
        resend: Time::NEVER,
        wait: std::time::Duration::ZERO,
        expires: Time::NEVER,
        answered: Time::ZERO,
    }
}

/// Append the topmost Via with the address that the request came from (RFC 3261 section 18.2.1), and the port where it asks
/// for that (RFC 3581 section 4).
fn write_via(value: &[u8], message: &Scanned<'_>, source: SocketAddr, out: &mut Vec<u8>) {
    let top = value.iter().position(|byte| *byte == b',').unwrap_or(value.len());
    let asked = message.via.rport == Some(None);
    let host = std::str::from_utf8(message.via.host).unwrap_or_default();
    let same = host.trim_matches(['[', ']']).parse::<IpAddr>() == Ok(source.ip());
    let place = top_rport(&value[..top]).filter(|_| asked);
    out.extend_from_slice(&value[..place.map_or(top, |place| place)]);
    if asked || !same {
        // writing into a vector cannot fail
        drop(write!(out, ";received={}", source.ip()));
    }
    if let Some(place) = place {
        out.extend_from_slice(b";rport=");
        decimal(source.port().into(), out);
        out.extend_from_slice(&value[place + RPORT.len()..top]);
    }
    out.extend_from_slice(&value[top..]);
}

const RPORT: &[u8] = b";rport";

/// Where a Via has `;rport`.
fn top_rport(value: &[u8]) -> Option<usize> {
    let ends = |at: usize| value.get(at).is_none_or(|byte| matches!(byte, b';' | b' ' | b'\t' | b','));
    let is = |(at, part): (usize, &[u8])| {
        (part.eq_ignore_ascii_case(RPORT) && ends(at + RPORT.len())).then_some(at)
    };
    value.windows(RPORT.len()).enumerate().find_map(is)
}

#[cfg(test)]
mod tests {
    use super::*;
    use sip_core::message::scan;

    #[test]
    fn a_response_says_where_its_request_came_from() {
        let of = |via: &str| {
            let text = format!(
                "OPTIONS sip:a@h SIP/2.0\r\nVia: {via}\r\nVia: SIP/2.0/UDP z;branch=z9hG4bKz;rport\r\nFrom: <sip:b@h>;tag=1\r\n\
                 To: <sip:a@h>\r\nCall-ID: 1\r\nCSeq: 1 OPTIONS\r\n\r\n"
            );
            let message = scan(text.as_bytes()).expect("a request");
            let source = "10.0.0.9:5070".parse().ok();
            let head = server(text.as_bytes(), &message, Method::Options, source, None).head;
            let head = String::from_utf8(head.into()).expect("text");
            assert!(head.contains("\r\nVia: SIP/2.0/UDP z;branch=z9hG4bKz;rport\r\n"), "{head}");
            head.lines().next().unwrap_or_default().trim_start_matches("Via: SIP/2.0/UDP ").to_owned()
        };
        assert_eq!(of("SIP/2.0/UDP 10.0.0.9:9;branch=z9hG4bK1"), "10.0.0.9:9;branch=z9hG4bK1");
        assert_eq!(of("SIP/2.0/UDP h:9;branch=z9hG4bK1"), "h:9;branch=z9hG4bK1;received=10.0.0.9");
        assert_eq!(
            of("SIP/2.0/UDP 10.0.0.9:9;RPORT;branch=z9hG4bK1, SIP/2.0/UDP y"),
            "10.0.0.9:9;received=10.0.0.9;rport=5070;branch=z9hG4bK1, SIP/2.0/UDP y"
        );
        assert_eq!(
            of("SIP/2.0/UDP h;branch=z9hG4bK1;rport"),
            "h;branch=z9hG4bK1;received=10.0.0.9;rport=5070"
        );
        assert_eq!(
            of("SIP/2.0/UDP h;branch=z9hG4bK1;rport=7"),
            "h;branch=z9hG4bK1;rport=7;received=10.0.0.9"
        );
    }
}
