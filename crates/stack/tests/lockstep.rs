//! Two stacks, and a path between them of which each step is chosen by an input: what is written, read, delivered, lost, repeated,
//! put out of order or damaged, when time passes, and which segments strangers add. In lockstep with them goes a simple reference
//! that sees frames only: what each side may say, given what reached it.
//!
//! Who adds segments with right sequence numbers can say anything in a peer's name: from then on only memory and the end are checked.

use crate::wire::{Frames, MS, config, ip, mac, segment};
use packet::tcp::{Header, Options, SACKS, flag};
use packet::{Layers, ethernet};
use stack::{CloseReason, CongestionControl, Handle, Received, Stack, State, TcpConfig};
use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;

/// Frames on their way to one side, at most: more are lost.
const ON_THE_WAY: usize = 64;
/// Half-open connections that the server allows.
const HALF_OPEN: usize = 8;
/// Steps until everything is delivered and closed, at most.
const PATIENCE: usize = 50_000;

/// Plays what `input` chooses; panics where a stack does what it must not.
pub fn play(input: &[u8]) {
    let mut lockstep = Lockstep::new(&mut Input(input));
    let input = &mut Input(&input[input.len().min(SETTINGS)..]);
    while let Some(what) = input.byte() {
        lockstep.step(what, input);
        lockstep.flush();
    }
    lockstep.finish();
}

/// Bytes at the start of an input that are settings.
const SETTINGS: usize = 6;

struct Input<'a>(&'a [u8]);

impl Input<'_> {
    fn byte(&mut self) -> Option<u8> {
        let (first, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(*first)
    }

    fn small(&mut self) -> u8 {
        self.byte().unwrap_or(0)
    }

    fn word(&mut self) -> u16 {
        u16::from_be_bytes([self.small(), self.small()])
    }

    /// Small numbers of either sign, or any.
    fn offset(&mut self) -> u32 {
        match self.small() {
            0 => u32::from(self.word()) << 16 | u32::from(self.word()),
            near @ 1..100 => u32::from(near).wrapping_sub(50),
            _ => u32::from(self.word()).wrapping_sub(1 << 15),
        }
    }
}

/// Byte `at` of what side `side` writes.
fn byte(side: usize, at: u64) -> u8 {
    ((at + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15 + 2 * side as u64) >> 56) as u8
}

/// Ranges of a stream, apart from each other: from where to where.
#[derive(Default)]
struct Ranges(BTreeMap<i64, i64>);

impl Ranges {
    fn add(&mut self, mut from: i64, mut to: i64) {
        while let Some((&left, &right)) = self.0.range(..=to).next_back().filter(|(_, right)| **right >= from)
        {
            (from, to) = (from.min(left), to.max(right));
            self.0.remove(&left);
        }
        if from < to {
            self.0.insert(from, to);
        }
    }

    fn has(&self, from: i64, to: i64) -> bool {
        self.0.range(..=from).next_back().is_some_and(|(_, right)| to <= *right)
    }

    /// To where nothing is missing.
    fn whole(&self) -> i64 {
        self.0.get(&0).copied().unwrap_or(0)
    }
}

/// One end, and what the reference knows about it.
struct Side {
    stack: Stack,
    tcp: TcpConfig,
    handle: Option<Handle>,
    written: u64,
    read: u64,
    /// Its owner writes no more.
    is_shut: bool,
    /// Its owner has let go of it.
    is_over: bool,
    broken: bool,
    /// Its initial sequence number, and the window scale that it offered.
    iss: Option<u32>,
    scale: Option<u8>,
    /// What reached it of the peer's stream, the peer's FIN, a RST, and the farthest window.
    delivered: Ranges,
    fin_at: Option<i64>,
    was_reset: bool,
    peer_edge: i64,
    /// What it said: up to where it has all, and how far its window reaches.
    ack: i64,
    edge: i64,
    /// Frames on their way to it; whether they are as they were sent.
    coming: VecDeque<(Vec<u8>, bool)>,
}

