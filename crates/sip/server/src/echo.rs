//! Echo of audio: each RTP packet of a call goes back to where it came from, as it came.
//!
//! Packets keep their SSRC, sequence number and time stamp, so that the sender finds its own again: what it misses was lost on one
//! of both ways, and how long one took is the round trip. All calls share one port. Only parties of calls that are up get
//! something back, so that nobody can make two echoes send to each other for ever.

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::collections::{HashMap, HashSet};
use std::io;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Most calls at a time that audio is returned for.
const CALLS: usize = 100_000;
/// Largest datagram.
const DATAGRAM: usize = 65_535;
/// Bytes of the sockets' buffers.
const BUFFER: usize = 8 << 20;
/// Ports that are tried where any will do.
const PORTS: u32 = 50;
/// Longest wait for a packet, so that the end is noticed.
const TURN: Timespec = Timespec { tv_sec: 0, tv_nsec: 100_000_000 };

/// Whose packets are returned, and what was counted: the server and the sockets share it.
#[derive(Debug, Default)]
pub struct EchoCalls {
    calls: Mutex<Calls>,
    /// RTP packets received, those of them that went back, and those of nobody in a call.
    pub received: AtomicU64,
    /// See `received`.
    pub returned: AtomicU64,
    /// See `received`.
    pub unrelated: AtomicU64,
    /// RTCP packets received, which get no answer.
    pub rtcp: AtomicU64,
}

#[derive(Debug, Default)]
struct Calls {
    by_id: HashMap<String, Party>,
    /// How many calls each address is in.
    addresses: HashMap<IpAddr, u32>,
    /// Who wants nothing back at the moment, as a call on hold.
    silent: HashSet<SocketAddr>,
}

#[derive(Debug)]
struct Party {
    addresses: Vec<IpAddr>,
    media: Option<SocketAddr>,
}

impl EchoCalls {
    fn calls(&self) -> MutexGuard<'_, Calls> {
        self.calls.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A call is answered, or changed by a further INVITE. Its audio comes from where it was signalled, or from the address in
    /// its session description; `returns`: whether the other side wants audio.
    pub fn begin(&self, call: &str, signalled: IpAddr, media: Option<SocketAddr>, returns: bool) {
        self.end(call);
        let mut calls = self.calls();
        if calls.by_id.len() >= CALLS {
            return;
        }
        let mut addresses = vec![signalled];
        addresses.extend(media.map(|at| at.ip()).filter(|ip| *ip != signalled));
        for ip in &addresses {
            *calls.addresses.entry(*ip).or_default() += 1;
        }
        if let Some(at) = media.filter(|_| !returns) {
            calls.silent.insert(at);
        }
        calls.by_id.insert(call.to_owned(), Party { addresses, media });
    }

    /// A call is over.
    pub fn end(&self, call: &str) {
        let mut calls = self.calls();
        let Some(party) = calls.by_id.remove(call) else { return };
        for ip in party.addresses {
            if let Some(count) = calls.addresses.get_mut(&ip) {
                *count -= 1;
                if *count == 0 {
                    calls.addresses.remove(&ip);
                }
            }
        }
        if let Some(at) = party.media {
            calls.silent.remove(&at);
        }
    }

    /// Whether a packet from there goes back.
    fn takes(&self, from: SocketAddr, packet: &[u8]) -> bool {
        let count = |counter: &AtomicU64| counter.fetch_add(1, Ordering::Relaxed);
        // RFC 3550 section 5.1, RFC 5761 section 4
        let is_media = packet.len() >= 12 && packet[0] >> 6 == 2;
        if is_media && (192..=223).contains(&packet[1]) {
            count(&self.rtcp);
            return false;
        }
        let calls = self.calls();
        if !is_media || !calls.addresses.contains_key(&from.ip()) {
            count(&self.unrelated);
            return false;
        }
        count(&self.received);
        !calls.silent.contains(&from)
    }
}

/// The sockets: RTP at an even port, RTCP at the next.
#[derive(Debug)]
pub struct Echo {
    rtp: UdpSocket,
    rtcp: UdpSocket,
}

