//! One device's connection: a non-blocking kernel socket, with TLS on it or not.

use crate::datagram::{datagram, errors_told, tell_errors, write_datagrams};
use crate::icmp::{echo_request, icmp_socket, own_echo, own_ident, stamp_ident};
use crate::receive_queue::{self, not_sent};
use device::conn_error::CONNECT;
use device::output::Output;
use device::tls::{Records, Session};
use device::{ConnError, Connection, Input};
use nix::sys::socket::{setsockopt, sockopt};
use protocol::meter::Failure;
use protocol::model::Outbox;
use protocol::target::Carrier;
use run::plan::GroupPlan;
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketAddrAny, SocketFlags, SocketType, bind, connect,
    connect_unspec, ipproto, recv, recvfrom, send, socket_with, sockopt as opt,
};

use std::collections::VecDeque;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// A connection.
#[derive(Debug)]
pub(crate) struct Conn {
    fd: OwnedFd,
    /// The target's address.
    peer: SocketAddr,
    wire: Wire,
    /// Whether the kernel has said that it is connected.
    connected: bool,
    /// Datagrams received since somebody asked what the queue dropped.
    pub reads: usize,
    /// Bytes that the socket did not take yet. Datagrams: cut each `segment`.
    out: Output,
    segment: usize,
    /// Datagrams that did not get through, and of which nobody has been told yet.
    refused: Vec<ConnError>,
    /// How many datagrams the socket had dropped when that was last looked at.
    dropped: u32,
}

