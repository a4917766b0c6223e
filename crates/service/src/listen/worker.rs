//! One worker: its connections, their timers and delayed replies.

#[cfg(test)]
mod tests;

use super::board::Board;
use super::connection::{Connection, Stage};
use super::network::{Event, Network};
use crate::output::Action;
use crate::{ConnectionId, Counters, Output, Service};
use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::io;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// Connections that are accepted at a time.
const ACCEPTED: usize = 256;
/// Longest wait, so that the end is noticed.
const TURN: Duration = Duration::from_millis(50);
/// How long a peer has to close after the server has.
const LINGER: u64 = 1_000_000_000;
/// Bytes of memory for replies that are kept for the next ones.
const KEPT: usize = 16 << 20;

/// What waits for its time.
#[derive(Debug)]
enum Delayed {
    Bytes(Vec<u8>),
    Fill(usize),
    Close,
}

struct Slot<S> {
    generation: u32,
    connection: Option<Connection<S>>,
}

pub(super) struct Worker<N: Network> {
    network: N,
    events: Vec<Event>,
    slots: Vec<Slot<N::Stream>>,
    free: Vec<u32>,
    /// When services are to be called.
    timers: BinaryHeap<Reverse<(u64, ConnectionId)>>,
    /// When connections have lingered long enough: in order, since it is as long for all.
    lingering: VecDeque<(u64, ConnectionId)>,
    /// In the order of their times, since the delay is the same for all.
    delayed: VecDeque<(u64, ConnectionId, Delayed)>,
    delay: u64,
    out: Output,
    /// Connections that something was done with.
    touched: Vec<u32>,
    buffer: Vec<u8>,
    began: Instant,
}

impl<N: Network> Worker<N> {
    pub fn new(network: N, delay: u64) -> Self {
        Self {
            network,
            events: Vec::new(),
            slots: Vec::new(),
            free: Vec::new(),
            timers: BinaryHeap::new(),
            lingering: VecDeque::new(),
            delayed: VecDeque::new(),
            delay,
            out: Output::default(),
            touched: Vec::new(),
            buffer: vec![0; 64 << 10],
            began: Instant::now(),
        }
    }

    /// Serve until all are to end; leave the counts on the board now and then, and when they are asked for.
    pub fn run(&mut self, service: &mut impl Service, number: usize, board: &Board) -> io::Result<()> {
        let (mut told, mut answered) = (Instant::now(), 0);
        while !board.over.load(Ordering::Relaxed) {
            // before what came up to now is read
            let asked = board.asked.load(Ordering::Relaxed);
            self.turn(service, TURN)?;
            if asked > answered || told.elapsed() >= TURN {
                (told, answered) = (Instant::now(), asked);
                board.leave(number, asked, self.counters(service));
            }
        }
        board.leave(number, u64::MAX, self.counters(service));
        for slot in &mut self.slots {
            slot.connection.take().into_iter().for_each(|connection| self.network.close(connection.stream));
        }
        Ok(())
    }

    /// Take what came, which is waited for until something is due, for `longest` at most, and do what is due.
    fn turn(&mut self, service: &mut impl Service, longest: Duration) -> io::Result<()> {
        self.wait(longest)?;
        self.out.now = self.now();
        for at in 0..self.events.len() {
            let event = self.events[at];
            match event {
                Event::Accept => self.accept(service)?,
                Event::Ready { slot, room, input } => self.ready(slot, (room, input), service),
            }
        }
        self.run_timers(service);
        self.settle(service);
        Ok(())
    }

    fn counters(&self, service: &impl Service) -> Counters {
        let mut counters = service.counters();
        self.network.count(&mut counters);
        counters
    }

