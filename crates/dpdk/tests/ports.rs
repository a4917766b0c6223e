//! One contract, every kind of port that this machine can make.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod common;

use common::{eal, frames, numbers};
use dpdk::{BURST, Batch, Mempool, Port, PortConfig, RxQueue, TxQueue};
use std::process::Command;
use std::time::{Duration, Instant};

struct Open {
    port: Port,
    rx: RxQueue,
    tx: TxQueue,
}

fn open(device: &str, pool: &Mempool) -> Open {
    let port = Port::open(eal(), device).unwrap_or_else(|why| panic!("{why}"));
    let (mut rx, mut tx) = port.start(&PortConfig::default(), pool).unwrap_or_else(|why| panic!("{why}"));
    Open { port, rx: rx.remove(0), tx: tx.remove(0) }
}

/// Everything that `from` sends arrives at `to`, in order, and both count it. Sends no more at once than
/// any port can queue.
fn carries(from: &mut Open, to: &mut Open, pool: &Mempool) {
    const COUNT: u32 = 4 * BURST as u32;
    let mut got = Vec::new();
    let mut sent = 0;
    let deadline = Instant::now() + Duration::from_secs(5);
    while got.len() < COUNT as usize && Instant::now() < deadline {
        if sent < COUNT {
            let mut batch = frames(pool, sent, BURST);
            sent += from.tx.send(&mut batch) as u32;
        }
        let mut batch = Batch::new();
        to.rx.receive(&mut batch);
        got.extend(numbers(&batch));
    }
    assert_eq!(got, (0..COUNT).collect::<Vec<_>>());
    assert!(from.port.stats().tx_packets >= u64::from(COUNT), "{:?}", from.port.stats());
    assert!(to.port.stats().rx_packets >= u64::from(COUNT), "{:?}", to.port.stats());
}

/// The contract of two ports that are joined.
fn joined(a: &str, b: &str) {
    // Twice: what was closed can be opened again.
    for _ in 0..2 {
        let pool = Mempool::new(eal(), 8191, 2048).unwrap();
        let (mut left, mut right) = (open(a, &pool), open(b, &pool));
        assert!(left.port.link().up && right.port.link().up);
        assert!(!left.port.info().unwrap().driver.is_empty());
        carries(&mut left, &mut right, &pool);
        carries(&mut right, &mut left, &pool);
        assert!(left.port.start(&PortConfig::default(), &pool).is_err(), "a port is started once");
    }
}

#[test]
fn pair() {
    joined("pair:contract", "pair:contract");
}

#[test]
fn a_pair_has_two_ends_and_refuses_when_full() {
    let pool = Mempool::new(eal(), 8191, 2048).unwrap();
    let mut left = open("pair:full", &pool);
    let right = open("pair:full", &pool);
    let why = Port::open(eal(), "pair:full").unwrap_err().to_string();
    assert!(why.contains("in use"), "{why}");
    let mut taken = 0;
    loop {
        let mut batch = frames(&pool, 0, BURST);
        taken += left.tx.send(&mut batch);
        if !batch.is_empty() {
            break;
        }
    }
    assert_eq!(taken, 2047);
    drop((left, right));
    assert_eq!(pool.available(), 8191, "what was under way is freed");
}

#[test]
fn null_swallows_and_gives() {
    let pool = Mempool::new(eal(), 8191, 2048).unwrap();
    let mut null = open("null", &pool);
    let mut batch = frames(&pool, 0, BURST);
    assert_eq!(null.tx.send(&mut batch), BURST);
    assert_eq!(null.rx.receive(&mut batch), BURST);
}

#[test]
fn memif() {
    let path = format!("/tmp/netdyno-memif-{}", std::process::id());
    let server = format!("net_memif,role=server,id=0,socket-abstract=no,socket={path}");
    let client = format!("net_memif,role=client,id=0,socket-abstract=no,socket={path}");
    let pool = Mempool::new(eal(), 8191, 2048).unwrap();
    let (mut left, mut right) = (open(&server, &pool), open(&client, &pool));
    let deadline = Instant::now() + Duration::from_secs(5);
    while !(left.port.link().up && right.port.link().up) {
        assert!(Instant::now() < deadline, "memif does not connect");
        std::thread::sleep(Duration::from_millis(10));
    }
    carries(&mut left, &mut right, &pool);
    carries(&mut right, &mut left, &pool);
    drop((left, right));
    let _gone = std::fs::remove_file(path);
}

#[test]
fn af_packet_on_veth() {
    // A namespace of this test's own thread: nothing of it is seen outside, and it ends with the thread.
    if let Err(why) = nix::sched::unshare(nix::sched::CloneFlags::CLONE_NEWNET) {
        eprintln!("skipped: a network namespace needs root ({why})");
        return;
    }
    ip("link add left type veth peer name right");
    ip("link set left up");
    ip("link set right up");
    joined("af_packet:left", "af_packet:right");
    let why = Port::open(eal(), "af_packet:nosuch").unwrap_err().to_string();
    assert!(why.contains("ip link set IFACE up") && why.contains("nosuch"), "{why}");
}

#[test]
fn tap_reaches_the_kernel() {
    if let Err(why) = nix::sched::unshare(nix::sched::CloneFlags::CLONE_NEWNET) {
        eprintln!("skipped: a network namespace needs root ({why})");
        return;
    }
    let pool = Mempool::new(eal(), 8191, 2048).unwrap();
    let mut tap = open("tap:ndtap0", &pool);
    ip("link set ndtap0 up");
    let mut batch = frames(&pool, 0, BURST);
    assert_eq!(tap.tx.send(&mut batch), BURST);
    let seen = std::fs::read_to_string("/proc/thread-self/net/dev").unwrap();
    let line = seen.lines().find(|line| line.trim_start().starts_with("ndtap0:")).unwrap();
    let packets: u64 = line.split_whitespace().nth(2).unwrap().parse().unwrap();
    assert_eq!(packets, BURST as u64, "the kernel counts what we sent");
}

#[test]
fn a_driver_that_does_not_exist_is_said_so() {
    let why = Port::open(eal(), "net_nosuch").unwrap_err().to_string();
    assert!(why.contains("net_nosuch"), "{why}");
}

fn ip(arguments: &str) {
    let status = Command::new("ip").args(arguments.split(' ')).status().expect("iproute2 is installed");
    assert!(status.success(), "ip {arguments}");
}
