//! Work that a port may do by itself, and how it is told to.

use crate::info::PortInfo;
use dpdk_sys as sys;

/// What a port may offer to do, as it says in its receive and transmit capabilities.
const OFFERS: [(&str, u64, u64); 11] = [
    ("rx ipv4 checksum", sys::ND_RX_OFFLOAD_IPV4_CKSUM, 0),
    ("rx udp checksum", sys::ND_RX_OFFLOAD_UDP_CKSUM, 0),
    ("rx tcp checksum", sys::ND_RX_OFFLOAD_TCP_CKSUM, 0),
    ("rx vlan strip", sys::ND_RX_OFFLOAD_VLAN_STRIP, 0),
    ("rx timestamp", sys::ND_RX_OFFLOAD_TIMESTAMP, 0),
    ("tx ipv4 checksum", 0, sys::ND_TX_OFFLOAD_IPV4_CKSUM),
    ("tx udp checksum", 0, sys::ND_TX_OFFLOAD_UDP_CKSUM),
    ("tx tcp checksum", 0, sys::ND_TX_OFFLOAD_TCP_CKSUM),
    ("tx vlan insert", 0, sys::ND_TX_OFFLOAD_VLAN_INSERT),
    ("tso", 0, sys::ND_TX_OFFLOAD_TCP_TSO),
    ("tx fast free", 0, sys::ND_TX_OFFLOAD_MBUF_FAST_FREE),
];

/// The names of what a port offers.
pub(crate) fn offers(info: &sys::rte_eth_dev_info) -> Vec<&'static str> {
    let has = |(_, rx, tx): &&(_, u64, u64)| info.rx_offload_capa & rx | info.tx_offload_capa & tx != 0;
    let rss = (info.flow_type_rss_offloads & sys::ND_RSS != 0).then_some("rss");
    OFFERS.iter().filter(has).map(|(name, ..)| *name).chain(rss).collect()
}

/// Work for a port: what it offers, or what it is to do.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Offloads {
    /// It looks at the UDP and TCP checksums of what it receives: [`Mbuf::checksum`](crate::Mbuf::checksum).
    pub rx_checksum: bool,
    /// It makes the UDP and TCP checksums of packets that [ask for it](crate::Mbuf::request_tx_offload).
    pub tx_checksum: bool,
    /// And those of IPv4 headers.
    pub tx_ipv4_checksum: bool,
    /// It takes 802.1Q tags out of what it receives; [`RxQueue::receive`](crate::RxQueue::receive) puts them back.
    pub vlan_strip: bool,
    /// It puts 802.1Q tags into what it sends; [`TxQueue::send`](crate::TxQueue::send) takes them out.
    pub vlan_insert: bool,
    /// It segments TCP; so it makes their checksums.
    pub tso: bool,
    /// It stamps what it receives: [`Port::stamps`](crate::Port::stamps).
    pub rx_timestamp: bool,
}

impl Offloads {
    /// What a port offers of these kinds.
    pub fn of(info: &PortInfo) -> Self {
        let all = |names: &[&str]| names.iter().all(|name| info.offers.contains(name));
        Self {
            rx_checksum: all(&["rx udp checksum", "rx tcp checksum"]),
            tx_checksum: all(&["tx udp checksum", "tx tcp checksum"]),
            tx_ipv4_checksum: all(&["tx ipv4 checksum"]),
            vlan_strip: all(&["rx vlan strip"]),
            vlan_insert: all(&["tx vlan insert"]),
            tso: all(&["tso", "tx tcp checksum"]),
            rx_timestamp: all(&["rx timestamp"]),
        }
    }

    /// These by the names that the port has for them.
    pub fn names(self, info: &PortInfo) -> Vec<&'static str> {
        let (rx, tx) = self.bits((u64::MAX, u64::MAX));
        let does = OFFERS.into_iter().filter(|(_, receive, send)| receive & rx | send & tx != 0);
        does.map(|(name, ..)| name).filter(|name| info.offers.contains(name)).collect()
    }

    /// Whether packets that are sent need to be made ready for it.
    pub(crate) fn sending(self) -> bool {
        self.tx_checksum || self.tx_ipv4_checksum || self.vlan_insert || self.tso
    }

    /// As DPDK numbers it, of a port with these capabilities: receiving and sending.
    pub(crate) fn bits(self, (rx, tx): (u64, u64)) -> (u64, u64) {
        let pick = |wanted: bool, bits: u64| if wanted { bits } else { 0 };
        let rx_checksum =
            sys::ND_RX_OFFLOAD_UDP_CKSUM | sys::ND_RX_OFFLOAD_TCP_CKSUM | rx & sys::ND_RX_OFFLOAD_IPV4_CKSUM;
        let ipv4 = tx & sys::ND_TX_OFFLOAD_IPV4_CKSUM;
        let tx_checksum = sys::ND_TX_OFFLOAD_UDP_CKSUM | sys::ND_TX_OFFLOAD_TCP_CKSUM;
        let rx = pick(self.rx_checksum, rx_checksum)
            | pick(self.vlan_strip, sys::ND_RX_OFFLOAD_VLAN_STRIP)
            | pick(self.rx_timestamp, sys::ND_RX_OFFLOAD_TIMESTAMP);
        let tx = pick(self.tx_checksum, tx_checksum)
            | pick(self.tx_ipv4_checksum, ipv4)
            | pick(self.vlan_insert, sys::ND_TX_OFFLOAD_VLAN_INSERT)
            | pick(self.tso, sys::ND_TX_OFFLOAD_TCP_TSO | sys::ND_TX_OFFLOAD_TCP_CKSUM | ipv4);
        (rx, tx)
    }
}

