//! Quantities as people write them: `"250ms"`, `"1000/s"`, `"1KiB"`. A bare number would leave the unit
//! to guesswork, so it is refused with the way to write it.

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use std::borrow::Cow;
use std::fmt;
use std::time::Duration;

/// A quantity that is not one.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is not {what}; write it like {example}")]
pub struct UnitError {
    text: String,
    what: &'static str,
    example: &'static str,
}

fn split(text: &str) -> Option<(f64, &str)> {
    let text = text.trim();
    let end = text.find(|c: char| !(c.is_ascii_digit() || c == '.' || c == '_')).unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    let value: f64 = number.replace('_', "").parse().ok()?;
    (value.is_finite() && value >= 0.0).then_some((value, unit.trim()))
}

macro_rules! quantity {
    ($name:ident, $what:literal, $example:literal, $pattern:literal) => {
        impl std::str::FromStr for $name {
            type Err = UnitError;
            fn from_str(text: &str) -> Result<Self, UnitError> {
                let wrong = || UnitError { text: text.to_owned(), what: $what, example: $example };
                let (value, unit) = split(text).ok_or_else(wrong)?;
                Self::of(value, unit).ok_or_else(wrong)
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
                struct Visitor;
                impl de::Visitor<'_> for Visitor {
                    type Value = $name;
                    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                        write!(f, "{} with its unit, like {}", $what, $example)
                    }
                    fn visit_str<E: de::Error>(self, text: &str) -> Result<$name, E> {
                        text.parse().map_err(E::custom)
                    }
                }
                d.deserialize_any(Visitor)
            }
        }

        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
                s.collect_str(self)
            }
        }

        impl JsonSchema for $name {
            fn schema_name() -> Cow<'static, str> {
                stringify!($name).into()
            }
            fn json_schema(_: &mut SchemaGenerator) -> Schema {
                json_schema!({
                    "type": "string",
                    "pattern": $pattern,
                    "description": concat!("A quantity: ", $what, ", like ", $example),
                })
            }
        }
    };
}

/// A length of time: `ns`, `us`, `ms`, `s`, `min`, `h`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct Interval(pub Duration);

impl Interval {
    /// Whole milliseconds.
    pub const fn ms(ms: u64) -> Self {
        Self(Duration::from_millis(ms))
    }

    /// Whole seconds.
    pub const fn secs(s: u64) -> Self {
        Self(Duration::from_secs(s))
    }

    /// Nanoseconds.
    pub fn ns(self) -> u64 {
        u64::try_from(self.0.as_nanos()).unwrap_or(u64::MAX)
    }

    /// How often it comes in a second; 0 when it takes no time: then something else sets the pace.
    pub fn per_second(self) -> f64 {
        if self.ns() == 0 { 0.0 } else { 1e9 / self.ns() as f64 }
    }

    fn of(value: f64, unit: &str) -> Option<Self> {
        let factor = match unit {
            "ns" => 1e-9,
            "us" | "µs" => 1e-6,
            "ms" => 1e-3,
            "s" => 1.0,
            "min" => 60.0,
            "h" => 3600.0,
            _ => return None,
        };
        // a year is more than any trial takes
        let secs = value * factor;
        (secs <= 31_536_000.0).then(|| Self(Duration::from_nanos((secs * 1e9).round() as u64)))
    }
}

impl fmt::Display for Interval {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ns = self.ns();
        match ns {
            n if n % 1_000_000_000 == 0 => write!(f, "{}s", n / 1_000_000_000),
            n if n % 1_000_000 == 0 => write!(f, "{}ms", n / 1_000_000),
            n if n % 1_000 == 0 => write!(f, "{}us", n / 1_000),
            n => write!(f, "{n}ns"),
        }
    }
}

quantity!(Interval, "a length of time", "\"250ms\"", r"^[0-9][0-9_]*(\.[0-9]+)? ?(ns|us|µs|ms|s|min|h)$");

