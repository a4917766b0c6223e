//! A bounded queue of events from one packet worker to the logger.
//!
//! Slots of eight words, each an atomic of its own, written by one thread and read by another: no lock, no allocation, no
//! `unsafe`. A slot is the reader's once the writer has moved `written` past it (release, acquire), and the writer's again once the
//! reader has moved `read` past it.
//!
//! `tests/queue_model.rs` compiles this file with the types of loom, and has every order tried in which the two threads can see each
//! other's writes.

use super::event::{Event, EventKind, Words};
use super::sync::{Arc, AtomicBool, AtomicU64, Ordering};

/// Refusals of one kind per second that reach the log. A subscriber at its limit is refused at packet rate, and RFC 8158
/// wants such events limited: they must not push sessions out of the queue.
const REFUSALS_PER_SECOND: u32 = 10;

#[derive(Debug)]
struct Shared {
    slots: Box<[[AtomicU64; 8]]>,
    written: Position,
    read: Position,
    lost: AtomicU64,
    suppressed: AtomicU64,
    closed: AtomicBool,
}

/// On a cache line of its own: each side writes its own and reads the other's.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Position(AtomicU64);

/// The packet worker's end.
#[derive(Debug)]
pub struct Producer {
    shared: Arc<Shared>,
    at: u64,
    /// Where the reader was when last looked at.
    read: u64,
    /// By kind of refusal: the second, and how many there were in it.
    refusals: [(u64, u32); 3],
}

/// The logger's end.
#[derive(Debug)]
pub struct Consumer {
    shared: Arc<Shared>,
    at: u64,
    written: u64,
}

/// A queue of at least `capacity` events, 64 bytes each.
pub fn queue(capacity: usize) -> (Producer, Consumer) {
    let slots = capacity.max(1).next_power_of_two();
    let shared = Arc::new(Shared {
        slots: (0..slots).map(|_| std::array::from_fn(|_| AtomicU64::new(0))).collect(),
        written: Position::default(),
        read: Position::default(),
        lost: AtomicU64::new(0),
        suppressed: AtomicU64::new(0),
        closed: AtomicBool::new(false),
    });
    let producer = Producer { shared: Arc::clone(&shared), at: 0, read: 0, refusals: [(0, 0); 3] };
    (producer, Consumer { shared, at: 0, written: 0 })
}

impl Shared {
    fn slot(&self, at: u64) -> &[AtomicU64; 8] {
        // The number of slots is a power of two.
        &self.slots[(at & (self.slots.len() as u64 - 1)) as usize]
    }
}

impl Producer {
    /// Hand over an event, or count it: as lost when the queue is full, as suppressed when it is one refusal of many. Says
    /// whether it was handed over. Never waits.
    #[inline]
    pub fn push(&mut self, event: Event) -> bool {
        if self.suppresses(&event) {
            add(&self.shared.suppressed);
            return false;
        }
        let size = self.shared.slots.len() as u64;
        if self.at - self.read == size {
            self.read = self.shared.read.0.load(Ordering::Acquire);
            if self.at - self.read == size {
                add(&self.shared.lost);
                return false;
            }
        }
        for (to, word) in self.shared.slot(self.at).iter().zip(event.to_words()) {
            to.store(word, Ordering::Relaxed);
        }
        self.at += 1;
        self.shared.written.0.store(self.at, Ordering::Release);
        true
    }

    /// How many events there is room for.
    pub fn room(&mut self) -> u64 {
        self.read = self.shared.read.0.load(Ordering::Acquire);
        self.shared.slots.len() as u64 - (self.at - self.read)
    }

    /// Count events that were lost on the way here.
    pub fn lose(&mut self, events: u64) {
        let lost = self.shared.lost.load(Ordering::Relaxed);
        self.shared.lost.store(lost + events, Ordering::Relaxed);
    }

    fn suppresses(&mut self, event: &Event) -> bool {
        let kind = match event.what {
            EventKind::AddressesExhausted { .. } => 0,
            EventKind::PortsExhausted { .. } => 1,
            EventKind::QuotaExceeded(_) => 2,
            _ => return false,
        };
        let (second, count) = &mut self.refusals[kind];
        if *second != event.at_ms / 1000 {
            (*second, *count) = (event.at_ms / 1000, 0);
        }
        *count = count.saturating_add(1);
        *count > REFUSALS_PER_SECOND
    }

    /// Events for which there was no room.
    pub fn lost(&self) -> u64 {
        self.shared.lost.load(Ordering::Relaxed)
    }

    /// Refusals left out because there were too many.
    pub fn suppressed(&self) -> u64 {
        self.shared.suppressed.load(Ordering::Relaxed)
    }
}

/// Only the producer writes its counters.
fn add(counter: &AtomicU64) {
    counter.store(counter.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
}

impl Drop for Producer {
    fn drop(&mut self) {
        self.shared.closed.store(true, Ordering::Release);
    }
}

impl Consumer {
    /// Take the oldest event.
    pub fn pop(&mut self) -> Option<Event> {
        loop {
            if self.at == self.written {
                self.written = self.shared.written.0.load(Ordering::Acquire);
                if self.at == self.written {
                    return None;
                }
            }
            let slot = self.shared.slot(self.at);
            let words: Words = std::array::from_fn(|at| slot[at].load(Ordering::Relaxed));
            self.at += 1;
            self.shared.read.0.store(self.at, Ordering::Release);
            if let Some(event) = Event::from_words(words) {
                return Some(event);
            }
        }
    }

    /// Events for which there was no room, since the start.
    pub fn lost(&self) -> u64 {
        self.shared.lost.load(Ordering::Relaxed)
    }

    /// Refusals left out because there were too many, since the start.
    pub fn suppressed(&self) -> u64 {
        self.shared.suppressed.load(Ordering::Relaxed)
    }

    /// Whether nothing is there and nothing will come.
    pub fn is_over(&mut self) -> bool {
        // In this order: what was written before the end is seen after it.
        let closed = self.shared.closed.load(Ordering::Acquire);
        closed && self.at == self.shared.written.0.load(Ordering::Acquire)
    }
}
