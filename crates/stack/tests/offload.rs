//! Work of ports: what they validated is believed, datagrams' checksums are theirs, and limits of segments hold whoever segments.

use crate::link::{Pair, Path};
use crate::nic::Nic;
use crate::wire::{Frames, MS, ip};
use packet::tcp::TsoLimits;
use stack::{Arrival, DropReason, Offload, Sent, SocketKind, TcpConfig};
use std::net::SocketAddr;

const CHECKSUMS: Offload = Offload { checksums: true, segmentation: None };

#[test]
fn what_the_port_validated_is_not_summed_again() {
    for v6 in [false, true] {
        let mut pair = Pair::new(Path::CLEAN, TcpConfig::default(), 1);
        let open = |pair: &mut Pair, side: u8| {
            let remote = SocketAddr::new(ip(1 - side, v6), 40_000);
            let side = usize::from(side);
            pair.sides[side]
                .open_socket(SocketKind::Udp, ip(side as u8, v6), remote, 7, 1 << 20)
                .expect("a port")
        };
        let (here, there) = (open(&mut pair, 0), open(&mut pair, 1));
        let now = pair.now;
        assert_eq!(pair.sides[0].send_datagram(here, b"asks", now, &mut Frames::default()), Sent::Taken);
        pair.run(100 * MS);
        let mut buffer = [0; 100];
        assert_eq!(pair.sides[1].receive_datagram(there, &mut buffer), Arrival::Datagram(4, false));
        // the port makes its checksum
        let mut out = Nic::new(CHECKSUMS);
        let now = pair.now;
        assert_eq!(pair.sides[0].send_datagram(here, b"odd", now, &mut out), Sent::Taken);
        let [frame] = &out.frames()[..] else { panic!("one frame") };
        pair.sides[1].receive(frame, now);
        assert_eq!(pair.sides[1].receive_datagram(there, &mut buffer), Arrival::Datagram(3, false));
        assert_eq!(&buffer[..3], b"odd");
        // one that is wrong is dropped, unless somebody looked
        let mut wrong = frame.clone();
        let at = frame.len() - 4;
        wrong[at] ^= 1;
        pair.sides[1].receive(&wrong, now);
        assert_eq!(pair.sides[1].receive_datagram(there, &mut buffer), Arrival::Dry);
        assert_eq!(pair.sides[1].counters().dropped(DropReason::BadChecksum), 1);
        pair.sides[1].receive_validated(&wrong, now);
        assert_eq!(pair.sides[1].receive_datagram(there, &mut buffer), Arrival::Datagram(3, false));
        assert_eq!(pair.sides[1].counters().dropped(DropReason::BadChecksum), 1);
    }
}

/// The path asserts of each frame that is segmented that it fits; here of all.
#[test]
fn a_maximum_segment_size_below_the_mtus_holds_both_ways() {
    let by = TsoLimits { v6: true, longest: 20_000, longest_segment: 54 + 500 };
    for segmentation in [None, Some(by)] {
        let path =
            Path { offload: Offload { checksums: segmentation.is_some(), segmentation }, ..Path::CLEAN };
        let mut pair = Pair::new(path, TcpConfig { mss: 500, ..TcpConfig::default() }, 1);
        let [mine, yours] = pair.connected(false);
        let (sent, mut received) = (vec![7; 50_000], Vec::new());
        let before = pair.frames;
        assert_eq!(pair.sides[0].write(mine, &sent, pair.now), Ok(sent.len()));
        assert!(pair.until(60_000 * MS, |pair| {
            pair.read(1, yours, &mut received);
            received.len() == sent.len()
        }));
        // with timestamps a segment has room for 488
        assert_eq!(pair.sides[0].counters().retransmitted, 0);
        assert!(pair.frames - before >= 50_000 / 488, "{}", pair.frames - before);
        assert!(pair.sides[0].counters().segments_sent >= 50_000 / 488);
    }
}