#[derive(Debug)]
enum Wire {
    /// TCP or SCTP.
    Tcp,
    Tls(Box<Session>),
    Udp {
        gso: usize,
        /// Where datagrams go and come from, once some went elsewhere.
        roaming: Option<Box<Roaming>>,
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

/// Whom a socket that is not connected any more exchanges datagrams with.
#[derive(Debug)]
struct Roaming {
    /// To whom else something was sent; the oldest is forgotten first.
    others: VecDeque<SocketAddr>,
    /// Who sent what was received last, if it was one of these.
    stranger: Option<SocketAddr>,
}

/// Most others.
const OTHERS_MAX: usize = 8;

/// Whether a packet's source is this host; 0.0.0.0 and groups answer with other addresses.
fn is_from(source: SocketAddrAny, host: IpAddr) -> bool {
    host.is_unspecified()
        || host.is_multicast()
        || SocketAddr::try_from(source).is_ok_and(|source| source.ip() == host)
}

impl Conn {
    /// Open the socket of device `device` and begin to connect it to the target's address number `address`.
    pub fn open(group: &GroupPlan, device: u32, address: usize) -> Result<Self, ConnError> {
        let address = group.addresses.at(address);
        let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        let fail = |e| ConnError::errno(e, "socket");
        let (fd, wire) = match group.scheme.carrier {
            Carrier::Stream => {
                let fd = stream_socket(address.is_ipv4(), group.scheme.is_sctp()).map_err(fail)?;
                (fd, Wire::Tcp)
            }
            Carrier::Datagram => {
                let fd = socket_with(family, SocketType::DGRAM, flags, Some(ipproto::UDP)).map_err(fail)?;
                tell_errors(&fd, address.is_ipv6()).map_err(|e| ConnError::errno(e, "socket"))?;
                (fd, Wire::Udp { gso: 0, roaming: None })
            }
            Carrier::Icmp => {
                let v6 = address.is_ipv6();
                match icmp_socket(v6).map_err(|e| ConnError::errno(e, "ICMP socket"))? {
                    (fd, false) => (fd, Wire::Ping { peer: address.ip() }),
                    (fd, true) => (fd, Wire::RawPing { ident: own_ident(), v6 }),
                }
            }
        };
        if group.scheme.carrier != Carrier::Stream {
            receive_queue::enlarge(&fd, group.receive_room);
        }
        if let Some(source) = group.source(device).filter(|source| source.is_ipv4() == address.is_ipv4()) {
            if group.scheme.carrier == Carrier::Stream {
                // the port is then chosen at connect(), per destination: the pool is used up much later
                let _best_effort = setsockopt(&fd, sockopt::IpBindAddressNoPort, &true);
            }
            bind(&fd, &SocketAddr::new(source, 0))
                .map_err(|e| ConnError::errno(e, format!("bind to {source}")))?;
        }
        match connect(&fd, &address) {
            Ok(()) | Err(Errno::INPROGRESS) => {}
            Err(e) => return Err(ConnError::route(e, format!("connect to {address}"))),
        }
        let wire = match &group.tls {
            Some((config, name)) => Wire::Tls(Box::new(Session::new(config, name)?)),
            None => wire,
        };
        Ok(Self::new(fd, address, wire, group.scheme.carrier != Carrier::Stream))
    }

    fn new(fd: OwnedFd, peer: SocketAddr, wire: Wire, connected: bool) -> Self {
        Self {
            fd,
            peer,
            wire,
            connected,
            reads: 0,
            out: Output::default(),
            segment: 0,
            refused: Vec::new(),
            dropped: 0,
        }
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

    /// How many datagrams the socket has not taken yet.
    pub fn unsent(&self) -> u64 {
        let left = self.out.waiting().len();
        if self.is_datagram() { left.div_ceil(datagram(self.segment, left)) as u64 } else { 0 }
    }

    /// Move on what there is to move: the connect, the handshake, what the socket did not take.
    pub fn progress(&mut self) -> Result<(), ConnError> {
        if !self.connected {
            self.connect_result()?;
            self.connected = true;
        }
        self.flush_tls()
    }

    /// The result of a non-blocking connect, once the socket is writable.
    fn connect_result(&self) -> Result<(), ConnError> {
        match opt::socket_error(&self.fd) {
            Ok(Ok(())) => Ok(()),
            Ok(Err(e)) | Err(e) => Err(ConnError::remote(e, CONNECT)),
        }
    }

    /// Move the handshake on: send what TLS wants to send.
    fn flush_tls(&mut self) -> Result<(), ConnError> {
        if let Wire::Tls(tls) = &mut self.wire {
            self.out.append_records(tls)?;
        }
        self.flush()
    }

    /// Send what the model queued; keeps what the socket does not take.
    pub fn send(&mut self, outbox: &mut Outbox) -> Result<(), ConnError> {
        if outbox.bytes.is_empty() {
            return Ok(());
        }
        if !self.is_datagram() {
            self.out.admit()?;
        }
        if let Wire::Tls(tls) = &mut self.wire {
            tls.write(&outbox.bytes)?;
            outbox.bytes.clear();
            return self.flush_tls();
        }
        if !outbox.sizes.is_empty() && self.is_datagram() {
            return self.send_sized(outbox);
        }
        if !self.is_flushed() {
            return self.queue(outbox);
        }
        self.segment = outbox.segment;
        let (sent, broken) = self.write(&outbox.bytes);
        self.out.pass(&outbox.bytes, sent);
        outbox.bytes.clear();
        broken.map_or(Ok(()), Err)
    }

    /// Send datagrams of several sizes. What the socket does not take is refused but for the first, which waits.
    fn send_sized(&mut self, outbox: &mut Outbox) -> Result<(), ConnError> {
        let mut sizes = std::mem::take(&mut outbox.sizes);
        let (all, mut at, mut result) = (sizes.len(), 0, Ok(()));
        for (i, size) in sizes.drain(..).enumerate() {
            if self.is_flushed() {
                let datagram = &outbox.bytes[at..at + size];
                self.segment = 0;
                let taken = if self.write(datagram).0 < size { 0 } else { size };
                self.out.pass(datagram, taken);
            } else {
                let refused = ConnError::new(Failure::Local, "the socket takes no more datagrams");
                result = Err(refused.datagrams((all - i) as u64));
                break;
            }
            at += size;
        }
        outbox.bytes.clear();
        outbox.sizes = sizes;
        result
    }

    /// Send datagrams to others than the peer: from now on the socket is connected to none of them, and takes what comes from
    /// each.
    pub fn send_elsewhere(&mut self, outbox: &mut Outbox) -> Result<(), ConnError> {
        let Wire::Udp { gso, roaming } = &mut self.wire else {
            outbox.elsewhere.clear();
            return Err(ConnError::new(Failure::Local, "only UDP has datagrams for others"));
        };
        let roaming = match roaming {
            Some(roaming) => roaming,
            none => none.insert(Box::new(roam(&self.fd)?)),
        };
        for (to, datagram) in outbox.elsewhere.drain(..) {
            if !roaming.others.contains(&to) {
                if roaming.others.len() == OTHERS_MAX {
                    roaming.others.pop_front();
                }
                roaming.others.push_back(to);
            }
            // what the socket does not take is refused, and does not wait
            self.out.pass(&datagram, datagram.len());
            let sent = write_datagrams(&self.fd, Some(to), Some(gso), 0, &datagram, &mut self.refused);
            if sent < datagram.len() {
                return Err(ConnError::new(Failure::Local, "the socket takes no more datagrams"));
            }
        }
        Ok(())
    }

    /// Put more behind what the socket did not take.
    fn queue(&mut self, outbox: &mut Outbox) -> Result<(), ConnError> {
        if self.is_datagram() {
            let waiting = self.out.waiting().len();
            // they are cut apart by their size: only like ones can stand in one row
            let alike =
                outbox.segment == self.segment && self.segment > 0 && waiting.is_multiple_of(self.segment);
            if !alike {
                return Err(ConnError::new(Failure::Local, "the socket takes no more datagrams"));
            }
        }
        self.out.append(&mut outbox.bytes);
        Ok(())
    }

    /// Try again with what the socket did not take.
    fn flush(&mut self) -> Result<(), ConnError> {
        if self.is_flushed() {
            return Ok(());
        }
        let out = std::mem::take(&mut self.out);
        let (sent, broken) = self.write(out.waiting());
        self.out = out;
        self.out.take(sent);
        broken.map_or(Ok(()), Err)
    }

    /// Write as much as goes; how much went, and what stopped it.
    fn write(&mut self, bytes: &[u8]) -> (usize, Option<ConnError>) {
        let sent = match &mut self.wire {
            Wire::Tcp | Wire::Tls(_) => {
                let mut at = 0;
                while at < bytes.len() {
                    match send(&self.fd, &bytes[at..], SendFlags::NOSIGNAL) {
                        Ok(n) => at += n,
                        Err(Errno::AGAIN) => break,
                        Err(Errno::INTR) => {}
                        Err(e) => return (at, Some(ConnError::remote(e, "send"))),
                    }
                }
                at
            }
            Wire::Udp { gso, roaming } => {
                let to = roaming.is_some().then_some(self.peer);
                write_datagrams(&self.fd, to, Some(gso), self.segment, bytes, &mut self.refused)
            }
            Wire::Ping { peer } => {
                let request = echo_request(peer.is_ipv6());
                if bytes.first() == Some(&request) {
                    let sent = write_datagrams(&self.fd, None, None, self.segment, bytes, &mut self.refused);
                    return (sent, None);
                }
                // the model wrote it for an address of the other family; the kernel makes the checksum
                let mut messages = bytes.to_vec();
                let size = datagram(self.segment, bytes.len());
                messages.chunks_mut(size).for_each(|message| message[0] = request);
                write_datagrams(&self.fd, None, None, self.segment, &messages, &mut self.refused)
            }
            Wire::RawPing { ident, v6 } => {
                let mut messages = bytes.to_vec();
                messages
                    .chunks_mut(datagram(self.segment, bytes.len()))
                    .for_each(|message| stamp_ident(message, *ident, *v6));
                write_datagrams(&self.fd, None, None, self.segment, &messages, &mut self.refused)
            }
        };
        (sent, None)
    }

    /// Read once into `buffer`; `cipher` is room for TLS records.
    pub fn read(&mut self, buffer: &mut [u8], cipher: &mut [u8]) -> Result<Input, ConnError> {
        self.reads += usize::from(self.is_datagram());
        if let Wire::Tls(tls) = &mut self.wire {
            let fd = &self.fd;
            return tls.read(buffer, cipher, |room| records(fd, room));
        }
        loop {
            let (read, from) = match self.wire {
                Wire::Ping { .. } | Wire::Udp { roaming: Some(_), .. } => {
                    match recvfrom(&self.fd, &mut *buffer, RecvFlags::empty()) {
                        Ok((_, n, from)) => (Ok((n, n)), from),
                        Err(e) => (Err(e), None),
                    }
                }
                _ => (recv(&self.fd, &mut *buffer, RecvFlags::empty()), None),
            };
            return match read {
                Ok((0, _)) if matches!(self.wire, Wire::Tcp) => Ok(Input::End { complete: true }),
                Ok((n, _)) => match &mut self.wire {
                    Wire::Udp { roaming: Some(roaming), .. } => match roaming.admits(self.peer, from) {
                        true => Ok(Input::Bytes { len: n, dry: false }),
                        false => Ok(Input::Aside),
                    },
                    &mut Wire::RawPing { ident, v6 } => match own_echo(&buffer[..n], ident, v6) {
                        Some(at) => {
                            buffer.copy_within(at..n, 0);
                            Ok(Input::Bytes { len: n - at, dry: false })
                        }
                        None => Ok(Input::Aside),
                    },
                    Wire::Ping { peer } if from.is_some_and(|from| !is_from(from, *peer)) => Ok(Input::Aside),
                    // of plain TCP a read that does not fill the buffer was the last for now
                    Wire::Tcp => Ok(Input::Bytes { len: n, dry: n < buffer.len() }),
                    _ => Ok(Input::Bytes { len: n, dry: false }),
                },
                Err(Errno::AGAIN) => Ok(Input::Dry),
                Err(Errno::INTR) => continue,
                // an ICMP error about an earlier datagram (RFC 1122 section 4.1.3.3)
                Err(e) if self.is_datagram() => {
                    Err(ConnError::remote(e, "receive").datagrams(errors_told(&self.fd)))
                }
                Err(e) => Err(ConnError::remote(e, "receive")),
            };
        }
    }

    /// Say that nothing more will be sent (TLS: close_notify).
    pub fn close_write(&mut self) {
        if let Wire::Tls(tls) = &mut self.wire {
            tls.end();
            let _nothing_to_lose = self.flush_tls();
        }
    }
}

impl Connection for Conn {
    fn is_datagram(&self) -> bool {
        matches!(self.wire, Wire::Udp { .. } | Wire::Ping { .. } | Wire::RawPing { .. })
    }

    fn is_up(&self) -> bool {
        self.connected
            && match &self.wire {
                Wire::Tls(tls) => !tls.is_handshaking(),
                _ => true,
            }
    }

    fn local(&self) -> Option<SocketAddr> {
        let is_icmp = matches!(self.wire, Wire::Ping { .. } | Wire::RawPing { .. });
        if is_icmp { None } else { rustix::net::getsockname(&self.fd).ok()?.try_into().ok() }
    }

    fn peer(&self) -> Option<SocketAddr> {
        Some(self.peer)
    }

    fn stranger(&self) -> Option<SocketAddr> {
        match &self.wire {
            Wire::Udp { roaming: Some(roaming), .. } => roaming.stranger,
            _ => None,
        }
    }

    fn is_flushed(&self) -> bool {
        self.out.is_empty()
    }

    fn queued_bytes(&self) -> u64 {
        self.out.given()
    }

    fn sent_bytes(&mut self, exact: bool) -> u64 {
        let fd = &self.fd;
        self.out.sent(exact, || not_sent(fd))
    }

    fn take_refused(&mut self) -> Option<ConnError> {
        self.refused.pop()
    }
}

impl Roaming {
    /// Whether what comes from there is taken.
    fn admits(&mut self, peer: SocketAddr, from: Option<SocketAddrAny>) -> bool {
        let from = from.and_then(|from| SocketAddr::try_from(from).ok());
        self.stranger = from.filter(|from| *from != peer);
        self.stranger.is_none_or(|from| self.others.contains(&from))
    }
}

/// Have a connected socket exchange datagrams with others too, from the same address and port.
fn roam(fd: &OwnedFd) -> Result<Roaming, ConnError> {
    let fail = |e| ConnError::errno(e, "send elsewhere");
    let local = rustix::net::getsockname(fd).map_err(fail)?;
    connect_unspec(fd).map_err(fail)?;
    // the port that the kernel had chosen was given back with the connection
    bind(fd, &local).map_err(fail)?;
    Ok(Roaming { others: VecDeque::new(), stranger: None })
}

impl AsFd for Conn {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// Read TLS records, once.
fn records(fd: &OwnedFd, room: &mut [u8]) -> Result<Records, ConnError> {
    loop {
        match recv(fd, &mut *room, RecvFlags::empty()) {
            Ok((0, _)) => return Ok(Records::End),
            Ok((n, _)) => return Ok(Records::Bytes(n)),
            Err(Errno::AGAIN) => return Ok(Records::Dry),
            Err(Errno::INTR) => {}
            Err(e) => return Err(ConnError::remote(e, "receive")),
        }
    }
}

/// A socket of TCP, or of SCTP with one association (RFC 6458 section 4), that sends at once.
pub(super) fn stream_socket(v4: bool, sctp: bool) -> Result<OwnedFd, Errno> {
    let family = if v4 { AddressFamily::INET } else { AddressFamily::INET6 };
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    if sctp {
        return socket_with(family, SocketType::STREAM, flags, Some(ipproto::SCTP));
    }
    let fd = socket_with(family, SocketType::STREAM, flags, Some(ipproto::TCP))?;
    opt::set_tcp_nodelay(&fd, true)?;
    Ok(fd)
}

/// Whether this address is one of the host's own, so that it can be bound.
pub(super) fn can_bind(source: IpAddr) -> Result<(), Errno> {
    let family = if source.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let fd = socket_with(family, SocketType::DGRAM, SocketFlags::CLOEXEC, Some(ipproto::UDP))?;
    bind(&fd, &SocketAddr::new(source, 0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use run::{Plan, Trial};
    use rustix::net::sendto;
    use std::process::Command;

    #[test]
    fn pings_of_others_are_not_for_the_model() {
        // in a new namespace nobody has ping sockets, and root has raw ones, which see every host's ICMP
        if !outcome::network_namespace() {
            return;
        }
        assert!(Command::new("ip").args(["link", "set", "lo", "up"]).status().expect("iproute2").success());
        let text = r#"{"name": "t", "groups": [{"name": "g", "target": "ping://127.0.0.1", "model": {"ping": {}}}]}"#;
        let plan = Plan::new(profile::load(text).expect("good"), &Trial::default()).expect("a plan");
        let mut conn = Conn::open(&plan.groups[0], 0, 0).expect("a raw socket");
        assert!(matches!(conn.wire, Wire::RawPing { .. }));
        let other = rustix::net::socket(AddressFamily::INET, SocketType::RAW, Some(ipproto::ICMP))
            .expect("a raw socket");
        let here: SocketAddr = "127.0.0.1:0".parse().expect("an address");
        // an echo request of identifier 0 (RFC 792), which the kernel answers
        let request = [8, 0, 0xf7, 0xff, 0, 0, 0, 0];
        for _ in 0..50 {
            sendto(&other, &request, SendFlags::empty(), &here).expect("sent");
        }
        let (mut buffer, mut cipher, mut aside) = ([0; 2048], [], 0);
        loop {
            match conn.read(&mut buffer, &mut cipher).expect("readable") {
                Input::Aside => aside += 1,
                Input::Dry => break,
                other => panic!("{other:?}"),
            }
        }
        assert_eq!(aside, 100, "each request, and each reply");
    }
}
