use super::*;
use crate::describe::{ModelKind, ModelParams};
use crate::meter::Phase;
use crate::model::{FlowEnd, Link};
use crate::target::Target;
use crate::testing::{Bench, assault};
use crate::unit::Size;
use proptest::prelude::*;

mod resuming;
mod session;

fn config(json: &str) -> Arc<Config> {
    let params: Params = serde_json::from_str(json).expect(json);
    let target = Target { scheme: SCHEMES[0], host: "broker".into(), port: 1883, ipv6: false };
    Arc::new(params.compile(&target).expect(json))
}

fn problem(json: &str) -> String {
    let params: Params = serde_json::from_str(json).expect(json);
    params.check().expect_err(json).to_string()
}

/// A device and the broker it talks to.
struct Talk(Bench<Device>, Version);

impl std::ops::Deref for Talk {
    type Target = Bench<Device>;
    fn deref(&self) -> &Self::Target {
        &self.0
    }
}

impl std::ops::DerefMut for Talk {
    fn deref_mut(&mut self) -> &mut Self::Target {
        &mut self.0
    }
}

impl Talk {
    fn new(json: &str) -> Self {
        let config = config(json);
        let version = config.version;
        Self(Bench::new(config.device(0)), version)
    }

    /// Connected and welcomed; what was said until then is forgotten.
    fn welcomed(json: &str) -> Self {
        let mut talk = Self::new(json);
        talk.start_connected();
        talk.welcome(false);
        talk
    }

    fn welcome(&mut self, session_present: bool) {
        let _connect = self.heard();
        self.say(&Packet::ConnAck { session_present, code: 0, properties: Properties::default() });
    }

    fn say(&mut self, packet: &Packet<'_>) {
        let mut bytes = Vec::new();
        packet.emit(self.1, &mut bytes);
        self.0.feed(&bytes);
    }

    /// The packets that the device sent, one a line.
    fn heard(&mut self) -> String {
        let bytes = self.0.sent();
        let (mut rest, mut text) = (&bytes[..], String::new());
        while let Some(frame) = wire::frame(rest, usize::MAX).expect("framed") {
            let packet = wire::parse(self.1, &frame).expect("well formed");
            text += &format!("{packet}\n");
            rest = &rest[frame.len..];
        }
        assert!(rest.is_empty(), "whole packets");
        text
    }

    fn ack(&mut self, id: u16) {
        self.say(&Packet::PubAck(Ack::of(id)));
    }
}

fn publish<'a>(qos: u8, id: u16, payload: &'a [u8]) -> Packet<'a> {
    Packet::Publish(Publish { qos, id, topic: "t", payload, ..Publish::default() })
}

#[test]
fn a_device_is_small() {
    let size = std::mem::size_of::<Device>();
    assert!(size <= 120, "{size}");
    assert!(std::mem::size_of::<Inflight>() <= 24);
}

