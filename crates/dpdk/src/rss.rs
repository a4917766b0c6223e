//! How ports spread what they receive over their queues.

use dpdk_sys::rte_eth_rss_reta_entry64 as Group;
use packet::rss::{self, By};

/// Repeated, it makes Toeplitz hashes of a flow's two directions equal, as it is the same for both sides' addresses
/// and ports (S. Woo, K. Park: Scalable TCP session monitoring with symmetric receive-side scaling).
const SYMMETRIC: [u8; 2] = [0x6d, 0x5a];
/// Longest key that any port wants.
const KEY_MAX: usize = 256;
/// Entries of a RETA that are told together.
const GROUP: usize = 64;
/// Most entries that any port has.
const TABLE_MAX: usize = 2048;

/// By what a frame's queue is found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Rss {
    /// All frames of a flow, and of the way back, are on one queue.
    #[default]
    Flow,
    /// All frames from one IPv4 address, or to one, are on the queue that [`rss::queue`] says, where [`crate::Port::goes_by_address`].
    Address(By),
}

impl Rss {
    /// The key of the hash, as long as any port wants it.
    pub(crate) fn key(self) -> [u8; KEY_MAX] {
        match self {
            Rss::Flow => std::array::from_fn(|i| SYMMETRIC[i % SYMMETRIC.len()]),
            Rss::Address(by) => {
                let mut key = [0; KEY_MAX];
                let given = by.key();
                key[..given.len()].copy_from_slice(&given);
                key
            }
        }
    }

    /// Tell a started port which queue each entry of its redirection table (RETA) leads to: whether it goes by addresses then. One that cannot be told spreads
    /// frames otherwise; who goes by the queue must hand on what is another's.
    pub(crate) fn set_reta(port: u16, entries: u16, queues: u16) -> bool {
        let size = usize::from(entries);
        if !(rss::BUCKETS..=TABLE_MAX).contains(&size) || size % rss::BUCKETS != 0 {
            tracing::warn!("port {port} does not go by addresses: its RETA has {size} entries");
            return false;
        }
        let mut wanted: Vec<Group> = (0..size / GROUP)
            .map(|group| Group {
                mask: u64::MAX,
                reta: std::array::from_fn(|i| rss::entry(group * GROUP + i, queues.into()) as u16),
            })
            .collect();
        let mut set: Vec<Group> = vec![Group { mask: u64::MAX, reta: [0; GROUP] }; wanted.len()];
        // SAFETY: the port is open and started, and both tables have a group for each 64 of its entries.
        let code = unsafe {
            match dpdk_sys::rte_eth_dev_rss_reta_update(port, wanted.as_mut_ptr(), entries) {
                0.. => dpdk_sys::rte_eth_dev_rss_reta_query(port, set.as_mut_ptr(), entries),
                why => why,
            }
        };
        let same = code >= 0 && set.iter().map(|group| group.reta).eq(wanted.iter().map(|group| group.reta));
        if !same {
            tracing::warn!("port {port} does not go by addresses: its RETA could not be set ({code})");
        }
        same
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_as_long_as_any_port_wants() {
        assert_eq!(Rss::Flow.key()[..4], [0x6d, 0x5a, 0x6d, 0x5a]);
        let by = Rss::Address(By::Source).key();
        assert_eq!((&by[..40], by[40..].iter().any(|byte| *byte != 0)), (&By::Source.key()[..], false));
    }
}
