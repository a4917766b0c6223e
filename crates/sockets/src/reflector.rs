//! Something to point load at: answers with what it gets, or swallows it, and counts (the DUT test mode).

use crate::receive_queue::{self, Overflows};
use run::SetupError;
use rustix::event::{Timespec, epoll};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, recv, recvfrom, send, sendto};
use serde::Serialize;
use std::collections::HashMap;
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};

/// What becomes of what arrives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// It goes back to where it came from.
    Echo,
    /// It is counted and dropped.
    Sink,
}

/// What passed through.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Counters {
    /// Datagrams received.
    pub datagrams_received: u64,
    /// Datagrams sent back.
    pub datagrams_sent: u64,
    /// Datagrams that could not be sent back: no room.
    pub datagrams_dropped: u64,
    /// Datagrams that came and found its own receive queue full: neither received nor sent back.
    pub datagrams_overflowed: u64,
    /// Bytes received.
    pub bytes_received: u64,
    /// Bytes sent back.
    pub bytes_sent: u64,
    /// TCP connections accepted.
    pub connections: u64,
}

/// Datagrams and reads taken from one socket before the next has its turn.
const TURN: usize = 256;
const LISTENER: u64 = 0;
const DATAGRAMS: u64 = 1;

struct Peer {
    stream: TcpStream,
    /// Echo that the peer has not taken yet: nothing more is read until it has.
    owed: Vec<u8>,
}

/// A reflector on one thread.
pub struct Reflector {
    mode: Mode,
    epoll: OwnedFd,
    udp: Option<UdpSocket>,
    tcp: Option<TcpListener>,
    peers: HashMap<u64, Peer>,
    next: u64,
    counters: Counters,
    /// What the UDP socket had dropped when that was last looked at.
    dropped: u32,
    overflows: Overflows,
    buffer: Box<[u8]>,
}

