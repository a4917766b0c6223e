//! Where things lie in the region that a client makes: first all rings, those to the server before those to the client,
//! then the buffers, one for each slot of each ring.

use crate::ring;

/// Largest region.
pub(crate) const MOST: u64 = 1 << 30;

/// What is in a client's region.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Layout {
    /// Rings to the server.
    pub to_server: u16,
    /// Rings to the client.
    pub to_client: u16,
    pub ring_size_log2: u8,
    pub buffer_size: u32,
}

impl Layout {
    fn rings(self) -> u64 {
        u64::from(self.to_server) + u64::from(self.to_client)
    }

    fn ring_bytes(self) -> u64 {
        ring::bytes(self.ring_size_log2).next_multiple_of(64)
    }

    /// From one buffer to the next: copies in whole lines stay within one. An odd number of lines, so that the first lines of
    /// buffers, which is all that short frames take, are in all sets of a cache, not in those few that are 2 KiB apart.
    pub(crate) fn stride(self) -> u64 {
        (u64::from(self.buffer_size).div_ceil(64) | 1) * 64
    }

    /// Bytes of the region.
    pub(crate) fn size(self) -> u64 {
        self.buffers(self.rings())
    }

    /// Which ring it is, of all.
    fn number(self, to_server: bool, index: u16) -> u64 {
        u64::from(index) + if to_server { 0 } else { u64::from(self.to_server) }
    }

    /// Where a ring begins.
    pub(crate) fn ring(self, to_server: bool, index: u16) -> u64 {
        self.number(to_server, index) * self.ring_bytes()
    }

    /// Where the buffers of the ring of this number begin.
    fn buffers(self, number: u64) -> u64 {
        self.rings() * self.ring_bytes() + number * (self.stride() << self.ring_size_log2)
    }

    /// Where the buffers of a ring begin.
    pub(crate) fn buffers_of(self, to_server: bool, index: u16) -> u64 {
        self.buffers(self.number(to_server, index))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_overlaps() {
        let layout = Layout { to_server: 2, to_client: 3, ring_size_log2: 1, buffer_size: 100 };
        // 128 bytes and two descriptors, rounded up to lines.
        assert_eq!(layout.ring(true, 1), 192);
        assert_eq!(layout.ring(false, 0), 2 * 192);
        assert_eq!(layout.buffers_of(true, 0), 5 * 192);
        assert_eq!(layout.buffers_of(true, 1), 5 * 192 + 2 * 192);
        assert_eq!(layout.buffers_of(false, 2), 5 * 192 + 4 * 2 * 192);
        assert_eq!(layout.size(), 5 * 192 + 5 * 2 * 192);
    }

    #[test]
    fn the_largest_does_not_overflow() {
        let layout = Layout { to_server: 255, to_client: 255, ring_size_log2: 14, buffer_size: u32::MAX };
        assert!(layout.size() > MOST);
    }
}
