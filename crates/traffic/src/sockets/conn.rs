//! One device's connection: a non-blocking kernel socket, with TLS on it or not.

use crate::plan::GroupPlan;
use nix::sys::socket::{setsockopt, sockopt};
use protocol::meter::Failure;
use protocol::model::Outbox;
use protocol::registry::Carrier;
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, bind, connect, ipproto, recv, send,
    socket_with, sockopt as opt,
};
use rustls::ClientConnection;
use std::borrow::Cow;
use std::fmt;
use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU16, Ordering};

/// What a server may make us keep of an unfinished message before we call it malformed.
const SPILL_MAX: usize = 1 << 20;

/// What may wait for a server that takes nothing when a model has more to send.
const OUT_MAX: usize = 16 << 20;

/// Datagrams the kernel cuts from one buffer (UDP_MAX_SEGMENTS), and the largest such buffer.
const GSO_SEGMENTS: usize = 64;
const GSO_BYTES: usize = 65_000;

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
}

#[derive(Debug)]
enum Wire {
    Tcp,
    Tls(Box<ClientConnection>),
    Udp {
        gso: usize,
    },
    Ping,
    /// A raw socket sees every host's ICMP: keep to our own identifier.
    RawPing {
        ident: u16,
        v6: bool,
    },
}

/// Why a connection ended, or why datagrams did not get through.
#[derive(Debug)]
pub(super) struct Broken {
    pub why: Failure,
    /// Whether the socket is of no use any more.
    pub gone: bool,
    /// If not: how many datagrams it is about.
    pub times: u64,
    what: Cow<'static, str>,
    errno: Option<Errno>,
}

impl Broken {
    pub fn new(why: Failure, what: impl Into<Cow<'static, str>>) -> Self {
        Self { why, gone: true, times: 1, what: what.into(), errno: None }
    }

    pub fn errno(e: Errno, doing: impl Into<Cow<'static, str>>) -> Self {
        let why = match e {
            Errno::CONNREFUSED => Failure::Refused,
            Errno::CONNRESET | Errno::PIPE | Errno::CONNABORTED => Failure::Reset,
            Errno::TIMEDOUT => Failure::Timeout,
            Errno::NETUNREACH | Errno::HOSTUNREACH | Errno::NETDOWN | Errno::HOSTDOWN | Errno::NONET => {
                Failure::Unreachable
            }
            _ => Failure::Local,
        };
        Self { errno: Some(e), ..Self::new(why, doing) }
    }

    /// It is about so many datagrams, and the socket is as it was.
    pub fn datagrams(self, times: u64) -> Self {
        Self { gone: false, times, ..self }
    }

    /// An error that the network has sent us about a packet: what a firewall or a router says is no fault of ours
    /// (the kernel makes these of ICMP codes, see icmp_err_convert).
    pub fn remote(e: Errno, doing: &'static str) -> Self {
        let broken = Self::errno(e, doing);
        match e {
            Errno::ACCESS | Errno::NOPROTOOPT | Errno::OPNOTSUPP | Errno::PROTO => {
                Self { why: Failure::Unreachable, ..broken }
            }
            _ => broken,
        }
    }
}

