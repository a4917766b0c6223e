//! Digest authentication of requests (RFC 3261 section 22).

use super::{Key, Server};
use sip_core::digest::{Algorithm, Credentials};
use sip_core::message::{Message, Name};
use sip_core::transaction::MS;

/// Who asks for credentials.
#[derive(Clone, Copy)]
pub(super) enum Realm {
    Registrar,
    Proxy,
}

impl Server {
    fn password(&self, user: &str) -> Option<&str> {
        let known = self.settings.users.iter().find(|one| one.name == user).map(|one| one.password.as_str());
        known.or(self.settings.password.as_ref().map(|password| password.0.as_str()))
    }

    /// Whether registrations need credentials.
    pub(super) fn asks(&self) -> bool {
        !self.settings.users.is_empty() || self.settings.password.is_some()
    }

    /// The user whose credentials a request has. `None`: it was challenged.
    pub(super) fn authorized(&mut self, key: &Key, request: &Message, realm: Realm) -> Option<String> {
        let (answers, asks, code, reason) = match realm {
            Realm::Registrar => (Name::Authorization, Name::WwwAuthenticate, 401, "Unauthorized"),
            Realm::Proxy => {
                (Name::ProxyAuthorization, Name::ProxyAuthenticate, 407, "Proxy Authentication Required")
            }
        };
        let now_ms = self.now / MS;
        let mut stale = false;
        for value in request.values(answers) {
            let Ok(given) = Credentials::parse(value.as_bytes()) else { continue };
            let user = String::from_utf8_lossy(given.username).into_owned();
            if given.realm != self.settings.domain.as_bytes() {
                continue;
            }
            let Some(password) = self.password(&user) else { continue };
            let ha1 = given.algorithm.ha1(user.as_bytes(), given.realm, password.as_bytes());
            let method = request.method().map(|method| method.as_str().to_owned()).unwrap_or_default();
            let right = given.verify(&ha1, method.as_bytes(), &request.body).is_ok();
            let accepts = right || self.breaks("R15") && matches!(realm, Realm::Registrar);
            if !accepts {
                continue;
            }
            if self.nonces.take(given.nonce, given.nc, now_ms).is_ok() {
                return Some(user);
            }
            stale = right;
        }
        self.counters.challenges += 1;
        let nonce = self.nonces.issue(now_ms);
        let mut challenge = format!(
            "Digest realm=\"{}\", nonce=\"{nonce}\", qop=\"auth\", algorithm={}",
            self.settings.domain,
            Algorithm::MD5.as_str()
        );
        if stale && !self.breaks("R16") {
            challenge.push_str(", stale=true");
        }
        let hidden = matches!(realm, Realm::Registrar) && self.breaks("R14")
            || matches!(realm, Realm::Proxy) && self.breaks("P23");
        let fields = if hidden { Vec::new() } else { vec![(asks, challenge)] };
        self.respond(key, code, reason, fields);
        None
    }
}
