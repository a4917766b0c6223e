use md5::Md5;
use sha2::digest::Digest;
use sha2::{Sha256, Sha512_256};
use std::fmt;

/// A hash function, from weak to strong.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Hash {
    /// MD5 (RFC 1321).
    Md5,
    /// SHA-256 (FIPS 180-4).
    Sha256,
    /// SHA-512/256 (FIPS 180-4).
    Sha512_256,
}

/// Parameter `algorithm` (RFC 7616 section 3.3, RFC 8760 section 2.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Algorithm {
    /// Hash function.
    pub hash: Hash,
    /// Name ends in `-sess`: HA1 depends on nonce and cnonce.
    pub session: bool,
    /// Name begins with `AKAv1-`: the password comes from the challenge (RFC 3310).
    pub aka: bool,
}

/// A hash in lower-case hexadecimal digits.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Hex {
    digits: [u8; 64],
    length: u8,
}

impl Hex {
    fn of(hash: &[u8]) -> Self {
        const DIGITS: &[u8; 16] = b"0123456789abcdef";
        let mut digits = [0; 64];
        for (pair, byte) in digits.chunks_exact_mut(2).zip(hash) {
            pair[0] = DIGITS[usize::from(byte >> 4)];
            pair[1] = DIGITS[usize::from(byte & 15)];
        }
        Self { digits, length: u8::try_from(hash.len() * 2).unwrap_or(64).min(64) }
    }

    /// The digits.
    pub fn as_bytes(&self) -> &[u8] {
        &self.digits[..usize::from(self.length)]
    }

    /// Whether `written` is the same number, in either case, in a time that does not depend on where they differ.
    pub fn matches(&self, written: &[u8]) -> bool {
        let own = self.as_bytes();
        own.len() == written.len()
            && own.iter().zip(written).fold(0, |all, (a, b)| all | (a ^ b.to_ascii_lowercase())) == 0
    }
}

impl fmt::Display for Hex {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.as_bytes().iter().try_for_each(|digit| fmt::Write::write_char(f, char::from(*digit)))
    }
}

impl fmt::Debug for Hex {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

fn digest<D: Digest>(parts: &[&[u8]]) -> Hex {
    let mut state = D::new();
    for (at, part) in parts.iter().enumerate() {
        if at > 0 {
            state.update(b":");
        }
        state.update(part);
    }
    Hex::of(&state.finalize())
}

impl Hash {
    /// The hash of `parts` with colons between them.
    pub fn of(self, parts: &[&[u8]]) -> Hex {
        match self {
            Self::Md5 => digest::<Md5>(parts),
            Self::Sha256 => digest::<Sha256>(parts),
            Self::Sha512_256 => digest::<Sha512_256>(parts),
        }
    }
}

impl Algorithm {
    /// MD5, which is meant where a challenge names none.
    pub const MD5: Self = Self::plain(Hash::Md5, false);
    /// SHA-256.
    pub const SHA_256: Self = Self::plain(Hash::Sha256, false);
    /// SHA-512-256.
    pub const SHA_512_256: Self = Self::plain(Hash::Sha512_256, false);
    /// AKAv1-MD5: MD5 with a password of [`Aka::response`](super::Aka::response).
    pub const AKA_V1_MD5: Self = Self { aka: true, ..Self::MD5 };
    /// All that need a password, from weak to strong.
    pub const ALL: [Self; 6] = [
        Self::MD5,
        Self::plain(Hash::Md5, true),
        Self::SHA_256,
        Self::plain(Hash::Sha256, true),
        Self::SHA_512_256,
        Self::plain(Hash::Sha512_256, true),
    ];

    const fn plain(hash: Hash, session: bool) -> Self {
        Self { hash, session, aka: false }
    }

    /// The algorithm of this name, in any case.
    pub fn of(name: &[u8]) -> Option<Self> {
        let mut all = Self::ALL.into_iter().chain([Self::AKA_V1_MD5]);
        all.find(|algorithm| name.eq_ignore_ascii_case(algorithm.as_str().as_bytes()))
    }

    /// Name in messages.
    pub fn as_str(self) -> &'static str {
        match (self.hash, self.session) {
            (Hash::Md5, false) if self.aka => "AKAv1-MD5",
            (Hash::Md5, false) => "MD5",
            (Hash::Md5, true) => "MD5-sess",
            (Hash::Sha256, false) => "SHA-256",
            (Hash::Sha256, true) => "SHA-256-sess",
            (Hash::Sha512_256, false) => "SHA-512-256",
            (Hash::Sha512_256, true) => "SHA-512-256-sess",
        }
    }

    /// Hash of user name, realm and password: all that an answer needs of them. It holds for every nonce, with `-sess` too.
    pub fn ha1(self, username: &[u8], realm: &[u8], password: &[u8]) -> Hex {
        self.hash.of(&[username, realm, password])
    }

    /// Hash that replaces the user name if the server asks for `userhash` (RFC 7616 section 3.4.4).
    pub fn userhash(self, username: &[u8], realm: &[u8]) -> Hex {
        self.hash.of(&[username, realm])
    }
}
