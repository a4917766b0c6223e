//! Fragments pass an AF_PACKET port as they came: the kernel reassembles none, whatever VLAN they are of.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use crate::common::{alone, eal, ip};
use dpdk::{Batch, Mempool, Port, PortConfig, RxQueue, TxQueue};
use std::time::{Duration, Instant};

const PATIENCE: Duration = Duration::from_secs(30);

/// A fragment of a UDP datagram with this IP identifier, alike in all VLANs but for its payload.
fn fragment(vlan: Option<u16>, offset: u16, more: bool, payload: u8) -> Vec<u8> {
    let mut frame = vec![255, 255, 255, 255, 255, 255, 2, 0, 0, 0, 0, 9];
    if let Some(vlan) = vlan {
        frame.extend([0x81, 0].into_iter().chain(vlan.to_be_bytes()));
    }
    frame.extend([8, 0]);
    let flags = offset / 8 + if more { 0x2000 } else { 0 };
    let mut header = [0x45, 0, 2, 28, 0x12, 0x34, 0, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2];
    header[6..8].copy_from_slice(&u16::to_be_bytes(flags));
    let sum: u32 = header.chunks(2).map(|two| u32::from(u16::from_be_bytes([two[0], two[1]]))).sum();
    let sum = !((sum & 0xffff) + (sum >> 16)) as u16;
    header[10..12].copy_from_slice(&sum.to_be_bytes());
    frame.extend(header);
    frame.extend([payload; 520]);
    frame
}

fn opened(device: &str, queues: u16, pool: &Mempool) -> (Port, Vec<RxQueue>, Vec<TxQueue>) {
    let port = Port::open(eal(), device).unwrap_or_else(|why| panic!("{why}"));
    let config = PortConfig { rx_queues: queues, tx_queues: queues, ..PortConfig::default() };
    let (rx, tx) = port.start(&config, pool).unwrap_or_else(|why| panic!("{why}"));
    (port, rx, tx)
}

#[test]
fn fragments_pass_as_they_came() {
    if let Err(why) = alone() {
        return outcome::skipped(why);
    }
    ip("link add left type veth peer name right");
    ip("link set left up");
    ip("link set right up");
    let pool = Mempool::new(eal(), 8_191, 2_048).unwrap();
    // Interleaved as if both VLANs sent at once, the last one first in one of them.
    let frames = [
        fragment(Some(5), 0, true, 1),
        fragment(Some(6), 520, false, 2),
        fragment(Some(5), 520, false, 3),
        fragment(Some(6), 0, true, 4),
        fragment(None, 0, true, 5),
        fragment(None, 520, false, 6),
    ];
    for (device, queues) in [("af_packet:left", 1), ("af_packet:left,qpairs=2", 2)] {
        let (_far, _rx, mut tx) = opened("af_packet:right", 1, &pool);
        let (near, mut rx, _tx) = opened(device, queues, &pool);
        let end = Instant::now() + PATIENCE;
        let mut batch = Batch::new();
        for frame in &frames {
            batch.push(pool.packet(frame).unwrap()).unwrap();
        }
        while !batch.is_empty() {
            tx[0].send(&mut batch);
            assert!(Instant::now() < end, "they are not sent");
        }
        let mut queues: Vec<Vec<Vec<u8>>> = vec![Vec::new(); rx.len()];
        while queues.iter().map(Vec::len).sum::<usize>() < frames.len() {
            for (queue, got) in rx.iter_mut().zip(&mut queues) {
                let mut batch = Batch::new();
                queue.receive(&mut batch);
                got.extend(batch.frames().iter().map(|mbuf| mbuf.data().to_vec()));
            }
            assert!(Instant::now() < end, "{device}: {queues:?} {:?}", near.stats());
        }
        let mut got = queues.concat();
        // The fragments of a datagram come by one queue, whatever is first in another.
        if queues.len() == 1 {
            assert_eq!(got, frames);
        }
        got.sort();
        let mut sent = frames.to_vec();
        sent.sort();
        assert_eq!(got, sent, "{device}");
    }
}

/// A frame that the interface's MTU does not allow would vanish in the kernel: it is counted.
#[test]
fn a_frame_longer_than_the_mtu_is_counted() {
    if let Err(why) = alone() {
        return outcome::skipped(why);
    }
    ip("link add left mtu 9000 type veth peer name right mtu 9000");
    ip("link set left up");
    ip("link set right up");
    let pool = Mempool::new(eal(), 8_191, 2_048).unwrap();
    let (near, _rx, mut tx) = opened("af_packet:left", 1, &pool);
    let (far, mut rx, _tx) = opened("af_packet:right", 1, &pool);
    let small = Port::open(eal(), "af_packet:right,framesz=2048").unwrap();
    assert!(near.info().unwrap().max_mtu >= 9000, "{:?}", near.info());
    let (mut small_rx, _small_tx) = small.start(&PortConfig::default(), &pool).unwrap();
    let tag = |length: usize, tagged: bool| {
        let mut frame = vec![7; length];
        frame[12..14].copy_from_slice(if tagged { &[0x81, 0] } else { &[0x88, 0xb5] });
        frame
    };
    let fit = [tag(9_014, false), tag(9_018, true), tag(60, false)];
    let unfit = [tag(9_015, false), tag(9_019, true)];
    let mut batch = Batch::new();
    for frame in fit.iter().chain(&unfit) {
        batch.push(pool.packet(frame).unwrap()).unwrap();
    }
    let end = Instant::now() + PATIENCE;
    while !batch.is_empty() {
        tx[0].send(&mut batch);
        assert!(Instant::now() < end, "they are not sent");
    }
    let mut got = Vec::new();
    while got.len() < fit.len() {
        let mut batch = Batch::new();
        rx[0].receive(&mut batch);
        for mbuf in batch.frames() {
            let mut whole = vec![0; mbuf.len()];
            assert!(mbuf.copy_to(&mut whole));
            got.push(whole);
        }
        assert!(Instant::now() < end, "{} came", got.len());
    }
    assert_eq!(got, fit);
    let stats = near.stats();
    assert_eq!((stats.tx_packets, stats.tx_unfit, stats.tx_errors), (3, 2, 0), "{stats:?}");
    assert_eq!(far.stats().rx_packets, 3);
    // A ring with room for less counts what it could not take whole.
    let mut whole = 0;
    while whole + small.stats().rx_errors < 3 {
        let mut batch = Batch::new();
        whole += small_rx[0].receive(&mut batch) as u64;
        assert!(Instant::now() < end, "{whole} came, {:?}", small.stats());
    }
    assert_eq!((whole, small.stats().rx_errors), (1, 2));
}
