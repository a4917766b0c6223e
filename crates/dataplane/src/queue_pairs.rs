//! How a port with several queues is used: by queue pairs, each with elements of its own.
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
    /// Receive queues: one for each pair, or one for all.
    pub rx: usize,
    /// Transmit queues, likewise.
    pub tx: usize,
}

/// How many queues of a port a graph names; `None`: all that there are.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct NamedQueues {
    /// Receive queues.
    pub rx: Option<usize>,
    /// Transmit queues.
    pub tx: Option<usize>,
}

impl QueuePairs {
    /// As a graph names them, and as the port can: several that receive need RSS, or a file each. What is there in the end is checked when
    /// elements are put on them.
    pub fn from_graph(port: &Port, info: &PortInfo, named: NamedQueues) -> Self {
        let all = usize::from(port.queues.max(1));
        let (rx, tx) = (named.rx.unwrap_or(all), named.tx.unwrap_or(all));
        // Whoever gives a file for each queue has dealt the frames out, and so has the other end of a memif.
        let dealt = ["net_pcap", "net_memif"].iter().any(|driver| info.driver.starts_with(driver));
        let spreads = info.has_rss() || dealt;
        let spreads = spreads && usize::from(info.max_rx_queues) >= rx;
        let rx = if spreads { rx } else { 1 };
        let tx = match tx {
            // Those that nobody counted are as many as those that receive.
            _ if named.tx.is_none() && rx == 1 => 1,
            _ if is_paired(info) => rx,
            tx if usize::from(info.max_tx_queues) >= tx => tx,
            _ => 1,
        };
        Self { count: rx.max(tx), rx, tx }
    }

    /// A queue to send by for each of so many workers, as far as the port has them, and as many to receive where it can have those: workers
    /// hand on what they receive for another.
    pub fn for_workers(workers: usize, info: &PortInfo) -> Self {
        let tx = workers.min(info.max_tx_queues.into()).max(1);
        let receives = usize::from(info.max_rx_queues) >= tx;
        Self {
            count: tx,
            rx: if receives { tx } else { 1 },
            tx: if receives || !is_paired(info) { tx } else { 1 },
        }
    }

    /// As the port is asked for, and as it can. `steady`: no stream's addresses or ports vary.
    pub fn of(port: &Port, info: &PortInfo, steady: bool) -> Self {
        // One element holds all that is on its way.
        let steady = steady && port.impair.is_none();
        let count = usize::from(port.queues.max(1));
        let queues = usize::from(info.max_rx_queues.min(info.max_tx_queues));
        let (one, all) = (Self { count, rx: 1, tx: 1 }, Self { count, rx: count, tx: count });
        match info.has_rss() && queues >= count {
            true if steady => all,
            true if !is_paired(info) => Self { rx: 1, ..all },
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
    pub fn distributes(self) -> bool {
        self.count > 1 && self.rx == 1
    }
}

/// Where receive and transmit queues come in pairs, one of either cannot be had alone.
fn is_paired(info: &PortInfo) -> bool {
    ["net_tap", "net_virtio"].iter().any(|driver| info.driver.starts_with(driver))
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
            assert!(lanes.count == 4 && lanes.rss() != lanes.distributes());
            (lanes.rx, lanes.tx)
        };
        assert_eq!(of("net_ice", 64, &["rss"], true), (4, 4));
        assert_eq!(of("net_ice", 64, &["rss"], false), (1, 4));
        assert_eq!(of("net_tap", 16, &["rss"], false), (1, 1));
        assert_eq!(of("net_ice", 3, &["rss"], true), (1, 1));
        assert_eq!(of("net_memif", 255, &[], true), (1, 1));
        let info = |driver: &str, max, offers: &[&'static str]| PortInfo {
            driver: driver.into(),
            max_rx_queues: max,
            max_tx_queues: max,
            max_mtu: 1500,
            interface: 0,
            tx_segments: u16::MAX,
            offers: offers.to_vec(),
        };
        let named = |info: &PortInfo, rx, tx| {
            let pairs = QueuePairs::from_graph(&port, info, NamedQueues { rx, tx });
            (pairs.rx, pairs.tx)
        };
        let (nic, tap, memif) =
            (info("net_ice", 64, &["rss"]), info("net_tap", 16, &["rss"]), info("net_memif", 255, &[]));
        assert_eq!(named(&nic, None, None), (4, 4));
        assert_eq!(named(&nic, Some(1), Some(3)), (1, 3));
        assert_eq!((named(&tap, Some(1), Some(3)), named(&tap, Some(2), Some(2))), ((1, 1), (2, 2)));
        assert_eq!((named(&memif, None, None), named(&memif, Some(1), Some(4))), ((4, 4), (1, 4)));
        assert_eq!(named(&info("net_pcap", 2, &[]), Some(2), Some(2)), (2, 2));
        assert_eq!(named(&info("net_pcap", 1, &[]), Some(2), Some(2)), (1, 1), "one file");
        let workers = |info: &PortInfo| {
            let pairs = QueuePairs::for_workers(4, info);
            (pairs.rx, pairs.tx)
        };
        assert_eq!([&nic, &tap, &memif].map(workers), [(4, 4); 3]);
        assert_eq!(workers(&info("net_ring", 1, &[])), (1, 1));
        assert_eq!(workers(&PortInfo { max_rx_queues: 1, ..info("net_ice", 64, &[]) }), (1, 4));
        let alone: Port = serde_json::from_str(r#"{"name": "a", "device": "null"}"#).expect("a port");
        let lanes = QueuePairs::expected(&alone, true);
        assert_eq!((lanes.count, lanes.rss(), lanes.distributes()), (1, false, false));
    }
}
