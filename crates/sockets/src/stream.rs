//! Connections that devices share: TCP or TLS, opened by the first that wants one and again by the first after it was lost.
//!
//! What devices send waits until the worker looks for events, and goes in one write. What comes is cut into messages, as the
//! model says, and given to the worker like datagrams of a shared socket.

use crate::conn::Conn;
use device::{Batch, ConnError, Connection, Datagram, Event, Input, Token};
use protocol::meter::Failure;
use protocol::model::Outbox;
use protocol::shared_socket::Framing;
use run::GroupPlan;
use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::rc::Rc;

/// Numbers of shared connections begin here, above those of shared datagram sockets.
pub(crate) const FIRST: u32 = 1 << 31;
/// Room for what comes at a time; a longer message breaks the connection.
const ROOM: usize = 1 << 20;
/// From so many bytes that wait on, they are written before the worker looks for events.
const WRITE_FROM: usize = 1 << 16;

/// Which connection: number of its group, of its address among the group's sources, of the target's address, and its own.
pub(crate) type Key = (usize, usize, usize, u32);

/// What devices know of their connection.
#[derive(Debug)]
pub(crate) struct State {
    peer: SocketAddr,
    up: Cell<bool>,
    local: Cell<Option<SocketAddr>>,
    /// Why it is no more.
    lost: RefCell<Option<ConnError>>,
}

/// A device's share of a connection.
#[derive(Debug)]
pub(crate) struct Member {
    pub stream: u32,
    token: Token,
    state: Rc<State>,
}

impl Member {
    pub fn is_up(&self) -> bool {
        self.state.up.get()
    }

    pub fn local(&self) -> Option<SocketAddr> {
        self.state.local.get()
    }

    pub fn peer(&self) -> SocketAddr {
        self.state.peer
    }

    /// Why the connection is no more, if it is not.
    pub fn check(&self) -> Result<(), ConnError> {
        self.state.lost.borrow().as_ref().map_or(Ok(()), |lost| Err(lost.clone()))
    }
}

/// A connection, and who shares it.
#[derive(Debug)]
pub(crate) struct SharedStream {
    pub key: Key,
    /// None: it was lost or closed, and its place is free when nobody shares it any more.
    conn: Option<Conn>,
    state: Rc<State>,
    members: BTreeSet<u64>,
    /// What devices have sent since the last write.
    out: Outbox,
    /// The beginning of a message.
    rest: Vec<u8>,
    /// The server has said that it sends no more: it is read until that shows.
    ended: bool,
    /// Why a write failed. Who shares it hears of that when what the server said before has been read.
    failed: Option<ConnError>,
}

impl SharedStream {
    /// Begin to connect, for device `device` of `group`.
    pub fn open(group: &GroupPlan, device: u32, key: Key) -> Result<Self, ConnError> {
        let conn = Conn::open(group, device, key.2)?;
        let (up, local, lost) = (Cell::new(false), Cell::new(None), RefCell::new(None));
        let state = Rc::new(State { peer: group.addresses.at(key.2), up, local, lost });
        let (members, out, rest) = (BTreeSet::new(), Outbox::default(), Vec::new());
        Ok(Self { key, conn: Some(conn), state, members, out, rest, ended: false, failed: None })
    }

    /// The socket.
    pub fn conn(&self) -> Option<&Conn> {
        self.conn.as_ref()
    }

    /// Whether another connection may take its place.
    pub fn is_free(&self) -> bool {
        self.conn.is_none() && self.members.is_empty()
    }

    /// One more device shares it; `number` is that of the connection.
    pub fn join(&mut self, number: u32, token: Token) -> Member {
        self.members.insert(token.0);
        Member { stream: number, token, state: Rc::clone(&self.state) }
    }

    /// A device leaves it; with the last one it ends.
    pub fn leave(&mut self, member: &Member) {
        self.members.remove(&member.token.0);
        if self.members.is_empty()
            && let Some(mut conn) = self.conn.take()
        {
            let _nothing_to_lose = conn.send(&mut self.out);
            conn.close_write();
        }
    }

    /// Keep what a device sends for the next write.
    pub fn queue(&mut self, outbox: &mut Outbox) {
        self.out.bytes.append(&mut outbox.bytes);
        if self.out.bytes.len() >= WRITE_FROM {
            self.flush();
        }
    }

