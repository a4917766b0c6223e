//! One device's connection: a non-blocking kernel socket, with TLS on it or not.

use super::broken::Broken;
use super::datagram::{datagram, errors_told, tell_errors, write_datagrams};
use super::icmp::{icmp_socket, own_echo, own_ident, stamp_ident};
use crate::plan::GroupPlan;
use crate::receive_queue;
use nix::sys::socket::{setsockopt, sockopt};
use protocol::meter::Failure;
use protocol::model::Outbox;
use protocol::target::Carrier;
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketAddrAny, SocketFlags, SocketType, bind, connect, ipproto,
    recv, recvfrom, send, socket_with, sockopt as opt,
};
use rustls::ClientConnection;
use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// What a server may make us keep of an unfinished message before we call it malformed.
const SPILL_MAX: usize = 1 << 20;

/// What may wait for a server that takes nothing when a model has more to send.
const OUT_MAX: usize = 16 << 20;

/// A connection.
#[derive(Debug)]
pub(super) struct Conn {
    fd: OwnedFd,
    wire: Wire,
    /// Whether the model has been told that it is up.
    pub up: bool,
    /// Whether it closes once `out` is empty.
    pub closing: bool,
    /// Whether the other side has said that it sends no more: reads go on until that shows.
    pub ends: bool,
    /// Whether the worker reads on from it in its next turn anyway.
    pub unread: bool,
    /// Bytes that the socket did not take yet. Datagrams: cut each `segment`.
    out: Vec<u8>,
    out_at: usize,
    segment: usize,
    /// Received bytes that the model has not used.
    spill: Vec<u8>,
    /// Datagrams that did not get through, and of which nobody has been told yet.
    pub refused: Vec<Broken>,
    /// How many datagrams the socket had dropped when that was last looked at.
    dropped: u32,
}

#[derive(Debug)]
enum Wire {
    Tcp,
    Tls(Box<ClientConnection>),
    Udp {
        gso: usize,
    },
    /// Connected or not, a ping socket takes what has its identifier from whatever host: keep to this one.
    Ping {
        peer: IpAddr,
    },
    /// A raw socket sees every host's ICMP: keep to our own identifier.
    RawPing {
        ident: u16,
        v6: bool,
    },
}

/// Whether a packet's source is this host; 0.0.0.0 and groups answer with other addresses.
fn is_from(source: SocketAddrAny, host: IpAddr) -> bool {
    host.is_unspecified()
        || host.is_multicast()
        || SocketAddr::try_from(source).is_ok_and(|source| source.ip() == host)
}

/// What came of reading.
pub(super) enum Input {
    /// Nothing more for now.
    Dry,
    /// Something came that is not for the model: TLS's own records, other hosts' pings.
    Aside,
    /// So many bytes, in the buffer given.
    Bytes(usize),
    /// The other side has closed.
    End,
}

