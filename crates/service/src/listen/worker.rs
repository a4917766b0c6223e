//! One worker: its connections, their timers and delayed replies.

use super::Board;
use super::connection::{Connection, Stage};
use crate::output::Action;
use crate::{ConnectionId, Output, Service};
use rustix::buffer::spare_capacity;
use rustix::event::Timespec;
use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::io::Errno;
use rustix::net::{RecvFlags, recv};
use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::io;
use std::net::TcpListener;
use std::os::fd::OwnedFd;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// Events that are taken at a time.
const EVENTS: usize = 256;
/// Longest wait, so that the end is noticed.
const TURN: Duration = Duration::from_millis(50);
/// How long a peer has to close after the server has.
const LINGER: u64 = 1_000_000_000;
/// How long nothing is accepted after the process had no room for another connection.
const PAUSE: Duration = Duration::from_millis(100);
/// Bytes of memory for replies that are kept for the next ones.
const KEPT: usize = 16 << 20;
/// The event of the socket that listens.
const ACCEPT: u64 = u64::MAX;

/// What waits for its time.
#[derive(Debug)]
enum Delayed {
    Bytes(Vec<u8>),
    Fill(usize),
    Close,
}

#[derive(Debug, Default)]
struct Slot {
    generation: u32,
    connection: Option<Connection>,
}

pub(super) struct Worker {
    listener: TcpListener,
    epoll: OwnedFd,
    events: Vec<epoll::Event>,
    slots: Vec<Slot>,
    free: Vec<u32>,
    /// When services are to be called; `true`: a connection has lingered long enough.
    timers: BinaryHeap<Reverse<(u64, ConnectionId, bool)>>,
    /// In the order of their times, since the delay is the same for all.
    delayed: VecDeque<(u64, ConnectionId, Delayed)>,
    delay: u64,
    out: Output,
    /// Connections that something was done with.
    touched: Vec<u32>,
    buffer: Vec<u8>,
    began: Instant,
    pauses_until: Option<Instant>,
}

