//! The kernel's sockets as an endpoint: one epoll set per worker.

use crate::conn::Conn;
use crate::receive_queue::Overflows;
use device::{Closed, ConnError, Endpoint, Event, Input, Token};
use protocol::model::Outbox;
use run::{GroupPlan, SetupError};
use rustix::event::Timespec;
use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::io::Errno;
use std::io::Error;
use std::os::fd::OwnedFd;
use std::time::Duration;

/// Events taken between two looks at the timers.
const EVENTS_PER_TURN: usize = 256;
/// Room for TLS records.
const CIPHER: usize = 64 * 1024;
/// From so many reads in a row on, of datagrams, a queue may have been full.
const MANY_READS: usize = 8;

/// Sockets of one worker.
pub(crate) struct KernelSockets {
    epoll: OwnedFd,
    ready: Vec<epoll::Event>,
    cipher: Box<[u8]>,
    overflows: Overflows,
}

impl KernelSockets {
    /// None yet; call on the worker's own thread.
    pub fn new() -> Result<Self, SetupError> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC).map_err(|e| {
            let fix = "Raise the limit of open files (ulimit -n)";
            SetupError::new("ND-92-01", "epoll", Error::from(e).to_string(), fix)
        })?;
        Ok(Self {
            epoll,
            ready: Vec::with_capacity(EVENTS_PER_TURN),
            cipher: vec![0; CIPHER].into(),
            overflows: Overflows::new(),
        })
    }

    fn watch(&self, conn: &Conn, token: Token) -> Result<(), ConnError> {
        let flags = EventFlags::IN | EventFlags::OUT | EventFlags::RDHUP | EventFlags::ET;
        let data = EventData::new_u64(token.0);
        epoll::add(&self.epoll, conn, data, flags).map_err(|e| ConnError::errno(e, "epoll"))
    }

    /// What the queue of `conn` had no room for since this was last asked.
    fn dropped(&mut self, conn: &mut Conn) -> u64 {
        match conn.take_dropped() {
            (dropped, true) => self.overflows.of(dropped),
            (dropped, false) => dropped,
        }
    }
}

impl Endpoint for KernelSockets {
    type Conn = Conn;

    fn open(
        &mut self,
        group: &GroupPlan,
        device: u32,
        address: usize,
        token: Token,
    ) -> Result<Conn, ConnError> {
        let conn = Conn::open(group, device, address)?;
        self.watch(&conn, token)?;
        Ok(conn)
    }

    #[inline]
    fn send(&mut self, conn: &mut Conn, outbox: &mut Outbox) -> Result<(), ConnError> {
        if outbox.bytes.is_empty() { conn.progress() } else { conn.send(outbox) }
    }

    #[inline]
    fn receive(&mut self, conn: &mut Conn, buffer: &mut [u8]) -> Result<Input, ConnError> {
        let input = conn.read(buffer, &mut self.cipher);
        if conn.reads > 0 && matches!(input, Ok(Input::Dry)) {
            let many = std::mem::take(&mut conn.reads) >= MANY_READS;
            let dropped = if many { self.dropped(conn) } else { 0 };
            return Ok(if dropped > 0 { Input::Dropped(dropped) } else { Input::Dry });
        }
        input
    }

    fn close(&mut self, mut conn: Conn) -> Closed {
        let closed = Closed { unsent: conn.unsent(), dropped: self.dropped(&mut conn) };
        conn.goodbye();
        closed
    }

    fn poll(&mut self, timeout: Duration, events: &mut Vec<Event>) -> Result<(), SetupError> {
        let timeout = Timespec { tv_sec: timeout.as_secs() as i64, tv_nsec: timeout.subsec_nanos().into() };
        self.ready.clear();
        match epoll::wait(&self.epoll, rustix::buffer::spare_capacity(&mut self.ready), Some(&timeout)) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(e) => {
                let fix = "This is a fault of the machine";
                return Err(SetupError::new("ND-92-05", "epoll", Error::from(e).to_string(), fix));
            }
        }
        events.extend(self.ready.iter().map(event));
        Ok(())
    }
}

fn event(event: &epoll::Event) -> Event {
    let (flags, broken) = (event.flags, EventFlags::HUP | EventFlags::ERR);
    Event {
        token: Token(event.data.u64()),
        readable: flags.intersects(EventFlags::IN | EventFlags::RDHUP | broken),
        writable: flags.intersects(EventFlags::OUT | broken),
        ended: flags.intersects(EventFlags::RDHUP | broken),
    }
}
