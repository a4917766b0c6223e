//! Where load goes: a URL whose scheme names the protocol.

use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use std::fmt;
use std::net::Ipv6Addr;
use std::str::FromStr;

/// A parsed target URL: `scheme://host[:port][/path]`. Kept as written besides.
#[derive(Debug, Clone, PartialEq, Eq, JsonSchema)]
#[schemars(with = "String")]
pub struct Target {
    /// How to speak; which schemes there are is for the group's model to say.
    pub scheme: String,
    /// Name or address; IPv6 without its brackets.
    pub host: String,
    /// The interface that a link-local address is on (RFC 6874: `[fe80::1%25eth0]`).
    pub zone: Option<String>,
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
        let mut zone = None;
        let (host, port) = if let Some(v6) = authority.strip_prefix('[') {
            let (host, after) =
                v6.split_once(']').ok_or_else(|| format!("{text:?} opens a [ that it does not close"))?;
            // RFC 6874 §2: the percent sign is written %25; people also write it as ping and ip do
            let (host, name) = match host.split_once("%25").or_else(|| host.split_once('%')) {
                Some((host, name)) => (host, Some(name)),
                None => (host, None),
            };
            zone = name.map(|name| zone_of(text, host, name)).transpose()?;
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
        Ok(Self { scheme: scheme.to_owned(), host: host.to_owned(), zone, port, path })
    }
}

fn zone_of(text: &str, host: &str, zone: &str) -> Result<String, String> {
    let near = host.parse().is_ok_and(|address: Ipv6Addr| address.is_unicast_link_local());
    if !near {
        return Err(format!(
            "{text:?} names an interface, and {host} is no link-local address; leave %{zone} out"
        ));
    }
    let fine = |b: u8| b.is_ascii_alphanumeric() || b"._-~".contains(&b);
    if zone.is_empty() || !zone.bytes().all(fine) {
        return Err(format!("{text:?} names no interface; write it like [fe80::1%25eth0]"));
    }
    Ok(zone.to_owned())
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}://", self.scheme)?;
        if self.host.contains(':') {
            match &self.zone {
                Some(zone) => write!(f, "[{}%25{zone}]", self.host)?,
                None => write!(f, "[{}]", self.host)?,
            }
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
        for text in ["ping://[fe80::1%25eth0]", "http://[fe80::1%25br-0.7]:8080/x"] {
            assert_eq!(text.parse::<Target>().expect(text).to_string(), text, "RFC 6874");
        }
        let t: Target = "udp://[fe80::1%eth0]:9".parse().expect("as ping has it");
        assert_eq!((t.host.as_str(), t.zone.as_deref()), ("fe80::1", Some("eth0")));
        assert_eq!(t.to_string(), "udp://[fe80::1%25eth0]:9");
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
            ("ping://[fe80::1%25]", "names no interface"),
            ("ping://[fe80::1%25a/b]", "does not close"),
            ("ping://[fe80::1%25a%20b]", "names no interface"),
            ("ping://[2001:db8::1%25eth0]", "no link-local address"),
        ] {
            let error = text.parse::<Target>().expect_err(text);
            assert!(error.contains(why), "{text}: {error}");
        }
    }
}
