//! Hash table from the ends of a connection to its number: two slots of 8 bytes for each connection.

/// Hash, and number of the connection plus one: a table that nobody uses is all zeros, which take no memory until they are written.
type Slot = [u32; 2];
const EMPTY: Slot = [0; 2];

/// Open addressing with linear probing. The hash is keyed, and equal hashes are told apart by whoever asks.
#[derive(Debug)]
pub(crate) struct Table {
    slots: Box<[Slot]>,
}

impl Table {
    /// Room for `connections`, of which each has two slots at least.
    pub fn new(connections: usize) -> Self {
        let slots = (connections.max(1) * 2).next_power_of_two();
        Self { slots: vec![EMPTY; slots].into() }
    }

    /// Bytes of the slots that each of `connections` takes.
    #[cfg(test)]
    pub const fn bytes_each() -> usize {
        2 * size_of::<Slot>()
    }

    #[inline]
    fn mask(&self) -> usize {
        self.slots.len() - 1
    }

    /// The connection with this hash that `is` says it is.
    #[inline]
    pub fn find(&self, hash: u32, is: impl Fn(u32) -> bool) -> Option<u32> {
        let mask = self.mask();
        let mut at = hash as usize & mask;
        loop {
            let [its, number] = self.slots[at];
            let index = number.checked_sub(1)?;
            if its == hash && is(index) {
                return Some(index);
            }
            at = (at + 1) & mask;
        }
    }

    /// Put connection `index` in. There is room: no more are put in than were asked for.
    pub fn insert(&mut self, hash: u32, index: u32) {
        let mask = self.mask();
        let mut at = hash as usize & mask;
        while self.slots[at] != EMPTY {
            at = (at + 1) & mask;
        }
        self.slots[at] = [hash, index + 1];
    }

    /// Take connection `index` out: those behind it move up.
    pub fn remove(&mut self, hash: u32, index: u32) {
        let mask = self.mask();
        let mut at = hash as usize & mask;
        while self.slots[at][1] != index + 1 {
            if self.slots[at] == EMPTY {
                return;
            }
            at = (at + 1) & mask;
        }
        let mut next = at;
        loop {
            next = (next + 1) & mask;
            let slot = self.slots[next];
            if slot == EMPTY {
                break;
            }
            let home = slot[0] as usize & mask;
            // it may move to the hole unless its home lies behind that
            if (next.wrapping_sub(home) & mask) >= (next.wrapping_sub(at) & mask) {
                self.slots[at] = slot;
                at = next;
            }
        }
        self.slots[at] = EMPTY;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::HashMap;

    proptest! {
        #[test]
        fn it_finds_what_a_map_finds(steps in proptest::collection::vec((0u32..40, any::<bool>()), 0..300)) {
            let mut table = Table::new(40);
            let mut map: HashMap<u32, u32> = HashMap::new();
            // few hashes, so that many are equal or near each other
            let hash = |key: u32| (key * 7) % 13;
            for (key, put) in steps {
                if put && !map.contains_key(&key) {
                    table.insert(hash(key), key);
                    map.insert(key, key);
                } else if !put && map.remove(&key).is_some() {
                    table.remove(hash(key), key);
                }
                for key in 0..40 {
                    prop_assert_eq!(table.find(hash(key), |index| index == key), map.get(&key).copied());
                }
            }
        }
    }
}
