use super::*;
use crate::event::{Block, EventKind};
use crate::queue::queue;
use crate::sender::{Framing, Transport};
use nix::sys::socket::{setsockopt, sockopt};
use std::io::Read;
use std::net::{Ipv4Addr, TcpListener, TcpStream, UdpSocket};
use std::time::{Duration, Instant};

const NOW: u64 = 1_700_000_000_000;
/// Of no other test: a port that was closed is still there when it is wanted again.
const LOOPBACK: &str = "127.77.0.1:0";
const PATIENCE: Duration = Duration::from_secs(20);

fn block(first: u16) -> Event {
    let (inside, outside) = (Ipv4Addr::new(10, 0, 0, 1), Ipv4Addr::new(192, 0, 2, 1));
    let block = Block { inside, tags: Default::default(), outside, first, last: first + 63 };
    Event { at_ms: NOW, what: EventKind::BlockAllocated(block) }
}

fn syslog() -> syslog::Formatter {
    syslog::Formatter::new(Default::default()).expect("a configuration")
}

fn ipfix() -> ipfix::Exporter {
    ipfix::Exporter::new(Default::default()).expect("a configuration")
}

fn udp() -> (UdpSocket, Sender) {
    let collector = UdpSocket::bind(LOOPBACK).expect("a socket");
    collector.set_read_timeout(Some(PATIENCE)).expect("a time");
    let to = collector.local_addr().expect("an address");
    (collector, Sender::new(Transport::Udp, to))
}

fn datagram(socket: &UdpSocket) -> Vec<u8> {
    let mut bytes = vec![0; 65_536];
    let len = socket.recv(&mut bytes).expect("a datagram");
    bytes.truncate(len);
    bytes
}

fn accept(listener: &TcpListener) -> TcpStream {
    let (stream, _) = listener.accept().expect("a connection");
    stream.set_read_timeout(Some(PATIENCE)).expect("a time");
    stream
}

/// A syslog message by its length in front.
fn counted(stream: &mut TcpStream) -> String {
    let (mut len, mut byte) = (0, [0]);
    loop {
        stream.read_exact(&mut byte).expect("a digit");
        match byte[0] {
            b' ' => break,
            digit => len = 10 * len + usize::from(digit - b'0'),
        }
    }
    let mut message = vec![0; len];
    stream.read_exact(&mut message).expect("a message");
    String::from_utf8(message).expect("UTF-8")
}

#[test]
fn two_workers_log_to_one_collector_and_losses_are_said() {
    let (collector, sender) = udp();
    let ((mut first, from_first), (mut second, from_second)) = (queue(2), queue(2));
    let mut logger = Logger::new(syslog(), sender, vec![from_first, from_second]);
    for _ in 0..3 {
        first.push(block(1024));
    }
    second.push(block(2048));
    assert_eq!(logger.turn(NOW), 3);
    let lines: Vec<String> =
        (0..4).map(|_| String::from_utf8(datagram(&collector)).expect("UTF-8")).collect();
    let ports = |line: &String| line.contains("first=\"1024\"");
    assert_eq!(lines.iter().map(ports).collect::<Vec<_>>(), [true, false, true, false]);
    assert!(
        lines[3].contains("events-lost") && lines[3].ends_with("lost=\"1\" total=\"1\"]"),
        "{}",
        lines[3]
    );
    assert_eq!(logger.turn(NOW), 0);
    let Statistics { events, messages, errors, lost, .. } = logger.statistics();
    assert_eq!((events, messages, errors, lost), (3, 4, 0, 1));
    drop((first, second));
    assert!(logger.is_over());
}

#[test]
fn a_collector_that_is_gone_is_counted_and_no_fault() {
    let (collector, sender) = udp();
    let address = collector.local_addr().expect("an address");
    let (mut producer, consumer) = queue(64);
    let mut logger = Logger::new(ipfix(), sender, vec![consumer]);
    producer.push(block(1024));
    assert_eq!(logger.turn(NOW), 1);
    drop(collector);
    for _ in 0..10 {
        producer.push(block(1024));
        logger.turn(NOW);
    }
    let collector = UdpSocket::bind(address).expect("the same port");
    collector.set_read_timeout(Some(PATIENCE)).expect("a time");
    // The template is announced again in time.
    producer.push(block(1024));
    logger.turn(NOW + 60_000);
    let message = datagram(&collector);
    assert_eq!(message[16..18], [0, 2]);
    let Statistics { events, lost, .. } = logger.statistics();
    assert_eq!(events + lost, 12);
}

