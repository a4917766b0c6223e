use super::*;
use proptest::prelude::*;

fn audio() -> Audio {
    Audio {
        host: "192.0.2.1".to_owned(),
        port: 4_000,
        codecs: vec![Codec::pcmu(), Codec::pcma()],
        telephone_event: Some(101),
        ptime: Some(20),
        direction: Direction::SendRecv,
        crypto: Vec::new(),
    }
}

fn with(media: &str) -> Session {
    let text = format!("v=0\no=a 1 2 IN IP4 h\ns=x\nc=IN IP4 192.0.2.9\nt=0 0\n{media}");
    Session::parse(text.as_bytes()).unwrap_or_else(|error| panic!("{error}: {text}"))
}

#[test]
fn offers_are_written() {
    let text = offer(&audio(), 7, 1).to_string();
    assert_eq!(
        text,
        "v=0\r\no=- 7 1 IN IP4 192.0.2.1\r\ns=-\r\nc=IN IP4 192.0.2.1\r\nt=0 0\r\nm=audio 4000 RTP/AVP 0 8 101\r\n\
         a=rtpmap:0 PCMU/8000\r\na=rtpmap:8 PCMA/8000\r\na=rtpmap:101 telephone-event/8000\r\na=fmtp:101 0-15\r\n\
         a=ptime:20\r\na=sendrecv\r\n"
    );
    assert_eq!(Session::parse(text.as_bytes()), Ok(offer(&audio(), 7, 1)));
    let ipv6 = offer(&Audio { host: "2001:db8::1".to_owned(), ..audio() }, 7, 1).to_string();
    assert!(ipv6.contains("o=- 7 1 IN IP6 2001:db8::1\r\n") && ipv6.contains("c=IN IP6 2001:db8::1\r\n"));
}

#[test]
fn offers_are_answered() {
    let theirs = with(
        "m=video 5 RTP/AVP 31\nm=audio 6 RTP/SAVP 0\nm=audio 7000 RTP/AVP 18 8 0 96\na=rtpmap:96 Telephone-Event/8000\n\
         a=ptime:30\na=sendonly\nm=audio 8 RTP/AVP 0\nm=image 9 udptl t38\n",
    );
    let (session, agreed) = answer(&theirs, &audio(), 3, 1).unwrap();
    let lines: Vec<_> = session.media.iter().map(|media| (media.kind.as_str(), media.port)).collect();
    assert_eq!(lines, [("video", 0), ("audio", 0), ("audio", 4_000), ("audio", 0), ("image", 0)]);
    assert_eq!(session.media[2].formats, ["8", "96"]);
    assert_eq!(session.media[4].formats, ["t38"]);
    assert_eq!(session.media[2].direction, Some(Direction::RecvOnly));
    assert_eq!((agreed.host.as_str(), agreed.port, agreed.rtcp_port), ("192.0.2.9", 7_000, 7_001));
    assert_eq!((agreed.codec, agreed.telephone_event, agreed.ptime), (Codec::pcma(), Some(96), Some(30)));
    assert_eq!((agreed.send, agreed.receive), (false, true));
}

/// RFC 3264 section 6.1: offered, wanted, answered.
#[test]
fn directions_fit() {
    use Direction::{Inactive, RecvOnly, SendOnly, SendRecv};
    for (offered, wanted, answered) in [
        (SendRecv, SendRecv, SendRecv),
        (SendRecv, SendOnly, SendOnly),
        (SendRecv, Inactive, Inactive),
        (SendOnly, SendRecv, RecvOnly),
        (SendOnly, SendOnly, Inactive),
        (RecvOnly, SendRecv, SendOnly),
        (RecvOnly, RecvOnly, Inactive),
        (Inactive, SendRecv, Inactive),
    ] {
        let ours = Audio { direction: offered, ..audio() };
        let made = offer(&ours, 1, 1);
        let (session, theirs) = answer(&made, &Audio { direction: wanted, ..audio() }, 1, 1).unwrap();
        assert_eq!(session.media[0].direction, Some(answered), "{offered:?} {wanted:?}");
        let agreed = check_answer(&made, &ours, &session).unwrap();
        assert_eq!((agreed.send, agreed.receive), (theirs.receive, theirs.send), "{offered:?} {wanted:?}");
    }
    let made = offer(&Audio { direction: SendOnly, ..audio() }, 1, 1);
    let wrong = offer(&audio(), 1, 1);
    assert_eq!(check_answer(&made, &audio(), &wrong), Err(NegotiationError::Direction));
    let hold = with("m=audio 5 RTP/AVP 0\nc=IN IP4 0.0.0.0\n");
    let (session, agreed) = answer(&hold, &audio(), 1, 1).unwrap();
    assert_eq!((session.media[0].direction, agreed.send), (Some(RecvOnly), false), "hold as RFC 2543 has it");
    let session = with("a=inactive\nm=audio 5 RTP/AVP 0\n");
    assert_eq!(session.direction(&session.media[0]), Inactive, "the session's");
}

