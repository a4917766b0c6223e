//! What of a pool outlives its NAT: who has which block and port is told again, and ports go on resting.

use super::Pool;
use super::ports::{CLASSES, KINDS, RESTED, RESTING, USED, at};
use crate::key::Endpoint;
use packet::layers::protocol;

/// Protocols by their class.
const PROTOCOLS: [u8; CLASSES] = [protocol::TCP, protocol::UDP, protocol::ICMP];

impl Pool {
    /// Ports that rest: 64 at a time, the first of them, their protocol, for how long at least in ns, and a bit for each.
    pub(crate) fn resting_ports(&self, now: u64) -> impl Iterator<Item = (Endpoint, u8, u64, u64)> {
        let blocks =
            (0..self.slots()).flat_map(|number| (0..self.blocks_at(number)).map(move |at| (number, at)));
        blocks.flat_map(move |(number, at)| self.resting_in(number, at, now))
    }

    /// How many blocks an address has, or the part of it that is here.
    pub(crate) fn blocks_at(&self, number: u32) -> u32 {
        self.addresses.get(number as usize).map_or(0, |address| address.blocks)
    }

    /// The same of one block of an address.
    pub(crate) fn resting_in(
        &self,
        number: u32,
        at: u32,
        now: u64,
    ) -> impl Iterator<Item = (Endpoint, u8, u64, u64)> {
        let (period, phase) = ((now / self.period_ns) as u32, now % self.period_ns);
        let (outside, first, block) = self
            .addresses
            .get(number as usize)
            .filter(|this| this.address != 0)
            .map_or((0, 0, u32::MAX), |address| {
                (address.address, u32::from(address.first_port) + at * self.size, address.block + at)
            });
        // What was noted in an earlier period than this one and the one before rests no more.
        let last = self.blocks.get().get(block as usize).map(|block| block.period);
        let kinds: &[(usize, u64)] = match last.map(|last| period.wrapping_sub(last)) {
            Some(0) => &[(RESTING, 0), (RESTED, 1)],
            Some(1) => &[(RESTING, 1)],
            _ => &[],
        };
        let of_class = move |class: usize| {
            kinds.iter().flat_map(move |(kind, before)| {
                let left = self.period_ns - before * phase;
                let from = self.base(block, class);
                let words = self.bits.get().get(from..from + KINDS * self.words).unwrap_or(&[]);
                let its = words.iter().skip(*kind).step_by(KINDS).enumerate();
                its.filter(|(_, ports)| **ports != 0).map(move |(word, ports)| {
                    let endpoint = Endpoint::new(outside, (first + 64 * word as u32) as u16);
                    (endpoint, PROTOCOLS[class], left, *ports)
                })
            })
        };
        (0..CLASSES).flat_map(of_class)
    }

    /// Take the block that begins at an endpoint and has so many ports. `None`: there is no such block, or somebody has it.
    pub(crate) fn claim_whole(&mut self, first: Endpoint, size: u16) -> Option<(u32, u32)> {
        let (number, block) = self.block_of(first.address, first.port)?;
        let (_, (begins, _)) = self.ports(number, block);
        let fits = begins == first.port && u32::from(size) == self.size;
        (fits && self.claim_block(number, block)).then_some((number, block))
    }

    /// Take this port, whether it rests or not. `false`: it is in use.
    pub(crate) fn claim_port(&mut self, endpoint: Endpoint, class: usize, now: u64) -> bool {
        let Some((block, bit, kinds)) = self.port(endpoint, class, now) else { return false };
        if kinds[USED] & bit != 0 {
            return false;
        }
        kinds[USED] |= bit;
        kinds[RESTING] &= !bit;
        kinds[RESTED] &= !bit;
        self.blocks.get_mut()[block as usize].used += 1;
        true
    }

    /// Let a port that nobody uses rest for `left` ns at least.
    pub(crate) fn rest_port(&mut self, endpoint: Endpoint, class: usize, left: u64, now: u64) {
        if left == 0 {
            return;
        }
        let to_turn = self.period_ns - now % self.period_ns;
        let Some((_, bit, kinds)) = self.port(endpoint, class, now) else { return };
        if kinds[USED] & bit == 0 {
            kinds[if left <= to_turn { RESTED } else { RESTING }] |= bit;
        }
    }

    /// Whether a port is in use, or kept from being given away.
    pub(crate) fn is_used(&self, endpoint: Endpoint, class: usize) -> bool {
        let Some((block, port)) = self.place_of(endpoint) else { return false };
        let word = self.bits.get().get(self.base(block, class) + at(port / 64, USED));
        word.is_some_and(|word| word >> (port % 64) & 1 == 1)
    }

    /// A port that was kept from being given away rests, and is one as any other then.
    pub(crate) fn unreserve(&mut self, endpoint: Endpoint, class: usize, now: u64) {
        let Some((_, bit, kinds)) = self.port(endpoint, class, now) else { return };
        if kinds[USED] & bit != 0 {
            kinds[USED] &= !bit;
            kinds[RESTING] |= bit;
        }
    }

    /// The block of a port, and its bit in the words of each kind.
    pub(super) fn port(
        &mut self,
        endpoint: Endpoint,
        class: usize,
        now: u64,
    ) -> Option<(u32, u64, &mut [u64; KINDS])> {
        let (block, port) = self.place_of(endpoint)?;
        self.advance_periods(block, now);
        let from = self.base(block, class) + at(port / 64, 0);
        let kinds = self.bits.get_mut().get_mut(from..)?.first_chunk_mut()?;
        Some((block, 1 << (port % 64), kinds))
    }

    /// How many addresses there can be.
    pub(crate) fn slots(&self) -> u32 {
        self.addresses.len() as u32
    }

    /// How many subscribers are said to have an address.
    pub(crate) fn joined_subscribers(&self, number: u32) -> usize {
        self.addresses.get(number as usize).map_or(0, |address| address.subscribers as usize)
    }

    /// Whether somebody has a block.
    pub(crate) fn is_taken(&self, block: u32) -> bool {
        self.taken.get().get(block as usize / 64).is_some_and(|word| word >> (block % 64) & 1 == 1)
    }
}
