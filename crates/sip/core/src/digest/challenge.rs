use super::{Algorithm, pair, set_once};
use crate::message::lex::Cursor;

/// Quality of protection (RFC 7616 section 3.3).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Qop {
    /// Authentication.
    Auth,
    /// Authentication with integrity of the body.
    AuthInt,
}

impl Qop {
    /// Name in messages.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Auth => "auth",
            Self::AuthInt => "auth-int",
        }
    }

    pub(super) fn of(name: &[u8]) -> Option<Self> {
        [Self::Auth, Self::AuthInt].into_iter().find(|qop| name.eq_ignore_ascii_case(qop.as_str().as_bytes()))
    }
}

/// Why a challenge cannot be answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ChallengeError {
    /// There is no challenge.
    #[error("there is no challenge")]
    None,
    /// The scheme is not Digest.
    #[error("the authentication scheme is not Digest")]
    Scheme,
    /// The syntax is wrong.
    #[error("the challenge is malformed at byte {0}")]
    Syntax(usize),
    /// `realm` is missing.
    #[error("the challenge has no realm")]
    Realm,
    /// `nonce` is missing.
    #[error("the challenge has no nonce")]
    Nonce,
    /// The algorithm is not supported.
    #[error("the algorithm of the challenge is not supported")]
    Algorithm,
    /// None of the qop values is supported.
    #[error("no qop of the challenge is supported")]
    Qop,
}

impl ChallengeError {
    /// Stable name, for counters and results.
    pub fn name(self) -> &'static str {
        match self {
            Self::None => "no_challenge",
            Self::Scheme => "challenge_scheme",
            Self::Syntax(_) => "challenge_syntax",
            Self::Realm => "challenge_realm",
            Self::Nonce => "challenge_nonce",
            Self::Algorithm => "challenge_algorithm",
            Self::Qop => "challenge_qop",
        }
    }
}

/// A Digest challenge (RFC 3261 section 20.44). Strings are as written between their quotes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Challenge<'a> {
    /// Protection domain.
    pub realm: &'a [u8],
    /// Nonce.
    pub nonce: &'a [u8],
    /// String that the answer repeats.
    pub opaque: Option<&'a [u8]>,
    /// URIs of the protection space.
    pub domain: Option<&'a [u8]>,
    /// Algorithm; MD5 where none is named.
    pub algorithm: Algorithm,
    /// `qop` offers `auth`.
    pub auth: bool,
    /// `qop` offers `auth-int`.
    pub auth_int: bool,
    /// The nonce of the request was too old, its digest right.
    pub stale: bool,
    /// The server takes a hash in place of the user name.
    pub userhash: bool,
}

/// Which of several challenges is answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Preference {
    /// The topmost that is supported (RFC 8760 section 2.4).
    #[default]
    Topmost,
    /// The one with the strongest hash; the topmost of equals.
    Strongest,
}

impl<'a> Challenge<'a> {
    /// Reads the value of a WWW-Authenticate or Proxy-Authenticate header field.
    pub fn parse(value: &'a [u8]) -> Result<Self, ChallengeError> {
        list(value).next().unwrap_or(Err(ChallengeError::None))
    }

    /// The `qop` to answer with: `auth-int` where it is wanted or nothing else offered; none where the challenge has none.
    pub fn qop(&self, integrity: bool) -> Option<Qop> {
        match (self.auth, self.auth_int) {
            (false, false) => None,
            (true, false) => Some(Qop::Auth),
            (true, true) if !integrity => Some(Qop::Auth),
            _ => Some(Qop::AuthInt),
        }
    }
}

/// The challenges of a value. SIP has one a header field; a comma between several, as HTTP allows, is read too.
pub fn list(value: &[u8]) -> impl Iterator<Item = Result<Challenge<'_>, ChallengeError>> {
    let mut read = Cursor::new(value);
    read.space();
    std::iter::from_fn(move || {
        if read.is_at_end() {
            return None;
        }
        let challenge = parse_challenge(&mut read);
        if matches!(challenge, Err(ChallengeError::Syntax(_))) {
            read.at = value.len();
        }
        Some(challenge)
    })
}

