//! Who is behind the NAT: {private address, tags} → outside address, port blocks, next hops, and how much of what it has.

use crate::cpu;
use crate::hash::Hasher;
use crate::key::{Key, Realm};
use crate::memory::{Memory, Pages};
use crate::session::NONE;
use crate::table::Table;
use std::net::Ipv4Addr;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Port blocks that a subscriber may have at most.
pub const BLOCKS: usize = 8;

/// One subscriber, in one cache line.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C, align(64))]
pub struct Subscriber {
    pub(crate) inside: u32,
    pub(crate) realm: u32,
    /// The number of its address in the pool.
    pub(crate) address: u32,
    pub(crate) sessions: u32,
    pub(crate) blocks: [u32; BLOCKS],
    pub(crate) block_count: u16,
    pub(crate) flags: u16,
    pub(crate) up_hop: u16,
    pub(crate) down_hop: u16,
    /// When its last session ended.
    pub(crate) idle_since: u32,
    /// Of a free line, the next free one.
    pub(crate) next: u32,
}

const _: () = assert!(size_of::<Subscriber>() == 64);

impl Subscriber {
    const TAKEN: u16 = 1;
    /// Its line waits in the queue of those that may be idle, once: a free one may still.
    pub(crate) const QUEUED: u16 = 2;
    /// Its address and blocks are computed, or given by the operator: they are not released.
    pub(crate) const FIXED: u16 = 4;

    /// Of a standby: sweeps since it was told of, in two bits.
    const AGE: u16 = 0x30;
    const SWEEP: u16 = 0x10;

    /// A standby was told of it.
    pub(crate) fn be_young(&mut self) {
        self.flags &= !Self::AGE;
    }

    /// A standby's sweep is over. Whether it was told of it in none of three; a line that is free names nobody.
    pub(crate) fn grow_old(&mut self) -> bool {
        if !self.is_taken() {
            return false;
        }
        self.flags += if self.flags & Self::AGE < Self::AGE { Self::SWEEP } else { 0 };
        self.flags & Self::AGE == Self::AGE
    }

    /// Its private address.
    pub fn inside(&self) -> Ipv4Addr {
        Ipv4Addr::from_bits(self.inside)
    }

    /// Its tags.
    pub fn realm(&self) -> Realm {
        self.realm
    }

    /// How many sessions it has.
    pub fn sessions(&self) -> u32 {
        self.sessions
    }

    /// Its port blocks, by number.
    pub fn blocks(&self) -> &[u32] {
        self.blocks.get(..self.block_count.into()).unwrap_or(&[])
    }

    /// Whether it is anybody: a free line is not.
    pub(crate) fn is_taken(&self) -> bool {
        self.has(Self::TAKEN)
    }

    pub(crate) fn has(&self, flag: u16) -> bool {
        self.flags & flag != 0
    }
}

/// All subscribers.
#[derive(Debug)]
pub struct Subscribers {
    lines: Pages<Subscriber>,
    table: Table,
    free: u32,
    fresh: u32,
}

impl Subscribers {
    /// Room for `capacity`.
    pub fn new(capacity: usize) -> std::io::Result<Self> {
        Ok(Self { lines: Pages::new(capacity)?, table: Table::new(capacity, 60)?, free: NONE, fresh: 0 })
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.table.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.table.is_empty()
    }

    /// How many lines were ever used.
    pub(crate) fn used(&self) -> u32 {
        self.fresh
    }

    /// Bytes it takes when all is touched.
    pub fn size(&self) -> usize {
        self.lines.size() + self.table.size()
    }

    /// Its memory.
    pub fn memory(&self) -> [&dyn Memory; 2] {
        [&self.lines, self.table.memory()]
    }

    /// One of them.
    pub fn at(&self, number: u32) -> Option<&Subscriber> {
        self.lines.get().get(number as usize)
    }

    pub(crate) fn at_mut(&mut self, number: u32) -> Option<&mut Subscriber> {
        self.lines.get_mut().get_mut(number as usize)
    }

    /// The number of the one with this address and these tags.
    pub fn find(&self, hasher: &Hasher, inside: u32, realm: Realm) -> Option<u32> {
        self.find_by(hasher.hash(Key::subscriber(inside, realm)), inside, realm)
    }

    /// The same for who has its hash.
    pub(crate) fn find_by(&self, hash: u64, inside: u32, realm: Realm) -> Option<u32> {
        let lines = self.lines.get();
        self.table.find(hash, |number| {
            lines.get(number as usize).is_some_and(|line| line.inside == inside && line.realm == realm)
        })
    }

    /// Ask for the bucket in which the subscriber of this hash is looked for.
    pub(crate) fn prefetch(&self, hash: u64) {
        self.table.view().prefetch(hash);
    }

    /// Ask for the line that is probably the one of this hash. Its number.
    pub(crate) fn prefetch_line(&self, hash: u64) -> Option<u32> {
        let number = self.table.view().candidate(hash)?;
        cpu::prefetch(self.at(number)?);
        Some(number)
    }

    /// Add one that is not there yet; its line may be in the queue. `None`: there is no room.
    pub(crate) fn add(&mut self, hasher: &Hasher, subscriber: Subscriber) -> Option<u32> {
        let number = if self.free != NONE { self.free } else { self.fresh };
        let line = self.lines.get_mut().get_mut(number as usize)?;
        if !self.table.insert(hasher.hash(Key::subscriber(subscriber.inside, subscriber.realm)), number) {
            return None;
        }
        if self.free != NONE {
            self.free = line.next;
        } else {
            self.fresh += 1;
        }
        let queued = line.flags & Subscriber::QUEUED;
        *line = Subscriber { flags: subscriber.flags | Subscriber::TAKEN | queued, ..subscriber };
        Some(number)
    }

    pub(crate) fn remove(&mut self, hasher: &Hasher, number: u32) {
        let Some(line) = self.lines.get_mut().get_mut(number as usize) else { return };
        self.table.remove(hasher.hash(Key::subscriber(line.inside, line.realm)), number);
        let flags = line.flags & Subscriber::QUEUED;
        *line = Subscriber { flags, next: self.free, ..zerocopy::FromZeros::new_zeroed() };
        self.free = number;
    }

    /// All of them, with their numbers.
    pub fn iter(&self) -> impl Iterator<Item = (u32, &Subscriber)> {
        self.iter_from(0, self.fresh).0
    }

    /// Those in `lines` lines from number `from` on; and the line to go on from, if there are more.
    pub fn iter_from(
        &self,
        from: u32,
        lines: u32,
    ) -> (impl Iterator<Item = (u32, &Subscriber)>, Option<u32>) {
        let end = from.saturating_add(lines).min(self.fresh);
        let page = self.lines.get().get(from as usize..end as usize).unwrap_or(&[]);
        let taken = page.iter().zip(from..).filter(|(line, _)| line.is_taken());
        (taken.map(|(line, number)| (number, line)), (end < self.fresh).then_some(end))
    }
}
