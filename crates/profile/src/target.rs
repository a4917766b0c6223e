//! Where load goes: a URL whose scheme names the protocol.

use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use std::fmt;
use std::str::FromStr;

/// A parsed target URL: `scheme://host[:port][/path]`. Kept as written besides.
#[derive(Debug, Clone, PartialEq, Eq, JsonSchema)]
#[schemars(with = "String")]
pub struct Target {
    /// How to speak; which schemes there are is for the group's model to say.
    pub scheme: String,
    /// Name or address; IPv6 without its brackets.
    pub host: String,
    /// Port, if written.
    pub port: Option<u16>,
    /// Path with its leading slash, if written.
    pub path: Option<String>,
}

impl FromStr for Target {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (scheme, rest) = text
            .split_once("://")
            .ok_or_else(|| format!("{text:?} is not a target URL; write it like \"mqtt://10.0.0.2:1883\""))?;
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
                    return Err(format!(
                        "{text:?} has an IPv6 address without brackets; write [{authority}]"
                    ));
                }
                Some((host, port)) => (host, Some(port)),
                None => (authority, None),
            }
        };
        if host.is_empty() || host.contains(|c: char| c.is_whitespace() || c == '@') {
            return Err(format!("{text:?} names no host that can be used"));
        }
        let port = port
            .map(|p| {
                let number = p.parse().ok().filter(|n: &u16| *n != 0);
                number.ok_or_else(|| format!("{p:?} in {text:?} is not a port; use 1 to 65535"))
            })
            .transpose()?;
        Ok(Self { scheme: scheme.to_owned(), host: host.to_owned(), port, path })
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}://", self.scheme)?;
        if self.host.contains(':') {
            write!(f, "[{}]", self.host)?;
        } else {
            f.write_str(&self.host)?;
        }
        if let Some(port) = self.port {
            write!(f, ":{port}")?;
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
        assert_eq!((t.port, t.path.as_deref()), (None, Some("/x")));
    }

    #[test]
    fn bad_targets_say_why() {
        for (text, why) in [
            ("10.0.0.2", "not a target URL"),
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
