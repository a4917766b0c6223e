//! Why a WebSocket connection cannot go on, in the other side's own words.

use tungstenite::Error;
use tungstenite::error::ProtocolError;
use tungstenite::protocol::frame::coding::CloseCode;

/// Characters of the other side's words that are shown.
const WORDS: usize = 120;

/// Why a WebSocket connection cannot go on.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// The server answered the handshake with another status than 101.
    #[error("the server refused the WebSocket handshake: {status} {reason}{}", after_colon(words))]
    Refused {
        /// Status of HTTP.
        status: u16,
        /// Its reason phrase by RFC 9110.
        reason: String,
        /// What its body said, as far as it came with the head.
        words: String,
    },
    /// The server chose a subprotocol that was not offered, or none.
    #[error("the server {}, and {offered:?} was offered", selection_text(chosen))]
    Subprotocol {
        /// What it chose; empty: nothing.
        chosen: String,
        /// What was offered.
        offered: String,
    },
    /// What came is no answer to a handshake, or no request for one.
    #[error("no WebSocket handshake: {0}")]
    Handshake(String),
    /// The other side closed.
    #[error("the other side closed the WebSocket connection{}{}", with_code(code), after_colon(reason))]
    Closed {
        /// Its status code (RFC 6455 section 7.4).
        code: Option<u16>,
        /// Its reason.
        reason: String,
    },
    /// A frame breaks the protocol.
    #[error("a WebSocket frame that RFC 6455 forbids: {0}")]
    Frame(String),
    /// A text is none.
    #[error("a WebSocket frame that RFC 6455 forbids: text that is no UTF-8 ({0})")]
    Text(String),
    /// A message is longer than this side takes.
    #[error("a WebSocket message is too large: {0}")]
    Large(String),
}

fn after_colon(words: &str) -> String {
    if words.is_empty() { String::new() } else { format!(": {words}") }
}

fn selection_text(chosen: &str) -> String {
    if chosen.is_empty() {
        "chose no subprotocol".into()
    } else {
        format!("chose the subprotocol {chosen:?}")
    }
}

fn with_code(code: &Option<u16>) -> String {
    code.map_or_else(String::new, |code| format!(" with code {code}"))
}

impl Fault {
    /// Its kind in a few words, which do not depend on the other side.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Refused { status, .. } => match status {
                400 => "WebSocket handshake: 400",
                401 => "WebSocket handshake: 401",
                403 => "WebSocket handshake: 403",
                404 => "WebSocket handshake: 404",
                426 => "WebSocket handshake: 426",
                500 => "WebSocket handshake: 500",
                503 => "WebSocket handshake: 503",
                _ => "WebSocket handshake refused",
            },
            Self::Subprotocol { .. } => "WebSocket subprotocol",
            Self::Handshake(_) => "no WebSocket on this port",
            Self::Closed { .. } => "WebSocket closed",
            Self::Frame(_) | Self::Text(_) => "WebSocket frame",
            Self::Large(_) => "WebSocket message too large",
        }
    }

    /// The status code by which the connection is closed (RFC 6455 section 7.4.1); none: the other side closed it.
    pub(crate) fn close_code(&self) -> Option<CloseCode> {
        match self {
            Self::Large(_) => Some(CloseCode::Size),
            Self::Text(_) => Some(CloseCode::Invalid),
            Self::Frame(_) => Some(CloseCode::Protocol),
            Self::Closed { .. } | Self::Refused { .. } | Self::Subprotocol { .. } | Self::Handshake(_) => {
                None
            }
        }
    }

    /// Of a frame.
    pub(crate) fn of_frame(error: &Error) -> Self {
        match error {
            Error::Capacity(why) => Self::Large(why.to_string()),
            Error::Protocol(why) => Self::Frame(why.to_string()),
            Error::Utf8(why) => Self::Text(why.clone()),
            Error::ConnectionClosed | Error::AlreadyClosed => {
                Self::Closed { code: None, reason: String::new() }
            }
            other => Self::Frame(other.to_string()),
        }
    }

    /// Of a handshake, of which `head` came.
    pub(crate) fn of_handshake(error: &Error, head: &[u8], offered: &str) -> Self {
        match error {
            Error::Http(response) => {
                let status = response.status();
                let body = response.body().as_deref().unwrap_or_default();
                Self::Refused {
                    status: status.as_u16(),
                    reason: status.canonical_reason().unwrap_or_default().to_owned(),
                    words: one_line(body),
                }
            }
            Error::Protocol(ProtocolError::SecWebSocketSubProtocolError(_)) => {
                Self::Subprotocol { chosen: selected_subprotocol(head), offered: offered.to_owned() }
            }
            Error::Protocol(ProtocolError::HttparseError(why)) => {
                Self::Handshake(format!("{why}: {}", one_line(head)))
            }
            other => Self::Handshake(other.to_string()),
        }
    }
}

/// Text of the other side's on one line.
fn one_line(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes);
    let line: String = text.split_whitespace().collect::<Vec<_>>().join(" ");
    line.chars().filter(|one| !one.is_control()).take(WORDS).collect()
}

/// The subprotocol that a response names.
fn selected_subprotocol(head: &[u8]) -> String {
    let text = String::from_utf8_lossy(head);
    let value = text.lines().find_map(|line| {
        let (name, value) = line.split_once(':')?;
        name.eq_ignore_ascii_case("sec-websocket-protocol").then(|| value.trim())
    });
    one_line(value.unwrap_or_default().as_bytes())
}
