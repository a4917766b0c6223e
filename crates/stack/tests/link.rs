//! Simulated link between two stacks: delay, loss, reordering and duplication from a seed, in simulated time.

use crate::nic::Nic;
use crate::wire::{MS, config, ip};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use stack::{Handle, Offload, Received, Stack, State, TcpConfig, Transmit};
use std::collections::BTreeMap;
use std::net::SocketAddr;

/// A port that takes no frames.
pub struct Full;

impl Transmit for Full {
    fn frame(&mut self, _len: usize) -> Option<&mut [u8]> {
        None
    }
}

/// What becomes of frames.
#[derive(Debug, Clone, Copy)]
pub struct Path {
    /// One way, ns.
    pub delay: u64,
    /// Up to so much more, each frame for itself, ns.
    pub jitter: u64,
    /// Of a thousand frames.
    pub loss: u32,
    pub twice: u32,
    /// What the ports at both ends do by themselves.
    pub offload: Offload,
}

impl Path {
    pub const CLEAN: Self = Self {
        delay: MS,
        jitter: 0,
        loss: 0,
        twice: 0,
        offload: Offload { checksums: false, segmentation: None },
    };
}

/// Two stacks and what is on its way between them.
pub struct Pair {
    pub sides: [Stack; 2],
    pub now: u64,
    pub path: Path,
    pub frames: u64,
    /// The next frames of side 0 that get lost, by their number.
    pub lose: Vec<u64>,
    /// How many were.
    pub lost: u64,
    on_the_way: BTreeMap<(u64, u64), (usize, Vec<u8>)>,
    rng: SmallRng,
}

impl Pair {
    pub fn new(path: Path, tcp: TcpConfig, seed: u64) -> Self {
        let mut sides = [Stack::new(config(0, tcp)), Stack::new(config(1, tcp))];
        sides[1].listen(80, 100);
        let rng = SmallRng::seed_from_u64(seed);
        Self {
            sides,
            now: 1_000 * MS,
            path,
            frames: 0,
            lose: Vec::new(),
            lost: 0,
            on_the_way: BTreeMap::new(),
            rng,
        }
    }

    /// Connect side 0 to side 1.
    pub fn connect(&mut self, owner: u64, v6: bool) -> Handle {
        let remote = SocketAddr::new(ip(1, v6), 80);
        self.sides[0].connect(ip(0, v6), remote, owner, self.now).expect("a port")
    }

    fn flush(&mut self) {
        for side in 0..2 {
            let mut out = Nic::new(self.path.offload);
            assert!(self.sides[side].transmit(self.now, &mut out));
            for frame in out.frames() {
                self.frames += 1;
                let named = side == 0 && self.lose.contains(&self.frames);
                self.lost += u64::from(named);
                if named || self.rng.random_range(0..1000) < self.path.loss {
                    continue;
                }
                let times = if self.rng.random_range(0..1000) < self.path.twice { 2 } else { 1 };
                for copy in 0..times {
                    let jitter =
                        if self.path.jitter > 0 { self.rng.random_range(0..self.path.jitter) } else { 0 };
                    let at = self.now + self.path.delay + jitter;
                    self.on_the_way.insert((at, self.frames * 2 + copy), (1 - side, frame.clone()));
                }
            }
        }
    }

    /// Go on until the next thing happens; `false`: nothing does before `end`.
    pub fn step(&mut self, end: u64) -> bool {
        self.flush();
        let frame = self.on_the_way.first_key_value().map_or(u64::MAX, |((at, _), _)| *at);
        let next = self.sides.iter().map(Stack::next_at).min().unwrap_or(u64::MAX).min(frame).max(self.now);
        if next > end {
            self.now = end;
            return false;
        }
        self.now = next;
        while let Some(entry) = self.on_the_way.first_entry().filter(|entry| entry.key().0 <= self.now) {
            let (side, frame) = entry.remove();
            self.sides[side].receive(&frame, self.now);
        }
        for side in &mut self.sides {
            side.advance(self.now);
            while side.event().is_some() {}
        }
        true
    }

    /// Go on for so long.
    pub fn run(&mut self, time: u64) {
        let end = self.now + time;
        while self.step(end) {}
    }

    /// Go on until `done`, for `time` at most; whether it was.
    pub fn until(&mut self, time: u64, mut done: impl FnMut(&mut Self) -> bool) -> bool {
        let end = self.now + time;
        loop {
            if done(self) {
                return true;
            }
            if !self.step(end) {
                return done(self);
            }
        }
    }

    /// A connection, up on both sides.
    pub fn connected(&mut self, v6: bool) -> [Handle; 2] {
        let mut mine = self.connect(1, v6);
        let mut yours = None;
        assert!(self.until(3_600_000 * MS, |pair| {
            // the path may have lost all questions for the neighbour's address
            if pair.sides[0].status(mine).is_some_and(|status| status.state == State::Closed) {
                pair.sides[0].close(mine, pair.now);
                mine = pair.connect(1, v6);
            }
            yours = yours.or(pair.sides[1].accept(2));
            yours.is_some()
        }));
        [mine, yours.expect("accepted")]
    }

    /// All that side `side` has received on a connection; whether the end was reached.
    pub fn read(&mut self, side: usize, handle: Handle, into: &mut Vec<u8>) -> bool {
        let mut buffer = [0; 4096];
        loop {
            match self.sides[side].read(handle, &mut buffer, self.now) {
                Ok(Received::Bytes(n, _)) => into.extend_from_slice(&buffer[..n]),
                Ok(Received::Dry) => return false,
                Ok(Received::End) => return true,
                Err(broken) => panic!("{broken}"),
            }
        }
    }
}
