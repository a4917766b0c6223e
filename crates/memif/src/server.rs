//! Servers: one thread for each socket that clients come to, whichever interfaces of this process are to be found there.

use crate::control::{self, PATIENCE, PAUSE};
use crate::error::Error;
use crate::link::{Link, Shared};
use crate::negotiation::{self, Request, admits};
use crate::protocol::{Init, Message};
use crate::region::Region;
use crate::socket::{Address, Channel, Listening, Received, check_interrupt};
use nix::sys::eventfd::EventFd;
use std::collections::HashMap;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Instant;

/// Most connections that negotiate at once on a socket.
const NEGOTIATING: usize = 64;

/// An interface that clients can ask for.
#[derive(Debug)]
pub(crate) struct Port {
    pub id: u32,
    pub secret: Option<String>,
    /// To it, and to the client.
    pub queues: [u16; 2],
    pub shared: Arc<Shared>,
    /// It has a connection, or is about to.
    taken: AtomicBool,
    closed: AtomicBool,
}

/// What a socket's thread and those who open and close interfaces share.
#[derive(Debug)]
struct Common {
    ports: Mutex<Vec<Arc<Port>>>,
    wake: Arc<EventFd>,
}

impl Common {
    fn ports(&self) -> MutexGuard<'_, Vec<Arc<Port>>> {
        self.ports.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[derive(Debug)]
struct Listener {
    common: Arc<Common>,
    thread: JoinHandle<()>,
}

/// The sockets that are listened at. Held while an interface is opened or closed, never by the sockets' threads.
static LISTENERS: Mutex<Option<HashMap<Address, Listener>>> = Mutex::new(None);

/// An interface's place at its socket; given up when this goes.
#[derive(Debug)]
pub(crate) struct Server {
    address: Address,
    port: Arc<Port>,
}

impl Server {
    pub(crate) fn start(
        address: Address,
        id: u32,
        secret: Option<String>,
        queues: [u16; 2],
        shared: Arc<Shared>,
    ) -> Result<Self, Error> {
        let (taken, closed) = (AtomicBool::new(false), AtomicBool::new(false));
        let port = Arc::new(Port { id, secret, queues, shared, taken, closed });
        let mut held = LISTENERS.lock().unwrap_or_else(PoisonError::into_inner);
        let listeners = held.get_or_insert_default();
        if let Some(listener) = listeners.get(&address) {
            let mut ports = listener.common.ports();
            if ports.iter().any(|other| other.id == id) {
                return Err(Error::IdInUse { socket: address.text(), id });
            }
            ports.push(Arc::clone(&port));
        } else {
            let listening = Listening::new(&address)?;
            let failed = |cause| Error::System { action: "watching", socket: address.text(), cause };
            let wake = Arc::new(control::event().map_err(failed)?);
            let common = Arc::new(Common { ports: Mutex::new(vec![Arc::clone(&port)]), wake });
            let work = Work { common: Arc::clone(&common), listening, connections: Vec::new(), pause: None };
            let thread = control::start("memif-server", move || work.run()).map_err(failed)?;
            listeners.insert(address.clone(), Listener { common, thread });
        }
        Ok(Self { address, port })
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let mut held = LISTENERS.lock().unwrap_or_else(PoisonError::into_inner);
        let listeners = held.get_or_insert_default();
        let Some(listener) = listeners.get(&self.address) else { return };
        let is_last = {
            let mut ports = listener.common.ports();
            self.port.closed.store(true, Ordering::Release);
            ports.retain(|port| !Arc::ptr_eq(port, &self.port));
            ports.is_empty()
        };
        self.port.shared.set(None);
        let _ = listener.common.wake.write(1);
        if is_last && let Some(listener) = listeners.remove(&self.address) {
            let _ = listener.thread.join();
        }
    }
}

/// A client.
struct Connection {
    channel: Channel,
    negotiation: negotiation::Server,
    port: Option<Arc<Port>>,
    state: State,
}

enum State {
    /// Until then.
    Negotiating(Link, Instant),
    Up(Arc<Link>),
    Over,
}

/// How a connection ended.
enum End {
    /// It is to be closed, for this reason.
    Here(&'static str),
    /// The client closed it.
    There(String),
}

struct Work {
    common: Arc<Common>,
    listening: Listening,
    connections: Vec<Connection>,
    /// No connection is taken until then.
    pause: Option<Instant>,
}

impl Work {
    fn run(mut self) {
        loop {
            self.connections.retain_mut(|connection| match connection.overdue() {
                Some(why) => {
                    connection.end(End::Here(why));
                    false
                }
                None => true,
            });
            if self.common.ports().is_empty() {
                return;
            }
            let now = Instant::now();
            self.pause = self.pause.filter(|&until| until > now);
            let deadlines = self.connections.iter().filter_map(Connection::deadline);
            let until = deadlines.clone().chain(self.pause).min();
            let accepts = self.pause.is_none() && deadlines.count() < NEGOTIATING;
            let mut files: Vec<_> = self.connections.iter().map(|one| one.channel.as_fd()).collect();
            if accepts {
                files.push(self.listening.as_fd());
            }
            let ready = control::wait(&self.common.wake, &files, until);
            let known = self.connections.len();
            if ready.get(known) == Some(&true) {
                self.accept();
            }
            let mut ready = ready[..known].iter().chain(std::iter::repeat(&false));
            let common = &self.common;
            self.connections.retain_mut(|connection| {
                if ready.next() != Some(&true) {
                    return true;
                }
                match connection.receive(common) {
                    Ok(()) => true,
                    Err(end) => {
                        connection.end(end);
                        false
                    }
                }
            });
        }
    }

