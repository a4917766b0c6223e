//! Counters of a stack: what was sent and received, and each drop with its reason.

/// Why a frame or a segment was dropped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(usize)]
pub enum DropReason {
    /// The frame is for another Ethernet address.
    OtherHost,
    /// Neither IP, ARP nor neighbour discovery, or for another address.
    NotForUs,
    /// A header is malformed.
    Malformed,
    /// A checksum is wrong.
    BadChecksum,
    /// A fragment that fits no packet, or one of a packet that was never complete.
    Fragment,
    /// No connection or socket, and nobody listens.
    NoConnection,
    /// Its timestamp is older than the last one's (RFC 7323 section 5).
    OldTimestamp,
    /// Outside the receive window.
    OutOfWindow,
    /// A SYN or RST that is not exactly where it must be: answered by a challenge (RFC 5961).
    Challenged,
    /// An acknowledgment of what was never sent, or of long ago (RFC 5961 section 5).
    BadAck,
    /// The listener has no room for more connections.
    ListenerFull,
    /// An ICMP message about no connection or datagram of ours, or one that says what cannot be.
    ForeignIcmp,
    /// A reply found the queue of replies full.
    ReplyQueueFull,
    /// A datagram found the queue of its socket full.
    SocketFull,
    /// It comes from an address that no other host can have.
    BadSource,
    /// A frame in several pieces of memory could not be put together.
    NotCopied,
    /// The frame is of another VLAN, or has tags where the stack has none.
    OtherVlan,
    /// Another host says that it has an address of ours.
    DuplicateAddress,
    /// A routing header of IPv6 asks to send the packet on (RFC 5095).
    RoutingHeader,
}

impl DropReason {
    /// The names in counters, in the order of the variants.
    pub const NAMES: [&'static str; 19] = [
        "other_host",
        "not_for_us",
        "malformed",
        "bad_checksum",
        "fragment",
        "no_connection",
        "old_timestamp",
        "out_of_window",
        "challenged",
        "bad_ack",
        "listener_full",
        "foreign_icmp",
        "reply_queue_full",
        "socket_full",
        "bad_source",
        "not_copied",
        "other_vlan",
        "duplicate_address",
        "routing_header",
    ];
}

/// What a stack counted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counters {
    /// Frames received.
    pub frames_received: u64,
    /// Frames sent.
    pub frames_sent: u64,
    /// TCP segments received that belong to a connection.
    pub segments_received: u64,
    /// TCP segments sent.
    pub segments_sent: u64,
    /// Frames with several of them, which the port segmented.
    pub segmented: u64,
    /// Of these, such with data that was sent before.
    pub retransmitted: u64,
    /// Expiries of retransmission timers.
    pub timeouts: u64,
    /// Tail loss probes.
    pub probes: u64,
    /// Connections whose segments became smaller, as large ones were never acknowledged (RFC 4821).
    pub path_mtu_guesses: u64,
    /// SYN cookies sent for want of room, and connections that came of them (RFC 4987).
    pub cookies_sent: u64,
    /// See above.
    pub cookies_accepted: u64,
    /// Bytes of payload received in order.
    pub bytes_received: u64,
    /// Bytes of payload sent, once each.
    pub bytes_sent: u64,
    /// Connections opened from here, and those that came up.
    pub opened: u64,
    /// Connections accepted.
    pub accepted: u64,
    /// RST segments sent.
    pub resets_sent: u64,
    /// Datagrams sent: of UDP, and echo requests.
    pub datagrams_sent: u64,
    /// Datagrams received for a socket.
    pub datagrams_received: u64,
    /// ICMP errors sent: nobody listens at a port. And how many more the limit of their rate kept back.
    pub icmp_errors_sent: u64,
    /// See above.
    pub icmp_errors_limited: u64,
    /// Segments received whose payload was here before.
    pub duplicates: u64,
    /// Drops by reason, see [`DropReason::NAMES`].
    pub drops: [u64; DropReason::NAMES.len()],
}

impl Counters {
    /// Count a drop.
    #[inline]
    pub(crate) fn drop(&mut self, why: DropReason) {
        self.drops[why as usize] += 1;
    }

    /// How often this was the reason.
    pub fn dropped(&self, why: DropReason) -> u64 {
        self.drops[why as usize]
    }
}
