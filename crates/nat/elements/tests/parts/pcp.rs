//! Mappings that a subscriber asks for by PCP, over ports: a stranger gets in by them, and only as long as they are there.

use super::*;
use nat_pcp::testing::{Ask, option, prefer_failure, third_party};
use std::net::SocketAddrV4;

const BOX: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 254);
const NONE: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, 0);
const STRANGER: (Ipv4Addr, Mac) = (Ipv4Addr::new(198, 51, 100, 66), ROUTER.1);

/// A datagram with a message in it.
fn carrying(from: (Ipv4Addr, Mac), port: u16, to: (SocketAddr, Mac), message: &[u8]) -> Vec<u8> {
    let len = (42 + message.len()).max(80);
    let flow = Flow {
        source_mac: from.1,
        destination_mac: to.1,
        source: SocketAddr::new(from.0.into(), port),
        destination: to.0,
    };
    let mut frame = vec![0; len];
    let signature = Signature { stream: 1, sequence: 2, sent_ns: 3 };
    Program::udp(&flow, len).unwrap().write(&mut frame, 0, &signature);
    frame.truncate(42 + message.len());
    frame[42..].copy_from_slice(message);
    let total = (28 + message.len()) as u16;
    frame[16..18].copy_from_slice(&total.to_be_bytes());
    frame[38..40].copy_from_slice(&(total - 20).to_be_bytes());
    // UDP without a checksum; that of IP anew.
    frame[40..42].fill(0);
    frame[24..26].fill(0);
    let sum = packet::checksum::of(&frame[14..34]);
    frame[24..26].copy_from_slice(&sum.to_be_bytes());
    frame
}

fn is_pcp(frame: &[u8]) -> bool {
    frame[12..14] == [8, 0] && frame[23] == 17 && ports(frame) == (5351, 4_000)
}

/// Ask until there is an answer.
fn told(near: &mut End, number: u8, ask: &Ask, options: &[Vec<u8>]) -> (u8, u32, SocketAddr) {
    let request =
        carrying(subscriber(number), 4_000, (SocketAddr::new(BOX.into(), 5351), INSIDE), &ask.bytes(options));
    near.send(&[request]);
    let answer = near.take(1).remove(0);
    assert_eq!(answer[..12], [subscriber(number).1, INSIDE].concat(), "to whom it is");
    assert_eq!(ipv4::addresses(&answer, 14).unwrap(), (BOX, subscriber(number).0));
    assert!(packet::Parsed::of(&answer).unwrap().is_intact(&answer), "checksums");
    let message = &answer[42..];
    let word = |at: usize| u32::from_be_bytes(message[at..at + 4].try_into().unwrap());
    let port = u16::from_be_bytes(message[42..44].try_into().unwrap());
    (message[3], word(4), SocketAddr::new(Ipv4Addr::from_bits(word(56)).into(), port))
}

fn ask(number: u8, port: u16, lifetime_s: u32, nonce: u8) -> Ask {
    let (client, nonce) = (subscriber(number).0, [nonce; 12]);
    Ask { opcode: 1, lifetime_s, client, nonce, protocol: 17, port, external: NONE, remote: NONE }
}

fn served(name: &str, more: &Value) -> Value {
    let mut graph = graph(name, "203.0.113.16/30", more);
    graph["elements"]["in-validity"]["pcp"] = json!(true);
    graph["elements"]["nat44"]["pcp"] = json!({"lifetime": {"least": "1s"}});
    graph
}

