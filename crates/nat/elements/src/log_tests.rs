use super::*;
use nat_core::PoolChange;
use nat_core::config::PoolAddress;
use nat_core::testing::{self, NOW, REMOTE, config, inside, send};
use serde_json::json;
use std::net::{Ipv4Addr, SocketAddrV4, TcpListener, UdpSocket};

const WAIT: Duration = Duration::from_secs(20);

fn options(value: serde_json::Value) -> LogOptions {
    serde_json::from_value(value).expect("options")
}

fn collector() -> UdpSocket {
    let socket = UdpSocket::bind("127.0.0.1:0").expect("a socket");
    socket.set_read_timeout(Some(WAIT)).expect("a time");
    socket
}

fn datagram(socket: &UdpSocket) -> Vec<u8> {
    let mut bytes = vec![0; 65_536];
    let len = socket.recv(&mut bytes).expect("a datagram");
    bytes.truncate(len);
    bytes
}

fn line(socket: &UdpSocket) -> String {
    String::from_utf8(datagram(socket)).expect("UTF-8")
}

/// A NAT that records what these options want, and its log.
fn logged(options: &LogOptions) -> (Nat, Log) {
    let mut config = config();
    options.configure(&mut config);
    let log = Log::start(options, 3, &Endings::default()).expect("a log");
    (Nat::new(config).expect("a NAT"), log)
}

