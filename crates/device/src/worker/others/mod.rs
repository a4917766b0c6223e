//! Connections of a device besides its first: those that its model asked for by number, and those that a listening one
//! accepted. Most devices have none, and pay one comparison an event for it. Here is where they are kept; [`asks`] does
//! what models ask, [`events`] tells them what happens.

mod asks;
mod events;

use super::conn::Conn;
use crate::conn_error::ConnError;
use crate::endpoint::{To, Token};
use protocol::model::ConnId;
use protocol::time::Time;
use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};

/// Set in the slot number of a [`Token`]: the rest is a place in [`Others`].
const OTHER: u32 = 1 << 31;

/// One of them.
#[derive(Debug)]
struct Other<C> {
    /// Whose it is.
    slot: u32,
    id: ConnId,
    conn: Conn<C>,
    to: To,
    /// When it must be up.
    connect_by: Time,
}

/// A place for one, and how many it has had: events of an earlier one are nobody's.
#[derive(Debug)]
struct Place<C> {
    generation: u32,
    other: Option<Other<C>>,
}

#[derive(Debug, Clone, Copy, Default)]
struct Owned {
    connections: u32,
    accepted: u32,
}

/// All of a worker's devices.
#[derive(Debug)]
pub(super) struct Others<C> {
    places: Vec<Place<C>>,
    free: Vec<u32>,
    /// By device and number.
    named: BTreeMap<(u32, ConnId), u32>,
    /// How many each device has, and how many it has accepted since it had none.
    owned: BTreeMap<u32, Owned>,
    /// Those that are not up, by when they must be.
    connecting: BTreeSet<(Time, u32)>,
    /// Those that have more to read than one turn took.
    unread: Vec<(u32, u32)>,
    /// What broke while something else was being done.
    broken: Vec<(u32, u32, ConnError)>,
}

impl<C> Others<C> {
    pub fn new() -> Self {
        Self {
            places: Vec::new(),
            free: Vec::new(),
            named: BTreeMap::new(),
            owned: BTreeMap::new(),
            connecting: BTreeSet::new(),
            unread: Vec::new(),
            broken: Vec::new(),
        }
    }

    /// Whether a token's slot number means one of these.
    #[inline]
    pub fn is_one(slot: u32) -> bool {
        slot & OTHER != 0
    }

    /// Whether something can be done at once.
    pub fn is_waiting(&self) -> bool {
        !self.unread.is_empty() || !self.broken.is_empty()
    }

    /// When the next of them must be up.
    pub fn next(&self) -> Time {
        self.connecting.first().map_or(Time::NEVER, |(by, _)| *by)
    }

    /// A place for the connection `id` of device `slot`, and its token.
    fn reserve(&mut self) -> (u32, Token) {
        let at = self.free.pop().unwrap_or_else(|| {
            self.places.push(Place { generation: 0, other: None });
            self.places.len() as u32 - 1
        });
        let place = &mut self.places[at as usize];
        place.generation = place.generation.wrapping_add(1);
        (at, Token::new(at | OTHER, place.generation))
    }

    fn put(&mut self, at: u32, other: Other<C>) {
        self.named.insert((other.slot, other.id), at);
        self.owned.entry(other.slot).or_default().connections += 1;
        if other.connect_by != Time::NEVER {
            self.connecting.insert((other.connect_by, at));
        }
        self.places[at as usize].other = Some(other);
    }

    fn get(&mut self, at: u32) -> Option<&mut Other<C>> {
        self.places.get_mut(at as usize)?.other.as_mut()
    }

    /// The same, unless another has taken the place.
    fn same(&mut self, at: u32, generation: u32) -> Option<&mut Other<C>> {
        self.places.get_mut(at as usize).filter(|place| place.generation == generation)?.other.as_mut()
    }

    fn take(&mut self, at: u32) -> Option<Other<C>> {
        let other = self.places.get_mut(at as usize)?.other.take()?;
        self.named.remove(&(other.slot, other.id));
        if let Entry::Occupied(mut owned) = self.owned.entry(other.slot) {
            owned.get_mut().connections -= 1;
            if owned.get().connections == 0 {
                owned.remove();
            }
        }
        self.connecting.remove(&(other.connect_by, at));
        self.free.push(at);
        Some(other)
    }

    fn find(&self, slot: u32, id: ConnId) -> Option<u32> {
        self.named.get(&(slot, id)).copied()
    }

    /// All of device `slot`.
    fn of(&self, slot: u32) -> Vec<u32> {
        self.named.range((slot, ConnId(0))..=(slot, ConnId(u32::MAX))).map(|(_, at)| *at).collect()
    }

    /// How many device `slot` has.
    fn count(&self, slot: u32) -> u32 {
        self.owned.get(&slot).map_or(0, |owned| owned.connections)
    }

    /// The next number for one that device `slot` accepted; they come again when all have been given out.
    fn accepted_id(&mut self, slot: u32) -> ConnId {
        const NUMBERS: u32 = u32::MAX - ConnId::ACCEPTED.0;
        let owned = self.owned.entry(slot).or_default();
        loop {
            let id = ConnId(ConnId::ACCEPTED.0 + owned.accepted % NUMBERS);
            owned.accepted = owned.accepted.wrapping_add(1);
            if !self.named.contains_key(&(slot, id)) {
                return id;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_are_counted_and_numbered_by_device() {
        let mut others = Others::new();
        let accept = |others: &mut Others<()>, slot| {
            let ((at, _), id) = (others.reserve(), others.accepted_id(slot));
            let to = To::Target(0);
            let conn = Conn::new((), true);
            others.put(at, Other { slot, id, conn, to, connect_by: Time::NEVER });
            (at, id.0 - ConnId::ACCEPTED.0)
        };
        let (first, number) = accept(&mut others, 7);
        assert_eq!((number, accept(&mut others, 7).1, accept(&mut others, 8).1), (0, 1, 0));
        assert_eq!((others.count(7), others.count(8), others.count(9)), (2, 1, 0));
        // a number that is free again is given out last, and one that is taken is passed over
        others.take(first);
        assert_eq!(accept(&mut others, 7).1, 2);
        others.owned.get_mut(&7).expect("it has some").accepted = 1;
        assert_eq!(accept(&mut others, 7).1, 3);
        assert_eq!(others.count(7), 3);
        others.of(7).into_iter().for_each(|at| drop(others.take(at)));
        assert!(others.count(7) == 0 && !others.owned.contains_key(&7), "who has none costs nothing");
    }
}
