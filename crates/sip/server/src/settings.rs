//! Settings of the server: role, domain, users, times and faults.

use crate::peer::Transport;
use run::tls::ServerTls;
use serde::Deserialize;
use std::net::SocketAddr;

/// What answers requests other than REGISTER. Registrations are accepted in every role.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// A stateful proxy, which forks to all bindings in parallel and records its route.
    #[default]
    Proxy,
    /// A redirect server: 302 with all bindings.
    Redirect,
    /// A user agent that answers every call.
    Uas,
}

/// TLS.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TlsListener {
    /// Address and port.
    pub listen: SocketAddr,
    /// Certificate of the server, and whose certificates it asks for.
    pub identity: ServerTls,
}

/// A user.
#[derive(Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Account {
    /// User part of the address of record, and user name of Digest.
    pub name: String,
    /// Password.
    pub password: String,
}

impl std::fmt::Debug for Account {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Account").field("name", &self.name).finish_non_exhaustive()
    }
}

/// Settings.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Settings {
    /// Address and port, over UDP and TCP.
    pub listen: SocketAddr,
    /// TLS, at a port of its own.
    #[serde(default)]
    pub tls: Option<TlsListener>,
    /// Address and port of WebSocket.
    #[serde(default)]
    pub ws: Option<SocketAddr>,
    /// Address and port of WebSocket over TLS, with the certificate of `tls`.
    #[serde(default)]
    pub wss: Option<SocketAddr>,
    /// Role.
    #[serde(default)]
    pub role: Role,
    /// Domain of the addresses of record; the listening address is one too.
    pub domain: String,
    /// Users. With a user or a password REGISTER is challenged.
    #[serde(default)]
    pub users: Vec<Account>,
    /// Password of every user that is not among `users`.
    #[serde(default)]
    pub password: Option<Password>,
    /// Challenge INVITE outside of dialogs, with 407.
    #[serde(default)]
    pub call_auth: bool,
    /// Lifetime of a nonce, ms.
    #[serde(default = "nonce_lifetime")]
    pub nonce_lifetime_ms: u64,
    /// Over TCP: whether a connection whose client asks for it by `alias` in Via is used for requests to the port named there. Nothing
    /// proves that the port is the client's. Over TLS its certificate does, or the connection is not used so.
    #[serde(default)]
    pub accept_aliases: bool,
    /// T1, ms (RFC 3261 section 17.1.1.1).
    #[serde(default = "t1")]
    pub t1_ms: u64,
    /// Shortest lifetime of a binding, s.
    #[serde(default = "min_expires")]
    pub min_expires: u32,
    /// Lifetime where REGISTER names none, s.
    #[serde(default = "default_expires")]
    pub default_expires: u32,
    /// Longest lifetime, s.
    #[serde(default = "max_expires")]
    pub max_expires: u32,
    /// Most bindings altogether.
    #[serde(default = "max_bindings")]
    pub max_bindings: usize,
    /// Time from a request to its response, ms.
    #[serde(default)]
    pub delay_ms: u64,
    /// UAS: time from 180 to 200, ms.
    #[serde(default)]
    pub ring_ms: u64,
    /// UAS: calls have audio, which goes back as it came; port of RTP, 0: any. None: calls have no audio.
    #[serde(default)]
    pub echo: Option<u16>,
    /// Share of requests that are rejected with `error_status`.
    #[serde(default)]
    pub error_share: f64,
    /// Status of rejected requests.
    #[serde(default = "error_status")]
    pub error_status: u16,
    /// Share of received messages that are dropped.
    #[serde(default)]
    pub drop_share: f64,
    /// Seed of both shares.
    #[serde(default)]
    pub seed: u64,
    /// Purpose of the conformance suite whose rule is broken, like `P04`.
    #[serde(default)]
    pub fault: Option<String>,
}

/// A password, which is not shown.
#[derive(Clone, Deserialize)]
#[serde(transparent)]
pub struct Password(pub String);

impl std::fmt::Debug for Password {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Password")
    }
}

fn nonce_lifetime() -> u64 {
    300_000
}
fn t1() -> u64 {
    500
}
fn min_expires() -> u32 {
    60
}
fn default_expires() -> u32 {
    3600
}
fn max_expires() -> u32 {
    86_400
}
fn max_bindings() -> usize {
    1_000_000
}
fn error_status() -> u16 {
    503
}

/// What is wrong with settings.
#[derive(Debug, thiserror::Error)]
#[error("{key}: {what}")]
pub struct SettingsError {
    /// Key.
    pub key: &'static str,
    /// Fault.
    pub what: String,
}

