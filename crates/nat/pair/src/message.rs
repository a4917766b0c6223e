//! What the two NATs of a pair say to each other, as bytes. Each message is one packet of the socket, so none is cut or joined.

use nat_core::Mac;
use std::collections::BTreeMap;

/// Another number is another protocol, or other records.
pub const VERSION: u16 = 2;
/// Bytes of a message at most.
pub const LONGEST: usize = 68 << 10;
/// Bytes of an update before its records.
const UPDATES: usize = 12;

/// What has to be the same of both, by key: a checksum of each value.
pub type Terms = BTreeMap<String, u32>;

/// A message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Message<'a> {
    /// Who comes says how it is configured.
    Hello(u16, Terms),
    /// It is the standby from now on. By this secret workers divide subscribers.
    Welcome([u8; 32]),
    /// It is not, and why.
    Refused(&'a str),
    /// It is not, as another one is.
    Taken,
    /// The active NAT is there, and knows this of the router outside.
    Alive(Option<Mac>),
    /// What a worker of the active NAT tells.
    Updates {
        /// Which worker.
        worker: u16,
        /// Whether it has now told of everything that it knows.
        swept: bool,
        /// Whether changes before it found no room, so that the standby lacks them.
        gap: bool,
        /// When, on the machine's monotonic clock, ns.
        at: u64,
        /// Updates.
        bytes: &'a [u8],
    },
    /// The standby knows everything.
    Synced,
    /// It does not any more.
    OutOfSync,
    /// The standby is to go on: nothing is translated by who says so.
    HandOver,
}

/// No message is like this.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("no message that can be")]
pub struct BadMessage;

impl<'a> Message<'a> {
    /// Its bytes, in place of what is there.
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.clear();
        match self {
            Self::Hello(version, terms) => {
                out.push(1);
                out.extend(version.to_le_bytes());
                for (key, sum) in terms {
                    out.extend(sum.to_le_bytes());
                    out.push(key.len().min(255) as u8);
                    out.extend(key.bytes().take(255));
                }
            }
            Self::Welcome(seed) => {
                out.push(2);
                out.extend(seed);
            }
            Self::Refused(why) => {
                out.push(3);
                out.extend(why.bytes());
            }
            Self::Alive(gateway) => {
                out.push(4);
                out.extend(gateway.unwrap_or_default());
            }
            Self::Updates { worker, swept, gap, at, bytes } => {
                out.push(5);
                out.push(u8::from(*swept) | u8::from(*gap) << 1);
                out.extend(worker.to_le_bytes());
                out.extend(at.to_le_bytes());
                out.extend(*bytes);
            }
            Self::Synced => out.push(6),
            Self::HandOver => out.push(7),
            Self::OutOfSync => out.push(8),
            Self::Taken => out.push(9),
        }
    }

    /// A packet as a message.
    pub fn decode(bytes: &'a [u8]) -> Result<Self, BadMessage> {
        let (kind, rest) = bytes.split_first().ok_or(BadMessage)?;
        let alone = |message| if rest.is_empty() { Ok(message) } else { Err(BadMessage) };
        match kind {
            1 => {
                let (version, rest) = rest.split_first_chunk().ok_or(BadMessage)?;
                Ok(Self::Hello(u16::from_le_bytes(*version), terms(rest)?))
            }
            2 => Ok(Self::Welcome(rest.try_into().map_err(|_| BadMessage)?)),
            3 => Ok(Self::Refused(std::str::from_utf8(rest).map_err(|_| BadMessage)?)),
            4 => {
                let gateway: Mac = rest.try_into().map_err(|_| BadMessage)?;
                Ok(Self::Alive((gateway != Mac::default()).then_some(gateway)))
            }
            5 => {
                let (head, bytes) = rest.split_at_checked(UPDATES - 1).ok_or(BadMessage)?;
                let [flags @ 0..4, a, b, at @ ..] = head else { return Err(BadMessage) };
                let at = at.try_into().map_err(|_| BadMessage)?;
                let worker = u16::from_le_bytes([*a, *b]);
                let (swept, gap) = (flags & 1 != 0, flags & 2 != 0);
                Ok(Self::Updates { worker, swept, gap, at: u64::from_le_bytes(at), bytes })
            }
            6 => alone(Self::Synced),
            7 => alone(Self::HandOver),
            8 => alone(Self::OutOfSync),
            9 => alone(Self::Taken),
            _ => Err(BadMessage),
        }
    }
}

fn terms(mut rest: &[u8]) -> Result<Terms, BadMessage> {
    let mut terms = Terms::new();
    while let Some(([a, b, c, d, len], after)) = rest.split_first_chunk() {
        let (key, after) = after.split_at_checked(usize::from(*len)).ok_or(BadMessage)?;
        let key = std::str::from_utf8(key).map_err(|_| BadMessage)?;
        terms.insert(key.to_owned(), u32::from_le_bytes([*a, *b, *c, *d]));
        rest = after;
    }
    if rest.is_empty() { Ok(terms) } else { Err(BadMessage) }
}

/// Which keys two NATs have otherwise.
pub fn differences<'a>(one: &'a Terms, other: &'a Terms) -> Vec<&'a str> {
    let mut keys: Vec<&str> = one.keys().chain(other.keys()).map(String::as_str).collect();
    keys.sort_unstable();
    keys.dedup();
    keys.retain(|key| one.get(*key) != other.get(*key));
    keys
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn all() -> Vec<Message<'static>> {
        let terms = Terms::from([("pool".to_owned(), 7), ("workers".to_owned(), u32::MAX)]);
        vec![
            Message::Hello(VERSION, terms),
            Message::Hello(9, Terms::new()),
            Message::Welcome([7; 32]),
            Message::Refused("pool differs"),
            Message::Alive(None),
            Message::Alive(Some([2, 0, 0, 0, 0, 9])),
            Message::Updates { worker: 513, swept: true, gap: false, at: u64::MAX - 1, bytes: b"records" },
            Message::Updates { worker: 0, swept: false, gap: true, at: 0, bytes: b"" },
            Message::Synced,
            Message::HandOver,
            Message::OutOfSync,
            Message::Taken,
        ]
    }

    #[test]
    fn messages_are_read_as_they_were_written_and_not_cut() {
        let mut bytes = Vec::new();
        for message in all() {
            message.encode(&mut bytes);
            assert_eq!(Message::decode(&bytes), Ok(message.clone()));
            for len in 0..bytes.len() {
                let cut = Message::decode(&bytes[..len]);
                assert_ne!(cut, Ok(message.clone()), "{len} of {}", bytes.len());
            }
        }
        assert!(bytes.len() <= LONGEST);
    }

    #[test]
    fn what_differs_is_named() {
        let terms =
            |pairs: &[(&str, u32)]| pairs.iter().map(|(key, sum)| ((*key).to_owned(), *sum)).collect();
        let (one, other): (Terms, Terms) =
            (terms(&[("pool", 1), ("workers", 2)]), terms(&[("pool", 1), ("workers", 3), ("more", 0)]));
        assert_eq!(differences(&one, &other), ["more", "workers"]);
        assert!(differences(&one, &one).is_empty());
    }

    proptest! {
        #[test]
        fn no_bytes_break_it(bytes in prop::collection::vec(any::<u8>(), 0..100), kind in 0..11u8) {
            let with_kind: Vec<u8> = std::iter::once(kind).chain(bytes).collect();
            if let Ok(message) = Message::decode(&with_kind) {
                let mut again = Vec::new();
                message.encode(&mut again);
                prop_assert_eq!(Message::decode(&again), Ok(message));
            }
        }
    }
}
