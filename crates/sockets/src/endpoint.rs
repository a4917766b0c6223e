//! The kernel's sockets as an endpoint: one epoll set per worker.

use crate::conn::Conn;
use crate::media::MediaSockets;
use crate::receive_queue::Overflows;
use crate::shared::{Member, Path, SharedUdp};
use crate::stream::{self, SharedStream};
use device::{Batch, Closed, ConnError, Connection, Endpoint, Event, Input, MediaInput, Token};
use protocol::media::{Channel, MediaOutbox};
use protocol::meter::Failure;
use protocol::model::Outbox;
use protocol::shared_socket::Framing;
use protocol::target::Carrier;
use run::{GroupPlan, SetupError};
use rustix::event::Timespec;
use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::io::Errno;
use std::io::Error;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, OwnedFd};
use std::rc::Rc;
use std::time::Duration;

/// Events taken between two looks at the timers.
const EVENTS_PER_TURN: usize = 256;
/// Room for TLS records.
const CIPHER: usize = 64 * 1024;
/// From so many reads in a row on, of datagrams, a queue may have been full.
const MANY_READS: usize = 8;

/// Longest wait for events while datagrams wait for a shared socket: an interface's full queue says nothing when it has room
/// again.
const RETRY: Duration = Duration::from_millis(1);

