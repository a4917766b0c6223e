//! Echo of audio: each RTP packet of a call goes back to where it came from, as it came.
//!
//! Packets keep their SSRC, sequence number and time stamp, so that the sender finds its own again: what it misses was lost on one
//! of both ways, and how long one took is the round trip. All calls share one port. Only parties of calls that are up get
//! something back. Who calls two echoes and gives each the address of the other can make them send to each other: no faster than
//! `calls::RATE`, and until one of the calls ends.

mod calls;

pub use calls::{Dialog, EchoCalls};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use sockets::receive_queue::{self, Overflows};
use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Largest datagram.
const DATAGRAM: usize = 65_535;
/// Datagrams that are read from one socket before the other, and the end, have their turn.
const BURST: usize = 256;
/// Bytes of the sockets' buffers.
const BUFFER: usize = 8 << 20;
/// Ports that are tried where any will do.
const PORTS: u32 = 50;
/// Longest wait for a packet, so that the end is noticed.
const TURN: Timespec = Timespec { tv_sec: 0, tv_nsec: 100_000_000 };
/// How often dropped packets are counted, and silent calls looked for.
const SWEEP: Duration = Duration::from_secs(1);

/// The sockets: RTP at an even port, RTCP at the next.
#[derive(Debug)]
pub struct Echo {
    rtp: UdpSocket,
    rtcp: UdpSocket,
    overflows: Overflows,
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
        let overflows = Overflows::new();
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
            receive_queue::enlarge(socket, BUFFER);
            let _less = rustix::net::sockopt::set_socket_send_buffer_size(socket, BUFFER);
        }
        Ok(Self { rtp, rtcp, overflows })
    }

    /// Port of RTP.
    pub fn port(&self) -> io::Result<u16> {
        Ok(self.rtp.local_addr()?.port())
    }

    /// Returns packets until `stop`.
    pub fn run(&mut self, calls: &EchoCalls, stop: &AtomicBool) -> io::Result<()> {
        let mut buffer = vec![0; DATAGRAM];
        let (mut swept, mut dropped) = (Instant::now(), 0);
        let mut count_drops = || {
            let before = std::mem::replace(&mut dropped, receive_queue::dropped(&self.rtp));
            let more = self.overflows.of(dropped.wrapping_sub(before).into());
            calls.dropped_here.fetch_add(more, Ordering::Relaxed);
        };
        while !stop.load(Ordering::Relaxed) {
            let mut events = [PollFd::new(&self.rtp, PollFlags::IN), PollFd::new(&self.rtcp, PollFlags::IN)];
            match poll(&mut events, Some(&TURN)) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
            let now = Instant::now();
            for _ in 0..BURST {
                let Some((length, from)) = received(&self.rtp, &mut buffer) else { break };
                let packet = &buffer[..length];
                // an error is that of an earlier packet, whose receiver is gone
                if calls.is_returned(from, packet, now) && self.rtp.send_to(packet, from).is_ok() {
                    calls.returned.fetch_add(1, Ordering::Relaxed);
                }
            }
            for _ in 0..BURST {
                if received(&self.rtcp, &mut buffer).is_none() {
                    break;
                }
                calls.rtcp.fetch_add(1, Ordering::Relaxed);
            }
            if now.duration_since(swept) >= SWEEP {
                swept = now;
                calls.end_silent(now);
                count_drops();
            }
        }
        count_drops();
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
    use std::sync::atomic::AtomicU64;

    #[test]
    fn ports_are_even() -> io::Result<()> {
        for _ in 0..10 {
            assert_eq!(Echo::bind("127.0.0.1:0".parse().expect("address"))?.port()? % 2, 0);
        }
        Ok(())
    }

    #[test]
    fn what_the_queue_had_no_room_for_is_counted() -> io::Result<()> {
        let (mut echo, calls) = (Echo::bind("127.0.0.1:0".parse().expect("address"))?, EchoCalls::default());
        rustix::net::sockopt::set_socket_recv_buffer_size(&echo.rtp, 0)?;
        let sender = UdpSocket::bind("127.0.0.1:0")?;
        for _ in 0..200 {
            sender.send_to(&[0x80; 172], echo.rtp.local_addr()?)?;
        }
        let stop = AtomicBool::new(false);
        let counted = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        std::thread::scope(|scope| {
            let running = scope.spawn(|| echo.run(&calls, &stop));
            let end = Instant::now() + Duration::from_secs(60);
            while counted(&calls.dropped_here) + counted(&calls.unrelated) < 200 && Instant::now() < end {
                std::thread::sleep(Duration::from_millis(10));
            }
            stop.store(true, Ordering::Relaxed);
            running.join().expect("no panic")
        })?;
        assert!(counted(&calls.dropped_here) > 0);
        assert_eq!(counted(&calls.dropped_here) + counted(&calls.unrelated), 200);
        Ok(())
    }

    #[test]
    fn a_flood_neither_keeps_the_end_from_being_noticed_nor_rtcp_from_being_read() -> io::Result<()> {
        let (mut echo, calls) = (Echo::bind("127.0.0.1:0".parse().expect("address"))?, EchoCalls::default());
        let (stop, flood) = (AtomicBool::new(false), AtomicBool::new(true));
        let (rtp, rtcp) = (echo.rtp.local_addr()?, echo.rtcp.local_addr()?);
        let ended = std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    let sender = UdpSocket::bind("127.0.0.1:0").expect("bind");
                    while flood.load(Ordering::Relaxed) {
                        let _any = sender.send_to(&[0x80; 12], rtp);
                    }
                });
            }
            let running = scope.spawn(|| echo.run(&calls, &stop));
            let sender = UdpSocket::bind("127.0.0.1:0").expect("bind");
            let end = Instant::now() + Duration::from_secs(60);
            while calls.rtcp.load(Ordering::Relaxed) == 0 && Instant::now() < end {
                let _any = sender.send_to(&[0x80; 12], rtcp);
                std::thread::sleep(Duration::from_millis(10));
            }
            stop.store(true, Ordering::Relaxed);
            while !running.is_finished() && Instant::now() < end {
                std::thread::sleep(Duration::from_millis(10));
            }
            let ended = running.is_finished();
            flood.store(false, Ordering::Relaxed);
            ended
        });
        assert!(ended && calls.rtcp.load(Ordering::Relaxed) > 0);
        Ok(())
    }
}
