//! Digest access authentication (RFC 3261 section 22, RFC 7616, RFC 8760): both sides.
//!
//! A client reads challenges with [`Challenge`], chooses one with [`choose`], and writes an [`Answer`]. Whoever answers very many
//! challenges computes [`Algorithm::ha1`] once a user: an answer then allocates nothing. A server issues and checks nonces with
//! [`Nonces`], reads [`Credentials`] and compares them with a user's HA1.
//!
//! Quoted strings are hashed as they are written between their quotes, escapes included, as in RFC 7616 section 3.4.

mod aka;
mod algorithm;
mod answer;
mod challenge;
mod credentials;
mod info;
mod nonce;

pub use aka::{Aka, AkaError};
pub use algorithm::{Algorithm, Hash, Hex};
pub use answer::Answer;
pub use challenge::{Challenge, ChallengeError, Preference, Qop, choose, list};
pub use credentials::{Credentials, Mismatch};
pub use info::{AuthenticationInfo, InfoError};
pub use nonce::{NonceError, Nonces};

use crate::message::lex::Cursor;

/// A parameter of a challenge or of credentials.
#[derive(Debug, Clone, Copy)]
struct Pair<'a> {
    name: &'a [u8],
    value: &'a [u8],
    quoted: bool,
}

/// `name = value`; a quoted string may not be folded, since both sides would hash different bytes.
fn pair<'a>(read: &mut Cursor<'a>) -> Option<Pair<'a>> {
    let name = read.token()?;
    read.separator(b'=').then_some(())?;
    let quoted = read.peek() == Some(b'"');
    let value = if quoted { read.quoted()? } else { read.token()? };
    let folded = value.iter().any(|b| matches!(b, b'\r' | b'\n'));
    (!folded).then_some(Pair { name, value, quoted })
}

/// A nonce count: eight hexadecimal digits (RFC 7616 section 3.4).
fn nonce_count(digits: &[u8]) -> Option<u32> {
    let hex = digits.len() == 8 && digits.iter().all(u8::is_ascii_hexdigit);
    let digits = std::str::from_utf8(digits).ok().filter(|_| hex)?;
    u32::from_str_radix(digits, 16).ok()
}

/// Puts a value where none was; `None` where there is one already.
fn set_once<T>(slot: &mut Option<T>, value: T) -> Option<()> {
    slot.replace(value).is_none().then_some(())
}

#[cfg(test)]
mod tests;
