//! What a session keeps when its connection is lost, and how it is carried on (MQTT 5.0 §4.1, §4.3, §4.4, §4.6, §4.9).

use super::*;
use crate::mqtt::property::Value;

const LOST: &str = r#""clean_session": false, "payload": "{seq}", "reconnect": {"fixed": {"delay": "1ms"}}"#;

fn kept(rest: &str) -> Talk {
    Talk::welcomed(&format!("{{{LOST}, {rest}}}"))
}

impl Talk {
    /// Lose the connection and be back.
    fn back(&mut self) {
        self.closed(Failure::Reset);
        let until = Time(self.now.0 + 1_000_000);
        self.run_to(until);
        self.connected();
        self.heard();
    }

    fn accept(&mut self, session_present: bool, said: &[(u8, u32)]) {
        let mut properties = Vec::new();
        said.iter().for_each(|(id, number)| property::put(&mut properties, *id, Value::Number(*number)));
        let properties = property::written(&properties);
        self.say(&Packet::ConnAck { session_present, code: 0, properties });
    }

    fn rec(&mut self, id: u16) {
        self.say(&Packet::PubRec(Ack::of(id)));
    }

    fn comp(&mut self, id: u16, code: u8) {
        self.say(&Packet::PubComp(Ack { code, ..Ack::of(id) }));
    }
}

