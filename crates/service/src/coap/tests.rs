//! Clients whose server is under test.

use super::Coap;
use crate::{Counters, DatagramService, Datagrams, Settings};
use proptest::prelude::{ProptestConfig, any, proptest};
use protocol::coap::wire::{self, Block, Code, Header, Message, MessageType, Writer};
use std::net::SocketAddr;

const SECOND: u64 = 1_000_000_000;

struct Bench {
    server: Coap,
    out: Datagrams,
}

fn bench(more: &str) -> Bench {
    let text = format!(r#"{{"protocol": "coap", "listen": "127.0.0.1:5683", "size": 5{more}}}"#);
    let settings: Settings = serde_json::from_str(&text).expect("settings");
    Bench { server: Coap::new(&settings), out: Datagrams::default() }
}

fn peer() -> SocketAddr {
    "10.0.0.1:40000".parse().expect("an address")
}

/// A request, with options in the order of their numbers.
fn request(kind: MessageType, code: u8, id: u16, options: &[(u16, &[u8])], payload: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut writer = Writer::begin(&mut bytes, kind, Code(code), id, &[7]);
    options.iter().for_each(|(number, value)| writer.option(*number, value));
    writer.payload(|out| out.extend_from_slice(payload));
    bytes
}

/// Type, code and ID of a message, and what else it says.
#[derive(Debug, PartialEq)]
struct MessageSummary {
    kind: MessageType,
    code: Code,
    id: u16,
    observe: Option<u32>,
    block2: Option<Block>,
    body: usize,
}

impl Bench {
    fn play(&mut self, bytes: &[u8]) -> Vec<MessageSummary> {
        self.server.received(peer(), bytes, &mut self.out);
        self.sent()
    }

    fn at(&mut self, now: u64) -> Vec<MessageSummary> {
        self.out.now = now;
        self.server.advance(&mut self.out);
        self.sent()
    }

    fn sent(&mut self) -> Vec<MessageSummary> {
        let mut said = Vec::new();
        self.out.drain(|to, bytes| {
            assert_eq!(to, peer());
            let header = Header::parse(bytes).expect("a header");
            let Message { options, payload, .. } = Message::parse(header, bytes).expect("a message");
            said.push(MessageSummary {
                kind: header.kind,
                code: header.code,
                id: header.id,
                observe: options.observe,
                block2: options.block2,
                body: payload.len(),
            });
        });
        said
    }

    fn counters(&self) -> Counters {
        self.server.counters()
    }
}

#[test]
fn a_response_is_in_the_acknowledgement_and_the_same_for_a_copy() {
    let mut bench = bench("");
    let get = request(MessageType::Con, 1, 9, &[(wire::URI_PATH, b"20")], b"");
    let said = bench.play(&get);
    let [MessageSummary { kind: MessageType::Ack, id: 9, body: 20, .. }] = said[..] else {
        panic!("{said:?}")
    };
    assert_eq!(said[0].code, Code::of(2, 5));
    assert_eq!(bench.play(&get), said);
    let put = request(MessageType::Non, 3, 10, &[], b"abc");
    let said = bench.play(&put);
    assert_eq!((said[0].kind, said[0].code, said[0].body), (MessageType::Non, Code::of(2, 4), 0));
    assert!(bench.play(&put).is_empty(), "a copy of a NON is not answered again");
    let counters = bench.counters();
    assert_eq!((counters["requests"], counters["responses"], counters["duplicates"]), (2, 2, 2));
    assert_eq!((counters["body_bytes"], counters["body_bytes_received"]), (20, 3));
}

#[test]
fn with_a_delay_the_response_is_a_message_of_its_own_until_it_is_acknowledged() {
    let mut bench = bench(r#", "delay_ns": 500000000"#);
    let get = request(MessageType::Con, 1, 9, &[], b"");
    let said = bench.play(&get);
    assert_eq!((said.len(), said[0].kind, said[0].code), (1, MessageType::Ack, Code::EMPTY));
    assert!(bench.at(SECOND / 2 - 1).is_empty());
    let said = bench.at(SECOND / 2);
    let [MessageSummary { kind: MessageType::Con, body: 5, id, .. }] = said[..] else { panic!("{said:?}") };
    assert_eq!(bench.at(4 * SECOND), said, "it is not acknowledged: once more");
    let mut ack = Vec::new();
    Writer::begin(&mut ack, MessageType::Ack, Code::EMPTY, id, &[]);
    bench.play(&ack);
    assert!(bench.at(100 * SECOND).is_empty());
    let counters = bench.counters();
    assert_eq!((counters["responses_separate"], counters["retransmissions"]), (1, 1));
    assert_eq!((counters["requests"], counters["responses_unacknowledged"]), (1, 0));
}

#[test]
fn nobody_acknowledges_forever() {
    let mut bench = bench(r#", "delay_ns": 1"#);
    bench.play(&request(MessageType::Con, 1, 9, &[], b""));
    let sent: usize = (1..200).map(|second| bench.at(second * SECOND).len()).sum();
    assert_eq!(sent, 5);
    assert_eq!(bench.counters()["responses_unacknowledged"], 1);
}

#[test]
fn a_large_body_comes_in_blocks_of_the_size_that_is_asked_for() {
    let mut bench = bench("");
    let path = (wire::URI_PATH, &b"2500"[..]);
    let mut sizes = Vec::new();
    for (id, number) in (0..3).zip([None, Some(1), Some(2)]) {
        let value = number.map(|number: u8| [number << 4 | 6]);
        let mut options = vec![path];
        options.extend(value.as_ref().map(|value| (wire::BLOCK2, &value[..])));
        let said = bench.play(&request(MessageType::Con, 1, id, &options, b""));
        sizes.push((said[0].body, said[0].block2.expect("a block").more));
    }
    assert_eq!(sizes, [(1024, true), (1024, true), (452, false)]);
    // from the beginning on in blocks of 64 bytes
    let said = bench.play(&request(MessageType::Con, 1, 3, &[path, (wire::BLOCK2, &[2])], b""));
    assert_eq!((said[0].body, said[0].block2), (64, Some(Block { number: 0, more: true, szx: 2 })));
    let beyond = bench.play(&request(MessageType::Con, 1, 4, &[path, (wire::BLOCK2, &[0x86])], b""));
    assert_eq!((beyond[0].code, beyond[0].body), (Code::of(4, 0), 0));
    let counters = bench.counters();
    assert_eq!((counters["requests"], counters["body_bytes"]), (2, 2564));
}

#[test]
fn blocks_of_a_request_come_in_order_or_not_at_all() {
    let mut bench = bench("");
    let mut put = |id, number: u8, more: u8, size| {
        let said = bench.play(&request(
            MessageType::Con,
            3,
            id,
            &[(wire::URI_PATH, b"a"), (wire::BLOCK1, &[number << 4 | more << 3])],
            &vec![1; size],
        ));
        said[0].code
    };
    assert_eq!(put(0, 0, 1, 16), Code::CONTINUE);
    assert_eq!(put(1, 1, 1, 16), Code::CONTINUE);
    assert_eq!(put(2, 2, 0, 3), Code::of(2, 4));
    assert_eq!(put(3, 0, 1, 16), Code::CONTINUE);
    assert_eq!(put(4, 2, 0, 16), Code::of(4, 8), "a block is missing");
    let counters = bench.counters();
    // the last block of each
    assert_eq!((counters["requests"], counters["bad_requests"], counters["blocks_received"]), (2, 1, 5));
}

#[test]
fn an_observer_is_told_until_it_resets() {
    let mut bench = bench(r#", "notify_ns": 1000000000"#);
    let register = request(MessageType::Non, 1, 1, &[(wire::OBSERVE, &[])], b"");
    let said = bench.play(&register);
    assert_eq!((said[0].kind, said[0].observe), (MessageType::Non, Some(1)));
    let said = bench.at(SECOND);
    let [MessageSummary { observe: Some(2), body: 5, id, .. }] = said[..] else { panic!("{said:?}") };
    assert!(bench.at(SECOND + 1).is_empty());
    let mut reset = Vec::new();
    Writer::begin(&mut reset, MessageType::Rst, Code::EMPTY, id, &[]);
    bench.play(&reset);
    assert!(bench.at(9 * SECOND).is_empty());
    bench.play(&request(MessageType::Con, 1, 2, &[(wire::OBSERVE, &[])], b""));
    assert_eq!(bench.counters()["open_observations"], 1);
    let said = bench.play(&request(MessageType::Con, 1, 3, &[(wire::OBSERVE, &[1])], b""));
    assert_eq!(said[0].observe, None);
    let counters = bench.counters();
    assert_eq!(
        (counters["observations"], counters["open_observations"], counters["notifications"]),
        (2, 0, 1)
    );
}

#[test]
fn what_is_no_request_is_rejected() {
    let mut bench = bench("");
    let mut said = |bytes: &[u8]| bench.play(bytes).first().map(|said| (said.kind, said.code));
    assert_eq!(said(&[0x40, 0, 0, 1]), Some((MessageType::Rst, Code::EMPTY)), "a ping");
    assert_eq!(
        said(&[0x40, 1, 0, 2, 0xff]),
        Some((MessageType::Rst, Code::EMPTY)),
        "a marker and no payload"
    );
    assert_eq!(said(&[0x80, 1, 0, 2]), None, "another version");
    let critical = request(MessageType::Con, 1, 3, &[(2051, b"x")], b"");
    assert_eq!(said(&critical), Some((MessageType::Ack, Code::of(4, 2))));
    let counters = bench.counters();
    assert_eq!((counters["pings"], counters["bad_messages"], counters["bad_requests"]), (1, 2, 1));
}

#[test]
fn shares_are_left_out_or_refused() {
    let mut bench = bench(r#", "drop_share": 0.5, "error_share": 0.5, "seed": 4"#);
    for id in 0..1000 {
        let get = request(MessageType::Con, 1, id, &[], b"");
        let first = bench.play(&get);
        assert_eq!(bench.play(&get).len(), first.len(), "a copy gets what the first got");
    }
    let counters = bench.counters();
    assert!((400..600).contains(&counters["unanswered_requests"]));
    assert!((150..350).contains(&counters["refused_requests"]));
    assert_eq!(counters["responses"] + counters["unanswered_requests"], 1000);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, ..ProptestConfig::default() })]

    #[test]
    fn nothing_that_comes_breaks_it(messages in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..40), 1..8)) {
        let mut bench = bench(r#", "delay_ns": 5"#);
        for (now, message) in (0..).zip(&messages) {
            let mut message = message.clone();
            // mostly of the right version
            message.iter_mut().take(1).for_each(|first| *first = *first & 0x3f | 0x40);
            bench.server.received(peer(), &message, &mut bench.out);
            bench.at(now * SECOND);
        }
    }
}