#[test]
fn the_flow_of_the_paper() {
    let mut talk = Talk::new(r#"{"count": 3, "interval": "10ms", "keep_alive": "10s"}"#);
    talk.start();
    talk.run_to_ms(2);
    talk.connected();
    assert_eq!(talk.heard(), "CONNECT \"nd0\" keep=10 clean\n");
    talk.run_to_ms(5);
    talk.welcome(false);
    for i in 0..3 {
        talk.run_to_ms(5 + 10 * i);
        let id = i + 1;
        assert_eq!(talk.heard(), format!("PUBLISH q1 #{id} nd/0 {{\\\"device\\\":0,\\\"seq\\\":{i}}}\n"));
        talk.run_to_ms(9 + 10 * i);
        talk.ack(id as u16);
    }
    assert_eq!(talk.heard(), "DISCONNECT\n");
    assert_eq!((talk.end, talk.link), (Some(FlowEnd::Completed), Link::Close));
    let counts = talk.measured();
    assert_eq!((counts.messages_intended, counts.messages_sent, counts.messages_delivered), (3, 3, 3));
    assert_eq!((talk.delay(CONNECT), talk.delay(CONNACK), talk.delay(PUBLISH)), ((1, 2), (1, 3), (3, 4)));
    // CONNECT, 3 PUBLISH, DISCONNECT; CONNACK, 3 PUBACK
    assert_eq!((counts.bytes_sent, counts.bytes_received), (17 + 3 * 30 + 2, 4 + 3 * 4));
}

#[test]
fn a_slow_broker_shows_as_delay_from_the_intended_time() {
    let mut talk = Talk::welcomed(r#"{"count": 3, "interval": "10ms"}"#);
    talk.run_to_ms(100);
    assert_eq!(talk.heard().lines().count(), 1, "one in flight");
    for id in 1..=3 {
        talk.ack(id);
    }
    assert_eq!(talk.delay(PUBLISH), (3, 100));
    assert_eq!(talk.tally.delay_sum, (100 + 90 + 80) * 1_000_000);
}

#[test]
fn more_may_be_in_flight_and_be_acknowledged_in_any_order() {
    let mut talk = Talk::welcomed(r#"{"count": 4, "interval": "1ms", "max_inflight": 3}"#);
    talk.run_to_ms(10);
    assert_eq!(talk.heard().lines().count(), 3);
    talk.ack(2);
    assert!(talk.heard().starts_with("PUBLISH q1 #4 "));
    [4, 1, 3].into_iter().for_each(|id| talk.ack(id));
    assert_eq!(talk.end, Some(FlowEnd::Completed));
}

#[test]
fn without_interval_the_next_follows_the_acknowledgement() {
    let mut talk = Talk::welcomed(r#"{"interval": "0s", "payload": "{seq}"}"#);
    for id in 1..10u16 {
        assert_eq!(talk.heard(), format!("PUBLISH q1 #{id} nd/0 {}\n", id - 1));
        let now = talk.now + Duration::from_millis(5);
        talk.run_to(now);
        talk.ack(id);
    }
    assert_eq!(talk.delay(PUBLISH), (9, 5));
    talk.stop();
    assert_eq!(talk.end, None, "one is on its way");
    talk.heard();
    talk.ack(10);
    assert_eq!((talk.heard().as_str(), talk.end), ("DISCONNECT\n", Some(FlowEnd::Completed)));
}

#[test]
fn qos_0_is_sent_and_never_delivered() {
    let mut talk = Talk::welcomed(r#"{"qos": 0, "interval": "0s", "count": 130, "payload": ""}"#);
    talk.run_to_ms(0);
    let heard = talk.heard();
    assert!(heard.starts_with("PUBLISH q0 nd/0 \n") && heard.ends_with("DISCONNECT\n"));
    assert_eq!(heard.lines().count(), 131);
    assert_eq!((talk.measured().messages_sent, talk.measured().messages_delivered), (130, 0));
}

#[test]
fn qos_2_takes_four_steps_each_way() {
    let mut talk =
        Talk::welcomed(r#"{"qos": 2, "count": 1, "payload": "x", "subscribe": [{"topic": "t", "qos": 2}]}"#);
    assert_eq!(talk.heard(), "SUBSCRIBE #1 t q2\n");
    talk.say(&Packet::SubAck { id: 1, properties: Properties::default(), codes: &[2] });
    assert!(talk.heard().starts_with("PUBLISH q2 #2 nd/0 x"));
    talk.say(&Packet::PubRec(Ack::of(2)));
    talk.say(&Packet::PubRec(Ack::of(2)));
    assert_eq!(talk.heard(), "PUBREL #2\nPUBREL #2\n");
    talk.say(&publish(2, 77, b"in"));
    talk.say(&publish(2, 77, b"in"));
    talk.say(&publish(2, 76, b"in"));
    assert_eq!(talk.heard(), "PUBREC #77\nPUBREC #77\nPUBREC #76\n");
    assert_eq!((talk.measured().messages_received, talk.measured().duplicates), (2, 1));
    talk.say(&Packet::PubRel(Ack::of(77)));
    talk.say(&Packet::PubRel(Ack::of(77)));
    assert_eq!(talk.heard(), "PUBCOMP #77\nPUBCOMP #77\n");
    assert_eq!(talk.measured().messages_delivered, 0);
    talk.say(&Packet::PubComp(Ack::of(2)));
    assert_eq!(talk.measured().messages_delivered, 1);
}

#[test]
fn subscribers_measure_from_publish_to_arrival() {
    let mut talk =
        Talk::welcomed(r##"{"count": 1, "size": "30B", "subscribe": [{"topic": "#"}], "linger": "1s"}"##);
    talk.run_to_ms(7);
    assert_eq!(talk.heard(), "SUBSCRIBE #1 # q0\n");
    talk.say(&Packet::SubAck { id: 1, properties: Properties::default(), codes: &[0] });
    let bytes = talk.sent();
    let frame = wire::frame(&bytes, 99).expect("fine").expect("whole");
    let Ok(Packet::Publish(own)) = wire::parse(Version::V311, &frame) else { panic!("no PUBLISH") };
    assert_eq!(own.payload.len(), 30);
    assert_eq!(&own.payload[..12], b"{\"device\":0,");
    talk.run_to_ms(20);
    let back = Publish { qos: 0, id: 0, ..own };
    talk.say(&Packet::Publish(back));
    assert_eq!((talk.delay(END_TO_END), talk.measured().messages_received), ((1, 13), 1));
    // foreign, retained, or from the future: counted only
    talk.say(&publish(0, 0, b"some other message, long enough"));
    talk.say(&Packet::Publish(Publish { retain: true, ..back }));
    let mut future = own.payload.to_vec();
    future[22] = 1;
    talk.say(&publish(0, 0, &future));
    assert_eq!((talk.delay(END_TO_END).0, talk.measured().messages_received), (1, 4));
    talk.ack(2);
    assert_eq!(talk.end, None, "stays a while");
    talk.say(&publish(1, 9, b"late"));
    assert_eq!(talk.heard(), "PUBACK #9\n");
    talk.run_to_ms(1020);
    assert_eq!((talk.heard().as_str(), talk.end), ("DISCONNECT\n", Some(FlowEnd::Completed)));
}

#[test]
fn each_publish_without_acknowledgement_is_one_failure() {
    let json = |rest: &str| format!(r#"{{"interval": "0s", "max_inflight": 3{rest}}}"#);
    let reconnect = r#", "reconnect": {"fixed": {"delay": "1ms"}}"#;
    let kept = format!(r#"{reconnect}, "clean_session": false"#);
    // the transport counts the loss of the connection, for the oldest; a broker that keeps the session gets all again
    for (rest, at_once, in_the_end) in [("", 2, 2), (reconnect, 2, 2), (&kept, 0, 0)] {
        let mut talk = Talk::welcomed(&json(rest));
        talk.closed(Failure::Reset);
        assert_eq!(talk.failures(Failure::Unanswered), at_once, "{rest}");
        if talk.end.is_none() {
            talk.run_to_ms(1);
            talk.connected();
            talk.welcome(!rest.contains("fixed") || rest.contains("clean_session"));
        }
        assert_eq!(talk.failures(Failure::Unanswered), in_the_end, "{rest}");
    }
    let mut forgot = Talk::welcomed(&json(&kept));
    forgot.closed(Failure::Reset);
    forgot.run_to_ms(1);
    forgot.connected();
    forgot.welcome(false);
    assert_eq!(forgot.failures(Failure::Unanswered), 2);
    let mut slow = Talk::welcomed(&json(""));
    slow.run_to_ms(10_000);
    assert_eq!((slow.failures(Failure::Timeout), slow.failures(Failure::Unanswered)), (1, 2));
}

#[test]
fn it_waits_for_each_answer_from_what_it_sent() {
    let mut talk =
        Talk::new(r#"{"interval": "1h", "keep_alive": "10s", "reconnect": {"fixed": {}}, "client_id": "x"}"#);
    talk.start();
    assert_eq!(talk.model.waiting_since(), Time::NEVER, "the connection is the transport's");
    talk.run_to_ms(5);
    talk.connected();
    assert_eq!(talk.model.waiting_since(), Time(5_000_000), "CONNACK");
    talk.run_to_ms(7);
    talk.welcome(false);
    assert_eq!(talk.model.waiting_since(), Time(7_000_000), "PUBACK");
    talk.ack(1);
    assert_eq!(talk.model.waiting_since(), Time::NEVER);
    talk.run_to_ms(7_507);
    assert_eq!(talk.model.waiting_since(), Time(7_507_000_000), "PINGRESP");
    talk.closed(Failure::Reset);
    assert_eq!(talk.model.waiting_since(), Time::NEVER, "it pauses");
}

#[test]
fn what_is_waited_for_to_the_end_is_unanswered() {
    let at_end = |prepare: fn(&mut Talk)| {
        let mut talk = Talk::new(r#"{"interval": "0s", "max_inflight": 3, "subscribe": [{"topic": "t"}]}"#);
        talk.window.measure = Time(1_000_000_000);
        talk.start();
        prepare(&mut talk);
        talk.run_to_ms(2_000);
        talk.abandon();
        let what = talk.examples.last().cloned().unwrap_or_default();
        (talk.measured().failures[Failure::Unanswered as usize], what, talk.end)
    };
    let subscribed = |talk: &mut Talk| {
        talk.connected();
        talk.welcome(false);
        talk.say(&Packet::SubAck { id: 1, properties: Properties::default(), codes: &[0] });
    };
    let of = |n: u64, what: &str| (n, format!("no {what} by the end of the drain"), None);
    assert_eq!(at_end(|_| ()), of(1, "connection"));
    assert_eq!(at_end(|talk| talk.connected()), of(1, "CONNACK"));
    let greeted = |talk: &mut Talk| {
        talk.connected();
        talk.welcome(false);
    };
    assert_eq!(at_end(greeted), of(1, "SUBACK"));
    assert_eq!(at_end(subscribed), of(3, "acknowledgement"));
    // nothing is asked for any more: others' messages could still have come
    let mut lingers = Talk::welcomed(r#"{"count": 1, "subscribe": [{"topic": "t"}], "linger": "1h"}"#);
    lingers.say(&Packet::SubAck { id: 1, properties: Properties::default(), codes: &[0] });
    lingers.ack(2);
    lingers.stop();
    assert_eq!(lingers.end, None);
    lingers.abandon();
    assert_eq!((lingers.end, lingers.failures(Failure::Unanswered)), (Some(FlowEnd::Completed), 0));
}

#[test]
fn what_the_broker_must_not_send_fails_the_flow() {
    let v5 = r#"{"version": "5.0"}"#;
    let alias = b"\x30\x07\x00\x01t\x03\x23\x00\x01";
    let cases: [(&str, &[u8], &str); 11] = [
        ("{}", b"\x20\x02\x00\x00", "CONNACK was not expected"),
        ("{}", b"\x40\x02\x00\x09", "PUBACK for packet 9, which waits for none"),
        ("{}", b"\x50\x02\x00\x01", "PUBREC for packet 1, which waits for none"),
        ("{}", b"\x90\x03\x00\x01\x00", "SUBACK for packet 1, which waits for none"),
        ("{}", b"\xd0\x00", "PINGRESP was not expected"),
        ("{}", b"\xe0\x00", "DISCONNECT was not expected"),
        ("{}", b"\xc0\x00", "PINGREQ was not expected"),
        ("{}", b"HTTP/1.1 400 Bad Request\r\n\r\n", "packet of 86 bytes is over the limit"),
        ("{}", b"\x30\xff\xff\xff\xff\x01", "malformed length"),
        (v5, alias, "property 0x23 is not allowed here"),
        (v5, b"\xf0\x00", "AUTH was not expected"),
    ];
    for (json, bytes, what) in cases {
        let mut params: Params = serde_json::from_str(json).expect(json);
        params.max_packet = Size(64);
        let version = params.version;
        let target = Target { scheme: SCHEMES[0], host: String::new(), port: 0, ipv6: false };
        let mut talk = Talk(Bench::new(Arc::new(params.compile(&target).expect(json)).device(0)), version);
        talk.start_connected();
        talk.welcome(false);
        talk.feed(bytes);
        assert_eq!((talk.end, talk.link), (Some(FlowEnd::Failed), Link::Close), "{what}");
        assert_eq!((talk.failures(Failure::Protocol), talk.examples.join("")), (1, what.to_owned()));
        // and the next flow is as good as the first
        talk.start_connected();
        talk.welcome(false);
        talk.ack(1);
        assert_eq!(talk.measured().messages_delivered, 1);
    }
    let mut early = Talk::new("{}");
    early.start_connected();
    early.feed(b"\xd0\x00");
    assert_eq!(early.examples, ["a packet before CONNACK was not expected"]);
    let mut kept = Talk::new("{}");
    kept.start_connected();
    kept.welcome(true);
    assert_eq!(kept.examples, ["a kept session was not expected"]);
}

#[test]
fn stop_counts_what_was_due_and_leaves_in_order() {
    let mut talk = Talk::welcomed(r#"{"interval": "10ms"}"#);
    talk.window.drain = Time(45_000_000);
    talk.run_to_ms(45);
    talk.stop();
    talk.heard();
    talk.run_to_ms(50);
    talk.ack(1);
    assert_eq!((talk.heard().as_str(), talk.end), ("DISCONNECT\n", Some(FlowEnd::Completed)));
    let counts = talk.measured();
    assert_eq!((counts.messages_intended, counts.messages_sent, counts.messages_delivered), (5, 1, 1));
    assert_eq!(talk.counts(Phase::Drain).messages_intended, 0);
    let mut rude = Talk::welcomed(r#"{"publish": false, "clean_disconnect": false}"#);
    rude.stop();
    assert_eq!((rude.heard().as_str(), rude.end, rude.link), ("", Some(FlowEnd::Completed), Link::Close));
}

#[test]
fn packet_identifiers_wrap_around_those_in_use() {
    let mut talk = Talk::welcomed(r#"{"interval": "0s", "max_inflight": 2, "payload": ""}"#);
    talk.heard();
    // 1 stays in flight all the while
    for id in (2..=u16::MAX).chain(2..9) {
        talk.ack(id);
    }
    assert!(talk.heard().ends_with("PUBLISH q1 #65535 nd/0 \nPUBLISH q1 #2 nd/0 \nPUBLISH q1 #3 nd/0 \nPUBLISH q1 #4 nd/0 \nPUBLISH q1 #5 nd/0 \nPUBLISH q1 #6 nd/0 \nPUBLISH q1 #7 nd/0 \nPUBLISH q1 #8 nd/0 \nPUBLISH q1 #9 nd/0 \n"));
    assert_eq!(talk.end, None);
}

#[test]
fn clients_of_groups_and_runs_have_names_of_their_own() {
    let named = |token: u64, json: &str| {
        let mut params: Params = serde_json::from_str(json).expect(json);
        params.name_clients(token);
        params.check().expect("good");
        params.client_id.expect("a name")
    };
    let names: std::collections::BTreeSet<_> =
        (0..1000).map(|token| named(token * 0x9e37_79b9, "{}")).collect();
    assert_eq!(names.len(), 1000);
    for name in names.iter().map(|name| name.replace("{device}", "9999999")) {
        // 3.1.1 §3.1.3.1
        assert!(name.len() <= 23 && name.bytes().all(|b| b.is_ascii_alphanumeric()), "{name}");
    }
    assert_eq!(named(7, r#"{"client_id": "mine-{device}"}"#), "mine-{device}");
    assert_eq!(named(7, r#"{"client_id": ""}"#), "");
}

#[test]
fn wrong_parameters_are_explained() {
    assert!(problem(r#"{"qos": 3}"#).starts_with("qos: 3 is no quality of service"));
    assert!(problem(r#"{"topic": ""}"#).starts_with("topic: is empty"));
    assert!(problem(r#"{"topic": "a/#"}"#).contains("wildcard"));
    assert!(problem(r#"{"topic": "{sq}"}"#).contains("did you mean {seq}?"));
    assert!(problem(r#"{"client_id": "", "clean_session": false}"#).starts_with("client_id"));
    assert!(problem(r#"{"client_id": "a\u0000"}"#).contains("NUL"));
    assert!(problem(r#"{"password": "p"}"#).starts_with("password"));
    assert!(problem(r#"{"keep_alive": "1500ms"}"#).contains("whole seconds"));
    assert!(problem(r#"{"keep_alive": "65536s"}"#).contains("65535s"));
    assert!(problem(r#"{"session_expiry": "1s"}"#).contains("5.0"));
    assert!(problem(r#"{"will": {"topic": "a/+"}}"#).starts_with("will.topic"));
    assert!(problem(r#"{"will": {"topic": "a", "qos": 9}}"#).starts_with("will.qos"));
    assert!(
        problem(r#"{"subscribe": [{"topic": "ok"}, {"topic": "a/#/b"}]}"#).starts_with("subscribe[1].topic")
    );
    assert!(problem(r#"{"subscribe": [{"topic": "a+"}]}"#).contains("whole level"));
    assert!(problem(r#"{"subscribe": [{"topic": "a", "qos": 3}]}"#).starts_with("subscribe[0].qos"));
    assert!(problem(r#"{"size": "17B", "mark": true}"#).contains("18B"));
    assert!(problem(r#"{"size": "17MiB"}"#).contains("16MiB"));
    assert!(problem(r#"{"qos": 0, "interval": "0s"}"#).starts_with("interval"));
    assert!(problem(r#"{"max_inflight": 0}"#).contains("1 to 1024"));
    assert!(problem(r#"{"max_inflight": 1025}"#).contains("1 to 1024"));
    assert!(problem(r#"{"ack_timeout": "0s"}"#).starts_with("ack_timeout"));
    assert!(problem(r#"{"max_packet": "63B"}"#).starts_with("max_packet"));
    assert!(problem(r#"{"reconnect": {"fixed": {"delay": "0s"}}}"#).starts_with("reconnect.fixed.delay"));
    assert!(
        problem(r#"{"reconnect": {"backoff": {"min": "2s", "max": "1s"}}}"#)
            .starts_with("reconnect.backoff.max")
    );
    let topic = |len: usize| format!(r#"{{"topic": "{}"}}"#, "x".repeat(len));
    assert!(problem(&topic(65_536)).contains("65535"));
    config(&topic(65_535));
    config(
        r#"{"size": "18B", "mark": true, "max_inflight": 1024, "keep_alive": "65535s", "max_packet": "64B"}"#,
    );
    config(r#"{"subscribe": [{"topic": "+/a/+/#"}, {"topic": "{device}"}], "size": "16MiB"}"#);
}

proptest! {
    #[test]
    fn any_split_of_the_answer_gives_the_same(cuts in prop::collection::vec(1usize..9, 0..30)) {
        let mut talk = Talk::welcomed(r#"{"count": 3, "interval": "0s", "max_inflight": 3}"#);
        let mut answer = Vec::new();
        for packet in [publish(1, 5, &[7; 200]), publish(0, 0, b"x")] {
            packet.emit(Version::V311, &mut answer);
        }
        (1..=3).for_each(|id| Packet::PubAck(Ack::of(id)).emit(Version::V311, &mut answer));
        let mut rest = &answer[..];
        for cut in cuts {
            let (piece, after) = rest.split_at(cut.min(rest.len()));
            talk.feed(piece);
            rest = after;
        }
        talk.feed(rest);
        prop_assert_eq!(talk.end, Some(FlowEnd::Completed));
        let counts = talk.measured();
        prop_assert_eq!((counts.messages_delivered, counts.messages_received), (3, 2));
        prop_assert_eq!(counts.bytes_received as usize, 4 + answer.len());
    }

    #[test]
    fn nothing_a_broker_does_breaks_a_device(
        data in prop::collection::vec(any::<u8>(), 0..400),
        v5: bool,
        qos in 0u8..3,
        interval in 1u64..3,
        subscribe: bool,
        comes_back: bool,
    ) {
        let version = if v5 { "5.0" } else { "3.1.1" };
        let subscribe = if subscribe { r#"[{"topic": "t", "qos": 2}]"# } else { "[]" };
        let reconnect = if comes_back { r#"{"fixed": {"delay": "1ms"}}"# } else { r#""none""# };
        let json = format!(
            r#"{{"version": "{version}", "qos": {qos}, "interval": "{interval}ms", "max_packet": "1KiB",
                "subscribe": {subscribe}, "reconnect": {reconnect}}}"#
        );
        // a good CONNACK first, and a SUBACK: else random bytes get nowhere
        let mut mixed = if v5 { b"\x04\x20\x03\x00\x00\x00\x05\x90\x04\x00\x01\x00\x02".to_vec() }
            else { b"\x03\x20\x02\x00\x00\x04\x90\x03\x00\x01\x02".to_vec() };
        mixed.extend_from_slice(&data);
        assault(config(&json).device(0), &mixed, 1024);
    }
}
