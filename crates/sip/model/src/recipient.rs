//! Whose a message is that came to a socket or connection which user agents share.
//!
//! What a user agent sends has its number in it: responses bring its branch back, and requests within a dialog, or for a
//! registration, have its Contact as Request-URI. So neither needs a search. Requests from elsewhere are told apart by their
//! Call-ID.

use crate::config::Config;
use crate::message::{COOKIE, fingerprint, read_branch, read_contact_user};
use memchr::memmem;
use protocol::cause::{Cause, other_protocol};
use protocol::meter::Failure;
use protocol::shared_socket::{Framing, Recipient};
use sip_core::message::{Fields, Name, frame, leading_crlf};

/// Whose `message` is; `own`: a user agent sent it, and it came back.
pub(crate) fn recipient(config: &Config, message: &[u8], own: bool) -> Recipient {
    let message = &message[leading_crlf(message)..];
    // section 7.1: in upper case, and read in any
    if own || message.get(..8).is_some_and(|start| start.eq_ignore_ascii_case(b"SIP/2.0 ")) {
        return response(config, message);
    }
    request(message).unwrap_or(Recipient::Stray)
}

/// What the bytes that came over a shared connection begin with: a message, or keep-alives alone (RFC 5626 section 3.5.1).
pub(crate) fn framing(bytes: &[u8]) -> Framing {
    if leading_crlf(bytes) == bytes.len() {
        return Framing::Message(bytes.len());
    }
    let start = || bytes[..bytes.len().min(60)].escape_ascii().to_string();
    if let Some(name) = other_protocol(bytes) {
        let cause = Cause::named(Failure::Protocol, name);
        return Framing::Foreign(cause, format!("the stream is no SIP: {name}: {}", start()));
    }
    match frame(bytes) {
        Ok(Some(length)) => Framing::Message(length),
        Ok(None) => Framing::Partial,
        Err(why) => {
            Framing::Foreign(Failure::Protocol.into(), format!("the stream is no SIP: {why}: {}", start()))
        }
    }
}

/// The topmost Via of a response to us is ours; the user agent itself checks that it is.
fn response(config: &Config, message: &[u8]) -> Recipient {
    let branch = memmem::find(message, COOKIE).and_then(|at| message.get(at..at + COOKIE.len() + 24));
    match branch.and_then(|branch| read_branch(branch, config.run)) {
        Some((device, _)) => Recipient::Device(device),
        None => Recipient::Stray,
    }
}

fn request(message: &[u8]) -> Option<Recipient> {
    let end = memchr::memchr(b'\n', message)?;
    let line = &message[..end];
    let mut parts = line.split(|byte| *byte == b' ');
    let (method, uri) = (parts.next()?, parts.next()?);
    if let Some(device) = read_contact_user(uri) {
        return Some(Recipient::Device(device));
    }
    let key = fingerprint(call_id(message, end + 1)?);
    Some(match method {
        b"ACK" | b"BYE" | b"CANCEL" | b"PRACK" => Recipient::Known(key),
        _ => Recipient::Free(key),
    })
}

/// The Call-ID of a message whose header fields begin at `fields`.
fn call_id(message: &[u8], fields: usize) -> Option<&[u8]> {
    if let Some(at) = memmem::find(message, b"\r\nCall-ID: ") {
        let rest = &message[at + 11..];
        return Some(rest[..memchr::memchr(b'\r', rest)?].trim_ascii());
    }
    let mut fields = Fields::new(message, fields);
    while let Ok(Some(field)) = fields.next() {
        if field.name == Name::CallId {
            return Some(field.value);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Params;
    use crate::message::branch;
    use protocol::describe::ModelKind;
    use protocol::target::Target;

    fn config() -> Config {
        let scheme = crate::description::SCHEMES[0];
        let target = Target { scheme, host: "h".into(), port: 5060, ipv6: false };
        Params { run: 0xab, ..Params::default() }.compile(&target).expect("good")
    }

    fn of(message: &str) -> Recipient {
        recipient(&config(), message.as_bytes(), false)
    }

    #[test]
    fn a_response_brings_our_branch_back() {
        let with = |run| {
            let mut ours = Vec::new();
            branch(70_000, 3, run, &mut ours);
            format!("SIP/2.0 200 OK\r\nVia: SIP/2.0/UDP h;branch={}\r\n\r\n", String::from_utf8_lossy(&ours))
        };
        assert_eq!(of(&with(0xab)), Recipient::Device(70_000));
        assert_eq!(of(&with(0xab).replacen("SIP", "sip", 1)), Recipient::Device(70_000));
        assert_eq!(of(&with(0xac)), Recipient::Stray, "of another run");
        assert_eq!(of("SIP/2.0 200 OK\r\nVia: SIP/2.0/UDP h;branch=z9hG4bKnd00"), Recipient::Stray);
        let request = with(0xab).replace("SIP/2.0 200 OK", "OPTIONS sip:b@h SIP/2.0");
        assert_eq!(recipient(&config(), request.as_bytes(), true), Recipient::Device(70_000));
    }

    #[test]
    fn a_shared_connection_is_cut_into_messages() {
        let message = b"SIP/2.0 200 OK\r\nContent-Length: 2\r\n\r\nab";
        let twice = [&b"\r\n\r\n"[..], message, message].concat();
        assert_eq!(framing(&twice), Framing::Message(4 + message.len()));
        assert_eq!(framing(&message[..20]), Framing::Partial);
        assert_eq!(framing(&message[..message.len() - 1]), Framing::Partial);
        assert_eq!(framing(b"\r\n\r\n"), Framing::Message(4), "keep-alives");
        let Framing::Foreign(cause, _) = framing(b"HTTP/1.1 400 Bad Request\r\n") else { panic!("no SIP") };
        assert_eq!(cause.kind, Failure::Protocol);
    }

    #[test]
    fn a_request_is_for_our_contact_or_told_by_its_call() {
        let to = |uri: &str, id: &str| of(&format!("INVITE {uri} SIP/2.0\r\nVia: x\r\n{id}\r\n\r\n"));
        assert_eq!(to("sip:nd0000000a@10.0.0.1:5070", "Call-ID: 1"), Recipient::Device(10));
        assert_eq!(to("sips:nd0000000b@[fd00::1]:5070;x=y", "Call-ID: 1"), Recipient::Device(11));
        let key = fingerprint(b"1@h");
        for id in ["Call-ID: 1@h", "call-id:1@h", "i: 1@h"] {
            assert_eq!(to("sip:bob@h", id), Recipient::Free(key), "{id}");
        }
        assert_eq!(of("BYE sip:bob@h SIP/2.0\r\nCall-ID: 1@h\r\n\r\n"), Recipient::Known(key));
        for none in ["sip:ndx000000a@h", "sip:nd0000000a"] {
            assert_eq!(to(none, "Call-ID: 1@h"), Recipient::Free(key), "{none}");
        }
        for stray in ["", "\r\n\r\n", "INVITE\r\n", "INVITE sip:b@h SIP/2.0\r\n\r\n"] {
            assert_eq!(of(stray), Recipient::Stray, "{stray:?}");
        }
    }
}