/// Ask until it is so.
fn until(what: &str, mut so: impl FnMut() -> bool) {
    let end = Instant::now() + WAIT;
    while !so() {
        assert!(Instant::now() < end, "not within {WAIT:?}: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn collectors_are_read_and_written_alike() {
    for (text, written) in [
        ("192.0.2.9:4739", "192.0.2.9:4739"),
        ("udp://192.0.2.9:514", "192.0.2.9:514"),
        ("tcp://[2001:db8::9]:4739", "tcp://[2001:db8::9]:4739"),
    ] {
        let read: Collector = text.parse().expect(text);
        assert_eq!((read.to_string(), read.tcp), (written.to_owned(), text.starts_with("tcp")));
        assert_eq!(read.to_string().parse::<Collector>(), Ok(read));
    }
    for text in [
        "",
        "192.0.2.9",
        "192.0.2.9:0",
        "0.0.0.0:514",
        "collector:514",
        "tls://192.0.2.9:6514",
        "192.0.2.9:65536",
    ] {
        assert!(text.parse::<Collector>().is_err_and(|why| !why.is_empty()), "{text}");
    }
}

#[test]
fn options_have_defaults_and_no_unknown_keys() {
    let read = options(json!({"ipfix": "192.0.2.9:4739"}));
    assert_eq!((read.check(), read.sessions, read.queue, read.mtu), (vec![], false, 65_536, 1500));
    let shown = json!(read);
    assert_eq!((&shown["templates"], &shown["host"]), (&json!("60s"), &json!("-")));
    assert_eq!(options(shown), read);
    let unknown = json!({"ipfix": "192.0.2.9:4739", "netflow": "192.0.2.9:2055"});
    assert!(serde_json::from_value::<LogOptions>(unknown).is_err());
    let mut config = config();
    read.configure(&mut config);
    assert!(config.events > 0 && !config.log_sessions);
}

/// Each limit has a value that passes and one that does not.
#[test]
fn what_cannot_be_is_refused_by_its_key() {
    for (key, good, bad) in [
        ("queue", json!(64), json!(63)),
        ("queue", json!(1 << 24), json!((1 << 24) + 1)),
        ("mtu", json!(240), json!(239)),
        ("mtu", json!(65_535), json!(0)),
        ("templates", json!("1s"), json!("900ms")),
        ("templates", json!("24h"), json!("86401s")),
        ("facility", json!(23), json!(24)),
        ("host", json!("h".repeat(255)), json!("h".repeat(256))),
        ("host", json!("cgn1.example.net"), json!("cgn 1")),
    ] {
        let mut value = json!({"ipfix": "192.0.2.9:4739", "syslog": "192.0.2.9:514"});
        value[key] = good;
        assert_eq!(options(value.clone()).check(), [], "{key}");
        value[key] = bad;
        let problems = options(value).check();
        assert_eq!(problems.iter().map(|one| one.key.as_str()).collect::<Vec<_>>(), [key]);
        assert!(problems.iter().all(|one| !one.what.is_empty() && !one.fix.is_empty()), "{problems:?}");
    }
    assert_eq!(options(json!({})).check().len(), 1, "a log for nobody");
}

#[test]
fn a_session_reaches_both_collectors_with_the_time_it_began() {
    let (ipfix, syslog) = (collector(), collector());
    let address = |socket: &UdpSocket| socket.local_addr().expect("an address").to_string();
    let (mut nat, mut log) = logged(&options(
        json!({"ipfix": address(&ipfix), "syslog": address(&syslog), "sessions": true, "host": "cgn1"}),
    ));
    send(&mut nat, inside(1, 7), REMOTE);
    assert!(!log.drain(&mut nat, NOW + 1));
    let lines = [line(&syslog), line(&syslog)];
    assert!(lines[0].contains("cgn1 netdyno - block-allocate"), "{}", lines[0]);
    assert!(
        lines[1].contains("session-create") && lines[1].contains("in=\"10.0.0.1\" inport=\"7\""),
        "{}",
        lines[1]
    );
    // By the system's clock, not the NAT's.
    assert!(lines.iter().all(|line| line.starts_with("<134>1 20")), "{lines:?}");
    let message = datagram(&ipfix);
    // IPFIX, and the domain of replica 3.
    assert_eq!((&message[..2], &message[12..16]), (&[0, 10][..], &[0, 0, 0, 4][..]));
    assert_eq!(log.lost(), 0);
}

#[test]
fn port_blocks_alone_are_logged_unless_sessions_are_wanted() {
    let syslog = collector();
    let (mut nat, mut log) =
        logged(&options(json!({"syslog": syslog.local_addr().expect("an address").to_string()})));
    send(&mut nat, inside(1, 7), REMOTE);
    send(&mut nat, inside(2, 7), REMOTE);
    log.drain(&mut nat, NOW + 1);
    // What is left is sent when it ends.
    drop(log);
    let lines = [line(&syslog), line(&syslog)];
    assert!(lines.iter().all(|line| line.contains("block-allocate")), "{lines:?}");
    syslog.set_nonblocking(true).expect("so");
    assert!(syslog.recv(&mut [0]).is_err(), "nothing else");
}

#[test]
fn as_much_is_drained_at_once_as_packets_can_wait_for() {
    let syslog = collector();
    let (mut nat, mut log) = logged(&options(
        json!({"syslog": syslog.local_addr().expect("an address").to_string(), "sessions": true}),
    ));
    for port in 1..=BUDGET as u16 {
        send(&mut nat, inside(1, 7), SocketAddrV4::new(*REMOTE.ip(), port));
    }
    // The sessions, and the block of their mapping.
    assert_eq!([log.drain(&mut nat, NOW), log.drain(&mut nat, NOW)], [true, false]);
}

#[test]
fn what_a_queue_cannot_hold_is_counted_and_nobody_waits() {
    // A port that refuses, of no other test: over TCP events wait for the collector.
    let gone = TcpListener::bind("127.77.0.2:0").expect("a socket");
    let to = format!("tcp://{}", gone.local_addr().expect("an address"));
    drop(gone);
    let (mut nat, mut log) = logged(&options(json!({"syslog": to, "sessions": true, "queue": 64})));
    for port in 1..=100 {
        send(&mut nat, inside(1, 7), SocketAddrV4::new(*REMOTE.ip(), port));
    }
    log.drain(&mut nat, NOW);
    // 101 events, for 64 of which there is room.
    until("losses are counted", || log.lost() == 37);
    // It ends, though the collector does not come.
    let mut thread = log.threads.pop().expect("a thread");
    drop(log);
    drop(thread.keep.take());
    assert_eq!(thread.ended.recv_timeout(WAIT), Err(RecvTimeoutError::Disconnected));
}

#[test]
fn what_the_nat_had_no_room_for_is_counted_too() {
    let syslog = collector();
    let options =
        options(json!({"syslog": syslog.local_addr().expect("an address").to_string(), "sessions": true}));
    let mut config = config();
    options.configure(&mut config);
    config.events = 5;
    let mut log = Log::start(&options, 0, &Endings::default()).expect("a log");
    let mut nat = Nat::new(config).expect("a NAT");
    for port in 1..=10 {
        send(&mut nat, inside(1, 7), SocketAddrV4::new(*REMOTE.ip(), port));
    }
    log.drain(&mut nat, NOW);
    until("losses are counted", || log.lost() == 6);
    let lines: Vec<String> = (0..6).map(|_| line(&syslog)).collect();
    // The thread may have seen the loss before the events.
    let told = |line: &&String| line.contains("events-lost") && line.ends_with("total=\"6\"]");
    assert_eq!(lines.iter().filter(told).count(), 1, "{lines:?}");
}

#[test]
fn refusals_that_are_too_many_for_the_log_are_counted() {
    let syslog = collector();
    let options = options(json!({"syslog": syslog.local_addr().expect("an address").to_string()}));
    let mut config = config();
    options.configure(&mut config);
    config.sessions_per_subscriber = 1;
    let mut log = Log::start(&options, 0, &Endings::default()).expect("a log");
    let mut nat = Nat::new(config).expect("a NAT");
    for port in 1..=31 {
        let mut bytes = testing::datagram(inside(1, 7), SocketAddrV4::new(*REMOTE.ip(), port));
        nat.process(nat_core::Side::Inside, &mut [nat_core::Frame::new(&mut bytes)], NOW);
    }
    assert_eq!(nat.session_count(), 1);
    log.drain(&mut nat, NOW);
    // Ten of a kind are logged in a second.
    until("they are counted", || log.suppressed() == 20);
    assert_eq!(log.lost(), 0);
}

/// What there is when a NAT stops ends in the log, whatever the queue has room for at once.
#[test]
fn a_nat_that_stops_ends_in_the_log() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a socket");
    let to = format!("tcp://{}", listener.local_addr().expect("an address"));
    let reader = std::thread::spawn(move || {
        let (mut all, mut stream) = (String::new(), listener.accept().expect("a connection").0);
        std::io::Read::read_to_string(&mut stream, &mut all).expect("text");
        all
    });
    let (mut nat, mut log) = logged(&options(json!({"syslog": to, "sessions": true, "queue": 64})));
    for last in 1..=50 {
        for port in 5_000..5_004 {
            send(&mut nat, inside(last, port), REMOTE);
            while log.drain(&mut nat, NOW) {}
            until("room", || log.source.room() > 8);
        }
    }
    log.end(&mut nat, NOW, Instant::now() + WAIT);
    assert_eq!((nat.session_count(), nat.subscriber_count(), log.lost()), (0, 0, 0));
    nat.audit().expect("it is consistent to its end");
    drop(log);
    let all = reader.join().expect("all of it");
    let count = |what: &str| all.matches(&format!(" {what} ")).count();
    let kinds = ["session-create", "session-delete", "block-allocate", "block-release"];
    assert_eq!(kinds.map(count), [200, 200, 50, 50]);
}

/// Blocks that sessions are left in, on an address that drains, are released in the log as well, though sessions are not told.
#[test]
fn blocks_on_an_address_that_drains_end_in_the_log() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a socket");
    let options = options(json!({"syslog": format!("tcp://{}", listener.local_addr().expect("an address"))}));
    let reader = std::thread::spawn(move || {
        let (mut all, mut stream) = (String::new(), listener.accept().expect("a connection").0);
        std::io::Read::read_to_string(&mut stream, &mut all).expect("text");
        all
    });
    let mut config = nat_core::Config { pool_room: 1, ..config() };
    options.configure(&mut config);
    let removed = std::mem::take(&mut config.pool);
    let added = vec![PoolAddress::all_ports(Ipv4Addr::new(203, 0, 113, 2))];
    config.pool.clone_from(&removed);
    let (mut nat, mut log) =
        (Nat::new(config).expect("a NAT"), Log::start(&options, 0, &Endings::default()).expect("a log"));
    [1, 2].into_iter().for_each(|last| send(&mut nat, inside(last, 5_000), REMOTE));
    nat.change_pool(&PoolChange { added, removed });
    while nat.advance(NOW, 1_000) {}
    send(&mut nat, inside(1, 5_001), REMOTE);
    log.end(&mut nat, NOW, Instant::now() + WAIT);
    drop(log);
    let all = reader.join().expect("all of it");
    let kinds = ["block-allocate", "block-release", "session-delete"];
    assert_eq!(kinds.map(|what| all.matches(&format!(" {what} ")).count()), [3, 3, 0], "{all}");
}

