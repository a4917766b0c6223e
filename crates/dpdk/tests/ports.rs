//! What single kinds of ports do beside what all do; that is in `contract.rs`.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use crate::common::{alone, eal, frames};
use dpdk::{BURST, Batch, Mempool, Port, PortConfig, Rss, RxQueue, TxQueue};
use packet::rss::By;

fn open(device: &str, pool: &Mempool) -> (Port, RxQueue, TxQueue) {
    let port = Port::open(eal(), device).unwrap_or_else(|why| panic!("{why}"));
    let (mut rx, mut tx) = port.start(&PortConfig::default(), pool).unwrap_or_else(|why| panic!("{why}"));
    (port, rx.remove(0), tx.remove(0))
}

#[test]
fn a_pair_has_two_ends_and_refuses_when_full() {
    let pool = Mempool::new(eal(), 8191, 2048).unwrap();
    let (left, left_rx, mut tx) = open("pair:full", &pool);
    let right = open("pair:full", &pool);
    let why = Port::open(eal(), "pair:full").unwrap_err().to_string();
    assert!(why.contains("in use"), "{why}");
    let mut taken = 0;
    loop {
        let mut batch = frames(&pool, 0, BURST);
        taken += tx.send(&mut batch);
        if !batch.is_empty() {
            break;
        }
    }
    assert_eq!(taken, 2047);
    drop((left, left_rx, tx, right));
    assert_eq!(pool.available(), 8191, "what was under way is freed");
}

#[test]
fn a_pair_takes_frames_of_any_length() {
    let pool = Mempool::new(eal(), 511, 9216).unwrap();
    let ends: Vec<_> = (0..2)
        .map(|_| {
            let port = Port::open(eal(), "pair:jumbo").unwrap_or_else(|why| panic!("{why}"));
            let config = PortConfig { mtu: 9000, ..PortConfig::default() };
            let queues = port.start(&config, &pool).unwrap_or_else(|why| panic!("{why}"));
            (port, queues)
        })
        .collect();
    let [(_left, (_, mut tx)), (_right, (mut rx, _))] = <[_; 2]>::try_from(ends).unwrap_or_else(|_| panic!());
    let mut batch = frames(&pool, 0, 1);
    batch.frames_mut()[0].set_len(9014).unwrap().fill(7);
    assert_eq!(tx[0].send(&mut batch), 1);
    assert_eq!(rx[0].receive(&mut batch), 1);
    assert_eq!(batch.frames()[0].len(), 9014);
}

#[test]
fn a_ring_of_its_own_is_opened_again_and_again() {
    let pool = Mempool::new(eal(), 511, 2048).unwrap();
    // Rings left behind would keep the name taken, and a few hundred of them fill the memory.
    for device in ["net_ring7", "net_ring"].repeat(300) {
        let (port, mut rx, mut tx) = open(device, &pool);
        let mut batch = frames(&pool, 0, BURST);
        assert_eq!(tx.send(&mut batch), BURST);
        assert_eq!(rx.receive(&mut batch), BURST, "what it sends it receives");
        assert_eq!(tx.send(&mut batch), BURST);
        drop((port, rx, tx, batch));
        assert_eq!(pool.available(), 511, "what was under way is freed");
    }
}

#[test]
fn null_gives_as_much_as_is_asked_for() {
    let pool = Mempool::new(eal(), 8191, 2048).unwrap();
    let (_null, mut rx, _tx) = open("null", &pool);
    assert_eq!(rx.receive(&mut Batch::new()), BURST);
}

#[test]
fn what_is_not_there_is_said() {
    let why = Port::open(eal(), "net_nosuch").unwrap_err().to_string();
    assert!(why.contains("net_nosuch"), "{why}");
    if let Err(why) = alone() {
        return outcome::skipped(why);
    }
    let why = Port::open(eal(), "af_packet:nosuch").unwrap_err().to_string();
    assert!(why.contains("ip link set IFACE up") && why.contains("nosuch"), "{why}");
}

#[test]
fn a_port_with_a_reta_spreads_by_an_address() {
    let pool = Mempool::new(eal(), 1023, 128).unwrap();
    for (rss, queues, expected) in [
        (Some(Rss::Address(By::Source)), 3, true),
        (Some(Rss::Address(By::Destination)), 2, true),
        (Some(Rss::Flow), 2, false),
        (None, 1, false),
    ] {
        let port = Port::open(eal(), "null").unwrap();
        let config = PortConfig { rx_queues: queues, tx_queues: queues, rss, ..PortConfig::default() };
        let _queues = port.start(&config, &pool).unwrap();
        assert_eq!(port.goes_by_address(), expected, "{rss:?}");
    }
}
