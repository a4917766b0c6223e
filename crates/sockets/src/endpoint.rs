//! The kernel's sockets as an endpoint: one epoll set per worker.

use crate::conn::Conn;
use crate::media::MediaSockets;
use crate::receive_queue::Overflows;
use device::{Closed, ConnError, Endpoint, Event, Input, MediaInput, Token};
use protocol::media::{Channel, MediaOutbox};
use protocol::meter::Failure;
use protocol::model::Outbox;
use run::{GroupPlan, SetupError};
use rustix::event::Timespec;
use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::io::Errno;
use std::io::Error;
use std::net::{IpAddr, SocketAddr};
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
    /// None until a device has some.
    media: Option<MediaSockets>,
    /// Whether some of them have something to read.
    media_ready: bool,
}

/// Names the set of media sockets among the events of connections, whose slots are fewer.
const MEDIA: u64 = u64::MAX;

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
            media: None,
            media_ready: false,
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
        self.media_ready = false;
        for one in &self.ready {
            if one.data.u64() == MEDIA {
                self.media_ready = true;
            } else {
                events.push(event(one));
            }
        }
        Ok(())
    }

    fn open_media(&mut self, slot: u32, ip: IpAddr) -> Result<SocketAddr, ConnError> {
        let media = match &mut self.media {
            Some(media) => media,
            none => {
                let media =
                    MediaSockets::new().map_err(|why| ConnError::new(Failure::Local, why.to_string()))?;
                epoll::add(&self.epoll, &media, EventData::new_u64(MEDIA), EventFlags::IN)
                    .map_err(|e| ConnError::errno(e, "epoll"))?;
                none.insert(media)
            }
        };
        media.open(slot, ip)
    }

    #[inline]
    fn send_media(&mut self, slot: u32, outbox: &MediaOutbox) -> Option<ConnError> {
        self.media.as_ref().and_then(|media| media.send(slot, outbox))
    }

    #[inline]
    fn ready_media(&mut self, ready: &mut Vec<(u32, Channel)>) {
        if let Some(media) = self.media.as_mut().filter(|_| self.media_ready) {
            media.ready(ready);
        }
    }

    #[inline]
    fn receive_media(&mut self, slot: u32, channel: Channel, buffer: &mut [u8]) -> Option<MediaInput> {
        self.media.as_mut()?.receive(slot, channel, buffer)
    }

    fn close_media(&mut self, slot: u32) -> u64 {
        let dropped = self.media.as_mut().map_or(0, |media| media.close(slot));
        self.overflows.of(dropped)
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
