//! Elements of graphs in tests.

#![allow(
    clippy::unwrap_used,
    dead_code,
    reason = "a test that cannot go on has failed, and not each uses all"
)]

use dpdk::{Batch, Eal, EalOptions, Mempool};
use engine::{Cx, Element, ElementInfo};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

pub fn eal() -> &'static Eal {
    Eal::start(&EalOptions::default()).expect("DPDK starts without huge pages")
}

/// Source of frames numbered 0, 1, …; keeps what it could not hand on.
pub struct Numbers {
    pool: Mempool,
    next: u32,
    end: u32,
    held: Batch,
}

pub fn numbers(end: u32) -> Numbers {
    Numbers { pool: Mempool::new(eal(), 8191, 128).unwrap(), next: 0, end, held: Batch::new() }
}

impl Element for Numbers {
    fn about(&self) -> ElementInfo {
        ElementInfo { kind: "numbers", takes: false, outputs: &["out"], drops: &[], polled: true }
    }

    fn poll(&mut self, batch: &mut Batch, _: &mut Cx<'_>) {
        self.held.move_to(batch);
        let want = batch.room().min((self.end - self.next) as usize);
        let have = batch.len();
        if !self.pool.fill(batch, have + want) {
            return;
        }
        for mbuf in &mut batch.frames_mut()[have..] {
            mbuf.set_len(60).unwrap()[..4].copy_from_slice(&self.next.to_be_bytes());
            self.next += 1;
        }
    }

    fn refused(&mut self, _: usize, batch: &mut Batch, _: &mut Cx<'_>) {
        batch.move_to(&mut self.held);
    }
}

/// Drops every fifth, hands multiples of three to its second output.
pub struct Sort;

pub fn number(frame: &[u8]) -> u32 {
    u32::from_be_bytes(*frame.first_chunk().unwrap())
}

impl Element for Sort {
    fn about(&self) -> ElementInfo {
        ElementInfo {
            kind: "sort",
            takes: true,
            outputs: &["rest", "threes"],
            drops: &["never", "fifth"],
            polled: false,
        }
    }

    fn push(&mut self, batch: &mut Batch, cx: &mut Cx<'_>) {
        cx.drop_rejected(batch, |mbuf| if number(mbuf.data()).is_multiple_of(5) { Err(1) } else { Ok(()) });
        batch.filter_map(|mbuf| {
            if number(mbuf.data()).is_multiple_of(3) {
                cx.emit(1, mbuf);
                return None;
            }
            Some(mbuf)
        });
    }
}

/// Sink that insists on order and adds up what it saw. Takes at most `most` at once.
pub struct Check {
    pub seen: Arc<AtomicU64>,
    pub sum: Arc<AtomicU64>,
    last: Option<u32>,
    most: usize,
}

#[derive(Default, Clone)]
pub struct Recorder {
    pub seen: Arc<AtomicU64>,
    pub sum: Arc<AtomicU64>,
}

impl Recorder {
    pub fn check(&self, most: usize) -> Check {
        Check { seen: self.seen.clone(), sum: self.sum.clone(), last: None, most }
    }

    pub fn wait(&self, packets: u64) {
        let deadline = Instant::now() + Duration::from_secs(20);
        while self.seen.load(Relaxed) < packets {
            assert!(Instant::now() < deadline, "only {} of {packets} came", self.seen.load(Relaxed));
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

impl Element for Check {
    fn about(&self) -> ElementInfo {
        ElementInfo { kind: "check", takes: true, outputs: &[], drops: &[], polled: false }
    }

    fn push(&mut self, batch: &mut Batch, cx: &mut Cx<'_>) {
        let mut mine = Batch::new();
        let mut rest = Batch::new();
        for (i, mbuf) in std::mem::take(batch).into_iter().enumerate() {
            if i < self.most { mine.push(mbuf).unwrap() } else { rest.push(mbuf).unwrap() }
        }
        rest.move_to(batch);
        for mbuf in mine.frames() {
            let number = number(mbuf.data());
            assert!(self.last.is_none_or(|last| last < number), "{number} after {:?}", self.last);
            self.last = Some(number);
            self.sum.fetch_add(number.into(), Relaxed);
        }
        self.seen.fetch_add(mine.len() as u64, Relaxed);
        cx.consume(&mut mine);
    }
}