    fn accept(&mut self) {
        // Of which interface it wants to be the client is not known yet.
        let most = |a: [u16; 2], b: [u16; 2]| [a[0].max(b[0]), a[1].max(b[1])];
        let queues = self.common.ports().iter().map(|port| port.queues).fold([1; 2], most);
        match self.listening.accept() {
            Ok(channel) => {
                if channel.send(&negotiation::Server::hello(queues), None).is_ok() {
                    let link = Link::server(Arc::clone(&self.common.wake));
                    let state = State::Negotiating(link, Instant::now() + PATIENCE);
                    let negotiation = negotiation::Server::new();
                    self.connections.push(Connection { channel, negotiation, port: None, state });
                }
            }
            // Files may be short for a while.
            Err(_) => self.pause = Some(Instant::now() + PAUSE),
        }
    }
}

impl Connection {
    fn deadline(&self) -> Option<Instant> {
        match &self.state {
            State::Negotiating(_, until) => Some(*until),
            _ => None,
        }
    }

    /// Why it is to be closed, if it is.
    fn overdue(&self) -> Option<&'static str> {
        if self.port.as_ref().is_some_and(|port| port.closed.load(Ordering::Acquire)) {
            return Some("closed");
        }
        match &self.state {
            State::Negotiating(_, until) => (Instant::now() >= *until).then_some("negotiation took too long"),
            State::Up(link) => link.is_bad().then_some("broken ring"),
            State::Over => Some("closed"),
        }
    }

    /// What the client has to say, and the answer.
    fn receive(&mut self, common: &Common) -> Result<(), End> {
        let (message, files) = match self.channel.receive() {
            Received::Message(message, files) => (message, files),
            Received::Nothing => return Ok(()),
            Received::Unfit(why) => return Err(End::Here(why)),
            Received::Ended => return Err(End::There("client closed the connection".into())),
        };
        let request = self.negotiation.receive(message, files.len()).map_err(End::Here)?;
        let answer = self.answer(common, request, files)?;
        let sent = self.channel.send(&answer, None);
        sent.map_err(|cause| End::There(format!("cannot answer the client: {}", cause.desc())))
    }

    fn answer(&mut self, common: &Common, request: Request, files: Vec<OwnedFd>) -> Result<Message, End> {
        let file = files.into_iter().next();
        match request {
            Request::Ended(why) => return Err(End::There(format!("client ended the connection: {why}"))),
            Request::Interface(init) => self.port = Some(find(common, &init).map_err(End::Here)?),
            Request::Region(size) => {
                let file = file.ok_or(End::Here("region without its file"))?;
                let region = Region::map(file.as_fd(), size).map_err(End::Here)?;
                self.link()?.regions.push(region);
            }
            Request::Ring(ring) => {
                let interrupt = file.ok_or(End::Here("ring without its interrupt"))?;
                check_interrupt(&interrupt).map_err(End::Here)?;
                self.link()?.add(ring, interrupt).map_err(End::Here)?;
            }
            Request::Connect => {
                let State::Negotiating(link, _) = std::mem::replace(&mut self.state, State::Over) else {
                    return Err(End::Here("unexpected message"));
                };
                let port = self.port.as_ref().ok_or(End::Here("unexpected message"))?;
                link.mask_interrupts();
                let link = Arc::new(link);
                self.state = State::Up(Arc::clone(&link));
                // Whoever closes it meanwhile takes the link away again.
                let ports = common.ports();
                if port.closed.load(Ordering::Acquire) {
                    return Err(End::Here("closed"));
                }
                port.shared.set(Some(link));
                drop(ports);
                return Ok(negotiation::Server::connected(port.id));
            }
        }
        Ok(Message::Ack)
    }

    fn link(&mut self) -> Result<&mut Link, End> {
        match &mut self.state {
            State::Negotiating(link, _) => Ok(link),
            _ => Err(End::Here("unexpected message")),
        }
    }

    fn end(&mut self, end: End) {
        let why = match end {
            End::Here(why) => {
                self.channel.end(why);
                why.into()
            }
            End::There(why) => why,
        };
        let was_up = matches!(std::mem::replace(&mut self.state, State::Over), State::Up(_));
        let Some(port) = self.port.take() else { return };
        if !port.closed.load(Ordering::Acquire) {
            port.shared.fail(why);
            if was_up {
                port.shared.disconnected();
            }
        }
        port.taken.store(false, Ordering::Release);
    }
}

/// The interface that a client asks for; it is his then.
fn find(common: &Common, init: &Init) -> Result<Arc<Port>, &'static str> {
    let ports = common.ports();
    let port = ports.iter().find(|port| port.id == init.id).ok_or("unknown id")?;
    if let Err(why) = admits(port.secret.as_deref(), &init.secret) {
        port.shared.fail(format!("client refused: {why}"));
        return Err(why);
    }
    if port.taken.swap(true, Ordering::AcqRel) {
        return Err("already connected");
    }
    Ok(Arc::clone(port))
}
