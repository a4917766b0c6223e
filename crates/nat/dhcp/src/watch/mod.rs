//! A lease file as it changes, whatever is done to it.
//!
//! inotify only says when to look; what is done follows from what the files are by then. So an event that was missed, or
//! that comes twice, changes nothing, and who calls [`Watcher::poll`] now and then loses nothing where inotify sees nothing
//! (a network's file system, a symbolic link to elsewhere).

mod inotify;
mod tail;

use crate::lease::{Faults, Format, LeaseEvent, Table};
use inotify::Inotify;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::{Path, PathBuf};
use tail::Tail;

/// Bytes that one call reads.
const AT_ONCE: usize = 1 << 20;

/// Watches a lease file, which need not be there yet. Readable (see [`AsFd`]) when there may be something to read.
#[derive(Debug)]
pub struct Watcher {
    inotify: Inotify,
    tail: Tail,
    table: Table,
    /// When it was looked at last.
    looked: u64,
}

impl Watcher {
    /// Of the file at `path`, which holds at most so many leases.
    pub fn new(path: &Path, format: Format, most: usize) -> io::Result<Self> {
        let path = std::path::absolute(path)?;
        let folder = path.parent().map_or_else(|| PathBuf::from("/"), Path::to_path_buf);
        Ok(Self {
            inotify: Inotify::new(folder)?,
            tail: Tail::new(path, format, most),
            table: Table::new(most),
            looked: 0,
        })
    }

    /// Read what is new, and end the leases whose time has passed by `now`, in seconds since 1970. True: there is more to
    /// read, and this is to be called again without waiting. After an error it may be called again: what could be read is told, and
    /// leases have ended all the same.
    pub fn poll(&mut self, now: u64, mut event: impl FnMut(LeaseEvent)) -> io::Result<bool> {
        // In this order: what changes after we looked makes us look again.
        let watched = self.inotify.rearm();
        if now < self.looked {
            // The clock was set back: what was over by the wrong one may not be.
            self.tail.restart();
        }
        self.looked = now;
        let Self { tail, table, .. } = self;
        let read = tail.advance(AT_ONCE, &mut |record| table.apply(record, now, &mut event));
        if !matches!(read, Ok(true)) {
            // Not before all is read, which may say that a lease was renewed. A file that cannot be read says nothing: nobody
            // keeps an address for ever by that.
            table.expire(now, event);
        }
        // What can be read is read, though nobody says when to look again.
        match (read?, watched) {
            (false, Err(why)) => {
                Err(io::Error::new(why.kind(), format!("its folder cannot be watched: {why}")))
            }
            (more, _) => Ok(more),
        }
    }

    /// What is leased.
    pub fn table(&self) -> &Table {
        &self.table
    }

    /// What of the file could not be read, since the beginning; what is read twice is counted twice. Lines are those
    /// of the file in which they stood.
    pub fn faults(&self) -> &Faults {
        self.tail.faults()
    }

    /// Records for which there was no room.
    pub fn refused(&self) -> u64 {
        self.table.refused() + self.tail.refused()
    }
}

impl AsFd for Watcher {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.inotify.as_fd()
    }
}

#[cfg(test)]
mod tests;