impl Conn {
    /// Open the socket of device `device` and begin to connect.
    pub fn open(group: &GroupPlan, device: u32) -> Result<Self, Broken> {
        let family = if group.address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        let fail = |e| Broken::errno(e, "socket");
        let (fd, wire) = match group.scheme.carrier {
            Carrier::Stream => {
                let fd = socket_with(family, SocketType::STREAM, flags, Some(ipproto::TCP)).map_err(fail)?;
                opt::set_tcp_nodelay(&fd, true).map_err(fail)?;
                (fd, Wire::Tcp)
            }
            Carrier::Datagram => {
                let fd = socket_with(family, SocketType::DGRAM, flags, Some(ipproto::UDP)).map_err(fail)?;
                tell_errors(&fd, group.address.is_ipv6()).map_err(|e| Broken::errno(e, "socket"))?;
                (fd, Wire::Udp { gso: 0 })
            }
            Carrier::Icmp => {
                let v6 = group.address.is_ipv6();
                match icmp_socket(v6).map_err(|e| Broken::errno(e, "ICMP socket"))? {
                    (fd, false) => (fd, Wire::Ping { peer: group.address.ip() }),
                    (fd, true) => (fd, Wire::RawPing { ident: own_ident(), v6 }),
                }
            }
        };
        if group.scheme.carrier != Carrier::Stream {
            receive_queue::enlarge(&fd, group.receive_room);
        }
        if let Some(source) = group.source(device) {
            if group.scheme.carrier == Carrier::Stream {
                // the port is then chosen at connect(), per destination: the pool is used up much later
                let _best_effort = setsockopt(&fd, sockopt::IpBindAddressNoPort, &true);
            }
            bind(&fd, &SocketAddr::new(source, 0))
                .map_err(|e| Broken::errno(e, format!("bind to {source}")))?;
        }
        match connect(&fd, &group.address) {
            Ok(()) | Err(Errno::INPROGRESS) => {}
            Err(e) => return Err(Broken::route(e, format!("connect to {}", group.address))),
        }
        let wire = match &group.tls {
            Some((config, name)) => {
                let mut session = ClientConnection::new(config.clone(), name.clone())
                    .map_err(|e| Broken::new(Failure::Tls, e.to_string()))?;
                // what is written to the session leaves it at once: a message may be larger than its buffer
                session.set_buffer_limit(None);
                Wire::Tls(Box::new(session))
            }
            None => wire,
        };
        Ok(Self {
            fd,
            wire,
            up: false,
            closing: false,
            ends: false,
            unread: false,
            out: Vec::new(),
            out_at: 0,
            segment: 0,
            spill: Vec::new(),
            refused: Vec::new(),
            dropped: 0,
        })
    }

    /// Whether it keeps messages apart.
    pub fn is_datagram(&self) -> bool {
        matches!(self.wire, Wire::Udp { .. } | Wire::Ping { .. } | Wire::RawPing { .. })
    }

    /// How many datagrams its receive queue has dropped since this was last asked; and whether broken ones are among
    /// them, as they are of UDP's alone.
    pub fn take_dropped(&mut self) -> (u64, bool) {
        if !self.is_datagram() {
            return (0, false);
        }
        let now = receive_queue::dropped(&self.fd);
        let more = now.wrapping_sub(std::mem::replace(&mut self.dropped, now));
        (more.into(), matches!(self.wire, Wire::Udp { .. }))
    }

    /// Whether the socket has taken all that was given to it.
    pub fn is_flushed(&self) -> bool {
        self.out_at >= self.out.len()
    }

    /// How many datagrams the socket has not taken yet.
    pub fn unsent(&self) -> u64 {
        let left = self.out.len().saturating_sub(self.out_at);
        if self.is_datagram() { left.div_ceil(datagram(self.segment, left)) as u64 } else { 0 }
    }

    /// The result of a non-blocking connect, once the socket is writable.
    pub fn connect_result(&self) -> Result<(), Broken> {
        match opt::socket_error(&self.fd) {
            Ok(Ok(())) => Ok(()),
            Ok(Err(e)) | Err(e) => Err(Broken::remote(e, "connect")),
        }
    }

    /// Whether bytes can be exchanged: the TCP connection is there, and TLS has shaken hands.
    pub fn ready(&self) -> bool {
        match &self.wire {
            Wire::Tls(tls) => !tls.is_handshaking(),
            _ => true,
        }
    }

    /// Move the handshake on: send what TLS wants to send.
    pub fn flush_tls(&mut self) -> Result<(), Broken> {
        if let Wire::Tls(tls) = &mut self.wire {
            let mut records = std::mem::take(&mut self.out);
            while tls.wants_write() {
                if let Err(e) = tls.write_tls(&mut records) {
                    return Err(Broken::new(Failure::Tls, e.to_string()));
                }
            }
            self.out = records;
        }
        self.flush()
    }

