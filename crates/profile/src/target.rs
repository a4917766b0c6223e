//! Where load goes: a URL whose scheme names the protocol.

use crate::text::HIDDEN;
use base64::Engine as _;
use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use std::fmt;
use std::net::Ipv6Addr;
use std::str::FromStr;

/// A parsed target URL: `scheme://[user[:password]@]host[:port][/path]`. Kept as written besides.
#[derive(Debug, Clone, PartialEq, Eq, JsonSchema)]
#[schemars(with = "String")]
pub struct Target {
    /// How to speak, in lower case; which schemes there are is for the group's model to say.
    pub scheme: String,
    /// Who asks, where the URL says so.
    pub user: Option<UserInfo>,
    /// Name or address, in lower case; IPv6 without its brackets.
    pub host: String,
    /// The interface that a link-local address is on (RFC 6874: `[fe80::1%25eth0]`).
    pub zone: Option<String>,
    /// Port, if written.
    pub port: Option<u16>,
    /// What is behind host and port, if anything: a path with its leading slash, a query, a fragment.
    pub path: Option<String>,
}

/// The credentials of a URL (RFC 3986 section 3.2.1), without their percent-encoding. They are told to nobody.
#[derive(Clone, PartialEq, Eq)]
pub struct UserInfo {
    /// Before the colon; may be empty.
    pub name: String,
    /// Behind it.
    pub password: Option<String>,
    /// As written.
    raw: String,
}

impl UserInfo {
    fn read(raw: &str, url: &str) -> Result<Self, String> {
        let wrong = |what: &str| format!("the credentials in {:?} {what}", without_user(url));
        if raw.contains('@') {
            return Err(wrong("have an @ in them; write it as %40"));
        }
        if raw == HIDDEN {
            return Err(wrong("were not kept with the run; write them there again"));
        }
        let part = |text: &str| {
            let text = decoded(text).ok_or_else(|| {
                wrong("are no UTF-8, or have a % without two hexadecimal digits; write % as %25")
            })?;
            match text.chars().any(char::is_control) {
                true => Err(wrong("have a control character; leave it out")),
                false => Ok(text),
            }
        };
        let (name, password) = match raw.split_once(':') {
            Some((name, password)) => (name, Some(password)),
            None => (raw, None),
        };
        let (name, password) = (part(name)?, password.map(part).transpose()?);
        if name.is_empty() && password.as_deref().is_none_or(str::is_empty) {
            return Err(wrong("are empty; leave out the @"));
        }
        Ok(Self { name, password, raw: raw.to_owned() })
    }

    /// Texts that tell them: the password, or the name where there is none (as of a token), and all together.
    pub fn secrets(&self) -> impl Iterator<Item = String> + '_ {
        let secret = self.password.as_deref().unwrap_or(&self.name);
        let raw = self.raw.split_once(':').map_or(self.raw.as_str(), |(_, password)| password);
        let both = format!("{}:{}", self.name, self.password.as_deref().unwrap_or(""));
        let basic = base64::engine::general_purpose::STANDARD.encode(&both);
        [secret.to_owned(), raw.to_owned(), self.raw.clone(), both, basic].into_iter()
    }
}

impl fmt::Debug for UserInfo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(HIDDEN)
    }
}

/// A URL, or what was meant for one, without its credentials. What they are is not clear where they have characters that a
/// URL would write with percent signs: then all that may be one is left out.
pub fn without_user(text: &str) -> String {
    let start = text.find("://").map_or(0, |at| at + 3);
    let rest = &text[start..];
    let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    let authority = &rest[..end];
    let at = match authority.rfind('@') {
        Some(at) => Some(at),
        // what looks like a port and is none may be the beginning of a password
        None if start == 0 || authority.rsplit_once(':').is_some_and(|(host, port)| !is_port(host, port)) => {
            rest.rfind('@')
        }
        None => None,
    };
    match at {
        Some(at) => format!("{}{HIDDEN}@{}", &text[..start], &rest[at + 1..]),
        None => text.to_owned(),
    }
}

/// Whether `text` behind the last colon is a port, or part of an IPv6 address.
fn is_port(host: &str, text: &str) -> bool {
    host.contains('[') || text.bytes().all(|b| b.is_ascii_digit())
}

