//! Kea in a folder of its own, on `far`, in this thread's network namespace.

use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// The server's.
pub const ADDRESS: Ipv4Addr = Ipv4Addr::new(198, 51, 100, 1);
/// Of its leases, in seconds.
pub const LEASE: u32 = 600;
/// Longest wait until it serves.
const PATIENCE: Duration = Duration::from_secs(60);

/// A server; it ends with this.
pub struct Kea {
    process: Child,
    folder: TempDir,
}

impl Kea {
    /// Begin a network namespace with a cable in it, and Kea on its far end. None, and the test is skipped, where that cannot be.
    pub fn start() -> Option<Self> {
        let Some(program) = installed("kea-dhcp4") else {
            outcome::skipped("kea-dhcp4 is not installed");
            return None;
        };
        if !outcome::network_namespace() {
            return None;
        }
        sh("ip link set lo up");
        sh("ip link add near type veth peer name far");
        sh("ip link set near up");
        sh("ip link set far up");
        sh(&format!("ip address add {ADDRESS}/24 dev far"));

        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        // Copies, since AppArmor's rules are for the paths where they are installed, and deny folders of our own.
        std::fs::copy(&program, path("kea-dhcp4")).unwrap();
        let lfc = installed("kea-lfc").map(|lfc| std::fs::copy(lfc, path("kea-lfc")).unwrap());
        assert!(lfc.is_some(), "kea-lfc comes with kea-dhcp4");
        std::fs::write(path("kea.json"), configuration(&path("kea-leases4.csv"), &path("log"))).unwrap();
        let output = || Stdio::from(std::fs::File::create(path("output")).unwrap());
        let process = Command::new(path("kea-dhcp4"))
            .arg("-c")
            .arg(path("kea.json"))
            .env("KEA_PIDFILE_DIR", folder.path())
            .env("KEA_LOCKFILE_DIR", "none")
            .env("KEA_LFC_EXECUTABLE", path("kea-lfc"))
            .stdin(Stdio::null())
            .stdout(output())
            .stderr(output())
            .spawn()
            .unwrap();
        let mut kea = Self { process, folder };
        let began = Instant::now();
        while !kea.log().contains("DHCP4_STARTED") {
            let ended = kea.process.try_wait().unwrap();
            assert!(ended.is_none() && began.elapsed() < PATIENCE, "{ended:?}: {}", kea.log());
            std::thread::sleep(Duration::from_millis(20));
        }
        Some(kea)
    }

    /// Its lease file.
    pub fn leases(&self) -> PathBuf {
        self.folder.path().join("kea-leases4.csv")
    }

    /// Whether it cleaned its lease file up, and nothing of that goes on.
    pub fn cleaned_up(&self) -> bool {
        let there = |ending: &str| self.folder.path().join(format!("kea-leases4.csv{ending}")).exists();
        there(".2") && !there(".1")
    }

    /// What it said.
    pub fn log(&self) -> String {
        let read = |name: &str| std::fs::read_to_string(self.folder.path().join(name)).unwrap_or_default();
        read("output") + &read("log")
    }
}

impl Drop for Kea {
    fn drop(&mut self) {
        let _gone = self.process.kill().and_then(|()| self.process.wait());
    }
}

fn configuration(leases: &Path, log: &Path) -> String {
    serde_json::json!({"Dhcp4": {
        "interfaces-config": {"interfaces": ["far"], "dhcp-socket-type": "raw"},
        "lease-database": {"type": "memfile", "persist": true, "name": leases, "lfc-interval": 1},
        "valid-lifetime": LEASE,
        "authoritative": true,
        "subnet4": [{
            "id": 1,
            "subnet": "198.51.100.0/24",
            "pools": [{"pool": "198.51.100.10 - 198.51.100.20"}],
            "option-data": [{"name": "routers", "data": ADDRESS.to_string()}],
        }],
        "loggers": [{"name": "kea-dhcp4", "severity": "INFO", "output_options": [{"output": log}]}],
    }})
    .to_string()
}

fn installed(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = std::env::split_paths(&path).chain([PathBuf::from("/usr/sbin")]);
    folders.map(|folder| folder.join(program)).find(|path| path.is_file())
}

fn sh(command: &str) {
    let mut words = command.split_whitespace();
    let done = Command::new(words.next().unwrap()).args(words).output().unwrap();
    assert!(done.status.success(), "{command}: {}", String::from_utf8_lossy(&done.stderr));
}
