//! Profiles of devices over DPDK: what they may ask for.

use crate::ways::{conflict, literal, named_port, outside, reachable_by_none};
use profile::{Address, Error, Profile, Role, Transport};
use std::net::{IpAddr, Ipv6Addr};

/// What is wrong with a profile whose devices run over DPDK; of others nothing.
pub fn check(profile: &Profile) -> Vec<Error> {
    match &profile.transport {
        Transport::Dpdk(dpdk) if profile.has_devices() => {
            let groups = profile.groups.iter().enumerate();
            let targets = groups.filter_map(|(i, group)| {
                reachable_by_none(&format!("groups[{i}].target"), &[literal(&group.target)?])
            });
            let sources = profile.groups.iter().enumerate().filter_map(|(i, group)| {
                outside(&format!("groups[{i}].source"), named_port(group, &dpdk.ports)?, &ends(&group.source))
            });
            settings(dpdk).into_iter().chain(targets).chain(sources).collect()
        }
        _ => Vec::new(),
    }
}

/// The first and last addresses of ranges.
fn ends(ranges: &[String]) -> Vec<IpAddr> {
    ranges.iter().flat_map(|range| range.split('-')).filter_map(|end| end.trim().parse().ok()).collect()
}

/// Why a port cannot have an address; `None`: it can.
fn no_host(own: &Address) -> Option<&'static str> {
    let IpAddr::V4(ip) = own.ip else {
        let IpAddr::V6(ip) = own.ip else { return None };
        return match ip {
            Ipv6Addr::LOCALHOST => Some("a loopback address"),
            _ if ip.is_multicast() => Some("a multicast address"),
            _ => None,
        };
    };
    // networks of two and of one have no addresses of their own (RFC 3021)
    let host =
        own.prefix.filter(|bits| *bits < 31).map(|bits| u32::MAX.checked_shr(bits.into()).unwrap_or(0));
    match (ip.octets()[0], host) {
        (127, _) => Some("a loopback address"),
        (0, _) => Some("no address of a host"),
        (224..=239, _) => Some("a multicast address"),
        (240.., _) => Some("a reserved or broadcast address"),
        (_, Some(host)) if u32::from(ip) & host == host => Some("its network's broadcast address"),
        (_, Some(host)) if u32::from(ip) & host == 0 => Some("the address of its network"),
        _ => None,
    }
}

/// Workers that drive the devices or connections: each has a queue of each port.
pub fn workers(dpdk: &profile::Dpdk) -> usize {
    dpdk.ports.iter().map(|port| port.queues.into()).max().unwrap_or(1).max(1)
}

