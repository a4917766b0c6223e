//! A port with its stack as the network of a server: connections that others open.

use crate::check;
use crate::open::{open, taps};
use crate::polling;
use crate::port::{BURST, StackPort};
use dpdk::{Eal, ThreadGuard};
use run::{Control, SetupError};
use service::listen::{Event, Network};
use stack::{CloseReason, Handle, Received, State};
use std::collections::VecDeque;
use std::io::{Error, ErrorKind, Result};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Connections at a time, of each worker. What they need takes memory when they come.
const CONNECTIONS: usize = 1 << 20;
/// Of these may be in their handshake.
const HALF_OPEN: usize = 1 << 14;
/// Bytes of datagrams that may wait to be read.
const DATAGRAMS: usize = 16 << 20;
/// How often to look whether the port is there.
const WATCH: Duration = Duration::from_millis(200);

/// One worker's part of a port that is open, on its way to the thread that serves.
#[derive(Debug)]
pub struct ListeningPort {
    eal: &'static Eal,
    port: StackPort,
    local: SocketAddr,
}

impl ListeningPort {
    /// Open the one port of `settings`, and listen at `local`, an address of it, for connections or for datagrams: a part for each
    /// worker, of which there is one for each queue.
    pub fn open(
        settings: &profile::Dpdk,
        local: SocketAddr,
        datagrams: bool,
    ) -> std::result::Result<Vec<Self>, SetupError> {
        if let Some(fault) = check::settings(settings).into_iter().next() {
            return Err(fault);
        }
        let forever = Control::new(0, u64::MAX, 0, u64::MAX);
        let (taps, connections) = (taps(settings), if datagrams { 0 } else { CONNECTIONS });
        let opened = open(settings, &forever, (true, &taps), |_| Vec::new(), |_| (connections, 0))?;
        let eal = opened.eal;
        let parts = opened.workers.into_iter().flatten().map(|mut port| {
            if datagrams {
                port.stack.listen_datagrams(local, DATAGRAMS);
            } else {
                port.stack.listen(local.port(), HALF_OPEN);
            }
            Self { eal, port, local }
        });
        Ok(parts.collect())
    }

    /// The port, on the thread that uses it.
    pub(crate) fn take(mut self) -> Result<(StackPort, ThreadGuard)> {
        let guard = self.eal.register_thread().map_err(Error::other)?;
        self.port.enter();
        Ok((self.port, guard))
    }

    /// The network, on the thread that uses it.
    pub fn arrive(self) -> Result<PortNetwork> {
        let local = self.local;
        let (port, guard) = self.take()?;
        let now = Instant::now();
        Ok(PortNetwork {
            port,
            local,
            epoch: now,
            now: 0,
            watched: now,
            flows: Vec::new(),
            pending: VecDeque::new(),
            _guard: guard,
        })
    }
}

/// What is known of a slot's connection, and what is waited for.
#[derive(Debug, Default, Clone, Copy)]
struct Flow {
    waits_for_room: bool,
    waits_for_input: bool,
    has_room: bool,
    has_input: bool,
    /// The peer sends no more, or it broke: what is read next may be the end.
    has_ended: bool,
    /// It is in the list of those to be looked at.
    is_pending: bool,
}

/// Connections of one port.
#[derive(Debug)]
pub struct PortNetwork {
    port: StackPort,
    local: SocketAddr,
    epoch: Instant,
    /// When the last turn began, ns since then.
    now: u64,
    watched: Instant,
    flows: Vec<Flow>,
    pending: VecDeque<u32>,
    /// Its thread is known to DPDK as long as this lives.
    _guard: ThreadGuard,
}

/// A connection, and its slot.
#[derive(Debug)]
pub struct Stream {
    handle: Handle,
    slot: u32,
}

impl PortNetwork {
    fn tick(&mut self) {
        self.now = self.epoch.elapsed().as_nanos() as u64;
    }

    fn flow(&mut self, slot: u32) -> &mut Flow {
        let slot = slot as usize;
        if self.flows.len() <= slot {
            self.flows.resize(slot + 1, Flow::default());
        }
        &mut self.flows[slot]
    }

    /// Look at a slot again when events are asked for.
    fn look_at(&mut self, slot: u32) {
        if !std::mem::replace(&mut self.flow(slot).is_pending, true) {
            self.pending.push_back(slot);
        }
    }

    /// What the stack took of what was to be sent.
    fn taken(&mut self, stream: &Stream, taken: std::result::Result<usize, CloseReason>) -> Result<usize> {
        match taken {
            Ok(0) => {
                self.flow(stream.slot).has_room = false;
                Err(ErrorKind::WouldBlock.into())
            }
            Ok(taken) => Ok(taken),
            Err(why) => Err(io_error(why)),
        }
    }