impl Side {
    fn new(side: u8, tcp: TcpConfig) -> Self {
        let mut stack = Stack::new(stack::Config { peer: Some(mac(1 - side)), ..config(side, tcp) });
        if side == 1 {
            stack.listen(80, HALF_OPEN);
        }
        Self {
            stack,
            tcp,
            handle: None,
            written: 0,
            read: 0,
            is_shut: false,
            is_over: false,
            broken: false,
            iss: None,
            scale: None,
            delivered: Ranges::default(),
            fin_at: None,
            was_reset: false,
            peer_edge: 0,
            ack: 0,
            edge: 0,
            coming: VecDeque::new(),
        }
    }

    /// Where a sequence number is in its stream.
    fn place(&self, sequence: u32) -> i64 {
        i64::from(sequence.wrapping_sub(self.iss.unwrap_or(0).wrapping_add(1)) as i32)
    }

    fn state(&self) -> Option<State> {
        Some(self.stack.status(self.handle?)?.state)
    }
}

struct Lockstep {
    sides: [Side; 2],
    now: u64,
    /// Somebody spoke in a peer's name.
    is_forged: bool,
}

impl Lockstep {
    fn new(input: &mut Input<'_>) -> Self {
        let mut side = |number| {
            let (flags, receive, send) = (input.small(), input.small(), input.small());
            let tcp = TcpConfig {
                sack: flags & 1 == 0,
                timestamps: flags & 2 == 0,
                window_scale: flags & 4 == 0,
                control: if flags & 8 == 0 { CongestionControl::NewReno } else { CongestionControl::Cubic },
                receive_buffer: 600 + u32::from(receive) * 700,
                send_buffer: 600 + u32::from(send) * 700,
                ..TcpConfig::default()
            };
            Side::new(number, tcp)
        };
        let mut all = Self { sides: [side(0), side(1)], now: 1_000_000 * MS, is_forged: false };
        let remote = SocketAddr::new(ip(1, false), 80);
        all.sides[0].handle = all.sides[0].stack.connect(ip(0, false), remote, 1, all.now).ok();
        all.flush();
        all
    }

    fn step(&mut self, what: u8, input: &mut Input<'_>) {
        let at = usize::from(what >> 7);
        match what & 0x0f {
            0..=2 => self.deliver(at, 0, false),
            3 => self.deliver(at, input.small().into(), false),
            4 => self.deliver(at, input.small().into(), true),
            5 => _ = self.sides[at].coming.pop_front(),
            6 => self.damage(at, input.word()),
            7 => self.pass(u64::from(input.small()).pow(2) * MS),
            8 | 9 => _ = self.pass_to_next(),
            10 => self.write(at, input.word() >> 3),
            11 => self.read(at, usize::from(input.word() >> 3) + 1),
            12 if input.small() > 200 => self.end(at, input.small()),
            13 => self.add_outside(at, input),
            14 if input.small() > 200 => self.forge(at, input),
            _ => {}
        }
    }

    /// Frame `index` of those on their way to side `at` arrives; `again`: and once more later.
    fn deliver(&mut self, at: usize, index: usize, again: bool) {
        let coming = &mut self.sides[at].coming;
        if coming.is_empty() {
            return;
        }
        let index = index % coming.len();
        let found = if again { coming.get(index).cloned() } else { coming.remove(index) };
        let Some((frame, is_whole)) = found else { return };
        if is_whole {
            self.arrives(at, &frame);
        }
        self.sides[at].stack.receive(&frame, self.now);
    }

    /// The reference takes note of what reaches side `at`.
    fn arrives(&mut self, at: usize, frame: &[u8]) {
        let (header, payload) = parse(frame);
        let peer = &self.sides[1 - at];
        let (from, edge) = (peer.place(header.sequence), peer.edge);
        let side = &mut self.sides[at];
        side.was_reset |= header.has(flag::RST);
        if header.has(flag::RST | flag::SYN) {
            side.peer_edge = side.peer_edge.max(if header.has(flag::SYN) { header.window.into() } else { 0 });
            return;
        }
        let to = from + payload.len() as i64;
        side.delivered.add(from, to);
        if header.has(flag::FIN) {
            side.fin_at = Some(to);
        }
        // what it said last reaches as far as anything before
        side.peer_edge = side.peer_edge.max(edge);
    }

