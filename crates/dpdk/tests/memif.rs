//! Frames over memif that packets have no room for, that no port may carry, and that packets are short for.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use crate::common::eal;
use dpdk::{Batch, Mbuf, Mempool, Port, PortConfig, RxQueue, TxQueue};
use std::path::Path;
use std::time::{Duration, Instant};

const PATIENCE: Duration = Duration::from_secs(30);

struct End {
    port: Port,
    rx: RxQueue,
    tx: TxQueue,
}

fn end(role: &str, folder: &Path, pool: &Mempool, more: &str) -> End {
    let socket = folder.join("memif");
    let device = format!("net_memif,role={role},socket-abstract=no,socket={}{more}", socket.display());
    let port = Port::open(eal(), &device).unwrap();
    let (mut rx, mut tx) = port.start(&PortConfig::default(), pool).unwrap();
    End { port, rx: rx.remove(0), tx: tx.remove(0) }
}

fn pair(folder: &Path, pools: [&Mempool; 2], more: &str) -> (End, End) {
    let ends = (end("server", folder, pools[0], more), end("client", folder, pools[1], more));
    let began = Instant::now();
    while !(ends.0.port.link().up && ends.1.port.link().up) {
        assert!(began.elapsed() < PATIENCE, "they do not connect");
        std::thread::sleep(Duration::from_millis(1));
    }
    ends
}

fn bytes(length: usize) -> Vec<u8> {
    (0..length).map(|at| (at * 7 + length) as u8).collect()
}

fn whole(packet: &Mbuf) -> Vec<u8> {
    let mut all = vec![0; packet.len()];
    assert!(packet.copy_to(&mut all) && !packet.copy_to(&mut [0; 3]));
    all
}

/// Send them, one after the other, and take what comes.
fn pass(from: &mut End, to: &mut End, pool: &Mempool, lengths: &[usize]) {
    let began = Instant::now();
    for &length in lengths {
        let mut batch = Batch::new();
        batch.push(pool.packet(&bytes(length)).unwrap()).unwrap();
        let mut got = Batch::new();
        while got.is_empty() {
            assert!(began.elapsed() < PATIENCE, "{length} bytes do not arrive");
            from.tx.send(&mut batch);
            to.rx.receive(&mut got);
        }
        assert_eq!((got.len(), whole(&got.frames()[0]) == bytes(length)), (1, true), "{length} bytes");
    }
}

#[test]
fn long_frames_are_in_several_segments_and_slots() {
    let folder = tempfile::tempdir().unwrap();
    let (small, large) =
        (Mempool::new(eal(), 4_095, 1_024).unwrap(), Mempool::new(eal(), 1_023, 9_216).unwrap());
    for more in ["", ",bsize=512,rsize=9"] {
        let (mut server, mut client) = pair(folder.path(), [&small, &large], more);
        let lengths = [60, 64, 65, 1_024, 1_025, 2_048, 2_049, 9_000, 65_535, 60];
        // A client offers its buffers by receiving.
        assert_eq!(client.rx.receive(&mut Batch::new()), 0);
        pass(&mut server, &mut client, &small, &lengths);
        pass(&mut client, &mut server, &small, &lengths);
        let sum: u64 = lengths.iter().map(|length| *length as u64).sum();
        for end in [&server, &client] {
            let stats = end.port.stats();
            assert_eq!((stats.tx_packets, stats.tx_bytes), (lengths.len() as u64, sum));
            assert_eq!((stats.rx_packets, stats.rx_bytes), (lengths.len() as u64, sum));
            assert_eq!((stats.rx_errors, stats.tx_unfit), (0, 0));
        }
    }
}

#[test]
fn what_no_port_may_carry_goes_nowhere_and_is_counted() {
    let folder = tempfile::tempdir().unwrap();
    let (pool, tiny) = (Mempool::new(eal(), 4_095, 2_048).unwrap(), Mempool::new(eal(), 255, 64).unwrap());
    let (mut server, mut client) = pair(folder.path(), [&pool, &tiny], "");
    assert_eq!(client.rx.receive(&mut Batch::new()), 0);
    let mut long = pool.packet(&bytes(60_000)).unwrap();
    long.chain(pool.packet(&bytes(10_000)).unwrap()).unwrap();
    let mut batch = Batch::new();
    batch.push(long).unwrap();
    assert_eq!((server.tx.send(&mut batch), batch.len()), (1, 0));
    assert_eq!((server.port.stats().tx_unfit, server.port.stats().tx_packets), (1, 0));

    // 9,000 bytes are more segments of 64 than a packet may have; what comes after is received.
    batch.push(pool.packet(&bytes(9_000)).unwrap()).unwrap();
    batch.push(pool.packet(&bytes(60)).unwrap()).unwrap();
    assert_eq!(server.tx.send(&mut batch), 2);
    let (began, mut got) = (Instant::now(), Batch::new());
    while got.is_empty() {
        assert!(began.elapsed() < PATIENCE);
        client.rx.receive(&mut got);
    }
    assert_eq!(whole(&got.frames()[0]), bytes(60));
    assert_eq!((client.port.stats().rx_errors, client.port.stats().rx_packets), (1, 1));
}

#[test]
fn a_frame_longer_than_the_ring_does_not_hold_up_others() {
    let folder = tempfile::tempdir().unwrap();
    let pool = Mempool::new(eal(), 4_095, 2_048).unwrap();
    let (mut server, mut client) = pair(folder.path(), [&pool, &pool], ",rsize=1,bsize=64");
    assert_eq!(client.rx.receive(&mut Batch::new()), 0);
    let mut ends = [&mut server, &mut client];
    for _ in 0..2 {
        let [from, to] = &mut ends;
        let mut batch = Batch::new();
        batch.push(pool.packet(&bytes(1_500)).unwrap()).unwrap();
        assert_eq!((from.tx.send(&mut batch), from.port.stats().tx_unfit), (1, 1));
        pass(from, to, &pool, &[60, 128, 60]);
        ends.reverse();
    }
}

#[test]
fn frames_wait_where_packets_are_short() {
    let folder = tempfile::tempdir().unwrap();
    let (pool, few) = (Mempool::new(eal(), 4_095, 2_048).unwrap(), Mempool::new(eal(), 63, 2_048).unwrap());
    let (mut server, mut client) = pair(folder.path(), [&pool, &few], "");
    assert_eq!(client.rx.receive(&mut Batch::new()), 0);
    let mut held = Batch::new();
    assert!(few.fill(&mut held, 63));
    let mut batch = Batch::new();
    batch.push(pool.packet(&bytes(100)).unwrap()).unwrap();
    assert_eq!(server.tx.send(&mut batch), 1);
    let (began, mut got) = (Instant::now(), Batch::new());
    while client.port.stats().rx_no_memory == 0 {
        assert!(began.elapsed() < PATIENCE);
        assert_eq!(client.rx.receive(&mut got), 0);
    }
    held.clear();
    while got.is_empty() {
        assert!(began.elapsed() < PATIENCE);
        client.rx.receive(&mut got);
    }
    assert_eq!(whole(&got.frames()[0]), bytes(100));
}
