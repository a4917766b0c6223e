use super::super::property::{PropertyType, Value, property_type, put, written as properties};
use super::*;
use proptest::prelude::*;

const V3: Version = Version::V311;
const V5: Version = Version::V5;

fn read(version: Version, bytes: &[u8]) -> Result<Packet<'_>> {
    let framed = frame(bytes, REMAINING_MAX)?.expect("a whole packet");
    assert_eq!(framed.len, bytes.len());
    parse(version, &framed)
}

fn written(version: Version, packet: &Packet<'_>) -> Vec<u8> {
    let mut out = Vec::new();
    packet.emit(version, &mut out);
    out
}

/// Bytes, and how they read. Both ways.
fn golden(version: Version, bytes: &[u8], text: &str) {
    let packet = read(version, bytes).expect(text);
    assert_eq!(packet.to_string(), text);
    assert_eq!(written(version, &packet), bytes, "{text}");
}

#[test]
fn packets_look_as_the_standard_shows_them() {
    // 3.1.1, figure 3.6 with client "a"
    golden(
        V3,
        b"\x10\x16\x00\x04MQTT\x04\xce\x00\x0a\x00\x01a\x00\x00\x00\x00\x00\x01u\x00\x00",
        "CONNECT \"a\" keep=10 clean will= q1 user=u",
    );
    golden(V3, b"\x20\x02\x01\x00", "CONNACK session");
    golden(V3, b"\x20\x02\x00\x05", "CONNACK code=0x05");
    // 3.1.1, figure 3.11: topic "a/b", packet 10
    golden(V3, b"\x32\x07\x00\x03a/b\x00\x0a", "PUBLISH q1 #10 a/b ");
    golden(V3, b"\x3d\x09\x00\x03a/b\x00\x0ahi", "PUBLISH q2 #10 dup retain a/b hi");
    golden(V3, b"\x40\x02\x12\x34", "PUBACK #4660");
    golden(V3, b"\x50\x02\x00\x01", "PUBREC #1");
    golden(V3, b"\x62\x02\x00\x01", "PUBREL #1");
    golden(V3, b"\x70\x02\x00\x01", "PUBCOMP #1");
    // 3.1.1, figure 3.23: "a/b" QoS 1, "c/d" QoS 2
    golden(V3, b"\x82\x0e\x00\x0a\x00\x03a/b\x01\x00\x03c/d\x02", "SUBSCRIBE #10 a/b q1 c/d q2");
    // 3.1.1, figure 3.26
    golden(V3, b"\x90\x05\x00\x0a\x00\x02\x80", "SUBACK #10 [0, 2, 80]");
    golden(V3, b"\xc0\x00", "PINGREQ");
    golden(V3, b"\xd0\x00", "PINGRESP");
    golden(V3, b"\xe0\x00", "DISCONNECT");
}

#[test]
fn version_5_packets_have_properties_and_reasons() {
    // §3.1.2.11.2: session expiry of 10 s
    golden(
        V5,
        b"\x10\x13\x00\x04MQTT\x05\x02\x00\x3c\x05\x11\x00\x00\x00\x0a\x00\x01a",
        "CONNECT \"a\" keep=60 clean 0x11=10",
    );
    golden(V5, b"\x20\x09\x00\x00\x06\x21\x00\x14\x13\x00\x1e", "CONNACK 0x21=20 0x13=30");
    golden(V5, b"\x20\x03\x00\x87\x00", "CONNACK code=0x87");
    golden(V5, b"\x32\x0f\x00\x01t\x00\x07\x07\x26\x00\x01k\x00\x01vxy", "PUBLISH q1 #7 t \"k\"=\"v\" xy");
    golden(V5, b"\x40\x02\x00\x07", "PUBACK #7");
    golden(V5, b"\x40\x04\x00\x07\x10\x00", "PUBACK #7 code=0x10");
    assert_eq!(
        read(V5, b"\x40\x03\x00\x07\x10").expect("no property length").to_string(),
        "PUBACK #7 code=0x10"
    );
    golden(V5, b"\x90\x04\x00\x01\x00\x87", "SUBACK #1 [87]");
    golden(V5, b"\xe0\x07\x8b\x05\x1f\x00\x02no", "DISCONNECT code=0x8b 0x1f=\"no\"");
    golden(V5, b"\xf0\x02\x18\x00", "AUTH code=0x18");
}

