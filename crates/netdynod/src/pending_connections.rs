//! Those over TCP who have not shown the token yet. They have few places of their own, and who comes is let in: of the
//! address that has most of them the one leaves that came first. Whoever has the token shows it at once, and is not
//! kept out by any number of those who say nothing. Where those who were shown out have not gone yet, who comes waits
//! for one of them to go.

use crate::stream::Stream;
use std::net::IpAddr;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Places.
pub const PLACES: usize = 16;
/// Time between two lines of the log about them.
const QUIET: Duration = Duration::from_secs(1);
/// Threads of those who were shown out may take a moment to end: there are never more than these with them.
const LINGERING: usize = 4 * PLACES;
/// How long who comes waits for one of those to go.
const PATIENCE: Duration = Duration::from_secs(2);

struct PendingConnection {
    number: u64,
    from: IpAddr,
    stream: Stream,
}

#[derive(Default)]
struct PendingState {
    last: u64,
    guests: Vec<PendingConnection>,
    /// Those whose place is held still, also by who was shown out.
    lingering: usize,
    told: Option<Instant>,
}

/// The places.
#[derive(Clone, Default)]
pub struct PendingConnections(Arc<(Mutex<PendingState>, Condvar)>);

/// A place; given back when dropped.
pub struct PendingSlot {
    number: u64,
    room: PendingConnections,
}

impl PendingConnections {
    fn lock(&self) -> MutexGuard<'_, PendingState> {
        self.0.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A place for who came from this address. `None`: too many were shown out and do not go.
    pub fn enter(&self, from: IpAddr, stream: &Stream) -> Option<PendingSlot> {
        let is_full = |room: &mut PendingState| room.lingering >= LINGERING;
        let waited = self.0.1.wait_timeout_while(self.lock(), PATIENCE, is_full);
        let (mut room, waited) = waited.unwrap_or_else(PoisonError::into_inner);
        if waited.timed_out() {
            return None;
        }
        if room.guests.len() >= PLACES {
            let share = |guest: &PendingConnection| {
                room.guests.iter().filter(|other| other.from == guest.from).count()
            };
            // Of those with the largest share the first: `max_by_key` would give the last.
            let most = room.guests.iter().map(share).max().unwrap_or(0);
            if let Some(first) = room.guests.iter().position(|guest| share(guest) == most) {
                room.guests.remove(first).stream.hang_up();
            }
        }
        room.last += 1;
        room.lingering += 1;
        let number = room.last;
        room.guests.push(PendingConnection { number, from, stream: stream.clone() });
        Some(PendingSlot { number, room: self.clone() })
    }
}

impl PendingSlot {
    /// Whether what its holder did wrong should stand in the log: strangers do not fill the disk.
    pub fn is_worth_a_line(&self) -> bool {
        let mut room = self.room.lock();
        let worth = room.told.is_none_or(|told| told.elapsed() >= QUIET);
        if worth {
            room.told = Some(Instant::now());
        }
        worth
    }
}

impl Drop for PendingSlot {
    fn drop(&mut self) {
        let mut room = self.room.lock();
        room.lingering -= 1;
        room.guests.retain(|guest| guest.number != self.number);
        drop(room);
        self.room.0.1.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;
    use std::net::Ipv4Addr;
    use std::os::unix::net::UnixStream;

    fn from(last: u8) -> IpAddr {
        Ipv4Addr::new(192, 0, 2, last).into()
    }

    /// A connection from this address with its place, and its other end.
    fn came(waiting: &PendingConnections, last: u8) -> (Option<PendingSlot>, UnixStream) {
        let (ours, theirs) = UnixStream::pair().unwrap();
        theirs.set_nonblocking(true).unwrap();
        (waiting.enter(from(last), &ours.into()), theirs)
    }

    fn is_out(theirs: &mut UnixStream) -> bool {
        matches!(theirs.read(&mut [0]), Ok(0))
    }

    #[test]
    fn who_has_most_places_gives_up_the_first() {
        let waiting = PendingConnections::default();
        let mut owner = came(&waiting, 1);
        let mut flood: Vec<_> = (0..PLACES + 4).map(|_| came(&waiting, 2)).collect();
        assert!(flood[..5].iter_mut().all(|(_, theirs)| is_out(theirs)), "one more than there were places");
        assert!(!flood[5..].iter_mut().any(|(_, theirs)| is_out(theirs)));
        assert!(!is_out(&mut owner.1), "another address keeps its place");
        // also who comes from the same address as the flood is let in, in the place of the first
        let mut late = came(&waiting, 2);
        assert!(late.0.is_some() && !is_out(&mut late.1) && is_out(&mut flood[5].1));
    }

    #[test]
    fn a_place_is_given_back() {
        let waiting = PendingConnections::default();
        for _ in 0..3 * LINGERING {
            assert!(came(&waiting, 1).0.is_some());
        }
        let mut all: Vec<_> = (0..LINGERING).map(|_| came(&waiting, 1)).collect();
        assert!(came(&waiting, 1).0.is_none(), "those shown out do not go");
        let first = all.remove(0);
        std::thread::scope(|scope| {
            let late = scope.spawn(|| came(&waiting, 1).0.is_some());
            std::thread::sleep(Duration::from_millis(50));
            drop(first);
            assert!(late.join().unwrap(), "it waits for one of them to go");
        });
        drop(all);
        let room = waiting.lock();
        assert_eq!((room.guests.len(), room.lingering), (0, 0));
    }
}
