//! What a port changes of the kernel's interface below it is put back when the port closes.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use crate::common::{alone, eal, ip};
use dpdk::{Mempool, Port, PortConfig, RxQueue, TxQueue};
use std::process::Command;

/// Flags, MTU and address, a program of XDP, and how many keep it promiscuous, as `ip` has them.
fn shown() -> String {
    let shown = Command::new("ip").args(["-o", "-d", "link", "show", "left"]).output().unwrap();
    String::from_utf8(shown.stdout).unwrap()
}

fn cable() {
    ip("link add left type veth peer name right");
    ip("link set left up");
    ip("link set right up");
}

/// A port that changes what it can, and its queues.
fn opened(device: &str, pool: &Mempool) -> impl Drop {
    struct Opened(Option<(Port, Vec<RxQueue>, Vec<TxQueue>)>);
    impl Drop for Opened {
        fn drop(&mut self) {
            self.0.take();
        }
    }
    let port = Port::open(eal(), device).unwrap();
    let config = PortConfig { mtu: 1_400, mac: Some([2, 0, 0, 0, 0, 9]), ..PortConfig::default() };
    let (rx, tx) = port.start(&config, pool).unwrap();
    Opened(Some((port, rx, tx)))
}

fn put_back(device: &str, by_user: bool) {
    if let Err(why) = alone() {
        return outcome::skipped(why);
    }
    cable();
    if by_user {
        ip("link set left promisc on");
    }
    let before = shown();
    assert!(before.contains(&format!(" promiscuity {} ", u8::from(by_user))), "{before}");
    let pool = Mempool::new(eal(), 4_096, 2_048).unwrap();
    let port = opened(device, &pool);
    let meanwhile = shown();
    let wanted = format!(" promiscuity {} ", 1 + u8::from(by_user));
    assert!(meanwhile.contains(&wanted) && meanwhile.contains("mtu 1400"), "{meanwhile}");
    assert_eq!(meanwhile.contains("PROMISC"), by_user, "{meanwhile}");
    // DPDK's af_xdp leaves the address as it is.
    assert_eq!(meanwhile.contains("02:00:00:00:00:09"), device.starts_with("af_packet"), "{meanwhile}");
    drop(port);
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

#[test]
fn what_somebody_else_has_changed_meanwhile_stays() {
    if let Err(why) = alone() {
        return outcome::skipped(why);
    }
    cable();
    let pool = Mempool::new(eal(), 4_096, 2_048).unwrap();
    let port = opened("af_packet:left", &pool);
    ip("link set left mtu 1300 promisc on address 02:00:00:00:00:77");
    drop(port);
    let after = shown();
    assert!(["mtu 1300", "PROMISC", "02:00:00:00:00:77"].iter().all(|one| after.contains(one)), "{after}");
}

/// The first of two ports to close leaves the interface promiscuous for the other; the last leaves it as it was.
#[test]
fn two_ports_over_one_interface() {
    if let Err(why) = alone() {
        return outcome::skipped(why);
    }
    for first_closes in [true, false] {
        cable();
        let before = shown();
        let pool = Mempool::new(eal(), 8_192, 2_048).unwrap();
        let (one, other) = (opened("af_packet:left", &pool), opened("af_packet:left", &pool));
        assert!(shown().contains(" promiscuity 2 "), "{}", shown());
        let (first, last) = if first_closes { (one, other) } else { (other, one) };
        drop(first);
        assert!(shown().contains(" promiscuity 1 "), "{}", shown());
        drop(last);
        assert_eq!(shown(), before);
        ip("link del left");
    }
}
