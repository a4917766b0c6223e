//! Datagram sockets of a stack: open, send, receive, close; datagrams and ICMP errors that arrive for them.

use super::frames::{Replies, send_ready};
use super::icmp::told_mtu;
use super::{ConnectError, REPLIES, Stack, hash};
use crate::config::Config;
use crate::connection::Tuple;
use crate::counters::{Counters, DropReason};
use crate::fragments::{FRAGMENT, HEADER as FRAGMENT_HEADER, cut, pieces};
use crate::listening::{Listening, SendOutcome};
use crate::neighbours::{Reach, next_hop};
use crate::path_mtu::PathMtus;
use crate::sockets::{Arrival, DatagramError, Sent, SocketHandle, SocketKind};
use crate::wire::{Link, Transmit, datagram_size, send_datagram};
use packet::icmp_error::{IcmpError, PacketOutcome, Quoted};
use packet::layers::{Layers, protocol};
use packet::udp::Datagram;
use packet::{Mac, ethernet, ipv4, ipv6};
use std::collections::VecDeque;
use std::net::{IpAddr, SocketAddr};

/// Among those who wait for a neighbour: it is a datagram socket, and no connection.
pub(super) const SOCKET: u32 = 1 << 31;

/// Types of echo replies (RFC 792, RFC 4443 section 4.2).
const REPLY_V4: u8 = 0;
const REPLY_V6: u8 = 129;
/// Bytes before what an ICMP error quotes.
const ICMP: usize = 8;

/// What datagrams are sent with.
struct Line<'a> {
    config: &'a Config,
    replies: &'a mut VecDeque<Vec<u8>>,
    spare: &'a mut Vec<Vec<u8>>,
    paths: &'a PathMtus,
    now: u64,
    identification: &'a mut u32,
    whole: &'a mut Vec<u8>,
    counters: &'a mut Counters,
}

/// Takes one frame.
struct FrameBuffer<'a>(&'a mut Vec<u8>);

impl Transmit for FrameBuffer<'_> {
    fn frame(&mut self, len: usize) -> Option<&mut [u8]> {
        self.0.clear();
        self.0.resize(len, 0);
        Some(self.0)
    }
}

impl Line<'_> {
    /// Send a datagram to an Ethernet address. `false`: there was no room.
    fn send(
        &mut self,
        (kind, tuple): (SocketKind, &Tuple),
        destination: Mac,
        bytes: &[u8],
        to: &mut impl Transmit,
    ) -> bool {
        let Config { mac, tags, mtu, .. } = *self.config;
        // longer ones go in fragments that routers may cut further, as long as it is not known better
        let mtu = self.paths.get(tuple.remote, self.now).unwrap_or(mtu).min(mtu);
        let link = Link { source: mac, destination, tags };
        let v6 = !tuple.local.is_ipv4();
        let body = datagram_size(kind, bytes);
        if body + if v6 { ipv6::LEN } else { ipv4::LEN } <= mtu.into() {
            // it does not overtake the fragments of one that was sent before
            let sent = send_ready(self.replies, self.spare, self.counters, to)
                && send_datagram(to, &link, kind, tuple, bytes);
            self.counters.datagrams_sent += u64::from(sent);
            self.counters.frames_sent += u64::from(sent);
            return sent;
        }
        // all pieces go, or none
        if self.replies.len() + pieces(body, v6, mtu) > REPLIES
            || !send_datagram(&mut FrameBuffer(self.whole), &link, kind, tuple, bytes)
        {
            return false;
        }
        *self.identification = self.identification.wrapping_add(1);
        let ip = ethernet::LEN + tags.bytes().len();
        let mut queue = Replies { replies: self.replies, spare: self.spare };
        self.counters.datagrams_sent += 1;
        cut(self.whole, ip, v6, mtu, *self.identification, &mut queue)
    }
}

impl Stack {
    fn key(&self, kind: SocketKind, tuple: &Tuple) -> u32 {
        hash(self.config.secret, tuple) as u32 ^ kind.salt()
    }

