//! UDP in frames that our own programs made.

use packet::signature::Signature;
use packet::udp::Datagram;
use packet::{Flow, Layers, Program};
use proptest::prelude::*;

fn frame(size: usize) -> Vec<u8> {
    let flow = Flow {
        source_mac: [2, 0, 0, 0, 0, 1],
        destination_mac: [2, 0, 0, 0, 0, 2],
        source: "10.0.0.1:1".parse().expect("an address"),
        destination: "10.0.0.2:2".parse().expect("an address"),
    };
    let mut frame = vec![0; size];
    let signature = Signature { stream: 1, sequence: 2, sent_ns: 3 };
    Program::udp(&flow, size).expect("it fits").write(&mut frame, 0, &signature);
    frame
}

#[test]
fn plain_frames_of_all_sizes_are_known_as_such() {
    for size in [60, 61, 67, 128, 1514] {
        assert!(Datagram::plain(&frame(size)).is_some(), "{size}");
    }
}

proptest! {
    /// The short way never says what the long one does not.
    #[test]
    fn the_short_way_agrees_with_the_long_one(
        changes in proptest::collection::vec((0usize..60, any::<u8>()), 0..4),
        padding in 0usize..4,
        cut in 0usize..=64,
    ) {
        let mut frame = frame(60);
        changes.into_iter().for_each(|(at, value)| frame[at] = value);
        frame.resize(60 + padding, 0xff);
        let frame = &frame[..cut.min(frame.len())];
        if let Some(found) = Datagram::plain(frame) {
            let layers = Layers::find(frame).expect("whole");
            prop_assert_eq!(found, (Datagram::parse(frame, &layers).expect("right"), layers));
        }
    }
}
