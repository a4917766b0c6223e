use super::{Param, escaped, find, params, same, same_in_any_case, write_params};
use crate::message::lex::Cursor;
use std::fmt;

/// A SIP or SIPS URI (RFC 3261 section 19.1.1). Parts are as written, escapes included.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct SipUri {
    /// Scheme `sips`.
    pub secure: bool,
    /// User.
    pub user: Option<String>,
    /// Password.
    pub password: Option<String>,
    /// Host name or address; an IPv6 address within its brackets.
    pub host: String,
    /// Port.
    pub port: Option<u16>,
    /// Parameters, in order.
    pub params: Vec<(String, Option<String>)>,
    /// Header fields, in order.
    pub headers: Vec<(String, String)>,
}

impl SipUri {
    /// A `sip:` URI of a user at a host.
    pub fn new(user: &str, host: &str) -> Self {
        Self { user: Some(user.to_owned()), host: host.to_owned(), ..Self::default() }
    }

    pub(super) fn parse(secure: bool, text: &str) -> Option<Self> {
        let (info, rest) = match text.split_once('@') {
            None => (None, text),
            Some((info, rest)) => (Some(info), rest),
        };
        let (user, password) =
            match info.map(|info| info.split_once(':').map_or((info, None), |(u, p)| (u, Some(p)))) {
                None => (None, None),
                Some((user, password)) => (Some(user), password),
            };
        let user_fine =
            user.is_none_or(|user| !user.is_empty() && escaped(user, |b| b"&=+$,;?/".contains(&b)));
        let password_fine = password.is_none_or(|text| escaped(text, |b| b"&=+$,".contains(&b)));
        if !user_fine || !password_fine {
            return None;
        }
        let mut read = Cursor::new(rest.as_bytes());
        let host = read.host()?;
        let port = read.port(false)?;
        let rest = rest.get(read.at..)?;
        let (tail, query) = rest.split_once('?').map_or((rest, None), |(tail, query)| (tail, Some(query)));
        if !tail.is_empty() && !tail.starts_with(';') {
            return None;
        }
        Some(Self {
            secure,
            user: user.map(str::to_owned),
            password: password.map(str::to_owned),
            host: std::str::from_utf8(host).ok()?.to_owned(),
            port,
            params: params(tail, |b| b"[]/:&+$".contains(&b))?,
            headers: query.map_or(Some(Vec::new()), headers)?,
        })
    }

    /// Value of a parameter; `Some(None)` where it has none.
    pub fn param(&self, name: &str) -> Option<Option<&str>> {
        find(&self.params, name)
    }

    /// Whether the URI has parameter `lr`: the proxy routes loosely (RFC 3261 section 16.12).
    pub fn loose_router(&self) -> bool {
        self.param("lr").is_some()
    }

    /// RFC 3261 section 19.1.4.
    pub fn equivalent(&self, other: &Self) -> bool {
        let optional = |a: &Option<String>, b: &Option<String>| match (a, b) {
            (Some(a), Some(b)) => same(a, b),
            (None, None) => true,
            _ => false,
        };
        self.secure == other.secure
            && optional(&self.user, &other.user)
            && optional(&self.password, &other.password)
            && self.host.eq_ignore_ascii_case(&other.host)
            && self.port == other.port
            && same_params(&self.params, &other.params)
            && same_params(&other.params, &self.params)
            && same_headers(&self.headers, &other.headers)
    }
}

/// Parameters of both match, and `b` has those that may not be missing.
fn same_params(a: &[Param], b: &[Param]) -> bool {
    const MANDATORY: [&str; 5] = ["user", "ttl", "method", "maddr", "transport"];
    a.iter().all(|(name, value)| match (find(b, name), value) {
        (Some(Some(theirs)), Some(ours)) => same_in_any_case(ours, theirs),
        (Some(None), None) => true,
        (Some(_), _) => false,
        (None, _) => !MANDATORY.iter().any(|mandatory| mandatory.eq_ignore_ascii_case(name)),
    })
}

/// The same header fields, in any order.
fn same_headers(a: &[(String, String)], b: &[(String, String)]) -> bool {
    let mut left: Vec<_> = b.iter().collect();
    a.len() == b.len()
        && a.iter().all(|(name, value)| {
            let at = left.iter().position(|(n, v)| same_in_any_case(n, name) && same(v, value));
            at.map(|at| left.swap_remove(at)).is_some()
        })
}

fn headers(text: &str) -> Option<Vec<(String, String)>> {
    let valid = |b| b"[]/?:+$".contains(&b);
    let mut found = Vec::new();
    for one in text.split('&') {
        let (name, value) = one.split_once('=')?;
        if name.is_empty()
            || !escaped(name, valid)
            || !escaped(value, valid)
            || found.len() >= super::MAX_PARAMS
        {
            return None;
        }
        found.push((name.to_owned(), value.to_owned()));
    }
    Some(found)
}

impl fmt::Display for SipUri {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.secure { "sips:" } else { "sip:" })?;
        if let Some(user) = &self.user {
            f.write_str(user)?;
            if let Some(password) = &self.password {
                write!(f, ":{password}")?;
            }
            f.write_str("@")?;
        }
        f.write_str(&self.host)?;
        if let Some(port) = self.port {
            write!(f, ":{port}")?;
        }
        write_params(f, &self.params)?;
        self.headers.iter().enumerate().try_for_each(|(at, (name, value))| {
            write!(f, "{}{name}={value}", if at == 0 { '?' } else { '&' })
        })
    }
}
