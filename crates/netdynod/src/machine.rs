//! What this machine lets the daemon do.

use nix::sys::resource::{Resource, getrlimit};
use serde::Serialize;
use std::path::Path;

/// Open files that are allowed.
pub fn nofile() -> u64 {
    getrlimit(Resource::RLIMIT_NOFILE).map_or(0, |(_, hard)| hard)
}

/// What the process may do besides what anybody may.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Rights {
    /// `CAP_NET_RAW`: capture, raw ICMP.
    net_raw: bool,
    /// `CAP_NET_ADMIN`: taps, interfaces.
    net_admin: bool,
}

/// As the kernel has them.
pub fn rights() -> Rights {
    effective(&std::fs::read_to_string("/proc/self/status").unwrap_or_default())
}

/// From the text of proc_pid_status(5); numbers of capabilities(7) are in linux/capability.h.
fn effective(status: &str) -> Rights {
    let line = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    let set = line.and_then(|hex| u64::from_str_radix(hex.trim(), 16).ok()).unwrap_or(0);
    let has = |number: u32| set >> number & 1 == 1;
    Rights { net_admin: has(12), net_raw: has(13) }
}

/// Huge pages of one size.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct HugePages {
    /// Bytes of each.
    size: u64,
    total: u64,
    free: u64,
}

/// Huge pages by size; none where the kernel has none.
pub fn huge_pages() -> Vec<HugePages> {
    huge_pages_in(Path::new("/sys/kernel/mm/hugepages"))
}

fn huge_pages_in(folder: &Path) -> Vec<HugePages> {
    let mut all: Vec<HugePages> = std::fs::read_dir(folder)
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| {
            let name = entry.file_name();
            let kib = name.to_str()?.strip_prefix("hugepages-")?.strip_suffix("kB")?.parse::<u64>().ok()?;
            let read = |file: &str| {
                let text = std::fs::read_to_string(entry.path().join(file)).ok()?;
                text.trim().parse().ok()
            };
            Some(HugePages { size: kib * 1024, total: read("nr_hugepages")?, free: read("free_hugepages")? })
        })
        .collect();
    all.sort_by_key(|pages| pages.size);
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rights_are_read_from_the_effective_set() {
        let status = |set: &str| format!("Name:\tx\nCapPrm:\tffffffffffffffff\nCapEff:\t{set}\nCapBnd:\t0\n");
        let rights = |set| effective(&status(set));
        assert_eq!(rights("0000000000003000"), Rights { net_raw: true, net_admin: true });
        assert_eq!(rights("0000000000002000"), Rights { net_raw: true, net_admin: false });
        assert_eq!(rights("ffffffffffffcfff"), Rights { net_raw: false, net_admin: false });
        assert_eq!(effective(""), Rights { net_raw: false, net_admin: false });
    }

    #[test]
    fn huge_pages_are_listed_by_size() {
        let folder = tempfile::tempdir().unwrap();
        for (name, total, free) in
            [("hugepages-1048576kB", "2\n", "1\n"), ("hugepages-2048kB", "512\n", "0\n")]
        {
            let one = folder.path().join(name);
            std::fs::create_dir(&one).unwrap();
            std::fs::write(one.join("nr_hugepages"), total).unwrap();
            std::fs::write(one.join("free_hugepages"), free).unwrap();
        }
        let found = huge_pages_in(folder.path());
        let small = HugePages { size: 2 << 20, total: 512, free: 0 };
        assert_eq!(found, [small, HugePages { size: 1 << 30, total: 2, free: 1 }]);
        assert_eq!(huge_pages_in(&folder.path().join("none")), []);
    }
}
