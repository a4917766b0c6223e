//! Clients whose broker is under test.

use super::Mqtt;
use crate::settings::Protocol;
use crate::{ConnectionId, Output, Service, Settings};
use proptest::prelude::{ProptestConfig, proptest};
use protocol::mqtt::Version;
use protocol::mqtt::property::{
    MAXIMUM_PACKET_SIZE, Properties, RECEIVE_MAXIMUM, SESSION_EXPIRY, Value, put, written,
};
use protocol::mqtt::wire::{Ack, Connect, Packet, Publish, Will, filters, frame, parse, put_filter};
use std::collections::BTreeMap;

const SECOND: u64 = 1_000_000_000;

/// A broker and what it has sent to each connection.
struct Bench {
    broker: Mqtt,
    out: Output,
    sent: BTreeMap<u32, Vec<u8>>,
    closed: Vec<u32>,
    versions: BTreeMap<u32, Version>,
    wakes: Vec<(ConnectionId, u64)>,
}

fn settings() -> Settings {
    Settings {
        protocol: Protocol::Mqtt,
        listen: "127.0.0.1:0".parse().expect("an address"),
        workers: 1,
        delay_ns: 0,
        size: 0,
        notify_ns: 1,
        script: None,
        sink: false,
        error_share: 0.0,
        error_status: 503,
        drop_share: 0.0,
        seed: 1,
    }
}

fn numbers(properties: &[(u8, u32)]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for (id, number) in properties {
        put(&mut bytes, *id, Value::Number(*number));
    }
    bytes
}

impl Bench {
    fn with(settings: &Settings) -> Self {
        Self {
            broker: Mqtt::new(settings),
            out: Output::default(),
            sent: BTreeMap::new(),
            closed: Vec::new(),
            versions: BTreeMap::new(),
            wakes: Vec::new(),
        }
    }

    fn new() -> Self {
        Self::with(&settings())
    }

    fn id(slot: u32) -> ConnectionId {
        ConnectionId { slot, generation: 0 }
    }

    fn collect(&mut self) {
        let (sent, closed, wakes) = self.out.take();
        for (id, bytes) in sent {
            self.sent.entry(id.slot).or_default().extend(bytes);
        }
        self.closed.extend(closed.iter().map(|id| id.slot));
        self.wakes.extend(wakes);
    }

    fn open(&mut self, slot: u32, version: Version) {
        self.versions.insert(slot, version);
        self.broker.opened(Self::id(slot), &mut self.out);
        self.collect();
    }

    fn bytes(&mut self, slot: u32, bytes: &[u8]) -> usize {
        let used = self.broker.received(Self::id(slot), bytes, &mut self.out);
        self.collect();
        used
    }

    fn send(&mut self, slot: u32, packet: &Packet<'_>) {
        let mut bytes = Vec::new();
        packet.emit(self.versions[&slot], &mut bytes);
        assert_eq!(self.bytes(slot, &bytes), bytes.len());
    }

    fn lose(&mut self, slot: u32) {
        self.broker.closed(Self::id(slot), &mut self.out);
        self.collect();
    }

    /// What a connection got since the last look, as text.
    fn got(&mut self, slot: u32) -> Vec<String> {
        let bytes = self.sent.remove(&slot).unwrap_or_default();
        let (mut rest, mut all) = (&bytes[..], Vec::new());
        while let Ok(Some(one)) = frame(rest, 1 << 20) {
            rest = &rest[one.len..];
            if one.first == 0xb0 {
                all.push(format!("unsuback {:?}", &one.body[2..]));
                continue;
            }
            all.push(match parse(self.versions[&slot], &one).expect("a packet") {
                Packet::ConnAck { session_present, code, .. } => {
                    format!("connack {session_present} {code:#x}")
                }
                Packet::Publish(p) => format!(
                    "{}{} q{} #{} {}{}",
                    p.topic,
                    if p.retain { " retained" } else { "" },
                    p.qos,
                    p.id,
                    String::from_utf8_lossy(p.payload),
                    if p.dup { " again" } else { "" }
                ),
                Packet::PubAck(a) => format!("puback {}", a.id),
                Packet::PubRec(a) => format!("pubrec {}", a.id),
                Packet::PubRel(a) => format!("pubrel {} {:#x}", a.id, a.code),
                Packet::PubComp(a) => format!("pubcomp {} {:#x}", a.id, a.code),
                Packet::SubAck { codes, .. } => format!("suback {codes:x?}"),
                Packet::PingResp => "pingresp".into(),
                Packet::Disconnect { code, .. } => format!("disconnect {code:#x}"),
                other => format!("{other:?}"),
            });
        }
        assert!(rest.is_empty());
        all
    }

