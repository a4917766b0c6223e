//! Result codes (RFC 6887 section 7.4).

/// What became of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum ResultCode {
    /// As asked, or nearly.
    Success = 0,
    /// Another version than 2.
    UnsuppVersion = 1,
    /// Against the policy, or somebody else's mapping.
    NotAuthorized = 2,
    /// It cannot be read.
    MalformedRequest = 3,
    /// Neither ANNOUNCE, MAP nor PEER.
    UnsuppOpcode = 4,
    /// An option that must be understood is not.
    UnsuppOption = 5,
    /// An option of wrong length, too often, or in the wrong place.
    MalformedOption = 6,
    /// There is no outside at the moment.
    NetworkFailure = 7,
    /// There is no port or session left.
    NoResources = 8,
    /// Neither TCP nor UDP.
    UnsuppProtocol = 9,
    /// The subscriber has as many mappings as it may have.
    UserExQuota = 10,
    /// The port that was asked for, and no other, is taken.
    CannotProvideExternal = 11,
    /// The address in the request is not the sender's: there is a NAT between.
    AddressMismatch = 12,
    /// More filters than there may be.
    ExcessiveRemotePeers = 13,
}

impl ResultCode {
    /// Names as in RFC 6887, by number.
    pub const NAMES: [&'static str; 14] = [
        "SUCCESS",
        "UNSUPP_VERSION",
        "NOT_AUTHORIZED",
        "MALFORMED_REQUEST",
        "UNSUPP_OPCODE",
        "UNSUPP_OPTION",
        "MALFORMED_OPTION",
        "NETWORK_FAILURE",
        "NO_RESOURCES",
        "UNSUPP_PROTOCOL",
        "USER_EX_QUOTA",
        "CANNOT_PROVIDE_EXTERNAL",
        "ADDRESS_MISMATCH",
        "EXCESSIVE_REMOTE_PEERS",
    ];

    /// Seconds for which the same request would end the same way: 30 min for what a client can only change itself, 30 s for what
    /// may pass.
    pub fn lifetime_s(self) -> u32 {
        match self {
            Self::Success => 0,
            Self::NetworkFailure | Self::NoResources | Self::UserExQuota | Self::CannotProvideExternal => 30,
            _ => 1800,
        }
    }
}
