//! Lines out of bytes that come in any pieces.

/// Longest line that is kept; Kea's end with a user's context, which is the only long field.
pub(super) const LINE: usize = 16 * 1024;

/// One line, as it came.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Line<'a> {
    /// Without its end.
    Whole(&'a [u8]),
    /// Too long to be kept.
    TooLong,
}

/// Puts lines together. Holds at most [`LINE`] bytes.
#[derive(Debug, Default)]
pub(super) struct Lines {
    partial: Vec<u8>,
    /// The line is too long; its rest is skipped.
    skipping: bool,
    number: u64,
}

impl Lines {
    /// The next bytes; `line` gets each line that is whole, with its number from 1.
    pub(super) fn feed(&mut self, mut bytes: &[u8], mut line: impl FnMut(u64, Line)) {
        while let Some(end) = bytes.iter().position(|byte| *byte == b'\n') {
            let (head, rest) = (&bytes[..end], &bytes[end + 1..]);
            self.number += 1;
            if self.skipping || self.partial.len() + head.len() > LINE {
                line(self.number, Line::TooLong);
            } else if self.partial.is_empty() {
                line(self.number, Line::Whole(head));
            } else {
                self.partial.extend_from_slice(head);
                line(self.number, Line::Whole(&self.partial));
            }
            self.partial.clear();
            self.skipping = false;
            bytes = rest;
        }
        if self.skipping || self.partial.len() + bytes.len() > LINE {
            self.partial.clear();
            self.skipping = true;
        } else {
            self.partial.extend_from_slice(bytes);
        }
    }

    /// The number of the line that is not whole, if there is one; it is forgotten.
    pub(super) fn cut_off(&mut self) -> Option<u64> {
        let cut = self.skipping || !self.partial.is_empty();
        self.partial.clear();
        self.skipping = false;
        cut.then_some(self.number + 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(pieces: &[&[u8]]) -> (Vec<(u64, Option<usize>)>, Option<u64>) {
        let (mut lines, mut found) = (Lines::default(), Vec::new());
        for piece in pieces {
            lines.feed(piece, |number, line| {
                found.push((number, if let Line::Whole(line) = line { Some(line.len()) } else { None }));
            });
        }
        (found, lines.cut_off())
    }

    #[test]
    fn lines_are_put_together() {
        assert_eq!(
            lines(&[b"ab\nc", b"", b"d", b"e\n\n"]),
            (vec![(1, Some(2)), (2, Some(3)), (3, Some(0))], None)
        );
        assert_eq!(lines(&[b"ab\nc"]), (vec![(1, Some(2))], Some(2)));
    }

    #[test]
    fn a_line_may_be_so_long_and_no_longer() {
        let mut most = vec![b'x'; LINE];
        assert_eq!(lines(&[&most, b"\n"]), (vec![(1, Some(LINE))], None));
        most.push(b'x');
        assert_eq!(lines(&[&most, b"more", b"\nok\n"]), (vec![(1, None), (2, Some(2))], None));
        assert_eq!(lines(&[&most]), (vec![], Some(1)));
        assert_eq!(lines(&[&most[..9], &most[9..], b"\n"]), (vec![(1, None)], None));
    }
}
