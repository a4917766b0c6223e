//! Settings of a server.

use crate::script::Script;
use serde::Deserialize;
use std::fmt;
use std::net::SocketAddr;

/// Largest body of a response, bytes.
pub const BODY_MAX: usize = 64 << 20;
/// Most workers.
const WORKERS_MAX: usize = 64;

/// What is served, and how.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Settings {
    /// `http`, `mqtt`, `coap`, `stream` or `script`.
    pub protocol: Protocol,
    /// Address and port; port 0 picks one.
    pub listen: SocketAddr,
    /// Threads, each with its share of the connections. MQTT has one: every message may concern every client.
    #[serde(default = "one")]
    pub workers: usize,
    /// Time before each reply, nanoseconds.
    #[serde(default)]
    pub delay_ns: u64,
    /// HTTP, CoAP: bytes of a body where the path is no number.
    #[serde(default)]
    pub size: usize,
    /// Share of requests (HTTP, CoAP) or of connections (MQTT) that are refused, 0 to 1.
    #[serde(default)]
    pub error_share: f64,
    /// HTTP: status of refused requests.
    #[serde(default = "unavailable")]
    pub error_status: u16,
    /// Script: what is played to each connection.
    #[serde(default)]
    pub script: Option<Script>,
    /// Share of requests (HTTP, CoAP, script), of acknowledgements of messages (MQTT) or of datagrams (streams) that are not answered,
    /// 0 to 1.
    #[serde(default)]
    pub drop_share: f64,
    /// CoAP: time between two notifications of an observer, nanoseconds.
    #[serde(default = "second")]
    pub notify_ns: u64,
    /// Streams: send nothing back.
    #[serde(default)]
    pub sink: bool,
    /// Seed of both shares.
    #[serde(default)]
    pub seed: u64,
}

/// Which protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Protocol {
    /// HTTP/1.1 (RFC 9112).
    Http,
    /// MQTT 3.1.1 and 5.0.
    Mqtt,
    /// CoAP (RFC 7252).
    Coap,
    /// UDP streams, which are received and sent back.
    Stream,
    /// A script over TCP.
    Script,
}

impl Protocol {
    /// Whether it is served over UDP.
    pub fn is_datagram(self) -> bool {
        matches!(self, Self::Coap | Self::Stream)
    }

    /// What it is called in TLS (RFC 7301).
    pub fn alpn(self) -> Option<&'static str> {
        (self == Self::Http).then_some("http/1.1")
    }

    /// Why it has one worker, where it has.
    fn one_worker(self) -> Option<&'static str> {
        match self {
            Self::Mqtt => Some("a broker has one: every message may concern every client"),
            Self::Stream => Some("a receiver of streams has one: it compares delays of all of them"),
            Self::Http | Self::Coap | Self::Script => None,
        }
    }
}

fn one() -> usize {
    1
}

fn second() -> u64 {
    1_000_000_000
}

fn unavailable() -> u16 {
    503
}

/// What is wrong with settings.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SettingsError {
    /// The setting.
    pub at: &'static str,
    /// What is wrong.
    pub what: String,
}

impl fmt::Display for SettingsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.at, self.what)
    }
}

impl std::error::Error for SettingsError {}

impl Settings {
    /// Reject values out of range.
    pub fn check(&self) -> Result<(), SettingsError> {
        let wrong = |at, what: String| Err(SettingsError { at, what });
        for (at, share) in [("error_share", self.error_share), ("drop_share", self.drop_share)] {
            if !(0.0..=1.0).contains(&share) {
                return wrong(at, format!("{share} is not from 0 to 1"));
            }
        }
        if !(1..=WORKERS_MAX).contains(&self.workers) {
            return wrong("workers", format!("{} is not from 1 to {WORKERS_MAX}", self.workers));
        }
        if let Some(why) = self.protocol.one_worker().filter(|_| self.workers > 1) {
            return wrong("workers", why.into());
        }
        match (&self.script, self.protocol) {
            (Some(script), Protocol::Script) => script.check()?,
            (None, Protocol::Script) => return wrong("script", "there are no steps to play".into()),
            (Some(_), _) => return wrong("script", "only the protocol script has one".into()),
            (None, _) => {}
        }
        if self.size > BODY_MAX {
            return wrong("size", format!("{} is over {BODY_MAX} bytes", self.size));
        }
        if !(400..=599).contains(&self.error_status) {
            return wrong("error_status", format!("{} is not from 400 to 599", self.error_status));
        }
        Ok(())
    }
}
