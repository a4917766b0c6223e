//! Giving datagrams to a socket: many at a time, none lost silently.

use device::conn_error::ConnError;
use nix::sys::socket::{setsockopt, sockopt};
use protocol::meter::Failure;
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, recv, send, sendto};
use std::net::SocketAddr;
use std::os::fd::OwnedFd;

/// Datagrams the kernel cuts from one buffer (UDP_MAX_SEGMENTS), and the largest such buffer.
pub(super) const GSO_SEGMENTS: usize = 64;
pub(super) const GSO_BYTES: usize = 65_000;

/// The size of each of the datagrams in `len` bytes: see [`protocol::model::Outbox`].
pub(super) fn datagram(segment: usize, len: usize) -> usize {
    if segment == 0 { len.max(1) } else { segment }
}

/// How often a datagram is tried that the socket answers with an error about another one.
pub(super) const TRIES: u64 = 4;

/// Have Linux say when a queue of its own has no room for a datagram; else it drops it and says that it was sent
/// (ip(7), IP_RECVERR). Errors that come back are then queued one by one, see [`errors_told`].
pub(super) fn tell_errors(fd: &OwnedFd, v6: bool) -> Result<(), Errno> {
    let set = match v6 {
        true => setsockopt(fd, sockopt::Ipv6RecvErr, &true),
        false => setsockopt(fd, sockopt::Ipv4RecvErr, &true),
    };
    set.map_err(|e| Errno::from_raw_os_error(e as i32))
}

/// Most errors taken off a socket's queue at once.
const ERRORS: u64 = 1 << 10;

/// A socket has just told of an error: how many are queued, this one with them, now that they are taken off. Those
/// that are no ICMP error are not queued.
pub(super) fn errors_told(fd: &OwnedFd) -> u64 {
    let flags = RecvFlags::ERRQUEUE | RecvFlags::DONTWAIT;
    let queued = (0..ERRORS).take_while(|_| recv(fd, &mut [0; 1], flags).is_ok()).count();
    (queued as u64).max(1)
}

/// Give one buffer to the socket, which is connected or sends it `to` somebody. An ICMP error about an earlier datagram is told in place of sending, once each
/// (RFC 1122 section 4.1.3.3): the last of these and how many there were come back too. What is told again and
/// again, with no more on the queue, is about this buffer.
fn give(fd: &OwnedFd, to: Option<SocketAddr>, bytes: &[u8]) -> (Result<(), Errno>, Option<(Errno, u64)>) {
    let (mut earlier, mut tries) = (None, 1);
    loop {
        let sent = match to {
            Some(to) => sendto(fd, bytes, SendFlags::NOSIGNAL, &to),
            None => send(fd, bytes, SendFlags::NOSIGNAL),
        };
        match sent {
            Ok(_) => return (Ok(()), earlier),
            Err(Errno::INTR) => {}
            Err(e) if tries < TRIES && ConnError::remote(e, "").why != Failure::Local => {
                let before = earlier.map_or(0, |(_, times)| times);
                earlier = Some((e, before + errors_told(fd)));
                tries += 1;
            }
            Err(e) => return (Err(e), earlier),
        }
    }
}

/// Give datagrams to the socket, with `gso` up to 64 a system call: the kernel cuts them (UDP_SEGMENT). How many
/// bytes are done with; the rest is for when there is room again. A datagram that cannot leave holds up none.
pub(super) fn write_datagrams(
    fd: &OwnedFd,
    to: Option<SocketAddr>,
    mut gso: Option<&mut usize>,
    segment: usize,
    bytes: &[u8],
    refused: &mut Vec<ConnError>,
) -> usize {
    let segment = datagram(segment, bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        let left = bytes.len() - at;
        let size = match &mut gso {
            Some(gso) if left > segment && **gso != usize::MAX => {
                if **gso != segment {
                    let size = i32::try_from(segment).unwrap_or(i32::MAX);
                    **gso = match setsockopt(fd, sockopt::UdpGsoSegment, &size) {
                        Ok(()) => segment,
                        Err(_) => usize::MAX, // not here: one by one
                    };
                    continue;
                }
                let most = (GSO_BYTES / segment).clamp(1, GSO_SEGMENTS) * segment;
                most.min(left)
            }
            _ => segment.min(left),
        };
        // one alone that is larger than those before were: the kernel would cut it as it cut them
        if let Some(gso) =
            gso.as_deref_mut().filter(|gso| size == segment.min(left) && (1..size).contains(*gso))
        {
            let _reset = setsockopt(fd, sockopt::UdpGsoSegment, &0);
            *gso = 0;
        }
        let (result, earlier) = give(fd, to, &bytes[at..at + size]);
        if let Some((e, times)) = earlier.filter(|(e, _)| result != Err(*e)) {
            refuse(refused, ConnError::remote(e, "send").datagrams(times));
        }
        match result {
            Ok(()) => at += size,
            Err(Errno::AGAIN) => break,
            // of many at once a queue may drop some and not say so
            Err(Errno::NOBUFS) => {
                one_by_one(fd, gso);
                break;
            }
            // segments larger than the path's MTU: the kernel will not cut those
            Err(Errno::INVAL | Errno::MSGSIZE | Errno::IO) if size > segment => {
                one_by_one(fd, gso.as_deref_mut());
            }
            Err(e) => {
                refuse(refused, ConnError::errno(e, "send").datagrams(size.div_ceil(segment) as u64));
                at += size;
            }
        }
    }
    at
}

/// Have the kernel cut no more buffers of this socket.
fn one_by_one(fd: &OwnedFd, gso: Option<&mut usize>) {
    if let Some(gso) = gso.filter(|gso| **gso != usize::MAX) {
        let _reset = setsockopt(fd, sockopt::UdpGsoSegment, &0);
        *gso = usize::MAX;
    }
}

/// Note datagrams that did not get through.
fn refuse(refused: &mut Vec<ConnError>, broken: ConnError) {
    match refused.last_mut().filter(|last| last.is_like(&broken)) {
        Some(last) => last.times += broken.times,
        None => refused.push(broken),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::UdpSocket;
    use std::time::Duration;

    #[test]
    fn a_larger_datagram_behind_several_alike_stays_whole() {
        let server = UdpSocket::bind("127.0.0.1:0").expect("a socket");
        server.set_read_timeout(Some(Duration::from_secs(5))).expect("a timeout");
        let client = UdpSocket::bind("127.0.0.1:0").expect("a socket");
        client.connect(server.local_addr().expect("an address")).expect("connected");
        let (fd, mut gso, mut refused) = (OwnedFd::from(client), 0, Vec::new());
        for (segment, bytes) in [(100, vec![1; 200]), (0, vec![2; 150]), (50, vec![3; 100]), (0, vec![4; 40])]
        {
            assert_eq!(
                write_datagrams(&fd, None, Some(&mut gso), segment, &bytes, &mut refused),
                bytes.len()
            );
        }
        assert!(refused.is_empty());
        let mut buffer = [0; 2048];
        let sizes = [(); 6].map(|()| server.recv(&mut buffer).expect("a datagram"));
        assert_eq!(sizes, [100, 100, 150, 50, 50, 40]);
    }
}
