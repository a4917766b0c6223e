//! Messages to a collector. A collector that is gone is an error that is counted, and tried again later.

use nix::libc::{self, tcp_info};
use nix::sys::socket::{getsockopt, setsockopt, sockopt};
use nix::{getsockopt_impl, sockopt_impl};
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
/// A collector that confirms nothing for so long is gone. The kernel by itself waits for a quarter of an hour. One to which nothing was
/// sent for as long is asked whether it is there.
const SILENCE: Duration = Duration::from_secs(30);
/// The first pause after a failed attempt; each further one is twice as long.
const FIRST_PAUSE_MS: u64 = 500;
const LONGEST_PAUSE_MS: u64 = 60_000;
/// A connection that lasted for so long was none that failed at once.
const LASTING_MS: u64 = 1_000;

/// Where `struct tcp_info` says how many bytes the other end confirmed.
const ACKED: usize = std::mem::offset_of!(tcp_info, tcpi_bytes_acked);
const ACKED_END: usize = ACKED + size_of::<u64>();

sockopt_impl!(
    /// As much of `struct tcp_info` as is read: each kernel has more than that.
    TcpInfoHead,
    GetOnly,
    libc::IPPROTO_TCP,
    libc::TCP_INFO,
    [u8; ACKED_END]
);

#[derive(Debug)]
enum Socket {
    Udp(UdpSocket),
    Tcp(Connection),
}

#[derive(Debug)]
struct Connection {
    stream: TcpStream,
    /// Bytes of messages.
    written: u64,
    /// What the kernel counted as confirmed before the first of them: the SYN.
    before: u64,
    opened_at_ms: u64,
}

impl Connection {
    fn new(stream: TcpStream, opened_at_ms: u64) -> Self {
        let before = acked(&stream).unwrap_or(0);
        Self { stream, written: 0, before, opened_at_ms }
    }

    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.stream.write_all(bytes)?;
        self.written += bytes.len() as u64;
        Ok(())
    }

    /// Bytes of messages that the collector's host has confirmed. Where the kernel does not say, that is taken for all.
    fn confirmed(&self) -> u64 {
        acked(&self.stream).map_or(self.written, |acked| acked.saturating_sub(self.before))
    }
}

/// Bytes that the other end confirmed, the SYN among them.
fn acked(stream: &TcpStream) -> Option<u64> {
    let info = getsockopt(stream, TcpInfoHead).ok()?;
    info[ACKED..].try_into().ok().map(u64::from_ne_bytes)
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
    /// Bytes that were confirmed on the connection before this one.
    confirmed_before: u64,
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
            confirmed_before: 0,
            refused: false,
            #[cfg(test)]
            refuses: 0,
        }
    }

    /// Whether there is a stream to lose: over TCP an event that is not sent can be kept until there is.
    pub fn is_stream(&self) -> bool {
        self.transport != Transport::Udp
    }

    /// Whether a message can be sent now. Opens the socket where there is none and it is time; then the answer's second part is
    /// true: a new transport session.
    pub fn ready(&mut self, now_ms: u64) -> (bool, bool) {
        if let Some(Socket::Tcp(connection)) = &self.socket
            && is_closed(&connection.stream)
        {
            self.close(now_ms);
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
        match self.open(now_ms) {
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
            Some(Socket::Tcp(connection)) => match self.transport {
                Transport::Tcp(Framing::OctetCounting) => {
                    self.framed.clear();
                    self.framed.extend_from_slice(format!("{} ", message.len()).as_bytes());
                    self.framed.extend_from_slice(message);
                    connection.write(&self.framed)
                }
                _ => connection.write(message),
            },
        };
        // Part of the message may be out: the stream cannot go on.
        if sent.is_err() {
            self.close(now_ms);
        }
        sent
    }

    /// Bytes of the stream that are written, with the lengths in front of messages.
    pub fn written(&self) -> u64 {
        match &self.socket {
            Some(Socket::Tcp(connection)) => connection.written,
            _ => 0,
        }
    }

    /// Of these the bytes that the collector's host has confirmed; its program need not have read them.
    pub fn confirmed(&self) -> u64 {
        match &self.socket {
            Some(Socket::Tcp(connection)) => connection.confirmed(),
            _ => self.confirmed_before,
        }
    }

    /// Bytes that were confirmed on the connection before this one.
    pub fn confirmed_before(&self) -> u64 {
        self.confirmed_before
    }

    /// Give the connection up. What it has not confirmed goes another way, and not this one as well. The next one is not opened at once: who
    /// accepts and closes again would be sent the same all the time.
    pub(crate) fn close(&mut self, now_ms: u64) {
        if let Some(Socket::Tcp(connection)) = &self.socket {
            self.confirmed_before = connection.confirmed();
            if now_ms.abs_diff(connection.opened_at_ms) >= LASTING_MS {
                self.pause_ms = FIRST_PAUSE_MS;
            }
            let at_once = libc::linger { l_onoff: 1, l_linger: 0 };
            // A connection that is gone need not be.
            let _gone = setsockopt(&connection.stream, sockopt::Linger, &at_once);
            self.pause(now_ms);
        }
        self.socket = None;
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

    fn open(&self, now_ms: u64) -> io::Result<Socket> {
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
        setsockopt(&stream, sockopt::TcpUserTimeout, &(SILENCE.as_millis() as u32))?;
        setsockopt(&stream, sockopt::TcpKeepIdle, &(SILENCE.as_secs() as u32))?;
        setsockopt(&stream, sockopt::KeepAlive, &true)?;
        Ok(Socket::Tcp(Connection::new(stream, now_ms)))
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
