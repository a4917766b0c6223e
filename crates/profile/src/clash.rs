//! What is there twice and may be there once: addresses, devices, cores.

use crate::error::{BAD_REFERENCE, CONFLICT};
use crate::source::Pool;
use crate::{Dpdk, Error, Group, Port, Profile, Role, Transport};
use std::collections::BTreeMap;
use std::net::IpAddr;

/// All that is named twice in `profile`.
pub fn check(profile: &Profile) -> Vec<Error> {
    let mut errors: Vec<Error> = profile.groups.iter().enumerate().filter_map(sources).collect();
    match &profile.transport {
        Transport::Sockets(sockets) => {
            let cores = sockets.cores.iter().enumerate();
            errors
                .extend(cores_twice(cores.map(|(i, core)| (format!("transport.sockets.cores[{i}]"), *core))));
        }
        Transport::Dpdk(dpdk) => {
            let cores = dpdk.placement.iter().enumerate().filter_map(|(w, worker)| Some((w, worker.core?)));
            let named = cores.map(|(w, core)| (format!("transport.dpdk.placement[{w}].core"), core));
            errors.extend(cores_twice(named));
            errors.extend(ports(dpdk));
            let groups = profile.groups.iter().enumerate();
            errors.extend(groups.filter_map(|(i, group)| ends(profile, dpdk, group, i)));
        }
    }
    errors
}

/// A core has one worker: two would wait for each other.
fn cores_twice(cores: impl Iterator<Item = (String, u16)>) -> Option<Error> {
    let mut seen = BTreeMap::new();
    for (at, core) in cores {
        if let Some(first) = seen.insert(core, at.clone()) {
            let what = format!("core {core} has a worker already, by {first}");
            return Some(Error::new(BAD_REFERENCE, at, what, "Give each worker a core of its own"));
        }
    }
    None
}

fn sources((i, group): (usize, &Group)) -> Option<Error> {
    let pools: Result<Vec<Pool>, String> = group.source.iter().map(|text| Pool::read(text)).collect();
    let (ip, first, second) = Pool::overlap(&pools.ok()?)?;
    let what = format!("{ip} is in source[{first}] already");
    let at = format!("groups[{i}].source[{second}]");
    Some(Error::new(BAD_REFERENCE, at, what, "Name each address once: it has its ports once"))
}

fn ports(dpdk: &Dpdk) -> Vec<Error> {
    let mut errors = Vec::new();
    for (i, port) in dpdk.ports.iter().enumerate() {
        let before = &dpdk.ports[..i];
        if is_one_of_a_kind(&port.device)
            && let Some(other) = before.iter().find(|other| other.device == port.device)
        {
            let what = format!("the port {:?} has this device already", other.name);
            let at = format!("transport.dpdk.ports[{i}].device");
            errors.push(Error::new(BAD_REFERENCE, at, what, "Give each port a device of its own"));
        }
        for address in port.ip.0.iter().filter(|address| !address.ip.is_unspecified()) {
            let same = |other: &&Port| {
                other.vlan.ids() == port.vlan.ids() && other.ip.0.iter().any(|theirs| theirs.ip == address.ip)
            };
            if let Some(other) = before.iter().find(same) {
                let what = format!("the port {:?} has the address {} already", other.name, address.ip);
                let at = format!("transport.dpdk.ports[{i}].ip");
                errors.push(Error::new(BAD_REFERENCE, at, what, "Give each end an address of its own"));
            }
        }
        if let Some(mac) = port.mac.as_deref().and_then(crate::parse_mac)
            && (mac[0] & 1 == 1 || mac == [0; 6])
        {
            let what = "an address of several, or of nobody, cannot be a port's own".to_owned();
            let fix = "Use one whose first byte is even, like \"02:00:00:00:00:01\"";
            errors.push(Error::new(CONFLICT, format!("transport.dpdk.ports[{i}].mac"), what, fix));
        }
    }
    errors
}

/// Whether two ports on the device are one too many. Of a cable there are two ends, which are counted elsewhere.
fn is_one_of_a_kind(device: &str) -> bool {
    let kind = device.split([':', ',']).next().unwrap_or("");
    !matches!(kind, "pair" | "null" | "net_null" | "af_packet" | "net_af_packet" | "net_ring" | "net_ring0")
}

/// A port does not answer itself: what it sends to its own address nobody takes.
fn ends(profile: &Profile, dpdk: &Dpdk, group: &Group, i: usize) -> Option<Error> {
    let target: IpAddr = profile.target(group).ok()?.host.parse().ok()?;
    let mut generators = dpdk.ports.iter().filter(|port| port.role == Role::Generator);
    let port = generators.find(|port| group.port.as_ref().is_none_or(|name| *name == port.name))?;
    if port.ip.0.iter().any(|own| own.ip == target) {
        let what = format!("{target} is the address of the port {:?} that sends", port.name);
        return Some(Error::new(CONFLICT, format!("groups[{i}].target"), what, "Name the other end"));
    }
    let has = |text: &String| Pool::read(text).is_ok_and(|pool| pool.has(target));
    let at = group.source.iter().position(has)?;
    let what = format!("{target} is the target, too");
    Some(Error::new(
        CONFLICT,
        format!("groups[{i}].source[{at}]"),
        what,
        "Give each end an address of its own",
    ))
}