/// Something per second: `/s`, `k/s`, `M/s` (also `/min`, `/h`).
#[derive(Debug, Clone, Copy, PartialEq, PartialOrd, Default)]
pub struct Rate(pub f64);

impl Rate {
    fn of(value: f64, unit: &str) -> Option<Self> {
        let factor = match unit {
            "/s" => 1.0,
            "k/s" => 1e3,
            "M/s" => 1e6,
            "/min" => 1.0 / 60.0,
            "/h" => 1.0 / 3600.0,
            _ => return None,
        };
        Some(Self(value * factor))
    }
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/s", self.0)
    }
}

quantity!(Rate, "a rate", "\"1000/s\"", r"^[0-9][0-9_]*(\.[0-9]+)? ?(k|M)?/(s|min|h)$");

/// A number of bytes: `B`, `kB`, `KiB`, `MB`, `MiB`, `GB`, `GiB`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct Size(pub u64);

impl Size {
    /// Bytes, as an index.
    pub fn bytes(self) -> usize {
        usize::try_from(self.0).unwrap_or(usize::MAX)
    }

    fn of(value: f64, unit: &str) -> Option<Self> {
        let factor = match unit {
            "B" => 1.0,
            "kB" => 1e3,
            "KiB" => 1024.0,
            "MB" => 1e6,
            "MiB" => 1024.0 * 1024.0,
            "GB" => 1e9,
            "GiB" => 1024.0 * 1024.0 * 1024.0,
            _ => return None,
        };
        let bytes = value * factor;
        (bytes.fract() == 0.0 && bytes < 1e15).then_some(Self(bytes as u64))
    }
}

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            n if n > 0 && n % (1 << 30) == 0 => write!(f, "{}GiB", n >> 30),
            n if n > 0 && n % (1 << 20) == 0 => write!(f, "{}MiB", n >> 20),
            n if n > 0 && n % (1 << 10) == 0 => write!(f, "{}KiB", n >> 10),
            n => write!(f, "{n}B"),
        }
    }
}

quantity!(Size, "a number of bytes", "\"64B\"", r"^[0-9][0-9_]*(\.[0-9]+)? ?(B|kB|KiB|MB|MiB|GB|GiB)$");

/// Bits per second on the wire: `bit/s`, `kbit/s`, `Mbit/s`, `Gbit/s`.
#[derive(Debug, Clone, Copy, PartialEq, PartialOrd)]
pub struct BitRate(f64);

impl BitRate {
    /// Slowest and fastest link that makes sense, bit/s.
    const RANGE: (f64, f64) = (1e3, 1e12);

    /// Bits per second.
    pub fn bits(self) -> f64 {
        self.0
    }

    fn of(value: f64, unit: &str) -> Option<Self> {
        let factor = match unit {
            "bit/s" => 1.0,
            "kbit/s" => 1e3,
            "Mbit/s" => 1e6,
            "Gbit/s" => 1e9,
            _ => return None,
        };
        let bits = value * factor;
        (Self::RANGE.0..=Self::RANGE.1).contains(&bits).then_some(Self(bits))
    }
}

impl fmt::Display for BitRate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            b if b >= 1e9 => write!(f, "{}Gbit/s", b / 1e9),
            b if b >= 1e6 => write!(f, "{}Mbit/s", b / 1e6),
            b => write!(f, "{}kbit/s", b / 1e3),
        }
    }
}

quantity!(
    BitRate,
    "a rate from 1kbit/s to 1000Gbit/s",
    "\"100Mbit/s\"",
    r"^[0-9][0-9_]*(\.[0-9]+)? ?(k|M|G)?bit/s$"
);

/// A share of all packets: `%`, or `ppm`, parts per million. At most all of them.
#[derive(Debug, Clone, Copy, PartialEq, PartialOrd, Default)]
pub struct Share(f64);

impl Share {
    /// None.
    pub const NONE: Share = Share(0.0);
    /// All.
    pub const ALL: Share = Share(1.0);