    /// Write what waits. What the network says of it shows when the connection is read.
    pub fn flush(&mut self) {
        if self.out.bytes.is_empty() || !self.state.up.get() {
            return;
        }
        if let Some(conn) = &mut self.conn
            && let Err(lost) = conn.send(&mut self.out)
        {
            self.out.clear();
            self.failed.get_or_insert(lost.sending());
        }
    }

    /// Whether a write failed, of which devices do not know yet.
    pub fn has_failed(&self) -> bool {
        self.conn.is_some() && self.failed.is_some()
    }

    /// The server sends no more.
    pub fn end(&mut self) {
        self.ended = true;
    }

    /// Move on the connect and the handshake, and what the socket did not take. Events for its devices, if it came up.
    pub fn progress(&mut self, events: &mut Vec<Event>) {
        let Some(conn) = &mut self.conn else { return };
        match conn.progress() {
            // what the server said before is read first
            Err(lost) if self.state.up.get() => {
                self.failed.get_or_insert(lost.sending());
            }
            Err(lost) => self.lose(lost, events),
            Ok(()) => self.note_up(events),
        }
    }

    fn note_up(&mut self, events: &mut Vec<Event>) {
        let Some(conn) = self.conn.as_ref().filter(|conn| !self.state.up.get() && conn.is_up()) else {
            return;
        };
        self.state.up.set(true);
        self.state.local.set(conn.local());
        events.extend(self.members.iter().map(|token| told(Token(*token), false)));
    }

    /// It is no more: every device that shares it hears of that.
    fn lose(&mut self, lost: ConnError, events: &mut Vec<Event>) {
        self.conn = None;
        let lost = if self.state.up.replace(false) { lost.shared_by(self.members.len()) } else { lost };
        self.state.lost.replace(Some(lost));
        events.extend(self.members.iter().map(|token| told(Token(*token), true)));
    }

    /// Read what came, and part it into messages.
    pub fn receive(
        &mut self,
        framing: impl Fn(&[u8]) -> Framing,
        cipher: &mut [u8],
        batch: &mut Batch,
        events: &mut Vec<Event>,
    ) {
        batch.datagrams.clear();
        batch.refused.clear();
        (batch.group, batch.dropped, batch.more, batch.strangers) = (self.key.0, 0, false, 0);
        if batch.bytes.len() < ROOM {
            batch.bytes = vec![0; ROOM].into();
        }
        let mut end = self.rest.len();
        batch.bytes[..end].copy_from_slice(&self.rest);
        self.rest.clear();
        let mut lost = None;
        let room = batch.bytes.len();
        while end < room
            && let Some(conn) = &mut self.conn
        {
            match conn.read(&mut batch.bytes[end..], cipher) {
                Ok(Input::Bytes { len, dry }) => {
                    end += len;
                    if dry && !self.ended {
                        break;
                    }
                }
                Ok(Input::Aside) => match conn.progress() {
                    Ok(()) => self.note_up(events),
                    Err(broken) => lost = Some(broken),
                },
                Ok(Input::End { complete }) => {
                    lost = Some(ConnError::closed("the server closed the connection", complete));
                }
                Err(broken) => lost = Some(broken),
                Ok(Input::Dry | Input::Dropped(_)) => break,
            }
            if lost.is_some() {
                break;
            }
        }
        batch.more = end == room;
        let mut at = 0;
        while at < end {
            match framing(&batch.bytes[at..end]) {
                Framing::Message(length) => {
                    let place = at..(at + length.max(1)).min(end);
                    at = place.end;
                    let (from, waited) = (self.state.peer, std::time::Duration::ZERO);
                    batch.datagrams.push(Datagram { place, from, waited });
                }
                Framing::Partial if at == 0 && end == room => {
                    let what = format!("an unfinished message of over {room} bytes");
                    lost = Some(ConnError::new(Failure::Protocol, what));
                    break;
                }
                Framing::Partial => break,
                Framing::Foreign(cause, what) => {
                    lost = Some(ConnError::new(cause, what));
                    break;
                }
            }
        }
        self.rest.extend_from_slice(&batch.bytes[at..end]);
        let lost = lost.or_else(|| self.failed.take_if(|_| !batch.more));
        if let Some(lost) = lost {
            batch.more = false;
            self.rest = Vec::new();
            self.lose(lost, events);
        }
    }
}

/// That a device's connection came up, or was lost.
fn told(token: Token, ended: bool) -> Event {
    Event { token, readable: ended, writable: true, ended }
}