#[test]
fn what_the_standard_forbids_is_malformed() {
    let wrong = |version, bytes: &[u8]| read(version, bytes).expect_err("malformed");
    assert_eq!(wrong(V3, b"\x00\x00"), MalformedPacket::Type(0));
    assert_eq!(wrong(V3, b"\xf0\x00"), MalformedPacket::Type(15));
    assert_eq!(wrong(V3, b"\xd1\x00"), MalformedPacket::Flags("PINGRESP"));
    assert_eq!(wrong(V3, b"\x60\x02\x00\x01"), MalformedPacket::Flags("PUBREL"));
    assert_eq!(wrong(V3, b"\xd0\x01\x00"), MalformedPacket::Size("PINGRESP"));
    assert_eq!(wrong(V3, b"\x20\x02\x02\x00"), MalformedPacket::Flags("CONNACK"));
    assert_eq!(wrong(V3, b"\x20\x02\x01\x05"), MalformedPacket::Flags("CONNACK"));
    assert_eq!(wrong(V3, b"\x20\x02\x00\x06"), MalformedPacket::Code(6, "CONNACK"));
    assert_eq!(wrong(V5, b"\x20\x03\x00\x05\x00"), MalformedPacket::Code(5, "CONNACK"));
    assert_eq!(wrong(V3, b"\x20\x03\x00\x00\x00"), MalformedPacket::Size("CONNACK"));
    assert_eq!(wrong(V3, b"\x40\x02\x00\x00"), MalformedPacket::Id);
    assert_eq!(wrong(V3, b"\x40\x03\x00\x01\x00"), MalformedPacket::Size("PUBACK"));
    assert_eq!(wrong(V3, b"\x36\x03\x00\x01t"), MalformedPacket::Qos);
    assert_eq!(wrong(V3, b"\x38\x03\x00\x01t"), MalformedPacket::Flags("PUBLISH"));
    assert_eq!(wrong(V3, b"\x30\x02\x00\x00"), MalformedPacket::Topic);
    assert_eq!(wrong(V3, b"\x30\x03\x00\x01#"), MalformedPacket::Topic);
    assert_eq!(wrong(V3, b"\x30\x03\x00\x01\xff"), MalformedPacket::Text);
    assert_eq!(wrong(V3, b"\x30\x03\x00\x01\x00"), MalformedPacket::Text);
    assert_eq!(wrong(V3, b"\x30\x03\x00\x02t"), MalformedPacket::Size("PUBLISH"));
    assert_eq!(wrong(V3, b"\x90\x02\x00\x01"), MalformedPacket::Size("SUBACK"));
    assert_eq!(wrong(V3, b"\x90\x03\x00\x01\x03"), MalformedPacket::Code(3, "SUBACK"));
    assert_eq!(wrong(V3, b"\xe0\x01\x00"), MalformedPacket::Size("DISCONNECT"));
    let ack = |properties: &[u8]| {
        let mut bytes = vec![0x20, 3 + properties.len() as u8, 0, 0, properties.len() as u8];
        bytes.extend_from_slice(properties);
        read(V5, &bytes).map(drop)
    };
    assert_eq!(
        ack(b"\x21\x00\x14\x26\x00\x00\x00\x00\x26\x00\x00\x00\x00"),
        Ok(()),
        "user properties repeat"
    );
    assert_eq!(ack(b"\x21\x00\x14\x21\x00\x14"), Err(MalformedPacket::Property(0x21)), "comes twice");
    assert_eq!(ack(b"\x21\x00\x00"), Err(MalformedPacket::Property(0x21)), "zero");
    assert_eq!(ack(b"\x24\x02"), Err(MalformedPacket::Property(0x24)), "only 0 and 1");
    assert_eq!(ack(b"\x25\x02"), Err(MalformedPacket::Property(0x25)), "not a flag");
    assert_eq!(ack(b"\x23\x00\x01"), Err(MalformedPacket::Property(0x23)), "belongs to PUBLISH");
    assert_eq!(ack(b"\x7f\x00"), Err(MalformedPacket::Property(0x7f)), "does not exist");
    assert_eq!(ack(b"\x1f\x00\x05a"), Err(MalformedPacket::Size("properties")));
}

#[test]
fn the_length_has_its_limits() {
    assert_eq!(frame(b"", 99), Ok(None));
    assert_eq!(frame(b"\x30", 99), Ok(None));
    assert_eq!(frame(b"\x30\xff\xff\xff\x7f", usize::MAX), Ok(None), "the largest");
    assert_eq!(frame(b"\x30\xff\xff\xff\x80\x01", usize::MAX), Err(MalformedPacket::Length));
    assert_eq!(frame(b"\x30\x62", 100), Ok(None), "exactly the limit");
    assert_eq!(frame(b"\x30\x63", 100), Err(MalformedPacket::TooLarge(101)));
    for len in [0, 127, 128, 16_383, 16_384, 2_097_151, 2_097_152] {
        let mut out = vec![9];
        let start = begin(&mut out, 0x30);
        out.resize(start + len, 7);
        end(&mut out, start);
        let framed = frame(&out[1..], usize::MAX).expect("fine").expect("whole");
        assert_eq!((framed.first, framed.body.len(), framed.len), (0x30, len, out.len() - 1));
        assert!(framed.body.iter().all(|b| *b == 7));
    }
}