    fn connect(&mut self, slot: u32, version: Version, name: &str, clean: bool) -> Vec<String> {
        let kept = (version == Version::V5 && !clean).then_some((SESSION_EXPIRY, 100));
        self.connect_with(slot, version, (name, clean), kept.as_slice())
    }

    fn connect_with(
        &mut self,
        slot: u32,
        version: Version,
        (client_id, clean): (&str, bool),
        properties: &[(u8, u32)],
    ) -> Vec<String> {
        self.open(slot, version);
        let bytes = numbers(properties);
        let properties = written(&bytes);
        self.send(slot, &Packet::Connect(Connect { clean, client_id, properties, ..Connect::default() }));
        self.got(slot)
    }

    fn disconnect(&mut self, slot: u32, properties: &[(u8, u32)]) -> Vec<String> {
        let bytes = numbers(properties);
        self.send(slot, &Packet::Disconnect { code: 0, properties: written(&bytes) });
        self.got(slot)
    }

    fn subscribe(&mut self, slot: u32, wanted: &[(&str, u8)]) -> Vec<String> {
        let mut list = Vec::new();
        for (filter, qos) in wanted {
            put_filter(&mut list, filter.as_bytes(), *qos);
        }
        let properties = Properties::default();
        self.send(slot, &Packet::Subscribe { id: 7, properties, filters: filters(&list) });
        self.got(slot)
    }

    fn publish(&mut self, slot: u32, topic: &str, qos: u8, id: u16, text: &str) -> Vec<String> {
        self.send(
            slot,
            &Packet::Publish(Publish { qos, topic, id, payload: text.as_bytes(), ..Publish::default() }),
        );
        self.got(slot)
    }
}

const BOTH: [Version; 2] = [Version::V311, Version::V5];

#[test]
fn messages_go_to_subscribers_with_the_lower_qos() {
    for version in BOTH {
        let mut bench = Bench::new();
        assert_eq!(bench.connect(0, version, "a", true), ["connack false 0x0"]);
        bench.connect(1, version, "b", true);
        assert_eq!(bench.subscribe(1, &[("t/+", 1), ("u", 2)]), ["suback [1, 2]"]);
        assert_eq!(bench.publish(0, "t/x", 0, 0, "zero"), [""; 0]);
        assert_eq!(bench.publish(0, "t/x", 1, 5, "one"), ["puback 5"]);
        assert_eq!(bench.publish(0, "t/x", 2, 6, "two"), ["pubrec 6"]);
        // the same number again is the same message (section 4.3.3)
        assert_eq!(bench.publish(0, "t/x", 2, 6, "two"), ["pubrec 6"]);
        bench.send(0, &Packet::PubRel(Ack::of(6)));
        assert_eq!(bench.got(0), ["pubcomp 6 0x0"]);
        assert_eq!(bench.got(1), ["t/x q0 #0 zero", "t/x q1 #1 one", "t/x q1 #2 two"]);
        bench.publish(0, "u", 2, 7, "up");
        assert_eq!(bench.got(1), ["u q2 #3 up"]);
        bench.send(1, &Packet::PubRec(Ack::of(3)));
        assert_eq!(bench.got(1), ["pubrel 3 0x0"]);
        bench.send(1, &Packet::PubComp(Ack::of(3)));
        bench.publish(0, "other", 1, 8, "nobody's");
        assert_eq!(bench.got(1), [""; 0]);
        let counters = bench.broker.counters();
        let of = |name| counters[name];
        assert_eq!((of("messages_received"), of("messages_sent"), of("messages_acknowledged")), (6, 4, 3));
        bench.send(0, &Packet::PingReq);
        assert_eq!(bench.got(0), ["pingresp"]);
    }
}

