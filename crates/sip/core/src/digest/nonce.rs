use super::Hash;
use std::collections::BTreeMap;

/// Nonces of a server: issued without being kept, recognised by a secret, and each use counted.
///
/// Only nonces that were used are remembered, at most `capacity` of them. When there are more, the oldest is forgotten, and it and
/// those issued before it count as stale: what is forgotten cannot be replayed.
#[derive(Debug)]
pub struct Nonces {
    secret: [u8; 32],
    lifetime_ms: u64,
    capacity: usize,
    issued: u64,
    forgotten: u64,
    used: BTreeMap<u64, Window>,
}

/// Nonce counts that were seen: the highest, and those up to 63 below it.
#[derive(Debug, Clone, Copy, Default)]
struct Window {
    highest: u32,
    below: u64,
}

/// Why a nonce is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum NonceError {
    /// This server did not issue it.
    #[error("the nonce is unknown")]
    Unknown,
    /// It is too old: the challenge has `stale=true`.
    #[error("the nonce is stale")]
    Stale,
    /// Its nonce count was used before, or is too far below the highest.
    #[error("the nonce count was used before")]
    Replayed,
}

/// Digits of a nonce: time, serial number, check.
const LENGTH: usize = 16 + 16 + 32;

impl Nonces {
    /// Nonces that hold for `lifetime_ms`. `secret` is random.
    pub fn new(secret: [u8; 32], lifetime_ms: u64, capacity: usize) -> Self {
        Self {
            secret,
            lifetime_ms,
            capacity: capacity.max(1),
            issued: 0,
            forgotten: 0,
            used: BTreeMap::new(),
        }
    }

    /// A new nonce: 64 hexadecimal digits.
    pub fn issue(&mut self, now_ms: u64) -> String {
        self.issued += 1;
        let head = format!("{now_ms:016x}{:016x}", self.issued);
        let check = self.check_digits(head.as_bytes());
        head + &String::from_utf8_lossy(&check)
    }

    fn check_digits(&self, head: &[u8]) -> [u8; 32] {
        let hash = Hash::Sha256.of(&[&self.secret, head]);
        hash.as_bytes().first_chunk().copied().unwrap_or([0; 32])
    }

    /// Takes a use of a nonce: once for each nonce count, and once where the credentials have none.
    pub fn take(&mut self, nonce: &[u8], nc: Option<u32>, now_ms: u64) -> Result<(), NonceError> {
        let (head, check) = nonce.split_at_checked(32).ok_or(NonceError::Unknown)?;
        let right = self.check_digits(head);
        let differ = right.iter().zip(check).fold(0, |all, (a, b)| all | (a ^ b));
        if nonce.len() != LENGTH || differ != 0 {
            return Err(NonceError::Unknown);
        }
        let number = |digits: &[u8]| {
            std::str::from_utf8(digits).ok().and_then(|digits| u64::from_str_radix(digits, 16).ok())
        };
        let (issued_ms, serial) = number(&head[..16]).zip(number(&head[16..])).ok_or(NonceError::Unknown)?;
        if now_ms.saturating_sub(issued_ms) > self.lifetime_ms || serial <= self.forgotten {
            return Err(NonceError::Stale);
        }
        let window = self.used.entry(serial).or_default();
        // Without nonce count a nonce serves once.
        window.take(nc.unwrap_or(1)).then_some(()).ok_or(NonceError::Replayed)?;
        if self.used.len() > self.capacity
            && let Some((oldest, _)) = self.used.pop_first()
        {
            self.forgotten = oldest;
        }
        Ok(())
    }

    /// How many used nonces are remembered.
    pub fn remembered(&self) -> usize {
        self.used.len()
    }
}

impl Window {
    fn take(&mut self, nc: u32) -> bool {
        if nc > self.highest {
            let shift = nc - self.highest;
            self.below = if shift < 64 { self.below << shift | 1 } else { 1 };
            self.highest = nc;
            return true;
        }
        let age = self.highest - nc;
        if nc == 0 || age >= 64 || self.below >> age & 1 == 1 {
            return false;
        }
        self.below |= 1 << age;
        true
    }
}
