//! Outside addresses, their port blocks, and the ports in them.

mod change;
mod ports;
mod restore;
mod usage;

pub use change::PoolChange;
pub use ports::{CLASSES, PortRequest, class};
pub use usage::Usage;

use crate::config::{Config, ConfigError, PoolAddress};
use crate::key::Endpoint;
use crate::memory::Pages;
use ports::{Block, KINDS, pick_from, place};
use std::net::Ipv4Addr;

/// The first port that clients use (RFC 4787 section 4.2.1).
const FIRST: u16 = 1024;

/// What an address is used for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Use {
    /// All that begins.
    All,
    /// What is there: nothing begins on it any more.
    Drains,
    /// Nothing: it is given up, and what still leads to it is looked for.
    Closes,
}

#[derive(Debug, Clone, Copy)]
struct Address {
    /// 0: it has none now.
    address: u32,
    /// The address that it had before.
    was: u32,
    used_for: Use,
    first_port: u16,
    /// The ports that this worker has of it.
    ports: (u16, u16),
    /// Its first block, how many it has, and how many there is room for.
    block: u32,
    blocks: u32,
    room: u32,
    /// Blocks that nobody has.
    free: u32,
    /// Subscribers that have blocks of it.
    subscribers: u32,
}

/// All addresses of a worker.
#[derive(Debug)]
pub struct Pool {
    addresses: Vec<Address>,
    /// Numbers of addresses in the order of addresses and ports, to find one.
    sorted: Vec<u32>,
    /// Numbers of those that new blocks are taken of; not of sites.
    open: Vec<u32>,
    /// How many drain, and those of them that may have nothing any more.
    draining: usize,
    emptied: Vec<u32>,
    blocks: Pages<Block>,
    /// A bit for each block: somebody has it.
    taken: Pages<u64>,
    bits: Pages<u64>,
    /// Words of 64 ports.
    words: usize,
    size: u32,
    period_ns: u64,
    /// That of the last packet.
    period: u32,
    /// Blocks of all addresses that do not drain, and those of them that nobody has.
    totals: (u64, u64),
}

/// The first port of the blocks of an address, and how many there are. Blocks begin at an even port, so that parity within a block is that
/// of the port.
fn layout(pool: &PoolAddress, size: u32) -> (u16, u32) {
    let first = u32::from(*pool.ports.start()).next_multiple_of(2);
    (first as u16, (u32::from(*pool.ports.end()) + 1).saturating_sub(first) / size)
}

impl Pool {
    /// Of what the configuration says.
    pub fn new(config: &Config) -> Result<Self, ConfigError> {
        let size = u32::from(config.ports_per_block);
        let mut addresses = Vec::with_capacity(config.pool.len() + config.spare());
        let (mut block, mut total) = (0, 0);
        // These have no address yet: the slots of sites, and those for addresses that are added.
        let empty = PoolAddress::all_ports(Ipv4Addr::UNSPECIFIED);
        let spare = std::iter::repeat_n(&empty, config.spare());
        for pool in config.pool.iter().chain(spare) {
            let (first_port, blocks) = layout(pool, size);
            if blocks == 0 {
                return Err(ConfigError::NoBlock(pool.address));
            }
            addresses.push(Address {
                address: pool.address.to_bits(),
                was: 0,
                used_for: Use::All,
                first_port,
                ports: (*pool.ports.start(), *pool.ports.end()),
                block,
                blocks,
                room: blocks,
                free: blocks,
                subscribers: 0,
            });
            total += if pool.address.is_unspecified() { 0 } else { u64::from(blocks) };
            // The next address begins at a whole word of `taken`.
            block += blocks.next_multiple_of(64);
        }
        let mut sorted = Vec::with_capacity(addresses.len());
        sorted.extend(0..config.pool.len() as u32);
        let mut open = Vec::with_capacity(addresses.len());
        open.extend(&sorted);
        sorted.sort_by_key(|at| (addresses[*at as usize].address, addresses[*at as usize].first_port));
        let words = size as usize / 64;
        let blocks = block as usize;
        Ok(Self {
            emptied: Vec::with_capacity(addresses.len()),
            addresses,
            sorted,
            open,
            draining: 0,
            blocks: Pages::new(blocks)?,
            taken: Pages::new(blocks / 64)?,
            bits: Pages::new(blocks * CLASSES * KINDS * words)?,
            words,
            size,
            period_ns: config.timeouts.port_quarantine,
            period: 0,
            totals: (total, total),
        })
    }

    /// How many addresses there are now, without those that drain.
    pub fn addresses(&self) -> usize {
        self.sorted.len() - self.draining
    }

