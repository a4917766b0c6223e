//! The way of most packets, in bursts: what a packet will need is asked for while others are worked on.
//!
//! Rounds over the burst: headers are parsed, keys are hashed and buckets asked for; tags are matched and sessions asked for; sessions are verified
//! and packets rewritten. Two cache lines a packet, and up to 32 under way at once. What is not a plain packet of a steady session is
//! left for the slow path.

use super::Nat;
use crate::cpu;
use crate::event::EventKind;
use crate::headers::Headers;
use crate::key::Key;
use crate::reason::Reason;
use crate::rewrite::{self, End};
use crate::session::{NONE, Session, tick};
use crate::verdict::{Forward, Frame, Side, Verdict};
use packet::layers::protocol;

/// Packets of a burst: more cache lines than a core has under way at once bring nothing, fewer do not hide the wait.
pub const BURST: usize = 32;

/// The numbers of those frames of a burst that are left.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BurstMask(u32);

const _: () = assert!(BURST == u32::BITS as usize, "a bit each");

impl BurstMask {
    #[inline]
    fn all(count: usize) -> Self {
        Self(if count == 0 { 0 } else { u32::MAX >> (BURST - count) })
    }

    #[inline(always)]
    fn remove(&mut self, at: usize) {
        self.0 &= !(1 << at);
    }

    #[inline]
    fn frames(self) -> usize {
        self.0.count_ones() as usize
    }

    #[inline]
    pub(super) fn is_empty(self) -> bool {
        self.0 == 0
    }
}

impl Iterator for BurstMask {
    type Item = usize;

    #[inline]
    fn next(&mut self) -> Option<usize> {
        let at = (self.0 != 0).then(|| self.0.trailing_zeros() as usize)?;
        self.remove(at);
        Some(at)
    }
}

impl Nat {
    /// Translate the plain packets of steady sessions, and tell `forward` of each where it goes. The others are left.
    #[inline(always)]
    pub(super) fn fast<'f, const UP: bool>(
        &mut self,
        frames: &mut [Frame<'f>],
        now: u64,
        mut forward: impl FnMut(usize, &mut Frame<'f>, Forward),
    ) -> BurstMask {
        let count = frames.len().min(BURST);
        let Some(frames) = frames.get_mut(..count) else { return BurstMask::all(0) };
        let mut keys = [Key::default(); BURST];
        let mut hashes = [0u64; BURST];
        let mut indices = [NONE; BURST];
        for (frame, key) in frames.iter_mut().zip(&mut keys) {
            if !frame.headers.are_known() {
                // From the registers into which it is parsed: loads that do not fit the stores before would wait for these.
                if let Some(headers) = Headers::plain(frame.bytes) {
                    *key = headers.key::<UP>();
                    frame.headers = headers;
                    continue;
                }
                if let Err(reason) = parse(frame) {
                    self.drops.count(reason);
                    frame.verdict = Verdict::Drop(reason);
                }
            }
            *key = frame.headers.key::<UP>();
        }
        self.hasher.hash_all(&keys[..count], &mut hashes[..count]);
        let table = self.table.view();
        for hash in &hashes[..count] {
            table.prefetch(*hash);
        }
        let sessions = self.sessions.get_mut();
        for (hash, index) in hashes[..count].iter().zip(&mut indices) {
            if let Some(candidate) = table.candidate(*hash) {
                *index = candidate;
                if let Some(session) = sessions.get(candidate as usize) {
                    cpu::prefetch(session);
                }
            }
        }
        let tick = tick(now);
        let refresh = UP || self.config.refresh_inbound;
        let mtu = u64::from(if UP { self.config.mtu.outside } else { self.config.mtu.inside });
        let mut left = BurstMask::all(count);
        let looked_up = keys.iter().zip(&hashes).zip(&indices);
        for (at, (frame, ((key, hash), candidate))) in frames.iter_mut().zip(looked_up).enumerate() {
            let headers = &frame.headers;
            if !headers.is_plain() || headers.len() > mtu {
                continue;
            }
            let there = |index: u32| {
                sessions.get(index as usize).is_some_and(|session: &Session| {
                    if UP { session.up_key() == *key } else { session.down_key() == *key }
                })
            };
            // Or another flow with the same tag in the bucket, or it lies further on: one of some hundreds.
            let index = if there(*candidate) { Some(*candidate) } else { table.find(*hash, there) };
            let Some(session) = sessions.get_mut(index.unwrap_or(NONE) as usize) else { continue };
            if !session.is_steady() {
                continue;
            }
            let (end, to, deltas) = if UP {
                (End::Source, session.outside(), (session.l3_delta, session.l4_delta))
            } else {
                (End::Destination, session.inside(), (!session.l3_delta, !session.l4_delta))
            };
            let done = if headers.special == 0 {
                rewrite::usual(frame.bytes, headers.protocol, end, to, deltas)
            } else {
                rewrite::endpoint(frame.bytes, headers, end, to, deltas, true)
            };
            if done.is_none() {
                continue;
            }
            if refresh || headers.protocol == protocol::TCP {
                session.last_seen = tick;
            }
            let traffic = if UP { &mut session.up } else { &mut session.down };
            traffic.add(headers.len());
            if traffic.is_due() {
                let record = EventKind::SessionInterim(session.record(), session.volume());
                (session.up, session.down) = Default::default();
                if self.config.log_sessions {
                    self.events.push(now, record);
                }
            }
            left.remove(at);
            let whither = if UP {
                Forward { to: Side::Outside, hop: session.up_hop, realm: 0 }
            } else {
                Forward { to: Side::Inside, hop: session.down_hop, realm: session.realm() }
            };
            forward(at, frame, whither);
        }
        let done = (count - left.frames()) as u64;
        if UP {
            self.forwarded.up += done;
        } else {
            self.forwarded.down += done;
        }
        left
    }
}

/// Parse a frame that is no plain one. What is broken is nothing that the fast path takes.
#[inline(never)]
fn parse(frame: &mut Frame<'_>) -> Result<(), Reason> {
    let headers = Headers::of(frame.bytes);
    frame.headers = headers.unwrap_or(Headers { special: Headers::OTHER, ..Headers::default() });
    headers.map(|_| ())
}
