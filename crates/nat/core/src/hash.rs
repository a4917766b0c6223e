//! A keyed hash: who does not know the key cannot choose flows that collide.

use crate::cpu::Aes;
use crate::key::Key;
use rand::{Rng, SeedableRng, rngs::SmallRng};

/// Hashes keys under a secret, by AES where the CPU has it.
#[derive(Debug, Clone, Copy)]
pub struct Hasher(Kind);

#[derive(Debug, Clone, Copy)]
enum Kind {
    Aes(Aes),
    Portable([u64; 4]),
}

impl Hasher {
    /// With a secret drawn from `seed`, the best kind for this CPU.
    pub fn new(seed: [u8; 32]) -> Self {
        let mut rng = SmallRng::from_seed(seed);
        Aes::new(std::array::from_fn(|_| rng.random()))
            .map_or_else(|| Self::portable(seed), |aes| Self(Kind::Aes(aes)))
    }

    /// The kind that every CPU has.
    pub fn portable(seed: [u8; 32]) -> Self {
        let mut rng = SmallRng::from_seed(seed);
        Self(Kind::Portable(std::array::from_fn(|_| rng.random())))
    }

    /// The hash of each key, into the place of the same number.
    #[inline]
    pub fn hash_all(&self, keys: &[Key], hashes: &mut [u64]) {
        match &self.0 {
            Kind::Aes(aes) => aes.hash(keys, hashes),
            Kind::Portable(secret) => {
                for (key, hash) in keys.iter().zip(hashes) {
                    *hash = folded(key, secret);
                }
            }
        }
    }

    /// The hash of one key.
    #[inline]
    pub fn hash(&self, key: Key) -> u64 {
        let mut hash = [0];
        self.hash_all(&[key], &mut hash);
        hash[0]
    }
}

/// Two multiplications of 64 by 64 bits, each folded.
#[inline]
fn folded(key: &Key, secret: &[u64; 4]) -> u64 {
    let fold = |a: u64, b: u64| {
        let product = u128::from(a) * u128::from(b);
        (product >> 64) as u64 ^ product as u64
    };
    let mixed = fold((key.0 >> 64) as u64 ^ secret[0], key.0 as u64 ^ secret[1]);
    // Where one factor is zero the other would not matter: it comes in again.
    fold(mixed ^ secret[2] ^ (key.0 >> 64) as u64, secret[3] ^ (key.0 as u64).rotate_left(32))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    fn kinds() -> [Hasher; 2] {
        [Hasher::new([7; 32]), Hasher::portable([7; 32])]
    }

    #[test]
    fn neighbours_spread_over_buckets_and_tags() {
        for hasher in kinds() {
            let mut counts = [0u32; 64];
            let mut tags = HashSet::new();
            for i in 0..64_000u128 {
                let hash = hasher.hash(Key(i << 32 | 7));
                counts[(hash >> 58) as usize] += 1;
                tags.insert(hash as u16);
            }
            // 1,000 each, with a standard deviation of 32.
            assert!(counts.iter().all(|count| (800..1200).contains(count)), "{counts:?}");
            // 65,536 × (1 − e^(−64,000 / 65,536)) are 40,800.
            assert!((40_000..42_000).contains(&tags.len()), "{}", tags.len());
        }
    }

    #[test]
    fn another_secret_is_another_hash_and_bursts_equal_single_keys() {
        for (a, b) in kinds().into_iter().zip([Hasher::new([8; 32]), Hasher::portable([8; 32])]) {
            let keys: Vec<Key> = (0..40).map(Key).collect();
            let mut hashes = vec![0; 40];
            a.hash_all(&keys, &mut hashes);
            for (key, hash) in keys.iter().zip(hashes) {
                assert_eq!(a.hash(*key), hash);
                assert_ne!(b.hash(*key), hash);
            }
        }
    }
}