    /// The share as a probability, 0 to 1.
    pub fn probability(self) -> f64 {
        self.0
    }

    fn of(value: f64, unit: &str) -> Option<Self> {
        let share = match unit {
            "%" => value / 100.0,
            "ppm" => value / 1e6,
            _ => return None,
        };
        (0.0..=1.0).contains(&share).then_some(Self(share))
    }
}

impl fmt::Display for Share {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0 > 0.0 && self.0 < 1e-4 {
            write!(f, "{}ppm", self.0 * 1e6)
        } else {
            write!(f, "{}%", self.0 * 100.0)
        }
    }
}

quantity!(Share, "a share of at most 100%", "\"0.1%\"", r"^[0-9][0-9_]*(\.[0-9]+)? ?(%|ppm)$");

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn quantities_read_as_written() {
        assert_eq!("250ms".parse(), Ok(Interval::ms(250)));
        assert_eq!("1.5 s".parse(), Ok(Interval::ms(1500)));
        assert_eq!("10k/s".parse(), Ok(Rate(10_000.0)));
        assert_eq!("6/min".parse(), Ok(Rate(0.1)));
        assert_eq!("1KiB".parse(), Ok(Size(1024)));
        assert_eq!("0.5kB".parse(), Ok(Size(500)));
        assert_eq!("100Mbit/s".parse::<BitRate>().map(BitRate::bits), Ok(1e8));
        assert_eq!("1.5 Gbit/s".parse::<BitRate>().map(BitRate::bits), Ok(1.5e9));
        assert_eq!("0.1%".parse::<Share>().map(Share::probability), Ok(0.001));
        assert_eq!("10 ppm".parse::<Share>().map(Share::probability), Ok(1e-5));
        assert_eq!("100%".parse(), Ok(Share::ALL));
    }

    #[test]
    fn a_unit_is_needed_and_must_fit() {
        for text in ["5", "ms", "-1s", "5 parsecs", "", "1e3s", "NaNs", "infs", "99999999h"] {
            assert!(text.parse::<Interval>().is_err(), "{text}");
        }
        for text in ["10", "10Hz", "/s"] {
            assert!(text.parse::<Rate>().is_err(), "{text}");
        }
        for text in ["10", "10b", "0.5B", "10KB"] {
            assert!(text.parse::<Size>().is_err(), "{text}");
        }
        for text in ["100", "100Mbps", "999bit/s", "1000.1Gbit/s", "-1Mbit/s", "Mbit/s", ""] {
            assert!(text.parse::<BitRate>().is_err(), "{text}");
        }
        for text in ["0.1", "100.1%", "-1%", "1000001ppm", "%", "1e-3%"] {
            assert!(text.parse::<Share>().is_err(), "{text}");
        }
        let wrong = "5".parse::<Interval>().expect_err("no unit");
        assert_eq!(wrong.to_string(), "\"5\" is not a length of time; write it like \"250ms\"");
    }

    proptest! {
        #[test]
        fn shares_and_bit_rates_read_back(share in 0.0f64..1.0, bits in 1e3f64..1e12) {
            let back: Share = Share(share).to_string().parse().expect("own form");
            prop_assert!((back.0 - share).abs() <= share * 1e-12);
            let back: BitRate = BitRate(bits).to_string().parse().expect("own form");
            prop_assert!((back.0 - bits).abs() <= bits * 1e-12);
        }

        #[test]
        fn what_is_shown_reads_back(ns in 0u64..31_536_000_000_000_000) {
            let interval = Interval(Duration::from_nanos(ns));
            // six days and more lose single nanoseconds to the f64 on the way in
            let back: Interval = interval.to_string().parse().expect("own form");
            prop_assert!(back.ns().abs_diff(ns) <= ns >> 50);
            let size = Size(ns >> 12);
            prop_assert_eq!(size.to_string().parse(), Ok(size));
        }
    }
}
