//! Kinds of failures: what every model counts apart.

use serde::Serialize;

/// Why a flow or a message failed. One counter each; nothing is lost silently.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Failure {
    /// The connection was refused.
    Refused,
    /// The server could not be reached (no route, host down).
    Unreachable,
    /// No answer in time.
    Timeout,
    /// An answer was asked for, and none had come when there was nothing more to wait for.
    Unanswered,
    /// The connection was reset.
    Reset,
    /// The server closed before the flow was done.
    Closed,
    /// The server sent something the protocol does not allow.
    Protocol,
    /// A well-formed answer that rejects the request (HTTP status, CONNACK code, script mismatch).
    Rejected,
    /// The TLS handshake failed, or a record cannot be read.
    Tls,
    /// Out of local ports, file descriptors or buffers: the tester's own limit.
    Local,
}

impl Failure {
    /// Every kind, in the order of [`Counts::failures`](crate::meter::Counts::failures).
    pub const ALL: [Failure; 10] = [
        Failure::Refused,
        Failure::Unreachable,
        Failure::Timeout,
        Failure::Unanswered,
        Failure::Reset,
        Failure::Closed,
        Failure::Protocol,
        Failure::Rejected,
        Failure::Tls,
        Failure::Local,
    ];

    /// What it means.
    pub fn about(self) -> &'static str {
        match self {
            Failure::Refused => "The connection was refused.",
            Failure::Unreachable => "The server could not be reached (no route, host down).",
            Failure::Timeout => "No answer in time.",
            Failure::Unanswered => {
                "An answer was asked for, and none had come when there was nothing more to wait for."
            }
            Failure::Reset => "The connection was reset.",
            Failure::Closed => "The server closed before the flow was done.",
            Failure::Protocol => "The server sent something that the protocol does not allow.",
            Failure::Rejected => {
                "A well-formed answer that rejects the request (HTTP status, CONNACK code, script mismatch)."
            }
            Failure::Tls => "The TLS handshake failed, or a record cannot be read.",
            Failure::Local => {
                "Out of local ports, file descriptors or buffers: a limit of the generator's own."
            }
        }
    }

    /// The name in results, as in `errors.timeout`.
    pub fn name(self) -> &'static str {
        match self {
            Failure::Refused => "refused",
            Failure::Unreachable => "unreachable",
            Failure::Timeout => "timeout",
            Failure::Unanswered => "unanswered",
            Failure::Reset => "reset",
            Failure::Closed => "closed",
            Failure::Protocol => "protocol",
            Failure::Rejected => "rejected",
            Failure::Tls => "tls",
            Failure::Local => "local",
        }
    }
}
