//! Datagram sockets: UDP by its ports, ICMP echo by its identifier. Each has one peer.

use crate::connection::Tuple;
use crate::packets::{Packets, Queue};
use crate::ports::Ports;
use crate::table::Table;
use std::collections::VecDeque;
use std::ops::RangeInclusive;

/// Identifiers of echo requests.
const IDENTIFIERS: RangeInclusive<u16> = 1..=u16::MAX;
/// Bytes that wait for the Ethernet address of the next hop, each socket.
const PENDING: usize = 128 << 10;
/// Most kinds of errors that wait to be told, each socket.
const ERRORS: usize = 8;

/// What a socket sends and receives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SocketKind {
    /// Payloads of UDP (RFC 768).
    Udp,
    /// ICMP messages: echo requests, their replies, and errors that quote one of the requests (RFC 792, RFC 4443).
    Echo,
}

impl SocketKind {
    /// What tells equal addresses and ports of two kinds apart in the table.
    pub(crate) fn salt(self) -> u32 {
        match self {
            Self::Udp => 0x5bd1_e995,
            Self::Echo => 0x1b87_3593,
        }
    }
}

/// Names a socket to its owner.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SocketHandle {
    pub(crate) index: u32,
    generation: u32,
}

/// Why datagrams did not get through.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DatagramError {
    /// Nobody on the link has the address of the next hop.
    NoNeighbour,
    /// An ICMP message of this type and code.
    Icmp {
        /// Whether it is ICMPv6.
        v6: bool,
        /// Its type.
        kind: u8,
        /// Its code.
        code: u8,
    },
}

/// Result of [`Stack::send_datagram`](crate::Stack::send_datagram).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sent {
    /// It was sent, or waits for the Ethernet address of the next hop.
    Taken,
    /// The port takes no more now.
    Full,
    /// IP cannot carry as much.
    TooLong,
}

/// Result of [`Stack::receive_datagram`](crate::Stack::receive_datagram).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Arrival {
    /// Nothing for now.
    Dry,
    /// A datagram of so many bytes; whether more can be read at once.
    Datagram(usize, bool),
    /// So many datagrams found the queue full.
    Dropped(u64),
    /// So many datagrams that were sent did not get through.
    Error(DatagramError, u64),
}

/// One socket.
#[derive(Debug)]
pub(crate) struct Socket {
    pub kind: SocketKind,
    pub tuple: Tuple,
    pub neighbour: u32,
    /// The next hop's address is asked for.
    pub is_waiting: bool,
    owner: u64,
    hash: u32,
    generation: u32,
    is_open: bool,
    /// It is in the list of those with events.
    told: bool,
    readable: bool,
    received: Queue,
    room: usize,
    dropped: u64,
    pending: Queue,
    errors: Vec<(DatagramError, u64)>,
}

impl Socket {
    /// Its next hop is known, and datagrams that waited for that are still to be sent.
    pub fn is_resuming(&self) -> bool {
        !self.is_waiting && !self.pending.is_empty()
    }
}

/// All sockets.
#[derive(Debug)]
pub(crate) struct Sockets {
    most: usize,
    table: Table,
    all: Vec<Socket>,
    free: Vec<u32>,
    told: VecDeque<u32>,
    packets: Packets,
    /// Those whose next hop is known now, and whose datagrams wait to be sent.
    ready: VecDeque<u32>,
    udp: Ports,
    echo: Ports,
}

impl Sockets {
    /// None of `most` sockets yet.
    pub fn new(most: usize, ports: RangeInclusive<u16>, secret: u64) -> Self {
        Self {
            most,
            table: Table::new(most),
            all: Vec::new(),
            free: Vec::new(),
            told: VecDeque::new(),
            packets: Packets::default(),
            ready: VecDeque::new(),
            udp: Ports::new(ports, secret),
            echo: Ports::new(IDENTIFIERS, secret),
        }
    }

    /// The socket of this kind with these ends.
    pub fn find(&self, hash: u32, kind: SocketKind, tuple: &Tuple) -> Option<u32> {
        self.table.find(hash, |index| {
            self.all.get(index as usize).is_some_and(|socket| socket.kind == kind && socket.tuple == *tuple)
        })
    }

    /// A port for a new socket with these ends, of which `hash` makes the key; of none of another's flow.
    pub fn port(
        &mut self,
        kind: SocketKind,
        tuple: &Tuple,
        hash: impl Fn(&Tuple) -> Option<u32>,
    ) -> Option<u16> {
        let none = || Ports::new(0..=0, 0);
        let mut ports = match kind {
            SocketKind::Udp => std::mem::replace(&mut self.udp, none()),
            SocketKind::Echo => std::mem::replace(&mut self.echo, none()),
        };
        let found = ports.next(tuple.local, tuple.remote(), |local_port| {
            let tuple = Tuple { local_port, ..*tuple };
            hash(&tuple).is_some_and(|hash| self.find(hash, kind, &tuple).is_none())
        });
        match kind {
            SocketKind::Udp => self.udp = ports,
            SocketKind::Echo => self.echo = ports,
        }
        found
    }

    /// Whether there is room for one more.
    pub fn has_room(&self) -> bool {
        !self.free.is_empty() || self.all.len() < self.most
    }

    /// Open a socket, whose ends no other has.
    pub fn add(
        &mut self,
        (kind, tuple, hash): (SocketKind, Tuple, u32),
        neighbour: u32,
        owner: u64,
        room: usize,
    ) -> SocketHandle {
        let mut socket = Socket {
            kind,
            tuple,
            neighbour,
            is_waiting: false,
            owner,
            hash,
            generation: 0,
            is_open: true,
            told: false,
            readable: false,
            received: Queue::default(),
            room,
            dropped: 0,
            pending: Queue::default(),
            errors: Vec::new(),
        };
        let index = match self.free.pop() {
            Some(index) => {
                let place = &mut self.all[index as usize];
                (socket.generation, socket.told) = (place.generation, place.told);
                *place = socket;
                index
            }
            None => {
                self.all.push(socket);
                self.all.len() as u32 - 1
            }
        };
        self.table.insert(hash, index);
        SocketHandle { index, generation: self.all[index as usize].generation }
    }

