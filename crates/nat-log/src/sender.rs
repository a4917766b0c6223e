//! Messages to a collector. A collector that is gone is an error that is counted, and tried again later.

use rustix::net::sockopt;
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
/// A collector that confirms nothing for so long is gone: what it was sent meanwhile is lost, and nobody knows how much that is. The
/// kernel by itself waits for a quarter of an hour. One to which nothing was sent for as long is asked whether it is there.
const SILENCE: Duration = Duration::from_secs(30);
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
    /// Over UDP: the kernel refused a message, for another reason than that nobody was there. The socket may have an address that is no
    /// more, and the collector may lack templates: another one is opened.
    refused: bool,
    /// Messages that are refused, for tests.
    #[cfg(test)]
    pub(crate) refuses: u32,
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
            refused: false,
            #[cfg(test)]
            refuses: 0,
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
        if std::mem::take(&mut self.refused) {
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
                #[cfg(test)]
                if self.refuses > 0 {
                    self.refuses -= 1;
                    return self.refuse(now_ms, io::ErrorKind::PermissionDenied.into());
                }
                return match socket.send(message).or_else(|_| socket.send(message)) {
                    Ok(_) => {
                        self.pause_ms = FIRST_PAUSE_MS;
                        Ok(())
                    }
                    Err(why) => self.refuse(now_ms, why),
                };
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

    /// A datagram was not taken.
    fn refuse(&mut self, now_ms: u64, why: io::Error) -> io::Result<()> {
        if why.kind() != io::ErrorKind::ConnectionRefused && !self.refused {
            self.refused = true;
            self.pause(now_ms);
        }
        Err(why)
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
        sockopt::set_tcp_user_timeout(&stream, SILENCE.as_millis() as u32)?;
        sockopt::set_tcp_keepidle(&stream, SILENCE)?;
        sockopt::set_socket_keepalive(&stream, true)?;
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
