//! What is known of a packet goes along with it, and not beyond what it is true of.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use crate::common::{eal, frames};
use dpdk::{Batch, Headers, Mbuf, Mempool, Meta, MetaFlags, Port, PortConfig, Ring, TxWork};

const KNOWN: Meta = Meta {
    hash: 0xdead_beef,
    tags: [100, 0x2007],
    l2: 0,
    l3: 22,
    l4: 42,
    end: 56,
    kind: 0x0800,
    in_port: 3,
    protocol: 17,
    tagged: 2,
    flags: MetaFlags::IP.with(MetaFlags::L4),
};

fn known(pool: &Mempool) -> Mbuf {
    let mut mbuf = frames(pool, 0, 1).into_iter().next().unwrap();
    assert_eq!(mbuf.meta(), None, "nobody told");
    mbuf.set_meta(KNOWN);
    mbuf
}

#[test]
fn it_holds_until_the_headers_move() {
    let pool = Mempool::new(eal(), 63, 256).unwrap();
    let keep: [fn(&mut Mbuf); 4] = [
        |mbuf| mbuf.data_mut().fill(0),
        |mbuf| assert!(mbuf.trim(4), "padding"),
        |mbuf| assert!(mbuf.set_len(56).is_some()),
        |mbuf| {
            mbuf.request_tx_offload(&TxWork::checksums(
                &Headers { l2: 14, l3: 20, l4: 8, v6: false, tcp: false },
                true,
            ))
        },
    ];
    for keep in keep {
        let mut mbuf = known(&pool);
        keep(&mut mbuf);
        assert_eq!(mbuf.meta(), Some(KNOWN));
    }
    let lose: [fn(&mut Mbuf); 5] = [
        |mbuf| assert!(mbuf.prepend(4).is_some()),
        |mbuf| assert!(mbuf.adjust(4)),
        |mbuf| assert!(mbuf.trim(5), "the packet's last byte"),
        |mbuf| assert!(mbuf.set_len(55).is_some()),
        Mbuf::clear_meta,
    ];
    for lose in lose {
        let mut mbuf = known(&pool);
        lose(&mut mbuf);
        assert_eq!(mbuf.meta(), None);
    }
}

#[test]
fn it_goes_into_clones_and_copies_and_over_rings() {
    let pool = Mempool::new(eal(), 63, 256).unwrap();
    let mut mbuf = known(&pool);
    let (mut clone, copy) = (pool.clone_of(&mbuf).unwrap(), pool.copy_of(&mbuf).unwrap());
    assert_eq!((clone.meta(), copy.meta()), (Some(KNOWN), Some(KNOWN)));
    mbuf.set_meta(Meta { hash: 1, ..KNOWN });
    assert_eq!(clone.meta(), Some(KNOWN), "each has its own");
    assert!(clone.unshare());
    assert_eq!(clone.meta(), Some(KNOWN));
    let (mut tx, mut rx) = Ring::channel(eal(), 7).unwrap();
    let (mut batch, mut out) = (Batch::new(), Batch::new());
    batch.push(clone).unwrap();
    tx.send(&mut batch);
    rx.receive(&mut out);
    assert_eq!(out.frames()[0].meta(), Some(KNOWN));
}

/// Work left to a port takes nothing away from what says that bytes are shared.
#[test]
fn a_clone_with_work_for_the_port_is_still_one() {
    let pool = Mempool::new(eal(), 63, 256).unwrap();
    let first = known(&pool);
    let mut clone = pool.clone_of(&first).unwrap();
    clone.request_tx_offload(&TxWork::checksums(
        &Headers { l2: 14, l3: 20, l4: 8, v6: false, tcp: false },
        true,
    ));
    assert!(clone.is_shared());
    clone.data_mut().fill(7);
    assert_ne!(first.data(), clone.data());
    drop((first, clone));
    assert_eq!(pool.available(), 63);
}

#[test]
fn a_packet_that_is_made_anew_is_unknown() {
    let pool = Mempool::new(eal(), 1, 256).unwrap();
    let before = known(&pool);
    let buffer = before.buffer();
    drop(before);
    let again = frames(&pool, 0, 1);
    assert_eq!((again.frames()[0].buffer(), again.frames()[0].meta()), (buffer, None));
}

/// Ports stamp packets in the same part of their headers.
#[test]
fn time_stamps_have_a_place_beside_it() {
    let pool = Mempool::new(eal(), 63, 256).unwrap();
    let port = Port::open(eal(), "null").unwrap();
    port.start(&PortConfig::default(), &pool).unwrap();
    assert!(port.stamps().is_ok());
}