/// Reads up to the end or to where another challenge begins.
fn parse_challenge<'a>(read: &mut Cursor<'a>) -> Result<Challenge<'a>, ChallengeError> {
    let scheme = read.token().ok_or(ChallengeError::Syntax(read.at))?;
    if !read.space() {
        return Err(ChallengeError::Syntax(read.at));
    }
    let mut found = ChallengeParameters::default();
    let another = loop {
        let begin = read.at;
        let taken = pair(read).and_then(|pair| found.take(pair.name, pair.value, pair.quoted));
        if taken.is_none() {
            return Err(ChallengeError::Syntax(begin));
        }
        if !read.separator(b',') {
            break false;
        }
        // A token and white space that no `=` follows: the scheme of the next challenge.
        let mut ahead = *read;
        if ahead.token().is_some() && ahead.space() && ahead.peek() != Some(b'=') {
            break true;
        }
    };
    read.space();
    if !another && !read.is_at_end() {
        return Err(ChallengeError::Syntax(read.at));
    }
    if !scheme.eq_ignore_ascii_case(b"Digest") {
        return Err(ChallengeError::Scheme);
    }
    found.finish()
}

#[derive(Default)]
struct ChallengeParameters<'a> {
    realm: Option<&'a [u8]>,
    nonce: Option<&'a [u8]>,
    opaque: Option<&'a [u8]>,
    domain: Option<&'a [u8]>,
    algorithm: Option<&'a [u8]>,
    qop: Option<(bool, bool)>,
    stale: Option<bool>,
    userhash: Option<bool>,
}

impl<'a> ChallengeParameters<'a> {
    fn take(&mut self, name: &[u8], value: &'a [u8], quoted: bool) -> Option<()> {
        let is = |known: &str| name.eq_ignore_ascii_case(known.as_bytes());
        let string = Some(value).filter(|_| quoted);
        let yes = value.eq_ignore_ascii_case(b"true");
        match () {
            () if is("realm") => set_once(&mut self.realm, string?),
            () if is("nonce") => set_once(&mut self.nonce, string?),
            () if is("opaque") => set_once(&mut self.opaque, string?),
            () if is("domain") => set_once(&mut self.domain, string?),
            () if is("algorithm") => set_once(&mut self.algorithm, value),
            () if is("stale") => set_once(&mut self.stale, yes),
            () if is("userhash") => set_once(&mut self.userhash, yes),
            () if is("qop") => {
                let offered = value.split(|b| *b == b',').map(|one| Qop::of(one.trim_ascii()));
                let offered = offered.fold((false, false), |(auth, int), qop| {
                    (auth || qop == Some(Qop::Auth), int || qop == Some(Qop::AuthInt))
                });
                set_once(&mut self.qop, offered)
            }
            // RFC 3261 section 20.44: parameters that are not known are ignored.
            () => Some(()),
        }
    }

    fn finish(self) -> Result<Challenge<'a>, ChallengeError> {
        let (auth, auth_int) = self.qop.unwrap_or_default();
        if self.qop == Some((false, false)) {
            return Err(ChallengeError::Qop);
        }
        Ok(Challenge {
            realm: self.realm.ok_or(ChallengeError::Realm)?,
            nonce: self.nonce.ok_or(ChallengeError::Nonce)?,
            opaque: self.opaque,
            domain: self.domain,
            algorithm: match self.algorithm {
                None => Algorithm::MD5,
                Some(name) => Algorithm::of(name).ok_or(ChallengeError::Algorithm)?,
            },
            auth,
            auth_int,
            stale: self.stale == Some(true),
            userhash: self.userhash == Some(true),
        })
    }
}

/// The challenge to answer with a password, of the values of all header fields of a name. The error is the first challenge's.
pub fn choose<'a>(values: &[&'a [u8]], preference: Preference) -> Result<Challenge<'a>, ChallengeError> {
    let (mut best, mut error) = (None::<Challenge<'a>>, None);
    for challenge in values.iter().flat_map(|value| list(value)) {
        match challenge {
            Err(problem) => error = error.or(Some(problem)),
            Ok(challenge) if challenge.algorithm.aka => error = error.or(Some(ChallengeError::Algorithm)),
            Ok(challenge) => {
                let better = best.is_none_or(|best| {
                    preference == Preference::Strongest && challenge.algorithm.hash > best.algorithm.hash
                });
                if better {
                    best = Some(challenge);
                }
            }
        }
    }
    best.ok_or(error.unwrap_or(ChallengeError::None))
}
