//! Bytes that a connection is to send, or that are not acknowledged: copies, and references to bytes that many connections share.

use std::collections::VecDeque;
use std::sync::Arc;

/// What follows what was sent before it.
#[derive(Debug)]
enum Extent {
    /// So many of the copied bytes.
    Copied(usize),
    /// So many of shared bytes, which are repeated without end, from an offset on.
    Shared { body: Arc<[u8]>, offset: usize, len: usize },
}

impl Extent {
    fn len(&self) -> usize {
        match self {
            Extent::Copied(len) | Extent::Shared { len, .. } => *len,
        }
    }
}

/// Bytes that wait.
#[derive(Debug, Default)]
pub(crate) struct SendBuffer {
    /// Copied bytes, in one piece, from `start` on.
    copied: Vec<u8>,
    start: usize,
    /// Shared bytes that wait.
    shared: usize,
    /// Order of copied and shared bytes; empty: none are shared.
    extents: VecDeque<Extent>,
}

impl SendBuffer {
    /// How many wait.
    #[inline]
    pub fn len(&self) -> usize {
        self.copied.len() - self.start + self.shared
    }

    /// Memory that the copies take.
    pub fn memory(&self) -> usize {
        self.copied.capacity()
    }

    /// Append a copy.
    pub fn push(&mut self, more: &[u8]) {
        // what was acknowledged makes room before the memory grows
        if self.start > 0 && self.copied.len() + more.len() > self.copied.capacity() {
            self.copied.drain(..self.start);
            self.start = 0;
        }
        self.copied.extend_from_slice(more);
        match self.extents.back_mut() {
            Some(Extent::Copied(len)) => *len += more.len(),
            Some(Extent::Shared { .. }) => self.extents.push_back(Extent::Copied(more.len())),
            None => {}
        }
    }

    /// Append `len` bytes of `body`, which is not empty and is repeated without end, from `offset` on.
    pub fn push_shared(&mut self, body: &Arc<[u8]>, offset: usize, len: usize) {
        if self.extents.is_empty() && self.len() > 0 {
            self.extents.push_back(Extent::Copied(self.len()));
        }
        self.shared += len;
        match self.extents.back_mut() {
            Some(Extent::Shared { body: last, offset: from, len: before })
                if Arc::ptr_eq(last, body) && (*from + *before) % body.len() == offset % body.len() =>
            {
                *before += len;
            }
            _ => self.extents.push_back(Extent::Shared {
                body: Arc::clone(body),
                offset: offset % body.len(),
                len,
            }),
        }
    }

    /// `len` bytes from `at` on; those that do not lie in one piece are put together in `scratch`.
    #[inline]
    pub fn get<'a>(&'a self, at: usize, len: usize, scratch: &'a mut Vec<u8>) -> &'a [u8] {
        if self.extents.is_empty() {
            return self.copied.get(self.start + at..self.start + at + len).unwrap_or(&[]);
        }
        self.gather(at, len, scratch)
    }

    fn gather<'a>(&'a self, at: usize, len: usize, scratch: &'a mut Vec<u8>) -> &'a [u8] {
        scratch.clear();
        let (mut skip, mut left, mut copied) = (at, len, self.start);
        for extent in &self.extents {
            let take = extent.len().saturating_sub(skip).min(left);
            if take > 0 {
                let mut taken = 0;
                while taken < take {
                    let piece = match extent {
                        Extent::Copied(_) => self.copied.get(copied + skip..copied + skip + take),
                        Extent::Shared { body, offset, .. } => {
                            let from = (offset + skip + taken) % body.len();
                            body.get(from..body.len().min(from + take - taken))
                        }
                    };
                    let piece = piece.filter(|piece| !piece.is_empty()).unwrap_or(&[]);
                    if piece.is_empty() || piece.len() == len {
                        return piece;
                    }
                    scratch.extend_from_slice(piece);
                    taken += piece.len();
                }
                left -= take;
                if left == 0 {
                    break;
                }
            }
            skip = skip.saturating_sub(extent.len());
            if let Extent::Copied(len) = extent {
                copied += len;
            }
        }
        scratch
    }

