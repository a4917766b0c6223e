//! Bytes that a connection received, in order or not.

/// Most ranges that are kept out of order; what would begin another is dropped, and comes again.
const RANGES: usize = 32;

/// Bytes received, from the next that is to be read on.
#[derive(Debug, Default)]
pub(crate) struct ReceiveBuffer {
    bytes: Vec<u8>,
    start: usize,
    /// Up to where they are in order.
    ready: usize,
    /// Ranges behind that which are there, from [`ready`](Self::ready) on, in order and apart.
    ranges: Vec<(u32, u32)>,
    /// The range that grew last: the first that a SACK option names (RFC 2018 section 4).
    latest: u32,
}

impl ReceiveBuffer {
    /// Bytes that can be read.
    #[inline]
    pub fn ready(&self) -> usize {
        self.ready - self.start
    }

    /// Whether something is missing in what was received.
    #[inline]
    pub fn has_gap(&self) -> bool {
        !self.ranges.is_empty()
    }

    /// Whether nothing is held.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.ready() == 0 && self.ranges.is_empty()
    }

    /// Put `bytes` at `offset` from the next that is expected; how many are in order now that were not.
    pub fn insert(&mut self, offset: u32, bytes: &[u8]) -> u32 {
        if bytes.is_empty() {
            return 0;
        }
        if offset == 0 && self.ranges.is_empty() {
            self.make_room(bytes.len());
            self.bytes.truncate(self.ready);
            self.bytes.extend_from_slice(bytes);
            self.ready += bytes.len();
            return bytes.len() as u32;
        }
        let (from, to) = (offset, offset + bytes.len() as u32);
        let alone = !self.ranges.iter().any(|(left, right)| *left <= to && from <= *right);
        if alone && offset > 0 && self.ranges.len() == RANGES {
            return 0;
        }
        let end = to as usize;
        self.make_room(end);
        if self.bytes.len() < self.ready + end {
            self.bytes.resize(self.ready + end, 0);
        }
        self.bytes[self.ready + from as usize..self.ready + end].copy_from_slice(bytes);
        self.merge(from, to);
        let Some((0, filled)) = self.ranges.first().copied() else { return 0 };
        self.ranges.remove(0);
        self.ranges.iter_mut().for_each(|(left, right)| (*left, *right) = (*left - filled, *right - filled));
        self.latest = self.latest.saturating_sub(filled);
        self.ready += filled as usize;
        filled
    }

    fn merge(&mut self, mut from: u32, mut to: u32) {
        let at = self.ranges.partition_point(|(_, right)| *right < from);
        let mut end = at;
        while let Some((left, right)) = self.ranges.get(end).filter(|(left, _)| *left <= to) {
            (from, to) = (from.min(*left), to.max(*right));
            end += 1;
        }
        self.ranges.splice(at..end, [(from, to)]);
        self.latest = from;
    }

    /// What was read makes room before the memory grows.
    fn make_room(&mut self, more: usize) {
        if self.start > 0 && self.ready + more > self.bytes.capacity() {
            self.bytes.drain(..self.start);
            self.ready -= self.start;
            self.start = 0;
        }
    }

    /// Ranges beyond what is in order, the latest first, by their offsets.
    pub fn sacks(&self) -> impl Iterator<Item = (u32, u32)> + '_ {
        let first = self.ranges.iter().filter(|(left, _)| *left == self.latest);
        first.chain(self.ranges.iter().filter(|(left, _)| *left != self.latest)).copied()
    }

    /// Read into `to`; how many.
    pub fn read(&mut self, to: &mut [u8]) -> usize {
        let n = self.ready().min(to.len());
        to[..n].copy_from_slice(&self.bytes[self.start..self.start + n]);
        self.start += n;
        if self.start == self.bytes.len() {
            self.bytes.clear();
            (self.start, self.ready) = (0, 0);
        }
        n
    }

    /// Forget all, keeping the memory.
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.ranges.clear();
        (self.start, self.ready, self.latest) = (0, 0, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_latest_range_is_named_first() {
        let mut buffer = ReceiveBuffer::default();
        assert_eq!(buffer.insert(10, &[1; 5]), 0);
        assert_eq!(buffer.insert(30, &[2; 5]), 0);
        assert_eq!(buffer.insert(20, &[3; 5]), 0);
        assert_eq!(buffer.sacks().collect::<Vec<_>>(), [(20, 25), (10, 15), (30, 35)]);
        assert_eq!(buffer.insert(0, &[4; 10]), 15);
        assert_eq!(buffer.sacks().collect::<Vec<_>>(), [(5, 10), (15, 20)]);
        assert!(buffer.has_gap() && buffer.ready() == 15);
    }

    #[test]
    fn ranges_are_bounded() {
        let mut buffer = ReceiveBuffer::default();
        for n in 0..2 * RANGES as u32 {
            buffer.insert(10 + 10 * n, &[0; 5]);
        }
        assert_eq!(buffer.ranges.len(), RANGES);
        assert_eq!(buffer.insert(0, &[0; 10]), 15, "what fills the first gap is always taken");
    }

    proptest! {
        #[test]
        fn what_comes_in_any_order_is_read_in_order(
            sent in proptest::collection::vec(any::<u8>(), 1..600),
            pieces in proptest::collection::vec((any::<prop::sample::Index>(), 1usize..60, 0usize..50), 0..80),
        ) {
            let (mut buffer, mut read, mut expected) = (ReceiveBuffer::default(), Vec::new(), 0usize);
            let mut take = |buffer: &mut ReceiveBuffer, expected: &mut usize, from: usize, len: usize, n: usize| {
                let end = (from + len).min(sent.len());
                let from = from.max(*expected);
                if from < end {
                    *expected += buffer.insert((from - *expected) as u32, &sent[from..end]) as usize;
                }
                let mut some = vec![0; n];
                let n = buffer.read(&mut some);
                read.extend_from_slice(&some[..n]);
            };
            for (at, len, n) in pieces {
                take(&mut buffer, &mut expected, at.index(sent.len()), len, n);
            }
            for from in (0..sent.len()).step_by(50) {
                take(&mut buffer, &mut expected, from, 50, 1000);
            }
            take(&mut buffer, &mut expected, 0, 0, 1000);
            prop_assert_eq!(read, sent);
            prop_assert!(buffer.is_empty());
        }
    }
}
