//! Messages to a collector. A collector that is gone is an error that is counted, and tried again later.

use std::io::{self, Write};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream, UdpSocket};
use std::time::Duration;

/// How messages go out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Transport {
    /// One message a datagram (RFC 7011 section 10.3; RFC 5426).
    Udp,
    /// One connection.
    Tcp(Framing),
}

/// How the end of a message is known in a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Framing {
    /// By the message itself, as in IPFIX.
    Plain,
    /// By its length in front (octet counting, RFC 6587 section 3.4.1).
    OctetCounting,
}

/// A connection attempt and a write wait no longer than this.
const PATIENCE: Duration = Duration::from_secs(1);
/// The first pause after a failed attempt; each further one is twice as long.
const FIRST_PAUSE_MS: u64 = 500;
const LONGEST_PAUSE_MS: u64 = 60_000;

#[derive(Debug)]
enum Socket {
    Udp(UdpSocket),
    Tcp(TcpStream),
}

/// The way to one collector. It may wait up to a second: it belongs on a thread of its own.
#[derive(Debug)]
pub struct Sender {
    transport: Transport,
    collector: SocketAddr,
    socket: Option<Socket>,
    retry_at_ms: u64,
    pause_ms: u64,
    framed: Vec<u8>,
}

impl Sender {
    /// The way to this collector; nothing is opened yet.
    pub fn new(transport: Transport, collector: SocketAddr) -> Self {
        Self {
            transport,
            collector,
            socket: None,
            retry_at_ms: 0,
            pause_ms: FIRST_PAUSE_MS,
            framed: Vec::new(),
        }
    }

    /// Whether there is a stream to lose: over TCP an event that is not sent can be kept until there is.
    pub fn keeps(&self) -> bool {
        self.transport != Transport::Udp
    }

    /// Whether a message can be sent now. Opens the socket where there is none and it is time; then the answer's second part is
    /// true: a new transport session.
    pub fn ready(&mut self, now_ms: u64) -> (bool, bool) {
        if let Some(Socket::Tcp(stream)) = &self.socket
            && is_closed(stream)
        {
            self.socket = None;
        }
        if self.socket.is_some() {
            return (true, false);
        }
        // No pause is longer: the clock was set back.
        let was_set_back = self.retry_at_ms.saturating_sub(now_ms) > LONGEST_PAUSE_MS;
        if now_ms < self.retry_at_ms && !was_set_back {
            return (false, false);
        }
        match self.open() {
            Ok(socket) => {
                self.socket = Some(socket);
                (true, true)
            }
            Err(_) => {
                self.pause(now_ms);
                (false, false)
            }
        }
    }

    /// Send a message.
    pub fn send(&mut self, now_ms: u64, message: &[u8]) -> io::Result<()> {
        let sent = match &mut self.socket {
            None => return Err(io::ErrorKind::NotConnected.into()),
            // What an earlier datagram met with (port unreachable) is told to the next, which is not sent then.
            Some(Socket::Udp(socket)) => {
                return socket.send(message).or_else(|_| socket.send(message)).map(drop);
            }
            Some(Socket::Tcp(stream)) => match self.transport {
                Transport::Tcp(Framing::OctetCounting) => {
                    self.framed.clear();
                    self.framed.extend_from_slice(format!("{} ", message.len()).as_bytes());
                    self.framed.extend_from_slice(message);
                    stream.write_all(&self.framed)
                }
                _ => stream.write_all(message),
            },
        };
        match &sent {
            Ok(()) => self.pause_ms = FIRST_PAUSE_MS,
            // Part of the message may be out: the stream cannot go on.
            Err(_) => {
                self.socket = None;
                self.pause(now_ms);
            }
        }
        sent
    }

    /// As if an attempt had failed, and the next one is due then.
    #[cfg(test)]
    pub(crate) fn retry_at(&mut self, now_ms: u64) {
        self.retry_at_ms = now_ms;
    }

    fn pause(&mut self, now_ms: u64) {
        self.retry_at_ms = now_ms.saturating_add(self.pause_ms);
        self.pause_ms = (self.pause_ms * 2).min(LONGEST_PAUSE_MS);
    }

    fn open(&self) -> io::Result<Socket> {
        if self.transport == Transport::Udp {
            let any: SocketAddr = match self.collector {
                SocketAddr::V4(_) => (Ipv4Addr::UNSPECIFIED, 0).into(),
                SocketAddr::V6(_) => (Ipv6Addr::UNSPECIFIED, 0).into(),
            };
            let socket = UdpSocket::bind(any)?;
            socket.connect(self.collector)?;
            return Ok(Socket::Udp(socket));
        }
        let stream = TcpStream::connect_timeout(&self.collector, PATIENCE)?;
        stream.set_write_timeout(Some(PATIENCE))?;
        stream.set_nodelay(true)?;
        Ok(Socket::Tcp(stream))
    }
}

/// Whether the collector has closed the connection. It has nothing to say to us but that.
fn is_closed(stream: &TcpStream) -> bool {
    let peek = || {
        stream.set_nonblocking(true)?;
        let peeked = stream.peek(&mut [0]);
        stream.set_nonblocking(false)?;
        peeked
    };
    match peek() {
        Ok(read) => read == 0,
        Err(error) => error.kind() != io::ErrorKind::WouldBlock,
    }
}
