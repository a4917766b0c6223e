//! ICMP echo over ping sockets, and over raw ones where there are no others.

use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, ipproto, socket_with};
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU16, Ordering};

/// The type of an echo request (RFC 792, RFC 4443 section 4.1).
pub(super) fn echo_request(v6: bool) -> u8 {
    if v6 { 128 } else { 8 }
}

/// Give an echo request its type, our identifier and a right checksum (the kernel does ICMPv6's itself).
pub(super) fn stamp_ident(message: &mut [u8], ident: u16, v6: bool) {
    if message.len() < 8 {
        return;
    }
    message[0] = echo_request(v6);
    message[4..6].copy_from_slice(&ident.to_be_bytes());
    if !v6 {
        message[2..4].fill(0);
        let mut sum: u32 = 0;
        for pair in message.chunks(2) {
            sum += u32::from(u16::from_be_bytes([pair[0], pair.get(1).copied().unwrap_or(0)]));
        }
        while sum > 0xffff {
            sum = (sum & 0xffff) + (sum >> 16);
        }
        message[2..4].copy_from_slice(&(!(sum as u16)).to_be_bytes());
    }
}

/// An identifier that no other raw socket of this process has, nor, most likely, one of another process: each
/// sees the replies to all.
pub(super) fn own_ident() -> u16 {
    static GIVEN: AtomicU16 = AtomicU16::new(0);
    (std::process::id() as u16).wrapping_mul(40_501).wrapping_add(GIVEN.fetch_add(1, Ordering::Relaxed))
}

/// Where the ICMP message begins, if it is an echo reply with our identifier. IPv4 raw sockets show the
/// IP header too.
pub(super) fn own_echo(packet: &[u8], ident: u16, v6: bool) -> Option<usize> {
    let at = if v6 { 0 } else { usize::from(packet.first()? & 0x0f) * 4 };
    let icmp = packet.get(at..)?;
    let reply = if v6 { 129 } else { 0 };
    (icmp.len() >= 8 && icmp[0] == reply && icmp[4..6] == ident.to_be_bytes()).then_some(at)
}

/// A ping socket where this user may have one, else a raw one (true).
pub(super) fn icmp_socket(v6: bool) -> Result<(OwnedFd, bool), Errno> {
    let (family, proto) =
        if v6 { (AddressFamily::INET6, ipproto::ICMPV6) } else { (AddressFamily::INET, ipproto::ICMP) };
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    match socket_with(family, SocketType::DGRAM, flags, Some(proto)) {
        Ok(fd) => Ok((fd, false)),
        Err(Errno::ACCESS) => {
            let raw = socket_with(family, SocketType::RAW, flags, Some(proto));
            raw.map(|fd| (fd, true)).map_err(|_| Errno::ACCESS)
        }
        Err(e) => Err(e),
    }
}

/// Whether this user may send ICMP echoes.
pub(super) fn can_ping(v6: bool) -> Result<(), Errno> {
    icmp_socket(v6).map(drop)
}
