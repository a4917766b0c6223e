//! Round-trip time and retransmission timeout (RFC 6298).

use crate::config::TcpConfig;

/// Longest timeout, µs (section 2.5: at least 60 s).
const LONGEST: u64 = 60_000_000;

/// Round-trip time of a connection, µs.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Rtt {
    /// Smoothed, times 8; 0: not measured yet.
    smoothed: u32,
    /// Variation, times 4.
    variation: u32,
    /// The shortest.
    shortest: u32,
}

impl Rtt {
    /// One was measured, ns.
    pub fn sample(&mut self, ns: u64) {
        let rtt = u32::try_from(ns / 1_000).unwrap_or(u32::MAX).clamp(1, LONGEST as u32);
        if self.smoothed == 0 {
            *self = Self { smoothed: rtt.saturating_mul(8), variation: rtt.saturating_mul(2), shortest: rtt };
            return;
        }
        self.shortest = self.shortest.min(rtt);
        let off = (self.smoothed / 8).abs_diff(rtt);
        // RTTVAR = 3/4 RTTVAR + 1/4 |SRTT − R|; SRTT = 7/8 SRTT + 1/8 R (section 2.3)
        self.variation = self.variation - self.variation / 4 + off;
        self.smoothed = (self.smoothed - self.smoothed / 8 + rtt).max(1);
    }

    /// Smoothed, ns; none before one was measured.
    pub fn smoothed(&self) -> Option<u64> {
        (self.smoothed > 0).then(|| u64::from(self.smoothed) * 1_000 / 8)
    }

    /// The shortest, ns.
    pub fn shortest(&self) -> u64 {
        u64::from(self.shortest) * 1_000
    }

    /// Retransmission timeout after `retries` in a row, ns.
    pub fn timeout(&self, config: &TcpConfig, retries: u8) -> u64 {
        let once = match self.smoothed() {
            None => config.initial_rto,
            Some(smoothed) => smoothed + (u64::from(self.variation) * 1_000).max(config.min_rto),
        };
        once.saturating_mul(1 << retries.min(16)).min(LONGEST * 1_000)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{MS, SECOND};

    #[test]
    fn the_timeout_follows_rfc_6298() {
        let config = TcpConfig { min_rto: 0, ..TcpConfig::default() };
        let mut rtt = Rtt::default();
        assert_eq!((rtt.timeout(&config, 0), rtt.timeout(&config, 2)), (SECOND, 4 * SECOND));
        rtt.sample(100 * MS);
        // SRTT 100 ms, RTTVAR 50 ms
        assert_eq!((rtt.smoothed(), rtt.timeout(&config, 0)), (Some(100 * MS), 300 * MS));
        rtt.sample(180 * MS);
        // SRTT 110 ms, RTTVAR 3/4 × 50 + 1/4 × 80 = 57.5 ms
        assert_eq!((rtt.smoothed(), rtt.timeout(&config, 0)), (Some(110 * MS), 340 * MS));
        assert_eq!(rtt.shortest(), 100 * MS);
        assert_eq!(rtt.timeout(&config, 200), 60 * SECOND);
        assert_eq!(rtt.timeout(&TcpConfig { min_rto: SECOND, ..config }, 0), 1_110 * MS);
    }
}
