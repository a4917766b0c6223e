//! Session descriptions of audio calls (RFC 4566) and their negotiation (RFC 3264).
//!
//! A description keeps every `m=` line, of whatever media and protocol: an answer has as many as its offer (RFC 3264 section 6).
//! Of the attributes it keeps those that an audio call needs.

mod crypto;
mod negotiate;
mod parse;

pub use crypto::Crypto;
pub use negotiate::{Agreement, Audio, Codec, NegotiationError, answer, check_answer, offer};

use std::fmt;

/// Longest description, bytes.
pub const MAX_LENGTH: usize = 64 * 1024;
/// Most media of a description.
pub const MAX_MEDIA: usize = 32;
/// Most formats, and mappings of formats, of a medium.
pub const MAX_FORMATS: usize = 128;
/// Most lines `a=crypto` of a medium; further ones are left out.
pub const MAX_CRYPTO: usize = 32;

/// Why a description cannot be read, and the number of the line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{fault} at line {line}")]
pub struct SdpError {
    /// The defect.
    pub fault: SdpFault,
    /// Number of the line, from 1; 0 for the whole.
    pub line: usize,
}

/// A defect of a description.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, thiserror::Error)]
pub enum SdpFault {
    /// It is longer than [`MAX_LENGTH`].
    #[error("the description is longer than {MAX_LENGTH} bytes")]
    Long,
    /// It is not UTF-8.
    #[error("the description is not UTF-8")]
    Utf8,
    /// A line is not a letter, an equals sign and a value.
    #[error("a line is not a letter, an equals sign and a value")]
    Line,
    /// It does not begin with `v=0`.
    #[error("the description does not begin with v=0")]
    Version,
    /// `o=`, `s=` or `t=` is missing or comes more than once before the first medium.
    #[error("o=, s= or t= is missing or repeated")]
    Session,
    /// `o=` is malformed.
    #[error("o= is malformed")]
    Origin,
    /// `c=` is malformed.
    #[error("c= is malformed")]
    Connection,
    /// A medium has no `c=`, and neither has the session.
    #[error("a medium has no connection address")]
    NoConnection,
    /// `m=` is malformed.
    #[error("m= is malformed")]
    Media,
    /// There are more than [`MAX_MEDIA`] media.
    #[error("there are more than {MAX_MEDIA} media")]
    ManyMedia,
    /// A medium has more than [`MAX_FORMATS`] formats or mappings.
    #[error("a medium has more than {MAX_FORMATS} formats")]
    ManyFormats,
    /// A known attribute is malformed.
    #[error("a known attribute is malformed")]
    Attribute,
}

impl SdpFault {
    /// Stable name, for counters and results.
    pub fn name(self) -> &'static str {
        match self {
            Self::Long => "sdp_long",
            Self::Utf8 => "sdp_utf8",
            Self::Line => "sdp_line",
            Self::Version => "sdp_version",
            Self::Session => "sdp_session",
            Self::Origin => "sdp_origin",
            Self::Connection => "sdp_connection",
            Self::NoConnection => "sdp_no_connection",
            Self::Media => "sdp_media",
            Self::ManyMedia => "sdp_many_media",
            Self::ManyFormats => "sdp_many_formats",
            Self::Attribute => "sdp_attribute",
        }
    }
}

/// Direction of media (RFC 4566 section 6).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Direction {
    /// Both.
    #[default]
    SendRecv,
    /// The describing side sends.
    SendOnly,
    /// The describing side receives.
    RecvOnly,
    /// Nobody.
    Inactive,
}

impl Direction {
    /// Of the two sides: the describing side sends, the describing side receives.
    pub fn new(send: bool, receive: bool) -> Self {
        match (send, receive) {
            (true, true) => Self::SendRecv,
            (true, false) => Self::SendOnly,
            (false, true) => Self::RecvOnly,
            (false, false) => Self::Inactive,
        }
    }

    /// The describing side sends.
    pub fn sends(self) -> bool {
        matches!(self, Self::SendRecv | Self::SendOnly)
    }

    /// The describing side receives.
    pub fn receives(self) -> bool {
        matches!(self, Self::SendRecv | Self::RecvOnly)
    }

    /// Name of the attribute.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::SendRecv => "sendrecv",
            Self::SendOnly => "sendonly",
            Self::RecvOnly => "recvonly",
            Self::Inactive => "inactive",
        }
    }

    fn of(name: &str) -> Option<Self> {
        [Self::SendRecv, Self::SendOnly, Self::RecvOnly, Self::Inactive]
            .into_iter()
            .find(|one| one.as_str() == name)
    }
}