fn text() -> impl Strategy<Value = String> {
    "[a-zA-Z0-9/ äß한]{1,12}"
}

/// Properties that may be in a packet of this type.
fn some_properties(packet: u8) -> impl Strategy<Value = Vec<u8>> {
    let ids: Vec<u8> =
        (1..=0x2a).filter(|id| property_type(*id).is_some_and(|(_, at)| at >> packet & 1 == 1)).collect();
    let most = ids.len();
    (prop::sample::subsequence(ids, 0..=most), text(), 1u32..=1).prop_map(|(ids, text, one)| {
        let mut out = Vec::new();
        for id in ids {
            let value = match property_type(id) {
                Some((PropertyType::Text, _)) => Value::Text(&text),
                Some((PropertyType::Data, _)) => Value::Data(text.as_bytes()),
                Some((PropertyType::Pair, _)) => Value::Pair(&text, &text),
                _ => Value::Number(one),
            };
            put(&mut out, id, value);
        }
        out
    })
}

fn back(version: Version, packet: &Packet<'_>) {
    let bytes = written(version, packet);
    assert_eq!(read(version, &bytes).as_ref(), Ok(packet));
    for cut in 0..bytes.len() {
        assert_eq!(frame(&bytes[..cut], REMAINING_MAX), Ok(None), "never half a packet");
    }
}

proptest! {
    #[test]
    fn what_is_written_reads_back(
        v5: bool, qos in 0u8..3, flags: [bool; 5], id in 1u16.., code in 0x80u8.., topic in text(), name in text(),
        payload in prop::collection::vec(any::<u8>(), 0..300),
        of_connect in some_properties(CONNECT), of_will in some_properties(WILL),
        of_connack in some_properties(CONNACK), of_publish in some_properties(PUBLISH),
        of_ack in some_properties(PUBACK), of_subscribe in some_properties(SUBSCRIBE),
        of_disconnect in some_properties(DISCONNECT), of_auth in some_properties(AUTH),
    ) {
        let version = if v5 { V5 } else { V3 };
        let only5 = |bytes| if v5 { properties(bytes) } else { Properties::default() };
        let [dup, retain, will, user, clean] = flags;
        let will = will.then_some(Will { properties: only5(&of_will), topic: &topic, payload: &payload, qos, retain });
        back(version, &Packet::Connect(Connect {
            clean, keep_alive: id, properties: only5(&of_connect), client_id: &name, will,
            username: user.then_some(&name), password: user.then_some(&payload),
        }));
        back(version, &Packet::ConnAck { session_present: clean, code: 0, properties: only5(&of_connack) });
        back(version, &Packet::Publish(Publish {
            dup: dup && qos > 0, qos, retain, topic: &topic, id: if qos > 0 { id } else { 0 },
            properties: only5(&of_publish), payload: &payload,
        }));
        let ack = Ack { id, code: if v5 { code } else { 0 }, properties: only5(&of_ack) };
        back(version, &Packet::PubAck(ack));
        back(version, &Packet::PubRec(ack));
        back(version, &Packet::PubRel(ack));
        back(version, &Packet::PubComp(ack));
        let mut wanted = Vec::new();
        put_filter(&mut wanted, topic.as_bytes(), qos);
        put_filter(&mut wanted, name.as_bytes(), 0);
        back(version, &Packet::Subscribe { id, properties: only5(&of_subscribe), filters: filters(&wanted) });
        back(version, &Packet::SubAck { id, properties: only5(&of_ack), codes: &[qos, 0x80] });
        back(version, &Packet::PingReq);
        back(version, &Packet::PingResp);
        let code = if v5 { code } else { 0 };
        back(version, &Packet::Disconnect { code, properties: only5(&of_disconnect) });
        if v5 {
            back(version, &Packet::Auth { code, properties: only5(&of_auth) });
        }
    }

    #[test]
    fn random_bytes_never_panic(v5: bool, first: u8, body in prop::collection::vec(any::<u8>(), 0..100)) {
        let version = if v5 { V5 } else { V3 };
        let mut bytes = vec![first, body.len() as u8];
        bytes.extend_from_slice(&body);
        if let Ok(packet) = read(version, &bytes) {
            // shown without harm, and written back to something that means the same
            let _shown = packet.to_string();
            let again = written(version, &packet);
            prop_assert_eq!(read(version, &again), Ok(packet));
        }
    }
}
