//! Packets that the NAT sends by itself, in memory that is there from the beginning.

use crate::config::Config;
use crate::verdict::Forward;
use std::collections::VecDeque;

/// The longest packet that is kept where no link takes longer ones.
const LONGEST: usize = 2048;

/// A number of a place for a packet.
pub type Slot = u16;

/// Places for packets, and the queue of those that are to be sent.
#[derive(Debug)]
pub struct Outbox {
    bytes: Vec<u8>,
    /// Bytes of a place.
    longest: usize,
    lengths: Vec<u16>,
    free: Vec<Slot>,
    ready: VecDeque<(Slot, Forward)>,
    /// What was popped last: free at the next pop.
    lent: Option<Slot>,
    /// For one packet that is taken out.
    scratch: Vec<u8>,
}

impl Outbox {
    /// How many packets there is room for: the fragments that may wait, and some of the NAT's own.
    pub fn places(config: &Config) -> usize {
        (config.held_fragments + 64).min(usize::from(u16::MAX))
    }

    /// With `places` for packets as long as links with this MTU take.
    pub fn new(places: usize, mtu: u16) -> Self {
        let places = places.min(usize::from(u16::MAX));
        // Of links that take any length nothing is known.
        let longest = if mtu == u16::MAX { LONGEST } else { usize::from(mtu).max(LONGEST) };
        Self {
            bytes: vec![0; places * longest],
            longest,
            scratch: Vec::with_capacity(longest),
            lengths: vec![0; places],
            free: (0..places as u16).rev().collect(),
            ready: VecDeque::with_capacity(places),
            lent: None,
        }
    }

    /// Keep a copy of a packet. `None`: there is no place, or it is too long.
    pub fn keep(&mut self, packet: &[u8]) -> Option<Slot> {
        self.keep_parts(&[packet])
    }

    /// Keep a packet that is made of parts.
    pub fn keep_parts(&mut self, parts: &[&[u8]]) -> Option<Slot> {
        let len: usize = parts.iter().map(|part| part.len()).sum();
        if len > self.longest {
            return None;
        }
        let slot = self.free.pop()?;
        let mut place = self.bytes.get_mut(usize::from(slot) * self.longest..)?;
        for part in parts {
            let (here, rest) = place.split_at_mut_checked(part.len())?;
            here.copy_from_slice(part);
            place = rest;
        }
        *self.lengths.get_mut(usize::from(slot))? = len as u16;
        Some(slot)
    }

    /// What is kept there.
    pub fn get_mut(&mut self, slot: Slot) -> &mut [u8] {
        let (from, len) =
            (usize::from(slot) * self.longest, self.lengths.get(usize::from(slot)).copied().unwrap_or(0));
        self.bytes.get_mut(from..from + usize::from(len)).unwrap_or_default()
    }

    /// How many packets more it takes.
    pub fn room(&self) -> usize {
        self.free.len()
    }

    /// The longest packet that it takes.
    pub fn longest(&self) -> usize {
        self.longest
    }

    /// What is kept there, and is not any more: in memory that is to be given back by [`Outbox::give_scratch`].
    pub fn take_out(&mut self, slot: Slot) -> Vec<u8> {
        let mut scratch = std::mem::take(&mut self.scratch);
        scratch.clear();
        scratch.extend_from_slice(self.get_mut(slot));
        self.discard(slot);
        scratch
    }

    /// The memory of a packet that was taken out.
    pub fn give_scratch(&mut self, scratch: Vec<u8>) {
        self.scratch = scratch;
    }

    /// It will not be sent.
    pub fn discard(&mut self, slot: Slot) {
        self.free.push(slot);
    }

    /// It is to be sent.
    pub fn send(&mut self, slot: Slot, forward: Forward) {
        self.ready.push_back((slot, forward));
    }

    /// The next to send; it is there until the next call.
    pub fn pop(&mut self) -> Option<(Forward, &[u8])> {
        if let Some(slot) = self.lent.take() {
            self.free.push(slot);
        }
        let (slot, forward) = self.ready.pop_front()?;
        self.lent = Some(slot);
        Some((forward, self.get_mut(slot)))
    }
}
