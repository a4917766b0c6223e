//! The one pass and the full grammar agree: over what is built, what is arbitrary and what is a message with a few bytes changed.

use proptest::prelude::*;
use sip_core::message::header::{MAGIC_COOKIE, NameAddr, Via};
use sip_core::message::{StartLine, frame};
use sip_core::testing::{agree, same_values};
use sip_core::{Message, Method, Name, Uri, scan};

prop_compose! {
    fn token()(token in "[a-zA-Z0-9.!%*_+`'~-]{1,12}") -> String { token }
}

prop_compose! {
    fn uri()(
        secure in any::<bool>(),
        user in proptest::option::of("[a-z0-9;?&=+$,/%2]{0,3}[a-z0-9.]{1,8}"),
        host in prop_oneof!["[a-z]{1,9}(\\.[a-z]{2,5})?", Just("[2001:db8::1]".to_owned()), Just("192.0.2.1".to_owned())],
        port in proptest::option::of(any::<u16>()),
        tail in prop_oneof![Just(""), Just(";lr"), Just(";transport=tcp;lr"), Just("?a=b&c=")],
    ) -> Uri {
        let user = user.map(|user| user.replace('%', "") + "@").unwrap_or_default();
        let port = port.map(|port| format!(":{port}")).unwrap_or_default();
        let scheme = if secure { "sips" } else { "sip" };
        Uri::parse(&format!("{scheme}:{user}{host}{port}{tail}")).unwrap()
    }
}

prop_compose! {
    fn address()(uri in uri(), name in proptest::option::of("[a-zA-Z ,;<>\"\\\\é@]{1,12}"), odd in proptest::option::of("[ -~]{0,9}"))
        -> NameAddr
    {
        let address = NameAddr::new(uri);
        let address = match name {
            None => address,
            Some(name) => address.with_display_name(name.trim()),
        };
        match odd {
            None => address,
            Some(odd) => address.with("x", Some(&odd)),
        }
    }
}

prop_compose! {
    fn message()(
        start in prop_oneof![
            (token(), uri()).prop_map(|(method, mut uri)| {
                // A Request-URI has no header fields.
                if let Uri::Sip(sip) = &mut uri {
                    sip.headers.clear();
                }
                Message::request(Method::of(&method), &uri)
            }),
            (100_u16..700, "[ -~é]{0,20}").prop_map(|(code, reason)| {
                let reason = reason.trim().to_owned();
                Message { start: StartLine::Response { code, reason }, headers: Vec::new(), body: Vec::new() }
            }),
        ],
        from in address(), to in address(), contact in proptest::option::of(address()),
        (tag, branch, id, host) in (token(), token(), token(), proptest::option::of(token())),
        (transport, rport, number) in (token(), proptest::option::of(any::<Option<u16>>()), 0_u32..1 << 31),
        numbers in proptest::collection::vec((0_usize..4, any::<u32>()), 0..4),
        others in proptest::collection::vec((token(), "[!-~]{0,20}"), 0..4),
        body in proptest::collection::vec(any::<u8>(), 0..40),
        front in any::<bool>(),
    ) -> Message {
        let mut message = start;
        let mut via = Via::new(&transport, "192.0.2.9", Some(5070), &format!("{MAGIC_COOKIE}{branch}"));
        if let Some(rport) = rport {
            via.params.set("rport", rport.map(|port| port.to_string()).as_deref());
        }
        let method = message.method().cloned().unwrap_or(Method::Invite);
        let id = host.map(|host| format!("{id}@{host}")).unwrap_or(id);
        message.push(Name::From, from.with("tag", Some(&tag)));
        message.push(Name::To, to);
        message.push(Name::CSeq, format!("{number} {method}"));
        message.push(Name::CallId, id);
        if let Some(contact) = contact {
            message.push(Name::Contact, contact);
        }
        for (which, number) in numbers {
            let name = [Name::Expires, Name::MinExpires, Name::RSeq, Name::RetryAfter][which];
            message.set(name, number.max(1));
        }
        for (name, value) in others {
            if Name::of(name.as_bytes()) == Name::Other {
                message.push_named(&name, value);
            }
        }
        if front {
            message.push_front(Name::Via, via);
        } else {
            message.push(Name::Via, via);
        }
        message.set_body("application/octet-stream", body);
        message
    }
}

/// A message, and places where bytes of it are replaced.
fn mutated() -> impl Strategy<Value = Vec<u8>> {
    let corpus: Vec<Vec<u8>> = std::fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/rfc4475"))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "dat"))
        .map(|path| std::fs::read(path).unwrap())
        .collect();
    let pieces: Vec<&'static [u8]> = vec![
        b"",
        b"\r\n",
        b"\r",
        b"\n",
        b" ",
        b"\t",
        b"\r\n ",
        b";",
        b",",
        b":",
        b"<",
        b">",
        b"\"",
        b"\\",
        b"=",
        b"@",
        b"?",
        b"/",
        b"\0",
        b"\xff",
        "é".as_bytes(),
        b"9",
        b"4294967296",
        b";tag=1",
        b";rport",
        b";rport=1",
        b";branch=x",
        b";received=::1",
        b"\r\nVia: SIP/2.0/UDP h",
        b"\r\nCSeq: 1 INVITE",
        b"\r\nl: 0",
        b"\r\nExpires: 1",
        b"\r\nRetry-After: 1 (a)",
        b"\r\nm: *",
        b"\r\nContact: \"a,\\\"\" <sip:a,b@c>, <sip:d>",
        b"\r\nRSeq: 0",
        b"[::1]",
        b"%41",
        b"a",
    ];
    let change = (any::<proptest::sample::Index>(), 0_usize..3, proptest::sample::select(pieces));
    let base =
        prop_oneof![proptest::sample::select(corpus), message().prop_map(|message| message.to_bytes())];
    (base, proptest::collection::vec(change, 1..5)).prop_map(|(mut bytes, changes)| {
        for (at, cut, piece) in changes {
            let at = at.index(bytes.len() + 1);
            let end = (at + cut).min(bytes.len());
            bytes.splice(at..end, piece.iter().copied());
        }
        bytes
    })
}

proptest! {
    #[test]
    fn what_is_built_is_read_alike(message in message()) {
        let bytes = message.to_bytes();
        let scanned = scan(&bytes).unwrap();
        let read = Message::parse(&bytes).unwrap();
        same_values(&scanned, &message);
        same_values(&scanned, &read);
        prop_assert_eq!(read.to_bytes(), bytes.clone());
        prop_assert_eq!(Message::parse(&message.to_compact_bytes()).unwrap().to_bytes(), bytes.clone());
        prop_assert_eq!(frame(&bytes), Ok(Some(bytes.len())));
        prop_assert_eq!(frame(&bytes[..bytes.len() - 1]), Ok(None));
    }

    #[test]
    fn changed_messages_are_read_alike(bytes in mutated()) {
        agree(&bytes);
        let _ = frame(&bytes);
    }

    #[test]
    fn arbitrary_bytes_are_read_alike(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        agree(&bytes);
        let _ = frame(&bytes);
    }
}