    /// One bit of a frame on its way, behind its Ethernet header, is another.
    fn damage(&mut self, at: usize, bit: u16) {
        let Some((frame, is_whole)) = self.sides[at].coming.front_mut().filter(|(_, is_whole)| *is_whole)
        else {
            return;
        };
        let behind = frame.len() - ethernet::LEN;
        let bit = usize::from(bit) % (behind * 8);
        frame[ethernet::LEN + bit / 8] ^= 1 << (bit % 8);
        *is_whole = false;
    }

    fn pass(&mut self, time: u64) {
        self.now += time;
        for side in &mut self.sides {
            side.stack.advance(self.now);
        }
    }

    /// Time passes until something is due; whether anything is.
    fn pass_to_next(&mut self) -> bool {
        let next = self.sides.iter().map(|side| side.stack.next_at()).min().unwrap_or(u64::MAX);
        if next < u64::MAX {
            self.pass(next.saturating_sub(self.now).max(1));
        }
        next < u64::MAX
    }

    fn write(&mut self, at: usize, len: u16) {
        let side = &mut self.sides[at];
        let Some(handle) = side.handle.filter(|_| !side.is_shut && !side.is_over && !side.broken) else {
            return;
        };
        let bytes: Vec<u8> = (side.written..side.written + u64::from(len)).map(|n| byte(at, n)).collect();
        match side.stack.write(handle, &bytes, self.now) {
            Ok(taken) => side.written += taken as u64,
            Err(why) => self.breaks(at, why),
        }
    }

    fn read(&mut self, at: usize, len: usize) {
        let side = &mut self.sides[at];
        let Some(handle) = side.handle.filter(|_| !side.is_over && !side.broken) else { return };
        let mut buffer = vec![0; len];
        match side.stack.read(handle, &mut buffer, self.now) {
            Ok(Received::Bytes(len, _)) => {
                if !self.is_forged {
                    let right = (side.read..).zip(&buffer[..len]).all(|(n, got)| byte(1 - at, n) == *got);
                    assert!(right, "what is read is what was written");
                    assert!(
                        side.read as i64 + len as i64 <= side.delivered.whole(),
                        "it is read before it came"
                    );
                }
                side.read += len as u64;
            }
            Ok(Received::End) => {
                if !self.is_forged {
                    assert_eq!(side.fin_at, Some(side.read as i64), "the end is where the peer's FIN is");
                }
            }
            Ok(Received::Dry) => {}
            Err(why) => self.breaks(at, why),
        }
    }

    fn breaks(&mut self, at: usize, why: CloseReason) {
        let side = &mut self.sides[at];
        side.broken = true;
        assert!(
            self.is_forged || why == CloseReason::TimedOut || side.was_reset,
            "broken by {why}, and nobody reset it"
        );
    }

    fn end(&mut self, at: usize, how: u8) {
        let side = &mut self.sides[at];
        let Some(handle) = side.handle.filter(|_| !side.is_over) else { return };
        match how % 3 {
            0 => {
                side.stack.close(handle, self.now);
                side.is_over = true;
            }
            1 => {
                side.stack.abort(handle, self.now);
                side.is_over = true;
            }
            _ => {
                side.stack.shut_down(handle, self.now);
                side.is_shut = true;
            }
        }
    }

    /// Ports from side `at`'s peer to it.
    fn toward(at: usize) -> Header {
        let (source, destination) = if at == 0 { (80, 40_000) } else { (40_000, 80) };
        Header { source, destination, ..Header::default() }
    }