impl Settings {
    /// Settings with defaults, as JSON without further keys gives them.
    pub fn new(listen: SocketAddr, domain: &str) -> Self {
        Self {
            listen,
            tls: None,
            ws: None,
            wss: None,
            role: Role::Proxy,
            domain: domain.to_owned(),
            users: Vec::new(),
            password: None,
            call_auth: false,
            nonce_lifetime_ms: nonce_lifetime(),
            accept_aliases: false,
            t1_ms: t1(),
            min_expires: min_expires(),
            default_expires: default_expires(),
            max_expires: max_expires(),
            max_bindings: max_bindings(),
            delay_ms: 0,
            ring_ms: 0,
            echo: None,
            error_share: 0.0,
            error_status: error_status(),
            drop_share: 0.0,
            seed: 0,
            fault: None,
        }
    }

    /// Where it listens, by transport.
    pub fn addresses(&self) -> impl Iterator<Item = (Transport, SocketAddr)> {
        let plain = [Transport::Udp, Transport::Tcp].map(|transport| (transport, self.listen));
        let tls = self.tls.as_ref().map(|tls| (Transport::Tls, tls.listen));
        let ws = self.ws.map(|at| (Transport::Ws, at));
        plain.into_iter().chain(tls).chain(ws).chain(self.wss.map(|at| (Transport::Wss, at)))
    }

    /// Where it listens over this transport.
    pub(crate) fn local(&self, transport: Transport) -> SocketAddr {
        self.addresses().find(|(one, _)| *one == transport).map_or(self.listen, |(_, local)| local)
    }

    /// Whether they make sense.
    pub fn check(&self) -> Result<(), SettingsError> {
        let wrong = |key, what: &str| Err(SettingsError { key, what: what.to_owned() });
        if self.addresses().any(|(_, local)| local.ip().is_unspecified()) {
            return wrong("listen", "needs an address, which goes into Via and Record-Route");
        }
        if self.wss.is_some() && self.tls.is_none() {
            return wrong("wss", "needs the certificate of tls");
        }
        for (key, share) in [("error_share", self.error_share), ("drop_share", self.drop_share)] {
            if !(0.0..=1.0).contains(&share) {
                return wrong(key, "is from 0 to 1");
            }
        }
        if self.echo.is_some() && self.role != Role::Uas {
            return wrong("echo", "is for a UAS, which answers calls itself");
        }
        if !(300..=699).contains(&self.error_status) {
            return wrong("error_status", "is from 300 to 699");
        }
        if !(10..=10_000).contains(&self.t1_ms) {
            return wrong("t1_ms", "is from 10 to 10,000");
        }
        if self.min_expires > self.default_expires || self.default_expires > self.max_expires {
            return wrong("default_expires", "is between the shortest and the longest lifetime");
        }
        if let Some(fault) = self.fault.as_deref().filter(|fault| !is_purpose(fault)) {
            return wrong("fault", &format!("{fault} is no purpose: R01 to R19, P01 to P25, D01 to D07"));
        }
        Ok(())
    }
}

fn is_purpose(name: &str) -> bool {
    let digits =
        name.get(1..).filter(|digits| digits.len() == 2 && digits.bytes().all(|b| b.is_ascii_digit()));
    let number = digits.and_then(|digits| digits.parse::<u8>().ok());
    let most = match name.as_bytes().first() {
        Some(b'R') => 19,
        Some(b'P') => 25,
        Some(b'D') => 7,
        _ => 0,
    };
    number.is_some_and(|number| (1..=most).contains(&number))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn faults_are_purposes() {
        for name in ["R01", "R19", "P25", "D07"] {
            assert!(is_purpose(name), "{name}");
        }
        for name in ["", "R", "R00", "R20", "P26", "D08", "X01", "R1", "P+1", "P001"] {
            assert!(!is_purpose(name), "{name}");
        }
    }

    #[test]
    fn passwords_are_not_shown() {
        let mut settings = Settings::new(([127, 0, 0, 1], 5060).into(), "example.net");
        settings.password = Some(Password("hush".into()));
        settings.users.push(Account { name: "alice".into(), password: "hush".into() });
        assert!(!format!("{settings:?}").contains("hush"));
    }

    #[test]
    fn bad_settings_are_named() {
        let good = Settings::new(([127, 0, 0, 1], 5060).into(), "example.net");
        assert!(good.check().is_ok());
        type Change = fn(&mut Settings);
        let changes: [(&str, Change); 7] = [
            ("echo", |s| s.echo = Some(0)),
            ("listen", |s| s.listen = ([0, 0, 0, 0], 5060).into()),
            ("error_share", |s| s.error_share = 1.5),
            ("drop_share", |s| s.drop_share = f64::NAN),
            ("error_status", |s| s.error_status = 200),
            ("t1_ms", |s| s.t1_ms = 0),
            ("fault", |s| s.fault = Some("R77".into())),
        ];
        for (key, change) in changes {
            let mut settings = good.clone();
            change(&mut settings);
            assert_eq!(settings.check().map_err(|error| error.key), Err(key));
        }
    }
}
