//! Which port each group uses, and whether its targets can be reached from there.

use profile::{Error, Group, Port, Target};
use run::{GroupPlan, Plan, SetupError};
use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr};

pub(crate) fn conflict(at: String, what: &str, fix: &str) -> Error {
    Error::new("ND-104-07", at, what, fix)
}

/// The address that a target names without a resolver.
pub(crate) fn literal(target: &str) -> Option<IpAddr> {
    match target.parse::<Target>().ok()?.host.as_str() {
        "localhost" => Some(Ipv4Addr::LOCALHOST.into()),
        host => host.parse().ok(),
    }
}

/// What is wrong where the addresses of a target are this machine's own, which are on no port.
pub(crate) fn reachable_by_none(at: &str, targets: &[IpAddr]) -> Option<Error> {
    let own = |ip: &IpAddr| ip.is_loopback() || ip.is_unspecified();
    let first = targets.first().filter(|_| targets.iter().all(own))?;
    let what = format!("{first} is this machine's loopback, which no DPDK port reaches");
    Some(conflict(
        at.to_owned(),
        &what,
        "Give the address of a host that the port reaches: --target GROUP=URL",
    ))
}

/// The number of the port of each group, by the group's name; an error where a port cannot reach any address of a target.
pub(crate) fn ports_of(plan: &Plan, settings: &profile::Dpdk) -> Result<HashMap<String, usize>, SetupError> {
    let mut found = HashMap::new();
    for (index, group) in plan.profile.groups.iter().enumerate() {
        let planned = plan.groups.iter().filter(|planned| planned.name == group.name);
        let targets: Vec<IpAddr> = planned
            .clone()
            .flat_map(|planned| planned.addresses.iter())
            .map(|address| address.ip())
            .collect();
        let at = format!("groups[{index}].target");
        if let Some(error) = reachable_by_none(&at, &targets) {
            return Err(error);
        }
        let named =
            group.port.as_deref().and_then(|name| settings.ports.iter().position(|port| port.name == name));
        let number = named.unwrap_or_else(|| nearest(&settings.ports, &targets));
        let sources = planned.flat_map(sources).collect::<Vec<_>>();
        if let Some(port) = settings.ports.get(number)
            && let Some(error) = without_family(&at, port, &targets, &sources)
        {
            return Err(error);
        }
        if let Some(port) = settings.ports.get(number)
            && let Some(error) = outside(&format!("groups[{index}].source"), port, &sources)
        {
            return Err(error);
        }
        found.insert(group.name.clone(), number);
    }
    Ok(found)
}

fn sources(group: &GroupPlan) -> impl Iterator<Item = IpAddr> + '_ {
    group.sources.iter().copied()
}

/// The first port whose network has a target; else the first with a gateway for one; else the first.
fn nearest(ports: &[Port], targets: &[IpAddr]) -> usize {
    let first = |fits: &dyn Fn(&Port, IpAddr) -> bool| {
        ports.iter().position(|port| targets.iter().any(|target| fits(port, *target)))
    };
    let near = |port: &Port, target: IpAddr| {
        port.ip.matching_family(target).is_some_and(|own| own.prefix.is_some() && own.is_near(target))
    };
    let routed = |port: &Port, target: IpAddr| {
        port.gateway.0.iter().any(|router| router.is_ipv4() == target.is_ipv4())
    };
    first(&near).or_else(|| first(&routed)).unwrap_or(0)
}

/// The port of a group, where the profile alone tells it: by its name, by the address of the target, or as there is no other.
pub(crate) fn named_port<'a>(group: &Group, ports: &'a [Port]) -> Option<&'a Port> {
    if let Some(name) = &group.port {
        return ports.iter().find(|port| port.name == *name);
    }
    match literal(&group.target) {
        Some(target) => ports.get(nearest(ports, &[target])),
        None => ports.first().filter(|_| ports.len() == 1),
    }
}

