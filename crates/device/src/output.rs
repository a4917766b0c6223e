//! Bytes of a connection that its carrier, a kernel socket or a stack, has no room for yet.

use crate::conn_error::ConnError;
use crate::tls::Session;
use protocol::meter::Failure;

/// What may wait for a server that takes nothing when a model has more to send.
const OUT_MAX: usize = 16 << 20;

/// So many bytes that the carrier has taken since it was last looked at count as sent without a look: a call for each send
/// would cost more than it tells.
const UNCHECKED: u64 = 64 << 10;

/// What waits, and how much has left the host.
#[derive(Debug, Default)]
pub struct Output {
    bytes: Vec<u8>,
    at: usize,
    /// Bytes that it was given, with those of TLS; and up to where they are known to have left the host.
    given: u64,
    left: u64,
}

impl Output {
    /// What waits.
    pub fn waiting(&self) -> &[u8] {
        &self.bytes[self.at..]
    }

    /// Whether nothing waits.
    pub fn is_empty(&self) -> bool {
        self.at >= self.bytes.len()
    }

    /// Bytes that it was given so far.
    pub fn given(&self) -> u64 {
        self.given
    }

    /// Whether a stream takes more: a server that does not read would let it fill the memory. What is said before TLS makes
    /// records of it, since what TLS has taken cannot be refused.
    pub fn admit(&self) -> Result<(), ConnError> {
        let waiting = self.waiting().len();
        if waiting <= OUT_MAX {
            return Ok(());
        }
        let what = format!("the server does not read: {waiting} bytes wait for it");
        Err(ConnError::new(Failure::Timeout, what))
    }

    /// Put bytes behind what waits; `bytes` is empty afterwards.
    pub fn append(&mut self, bytes: &mut Vec<u8>) {
        self.given += bytes.len() as u64;
        self.make_room();
        self.bytes.append(bytes);
    }

    /// Put what TLS has to send behind what waits.
    pub fn append_records(&mut self, tls: &mut Session) -> Result<(), ConnError> {
        self.make_room();
        self.given += tls.take_records(&mut self.bytes)?;
        Ok(())
    }

    /// Nothing waits, and the carrier was given `bytes`: it took so many, and the others wait.
    pub fn pass(&mut self, bytes: &[u8], taken: usize) {
        self.given += bytes.len() as u64;
        self.bytes.extend_from_slice(&bytes[taken..]);
    }

    /// The carrier took so many of those that wait.
    pub fn take(&mut self, taken: usize) {
        self.at += taken;
        if self.is_empty() {
            self.bytes.clear();
            self.at = 0;
        }
    }

    /// How many bytes have left the host. The carrier says how many it has taken and not sent: it is asked where that is to
    /// be `exact`, or may be much.
    pub fn sent(&mut self, exact: bool, unsent: impl FnOnce() -> u64) -> u64 {
        let taken = self.given - self.waiting().len() as u64;
        if !exact && taken - self.left < UNCHECKED {
            return taken;
        }
        // an earlier answer may have had too much in it
        self.left = taken.saturating_sub(unsent()).max(self.left);
        self.left
    }

    /// Forget what was taken, once that is more than what waits.
    fn make_room(&mut self) {
        if self.at > self.bytes.len() / 2 {
            self.bytes.drain(..self.at);
            self.at = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_may_wait_has_a_limit() {
        let mut out = Output::default();
        out.append(&mut vec![0; OUT_MAX]);
        assert!(out.admit().is_ok());
        out.append(&mut vec![0; 1]);
        let error = out.admit().expect_err("too much waits");
        assert!(
            error.why == Failure::Timeout && error.to_string().contains("16777217 bytes wait"),
            "{error}"
        );
        out.take(1);
        assert!(out.admit().is_ok());
    }

    #[test]
    fn what_was_taken_is_not_kept() {
        let mut out = Output::default();
        for _ in 0..1000 {
            out.append(&mut vec![7; 1000]);
            out.take(if out.waiting().len() > 10_000 { 1000 } else { 900 });
        }
        assert!(out.bytes.len() < 25_000, "{}", out.bytes.len());
        assert_eq!(out.given(), 1_000_000);
        assert_eq!(out.sent(true, || 0), 1_000_000 - out.waiting().len() as u64);
        out.take(out.waiting().len());
        assert!(out.is_empty() && out.bytes.is_empty());
    }

    #[test]
    fn little_counts_as_sent_without_a_look() {
        let mut out = Output::default();
        let bytes = vec![0; UNCHECKED as usize];
        out.pass(&bytes, bytes.len() - 1);
        assert_eq!(out.sent(false, || panic!("a look")), UNCHECKED - 1);
        assert_eq!(out.sent(true, || 1000), UNCHECKED - 1001);
        out.take(1);
        assert_eq!(out.sent(false, || panic!("a look")), UNCHECKED);
        out.pass(&bytes, bytes.len());
        assert_eq!(out.sent(false, || 5), 2 * UNCHECKED - 5);
        assert_eq!(out.sent(true, || 9), 2 * UNCHECKED - 5, "what has left does not come back");
    }
}
