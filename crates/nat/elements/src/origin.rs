//! From whom the box itself takes packets: by the rules that hold for those that it forwards (RFC 1812 section 5.3.7, RFC 2827). Else
//! whoever asks in another's name has the box answer that one.

use crate::addresses;
use nat_core::Headers;
use nat_core::config::Prefix;
use packet::ethernet::{self, kind};
use packet::ipv4;
use profile::Address;
use protocol::problem::Problem;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::net::{IpAddr, Ipv4Addr};

/// Sources of IPv4 packets to the box.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Sources {
    /// Addresses that no host has, as network and broadcast addresses: from there is `martian_source`. Default: none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub non_host_addresses: Vec<Ipv4Addr>,
    /// Prefixes of all hosts on this side: what comes from others is dropped as `not_inside`. Default: any.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub only: Vec<Address>,
    /// Prefixes of the other side: what comes from there is dropped as `spoofed_source`, as is what comes from addresses that are
    /// answered for. Default: none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub other_side: Vec<Address>,
    /// Of these, those that are on this side all the same. Default: none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub except: Vec<Address>,
}

impl Sources {
    /// What is wrong with them.
    pub fn check(&self) -> Vec<Problem> {
        [("only", &self.only), ("other_side", &self.other_side), ("except", &self.except)]
            .into_iter()
            .flat_map(|(key, list)| addresses::not_ipv4(&format!("sources.{key}"), list))
            .collect()
    }
}

/// Why a packet to the box is dropped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SourceFault {
    /// No host has its source.
    Martian,
    /// Its source is on the other side, or of the pool.
    Spoofed,
    /// Its source is not on this side.
    NotInside,
}

/// The same, to be looked at.
#[derive(Debug, Default)]
pub struct Origins {
    non_host_addresses: Vec<Ipv4Addr>,
    only: Vec<Prefix>,
    other_side: Vec<Prefix>,
    except: Vec<Prefix>,
}

impl From<&Sources> for Origins {
    fn from(sources: &Sources) -> Self {
        Self {
            non_host_addresses: sources.non_host_addresses.clone(),
            only: addresses::prefixes(&sources.only),
            other_side: addresses::prefixes(&sources.other_side),
            except: addresses::prefixes(&sources.except),
        }
    }
}

