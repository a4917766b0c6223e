use super::{Param, find, params, same_in_any_case, write_params};
use std::fmt;

/// A telephone number (RFC 3966).
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct TelUri {
    /// Number as written, with its visual separators; a global one begins with `+`.
    pub number: String,
    /// Parameters, in order.
    pub params: Vec<(String, Option<String>)>,
}

impl TelUri {
    pub(super) fn parse(text: &str) -> Option<Self> {
        let end = text.find(';').unwrap_or(text.len());
        let (number, rest) = text.split_at(end);
        let params = params(rest, |b| b"[]/:&+$".contains(&b))?;
        let separator = |b: u8| b"-.()".contains(&b);
        let valid = match number.strip_prefix('+') {
            Some(digits) => {
                digits.bytes().all(|b| b.is_ascii_digit() || separator(b))
                    && digits.bytes().any(|b| b.is_ascii_digit())
            }
            // RFC 3966 section 5.1.5: a local number must have a context.
            None => {
                let digit = |b: u8| b.is_ascii_hexdigit() || b == b'*' || b == b'#';
                number.bytes().all(|b| digit(b) || separator(b))
                    && number.bytes().any(digit)
                    && matches!(find(&params, "phone-context"), Some(Some(_)))
            }
        };
        valid.then(|| Self { number: number.to_owned(), params })
    }

    /// Value of a parameter; `Some(None)` where it has none.
    pub fn param(&self, name: &str) -> Option<Option<&str>> {
        find(&self.params, name)
    }

    /// The number without visual separators, in lower case.
    pub fn digits(&self) -> String {
        self.number.chars().filter(|c| !"-.()".contains(*c)).map(|c| c.to_ascii_lowercase()).collect()
    }

    /// RFC 3966 section 4: the same digits and the same parameters in any order.
    pub fn equivalent(&self, other: &Self) -> bool {
        let covers = |a: &[Param], b: &[Param]| {
            a.iter().all(|(name, value)| match (find(b, name), value) {
                (Some(Some(theirs)), Some(ours)) => same_in_any_case(ours, theirs),
                (Some(None), None) => true,
                _ => false,
            })
        };
        self.digits() == other.digits()
            && covers(&self.params, &other.params)
            && covers(&other.params, &self.params)
    }
}

impl fmt::Display for TelUri {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "tel:{}", self.number)?;
        write_params(f, &self.params)
    }
}