#[test]
fn a_session_outlives_its_connection_when_it_is_to() {
    for version in BOTH {
        let mut bench = Bench::new();
        bench.connect(0, version, "a", true);
        assert_eq!(bench.connect(1, version, "b", false), ["connack false 0x0"]);
        bench.subscribe(1, &[("t", 1)]);
        bench.publish(0, "t", 1, 1, "before");
        assert_eq!(bench.got(1), ["t q1 #1 before"]);
        bench.lose(1);
        bench.publish(0, "t", 1, 2, "meanwhile");
        bench.publish(0, "t", 0, 0, "not kept");
        assert_eq!(
            bench.connect(2, version, "b", false),
            ["connack true 0x0", "t q1 #1 before again", "t q1 #2 meanwhile"]
        );
        for id in [1, 2] {
            bench.send(2, &Packet::PubAck(Ack::of(id)));
        }
        bench.lose(2);
        assert_eq!(bench.connect(3, version, "b", true), ["connack false 0x0"]);
        bench.publish(0, "t", 1, 3, "later");
        assert_eq!(bench.got(3), [""; 0]);
    }
    let mut bench = Bench::new();
    bench.connect(0, Version::V5, "b", false);
    bench.lose(0);
    bench.out.now = 101 * SECOND;
    assert_eq!(
        bench.connect(1, Version::V5, "b", false),
        ["connack false 0x0"],
        "after Session Expiry Interval"
    );
}

#[test]
fn a_second_connection_of_a_client_takes_over() {
    let mut bench = Bench::new();
    bench.connect(0, Version::V5, "a", true);
    bench.subscribe(0, &[("t", 0)]);
    assert_eq!(bench.connect(1, Version::V5, "a", true), ["connack false 0x0"]);
    assert_eq!(bench.got(0), ["disconnect 0x8e"]);
    assert_eq!(bench.closed, [0]);
    bench.lose(0);
    bench.subscribe(1, &[("t", 0)]);
    bench.publish(1, "t", 0, 0, "mine");
    bench.lose(1);
    assert_eq!(bench.broker.counters()["taken_over"], 1);
    assert_eq!(bench.broker.names.len(), 0);
}

#[test]
fn a_session_goes_on_when_it_is_taken_over() {
    for version in BOTH {
        let mut bench = Bench::new();
        bench.connect(0, version, "a", true);
        bench.connect(1, version, "b", false);
        bench.subscribe(1, &[("t", 1)]);
        bench.publish(0, "t", 1, 1, "one");
        assert_eq!(bench.got(1), ["t q1 #1 one"]);
        assert_eq!(bench.publish(1, "u", 2, 5, "mine"), ["pubrec 5"]);
        assert_eq!(bench.connect(2, version, "b", false), ["connack true 0x0", "t q1 #1 one again"]);
        assert_eq!(bench.closed, [1]);
        bench.lose(1);
        bench.publish(0, "t", 1, 2, "two");
        assert_eq!(bench.got(2), ["t q1 #2 two"]);
        bench.send(2, &Packet::PubRel(Ack::of(5)));
        assert_eq!(bench.got(2), ["pubcomp 5 0x0"], "a number that is known");
        // who has said goodbye is away, though its connection is still there
        bench.disconnect(2, &[]);
        bench.publish(0, "t", 1, 3, "three");
        assert_eq!(bench.got(2), [""; 0]);
        assert_eq!(
            bench.connect(3, version, "b", false),
            ["connack true 0x0", "t q1 #1 one again", "t q1 #2 two again", "t q1 #3 three"]
        );
        bench.lose(2);
        bench.publish(0, "t", 1, 4, "four");
        assert_eq!(bench.got(3), ["t q1 #4 four"]);
        assert_eq!(bench.broker.counters()["taken_over"], 1);
    }
}

