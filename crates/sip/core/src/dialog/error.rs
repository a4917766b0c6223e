use crate::message::Fault;

/// Most dialogs of one INVITE.
pub const MAX_FORKS: usize = 32;

/// Why a message makes or changes no dialog.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum DialogError {
    /// A header field is missing or malformed.
    #[error(transparent)]
    Message(#[from] Fault),
    /// The message is no request with a URI.
    #[error("the message is not a request with a valid URI")]
    NotARequest,
    /// The message is no response.
    #[error("the message is not a response")]
    NotAResponse,
    /// A response with this status code makes no dialog.
    #[error("a response with status code {0} makes no dialog")]
    StatusCode(u16),
    /// There is not exactly one Contact with a URI.
    #[error("the message has not exactly one Contact")]
    Contact,
    /// The sequence number is not higher than the last.
    #[error("the request is out of order")]
    Order,
    /// There is no such dialog.
    #[error("the message is in no dialog")]
    Unknown,
    /// There are as many forks as there may be.
    #[error("the request has more than {} forks", MAX_FORKS)]
    Forks,
    /// A PRACK is for no response that waits (RFC 3262 section 3).
    #[error("the PRACK is for no response that waits")]
    RAck,
    /// A reliable response waits for its PRACK: no other may be sent (RFC 3262 section 3).
    #[error("a reliable provisional response waits for its PRACK")]
    Waiting,
}

impl DialogError {
    /// Stable name, for counters and results.
    pub fn name(self) -> &'static str {
        match self {
            Self::Message(fault) => fault.name(),
            Self::NotARequest => "not_a_request",
            Self::NotAResponse => "not_a_response",
            Self::StatusCode(_) => "no_dialog_by_status_code",
            Self::Contact => "contact",
            Self::Order => "out_of_order",
            Self::Unknown => "unknown_dialog",
            Self::Forks => "many_forks",
            Self::RAck => "unknown_rack",
            Self::Waiting => "prack_outstanding",
        }
    }
}