/// What ends because somebody is gone takes nobody else's place in the log.
#[test]
fn thousands_of_sessions_that_end_together_end_in_the_log() {
    const EACH: u16 = 2_000;
    let syslog = collector();
    let options =
        options(json!({"syslog": syslog.local_addr().expect("an address").to_string(), "sessions": true}));
    let mut config = config();
    options.configure(&mut config);
    config.events = 2_048;
    let (mut nat, mut log) =
        (Nat::new(config).expect("a NAT"), Log::start(&options, 0, &Endings::default()).expect("a log"));
    for last in 1..=4 {
        nat.set_hops(*inside(last, 0).ip(), 0, 1, 10, NOW).expect("room");
        for port in 1..=EACH {
            send(&mut nat, inside(last, 7), SocketAddrV4::new(*REMOTE.ip(), port));
            while log.drain(&mut nat, NOW) {}
        }
    }
    nat.end_hop(10);
    let mut turns = 0;
    while nat.session_count() > usize::from(EACH) {
        let ends = log.ends();
        nat.advance_turn(NOW, 500_000, 2_048, ends);
        send(&mut nat, inside(9, 7), SocketAddrV4::new(*REMOTE.ip(), 1 + turns));
        let _more_next_time = (0..DRAINS).all(|_| log.drain(&mut nat, NOW));
        turns += 1;
        assert!(turns < 1_000, "it takes for ever");
    }
    assert_eq!((log.lost(), nat.events_lost()), (0, 0));
}