    pub fn get(&self, handle: SocketHandle) -> Option<&Socket> {
        self.all.get(handle.index as usize).filter(|socket| socket.generation == handle.generation)
    }

    fn get_mut(&mut self, handle: SocketHandle) -> Option<&mut Socket> {
        self.all.get_mut(handle.index as usize).filter(|socket| socket.generation == handle.generation)
    }

    /// Close a socket. How many of its datagrams were not sent, and how many it dropped since that was last told.
    pub fn close(&mut self, handle: SocketHandle) -> (u64, u64) {
        if self.get(handle).is_none() {
            return (0, 0);
        }
        let socket = &mut self.all[handle.index as usize];
        self.table.remove(socket.hash, handle.index);
        socket.generation = socket.generation.wrapping_add(1);
        (socket.is_open, socket.readable, socket.is_waiting) = (false, false, false);
        socket.errors = Vec::new();
        let dropped = std::mem::take(&mut socket.dropped);
        self.packets.clear(&mut socket.received);
        let unsent = self.packets.clear(&mut socket.pending);
        self.free.push(handle.index);
        (unsent, dropped)
    }

    fn tell(&mut self, index: u32) {
        let socket = &mut self.all[index as usize];
        socket.readable = true;
        if !socket.told {
            socket.told = true;
            self.told.push_back(index);
        }
    }

    /// A datagram came for socket `index`. `false`: its queue is full.
    pub fn deliver(&mut self, index: u32, bytes: &[u8]) -> bool {
        let Some(socket) = self.all.get_mut(index as usize) else { return false };
        let taken = self.packets.push(&mut socket.received, bytes, socket.room);
        socket.dropped += u64::from(!taken);
        self.tell(index);
        taken
    }

    /// `times` datagrams of socket `index` did not get through.
    pub fn fail(&mut self, index: u32, why: DatagramError, times: u64) {
        let Some(socket) = self.all.get_mut(index as usize).filter(|_| times > 0) else { return };
        let full = socket.errors.len() >= ERRORS;
        match socket.errors.iter_mut().find(|(other, _)| *other == why || full) {
            Some((_, already)) => *already += times,
            None => socket.errors.push((why, times)),
        }
        self.tell(index);
    }

    /// A datagram of socket `index` waits for its next hop.
    pub fn wait(&mut self, index: u32, bytes: &[u8]) {
        let socket = &mut self.all[index as usize];
        socket.is_waiting = true;
        if !self.packets.push(&mut socket.pending, bytes, PENDING) {
            self.fail(index, DatagramError::NoNeighbour, 1);
        }
    }

    /// The next hop of socket `index` was `found`, or is `silent`.
    pub fn neighbour_changed(&mut self, index: u32, found: bool, is_silent: impl Fn(u32) -> bool) {
        let Some(socket) = self.all.get_mut(index as usize).filter(|one| one.is_open && one.is_waiting)
        else {
            return;
        };
        if found {
            socket.is_waiting = false;
            self.ready.push_back(index);
        } else if is_silent(socket.neighbour) {
            socket.is_waiting = false;
            let lost = self.packets.clear(&mut socket.pending);
            self.fail(index, DatagramError::NoNeighbour, lost);
        }
    }

    /// A socket whose next hop is known and that has a datagram to be sent.
    pub fn pending(&mut self) -> Option<(&Socket, &[u8])> {
        while let Some(index) = self.ready.front().copied() {
            if self
                .all
                .get(index as usize)
                .is_none_or(|socket| socket.is_waiting || socket.pending.is_empty())
            {
                self.ready.pop_front();
                continue;
            }
            let socket = &self.all[index as usize];
            return Some((socket, self.packets.front(&socket.pending)?));
        }
        None
    }

    /// The datagram of [`pending`](Self::pending) was sent.
    pub fn pending_sent(&mut self) {
        if let Some(socket) = self.ready.front().and_then(|index| self.all.get_mut(*index as usize)) {
            self.packets.pop(&mut socket.pending);
        }
    }

    /// Whether something waits for its owner, or to be sent.
    pub fn is_busy(&self) -> bool {
        !self.told.is_empty() || !self.ready.is_empty()
    }

    /// Who owns the next socket that has something to read.
    pub fn event(&mut self) -> Option<u64> {
        loop {
            let index = self.told.pop_front()?;
            let Some(socket) = self.all.get_mut(index as usize) else { continue };
            socket.told = false;
            if std::mem::take(&mut socket.readable) && socket.is_open {
                return Some(socket.owner);
            }
        }
    }

    /// What came, once.
    pub fn receive(&mut self, handle: SocketHandle, buffer: &mut [u8]) -> Arrival {
        let Some(socket) = self.get_mut(handle) else { return Arrival::Dry };
        if let Some((why, times)) = socket.errors.pop() {
            return Arrival::Error(why, times);
        }
        if socket.dropped > 0 {
            return Arrival::Dropped(std::mem::take(&mut socket.dropped));
        }
        let socket = &mut self.all[handle.index as usize];
        let Some(packet) = self.packets.front(&socket.received) else { return Arrival::Dry };
        let len = packet.len().min(buffer.len());
        buffer[..len].copy_from_slice(&packet[..len]);
        self.packets.pop(&mut socket.received);
        Arrival::Datagram(len, !socket.received.is_empty())
    }
}
