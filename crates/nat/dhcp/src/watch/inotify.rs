//! When to look (inotify(7)).

use rustix::fs::inotify::{self, CreateFlags, Reader, WatchFlags};
use rustix::io::Errno;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;

/// Events are as long as file names are.
const BUFFER: usize = 4096;

/// Watches a folder, or where it would be: the closest of those above it that is there.
#[derive(Debug)]
pub(super) struct Inotify {
    fd: OwnedFd,
    folder: PathBuf,
    watch: Option<i32>,
}

impl Inotify {
    /// Of an absolute path.
    pub(super) fn new(folder: PathBuf) -> io::Result<Self> {
        let fd = inotify::init(CreateFlags::NONBLOCK | CreateFlags::CLOEXEC)?;
        let mut inotify = Self { fd, folder, watch: None };
        inotify.rearm()?;
        Ok(inotify)
    }

    /// Forget what happened so far, and watch what is there now.
    pub(super) fn rearm(&mut self) -> io::Result<()> {
        let mut buffer = [MaybeUninit::uninit(); BUFFER];
        let mut reader = Reader::new(&self.fd, &mut buffer);
        loop {
            match reader.next() {
                Ok(_) | Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => break,
                Err(why) => return Err(why.into()),
            }
        }
        let watch = self.place()?;
        if let Some(old) = self.watch.replace(watch).filter(|old| *old != watch) {
            // Where the folder was deleted the watch went with it.
            let _gone = inotify::remove_watch(&self.fd, old);
        }
        Ok(())
    }

    /// It cannot watch any more.
    #[cfg(test)]
    pub(super) fn fail(&mut self) {
        self.fd = std::fs::File::open("/dev/null").expect("/dev/null").into();
    }

    /// Of a folder that is watched already this gives the watch there is, and of another one in its place a new one.
    fn place(&self) -> io::Result<i32> {
        let flags = WatchFlags::CREATE
            | WatchFlags::DELETE
            | WatchFlags::MOVED_TO
            | WatchFlags::MOVED_FROM
            | WatchFlags::MODIFY
            | WatchFlags::ATTRIB
            | WatchFlags::DELETE_SELF
            | WatchFlags::MOVE_SELF
            | WatchFlags::ONLYDIR;
        let mut below = None;
        let mut ancestors = self.folder.ancestors();
        while let Some(folder) = ancestors.next() {
            match inotify::add_watch(&self.fd, folder, flags) {
                Err(Errno::NOENT | Errno::NOTDIR) => below = Some(folder),
                Err(why) => return Err(why.into()),
                // Made between the two looks: from the beginning.
                Ok(_) if below.is_some_and(|below| below.is_dir()) => {
                    below = None;
                    ancestors = self.folder.ancestors();
                }
                Ok(watch) => return Ok(watch),
            }
        }
        Err(Errno::NOENT.into())
    }
}

impl AsFd for Inotify {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}