#[test]
fn no_agreement() {
    let fails = |media: &str| answer(&with(media), &audio(), 1, 1).map(|_| ()).unwrap_err();
    assert_eq!(fails(""), NegotiationError::NoAudio);
    assert_eq!(fails("m=video 5 RTP/AVP 31\n"), NegotiationError::NoAudio);
    assert_eq!(fails("m=audio 0 RTP/AVP 0\n"), NegotiationError::NoAudio);
    assert_eq!(fails("m=audio 5 RTP/AVP 9 18 97\n"), NegotiationError::NoCodec);
    assert_eq!(
        fails("m=audio 5 RTP/AVP 0\na=rtpmap:0 PCMU/16000\n"),
        NegotiationError::NoCodec,
        "the mapping counts"
    );
    let made = offer(&audio(), 1, 1);
    let check = |media: &str| check_answer(&made, &audio(), &with(media)).map(|_| ()).unwrap_err();
    assert_eq!(check(""), NegotiationError::MediaCount);
    assert_eq!(check("m=video 5 RTP/AVP 0\n"), NegotiationError::MediaChanged);
    assert_eq!(check("m=audio 0 RTP/AVP 0\n"), NegotiationError::NoAudio);
    assert_eq!(check("m=audio 5 RTP/AVP 9\n"), NegotiationError::NoCodec);
}

#[test]
fn ports_of_rtcp() {
    let port = |lines: &str| {
        answer(&with(&format!("m=audio 5 RTP/AVP 0\n{lines}")), &audio(), 1, 1).unwrap().1.rtcp_port
    };
    assert_eq!((port(""), port("a=rtcp:53020 IN IP4 h\n"), port("a=rtcp-mux\n")), (6, 53_020, 6));
}

#[test]
fn malformed_descriptions_are_refused() {
    let good = "v=0\r\no=a 1 2 IN IP4 h\r\ns=\r\nc=IN IP4 h\r\nt=0 0\r\nm=audio 5 RTP/AVP 0\r\na=rtpmap:0 PCMU/8000\r\n";
    assert!(Session::parse(good.as_bytes()).is_ok());
    for (from, to, fault, line) in [
        ("v=0", "v=1", SdpFault::Version, 1),
        ("v=0\r\n", "", SdpFault::Version, 1),
        ("s=\r\n", "s\r\n", SdpFault::Line, 3),
        ("s=\r\n", "\r\n", SdpFault::Line, 3),
        ("s=\r\n", "v=0\r\n", SdpFault::Version, 3),
        ("s=\r\n", "", SdpFault::Session, 0),
        ("t=0 0\r\n", "", SdpFault::Session, 0),
        ("s=\r\n", "s=\r\ns=\r\n", SdpFault::Session, 4),
        ("a 1 2", "a 1 -2", SdpFault::Origin, 2),
        ("a 1 2", "a 1 +2", SdpFault::Origin, 2),
        ("IP4 h\r\ns", "IP5 h\r\ns", SdpFault::Origin, 2),
        ("c=IN IP4 h", "c=IN IP4", SdpFault::Connection, 4),
        ("c=IN IP4 h", "c=IN IP4 ::1", SdpFault::Connection, 4),
        ("c=IN IP4 h\r\n", "", SdpFault::NoConnection, 0),
        ("audio 5", "audio 65536", SdpFault::Media, 6),
        ("AVP 0", "AVP", SdpFault::Media, 6),
        ("AVP 0", "AVP 128", SdpFault::Media, 6),
        ("AVP 0", "AVP x", SdpFault::Media, 6),
        ("PCMU/8000", "PCMU", SdpFault::Attribute, 7),
        ("rtpmap:0", "rtpmap:x", SdpFault::Attribute, 7),
        ("rtpmap:0 PCMU/8000", "ptime:x", SdpFault::Attribute, 7),
        ("rtpmap:0 PCMU/8000", "rtcp:70000", SdpFault::Attribute, 7),
    ] {
        assert!(good.contains(from), "{from}");
        let text = good.replacen(from, to, 1);
        assert_eq!(Session::parse(text.as_bytes()), Err(SdpError { fault, line }), "{to}");
    }
    let fault = |text: String| Session::parse(text.as_bytes()).unwrap_err().fault;
    let media = "m=audio 5 RTP/AVP 0\r\n";
    assert!(Session::parse((good.to_owned() + &media.repeat(MAX_MEDIA - 1)).as_bytes()).is_ok());
    assert_eq!(fault(good.to_owned() + &media.repeat(MAX_MEDIA)), SdpFault::ManyMedia);
    assert_eq!(
        fault(good.replace("AVP 0", &format!("AVP{}", " 0".repeat(MAX_FORMATS + 1)))),
        SdpFault::ManyFormats
    );
    assert_eq!(fault(good.to_owned() + &"a=fmtp:0 x\r\n".repeat(MAX_FORMATS)), SdpFault::ManyFormats);
    assert_eq!(fault(format!("{good}a={}", "x".repeat(MAX_LENGTH))), SdpFault::Long);
    assert_eq!(Session::parse(b"v=0\r\n\xff").unwrap_err().fault, SdpFault::Utf8);
}