#[test]
fn over_tcp_events_wait_for_the_collector() {
    let listener = TcpListener::bind(LOOPBACK).expect("a socket");
    let address = listener.local_addr().expect("an address");
    drop(listener);
    let (mut producer, consumer) = queue(4);
    let sender = Sender::new(Transport::Tcp(Framing::OctetCounting), address);
    let mut logger = Logger::new(syslog(), sender, vec![consumer]);
    producer.push(block(1024));
    assert_eq!(logger.turn(NOW), 0);
    let listener = TcpListener::bind(address).expect("the same port");
    // Back-off: 500 ms after the first failure, then a second.
    assert_eq!(logger.turn(NOW + 499), 0);
    assert_eq!(logger.turn(NOW + 500), 1);
    let mut stream = accept(&listener);
    assert!(counted(&mut stream).contains("first=\"1024\""));
    drop((stream, listener));
    // The collector has closed: this is seen before an event is given away.
    while logger.sender.ready(NOW + 501).0 {
        std::thread::yield_now();
    }
    producer.push(block(2048));
    assert_eq!(logger.turn(NOW + 502), 0);
    let listener = TcpListener::bind(address).expect("the same port");
    assert_eq!(logger.turn(NOW + 100_000), 1);
    assert!(counted(&mut accept(&listener)).contains("first=\"2048\""));
    assert_eq!(logger.statistics().lost, 0);
}

/// The first ports of all port blocks that are still read from a stream, which may end within a message.
fn rest(mut stream: TcpStream) -> Vec<u16> {
    let mut bytes = Vec::new();
    // That it was reset is said after what came before.
    let _reset = stream.read_to_end(&mut bytes);
    let text = String::from_utf8(bytes).expect("UTF-8");
    let whole = text.rsplit_once(']').map_or("", |(whole, _)| whole);
    let first = |message: &str| message.split_once("first=\"")?.1.split_once('"')?.0.parse().ok();
    whole.split(']').map(|message| first(message).expect("a port block")).collect()
}