#[test]
fn a_pubcomp_that_was_lost_is_no_failure() {
    // §3.7.2.1: 0x92 is no error during recovery, and a mismatch of the sessions at other times
    for (resumed, delivered, rejected) in [(true, 1, 0), (false, 0, 1)] {
        let mut talk = kept(r#""version": "5.0", "session_expiry": "1min", "qos": 2, "interval": "1h""#);
        talk.rec(1);
        assert_eq!(talk.heard().lines().last(), Some("PUBREL #1"));
        if resumed {
            talk.back();
            talk.accept(true, &[]);
            assert_eq!(talk.heard(), "PUBREL #1\n");
        }
        talk.comp(1, 0x92);
        let counts = (talk.measured().messages_delivered, talk.failures(Failure::Rejected));
        assert_eq!(counts, (delivered, rejected));
    }
}

#[test]
fn what_the_broker_takes_no_more_at_a_time_waits_and_is_sent_in_order() {
    let mut talk = kept(
        r#""version": "5.0", "session_expiry": "1min", "interval": "1ms", "count": 6, "max_inflight": 4"#,
    );
    talk.run_to_ms(10);
    assert_eq!(talk.heard().lines().count(), 4);
    talk.back();
    talk.accept(true, &[(property::RECEIVE_MAXIMUM, 1)]);
    for id in 1..=4 {
        assert_eq!(talk.heard(), format!("PUBLISH q1 #{id} dup nd/0 {}\n", id - 1));
        talk.run_to_ms(20 + u64::from(id));
        assert_eq!(talk.heard(), "", "one at a time, and no new one before");
        talk.ack(id);
    }
    assert_eq!(talk.heard(), "PUBLISH q1 #5 nd/0 4\n");
    talk.ack(5);
    talk.ack(6);
    assert_eq!(talk.end, Some(FlowEnd::Completed));
    let counts = talk.measured();
    assert_eq!((counts.messages_sent, counts.messages_delivered), (6, 6));
    assert_eq!((talk.failures(Failure::Unanswered), talk.own(PUBLISHES_RESENT)), (0, 4));
}

#[test]
fn a_second_loss_keeps_what_still_waits() {
    let mut talk = kept(r#""version": "5.0", "session_expiry": "1min", "interval": "0s", "max_inflight": 3"#);
    for _ in 0..2 {
        talk.back();
        talk.accept(true, &[(property::RECEIVE_MAXIMUM, 2)]);
        assert_eq!(talk.heard(), "PUBLISH q1 #1 dup nd/0 0\nPUBLISH q1 #2 dup nd/0 1\n");
    }
    talk.ack(2);
    assert_eq!(talk.heard(), "PUBLISH q1 #3 dup nd/0 2\n");
    // the one that waited has its own time, and the oldest its own
    let since = talk.now.0 / 1_000_000;
    talk.run_to_ms(since + 9_999);
    assert_eq!(talk.failures(Failure::Timeout), 0);
    talk.run_to_ms(since + 10_000);
    assert_eq!(talk.failures(Failure::Timeout), 1);
}

#[test]
fn a_pubrel_never_waits_and_takes_its_place() {
    let mut talk = kept(
        r#""version": "5.0", "session_expiry": "1min", "qos": 2, "interval": "1ms", "max_inflight": 3,
            "count": 4"#,
    );
    talk.run_to_ms(5);
    talk.rec(1);
    talk.rec(2);
    talk.heard();
    talk.back();
    talk.accept(true, &[(property::RECEIVE_MAXIMUM, 2)]);
    assert_eq!(talk.heard(), "PUBREL #1\nPUBREL #2\n");
    talk.comp(2, 0);
    assert_eq!(talk.heard(), "PUBLISH q2 #3 dup nd/0 2\n");
    talk.comp(1, 0);
    assert_eq!(talk.heard(), "PUBLISH q2 #4 nd/0 3\n");
    assert_eq!(talk.measured().messages_delivered, 2);
}

#[test]
fn in_3_1_1_all_is_sent_again_at_once() {
    let mut talk = kept(r#""qos": 2, "interval": "1ms", "max_inflight": 3"#);
    talk.run_to_ms(5);
    talk.rec(1);
    talk.heard();
    talk.back();
    talk.accept(true, &[]);
    assert_eq!(talk.heard(), "PUBREL #1\nPUBLISH q2 #2 dup nd/0 1\nPUBLISH q2 #3 dup nd/0 2\n");
    talk.comp(1, 0);
    assert!(talk.heard().starts_with("PUBLISH q2 #4 nd/0 3\n"));
}

#[test]
fn a_message_that_is_sent_again_is_the_same_message() {
    let mut talk = Talk::welcomed(
        r#"{"clean_session": false, "interval": "0s", "max_inflight": 2, "topic": "a/{random:8}",
            "payload": "{random:100} {timestamp} {seq}", "reconnect": {"fixed": {"delay": "1ms"}}}"#,
    );
    let first = talk.heard();
    let (one, two) = first.split_once('\n').expect("two lines");
    assert_ne!(one[14..40], two[14..40], "random");
    talk.back();
    talk.accept(true, &[]);
    assert_eq!(talk.heard().replace(" dup", ""), first);
}

#[test]
fn a_session_is_found_again_by_its_name() {
    for name in ["{random:8}", "c{seq}", "c{timestamp}"] {
        let mut talk = Talk::new(&format!(
            r#"{{"client_id": "{name}", "clean_session": false, "interval": "0s", "reconnect": {{"fixed": {{}}}}}}"#
        ));
        talk.run_to_ms(3);
        talk.start_connected();
        let first = talk.heard();
        talk.accept(false, &[]);
        talk.ack(1);
        talk.heard();
        talk.closed(Failure::Reset);
        talk.run_to_ms(2_000);
        talk.connected();
        assert_eq!(talk.heard(), first, "{name}");
    }
}

#[test]
fn the_next_flow_ends_what_the_session_still_has() {
    let json = r#"{"clean_session": false, "qos": 2, "interval": "0s", "max_inflight": 2, "payload": "{seq}",
        "mark": false, "subscribe": [{"topic": "t", "qos": 2}]}"#;
    let mut talk = Talk::welcomed(json);
    let suback = Packet::SubAck { id: 1, properties: Properties::default(), codes: &[2] };
    talk.say(&suback);
    talk.rec(2);
    talk.say(&publish(2, 9, b"in"));
    talk.closed(Failure::Reset);
    // the loss of the connection stands for one of them
    assert_eq!((talk.end, talk.failures(Failure::Unanswered)), (Some(FlowEnd::Failed), 1));
    talk.heard();
    talk.start_connected();
    talk.welcome(true);
    assert_eq!(talk.heard(), "PUBREL #2\nPUBLISH q2 #3 dup nd/0 1\nSUBSCRIBE #4 t q2\n");
    talk.comp(2, 0);
    talk.rec(3);
    talk.comp(3, 0);
    assert_eq!(talk.measured().messages_delivered, 0, "they count as lost already");
    talk.say(&publish(2, 9, b"in"));
    assert_eq!(talk.measured().duplicates, 1, "received and not released");
    talk.say(&Packet::SubAck { id: 4, properties: Properties::default(), codes: &[2] });
    assert!(talk.heard().ends_with("PUBLISH q2 #5 nd/0 0\nPUBLISH q2 #6 nd/0 1\n"));
}

#[test]
fn a_broker_that_sends_pubrec_again_is_answered() {
    // §4.3.3: PUBREL whenever PUBREC comes; some brokers send it again in a resumed session
    let mut talk = kept(r#""version": "5.0", "session_expiry": "1min", "qos": 2, "interval": "1h""#);
    talk.rec(1);
    talk.heard();
    talk.back();
    talk.accept(true, &[]);
    talk.rec(1);
    // and of a message that only the broker still has
    talk.rec(7);
    assert_eq!(talk.heard(), "PUBREL #1\nPUBREL #1\nPUBREL #7 code=0x92\n");
    talk.comp(1, 0);
    talk.comp(1, 0x92);
    talk.comp(7, 0);
    assert_eq!((talk.measured().messages_delivered, talk.link), (1, Link::Connect), "{:?}", talk.examples);
    // no more than were due
    talk.comp(7, 0);
    assert_eq!(talk.examples, ["PUBCOMP for packet 7, which waits for none"]);
    // and in a session that is new it is a fault
    let mut fresh = kept(r#""qos": 2, "interval": "1h""#);
    fresh.rec(7);
    assert_eq!(fresh.examples, ["PUBREC for packet 7, which waits for none"]);
}

#[test]
fn an_answer_that_crosses_what_is_sent_again_is_no_fault() {
    // §4.4: the broker still owes the PUBACK of the former connection, and answers the PUBLISH with DUP too
    let of = |rest: &str| {
        kept(&format!(
            r#""version": "5.0", "session_expiry": "1min", "interval": "0s", "max_inflight": 2, "count": 3, {rest}"#
        ))
    };
    let mut talk = of(r#""qos": 1"#);
    talk.heard();
    talk.back();
    talk.accept(true, &[]);
    for id in [1, 2, 1, 3, 2] {
        talk.ack(id);
    }
    assert_eq!(
        (talk.measured().messages_delivered, talk.end),
        (3, Some(FlowEnd::Completed)),
        "{:?}",
        talk.examples
    );
    // once for each, and not in a session that was not resumed
    let mut talk = of(r#""qos": 1"#);
    talk.back();
    talk.accept(true, &[]);
    [1, 1, 1].iter().for_each(|id| talk.ack(*id));
    assert_eq!(talk.examples, ["PUBACK for packet 1, which waits for none"]);
    let mut talk = of(r#""qos": 1"#);
    [1, 1].iter().for_each(|id| talk.ack(*id));
    assert_eq!(talk.examples, ["PUBACK for packet 1, which waits for none"]);
    // PUBREC that refuses, and PUBCOMP
    let mut talk = of(r#""qos": 2"#);
    talk.rec(1);
    talk.back();
    talk.accept(true, &[]);
    (0..2).for_each(|_| talk.say(&Packet::PubRec(Ack { code: 0x97, ..Ack::of(2) })));
    talk.comp(1, 0);
    talk.comp(1, 0x92);
    let counts = (talk.measured().messages_delivered, talk.failures(Failure::Rejected));
    assert_eq!((counts, talk.failures(Failure::Protocol)), ((1, 1), 0), "{:?}", talk.examples);
}

#[test]
fn puback_for_a_message_that_waits_to_be_sent_again_is_enough() {
    let mut talk = kept(
        r#""version": "5.0", "session_expiry": "1min", "interval": "0s", "max_inflight": 3, "count": 3"#,
    );
    talk.heard();
    talk.back();
    talk.accept(true, &[(property::RECEIVE_MAXIMUM, 1)]);
    talk.ack(3);
    talk.ack(1);
    talk.ack(2);
    assert_eq!(talk.measured().messages_delivered, 3, "{:?}", talk.examples);
    assert_eq!(talk.heard(), "PUBLISH q1 #1 dup nd/0 0\nPUBLISH q1 #2 dup nd/0 1\nDISCONNECT\n");
}

#[test]
fn pubrec_for_a_message_that_waits_to_be_sent_again_is_enough() {
    let mut talk = kept(
        r#""version": "5.0", "session_expiry": "1min", "qos": 2, "interval": "0s", "max_inflight": 3, "count": 3"#,
    );
    talk.heard();
    talk.back();
    talk.accept(true, &[(property::RECEIVE_MAXIMUM, 1)]);
    assert_eq!(talk.heard(), "PUBLISH q2 #1 dup nd/0 0\n");
    talk.rec(3);
    assert_eq!(talk.heard(), "PUBREL #3\n");
    talk.say(&Packet::PubRec(Ack { code: 0x97, ..Ack::of(2) }));
    talk.comp(3, 0);
    talk.rec(1);
    talk.comp(1, 0);
    assert_eq!(talk.heard(), "PUBREL #1\nDISCONNECT\n");
    let counts = talk.measured();
    assert_eq!((counts.messages_delivered, talk.failures(Failure::Rejected)), (2, 1));
    assert_eq!(talk.end, Some(FlowEnd::Completed));
}

#[test]
fn a_refusing_pubrec_ends_the_exchange_and_frees_its_place() {
    let mut talk = kept(r#""version": "5.0", "session_expiry": "1min", "qos": 2, "interval": "0s""#);
    talk.heard();
    talk.say(&Packet::PubRec(Ack { code: 0x80, ..Ack::of(1) }));
    assert_eq!(talk.heard(), "PUBLISH q2 #2 nd/0 1\n", "no PUBREL, and the next");
    talk.back();
    talk.accept(true, &[]);
    assert_eq!(talk.heard(), "PUBLISH q2 #2 dup nd/0 1\n", "what was refused is not sent again");
}

#[test]
fn a_session_that_is_gone_takes_its_state_along() {
    let mut talk =
        kept(r#""qos": 2, "interval": "0s", "max_inflight": 2, "subscribe": [{"topic": "t", "qos": 2}]"#);
    talk.say(&Packet::SubAck { id: 1, properties: Properties::default(), codes: &[2] });
    talk.say(&publish(2, 9, b"in"));
    talk.heard();
    talk.back();
    talk.accept(false, &[]);
    assert_eq!(talk.heard(), "SUBSCRIBE #4 t q2\n", "nothing is sent again, and the subscription is new");
    assert_eq!(talk.failures(Failure::Unanswered), 1, "and the loss of the connection stands for the other");
    talk.say(&publish(2, 9, b"new"));
    assert_eq!((talk.measured().messages_received, talk.measured().duplicates), (2, 0));
    // a session that went on knows it
    talk.say(&Packet::SubAck { id: 4, properties: Properties::default(), codes: &[2] });
    talk.back();
    talk.accept(true, &[]);
    talk.say(&publish(2, 9, b"new"));
    assert_eq!((talk.measured().messages_received, talk.measured().duplicates), (2, 1));
}

#[test]
fn what_the_broker_takes_no_longer_is_refused_and_not_sent() {
    let mut talk =
        kept(r#""version": "5.0", "session_expiry": "1min", "interval": "1h", "size": "100B", "count": 1"#);
    talk.heard();
    talk.back();
    talk.accept(true, &[(property::MAXIMUM_PACKET_SIZE, 50)]);
    assert_eq!(talk.heard(), "DISCONNECT\n");
    assert_eq!(talk.failures(Failure::Rejected), 1);
    assert_eq!(
        talk.examples.last().map(String::as_str),
        Some("a PUBLISH has 111 bytes, the broker takes 50")
    );
}

#[test]
fn a_device_that_owes_messages_comes_back_while_draining() {
    let mut talk = kept(r#""interval": "1h""#);
    talk.heard();
    talk.closed(Failure::Reset);
    talk.stop();
    assert_eq!(talk.end, None);
    let until = Time(talk.now.0 + 1_000_000);
    talk.run_to(until);
    talk.connected();
    talk.heard();
    talk.accept(true, &[]);
    assert_eq!(talk.heard(), "PUBLISH q1 #1 dup nd/0 0\n");
    talk.ack(1);
    assert_eq!((talk.heard().as_str(), talk.end), ("DISCONNECT\n", Some(FlowEnd::Completed)));
    // with nothing owed it is over
    let mut idle = kept(r#""interval": "1h""#);
    idle.ack(1);
    idle.closed(Failure::Reset);
    idle.stop();
    assert_eq!(idle.end, Some(FlowEnd::Failed));
}

#[test]
fn the_keep_alive_of_the_server_holds_whatever_else_is_waited_for() {
    let mut talk = Talk::new(
        r#"{"version": "5.0", "interval": "1h", "keep_alive": "60s", "subscribe": [{"topic": "t"}]}"#,
    );
    talk.start_connected();
    talk.heard();
    talk.accept(false, &[(property::SERVER_KEEP_ALIVE, 1)]);
    assert_eq!(talk.heard(), "SUBSCRIBE #1 t q0\n");
    talk.run_to_ms(750);
    assert_eq!(talk.heard(), "PINGREQ\n", "no SUBACK has come");
    talk.say(&publish(0, 0, b"retained, before SUBACK"));
    talk.run_to_ms(2250);
    assert_eq!(talk.heard(), "PINGREQ\nPINGREQ\n", "no PINGRESP has come");
    (0..3).for_each(|_| talk.say(&Packet::PingResp));
    assert_eq!((talk.measured().messages_received, talk.end), (1, None));
    talk.say(&Packet::PingResp);
    assert_eq!(talk.examples, ["PINGRESP was not expected"]);
}

#[test]
fn a_kept_session_begins_with_identifiers_of_its_run() {
    let first = |run: u64, clean: bool| {
        let mut params = Params { clean_session: clean, ..Params::default() };
        params.identify(crate::describe::Identity { run, profile: 1, trial: 0 });
        params.first_id
    };
    assert_ne!(first(0x1234_5678_9abc, false), first(0x1234_8765_9abc, false));
    assert_eq!(first(0x1234_5678_9abc, true), 0);
}