    /// The first `n` are acknowledged.
    pub fn drop_front(&mut self, n: usize) {
        let mut left = n.min(self.len());
        while left > 0 {
            let taken = match self.extents.front_mut() {
                None => {
                    self.start += left;
                    left
                }
                Some(Extent::Copied(len)) => {
                    let taken = left.min(*len);
                    *len -= taken;
                    self.start += taken;
                    taken
                }
                Some(Extent::Shared { body, offset, len }) => {
                    let taken = left.min(*len);
                    *len -= taken;
                    *offset = (*offset + taken) % body.len();
                    self.shared -= taken;
                    taken
                }
            };
            left -= taken;
            if self.extents.front().is_some_and(|extent| extent.len() == 0) {
                self.extents.pop_front();
            }
        }
        if self.shared == 0 {
            self.extents.clear();
        }
        if self.start == self.copied.len() {
            self.copied.clear();
            self.start = 0;
        }
    }

    /// Forget all, keeping the memory.
    pub fn clear(&mut self) {
        self.copied.clear();
        self.extents.clear();
        (self.start, self.shared) = (0, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_shared_body_is_lent_and_not_copied() {
        let body: Arc<[u8]> = (0..=255).collect();
        let (mut buffer, mut scratch) = (SendBuffer::default(), Vec::new());
        buffer.push(b"head");
        buffer.push_shared(&body, 0, 1 << 20);
        buffer.push_shared(&body, 1 << 20, 100);
        assert_eq!((buffer.len(), buffer.extents.len()), ((1 << 20) + 104, 2), "the body goes on");
        assert!(buffer.memory() < 100);
        assert!(
            std::ptr::eq(buffer.get(4 + 256, 256, &mut scratch), &raw const *body),
            "the bytes themselves"
        );
        assert_eq!(buffer.get(2, 4, &mut scratch), b"ad\x00\x01");
        assert_eq!(buffer.get(4 + 255, 3, &mut scratch), [255, 0, 1]);
        buffer.drop_front((1 << 20) + 104);
        assert_eq!((buffer.len(), Arc::strong_count(&body)), (0, 1));
    }

    proptest! {
        #[test]
        fn what_is_sent_is_what_was_given(
            steps in proptest::collection::vec(
                (proptest::collection::vec(any::<u8>(), 0..40), any::<Option<u8>>(), 0usize..90, 0usize..60),
                1..40
            ),
            at in any::<prop::sample::Index>(), len in any::<prop::sample::Index>(),
        ) {
            let (mut buffer, mut all, mut gone) = (SendBuffer::default(), Vec::new(), 0);
            let bodies = [Arc::<[u8]>::from([7, 8, 9]), Arc::from([1; 20])];
            let mut scratch = Vec::new();
            for (more, shared, n, acknowledged) in steps {
                match shared {
                    None => {
                        buffer.push(&more);
                        all.extend_from_slice(&more);
                    }
                    Some(offset) => {
                        let body = &bodies[n % 2];
                        buffer.push_shared(body, offset.into(), n);
                        all.extend(body.iter().cycle().skip(offset.into()).take(n));
                    }
                }
                let waiting = &all[gone..];
                prop_assert_eq!(buffer.len(), waiting.len());
                prop_assert_eq!(buffer.get(0, buffer.len(), &mut scratch), waiting);
                let from = at.index(waiting.len() + 1);
                let n = len.index(waiting.len() - from + 1);
                prop_assert_eq!(buffer.get(from, n, &mut scratch), &waiting[from..from + n]);
                let n = acknowledged.min(buffer.len());
                buffer.drop_front(n);
                gone += n;
            }
        }
    }
}
