use super::*;
use proptest::prelude::*;

fn read(bytes: &[u8]) -> Result<Message<'_>, MalformedMessage> {
    Message::parse(Header::parse(bytes)?, bytes)
}

fn bytes(hex: &str) -> Vec<u8> {
    let digits: Vec<u8> = hex.bytes().filter(u8::is_ascii_hexdigit).collect();
    let digit = |d: u8| (d as char).to_digit(16).expect("a digit") as u8;
    digits.chunks(2).map(|pair| digit(pair[0]) << 4 | digit(pair[1])).collect()
}

const GET: Code = Code::of(0, 1);
const CONTENT: Code = Code::of(2, 5);

/// RFC 7252 appendix A, figures 16 and 17.
#[test]
fn the_examples_of_the_rfc() {
    for (token, request, response) in [
        (&[][..], "40 01 7d34 bb 74656d7065726174757265", "60 45 7d34 ff 32322e332043"),
        (&[0x20][..], "41 01 7d35 20 bb 74656d7065726174757265", "61 45 7d35 20 ff 32322e332043"),
    ] {
        let id = 0x7d34 + token.len() as u16;
        let mut out = Vec::new();
        let mut writer = Writer::begin(&mut out, MessageType::Con, GET, id, token);
        writer.option(URI_PATH, b"temperature");
        writer.payload(|_| {});
        assert_eq!(out, bytes(request));
        let response = bytes(response);
        let read = read(&response).expect("a response");
        assert_eq!(
            read.header,
            Header { kind: MessageType::Ack, token: token.len() as u8, code: CONTENT, id }
        );
        assert_eq!((read.token, read.payload), (token, &b"22.3 C"[..]));
        assert_eq!(read.options, Options::default());
        assert_eq!(read.header.code.to_string(), "2.05");
    }
}

/// RFC 7959 section 2.2, and the blocks of its figures: NUM/M/size.
#[test]
fn blocks_are_number_more_and_size() {
    for (value, number, more, size) in [
        ("", 0, false, 16),
        ("06", 0, false, 1024),
        ("0b", 0, true, 128),
        ("22", 2, false, 64),
        ("5a", 5, true, 64),
        ("0416", 65, false, 1024),
        ("fffff8", Block::NUMBER_MAX, true, 16),
    ] {
        let value = bytes(value);
        let block = Block::parse(&value).expect("a block");
        assert_eq!((block.number, block.more, block.size()), (number, more, size));
        assert_eq!(u64::from(block.offset()), u64::from(number) * size as u64);
        assert_eq!(Block::at(block.offset(), more, block.szx), block);
        let mut out = Vec::new();
        Writer { out: &mut out, last: BLOCK2 }.uint(BLOCK2, block.value());
        assert_eq!(out[1..], value[..]);
    }
    assert_eq!(Block::parse(&[0; 4]), None);
}

#[test]
fn what_a_client_needs_is_taken_in_one_pass() {
    // ETag, Observe 0x0100, Content-Format 0, Max-Age 60, Block2 0/1/64, Block1 1/0/16, Size2
    let message = bytes("60 45 0001 42abcd 220100 60 213c 910a 4110 1100 ff 31");
    let read = read(&message).expect("a response");
    assert_eq!(read.options.etag, Some(&[0xab, 0xcd][..]));
    assert_eq!((read.options.observe, read.options.max_age), (Some(256), Some(60)));
    assert_eq!(read.options.block2, Some(Block { number: 0, more: true, szx: 2 }));
    assert_eq!(read.options.block1, Some(Block { number: 1, more: false, szx: 0 }));
    assert_eq!((read.options.unrecognized, read.payload), (None, &b"1"[..]));
}

