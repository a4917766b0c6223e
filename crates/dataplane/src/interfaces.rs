//! What ports count, as results and views have it: as what the kernel counts of its interfaces.

use dpdk::Port;
use engine::ElementStats;
use profile::graph::{Direction, queue};
use run::interfaces::{Interface, Interfaces};
use std::collections::BTreeMap;

/// The counters of these ports since they were opened; `elements` are those of their graph.
pub fn interfaces(ports: &[(String, Port)], elements: &[ElementStats]) -> Interfaces {
    let bytes = |name: &str, wanted: Direction| -> u64 {
        // Of several queues under one name each has a number.
        let is = |e: &&ElementStats| {
            let element = e.name.split('#').next().unwrap_or_default();
            matches!(queue(element), Some((port, direction, _)) if port == name && direction == wanted)
        };
        elements.iter().filter(is).map(|e| e.bytes).sum()
    };
    let read = |(name, port): &(String, Port)| {
        let stats = port.stats();
        // Some virtual ports count no bytes; their elements do.
        let or = |own: u64, element| if own > 0 { own } else { bytes(name, element) };
        let interface = Interface {
            rx_packets: stats.rx_packets,
            rx_bytes: or(stats.rx_bytes, Direction::Receive),
            tx_packets: stats.tx_packets,
            tx_bytes: or(stats.tx_bytes, Direction::Transmit),
            rx_dropped: stats.rx_missed + stats.rx_no_memory,
            tx_dropped: stats.tx_unfit,
            rx_errors: stats.rx_errors,
            tx_errors: stats.tx_errors,
            stack: BTreeMap::new(),
        };
        (name.clone(), interface)
    };
    ports.iter().map(read).collect()
}
