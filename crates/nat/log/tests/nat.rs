//! From a packet through a NAT to lines of a log.

use nat_core::config::{Config, PoolAddress, Prefix};
use nat_core::{Frame, Nat, Side, Verdict};
use nat_log::{Clock, EventKind, Logger, Quota, Sender, Source, Transport, queue, syslog};
use packet::Flow;
use packet::frame::Program;
use packet::signature::Signature;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::time::Duration;

const SECOND: u64 = 1_000_000_000;

fn frame(source: SocketAddr) -> Vec<u8> {
    let destination = SocketAddr::from(([198, 51, 100, 9], 53));
    let flow = Flow { source_mac: [2; 6], destination_mac: [4; 6], source, destination };
    let mut frame = vec![0; 60];
    let mark = Signature { stream: 1, sequence: 2, sent_ns: 3 };
    let _written = Program::udp(&flow, 60).expect("a program").write(&mut frame, 0, &mark);
    frame
}

/// What a line says, from its MSGID on. Its outside ports are random.
fn words(line: &str) -> String {
    let left_out = ["outport=", "first=", "last=", "[nat@", "instance="];
    line.split(' ')
        .skip(5)
        .filter(|word| !left_out.iter().any(|name| word.starts_with(name)))
        .collect::<Vec<_>>()
        .join(" ")
}

#[test]
fn a_session_and_its_port_block_come_and_go() {
    let config = Config {
        sessions: 64,
        subscribers: 64,
        inside: vec![Prefix { address: Ipv4Addr::new(10, 0, 0, 0), bits: 8 }],
        pool: vec![PoolAddress::all_ports(Ipv4Addr::new(192, 0, 2, 1))],
        log_sessions: true,
        ..Config::default()
    };
    let collector = UdpSocket::bind("127.0.0.1:0").expect("a socket");
    collector.set_read_timeout(Some(Duration::from_secs(20))).expect("a time");
    let sender = Sender::new(Transport::Udp, collector.local_addr().expect("an address"));
    let (producer, consumer) = queue(64);
    let formatter = syslog::Formatter::new(syslog::Config::default()).expect("a configuration");
    let mut logger = Logger::new(formatter, sender, vec![consumer]);
    let mut source = Source::new(vec![producer], Clock { zero_ms: 1_700_000_000_000 });
    let mut nat = Nat::new(config).expect("a NAT");

    let mut bytes = frame(SocketAddr::from(([10, 0, 0, 7], 40_000)));
    let mut frames = [Frame::new(&mut bytes)];
    nat.process(Side::Inside, &mut frames, SECOND);
    assert!(matches!(frames[0].verdict, Verdict::Forward(_)), "{:?}", frames[0].verdict);
    // A budget that is used up says that there may be more.
    assert!(source.drain(&mut nat, 1) && !source.drain(&mut nat, 2));
    logger.turn(0);
    for second in 2..2000 {
        while nat.advance(second * SECOND, 64) {}
    }
    assert!(!source.drain(&mut nat, 100));
    drop(source);
    logger.turn(0);
    assert!(logger.is_over());

    let statistics = logger.statistics();
    assert_eq!((statistics.events, statistics.lost), (4, 0));
    let mut lines: Vec<String> = Vec::new();
    for _ in 0..4 {
        let mut datagram = [0; 2048];
        let len = collector.recv(&mut datagram).expect("a line");
        lines.push(String::from_utf8_lossy(&datagram[..len]).into_owned());
    }
    let flow =
        "proto=\"17\" in=\"10.0.0.7\" inport=\"40000\" out=\"192.0.2.1\" dst=\"198.51.100.9\" dstport=\"53\"";
    let passed = "pktsup=\"1\" bytesup=\"46\" pktsdown=\"0\" bytesdown=\"0\"";
    let block = "in=\"10.0.0.7\" out=\"192.0.2.1\"";
    let want = [
        format!("block-allocate {block}"),
        format!("session-create {flow}]"),
        format!("session-delete {flow} {passed}]"),
        format!("block-release {block}"),
    ];
    assert_eq!(lines.iter().map(|line| words(line)).collect::<Vec<_>>(), want);
    assert!(lines[1].starts_with("<134>1 2023-11-14T22:13:21.000Z "), "{}", lines[1]);
}

#[test]
fn a_refusal_says_the_limit_that_holds_now() {
    let config = Config {
        sessions: 64,
        subscribers: 64,
        sessions_per_subscriber: 2,
        inside: vec![Prefix { address: Ipv4Addr::new(10, 0, 0, 0), bits: 8 }],
        pool: vec![PoolAddress::all_ports(Ipv4Addr::new(192, 0, 2, 1))],
        ..Config::default()
    };
    let (producer, mut consumer) = queue(64);
    let mut source = Source::new(vec![producer], Clock { zero_ms: 0 });
    let mut nat = Nat::new(config.clone()).expect("a NAT");
    nat.change(&Config { sessions_per_subscriber: 1, ..config });
    for port in [40_000, 40_001] {
        let mut bytes = frame(SocketAddr::from(([10, 0, 0, 7], port)));
        nat.process(Side::Inside, &mut [Frame::new(&mut bytes)], SECOND);
    }
    assert!(!source.drain(&mut nat, 100));
    let limits: Vec<u32> = std::iter::from_fn(|| consumer.pop())
        .filter_map(|event| match event.what {
            EventKind::QuotaExceeded(Quota::PerSubscriber { limit, .. }) => Some(limit),
            _ => None,
        })
        .collect();
    assert_eq!(limits, [1]);
}
