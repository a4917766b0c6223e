//! Packets that the NAT sends by itself, in memory that is there from the beginning.

use crate::verdict::Forward;
use std::collections::VecDeque;

/// The longest packet that is kept.
pub const LONGEST: usize = 2048;

/// A number of a place for a packet.
pub type Slot = u16;

/// Places for packets, and the queue of those that are to be sent.
#[derive(Debug)]
pub struct Outbox {
    bytes: Vec<u8>,
    lengths: Vec<u16>,
    free: Vec<Slot>,
    ready: VecDeque<(Slot, Forward)>,
    /// What was popped last: free at the next pop.
    lent: Option<Slot>,
}

impl Outbox {
    /// With `places`.
    pub fn new(places: usize) -> Self {
        let places = places.min(usize::from(u16::MAX));
        Self {
            bytes: vec![0; places * LONGEST],
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
        if len > LONGEST {
            return None;
        }
        let slot = self.free.pop()?;
        let mut place = self.bytes.get_mut(usize::from(slot) * LONGEST..)?;
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
            (usize::from(slot) * LONGEST, self.lengths.get(usize::from(slot)).copied().unwrap_or(0));
        self.bytes.get_mut(from..from + usize::from(len)).unwrap_or_default()
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
