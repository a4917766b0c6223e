//! The sockets of DPDK's driver of AF_XDP. The kernel counts for each what it dropped as its ring was full, and the driver (22.11)
//! asks for part of that only.

use nix::libc::{
    AF_XDP, F_DUPFD_CLOEXEC, SO_DOMAIN, SOL_SOCKET, SOL_XDP, XDP_STATISTICS, c_int, fcntl, getsockopt,
    socklen_t, xdp_statistics,
};
use std::fs::{read_dir, read_link};
use std::mem::{size_of, zeroed};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};

/// Copies of the sockets of one port; none of a port with another driver.
#[derive(Debug, Default)]
pub(crate) struct XdpSockets(Vec<OwnedFd>);

impl XdpSockets {
    /// Those that `open` opens. No other port may be opened at the same time.
    pub(crate) fn opened_by<T>(open: impl FnOnce() -> T) -> (T, Self) {
        let before: Vec<_> = all().collect();
        let opened = open();
        let new = all().filter(|one| !before.contains(one));
        (opened, Self(new.filter_map(|(descriptor, _)| copied(descriptor)).collect()))
    }

    /// Frames dropped: there was no room in a ring, or no memory to receive into. `None`: there are no such sockets.
    pub(crate) fn dropped(&self) -> Option<u64> {
        let one = |socket: &OwnedFd| {
            let counts: xdp_statistics = option(socket.as_raw_fd(), SOL_XDP, XDP_STATISTICS)?;
            Some(counts.rx_dropped + counts.rx_ring_full)
        };
        self.0.iter().map(one).reduce(|all, one| Some(all? + one?)).flatten()
    }
}

/// The AF_XDP sockets of this process, with the kernel's number of each.
fn all() -> impl Iterator<Item = (RawFd, String)> {
    read_dir("/proc/self/fd").into_iter().flatten().flatten().filter_map(|entry| {
        let socket = read_link(entry.path()).ok()?.into_os_string().into_string().ok()?;
        let descriptor = entry.file_name().to_str()?.parse().ok()?;
        let is_xdp = || option::<c_int>(descriptor, SOL_SOCKET, SO_DOMAIN) == Some(AF_XDP);
        (socket.starts_with("socket:") && is_xdp()).then_some((descriptor, socket))
    })
}

fn copied(descriptor: RawFd) -> Option<OwnedFd> {
    // SAFETY: no memory is passed; a descriptor that is gone is refused.
    let copy = unsafe { fcntl(descriptor, F_DUPFD_CLOEXEC, 0) };
    // SAFETY: it was made above, and is owned by nobody else.
    (copy >= 0).then(|| unsafe { OwnedFd::from_raw_fd(copy) })
}

/// What the kernel says of a socket; `T` is the plain C value that the option gives.
fn option<T>(socket: RawFd, level: c_int, name: c_int) -> Option<T> {
    // SAFETY: for the types that options give, all zeroes are a value.
    let mut value: T = unsafe { zeroed() };
    let mut size = size_of::<T>() as socklen_t;
    // SAFETY: at most `size` bytes of the value are written.
    let code = unsafe { getsockopt(socket, level, name, (&raw mut value).cast(), &raw mut size) };
    (code == 0).then_some(value)
}