/// Where the headers of a packet end that a port has work with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Headers {
    /// Bytes before the IP header, at most 127.
    pub l2: u8,
    /// Bytes of the IP header, at most 511.
    pub l3: u16,
    /// Bytes of the UDP or TCP header.
    pub l4: u8,
    /// Whether it is IPv6.
    pub v6: bool,
    /// Whether it is TCP, else UDP.
    pub tcp: bool,
}

/// What the port is to do with a packet before it sends it: see [`Mbuf::request_tx_offload`](crate::Mbuf::request_tx_offload).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TxWork {
    pub(crate) flags: u64,
    pub(crate) lengths: u64,
}

impl TxWork {
    /// To make the checksum of UDP or TCP, and with `ipv4` that of an IPv4 header.
    pub fn checksums(headers: &Headers, ipv4: bool) -> Self {
        let l4 = if headers.tcp { sys::ND_TX_TCP_CKSUM } else { sys::ND_TX_UDP_CKSUM };
        let ip = match (headers.v6, ipv4) {
            (true, _) => sys::ND_TX_IPV6,
            (false, true) => sys::ND_TX_IPV4 | sys::ND_TX_IPV4_CKSUM,
            (false, false) => sys::ND_TX_IPV4,
        };
        let at = |value: u64, shift: sys::nd_lengths::Type| value << shift;
        let lengths = at(headers.l2.into(), sys::nd_lengths::ND_L2_LEN)
            | at(headers.l3.into(), sys::nd_lengths::ND_L3_LEN)
            | at(headers.l4.into(), sys::nd_lengths::ND_L4_LEN);
        Self { flags: ip | l4, lengths }
    }

    /// To segment TCP into packets with at most `segment` bytes of payload each, and make their checksums: with `ipv4` also
    /// those of IPv4 headers, which else is right for the whole.
    pub fn segments(headers: &Headers, ipv4: bool, segment: u16) -> Self {
        let Self { flags, lengths } = Self::checksums(&Headers { tcp: true, ..*headers }, ipv4);
        let segment = u64::from(segment) << sys::nd_lengths::ND_SEGMENT;
        Self { flags: flags | sys::ND_TX_SEGMENT, lengths: lengths | segment }
    }
}

/// What a port says of a packet's UDP or TCP checksum.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Checked {
    /// Nothing: who wants to know has to sum.
    Unknown,
    /// It is right; or it is not yet made, as who sent it left that to others, and nothing happened to it since.
    Good,
    /// It is wrong.
    Bad,
}

impl Checked {
    #[inline]
    pub(crate) fn of(flags: u64) -> Self {
        match flags & sys::ND_RX_L4 {
            0 => Self::Unknown,
            sys::ND_RX_L4_BAD => Self::Bad,
            _ => Self::Good,
        }
    }
}

/// Where a port writes the time at which it received a packet. Made by [`Port::stamps`](crate::Port::stamps).
#[derive(Debug, Clone, Copy)]
pub struct Stamps {
    pub(crate) offset: usize,
    pub(crate) flag: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn info(offers: &[&'static str]) -> PortInfo {
        PortInfo {
            driver: String::new(),
            max_rx_queues: 1,
            max_tx_queues: 1,
            max_mtu: 1500,
            interface: 0,
            tx_segments: u16::MAX,
            offers: offers.to_vec(),
        }
    }

    #[test]
    fn half_an_offer_is_none() {
        let half = Offloads::of(&info(&["rx udp checksum", "tx tcp checksum", "tx vlan insert"]));
        assert_eq!(half, Offloads { vlan_insert: true, ..Offloads::default() });
        assert!(half.sending() && !Offloads::default().sending());
        let whole = Offloads::of(&info(&["rx udp checksum", "rx tcp checksum", "tso", "tx tcp checksum"]));
        assert_eq!(whole, Offloads { rx_checksum: true, tso: true, ..Offloads::default() });
    }

    #[test]
    fn only_what_is_wanted_is_asked_for() {
        let capable = (u64::MAX, u64::MAX);
        assert_eq!(Offloads::default().bits(capable), (0, 0));
        let (rx, tx) = Offloads { rx_checksum: true, tso: true, ..Offloads::default() }.bits(capable);
        assert_eq!(rx.count_ones(), 3);
        let wanted = Offloads { rx_checksum: true, ..Offloads::default() };
        assert_eq!(wanted.names(&info(&["rx udp checksum", "rss"])), ["rx udp checksum"]);
        assert_eq!(
            tx,
            sys::ND_TX_OFFLOAD_TCP_TSO | sys::ND_TX_OFFLOAD_TCP_CKSUM | sys::ND_TX_OFFLOAD_IPV4_CKSUM
        );
        // What a port cannot is not asked of it.
        let (rx, _) = Offloads { rx_checksum: true, ..Offloads::default() }.bits((0, 0));
        assert_eq!(rx, sys::ND_RX_OFFLOAD_UDP_CKSUM | sys::ND_RX_OFFLOAD_TCP_CKSUM);
    }

    #[test]
    fn a_wrong_checksum_is_told_from_one_that_nobody_looked_at() {
        assert_eq!(Checked::of(0), Checked::Unknown);
        assert_eq!(Checked::of(sys::ND_RX_L4_BAD), Checked::Bad);
        // Good; and none yet, which has both bits (rte_mbuf_core.h).
        assert_eq!(Checked::of(sys::ND_RX_L4 & !sys::ND_RX_L4_BAD), Checked::Good);
        assert_eq!(Checked::of(sys::ND_RX_L4), Checked::Good);
    }
}
