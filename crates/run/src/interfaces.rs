//! Counters of the kernel's interfaces, as an independent witness.

use serde::Serialize;
use std::collections::BTreeMap;
use std::io;

/// Counters of one interface, since it came up or since an earlier look.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Interface {
    /// Packets received.
    pub rx_packets: u64,
    /// Bytes received, with Ethernet headers.
    pub rx_bytes: u64,
    /// Packets sent.
    pub tx_packets: u64,
    /// Bytes sent.
    pub tx_bytes: u64,
    /// Received packets dropped for want of room.
    pub rx_dropped: u64,
    /// Packets dropped before they were sent.
    pub tx_dropped: u64,
    /// Bad packets received.
    pub rx_errors: u64,
    /// Packets that could not be sent.
    pub tx_errors: u64,
    /// What the stacks counted that run over a port of our own, by name.
    #[serde(flatten)]
    pub stack: BTreeMap<String, u64>,
}

/// Every interface of this namespace, with its index.
pub fn names() -> Vec<(u32, String)> {
    let Ok(all) = nix::net::if_::if_nameindex() else { return Vec::new() };
    all.iter().map(|one| (one.index(), one.name().to_string_lossy().into_owned())).collect()
}

impl Interface {
    /// What was counted since `earlier`.
    pub fn since(&self, earlier: &Interface) -> Interface {
        let d = |a: u64, b: u64| a.saturating_sub(b);
        Interface {
            rx_packets: d(self.rx_packets, earlier.rx_packets),
            rx_bytes: d(self.rx_bytes, earlier.rx_bytes),
            tx_packets: d(self.tx_packets, earlier.tx_packets),
            tx_bytes: d(self.tx_bytes, earlier.tx_bytes),
            rx_dropped: d(self.rx_dropped, earlier.rx_dropped),
            tx_dropped: d(self.tx_dropped, earlier.tx_dropped),
            rx_errors: d(self.rx_errors, earlier.rx_errors),
            tx_errors: d(self.tx_errors, earlier.tx_errors),
            stack: (self.stack.iter())
                .map(|(name, n)| (name.clone(), d(*n, earlier.stack.get(name).copied().unwrap_or(0))))
                .collect(),
        }
    }
}

/// Counters by interface name.
pub type Interfaces = BTreeMap<String, Interface>;

/// The interfaces of this process's network namespace, now.
pub fn read() -> io::Result<Interfaces> {
    // thread-self, not net: a daemon started in a namespace sees that namespace's
    Ok(parse(&std::fs::read_to_string("/proc/thread-self/net/dev")?))
}

/// What changed from `before` to `after`; interfaces that came between count from zero.
pub fn between(before: &Interfaces, after: &Interfaces) -> Interfaces {
    after
        .iter()
        .map(|(name, now)| (name.clone(), now.since(before.get(name).unwrap_or(&Interface::default()))))
        .collect()
}

fn parse(text: &str) -> Interfaces {
    text.lines()
        .filter_map(|line| {
            let (name, numbers) = line.split_once(':')?;
            let n: Vec<u64> = numbers.split_whitespace().map_while(|w| w.parse().ok()).collect();
            let &[
                rx_bytes,
                rx_packets,
                rx_errors,
                rx_dropped,
                _,
                _,
                _,
                _,
                tx_bytes,
                tx_packets,
                tx_errors,
                tx_dropped,
                ..,
            ] = n.as_slice()
            else {
                return None;
            };
            let counters = Interface {
                rx_packets,
                rx_bytes,
                tx_packets,
                tx_bytes,
                rx_dropped,
                tx_dropped,
                rx_errors,
                tx_errors,
                stack: BTreeMap::new(),
            };
            Some((name.trim().to_owned(), counters))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_table_is_read() {
        let table = "Inter-|   Receive  |  Transmit\n face |bytes packets errs drop fifo frame compressed multicast|bytes\n    \
                     lo:  100  2 0 1 0 0 0 0  300 4 5 6 0 0 0 0\n  bad: 1 2 3\n";
        let found = parse(table);
        assert_eq!(found.len(), 1);
        let lo = &found["lo"];
        assert_eq!((lo.rx_bytes, lo.rx_packets, lo.rx_dropped), (100, 2, 1));
        assert_eq!((lo.tx_bytes, lo.tx_packets, lo.tx_errors, lo.tx_dropped), (300, 4, 5, 6));
        assert!(read().expect("proc").contains_key("lo"));
    }
}
