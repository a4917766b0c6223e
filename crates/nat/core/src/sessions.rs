//! The lines of all sessions, and which of them are free.

use crate::cpu;
use crate::memory::{Memory, Pages};
use crate::session::{NONE, Session, State};

/// A fixed number of lines.
#[derive(Debug)]
pub struct Sessions {
    lines: Pages<Session>,
    /// The first of those that were used before.
    free: u32,
    /// The first of those that never were.
    fresh: u32,
    /// Those that are not free.
    taken: u32,
}

impl Sessions {
    /// Room for `capacity` sessions.
    pub fn new(capacity: usize) -> std::io::Result<Self> {
        Ok(Self { lines: Pages::new(capacity)?, free: NONE, fresh: 0, taken: 0 })
    }

    /// Bytes it takes when all is touched.
    pub fn size(&self) -> usize {
        self.lines.size()
    }

    /// Its memory.
    pub fn memory(&self) -> &dyn Memory {
        &self.lines
    }

    /// The lines.
    #[inline]
    pub fn get(&self) -> &[Session] {
        self.lines.get()
    }

    /// The lines, to be changed.
    #[inline]
    pub fn get_mut(&mut self) -> &mut [Session] {
        self.lines.get_mut()
    }

    /// One line.
    #[inline]
    pub fn at(&self, index: u32) -> Option<&Session> {
        self.lines.get().get(index as usize)
    }

    /// One line, to be changed.
    #[inline]
    pub fn at_mut(&mut self, index: u32) -> Option<&mut Session> {
        self.lines.get_mut().get_mut(index as usize)
    }

    /// How many lines were ever used.
    pub fn used(&self) -> u32 {
        self.fresh
    }

    /// Whether a line is free.
    pub fn has_room(&self) -> bool {
        self.free != NONE || (self.fresh as usize) < self.lines.get().len()
    }

    /// Whether less than a sixteenth of the lines is free.
    pub fn is_short(&self) -> bool {
        let all = self.lines.get().len();
        self.taken as usize > all - all / 16
    }

    /// Take a line for a session. `None`: all are taken.
    pub fn take(&mut self, session: Session) -> Option<u32> {
        let index = if self.free != NONE { self.free } else { self.fresh };
        let line = self.lines.get_mut().get_mut(index as usize)?;
        if self.free != NONE {
            self.free = line.next;
        } else {
            self.fresh += 1;
        }
        *line = session;
        self.taken += 1;
        // The one for the next session.
        if let Some(line) = self.at(self.free) {
            cpu::prefetch(line);
        }
        Some(index)
    }

    /// Give a line back.
    pub fn release(&mut self, index: u32) {
        let free = self.free;
        let Some(line) = self.at_mut(index).filter(|line| line.state != State::Free as u8) else { return };
        *line = Session { next: free, ..Session::free() };
        self.free = index;
        self.taken = self.taken.saturating_sub(1);
    }

    /// Sessions that are not over, with their numbers.
    pub fn alive(&self) -> impl Iterator<Item = (u32, &Session)> {
        self.alive_from(0, self.fresh).0
    }

    /// Of `lines` lines from number `from` on, the sessions that are not over; and the line to go on from, if there are more.
    pub fn alive_from(&self, from: u32, lines: u32) -> (impl Iterator<Item = (u32, &Session)>, Option<u32>) {
        let end = from.saturating_add(lines).min(self.fresh);
        let page = self.lines.get().get(from as usize..end as usize).unwrap_or(&[]);
        let alive = page.iter().zip(from..).filter(|(session, _)| session.is_alive());
        (alive.map(|(session, number)| (number, session)), (end < self.fresh).then_some(end))
    }
}
