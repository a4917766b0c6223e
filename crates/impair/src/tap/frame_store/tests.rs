use super::super::segment::tests::SuperSegment;
use super::*;
use std::os::unix::net::UnixDatagram;

/// Both ends of something that carries frames, as a tap does.
struct Wire(UnixDatagram, UnixDatagram);

impl Wire {
    fn new() -> Self {
        let (ours, theirs) = UnixDatagram::pair().expect("a pair of sockets");
        theirs.set_nonblocking(true).expect("non-blocking");
        ours.set_nonblocking(true).expect("non-blocking");
        Self(ours, theirs)
    }

    fn put(&self, frame: &[u8]) {
        assert_eq!(self.0.send(frame).expect("room"), frame.len());
    }

    fn get(&self) -> Vec<u8> {
        let mut buffer = vec![0; LARGE];
        let len = self.0.recv(&mut buffer).expect("a frame");
        buffer.truncate(len);
        buffer
    }
}

fn store(larges: usize, smalls: usize) -> FrameStore {
    FrameStore::new(larges, smalls, &Supplier::start().expect("a thread")).expect("memory")
}

fn burst(payload: usize) -> Vec<u8> {
    let whole = SuperSegment {
        v6: false,
        udp: false,
        tags: 0,
        options: 12,
        mss: 1448,
        payload,
        flags: 0x18,
        id: 7,
        sequence: 99,
    };
    whole.bytes()
}

fn piece(store: &mut FrameStore, wire: &Wire) -> Piece {
    match store.receive(&wire.1).expect("it can be read") {
        FrameRead::Piece(piece) => piece,
        other => panic!("{other:?}"),
    }
}

fn free(store: &FrameStore) -> (usize, usize) {
    (store.large.free(), store.small.free())
}

#[test]
fn frames_go_through_as_they_came_in_the_buffer_that_fits() {
    let (wire, mut store) = (Wire::new(), store(2, 2));
    assert!(matches!(store.receive(&wire.1), Ok(FrameRead::Nothing)));
    for (frame, while_held) in
        [(burst(50_000), (1, 2)), (vec![0; SMALL], (2, 1)), (vec![0; SMALL + 1], (1, 2))]
    {
        wire.put(&frame);
        let piece = piece(&mut store, &wire);
        assert_eq!(free(&store), while_held);
        store.send(piece, &wire.1).expect("it can be written");
        assert_eq!(free(&store), (2, 2));
        assert!(wire.get() == frame, "unchanged");
    }
}

#[test]
fn small_frames_go_where_there_is_room_and_what_finds_none_is_told() {
    let (wire, mut store) = (Wire::new(), store(1, 1));
    (0..2).for_each(|_| wire.put(&[0; 100]));
    let held = [piece(&mut store, &wire), piece(&mut store, &wire)];
    assert_eq!(free(&store), (0, 0));
    wire.put(&burst(5000));
    let Ok(FrameRead::NoRoom(lost)) = store.receive(&wire.1) else { panic!("no room") };
    assert_eq!((lost.packets, lost.bytes, lost.last), (4, 1538, 66 + 5000 - 3 * 1448 + 24));
    held.into_iter().for_each(|piece| store.free(piece));
    assert_eq!(free(&store), (1, 1));
}

#[test]
fn parts_and_copies_share_a_slot_until_the_last_is_gone() {
    let (wire, mut store) = (Wire::new(), store(1, 0));
    let frame = burst(1448 * 9 + 100);
    wire.put(&frame);
    let mut rest = piece(&mut store, &wire);
    assert_eq!(store.burst(&rest), Burst { packets: 10, bytes: 1538, last: 190 });
    let first = store.split(&mut rest, 4).expect("four");
    let mut fifth = store.split(&mut rest, 1).expect("one");
    assert_eq!(store.burst(&first).total(), 4 * 1538);
    assert_eq!(store.burst(&rest), Burst { packets: 5, bytes: 1538, last: 190 });
    assert!(store.split(&mut fifth, 1).is_none(), "one cannot be parted");
    store.corrupt(&mut fifth, u64::MAX / 5);
    let twin = store.copy(&fifth).expect("a copy");
    for piece in [rest, first, twin] {
        store.send(piece, &wire.1).expect("it can be written");
        assert_eq!(free(&store).0, 0, "parts are still there");
    }
    store.send(fifth, &wire.1).expect("it can be written");
    assert_eq!(free(&store).0, 1);

    let layout = FrameLayout::of(&frame);
    let part = |first, count| {
        let mut out = [0; VNET + HEADERS_MAX];
        let (len, payload) = layout.part(&frame, first, count, &mut out).expect("a part");
        [&out[..len], &frame[payload]].concat()
    };
    assert_eq!(wire.get(), part(5, 5));
    assert_eq!(wire.get(), part(0, 4));
    // The damaged one has its checksum, so that it is seen to be wrong: by one bit, of the payload.
    let mut right = part(4, 1);
    complete(&mut right);
    for damaged in [wire.get(), wire.get()] {
        assert_eq!(damaged.len(), right.len());
        assert_eq!(damaged[..VNET + 66], right[..VNET + 66]);
        let bits: u32 = damaged.iter().zip(&right).map(|(a, b)| (a ^ b).count_ones()).sum();
        assert_eq!(bits, 1);
    }
}
