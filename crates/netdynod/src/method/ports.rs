//! `ports.*`: what traffic can leave by.

use super::{Answer, Nothing};
use crate::connection::Caller;
use nix::ifaddrs::getifaddrs;
use nix::net::if_::InterfaceFlags;
use profile::Transport;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::Path;

/// Kernel interfaces, and the DPDK ports of the loaded profile.
pub fn list(caller: &Caller, _: Nothing) -> Answer {
    let mut ports: Vec<Value> = interfaces()
        .into_iter()
        .map(|i| {
            let name = i["name"].as_str().unwrap_or_default().to_owned();
            let device = format!("/sys/class/net/{name}/device");
            let read = |file: &str| std::fs::read_to_string(format!("{device}/{file}")).ok();
            let driver = std::fs::read_link(format!("{device}/driver")).ok();
            let driver =
                driver.as_deref().and_then(Path::file_name).map(|n| n.to_string_lossy().into_owned());
            let numa: Option<i64> = read("numa_node").and_then(|n| n.trim().parse().ok()).filter(|n| *n >= 0);
            let place = std::fs::canonicalize(&device).ok();
            let place = place.as_deref().and_then(Path::file_name).map(|n| n.to_string_lossy().into_owned());
            json!({"name": name, "kind": "kernel", "device": place, "mac": i["mac"], "numa": numa,
                   "driver": driver, "link": i["up"]})
        })
        .collect();
    if let Some(run) = caller.core.run()
        && let Transport::Dpdk(dpdk) = &run.plan.profile.transport
    {
        ports.extend(dpdk.ports.iter().map(|p| {
            json!({"name": p.name, "kind": "dpdk", "device": p.device, "mac": p.mac, "numa": null,
                   "driver": null, "link": run.is_active()})
        }));
    }
    Ok(ports.into())
}

/// The kernel's interfaces in this namespace.
pub fn interfaces() -> Vec<Value> {
    #[derive(Default)]
    struct Seen {
        mac: Option<String>,
        addresses: Vec<String>,
        up: bool,
    }
    let mut seen: BTreeMap<String, Seen> = BTreeMap::new();
    for one in getifaddrs().into_iter().flatten() {
        let entry = seen.entry(one.interface_name).or_default();
        entry.up |= one.flags.contains(InterfaceFlags::IFF_UP | InterfaceFlags::IFF_RUNNING);
        if let Some(address) = one.address {
            if let Some(link) = address.as_link_addr() {
                let bytes = link.addr().unwrap_or_default();
                entry.mac = Some(bytes.map(|b| format!("{b:02x}")).join(":"));
            } else if let Some(v4) = address.as_sockaddr_in() {
                entry.addresses.push(v4.ip().to_string());
            } else if let Some(v6) = address.as_sockaddr_in6() {
                entry.addresses.push(v6.ip().to_string());
            }
        }
    }
    seen.into_iter()
        .map(|(name, s)| {
            let mtu = std::fs::read_to_string(format!("/sys/class/net/{name}/mtu")).unwrap_or_default();
            let mtu: Option<u32> = mtu.trim().parse().ok();
            json!({"name": name, "mac": s.mac, "addresses": s.addresses, "mtu": mtu, "up": s.up})
        })
        .collect()
}