impl Origins {
    /// Whether the box takes a frame that is for it, or for all. `is_own`: its addresses; `is_answered_for`: others that it answers for.
    pub fn check(
        &self,
        frame: &[u8],
        is_own: impl Fn(IpAddr) -> bool,
        is_answered_for: impl Fn(IpAddr) -> bool,
    ) -> Result<(), SourceFault> {
        let Some((from, _)) = ethernet::payload(frame)
            .filter(|(carried, _)| *carried == kind::IPV4)
            .and_then(|(_, at)| ipv4::addresses(frame, at))
        else {
            return Ok(());
        };
        // Who has no address yet asks all for one (RFC 2131 section 4.1); what says so to the box alone does not come so far.
        if from.is_unspecified() {
            return Ok(());
        }
        let has = |prefixes: &[Prefix]| prefixes.iter().any(|prefix| prefix.has(from.to_bits()));
        if self.non_host_addresses.contains(&from) {
            return Err(SourceFault::Martian);
        }
        if is_answered_for(from.into()) {
            return Err(SourceFault::Spoofed);
        }
        let stranger = if has(&self.other_side) && !has(&self.except) {
            SourceFault::Spoofed
        } else if !self.only.is_empty() && !has(&self.only) {
            SourceFault::NotInside
        } else {
            return Ok(());
        };
        // A router on the way may have any address, and what it says of the box's own packets the host's kernel judges (RFC 6752).
        let about = Headers::of(frame).ok().and_then(|headers| nat_core::reported_sender(frame, &headers));
        if about.is_some_and(|sender| is_own(Ipv4Addr::from_bits(sender).into())) {
            return Ok(());
        }
        Err(stranger)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use packet::checksum;

    const BOX: Ipv4Addr = Ipv4Addr::new(203, 0, 113, 2);
    const POOL: Ipv4Addr = Ipv4Addr::new(203, 0, 113, 17);

    fn ip(from: Ipv4Addr, to: Ipv4Addr, carried: u8, payload: &[u8]) -> Vec<u8> {
        let [high, low] = (20 + payload.len() as u16).to_be_bytes();
        let mut header = [0x45, 0, high, low, 0, 0, 0, 0, 64, carried, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
        header[12..16].copy_from_slice(&from.octets());
        header[16..].copy_from_slice(&to.octets());
        let sum = checksum::of(&header).to_be_bytes();
        header[10..12].copy_from_slice(&sum);
        [&header, payload].concat()
    }

    fn frame(ip: &[u8]) -> Vec<u8> {
        [&[2, 0, 0, 0, 9, 3, 2, 0, 0, 0, 9, 1, 8, 0][..], ip].concat()
    }

    fn echo(from: &str) -> Vec<u8> {
        frame(&ip(from.parse().unwrap(), BOX, 1, &[8, 0, 0xf7, 0xff, 0, 0, 0, 0]))
    }

    /// An ICMP error about a datagram from `sender`.
    fn error(from: &str, sender: Ipv4Addr) -> Vec<u8> {
        let quoted = ip(sender, Ipv4Addr::new(198, 51, 100, 9), 17, &[0, 53, 0, 53, 0, 8, 0, 0]);
        let mut message = [&[3, 4, 0, 0, 0, 0, 5, 20][..], &quoted].concat();
        let sum = checksum::of(&message).to_be_bytes();
        message[2..4].copy_from_slice(&sum);
        frame(&ip(from.parse().unwrap(), BOX, 1, &message))
    }

    fn origins(text: &str) -> Origins {
        Origins::from(&serde_json::from_str::<Sources>(text).unwrap())
    }

    fn check(origins: &Origins, frame: &[u8]) -> Result<(), SourceFault> {
        origins.check(frame, |ip| ip == BOX, |ip| ip == POOL)
    }

    #[test]
    fn nobody_outside_speaks_in_the_name_of_others() {
        let outside = origins(
            r#"{"non_host_addresses": ["203.0.113.0", "203.0.113.255"], "other_side": ["10.0.0.0/8", "100.64.0.0/10"], "except": ["10.9.0.0/16"]}"#,
        );
        for (from, expected) in [
            ("203.0.113.255", Err(SourceFault::Martian)),
            ("203.0.113.0", Err(SourceFault::Martian)),
            ("203.0.113.17", Err(SourceFault::Spoofed)),
            ("10.0.0.1", Err(SourceFault::Spoofed)),
            ("100.64.0.1", Err(SourceFault::Spoofed)),
            ("10.9.0.1", Ok(())),
            ("203.0.113.1", Ok(())),
            ("8.8.8.8", Ok(())),
            ("0.0.0.0", Ok(())),
        ] {
            assert_eq!(check(&outside, &echo(from)), expected, "{from}");
        }
    }

    #[test]
    fn inside_are_those_of_the_inside() {
        let inside = origins(
            r#"{"non_host_addresses": ["10.0.0.0", "10.0.0.255", "203.0.113.2"], "only": ["100.64.0.0/10", "10.0.0.0/24"]}"#,
        );
        for (from, expected) in [
            ("10.0.0.255", Err(SourceFault::Martian)),
            ("203.0.113.2", Err(SourceFault::Martian)),
            ("203.0.113.17", Err(SourceFault::Spoofed)),
            ("203.0.113.19", Err(SourceFault::NotInside)),
            ("8.8.8.8", Err(SourceFault::NotInside)),
            ("10.0.1.1", Err(SourceFault::NotInside)),
            ("10.0.0.1", Ok(())),
            ("100.64.0.1", Ok(())),
            ("0.0.0.0", Ok(())),
        ] {
            assert_eq!(check(&inside, &echo(from)), expected, "{from}");
        }
    }

    #[test]
    fn what_a_router_says_of_the_boxs_own_packets_is_heard() {
        let outside = origins(r#"{"other_side": ["10.0.0.0/8"]}"#);
        assert_eq!(check(&outside, &error("10.200.0.2", BOX)), Ok(()));
        assert_eq!(check(&outside, &error("10.200.0.2", POOL)), Err(SourceFault::Spoofed));
        assert_eq!(check(&outside, &error("203.0.113.17", BOX)), Err(SourceFault::Spoofed), "the pool's");
        let inside = origins(r#"{"only": ["100.64.0.0/10"]}"#);
        assert_eq!(check(&inside, &error("8.8.8.8", BOX)), Ok(()));
    }

    #[test]
    fn what_is_no_ipv4_has_no_source() {
        let none = origins(r#"{"only": ["100.64.0.0/10"]}"#);
        let arp = [&[0xff; 6][..], &[2, 0, 0, 0, 9, 1, 8, 6], &[0; 46]].concat();
        assert_eq!(check(&none, &arp), Ok(()));
        for len in 0..34 {
            assert_eq!(check(&none, &echo("8.8.8.8")[..len]), Ok(()), "{len}");
        }
        let wrong: Sources =
            serde_json::from_str(r#"{"only": ["fd00::/8"], "except": ["fd00::/8"]}"#).unwrap();
        let keys: Vec<String> = wrong.check().into_iter().map(|problem| problem.key).collect();
        assert_eq!(keys, ["sources.only[0]", "sources.except[0]"]);
    }
}
