//! What a port changes of the kernel's interface below it is put back when the port closes.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod common;

use common::{alone, eal, ip};
use dpdk::{Mempool, Port, PortConfig};
use std::process::Command;

/// Flags, MTU and address, and a program of XDP, as `ip` has them.
fn shown() -> String {
    let shown = Command::new("ip").args(["-o", "link", "show", "left"]).output().unwrap();
    String::from_utf8(shown.stdout).unwrap()
}

fn put_back(device: &str, promiscuous: bool) {
    if let Err(why) = alone() {
        return outcome::skipped(why);
    }
    ip("link add left type veth peer name right");
    ip("link set left up");
    ip("link set right up");
    if promiscuous {
        ip("link set left promisc on");
    }
    let before = shown();
    assert_eq!(before.contains("PROMISC"), promiscuous, "{before}");
    let pool = Mempool::new(eal(), 4_096, 2_048).unwrap();
    let port = Port::open(eal(), device).unwrap();
    let config = PortConfig { mtu: 1_400, mac: Some([2, 0, 0, 0, 0, 9]), ..PortConfig::default() };
    let queues = port.start(&config, &pool).unwrap();
    let meanwhile = shown();
    assert!(meanwhile.contains("PROMISC") && meanwhile.contains("mtu 1400"), "{meanwhile}");
    // DPDK's af_xdp leaves the address as it is.
    assert_eq!(meanwhile.contains("02:00:00:00:00:09"), device.starts_with("af_packet"), "{meanwhile}");
    drop((port, queues));
    assert_eq!(shown(), before);
}

#[test]
fn of_af_packet() {
    put_back("af_packet:left", false);
}

#[test]
fn of_af_xdp() {
    put_back("af_xdp:left", false);
}

#[test]
fn what_was_promiscuous_before_stays_so() {
    put_back("af_packet:left", true);
}
