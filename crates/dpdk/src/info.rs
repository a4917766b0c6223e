//! What ports say about themselves.

/// What a port says about itself.
#[derive(Debug, Clone)]
pub struct PortInfo {
    /// DPDK's driver for it, such as `net_af_packet`.
    pub driver: String,
    /// Most receive queues.
    pub max_rx_queues: u16,
    /// Most transmit queues.
    pub max_tx_queues: u16,
    /// Largest MTU, bytes.
    pub max_mtu: u16,
    /// Number of the kernel's interface that it sits on; 0: none.
    pub interface: u32,
    /// Most segments of a packet that it sends.
    pub tx_segments: u16,
    /// What it could do by itself.
    pub offers: Vec<&'static str>,
}

impl PortInfo {
    /// Whether it can spread what it receives over several queues.
    pub fn has_rss(&self) -> bool {
        self.offers.contains(&"rss")
    }
}

/// The state of a port's link.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Link {
    /// Whether it is up.
    pub up: bool,
    /// Speed in Mbit/s; 0 when the port does not know.
    pub mbps: u32,
}

/// The port's own counters since it was opened.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PortStats {
    /// Frames received.
    pub rx_packets: u64,
    /// Frames sent.
    pub tx_packets: u64,
    /// Bytes received.
    pub rx_bytes: u64,
    /// Bytes sent.
    pub tx_bytes: u64,
    /// Frames that the port dropped as its receive queue was full.
    pub rx_missed: u64,
    /// Frames that arrived broken.
    pub rx_errors: u64,
    /// Frames that the port failed to send.
    pub tx_errors: u64,
    /// Frames that its driver found unfit to be sent, as with work left to it that it does not do.
    pub tx_unfit: u64,
    /// Frames lost as there was no packet memory to receive into.
    pub rx_no_memory: u64,
}
