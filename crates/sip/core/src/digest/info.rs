use super::{Answer, Qop, pair, set_once};
use crate::message::lex::Cursor;

/// Authentication-Info of a 2xx (RFC 3261 section 20.6, RFC 7616 section 3.5). Strings are as written between their quotes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct AuthenticationInfo<'a> {
    /// Nonce for the next request.
    pub next_nonce: Option<&'a [u8]>,
    /// Quality of protection of the response.
    pub qop: Option<Qop>,
    /// Proof that the server knows the password, hexadecimal.
    pub response_auth: Option<&'a [u8]>,
    /// The client's nonce.
    pub cnonce: Option<&'a [u8]>,
    /// Nonce count of the request.
    pub nc: Option<u32>,
}

/// Why Authentication-Info is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum InfoError {
    /// The syntax is wrong.
    #[error("Authentication-Info is malformed at byte {0}")]
    Syntax(usize),
    /// The server's proof is wrong, or belongs to another request.
    #[error("the server's response-auth is wrong")]
    ResponseAuth,
}

impl InfoError {
    /// Stable name, for counters and results.
    pub fn name(self) -> &'static str {
        match self {
            Self::Syntax(_) => "authentication_info_syntax",
            Self::ResponseAuth => "authentication_info_response_auth",
        }
    }
}

impl<'a> AuthenticationInfo<'a> {
    /// Reads the value of an Authentication-Info header field.
    pub fn parse(value: &'a [u8]) -> Result<Self, InfoError> {
        let (mut read, mut info) = (Cursor::new(value), Self::default());
        loop {
            let begin = read.at;
            info.take(&mut read).ok_or(InfoError::Syntax(begin))?;
            if !read.separator(b',') {
                break;
            }
        }
        read.space();
        if read.is_at_end() { Ok(info) } else { Err(InfoError::Syntax(read.at)) }
    }

    fn take(&mut self, read: &mut Cursor<'a>) -> Option<()> {
        let super::Pair { name, value, quoted } = pair(read)?;
        let is = |known: &str| name.eq_ignore_ascii_case(known.as_bytes());
        let string = Some(value).filter(|_| quoted);
        match () {
            () if is("nextnonce") => set_once(&mut self.next_nonce, string?),
            () if is("rspauth") => set_once(&mut self.response_auth, string?),
            () if is("cnonce") => set_once(&mut self.cnonce, string?),
            () if is("qop") => set_once(&mut self.qop, Qop::of(value)?),
            () if is("nc") => set_once(&mut self.nc, super::nonce_count(value)?),
            () => Some(()),
        }
    }

    /// Whether the server knows the password of the answer that the request had; `body` is the body of its response.
    pub fn verify(&self, answer: &Answer<'_>, body: &[u8]) -> Result<(), InfoError> {
        let same = self.cnonce.is_none_or(|cnonce| cnonce == answer.cnonce)
            && self.nc.is_none_or(|nc| nc == answer.nc)
            && self.qop == answer.qop;
        let proof = self.response_auth.is_some_and(|digits| answer.response_auth(body).matches(digits));
        if same && proof { Ok(()) } else { Err(InfoError::ResponseAuth) }
    }
}