/// The text that percent signs stand in (RFC 3986 section 2.1).
fn decoded(text: &str) -> Option<String> {
    let mut bytes = text.bytes();
    let mut out = Vec::with_capacity(text.len());
    while let Some(byte) = bytes.next() {
        if byte != b'%' {
            out.push(byte);
            continue;
        }
        let mut digit = || char::from(bytes.next()?).to_digit(16);
        out.push((digit()? * 16 + digit()?) as u8);
    }
    String::from_utf8(out).ok()
}

impl FromStr for Target {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let url = without_user(text);
        let (scheme, rest) = text
            .split_once("://")
            .ok_or_else(|| format!("{url:?} is not a target URL; write it like \"mqtt://10.0.0.2:1883\""))?;
        // RFC 3986 section 3.1
        let letter = |b: u8| b.is_ascii_alphanumeric() || b"+-.".contains(&b);
        if !scheme.bytes().all(letter) || !scheme.starts_with(|c: char| c.is_ascii_alphabetic()) {
            return Err(format!(
                "{url:?} does not begin with a scheme; write it like \"mqtt://10.0.0.2:1883\""
            ));
        }
        let (authority, path) = match rest.find(['/', '?', '#']) {
            Some(at) => (&rest[..at], Some(rest[at..].to_owned())),
            None => (rest, None),
        };
        let (user, authority) = match authority.rsplit_once('@') {
            Some((user, authority)) => (Some(UserInfo::read(user, text)?), authority),
            None => (None, authority),
        };
        let unread = "the credentials have a /, ? or # in them; write them as %2F, %3F and %23";
        let mut zone = None;
        let (host, port) = if let Some(v6) = authority.strip_prefix('[') {
            let (host, after) =
                v6.split_once(']').ok_or_else(|| format!("{url:?} opens a [ that it does not close"))?;
            // RFC 6874 §2: the percent sign is written %25; people also write it as ping and ip do
            let (host, name) = match host.split_once("%25").or_else(|| host.split_once('%')) {
                Some((host, name)) => (host, Some(name)),
                None => (host, None),
            };
            zone = name.map(|name| zone_of(&url, host, name)).transpose()?;
            if host.parse::<Ipv6Addr>().is_err() {
                return Err(format!(
                    "{url:?} has no IPv6 address in its brackets; write it like [2001:db8::1]"
                ));
            }
            match after.strip_prefix(':') {
                None if !after.is_empty() => {
                    return Err(format!("{url:?} has something behind its ]; write a port as [{host}]:80"));
                }
                port => (host, port),
            }
        } else {
            match authority.split_once(':') {
                Some((_, port)) if port.contains(':') => {
                    return Err(match authority.parse::<Ipv6Addr>() {
                        Ok(_) => format!("{url:?} has an IPv6 address without brackets; write [{authority}]"),
                        Err(_) => format!(
                            "{url:?} has too many colons; write HOST:PORT, an IPv6 address in brackets"
                        ),
                    });
                }
                Some((host, port)) => (host, Some(port)),
                None => (authority, None),
            }
        };
        let port = port.filter(|port| !port.is_empty()).map(|p| {
            let number = p.parse().ok().filter(|n: &u16| *n != 0);
            number.ok_or_else(|| match path.as_deref().is_some_and(|path| path.contains('@')) {
                true => format!("{url:?} has no port that can be used, or {unread}"),
                false => format!("{p:?} in {url:?} is not a port; use 1 to 65535"),
            })
        });
        let port = port.transpose()?;
        if !host.is_ascii() {
            return Err(format!("{url:?} has a host that is not ASCII; write it as DNS does, xn--…"));
        }
        let fine = |b: u8| b.is_ascii_alphanumeric() || b"-._~:".contains(&b);
        if host.is_empty() || !host.bytes().all(fine) {
            return Err(format!("{url:?} names no host that can be used"));
        }
        let (scheme, host) = (scheme.to_ascii_lowercase(), host.to_ascii_lowercase());
        Ok(Self { scheme, user, host, zone, port, path })
    }
}