    /// A slot that had no address has this one, which no other has. `false`: there is no such slot, or it has one.
    pub fn assign(&mut self, slot: u32, address: u32) -> bool {
        let at = self.sorted.partition_point(|at| self.addresses[*at as usize].address < address);
        let Some(this) = self.addresses.get_mut(slot as usize).filter(|this| this.address == 0) else {
            return false;
        };
        this.address = address;
        self.totals = (self.totals.0 + u64::from(this.blocks), self.totals.1 + u64::from(this.free));
        self.sorted.insert(at, slot);
        true
    }

    /// These slots, in order, have no address any more. Nobody has a block of them.
    pub fn release_slots(&mut self, slots: &[u32]) {
        // One walk for all: it is as long as there are addresses.
        self.sorted.retain(|at| slots.binary_search(at).is_err());
        for slot in slots {
            if let Some(this) = self.addresses.get_mut(*slot as usize).filter(|this| this.address != 0) {
                self.totals = (self.totals.0 - u64::from(this.blocks), self.totals.1 - u64::from(this.free));
                this.address = 0;
            }
        }
    }

    /// How many blocks, and how many of them nobody has.
    pub fn blocks(&self) -> (u64, u64) {
        self.totals
    }

    /// Whether an address is one of the pool.
    #[inline]
    pub fn has(&self, address: u32) -> bool {
        if !self.spans(address) {
            return false;
        }
        let found = self.sorted.partition_point(|at| self.addresses[*at as usize].address < address);
        self.sorted.get(found).is_some_and(|at| self.addresses[*at as usize].address == address)
    }

    /// Whether an address lies between the first and the last: most that are asked for do not.
    #[inline]
    fn spans(&self, address: u32) -> bool {
        let at = |number: &u32| self.addresses.get(*number as usize).map_or(0, |this| this.address);
        self.sorted.first().is_some_and(|first| at(first) <= address)
            && self.sorted.last().is_some_and(|last| address <= at(last))
    }

    /// Whether what goes to an endpoint of the pool is for this worker: another one may have other ports of the address. Ports
    /// that clients do not use, and packets without any, are for who has the first of the others.
    pub fn is_here(&self, to: Endpoint) -> bool {
        if !self.spans(to.address) {
            return false;
        }
        let found = self.sorted.partition_point(|at| self.addresses[*at as usize].address < to.address);
        let its = self.sorted[found..].iter().map(|at| &self.addresses[*at as usize]);
        its.take_while(|this| this.address == to.address).any(|this| {
            let low = to.port < FIRST && this.ports.0 <= FIRST;
            low || (this.ports.0..=this.ports.1).contains(&to.port)
        })
    }

    /// The address of this number.
    pub fn address(&self, number: u32) -> u32 {
        self.addresses.get(number as usize).map_or(0, |address| address.address)
    }

    /// The number of the address of an endpoint, if new blocks are taken of it.
    pub fn open_number(&self, endpoint: Endpoint) -> Option<u32> {
        let from = self.sorted.partition_point(|at| self.addresses[*at as usize].address < endpoint.address);
        let its = self.sorted.iter().skip(from).copied();
        let mut its = its.take_while(|at| self.addresses[*at as usize].address == endpoint.address);
        its.find(|at| {
            let this = &self.addresses[*at as usize];
            let has_port = (this.ports.0..=this.ports.1).contains(&endpoint.port);
            this.used_for == Use::All && (has_port || endpoint.port < FIRST && this.ports.0 <= FIRST)
        })
    }

    /// First and last port of a block, and its address.
    pub fn ports(&self, number: u32, block: u32) -> (Ipv4Addr, (u16, u16)) {
        let Some(address) = self.addresses.get(number as usize) else {
            return (Ipv4Addr::UNSPECIFIED, (0, 0));
        };
        let first = u32::from(address.first_port) + (block - address.block) * self.size;
        (Ipv4Addr::from_bits(address.address), (first as u16, (first + self.size - 1) as u16))
    }

    /// The number of an address that has a free block, from a random one on.
    pub fn pick_address(&self, random: u64) -> Option<u32> {
        let count = self.open.len();
        let from = (((random >> 32) * count as u64) >> 32) as usize;
        let mut numbers = (from..count).chain(0..from).map(|at| self.open[at]);
        numbers.find(|number| self.addresses[*number as usize].free > 0)
    }