/// Sockets of one worker.
pub(crate) struct KernelSockets {
    worker: usize,
    shared: Vec<SharedUdp>,
    paths: Vec<Rc<Path>>,
    streams: Vec<SharedStream>,
    /// What the devices of shared connections are to be told.
    told: Vec<Event>,
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
    /// None yet, of worker number `worker`; call on its own thread.
    pub fn new(worker: usize) -> Result<Self, SetupError> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC).map_err(|e| {
            let fix = "Raise the limit of open files (ulimit -n)";
            SetupError::new("ND-92-01", "epoll", Error::from(e).to_string(), fix)
        })?;
        Ok(Self {
            worker,
            shared: Vec::new(),
            paths: Vec::new(),
            streams: Vec::new(),
            told: Vec::new(),
            epoll,
            ready: Vec::with_capacity(EVENTS_PER_TURN),
            cipher: vec![0; CIPHER].into(),
            overflows: Overflows::new(),
            media: None,
            media_ready: false,
        })
    }

    fn watch(&self, conn: &impl AsFd, token: Token) -> Result<(), ConnError> {
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

/// A device's connection: a socket of its own, or its share of one.
#[derive(Debug)]
pub(crate) enum Link {
    Own(Box<Conn>),
    Shared(Member),
    Stream(stream::Member),
}

impl KernelSockets {
    /// The share that device `device` of `group` has of a socket, to send to `peer`.
    fn share(&mut self, group: &GroupPlan, device: u32, peer: SocketAddr) -> Result<Member, ConnError> {
        let source = group.source(device);
        let key = (group.number, device as usize % group.sources.len().max(1), peer.is_ipv4());
        let socket = match self.shared.iter().position(|one| one.key == key) {
            Some(number) => number as u32,
            None => {
                let socket = SharedUdp::open(group, self.worker, source, key, peer)?;
                let number = self.shared.len() as u32;
                self.watch(&socket, Token::shared(number))?;
                self.shared.push(socket);
                number
            }
        };
        if let Some(path) = self.paths.iter().find(|path| path.socket == socket && path.peer == peer) {
            return Ok(Member::new(Rc::clone(path)));
        }
        let local = self.shared[socket as usize].local;
        let path = Rc::new(Path { socket, local, peer });
        self.paths.push(Rc::clone(&path));
        Ok(Member::new(path))
    }

    /// The share that device `device` of `group` has of a connection to the target's address number `address`: of one that
    /// is there, or of a new one.
    fn join(
        &mut self,
        group: &GroupPlan,
        device: u32,
        address: usize,
        token: Token,
    ) -> Result<stream::Member, ConnError> {
        let sources = group.sources.len().max(1);
        let most = group.shared.map_or(1, |shared| shared.connections).max(1);
        let own = (device / sources as u32) % most;
        let key = (group.number, device as usize % sources, address, own);
        let there = self.streams.iter().position(|one| one.key == key && one.conn().is_some());
        let place = match there {
            Some(place) => place,
            None => {
                let stream = SharedStream::open(group, device, key)?;
                let free = self.streams.iter().position(SharedStream::is_free);
                let place = free.unwrap_or(self.streams.len());
                if let Some(conn) = stream.conn() {
                    self.watch(conn, Token::shared(stream::FIRST + place as u32))?;
                }
                if free.is_some() {
                    self.streams[place] = stream;
                } else {
                    self.streams.push(stream);
                }
                place
            }
        };
        let member = self.streams[place].join(place as u32, token);
        if member.is_up() {
            self.told.push(Event { token, readable: false, writable: true, ended: false });
        }
        Ok(member)
    }

    /// What happened to a socket. Shared connections move on, and those who share them are told.
    fn dispatch(&mut self, event: Event, events: &mut Vec<Event>) {
        let number = event.token.shared_number().and_then(|number| number.checked_sub(stream::FIRST));
        if let Some(stream) = number.and_then(|number| self.streams.get_mut(number as usize)) {
            if event.ended {
                stream.end();
            }
            if event.writable {
                stream.progress(events);
            }
        }
        events.push(event);
    }
}

impl Endpoint for KernelSockets {
    type Conn = Link;

    fn open(
        &mut self,
        group: &GroupPlan,
        device: u32,
        address: usize,
        token: Token,
    ) -> Result<Link, ConnError> {
        if group.shared.is_some() {
            return match group.scheme.carrier {
                Carrier::Stream => self.join(group, device, address, token).map(Link::Stream),
                _ => self.share(group, device, group.addresses.at(address)).map(Link::Shared),
            };
        }
        let conn = Conn::open(group, device, address)?;
        self.watch(&conn, token)?;
        Ok(Link::Own(Box::new(conn)))
    }

    #[inline]
    fn send(&mut self, link: &mut Link, outbox: &mut Outbox) -> Result<(), ConnError> {
        match link {
            Link::Own(conn) => {
                if !outbox.elsewhere.is_empty() {
                    conn.send_elsewhere(outbox)?;
                }
                if outbox.bytes.is_empty() { conn.progress() } else { conn.send(outbox) }
            }
            Link::Shared(member) => self.shared[member.path.socket as usize].queue(member, outbox),
            Link::Stream(member) => {
                member.check()?;
                self.streams[member.stream as usize].queue(outbox);
                Ok(())
            }
        }
    }

    #[inline]
    fn receive(&mut self, link: &mut Link, buffer: &mut [u8]) -> Result<Input, ConnError> {
        let conn = match link {
            Link::Own(conn) => conn,
            Link::Shared(_) => return Ok(Input::Dry),
            Link::Stream(member) => return member.check().map(|()| Input::Dry),
        };
        let input = conn.read(buffer, &mut self.cipher);
        if conn.reads > 0 && matches!(input, Ok(Input::Dry)) {
            let many = std::mem::take(&mut conn.reads) >= MANY_READS;
            let dropped = if many { self.dropped(conn) } else { 0 };
            return Ok(if dropped > 0 { Input::Dropped(dropped) } else { Input::Dry });
        }
        input
    }

    fn close(&mut self, link: Link) -> Closed {
        let mut conn = match link {
            Link::Own(conn) => conn,
            Link::Shared(_) => return Closed::default(),
            Link::Stream(member) => {
                self.streams[member.stream as usize].leave(&member);
                return Closed::default();
            }
        };
        let closed = Closed { unsent: conn.unsent(), dropped: self.dropped(&mut conn) };
        conn.close_write();
        closed
    }

    fn receive_shared(
        &mut self,
        socket: u32,
        framing: impl Fn(usize, &[u8]) -> Framing,
        batch: &mut Batch,
    ) -> Result<(), ConnError> {
        if let Some(place) = socket.checked_sub(stream::FIRST) {
            batch.datagrams.clear();
            batch.more = false;
            let Some(stream) = self.streams.get_mut(place as usize) else { return Ok(()) };
            let group = stream.key.0;
            stream.flush();
            stream.receive(|bytes| framing(group, bytes), &mut self.cipher, batch, &mut self.told);
            return Ok(());
        }
        let Some(socket) = self.shared.get_mut(socket as usize) else { return Ok(()) };
        socket.flush();
        socket.receive(&mut self.overflows, batch)
    }

    fn flush(&mut self) {
        self.shared.iter_mut().for_each(SharedUdp::flush);
        self.streams.iter_mut().for_each(SharedStream::flush);
    }

    fn answer_to(&mut self, link: &mut Link, peer: SocketAddr) {
        if let Link::Shared(member) = link {
            member.other = (peer != member.path.peer).then(|| Box::new(peer));
        }
    }

    fn poll(&mut self, mut timeout: Duration, events: &mut Vec<Event>) -> Result<(), SetupError> {
        for (number, socket) in (0..).zip(&self.shared) {
            if socket.has_refused() {
                let token = Token::shared(number);
                events.push(Event { token, readable: true, writable: false, ended: false });
                timeout = Duration::ZERO;
            } else if socket.is_waiting() {
                timeout = timeout.min(RETRY);
            }
        }
        for (number, _) in (stream::FIRST..).zip(&self.streams).filter(|(_, stream)| stream.has_failed()) {
            let token = Token::shared(number);
            events.push(Event { token, readable: true, writable: false, ended: true });
            timeout = Duration::ZERO;
        }
        if !self.told.is_empty() {
            events.append(&mut self.told);
            timeout = Duration::ZERO;
        }
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
        let ready = std::mem::take(&mut self.ready);
        for one in &ready {
            if one.data.u64() == MEDIA {
                self.media_ready = true;
            } else {
                self.dispatch(event(one), events);
            }
        }
        self.ready = ready;
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

impl Connection for Link {
    fn is_datagram(&self) -> bool {
        match self {
            Self::Own(conn) => conn.is_datagram(),
            Self::Shared(_) => true,
            Self::Stream(_) => false,
        }
    }

    fn is_up(&self) -> bool {
        match self {
            Self::Own(conn) => conn.is_up(),
            Self::Shared(_) => true,
            Self::Stream(member) => member.is_up(),
        }
    }

    fn local(&self) -> Option<SocketAddr> {
        match self {
            Self::Own(conn) => conn.local(),
            Self::Shared(member) => Some(member.path.local),
            Self::Stream(member) => member.local(),
        }
    }

    fn peer(&self) -> Option<SocketAddr> {
        match self {
            Self::Own(conn) => conn.peer(),
            Self::Shared(member) => Some(member.path.peer),
            Self::Stream(member) => Some(member.peer()),
        }
    }

    fn stranger(&self) -> Option<SocketAddr> {
        match self {
            Self::Own(conn) => conn.stranger(),
            // who sent what comes to a shared socket is known with it
            Self::Shared(_) | Self::Stream(_) => None,
        }
    }

    fn is_flushed(&self) -> bool {
        match self {
            Self::Own(conn) => conn.is_flushed(),
            // what waits for a shared socket waits there
            Self::Shared(_) | Self::Stream(_) => true,
        }
    }

    fn queued_bytes(&self) -> u64 {
        match self {
            Self::Own(conn) => conn.queued_bytes(),
            Self::Shared(_) | Self::Stream(_) => 0,
        }
    }

    fn sent_bytes(&mut self, exact: bool) -> u64 {
        match self {
            Self::Own(conn) => conn.sent_bytes(exact),
            Self::Shared(_) | Self::Stream(_) => 0,
        }
    }

    fn take_refused(&mut self) -> Option<ConnError> {
        match self {
            Self::Own(conn) => conn.take_refused(),
            Self::Shared(_) | Self::Stream(_) => None,
        }
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
