//! Where load goes: a URL whose scheme names the protocol.

use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use std::fmt;
use std::str::FromStr;

/// How a target is spoken to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scheme {
    /// MQTT over TCP.
    Mqtt,
    /// MQTT over TLS.
    Mqtts,
    /// HTTP over TCP.
    Http,
    /// HTTP over TLS.
    Https,
    /// ICMP echo.
    Ping,
    /// UDP.
    Udp,
    /// TCP.
    Tcp,
    /// TLS over TCP.
    Tls,
}

impl Scheme {
    /// Every scheme.
    pub const ALL: [Scheme; 8] = [
        Scheme::Mqtt,
        Scheme::Mqtts,
        Scheme::Http,
        Scheme::Https,
        Scheme::Ping,
        Scheme::Udp,
        Scheme::Tcp,
        Scheme::Tls,
    ];

    /// As written before `://`.
    pub fn name(self) -> &'static str {
        match self {
            Scheme::Mqtt => "mqtt",
            Scheme::Mqtts => "mqtts",
            Scheme::Http => "http",
            Scheme::Https => "https",
            Scheme::Ping => "ping",
            Scheme::Udp => "udp",
            Scheme::Tcp => "tcp",
            Scheme::Tls => "tls",
        }
    }

    /// The registered port, for protocols that have one.
    pub fn default_port(self) -> Option<u16> {
        match self {
            Scheme::Mqtt => Some(1883),
            Scheme::Mqtts => Some(8883),
            Scheme::Http => Some(80),
            Scheme::Https => Some(443),
            Scheme::Ping => Some(0),
            Scheme::Udp | Scheme::Tcp | Scheme::Tls => None,
        }
    }

    /// Whether the bytes go through TLS.
    pub fn is_tls(self) -> bool {
        matches!(self, Scheme::Mqtts | Scheme::Https | Scheme::Tls)
    }
}

/// A parsed target URL: `scheme://host[:port][/path]`. Kept as written besides.
#[derive(Debug, Clone, PartialEq, Eq, JsonSchema)]
#[schemars(with = "String")]
pub struct Target {
    /// How to speak.
    pub scheme: Scheme,
    /// Name or address; IPv6 without its brackets.
    pub host: String,
    /// Port; 0 for protocols without ports.
    pub port: u16,
    /// Path with its leading slash, if written.
    pub path: Option<String>,
}

impl FromStr for Target {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let known = || Scheme::ALL.map(Scheme::name).join(", ");
        let (scheme, rest) = text.split_once("://").ok_or_else(|| {
            format!("{text:?} is not a target URL; write it like \"mqtt://10.0.0.2:1883\"")
        })?;
        let scheme = Scheme::ALL
            .into_iter()
            .find(|s| s.name() == scheme)
            .ok_or_else(|| format!("the scheme {scheme:?} is not known; use one of {}", known()))?;
        let (authority, path) = match rest.find('/') {
            Some(at) => (&rest[..at], Some(rest[at..].to_owned())),
            None => (rest, None),
        };
        let (host, port) = if let Some(v6) = authority.strip_prefix('[') {
            let (host, after) =
                v6.split_once(']').ok_or_else(|| format!("{text:?} opens a [ that it does not close"))?;
            (host, after.strip_prefix(':'))
        } else {
            match authority.split_once(':') {
                Some((_, port)) if port.contains(':') => {
                    return Err(format!("{text:?} has an IPv6 address without brackets; write [{authority}]"));
                }
                Some((host, port)) => (host, Some(port)),
                None => (authority, None),
            }
        };
        if host.is_empty() || host.contains(|c: char| c.is_whitespace() || c == '@') {
            return Err(format!("{text:?} names no host that can be used"));
        }
        let port = match port {
            Some(p) => p
                .parse()
                .ok()
                .filter(|p| *p != 0)
                .ok_or_else(|| format!("{p:?} in {text:?} is not a port; use 1 to 65535"))?,
            None => scheme.default_port().ok_or_else(|| {
                format!("{text:?} needs a port; write {}://{authority}:PORT", scheme.name())
            })?,
        };
        Ok(Self { scheme, host: host.to_owned(), port, path })
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}://", self.scheme.name())?;
        if self.host.contains(':') {
            write!(f, "[{}]", self.host)?;
        } else {
            f.write_str(&self.host)?;
        }
        if self.port != 0 {
            write!(f, ":{}", self.port)?;
        }
        f.write_str(self.path.as_deref().unwrap_or(""))
    }
}

impl<'de> Deserialize<'de> for Target {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        String::deserialize(d)?.parse().map_err(de::Error::custom)
    }
}

impl Serialize for Target {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.collect_str(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_read_and_show_alike() {
        for text in ["mqtt://10.0.0.2:1883", "http://[::1]:8080/a?b=c", "ping://10.0.0.2", "udp://h:9"] {
            assert_eq!(text.parse::<Target>().expect(text).to_string(), text);
        }
        let t: Target = "https://example.test/x".parse().expect("url");
        assert_eq!((t.port, t.path.as_deref()), (443, Some("/x")));
    }

    #[test]
    fn bad_targets_say_why() {
        for (text, why) in [
            ("10.0.0.2", "not a target URL"),
            ("ftp://h", "scheme"),
            ("udp://h", "needs a port"),
            ("http://h:0", "not a port"),
            ("http://h:99999", "not a port"),
            ("http://::1", "without brackets"),
            ("http://[::1", "does not close"),
            ("http://", "no host"),
        ] {
            let error = text.parse::<Target>().expect_err(text);
            assert!(error.contains(why), "{text}: {error}");
        }
    }
}
