//! What a NAT drops by addresses, IP options and rules, as a graph says it.

use crate::addresses;
use nat_core::Side;
use nat_core::config::{IpOptions, PacketFilter, Prefix, Rule};
use packet::layers::protocol as carried;
use profile::Address;
use protocol::problem::Problem;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::net::Ipv4Addr;
use std::ops::RangeInclusive;

/// A rule for packets that begin something.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct AclRule {
    /// `permit` or `deny`.
    pub action: AclAction,
    /// The port that packets come in by, `inside` or `outside`. Default: either.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<Side>,
    /// `tcp`, `udp` or `icmp`. Default: any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub protocol: Option<AclProtocol>,
    /// The source, an address or a prefix, as it comes. Default: any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<Address>,
    /// The destination, an address or a prefix, as it comes: from outside an address of the pool. Default: any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub destination: Option<Address>,
    /// Destination ports of TCP and UDP, like `25` or `6881-6889`. Default: any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ports: Option<String>,
}

/// What a rule says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum AclAction {
    /// It may begin.
    Permit,
    /// It is dropped.
    Deny,
}

/// What packets carry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum AclProtocol {
    /// TCP.
    Tcp,
    /// UDP.
    Udp,
    /// ICMP queries.
    Icmp,
}

/// `25`, or `6881-6889`.
fn range(text: &str) -> Option<RangeInclusive<u16>> {
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    let range = first.parse().ok()?..=last.parse().ok()?;
    (!range.is_empty()).then_some(range)
}

impl AclRule {
    fn check(&self) -> Vec<Problem> {
        let named = [("source", &self.source), ("destination", &self.destination)];
        let wrong = named
            .into_iter()
            .filter(|(_, one)| one.as_ref().is_some_and(|one| addresses::prefix(one).is_none()));
        let mut problems: Vec<Problem> =
            wrong.map(|(key, _)| Problem::new(key, "it is not IPv4", "Use an IPv4 prefix")).collect();
        if let Some(text) = self.ports.as_ref().filter(|text| range(text).is_none()) {
            let what = format!("{text:?} is no port and no range of ports");
            problems.push(Problem::new("ports", what, "Write it like 25 or 6881-6889"));
        }
        if self.ports.is_some() && self.protocol == Some(AclProtocol::Icmp) {
            problems.push(Problem::new("ports", "ICMP has no ports", "Leave ports out"));
        }
        problems
    }

    fn rule(&self) -> Rule {
        let prefix = |one: &Option<Address>| one.as_ref().and_then(addresses::prefix).unwrap_or(Prefix::ALL);
        Rule {
            permit: self.action == AclAction::Permit,
            from: self.from,
            protocol: self.protocol.map(|one| match one {
                AclProtocol::Tcp => carried::TCP,
                AclProtocol::Udp => carried::UDP,
                AclProtocol::Icmp => carried::ICMP,
            }),
            source: prefix(&self.source),
            destination: prefix(&self.destination),
            ports: self.ports.as_deref().and_then(range),
        }
    }
}

/// What is wrong with rules.
pub fn problems(acl: &[AclRule]) -> Vec<Problem> {
    let of = |(at, rule): (usize, &AclRule)| {
        rule.check().into_iter().map(move |problem| problem.under(&format!("acl[{at}]")))
    };
    acl.iter().enumerate().flat_map(of).collect()
}

/// All of it as the NAT takes it.
pub fn packet_filter(
    acl: &[AclRule],
    options: Option<IpOptions>,
    outside: &[Address],
    non_host_addresses: &[Ipv4Addr],
) -> PacketFilter {
    PacketFilter {
        outside: addresses::prefixes(outside),
        non_host_addresses: non_host_addresses.to_vec(),
        options: options.unwrap_or_default(),
        rules: acl.iter().map(AclRule::rule).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Vec<AclRule> {
        serde_json::from_str(text).unwrap()
    }

    #[test]
    fn rules_are_what_they_say() {
        let rules = read(
            r#"[{"action": "deny", "from": "inside", "protocol": "tcp", "ports": "25"},
                {"action": "permit", "source": "10.0.0.0/24", "ports": "6881-6889"}]"#,
        );
        assert!(problems(&rules).is_empty());
        let outside = ["192.168.0.0/16".parse().unwrap()];
        let filter = packet_filter(&rules, Some(IpOptions::None), &outside, &[Ipv4Addr::new(10, 0, 0, 255)]);
        let [first, second] = &filter.rules[..] else { panic!("two rules") };
        assert_eq!((first.permit, first.from, first.protocol), (false, Some(Side::Inside), Some(6)));
        assert_eq!((&first.ports, first.source), (&Some(25..=25), Prefix::ALL));
        assert_eq!((second.permit, second.from, second.protocol), (true, None, None));
        assert_eq!((&second.ports, second.source.bits), (&Some(6881..=6889), 24));
        assert_eq!(
            (filter.options, filter.outside[0].bits, filter.non_host_addresses.len()),
            (IpOptions::None, 16, 1)
        );
    }

    #[test]
    fn what_is_no_rule_is_told() {
        let wrong = |rule: &str| {
            let rules = read(&format!(r#"[{{"action": "deny"}}, {rule}]"#));
            problems(&rules).iter().map(|problem| problem.key.clone()).collect::<Vec<_>>()
        };
        for (rule, key) in [
            (r#"{"action": "deny", "ports": "x"}"#, "acl[1].ports"),
            (r#"{"action": "deny", "ports": "9-8"}"#, "acl[1].ports"),
            (r#"{"action": "deny", "ports": "65536"}"#, "acl[1].ports"),
            (r#"{"action": "deny", "ports": "25", "protocol": "icmp"}"#, "acl[1].ports"),
            (r#"{"action": "deny", "source": "fd00::/8"}"#, "acl[1].source"),
            (r#"{"action": "deny", "destination": "fd00::1"}"#, "acl[1].destination"),
        ] {
            assert_eq!(wrong(rule), [key], "{rule}");
        }
        assert!(wrong(r#"{"action": "permit", "ports": "0-65535"}"#).is_empty());
    }
}