    /// Open a datagram socket from one of our addresses to one peer; of echoes the port means nothing. `owner` is told of
    /// arrivals, for which there are `room` bytes.
    pub fn open_socket(
        &mut self,
        kind: SocketKind,
        local: IpAddr,
        remote: SocketAddr,
        owner: u64,
        room: usize,
    ) -> Result<SocketHandle, ConnectError> {
        let hop = next_hop(&self.config, remote.ip()).ok_or(ConnectError::NoRoute)?;
        if !self.sockets.has_room() {
            return Err(ConnectError::NoRoom);
        }
        let remote_port = if kind == SocketKind::Udp { remote.port() } else { 0 };
        let tuple = Tuple { local, remote: remote.ip(), local_port: 0, remote_port };
        let (secret, share) = (self.config.secret, self.config.share);
        let key = |tuple: &Tuple| {
            let own = share.has((tuple.local, tuple.remote), (tuple.local_port, tuple.remote_port));
            own.then(|| hash(secret, tuple) as u32 ^ kind.salt())
        };
        let port = self.sockets.port(kind, &tuple, key);
        let tuple = Tuple { local_port: port.ok_or(ConnectError::NoPort)?, ..tuple };
        let hash = self.key(kind, &tuple);
        let neighbour = self.neighbours.hold(hop).ok_or(ConnectError::NoRoom)?;
        Ok(self.sockets.add((kind, tuple, hash), neighbour, owner, room))
    }

    /// Our end of a socket: of echoes the identifier stands in the place of the port.
    pub fn socket_local(&self, socket: SocketHandle) -> Option<SocketAddr> {
        self.sockets.get(socket).map(|socket| socket.tuple.local())
    }

    /// Send a datagram: a payload of UDP, or an ICMP echo request, which gets its type, identifier and checksum here. One that is
    /// longer than a packet is sent in fragments.
    pub fn send_datagram(
        &mut self,
        handle: SocketHandle,
        bytes: &[u8],
        now: u64,
        to: &mut impl Transmit,
    ) -> Sent {
        let Some(socket) = self.sockets.get(handle) else { return Sent::Taken };
        let header = if socket.tuple.local.is_ipv4() { ipv4::LEN } else { 0 };
        if header + datagram_size(socket.kind, bytes) > u16::MAX.into() {
            return Sent::TooLong;
        }
        if socket.is_resuming() {
            return Sent::Full;
        }
        let (index, neighbour) = (handle.index, socket.neighbour);
        let reach = match self.config.peer {
            Some(mac) => Reach::Known(mac),
            None if socket.is_waiting => Reach::Unknown,
            None => self.neighbours.reach(neighbour, Some(index | SOCKET), now),
        };
        let Reach::Known(destination) = reach else {
            self.sockets.wait(index, bytes);
            return Sent::Taken;
        };
        let (config, replies, spare) = (&self.config, &mut self.replies, &mut self.spare);
        let paths = &self.paths;
        let (identification, whole) = (&mut self.identification, &mut self.whole);
        let mut line =
            Line { config, replies, spare, paths, now, identification, whole, counters: &mut self.counters };
        if line.send((socket.kind, &socket.tuple), destination, bytes, to) { Sent::Taken } else { Sent::Full }
    }

    /// Send the datagrams that waited for their next hop; whether that was all.
    pub(super) fn transmit_pending(&mut self, now: u64, to: &mut impl Transmit) -> bool {
        let (config, replies, spare) = (&self.config, &mut self.replies, &mut self.spare);
        let paths = &self.paths;
        let (identification, whole) = (&mut self.identification, &mut self.whole);
        let mut line =
            Line { config, replies, spare, paths, now, identification, whole, counters: &mut self.counters };
        while let Some((socket, bytes)) = self.sockets.pending() {
            let reach = match line.config.peer {
                Some(mac) => Reach::Known(mac),
                None => self.neighbours.reach(socket.neighbour, None, now),
            };
            if let Reach::Known(destination) = reach
                && !line.send((socket.kind, &socket.tuple), destination, bytes, to)
            {
                return false;
            }
            self.sockets.pending_sent();
        }
        true
    }

    /// What came to a socket, once: of UDP a payload, of echoes the ICMP message.
    pub fn receive_datagram(&mut self, socket: SocketHandle, buffer: &mut [u8]) -> Arrival {
        self.sockets.receive(socket, buffer)
    }

