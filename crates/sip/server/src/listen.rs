//! Sockets of the server: one UDP socket, listeners for TCP, TLS and WebSocket, and their connections, in one thread.

use crate::connection::Connection;
use crate::peer::{Given, Peer, Transport};
use crate::server::{Out, Server, without_connection};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{AddressFamily, SocketFlags, SocketType};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use rustls::ServerConfig;
use sockets::receive_queue::{self, Overflows};
use std::collections::HashMap;
use std::io::{self, ErrorKind};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Largest datagram.
const DATAGRAM: usize = 65_535;
/// Datagrams that are read before timers have their turn.
const BURST: usize = 256;
/// Most connections; beyond, those that have said nothing make room, the oldest first.
const CONNECTIONS: usize = 10_000;
/// Open files besides.
const OTHER_FILES: u64 = 64;
/// Bytes of the UDP socket's buffers.
const BUFFER: usize = 8 << 20;
/// Ports that are tried where any will do.
const PORTS: u32 = 20;
/// How often dropped datagrams are counted, and silent clients looked for.
const SWEEP: Duration = Duration::from_secs(1);
/// Longest wait for an event, so that the end is noticed.
const TURN: Duration = Duration::from_millis(100);

/// The sockets.
#[derive(Debug)]
pub struct Listener {
    udp: UdpSocket,
    streams: Vec<Streams>,
    connections: HashMap<Peer, Connection>,
    began: Instant,
    local: SocketAddr,
    overflows: Overflows,
    /// Datagrams that were dropped in the socket's queue by then.
    dropped: u32,
    swept: Instant,
    /// What the last wait found ready.
    ready: Ready,
    /// Connections that have something to send at the end of this turn.
    written: Vec<Peer>,
    /// Where datagrams are read to.
    datagram: Vec<u8>,
    most: usize,
}

/// What can be read, accepted or written without a wait.
#[derive(Debug, Default)]
struct Ready {
    datagrams: bool,
    callers: bool,
    connections: Vec<Peer>,
}

/// A listener for connections of one transport.
#[derive(Debug)]
struct Streams {
    transport: Transport,
    socket: TcpListener,
    tls: Option<Arc<ServerConfig>>,
}

impl Listener {
    /// Listens on an address, over UDP and TCP at the same port; port 0 picks one.
    pub fn bind(at: SocketAddr) -> io::Result<Self> {
        allow_files(CONNECTIONS as u64 + OTHER_FILES);
        let (udp, tcp) = Self::bind_udp_and_tcp(at)?;
        let local = udp.local_addr()?;
        udp.set_nonblocking(true)?;
        tcp.set_nonblocking(true)?;
        let streams = vec![Streams { transport: Transport::Tcp, socket: tcp, tls: None }];
        // as much as the system gives
        receive_queue::enlarge(&udp, BUFFER);
        let _less = rustix::net::sockopt::set_socket_send_buffer_size(&udp, BUFFER);
        let now = Instant::now();
        Ok(Self {
            udp,
            streams,
            connections: HashMap::new(),
            began: now,
            local,
            overflows: Overflows::new(),
            dropped: 0,
            swept: now,
            ready: Ready::default(),
            written: Vec::new(),
            datagram: vec![0; DATAGRAM],
            most: CONNECTIONS,
        })
    }

    /// Listens for connections of a further transport too; where, as port 0 picks one.
    pub fn add(
        &mut self,
        transport: Transport,
        at: SocketAddr,
        tls: Option<Arc<ServerConfig>>,
    ) -> io::Result<SocketAddr> {
        let socket = TcpListener::bind(at)?;
        socket.set_nonblocking(true)?;
        let local = socket.local_addr()?;
        self.streams.push(Streams { transport, socket, tls });
        Ok(local)
    }

    /// Sockets at the same port. A free port of UDP may be in use over TCP.
    fn bind_udp_and_tcp(at: SocketAddr) -> io::Result<(UdpSocket, TcpListener)> {
        let mut tries = if at.port() == 0 { PORTS } else { 1 };
        loop {
            let udp = UdpSocket::bind(at)?;
            tries -= 1;
            match TcpListener::bind(udp.local_addr()?) {
                Ok(tcp) => return Ok((udp, tcp)),
                Err(error) if tries == 0 => return Err(error),
                Err(_) => {}
            }
        }
    }

    /// Address and port.
    pub fn local(&self) -> SocketAddr {
        self.local
    }

