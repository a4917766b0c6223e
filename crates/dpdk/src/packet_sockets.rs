//! The sockets of DPDK's driver of AF_PACKET. The kernel counts for each what it dropped as its ring was full, and the
//! driver (22.11) does not ask.

use nix::libc::{
    AF_PACKET, F_DUPFD_CLOEXEC, PACKET_STATISTICS, PACKET_VERSION, SOL_PACKET, c_int, fcntl, getsockname,
    getsockopt, sockaddr_ll, socklen_t, tpacket_stats,
};
use std::fs::{read_dir, read_link};
use std::mem::{size_of, zeroed};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicU64, Ordering};

/// The version of rings that the driver asks for; captures of ours have another.
const TPACKET_V2: c_int = 1;

/// Copies of the sockets of one port; none of a port with another driver.
#[derive(Debug)]
pub(crate) struct PacketSockets {
    sockets: Vec<OwnedFd>,
    /// What was dropped until they were asked last: the kernel begins anew with each answer.
    dropped: AtomicU64,
}

impl PacketSockets {
    /// Those that `open` opens. No other port may be opened at the same time.
    pub(crate) fn opened_by<T>(open: impl FnOnce() -> T) -> (T, Self) {
        let before: Vec<_> = all().collect();
        let opened = open();
        let new = all().filter(|one| !before.contains(one)).filter_map(|(descriptor, _)| copied(descriptor));
        let sockets = new.filter(|one| option(one.as_raw_fd(), PACKET_VERSION) == Some(TPACKET_V2)).collect();
        (opened, Self { sockets, dropped: AtomicU64::new(0) })
    }

    /// Frames dropped as a ring was full.
    pub(crate) fn dropped(&self) -> u64 {
        let asked = |socket: &OwnedFd| option::<tpacket_stats>(socket.as_raw_fd(), PACKET_STATISTICS);
        let more: u64 = self.sockets.iter().filter_map(asked).map(|stats| u64::from(stats.tp_drops)).sum();
        self.dropped.fetch_add(more, Ordering::Relaxed) + more
    }

    /// Count from here on.
    pub(crate) fn begin(&self) {
        self.dropped();
        self.dropped.store(0, Ordering::Relaxed);
    }

    /// Give them up: they end with those of the driver.
    pub(crate) fn close(&mut self) {
        self.sockets.clear();
    }
}

/// The AF_PACKET sockets of this process, with the kernel's number of each.
fn all() -> impl Iterator<Item = (RawFd, String)> {
    read_dir("/proc/self/fd").into_iter().flatten().flatten().filter_map(|entry| {
        let socket = read_link(entry.path()).ok()?.into_os_string().into_string().ok()?;
        let descriptor = entry.file_name().to_str()?.parse().ok()?;
        (socket.starts_with("socket:") && is_packet(descriptor)).then_some((descriptor, socket))
    })
}

fn is_packet(descriptor: RawFd) -> bool {
    // SAFETY: a plain C structure, for which all zeroes are a value.
    let mut address: sockaddr_ll = unsafe { zeroed() };
    let mut size = size_of::<sockaddr_ll>() as socklen_t;
    // SAFETY: at most `size` bytes of the address are written; a descriptor that is gone is refused.
    let code = unsafe { getsockname(descriptor, (&raw mut address).cast(), &raw mut size) };
    code == 0 && c_int::from(address.sll_family) == AF_PACKET
}

fn copied(descriptor: RawFd) -> Option<OwnedFd> {
    // SAFETY: no memory is passed; a descriptor that is gone is refused.
    let copy = unsafe { fcntl(descriptor, F_DUPFD_CLOEXEC, 0) };
    // SAFETY: it was made above, and is owned by nobody else.
    (copy >= 0).then(|| unsafe { OwnedFd::from_raw_fd(copy) })
}

/// What the kernel says of a socket; `T` is the plain C structure that the option gives.
fn option<T>(socket: RawFd, name: c_int) -> Option<T> {
    // SAFETY: for the types that options give, all zeroes are a value.
    let mut value: T = unsafe { zeroed() };
    let mut size = size_of::<T>() as socklen_t;
    // SAFETY: at most `size` bytes of the value are written.
    let code = unsafe { getsockopt(socket, SOL_PACKET, name, (&raw mut value).cast(), &raw mut size) };
    (code == 0).then_some(value)
}