/// `a=rtpmap`.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Rtpmap {
    /// Payload type.
    pub payload: u8,
    /// Encoding name.
    pub name: String,
    /// Clock rate, Hz.
    pub rate: u32,
    /// Channels.
    pub channels: u8,
}

/// A medium: `m=` and what follows it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Media {
    /// Such as `audio`.
    pub kind: String,
    /// Port; 0 where the medium is refused.
    pub port: u16,
    /// Such as `RTP/AVP`.
    pub protocol: String,
    /// Formats, most wanted first.
    pub formats: Vec<String>,
    /// Host of `c=`.
    pub connection: Option<String>,
    /// `a=rtpmap`, in order.
    pub rtpmaps: Vec<Rtpmap>,
    /// `a=fmtp`: payload type and parameters.
    pub fmtp: Vec<(u8, String)>,
    /// Direction of this medium; the session's if there is none.
    pub direction: Option<Direction>,
    /// `a=ptime`, milliseconds.
    pub ptime: Option<u32>,
    /// Port of `a=rtcp` (RFC 3605).
    pub rtcp: Option<u16>,
    /// `a=rtcp-mux` (RFC 5761).
    pub rtcp_mux: bool,
    /// `a=crypto`, most wanted first.
    pub crypto: Vec<Crypto>,
}

/// A session description.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Session {
    /// User of `o=`.
    pub user: String,
    /// Session identifier.
    pub id: u64,
    /// Session version: one more with each change (RFC 3264 section 8).
    pub version: u64,
    /// Host of `o=`.
    pub origin: String,
    /// Host of the session's `c=`.
    pub connection: Option<String>,
    /// Direction of media that name none.
    pub direction: Direction,
    /// Media, in order.
    pub media: Vec<Media>,
}

impl Session {
    /// Reads a description. Lines end with CRLF or LF.
    pub fn parse(body: &[u8]) -> Result<Self, SdpError> {
        parse::session(body)
    }

    /// Host that a medium is sent to.
    pub fn host<'a>(&'a self, media: &'a Media) -> Option<&'a str> {
        media.connection.as_deref().or(self.connection.as_deref())
    }

    /// Direction of a medium. The address 0.0.0.0 stands for hold (RFC 3264 section 8.4): the describing side receives nothing.
    pub fn direction(&self, media: &Media) -> Direction {
        let direction = media.direction.unwrap_or(self.direction);
        match self.host(media) {
            Some("0.0.0.0") => Direction::new(direction.sends(), false),
            _ => direction,
        }
    }
}

fn address_type(host: &str) -> &'static str {
    if host.contains(':') { "IP6" } else { "IP4" }
}

impl fmt::Display for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { user, id, version, origin, .. } = self;
        write!(f, "v=0\r\no={user} {id} {version} IN {} {origin}\r\ns=-\r\n", address_type(origin))?;
        if let Some(host) = &self.connection {
            write!(f, "c=IN {} {host}\r\n", address_type(host))?;
        }
        f.write_str("t=0 0\r\n")?;
        if self.direction != Direction::SendRecv {
            write!(f, "a={}\r\n", self.direction.as_str())?;
        }
        self.media.iter().try_for_each(|media| media.fmt(f))
    }
}

impl fmt::Display for Media {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "m={} {} {} {}\r\n", self.kind, self.port, self.protocol, self.formats.join(" "))?;
        if let Some(host) = &self.connection {
            write!(f, "c=IN {} {host}\r\n", address_type(host))?;
        }
        for Rtpmap { payload, name, rate, channels } in &self.rtpmaps {
            write!(f, "a=rtpmap:{payload} {name}/{rate}")?;
            if *channels > 1 {
                write!(f, "/{channels}")?;
            }
            f.write_str("\r\n")?;
        }
        for (payload, parameters) in &self.fmtp {
            write!(f, "a=fmtp:{payload} {parameters}\r\n")?;
        }
        if let Some(ptime) = self.ptime {
            write!(f, "a=ptime:{ptime}\r\n")?;
        }
        if let Some(port) = self.rtcp {
            write!(f, "a=rtcp:{port}\r\n")?;
        }
        if self.rtcp_mux {
            f.write_str("a=rtcp-mux\r\n")?;
        }
        for crypto in &self.crypto {
            write!(f, "a=crypto:{crypto}\r\n")?;
        }
        match self.direction {
            Some(direction) => write!(f, "a={}\r\n", direction.as_str()),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests;
