use super::answer::Inputs;
use super::{Algorithm, Hex, Pair, Qop, nonce_count, pair, set_once};
use crate::message::lex::Cursor;

/// Why credentials are refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Mismatch {
    /// The scheme is not Digest.
    #[error("the authentication scheme is not Digest")]
    Scheme,
    /// The syntax is wrong.
    #[error("the credentials are malformed at byte {0}")]
    Syntax(usize),
    /// A parameter is missing that the others ask for.
    #[error("the credentials have no {0}")]
    Missing(&'static str),
    /// The algorithm is not supported.
    #[error("the algorithm of the credentials is not supported")]
    Algorithm,
    /// The response is not what user, password and request make.
    #[error("the response is wrong")]
    Response,
}

impl Mismatch {
    /// Stable name, for counters and results.
    pub fn name(self) -> &'static str {
        match self {
            Self::Scheme => "credentials_scheme",
            Self::Syntax(_) => "credentials_syntax",
            Self::Missing(_) => "credentials_missing",
            Self::Algorithm => "credentials_algorithm",
            Self::Response => "credentials_response",
        }
    }
}

/// Digest credentials of a request (RFC 3261 section 20.7). Strings are as written between their quotes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Credentials<'a> {
    /// User name, or its hash where `userhash` is set.
    pub username: &'a [u8],
    /// Realm.
    pub realm: &'a [u8],
    /// Nonce.
    pub nonce: &'a [u8],
    /// URI that was hashed.
    pub uri: &'a [u8],
    /// Response, hexadecimal.
    pub response: &'a [u8],
    /// Algorithm; MD5 where none is named.
    pub algorithm: Algorithm,
    /// The client's nonce.
    pub cnonce: Option<&'a [u8]>,
    /// The challenge's `opaque`.
    pub opaque: Option<&'a [u8]>,
    /// Quality of protection.
    pub qop: Option<Qop>,
    /// Nonce count.
    pub nc: Option<u32>,
    /// `username` is a hash (RFC 7616 section 3.4.4).
    pub userhash: bool,
    nc_digits: &'a [u8],
}

impl<'a> Credentials<'a> {
    /// Reads the value of an Authorization or Proxy-Authorization header field.
    pub fn parse(value: &'a [u8]) -> Result<Self, Mismatch> {
        let mut read = Cursor::new(value);
        let scheme = read.token().ok_or(Mismatch::Syntax(0))?;
        if !scheme.eq_ignore_ascii_case(b"Digest") {
            return Err(Mismatch::Scheme);
        }
        let mut found = CredentialParameters::default();
        read.space();
        loop {
            let begin = read.at;
            let taken = pair(&mut read).and_then(|pair| found.take(pair));
            taken.ok_or(Mismatch::Syntax(begin))?;
            if !read.separator(b',') {
                break;
            }
        }
        read.space();
        if !read.is_at_end() {
            return Err(Mismatch::Syntax(read.at));
        }
        found.finish()
    }

    /// Whether `username` is this user's name, or its hash.
    pub fn is_user(&self, username: &[u8]) -> bool {
        if self.userhash {
            return self.algorithm.userhash(username, self.realm).matches(self.username);
        }
        let mut written = self.username.iter();
        let unescaped = std::iter::from_fn(|| match written.next() {
            Some(b'\\') => written.next(),
            other => other,
        });
        unescaped.eq(username)
    }

    /// Whether the response is what `ha1` (of user name, realm and password) and the request make. Nonce, realm, URI and nonce
    /// count are the caller's to compare.
    pub fn verify(&self, ha1: &Hex, method: &[u8], body: &[u8]) -> Result<(), Mismatch> {
        let inputs = Inputs {
            algorithm: self.algorithm,
            nonce: self.nonce,
            nc: self.nc_digits,
            cnonce: self.cnonce.unwrap_or_default(),
            qop: self.qop,
            method,
            uri: self.uri,
            body,
        };
        if inputs.response(ha1).matches(self.response) { Ok(()) } else { Err(Mismatch::Response) }
    }
}

#[derive(Default)]
struct CredentialParameters<'a> {
    username: Option<&'a [u8]>,
    realm: Option<&'a [u8]>,
    nonce: Option<&'a [u8]>,
    uri: Option<&'a [u8]>,
    response: Option<&'a [u8]>,
    algorithm: Option<&'a [u8]>,
    cnonce: Option<&'a [u8]>,
    opaque: Option<&'a [u8]>,
    qop: Option<Qop>,
    nc: Option<(u32, &'a [u8])>,
    userhash: Option<bool>,
}

impl<'a> CredentialParameters<'a> {
    fn take(&mut self, Pair { name, value, quoted }: Pair<'a>) -> Option<()> {
        let is = |known: &str| name.eq_ignore_ascii_case(known.as_bytes());
        let string = Some(value).filter(|_| quoted);
        match () {
            () if is("username") => set_once(&mut self.username, string?),
            () if is("realm") => set_once(&mut self.realm, string?),
            () if is("nonce") => set_once(&mut self.nonce, string?),
            () if is("uri") => set_once(&mut self.uri, string?),
            () if is("response") => set_once(&mut self.response, string?),
            () if is("cnonce") => set_once(&mut self.cnonce, string?),
            () if is("opaque") => set_once(&mut self.opaque, string?),
            () if is("algorithm") => set_once(&mut self.algorithm, value),
            () if is("userhash") => set_once(&mut self.userhash, value.eq_ignore_ascii_case(b"true")),
            () if is("qop") => set_once(&mut self.qop, Qop::of(value)?),
            () if is("nc") => set_once(&mut self.nc, (nonce_count(value)?, value)),
            () => Some(()),
        }
    }

    fn finish(self) -> Result<Credentials<'a>, Mismatch> {
        let algorithm = match self.algorithm {
            None => Algorithm::MD5,
            Some(name) => Algorithm::of(name).ok_or(Mismatch::Algorithm)?,
        };
        // RFC 7616 section 3.4: with qop both must be there.
        if self.qop.is_some() && self.nc.is_none() {
            return Err(Mismatch::Missing("nc"));
        }
        if (self.qop.is_some() || algorithm.session) && self.cnonce.is_none() {
            return Err(Mismatch::Missing("cnonce"));
        }
        let (nc, nc_digits) = self.nc.map_or((None, &[][..]), |(nc, digits)| (Some(nc), digits));
        Ok(Credentials {
            username: self.username.ok_or(Mismatch::Missing("username"))?,
            realm: self.realm.ok_or(Mismatch::Missing("realm"))?,
            nonce: self.nonce.ok_or(Mismatch::Missing("nonce"))?,
            uri: self.uri.ok_or(Mismatch::Missing("uri"))?,
            response: self.response.ok_or(Mismatch::Missing("response"))?,
            algorithm,
            cnonce: self.cnonce,
            opaque: self.opaque,
            qop: self.qop,
            nc,
            userhash: self.userhash == Some(true),
            nc_digits,
        })
    }
}
