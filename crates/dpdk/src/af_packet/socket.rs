//! One AF_PACKET socket with a ring each way.

use super::ring::{Layout, Ring};
use nix::libc::{
    AF_PACKET, ETH_P_ALL, MAP_FAILED, MAP_LOCKED, MAP_SHARED, MSG_DONTWAIT, PACKET_FANOUT,
    PACKET_FANOUT_FLAG_ROLLOVER, PACKET_FANOUT_FLAG_UNIQUEID, PACKET_FANOUT_HASH, PACKET_IGNORE_OUTGOING,
    PACKET_LOSS, PACKET_QDISC_BYPASS, PACKET_RX_RING, PACKET_STATISTICS, PACKET_TX_RING, PACKET_VERSION,
    PROT_READ, PROT_WRITE, SOCK_CLOEXEC, SOCK_RAW, SOL_PACKET, bind, c_int, getsockopt, mmap, munmap, sendto,
    setsockopt, sockaddr_ll, socket, socklen_t, tpacket_req, tpacket_stats,
};
use std::io;
use std::mem::{size_of, zeroed};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::ptr::{NonNull, null, null_mut};

/// Version 2 of the rings' headers.
const VERSION: c_int = 1;

/// A socket, with the memory of its two rings: what was received, then what is to be sent.
#[derive(Debug)]
pub(crate) struct PacketSocket {
    socket: OwnedFd,
    rings: NonNull<u8>,
    bytes: usize,
}

// SAFETY: the socket may be used by any thread; the memory is only used through the two rings, which exist once each.
unsafe impl Send for PacketSocket {}
// SAFETY: as above.
unsafe impl Sync for PacketSocket {}

impl PacketSocket {
    /// A socket that is bound to no interface, and so receives nothing.
    pub(crate) fn open(layout: &Layout, qdisc_bypass: bool) -> io::Result<Self> {
        // SAFETY: no memory is passed.
        let descriptor = checked(unsafe { socket(AF_PACKET, SOCK_RAW | SOCK_CLOEXEC, 0) })?;
        // SAFETY: it was made above, and is owned by nobody else.
        let socket = unsafe { OwnedFd::from_raw_fd(descriptor) };
        set(&socket, PACKET_VERSION, &VERSION)?;
        // A frame that the kernel refuses to send does not hold up those behind it.
        set::<c_int>(&socket, PACKET_LOSS, &1)?;
        // What the host itself sends through the interface was not received by it. Linux 4.20 knows this option.
        let _older = set::<c_int>(&socket, PACKET_IGNORE_OUTGOING, &1);
        if qdisc_bypass {
            set::<c_int>(&socket, PACKET_QDISC_BYPASS, &1)?;
        }
        let ring = tpacket_req {
            tp_block_size: layout.block_size,
            tp_block_nr: layout.blocks,
            tp_frame_size: layout.frame_size,
            tp_frame_nr: layout.frames,
        };
        set(&socket, PACKET_RX_RING, &ring)?;
        set(&socket, PACKET_TX_RING, &ring)?;
        let bytes = 2 * layout.bytes();
        let map = |flags| {
            // SAFETY: a new mapping at an address that the kernel chooses; it checks that the length is that of both rings.
            let at = unsafe {
                mmap(null_mut(), bytes, PROT_READ | PROT_WRITE, MAP_SHARED | flags, socket.as_raw_fd(), 0)
            };
            NonNull::new(at.cast::<u8>()).filter(|at| at.as_ptr().cast() != MAP_FAILED)
        };
        // Locked where the limit allows; its pages are the kernel's, and are never swapped anyway.
        let rings = map(MAP_LOCKED).or_else(|| map(0)).ok_or_else(io::Error::last_os_error)?;
        Ok(Self { socket, rings, bytes })
    }

    /// Receive what arrives at an interface, and send through it.
    pub(crate) fn bind(&self, interface: u32) -> io::Result<()> {
        self.bind_as(interface, (ETH_P_ALL as u16).to_be())
    }

    /// Send through an interface, and receive nothing.
    pub(crate) fn bind_to_send(&self, interface: u32) -> io::Result<()> {
        self.bind_as(interface, 0)
    }