impl Worker {
    pub fn new(listener: TcpListener, delay: u64) -> io::Result<Self> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        epoll::add(&epoll, &listener, EventData::new_u64(ACCEPT), EventFlags::IN)?;
        Ok(Self {
            listener,
            epoll,
            events: Vec::with_capacity(EVENTS),
            slots: Vec::new(),
            free: Vec::new(),
            timers: BinaryHeap::new(),
            delayed: VecDeque::new(),
            delay,
            out: Output::default(),
            touched: Vec::new(),
            buffer: vec![0; 64 << 10],
            began: Instant::now(),
            pauses_until: None,
        })
    }

    /// Serve until all are to end; leave the counts on the board now and then, and when they are asked for.
    pub fn run(&mut self, service: &mut impl Service, number: usize, board: &Board) -> io::Result<()> {
        let (mut told, mut answered) = (Instant::now(), 0);
        while !board.over.load(Ordering::Relaxed) {
            // before what came up to now is read
            let asked = board.asked.load(Ordering::Relaxed);
            self.wait()?;
            self.out.now = self.now();
            for at in 0..self.events.len() {
                let event = self.events[at];
                match event.data.u64() {
                    ACCEPT => self.accept(service)?,
                    slot => self.ready(slot as u32, event.flags, service),
                }
            }
            self.due(service);
            self.settle(service);
            if asked > answered || told.elapsed() >= TURN {
                (told, answered) = (Instant::now(), asked);
                board.leave(number, asked, service.counters());
            }
        }
        board.leave(number, u64::MAX, service.counters());
        Ok(())
    }

    fn now(&self) -> u64 {
        u64::try_from(self.began.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }

    fn wait(&mut self) -> io::Result<()> {
        if self.pauses_until.is_some_and(|until| until <= Instant::now()) {
            self.pauses_until = None;
            epoll::modify(&self.epoll, &self.listener, EventData::new_u64(ACCEPT), EventFlags::IN)?;
        }
        let now = self.now();
        let timer = self.timers.peek().map(|Reverse((at, ..))| *at);
        let next = timer.into_iter().chain(self.delayed.front().map(|(at, ..)| *at)).min();
        let left = next.map_or(TURN, |at| Duration::from_nanos(at.saturating_sub(now)).min(TURN));
        let wait = Timespec { tv_sec: 0, tv_nsec: i64::from(left.subsec_nanos()) };
        self.events.clear();
        match epoll::wait(&self.epoll, spare_capacity(&mut self.events), Some(&wait)) {
            Ok(_) | Err(Errno::INTR) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    fn accept(&mut self, service: &mut impl Service) -> io::Result<()> {
        for _ in 0..EVENTS {
            match self.listener.accept() {
                Ok((stream, _)) => {
                    if stream.set_nonblocking(true).is_err() {
                        continue;
                    }
                    let _as_it_is = stream.set_nodelay(true);
                    let slot = self.free.pop().unwrap_or_else(|| {
                        self.slots.push(Slot::default());
                        self.slots.len() as u32 - 1
                    });
                    let added =
                        epoll::add(&self.epoll, &stream, EventData::new_u64(slot.into()), EventFlags::IN);
                    if added.is_err() {
                        self.free.push(slot);
                        continue;
                    }
                    let place = &mut self.slots[slot as usize];
                    place.connection = Some(Connection::new(stream));
                    let id = ConnectionId { slot, generation: place.generation };
                    service.opened(id, &mut self.out);
                    self.apply();
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                // no descriptor or memory is left: those that wait are accepted later
                Err(error) if is_full(&error) => {
                    self.pauses_until = Some(Instant::now() + PAUSE);
                    let nothing = EventFlags::empty();
                    epoll::modify(&self.epoll, &self.listener, EventData::new_u64(ACCEPT), nothing)?;
                    break;
                }
                // of a connection that is gone already
                Err(_) => {}
            }
        }
        Ok(())
    }

    fn id(&self, slot: u32) -> ConnectionId {
        ConnectionId { slot, generation: self.slots[slot as usize].generation }
    }

    fn get(&mut self, id: ConnectionId) -> Option<&mut Connection> {
        let slot = self.slots.get_mut(id.slot as usize)?;
        if slot.generation == id.generation { slot.connection.as_mut() } else { None }
    }

    fn ready(&mut self, slot: u32, flags: EventFlags, service: &mut impl Service) {
        let id = self.id(slot);
        let Some(connection) = self.get(id) else { return };
        if flags.contains(EventFlags::OUT) {
            connection.flush();
        }
        if flags.intersects(EventFlags::IN | EventFlags::HUP | EventFlags::ERR) {
            self.read(id, service);
        }
        self.touched.push(slot);
    }

    fn read(&mut self, id: ConnectionId, service: &mut impl Service) {
        let mut buffer = std::mem::take(&mut self.buffer);
        self.read_into(&mut buffer, id, service);
        self.buffer = buffer;
    }

    fn read_into(&mut self, buffer: &mut [u8], id: ConnectionId, service: &mut impl Service) {
        let Some(connection) = self.get(id) else { return };
        let length = match recv(&connection.stream, &mut *buffer, RecvFlags::DONTWAIT) {
            Ok((length, _)) => length,
            Err(Errno::INTR | Errno::AGAIN) => return,
            Err(_) => {
                connection.stage = Stage::Gone;
                return;
            }
        };
        match connection.stage {
            // the peer sends no more; it may still read
            Stage::Open if length == 0 => connection.ended = true,
            _ if length == 0 => connection.stage = Stage::Gone,
            Stage::Open if connection.input.is_empty() => {
                let used = self.pass(id, &buffer[..length], service);
                if let Some(connection) = self.get(id) {
                    connection.input.extend_from_slice(&buffer[used..length]);
                }
            }
            Stage::Open => {
                connection.input.extend_from_slice(&buffer[..length]);
                self.go_on(id, service);
            }
            _ => {}
        }
    }

    /// Pass what was not used before.
    fn go_on(&mut self, id: ConnectionId, service: &mut impl Service) {
        let Some(connection) = self.get(id) else { return };
        let mut input = std::mem::take(&mut connection.input);
        let used = self.pass(id, &input, service);
        if let Some(connection) = self.get(id)
            && used < input.len()
        {
            input.drain(..used);
            connection.input = input;
        }
    }

    /// Pass bytes as long as they are used; how many were.
    fn pass(&mut self, id: ConnectionId, bytes: &[u8], service: &mut impl Service) -> usize {
        let mut used = 0;
        while used < bytes.len() && self.get(id).is_some_and(|one| one.stage == Stage::Open && !one.is_full())
        {
            let taken = service.received(id, &bytes[used..], &mut self.out);
            self.apply();
            used += taken;
            if taken == 0 {
                break;
            }
        }
        used
    }

    /// Do what the service has asked for.
    fn apply(&mut self) {
        let bytes = std::mem::take(&mut self.out.bytes);
        let mut actions = std::mem::take(&mut self.out.actions);
        let (mut rest, at) = (&bytes[..], self.out.now + self.delay);
        for action in actions.drain(..) {
            let (id, what) = match action {
                Action::Wake(id, at) => {
                    self.timers.push(Reverse((at, id, false)));
                    continue;
                }
                Action::Send(id, length) => {
                    let (mine, after) = rest.split_at(length);
                    rest = after;
                    if self.delay == 0 {
                        if let Some(connection) = self.get(id) {
                            connection.send(mine);
                            self.touched.push(id.slot);
                        }
                        continue;
                    }
                    (id, Delayed::Bytes(mine.to_vec()))
                }
                Action::Fill(id, length) => (id, Delayed::Fill(length)),
                Action::Close(id) => (id, Delayed::Close),
            };
            if self.delay == 0 {
                self.perform(id, &what);
            } else if let Some(connection) = self.get(id) {
                connection.delayed += what.len();
                self.delayed.push_back((at, id, what));
            }
        }
        // a message for very many is not to stay here
        (self.out.bytes, self.out.actions) =
            (if bytes.capacity() > KEPT { Vec::new() } else { bytes }, actions);
        self.out.bytes.clear();
    }

    fn perform(&mut self, id: ConnectionId, what: &Delayed) {
        let Some(connection) = self.get(id) else { return };
        match what {
            Delayed::Bytes(bytes) => connection.send(bytes),
            Delayed::Fill(length) => connection.fill(*length),
            Delayed::Close if connection.stage == Stage::Open => connection.stage = Stage::Finishing,
            Delayed::Close => {}
        }
        self.touched.push(id.slot);
    }

    /// Timers and delayed replies whose time has come.
    fn due(&mut self, service: &mut impl Service) {
        let now = self.now();
        self.out.now = now;
        while self.delayed.front().is_some_and(|(at, ..)| *at <= now) {
            let Some((_, id, what)) = self.delayed.pop_front() else { break };
            if let Some(connection) = self.get(id) {
                connection.delayed -= what.len();
            }
            self.perform(id, &what);
        }
        while self.timers.peek().is_some_and(|Reverse((at, ..))| *at <= now) {
            let Some(Reverse((_, id, lingers))) = self.timers.pop() else { break };
            let Some(connection) = self.get(id) else { continue };
            if lingers {
                connection.stage = Stage::Gone;
                self.touched.push(id.slot);
            } else {
                service.timer(id, &mut self.out);
                self.apply();
            }
        }
    }

    /// Go on with connections that have room again, close those that are over, and tell epoll what is waited for.
    fn settle(&mut self, service: &mut impl Service) {
        while let Some(slot) = self.touched.pop() {
            let id = self.id(slot);
            let Some(connection) = self.get(id) else { continue };
            if !connection.is_full() && !connection.input.is_empty() && !connection.waits_for_input {
                self.go_on(id, service);
            }
            let until = self.now() + LINGER;
            let Some(connection) = self.get(id) else { continue };
            // what came before the end is used, as far as it can be
            if connection.ended && connection.stage == Stage::Open && !connection.is_full() {
                connection.stage = Stage::Finishing;
            }
            if connection.finish() {
                self.timers.push(Reverse((until, id, true)));
            }
            let Some(connection) = self.get(id) else { continue };
            if connection.stage == Stage::Gone {
                self.close(id, service);
            } else {
                self.watch(id);
            }
        }
    }

    fn watch(&mut self, id: ConnectionId) {
        let Some(slot) = self.slots.get_mut(id.slot as usize) else { return };
        let Some(connection) = slot.connection.as_mut() else { return };
        let room = connection.unsent() > 0;
        let input = match connection.stage {
            Stage::Open => !connection.is_full() && !connection.ended,
            Stage::Lingering => true,
            Stage::Finishing | Stage::Gone => false,
        };
        if (room, input) == (connection.waits_for_room, connection.waits_for_input) {
            return;
        }
        (connection.waits_for_room, connection.waits_for_input) = (room, input);
        let mut flags = EventFlags::empty();
        flags.set(EventFlags::OUT, room);
        flags.set(EventFlags::IN, input);
        let data = EventData::new_u64(id.slot.into());
        if epoll::modify(&self.epoll, &connection.stream, data, flags).is_err() {
            connection.stage = Stage::Gone;
            self.touched.push(id.slot);
        }
    }

    fn close(&mut self, id: ConnectionId, service: &mut impl Service) {
        let slot = &mut self.slots[id.slot as usize];
        // dropped with its descriptor, which epoll then forgets
        if slot.connection.take().is_none() {
            return;
        }
        slot.generation = slot.generation.wrapping_add(1);
        self.free.push(id.slot);
        service.closed(id, &mut self.out);
        self.apply();
    }
}

fn is_full(error: &io::Error) -> bool {
    let full = Errno::from_io_error(error);
    matches!(full, Some(Errno::MFILE | Errno::NFILE | Errno::NOMEM | Errno::NOBUFS))
}

impl Delayed {
    fn len(&self) -> usize {
        match self {
            Delayed::Bytes(bytes) => bytes.len(),
            Delayed::Fill(length) => *length,
            Delayed::Close => 1,
        }
    }
}
