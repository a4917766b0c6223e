//! `a=crypto` (RFC 4568): suites and keys of SRTP, in the description itself.

use base64::Engine;
use base64::alphabet::STANDARD;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use std::fmt;

/// Some leave the padding out.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// A line `a=crypto`. `Debug` leaves the key out.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Crypto {
    /// Number of the line: an answer has that of the line it takes.
    pub tag: u32,
    /// Name of the suite, like `AES_CM_128_HMAC_SHA1_80`.
    pub suite: String,
    /// Master key, and behind it the master salt. Empty in a line that this side cannot use: with another key method, several
    /// keys, a master key identifier, or session parameters that change how packets are protected.
    pub key: Vec<u8>,
}

impl Crypto {
    /// Reads what follows `a=crypto:`. None: it is malformed.
    pub(super) fn parse(value: &str) -> Option<Self> {
        let mut parts = value.split(' ').filter(|part| !part.is_empty());
        let (tag, suite, keys) = (parts.next()?, parts.next()?, parts.next()?);
        let digits = (1..=9).contains(&tag.len()) && tag.bytes().all(|b| b.is_ascii_digit());
        let tag = Some(tag).filter(|_| digits)?.parse().ok()?;
        // the window size hint leaves packets as they are
        let plain = parts.all(|parameter| parameter.starts_with("WSH="));
        let key = key(keys).filter(|_| plain).unwrap_or_default();
        Some(Self { tag, suite: suite.to_owned(), key })
    }

    /// Whether both have the same suite, and a key of its length each.
    pub(super) fn is_compatible(&self, other: &Self) -> bool {
        self.suite == other.suite && !self.key.is_empty() && self.key.len() == other.key.len()
    }
}

/// The one key of `inline:KEY|LIFETIME`. A lifetime is longer than a call.
fn key(keys: &str) -> Option<Vec<u8>> {
    let mut parts = keys.strip_prefix("inline:")?.split('|');
    let key = BASE64.decode(parts.next()?).ok()?;
    let lifetime = |part: &str| part.strip_prefix("2^").unwrap_or(part).bytes().all(|b| b.is_ascii_digit());
    parts.all(lifetime).then_some(key)
}

impl fmt::Debug for Crypto {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Crypto").field("tag", &self.tag).field("suite", &self.suite).finish_non_exhaustive()
    }
}

impl fmt::Display for Crypto {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} inline:{}", self.tag, self.suite, BASE64.encode(&self.key))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // RFC 4568 section 6.1
    const KEY: &str = "WVNfX19zZW1jdGwgKCkgewkyMjA7fQp9CnVubGVz";

    #[test]
    fn lines_are_read_and_written() {
        let line = format!("1 AES_CM_128_HMAC_SHA1_80 inline:{KEY}");
        let read = Crypto::parse(&line).expect("a line");
        assert_eq!((read.tag, read.suite.as_str(), read.key.len()), (1, "AES_CM_128_HMAC_SHA1_80", 30));
        assert_eq!(read.to_string(), line);
        for more in ["|2^20", "|1048576", " WSH=64"] {
            assert_eq!(Crypto::parse(&format!("{line}{more}")).as_ref(), Some(&read), "{more}");
        }
        let shown = format!("{read:?}");
        assert!(!shown.contains("key") && !shown.contains("89"), "{shown}");
    }

    #[test]
    fn lines_that_cannot_be_used_have_no_key() {
        for value in [
            format!("1 F8_128_HMAC_SHA1_80 inline:{KEY}|2^20|1:4"),
            format!("1 AES_CM_128_HMAC_SHA1_80 inline:{KEY};inline:{KEY}"),
            format!("1 AES_CM_128_HMAC_SHA1_80 inline:{KEY} UNENCRYPTED_SRTP"),
            "1 AES_CM_128_HMAC_SHA1_80 mikey:AAAA".to_owned(),
            "1 AES_CM_128_HMAC_SHA1_80 inline:*".to_owned(),
        ] {
            assert_eq!(Crypto::parse(&value).map(|one| one.key.len()), Some(0), "{value}");
        }
        for value in ["", "1", "x S inline:AA", "1 S", "+1 S inline:AA", "1234567890 S inline:AA"] {
            assert!(Crypto::parse(value).is_none(), "{value}");
        }
    }
}