    /// Send what the model queued; keeps what the socket does not take.
    pub fn send(&mut self, outbox: &mut Outbox) -> Result<(), Broken> {
        if outbox.bytes.is_empty() {
            return Ok(());
        }
        if let Wire::Tls(tls) = &mut self.wire {
            tls.writer().write_all(&outbox.bytes).map_err(|e| Broken::new(Failure::Tls, e.to_string()))?;
            outbox.bytes.clear();
            return self.flush_tls();
        }
        if !self.is_flushed() {
            return self.queue(outbox);
        }
        self.segment = outbox.segment;
        let sent = self.write(&outbox.bytes)?;
        if sent < outbox.bytes.len() {
            self.out.clear();
            self.out.extend_from_slice(&outbox.bytes[sent..]);
            self.out_at = 0;
        }
        outbox.bytes.clear();
        Ok(())
    }

    /// Put more behind what the socket did not take.
    fn queue(&mut self, outbox: &mut Outbox) -> Result<(), Broken> {
        let waiting = self.out.len() - self.out_at;
        if self.is_datagram() {
            // they are cut apart by their size: only like ones can stand in one row
            let alike =
                outbox.segment == self.segment && self.segment > 0 && waiting.is_multiple_of(self.segment);
            if !alike {
                return Err(Broken::new(Failure::Local, "the socket takes no more datagrams"));
            }
        } else if waiting > OUT_MAX {
            let what = format!("the server does not read: {waiting} bytes wait for it");
            return Err(Broken::new(Failure::Timeout, what));
        }
        if self.out_at > self.out.len() / 2 {
            self.out.drain(..self.out_at);
            self.out_at = 0;
        }
        self.out.append(&mut outbox.bytes);
        Ok(())
    }

    /// Try again with what the socket did not take.
    pub fn flush(&mut self) -> Result<(), Broken> {
        if self.is_flushed() {
            return Ok(());
        }
        let out = std::mem::take(&mut self.out);
        let sent = self.write(&out[self.out_at..]);
        self.out = out;
        self.out_at += sent?;
        if self.is_flushed() {
            self.out.clear();
            self.out_at = 0;
        }
        Ok(())
    }

    /// Write as much as goes; how much went.
    fn write(&mut self, bytes: &[u8]) -> Result<usize, Broken> {
        match &mut self.wire {
            Wire::Tcp | Wire::Tls(_) => {
                let mut at = 0;
                while at < bytes.len() {
                    match send(&self.fd, &bytes[at..], SendFlags::NOSIGNAL) {
                        Ok(n) => at += n,
                        Err(Errno::AGAIN) => break,
                        Err(Errno::INTR) => {}
                        Err(e) => return Err(Broken::remote(e, "send")),
                    }
                }
                Ok(at)
            }
            Wire::Udp { gso } => {
                Ok(write_datagrams(&self.fd, Some(gso), self.segment, bytes, &mut self.refused))
            }
            Wire::Ping { .. } => Ok(write_datagrams(&self.fd, None, self.segment, bytes, &mut self.refused)),
            Wire::RawPing { ident, v6 } => {
                let mut messages = bytes.to_vec();
                messages
                    .chunks_mut(datagram(self.segment, bytes.len()))
                    .for_each(|message| stamp_ident(message, *ident, *v6));
                Ok(write_datagrams(&self.fd, None, self.segment, &messages, &mut self.refused))
            }
        }
    }

    /// Read once into `buffer`; `cipher` is room for TLS records.
    pub fn read(&mut self, buffer: &mut [u8], cipher: &mut [u8]) -> Result<Input, Broken> {
        if let Wire::Tls(tls) = &mut self.wire {
            return read_tls(tls, &self.fd, buffer, cipher);
        }
        loop {
            let (read, from) = match self.wire {
                Wire::Ping { .. } => match recvfrom(&self.fd, &mut *buffer, RecvFlags::empty()) {
                    Ok((_, n, from)) => (Ok((n, n)), from),
                    Err(e) => (Err(e), None),
                },
                _ => (recv(&self.fd, &mut *buffer, RecvFlags::empty()), None),
            };
            return match read {
                Ok((0, _)) if matches!(self.wire, Wire::Tcp) => Ok(Input::End),
                Ok((n, _)) => match self.wire {
                    Wire::RawPing { ident, v6 } => match own_echo(&buffer[..n], ident, v6) {
                        Some(at) => {
                            buffer.copy_within(at..n, 0);
                            Ok(Input::Bytes(n - at))
                        }
                        None => Ok(Input::Aside),
                    },
                    Wire::Ping { peer } if from.is_some_and(|from| !is_from(from, peer)) => Ok(Input::Aside),
                    _ => Ok(Input::Bytes(n)),
                },
                Err(Errno::AGAIN) => Ok(Input::Dry),
                Err(Errno::INTR) => continue,
                // an ICMP error about an earlier datagram (RFC 1122 section 4.1.3.3)
                Err(e) if self.is_datagram() => {
                    Err(Broken::remote(e, "receive").datagrams(errors_told(&self.fd)))
                }
                Err(e) => Err(Broken::remote(e, "receive")),
            };
        }
    }