    /// Close a socket. How many of its datagrams were never sent, and how many its queue dropped since that was last told.
    pub fn close_socket(&mut self, socket: SocketHandle) -> (u64, u64) {
        if let Some(open) = self.sockets.get(socket) {
            self.neighbours.release(open.neighbour);
        }
        self.sockets.close(socket)
    }

    /// Take datagrams from anybody at a port of one of our addresses; `room` bytes of them wait.
    pub fn listen_datagrams(&mut self, local: SocketAddr, room: usize) {
        self.listening = Some(Listening::new(local, room));
    }

    /// A datagram that came to where it listens: its length, and who sent it.
    pub fn take_datagram(&mut self, buffer: &mut [u8]) -> Option<(usize, SocketAddr)> {
        self.listening.as_mut()?.receive(buffer)
    }

    /// Whether a datagram came to where it listens.
    pub fn has_datagram(&self) -> bool {
        self.listening.as_ref().is_some_and(|one| !one.is_empty())
    }

    /// How many datagrams found no room where it listens.
    pub fn overflowed_datagrams(&self) -> u64 {
        self.listening.as_ref().map_or(0, |one| one.dropped)
    }

    /// Send a datagram from where it listens.
    pub fn send_datagram_to(
        &mut self,
        remote: SocketAddr,
        bytes: &[u8],
        now: u64,
        to: &mut impl Transmit,
    ) -> SendOutcome {
        let Some(local) = self.listening.as_ref().map(|one| one.local) else { return SendOutcome::Lost };
        let header = if local.is_ipv4() { ipv4::LEN } else { 0 };
        if header + datagram_size(SocketKind::Udp, bytes) > u16::MAX.into() {
            return SendOutcome::Lost;
        }
        let neighbour = next_hop(&self.config, remote.ip()).and_then(|hop| self.neighbours.number(hop));
        let Some(neighbour) = neighbour else { return SendOutcome::Lost };
        let reach = match self.config.peer {
            Some(mac) => Reach::Known(mac),
            None => self.neighbours.reach(neighbour, None, now),
        };
        let destination = match reach {
            Reach::Known(mac) => mac,
            Reach::Unknown => return SendOutcome::Later,
            Reach::Silent => return SendOutcome::Lost,
        };
        let tuple = Tuple {
            local: local.ip(),
            remote: remote.ip(),
            local_port: local.port(),
            remote_port: remote.port(),
        };
        let (config, replies, spare) = (&self.config, &mut self.replies, &mut self.spare);
        let paths = &self.paths;
        let (identification, whole) = (&mut self.identification, &mut self.whole);
        let mut line =
            Line { config, replies, spare, paths, now, identification, whole, counters: &mut self.counters };
        if line.send((SocketKind::Udp, &tuple), destination, bytes, to) {
            if let Some(one) = &mut self.listening {
                one.answered(&tuple, bytes.len());
            }
            SendOutcome::Sent
        } else {
            SendOutcome::Later
        }
    }

    /// A datagram came; `false`: for nobody.
    fn deliver(&mut self, kind: SocketKind, tuple: &Tuple, bytes: &[u8]) -> bool {
        match self.sockets.find(self.key(kind, tuple), kind, tuple) {
            Some(index) if self.sockets.deliver(index, bytes) => self.counters.datagrams_received += 1,
            Some(_) => self.counters.drop(DropReason::SocketFull),
            None if kind == SocketKind::Udp
                && self.listening.as_ref().is_some_and(|one| one.matches(tuple)) =>
            {
                let taken = self.listening.as_mut().is_some_and(|one| one.deliver(tuple, bytes));
                if taken {
                    self.counters.datagrams_received += 1;
                } else {
                    self.counters.drop(DropReason::SocketFull);
                }
            }
            None => {
                self.counters.drop(DropReason::NoConnection);
                return false;
            }
        }
        true
    }

