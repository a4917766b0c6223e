//! The answers to challenges, for one request after the other.

use crate::message::fingerprint;
use rand::Rng;
use rand::rngs::SmallRng;
use sip_core::digest::{Aka, AkaError, Answer, Challenge, Hex, list};

/// Letters of our nonce.
const CNONCE: usize = 16;
/// Realms whose challenges are answered in one request, at most.
const REALMS_MAX: usize = 8;

/// What a user agent answers challenges with.
#[derive(Default)]
pub(crate) struct Secrets {
    pub password: Option<Vec<u8>>,
    pub aka: Option<Aka>,
}

/// A challenge, and who answers it.
#[derive(Debug)]
pub(crate) struct Auth {
    /// The challenge as it came.
    challenge: Box<[u8]>,
    username: Box<[u8]>,
    ha1: Hex,
    /// How many requests were sent with its nonce.
    uses: u32,
    proxy: bool,
}

impl Auth {
    /// Answers to `challenges`: of each realm to the topmost that these secrets are an answer to (RFC 8760 section 2.4).
    /// `proxy`: proxies ask.
    pub fn answers(
        challenges: &[&[u8]],
        username: &[u8],
        secrets: &Secrets,
        proxy: bool,
    ) -> Result<Vec<Self>, AkaError> {
        let mut answers: Vec<Self> = Vec::new();
        for value in challenges {
            let Some(Ok(challenge)) = list(value).next() else { continue };
            let aka = secrets.aka.as_ref().filter(|_| challenge.algorithm.aka);
            let password = secrets.password.as_ref().filter(|_| !challenge.algorithm.aka);
            let asked = answers.iter().any(|other| other.is_asked_by(challenge.realm, proxy));
            let secret = match (aka, password) {
                _ if asked => continue,
                (Some(aka), _) => aka.response(challenge.nonce)?.to_vec(),
                (None, Some(password)) => password.clone(),
                (None, None) => continue,
            };
            let ha1 = challenge.algorithm.ha1(username, challenge.realm, &secret);
            answers.push(Self { challenge: (*value).into(), username: username.into(), ha1, uses: 0, proxy });
        }
        Ok(answers)
    }

    fn is_asked_by(&self, realm: &[u8], proxy: bool) -> bool {
        self.proxy == proxy && self.challenge().is_some_and(|challenge| challenge.realm == realm)
    }

    /// Who asks: the server or a proxy, of which realm.
    pub fn asker(&self) -> u64 {
        let realm = self.challenge().map(|challenge| fingerprint(challenge.realm)).unwrap_or_default();
        realm << 1 | u64::from(self.proxy)
    }

    fn challenge(&self) -> Option<Challenge<'_>> {
        list(&self.challenge).next()?.ok()
    }

    /// Whether the request before had the right password and an old nonce.
    pub fn is_stale(&self) -> bool {
        self.challenge().is_some_and(|challenge| challenge.stale)
    }

    /// Append the header field that answers for one more request.
    pub fn write(&mut self, method: &str, uri: &[u8], body: &[u8], rng: &mut SmallRng, out: &mut Vec<u8>) {
        self.uses += 1;
        let nc = self.uses;
        let Some(challenge) = self.challenge() else { return };
        let cnonce: [u8; CNONCE] = std::array::from_fn(|_| b"0123456789abcdef"[rng.random_range(0..16)]);
        let name: &[u8] = if self.proxy { b"Proxy-Authorization: " } else { b"Authorization: " };
        out.extend_from_slice(name);
        let answer = Answer {
            challenge: &challenge,
            username: &self.username,
            ha1: &self.ha1,
            method: method.as_bytes(),
            uri,
            body,
            qop: challenge.qop(false),
            cnonce: &cnonce,
            nc,
        };
        answer.write(out);
        out.extend_from_slice(b"\r\n");
    }
}

/// What is answered to everybody who asked: servers and proxies, each in its realm (RFC 3261 section 22.3).
#[derive(Debug, Default)]
pub(crate) struct Credentials(Vec<Auth>);

impl Credentials {
    /// Answer a challenge from now on; an earlier one of the same realm is over.
    pub fn add(&mut self, auth: Auth) {
        self.0.retain(|other| other.asker() != auth.asker());
        if self.0.len() == REALMS_MAX {
            self.0.remove(0);
        }
        self.0.push(auth);
    }

    /// Append the header fields that answer for one more request.
    pub fn write(&mut self, method: &str, uri: &[u8], body: &[u8], rng: &mut SmallRng, out: &mut Vec<u8>) {
        for auth in &mut self.0 {
            auth.write(method, uri, body, rng, out);
        }
    }

    pub fn clear(&mut self) {
        self.0.clear();
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}