fn zone_of(url: &str, host: &str, zone: &str) -> Result<String, String> {
    let near = host.parse().is_ok_and(|address: Ipv6Addr| address.is_unicast_link_local());
    if !near {
        return Err(format!(
            "{url:?} names an interface, and {host} is no link-local address; leave %{zone} out"
        ));
    }
    let fine = |b: u8| b.is_ascii_alphanumeric() || b"._-~".contains(&b);
    if zone.is_empty() || !zone.bytes().all(fine) {
        return Err(format!("{url:?} names no interface; write it like [fe80::1%25eth0]"));
    }
    Ok(zone.to_owned())
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}://", self.scheme)?;
        if self.user.is_some() {
            write!(f, "{HIDDEN}@")?;
        }
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
            ("http://a:b:c", "too many colons"),
            ("http://[::1]x", "behind its ]"),
            ("http://[10.0.0.1]", "no IPv6 address"),
            ("1http://h", "a scheme"),
            ("http://h%41", "no host"),
            ("http://bücher.example", "xn--"),
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

    #[test]
    fn schemes_and_hosts_have_no_case() {
        let t: Target = "HTTP://LocalHost:8080/Path?Q=1#Here".parse().expect("RFC 3986 section 6.2.2.1");
        assert_eq!(t.to_string(), "http://localhost:8080/Path?Q=1#Here");
        let path = |text: &str| text.parse::<Target>().expect(text).path;
        assert_eq!(path("http://h?q=1").as_deref(), Some("?q=1"));
        assert_eq!(path("http://h#x").as_deref(), Some("#x"));
        assert_eq!(path("http://h"), None);
        assert_eq!("http://h:/x".parse::<Target>().expect("section 3.2.3").port, None);
    }

    #[test]
    fn credentials_are_read_and_not_shown() {
        let user = |text: &str| {
            let target = text.parse::<Target>().expect(text);
            assert!(!format!("{target:?}{target}").contains("Qz"), "{target:?} {target}");
            target.user.map(|user| (user.name, user.password))
        };
        let some = |name: &str, password: Option<&str>| Some((name.to_owned(), password.map(str::to_owned)));
        assert_eq!(user("mqtt://alice:QzJj@h"), some("alice", Some("QzJj")));
        assert_eq!(user("mqtt://al%3Aice:Qz%40e%2F{c}:t@h:1/x"), some("al:ice", Some("Qz@e/{c}:t")));
        assert_eq!(user("http://QzJj@h"), some("QzJj", None));
        assert_eq!(user("http://:QzJj@h"), some("", Some("QzJj")));
        assert_eq!(user("http://QzJj:@h"), some("QzJj", Some("")));
        assert_eq!("http://a:b@h/@c".parse::<Target>().expect("fine").to_string(), "http://***@h/@c");
    }

    #[test]
    fn no_error_tells_credentials() {
        for text in [
            "mqtt://alice:QzJj@",
            "mqtt://alice:QzJj@h:99999",
            "mqtt://alice:QzJj@::1",
            "mqtt://alice:QzJj@a:b:c",
            "mqtt://alice:QzJj@[::1",
            "mqtt://alice:QzJj@[x]",
            "mqtt://alice:QzJj@[fe80::1%25]",
            "mqtt://alice:QzJj@h h",
            "mqtt://alice:Qz@Jj@h",
            "mqtt://alice:Qz/Jj@h",
            "mqtt://alice:Qz?Jj@h",
            "mqtt://alice:Qz#Jj@h",
            "mqtt://alice:Qz%Jj@h",
            "mqtt://alice:Qz%ffJj@h",
            "mqtt://alice:Qz%0aJj@h",
            "mqtt:/alice:QzJj@h",
            "alice:QzJj@h",
            "1x://alice:QzJj@h",
            "mqtt://***@h",
            "mqtt://@h",
        ] {
            let error = text.parse::<Target>().expect_err(text);
            assert!(
                !error.contains("Qz") && !error.contains("Jj") && !error.contains("alice"),
                "{text}: {error}"
            );
        }
        assert_eq!(without_user("http://a:b@h:1/x@y"), "http://***@h:1/x@y");
        assert_eq!(without_user("http://h:1/x@y"), "http://h:1/x@y");
        assert_eq!(without_user("http://[::1]/x@y"), "http://[::1]/x@y");
        assert_eq!(without_user("http://a:b/c@h"), "http://***@h");
    }
}
