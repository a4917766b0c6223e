//! The lines of all sessions, and which of them are free.

use crate::memory::Pages;
use crate::session::{NONE, Session, State};

/// A fixed number of lines. Those never used yet take no memory.
#[derive(Debug)]
pub struct Sessions {
    lines: Pages<Session>,
    /// The first of those that were used before.
    free: u32,
    /// The first of those that never were.
    fresh: u32,
}

impl Sessions {
    /// Room for `capacity` sessions.
    pub fn new(capacity: usize) -> std::io::Result<Self> {
        Ok(Self { lines: Pages::new(capacity)?, free: NONE, fresh: 0 })
    }

    /// Bytes it takes when all is touched.
    pub fn size(&self) -> usize {
        self.lines.size()
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

    /// Whether a line is free.
    pub fn has_room(&self) -> bool {
        self.free != NONE || (self.fresh as usize) < self.lines.get().len()
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
        Some(index)
    }

    /// Give a line back.
    pub fn release(&mut self, index: u32) {
        let free = self.free;
        let Some(line) = self.at_mut(index).filter(|line| line.state != State::Free as u8) else { return };
        *line = Session { next: free, ..Session::free() };
        self.free = index;
    }

    /// Sessions that are not over, with their numbers.
    pub fn alive(&self) -> impl Iterator<Item = (u32, &Session)> {
        self.lines.get()[..self.fresh as usize]
            .iter()
            .enumerate()
            .filter(|(_, session)| session.is_alive())
            .map(|(index, session)| (index as u32, session))
    }
}