/// Let it work until this is so.
fn until(logger: &mut Logger<syslog::Formatter>, holds: impl Fn(&mut Logger<syslog::Formatter>) -> bool) {
    let begun = Instant::now();
    while !holds(logger) {
        assert!(begun.elapsed() < PATIENCE, "{:?}", logger.statistics());
        logger.turn(NOW);
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// A collector reads nothing, until the connection is given up; on the next one it reads all.
fn give_up(events: u16, when: impl Fn(&mut Logger<syslog::Formatter>) -> bool) {
    let listener = TcpListener::bind(LOOPBACK).expect("a socket");
    let room = |bytes| setsockopt(&listener, sockopt::RcvBuf, &bytes).expect("a receive buffer");
    let (mut producer, consumer) = queue(usize::from(events));
    let to = listener.local_addr().expect("an address");
    let sender = Sender::new(Transport::Tcp(Framing::OctetCounting), to);
    let mut logger = Logger::new(syslog(), sender, vec![consumer]);
    (0..events).for_each(|first| assert!(producer.push(block(first))));
    drop(producer);
    room(4_096);
    until(&mut logger, when);
    assert!(!logger.is_over());
    let stream = accept(&listener);
    logger.sender.close(NOW);
    logger.sender.retry_at(0);
    let arrived = rest(stream);
    assert_eq!(arrived, (0..arrived.len() as u16).collect::<Vec<_>>());
    room(1 << 20);
    let collector = std::thread::spawn(move || rest(accept(&listener)));
    until(&mut logger, Logger::is_over);
    let Statistics { events: sent, lost, .. } = logger.statistics();
    assert_eq!((sent, lost), (events.into(), 0));
    drop(logger);
    let again = collector.join().expect("a collector");
    let from = events - again.len() as u16;
    assert_eq!(again, (from..events).collect::<Vec<_>>());
    assert!((1..=arrived.len()).contains(&from.into()), "confirmed {from}, arrived {}", arrived.len());
}

#[test]
fn what_a_broken_connection_did_not_confirm_is_sent_again() {
    // The kernel here takes what the collector's host has no room for.
    give_up(2_000, |logger| (1..2_000).contains(&logger.unconfirmed()));
}

#[test]
fn who_accepts_and_closes_is_asked_less_and_less() {
    let listener = TcpListener::bind(LOOPBACK).expect("a socket");
    let to = listener.local_addr().expect("an address");
    let mut sender = Sender::new(Transport::Tcp(Framing::OctetCounting), to);
    let mut now = NOW;
    for pause in [500, 1_000, 2_000] {
        assert_eq!(sender.ready(now), (true, true));
        drop(accept(&listener));
        sender.send(now, b"x").ok();
        let begun = Instant::now();
        while sender.ready(now).0 {
            assert!(begun.elapsed() < PATIENCE, "its end is not seen");
        }
        assert_eq!(sender.ready(now + pause - 1), (false, false), "{pause} ms");
        now += pause;
    }
    // One that lasted is opened again after the first pause.
    assert_eq!(sender.ready(now), (true, true));
    sender.close(now + 1_000);
    assert_eq!((sender.ready(now + 1_499), sender.ready(now + 1_500)), ((false, false), (true, true)));
}

#[test]
fn a_collector_that_stalls_gets_all_on_the_next_connection() {
    // More than the kernel here takes.
    give_up(40_000, |logger| logger.statistics().errors > 0);
}

#[test]
fn a_new_connection_is_a_new_transport_session() {
    let listener = TcpListener::bind(LOOPBACK).expect("a socket");
    let address = listener.local_addr().expect("an address");
    let (mut producer, consumer) = queue(4);
    let mut logger =
        Logger::new(ipfix(), Sender::new(Transport::Tcp(Framing::Plain), address), vec![consumer]);
    for now_ms in [NOW, NOW + 100_000] {
        producer.push(block(1024));
        assert_eq!(logger.turn(now_ms), 1);
        let mut head = [0; 18];
        let mut stream = accept(&listener);
        stream.read_exact(&mut head).expect("a message");
        assert_eq!(head[8..12], [0; 4], "sequence number");
        assert_eq!(head[16..], [0, 2], "the template");
        drop(stream);
        // Wait until its end is seen here, by an attempt that is too early to open another.
        logger.sender.retry_at(now_ms + 60_000);
        while logger.sender.ready(now_ms).0 {
            std::thread::yield_now();
        }
        logger.sender.retry_at(0);
    }
}

#[test]
fn a_turn_ends_however_much_there_is() {
    let (_collector, sender) = udp();
    let more = 100;
    let (mut producer, consumer) = queue(TURN as usize + more);
    for at in 0..TURN as usize + more {
        assert!(producer.push(block((at % 1000) as u16)));
    }
    let mut logger = Logger::new(ipfix(), sender, vec![consumer]);
    assert_eq!((logger.turn(NOW), logger.turn(NOW), logger.turn(NOW)), (TURN, more as u64, 0));
}

#[test]
fn a_clock_that_is_set_back_stops_nothing() {
    let (collector, mut sender) = udp();
    sender.retry_at(NOW + 60_000);
    assert_eq!(sender.ready(NOW), (false, false), "a pause");
    sender.retry_at(NOW + 7_200_000);
    assert_eq!(sender.ready(NOW), (true, true), "no pause is as long");
    // Templates come again, as they do when their time has passed.
    let (mut producer, consumer) = queue(8);
    let mut logger = Logger::new(ipfix(), sender, vec![consumer]);
    for now in [NOW + 7_200_000, NOW] {
        producer.push(block(1024));
        logger.turn(now);
        let message = datagram(&collector);
        assert_eq!(message[16..18], [0, 2], "a template set first");
    }
}

#[test]
fn a_socket_that_was_refused_something_is_opened_again_with_templates() {
    let (collector, sender) = udp();
    let (mut producer, consumer) = queue(8);
    let mut logger = Logger::new(ipfix(), sender, vec![consumer]);
    logger.sender.refuses = 1;
    producer.push(block(1024));
    assert_eq!(logger.turn(NOW), 0);
    assert_eq!((logger.statistics().errors, logger.statistics().lost), (1, 1));
    // What comes before the next attempt waits for it.
    producer.push(block(2048));
    assert_eq!((logger.turn(NOW + 1), logger.turn(NOW + 500)), (0, 1));
    let message = datagram(&collector);
    assert_eq!((&message[8..12], &message[16..18]), (&[0; 4][..], &[0, 2][..]), "a new transport session");
    assert_eq!(logger.statistics().lost, 1);
}

#[test]
fn a_loss_is_said_once() {
    let (collector, sender) = udp();
    let (mut producer, consumer) = queue(2);
    let mut logger = Logger::new(syslog(), sender, vec![consumer]);
    for _ in 0..5 {
        producer.push(block(1024));
    }
    // Of two that found room one is refused; the losses before are told.
    logger.sender.refuses = 1;
    logger.turn(NOW);
    logger.turn(NOW + 60_000);
    let lines: Vec<String> =
        (0..3).map(|_| String::from_utf8(datagram(&collector)).expect("UTF-8")).collect();
    let losses: Vec<&str> =
        lines.iter().filter_map(|line| line.split_once("lost=").map(|(_, rest)| rest)).collect();
    assert_eq!(losses, ["\"3\" total=\"3\"]", "\"1\" total=\"4\"]"], "{lines:?}");
}
