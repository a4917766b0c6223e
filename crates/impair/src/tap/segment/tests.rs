use super::*;
use packet::Layers;
use packet::layers::protocol;
use proptest::prelude::*;

/// A super-segment as the kernel makes one.
#[derive(Debug, Clone)]
pub(crate) struct SuperSegment {
    pub(crate) v6: bool,
    pub(crate) udp: bool,
    pub(crate) tags: usize,
    pub(crate) options: usize,
    pub(crate) mss: u16,
    pub(crate) payload: usize,
    pub(crate) flags: u8,
    pub(crate) id: u16,
    pub(crate) sequence: u32,
}

impl SuperSegment {
    pub(crate) fn bytes(&self) -> Vec<u8> {
        let mut frame: Vec<u8> = vec![2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1];
        for _ in 0..self.tags {
            frame.extend([0x81, 0, 0, 7]);
        }
        frame.extend(if self.v6 { [0x86, 0xdd] } else { [8, 0] });
        let transport = if self.udp { 8 } else { 20 + self.options };
        let l4_len = transport + self.payload;
        let next = if self.udp { 17 } else { 6 };
        let ip = frame.len();
        if self.v6 {
            frame.extend([0x60, 0, 0, 0]);
            frame.extend((l4_len as u16).to_be_bytes());
            frame.extend([next, 64]);
            frame.extend(1..=32);
        } else {
            frame.extend([0x45, 0]);
            frame.extend((l4_len as u16 + 20).to_be_bytes());
            frame.extend(self.id.to_be_bytes());
            frame.extend([0x40, 0, 64, next, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
            let sum = checksum::of(&frame[ip..]);
            frame[ip + 10..ip + 12].copy_from_slice(&sum.to_be_bytes());
        }
        let addresses = if self.v6 { &frame[ip + 8..ip + 40] } else { &frame[ip + 12..ip + 20] };
        let seed = (!checksum::pseudo_header(addresses, next, l4_len as u32).checksum()).to_be_bytes();
        let l4 = frame.len();
        frame.extend([0x13, 0x88, 0x17, 0x70]);
        if self.udp {
            frame.extend((l4_len as u16).to_be_bytes());
            frame.extend(seed);
        } else {
            frame.extend(self.sequence.to_be_bytes());
            frame.extend([1, 2, 3, 4, ((20 + self.options) << 2) as u8, self.flags, 0xff, 0xff]);
            frame.extend(seed);
            frame.extend([0, 0]);
            frame.extend(vec![1; self.options]);
        }
        let headers = frame.len();
        frame.extend((0..self.payload).map(|i| (i * 7 + i / 256) as u8));
        let kind = if self.udp {
            5
        } else if self.v6 {
            4
        } else {
            1
        };
        let mut bytes = vec![1, kind];
        for field in [headers as u16, self.mss, l4 as u16, if self.udp { 6 } else { 16 }] {
            bytes.extend(field.to_ne_bytes());
        }
        bytes.extend(frame);
        bytes
    }

    fn packets(&self) -> u16 {
        self.payload.div_ceil(self.mss.into()) as u16
    }

    /// The packets on the wire, made one by one from their definition.
    fn naive(&self) -> Vec<Vec<u8>> {
        let whole = self.bytes();
        let count = self.packets();
        (0..count)
            .map(|i| {
                let from = usize::from(i) * usize::from(self.mss);
                let to = (from + usize::from(self.mss)).min(self.payload);
                let (mut flags, first, last) = (self.flags, i == 0, i + 1 == count);
                if !first {
                    flags &= !0x80;
                }
                if !last {
                    flags &= !0x09;
                }
                let one = SuperSegment {
                    payload: to - from,
                    flags,
                    id: self.id.wrapping_add(i),
                    sequence: self.sequence.wrapping_add(from as u32),
                    ..self.clone()
                };
                let mut bytes = one.bytes();
                let payload = whole.len() - self.payload;
                let headers = bytes.len() - one.payload;
                bytes.truncate(headers);
                bytes.extend(&whole[payload + from..payload + to]);
                bytes[1] = 0;
                complete(&mut bytes);
                bytes.split_off(VNET)
            })
            .collect()
    }
}

/// What a kernel would put on the wire for `bytes`: each packet with its checksum.
fn on_the_wire(bytes: &[u8]) -> Vec<Vec<u8>> {
    let layout = FrameLayout::of(bytes);
    let packets = (0..layout.packets).map(|at| {
        let mut out = [0; VNET + HEADERS_MAX];
        let mut packet = match layout.part(bytes, at, 1, &mut out) {
            Some((len, payload)) => [&out[..len], &bytes[payload]].concat(),
            None => bytes.to_vec(),
        };
        assert_eq!(packet.len() - VNET, layout.frame_len(at) as usize);
        complete(&mut packet);
        packet.split_off(VNET)
    });
    packets.collect()
}

/// Both checksums, as a receiver checks them.
fn is_right(frame: &[u8]) {
    let layers = Layers::find(frame).expect("whole headers, and the IP checksum is right");
    assert_eq!(layers.end, frame.len());
    let segment = layers.segment(frame);
    let pseudo = checksum::pseudo_header(layers.addresses(frame), layers.protocol, segment.len() as u32);
    assert_eq!(pseudo.plus(checksum::Sum::ZERO.bytes(segment)).checksum(), 0, "transport checksum");
    if layers.protocol == protocol::UDP {
        assert_eq!(usize::from(field(segment, 4).expect("a length")), segment.len());
    }
}

fn any_super() -> impl Strategy<Value = SuperSegment> {
    let layout = (any::<bool>(), any::<bool>(), 0usize..=2, (0usize..=10).prop_map(|words| words * 4));
    let rest = (1u16..3000, 2usize..40_000, any::<u8>(), any::<u16>(), any::<u32>());
    (layout, rest).prop_map(|((v6, udp, tags, options), (mss, payload, flags, id, sequence))| {
        let mss = mss.max((payload / 1000 + 1) as u16);
        SuperSegment {
            v6,
            udp,
            tags,
            options,
            mss,
            payload: payload.max(usize::from(mss) + 1),
            flags,
            id,
            sequence,
        }
    })
}

#[test]
fn the_arithmetic_of_one_train() {
    let burst = SuperSegment {
        v6: false,
        udp: false,
        tags: 0,
        options: 12,
        mss: 1448,
        payload: 1448 * 3 + 10,
        flags: 0x80 | 0x18 | 0x01,
        id: 0xffff,
        sequence: 0xffff_ff00,
    };
    let bytes = burst.bytes();
    let layout = FrameLayout::of(&bytes);
    assert_eq!((layout.packets, layout.headers, layout.frame_len(0), layout.frame_len(3)), (4, 66, 1514, 76));
    let mut out = [0; VNET + HEADERS_MAX];
    let (len, payload) = layout.part(&bytes, 1, 2, &mut out).expect("two in the middle");
    assert_eq!((len, payload.len()), (VNET + 66, 2896));
    assert_eq!(out[..2], [1, 1], "still a burst, checksum still wanted");
    let frame = &out[VNET..];
    assert_eq!(field(frame, 16), Some(52 + 2896));
    assert_eq!(field(frame, 18), Some(0), "the identification wraps");
    assert_eq!(frame[38..42], (0xffff_ff00u32.wrapping_add(1448)).to_be_bytes());
    assert_eq!(frame[47], 0x10, "neither first nor last: ACK only");
    let (_, payload) = layout.part(&bytes, 3, 1, &mut out).expect("the last");
    assert_eq!((payload.len(), out[1], out[VNET + 47]), (10, 0, 0x19));
    assert!(layout.part(&bytes, 3, 2, &mut out).is_none());
}

proptest! {
    #[test]
    fn parts_are_what_one_by_one_segmentation_gives(
        burst in any_super(),
        cuts in proptest::collection::vec(any::<u16>(), 0..6),
    ) {
        let bytes = burst.bytes();
        let layout = FrameLayout::of(&bytes);
        prop_assert_eq!(layout.packets, burst.packets());
        let naive = burst.naive();
        naive.iter().for_each(|frame| is_right(frame));
        // Cut anywhere, then segmented as the kernel would: the same packets.
        let mut cuts: Vec<u16> = cuts.into_iter().map(|cut| cut % layout.packets).collect();
        cuts.extend([0, layout.packets]);
        cuts.sort_unstable();
        cuts.dedup();
        let mut wire = Vec::new();
        for pair in cuts.windows(2) {
            let mut out = [0; VNET + HEADERS_MAX];
            let (len, payload) = layout.part(&bytes, pair[0], pair[1] - pair[0], &mut out).expect("a part");
            let part = [&out[..len], &bytes[payload]].concat();
            prop_assert_eq!(part[1] == 0, pair[1] - pair[0] == 1);
            wire.extend(on_the_wire(&part));
        }
        prop_assert_eq!(wire, naive);
    }

    #[test]
    fn nothing_makes_it_panic(mut bytes in proptest::collection::vec(any::<u8>(), 0..300), burst in any_super(),
        at in 0usize..100, with in any::<u8>(), cut in 0usize..120) {
        let mut out = [0; VNET + HEADERS_MAX];
        let mut frame = burst.bytes();
        if let Some(byte) = frame.get_mut(at) { *byte = with; }
        for bytes in [&mut bytes, &mut frame] {
            let layout = FrameLayout::of(bytes);
            for first in [0, 1, layout.packets - 1] {
                let _part = layout.part(bytes, first, 1, &mut out);
                let _len = layout.frame_len(first);
            }
            bytes.truncate(cut);
            let _layout = FrameLayout::of(bytes);
            complete(bytes);
        }
    }
}