    /// A stranger who knows addresses and ports, and no sequence number: it must not matter (RFC 5961).
    fn add_outside(&mut self, at: usize, input: &mut Input<'_>) {
        let (flags, far, ack, window) = (input.small(), input.word(), input.offset(), input.word());
        let side = &self.sides[at];
        let is_there = side.state().is_some_and(|state| {
            !matches!(state, State::Closed | State::SynSent | State::SynReceived | State::TimeWait)
        });
        let Some(peer) = self.sides[1 - at].iss.filter(|_| is_there) else { return };
        let beyond = side.edge.max(side.ack + i64::from(side.tcp.receive_buffer)) as u32;
        let sequence = peer.wrapping_add(2 + beyond).wrapping_add(u32::from(far) << 14);
        let header = Header { sequence, acknowledgment: ack, flags, window, ..Self::toward(at) };
        let frame = segment(at as u8, false, &header, &[0xee; 9]);
        self.sides[at].stack.receive(&frame, self.now);
    }

    /// Somebody who knows everything.
    fn forge(&mut self, at: usize, input: &mut Input<'_>) {
        self.is_forged = true;
        let (flags, len) = (input.small(), usize::from(input.word() >> 5));
        let side = &self.sides[at];
        let next = self.sides[1 - at].iss.unwrap_or(0).wrapping_add(1).wrapping_add(side.ack as u32);
        let sent = side.iss.unwrap_or(0).wrapping_add(1).wrapping_add(side.written as u32);
        let mut options = Options::default();
        let which = input.small();
        if flags & flag::SYN != 0 {
            options.mss = (which & 1 == 0).then(|| input.word());
            options.window_scale = (which & 2 == 0).then(|| input.small());
            options.sack_permitted = which & 4 == 0;
        } else {
            options.sacks = which % (SACKS as u8 + 1);
            for block in &mut options.sack[..usize::from(which) % (SACKS + 1)] {
                *block = (sent.wrapping_add(input.offset()), sent.wrapping_add(input.offset()));
            }
        }
        if which & 0x80 != 0 && options.sacks < 3 {
            options.timestamps = Some((input.offset(), input.offset()));
        }
        let mut header = Header {
            sequence: next.wrapping_add(input.offset()),
            acknowledgment: sent.wrapping_add(input.offset()),
            flags,
            window: input.word(),
            options,
            ..Self::toward(at)
        };
        if which & 0x40 != 0 {
            header.source = header.source.wrapping_add(input.word());
        }
        let frame = segment(at as u8, false, &header, &vec![0xee; len]);
        self.sides[at].stack.receive(&frame, self.now);
    }

    /// What both want to send goes on its way, and is looked at.
    fn flush(&mut self) {
        for at in 0..2 {
            let mut out = Frames::default();
            self.sides[at].stack.advance(self.now);
            assert!(self.sides[at].stack.transmit(self.now, &mut out));
            for frame in out.0 {
                if !self.is_forged {
                    self.check(at, &frame);
                }
                let coming = &mut self.sides[1 - at].coming;
                coming.push_back((frame, true));
                if coming.len() > ON_THE_WAY {
                    coming.pop_front();
                }
            }
            let side = &mut self.sides[at];
            while let Some(handle) = (at == 1).then(|| side.stack.accept(2)).flatten() {
                if side.handle.is_some() {
                    // of an old SYN: nobody reads from it
                    self.is_forged = true;
                    side.stack.abort(handle, self.now);
                } else {
                    side.handle = Some(handle);
                }
            }
            while side.stack.event().is_some() {}
            assert!(side.stack.connections() <= HALF_OPEN + 2);
            assert!(side.stack.buffers() <= side.stack.connections());
            let held =
                side.handle.and_then(|handle| side.stack.status(handle)).map_or(0, |status| status.held);
            assert!(held <= side.tcp.send_buffer as usize, "{held} B are held");
        }
    }

