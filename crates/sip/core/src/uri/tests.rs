use super::*;

fn uri(text: &str) -> Uri {
    Uri::parse(text).unwrap_or_else(|| panic!("{text}"))
}

#[test]
fn parts_are_read_and_written_as_they_were() {
    for text in [
        "sip:alice@atlanta.com",
        "sip:alice:secretword@atlanta.com;transport=tcp",
        "sips:alice@atlanta.com?subject=project%20x&priority=urgent",
        "sip:+1-212-555-1212:1234@gateway.com;user=phone",
        "sips:1212@gateway.com",
        "sip:alice@192.0.2.4",
        "sip:atlanta.com;method=REGISTER?to=alice%40atlanta.com",
        "sip:alice;day=tuesday@atlanta.com",
        "sip:[2001:db8::9:1]:5070;lr",
        "sip:a:@h",
        "sip:h?a=",
        "tel:+1-201-555-0123",
        "tel:7042;phone-context=example.com",
        "tel:863-1234;phone-context=+1-914-555",
        "urn:service:sos",
        "soap.beep://192.0.2.103:3002",
    ] {
        assert_eq!(uri(text).to_string(), text);
    }
    let full = uri("SIPS:a;b:c@H:1;lr;x=y?d=e");
    let sip = full.sip().unwrap();
    assert!(sip.secure && sip.loose_router() && sip.param("X") == Some(Some("y")));
    assert_eq!((sip.user.as_deref(), sip.password.as_deref()), (Some("a;b"), Some("c")));
    assert_eq!((sip.host.as_str(), sip.port), ("H", Some(1)));
}

#[test]
fn malformed_uris_are_refused() {
    for text in [
        "",
        "sip",
        "sip:",
        ":a",
        "1sip:a",
        "sip:@h",
        "sip:a@",
        "sip:a@b@c",
        "sip:a b@c",
        "sip:a%4@c",
        "sip:a%zz@c",
        "sip:h:65536",
        "sip:h:",
        "sip:h;",
        "sip:h;;a",
        "sip:h;a=",
        "sip:h;=a",
        "sip:h?",
        "sip:h?a",
        "sip:h?=b",
        "sip:h?a=b&",
        "sip:h;a=1;A=2",
        "sip:[::1",
        "sip:[::g]",
        "sip:h;a=<",
        "sip:é@h",
        "tel:",
        "tel:+",
        "tel:123",
        "tel:+12a",
        "tel:12;phone-context",
    ] {
        assert_eq!(Uri::parse(text), None, "{text}");
    }
}

/// The examples of RFC 3261 section 19.1.4, and more.
#[test]
fn equivalence() {
    for (a, b) in [
        ("sip:%61lice@atlanta.com;transport=TCP", "sip:alice@AtlanTa.CoM;Transport=tcp"),
        ("sip:carol@chicago.com", "sip:carol@chicago.com;newparam=5"),
        ("sip:carol@chicago.com;security=on", "sip:carol@chicago.com;newparam=5"),
        (
            "sip:biloxi.com;transport=tcp;method=REGISTER?to=sip:bob%40biloxi.com",
            "sip:biloxi.com;method=REGISTER;transport=tcp?to=sip:bob%40biloxi.com",
        ),
        (
            "sip:alice@atlanta.com?subject=project%20x&priority=urgent",
            "sip:alice@atlanta.com?priority=urgent&subject=project%20x",
        ),
        ("sip:a%3bb@c", "sip:a%3Bb@c"),
        ("tel:+1-201-555-0123", "tel:+1(201)5550123"),
        ("tel:7042;phone-context=Example.com;x=1", "tel:70-42;x=1;phone-context=example.com"),
    ] {
        assert!(uri(a).equivalent(&uri(b)) && uri(b).equivalent(&uri(a)), "{a} {b}");
    }
    for (a, b) in [
        ("SIP:ALICE@AtLanTa.CoM;Transport=udp", "sip:alice@AtLanTa.CoM;Transport=UDP"),
        ("sip:bob@biloxi.com", "sip:bob@biloxi.com:5060"),
        ("sip:bob@biloxi.com", "sip:bob@biloxi.com;transport=udp"),
        ("sip:bob@biloxi.com", "sip:bob@biloxi.com:6000;transport=tcp"),
        ("sip:carol@chicago.com", "sip:carol@chicago.com?Subject=next%20meeting"),
        ("sip:bob@phone21.boxesbybob.com", "sip:bob@192.0.2.4"),
        ("sip:carol@chicago.com;security=on", "sip:carol@chicago.com;security=off"),
        ("sip:a@b", "sips:a@b"),
        ("sip:a@b", "sip:a:@b"),
        ("sip:a%3Bb@c", "sip:a;b@c"),
        ("sip:b;lr", "sip:b;lr=on"),
        ("sip:b?a=1&a=1", "sip:b?a=1&a=2"),
        ("tel:+1", "tel:+1;ext=2"),
        ("tel:+1", "sip:+1@h"),
        ("urn:a", "urn:b"),
    ] {
        assert!(!uri(a).equivalent(&uri(b)) && !uri(b).equivalent(&uri(a)), "{a} {b}");
    }
}
