//! Connecting, coming back, and what of a session is kept.

use super::*;
use crate::mqtt::property::Value;

#[test]
fn everything_that_can_be_said_in_connect_is_said() {
    let mut talk = Talk::new(
        r#"{"version": "5.0", "client_id": "c{device}", "username": "u{device}", "password": "p", "clean_session": false,
            "session_expiry": "1h", "keep_alive": "0s", "max_packet": "64KiB",
            "will": {"topic": "gone/{device}", "payload": "bye", "qos": 1, "retain": true}}"#,
    );
    talk.start_connected();
    assert_eq!(talk.heard(), "CONNECT \"c0\" keep=0 will=gone/0 q1 user=u0 0x11=3600 0x27=65536\n");
}

#[test]
fn what_a_version_5_broker_asks_is_done() {
    let mut talk = Talk::new(
        r#"{"version": "5.0", "interval": "0s", "max_inflight": 9, "client_id": "", "reconnect": {"fixed": {}}}"#,
    );
    talk.start_connected();
    talk.heard();
    let mut said = Vec::new();
    property::put(&mut said, property::RECEIVE_MAXIMUM, Value::Number(2));
    property::put(&mut said, property::SERVER_KEEP_ALIVE, Value::Number(4));
    property::put(&mut said, property::ASSIGNED_CLIENT_ID, Value::Text("yours"));
    property::put(&mut said, property::MAXIMUM_PACKET_SIZE, Value::Number(40));
    talk.say(&Packet::ConnAck { session_present: false, code: 0, properties: property::written(&said) });
    assert_eq!(talk.heard().lines().count(), 2, "receive maximum");
    talk.run_to_ms(3000);
    assert_eq!(talk.heard(), "PINGREQ\n", "server keep alive");
    talk.say(&Packet::PingResp);
    talk.say(&Packet::PubAck(Ack { id: 1, code: 0x97, ..Ack::default() }));
    talk.say(&Packet::PubAck(Ack { id: 2, code: 0x10, ..Ack::default() }));
    assert_eq!((talk.measured().messages_delivered, talk.failures(Failure::Rejected)), (1, 1));
    assert_eq!(talk.examples, ["PUBACK 0x97, quota exceeded"]);
    talk.heard();
    let mut why = Vec::new();
    property::put(&mut why, property::REASON_STRING, Value::Text("maintenance"));
    property::put(&mut why, property::SERVER_REFERENCE, Value::Text("mqtt2.example:8883"));
    talk.say(&Packet::Disconnect { code: 0x9c, properties: property::written(&why) });
    assert_eq!(
        talk.examples[1],
        "DISCONNECT 0x9c, use another server: maintenance; server reference: mqtt2.example:8883"
    );
    talk.run_to_ms(4000);
    talk.connected();
    assert!(talk.heard().starts_with("CONNECT \"yours\" "), "keeps the name it was given");
}