#[test]
fn a_session_ends_when_its_client_stays_away() {
    let mut bench = Bench::new();
    bench.connect(0, Version::V5, "a", true);
    for (slot, name) in [(1, "b"), (2, "c")] {
        bench.connect(slot, Version::V5, name, false);
        bench.subscribe(slot, &[("t", 1)]);
        bench.lose(slot);
    }
    bench.out.now = 100 * SECOND - 1;
    for id in 1..=1001 {
        bench.publish(0, "t", 1, id, "x");
    }
    let of = |bench: &Bench, name| bench.broker.counters()[name];
    assert_eq!((of(&bench, "messages_not_kept"), of(&bench, "sessions_expired")), (2, 0));
    assert_eq!(bench.connect(3, Version::V5, "c", false).len(), 1001, "it is back in time");
    bench.out.now += 1;
    bench.publish(0, "t", 1, 1002, "x");
    assert_eq!((of(&bench, "messages_not_kept"), of(&bench, "sessions_expired")), (2, 1));
    assert_eq!(bench.broker.names.len(), 2);
    bench.out.now += 1000 * SECOND;
    bench.publish(0, "t", 1, 1003, "x");
    assert_eq!(of(&bench, "sessions_expired"), 1, "it is here");
    // a session without an end
    bench.connect_with(4, Version::V5, ("d", false), &[(SESSION_EXPIRY, u32::MAX)]);
    bench.connect(5, Version::V311, "e", false);
    bench.lose(4);
    bench.lose(5);
    bench.out.now = u64::MAX - 1;
    bench.publish(0, "t", 1, 1004, "x");
    assert_eq!((of(&bench, "sessions_expired"), bench.broker.names.len()), (1, 4));
}

#[test]
fn many_sessions_that_end_at_once_hold_up_nobody() {
    let mut bench = Bench::new();
    bench.connect(0, Version::V5, "a", true);
    for number in 0..200 {
        bench.connect(1, Version::V5, &format!("b{number}"), false);
        bench.subscribe(1, &[("t", 1)]);
        bench.lose(1);
    }
    bench.out.now = 100 * SECOND;
    for (id, left) in [(1, 136), (2, 72), (3, 8), (4, 0)] {
        bench.publish(0, "t", 1, id, "x");
        assert_eq!(bench.broker.away.len(), left);
        let mut clients = bench.broker.clients.iter_mut();
        assert!(clients.all(|one| one.next_queued().is_none()), "nothing is kept for them");
    }
    assert_eq!((bench.broker.names.len(), bench.broker.counters()["sessions_expired"]), (1, 200));
}

#[test]
fn a_client_says_at_its_end_how_long_its_session_is_kept() {
    let at_connect = |bench: &mut Bench, slot, seconds| {
        bench.connect_with(slot, Version::V5, ("b", false), &[(SESSION_EXPIRY, seconds)])
    };
    let mut bench = Bench::new();
    at_connect(&mut bench, 0, 3600);
    assert_eq!(bench.disconnect(0, &[(SESSION_EXPIRY, 0)]), [""; 0]);
    bench.lose(0);
    assert_eq!(at_connect(&mut bench, 1, 10), ["connack false 0x0"]);
    bench.disconnect(1, &[(SESSION_EXPIRY, 1000)]);
    bench.lose(1);
    bench.out.now = 999 * SECOND;
    assert_eq!(at_connect(&mut bench, 2, 10), ["connack true 0x0"]);
    bench.disconnect(2, &[]);
    bench.lose(2);
    bench.out.now += 10 * SECOND;
    assert_eq!(at_connect(&mut bench, 3, 0), ["connack false 0x0"]);
    assert_eq!(bench.broker.counters()["protocol_errors"], 0);
    // section 3.14.2.2.2: what was not to be kept cannot be kept after all
    assert_eq!(bench.disconnect(3, &[(SESSION_EXPIRY, 10)]), ["disconnect 0x82"]);
    bench.lose(3);
    assert_eq!(bench.broker.counters()["protocol_errors"], 1);
    assert_eq!(at_connect(&mut bench, 4, 0), ["connack false 0x0"]);
}

