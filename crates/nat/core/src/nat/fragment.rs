//! Packets in pieces, in any order (RFC 4787 REQ-14): the first piece is translated as a packet, and the others as the first was. Those that
//! come before it wait, so many and so long at most.

use super::Nat;
use crate::config::Config;
use crate::headers::Headers;
use crate::key::{Endpoint, Key, Realm};
use crate::outbox::{Outbox, Slot};
use crate::reason::Reason;
use crate::rewrite::{self, End};
use crate::session::{NONE, Session};
use crate::verdict::{Forward, Side, StopReason};
use packet::layers::protocol;
use std::collections::{HashMap, VecDeque};

/// What pieces of one packet have in common (RFC 791 section 3.2), and where they come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct FragmentKey {
    source: u32,
    destination: u32,
    realm: Realm,
    id: u16,
    protocol: u8,
    side: Side,
}

/// What became of the first piece.
#[derive(Debug, Clone, Copy)]
struct Translation {
    source: u32,
    destination: u32,
    forward: Forward,
    /// The sessions by which it went up and down, and what they are found by: their lines may be others' soon.
    sessions: [Option<(u32, Key)>; 2],
}

/// What is known of a packet.
#[derive(Debug, Clone, Copy)]
enum FragmentState {
    /// The first piece did not come yet; these wait.
    Waiting(Chain),
    /// The first piece was translated.
    Translated(Translation),
    /// The first piece was dropped.
    Dropped,
}

/// Pieces of one packet that wait, in the order in which they came.
#[derive(Debug, Clone, Copy, Default)]
struct Chain {
    first: Slot,
    last: Slot,
    count: u16,
}

/// Packets whose pieces are under way.
#[derive(Debug)]
pub struct Fragments {
    known: HashMap<FragmentKey, FragmentState>,
    /// When each is forgotten.
    order: VecDeque<(u64, FragmentKey)>,
    capacity: usize,
    /// Pieces that wait, and how many may.
    held: usize,
    most_held: usize,
    /// Of each piece that waits the one after it: a packet may have as many as there is room for.
    next: Vec<Slot>,
    wait: u64,
}

impl Fragments {
    /// As many as the configuration says.
    pub fn new(config: &Config) -> Self {
        let capacity = config.fragmented_packets;
        Self {
            // Twice the room: so it never grows, whatever was removed.
            known: HashMap::with_capacity(2 * capacity),
            order: VecDeque::with_capacity(capacity),
            capacity,
            held: 0,
            most_held: config.held_fragments,
            next: vec![0; Outbox::places(config)],
            wait: config.timeouts.fragment,
        }
    }

    /// Forget those whose time has come; how many pieces were dropped by that.
    pub fn expire(&mut self, now: u64, outbox: &mut Outbox) -> usize {
        let mut dropped = 0;
        while self.order.front().is_some_and(|(until, _)| *until <= now) {
            let Some((_, whole)) = self.order.pop_front() else { break };
            if let Some(FragmentState::Waiting(mut chain)) = self.known.remove(&whole) {
                dropped += usize::from(chain.count);
                while let Some(slot) = self.take(&mut chain) {
                    outbox.discard(slot);
                }
            }
        }
        self.held -= dropped;
        dropped
    }

    /// Let a piece wait behind those of its packet.
    fn put(&mut self, chain: &mut Chain, slot: Slot) {
        if chain.count == 0 {
            chain.first = slot;
        } else if let Some(next) = self.next.get_mut(usize::from(chain.last)) {
            *next = slot;
        }
        (chain.last, chain.count) = (slot, chain.count + 1);
    }

    /// The first piece that waits does not any more.
    fn take(&self, chain: &mut Chain) -> Option<Slot> {
        chain.count = chain.count.checked_sub(1)?;
        let slot = chain.first;
        chain.first = self.next.get(usize::from(slot)).copied().unwrap_or(slot);
        Some(slot)
    }

    /// Remember what is known. `false`: of as many packets as may be something is known already.
    fn learn(&mut self, whole: FragmentKey, known: FragmentState, now: u64) -> bool {
        if let Some(there) = self.known.get_mut(&whole) {
            *there = known;
            return true;
        }
        if self.known.len() >= self.capacity {
            return false;
        }
        self.known.insert(whole, known);
        self.order.push_back((now.saturating_add(self.wait), whole));
        true
    }
}

