//! A port's address: which it is, and which others are next to it.

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::{self, Deserialize, Deserializer, SeqAccess, Visitor};
use serde::ser::{Serialize, Serializer};
use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;
use std::net::{IpAddr, Ipv4Addr};
use std::str::FromStr;

/// An IP address, with the length of its network's prefix if that is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Address {
    /// The address.
    pub ip: IpAddr,
    /// Bits that all addresses of the network have in common. `None`: every address is next to it.
    pub prefix: Option<u8>,
}

impl Address {
    /// None at all.
    pub const NONE: Self = Self { ip: IpAddr::V4(Ipv4Addr::UNSPECIFIED), prefix: None };

    /// Whether `other` is in the same network, so that no router is needed to reach it.
    pub fn is_near(&self, other: IpAddr) -> bool {
        let (own, other, width) = match (self.ip, other) {
            (IpAddr::V4(own), IpAddr::V4(other)) => (u32::from(own).into(), u32::from(other).into(), 32),
            (IpAddr::V6(own), IpAddr::V6(other)) => (u128::from(own), u128::from(other), 128),
            _ => return false,
        };
        let host = width - u32::from(self.prefix.unwrap_or(0)).min(width);
        (own ^ other).checked_shr(host).unwrap_or(0) == 0
    }

    /// Whether `router` may be on the link of this address: in its network, or by a link-local address, as which IPv6 routers announce
    /// themselves (RFC 4861 section 4.2). An address that is a network of its own (`/32`, `/128`) says nothing of who is on the link.
    pub(crate) fn reaches(&self, router: IpAddr) -> bool {
        let same_family = self.ip.is_ipv4() == router.is_ipv4();
        let link_local = matches!(router, IpAddr::V6(ip) if ip.is_unicast_link_local());
        let alone = self.prefix == Some(if self.ip.is_ipv4() { 32 } else { 128 });
        self.is_near(router) || same_family && (link_local || alone)
    }
}

impl FromStr for Address {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (ip, prefix) = text.split_once('/').map_or((text, None), |(ip, prefix)| (ip, Some(prefix)));
        let ip: IpAddr = ip.parse().map_err(|_| format!("{ip:?} is not an IP address"))?;
        let most = if ip.is_ipv4() { 32 } else { 128 };
        let read = |bits: &str| {
            let bits = bits.parse().ok().filter(|bits| *bits <= most);
            bits.ok_or_else(|| format!("the prefix length in {text:?} is not between 0 and {most}"))
        };
        Ok(Self { ip, prefix: prefix.map(read).transpose()? })
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.ip)?;
        self.prefix.map_or(Ok(()), |bits| write!(f, "/{bits}"))
    }
}

impl<'de> Deserialize<'de> for Address {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(de::Error::custom)
    }
}

impl Serialize for Address {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl JsonSchema for Address {
    fn schema_name() -> Cow<'static, str> {
        "Address".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "type": "string",
            "pattern": "^[0-9A-Fa-f:.]+(/[0-9]{1,3})?$",
            "description": "An IP address, with or without its prefix length, like 10.0.0.1/24"
        })
    }
}

/// One of them as it is, or several in a list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OneOrMany<T>(pub Vec<T>);

impl<T> Default for OneOrMany<T> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<T> OneOrMany<T> {
    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl OneOrMany<Address> {
    /// The address of the same kind as `other`.
    pub fn matching_family(&self, other: IpAddr) -> Option<&Address> {
        self.0.iter().find(|address| address.ip.is_ipv4() == other.is_ipv4() && !address.ip.is_unspecified())
    }

    /// The address to send to `other` from; one of the other kind, or none at all, if there is no such.
    pub fn towards(&self, other: IpAddr) -> IpAddr {
        self.matching_family(other).or(self.0.first()).unwrap_or(&Address::NONE).ip
    }
}

impl<'de, T: Deserialize<'de> + FromStr<Err: fmt::Display>> Deserialize<'de> for OneOrMany<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Reader<T>(PhantomData<T>);

        impl<'de, T: Deserialize<'de> + FromStr<Err: fmt::Display>> Visitor<'de> for Reader<T> {
            type Value = OneOrMany<T>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("one address, or a list of them")
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<Self::Value, E> {
                Ok(OneOrMany(vec![text.parse().map_err(E::custom)?]))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Self::Value, A::Error> {
                let mut all = Vec::new();
                while let Some(one) = list.next_element()? {
                    all.push(one);
                }
                Ok(OneOrMany(all))
            }
        }

