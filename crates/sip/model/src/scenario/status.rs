//! Sets of status codes: `"200"`, `"2xx"`, `"180,183"`, `"300-399"`.

use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use std::fmt;

/// Lowest and highest status code (RFC 3261 section 7.2).
const FIRST: u16 = 100;
const LAST: u16 = 699;

/// Status codes of responses, as ranges.
#[derive(Debug, Clone, PartialEq, Eq, JsonSchema)]
#[schemars(transparent)]
pub struct StatusSet(#[schemars(with = "String")] Vec<(u16, u16)>);

impl StatusSet {
    /// One code alone.
    pub fn one(code: u16) -> Self {
        Self(vec![(code, code)])
    }

    /// These codes, each from the first to the last.
    pub(crate) fn of(ranges: &[(u16, u16)]) -> Self {
        Self(ranges.to_vec())
    }

    /// Whether `code` is one of them.
    #[inline]
    pub fn has(&self, code: u16) -> bool {
        self.0.iter().any(|(low, high)| (*low..=*high).contains(&code))
    }

    /// Whether only provisional codes are in it.
    pub fn is_provisional(&self) -> bool {
        self.0.iter().all(|(_, high)| *high < 200)
    }

    /// Read `"200"`, `"2xx"`, `"180,183"` or `"300-399"`.
    pub fn parse(text: &str) -> Result<Self, String> {
        let wrong = || {
            format!("{text:?} is no set of status codes: write \"200\", \"2xx\", \"180,183\" or \"300-399\"")
        };
        let code = |text: &str| match text.trim().parse::<u16>() {
            Ok(code @ FIRST..=LAST) => Ok(code),
            _ => Err(wrong()),
        };
        let range = |part: &str| {
            let part = part.trim();
            if let Some(class) = part.strip_suffix("xx") {
                return match class.parse::<u16>() {
                    Ok(class @ 1..=6) => Ok((class * 100, class * 100 + 99)),
                    _ => Err(wrong()),
                };
            }
            match part.split_once('-') {
                Some((low, high)) => {
                    let (low, high) = (code(low)?, code(high)?);
                    if low <= high { Ok((low, high)) } else { Err(wrong()) }
                }
                None => code(part).map(|code| (code, code)),
            }
        };
        text.split(',').map(range).collect::<Result<_, _>>().map(Self)
    }
}

impl fmt::Display for StatusSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, (low, high)) in self.0.iter().enumerate() {
            let comma = if i > 0 { "," } else { "" };
            match (low, high) {
                (low, high) if low == high => write!(f, "{comma}{low}")?,
                (low, high) if low % 100 == 0 && *high == low + 99 => write!(f, "{comma}{}xx", low / 100)?,
                (low, high) => write!(f, "{comma}{low}-{high}")?,
            }
        }
        Ok(())
    }
}

impl Serialize for StatusSet {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for StatusSet {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        struct Visitor;
        impl de::Visitor<'_> for Visitor {
            type Value = StatusSet;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("status codes, like 200 or \"180,183\" or \"2xx\"")
            }
            fn visit_u64<E: de::Error>(self, code: u64) -> Result<StatusSet, E> {
                StatusSet::parse(&code.to_string()).map_err(E::custom)
            }
            fn visit_str<E: de::Error>(self, text: &str) -> Result<StatusSet, E> {
                StatusSet::parse(text).map_err(E::custom)
            }
        }
        d.deserialize_any(Visitor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sets_are_read_and_written_alike() {
        for text in ["200", "2xx", "180,183", "300-302", "100,2xx,486-488"] {
            assert_eq!(StatusSet::parse(text).expect(text).to_string(), text);
        }
        for text in ["", "99", "700", "7xx", "200-100", "abc", "180;183", "1x"] {
            assert!(StatusSet::parse(text).is_err(), "{text}");
        }
        let set = StatusSet::parse("180,2xx").expect("good");
        assert!(set.has(180) && set.has(299) && !set.has(183) && !set.has(300));
        assert!(StatusSet::parse("1xx").expect("good").is_provisional() && !set.is_provisional());
    }
}