#[test]
fn a_message_that_is_too_large_for_a_client_is_left_out() {
    let mut bench = Bench::new();
    let limits = |most| [(SESSION_EXPIRY, 100), (MAXIMUM_PACKET_SIZE, most), (RECEIVE_MAXIMUM, 1)];
    bench.connect(0, Version::V5, "a", true);
    bench.connect_with(1, Version::V5, ("b", false), &limits(64));
    bench.subscribe(1, &[("t", 1)]);
    let text = "x".repeat(59);
    let got = |bench: &mut Bench, slot| -> Vec<usize> {
        let length = |line: String| line.rsplit(' ').find(|word| word.starts_with('x')).map_or(0, str::len);
        bench.got(slot).into_iter().map(length).collect()
    };
    // its topic takes 3 bytes, its number 2, the rest of the head 3
    for (qos, length) in [(0, 58), (0, 59), (1, 57), (1, 56), (1, 57), (1, 3)] {
        bench.publish(0, "t", qos, u16::from(qos), &text[..length]);
    }
    assert_eq!(got(&mut bench, 1), [58, 56]);
    bench.send(1, &Packet::PubAck(Ack::of(2)));
    assert_eq!(got(&mut bench, 1), [3], "what waited and is too large leaves no gap");
    bench.send(1, &Packet::PubAck(Ack::of(4)));
    bench.publish(0, "t", 1, 1, &text[..56]);
    assert_eq!(got(&mut bench, 1), [56]);
    bench.lose(1);
    bench.publish(0, "t", 1, 1, &text[..4]);
    let again = bench.connect_with(2, Version::V5, ("b", false), &limits(63));
    assert_eq!(again, ["connack true 0x0", "t q1 #6 xxxx"]);
    let counters = bench.broker.counters();
    assert_eq!((counters["messages_too_large"], counters["messages_sent"]), (4, 5));
}

#[test]
fn retained_messages_and_wills() {
    let mut bench = Bench::new();
    bench.connect(0, Version::V5, "a", true);
    let retained =
        |payload| Packet::Publish(Publish { retain: true, topic: "t/r", payload, ..Publish::default() });
    bench.send(0, &retained(b"kept"));
    bench.open(1, Version::V5);
    let will = Will { topic: "t/w", payload: b"gone", qos: 1, ..Will::default() };
    bench.send(
        1,
        &Packet::Connect(Connect { clean: true, client_id: "b", will: Some(will), ..Connect::default() }),
    );
    bench.got(1);
    assert_eq!(bench.subscribe(0, &[("t/#", 1)]), ["suback [1]", "t/r retained q0 #0 kept"]);
    bench.lose(1);
    assert_eq!(bench.got(0), ["t/w q1 #1 gone"]);
    bench.send(0, &retained(b""));
    bench.got(0);
    bench.connect(2, Version::V311, "c", true);
    assert_eq!(bench.subscribe(2, &[("t/#", 0)]), ["suback [0]"]);
    // section 3.8.3.1: who asks for it is told of each message whether it is to be retained
    bench.connect(4, Version::V5, "e", true);
    bench.subscribe(4, &[("t/r", 8)]);
    bench.send(0, &retained(b"new"));
    assert_eq!(bench.publish(0, "t/r", 0, 0, "other"), ["t/r q0 #0 new", "t/r q0 #0 other"]);
    assert_eq!(bench.got(4), ["t/r retained q0 #0 new", "t/r q0 #0 other"]);
    bench.got(2);
    // a client that says goodbye has no will
    bench.open(3, Version::V311);
    bench.send(
        3,
        &Packet::Connect(Connect { clean: true, client_id: "d", will: Some(will), ..Connect::default() }),
    );
    bench.send(3, &Packet::Disconnect { code: 0, properties: Properties::default() });
    bench.lose(3);
    assert_eq!(bench.got(2), [""; 0]);
}

#[test]
fn filters_are_checked_and_taken_back() {
    let mut bench = Bench::new();
    bench.connect(0, Version::V5, "a", true);
    bench.connect(1, Version::V311, "b", true);
    let bad = [("a#", 0), ("$share/g/t", 0), ("t", 1)];
    assert_eq!(bench.subscribe(0, &bad), ["suback [8f, 9e, 1]"]);
    assert_eq!(bench.subscribe(1, &bad), ["suback [80, 80, 1]"]);
    assert_eq!(bench.bytes(0, b"\xa2\x09\x00\x09\x00\x00\x01t\x00\x01u"), 11);
    assert_eq!(bench.got(0), ["unsuback [0, 0, 17]"]);
    assert_eq!(bench.bytes(1, b"\xa2\x05\x00\x09\x00\x01t"), 7);
    assert_eq!(bench.got(1), ["unsuback []"]);
    bench.publish(0, "t", 1, 1, "x");
    assert_eq!((bench.got(0), bench.got(1)), (vec![], vec![]));
}

