use super::{Params, Value, text, with_cursor};
use std::fmt;

/// Side that refreshes a session (RFC 4028 section 4).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Refresher {
    /// The client of the request.
    Uac,
    /// The server of the request.
    Uas,
}

/// Session-Expires, and Min-SE without refresher (RFC 4028 sections 4, 5).
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct SessionExpires {
    /// Interval, seconds.
    pub seconds: u32,
    /// Parameters.
    pub params: Params,
}

impl SessionExpires {
    /// An interval, and who refreshes.
    pub fn new(seconds: u32, refresher: Option<Refresher>) -> Self {
        let mut params = Params::default();
        match refresher {
            None => {}
            Some(Refresher::Uac) => params.set("refresher", Some("uac")),
            Some(Refresher::Uas) => params.set("refresher", Some("uas")),
        }
        Self { seconds, params }
    }

    /// Parameter `refresher`.
    pub fn refresher(&self) -> Option<Refresher> {
        let value = self.params.get("refresher")?;
        [("uac", Refresher::Uac), ("uas", Refresher::Uas)]
            .into_iter()
            .find_map(|(name, refresher)| value.eq_ignore_ascii_case(name).then_some(refresher))
    }
}

impl Value for SessionExpires {
    fn read(input: &str) -> Option<(Self, &str)> {
        with_cursor(input, |read| Some(Self { seconds: read.number(u32::MAX)?, params: Params::read(read)? }))
    }
}

impl fmt::Display for SessionExpires {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.seconds, self.params)
    }
}

/// Retry-After (RFC 3261 section 20.33).
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct RetryAfter {
    /// Seconds.
    pub seconds: u32,
    /// Comment as written between its parentheses.
    pub comment: Option<String>,
    /// Parameters, such as `duration`.
    pub params: Params,
}

impl Value for RetryAfter {
    fn read(input: &str) -> Option<(Self, &str)> {
        with_cursor(input, |read| {
            let seconds = read.number(u32::MAX)?;
            let begin = read.at;
            read.space();
            let comment = match read.peek() {
                Some(b'(') => Some(text(read.comment()?)),
                _ => {
                    read.at = begin;
                    None
                }
            };
            Some(Self { seconds, comment, params: Params::read(read)? })
        })
    }
}

impl fmt::Display for RetryAfter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.seconds)?;
        if let Some(comment) = &self.comment {
            write!(f, " ({comment})")?;
        }
        self.params.fmt(f)
    }
}
