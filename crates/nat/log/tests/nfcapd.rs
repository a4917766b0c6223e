//! What nfcapd, a collector that is not ours, stores of a log.

use crate::common::{AT, events, listens};
use nat_log::{Logger, Sender, Transport, ipfix, queue};
use std::net::{Ipv4Addr, UdpSocket};
use std::path::Path;
use std::process::{Child, Command, Stdio};

/// nfcapd on a port of its own; it ends with this.
struct Collector {
    child: Child,
    port: u16,
}

impl Drop for Collector {
    fn drop(&mut self) {
        let _ended = self.child.kill();
        let _reaped = self.child.wait();
    }
}

impl Collector {
    fn start(folder: &Path) -> Option<Self> {
        let port =
            UdpSocket::bind("127.0.0.1:0").and_then(|socket| socket.local_addr()).expect("a port").port();
        let child = Command::new("nfcapd")
            .args(["-b", "127.0.0.1", "-p", &port.to_string(), "-w"])
            .arg(folder)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        let Ok(child) = child else {
            outcome::skipped("nfcapd is not installed");
            return None;
        };
        let mut collector = Self { child, port };
        while !listens(port) {
            assert!(collector.child.try_wait().expect("a child").is_none(), "nfcapd ended");
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
        Some(collector)
    }

    /// Whether it has read what it was sent, and waits for more.
    fn waits(&self) -> bool {
        let state = std::fs::read_to_string(format!("/proc/{}/stat", self.child.id())).expect("a process");
        listens(self.port) && state.contains(") S ")
    }

    /// Have it write its file.
    fn stop(mut self) {
        while !self.waits() {
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
        let id = self.child.id().to_string();
        assert!(Command::new("kill").args(["-TERM", &id]).status().expect("kill").success());
        self.child.wait().expect("a child");
    }
}

#[test]
fn sessions_and_mappings_are_read_back() {
    let folder = tempfile::tempdir().expect("a folder");
    let Some(collector) = Collector::start(folder.path()) else { return };
    let (mut producer, consumer) = queue(64);
    let exporter = ipfix::Exporter::new(ipfix::Config::default()).expect("a configuration");
    let sender = Sender::new(Transport::Udp, (Ipv4Addr::LOCALHOST, collector.port).into());
    let mut logger = Logger::new(exporter, sender, vec![consumer]);
    for event in events() {
        assert!(producer.push(event));
    }
    assert_eq!(logger.turn(AT), 14);
    collector.stop();
    let nfdump = Command::new("nfdump").arg("-R").arg(folder.path()).args(["-o", "raw"]).output();
    let text = String::from_utf8(nfdump.expect("nfdump").stdout).expect("UTF-8");
    let records: Vec<Vec<(&str, &str)>> = text
        .split("Flow Record:")
        .skip(1)
        .map(|record| record.lines().filter_map(|line| line.split_once('=')).collect())
        .map(|fields: Vec<_>| fields.iter().map(|(name, value)| (name.trim(), value.trim())).collect())
        .collect();
    // It keeps records that have an address, and of natEvent the number.
    let events = ["4", "5", "0", "8", "9", "16", "17"];
    for (record, event) in records.iter().zip(events) {
        let has = |name, value: &str| {
            assert!(record.contains(&(name, value)), "{name} {value}: {record:?}");
        };
        let number = record.iter().find(|(name, _)| *name == "nat event").map(|(_, value)| *value);
        assert_eq!(number.and_then(|value| value.split(':').next()), Some(event), "{record:?}");
        has("src addr", "10.0.0.7");
        has("src xlt ip", "192.0.2.1");
        if !event.starts_with('1') {
            has("src port", "40000");
            has("src xlt port", "1024");
        }
        if ["4", "5"].contains(&event) {
            has("proto", "6 TCP");
            has("dst addr", "198.51.100.9");
            has("dst port", "443");
        }
        let at = record.iter().find(|(name, _)| *name == "Event time").map(|(_, value)| *value);
        assert!(at.is_some_and(|at| at.starts_with(&AT.to_string())), "{record:?}");
    }
    assert!(records.len() >= events.len(), "{text}");
}