impl Reflector {
    /// Listen on these addresses.
    pub fn new(mode: Mode, udp: Option<SocketAddr>, tcp: Option<SocketAddr>) -> Result<Self, SetupError> {
        let busy = |address: SocketAddr, e: std::io::Error| {
            let what = format!("{address} cannot be listened on ({e})");
            SetupError::new("ND-92-10", "reflect", what, "Choose a free port, or end what uses it (ss -lnp)")
        };
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)
            .map_err(|e| SetupError::new("ND-92-05", "epoll", std::io::Error::from(e).to_string(), ""))?;
        let watch = |fd: &dyn std::os::fd::AsFd, data: u64| {
            epoll::add(&epoll, fd.as_fd(), epoll::EventData::new_u64(data), epoll::EventFlags::IN)
        };
        let mut this_udp = None;
        let mut this_tcp = None;
        if let Some(address) = udp {
            let socket = UdpSocket::bind(address).map_err(|e| busy(address, e))?;
            socket.set_nonblocking(true).map_err(|e| busy(address, e))?;
            // a burst of a whole second's small datagrams fits; the kernel may give less
            receive_queue::enlarge(&socket, run::receive_room::MOST);
            watch(&socket, DATAGRAMS).map_err(|e| busy(address, e.into()))?;
            this_udp = Some(socket);
        }
        if let Some(address) = tcp {
            let listener = TcpListener::bind(address).map_err(|e| busy(address, e))?;
            listener.set_nonblocking(true).map_err(|e| busy(address, e))?;
            watch(&listener, LISTENER).map_err(|e| busy(address, e.into()))?;
            this_tcp = Some(listener);
        }
        Ok(Self {
            mode,
            epoll,
            udp: this_udp,
            tcp: this_tcp,
            peers: HashMap::new(),
            next: 2,
            counters: Counters::default(),
            dropped: 0,
            overflows: Overflows::new(),
            buffer: vec![0; 128 * 1024].into(),
        })
    }

    /// Where UDP is answered.
    pub fn udp_address(&self) -> Option<SocketAddr> {
        self.udp.as_ref()?.local_addr().ok()
    }

    /// Where TCP is answered.
    pub fn tcp_address(&self) -> Option<SocketAddr> {
        self.tcp.as_ref()?.local_addr().ok()
    }

    /// What has passed so far.
    pub fn counters(&self) -> Counters {
        self.counters
    }

    /// Answer until `stop`; `each` is called about ten times a second with the counters.
    pub fn run(&mut self, stop: &AtomicBool, mut each: impl FnMut(&Counters)) {
        let nap = Timespec { tv_sec: 0, tv_nsec: 100_000_000 };
        let mut events = Vec::with_capacity(256);
        let mut told = std::time::Instant::now();
        while !stop.load(Ordering::Relaxed) {
            events.clear();
            if epoll::wait(&self.epoll, rustix::buffer::spare_capacity(&mut events), Some(&nap)).is_err() {
                continue; // interrupted by a signal
            }
            for event in &events {
                match event.data.u64() {
                    LISTENER => self.accept(),
                    DATAGRAMS => self.datagrams(),
                    peer => self.peer(peer, event.flags),
                }
            }
            if told.elapsed().as_millis() >= 100 {
                told = std::time::Instant::now();
                self.count_overflows();
                each(&self.counters);
            }
        }
        self.count_overflows();
        each(&self.counters);
    }

    /// Count what the receive queue had no room for.
    fn count_overflows(&mut self) {
        let Some(udp) = &self.udp else { return };
        let now = receive_queue::dropped(udp);
        let more = now.wrapping_sub(std::mem::replace(&mut self.dropped, now));
        self.counters.datagrams_overflowed += self.overflows.of(more.into());
    }

    fn datagrams(&mut self) {
        let Some(udp) = &self.udp else { return };
        for _ in 0..TURN {
            match recvfrom(udp, &mut *self.buffer, RecvFlags::empty()) {
                Ok((n, _, from)) => {
                    self.counters.datagrams_received += 1;
                    self.counters.bytes_received += n as u64;
                    let (Mode::Echo, Some(from)) = (self.mode, from) else { continue };
                    match sendto(udp, &self.buffer[..n], SendFlags::NOSIGNAL, &from) {
                        Ok(n) => {
                            self.counters.datagrams_sent += 1;
                            self.counters.bytes_sent += n as u64;
                        }
                        Err(_) => self.counters.datagrams_dropped += 1,
                    }
                }
                Err(Errno::AGAIN) => break,
                // an ICMP error about an earlier answer: the next datagram is not to blame
                Err(_) => {}
            }
        }
    }

    fn accept(&mut self) {
        let Some(tcp) = &self.tcp else { return };
        for _ in 0..TURN {
            let Ok((stream, _)) = tcp.accept() else { break };
            let set_up = stream.set_nonblocking(true).and_then(|()| stream.set_nodelay(true));
            let data = epoll::EventData::new_u64(self.next);
            if set_up.is_err() || epoll::add(&self.epoll, &stream, data, epoll::EventFlags::IN).is_err() {
                continue; // dropping it closes it: the peer sees that
            }
            self.peers.insert(self.next, Peer { stream, owed: Vec::new() });
            self.next += 1;
            self.counters.connections += 1;
        }
    }

    fn peer(&mut self, id: u64, flags: epoll::EventFlags) {
        let Some(peer) = self.peers.get_mut(&id) else { return };
        let mut open = true;
        if flags.contains(epoll::EventFlags::OUT) {
            let owed = std::mem::take(&mut peer.owed);
            open = answer(peer, &owed, &mut self.counters);
        }
        while open && peer.owed.is_empty() {
            match recv(&peer.stream, &mut *self.buffer, RecvFlags::empty()) {
                Ok((0, _)) => open = false,
                Ok((n, _)) => {
                    self.counters.bytes_received += n as u64;
                    if self.mode == Mode::Echo {
                        open = answer(peer, &self.buffer[..n], &mut self.counters);
                    }
                    if n < self.buffer.len() {
                        break;
                    }
                }
                Err(Errno::AGAIN) => break,
                Err(Errno::INTR) => {}
                Err(_) => open = false,
            }
        }
        let interest = if peer.owed.is_empty() { epoll::EventFlags::IN } else { epoll::EventFlags::OUT };
        let data = epoll::EventData::new_u64(id);
        if !open || epoll::modify(&self.epoll, &peer.stream, data, interest).is_err() {
            self.peers.remove(&id);
        }
    }
}