/// What is wrong with the settings.
pub fn settings(dpdk: &profile::Dpdk) -> Vec<Error> {
    let mut faults = Vec::new();
    if dpdk.has_graph() {
        let what = "devices with connections are no part of a graph of elements";
        let at = "transport.dpdk.elements".to_owned();
        faults.push(conflict(at, what, "Leave elements and edges out"));
    }
    let workers = workers(dpdk);
    if ![0, workers].contains(&dpdk.placement.len()) {
        let what = "each worker of devices with connections has a queue of each port";
        let at = "transport.dpdk.placement".to_owned();
        faults.push(conflict(at, what, "Name as many workers as queues, or leave placement out"));
    }
    for (i, port) in dpdk.ports.iter().enumerate() {
        let at = |key: &str| format!("transport.dpdk.ports[{i}].{key}");
        if port.role != Role::Generator {
            let what = "beside devices with connections a port has no role of its own";
            faults.push(conflict(at("role"), what, "Leave role out, or give the port to another run"));
        }
        if usize::from(port.queues) != workers {
            let what = "each worker of devices with connections has a queue of each port";
            faults.push(conflict(at("queues"), what, "Give all ports as many queues"));
        }
        if port.impair.is_some() || port.impair_timeline.is_some() {
            let what = "a port of devices with connections cannot be impaired here";
            let fix = "Impair the link to the server: netdyno impair, or a link of a topology";
            faults.push(conflict(at("impair"), what, fix));
        }
        if port.ip.is_empty() {
            let what = "devices with connections need an address to come from";
            let fix = "Give ip, an address in the target's network, as \"10.0.0.1/24\"";
            faults.push(conflict(at("ip"), what, fix));
        }
        for own in &port.ip.0 {
            if let Some(why) = no_host(own) {
                let what = format!("{own} is {why}, which no host can have");
                faults.push(conflict(at("ip"), &what, "Give the address of a host, like \"10.0.0.1/24\""));
            }
        }
    }
    faults
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn found(transport: &Value) -> Vec<String> {
        let dpdk = serde_json::from_value(transport.clone()).expect("right otherwise");
        settings(&dpdk).into_iter().map(|fault| fault.at).collect()
    }

    #[test]
    fn loopback_is_on_no_port() {
        for target in ["127.0.0.1", "127.9.9.9", "::1", "0.0.0.0"] {
            assert!(reachable_by_none("t", &[target.parse().expect("an address")]).is_some(), "{target}");
        }
        for targets in [&["10.0.0.1"][..], &["::1", "10.0.0.1"], &[]] {
            let targets: Vec<IpAddr> = targets.iter().map(|text| text.parse().expect("an address")).collect();
            assert!(reachable_by_none("t", &targets).is_none(), "{targets:?}");
        }
    }

    #[test]
    fn a_port_has_the_address_of_a_host() {
        let ip = |ip: &str| found(&json!({"ports": [{"name": "a", "device": "null", "ip": ip}]}));
        for wrong in [
            "127.0.0.1",
            "127.0.0.1/8",
            "0.0.0.0/0",
            "224.0.0.1/24",
            "255.255.255.255",
            "10.9.0.255/24",
            "10.9.0.0/24",
            "::1",
            "ff02::1/64",
        ] {
            assert_eq!(ip(wrong), ["transport.dpdk.ports[0].ip"], "{wrong}");
        }
        for right in [
            "10.9.0.1/24",
            "10.9.0.255",
            "10.9.0.0/31",
            "10.9.0.255/32",
            "10.9.0.0/8",
            "fd00::/64",
            "fe80::1/64",
        ] {
            assert!(ip(right).is_empty(), "{right}");
        }
    }

    #[test]
    fn sources_outside_the_ports_network_are_told_with_the_profile() {
        let faults = |ip: &str, source: &str| {
            let profile = serde_json::from_value(json!({
                "name": "p",
                "transport": {"dpdk": {"ports": [{"name": "a", "device": "null", "ip": ip}]}},
                "groups": [
                    {"name": "g", "target": "http://10.9.0.7", "model": {"http": {}}, "source": [source]}
                ],
            }))
            .expect("a profile");
            check(&profile).into_iter().map(|fault| fault.at).collect::<Vec<_>>()
        };
        assert_eq!(faults("10.9.0.1/24", "10.9.0.250-10.9.1.3"), ["groups[0].source"]);
        assert!(faults("10.9.0.1/24", "10.9.0.2-10.9.0.254").is_empty());
        assert!(faults("10.9.0.1", "10.50.0.1").is_empty());
    }

    #[test]
    fn each_fault_is_named_with_its_place() {
        let port = |key: &str, value: Value| {
            let mut port = json!({"name": "a", "device": "null", "ip": "10.0.0.1/24"});
            port[key] = value;
            json!({"ports": [port]})
        };
        assert!(found(&port("mac", json!("02:00:00:00:00:01"))).is_empty());
        for (key, value) in [("ip", json!([])), ("impair", json!({}))] {
            assert_eq!(found(&port(key, value)), [format!("transport.dpdk.ports[0].{key}")]);
        }
        let mut two = port("queues", json!(1));
        two["placement"] = json!([{"elements": ["a.generator"]}, {"elements": ["a.receiver"]}]);
        assert_eq!(found(&two), ["transport.dpdk.placement"]);
        two["ports"][0]["queues"] = json!(2);
        assert!(found(&two).is_empty());
        let other = json!({"name": "b", "device": "null", "ip": "10.0.1.1/24"});
        two["ports"].as_array_mut().expect("ports").push(other);
        assert_eq!(found(&two), ["transport.dpdk.ports[1].queues"]);
    }
}
