//! Settings of a stack: its addresses, and how its TCP behaves.

use crate::share::Share;
use packet::Mac;
use packet::ethernet::Tags;
use std::net::IpAddr;
use std::ops::RangeInclusive;

/// One millisecond in ns.
pub(crate) const MS: u64 = 1_000_000;
/// One second in ns.
pub(crate) const SECOND: u64 = 1_000 * MS;

/// A network that is reached without a router.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Network {
    /// An address in it.
    pub address: IpAddr,
    /// Bits that its addresses have in common.
    pub prefix: u8,
}

impl Network {
    /// Whether `ip` is in it.
    pub fn contains(&self, ip: IpAddr) -> bool {
        match (self.address, ip) {
            (IpAddr::V4(own), IpAddr::V4(ip)) => {
                let shift = 32u32.saturating_sub(self.prefix.into());
                (own.to_bits() ^ ip.to_bits()).checked_shr(shift).unwrap_or(0) == 0
            }
            (IpAddr::V6(own), IpAddr::V6(ip)) => {
                let shift = 128u32.saturating_sub(self.prefix.into());
                (own.to_bits() ^ ip.to_bits()).checked_shr(shift).unwrap_or(0) == 0
            }
            _ => false,
        }
    }
}

/// Settings of a stack.
#[derive(Debug, Clone)]
pub struct Config {
    /// Ethernet address.
    pub mac: Mac,
    /// VLANs of all frames.
    pub tags: Tags,
    /// All addresses that it has: it answers for them, and connections come from them.
    pub addresses: Vec<IpAddr>,
    /// Networks on the link. Without one of a family, every address of it is on the link.
    pub networks: Vec<Network>,
    /// Routers, of each family one or none.
    pub gateways: Vec<IpAddr>,
    /// The Ethernet address that all frames go to; none: it is asked for.
    pub peer: Option<Mac>,
    /// The largest IP packet.
    pub mtu: u16,
    /// Ports of connections that begin here, and of datagram sockets.
    pub ports: RangeInclusive<u16>,
    /// Most connections at a time, those that are closing included.
    pub connections: usize,
    /// Most datagram sockets at a time.
    pub sockets: usize,
    /// Which flows are its own, where several stacks share the port.
    pub share: Share,
    /// Seed of initial sequence numbers and of the table's hash.
    pub secret: [u64; 2],
    /// TCP.
    pub tcp: TcpConfig,
}

/// How much TCP lets be under way.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum CongestionControl {
    /// CUBIC (RFC 9438), as most kernels have it.
    Cubic,
    /// NewReno (RFC 5681, RFC 6582).
    #[default]
    NewReno,
}

/// How TCP behaves.
#[derive(Debug, Clone, Copy)]
pub struct TcpConfig {
    /// Bytes that wait for whoever reads, at most: the receive window.
    pub receive_buffer: u32,
    /// Bytes that wait to be sent or acknowledged, at most.
    pub send_buffer: u32,
    /// The maximum segment size, where the MTU leaves room for more.
    pub mss: u16,
    /// Whether selective acknowledgments are offered (RFC 2018).
    pub sack: bool,
    /// Whether timestamps are offered (RFC 7323).
    pub timestamps: bool,
    /// Whether a window scale is offered (RFC 7323).
    pub window_scale: bool,
    /// Congestion control.
    pub control: CongestionControl,
    /// How long a peer may be silent until it is asked whether it is still there, ns; 0: for ever (RFC 9293 section 3.8.4).
    pub keep_alive: u64,
    /// Delay of an acknowledgment, ns (RFC 9293 section 3.8.6.3: below 0.5 s).
    pub delayed_ack: u64,
    /// What the retransmission timeout adds to the smoothed round-trip time at least, ns. RFC 6298 says 1 s; 200 ms is what Linux
    /// and FreeBSD do.
    pub min_rto: u64,
    /// The retransmission timeout before any round trip was measured, ns (RFC 6298 section 2).
    pub initial_rto: u64,
    /// Retransmissions of a SYN before it is given up.
    pub syn_retries: u8,
    /// Retransmissions of data before it is given up.
    pub retries: u8,
    /// 2 MSL: how long a connection that closed first is remembered, ns. Its port may be used again before (RFC 6191).
    pub time_wait: u64,
    /// How long the peer may take to close, after we have, ns.
    pub fin_timeout: u64,
}

impl Default for TcpConfig {
    fn default() -> Self {
        Self {
            receive_buffer: 256 << 10,
            send_buffer: 256 << 10,
            mss: u16::MAX,
            sack: true,
            timestamps: true,
            window_scale: true,
            control: CongestionControl::NewReno,
            keep_alive: 0,
            delayed_ack: 40 * MS,
            min_rto: 200 * MS,
            initial_rto: SECOND,
            syn_retries: 6,
            retries: 15,
            time_wait: 60 * SECOND,
            fin_timeout: 60 * SECOND,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_network_has_its_prefix_in_common() {
        let of = |address: &str, prefix| Network { address: address.parse().expect("an address"), prefix };
        let has = |network: Network, ip: &str| network.contains(ip.parse().expect("an address"));
        assert!(has(of("10.0.0.1", 24), "10.0.0.255") && !has(of("10.0.0.1", 24), "10.0.1.0"));
        assert!(has(of("10.0.0.1", 0), "192.0.2.1") && !has(of("10.0.0.1", 32), "10.0.0.2"));
        assert!(has(of("fd00::1", 64), "fd00::ffff") && !has(of("fd00::1", 64), "fd00:0:0:1::1"));
        assert!(has(of("fd00::1", 0), "::1") && !has(of("10.0.0.1", 0), "::1"));
    }
}