impl fmt::Display for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.what)?;
        let Some(e) = self.errno else { return Ok(()) };
        let hint = match e {
            // what a router says of a packet is nothing that the user of this host can lift
            _ if self.why != Failure::Local => "",
            Errno::ADDRNOTAVAIL => {
                ": out of local ports, or the source address is not this host's; add source addresses"
            }
            Errno::MFILE | Errno::NFILE => ": out of file descriptors; raise the limit (ulimit -n)",
            Errno::ACCESS | Errno::PERM => {
                ": not permitted; for ping set sysctl net.ipv4.ping_group_range=\"0 2147483647\""
            }
            _ => "",
        };
        write!(f, ": {}{hint}", std::io::Error::from(e))
    }
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
                (fd, Wire::Udp { gso: 0 })
            }
            Carrier::Icmp => {
                let v6 = group.address.is_ipv6();
                match icmp_socket(v6).map_err(|e| Broken::errno(e, "ICMP socket"))? {
                    (fd, false) => (fd, Wire::Ping),
                    (fd, true) => (fd, Wire::RawPing { ident: own_ident(), v6 }),
                }
            }
        };
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
            Err(e) => return Err(Broken::errno(e, format!("connect to {}", group.address))),
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
        })
    }

    /// Whether it keeps messages apart.
    pub fn is_datagram(&self) -> bool {
        matches!(self.wire, Wire::Udp { .. } | Wire::Ping | Wire::RawPing { .. })
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
            Wire::Ping => Ok(write_datagrams(&self.fd, None, self.segment, bytes, &mut self.refused)),
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
            return match recv(&self.fd, &mut *buffer, RecvFlags::empty()) {
                Ok((0, _)) if matches!(self.wire, Wire::Tcp) => Ok(Input::End),
                Ok((n, _)) => match self.wire {
                    Wire::RawPing { ident, v6 } => match own_echo(&buffer[..n], ident, v6) {
                        Some(at) => {
                            buffer.copy_within(at..n, 0);
                            Ok(Input::Bytes(n - at))
                        }
                        None => Ok(Input::Aside),
                    },
                    _ => Ok(Input::Bytes(n)),
                },
                Err(Errno::AGAIN) => Ok(Input::Dry),
                Err(Errno::INTR) => continue,
                // an ICMP error about an earlier datagram (RFC 1122 section 4.1.3.3)
                Err(e) if self.is_datagram() => Err(Broken::remote(e, "receive").datagrams(1)),
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

/// The size of each of the datagrams in `len` bytes: see [`Outbox`].
fn datagram(segment: usize, len: usize) -> usize {
    if segment == 0 { len.max(1) } else { segment }
}

/// How often a datagram is tried that the socket answers with an error about another one.
const TRIES: u64 = 4;

/// Give one buffer to the socket. An ICMP error about an earlier datagram is told in place of sending, once each
/// (RFC 1122 section 4.1.3.3): the last of these and how many there were come back too. What is told again and
/// again is about this buffer.
fn give(fd: &OwnedFd, bytes: &[u8]) -> (Result<(), Errno>, Option<(Errno, u64)>) {
    let mut earlier = None;
    loop {
        let times = earlier.map_or(0, |(_, times)| times);
        match send(fd, bytes, SendFlags::NOSIGNAL) {
            Ok(_) => return (Ok(()), earlier),
            Err(Errno::INTR) => {}
            Err(e) if times + 1 < TRIES && Broken::remote(e, "").why != Failure::Local => {
                earlier = Some((e, times + 1));
            }
            Err(e) => return (Err(e), earlier),
        }
    }
}

/// Give datagrams to the socket, with `gso` up to 64 a system call: the kernel cuts them (UDP_SEGMENT). How many
/// bytes are done with; the rest is for when there is room again. A datagram that cannot leave holds up none.
fn write_datagrams(
    fd: &OwnedFd,
    mut gso: Option<&mut usize>,
    segment: usize,
    bytes: &[u8],
    refused: &mut Vec<Broken>,
) -> usize {
    let segment = datagram(segment, bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        let left = bytes.len() - at;
        let size = match &mut gso {
            Some(gso) if left > segment && **gso != usize::MAX => {
                if **gso != segment {
                    let size = i32::try_from(segment).unwrap_or(i32::MAX);
                    **gso = match setsockopt(fd, sockopt::UdpGsoSegment, &size) {
                        Ok(()) => segment,
                        Err(_) => usize::MAX, // not here: one by one
                    };
                    continue;
                }
                let most = (GSO_BYTES / segment).clamp(1, GSO_SEGMENTS) * segment;
                most.min(left)
            }
            _ => segment.min(left),
        };
        let (result, earlier) = give(fd, &bytes[at..at + size]);
        if let Some((e, times)) = earlier.filter(|(e, _)| result != Err(*e)) {
            refuse(refused, Broken::remote(e, "send").datagrams(times));
        }
        match result {
            Ok(()) => at += size,
            Err(Errno::AGAIN | Errno::NOBUFS) => break,
            // segments larger than the path's MTU: the kernel will not cut those
            Err(Errno::INVAL | Errno::MSGSIZE | Errno::IO) if size > segment => {
                let _reset = setsockopt(fd, sockopt::UdpGsoSegment, &0);
                if let Some(gso) = &mut gso {
                    **gso = usize::MAX;
                }
            }
            Err(e) => {
                refuse(refused, Broken::errno(e, "send").datagrams(size.div_ceil(segment) as u64));
                at += size;
            }
        }
    }
    at
}

/// Note datagrams that did not get through.
fn refuse(refused: &mut Vec<Broken>, broken: Broken) {
    match refused.last_mut().filter(|last| last.errno == broken.errno && last.why == broken.why) {
        Some(last) => last.times += broken.times,
        None => refused.push(broken),
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
    let failed = |e: rustls::Error| Broken::new(Failure::Tls, e.to_string());
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

/// Give an echo request our identifier and a right checksum (the kernel does ICMPv6's itself).
fn stamp_ident(message: &mut [u8], ident: u16, v6: bool) {
    if message.len() < 8 {
        return;
    }
    message[4..6].copy_from_slice(&ident.to_be_bytes());
    if !v6 {
        message[2..4].fill(0);
        let mut sum: u32 = 0;
        for pair in message.chunks(2) {
            sum += u32::from(u16::from_be_bytes([pair[0], pair.get(1).copied().unwrap_or(0)]));
        }
        while sum > 0xffff {
            sum = (sum & 0xffff) + (sum >> 16);
        }
        message[2..4].copy_from_slice(&(!(sum as u16)).to_be_bytes());
    }
}

/// An identifier that no other raw socket of this process has, nor, most likely, one of another process: each
/// sees the replies to all.
fn own_ident() -> u16 {
    static GIVEN: AtomicU16 = AtomicU16::new(0);
    (std::process::id() as u16).wrapping_mul(4099).wrapping_add(GIVEN.fetch_add(1, Ordering::Relaxed))
}

/// Where the ICMP message begins, if it is an echo reply with our identifier. IPv4 raw sockets show the
/// IP header too.
fn own_echo(packet: &[u8], ident: u16, v6: bool) -> Option<usize> {
    let at = if v6 { 0 } else { usize::from(packet.first()? & 0x0f) * 4 };
    let icmp = packet.get(at..)?;
    let reply = if v6 { 129 } else { 0 };
    (icmp.len() >= 8 && icmp[0] == reply && icmp[4..6] == ident.to_be_bytes()).then_some(at)
}

/// A ping socket where this user may have one, else a raw one (true).
fn icmp_socket(v6: bool) -> Result<(OwnedFd, bool), Errno> {
    let (family, proto) =
        if v6 { (AddressFamily::INET6, ipproto::ICMPV6) } else { (AddressFamily::INET, ipproto::ICMP) };
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    match socket_with(family, SocketType::DGRAM, flags, Some(proto)) {
        Ok(fd) => Ok((fd, false)),
        Err(Errno::ACCESS) => {
            let raw = socket_with(family, SocketType::RAW, flags, Some(proto));
            raw.map(|fd| (fd, true)).map_err(|_| Errno::ACCESS)
        }
        Err(e) => Err(e),
    }
}

/// Whether this user may send ICMP echoes.
pub(super) fn can_ping(v6: bool) -> Result<(), Errno> {
    icmp_socket(v6).map(drop)
}

/// Whether this address is one of the host's own, so that it can be bound.
pub(super) fn can_bind(source: IpAddr) -> Result<(), Errno> {
    let family = if source.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let fd = socket_with(family, SocketType::DGRAM, SocketFlags::CLOEXEC, Some(ipproto::UDP))?;
    bind(&fd, &SocketAddr::new(source, 0))
}