    /// Whether a read shorter than the buffer means that there is no more for now (plain TCP, before its end).
    pub fn short_read_is_dry(&self) -> bool {
        matches!(self.wire, Wire::Tcp) && !self.ends
    }

    /// Take the spill out, so that the model can be shown it while it may change the connection.
    pub fn take_spill(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.spill)
    }

    /// Keep `rest` until more comes.
    pub fn keep(&mut self, rest: Vec<u8>) -> Result<(), Broken> {
        if rest.len() > SPILL_MAX {
            return Err(Broken::new(
                Failure::Protocol,
                format!("an unfinished message of over {SPILL_MAX} bytes"),
            ));
        }
        self.spill = rest;
        Ok(())
    }

    /// Say that nothing more will be sent (TLS: close_notify).
    pub fn goodbye(&mut self) {
        if let Wire::Tls(tls) = &mut self.wire {
            tls.send_close_notify();
            let _nothing_to_lose = self.flush_tls();
        }
    }
}

impl AsFd for Conn {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// Cipher text taken at once. With a record that it completes it is less than [`read_tls`]'s buffer holds.
const CIPHER_MAX: usize = 16 * 1024;

fn read_tls(
    tls: &mut ClientConnection,
    fd: &OwnedFd,
    buffer: &mut [u8],
    cipher: &mut [u8],
) -> Result<Input, Broken> {
    let failed = |e: rustls::Error| Broken::new(Failure::Tls, super::tls::cause(&e));
    loop {
        let size = cipher.len().min(CIPHER_MAX);
        let got = match recv(fd, &mut cipher[..size], RecvFlags::empty()) {
            Ok((n, _)) => n,
            Err(Errno::AGAIN) => return Ok(Input::Dry),
            Err(Errno::INTR) => continue,
            Err(e) => return Err(Broken::remote(e, "receive")),
        };
        let mut records = &cipher[..got];
        let mut filled = 0;
        let mut over = got == 0;
        loop {
            // the session holds one record's plain text at most: it is taken out before more goes in
            tls.read_tls(&mut records).map_err(|e| Broken::new(Failure::Tls, e.to_string()))?;
            let state = tls.process_new_packets().map_err(failed)?;
            over |= state.peer_has_closed();
            let mut plain = state.plaintext_bytes_to_read();
            while plain > 0 && filled < buffer.len() {
                match tls.reader().read(&mut buffer[filled..]) {
                    Ok(n) if n > 0 => (filled, plain) = (filled + n, plain.saturating_sub(n)),
                    _ => break,
                }
            }
            if records.is_empty() {
                break;
            }
        }
        if filled > 0 {
            return Ok(Input::Bytes(filled));
        }
        if over {
            return Ok(Input::End);
        }
        if tls.is_handshaking() || tls.wants_write() {
            return Ok(Input::Aside);
        }
    }
}

/// Whether this address is one of the host's own, so that it can be bound.
pub(super) fn can_bind(source: IpAddr) -> Result<(), Errno> {
    let family = if source.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let fd = socket_with(family, SocketType::DGRAM, SocketFlags::CLOEXEC, Some(ipproto::UDP))?;
    bind(&fd, &SocketAddr::new(source, 0))
}
