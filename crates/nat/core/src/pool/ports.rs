//! The ports of a block.
//!
//! Of each there are three bits for each of TCP, UDP and ICMP: it is in use, it was in use in this period of rest, or in the one before. A
//! period is the time for which a port rests (RFC 6888 REQ-8), so it rests once to twice as long, and no list of resting ports can grow.
//! The three words of 64 ports lie together: who takes a port waits for one cache line, or for two.

use super::Pool;
use crate::cpu;
use crate::key::Endpoint;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// TCP, UDP and ICMP number their ports apart.
pub const CLASSES: usize = 3;
pub(super) const KINDS: usize = 3;
pub(super) const USED: usize = 0;
pub(super) const RESTING: usize = 1;
pub(super) const RESTED: usize = 2;

/// Where the word of a kind is in a block's bits of a class, for these 64 ports.
#[inline]
pub(super) fn at(word: usize, kind: usize) -> usize {
    word * KINDS + kind
}

/// The class of a protocol.
#[inline]
pub fn class(protocol: u8) -> usize {
    match protocol {
        packet::layers::protocol::TCP => 0,
        packet::layers::protocol::UDP => 1,
        _ => 2,
    }
}

#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub(super) struct Block {
    /// Ports in use, of all classes.
    pub(super) used: u32,
    /// The period in which its bits were last looked at.
    pub(super) period: u32,
    /// One more than the number of the subscriber whose sessions go on here, though new ones begin elsewhere; 0: there is none.
    pub(super) left_to: u32,
}

/// Whether a port should be even, odd, or a certain one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PortRequest {
    /// Any.
    Any,
    /// Even or odd as this one.
    Parity(u16),
    /// This one only.
    Exactly(u16),
}

impl Pool {
    /// How many ports of a block are in use.
    pub fn used(&self, block: u32) -> u32 {
        self.blocks.get().get(block as usize).map_or(0, |block| block.used)
    }

    /// Whether a port of a block is free for a protocol.
    pub(super) fn has_port(&mut self, block: u32, class: usize, now: u64) -> bool {
        self.advance_periods(block, now);
        let (base, words) = (self.base(block, class), self.words);
        let Some(bits) = self.bits.get().get(base..base + KINDS * words) else { return false };
        bits.chunks_exact(KINDS).any(|kinds| kinds.iter().fold(0, |all, word| all | word) != u64::MAX)
    }

    pub(super) fn base(&self, block: u32, class: usize) -> usize {
        (block as usize * CLASSES + class) * KINDS * self.words
    }

    /// The block of an endpoint, and which port of it that is.
    pub fn place_of(&self, endpoint: Endpoint) -> Option<(u32, usize)> {
        let (number, block) = self.block_of(endpoint.address, endpoint.port)?;
        Some((block, usize::from(endpoint.port - self.ports(number, block).1.0)))
    }

    /// Ask for what a port of a block is taken by, if it is looked for by this random number.
    pub fn prefetch(&self, block: u32, class: usize, random: u64) {
        self.prefetch_port(block, class, place(self.words, random));
    }

    /// Ask for what is changed when the so-many-eth port of a block is given back.
    pub fn prefetch_port(&self, block: u32, class: usize, port: usize) {
        if let Some(this) = self.blocks.get().get(block as usize) {
            cpu::prefetch(this);
        }
        let first = self.base(block, class) + at(port / 64, 0);
        if let Some([used, .., rested]) = self.bits.get().get(first..first + KINDS) {
            cpu::prefetch(used);
            cpu::prefetch(rested);
        }
    }

    /// Let the periods that have passed pass for a block.
    pub(super) fn advance_periods(&mut self, block: u32, now: u64) {
        // mostly that of the packet before, without a division
        if now.wrapping_sub(u64::from(self.period).wrapping_mul(self.period_ns)) >= self.period_ns {
            self.period = (now / self.period_ns) as u32;
        }
        let period = self.period;
        let from = self.base(block, 0);
        let Some(this) = self.blocks.get_mut().get_mut(block as usize) else { return };
        let passed = period.wrapping_sub(this.period);
        if passed == 0 {
            return;
        }
        this.period = period;
        let words = self.words;
        for kinds in self.bits.get_mut()[from..from + CLASSES * KINDS * words].chunks_exact_mut(KINDS) {
            kinds[RESTED] = if passed == 1 { kinds[RESTING] } else { 0 };
            kinds[RESTING] = 0;
        }
    }

    /// Take a port of a block for a protocol, a random one of those that fit.
    pub fn take_port(
        &mut self,
        number: u32,
        block: u32,
        class: usize,
        wish: PortRequest,
        random: u64,
        now: u64,
    ) -> Option<u16> {
        self.advance_periods(block, now);
        let (_, (first, last)) = self.ports(number, block);
        let (base, words) = (self.base(block, class), self.words);
        let bits = self.bits.get_mut().get_mut(base..base + KINDS * words)?;
        let fits = match wish {
            PortRequest::Any | PortRequest::Exactly(_) => u64::MAX,
            PortRequest::Parity(port) => 0x5555_5555_5555_5555 << (port % 2),
        };
        let free =
            |word: usize| !(bits[at(word, USED)] | bits[at(word, RESTING)] | bits[at(word, RESTED)]) & fits;
        let bit = match wish {
            PortRequest::Exactly(port) => {
                let bit = (first..=last).contains(&port).then(|| usize::from(port - first))?;
                (free(bit / 64) >> (bit % 64) & 1 == 1).then_some(bit)?
            }
            _ => pick(words, random, free)?,
        };
        bits[at(bit / 64, USED)] |= 1 << (bit % 64);
        self.blocks.get_mut()[block as usize].used += 1;
        Some(first + bit as u16)
    }

    /// Keep a port from being given away; it does not count as use of its block.
    pub fn reserve(&mut self, endpoint: Endpoint, class: usize) {
        let Some((block, bit)) = self.place_of(endpoint) else { return };
        let base = self.base(block, class);
        if let Some(word) = self.bits.get_mut().get_mut(base + at(bit / 64, USED)) {
            *word |= 1 << (bit % 64);
        }
    }

    /// Give a port back; it rests.
    pub fn release_port(&mut self, address: u32, port: u16, class: usize, now: u64) {
        let Some((block, bit, kinds)) = self.port(Endpoint::new(address, port), class, now) else { return };
        if kinds[USED] & bit != 0 {
            kinds[USED] &= !bit;
            kinds[RESTING] |= bit;
            self.blocks.get_mut()[block as usize].used -= 1;
        }
    }
}

/// A random place among the bits of `words` words.
pub(super) fn place(words: usize, random: u64) -> usize {
    (((random >> 32) * (words as u64 * 64)) >> 32) as usize
}

/// A set bit of `words` words, the first from a random place on.
fn pick(words: usize, random: u64, word: impl Fn(usize) -> u64) -> Option<usize> {
    pick_from(words, place(words, random), word)
}

/// The same from this place on.
pub(super) fn pick_from(words: usize, from: usize, word: impl Fn(usize) -> u64) -> Option<usize> {
    let low = (1u64 << (from % 64)) - 1;
    let first = word(from / 64);
    let found = |at: usize, bits: u64| (bits != 0).then(|| at * 64 + bits.trailing_zeros() as usize);
    found(from / 64, first & !low)
        .or_else(|| (from / 64 + 1..words).chain(0..from / 64).find_map(|at| found(at, word(at))))
        .or_else(|| found(from / 64, first & low))
}