    /// Take a free block of an address, the first from a random one on that has a port for a protocol: those that were given back
    /// lately may have none yet.
    pub fn take_block(&mut self, number: u32, class: usize, random: u64, now: u64) -> Option<u32> {
        /// A call's work is bounded.
        const LOOKS: usize = 8;
        let &Address { block: first, blocks, free, used_for, .. } = self.addresses.get(number as usize)?;
        if free == 0 || used_for != Use::All {
            return None;
        }
        let words = first as usize / 64..(first as usize + blocks as usize).div_ceil(64);
        let (count, last) = (words.len(), blocks as usize % 64);
        let within = |word: usize| if word + 1 == count && last > 0 { (1u64 << last) - 1 } else { u64::MAX };
        let mut from = place(count, random);
        for _ in 0..LOOKS.min(free as usize) {
            let taken = self.taken.get().get(words.clone())?;
            let bit = pick_from(count, from, |word| !taken[word] & within(word))?;
            let block = first + bit as u32;
            if self.has_port(block, class, now) {
                return self.claim_block(number, block).then_some(block);
            }
            from = (bit + 1) % (count * 64);
        }
        None
    }

    /// Take this block of an address. `false`: somebody has it, or the address drains.
    pub fn claim_block(&mut self, number: u32, block: u32) -> bool {
        let open = |address: &&mut Address| address.used_for == Use::All;
        let Some(address) = self.addresses.get_mut(number as usize).filter(open) else { return false };
        let Some(word) = self.taken.get_mut().get_mut(block as usize / 64) else { return false };
        let bit = 1 << (block % 64);
        let free = *word & bit == 0;
        if free {
            *word |= bit;
            address.free -= 1;
            self.totals.1 -= 1;
        }
        free
    }

    /// Take the block that the arithmetic of RFC 7422 says: the so-many-eth of all. Whoever else asks gets it too.
    pub fn fixed_block(&self, index: u64) -> Option<(u32, u32)> {
        let mut left = index;
        for (number, address) in self.addresses.iter().enumerate() {
            if left < u64::from(address.blocks) {
                return Some((number as u32, address.block + left as u32));
            }
            left -= u64::from(address.blocks);
        }
        None
    }

    /// The so-many-eth of all blocks that an endpoint is in: the way back of [`Pool::fixed_block`].
    pub fn index_of(&self, address: u32, port: u16) -> Option<u64> {
        let (number, block) = self.block_of(address, port)?;
        let before: u64 =
            self.addresses.iter().take(number as usize).map(|address| u64::from(address.blocks)).sum();
        Some(before + u64::from(block - self.addresses.get(number as usize)?.block))
    }

    /// Give a block back.
    pub fn release_block(&mut self, number: u32, block: u32) {
        let Some(address) = self.addresses.get_mut(number as usize) else { return };
        if let Some(word) = self.taken.get_mut().get_mut(block as usize / 64) {
            let bit = 1 << (block % 64);
            let given_back = u32::from(*word & bit != 0);
            address.free += given_back;
            match address.used_for {
                Use::All => self.totals.1 += u64::from(given_back),
                _ if address.free == address.blocks => self.emptied.push(number),
                _ => {}
            }
            *word &= !bit;
        }
    }

    /// The number of the address and the block of an endpoint.
    pub fn block_of(&self, address: u32, port: u16) -> Option<(u32, u32)> {
        // Most pools are prefixes: there an address lies as far from the first in the list as by its number.
        let first = self.addresses.get(*self.sorted.first()? as usize)?.address;
        let near = self.sorted.get(address.wrapping_sub(first) as usize).copied();
        near.and_then(|number| self.block_in(number, address, port)).or_else(|| {
            // The last whose first port is not above.
            let after = self.sorted.partition_point(|at| {
                let this = &self.addresses[*at as usize];
                (this.address, this.first_port) <= (address, port)
            });
            self.block_in(*self.sorted.get(after.checked_sub(1)?)?, address, port)
        })
    }

