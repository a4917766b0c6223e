//! A limit of requests per subscriber, in bounded memory.

use crate::mappings::Client;
use std::hash::{BuildHasher, RandomState};

/// Places a subscriber can be in.
const WAYS: usize = 4;
const SETS: usize = 4096;

/// Requests that a subscriber may make.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limit {
    /// At once.
    pub burst: u32,
    /// Per second after that.
    pub per_second: u32,
}

impl Default for Limit {
    fn default() -> Self {
        Self { burst: 50, per_second: 10 }
    }
}

#[derive(Debug, Clone, Copy)]
struct Bucket {
    client: Option<Client>,
    /// Thousandths of a request.
    tokens: u64,
    at_ms: u64,
}

/// Token buckets. Where all places of a subscriber are taken by others, it takes the place of the one that was quiet longest: a
/// flood from made-up addresses costs memory that was there before.
#[derive(Debug)]
pub(crate) struct Limiter {
    limit: Limit,
    keys: RandomState,
    buckets: Vec<Bucket>,
}

impl Limiter {
    pub fn new(limit: Limit) -> Self {
        let bucket = Bucket { client: None, tokens: 0, at_ms: 0 };
        Self { limit, keys: RandomState::new(), buckets: vec![bucket; SETS * WAYS] }
    }

    /// Whether this request is one too many.
    pub fn exceeded(&mut self, client: Client, now_ms: u64) -> bool {
        let full = u64::from(self.limit.burst) * 1000;
        let set = self.keys.hash_one(client) as usize % SETS * WAYS;
        let ways = &mut self.buckets[set..set + WAYS];
        let known = ways.iter().position(|bucket| bucket.client == Some(client));
        let quiet = (0..WAYS).min_by_key(|way| ways[*way].at_ms).unwrap_or_default();
        let bucket = &mut ways[known.unwrap_or(quiet)];
        if known.is_none() {
            *bucket = Bucket { client: Some(client), tokens: full, at_ms: now_ms };
        }
        let gained = now_ms.saturating_sub(bucket.at_ms).saturating_mul(self.limit.per_second.into());
        bucket.tokens = bucket.tokens.saturating_add(gained).min(full);
        bucket.at_ms = now_ms;
        if bucket.tokens < 1000 {
            return true;
        }
        bucket.tokens -= 1000;
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;

    #[test]
    fn each_subscriber_has_its_own_limit() {
        let mut limiter = Limiter::new(Limit { burst: 3, per_second: 2 });
        let [a, b] = [0, 1].map(|realm| Client { address: Ipv4Addr::new(10, 0, 0, 1), realm });
        let passed = |limiter: &mut Limiter, client, now_ms| {
            (0..10).filter(|_| !limiter.exceeded(client, now_ms)).count()
        };
        assert_eq!(passed(&mut limiter, a, 1000), 3);
        assert_eq!(passed(&mut limiter, b, 1000), 3);
        assert_eq!(passed(&mut limiter, a, 1499), 0);
        assert_eq!(passed(&mut limiter, a, 2000), 2);
        assert_eq!(passed(&mut limiter, a, u64::MAX), 3);
    }
}
