//! How a port with several queues is used: by lanes, each with elements of its own.
//!
//! Where the port can, it spreads what it receives over its queues by itself (RSS), with a hash that is the same for both
//! directions of a flow. That keeps a stream together only when its addresses and ports stay what they are: when a run
//! varies them, or the port has no RSS, one queue receives, and [`Distribute`](element::distribute) deals its frames out.

use dpdk::{Device, PortInfo};
use profile::Port;

/// How many of what a port has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QueuePairs {
    /// Generators, receivers, reflectors or forwarders.
    pub count: usize,
    /// Receive queues: one for each lane, or one for all.
    pub rx: usize,
    /// Transmit queues, likewise.
    pub tx: usize,
}

impl QueuePairs {
    /// As the port is asked for, and as it can. `steady`: no stream's addresses or ports vary.
    pub fn of(port: &Port, info: &PortInfo, steady: bool) -> Self {
        // One element holds all that is on its way.
        let steady = steady && port.impair.is_none();
        let count = usize::from(port.queues.max(1));
        let queues = usize::from(info.max_rx_queues.min(info.max_tx_queues));
        let (one, all) = (Self { count, rx: 1, tx: 1 }, Self { count, rx: count, tx: count });
        // Where receive and transmit queues come in pairs, one of either cannot be had alone.
        let paired = ["net_tap", "net_virtio"].iter().any(|driver| info.driver.starts_with(driver));
        match info.has_rss() && queues >= count {
            true if steady => all,
            true if !paired => Self { rx: 1, ..all },
            _ => one,
        }
    }

    /// As it will probably be: nobody asked the port yet.
    pub fn expected(port: &Port, steady: bool) -> Self {
        let (driver, max) = match port.device.parse() {
            Ok(Device::Pci(_)) => (String::new(), u16::MAX),
            Ok(Device::Virtual { driver, .. })
                if ["net_tap", "net_null"].iter().any(|d| driver.starts_with(d)) =>
            {
                (driver, u16::MAX)
            }
            _ => (String::new(), 1),
        };
        let info = PortInfo {
            driver,
            max_rx_queues: max,
            max_tx_queues: max,
            max_mtu: 0,
            interface: 0,
            tx_segments: u16::MAX,
            offers: vec!["rss"],
        };
        Self::of(port, &info, steady)
    }

    /// Whether the port itself deals frames out.
    pub fn rss(self) -> bool {
        self.rx > 1
    }

    /// Whether an element does.
    pub fn spread(self) -> bool {
        self.count > 1 && self.rx == 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queues_are_used_as_the_port_can_and_the_streams_allow() {
        let port: Port =
            serde_json::from_str(r#"{"name": "a", "device": "null", "queues": 4}"#).expect("a port");
        let of = |driver: &str, max: u16, offers: &[&'static str], steady| {
            let info = PortInfo {
                driver: driver.into(),
                max_rx_queues: max,
                max_tx_queues: max,
                max_mtu: 1500,
                interface: 0,
                tx_segments: u16::MAX,
                offers: offers.to_vec(),
            };
            let lanes = QueuePairs::of(&port, &info, steady);
            assert!(lanes.count == 4 && lanes.rss() != lanes.spread());
            (lanes.rx, lanes.tx)
        };
        assert_eq!(of("net_ice", 64, &["rss"], true), (4, 4));
        assert_eq!(of("net_ice", 64, &["rss"], false), (1, 4));
        assert_eq!(of("net_tap", 16, &["rss"], false), (1, 1));
        assert_eq!(of("net_ice", 3, &["rss"], true), (1, 1));
        assert_eq!(of("net_memif", 255, &[], true), (1, 1));
        let alone: Port = serde_json::from_str(r#"{"name": "a", "device": "null"}"#).expect("a port");
        let lanes = QueuePairs::expected(&alone, true);
        assert_eq!((lanes.count, lanes.rss(), lanes.spread()), (1, false, false));
    }
}