/// Nobody waits for a collector that is gone: what finds no room is counted.
#[test]
fn the_end_waits_no_longer_than_it_may() {
    let silent = TcpListener::bind("127.0.0.1:0").expect("a socket");
    let to = format!("tcp://{}", silent.local_addr().expect("an address"));
    drop(silent);
    let (mut nat, mut log) = logged(&options(json!({"syslog": to, "sessions": true, "queue": 64})));
    for port in 5_000..5_100 {
        send(&mut nat, inside(1, port), REMOTE);
    }
    // 100 sessions that begin and end, and a block: 202 records, of which 64 find room.
    log.end(&mut nat, NOW, Instant::now());
    assert_eq!(nat.session_count(), 0);
    until("the loss is counted", || log.lost() >= 202 - 64);
}

/// Forwards begin in the log when the NAT translates, and end there when it stops, whatever the queue has room for at once.
#[test]
fn forwards_begin_and_end_in_the_log() {
    const FORWARDS: u16 = 300;
    let listener = TcpListener::bind("127.0.0.1:0").expect("a socket");
    let to = format!("tcp://{}", listener.local_addr().expect("an address"));
    let reader = std::thread::spawn(move || {
        let (mut all, mut stream) = (String::new(), listener.accept().expect("a connection").0);
        std::io::Read::read_to_string(&mut stream, &mut all).expect("text");
        all
    });
    let options = options(json!({"syslog": to, "queue": 64}));
    let mut config = config();
    options.configure(&mut config);
    let outside = config.pool[0].address;
    let forward = |number| nat_core::StaticForward {
        protocol: 6,
        outside: (outside, 2_000 + number),
        inside: (*inside(7, 0).ip(), 80 + number),
        realm: 0,
    };
    config.static_forwards = (0..FORWARDS).map(forward).collect();
    let (mut nat, mut log) =
        (Nat::new(config).expect("a NAT"), Log::start(&options, 0, &Endings::default()).expect("a log"));
    for _ in 0..FORWARDS {
        until("room", || log.source.room() > 8);
        log.begin_forwards(&mut nat, NOW);
        while log.drain(&mut nat, NOW) {}
    }
    // Sessions that are kept for the next start do not keep forwards.
    log.end_forwards(&mut nat, NOW, Instant::now() + WAIT);
    log.end(&mut nat, NOW, Instant::now() + WAIT);
    assert_eq!((log.lost(), nat.events_lost()), (0, 0));
    drop(log);
    let all = reader.join().expect("all of it");
    for kind in ["mapping-create", "mapping-delete"] {
        assert_eq!(all.matches(&format!(" {kind} ")).count(), usize::from(FORWARDS), "{kind}");
    }
    assert!(all.contains(r#"in="10.0.0.7" inport="80" out="203.0.113.1" outport="2000""#), "{all}");
}
