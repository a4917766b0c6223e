//! Why exactly something failed, within a kind of failure: the status, the reason code, the fault of a certificate. They
//! are counted in a small table, so that `rejected` can be told as `404 × 118, 503 × 2`.

use crate::failure::Failure;
use std::fmt;

/// Causes that are told apart within one kind of failure; the rest is counted together.
pub const CAUSES_MAX: usize = 16;

/// A kind of failure, and what it was exactly.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cause {
    /// The kind that it counts as.
    pub kind: Failure,
    /// What it was.
    pub detail: Detail,
}

/// What a failure was, as far as its kind does not say it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Detail {
    /// The kind says all.
    None,
    /// A status of HTTP.
    Status(u16),
    /// A packet of MQTT with its reason code, and what that means.
    Reason(&'static str, u8, &'static str),
    /// A response code of CoAP.
    Response(u8),
    /// By a name of its own.
    Named(&'static str),
}

/// TLS is spoken where plain text was expected.
pub const TLS_PORT: &str = "TLS on this port";
/// HTTP is spoken where something else was expected.
pub const HTTP_PORT: &str = "plain HTTP on this port";
/// SSH likewise.
pub const SSH_PORT: &str = "SSH on this port";
/// The other side closed while TLS was being set up.
pub const CLOSED_IN_HANDSHAKE: &str = "closed during the TLS handshake";

impl Cause {
    /// One that has a name.
    pub const fn named(kind: Failure, name: &'static str) -> Self {
        Self { kind, detail: Detail::Named(name) }
    }
}

impl From<Failure> for Cause {
    fn from(kind: Failure) -> Self {
        Self { kind, detail: Detail::None }
    }
}

impl fmt::Display for Detail {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Detail::None => Ok(()),
            Detail::Status(status) => write!(f, "{status}"),
            Detail::Reason(packet, code, meaning) => write!(f, "{packet} {code:#04x} {meaning}"),
            Detail::Response(code) => write!(f, "{}.{:02}", code >> 5, code & 31),
            Detail::Named(name) => f.write_str(name),
        }
    }
}

/// Which other protocol begins with these bytes, where an answer of our own was expected.
pub fn other_protocol(bytes: &[u8]) -> Option<&'static str> {
    match bytes {
        // RFC 8446 §5.1: an alert or a handshake record of any version so far
        [0x15 | 0x16, 3, 0..=4, ..] => Some(TLS_PORT),
        [b'H', b'T', b'T', b'P', b'/', ..] => Some(HTTP_PORT),
        [b'S', b'S', b'H', b'-', ..] => Some(SSH_PORT),
        _ => None,
    }
}

/// How often each cause was seen.
#[derive(Debug, Clone, Default)]
pub struct Causes {
    table: Vec<(Cause, u64)>,
    other: [u64; Failure::ALL.len()],
}

impl Causes {
    /// Count one, if it says more than its kind.
    pub fn count(&mut self, cause: Cause, times: u64) {
        if cause.detail == Detail::None {
            return;
        }
        if let Some((_, count)) = self.table.iter_mut().find(|(known, _)| *known == cause) {
            *count += times;
        } else if self.of(cause.kind).count() < CAUSES_MAX {
            self.table.push((cause, times));
        } else {
            self.other[cause.kind as usize] += times;
        }
    }

    /// Add all of `more`.
    pub fn merge(&mut self, more: &Causes) {
        for (cause, count) in &more.table {
            self.count(*cause, *count);
        }
        self.other.iter_mut().zip(more.other).for_each(|(mine, theirs)| *mine += theirs);
    }

    /// Back to none, keeping the memory.
    pub fn clear(&mut self) {
        self.table.clear();
        self.other = [0; Failure::ALL.len()];
    }

    /// Those of a kind, in the order in which they were first seen.
    pub fn of(&self, kind: Failure) -> impl Iterator<Item = (Detail, u64)> {
        self.table
            .iter()
            .filter(move |(cause, _)| cause.kind == kind)
            .map(|(cause, count)| (cause.detail, *count))
    }

    /// Failures of a kind whose cause found no room in the table.
    pub fn other(&self, kind: Failure) -> u64 {
        self.other[kind as usize]
    }

    /// How often a cause was seen.
    pub fn count_of(&self, cause: Cause) -> u64 {
        self.of(cause.kind).find(|(detail, _)| *detail == cause.detail).map_or(0, |(_, count)| count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn causes_are_counted_apart_and_the_table_is_bounded() {
        let status = |code| Cause { kind: Failure::Rejected, detail: Detail::Status(code) };
        let mut causes = Causes::default();
        for code in 400..440 {
            causes.count(status(code), 2);
        }
        causes.count(status(400), 1);
        causes.count(Failure::Rejected.into(), 9);
        causes.count(Cause::named(Failure::Tls, "certificate expired"), 1);
        assert_eq!(causes.of(Failure::Rejected).count(), CAUSES_MAX);
        assert_eq!((causes.count_of(status(400)), causes.count_of(status(415))), (3, 2));
        assert_eq!(causes.other(Failure::Rejected), 2 * (40 - CAUSES_MAX as u64));
        assert_eq!(causes.of(Failure::Tls).count(), 1, "each kind has room of its own");
        let mut both = causes.clone();
        both.merge(&causes);
        assert_eq!(both.count_of(status(400)), 6);
        assert_eq!(both.other(Failure::Rejected), 2 * causes.other(Failure::Rejected));
        both.clear();
        assert_eq!((both.of(Failure::Rejected).count(), both.other(Failure::Rejected)), (0, 0));
    }

    #[test]
    fn causes_have_the_fields_own_names() {
        assert_eq!(Detail::Status(404).to_string(), "404");
        assert_eq!(Detail::Reason("CONNACK", 5, "not authorized").to_string(), "CONNACK 0x05 not authorized");
        assert_eq!(Detail::Response(4 << 5 | 4).to_string(), "4.04");
        assert_eq!(Detail::Named("certificate expired").to_string(), "certificate expired");
    }

    #[test]
    fn other_protocols_are_known_by_their_first_bytes() {
        assert_eq!(other_protocol(b"\x15\x03\x01\x00\x02\x02\x46"), Some(TLS_PORT));
        assert_eq!(other_protocol(b"HTTP/1.1 400 Bad Request\r\n"), Some(HTTP_PORT));
        assert_eq!(other_protocol(b"SSH-2.0-OpenSSH_9.2\r\n"), Some(SSH_PORT));
        assert_eq!(other_protocol(b"\x20\x02\x00\x05"), None);
        assert_eq!(other_protocol(b""), None);
    }
}
