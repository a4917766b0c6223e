//! What a path carries, seen from the path: packets that may come coupled, as a burst.

/// Bytes that a frame has on the wire besides those that hosts see: check sequence 4, preamble and start 8,
/// gap 12 (IEEE 802.3 clauses 3.1.1 and 4.4.2).
const OVERHEAD: u32 = 24;
/// Shortest frame without check sequence; shorter ones are padded.
const FRAME_MIN: u32 = 60;

/// Bytes on the wire of a frame of `len` bytes without check sequence.
#[inline]
pub fn wire_bytes(len: u32) -> u32 {
    len.max(FRAME_MIN) + OVERHEAD
}

/// The packets of one load.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Burst {
    /// How many; at least 1.
    pub packets: u32,
    /// Bytes on the wire of each but the last.
    pub bytes: u32,
    /// Bytes on the wire of the last.
    pub last: u32,
}

impl Burst {
    /// A single packet whose frame has `len` bytes without check sequence.
    #[inline]
    pub fn single(len: u32) -> Self {
        let bytes = wire_bytes(len);
        Self { packets: 1, bytes, last: bytes }
    }

    /// Bytes on the wire, all together.
    #[inline]
    pub fn total(&self) -> u64 {
        self.bytes_of(self.packets)
    }

    /// Bytes on the wire of the first `count` packets.
    #[inline]
    pub fn bytes_of(&self, count: u32) -> u64 {
        if count >= self.packets {
            u64::from(self.packets.saturating_sub(1)) * u64::from(self.bytes) + u64::from(self.last)
        } else {
            u64::from(count) * u64::from(self.bytes)
        }
    }
}

/// What holds the packets, and can part, copy and damage them.
pub trait PacketStore {
    /// One or several packets that came together.
    type Load;

    /// Its packets.
    fn burst(&self, load: &Self::Load) -> Burst;

    /// Part the first `count` packets from the others, which stay in `load`. `None` when it cannot be parted:
    /// all its packets then share one fate.
    fn split(&mut self, load: &mut Self::Load, count: u32) -> Option<Self::Load>;

    /// The same single packet again; `None` when there is no room for it.
    fn copy(&mut self, load: &Self::Load) -> Option<Self::Load>;

    /// Flip one bit of a single packet so that its receiver can see it; the random number `dice` says which.
    fn corrupt(&mut self, load: &mut Self::Load, dice: u64);

    /// The end of these packets.
    fn free(&mut self, load: Self::Load);
}

/// Flip a bit of what a frame carries: behind the transport header where there is such payload, else anywhere
/// behind the Ethernet header.
pub(crate) fn flip(frame: &mut [u8], dice: u64) {
    use packet::layers::{Layers, protocol};
    let range = match Layers::find(frame) {
        Ok(layers) => {
            let header = match layers.protocol {
                protocol::TCP => usize::from(frame.get(layers.l4 + 12).map_or(5, |b| b >> 4)) * 4,
                protocol::UDP | protocol::ICMP | protocol::ICMPV6 => 8,
                _ => 0,
            };
            if layers.l4 + header < layers.end {
                layers.l4 + header..layers.end
            } else {
                layers.l4..layers.end
            }
        }
        Err(_) => packet::ethernet::LEN..frame.len(),
    };
    let Some(bits) = (range.len() as u64 * 8).checked_sub(1) else { return };
    let bit = ((u128::from(dice) * (u128::from(bits) + 1)) >> 64) as usize;
    if let Some(byte) = frame.get_mut(range.start + bit / 8) {
        *byte ^= 1 << (bit % 8);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_on_the_wire() {
        // 1500 bytes of IP take 1538 on the wire; the shortest frame takes 84.
        assert_eq!(wire_bytes(1514), 1538);
        assert_eq!((wire_bytes(42), wire_bytes(60), wire_bytes(61)), (84, 84, 85));
        let burst = Burst { packets: 3, bytes: 1538, last: 100 };
        assert_eq!((burst.bytes_of(0), burst.bytes_of(2), burst.bytes_of(3)), (0, 3076, 3176));
        assert_eq!((burst.total(), Burst::single(60).total()), (3176, 84));
    }

    #[test]
    fn one_bit_is_flipped_behind_the_headers_and_anything_is_survived() {
        for len in 0..80usize {
            for dice in [0, 1, u64::MAX / 3, u64::MAX] {
                let mut frame = vec![0x5a; len];
                flip(&mut frame, dice);
                let bits: u32 = frame.iter().map(|b| (b ^ 0x5a).count_ones()).sum();
                assert_eq!(bits, u32::from(len > 14), "{len} bytes");
                assert!(frame.iter().take(14).all(|b| *b == 0x5a));
            }
        }
    }
}