    /// A frame that side `at` sends says nothing but what is so.
    fn check(&mut self, at: usize, frame: &[u8]) {
        let (header, payload) = parse(frame);
        if header.has(flag::RST) {
            return;
        }
        let both_scale = self.sides.iter().all(|side| side.tcp.window_scale);
        let [left, right] = &mut self.sides;
        let (side, peer) = if at == 0 { (left, right) } else { (right, left) };
        if header.has(flag::SYN) {
            if side.iss.is_some_and(|iss| iss != header.sequence || side.is_over) {
                // an old SYN came again and begins another connection, at the same moment with the same number
                self.is_forged = true;
                return;
            }
            side.iss = Some(header.sequence);
            side.scale = header.options.window_scale;
        }
        let from = side.place(header.sequence) + i64::from(header.has(flag::SYN));
        let to = from + payload.len() as i64;
        assert!(payload.is_empty() || to <= side.written as i64, "what was not written is sent");
        assert!(
            payload.is_empty() || to <= side.peer_edge,
            "{to} is beyond the peer's window {}",
            side.peer_edge
        );
        let right = (from..).zip(payload).all(|(n, sent)| byte(at, n as u64) == *sent);
        assert!(right, "what is sent is what was written");
        if header.has(flag::FIN) {
            assert!(
                (side.is_shut || side.is_over) && to == side.written as i64,
                "FIN comes after the last byte"
            );
        }
        if !header.has(flag::ACK) {
            return;
        }
        let ack = peer.place(header.acknowledgment);
        let whole = side.delivered.whole();
        let fin = i64::from(side.fin_at == Some(whole));
        assert!(ack <= whole + fin, "{ack} is acknowledged, {whole} came");
        assert!(ack >= side.ack, "what was acknowledged is missing again");
        let shift = if both_scale && !header.has(flag::SYN) { side.scale.unwrap_or(0) } else { 0 };
        let edge = ack + (i64::from(header.window) << shift);
        assert!(
            edge <= side.read as i64 + fin + i64::from(side.tcp.receive_buffer) || side.is_over,
            "more is invited than there is room for"
        );
        assert!(
            header.has(flag::SYN) || edge + (1 << shift) > side.edge.min(side.ack + 65_535) || side.is_over,
            "the window shrinks"
        );
        (side.ack, side.edge) = (ack, side.edge.max(edge));
        for (left, right) in header.options.blocks() {
            let (left, right) = (peer.place(*left), peer.place(*right));
            assert!(
                left < right && side.delivered.has(left, right),
                "{left}-{right} is selected, and did not come"
            );
        }
    }

    /// The path is good from now on: all that was written arrives, and nothing is left after the end.
    fn finish(&mut self) {
        let steps = (0..PATIENCE).take_while(|_| self.settle()).count();
        assert!(steps < PATIENCE, "it does not come to rest");
        let lives = |side: &Side| !side.is_over && !side.broken;
        if !self.is_forged && self.sides.iter().all(lives) && self.sides[1].handle.is_some() {
            for at in 0..2 {
                assert_eq!(self.sides[at].read, self.sides[1 - at].written, "side {at} has read it all");
            }
        }
        for at in 0..2 {
            self.end(at, 1);
        }
        while let Some(handle) = self.sides[1].stack.accept(2) {
            self.sides[1].stack.abort(handle, self.now);
        }
        self.flush();
        let steps = (0..PATIENCE).take_while(|_| self.settle()).count();
        assert!(steps < PATIENCE, "it does not end");
        for side in &self.sides {
            assert_eq!((side.stack.connections(), side.stack.buffers()), (0, 0), "something is left");
        }
    }

    /// All on its way arrives and is read, or time passes; whether anything happened.
    fn settle(&mut self) -> bool {
        let mut happened = false;
        for at in 0..2 {
            while !self.sides[at].coming.is_empty() {
                self.deliver(at, 0, false);
                self.flush();
                happened = true;
            }
            let before = self.sides[at].read;
            self.read(at, 1 << 16);
            self.flush();
            happened |= self.sides[at].read != before;
        }
        if !happened {
            happened = self.pass_to_next();
            self.flush();
        }
        happened
    }
}

fn parse(frame: &[u8]) -> (Header, &[u8]) {
    let layers = Layers::find(frame).expect("right headers");
    assert!(layers.is_intact(frame), "right checksums");
    Header::parse(layers.segment(frame)).expect("a segment")
}
