use super::{Params, Value, is_token, text, with_cursor};
use std::fmt;

/// Via (RFC 3261 section 20.42).
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Via {
    /// Name and version of the protocol, such as `SIP/2.0`.
    pub protocol: String,
    /// Transport, such as `UDP`.
    pub transport: String,
    /// Host of sent-by; an IPv6 address within its brackets.
    pub host: String,
    /// Port of sent-by.
    pub port: Option<u16>,
    /// Parameters.
    pub params: Params,
}

/// Prefix of every branch since RFC 3261 (section 8.1.1.7).
pub const MAGIC_COOKIE: &str = "z9hG4bK";

impl Via {
    /// A Via with a branch.
    pub fn new(transport: &str, host: &str, port: Option<u16>, branch: &str) -> Self {
        let mut params = Params::default();
        params.set("branch", Some(branch));
        Self { protocol: "SIP/2.0".into(), transport: transport.into(), host: host.into(), port, params }
    }

    /// Parameter `branch`.
    pub fn branch(&self) -> Option<&str> {
        self.params.get("branch")
    }

    /// Whether the branch is one of RFC 3261: the cookie, and more.
    pub fn unique_branch(&self) -> bool {
        self.branch().is_some_and(|branch| {
            branch.len() > MAGIC_COOKIE.len()
                && branch.as_bytes()[..MAGIC_COOKIE.len()].eq_ignore_ascii_case(MAGIC_COOKIE.as_bytes())
        })
    }

    /// Parameter `rport` (RFC 3581): there without value in a request, with one in a response.
    pub fn rport(&self) -> Option<Option<u16>> {
        self.params.param("rport").map(|param| param.value.as_deref().and_then(|port| port.parse().ok()))
    }

    /// Whether branch, received and rport are there at most once and hold what they may.
    pub fn valid(&self) -> bool {
        let bare = |name: &str, fine: fn(&str) -> bool| {
            let value = |param: &super::Param| !param.quoted && param.value.as_deref().is_some_and(fine);
            self.params.count(name) <= 1 && self.params.param(name).is_none_or(value)
        };
        let port = |text: &str| !text.starts_with('+') && text.parse::<u16>().is_ok();
        bare("branch", is_token)
            && bare("received", |_| true)
            && (self.params.param("rport").is_some_and(|param| param.value.is_none())
                && self.params.count("rport") == 1
                || bare("rport", port))
    }
}

impl Value for Via {
    fn read(input: &str) -> Option<(Self, &str)> {
        let (via, rest) = with_cursor(input, |read| {
            let name = read.token()?;
            read.separator(b'/').then_some(())?;
            let version = read.token()?;
            read.separator(b'/').then_some(())?;
            let transport = text(read.token()?);
            read.space().then_some(())?;
            let host = text(read.host()?);
            let port = read.port(true)?;
            Some(Self {
                protocol: text(&[name, b"/", version].concat()),
                transport,
                host,
                port,
                params: Params::read(read)?,
            })
        })?;
        via.valid().then_some((via, rest))
    }
}

impl fmt::Display for Via {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{} {}", self.protocol, self.transport, self.host)?;
        if let Some(port) = self.port {
            write!(f, ":{port}")?;
        }
        self.params.fmt(f)
    }
}