    /// A UDP datagram arrived.
    pub(super) fn take_udp(
        &mut self,
        frame: &[u8],
        (layers, is_checked): (&Layers, bool),
        from: Mac,
        now: u64,
    ) {
        let Some((remote, local)) = Self::destination(frame, layers) else { return };
        if !self.owns(local) {
            return self.counters.drop(DropReason::NotForUs);
        }
        let parsed =
            if is_checked { Datagram::trusted(frame, layers) } else { Datagram::parse(frame, layers) };
        let datagram = match parsed {
            Ok(datagram) => datagram,
            Err(packet::Fault::BadChecksum) => return self.counters.drop(DropReason::BadChecksum),
            Err(_) => return self.counters.drop(DropReason::Malformed),
        };
        let tuple = Tuple { local, remote, local_port: datagram.destination, remote_port: datagram.source };
        if !self.deliver(SocketKind::Udp, &tuple, datagram.payload) {
            self.reply_port_unreachable(frame, layers, &tuple, from, now);
        }
    }

    /// An ICMP message arrived for one of our addresses: whether it is an echo reply.
    pub(super) fn take_echo_reply(&mut self, frame: &[u8], layers: &Layers) -> bool {
        let message = layers.segment(frame);
        let reply = if layers.is_v6() { REPLY_V6 } else { REPLY_V4 };
        let Some(&[kind, 0, _, _, high, low, _, _]) = message.first_chunk::<ICMP>() else { return false };
        let Some((remote, local)) = Self::destination(frame, layers).filter(|_| kind == reply) else {
            return false;
        };
        if !layers.is_intact(frame) {
            self.counters.drop(DropReason::BadChecksum);
            return true;
        }
        let local_port = u16::from_be_bytes([high, low]);
        self.deliver(SocketKind::Echo, &Tuple { local, remote, local_port, remote_port: 0 }, message);
        true
    }

    /// An ICMP message quotes a datagram. It is believed when that is of one of the sockets.
    pub(super) fn take_datagram_error(
        &mut self,
        error: &IcmpError,
        quoted: &Quoted,
        message: &[u8],
        now: u64,
    ) {
        let (local, remote) = (quoted.source, quoted.destination);
        let kind = if quoted.protocol == protocol::UDP { SocketKind::Udp } else { SocketKind::Echo };
        let local_port = match kind {
            SocketKind::Udp => Some(local.port()),
            SocketKind::Echo => identifier(message, remote.is_ipv6()),
        };
        let (v6, remote_port) = (remote.is_ipv6(), remote.port());
        let tuple = local_port.map(|local_port| Tuple {
            local: local.ip(),
            remote: remote.ip(),
            local_port,
            remote_port,
        });
        let found = tuple.and_then(|tuple| self.sockets.find(self.key(kind, &tuple), kind, &tuple));
        let answered = kind == SocketKind::Udp
            && self.listening.as_ref().is_some_and(|one| tuple.is_some_and(|tuple| one.has_answered(&tuple)));
        if found.is_none() && !answered {
            return self.drop_foreign(tuple.as_ref());
        }
        if let Some(told) = told_mtu(message, v6)
            && !self.paths.learn(remote.ip(), told, self.config.mtu, now)
        {
            return self.counters.drop(DropReason::ForeignIcmp);
        }
        let (Some(index), [icmp, code, ..]) = (found, message) else { return };
        if error.outcome == PacketOutcome::Forwarded {
            return;
        }
        match kind {
            SocketKind::Udp => {
                self.sockets.fail(index, DatagramError::Icmp { v6, kind: *icmp, code: *code }, 1)
            }
            SocketKind::Echo if !self.sockets.deliver(index, message) => {
                self.counters.drop(DropReason::SocketFull)
            }
            SocketKind::Echo => {}
        }
    }
}

/// The identifier of the echo request that an ICMP error quotes.
fn identifier(message: &[u8], v6: bool) -> Option<u16> {
    let quoted = message.get(ICMP..)?;
    let header = match v6 {
        true if quoted.get(6)? == &FRAGMENT => ipv6::LEN + FRAGMENT_HEADER,
        true => ipv6::LEN,
        false => usize::from(quoted.first()? & 0x0f) * (ipv4::LEN / 5),
    };
    let request = if v6 { 128 } else { 8 };
    match quoted.get(header..)? {
        [kind, 0, _, _, high, low, ..] if *kind == request => Some(u16::from_be_bytes([*high, *low])),
        _ => None,
    }
}
