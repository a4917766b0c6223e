//! Packets, batches, pools and rings own what they hold, and lose nothing.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use crate::common::{eal, frames, numbers};
use dpdk::{BURST, Batch, Eal, EalOptions, Error, Mempool, NodePools, Port, PortConfig, Ring};

#[test]
fn packets_go_back_to_their_pool() {
    let pool = Mempool::new(eal(), 511, 2048).unwrap();
    assert_eq!(pool.available(), 511);
    let mut batch = frames(&pool, 0, BURST);
    assert_eq!(pool.available(), 511 - BURST as u32);
    batch.retain(|mbuf| mbuf.data()[23] % 2 == 0);
    assert_eq!(numbers(&batch), (0..BURST as u32).step_by(2).collect::<Vec<_>>());
    assert_eq!(batch.bytes(), 60 * BURST as u64 / 2);
    drop(batch);
    assert_eq!(pool.available(), 511);
}

#[test]
fn packets_of_all_kinds_go_back_to_the_pools_that_they_came_from() {
    let (pool, other) = (Mempool::new(eal(), 511, 128).unwrap(), Mempool::new(eal(), 255, 256).unwrap());
    let mut all = frames(&pool, 0, 10);
    frames(&other, 10, 5).move_to(&mut all);
    // A chain, in both pools, and a clone with what it is of.
    let mut chain = pool.packet(&[7; 300]).unwrap();
    chain.chain(other.packet(&[8; 20]).unwrap()).unwrap();
    all.push(chain).unwrap();
    other.clones_of(&frames(&pool, 20, 3), &mut all);
    frames(&pool, 30, 4).move_to(&mut all);
    let first = pool.clone_of(&all.frames()[0]).unwrap();
    assert_eq!((pool.available(), other.available()), (511 - 10 - 3 - 3 - 4 - 1, 255 - 5 - 1 - 3));
    drop(all);
    assert_eq!((pool.available(), other.available()), (511 - 2, 255), "the clone keeps what it is of");
    drop(first);
    assert_eq!(pool.available(), 511);
}

#[test]
fn fresh_frames_are_those_that_came_last_and_are_written_without_a_look_at_others() {
    let pool = Mempool::new(eal(), 511, 128).unwrap();
    let mut batch = frames(&pool, 0, 3);
    let mut fresh = pool.fresh_frames(&mut batch, 8, 60).unwrap();
    fresh.truncate(4);
    assert_eq!((fresh.len(), fresh.data_mut().len()), (4, 4));
    fresh.data_mut().zip(1u8..).for_each(|(data, n)| data.fill(n));
    assert_eq!(numbers(&batch)[..3], [0, 1, 2]);
    assert_eq!(batch.frames()[6].data(), [4; 60]);
    let mut fresh = pool.fresh_frames(&mut batch, 10, 0).unwrap();
    assert_eq!(
        fresh.with_lengths(|n| 100 + 14 * n).map(|data| data.len()).collect::<Vec<_>>(),
        [100, 114, 128]
    );
    assert_eq!(fresh.with_lengths(|n| 128 + n).map(|data| data.len()).collect::<Vec<_>>(), [128, 0, 0]);
    assert_eq!(batch.bytes(), 7 * 60 + 128 + 114 + 128);
    assert!(pool.fresh_frames(&mut batch, 20, 129).is_none());
    assert!(pool.fresh_frames(&mut batch, 10, 60).unwrap().is_empty());
    assert_eq!(batch.len(), 10);
}

#[test]
fn an_empty_pool_gives_nothing_rather_than_some() {
    let packets = 2 * BURST - 1;
    let pool = Mempool::new(eal(), packets as u32, 256).unwrap();
    let first = frames(&pool, 0, BURST);
    let mut second = Batch::new();
    assert!(!pool.fill(&mut second, BURST));
    assert!(second.is_empty());
    assert!(pool.fill(&mut second, packets - BURST));
    drop(first);
}

#[test]
fn a_packet_grows_to_its_room_and_no_further() {
    let pool = Mempool::new(eal(), 63, 1518).unwrap();
    let mut batch = frames(&pool, 0, 1);
    let mbuf = &mut batch.frames_mut()[0];
    assert_eq!(mbuf.capacity(), 1518);
    assert!(mbuf.set_len(1519).is_none());
    assert_eq!(mbuf.len(), 60);
    assert_eq!(mbuf.set_len(1518).unwrap().len(), 1518);
}