fn asks_and_is_reached(name: &str, more: &Value) {
    let run = start(&served(name, more));
    let (mut near, mut far) = (End::new(&format!("{name}-in")), End::new(&format!("{name}-out")));
    be_router(&mut far);
    far.ignores = Box::new(|frame| frame[12..14] != [8, 0]);
    // A restart is announced to all hosts of the inside.
    let announced = near.take(1).remove(0);
    assert_eq!(announced[..12], [[1, 0, 0x5e, 0, 0, 1], INSIDE].concat());
    assert_eq!((ports(&announced), &announced[42..46]), ((5351, 5350), &[2, 0x80, 0, 0][..]));
    near.ignores = Box::new(|frame| !is_pcp(frame));
    let end = Instant::now() + Duration::from_secs(60);
    for number in 1..=8 {
        let (code, lifetime, outside) = told(&mut near, number, &ask(number, 5_000, 600, number), &[]);
        assert_eq!((code, lifetime), (0, 600));
        assert_eq!(outside.ip().to_string()[..11], *"203.0.113.1");
        // Whoever sends there reaches the subscriber, which never sent to anybody but the box.
        let knocks = datagram(STRANGER, 7_000, (outside, OUTSIDE), number.into());
        near.ignores = Box::new(|frame| frame[12..14] != [8, 0] || ports(frame).1 != 5_000);
        far.send(std::slice::from_ref(&knocks));
        let heard = near.take(1).remove(0);
        assert_eq!(heard[..12], [subscriber(number).1, INSIDE].concat());
        assert_eq!(ipv4::addresses(&heard, 14).unwrap(), (STRANGER.0, subscriber(number).0));
        assert_eq!((ports(&heard), &heard[42..]), ((7_000, 5_000), &knocks[42..]));
        near.ignores = Box::new(|frame| !is_pcp(frame));
        // Not by another's nonce, nor by another host; and by its owner's wish it is over.
        let others = ask(number, 5_000, 0, 77);
        assert_eq!(told(&mut near, number, &others, &[]).0, 2, "NOT_AUTHORIZED");
        let host = Ipv4Addr::new(10, 0, 0, 99);
        let behind = Ask { client: host, ..ask(number, 5_000, 0, number) };
        assert_eq!(told(&mut near, number, &behind, &[]).0, 12, "ADDRESS_MISMATCH");
        assert_eq!(
            told(&mut near, number, &ask(number, 1, 9, 1), &[third_party(host)]).0,
            5,
            "UNSUPP_OPTION"
        );
        assert_eq!(told(&mut near, number, &ask(number, 5_000, 0, number), &[]).0, 0);
        let before = count(&run.observe(), "filtered");
        far.send(&[datagram(STRANGER, 7_001, (outside, OUTSIDE), 1)]);
        while count(&run.observe(), "filtered") == before {
            assert!(Instant::now() < end, "{:?}", dropped(&run.observe(), "nat44"));
            std::thread::yield_now();
        }
    }
    // One that is not asked for again is over by itself.
    let (code, lifetime, outside) =
        told(&mut near, 9, &ask(9, 5_000, 1, 9), &[prefer_failure(), option(200, b"x")]);
    assert_eq!((code, lifetime), (0, 1));
    let before = count(&run.observe(), "filtered");
    let mut stranger = 10_000;
    while count(&run.observe(), "filtered") == before {
        assert!(Instant::now() < end, "it does not end: {:?}", dropped(&run.observe(), "nat44"));
        // Who got in before may go on, so that it is another one each time.
        far.send(&[datagram(STRANGER, stranger, (outside, OUTSIDE), 1)]);
        stranger += 1;
        std::thread::sleep(Duration::from_millis(20));
    }
    // What is no request gets no answer, and is counted.
    near.send(&[carrying(subscriber(9), 4_000, (SocketAddr::new(BOX.into(), 5351), INSIDE), &[2, 0x81])]);
    while count(&run.observe(), "pcp_noise") == 0 {
        assert!(Instant::now() < end, "{:?}", dropped(&run.observe(), "nat44"));
        std::thread::yield_now();
    }
    assert!(near.take_soon(1).is_empty());
    run.stop();
}

fn count(view: &dyn GraphView, reason: &str) -> u64 {
    dropped(view, "nat44").get(reason).copied().unwrap_or(0)
}

#[test]
fn a_subscriber_asks_for_a_mapping_and_a_stranger_reaches_it() {
    asks_and_is_reached("nat-pcp", &json!({}));
}

#[test]
fn each_worker_answers_its_own_subscribers() {
    let replicas = json!({"count": 2, "affinity": "owner"});
    let more = json!({
        "replicas": {"subscribers": replicas, "nat44": replicas},
        "placement": [
            {"elements": ["inside.rx", "outside.rx", "subscribers#0", "nat44#0"]},
            {"elements": ["subscribers#1", "nat44#1"]},
        ],
    });
    asks_and_is_reached("nat-pcp-two", &more);
}