#[test]
fn what_is_no_message_says_why() {
    for (hex, why) in [
        ("60", MalformedMessage::Short(1)),
        ("60450001".split_at(6).0, MalformedMessage::Short(3)),
        ("20450001", MalformedMessage::Version(0)),
        ("a0450001", MalformedMessage::Version(2)),
        ("69450001 000000000000000000", MalformedMessage::Token(9)),
        ("6f450001 ", MalformedMessage::Token(15)),
        ("62450001 01", MalformedMessage::Truncated),
        ("60250001", MalformedMessage::Code(Code::of(1, 5))),
        ("60650001", MalformedMessage::Code(Code::of(3, 5))),
        ("60e50001", MalformedMessage::Code(Code::of(7, 5))),
        ("60000001 00", MalformedMessage::NotEmpty),
        ("61000001 aa", MalformedMessage::NotEmpty),
        ("60450001 41", MalformedMessage::Truncated),
        ("60450001 d0", MalformedMessage::Truncated),
        ("60450001 e000", MalformedMessage::Truncated),
        ("60450001 0d", MalformedMessage::Truncated),
        ("60450001 0e00", MalformedMessage::Truncated),
        ("60450001 0eff00 aa", MalformedMessage::Truncated),
        ("60450001 f0", MalformedMessage::Reserved),
        ("60450001 0f", MalformedMessage::Reserved),
        ("60450001 e0ffff", MalformedMessage::OptionNumber),
        ("60450001 e0fef2 10", MalformedMessage::OptionNumber),
        ("60450001 ff", MalformedMessage::NoPayload),
        ("60450001 40 ff", MalformedMessage::NoPayload),
    ] {
        assert_eq!(read(&bytes(hex)), Err(why), "{hex}");
    }
    assert!(read(&bytes("60450001 e0fef2")).is_ok(), "65535 is the last option number");
    assert!(read(&bytes("68450001 0102030405060708")).is_ok(), "eight bytes are the longest token");
}

#[test]
fn what_is_not_known_is_elective_or_critical() {
    let unrecognized = |hex: &str| read(&bytes(hex)).expect(hex).options.unrecognized;
    // 8 (Location-Path), 28 (Size2), 65534: elective
    assert_eq!(unrecognized("60450001 8161 d107 01 e0fed5"), None);
    // 9 and, behind it, 65535: critical, the first is told
    assert_eq!(unrecognized("60450001 90 e0fee9"), Some(9));
    // options of a request have no meaning in a response: Uri-Path
    assert_eq!(unrecognized("60450001 b161"), Some(URI_PATH));
    // Block2 with four bytes, and twice
    assert_eq!(unrecognized("60450001 d40a00000000"), Some(BLOCK2));
    assert_eq!(unrecognized("60450001 d10a00 0100"), Some(BLOCK2));
    // Echo with no byte, and 41 (RFC 9175 section 2.2.1): passed over
    let echo = |len: usize| {
        let mut out = Vec::new();
        Writer::begin(&mut out, MessageType::Non, CONTENT, 1, &[]).option(ECHO, &vec![7; len]);
        read(&out).expect("a message").options.echo.map(<[u8]>::len)
    };
    assert_eq!([0, 1, 40, 41].map(echo), [None, Some(1), Some(40), None]);
    // ETag with nine bytes, Observe with four, Max-Age with five: passed over
    let options = "60450001 49000000000000000000 2400000000 850000000000";
    assert_eq!(read(&bytes(options)).expect("a message").options, Options::default());
}

proptest! {
    #[test]
    fn nothing_breaks_the_parser(data in prop::collection::vec(any::<u8>(), 0..200)) {
        let _fine = read(&data);
        let mut data = data;
        if data.len() >= HEADER {
            data[0] = 0x60;
            data[1] = 0x45;
            let _fine = read(&data);
        }
    }

    #[test]
    fn what_is_written_is_read(
        id: u16, token in prop::collection::vec(any::<u8>(), 0..=TOKEN_MAX),
        etag in prop::collection::vec(any::<u8>(), 1..=8), observe in 0u32..1 << 24, max_age: u32,
        number in 0..=Block::NUMBER_MAX, more: bool, szx in 0u8..7, unknown in 0u16..500,
        long in 0usize..1000, payload in prop::collection::vec(any::<u8>(), 0..100),
    ) {
        let unread = vec![7; long];
        let mut out = vec![1, 2, 3];
        let mut writer = Writer::begin(&mut out, MessageType::Non, CONTENT, id, &token);
        writer.option(ETAG, &etag);
        writer.uint(OBSERVE, observe);
        writer.uint(MAX_AGE, max_age);
        let block = Block { number, more, szx };
        writer.uint(BLOCK2, block.value());
        writer.uint(BLOCK1, block.value());
        writer.option(100 + unknown, &unread);
        writer.payload(|out| out.extend_from_slice(&payload));
        let read = read(&out[3..]).expect("our own");
        prop_assert_eq!(read.header, Header { kind: MessageType::Non, token: token.len() as u8, code: CONTENT, id });
        prop_assert_eq!((read.token, read.payload), (&token[..], &payload[..]));
        prop_assert_eq!(read.options, Options {
            observe: Some(observe),
            etag: Some(&etag),
            max_age: Some(max_age),
            block1: Some(block),
            block2: Some(block),
            echo: (100 + unknown == ECHO && matches!(long, 1..=ECHO_MAX)).then_some(&unread[..]),
            unrecognized: (unknown & 1 == 1).then_some(100 + unknown),
        });
    }
}
