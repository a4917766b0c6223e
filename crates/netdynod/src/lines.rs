//! Lines from a connection: of bounded length, and by a deadline where there is one.

use std::io::{BufRead, BufReader, ErrorKind, Read};
use std::time::{Duration, Instant};

/// Longest line taken: a profile with its payloads fits.
pub const LINE_MAX: usize = 32 << 20;
/// What is kept for the next line: most are short.
const USUAL: usize = 64 << 10;

/// Where lines come from.
pub trait ReadTimeout: Read {
    /// How long a read may wait; `None`: for ever.
    fn set_read_timeout(&self, limit: Option<Duration>) -> std::io::Result<()>;
}

/// Why there is no further line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LineError {
    /// The other side is done, or gone.
    Closed,
    /// It is longer than allowed.
    TooLong,
    /// It did not come in time.
    TooLate,
}

/// Reads lines.
pub struct Lines<S> {
    reader: BufReader<S>,
    line: Vec<u8>,
}

impl<S: ReadTimeout> Lines<S> {
    /// From `stream`.
    pub fn new(stream: S) -> Self {
        Self { reader: BufReader::new(stream), line: Vec::new() }
    }

    /// The next line without its end, of at most `max` bytes, until `deadline`. What comes before the end of
    /// the stream is a line too.
    pub fn next(&mut self, max: usize, deadline: Option<Instant>) -> Result<&[u8], LineError> {
        self.line.clear();
        self.line.shrink_to(USUAL);
        loop {
            let left = deadline.map(|d| d.saturating_duration_since(Instant::now()));
            if left.is_some_and(|left| left.is_zero()) {
                return Err(LineError::TooLate);
            }
            self.reader.get_ref().set_read_timeout(left).map_err(|_| LineError::Closed)?;
            let chunk = match self.reader.fill_buf() {
                Ok(chunk) => chunk,
                Err(e) if e.kind() == ErrorKind::Interrupted => continue,
                Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => continue,
                Err(_) => return Err(LineError::Closed),
            };
            if chunk.is_empty() {
                return if self.line.is_empty() { Err(LineError::Closed) } else { Ok(&self.line) };
            }
            let end = chunk.iter().position(|b| *b == b'\n');
            let part = &chunk[..end.unwrap_or(chunk.len())];
            if self.line.len() + part.len() > max {
                return Err(LineError::TooLong);
            }
            self.line.extend_from_slice(part);
            let used = part.len() + usize::from(end.is_some());
            self.reader.consume(used);
            if end.is_some() {
                return Ok(&self.line);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Gives its bytes in pieces of some length.
    struct Pieces(&'static [u8], usize);

    impl Read for Pieces {
        fn read(&mut self, into: &mut [u8]) -> std::io::Result<usize> {
            let n = self.1.min(into.len()).min(self.0.len());
            into[..n].copy_from_slice(&self.0[..n]);
            self.0 = &self.0[n..];
            Ok(n)
        }
    }

    impl ReadTimeout for Pieces {
        fn set_read_timeout(&self, _: Option<Duration>) -> std::io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn lines_are_the_same_however_they_come() {
        for piece in 1..20 {
            let mut lines = Lines::new(Pieces(b"one\n\ntwo\r\nlast", piece));
            for line in ["one", "", "two\r", "last"] {
                assert_eq!(lines.next(5, None), Ok(line.as_bytes()), "in pieces of {piece}");
            }
            assert_eq!(lines.next(5, None), Err(LineError::Closed));
        }
    }

    #[test]
    fn a_line_has_its_limit() {
        for piece in 1..20 {
            assert_eq!(Lines::new(Pieces(b"12345\n", piece)).next(5, None), Ok(&b"12345"[..]));
            assert_eq!(Lines::new(Pieces(b"123456\n", piece)).next(5, None), Err(LineError::TooLong));
            assert_eq!(Lines::new(Pieces(b"123456", piece)).next(5, None), Err(LineError::TooLong));
        }
    }

    #[test]
    fn a_deadline_that_has_passed_is_not_stretched_by_what_came() {
        let past = Instant::now();
        assert_eq!(Lines::new(Pieces(b"line\n", 1)).next(5, Some(past)), Err(LineError::TooLate));
        let far = past + Duration::from_secs(3600);
        assert_eq!(Lines::new(Pieces(b"line\n", 1)).next(5, Some(far)), Ok(&b"line"[..]));
    }
}
