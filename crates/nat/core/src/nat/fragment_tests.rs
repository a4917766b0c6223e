use super::*;
use crate::config::{PoolAddress, SECOND};
use crate::verdict::{Frame, Verdict};
use packet::frame::{Flow, Program};
use packet::signature::Signature;
use std::net::{Ipv4Addr, SocketAddr};

const MORE: u16 = 0x2000;
const SERVER: [u8; 4] = [198, 51, 100, 9];
const HOST: [u8; 4] = [10, 0, 0, 1];
const POOL: [u8; 4] = [203, 0, 113, 1];

fn nat() -> Nat {
    let pool = vec![PoolAddress::all_ports(POOL.into())];
    let config = Config { pool, fragmented_packets: 4, sessions: 64, subscribers: 8, ..Config::default() };
    Nat::new(config).unwrap()
}

/// A piece of a UDP datagram: what becomes of it.
fn piece(nat: &mut Nat, side: Side, (from, to): ([u8; 4], [u8; 4]), id: u16, offset: u16) -> Verdict {
    let address = |ip: [u8; 4]| SocketAddr::from((Ipv4Addr::from(ip), 4000));
    let flow =
        Flow { source_mac: [2; 6], destination_mac: [4; 6], source: address(from), destination: address(to) };
    let (mut bytes, mark) = (vec![0; 80], Signature { stream: 1, sequence: 2, sent_ns: 3 });
    let _written = Program::udp(&flow, 80).unwrap().write(&mut bytes, 0, &mark);
    bytes[18..20].copy_from_slice(&id.to_be_bytes());
    bytes[20..22].copy_from_slice(&(MORE | (offset / 8)).to_be_bytes());
    bytes[24..26].fill(0);
    let sum = packet::checksum::of(&bytes[14..34]).to_be_bytes();
    bytes[24..26].copy_from_slice(&sum);
    let mut frames = [Frame::new(&mut bytes)];
    nat.process(side, &mut frames, SECOND);
    frames[0].verdict
}

fn translates(nat: &mut Nat, id: u16) {
    for offset in [0, 64] {
        let verdict = piece(nat, Side::Inside, (HOST, SERVER), id, offset);
        assert!(matches!(verdict, Verdict::Forward(_)), "{id} at {offset}: {verdict:?}");
    }
}

#[test]
fn what_is_dropped_leaves_room_for_what_is_translated() {
    let mut nat = nat();
    // To ports of the pool that nobody has.
    for id in 0..100 {
        let verdict = piece(&mut nat, Side::Outside, (SERVER, POOL), id, 0);
        assert!(matches!(verdict, Verdict::Drop(Reason::NoMapping)), "{verdict:?}");
    }
    assert_eq!(nat.fragments.known.len(), 2);
    let later = piece(&mut nat, Side::Outside, (SERVER, POOL), 1, 64);
    assert!(matches!(later, Verdict::Drop(Reason::FragmentOfDropped)), "{later:?}");
    translates(&mut nat, 1);
    translates(&mut nat, 2);
}

#[test]
fn what_is_non_host_address_is_not_remembered() {
    let mut nat = nat();
    for id in 0..100 {
        piece(&mut nat, Side::Outside, (SERVER, [192, 0, 2, 7]), id, 0);
        piece(&mut nat, Side::Inside, ([192, 0, 2, 7], SERVER), id, 0);
    }
    assert_eq!(nat.fragments.known.len(), 0);
}