    /// The same, if it is of the address of this number.
    fn block_in(&self, number: u32, address: u32, port: u16) -> Option<(u32, u32)> {
        let this = self.addresses.get(number as usize).filter(|this| this.address == address)?;
        let at = u32::from(port.checked_sub(this.first_port)?) / self.size;
        (at < this.blocks).then_some((number, this.block + at))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{PoolAddress, SECOND};
    use std::collections::HashSet;

    fn pool() -> Pool {
        let address = |last| PoolAddress { address: Ipv4Addr::new(203, 0, 113, last), ports: 1025..=1300 };
        let config = Config { ports_per_block: 64, pool: vec![address(2), address(1)], ..Config::default() };
        Pool::new(&config).unwrap()
    }

    const ONE: u32 = 0xcb00_7101;

    #[test]
    fn blocks_are_taken_once_and_come_back() {
        let mut pool = pool();
        assert_eq!(pool.blocks(), (8, 8));
        let blocks: Vec<u32> =
            std::iter::from_fn(|| pool.take_block(1, 0, 0x8000_0000_0000_0000, 0)).collect();
        assert_eq!(blocks.iter().collect::<HashSet<_>>().len(), 4);
        assert_eq!((pool.blocks(), pool.pick_address(u64::MAX)), ((8, 4), Some(0)));
        let ports: HashSet<_> = blocks.iter().map(|block| pool.ports(1, *block).1).collect();
        assert_eq!(ports, HashSet::from([(1026, 1089), (1090, 1153), (1154, 1217), (1218, 1281)]));
        pool.release_block(1, blocks[2]);
        pool.release_block(1, blocks[2]);
        assert_eq!((pool.blocks(), pool.take_block(1, 0, 7, 0)), ((8, 5), Some(blocks[2])));
    }

    #[test]
    fn endpoints_are_found_in_their_blocks() {
        let mut pool = pool();
        let block = pool.take_block(1, 0, 0, 0).unwrap();
        let (address, (first, last)) = pool.ports(1, block);
        assert_eq!(
            (pool.block_of(ONE, first), pool.block_of(ONE, last)),
            (Some((1, block)), Some((1, block)))
        );
        assert_eq!(
            (address.to_bits(), pool.block_of(ONE, 1025), pool.block_of(ONE, 1282)),
            (ONE, None, None)
        );
        assert!(pool.has(ONE) && !pool.has(ONE + 2) && !pool.has(0));
        let here = |port| pool.is_here(Endpoint::new(ONE, port));
        assert_eq!([80, 1024, 1025, 1300, 1301].map(here), [false, false, true, true, false]);
        assert!(!pool.is_here(Endpoint::new(ONE + 2, 1100)));
        for index in 0..8 {
            let (number, block) = pool.fixed_block(index).unwrap();
            let (address, (first, _)) = pool.ports(number, block);
            assert_eq!(pool.index_of(address.to_bits(), first + 63), Some(index));
        }
        assert_eq!(pool.fixed_block(8), None);
    }

    #[test]
    fn a_port_rests_for_two_minutes_at_least() {
        let mut pool = pool();
        let block = pool.take_block(1, 0, 0, 0).unwrap();
        let (_, (first, _)) = pool.ports(1, block);
        let take = |pool: &mut Pool, now| {
            pool.take_port(1, block, 1, PortRequest::Exactly(first + 3), 0, now * SECOND)
        };
        for freed in [10, 119, 125, 240, 363, 1000] {
            let mut pool = self::pool();
            assert_eq!(pool.take_block(1, 0, 0, 0), Some(block));
            assert_eq!(take(&mut pool, freed), Some(first + 3));
            pool.release_port(ONE, first + 3, 1, freed * SECOND);
            for wait in [1, 60, 119] {
                assert_eq!(take(&mut pool, freed + wait), None, "freed at {freed}, {wait} later");
            }
            assert_eq!(take(&mut pool, freed + 240), Some(first + 3), "freed at {freed}");
        }
        // Other protocols number their ports apart.
        assert!(pool.take_port(1, block, 0, PortRequest::Exactly(first), 0, 0).is_some());
        assert!(pool.take_port(1, block, 1, PortRequest::Exactly(first), 0, 0).is_some());
        assert_eq!(
            (pool.take_port(1, block, 1, PortRequest::Exactly(first), 0, 0), pool.used(block)),
            (None, 2)
        );
    }

    #[test]
    fn a_block_whose_ports_rest_is_not_taken() {
        let mut pool = pool();
        let rests = pool.take_block(1, 1, 0, 0).unwrap();
        let ports: Vec<u16> =
            std::iter::from_fn(|| pool.take_port(1, rests, 1, PortRequest::Any, 0, 0)).collect();
        ports.iter().for_each(|port| pool.release_port(ONE, *port, 1, 0));
        pool.release_block(1, rests);
        let others: Vec<u32> = std::iter::from_fn(|| pool.take_block(1, 1, 0, SECOND)).collect();
        assert!(others.len() == 3 && !others.contains(&rests), "{others:?}");
        assert_eq!(pool.blocks(), (8, 5), "it is there still");
        // Of another protocol it has ports, and later of all.
        assert_eq!(pool.take_block(1, 0, 0, SECOND), Some(rests));
        pool.release_block(1, rests);
        assert_eq!(pool.take_block(1, 1, 0, 300 * SECOND), Some(rests));
    }

    #[test]
    fn all_ports_are_found_and_parity_is_kept() {
        let mut pool = pool();
        let block = pool.take_block(1, 0, 0, 0).unwrap();
        for (wish, least) in [(PortRequest::Parity(7), 1), (PortRequest::Any, 0)] {
            let ports: HashSet<u16> =
                (0..32u64).map(|i| pool.take_port(1, block, 1, wish, i << 60, 0).unwrap()).collect();
            assert!(ports.len() == 32 && ports.iter().all(|port| port % 2 == least));
        }
        assert_eq!(pool.take_port(1, block, 1, PortRequest::Any, 0, 0), None);
    }
}