/// Another implementation reads the same.
fn witness(written: &Session) {
    let text = written.to_string();
    let read = webrtc_sdp::parse_sdp(&text, true).unwrap_or_else(|error| panic!("{error}: {text}"));
    let origin = read.get_origin();
    assert_eq!((origin.session_id, origin.session_version), (written.id, written.version));
    assert_eq!(read.media.len(), written.media.len());
    for (read, written) in read.media.iter().zip(&written.media) {
        assert_eq!(read.get_port(), u32::from(written.port));
        assert_eq!(read.get_formats().to_string(), written.formats.join(" "));
        let maps = read.get_attributes_of_type(webrtc_sdp::attribute_type::SdpAttributeType::Rtpmap);
        assert_eq!(maps.len(), written.rtpmaps.len());
    }
}

proptest! {
    /// Written descriptions are read back, by this and by another implementation.
    #[test]
    fn descriptions_are_read_alike(
        (port, id, version) in (1_u16.., any::<u64>(), any::<u64>()),
        host in prop_oneof![Just("192.0.2.1"), Just("2001:db8::1")],
        codecs in proptest::sample::subsequence(vec![Codec::pcmu(), Codec::pcma()], 1..=2),
        event in proptest::option::of(96_u8..128),
        ptime in proptest::option::of(10_u32..60),
        (direction, wanted) in (0_usize..4, 0_usize..4),
    ) {
        let directions = [Direction::SendRecv, Direction::SendOnly, Direction::RecvOnly, Direction::Inactive];
        let direction = directions[direction];
        let ours = Audio { host: host.to_owned(), port, codecs, telephone_event: event, ptime, direction, crypto: Vec::new() };
        let made = offer(&ours, id, version);
        let text = made.to_string();
        prop_assert_eq!(Session::parse(text.as_bytes()), Ok(made.clone()));
        witness(&made);

        let (session, theirs) = answer(&made, &Audio { direction: directions[wanted], ..audio() }, 1, 1).unwrap();
        let text = session.to_string();
        prop_assert_eq!(Session::parse(text.as_bytes()), Ok(session.clone()));
        witness(&session);
        let agreed = check_answer(&made, &ours, &session).unwrap();
        prop_assert_eq!(&agreed.codec, &theirs.codec);
        prop_assert_eq!((agreed.send, agreed.receive), (theirs.receive, theirs.send));
        prop_assert_eq!(agreed.telephone_event, event);
    }

    #[test]
    fn arbitrary_descriptions_are_survived(text in "(v=0\n)?(o=a 1 2 IN IP4 h\n)?(([vosctma]=[ -~]{0,20}|a=rtpmap:[0-9]{1,3} [a-z/0-9]{1,8}|m=audio [0-9]{1,5} RTP/AVP( [0-9]{1,3}){1,3})\r?\n){0,8}") {
        if let Ok(session) = Session::parse(text.as_bytes()) {
            let written = session.to_string();
            prop_assert_eq!(Session::parse(written.as_bytes()).map(|again| again.to_string()), Ok(written));
            let _ = answer(&session, &audio(), 1, 1);
        }
    }
}

