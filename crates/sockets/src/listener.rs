//! The kernel's UDP as the network of a server of datagrams.

use crate::receive_queue::{self, Overflows};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, bind, getsockname, recvfrom, sendto,
    socket_with, sockopt,
};
use service::listen::DatagramNetwork;
use std::io::{self, Error};
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::time::Duration;

/// Room of a receive queue, bytes: as much as this user may have.
const ROOM: usize = 16 << 20;

/// Sockets of one address, one for each worker.
#[derive(Debug)]
pub struct DatagramListener {
    sockets: Vec<OwnedFd>,
    local: SocketAddr,
}

impl DatagramListener {
    /// Open so many sockets at an address; port 0 picks one. The kernel shares out what comes by its addresses and ports.
    pub fn bind(at: SocketAddr, workers: usize) -> io::Result<Self> {
        // with several sockets on a port nobody would be told that it is in use
        let first = socket(at, false)?;
        let local = getsockname(&first)?.try_into().map_err(Error::from)?;
        if workers == 1 {
            return Ok(Self { sockets: vec![first], local });
        }
        drop(first);
        let sockets = (0..workers).map(|_| socket(local, true)).collect::<io::Result<_>>()?;
        Ok(Self { sockets, local })
    }

    /// Address and port.
    pub fn local(&self) -> SocketAddr {
        self.local
    }

    /// A network for each worker.
    pub fn networks(self) -> Vec<ServerSocket> {
        self.sockets.into_iter().map(ServerSocket::new).collect()
    }
}

fn socket(at: SocketAddr, shares: bool) -> io::Result<OwnedFd> {
    let family = if at.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let socket = socket_with(family, SocketType::DGRAM, flags, None)?;
    if shares {
        sockopt::set_socket_reuseport(&socket, true)?;
    }
    receive_queue::enlarge(&socket, ROOM);
    bind(&socket, &at)?;
    Ok(socket)
}

/// One socket.
#[derive(Debug)]
pub struct ServerSocket {
    fd: OwnedFd,
    overflows: Overflows,
    /// What the socket had dropped when that was last looked at.
    dropped: u32,
    /// Of these there was no room for.
    overflowed: u64,
}

impl ServerSocket {
    fn new(fd: OwnedFd) -> Self {
        Self { fd, overflows: Overflows::new(), dropped: 0, overflowed: 0 }
    }
}

impl DatagramNetwork for ServerSocket {
    fn wait(&mut self, longest: Duration) -> io::Result<()> {
        let wait = Timespec { tv_sec: 0, tv_nsec: i64::from(longest.subsec_nanos()) };
        match poll(&mut [PollFd::new(&self.fd, PollFlags::IN)], Some(&wait)) {
            Ok(_) | Err(Errno::INTR) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    fn receive(&mut self, buffer: &mut [u8]) -> io::Result<Option<(usize, SocketAddr)>> {
        loop {
            match recvfrom(&self.fd, &mut *buffer, RecvFlags::empty()) {
                Ok((length, _, Some(from))) => {
                    if let Ok(from) = SocketAddr::try_from(from) {
                        return Ok(Some((length, from)));
                    }
                }
                Ok((_, _, None)) | Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return Ok(None),
                // of a client that is gone: what the kernel tells of an earlier reply
                Err(Errno::CONNREFUSED | Errno::HOSTUNREACH | Errno::NETUNREACH) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    fn send(&mut self, to: SocketAddr, bytes: &[u8]) -> bool {
        loop {
            match sendto(&self.fd, bytes, SendFlags::empty(), &to) {
                Ok(_) => return true,
                Err(Errno::INTR) => {}
                Err(_) => return false,
            }
        }
    }

    fn overflowed(&mut self) -> u64 {
        let now = receive_queue::dropped(&self.fd);
        let more = now.wrapping_sub(std::mem::replace(&mut self.dropped, now));
        self.overflowed += self.overflows.of(more.into());
        self.overflowed
    }
}
