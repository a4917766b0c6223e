use super::*;
use crate::event_tests::event;
use crate::{Block, Endpoint, EventKind, Mapping, Quota, Session, Tags, Volume};
use proptest::prelude::*;
use std::collections::HashMap;
use std::net::Ipv4Addr;

const AT: u64 = 1_700_000_000_250;
const INSIDE: Endpoint = Endpoint { address: Ipv4Addr::new(10, 0, 0, 7), port: 40000 };
const OUTSIDE: Endpoint = Endpoint { address: Ipv4Addr::new(192, 0, 2, 1), port: 1024 };
const REMOTE: Endpoint = Endpoint { address: Ipv4Addr::new(198, 51, 100, 9), port: 443 };

fn session(tags: Tags) -> Session {
    Session { inside: INSIDE, tags, outside: OUTSIDE, remote: REMOTE, protocol: 6 }
}

fn messages(config: Config, events: &[Event]) -> Vec<Vec<u8>> {
    let mut exporter = Exporter::new(config).expect("a configuration");
    let mut all = Vec::new();
    let mut out = |message: &[u8], _: u32| all.push(message.to_vec());
    for event in events {
        exporter.event(AT, event, &mut out);
    }
    exporter.flush(AT, &mut out);
    all
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The only message of one event: what it is after its header, without the spaces of `want`.
fn golden(what: EventKind, want: &str) {
    let got = messages(Config::default(), &[Event { at_ms: AT, what }]);
    assert_eq!(got.len(), 1);
    let want: String = want.split_whitespace().collect();
    assert_eq!(hex(&got[0][16..]), want, "{what:?}");
    let len = got[0].len() as u16;
    assert_eq!(hex(&got[0][..16]), format!("000a{len:04x}6553f1000000000000000001"));
}

#[test]
fn a_session_is_created() {
    golden(
        EventKind::SessionCreated(session(Tags::default())),
        "0002 0030 0100 000a
         0143 0008 00e6 0001 01cf 0004
         0008 0004 00e1 0004 0004 0001 0007 0002 00e3 0002
         000c 0004 000b 0002
         0100 0024
         0000018bcfe568fa 04 00000001
         0a000007 c0000201 06 9c40 0400
         c6336409 01bb",
    );
}

#[test]
fn a_session_behind_two_tags_is_deleted() {
    golden(
        EventKind::SessionDeleted(
            session(Tags { outer: 100, inner: 7 }),
            Volume { packets_up: 3, bytes_up: 180, packets_down: 4, bytes_down: 5000 },
        ),
        "0002 0048 0105 0010
         0143 0008 00e6 0001 01cf 0004
         0008 0004 00e1 0004 0004 0001 0007 0002 00e3 0002
         000c 0004 000b 0002
         012a 0008 00e7 0008 012b 0008 00e8 0008
         00f3 0002 00f5 0002
         0105 0048
         0000018bcfe568fa 05 00000001
         0a000007 c0000201 06 9c40 0400
         c6336409 01bb
         0000000000000003 00000000000000b4 0000000000000004 0000000000001388
         0064 0007",
    );
}

#[test]
fn a_session_that_goes_on_is_a_flow_without_event() {
    golden(
        EventKind::SessionInterim(
            session(Tags::default()),
            Volume { packets_up: 3, bytes_up: 180, packets_down: 4, bytes_down: 5000 },
        ),
        "0002 003c 0124 000d
         0143 0008 01cf 0004
         0008 0004 00e1 0004 0004 0001 0007 0002 00e3 0002
         000c 0004 000b 0002
         012a 0008 00e7 0008 012b 0008 00e8 0008
         0124 0043
         0000018bcfe568fa 00000001
         0a000007 c0000201 06 9c40 0400
         c6336409 01bb
         0000000000000003 00000000000000b4 0000000000000004 0000000000001388",
    );
}

#[test]
fn a_mapping_is_created_and_deleted() {
    let mapping = Mapping { inside: INSIDE, tags: Tags::default(), outside: OUTSIDE, protocol: 17 };
    let template = "0002 0028 0106 0008
         0143 0008 00e6 0001 01cf 0004
         0008 0004 00e1 0004 0004 0001 0007 0002 00e3 0002 ";
    let rest = "00000001 0a000007 c0000201 11 9c40 0400";
    golden(EventKind::MappingCreated(mapping), &format!("{template} 0106 001e 0000018bcfe568fa 08 {rest}"));
    golden(EventKind::MappingDeleted(mapping), &format!("{template} 0106 001e 0000018bcfe568fa 09 {rest}"));
}

#[test]
fn a_port_block_is_allocated_and_released() {
    let tags = Tags { outer: 100, inner: 0 };
    let block = Block { inside: INSIDE.address, tags, outside: OUTSIDE.address, first: 1024, last: 1535 };
    let template = "0002 0028 010a 0008
         0143 0008 00e6 0001 01cf 0004
         0008 0004 00e1 0004 0169 0002 016a 0002 00f3 0002";
    let rest = "00000001 0a000007 c0000201 0400 05ff 0064";
    golden(EventKind::BlockAllocated(block), &format!("{template} 010a 001f 0000018bcfe568fa 10 {rest}"));
    golden(EventKind::BlockReleased(block), &format!("{template} 010a 001f 0000018bcfe568fa 11 {rest}"));
}

#[test]
fn resources_are_exhausted() {
    golden(
        EventKind::AddressesExhausted { pool: 3 },
        "0002 0018 010c 0004 0143 0008 00e6 0001 01cf 0004 011b 0004
         010c 0015 0000018bcfe568fa 03 00000001 00000003",
    );
    golden(
        EventKind::PortsExhausted { outside: OUTSIDE.address, protocol: 17 },
        "0002 001c 010f 0005 0143 0008 00e6 0001 01cf 0004 00e1 0004 0004 0001
         010f 0016 0000018bcfe568fa 0c 00000001 c0000201 11",
    );
}

#[test]
fn limits_are_met() {
    let of_nat = |quota, set: &str, element: &str, value: &str| {
        golden(
            EventKind::QuotaExceeded(quota),
            &format!(
                "0002 001c {set} 0005 0143 0008 00e6 0001 01cf 0004 01d2 0004 {element} 0004
                 {set} 0019 0000018bcfe568fa 0d 00000001 {value} 000003e8"
            ),
        );
    };
    let limit = 1000;
    of_nat(Quota::Sessions { limit }, "0112", "01d7", "00000001");
    of_nat(Quota::Mappings { limit }, "0115", "01d8", "00000002");
    of_nat(Quota::Subscribers { limit }, "011b", "01da", "00000004");
    let of_one = |quota, set: &str, element: &str, value: &str| {
        golden(
            EventKind::QuotaExceeded(quota),
            &format!(
                "0002 0020 {set} 0006 0143 0008 00e6 0001 01cf 0004 01d2 0004 {element} 0004 0008 0004
                 {set} 001d 0000018bcfe568fa 0d 00000001 {value} 000003e8 0a000007"
            ),
        );
    };
    let (inside, tags) = (INSIDE.address, Tags::default());
    of_one(Quota::PerSubscriber { limit, inside, tags }, "0118", "01d9", "00000003");
    of_one(Quota::Fragments { limit, inside, tags }, "011e", "01db", "00000005");
}

#[test]
fn losses_are_an_options_record() {
    let mut exporter = Exporter::new(Config::default()).expect("a configuration");
    let mut got = Vec::new();
    exporter.lost(AT, 77, &mut |_, _| panic!("nothing is complete yet"));
    exporter.flush(AT, &mut |message, events| {
        assert_eq!(events, 0);
        got = message.to_vec();
    });
    let want = "0003 0016 0121 0003 0001 0090 0004 0143 0008 00a6 0008
                0121 0018 00000001 0000018bcfe568fa 000000000000004d";
    assert_eq!(hex(&got[16..]), want.split_whitespace().collect::<String>());
}

/// What an event takes when messages are full, by which the volume of a log is reckoned. With the headers of UDP and IPv4.
#[test]
fn bytes_per_event() {
    let per_event = |what| {
        let events = vec![Event { at_ms: AT, what }; 100_000];
        let sent = messages(Config::default(), &events);
        sent.iter().map(|message| message.len() + 28).sum::<usize>() as f64 / events.len() as f64
    };
    let block = Block {
        inside: INSIDE.address,
        tags: Tags::default(),
        outside: OUTSIDE.address,
        first: 1024,
        last: 1535,
    };
    let near = |bytes: f64, want: f64| assert!((bytes - want).abs() < 0.1, "{bytes} and not {want}");
    near(per_event(EventKind::SessionCreated(session(Tags::default()))), 33.1);
    near(per_event(EventKind::SessionDeleted(session(Tags::default()), Volume::default())), 66.2);
    near(per_event(EventKind::BlockAllocated(block)), 25.8);
}

#[test]
fn templates_come_again_after_the_interval_and_after_a_restart() {
    let mut exporter = Exporter::new(Config::default()).expect("a configuration");
    let event = Event { at_ms: AT, what: EventKind::SessionCreated(session(Tags::default())) };
    let say = |exporter: &mut Exporter, now_ms, events: usize| {
        let mut sets = Vec::new();
        let mut out = |message: &[u8], _: u32| sets.extend(parse(message).1);
        (0..events).for_each(|_| exporter.event(now_ms, &event, &mut out));
        exporter.flush(now_ms, &mut out);
        sets.into_iter().map(|(id, _)| id).collect::<Vec<u16>>()
    };
    assert_eq!(say(&mut exporter, AT, 2), [2, 256]);
    assert_eq!(say(&mut exporter, AT + 59_999, 1), [256]);
    assert_eq!(say(&mut exporter, AT + 60_000, 1), [2, 256]);
    assert!(say(&mut exporter, AT + 119_999, 0).is_empty());
    assert_eq!(say(&mut exporter, AT + 120_000, 0), [2]);
    exporter.restart();
    assert_eq!(say(&mut exporter, AT + 120_001, 1), [2, 256]);
    assert_eq!(exporter.sequence, 1);
}

#[test]
fn a_message_is_as_long_as_the_link_takes_and_no_longer() {
    assert_eq!(payload(1500, false), 1472);
    assert_eq!(payload(1500, true), 1452);
    assert_eq!(payload(20, true), 0);
    let bounded = |max_message| Exporter::new(Config { max_message, ..Config::default() }).map(drop);
    assert_eq!(bounded(MIN_MESSAGE - 1), Err(BadLength(191)));
    assert_eq!(bounded(MIN_MESSAGE), Ok(()));
    assert_eq!(bounded(MAX_MESSAGE), Ok(()));
    assert_eq!(bounded(MAX_MESSAGE + 1), Err(BadLength(65_536)));
    let longest = Template::all().map(|template| {
        let mut described = Vec::new();
        describe(&mut described, template);
        16 + 4 + described.len() + 4 + template.record_len()
    });
    assert!(longest.max().expect("templates") <= MIN_MESSAGE);
}

/// Sequence number, and the sets with their contents. Panics where lengths do not fit.
fn parse(message: &[u8]) -> (u32, Vec<(u16, Vec<u8>)>) {
    let u16_at = |at: usize| u16::from_be_bytes([message[at], message[at + 1]]);
    assert_eq!(u16_at(0), 10);
    assert_eq!(usize::from(u16_at(2)), message.len());
    let sequence = u32::from_be_bytes(message[8..12].try_into().expect("four bytes"));
    let (mut sets, mut at) = (Vec::new(), 16);
    while at < message.len() {
        let (id, len) = (u16_at(at), usize::from(u16_at(at + 2)));
        assert!(len > 4);
        sets.push((id, message[at + 4..at + len].to_vec()));
        at += len;
    }
    (sequence, sets)
}

/// A collector that knows RFC 7011 and nothing of ours: template id → bytes of a record.
#[derive(Default)]
struct Collector {
    templates: HashMap<u16, usize>,
    records: u32,
}

impl Collector {
    fn take(&mut self, message: &[u8]) {
        let (sequence, sets) = parse(message);
        assert_eq!(sequence, self.records, "sequence number");
        for (id, content) in sets {
            if id < 256 {
                self.learn(id, &content);
            } else {
                let len = self.templates[&id];
                assert_eq!(content.len() % len, 0, "set {id}");
                self.records += (content.len() / len) as u32;
            }
        }
    }

    fn learn(&mut self, set: u16, content: &[u8]) {
        let words: Vec<u16> = content.as_chunks().0.iter().map(|pair| u16::from_be_bytes(*pair)).collect();
        assert_eq!(words.len() * 2, content.len());
        let (mut at, head) = (0, if set == 3 { 3 } else { 2 });
        while at < words.len() {
            let fields = usize::from(words[at + 1]);
            let lens = words[at + head..at + head + 2 * fields].iter().skip(1).step_by(2);
            self.templates.insert(words[at], lens.map(|len| usize::from(*len)).sum());
            at += head + 2 * fields;
        }
    }
}

proptest! {
    #[test]
    fn any_events_and_any_mtu_give_messages_that_parse(
        events in prop::collection::vec((event(), 0..20_000u64, prop::bool::weighted(0.05)), 0..300),
        max_message in prop_oneof![MIN_MESSAGE..400, Just(1452), Just(MAX_MESSAGE)],
    ) {
        let mut exporter = Exporter::new(Config { max_message, ..Config::default() }).expect("in bounds");
        let mut collector = Collector::default();
        let (mut now_ms, mut lost, mut told) = (AT, 0, 0);
        let mut out = |message: &[u8], events: u32| {
            assert!(message.len() <= max_message);
            collector.take(message);
            told += events;
        };
        for (event, pause, overflow) in &events {
            now_ms += pause;
            exporter.event(now_ms, event, &mut out);
            if *overflow {
                lost += 1;
                exporter.lost(now_ms, lost, &mut out);
            }
        }
        exporter.flush(now_ms, &mut out);
        prop_assert_eq!(told as usize, events.len());
        prop_assert_eq!(u64::from(collector.records), events.len() as u64 + lost);
    }
}