    /// Take what the stack tells, and give what is waited for; whether frames came.
    fn turn(&mut self, events: &mut Vec<Event>) -> bool {
        self.tick();
        let any = self.port.turn(self.now);
        while let Some(event) = self.port.stack.event() {
            let slot = event.owner as u32;
            let flow = self.flow(slot);
            flow.has_input |= event.readable || event.ended;
            flow.has_room |= event.writable || event.ended;
            flow.has_ended |= event.ended;
            self.look_at(slot);
        }
        if self.port.stack.waits_for_accept() {
            events.push(Event::Accept);
        }
        for _ in 0..self.pending.len() {
            if events.len() >= BURST {
                break;
            }
            let Some(slot) = self.pending.pop_front() else { break };
            let flow = self.flow(slot);
            let (room, input) =
                (flow.has_room && flow.waits_for_room, flow.has_input && flow.waits_for_input);
            flow.is_pending = false;
            if room || input {
                events.push(Event::Ready { slot, room, input });
                // again, unless nothing more is found
                self.look_at(slot);
            }
        }
        any
    }
}

fn io_error(why: CloseReason) -> Error {
    let kind = match why {
        CloseReason::Refused => ErrorKind::ConnectionRefused,
        CloseReason::Reset => ErrorKind::ConnectionReset,
        CloseReason::TimedOut => ErrorKind::TimedOut,
        CloseReason::NoNeighbour | CloseReason::Unreachable => ErrorKind::HostUnreachable,
    };
    Error::new(kind, why)
}

impl Network for PortNetwork {
    type Stream = Stream;

    fn wait(&mut self, longest: Duration, events: &mut Vec<Event>) -> Result<()> {
        let begun = Instant::now();
        if begun.duration_since(self.watched) >= WATCH {
            self.watched = begun;
            // the next client may come, over a memif or vhost port as another process
            if let Some(lost) = self.port.loss_reason(0, true) {
                return Err(Error::other(lost));
            }
        }
        // what was answered does not wait for what came meanwhile
        self.tick();
        self.port.send(self.now);
        polling::until_event(longest, events, |events| self.turn(events));
        Ok(())
    }

    fn accept(&mut self, slot: u32) -> Result<Option<Stream>> {
        loop {
            let Some(handle) = self.port.stack.accept(slot.into()) else { return Ok(None) };
            // the stack listens at this port with all addresses that it has
            let status = self.port.stack.status(handle).filter(|status| status.local.ip() == self.local.ip());
            let Some(status) = status else {
                self.port.stack.abort(handle, self.now);
                continue;
            };
            let is_pending = self.flow(slot).is_pending;
            let has_ended = status.state != State::Established;
            *self.flow(slot) = Flow {
                waits_for_input: true,
                has_input: true,
                has_room: true,
                has_ended,
                is_pending,
                ..Flow::default()
            };
            self.look_at(slot);
            return Ok(Some(Stream { handle, slot }));
        }
    }

    fn receive(&mut self, stream: &mut Stream, buffer: &mut [u8]) -> Result<usize> {
        match self.port.stack.read(stream.handle, buffer, self.now) {
            Ok(Received::Bytes(length, more)) => {
                let flow = self.flow(stream.slot);
                flow.has_input = more || flow.has_ended;
                Ok(length)
            }
            Ok(Received::End) => Ok(0),
            Ok(Received::Dry) => {
                self.flow(stream.slot).has_input = false;
                Err(ErrorKind::WouldBlock.into())
            }
            Err(why) => Err(io_error(why)),
        }
    }

    fn send(&mut self, stream: &mut Stream, bytes: &[u8]) -> Result<usize> {
        let taken = self.port.stack.write(stream.handle, bytes, self.now);
        self.taken(stream, taken)
    }

    fn send_shared(&mut self, stream: &mut Stream, body: &Arc<[u8]>, length: usize) -> Result<usize> {
        let taken = self.port.stack.write_shared(stream.handle, body, 0, length, self.now);
        self.taken(stream, taken)
    }

    fn end(&mut self, stream: &mut Stream) -> Result<()> {
        self.port.stack.shut_down(stream.handle, self.now);
        Ok(())
    }

    fn watch(&mut self, stream: &mut Stream, slot: u32, room: bool, input: bool) -> Result<()> {
        let flow = self.flow(stream.slot);
        (flow.waits_for_room, flow.waits_for_input) = (room, input);
        self.look_at(slot);
        Ok(())
    }

    fn close(&mut self, stream: Stream) {
        let flow = self.flow(stream.slot);
        *flow = Flow { is_pending: flow.is_pending, ..Flow::default() };
        self.port.stack.close(stream.handle, self.now);
    }
}

impl Drop for PortNetwork {
    fn drop(&mut self) {
        let epoch = self.epoch;
        StackPort::linger(std::slice::from_mut(&mut self.port), || epoch.elapsed().as_nanos() as u64);
    }
}