/// What is wrong where a port has no address to reach any of these from.
fn without_family(at: &str, port: &Port, targets: &[IpAddr], sources: &[IpAddr]) -> Option<Error> {
    let serves = |target: &IpAddr| {
        port.ip.matching_family(*target).is_some()
            || sources.iter().any(|source| source.is_ipv4() == target.is_ipv4())
    };
    let first = targets.first().filter(|_| !targets.iter().any(serves))?;
    let (family, example) = match first {
        IpAddr::V4(_) => ("IPv4", "10.0.0.1/24"),
        IpAddr::V6(_) => ("IPv6", "fd00::1/64"),
    };
    let what = format!("port {} has no {family} address to reach {first} from", port.name);
    Some(conflict(at.to_owned(), &what, &format!("Give the port one beside what it has, like {example}")))
}

/// What is wrong where devices come from addresses to which, from beyond the port, no way leads back: they are in no network of
/// the port, and it has no router that could have a route to them.
pub(crate) fn outside(at: &str, port: &Port, sources: &[IpAddr]) -> Option<Error> {
    let is_outside = |source: &&IpAddr| {
        let routed = port.gateway.0.iter().any(|router| router.is_ipv4() == source.is_ipv4());
        let own = port.ip.matching_family(**source).filter(|own| own.prefix.is_some());
        !routed && own.is_some_and(|own| !own.is_near(**source))
    };
    let first = sources.iter().find(is_outside)?;
    let own = port.ip.matching_family(*first)?;
    let what =
        format!("{first} is not in the network of port {} ({own}), so that no answer finds it", port.name);
    let fix = "Use addresses of that network, name the router to theirs (gateway), or leave the prefix of ip out where the target \
               has a route to them";
    Some(conflict(at.to_owned(), &what, fix))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn ports() -> Vec<Port> {
        let ports = json!([
            {"name": "a", "device": "null", "ip": "10.9.0.1/24"},
            {"name": "b", "device": "null", "ip": ["10.8.0.1/24", "fd08::1/64"]},
            {"name": "c", "device": "null", "ip": "10.7.0.1/24", "gateway": "10.7.0.254"},
        ]);
        serde_json::from_value(ports).expect("ports")
    }

    fn ip(text: &str) -> IpAddr {
        text.parse().expect("an address")
    }

    #[test]
    fn a_group_without_a_port_uses_the_one_next_to_its_target() {
        for (target, number) in
            [("10.9.0.7", 0), ("10.8.0.7", 1), ("fd08::7", 1), ("192.0.2.1", 2), ("fd00::1", 0)]
        {
            assert_eq!(nearest(&ports(), &[ip(target)]), number, "{target}");
        }
        // any address of a name
        assert_eq!(nearest(&ports(), &[ip("fd00::1"), ip("10.8.0.7")]), 1);
    }

    #[test]
    fn sources_are_in_the_ports_network_or_behind_its_router() {
        let ports = ports();
        let found =
            |number: usize, source: &str| outside("t", &ports[number], &[ip(source)]).map(|error| error.what);
        let what = found(0, "10.50.0.1").expect("outside");
        assert_eq!(
            what,
            "10.50.0.1 is not in the network of port a (10.9.0.1/24), so that no answer finds it"
        );
        for (number, source) in [(0, "10.9.0.77"), (0, "fd00::1"), (2, "10.50.0.1")] {
            assert_eq!(found(number, source), None, "{number} {source}");
        }
        let bare: Vec<Port> =
            serde_json::from_value(json!([{"name": "a", "device": "null", "ip": "10.9.0.1"}]))
                .expect("ports");
        assert!(outside("t", &bare[0], &[ip("10.50.0.1")]).is_none(), "everybody is on the link");
    }

    #[test]
    fn a_port_without_an_address_of_the_targets_kind_is_named() {
        let [a, b, _] = &ports()[..] else { panic!("three ports") };
        let found = without_family("t", a, &[ip("fd00::9")], &[]).expect("no IPv6");
        assert_eq!(found.what, "port a has no IPv6 address to reach fd00::9 from");
        assert!(without_family("t", a, &[ip("fd00::9")], &[ip("fd00::2")]).is_none(), "a source has");
        assert!(
            without_family("t", a, &[ip("fd00::9"), ip("10.0.0.9")], &[]).is_none(),
            "another address is"
        );
        assert!(without_family("t", b, &[ip("fd00::9")], &[]).is_none());
    }
}
