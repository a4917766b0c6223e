//! DPDK as this program has it: its version, and the drivers that are built in.

use serde::{Deserialize, Serialize};

/// DPDK's version and drivers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Library {
    /// Such as `22.11.11`.
    pub version: String,
    /// Drivers that are part of this program. `None`: DPDK is linked as shared libraries, and loads drivers from its plug-in directory.
    pub built_in: Option<Vec<Driver>>,
}

/// A driver, as it describes itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Driver {
    /// Such as `net_ixgbe`.
    pub name: String,
    /// Kernel drivers that it works on, such as `* igb_uio | vfio-pci`.
    #[serde(default)]
    pub kmod: String,
    /// Vendor, device, subsystem's vendor and device of each NIC; 0xffff fits any.
    #[serde(default)]
    pub pci_ids: Vec<[u16; 4]>,
}

impl Library {
    /// That of this program.
    pub fn linked() -> Self {
        let version = dpdk::version();
        let version = version.strip_prefix("DPDK ").unwrap_or(&version).to_owned();
        Self { version, built_in: drivers(dpdk::built_in_drivers()) }
    }
}

/// The drivers of an array of their records; `None` for `null`.
fn drivers(records: &str) -> Option<Vec<Driver>> {
    let found: Option<Vec<Driver>> = serde_json::from_str(records).expect("the build wrote it");
    found.map(|mut all| {
        all.sort_by(|one, other| one.name.cmp(&other.name));
        all
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_version_is_a_number() {
        let found = Library::linked();
        assert!(found.version.starts_with(|first: char| first.is_ascii_digit()), "{}", found.version);
    }

    #[test]
    fn drivers_are_read_as_they_describe_themselves() {
        let igc = r#"{"name" : "net_igc", "kmod" : "* igb_uio | vfio-pci", "pci_ids" : [[32902, 5618, 65535, 65535]]}"#;
        let ring = r#"{"name" : "net_ring", "params" : "nodeaction=[attach|detach]", "pci_ids" : []}"#;
        let found = drivers(&format!("[{ring},{igc}]")).expect("an array");
        assert_eq!(found[0].name, "net_igc");
        assert_eq!(
            (found[0].kmod.as_str(), found[0].pci_ids[0]),
            ("* igb_uio | vfio-pci", [32902, 5618, 65535, 65535])
        );
        assert_eq!(
            (found[1].name.as_str(), found[1].kmod.as_str(), found[1].pci_ids.len()),
            ("net_ring", "", 0)
        );
        assert_eq!(drivers("null"), None);
    }
}