#[test]
fn who_breaks_the_rules_is_closed() {
    let connect = b"\x10\x0d\x00\x04MQTT\x04\x02\x00\x00\x00\x01a";
    for (bytes, said) in [
        (&b"\xc0\x00"[..], &[][..]),
        (b"\x10\x0d\x00\x04MQTT\x03\x02\x00\x00\x00\x01a", &["connack false 0x1"]),
        (b"\x10\xff\xff\xff\xff\x01", &[]),
        (b"\x30\xff\xff\xff\x7f", &[]),
    ] {
        let mut bench = Bench::new();
        bench.open(0, Version::V311);
        assert_eq!(bench.bytes(0, bytes), bytes.len());
        assert_eq!(
            (bench.got(0), bench.closed.clone()),
            (said.iter().map(|s| (*s).to_owned()).collect(), vec![0])
        );
        assert_eq!(bench.broker.counters()["protocol_errors"], 1);
    }
    let mut bench = Bench::new();
    bench.open(0, Version::V311);
    bench.bytes(0, connect);
    // a second CONNECT (section 3.1.0)
    bench.bytes(0, connect);
    assert_eq!((bench.got(0), bench.closed.clone()), (vec!["connack false 0x0".to_owned()], vec![0]));
}

#[test]
fn silent_clients_are_closed() {
    let mut bench = Bench::new();
    bench.open(0, Version::V5);
    bench.send(
        0,
        &Packet::Connect(Connect { clean: true, client_id: "a", keep_alive: 10, ..Connect::default() }),
    );
    bench.open(1, Version::V5);
    let timer = |bench: &mut Bench, slot, seconds| {
        bench.out.now = seconds * SECOND;
        bench.broker.timer(Bench::id(slot), &mut bench.out);
        bench.collect();
    };
    bench.out.now = 9 * SECOND;
    bench.send(0, &Packet::PingReq);
    timer(&mut bench, 1, 10);
    assert_eq!(bench.closed, [1], "no CONNECT");
    timer(&mut bench, 0, 10);
    assert_eq!(
        bench.wakes.last(),
        Some(&(Bench::id(0), 24 * SECOND)),
        "a timer for each, not one more for CONNECT"
    );
    assert_eq!(bench.wakes.len(), 3);
    timer(&mut bench, 0, 15);
    assert_eq!(bench.wakes.len(), 3);
    timer(&mut bench, 0, 24);
    assert_eq!(bench.closed, [1, 0]);
    assert_eq!(bench.got(0), ["connack false 0x0", "pingresp", "disconnect 0x8d"]);
}

#[test]
fn a_share_is_refused_and_a_share_not_acknowledged() {
    let mut bench = Bench::with(&Settings { error_share: 1.0, ..settings() });
    assert_eq!(bench.connect(0, Version::V5, "a", true), ["connack false 0x88"]);
    let mut bench = Bench::with(&Settings { drop_share: 0.5, ..settings() });
    bench.connect(0, Version::V311, "a", true);
    let acknowledged: usize = (1..=1000).map(|id| bench.publish(0, "t", 1, id, "x").len()).sum();
    assert!((430..570).contains(&acknowledged), "{acknowledged}");
    assert_eq!(bench.broker.counters()["acknowledgements_withheld"], 1000 - acknowledged as u64);
}

#[test]
fn what_waits_for_a_client_is_bounded() {
    let mut bench = Bench::new();
    bench.connect(0, Version::V311, "a", true);
    bench.connect(1, Version::V311, "b", true);
    bench.subscribe(1, &[("t", 1)]);
    for id in 1..=3000 {
        bench.publish(0, "t", 1, id, "x");
    }
    assert_eq!(bench.got(1).len(), 1000);
    assert_eq!(bench.broker.counters()["messages_not_kept"], 1000);
    for id in 1..=1000 {
        bench.send(1, &Packet::PubAck(Ack::of(id)));
    }
    assert_eq!(bench.got(1).len(), 1000);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]
    #[test]
    fn no_bytes_break_it(parts: Vec<(bool, u8, Vec<u8>)>) {
        let mut bench = Bench::new();
        bench.connect(0, Version::V311, "a", false);
        bench.connect(1, Version::V5, "b", false);
        for (to, first, body) in parts {
            let mut packet = vec![first, body.len().min(127) as u8];
            packet.extend_from_slice(&body[..body.len().min(127)]);
            bench.bytes(u32::from(to), &packet);
        }
        bench.lose(0);
        bench.lose(1);
        assert_eq!(bench.broker.counters()["open_connections"], 0);
    }
}
