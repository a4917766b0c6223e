//! The way of most packets, in bursts: what a packet will need is asked for while others are worked on.
//!
//! Rounds over the burst: headers are asked for; they are parsed, keys are hashed and buckets asked for; tags are matched and sessions asked for; sessions are verified
//! and packets rewritten. Two cache lines a packet, and up to 32 under way at once. What is not a plain packet of a steady session is
//! left for the slow path.

use super::Nat;
use crate::cpu;
use crate::event::What;
use crate::headers::Headers;
use crate::key::Key;
use crate::reason::Reason;
use crate::rewrite::{self, End};
use crate::session::{NONE, Session, tick};
use crate::verdict::{Forward, Frame, Side, Verdict};
use packet::layers::protocol;

/// Packets of a burst: more cache lines than a core has under way at once bring nothing, fewer do not hide the wait.
pub const BURST: usize = 32;

impl Nat {
    /// Decide on the plain packets of steady sessions; the others stay [`Verdict::Pending`].
    #[inline]
    pub(crate) fn fast<const UP: bool>(&mut self, frames: &mut [Frame<'_>], now: u64) {
        let count = frames.len().min(BURST);
        let Some(frames) = frames.get_mut(..count) else { return };
        let mut keys = [Key::default(); BURST];
        let mut hashes = [0u64; BURST];
        let mut indices = [NONE; BURST];
        for frame in frames.iter() {
            cpu::prefetch(&*frame.bytes);
        }
        for (frame, key) in frames.iter_mut().zip(&mut keys) {
            // From the registers into which it is parsed: loads that do not fit the stores before would wait for these.
            if !frame.headers.are_known()
                && let Some(headers) = Headers::plain(frame.bytes)
            {
                *key = key_of::<UP>(&headers);
                frame.headers = headers;
                continue;
            }
            if let Err(reason) = parse(frame) {
                self.drops.count(reason);
                frame.verdict = Verdict::Drop(reason);
                // Nothing that the fast path takes.
                frame.headers.special = Headers::OTHER;
            }
            *key = key_of::<UP>(&frame.headers);
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
        let mtu = if UP { self.config.mtu.outside } else { self.config.mtu.inside };
        let mut done = 0;
        for (at, frame) in frames.iter_mut().enumerate() {
            let (key, headers) = (keys[at], &frame.headers);
            if headers.special != 0 {
                continue;
            }
            let is_it =
                |session: &Session| if UP { session.up_key() == key } else { session.down_key() == key };
            let mut index = indices[at];
            if !sessions.get(index as usize).is_some_and(is_it) {
                // Another flow with the same tag in the bucket, or it lies further on: one of some hundreds.
                let there = |index| sessions.get(index as usize).is_some_and(is_it);
                index = table.find(hashes[at], there).unwrap_or(NONE);
            }
            let Some(session) = sessions.get_mut(index as usize) else { continue };
            if !session.is_steady() || headers.len() > u64::from(mtu) {
                continue;
            }
            let (end, to, deltas) = if UP {
                (End::Source, session.outside(), (session.l3_delta, session.l4_delta))
            } else {
                (End::Destination, session.inside(), (!session.l3_delta, !session.l4_delta))
            };
            if rewrite::endpoint(frame.bytes, headers, end, to, deltas, true).is_none() {
                continue;
            }
            if refresh || headers.protocol == protocol::TCP {
                session.last_seen = tick;
            }
            let traffic = if UP { &mut session.up } else { &mut session.down };
            traffic.add(headers.len());
            if traffic.is_due() {
                let record = What::SessionInterim(session.record(), session.volume());
                (session.up, session.down) = Default::default();
                self.events.push(now, record);
            }
            frame.verdict = Verdict::Forward(if UP {
                Forward { to: Side::Outside, hop: session.up_hop, realm: 0 }
            } else {
                Forward { to: Side::Inside, hop: session.down_hop, realm: session.realm() }
            });
            done += 1;
        }
        if UP {
            self.forwarded.up += done;
        } else {
            self.forwarded.down += done;
        }
    }
}

/// What a packet's session is found by.
#[inline(always)]
fn key_of<const UP: bool>(headers: &Headers) -> Key {
    let Headers { source, destination, protocol, realm, .. } = *headers;
    if UP { Key::up(source, destination, protocol, realm) } else { Key::down(source, destination, protocol) }
}

/// Parse a frame that is no plain one, unless it was parsed before.
#[inline(never)]
fn parse(frame: &mut Frame<'_>) -> Result<(), Reason> {
    if !frame.headers.are_known() {
        frame.headers = Headers::of(frame.bytes)?;
    }
    Ok(())
}
