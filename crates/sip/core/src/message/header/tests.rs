use super::*;
use crate::method::Method;

fn round<T: Value>(text: &str) -> T {
    let value: T = parse(text).unwrap_or_else(|| panic!("{text}"));
    assert_eq!(value.to_string(), text);
    value
}

fn refused<T: Value>(texts: &[&str]) {
    for text in texts {
        assert!(parse::<T>(text).is_none(), "{text}");
    }
}

#[test]
fn addresses() {
    let plain: NameAddr = round("<sip:a@b;lr>;tag=1;x");
    assert_eq!((plain.tag(), plain.params.get("x"), plain.params.has("X")), (Some("1"), None, true));
    let quoted: NameAddr = round(r#""A \"b\", c" <sip:a@b>"#);
    assert_eq!(quoted.display_text().as_deref(), Some(r#"A "b", c"#));
    let tokens: NameAddr = round("T. A. Watson <sip:a@b>");
    assert_eq!(tokens.display_text().as_deref(), Some("T. A. Watson"));
    let bare: NameAddr = parse("sip:a@b ; tag = 1").unwrap();
    assert_eq!(bare.to_string(), "<sip:a@b>;tag=1");
    assert_eq!(parse::<NameAddr>("\"\"<sip:a@b>").unwrap().display_text().as_deref(), Some(""));
    let built = NameAddr::new(crate::uri::Uri::parse("sip:a@b").unwrap())
        .with_display_name("Ü \"x\"")
        .with("tag", Some("1 2"));
    assert_eq!(built.to_string(), r#""Ü \"x\"" <sip:a@b>;tag="1 2""#);
    refused::<NameAddr>(&[
        "",
        "<sip:a@b",
        "\"a <sip:a@b>",
        "a, b <sip:a@b>",
        "< sip:a@b>",
        "<a>",
        "<sip:a@b>;",
        "sip:a@b?c=d",
    ]);
}

#[test]
fn contacts() {
    assert_eq!(parse::<Contact>("*"), Some(Contact::All));
    let list: Vec<Contact> = parse_list("\"a,b\" <sip:a,c;d@b>;q=0.7;expires=3, sip:c@d").unwrap();
    assert_eq!((list.len(), list[0].expires(), list[1].expires()), (2, Some(3), None));
    for (params, valid) in [
        ("q=0", true),
        ("q=1.000", true),
        ("q=0.123", true),
        ("q=1.1", false),
        ("q=2", false),
        ("q", false),
        ("expires=4294967295", true),
        ("expires=4294967296", false),
        ("expires", false),
    ] {
        let contact: Contact = parse(&format!("<sip:a>;{params}")).unwrap();
        assert_eq!(contact.valid(), valid, "{params}");
    }
}

#[test]
fn vias() {
    let via: Via = round("SIP/2.0/UDP [::1]:5060;branch=z9hG4bK1;rport");
    assert_eq!((via.branch(), via.rport(), via.unique_branch()), (Some("z9hG4bK1"), Some(None), true));
    let list: Vec<Via> = parse_list("SIP / 2.0 / TCP a : 1 ;received=::1;rport=9 , SIP/2.0/TLS b").unwrap();
    assert_eq!((list[0].rport(), list[0].port, list[0].unique_branch()), (Some(Some(9)), Some(1), false));
    assert_eq!(list[1].to_string(), "SIP/2.0/TLS b");
    assert_eq!(Via::new("UDP", "h", None, "z9hG4bK").to_string(), "SIP/2.0/UDP h;branch=z9hG4bK");
    assert!(!Via::new("UDP", "h", None, "z9hG4bK").unique_branch());
    refused::<Via>(&[
        "",
        "SIP/2.0 UDP h",
        "SIP/2.0/UDPh",
        "SIP/2.0/UDP h:",
        "SIP/2.0/UDP h;rport=+1",
        "SIP/2.0/UDP h;rport=70000",
        "SIP/2.0/UDP h;branch=1;branch=1",
        "SIP/2.0/UDP h;branch",
        "SIP/2.0/UDP h;received=\"x\"",
        "SIP/2.0/UDP h;rport;rport",
    ]);
}

#[test]
fn sequences_and_timers() {
    assert_eq!(round::<CSeq>("1 X").method, Method::Other("X".into()));
    let rack: RAck = round("776656 1 INVITE");
    assert_eq!((rack.rseq, rack.cseq.number), (776_656, 1));
    refused::<RAck>(&["0 1 INVITE", "1 INVITE", "11 INVITE", "1 1"]);
    let session: SessionExpires = round("4000;refresher=uac");
    assert_eq!(session, SessionExpires::new(4_000, Some(Refresher::Uac)));
    assert_eq!(parse::<SessionExpires>("90;Refresher=UAS").unwrap().refresher(), Some(Refresher::Uas));
    let retry: RetryAfter = round("18000 (a (b) \\) c);duration=3600");
    assert_eq!((retry.seconds, retry.comment.as_deref()), (18_000, Some("a (b) \\) c")));
    refused::<RetryAfter>(&["x", "1 (a", "1 (a))", "4294967296"]);
    refused::<u32>(&["", "-1", "1.", "4294967296", "99999999999"]);
}

#[test]
fn events_warnings_types() {
    assert_eq!(round::<Event>("refer;id=93809824").id(), Some("93809824"));
    let state: SubscriptionState = round("Terminated;reason=noresource");
    assert!(state.terminated() && state.expires().is_none());
    let list: Vec<Warning> = parse_list("307 isi.edu:5060 \"a, \\\"b\", 301 [::1] \"c\"").unwrap();
    assert_eq!((list[0].code, list[0].agent.as_str(), list[1].text.as_str()), (307, "isi.edu:5060", "c"));
    refused::<Warning>(&["1812 a \"b\"", "12 a \"b\"", "301 a b", "301 \"b\""]);
    let media: MediaType = round("Application/SDP;charset=\"utf-8\"");
    assert!(media.is("application", "sdp"));
    let tokens: Vec<Token> = parse_list("a , b,c").unwrap();
    assert_eq!(tokens.len(), 3);
    assert!(parse_list::<Token>("a,,b").is_none() && parse_list::<Token>("a,").is_none());
}

#[test]
fn dates() {
    for (text, unix) in [
        ("Sat, 13 Nov 2010 23:29:00 GMT", 1_289_690_940),
        ("Thu, 01 Jan 1970 00:00:00 GMT", 0),
        ("Tue, 29 Feb 2000 12:00:00 GMT", 951_825_600),
        ("Wed, 31 Dec 1969 23:59:59 GMT", -1),
    ] {
        assert_eq!(round::<Date>(text).unix, unix);
    }
    refused::<Date>(&[
        "Sun, 13 Nov 2010 23:29:00 GMT",
        "Sat, 13 Nov 2010 23:29:00 EST",
        "Sat, 13 Nov 2010 24:29:00 GMT",
        "Fri, 30 Feb 2001 12:00:00 GMT",
        "sat, 13 nov 2010 23:29:00 GMT",
        "Sat, 13 Nov 10 23:29:00 GMT",
        "",
    ]);
}