/// Send back; keep what the peer does not take. Whether the connection is still good.
fn answer(peer: &mut Peer, bytes: &[u8], counters: &mut Counters) -> bool {
    let mut at = 0;
    while at < bytes.len() {
        match send(&peer.stream, &bytes[at..], SendFlags::NOSIGNAL) {
            Ok(n) => at += n,
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN) => break,
            Err(_) => return false,
        }
    }
    counters.bytes_sent += at as u64;
    peer.owed.extend_from_slice(&bytes[at..]);
    true
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::sync::Arc;
    use std::time::Duration;

    fn local(port: u16) -> Option<SocketAddr> {
        Some(SocketAddr::from(([127, 0, 0, 1], port)))
    }

    fn with(mode: Mode, f: impl FnOnce(SocketAddr, SocketAddr)) -> Counters {
        let mut reflector = Reflector::new(mode, local(0), local(0)).expect("listen");
        let (udp, tcp) = (reflector.udp_address().expect("udp"), reflector.tcp_address().expect("tcp"));
        let stop = Arc::new(AtomicBool::new(false));
        let asked = Arc::clone(&stop);
        let thread = std::thread::spawn(move || {
            reflector.run(&asked, |_| {});
            reflector.counters()
        });
        f(udp, tcp);
        stop.store(true, Ordering::Relaxed);
        thread.join().expect("reflector")
    }

    #[test]
    fn what_is_sent_comes_back() {
        let counters = with(Mode::Echo, |udp, tcp| {
            let socket = UdpSocket::bind("127.0.0.1:0").expect("bind");
            socket.set_read_timeout(Some(Duration::from_secs(5))).expect("timeout");
            socket.send_to(b"hello", udp).expect("send");
            let mut buffer = [0; 64];
            assert_eq!(socket.recv(&mut buffer).expect("answer"), 5);
            assert_eq!(&buffer[..5], b"hello");
            // more than the socket buffers hold, sent while nothing is read
            let mut stream = TcpStream::connect(tcp).expect("connect");
            let sent = vec![42u8; 20_000_000];
            let mut other = stream.try_clone().expect("clone");
            let copy = sent.clone();
            let writer = std::thread::spawn(move || other.write_all(&copy));
            let mut back = vec![0; sent.len()];
            stream.read_exact(&mut back).expect("echo");
            writer.join().expect("writer").expect("sent");
            assert!(back == sent);
        });
        assert_eq!((counters.datagrams_received, counters.datagrams_sent, counters.connections), (1, 1, 1));
        assert_eq!((counters.bytes_received, counters.bytes_sent), (20_000_005, 20_000_005));
    }

    #[test]
    fn a_sink_only_counts() {
        let counters = with(Mode::Sink, |udp, _| {
            let socket = UdpSocket::bind("127.0.0.1:0").expect("bind");
            for _ in 0..100 {
                socket.send_to(&[0; 10], udp).expect("send");
            }
            std::thread::sleep(Duration::from_millis(200));
        });
        assert_eq!(
            (counters.datagrams_received, counters.bytes_received, counters.datagrams_sent),
            (100, 1000, 0)
        );
    }

    #[test]
    fn what_its_own_queue_had_no_room_for_is_counted() {
        let mut reflector = Reflector::new(Mode::Sink, local(0), None).expect("listen");
        let udp = reflector.udp.as_ref().expect("udp");
        nix::sys::socket::setsockopt(udp, nix::sys::socket::sockopt::RcvBuf, &0).expect("less room");
        let socket = UdpSocket::bind("127.0.0.1:0").expect("bind");
        // before anybody reads
        for _ in 0..200 {
            socket.send_to(&[0; 100], reflector.udp_address().expect("udp")).expect("send");
        }
        let stop = AtomicBool::new(false);
        reflector.run(&stop, |_| stop.store(true, Ordering::Relaxed));
        let counters = reflector.counters();
        assert!(counters.datagrams_overflowed > 0, "{counters:?}");
        assert_eq!(counters.datagrams_received + counters.datagrams_overflowed, 200, "{counters:?}");
    }

    #[test]
    fn a_port_in_use_is_said() {
        let taken = UdpSocket::bind("127.0.0.1:0").expect("bind");
        let address = taken.local_addr().expect("bound");
        let error = Reflector::new(Mode::Echo, Some(address), None).err().expect("taken");
        assert_eq!(error.code, "ND-92-10");
        assert!(error.what.contains(&address.to_string()));
    }
}
