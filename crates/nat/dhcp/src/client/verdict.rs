//! What is made of a server's message.

/// What a received frame was.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Verdict {
    /// No message from a DHCP server to one of these clients.
    NotOurs,
    /// One that a client acted on.
    Accepted,
    /// One that nothing was done about.
    Ignored(IgnoreReason),
}

/// Why nothing was done about a server's message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, thiserror::Error)]
pub enum IgnoreReason {
    /// No DHCP message that can be used.
    #[error("malformed")]
    Malformed,
    /// Of another exchange (`xid`), or of one that is over.
    #[error("of another exchange")]
    OtherExchange,
    /// Of a type that is not waited for in this state.
    #[error("not waited for")]
    Unexpected,
    /// Not from the server that was chosen.
    #[error("from another server")]
    OtherServer,
    /// Not for the address that was asked for.
    #[error("for another address")]
    OtherAddress,
    /// For an address that no host can have there, or no client may have.
    #[error("an address that no client can have")]
    BadAddress,
    /// A lease of no length, or shorter than we take.
    #[error("a lease that is too short")]
    ShortLease,
    /// For an address that another of the clients has.
    #[error("an address that another client has")]
    Taken,
}

impl IgnoreReason {
    /// The names in counters, in the order of the variants: `Ignored::NAMES[ignored as usize]`.
    pub const NAMES: [&'static str; 8] = [
        "malformed",
        "other_exchange",
        "unexpected",
        "other_server",
        "other_address",
        "bad_address",
        "short_lease",
        "taken",
    ];
}