    fn bind_as(&self, interface: u32, protocol: u16) -> io::Result<()> {
        // SAFETY: a plain C structure, for which all zeroes are a value.
        let mut address: sockaddr_ll = unsafe { zeroed() };
        address.sll_family = AF_PACKET as u16;
        address.sll_protocol = protocol;
        address.sll_ifindex = interface as c_int;
        let size = size_of::<sockaddr_ll>() as socklen_t;
        // SAFETY: the address is of this size, and is not kept.
        checked(unsafe { bind(self.socket.as_raw_fd(), (&raw const address).cast(), size) }).map(drop)
    }

    /// Share what arrives with the sockets of a group, by flow; without one, begin a group. Says which it is. Fragments are not
    /// reassembled for that: all of a datagram go to one socket, by their addresses.
    pub(crate) fn join(&self, group: Option<u16>) -> io::Result<u16> {
        let kind = PACKET_FANOUT_HASH | PACKET_FANOUT_FLAG_ROLLOVER;
        let wanted = match group {
            Some(group) => kind << 16 | u32::from(group),
            None => (kind | PACKET_FANOUT_FLAG_UNIQUEID) << 16,
        };
        set(&self.socket, PACKET_FANOUT, &wanted)?;
        match group {
            Some(group) => Ok(group),
            None => get::<u32>(&self.socket, PACKET_FANOUT).map(|given| given as u16),
        }
    }

    /// The ring of what was received.
    ///
    /// # Safety
    /// It is made once, and the socket outlives it.
    pub(crate) unsafe fn receiving(&self, layout: Layout) -> Ring {
        // SAFETY: the first half of the mapping, which is page-aligned and as long as two rings; the rest by the caller's word.
        unsafe { Ring::new(self.rings.as_ptr(), layout) }
    }

    /// The ring of what is to be sent.
    ///
    /// # Safety
    /// It is made once, and the socket outlives it.
    pub(crate) unsafe fn sending(&self, layout: Layout) -> Ring {
        // SAFETY: the second half of the mapping; blocks, and so halves, are whole pages; the rest by the caller's word.
        unsafe { Ring::new(self.rings.as_ptr().add(layout.bytes()), layout) }
    }

    /// Have the kernel send what was handed to it.
    pub(crate) fn kick(&self) -> io::Result<()> {
        // SAFETY: no memory is passed.
        let sent = unsafe { sendto(self.socket.as_raw_fd(), null(), 0, MSG_DONTWAIT, null(), 0) };
        if sent < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }

    /// Frames dropped since the ring was full, since this was asked last.
    pub(crate) fn drops(&self) -> u64 {
        get::<tpacket_stats>(&self.socket, PACKET_STATISTICS).map_or(0, |stats| stats.tp_drops.into())
    }
}

impl Drop for PacketSocket {
    fn drop(&mut self) {
        // SAFETY: the mapping of `open`; its rings are held by queues, which hold this.
        unsafe { munmap(self.rings.as_ptr().cast(), self.bytes) };
    }
}

fn checked(code: c_int) -> io::Result<c_int> {
    if code < 0 { Err(io::Error::last_os_error()) } else { Ok(code) }
}

/// Set an option, which takes this plain C value.
fn set<T>(socket: &OwnedFd, option: c_int, value: &T) -> io::Result<()> {
    let (at, size) = (std::ptr::from_ref(value).cast(), size_of::<T>() as socklen_t);
    // SAFETY: as many bytes of the value are read, and none kept.
    checked(unsafe { setsockopt(socket.as_raw_fd(), SOL_PACKET, option, at, size) }).map(drop)
}

/// What the kernel says of a socket; `T` is the plain C value that the option gives.
fn get<T>(socket: &OwnedFd, option: c_int) -> io::Result<T> {
    // SAFETY: for the types that options give, all zeroes are a value.
    let mut value: T = unsafe { zeroed() };
    let mut size = size_of::<T>() as socklen_t;
    let at = (&raw mut value).cast();
    // SAFETY: at most `size` bytes of the value are written.
    checked(unsafe { getsockopt(socket.as_raw_fd(), SOL_PACKET, option, at, &raw mut size) })?;
    Ok(value)
}
