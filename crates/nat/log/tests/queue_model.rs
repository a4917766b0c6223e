//! The queue in every order in which its two threads can see each other's writes.
//!
//! But one: loom never lets a read see what is written later, which is what the release in `Consumer::pop` forbids.

#![allow(dead_code)] // not all of both files is used here

#[path = "../src/event.rs"]
mod event;
#[path = "../src/queue.rs"]
mod queue;

/// What the queue shares between threads: here what loom watches.
mod sync {
    pub use loom::sync::Arc;
    pub use loom::sync::atomic::{AtomicBool, AtomicU64, Ordering};
}

use event::{Block, Event, EventKind, Tags};
use loom::thread;
use queue::queue;
use std::net::Ipv4Addr;

/// Event number n says so in all its words.
fn event(n: u16) -> Event {
    let address = Ipv4Addr::new(10, 0, 0, n as u8);
    let tags = Tags { outer: n, inner: n };
    let block = Block { inside: address, tags, outside: address, first: n, last: n };
    Event { at_ms: n.into(), what: EventKind::BlockAllocated(block) }
}

#[test]
fn events_come_whole_and_in_order_or_are_counted_as_lost() {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(3);
    model.check(|| {
        let (mut producer, mut consumer) = queue(1);
        let writer = thread::spawn(move || (1..=3).filter(|n| producer.push(event(*n))).count());
        let (mut seen, mut next) = (0, 1);
        while !consumer.is_over() {
            match consumer.pop() {
                Some(got) => {
                    let n = got.at_ms as u16;
                    assert!(n >= next);
                    assert_eq!(got, event(n));
                    (seen, next) = (seen + 1, n + 1);
                }
                None => thread::yield_now(),
            }
        }
        let pushed = writer.join().expect("the writer");
        assert_eq!((seen, consumer.lost()), (pushed, 3 - pushed as u64));
    });
}