#[test]
fn pools_are_used_again() {
    let shape = (127, 300);
    let before = Mempool::new(eal(), shape.0, shape.1).unwrap();
    let kept = frames(&before, 7, 1);
    drop(before);
    // One packet of the first pool is still out: the next pool must be another one, and whole.
    let other = Mempool::new(eal(), shape.0, shape.1).unwrap();
    assert_eq!(other.available(), shape.0);
    assert_eq!(numbers(&kept), [7]);
    drop(kept);
    // Hundreds of pools of this size would not fit; the same few serve.
    for _ in 0..1000 {
        drop(Mempool::new(eal(), 8191, 2048).unwrap());
    }
}

#[test]
fn a_pool_that_nobody_uses_makes_room_for_another() {
    let kept = Mempool::new(eal(), 255, 2048).unwrap();
    let (idle, out) = (Mempool::new(eal(), 254, 2048).unwrap(), frames(&kept, 3, 2));
    drop((idle, kept));
    // Any two of these would not fit.
    for packets in 60_000..60_020 {
        assert_eq!(Mempool::new(eal(), packets, 2048).unwrap().available(), packets);
    }
    assert_eq!(numbers(&out), [3, 4]);
}

#[test]
fn a_pool_that_does_not_fit_says_how_much_there_is() {
    let why = Mempool::new(eal(), 10_000_000, 2048).unwrap_err().to_string();
    assert!(why.contains("`memory`") && why.contains("256 MiB"), "{why}");
}

#[test]
fn a_ring_keeps_order_and_refuses_what_does_not_fit() {
    let pool = Mempool::new(eal(), 511, 128).unwrap();
    let room = 2 * BURST - 1;
    let (mut tx, mut rx) = Ring::channel(eal(), room as u32).unwrap();
    let mut first = frames(&pool, 0, BURST);
    let mut second = frames(&pool, BURST as u32, BURST);
    let seen = tx.watch();
    assert_eq!(seen.room(), room);
    assert_eq!(tx.send(&mut first), BURST);
    assert_eq!(seen.room(), room - BURST);
    assert_eq!(tx.send(&mut second), BURST - 1);
    assert_eq!(numbers(&second), [room as u32]);
    let mut out = Batch::new();
    assert_eq!((seen.room(), rx.receive(&mut out), seen.room()), (0, BURST, BURST));
    assert_eq!(numbers(&out), (0..BURST as u32).collect::<Vec<_>>());
    drop((tx, rx, out, second, seen));
    assert_eq!(pool.available(), 511, "what was left in the ring is freed with it");
}

#[test]
fn a_ring_carries_packets_between_threads() {
    const COUNT: u32 = 50_000;
    let pool = Mempool::new(eal(), 1023, 128).unwrap();
    let (mut tx, mut rx) = Ring::channel(eal(), 255).unwrap();
    let producer = {
        let pool = pool.clone();
        std::thread::spawn(move || {
            let _known = eal().register_thread().unwrap();
            let mut next = 0;
            while next < COUNT {
                let n = BURST.min((COUNT - next) as usize);
                let mut batch = frames(&pool, next, n);
                next += n as u32;
                while !batch.is_empty() {
                    if tx.send(&mut batch) == 0 {
                        std::thread::yield_now();
                    }
                }
            }
        })
    };
    let mut expected = 0;
    let mut batch = Batch::new();
    while expected < COUNT {
        if rx.receive(&mut batch) == 0 {
            std::thread::yield_now();
        }
        for number in numbers(&batch) {
            assert_eq!(number, expected);
            expected += 1;
        }
        batch.clear();
    }
    producer.join().unwrap();
    assert_eq!(pool.available(), 1023);
}

#[test]
fn dpdk_starts_once_and_says_what_it_lacks() {
    eal();
    let more = EalOptions { memory_mib: 100_000, ..EalOptions::default() };
    assert!(matches!(Eal::start(&more), Err(Error::EalLacks { .. })));
    let less = EalOptions { memory_mib: 1, ..EalOptions::default() };
    assert!(Eal::start(&less).is_ok());
    let pci = EalOptions { pci: vec!["0000:03:00.0".into()], ..EalOptions::default() };
    assert!(Eal::start(&pci).unwrap_err().to_string().contains("0000:03:00.0"));
}

