//! What a run is asked for: server, accounts, and tests.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::net::SocketAddr;

/// A run of tests.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Request {
    /// Server.
    pub server: SocketAddr,
    /// Transport of tests that name none.
    #[serde(default)]
    pub transport: Transport,
    /// Domain of the addresses of record.
    pub domain: String,
    /// The user that tests register and call.
    pub user: Account,
    /// The user that calls; the same where there is none.
    pub other: Option<Account>,
    /// T1, ms (RFC 3261 section 17.1.1.1).
    #[serde(default = "default_t1")]
    pub t1_ms: u64,
    /// Lifetime of the server's nonces, seconds, for the test that lets one expire.
    pub nonce_lifetime: Option<u32>,
    /// Tests.
    #[serde(default)]
    pub tests: Vec<Test>,
    /// Names of messages of RFC 4475 to send.
    #[serde(default)]
    pub torture: Vec<String>,
}

fn default_t1() -> u64 {
    500
}

/// A user of the server.
#[derive(Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Account {
    /// User part of the address of record, and user name of Digest.
    pub name: String,
    /// Password.
    pub password: Option<String>,
}

impl std::fmt::Debug for Account {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Account").field("name", &self.name).finish_non_exhaustive()
    }
}

/// Transport between user agents and server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Transport {
    /// UDP.
    #[default]
    Udp,
    /// TCP.
    Tcp,
}

impl Transport {
    /// Name in Via.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Udp => "UDP",
            Self::Tcp => "TCP",
        }
    }
}

/// A test file.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Test {
    /// Identifier.
    pub id: String,
    /// What the server must do, in one line.
    pub title: String,
    /// Role of the server: `registrar`, `proxy` or `redirect`.
    pub role: String,
    /// Clause of the standard that decides.
    pub clause: String,
    /// Whether the clause demands or recommends it.
    #[serde(default)]
    pub level: Level,
    /// Why the test is as it is.
    #[serde(default)]
    pub notes: String,
    /// Transport, if the test needs one.
    pub transport: Option<Transport>,
    /// Options of the run without which the test is inconclusive: `password`, `other`, `nonce_lifetime`.
    #[serde(default)]
    pub needs: Vec<String>,
    /// User agents.
    pub agents: Vec<String>,
    /// Steps before the test. One that is not met makes the test inconclusive.
    #[serde(default)]
    pub setup: Vec<Map<String, Value>>,
    /// Steps.
    pub steps: Vec<Map<String, Value>>,
}

/// How binding a clause is (RFC 2119).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Level {
    /// MUST: a server that does otherwise fails.
    #[default]
    Required,
    /// SHOULD: it gets a warning.
    Recommended,
}

/// A test file that cannot be played.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{at}: {what}")]
pub struct FileError {
    /// Test and step.
    pub at: String,
    /// What is wrong.
    pub what: String,
}

impl FileError {
    pub(crate) fn torture(name: &str) -> Self {
        Self { at: "torture".into(), what: format!("RFC 4475 has no message {name}") }
    }
}