    fn now(&self) -> u64 {
        u64::try_from(self.began.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }

    fn wait(&mut self, longest: Duration) -> io::Result<()> {
        let now = self.now();
        let timer = self.timers.peek().map(|Reverse((at, _))| *at);
        let lingering = self.lingering.front().map(|(at, _)| *at);
        let delayed = self.delayed.front().map(|(at, ..)| *at);
        let next = [timer, lingering, delayed].into_iter().flatten().min();
        let left = next.map_or(longest, |at| Duration::from_nanos(at.saturating_sub(now)).min(longest));
        self.events.clear();
        self.network.wait(left, &mut self.events)
    }

    fn accept(&mut self, service: &mut impl Service) -> io::Result<()> {
        for _ in 0..ACCEPTED {
            let slot = self.free.pop().unwrap_or_else(|| {
                self.slots.push(Slot { generation: 0, connection: None });
                self.slots.len() as u32 - 1
            });
            let Some(stream) = self.network.accept(slot)? else {
                self.free.push(slot);
                break;
            };
            let place = &mut self.slots[slot as usize];
            place.connection = Some(Connection::new(stream));
            let id = ConnectionId { slot, generation: place.generation };
            service.opened(id, &mut self.out);
            self.apply();
        }
        Ok(())
    }

    fn id(&self, slot: u32) -> ConnectionId {
        ConnectionId { slot, generation: self.slots[slot as usize].generation }
    }

    fn get(&mut self, id: ConnectionId) -> Option<&mut Connection<N::Stream>> {
        self.parts(id).map(|(_, connection)| connection)
    }

    fn parts(&mut self, id: ConnectionId) -> Option<(&mut N, &mut Connection<N::Stream>)> {
        let slot = self.slots.get_mut(id.slot as usize)?;
        let connection = if slot.generation == id.generation { slot.connection.as_mut() } else { None };
        connection.map(|connection| (&mut self.network, connection))
    }

    fn ready(&mut self, slot: u32, (room, input): (bool, bool), service: &mut impl Service) {
        let id = self.id(slot);
        let Some((network, connection)) = self.parts(id) else { return };
        if room {
            connection.flush(network);
        }
        if input {
            self.read(id, service);
        }
        // a reply has noted it already
        if self.touched.last() != Some(&slot) {
            self.touched.push(slot);
        }
    }

    fn read(&mut self, id: ConnectionId, service: &mut impl Service) {
        let mut buffer = std::mem::take(&mut self.buffer);
        self.read_into(&mut buffer, id, service);
        self.buffer = buffer;
    }

    fn read_into(&mut self, buffer: &mut [u8], id: ConnectionId, service: &mut impl Service) {
        let Some((network, connection)) = self.parts(id) else { return };
        let length = match network.receive(&mut connection.stream, &mut *buffer) {
            Ok(length) => length,
            Err(error) if matches!(error.kind(), io::ErrorKind::Interrupted | io::ErrorKind::WouldBlock) => {
                return;
            }
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

    /// Pass bytes as long as they are used and the connection is not full; how many were.
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
        if let Some(connection) = self.get(id) {
            connection.stopped = used < bytes.len() && connection.is_full();
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
                    self.timers.push(Reverse((at, id)));
                    continue;
                }
                Action::Send(id, length) => {
                    let (mine, after) = rest.split_at(length);
                    rest = after;
                    if self.delay == 0 {
                        if let Some((network, connection)) = self.parts(id) {
                            connection.send(network, mine);
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
        let Some((network, connection)) = self.parts(id) else { return };
        match what {
            Delayed::Bytes(bytes) => connection.send(network, bytes),
            Delayed::Fill(length) => connection.fill(network, *length),
            Delayed::Close if connection.stage == Stage::Open => connection.stage = Stage::Finishing,
            Delayed::Close => {}
        }
        self.touched.push(id.slot);
    }

    /// Timers and delayed replies whose time has come.
    fn run_timers(&mut self, service: &mut impl Service) {
        let now = self.now();
        self.out.now = now;
        while self.delayed.front().is_some_and(|(at, ..)| *at <= now) {
            let Some((_, id, what)) = self.delayed.pop_front() else { break };
            if let Some(connection) = self.get(id) {
                connection.delayed -= what.len();
            }
            self.perform(id, &what);
        }
        while self.lingering.front().is_some_and(|(at, _)| *at <= now) {
            let Some((_, id)) = self.lingering.pop_front() else { break };
            if let Some(connection) = self.get(id) {
                connection.stage = Stage::Gone;
                self.touched.push(id.slot);
            }
        }
        while self.timers.peek().is_some_and(|Reverse((at, _))| *at <= now) {
            let Some(Reverse((_, id))) = self.timers.pop() else { break };
            if self.get(id).is_some() {
                service.timer(id, &mut self.out);
                self.apply();
            }
        }
    }

    /// Go on with connections that have room again, close those that are over, and tell the network what is waited for.
    fn settle(&mut self, service: &mut impl Service) {
        while let Some(slot) = self.touched.pop() {
            let id = self.id(slot);
            let Some(connection) = self.get(id) else { continue };
            let taken = std::mem::take(&mut connection.taken);
            if taken > 0 {
                service.sent(id, taken);
            }
            // what has not come whole waits for more; what was left because of replies waits for them alone
            if connection.stopped && !connection.is_full() {
                self.go_on(id, service);
            }
            let until = self.out.now + LINGER;
            let Some((network, connection)) = self.parts(id) else { continue };
            // what came before the end is used, as far as it can be
            if connection.ended && connection.stage == Stage::Open && !connection.is_full() {
                connection.stage = Stage::Finishing;
            }
            if connection.finish(network) {
                self.lingering.push_back((until, id));
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
        if self.network.watch(&mut connection.stream, id.slot, room, input).is_err() {
            connection.stage = Stage::Gone;
            self.touched.push(id.slot);
        }
    }

    fn close(&mut self, id: ConnectionId, service: &mut impl Service) {
        let slot = &mut self.slots[id.slot as usize];
        let Some(connection) = slot.connection.take() else { return };
        slot.generation = slot.generation.wrapping_add(1);
        self.network.close(connection.stream);
        self.free.push(id.slot);
        service.closed(id, &mut self.out);
        self.apply();
    }
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
