//! A user agent: its socket, over UDP or TCP, without blocking.

use crate::file::Transport;
use sip_core::message::Framer;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::time::{Duration, Instant};

/// How long a stream may take to accept bytes.
const PATIENCE: Duration = Duration::from_secs(2);
/// Largest datagram.
const DATAGRAM: usize = 65_535;

/// Where a message came from, or goes to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Peer {
    /// An address.
    Address(SocketAddr),
    /// A connection, by its number.
    Connection(usize),
}

#[derive(Debug)]
struct Connection {
    stream: TcpStream,
    peer: SocketAddr,
    buffer: Vec<u8>,
    framer: Framer,
    open: bool,
}

#[derive(Debug)]
enum Socket {
    Udp(UdpSocket),
    Tcp { listener: TcpListener, connections: Vec<Connection> },
}

/// A user agent's socket.
#[derive(Debug)]
pub(crate) struct Agent {
    pub name: String,
    pub local: SocketAddr,
    socket: Socket,
}

impl Agent {
    /// Opens a socket on the address from which the server is reached.
    pub fn open(name: &str, transport: Transport, server: SocketAddr) -> io::Result<Self> {
        let any: SocketAddr = if server.is_ipv4() { ([0; 4], 0).into() } else { ([0_u16; 8], 0).into() };
        let probe = UdpSocket::bind(any)?;
        probe.connect(server)?;
        let own = SocketAddr::new(probe.local_addr()?.ip(), 0);
        let socket = match transport {
            Transport::Udp => {
                let socket = UdpSocket::bind(own)?;
                socket.set_nonblocking(true)?;
                Socket::Udp(socket)
            }
            Transport::Tcp => {
                let listener = TcpListener::bind(own)?;
                listener.set_nonblocking(true)?;
                Socket::Tcp { listener, connections: Vec::new() }
            }
        };
        let local = match &socket {
            Socket::Udp(socket) => socket.local_addr()?,
            Socket::Tcp { listener, .. } => listener.local_addr()?,
        };
        Ok(Self { name: name.to_owned(), local, socket })
    }

    /// Sends one message.
    pub fn send(&mut self, to: Peer, bytes: &[u8]) -> io::Result<()> {
        match &mut self.socket {
            Socket::Udp(socket) => {
                let Peer::Address(address) = to else { return Err(ErrorKind::NotConnected.into()) };
                // A port that was closed meanwhile shows as a refused send: the datagram after it is sent.
                match socket.send_to(bytes, address) {
                    Err(error) if error.kind() == ErrorKind::ConnectionRefused => {
                        socket.send_to(bytes, address).map(drop)
                    }
                    other => other.map(drop),
                }
            }
            Socket::Tcp { connections, .. } => {
                let at = match to {
                    Peer::Connection(at) if connections.get(at).is_some_and(|c| c.open) => at,
                    Peer::Connection(_) => return Err(ErrorKind::NotConnected.into()),
                    Peer::Address(address) => {
                        let known = connections.iter().position(|c| c.open && c.peer == address);
                        match known {
                            Some(at) => at,
                            None => {
                                let stream = TcpStream::connect_timeout(&address, PATIENCE)?;
                                connections.push(connection(stream, address)?);
                                connections.len() - 1
                            }
                        }
                    }
                };
                write(&mut connections[at].stream, bytes)
            }
        }
    }

    /// A message that has arrived, if there is one.
    pub fn receive(&mut self) -> io::Result<Option<(Vec<u8>, Peer)>> {
        match &mut self.socket {
            Socket::Udp(socket) => {
                let mut buffer = vec![0; DATAGRAM];
                match socket.recv_from(&mut buffer) {
                    Ok((length, from)) => {
                        buffer.truncate(length);
                        // Keep-alives are no messages (RFC 5626 section 4.4).
                        let blank = buffer.iter().all(|b| matches!(b, b'\r' | b'\n' | 0));
                        Ok((!blank).then_some((buffer, Peer::Address(from))))
                    }
                    Err(error) if idle(&error) => Ok(None),
                    Err(error) => Err(error),
                }
            }
            Socket::Tcp { listener, connections } => {
                match listener.accept() {
                    Ok((stream, peer)) => connections.push(connection(stream, peer)?),
                    Err(error) if idle(&error) => {}
                    Err(error) => return Err(error),
                }
                for (at, one) in connections.iter_mut().enumerate().filter(|(_, one)| one.open) {
                    if let Some(message) = one.receive()? {
                        return Ok(Some((message, Peer::Connection(at))));
                    }
                }
                Ok(None)
            }
        }
    }
}

impl Connection {
    fn receive(&mut self) -> io::Result<Option<Vec<u8>>> {
        let mut chunk = [0; 4096];
        match self.stream.read(&mut chunk) {
            Ok(0) => self.open = false,
            Ok(length) => self.buffer.extend_from_slice(&chunk[..length]),
            Err(error) if idle(&error) => {}
            Err(error) if error.kind() == ErrorKind::ConnectionReset => self.open = false,
            Err(error) => return Err(error),
        }
        match self.framer.frame(&self.buffer) {
            Ok(Some(length)) => Ok(Some(self.buffer.drain(..length).collect())),
            Ok(None) => Ok(None),
            // What cannot be split is shown as it is, and the connection given up.
            Err(_) => {
                self.open = false;
                Ok(Some(std::mem::take(&mut self.buffer)))
            }
        }
    }
}

fn connection(stream: TcpStream, peer: SocketAddr) -> io::Result<Connection> {
    stream.set_nonblocking(true)?;
    stream.set_nodelay(true)?;
    Ok(Connection { stream, peer, buffer: Vec::new(), framer: Framer::default(), open: true })
}

fn write(stream: &mut TcpStream, mut bytes: &[u8]) -> io::Result<()> {
    let end = Instant::now() + PATIENCE;
    while !bytes.is_empty() {
        match stream.write(bytes) {
            Ok(0) => return Err(ErrorKind::WriteZero.into()),
            Ok(length) => bytes = &bytes[length..],
            Err(error) if idle(&error) && Instant::now() < end => {
                std::thread::sleep(Duration::from_millis(1));
            }
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

fn idle(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted | ErrorKind::ConnectionRefused)
}