fn crypto(tag: u32, suite: &str, byte: u8) -> Crypto {
    Crypto { tag, suite: suite.to_owned(), key: vec![byte; 30] }
}

/// Audio over SRTP of a side whose keys are all `byte`.
fn protected(byte: u8) -> Audio {
    let suites = ["AES_CM_128_HMAC_SHA1_80", "AES_CM_128_HMAC_SHA1_32"];
    Audio { crypto: (1..).zip(suites).map(|(tag, suite)| crypto(tag, suite, byte)).collect(), ..audio() }
}

#[test]
fn keys_are_offered_and_answered_with_the_tag_of_the_line_that_is_taken() {
    let made = offer(&protected(1), 7, 1);
    let text = made.to_string();
    let line = "a=crypto:1 AES_CM_128_HMAC_SHA1_80 inline:AQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEB\r\n";
    assert!(text.contains("m=audio 4000 RTP/SAVP 0 8 101\r\n") && text.contains(line), "{text}");
    assert_eq!(Session::parse(text.as_bytes()), Ok(made.clone()));
    let mut only = protected(2);
    only.crypto.remove(0);
    only.crypto[0].tag = 9;
    let (answered, theirs) = answer(&made, &only, 1, 1).unwrap();
    let short = |byte| crypto(2, "AES_CM_128_HMAC_SHA1_32", byte);
    assert_eq!(answered.media[0].crypto, [short(2)]);
    assert_eq!(theirs.crypto, Some((short(2), short(1))));
    let ours = check_answer(&made, &protected(1), &answered).unwrap();
    assert_eq!(ours.crypto, Some((short(1), short(2))));
}

#[test]
fn audio_without_srtp_or_a_common_suite_is_no_agreement() {
    let key = "AQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEB";
    let line = |tag: u32, suite: &str| format!("m=audio 5 RTP/SAVP 0\na=crypto:{tag} {suite} inline:{key}\n");
    let fails = |media: &str| answer(&with(media), &protected(1), 1, 1).map(|_| ()).unwrap_err();
    assert_eq!(fails("m=audio 5 RTP/AVP 0\n"), NegotiationError::Unprotected);
    assert_eq!(fails("m=audio 5 RTP/SAVP 0\n"), NegotiationError::NoSuite);
    assert_eq!(fails(&line(1, "F8_128_HMAC_SHA1_80")), NegotiationError::NoSuite);
    assert_eq!(fails("m=audio 5 UDP/TLS/RTP/SAVP 0\n"), NegotiationError::NoAudio);
    let both = format!("m=audio 5 RTP/AVP 0\n{}", line(4, "AES_CM_128_HMAC_SHA1_80"));
    assert!(answer(&with(&both), &protected(1), 1, 1).is_ok(), "the second medium fits");
    assert_eq!(answer(&with(&line(1, "X")), &audio(), 1, 1).map(|_| ()), Err(NegotiationError::NoAudio));
    let made = offer(&protected(1), 1, 1);
    let check = |media: &str| check_answer(&made, &protected(1), &with(media)).map(|_| ());
    assert_eq!(check("m=audio 5 RTP/AVP 0\n"), Err(NegotiationError::Unprotected));
    assert_eq!(check(&line(2, "AES_CM_128_HMAC_SHA1_80")), Err(NegotiationError::NoSuite), "another's tag");
    assert_eq!(check("m=audio 5 RTP/SAVP 0\n"), Err(NegotiationError::NoSuite));
    assert_eq!(check(&line(1, "AES_CM_128_HMAC_SHA1_80")), Ok(()));
    assert_eq!(check("m=audio 0 RTP/SAVP 0\n"), Err(NegotiationError::NoAudio));
}
