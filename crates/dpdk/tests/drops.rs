//! What the kernel drops as the ring of an AF_PACKET or AF_XDP port is full is in the port's counters, to the frame.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use crate::common::{alone, eal, frames, ip, numbers};
use dpdk::{Batch, Mempool, Port, PortConfig, RxQueue, TxQueue};
use std::time::{Duration, Instant};

/// More than the rings of `left` hold.
const SENT: usize = 4_000;

fn started(device: &str, queues: u16, pool: &Mempool) -> (Port, Vec<RxQueue>, Vec<TxQueue>) {
    let port = Port::open(eal(), device).unwrap();
    let config = PortConfig { rx_queues: queues, tx_queues: queues, ..PortConfig::default() };
    let (rx, tx) = port.start(&config, pool).unwrap();
    (port, rx, tx)
}

/// So many frames from the other end of the cable.
fn send(tx: &mut TxQueue, pool: &Mempool) {
    let end = Instant::now() + Duration::from_secs(30);
    let mut sent = 0;
    while sent < SENT {
        let mut batch = frames(pool, sent as u32, 20);
        while !batch.is_empty() {
            sent += tx.send(&mut batch);
            assert!(Instant::now() < end, "{sent} frames sent");
        }
    }
}

/// Frames that the cable lost on the way to `left`.
fn lost() -> usize {
    let all = std::fs::read_to_string("/proc/thread-self/net/dev").unwrap();
    let right = all.lines().find_map(|line| line.trim().strip_prefix("right:")).unwrap();
    right.split_whitespace().nth(11).unwrap().parse().unwrap()
}

/// Take frames of ours until `all` are received or counted as dropped. Says how many were received and dropped.
fn settled(port: &Port, rx: &mut [RxQueue], received: &mut usize, all: usize) -> (usize, usize) {
    let end = Instant::now() + Duration::from_secs(30);
    loop {
        for queue in &mut *rx {
            let mut batch = Batch::new();
            queue.receive(&mut batch);
            *received += numbers(&batch).len();
        }
        let missed = port.stats().rx_missed as usize;
        if *received + missed >= all {
            return (*received, missed);
        }
        assert!(Instant::now() < end, "{received} of {all} frames received, {missed} dropped");
    }
}

#[test]
fn what_a_full_ring_drops_is_counted_to_the_frame() {
    if let Err(why) = alone() {
        return outcome::skipped(why);
    }
    ip("link add left type veth peer name right");
    ip("link set left up");
    ip("link set right up");
    let pool = Mempool::new(eal(), 16_384, 2_048).unwrap();
    let (far, _rx, mut tx) = started("af_packet:right", 1, &pool);
    // what comes before a port is started is not its own
    let early = Port::open(eal(), "af_packet:left").unwrap();
    send(&mut tx[0], &pool);
    let queues = early.start(&PortConfig::default(), &pool).unwrap();
    assert_eq!(early.stats().rx_missed, 0);
    drop((early, queues));
    for (device, queues) in [("af_packet:left", 1), ("af_packet:left,qpairs=2", 2)] {
        let (port, mut rx, _tx) = started(device, queues, &pool);
        let (lost_before, mut received) = (lost(), 0);
        for round in 1..=2 {
            send(&mut tx[0], &pool);
            let arrived = round * SENT - (lost() - lost_before);
            let (received, missed) = settled(&port, &mut rx, &mut received, arrived);
            assert_eq!(received + missed, arrived, "{device}");
            assert!(received > 0 && missed > 0, "{device}: {received} received, {missed} dropped");
        }
    }
    assert_eq!(far.stats().rx_missed, 0);
    drop((far, _rx, tx));
    // no copy of a socket is left
    let left = std::fs::read_to_string("/proc/thread-self/net/packet").unwrap();
    assert_eq!(left.lines().count(), 1, "{left}");
}

#[test]
fn what_af_xdp_drops_is_counted_to_the_frame() {
    if let Err(why) = alone() {
        return outcome::skipped(why);
    }
    ip("link add left type veth peer name right");
    ip("link set left up");
    ip("link set right up");
    let pool = Mempool::new(eal(), 16_384, 2_048).unwrap();
    let (_far, _rx, mut tx) = started("af_packet:right", 1, &pool);
    let (port, mut rx, _tx) = started("af_xdp:left", 1, &pool);
    let (lost_before, mut received) = (lost(), 0);
    for round in 1..=2 {
        send(&mut tx[0], &pool);
        let arrived = round * SENT - (lost() - lost_before);
        let (received, missed) = settled(&port, &mut rx, &mut received, arrived);
        assert_eq!(received + missed, arrived);
        assert!(received > 0 && missed > 0, "{received} received, {missed} dropped");
    }
}
