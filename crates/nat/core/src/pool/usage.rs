//! How much of each address is used, and by how many.

use super::ports::{CLASSES, KINDS, RESTED, RESTING, USED};
use super::{Pool, Use};
use std::net::Ipv4Addr;

/// What is used of an address, or of the part of it that a worker has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Usage {
    /// The address.
    pub address: Ipv4Addr,
    /// First and last port that are given out.
    pub ports: (u16, u16),
    /// Its port blocks.
    pub blocks: u32,
    /// Of these, those that nobody has.
    pub blocks_free: u32,
    /// Subscribers that have blocks of it, or sessions left.
    pub subscribers: u32,
    /// Whether nothing begins on it any more, as it is to be given up.
    pub draining: bool,
    /// Ports in use, of TCP, UDP and ICMP.
    pub used: [u32; CLASSES],
    /// Ports that rest until they are given out again, of TCP, UDP and ICMP.
    pub resting: [u32; CLASSES],
}

impl Pool {
    /// A subscriber has its first block of an address.
    pub(crate) fn join(&mut self, number: u32) {
        if let Some(address) = self.addresses.get_mut(number as usize) {
            address.subscribers += 1;
        }
    }

    /// A subscriber has no block of an address any more.
    pub(crate) fn leave(&mut self, number: u32) {
        if let Some(address) = self.addresses.get_mut(number as usize) {
            address.subscribers = address.subscribers.saturating_sub(1);
        }
    }

    /// What is used of at most `most` addresses from number `from` on: of so many that some `budget` words of memory are looked
    /// at, and of one at least. And the number to go on from; `None`: there are no more.
    pub fn usage_from(
        &self,
        from: u32,
        (most, budget): (usize, usize),
        now: u64,
    ) -> (Vec<Usage>, Option<u32>) {
        let (mut found, mut left) = (Vec::new(), budget);
        for (number, this) in (from..).zip(self.addresses.get(from as usize..).unwrap_or(&[])) {
            if left == 0 || found.len() == most {
                return (found, Some(number));
            }
            left = left.saturating_sub(1);
            if this.address == 0 {
                continue;
            }
            let mut usage = Usage {
                address: Ipv4Addr::from_bits(this.address),
                ports: (this.first_port, this.first_port + (this.blocks * self.size - 1) as u16),
                blocks: this.blocks,
                blocks_free: this.free,
                subscribers: this.subscribers,
                draining: this.used_for != Use::All,
                used: [0; CLASSES],
                resting: [0; CLASSES],
            };
            for block in this.block..this.block + this.blocks {
                left = left.saturating_sub(self.add(block, now, &mut usage));
            }
            usage.subscribers += self.left_on(number);
            found.push(usage);
        }
        (found, None)
    }

    /// Subscribers whose sessions go on on an address, though they take no ports of it.
    fn left_on(&self, number: u32) -> u32 {
        let mut whose: Vec<u32> = self.all_left(number).map(|(_, subscriber)| subscriber).collect();
        whose.sort_unstable();
        whose.dedup();
        whose.len() as u32
    }

    /// Add what is used of a block; how many words were looked at.
    fn add(&self, block: u32, now: u64, usage: &mut Usage) -> usize {
        let Some(this) = self.blocks.get().get(block as usize) else { return 1 };
        let passed = ((now / self.period_ns) as u32).wrapping_sub(this.period);
        // Its bits are as they were in its last period.
        let resting: &[usize] = match passed {
            0 => &[RESTING, RESTED],
            1 => &[RESTING],
            _ => &[],
        };
        if this.used == 0 && resting.is_empty() {
            return 1;
        }
        for class in 0..CLASSES {
            let base = self.base(block, class);
            let Some(bits) = self.bits.get().get(base..base + KINDS * self.words) else { continue };
            for kinds in bits.chunks_exact(KINDS) {
                let rests = resting.iter().fold(0, |all, kind| all | kinds[*kind]);
                usage.used[class] += kinds[USED].count_ones();
                usage.resting[class] += rests.count_ones();
            }
        }
        CLASSES * KINDS * self.words
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Config, PoolAddress, SECOND};
    use crate::pool::PortRequest;

    fn pool(addresses: u8) -> Pool {
        let address = |last| PoolAddress { address: Ipv4Addr::new(203, 0, 113, last), ports: 1024..=1279 };
        let pool = (1..=addresses).map(address).collect();
        Pool::new(&Config { ports_per_block: 64, pool, ..Config::default() }).expect("a pool")
    }

    #[test]
    fn ports_are_used_then_rest_then_are_free() {
        let mut pool = pool(1);
        let period = Config::default().timeouts.port_quarantine;
        let usage = |pool: &Pool, now| pool.usage_from(0, (1, usize::MAX), now).0[0];
        let none = usage(&pool, 0);
        assert_eq!((none.ports, none.blocks, none.blocks_free), ((1024, 1279), 4, 4));
        assert_eq!((none.used, none.resting), ([0; 3], [0; 3]));
        let block = pool.take_block(0, 0, 0, 0).expect("a block");
        pool.join(0);
        let take = |pool: &mut Pool, class| {
            pool.take_port(0, block, class, PortRequest::Any, 0, SECOND).expect("a port")
        };
        let ports: Vec<u16> = (0..3).map(|_| take(&mut pool, 1)).collect();
        let _tcp = take(&mut pool, 0);
        let some = usage(&pool, SECOND);
        assert_eq!((some.used, some.blocks_free, some.subscribers), ([1, 3, 0], 3, 1));
        for port in &ports[..2] {
            pool.release_port(none.address.to_bits(), *port, 1, SECOND);
        }
        assert_eq!((usage(&pool, SECOND).used, usage(&pool, SECOND).resting), ([1, 1, 0], [0, 2, 0]));
        // Nobody has looked at the block since.
        for (later, expected) in [(period, 2), (2 * period, 0)] {
            assert_eq!(usage(&pool, SECOND + later).resting[1], expected, "{later}");
        }
        pool.leave(0);
        assert_eq!(usage(&pool, SECOND).subscribers, 0);
    }

    #[test]
    fn a_look_is_bounded_and_goes_on() {
        let mut pool = pool(5);
        for number in 0..5 {
            let block = pool.take_block(number, 0, 0, 0).expect("a block");
            let _port = pool.take_port(number, block, 0, PortRequest::Any, 0, 0);
        }
        let (mut from, mut seen, mut looks) = (Some(0), Vec::new(), 0);
        while let Some(at) = from {
            let (found, next) = pool.usage_from(at, (9, 60), 0);
            seen.extend(found.iter().map(|usage| usage.address.octets()[3]));
            (from, looks) = (next, looks + 1);
        }
        assert_eq!((seen, looks), (vec![1, 2, 3, 4, 5], 3));
        assert_eq!(pool.usage_from(99, (9, 20), 0), (vec![], None));
        assert_eq!(pool.usage_from(1, (1, 1_000), 0).1, Some(2), "no more than are wanted");
    }
}
