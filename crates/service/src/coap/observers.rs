//! Observers and what they are told (RFC 7641).

use super::reply::{Reply, Token};
use protocol::coap::wire::MessageType;
use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};
use std::net::SocketAddr;

/// Most observations at a time; more are answered as if they were plain requests (section 4.1).
const MOST: usize = 1 << 18;
/// Each notification of this number is confirmable, so that an observer that is gone is noticed (section 4.5).
const CONFIRMED: u32 = 16;

#[derive(Debug)]
struct Observer {
    reply: Reply,
    kind: MessageType,
    /// Number of its last notification, and its message ID.
    number: u32,
    id: Option<u16>,
    at: u64,
}

/// All observers.
#[derive(Debug)]
pub(super) struct Observers {
    /// Time between two notifications, ns.
    every: u64,
    all: HashMap<(SocketAddr, Token), Observer>,
    /// Whose last notification had this ID.
    by_id: HashMap<(SocketAddr, u16), Token>,
    due: BinaryHeap<Reverse<(u64, SocketAddr, Token)>>,
}

impl Observers {
    pub fn new(every: u64) -> Self {
        Self { every: every.max(1), all: HashMap::new(), by_id: HashMap::new(), due: BinaryHeap::new() }
    }

    pub fn len(&self) -> usize {
        self.all.len()
    }

    /// Who asked is told from now on by responses like this one. Whether there was room.
    pub fn add(&mut self, reply: Reply, kind: MessageType, now: u64) -> bool {
        let key = (reply.to, reply.token);
        if self.all.len() >= MOST && !self.all.contains_key(&key) {
            return false;
        }
        self.remove(reply.to, reply.token);
        let at = now + self.every;
        self.all.insert(key, Observer { reply, kind, number: 1, id: None, at });
        self.due.push(Reverse((at, reply.to, reply.token)));
        true
    }

    /// Number of the last notification.
    pub fn number(&self, to: SocketAddr, token: Token) -> Option<u32> {
        self.all.get(&(to, token)).map(|observer| observer.number)
    }

    pub fn remove(&mut self, to: SocketAddr, token: Token) {
        if let Some(Observer { id: Some(id), .. }) = self.all.remove(&(to, token)) {
            self.by_id.remove(&(to, id));
        }
    }

    /// The notification with this ID was reset.
    pub fn reset(&mut self, from: SocketAddr, id: u16) {
        if let Some(token) = self.by_id.get(&(from, id)).copied() {
            self.remove(from, token);
        }
    }

    /// When the next notification is due.
    pub fn next_at(&self) -> Option<u64> {
        self.due.peek().map(|Reverse((at, ..))| *at)
    }

    /// A notification that is due, with an ID from `id`.
    pub fn take_due(&mut self, now: u64, id: impl FnOnce() -> u16) -> Option<(MessageType, Reply)> {
        while self.next_at().is_some_and(|at| at <= now) {
            let Reverse((at, to, token)) = self.due.pop()?;
            let Some(observer) = self.all.get_mut(&(to, token)).filter(|observer| observer.at == at) else {
                continue;
            };
            let id = id();
            if let Some(before) = observer.id.replace(id) {
                self.by_id.remove(&(to, before));
            }
            self.by_id.insert((to, id), token);
            observer.number = observer.number.wrapping_add(1) & 0xff_ffff;
            // one that was late is not made up for
            observer.at = (at + self.every).max(now);
            self.due.push(Reverse((observer.at, to, token)));
            let confirmable = observer.kind == MessageType::Con || observer.number % CONFIRMED == 0;
            let kind = if confirmable { MessageType::Con } else { MessageType::Non };
            let reply = Reply { observe: Some(observer.number), block2: None, ..observer.reply };
            return Some((kind, reply));
        }
        None
    }
}