        deserializer.deserialize_any(Reader(PhantomData))
    }
}

impl<T: Serialize> Serialize for OneOrMany<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match &self.0[..] {
            [one] => one.serialize(serializer),
            all => all.serialize(serializer),
        }
    }
}

impl<T: JsonSchema> JsonSchema for OneOrMany<T> {
    fn schema_name() -> Cow<'static, str> {
        format!("OneOrMany{}", T::schema_name()).into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let one = generator.subschema_for::<T>();
        json_schema!({"anyOf": [one, {"type": "array", "items": one}]})
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(text: &str) -> Address {
        text.parse().expect(text)
    }

    #[test]
    fn what_is_written_is_read_back() {
        for text in ["10.0.0.1", "10.0.0.1/24", "fd00::1/64", "0.0.0.0/0", "fd00::1/128", "10.0.0.1/32"] {
            assert_eq!(address(text).to_string(), text);
        }
        for bad in
            ["10.0.0.1/33", "fd00::1/129", "10.0.0.1/", "10.0.0.1/x", "10.0.0.1/-1", "host/24", "10.0.0/24"]
        {
            bad.parse::<Address>().expect_err(bad);
        }
    }

    #[test]
    fn one_stands_alone_and_several_in_a_list() {
        for text in [r#""10.0.0.1/24""#, r#"["10.0.0.1/24","fd00::1"]"#, "[]"] {
            let several: OneOrMany<Address> = serde_json::from_str(text).expect(text);
            assert_eq!(serde_json::to_string(&several).expect("JSON"), text);
        }
        let both: OneOrMany<Address> = serde_json::from_str(r#"["fd00::1", "10.0.0.1"]"#).expect("two");
        let to = |text: &str| both.towards(text.parse().expect(text)).to_string();
        assert_eq!((to("192.0.2.1"), to("2001:db8::1")), ("10.0.0.1".to_owned(), "fd00::1".to_owned()));
        let why =
            serde_json::from_str::<OneOrMany<Address>>(r#"["10.0.0.1", "10.1"]"#).expect_err("no address");
        assert!(why.to_string().contains("\"10.1\" is not an IP address"), "{why}");
    }

    #[test]
    fn a_router_is_in_the_network_or_link_local_or_beside_an_address_alone() {
        let reaches = |own: &str, router: &str| address(own).reaches(router.parse().expect(router));
        assert!(reaches("10.0.0.1/24", "10.0.0.254") && !reaches("10.0.0.1/24", "10.0.1.254"));
        assert!(reaches("fd77::41/64", "fe80::1") && reaches("fd77::41/64", "fd77::1"));
        assert!(!reaches("fd77::41/64", "fd78::1") && !reaches("fd77::41/64", "fec0::1"));
        assert!(reaches("192.0.2.7/32", "198.51.100.1") && reaches("fd77::41/128", "fd78::1"));
        assert!(!reaches("192.0.2.7/32", "fe80::1") && !reaches("fd77::41/128", "198.51.100.1"));
        assert!(!reaches("192.0.2.7/31", "198.51.100.1"));
    }

    #[test]
    fn the_prefix_says_who_is_near() {
        let near = |own: &str, other: &str| address(own).is_near(other.parse().expect(other));
        assert!(near("10.0.0.1/24", "10.0.0.254") && !near("10.0.0.1/24", "10.0.1.0"));
        assert!(near("10.0.0.1/31", "10.0.0.0") && !near("10.0.0.1/31", "10.0.0.2"));
        assert!(near("10.0.0.1/32", "10.0.0.1") && !near("10.0.0.1/32", "10.0.0.0"));
        assert!(near("10.0.0.1/0", "192.0.2.1") && near("10.0.0.1", "192.0.2.1"));
        assert!(near("fd00::1/64", "fd00::ffff:0:0:1") && !near("fd00::1/64", "fd00:0:0:1::1"));
        assert!(near("fd00::1/0", "2001:db8::1") && !near("fd00::1/128", "fd00::2"));
        assert!(!near("fd00::1", "10.0.0.1") && !near("10.0.0.1", "fd00::1"));
    }
}
