use super::*;
use crate::Trial;
use protocol::meter::Phase;
use rustix::event::epoll::EventFlags;
use rustix::net::{AddressFamily, SendFlags, SocketType, ipproto, sendto, socket};
use std::net::{SocketAddr, UdpSocket};
use std::process::Command;
use std::sync::mpsc::channel;

/// A worker with one device, in a run that has begun; nothing goes on unless the test does it.
fn worker(target: &str, model: &str) -> Worker {
    let text =
        format!(r#"{{"name": "t", "groups": [{{"name": "g", "target": "{target}", "model": {model}}}]}}"#);
    let profile = profile::load(&text).unwrap_or_else(|e| panic!("{e:#?}"));
    let plan = Arc::new(Plan::new(profile, &Trial::default()).unwrap_or_else(|e| panic!("{e:#?}")));
    let hour = 3_600_000_000_000;
    let control = Arc::new(Control::new(0, hour, 0, hour));
    control.go();
    let mut worker = Worker::new(0, 1, plan, control, channel().0).unwrap();
    worker.tick();
    worker
}

fn corrupted(worker: &Worker) -> u64 {
    worker.groups[0].meter[Phase::Measure as usize].counts.corrupted
}

#[test]
fn a_socket_with_much_to_read_waits_for_its_turn_once() {
    let peer = UdpSocket::bind("127.0.0.1:0").unwrap();
    let mut worker =
        worker(&format!("udp://{}", peer.local_addr().unwrap()), r#"{"stream": {"rate": "1/s"}}"#);
    worker.begin(0, Time::ZERO);
    let (_, device) = peer.recv_from(&mut [0; 64]).unwrap();
    for _ in 0..150 {
        peer.send_to(b"no signature", device).unwrap();
    }
    let generation = worker.slots[0].generation;
    // more comes while it waits
    for _ in 0..3 {
        worker.socket_event(0, generation, EventFlags::IN);
        assert_eq!((corrupted(&worker), worker.unread.len()), (64, 1));
    }
    worker.read_on();
    assert_eq!((corrupted(&worker), worker.unread.len()), (128, 1));
    worker.read_on();
    assert_eq!((corrupted(&worker), worker.unread.len()), (150, 0));
    worker.socket_event(0, generation, EventFlags::IN);
    assert_eq!(worker.unread.len(), 0);
}

#[test]
fn pings_of_others_do_not_hold_a_worker_up() {
    // in a new namespace nobody has ping sockets, and root has raw ones, which see every host's ICMP
    if let Err(why) = nix::sched::unshare(nix::sched::CloneFlags::CLONE_NEWNET) {
        eprintln!("skipped: a network namespace needs root ({why})");
        return;
    }
    assert!(Command::new("ip").args(["link", "set", "lo", "up"]).status().unwrap().success());
    let mut worker = worker("ping://127.0.0.1", r#"{"ping": {"interval": "1s"}}"#);
    worker.begin(0, Time::ZERO);
    let other = socket(AddressFamily::INET, SocketType::RAW, Some(ipproto::ICMP)).unwrap();
    let here: SocketAddr = "127.0.0.1:0".parse().unwrap();
    // an echo request of identifier 0 (RFC 792), which the kernel answers
    let request = [8, 0, 0xf7, 0xff, 0, 0, 0, 0];
    for _ in 0..100 {
        sendto(&other, &request, SendFlags::empty(), &here).unwrap();
    }
    let generation = worker.slots[0].generation;
    worker.socket_event(0, generation, EventFlags::IN);
    assert_eq!(worker.unread.len(), 1, "202 messages are more than one turn");
    while !worker.unread.is_empty() {
        worker.read_on();
    }
    let counts = &worker.groups[0].meter[Phase::Measure as usize].counts;
    assert_eq!((counts.messages_delivered, counts.failures), (1, Default::default()), "only its own");
}

#[test]
fn a_connection_is_waited_for_no_longer_when_another_timer_comes_first() {
    let mut worker = worker("tcp://127.0.0.1:9", r#"{"script": {"steps": [{"send": "x"}]}}"#);
    let by = worker.now + Duration::from_secs(5);
    let slot = &mut worker.slots[0];
    (slot.state, slot.wake, slot.connect_by) = (State::Active, worker.now, by);
    worker.arm(0);
    worker.fire_timers();
    assert_eq!(worker.slots[0].wake, Time::NEVER, "it fired");
    assert_eq!(worker.timers.next(), by);
}
