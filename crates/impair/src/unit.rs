//! Quantities that only impairments have: bits per second, and shares of all packets.

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;

/// A quantity that is not one.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is not {what}; write it like {example}")]
pub struct UnitError {
    text: String,
    what: &'static str,
    example: &'static str,
}

/// Number and unit of `text`; digits, a point and `_` only, as everywhere in a profile.
fn split(text: &str) -> Option<(f64, &str)> {
    let text = text.trim();
    let end = text.find(|c: char| !(c.is_ascii_digit() || c == '.' || c == '_')).unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    let value: f64 = number.replace('_', "").parse().ok()?;
    value.is_finite().then_some((value, unit.trim()))
}

macro_rules! quantity {
    ($name:ident, $what:literal, $example:literal, $pattern:literal) => {
        impl FromStr for $name {
            type Err = UnitError;
            fn from_str(text: &str) -> Result<Self, UnitError> {
                let read = split(text).and_then(|(value, unit)| Self::of(value, unit));
                read.ok_or_else(|| UnitError { text: text.to_owned(), what: $what, example: $example })
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
        assert_eq!("100Mbit/s".parse::<BitRate>().map(BitRate::bits), Ok(1e8));
        assert_eq!("1.5 Gbit/s".parse::<BitRate>().map(BitRate::bits), Ok(1.5e9));
        assert_eq!("0.1%".parse::<Share>().map(Share::probability), Ok(0.001));
        assert_eq!("10 ppm".parse::<Share>().map(Share::probability), Ok(1e-5));
        assert_eq!("100%".parse(), Ok(Share::ALL));
    }

    #[test]
    fn a_unit_is_needed_and_must_fit() {
        for text in ["100", "100Mbps", "999bit/s", "1000.1Gbit/s", "-1Mbit/s", "Mbit/s", ""] {
            assert!(text.parse::<BitRate>().is_err(), "{text}");
        }
        for text in ["0.1", "100.1%", "-1%", "1000001ppm", "%", "1e-3%"] {
            assert!(text.parse::<Share>().is_err(), "{text}");
        }
        let wrong = "5".parse::<Share>().expect_err("no unit");
        assert_eq!(wrong.to_string(), "\"5\" is not a share of at most 100%; write it like \"0.1%\"");
        assert!(serde_json::from_str::<Share>("0.1").is_err());
    }

    proptest! {
        #[test]
        fn what_is_shown_reads_back(share in 0.0f64..1.0, bits in 1e3f64..1e12) {
            let back: Share = Share(share).to_string().parse().expect("own form");
            prop_assert!((back.0 - share).abs() <= share * 1e-12);
            let back: BitRate = BitRate(bits).to_string().parse().expect("own form");
            prop_assert!((back.0 - bits).abs() <= bits * 1e-12);
        }
    }
}