impl Echo {
    /// Listens at this port and the next; 0 picks an even one.
    pub fn bind(at: SocketAddr) -> io::Result<Self> {
        let mut tries = if at.port() == 0 { PORTS } else { 1 };
        loop {
            tries -= 1;
            match Self::pair(at) {
                Err(_) if tries > 0 => {}
                result => return result,
            }
        }
    }

    fn pair(at: SocketAddr) -> io::Result<Self> {
        let rtp = UdpSocket::bind(at)?;
        let local = rtp.local_addr()?;
        if at.port() == 0 && local.port() % 2 == 1 {
            return Err(io::ErrorKind::AddrInUse.into());
        }
        let next = local.port().checked_add(1).ok_or(io::ErrorKind::AddrNotAvailable)?;
        let rtcp = UdpSocket::bind(SocketAddr::new(local.ip(), next))?;
        for socket in [&rtp, &rtcp] {
            socket.set_nonblocking(true)?;
            // as much as the system gives
            let _less = rustix::net::sockopt::set_socket_recv_buffer_size(socket, BUFFER);
            let _less = rustix::net::sockopt::set_socket_send_buffer_size(socket, BUFFER);
        }
        Ok(Self { rtp, rtcp })
    }

    /// Port of RTP.
    pub fn port(&self) -> io::Result<u16> {
        Ok(self.rtp.local_addr()?.port())
    }

    /// Returns packets until `stop`.
    pub fn run(&self, calls: &EchoCalls, stop: &AtomicBool) -> io::Result<()> {
        let mut buffer = vec![0; DATAGRAM];
        while !stop.load(Ordering::Relaxed) {
            let mut events = [PollFd::new(&self.rtp, PollFlags::IN), PollFd::new(&self.rtcp, PollFlags::IN)];
            match poll(&mut events, Some(&TURN)) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
            // an error is that of an earlier packet, whose receiver is gone
            while let Some((length, from)) = received(&self.rtp, &mut buffer) {
                let packet = &buffer[..length];
                if calls.takes(from, packet) && self.rtp.send_to(packet, from).is_ok() {
                    calls.returned.fetch_add(1, Ordering::Relaxed);
                }
            }
            while received(&self.rtcp, &mut buffer).is_some() {
                calls.rtcp.fetch_add(1, Ordering::Relaxed);
            }
        }
        Ok(())
    }
}

/// What came; none: no more. Refusals of what was sent before are passed over.
fn received(socket: &UdpSocket, buffer: &mut [u8]) -> Option<(usize, SocketAddr)> {
    loop {
        match socket.recv_from(buffer) {
            Ok(found) => return Some(found),
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {}
            Err(_) => return None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_parties_of_calls_get_their_packets_back() {
        let calls = EchoCalls::default();
        let party: SocketAddr = "192.0.2.9:4000".parse().expect("address");
        let nat: SocketAddr = "198.51.100.1:9".parse().expect("address");
        let rtp = [0x80; 12];
        assert!(!calls.takes(party, &rtp), "no call is up");
        calls.begin("a", nat.ip(), Some(party), true);
        calls.begin("b", nat.ip(), None, true);
        assert!(calls.takes(party, &rtp) && calls.takes(nat, &rtp));
        assert!(!calls.takes(party, &[0x80; 11]) && !calls.takes(party, &[0; 12]), "no RTP");
        assert!(!calls.takes(party, &[0x80, 200, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0]), "RTCP");
        calls.begin("a", nat.ip(), Some(party), false);
        assert!(!calls.takes(party, &rtp), "on hold");
        calls.end("a");
        assert!(!calls.takes(party, &rtp) && calls.takes(nat, &rtp), "the other call is up");
        calls.end("b");
        calls.end("b");
        assert!(!calls.takes(nat, &rtp));
        let counted = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        assert_eq!((counted(&calls.received), counted(&calls.unrelated), counted(&calls.rtcp)), (4, 5, 1));
        assert!(calls.calls().addresses.is_empty() && calls.calls().silent.is_empty());
    }

    #[test]
    fn ports_are_even() -> io::Result<()> {
        for _ in 0..10 {
            assert_eq!(Echo::bind("127.0.0.1:0".parse().expect("address"))?.port()? % 2, 0);
        }
        Ok(())
    }
}
