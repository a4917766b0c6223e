//! Ports of connections that begin here: in turn from one that nobody can guess, so that the one that is used again has rested
//! longest, and another run begins elsewhere (RFC 6056 section 3.3.3).

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::ops::RangeInclusive;

/// Next port towards each peer.
#[derive(Debug)]
pub(crate) struct Ports {
    range: RangeInclusive<u16>,
    begin: u16,
    next: HashMap<(IpAddr, SocketAddr), u16>,
}

impl Ports {
    /// Ports of `range`, whose first follows from `secret`.
    pub fn new(range: RangeInclusive<u16>, secret: u64) -> Self {
        let begin = range.start() + (secret % range.len().max(1) as u64) as u16;
        Self { range, begin, next: HashMap::new() }
    }

    /// The next port from `local` to `remote` that `is_free`; `None`: there is none.
    pub fn next(
        &mut self,
        local: IpAddr,
        remote: SocketAddr,
        mut is_free: impl FnMut(u16) -> bool,
    ) -> Option<u16> {
        let (first, last) = (*self.range.start(), *self.range.end());
        let next = self.next.entry((local, remote)).or_insert(self.begin);
        for _ in first..=last {
            let port = *next;
            *next = if port >= last { first } else { port + 1 };
            if is_free(port) {
                return Some(port);
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_come_in_turn_until_none_is_free() {
        let mut ports = Ports::new(10..=12, 0);
        let (local, remote) = (IpAddr::from([10, 0, 0, 1]), SocketAddr::from(([10, 0, 0, 2], 80)));
        let mut taken = Vec::new();
        for _ in 0..2 {
            taken.extend(ports.next(local, remote, |_| true));
        }
        assert_eq!(taken, [10, 11]);
        assert_eq!(ports.next(local, remote, |port| port != 12), Some(10), "the range is gone round");
        assert_eq!(ports.next(local, remote, |_| false), None);
        assert_eq!(ports.next(local, SocketAddr::from(([10, 0, 0, 2], 81)), |_| true), Some(10));
        assert_eq!(
            Ports::new(10..=12, 5).next(local, remote, |_| true),
            Some(12),
            "a secret says which is first"
        );
    }
}
