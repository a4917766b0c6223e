//! Durations in test files: `500ms`, `2s`, or multiples of T1 such as `64T1`.

use std::time::Duration;

/// A duration, which may depend on T1 (RFC 3261 section 17.1.1.1).
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Wait {
    /// Milliseconds.
    Ms(f64),
    /// Multiples of T1.
    T1(f64),
}

impl Wait {
    /// Reads a duration.
    pub fn parse(text: &str) -> Option<Self> {
        let text = text.trim();
        let number = |digits: &str| digits.trim().parse::<f64>().ok().filter(|n| (0.0..=1e6).contains(n));
        if let Some(digits) = text.strip_suffix("T1") {
            return if digits.is_empty() { Some(Self::T1(1.0)) } else { number(digits).map(Self::T1) };
        }
        if let Some(digits) = text.strip_suffix("ms") {
            return number(digits).map(Self::Ms);
        }
        text.strip_suffix('s').and_then(number).map(|seconds| Self::Ms(seconds * 1000.0))
    }

    /// Milliseconds at a value of T1.
    pub fn ms(self, t1_ms: u64) -> f64 {
        match self {
            Self::Ms(ms) => ms,
            Self::T1(times) => times * t1_ms as f64,
        }
    }

    /// The same as a duration.
    pub fn at(self, t1_ms: u64) -> Duration {
        Duration::from_secs_f64(self.ms(t1_ms) / 1000.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units() {
        assert_eq!(Wait::parse("500ms"), Some(Wait::Ms(500.0)));
        assert_eq!(Wait::parse("2.5s"), Some(Wait::Ms(2500.0)));
        assert_eq!(Wait::parse("64T1").map(|wait| wait.ms(500)), Some(32_000.0));
        assert_eq!(Wait::parse("T1"), Some(Wait::T1(1.0)));
        for wrong in ["", "5", "ms", "-1s", "xs", "1e9s"] {
            assert_eq!(Wait::parse(wrong), None, "{wrong}");
        }
    }
}
