//! What traffic can leave by.

use nix::ifaddrs::getifaddrs;
use nix::net::if_::InterfaceFlags;
use profile::Dpdk;
use serde::Serialize;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// A port. What is not known of it is `None`.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Port {
    name: String,
    /// `kernel` or `dpdk`.
    kind: &'static str,
    /// Where it sits, such as a PCI address; for DPDK the device of the profile.
    device: Option<String>,
    mac: Option<String>,
    numa: Option<u16>,
    driver: Option<String>,
    /// Whether it is up.
    link: Option<bool>,
}

/// One of the kernel's interfaces.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Interface {
    name: String,
    mac: Option<String>,
    addresses: Vec<String>,
    mtu: Option<u32>,
    up: bool,
}

/// The kernel's interfaces in this namespace.
pub fn interfaces() -> Vec<Interface> {
    let mut seen: BTreeMap<String, Interface> = BTreeMap::new();
    for one in getifaddrs().into_iter().flatten() {
        let entry = seen.entry(one.interface_name.clone()).or_insert_with(|| Interface {
            mtu: read(&folder(&one.interface_name).join("mtu")),
            name: one.interface_name,
            ..Interface::default()
        });
        entry.up |= one.flags.contains(InterfaceFlags::IFF_UP | InterfaceFlags::IFF_RUNNING);
        let Some(address) = one.address else { continue };
        if let Some(link) = address.as_link_addr() {
            let bytes = link.addr().unwrap_or_default();
            entry.mac = Some(bytes.map(|b| format!("{b:02x}")).join(":"));
        } else if let Some(v4) = address.as_sockaddr_in() {
            entry.addresses.push(v4.ip().to_string());
        } else if let Some(v6) = address.as_sockaddr_in6() {
            entry.addresses.push(v6.ip().to_string());
        }
    }
    seen.into_values().collect()
}

/// The kernel's interfaces as ports.
pub fn kernel() -> Vec<Port> {
    interfaces()
        .into_iter()
        .map(|interface| {
            let device = folder(&interface.name).join("device");
            let name = |path: std::io::Result<PathBuf>| {
                path.ok().as_deref().and_then(Path::file_name).map(|name| name.to_string_lossy().into_owned())
            };
            Port {
                kind: "kernel",
                device: name(device.canonicalize()),
                numa: read(&device.join("numa_node")), // -1: none
                driver: name(device.join("driver").read_link()),
                link: Some(interface.up),
                mac: interface.mac,
                name: interface.name,
            }
        })
        .collect()
}

/// The ports that a profile names. What DPDK knows of them is seen when they are open.
pub fn dpdk(settings: &Dpdk) -> Vec<Port> {
    settings
        .ports
        .iter()
        .map(|port| Port {
            name: port.name.clone(),
            kind: "dpdk",
            device: Some(port.device.clone()),
            mac: port.mac.clone(),
            numa: None,
            driver: None,
            link: None,
        })
        .collect()
}

fn folder(interface: &str) -> PathBuf {
    Path::new("/sys/class/net").join(interface)
}

fn read<T: std::str::FromStr>(file: &Path) -> Option<T> {
    std::fs::read_to_string(file).ok()?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loopback_is_there() {
        let interfaces = interfaces();
        let lo = interfaces.iter().find(|i| i.name == "lo").unwrap();
        assert!(lo.up && lo.mtu.is_some() && lo.addresses.contains(&"127.0.0.1".to_owned()), "{lo:?}");
        let ports = kernel();
        assert_eq!(ports.len(), interfaces.len());
        let lo = ports.iter().find(|p| p.name == "lo").unwrap();
        assert_eq!((lo.kind, lo.link, &lo.device, lo.numa), ("kernel", Some(true), &None, None));
    }
}
