//! What the threads that look after connections have in common: waiting, and the time they have.

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::eventfd::{EfdFlags, EventFd};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, Instant};

/// How long a negotiation may take.
pub(crate) const PATIENCE: Duration = Duration::from_secs(5);
/// How long to wait before what failed is tried again.
pub(crate) const PAUSE: Duration = Duration::from_millis(100);

/// An eventfd that nobody waits for as he writes.
pub(crate) fn event() -> io::Result<EventFd> {
    Ok(EventFd::from_flags(EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK)?)
}

/// One for a ring.
pub(crate) fn interrupt() -> io::Result<OwnedFd> {
    event()?.as_fd().try_clone_to_owned()
}

/// Start a thread. It has the namespaces of the one that starts it.
pub(crate) fn start(name: &str, run: impl FnOnce() + Send + 'static) -> io::Result<JoinHandle<()>> {
    Builder::new().name(name.into()).spawn(run)
}

/// Wait until `wake` was written, one of `files` has something, or it is `until`; which of `files` have.
pub(crate) fn wait(wake: &EventFd, files: &[BorrowedFd<'_>], until: Option<Instant>) -> Vec<bool> {
    let files = std::iter::once(wake.as_fd()).chain(files.iter().copied());
    let mut polled: Vec<_> = files.map(|file| PollFd::new(file, PollFlags::POLLIN)).collect();
    let timeout = until.map_or(PollTimeout::NONE, |until| {
        // Rounded up, so as not to wake before it.
        let left = until.saturating_duration_since(Instant::now()).as_millis() + 1;
        PollTimeout::try_from(left).unwrap_or(PollTimeout::MAX)
    });
    let found = poll(&mut polled, timeout).is_ok();
    let _ = wake.read();
    polled[1..].iter().map(|file| found && file.any().unwrap_or(true)).collect()
}
