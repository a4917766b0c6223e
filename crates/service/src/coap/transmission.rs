//! Confirmable messages until they are acknowledged (RFC 7252 section 4.2).

use super::reply::Token;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};
use std::net::SocketAddr;

/// Section 4.8: ACK_TIMEOUT, ns, ACK_RANDOM_FACTOR in percent, MAX_RETRANSMIT.
const TIMEOUT: u64 = 2_000_000_000;
const FACTOR: u64 = 150;
const RETRANSMISSIONS: u32 = 4;
/// Most messages that wait for their acknowledgement; more are sent once.
const MOST: usize = 1 << 16;

/// Who sent a message, and its ID.
pub(super) type Key = (SocketAddr, u16);

#[derive(Debug)]
struct Waiting {
    bytes: Vec<u8>,
    tries: u32,
    timeout: u64,
    at: u64,
    /// The observation that it notifies of.
    observation: Option<Token>,
}

/// Messages that wait for their acknowledgement.
#[derive(Debug)]
pub(super) struct Transmissions {
    all: HashMap<Key, Waiting>,
    due: BinaryHeap<Reverse<(u64, Key)>>,
    rng: SmallRng,
}

/// What becomes of a message that was due.
pub(super) enum Due {
    /// It is sent again.
    Again(SocketAddr, Vec<u8>),
    /// It was sent often enough; the observation that it notified of.
    GivenUp(SocketAddr, Option<Token>),
}

impl Transmissions {
    pub fn new(seed: u64) -> Self {
        Self { all: HashMap::new(), due: BinaryHeap::new(), rng: SmallRng::seed_from_u64(seed) }
    }

    /// A message was sent for the first time.
    pub fn sent(&mut self, key: Key, bytes: &[u8], observation: Option<Token>, now: u64) {
        if self.all.len() >= MOST {
            return;
        }
        let timeout = TIMEOUT * self.rng.random_range(100..=FACTOR) / 100;
        let at = now + timeout;
        self.all.insert(key, Waiting { bytes: bytes.to_vec(), tries: 0, timeout, at, observation });
        self.due.push(Reverse((at, key)));
    }

    /// It was acknowledged or reset: whether it was waited for, and the observation that it notified of.
    pub fn take_answered(&mut self, key: Key) -> Option<Option<Token>> {
        self.all.remove(&key).map(|waiting| waiting.observation)
    }

    /// When the next is due.
    pub fn next_at(&self) -> Option<u64> {
        self.due.peek().map(|Reverse((at, _))| *at)
    }

    /// One that is due.
    pub fn take_due(&mut self, now: u64) -> Option<Due> {
        while self.next_at().is_some_and(|at| at <= now) {
            let Reverse((at, key)) = self.due.pop()?;
            let Some(waiting) = self.all.get_mut(&key).filter(|waiting| waiting.at == at) else { continue };
            if waiting.tries >= RETRANSMISSIONS {
                let observation = waiting.observation;
                self.all.remove(&key);
                return Some(Due::GivenUp(key.0, observation));
            }
            waiting.tries += 1;
            waiting.timeout *= 2;
            waiting.at = now + waiting.timeout;
            self.due.push(Reverse((waiting.at, key)));
            return Some(Due::Again(key.0, waiting.bytes.clone()));
        }
        None
    }
}
