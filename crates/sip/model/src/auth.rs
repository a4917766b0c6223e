//! The answer to a challenge, for one request after the other.

use rand::Rng;
use rand::rngs::SmallRng;
use sip_core::digest::{Aka, AkaError, Answer, Challenge, Hex, list};

/// Letters of our nonce.
const CNONCE: usize = 16;

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
    /// Take the topmost challenge that these secrets are an answer to (RFC 8760 section 2.4). `proxy`: it came with a 407.
    pub fn answer(
        challenges: &[&[u8]],
        username: &[u8],
        secrets: &Secrets,
        proxy: bool,
    ) -> Option<Result<Self, AkaError>> {
        let (value, challenge) = challenges.iter().find_map(|value| {
            let challenge = list(value).next()?.ok()?;
            let aka = challenge.algorithm.aka;
            let known = if aka { secrets.aka.is_some() } else { secrets.password.is_some() };
            known.then_some((*value, challenge))
        })?;
        let ha1 = |password: &[u8]| challenge.algorithm.ha1(username, challenge.realm, password);
        let ha1 = match (&secrets.aka, &secrets.password) {
            (Some(aka), _) if challenge.algorithm.aka => match aka.response(challenge.nonce) {
                Ok(response) => ha1(&response),
                Err(error) => return Some(Err(error)),
            },
            (_, password) => ha1(password.as_deref().unwrap_or_default()),
        };
        Some(Ok(Self { challenge: value.into(), username: username.into(), ha1, uses: 0, proxy }))
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
