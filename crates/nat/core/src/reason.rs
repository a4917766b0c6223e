//! Why a packet is dropped. Every drop has one, and is counted under it.

use packet::Fault;

macro_rules! reasons {
    ($($(#[doc = $doc:literal])+ $variant:ident = $name:literal,)+) => {
        /// Why a packet is dropped.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum Reason { $($(#[doc = $doc])+ $variant,)+ }

        impl Reason {
            /// The names in counters, in the order of the variants: `Reason::NAMES[reason as usize]`.
            pub const NAMES: [&'static str; [$($name),+].len()] = [$($name),+];
            /// All of them.
            pub const ALL: [Self; Self::NAMES.len()] = [$(Self::$variant),+];
        }
    };
}

reasons! {
    /// It ends within a header.
    Truncated = "truncated",
    /// It is not IPv4.
    NotIpv4 = "not_ipv4",
    /// Its headers or lengths cannot be.
    Malformed = "malformed",
    /// A checksum is wrong.
    BadChecksum = "bad_checksum",
    /// A protocol other than TCP, UDP and ICMP.
    Protocol = "protocol",
    /// An ICMP message that is neither a query nor an error that is translated.
    IcmpType = "icmp_type",
    /// An ICMP error whose quoted packet cannot be read.
    IcmpQuote = "icmp_quote",
    /// An ICMP error about an ICMP error.
    IcmpNested = "icmp_nested",
    /// An ICMP error about a packet of no session.
    IcmpNoSession = "icmp_no_session",
    /// Its hops are used up.
    Ttl = "ttl",
    /// Its source is none of the inside prefixes.
    NotInside = "not_inside",
    /// From the outside, to an endpoint without mapping.
    NoMapping = "no_mapping",
    /// From the outside, to a mapping whose filter does not know the sender.
    Filtered = "filtered",
    /// From the outside, to an endpoint that is in a session with the sender by another mapping.
    OtherMapping = "other_mapping",
    /// From the outside, a TCP segment that begins no connection.
    NotSyn = "not_syn",
    /// There are as many sessions as there may be.
    SessionsFull = "sessions_full",
    /// The subscriber has as many sessions as it may have.
    SubscriberSessions = "subscriber_sessions",
    /// There are as many subscribers as there may be.
    SubscribersFull = "subscribers_full",
    /// All ports of the subscriber's blocks are taken, and it may have no further block.
    SubscriberPorts = "subscriber_ports",
    /// No address has a free port block.
    PoolExhausted = "pool_exhausted",
    /// The subscriber's site has no public address now.
    NoPublicAddress = "no_public_address",
    /// It is not translated, and subscribers of several VLANs have the address that it goes to.
    InsideOverlap = "inside_overlap",
    /// Fragments of more packets are under way than there may be, or longer ones.
    FragmentsFull = "fragments_full",
    /// A fragment that overlaps the headers of its packet, or a first one without them.
    FragmentTiny = "fragment_tiny",
    /// The first fragment of the packet was dropped.
    FragmentOfDropped = "fragment_of_dropped",
    /// The first fragment did not come in time.
    FragmentTimeout = "fragment_timeout",
    /// Longer than the next link takes.
    TooBig = "too_big",
    /// Its source is no host's address, or the box's own.
    MartianSource = "martian_source",
    /// From the outside, and its source is the box's, a subscriber's or the pool's.
    SpoofedSource = "spoofed_source",
    /// From the inside, to an address that nothing is forwarded to.
    MartianDestination = "martian_destination",
    /// From the inside, to an address of the box: what is for it does not come this way.
    OwnDestination = "own_destination",
    /// From the inside, to the subscribers' space.
    InsideDestination = "inside_destination",
    /// It has IP options that are not forwarded.
    IpOptions = "ip_options",
    /// From an endpoint to its own mapping: it would answer itself for ever.
    Land = "land",
    /// A rule of the operator forbids it.
    Acl = "acl",
}

impl Reason {
    /// The name in counters.
    pub fn name(self) -> &'static str {
        Self::NAMES[self as usize]
    }
}

impl From<Fault> for Reason {
    fn from(fault: Fault) -> Self {
        match fault {
            Fault::Truncated => Self::Truncated,
            Fault::NotIp => Self::NotIpv4,
            Fault::BadChecksum => Self::BadChecksum,
            _ => Self::Malformed,
        }
    }
}

/// How many packets were dropped, by reason.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Drops([u64; Reason::NAMES.len()]);

impl Default for Drops {
    fn default() -> Self {
        Self([0; Reason::NAMES.len()])
    }
}

impl Drops {
    /// One more.
    #[inline]
    pub fn count(&mut self, reason: Reason) {
        self.0[reason as usize] += 1;
    }

    /// How many for this reason.
    pub fn of(&self, reason: Reason) -> u64 {
        self.0[reason as usize]
    }

    /// All reasons there were, with their counts.
    pub fn iter(&self) -> impl Iterator<Item = (Reason, u64)> + '_ {
        Reason::ALL.into_iter().map(|reason| (reason, self.of(reason))).filter(|(_, count)| *count > 0)
    }
}
