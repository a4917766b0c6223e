//! Which sessions a request means, as its parameters say it.

use nat_elements::control::{SessionFilter, protocol_number};
use serde::Deserialize;
use std::net::Ipv4Addr;
use system::rpc::Error;

/// The parameters that choose sessions.
#[derive(Debug, Default, Deserialize)]
pub struct Filter {
    #[serde(default)]
    subscriber: Option<String>,
    #[serde(default)]
    outside: Option<String>,
    #[serde(default)]
    remote: Option<String>,
    #[serde(default)]
    protocol: Option<String>,
}

impl Filter {
    /// As trackers understand it.
    pub fn read(&self) -> Result<SessionFilter, Error> {
        let (subscriber, realm) = parts("params.subscriber", self.subscriber.as_deref(), '@', realm)?;
        let (outside, outside_port) = parts("params.outside", self.outside.as_deref(), ':', port)?;
        let (remote, remote_port) = parts("params.remote", self.remote.as_deref(), ':', port)?;
        let protocol = self.protocol.as_deref().map(number).transpose()?;
        Ok(SessionFilter { subscriber, realm, outside, outside_port, remote, remote_port, protocol })
    }
}

/// An address, and what may follow it after a sign.
fn parts<T>(
    at: &str,
    text: Option<&str>,
    sign: char,
    read: impl Fn(&str, &str) -> Result<T, Error>,
) -> Result<(Option<Ipv4Addr>, Option<T>), Error> {
    let Some(text) = text else { return Ok((None, None)) };
    let (ip, more) = text.split_once(sign).map_or((text, None), |(ip, more)| (ip, Some(more)));
    Ok((Some(address(at, ip)?), more.map(|more| read(at, more)).transpose()?))
}

/// An IPv4 address.
pub fn address(at: &str, text: &str) -> Result<Ipv4Addr, Error> {
    text.parse().map_err(|_| Error::params(at, format!("{text:?} is no IPv4 address")))
}

fn port(at: &str, text: &str) -> Result<u16, Error> {
    text.parse().map_err(|_| Error::params(at, format!("{text:?} is no port, as in 203.0.113.1:1024")))
}

/// VLAN ids, the outer tag's first; 0 is no tag.
fn realm(at: &str, text: &str) -> Result<u32, Error> {
    let read = || {
        let (outer, inner) = text.split_once('.').map_or((text, None), |(outer, inner)| (outer, Some(inner)));
        let outer: u16 = outer.parse().ok().filter(|id| *id < 4095)?;
        let inner: Option<u16> =
            inner.map(|inner| inner.parse().ok()).unwrap_or(Some(0)).filter(|id| *id < 4095);
        Some(u32::from(outer) << 12 | u32::from(inner?))
    };
    read().ok_or_else(|| {
        Error::params(at, format!("{text:?} is no VLAN, as in 10.0.0.7@100, or with two tags 10.0.0.7@100.7"))
    })
}

fn number(text: &str) -> Result<u8, Error> {
    protocol_number(text)
        .ok_or_else(|| Error::params("params.protocol", format!("{text:?} is none of udp, tcp, icmp")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn read(params: Value) -> Result<SessionFilter, Error> {
        serde_json::from_value::<Filter>(params).unwrap().read()
    }

    #[test]
    fn what_is_not_said_may_be_anything() {
        assert_eq!(read(json!({})), Ok(SessionFilter::default()));
        let outside = Some(Ipv4Addr::new(203, 0, 113, 1));
        assert_eq!(
            read(json!({"outside": "203.0.113.1"})),
            Ok(SessionFilter { outside, ..SessionFilter::default() })
        );
    }

    #[test]
    fn endpoints_tags_and_protocols_are_read() {
        let all = json!({"subscriber": "10.0.0.1@100.7", "outside": "203.0.113.1:1024", "remote": "198.51.100.9:53", "protocol": "udp"});
        assert_eq!(
            read(all),
            Ok(SessionFilter {
                subscriber: Some(Ipv4Addr::new(10, 0, 0, 1)),
                realm: Some(100 << 12 | 7),
                outside: Some(Ipv4Addr::new(203, 0, 113, 1)),
                outside_port: Some(1024),
                remote: Some(Ipv4Addr::new(198, 51, 100, 9)),
                remote_port: Some(53),
                protocol: Some(17),
            })
        );
        for (text, realm) in
            [("10.0.0.1", None), ("10.0.0.1@0", Some(0)), ("10.0.0.1@4094", Some(4094 << 12))]
        {
            assert_eq!(read(json!({"subscriber": text})).unwrap().realm, realm, "{text}");
        }
    }

    #[test]
    fn what_is_wrong_has_its_place() {
        for (key, wrong) in [
            ("subscriber", &["10.0.0", "2001:db8::1", "10.0.0.1@", "10.0.0.1@4095", "10.0.0.1@1.2.3"][..]),
            ("outside", &["203.0.113.1:", "203.0.113.1:65536", ":80", "2001:db8::1"]),
            ("remote", &["198.51.100.9:", "x:1"]),
            ("protocol", &["sctp", "17", ""]),
        ] {
            for text in wrong {
                let why = read(json!({key: text})).unwrap_err();
                assert_eq!(why.data["at"], format!("params.{key}"), "{text}");
            }
        }
    }
}