impl Nat {
    /// A piece of a packet.
    pub(crate) fn fragment(
        &mut self,
        side: Side,
        frame: &mut [u8],
        headers: &Headers,
        now: u64,
    ) -> Result<Forward, StopReason> {
        let Headers { realm, l3, protocol: carried, .. } = *headers;
        let header: &[u8; 20] =
            frame.get(l3.into()..).and_then(|rest| rest.first_chunk()).ok_or(Reason::Truncated)?;
        let word = |at: usize| u16::from_be_bytes([header[at], header[at + 1]]);
        let (id, offset) = (word(4), usize::from(word(6) & 0x1fff) * 8);
        // Ports and flags are in the first piece, whole, or they are not to be trusted (RFC 1858, RFC 3128).
        let tiny =
            if offset == 0 { headers.is(Headers::SHORT) } else { carried == protocol::TCP && offset < 20 };
        if tiny {
            return Err(Reason::FragmentTiny.into());
        }
        let (from, to) = (headers.source().address, headers.destination().address);
        let whole = FragmentKey { source: from, destination: to, realm, id, protocol: carried, side };
        if offset > 0 {
            return self.later(frame, headers, whole, now);
        }
        self.touched = [NONE; 2];
        let result = self.translate(side, frame, headers, now);
        let known = match result {
            Ok(forward) | Err(StopReason::Sent(forward)) => {
                let address =
                    |end| frame.get(usize::from(l3) + end..).and_then(|rest| rest.first_chunk()).copied();
                let [source, destination] = [12, 16].map(|end| address(end).map_or(0, u32::from_be_bytes));
                let sessions = self
                    .touched
                    .map(|index| self.sessions.at(index).map(|session| (index, session.up_key())));
                FragmentState::Translated(Translation { source, destination, forward, sessions })
            }
            Err(_) => FragmentState::Dropped,
        };
        let before = self.fragments.known.get(&whole).copied();
        // What is dropped, and is nobody's or one of very many, does not take the room of what is translated.
        let worth = match known {
            FragmentState::Dropped if before.is_none() => {
                self.fragments.known.len() < self.fragments.capacity / 2 && self.is_ours(&whole)
            }
            _ => true,
        };
        if worth {
            self.fragments.learn(whole, known, now);
        }
        if let Some(FragmentState::Waiting(mut chain)) = before {
            self.fragments.held -= usize::from(chain.count);
            while let Some(slot) = self.fragments.take(&mut chain) {
                self.release(slot, known, side, now);
            }
        }
        result
    }

    /// A piece that is not the first.
    fn later(
        &mut self,
        frame: &mut [u8],
        headers: &Headers,
        whole: FragmentKey,
        now: u64,
    ) -> Result<Forward, StopReason> {
        match self.fragments.known.get(&whole).copied() {
            Some(FragmentState::Translated(first)) => {
                readdress(frame, headers.l3.into(), &first).ok_or(Reason::Truncated)?;
                self.add_piece(&first, headers.len(), now);
                self.send_on(frame, headers, first.forward)
            }
            Some(FragmentState::Dropped) => Err(Reason::FragmentOfDropped.into()),
            waiting => {
                // What could never be translated is not worth the room.
                if !self.is_ours(&whole) {
                    return Err(Reason::NoMapping.into());
                }
                let mut chain = match waiting {
                    Some(FragmentState::Waiting(chain)) => chain,
                    _ => Chain::default(),
                };
                let fragments = &mut self.fragments;
                let room = fragments.held < fragments.most_held
                    && (waiting.is_some() || fragments.known.len() < fragments.capacity);
                let packet = frame.get(headers.l3.into()..headers.end.into()).unwrap_or(&[]);
                let slot = room.then(|| self.outbox.keep(packet)).flatten().ok_or(Reason::FragmentsFull)?;
                fragments.put(&mut chain, slot);
                fragments.held += 1;
                fragments.learn(whole, FragmentState::Waiting(chain), now);
                Err(StopReason::Held)
            }
        }
    }

    /// Whether a packet may be for the NAT to forward, by its addresses.
    fn is_ours(&self, whole: &FragmentKey) -> bool {
        match whole.side {
            Side::Inside => self.is_inside(whole.source),
            Side::Outside => {
                self.pool.has(whole.destination) || self.is_exempt(Endpoint::new(whole.source, 0))
            }
        }
    }

    /// The first piece came: so does this one.
    fn release(&mut self, slot: Slot, known: FragmentState, side: Side, now: u64) {
        let packet = self.outbox.get_mut(slot);
        let (bytes, hops) = (packet.len() as u64, packet.get(8).copied().unwrap_or(0));
        match known {
            FragmentState::Translated(first) if hops > 1 && readdress(packet, 0, &first).is_some() => {
                if let Err(reason) = self.send_held(slot, first.forward) {
                    return self.drop_held(reason);
                }
                self.count_forwarded(side);
                self.add_piece(&first, bytes, now);
            }
            _ => {
                self.outbox.discard(slot);
                self.drop_held(Reason::FragmentOfDropped);
            }
        }
    }

    /// A piece is of the volume of the sessions of the first one, unless they are over.
    fn add_piece(&mut self, first: &Translation, bytes: u64, now: u64) {
        for (session, up) in first.sessions.into_iter().zip([true, false]) {
            let Some((index, key)) = session else { continue };
            let is_there = |session: &Session| session.is_alive() && session.up_key() == key;
            if self.sessions.at(index).is_some_and(is_there) {
                self.add_volume(index, up, bytes, now);
            }
        }
    }
}

/// Give a piece the addresses that the first one got, and use up a hop.
fn readdress(frame: &mut [u8], l3: usize, first: &Translation) -> Option<()> {
    let header: &[u8; 20] = frame.get(l3..)?.first_chunk()?;
    let address =
        |at: usize| u32::from_be_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]]);
    let delta = |old, new| rewrite::deltas(Endpoint::new(old, 0), Endpoint::new(new, 0), protocol::ICMP).0;
    let (from, to) = (delta(address(12), first.source), delta(address(16), first.destination));
    rewrite::address(frame, l3, End::Source, first.source, from, true)?;
    rewrite::address(frame, l3, End::Destination, first.destination, to, false)
}

#[cfg(test)]
#[path = "fragment_tests.rs"]
mod tests;