#[test]
fn batches_move_in_order() {
    let pool = Mempool::new(eal(), 2 * BURST as u32 - 1, 128).unwrap();
    let (mut from, mut to) = (frames(&pool, 0, 20), frames(&pool, 100, BURST - 12));
    from.move_to(&mut to);
    assert_eq!((from.len(), to.len()), (8, BURST));
    assert_eq!(numbers(&from), (12..20).collect::<Vec<_>>());
    let last = 100 + BURST as u32 - 13;
    assert_eq!(numbers(&to)[BURST - 13..BURST - 10], [last, 0, 1]);
}

#[test]
fn a_batch_knows_how_many_bytes_it_holds_whatever_is_done_to_it() {
    let pool = Mempool::new(eal(), 1023, 2048).unwrap();
    let counted = |batch: &Batch| batch.frames().iter().map(|mbuf| mbuf.len() as u64).sum::<u64>();
    let (mut batch, mut other) = (Batch::new(), Batch::new());
    let check = |batch: &Batch, other: &Batch| {
        assert_eq!((batch.bytes(), other.bytes()), (counted(batch), counted(other)));
    };
    assert!(pool.fill_frames(&mut batch, 20, 60));
    assert_eq!(batch.bytes(), 1200);
    assert!(pool.fill_frames(&mut batch, 30, 100));
    assert_eq!(batch.bytes(), 2200);
    batch.data_mut().for_each(|data| data.fill(7));
    assert_eq!(batch.bytes(), 2200);
    batch.frames_mut()[3].set_len(61).unwrap();
    check(&batch, &other);
    batch.retain(|mbuf| {
        mbuf.set_len(62).unwrap();
        mbuf.data()[0] == 7
    });
    check(&batch, &other);
    batch.move_to(&mut other);
    check(&batch, &other);
    assert!(pool.fill_frames(&mut batch, 3, 60));
    batch.move_to(&mut other);
    check(&batch, &other);
    let mut turn = 0;
    other.filter_map(|mut mbuf| {
        turn += 1;
        mbuf.set_len(100 + turn).unwrap();
        (turn % 3 > 0).then_some(mbuf)
    });
    check(&batch, &other);
    other.truncate(5);
    batch.push(other.into_iter().next().unwrap()).unwrap();
    check(&batch, &Batch::new());
    batch.clear();
    assert_eq!(batch.bytes(), 0);
    drop(batch);
    assert_eq!(pool.available(), 1023);
}

#[test]
fn ports_of_one_node_have_one_pool() {
    let pools = NodePools::new(eal(), 63, 128).unwrap();
    let ports = ["null", "pair:nodes"].map(|device| Port::open(eal(), device).unwrap());
    for port in &ports {
        assert_eq!(pools.of(port).unwrap().node(), port.node());
    }
    // A node that this machine does not have, or cannot tell from the others, is none.
    assert_eq!(pools.on(Some(4711)).unwrap().node(), None);
    let nodes: std::collections::BTreeSet<_> = ports.iter().map(Port::node).chain([None]).collect();
    let made = pools.pools();
    assert_eq!(made.iter().map(|(node, _)| *node).collect::<Vec<_>>(), nodes.into_iter().collect::<Vec<_>>());
    if eal().nodes().is_empty() {
        assert_eq!(made.len(), 1);
    }
    // One pool: what is taken for one port is gone for the other.
    let before = pools.of(&ports[0]).unwrap().available();
    let _out = frames(&pools.of(&ports[0]).unwrap(), 0, 10);
    let after = pools.of(&ports[1]).unwrap().available();
    assert_eq!(before - after, if ports[0].node() == ports[1].node() { 10 } else { 0 });
}

#[test]
fn a_port_gets_no_longer_burst_than_asked_for() {
    let pool = Mempool::new(eal(), 1023, 128).unwrap();
    let bursts = |burst| PortConfig { burst, ..PortConfig::default() };
    for (asked, expected) in [(BURST as u16, BURST), (32, 32), (1, 1), (0, 1), (4000, BURST)] {
        let port = Port::open(eal(), "null").unwrap();
        let (mut rx, mut tx) = port.start(&bursts(asked), &pool).unwrap();
        let mut batch = Batch::new();
        assert_eq!((rx[0].burst(), rx[0].receive(&mut batch)), (expected, expected));
        while batch.room() > 0 {
            rx[0].receive(&mut batch);
        }
        assert_eq!(tx[0].send(&mut batch), BURST, "in pieces");
    }
}