#[test]
fn what_a_version_5_broker_cannot_do_is_not_asked_of_it() {
    let refused = |json: &str, id: u8, number: u32| {
        let mut talk = Talk::new(json);
        talk.start_connected();
        talk.heard();
        let mut said = Vec::new();
        property::put(&mut said, id, Value::Number(number));
        talk.say(&Packet::ConnAck { session_present: false, code: 0, properties: property::written(&said) });
        assert_eq!(talk.heard(), "");
        assert_eq!((talk.end, talk.failures(Failure::Rejected)), (Some(FlowEnd::Failed), 1));
        talk.examples.remove(0)
    };
    let qos = refused(r#"{"version": "5.0"}"#, property::MAXIMUM_QOS, 0);
    assert_eq!(qos, "the broker takes QoS 0 at most");
    let retain = refused(r#"{"version": "5.0", "retain": true}"#, property::RETAIN_AVAILABLE, 0);
    assert_eq!(retain, "the broker retains no messages");
    let size = refused(r#"{"version": "5.0", "size": "32B"}"#, property::MAXIMUM_PACKET_SIZE, 42);
    assert_eq!(size, "a PUBLISH has 43 bytes, the broker takes 42");
}

#[test]
fn a_refusal_fails_the_flow_and_says_why() {
    let mut talk = Talk::new("{}");
    talk.start_connected();
    talk.say(&Packet::ConnAck { session_present: false, code: 5, properties: Properties::default() });
    assert_eq!(
        (talk.end, talk.link, talk.failures(Failure::Rejected)),
        (Some(FlowEnd::Failed), Link::Close, 1)
    );
    assert_eq!(talk.examples, ["CONNACK 0x05, not authorized"]);
    let causes = talk.tally_of(Phase::Measure).causes().expect("told");
    let told: Vec<_> = causes.of(Failure::Rejected).map(|(detail, n)| (detail.to_string(), n)).collect();
    assert_eq!(told, [("CONNACK 0x05 not authorized".to_owned(), 1)]);
    let mut talk = Talk::new("{}");
    talk.start_connected();
    talk.feed(b"\x15\x03\x01\x00\x02\x02\x46");
    assert_eq!(
        (talk.failures(Failure::Protocol), talk.examples.join("")),
        (1, "no MQTT: TLS on this port".into())
    );
    let mut talk = Talk::welcomed(r#"{"subscribe": [{"topic": "secret"}]}"#);
    talk.say(&Packet::SubAck { id: 1, properties: Properties::default(), codes: &[0x80] });
    assert_eq!((talk.end, talk.failures(Failure::Rejected)), (Some(FlowEnd::Failed), 1));
}

#[test]
fn a_broker_of_the_other_version_is_told_from_a_broken_one() {
    // each broker in its own words: 3.1.1 §3.1.2.2 and §3.2.2.3, 5.0 §3.1.2.2
    let cases: [(&str, &[u8], &str); 4] = [
        ("5.0", b"\x20\x02\x00\x01", "CONNACK 0x01, protocol version refused: the broker does not speak 5.0"),
        (
            "5.0",
            b"\x20\x03\x00\x84\x00",
            "CONNACK 0x84, protocol version refused: the broker does not speak 5.0",
        ),
        (
            "3.1.1",
            b"\x20\x02\x00\x01",
            "CONNACK 0x01, protocol version refused: the broker does not speak 3.1.1",
        ),
        (
            "3.1.1",
            b"\x20\x03\x00\x84\x00",
            "CONNACK 0x84, protocol version refused: the broker does not speak 3.1.1",
        ),
    ];
    for (version, answer, what) in cases {
        let mut talk = Talk::new(&format!(r#"{{"version": "{version}"}}"#));
        talk.start_connected();
        talk.feed(answer);
        assert_eq!((talk.end, talk.failures(Failure::Rejected)), (Some(FlowEnd::Failed), 1), "{what}");
        assert!(talk.examples[0].starts_with(what), "{:?}", talk.examples);
    }
    let mut shut = Talk::new(r#"{"version": "5.0"}"#);
    shut.start_connected();
    shut.closed(Failure::Closed);
    assert!(
        shut.examples[0].contains("without CONNACK: does the broker speak MQTT 5.0"),
        "{:?}",
        shut.examples
    );
    let mut later = Talk::welcomed("{}");
    later.closed(Failure::Closed);
    assert!(later.examples.is_empty());
}

#[test]
fn keep_alive_is_kept_and_silence_noticed() {
    let mut talk = Talk::welcomed(r#"{"publish": false, "keep_alive": "10s", "ack_timeout": "2s"}"#);
    talk.run_to_ms(7499);
    assert_eq!(talk.heard(), "");
    talk.run_to_ms(7500);
    assert_eq!(talk.heard(), "PINGREQ\n");
    talk.say(&Packet::PingResp);
    talk.run_to_ms(15_000);
    assert_eq!(talk.heard(), "PINGREQ\n");
    talk.run_to_ms(16_999);
    assert_eq!(talk.end, None);
    talk.run_to_ms(17_000);
    assert_eq!((talk.end, talk.failures(Failure::Timeout)), (Some(FlowEnd::Failed), 1));
}

#[test]
fn each_wait_has_its_limit() {
    let json = r#"{"connect_timeout": "3s", "ack_timeout": "2s", "subscribe": [{"topic": "t"}]}"#;
    let timeout = |talk: &mut Talk, ms: u64, what: &str| {
        talk.run_to_ms(ms - 1);
        assert_eq!(talk.end, None, "{what}");
        talk.run_to_ms(ms);
        assert_eq!((talk.end, talk.failures(Failure::Timeout)), (Some(FlowEnd::Failed), 1));
        assert_eq!(talk.examples, [what]);
    };
    let mut talk = Talk::new(json);
    talk.start();
    timeout(&mut talk, 3000, "no connection in time");
    let mut talk = Talk::new(json);
    talk.start_connected();
    timeout(&mut talk, 3000, "no CONNACK in time");
    let mut talk = Talk::welcomed(json);
    timeout(&mut talk, 3000, "no SUBACK in time");
    let mut talk = Talk::welcomed(json);
    talk.say(&Packet::SubAck { id: 1, properties: Properties::default(), codes: &[0] });
    timeout(&mut talk, 2000, "no acknowledgement in time");
}

#[test]
fn a_lost_device_comes_back_as_it_was_told() {
    let mut talk = Talk::welcomed(
        r#"{"interval": "1s", "payload": "{seq}", "reconnect": {"fixed": {"delay": "500ms", "attempts": 2}}}"#,
    );
    talk.heard();
    talk.ack(1);
    talk.run_to_ms(900);
    talk.closed(Failure::Reset);
    assert_eq!((talk.end, talk.connects), (None, 1));
    talk.run_to_ms(1400);
    assert_eq!((talk.connects, talk.link), (2, Link::Connect));
    talk.closed(Failure::Refused);
    talk.run_to_ms(2100);
    assert_eq!(talk.connects, 3);
    talk.connected();
    talk.welcome(false);
    assert_eq!(talk.heard(), "PUBLISH q1 #2 nd/0 1\n", "the one due at 1 s");
    talk.ack(2);
    assert_eq!(talk.heard(), "PUBLISH q1 #3 nd/0 2\n", "and the one due at 2 s");
    assert_eq!((talk.delay(PUBLISH).0, talk.tally.delay_max), (2, 1_100_000_000));
    // the count of attempts began anew with CONNACK
    for _ in 0..3 {
        talk.closed(Failure::Refused);
        let later = talk.now + Duration::from_millis(500);
        talk.run_to(later);
    }
    assert_eq!(talk.end, Some(FlowEnd::Failed));
}

#[test]
fn pauses_double_up_to_the_longest() {
    let mut talk = Talk::welcomed(r#"{"reconnect": {"backoff": {"min": "100ms", "max": "1s"}}}"#);
    for longest in [100, 200, 400, 800, 1000, 1000] {
        let connects = talk.connects;
        talk.closed(Failure::Refused);
        let lost = talk.now.0;
        assert!((longest / 2..=longest).contains(&((talk.wake.0 - lost) / 1_000_000)));
        talk.run_to(Time(lost + longest * 1_000_000));
        assert_eq!(talk.connects, connects + 1);
    }
}

#[test]
fn a_kept_session_goes_on_where_it_was() {
    let json = r#"{"clean_session": false, "interval": "0s", "max_inflight": 2, "qos": 2, "payload": "{seq}",
        "reconnect": {"fixed": {"delay": "1ms"}}}"#;
    let mut talk = Talk::welcomed(json);
    talk.say(&Packet::PubRec(Ack::of(1)));
    talk.heard();
    talk.closed(Failure::Reset);
    talk.run_to_ms(1);
    talk.connected();
    talk.welcome(true);
    assert_eq!(talk.heard(), "PUBREL #1\nPUBLISH q2 #2 dup nd/0 1\n");
    talk.say(&Packet::PubComp(Ack::of(1)));
    assert_eq!(talk.measured().messages_delivered, 1);
    // the broker forgot: what was in flight is lost, and says so by not being delivered
    talk.heard();
    talk.closed(Failure::Reset);
    talk.run_to_ms(2);
    talk.connected();
    talk.welcome(false);
    assert!(talk.heard().starts_with("PUBLISH q2 #4 nd/0 3\n"));
}

#[test]
fn accepted_and_resumed_sessions_and_what_was_sent_again_are_counted() {
    let mut talk =
        Talk::welcomed(r#"{"clean_session": false, "count": 1, "reconnect": {"fixed": {"delay": "1s"}}}"#);
    assert!(!talk.heard().is_empty(), "a publish is on its way");
    talk.closed(Failure::Reset);
    let now = talk.now.0 / 1_000_000;
    talk.run_to_ms(now + 1_000);
    talk.connected();
    talk.welcome(true);
    let counted = [SESSIONS, SESSIONS_RESUMED, PUBLISHES_RESENT].map(|counter| talk.own(counter));
    assert_eq!(counted, [2, 1, 1]);
}