    fn now(&self) -> u64 {
        u64::try_from(self.began.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }

    /// Serves until `stop`. `turn` is called now and then.
    pub fn run(
        &mut self,
        server: &mut Server,
        stop: &AtomicBool,
        mut turn: impl FnMut(&mut Server),
    ) -> io::Result<()> {
        while !stop.load(Ordering::Relaxed) {
            self.wait(server)?;
            self.datagrams(server);
            self.accept(server);
            self.streams(server);
            let now = self.now();
            if server.deadline().is_some_and(|at| at <= now) {
                let out = server.on_timer(now);
                self.send(server, out);
            }
            self.flush();
            self.retire(server);
            if self.swept.elapsed() >= SWEEP {
                self.sweep(server);
            }
            turn(server);
        }
        self.sweep(server);
        Ok(())
    }

    /// Count what the system dropped, and give up clients that say nothing.
    fn sweep(&mut self, server: &mut Server) {
        self.swept = Instant::now();
        let before = std::mem::replace(&mut self.dropped, receive_queue::dropped(&self.udp));
        server.dropped_here(self.overflows.of(self.dropped.wrapping_sub(before).into()));
        for one in self.connections.values_mut() {
            one.expire(self.swept);
        }
    }

    fn wait(&mut self, server: &Server) -> io::Result<()> {
        let now = self.now();
        let left =
            server.deadline().map_or(TURN, |at| Duration::from_nanos(at.saturating_sub(now)).min(TURN));
        let wait = Timespec { tv_sec: 0, tv_nsec: i64::from(left.subsec_nanos()) };
        let mut events = vec![PollFd::new(&self.udp, PollFlags::IN)];
        events.extend(self.streams.iter().map(|one| PollFd::new(&one.socket, PollFlags::IN)));
        let listeners = events.len();
        let mut peers = Vec::with_capacity(self.connections.len());
        for (peer, one) in &self.connections {
            peers.push(*peer);
            let out = if one.is_flushed() { PollFlags::empty() } else { PollFlags::OUT };
            let read = if one.reads() { PollFlags::IN } else { PollFlags::empty() };
            events.push(PollFd::new(one, read | out));
        }
        match poll(&mut events, Some(&wait)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        let mut happened = events.iter().map(|event| !event.revents().is_empty());
        let datagrams = happened.next().unwrap_or(false);
        let callers = happened.by_ref().take(listeners - 1).fold(false, |any, one| any | one);
        let connections = happened.zip(peers).filter_map(|(ready, peer)| ready.then_some(peer)).collect();
        self.ready = Ready { datagrams, callers, connections };
        Ok(())
    }

    fn datagrams(&mut self, server: &mut Server) {
        if !self.ready.datagrams {
            return;
        }
        for _ in 0..BURST {
            match self.udp.recv_from(&mut self.datagram) {
                Ok((length, from)) => {
                    let bytes = &self.datagram[..length];
                    // a keep-alive (RFC 5626 section 4.4)
                    if bytes.iter().all(|byte| matches!(byte, b'\r' | b'\n' | 0)) {
                        continue;
                    }
                    let out = server.receive(Peer::udp(from), bytes, self.now());
                    self.send(server, out);
                }
                // a refusal of an earlier datagram is told here too
                Err(error) if error.kind() == ErrorKind::ConnectionRefused => {}
                Err(_) => break,
            }
        }
    }

    fn accept(&mut self, server: &mut Server) {
        if !self.ready.callers {
            return;
        }
        for listener in &self.streams {
            while let Ok((stream, address)) = listener.socket.accept() {
                if self.connections.len() >= self.most {
                    server.given_up(Given::TooMany);
                    let waits = |(peer, one): (&Peer, &Connection)| Some((one.silent_until()?, *peer));
                    let Some((_, oldest)) = self.connections.iter().filter_map(waits).min_by_key(|one| one.0)
                    else {
                        continue;
                    };
                    self.connections.remove(&oldest);
                    server.closed(oldest, None);
                }
                if stream.set_nonblocking(true).is_err() {
                    continue;
                }
                let _as_it_is = stream.set_nodelay(true);
                let in_websocket = matches!(listener.transport, Transport::Ws | Transport::Wss);
                let tls = listener.tls.as_ref();
                let speak_by = Instant::now() + server.patience();
                if let Some(connection) = Connection::accepted(stream, tls, in_websocket, speak_by) {
                    server.connected(listener.transport);
                    self.connections.insert(Peer { transport: listener.transport, address }, connection);
                }
            }
        }
    }

    fn streams(&mut self, server: &mut Server) {
        let mut came = Vec::new();
        for peer in std::mem::take(&mut self.ready.connections) {
            let Some(one) = self.connections.get_mut(&peer) else { continue };
            one.flush();
            one.read(|message| came.push((peer, message)));
        }
        for (peer, message) in came {
            let sender = self.connections.get(&peer);
            let proves = |host: &str| sender.is_some_and(|one| one.proves(host));
            let out = server.receive_from(peer, &message, self.now(), &proves);
            self.send(server, out);
        }
    }

    /// Forget connections that are over.
    fn retire(&mut self, server: &mut Server) {
        self.connections.retain(|peer, one| {
            one.end();
            if !one.is_open() {
                server.closed(*peer, one.fault());
            }
            one.is_open()
        });
    }

    fn send(&mut self, server: &mut Server, out: Out) {
        for (peer, bytes) in out {
            let sent = match peer.transport {
                Transport::Udp => self.datagram(peer.address, &bytes),
                _ => self.stream(peer, &bytes),
            };
            if sent.is_err() {
                server.send_failed();
            }
        }
    }

    fn datagram(&self, to: SocketAddr, bytes: &[u8]) -> io::Result<()> {
        match self.udp.send_to(bytes, to) {
            // the refusal of an earlier one: this one was not sent
            Err(error) if error.kind() == ErrorKind::ConnectionRefused => {
                self.udp.send_to(bytes, to).map(drop)
            }
            other => other.map(drop),
        }
    }

    fn stream(&mut self, mut to: Peer, bytes: &[u8]) -> io::Result<()> {
        if !self.is_open(to) && !to.transport.from_clients() && bytes.starts_with(b"SIP/2.0 ") {
            to = without_connection(bytes, to).ok_or(ErrorKind::NotConnected)?;
            if self.is_own(to.address) {
                return Err(ErrorKind::AddrInUse.into());
            }
        }
        if !self.is_open(to) {
            if to.transport.from_clients() {
                return Err(ErrorKind::NotConnected.into());
            }
            if self.connections.len() >= self.most {
                return Err(ErrorKind::OutOfMemory.into());
            }
            self.connections.insert(to, Connection::new(connect(to.address)?));
        }
        let Some(one) = self.connections.get_mut(&to) else { return Ok(()) };
        if self.written.last() != Some(&to) {
            self.written.push(to);
        }
        one.send(bytes)
    }

    /// Give the connections what this turn has for them.
    fn flush(&mut self) {
        for peer in self.written.drain(..) {
            if let Some(one) = self.connections.get_mut(&peer) {
                one.flush();
            }
        }
    }

    fn is_open(&self, to: Peer) -> bool {
        self.connections.get(&to).is_some_and(Connection::is_open)
    }

    /// Whether it is where this server listens.
    fn is_own(&self, address: SocketAddr) -> bool {
        let mut listened = self.streams.iter().filter_map(|one| one.socket.local_addr().ok());
        listened.any(|at| {
            at.port() == address.port()
                && (at.ip() == address.ip() || at.ip().is_unspecified() && is_local(address))
        })
    }
}

/// Raises the limit of open files to `most`, as far as it may be raised.
fn allow_files(most: u64) {
    let limit = getrlimit(Resource::Nofile);
    let allowed = limit.maximum.map_or(most, |hard| hard.min(most));
    if limit.current.is_some_and(|soft| soft < allowed) {
        let _as_before = setrlimit(Resource::Nofile, Rlimit { current: Some(allowed), ..limit });
    }
}

/// Whether this machine has the address.
fn is_local(address: SocketAddr) -> bool {
    UdpSocket::bind(SocketAddr::new(address.ip(), 0)).is_ok()
}

/// A connection that is being set up; what is written waits for it.
fn connect(to: SocketAddr) -> io::Result<TcpStream> {
    let family = if to.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let socket = rustix::net::socket_with(family, SocketType::STREAM, flags, None)?;
    match rustix::net::connect(&socket, &to) {
        Ok(()) | Err(rustix::io::Errno::INPROGRESS) => {}
        Err(error) => return Err(error.into()),
    }
    let stream = TcpStream::from(socket);
    // the system may pick the very port that it connects to
    if stream.local_addr().is_ok_and(|local| local == to) {
        return Err(ErrorKind::ConnectionRefused.into());
    }
    let _as_it_is = stream.set_nodelay(true);
    Ok(stream)
}

#[cfg(test)]
mod tests;
