//! SYN cookies (RFC 4987 section 3.6): a sequence number that only who received it can give back, and that says what a connection
//! begins with.

use crate::config::SECOND;
use packet::tcp::Header;

/// How long a cookie is made with the same secret, ns; it is taken back for one period more.
pub(crate) const PERIOD: u64 = 64 * SECOND;
/// Segment sizes that a cookie can say.
const SIZES: [u16; 8] = [64, 536, 1024, 1220, 1380, 1440, 1460, 8940];

/// What a cookie says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Cookie(u32);

impl Cookie {
    /// Of a SYN, whose segment size is rounded down.
    pub fn new(syn: &Header, own: u16, v4: bool) -> Self {
        let asked = syn.options.mss.unwrap_or(if v4 { 536 } else { 1220 }).min(own);
        let larger = SIZES.iter().position(|size| *size > asked).unwrap_or(SIZES.len());
        Self(larger.saturating_sub(1) as u32)
    }

    /// Largest payload of a segment.
    pub fn mss(self) -> u16 {
        SIZES[self.0 as usize]
    }

    /// The sequence number: the period in 5 bits, what it says in 3, and 24 of the hash of all.
    pub fn number(self, now: u64, theirs: u32, hash: impl Fn(u64) -> u64) -> u32 {
        self.of(now / PERIOD, theirs, hash)
    }

    fn of(self, period: u64, theirs: u32, hash: impl Fn(u64) -> u64) -> u32 {
        let salt =
            (u64::from(theirs) << 32 | u64::from(self.0) << 29) ^ period.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        (period as u32 & 31) << 27 | self.0 << 24 | (hash(salt) >> 40) as u32
    }

    /// What a number says, if it is a cookie of this period or the last.
    pub fn redeem(number: u32, now: u64, theirs: u32, hash: impl Fn(u64) -> u64) -> Option<Self> {
        let (cookie, current) = (Self(number >> 24 & 7), now / PERIOD);
        let periods = [current, current.saturating_sub(1)];
        periods.into_iter().any(|period| cookie.of(period, theirs, &hash) == number).then_some(cookie)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hash(salt: u64) -> u64 {
        (salt ^ 0x1234_5678).wrapping_mul(0xd6e8_feb8_6659_fd93)
    }

    #[test]
    fn a_cookie_is_taken_back_for_two_periods_by_its_peer_alone() {
        let now = 100 * PERIOD + 1;
        let syn = Header {
            source: 1,
            destination: 2,
            sequence: 77,
            acknowledgment: 0,
            flags: 0,
            window: 0,
            options: packet::tcp::Options { mss: Some(1460), ..Default::default() },
        };
        let cookie = Cookie::new(&syn, 1460, true);
        assert_eq!(cookie.mss(), 1460);
        let number = cookie.number(now, 77, hash);
        assert_eq!(Cookie::redeem(number, now, 77, hash), Some(cookie));
        assert_eq!(Cookie::redeem(number, now + PERIOD, 77, hash), Some(cookie));
        assert_eq!(Cookie::redeem(number, now + 2 * PERIOD, 77, hash), None, "too late");
        assert_eq!(Cookie::redeem(number, now, 78, hash), None, "another's sequence number");
        assert_eq!(Cookie::redeem(number ^ 1 << 24, now, 77, hash), None, "another segment size");
        assert_eq!(Cookie::redeem(number, now, 77, |salt| hash(salt ^ 1)), None, "another connection");
    }

    #[test]
    fn sizes_are_rounded_down() {
        let syn = |mss| Header {
            source: 1,
            destination: 2,
            sequence: 0,
            acknowledgment: 0,
            flags: 0,
            window: 0,
            options: packet::tcp::Options { mss, ..Default::default() },
        };
        for (asked, own, v4, size) in [
            (Some(1459), 1460, true, 1440),
            (Some(9000), 1460, true, 1460),
            (Some(9000), 8960, true, 8940),
            (None, 1460, true, 536),
            (None, 1440, false, 1220),
            (Some(10), 1460, true, 64),
        ] {
            assert_eq!(Cookie::new(&syn(asked), own, v4).mss(), size);
        }
    }
}
