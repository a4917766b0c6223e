//! A test that plays the server: drives one device with made-up time and shows what it does.

use crate::cause::Cause;
use crate::describe::{Description, ModelKind, bit};
use crate::media::{Channel, MediaPacket};
use crate::meter::{Counts, DeviceTally, Failure, Phase, Tally, Window};
use crate::model::{Cx, FlowEnd, Link, Model, Outbox};
use crate::target::Target;
use crate::time::Time;
use rand::SeedableRng;
use rand::rngs::SmallRng;
use std::net::SocketAddr;

/// One device on the bench: what goes in is said by the test, what comes out is collected.
#[derive(Debug)]
pub struct Bench<M> {
    /// The device.
    pub model: M,
    /// The time; tests move it.
    pub now: Time,
    /// The phases.
    pub window: Window,
    /// What the device sent and the test has not taken.
    pub out: Outbox,
    /// The last thing it asked of the connection.
    pub link: Link,
    /// How often it asked to connect.
    pub connects: u32,
    /// Its timer.
    pub wake: Time,
    /// How the flow ended, once it did.
    pub end: Option<FlowEnd>,
    /// Whether the last loss of the connection was in order.
    pub excused: bool,
    /// Whether the server has closed its side of the connection.
    pub ended: bool,
    /// Whether connections end without saying so (TLS without close_notify).
    pub truncated: bool,
    /// The last cause of a failure that it gave.
    pub cause: Option<Cause>,
    /// What it complained about.
    pub examples: Vec<String>,
    /// Its summary.
    pub tally: DeviceTally,
    /// Our end of its connections.
    pub local: Option<SocketAddr>,
    /// The other end of its connections.
    pub peer: Option<SocketAddr>,
    /// Who sent what is received, where that is another.
    pub from: Option<SocketAddr>,
    /// The address of its media socket for RTP.
    pub media: Option<SocketAddr>,
    /// Received and not yet used.
    pub inbox: Vec<u8>,
    meter: [Tally; 3],
    rng: SmallRng,
}

impl<M> Bench<M> {
    /// A bench for a device of the model that `about` describes, whose measure phase lasts from the start to one hour.
    pub fn of(model: M, about: &Description) -> Self {
        Self { meter: std::array::from_fn(|_| Tally::of(about)), ..Self::new(model) }
    }

    /// The same with room for some delays and counters, whatever the model.
    pub fn new(model: M) -> Self {
        Self {
            model,
            now: Time::ZERO,
            window: Window { measure: Time::ZERO, drain: Time(3_600_000_000_000) },
            out: Outbox::default(),
            link: Link::Keep,
            connects: 0,
            wake: Time::NEVER,
            end: None,
            excused: false,
            ended: false,
            truncated: false,
            cause: None,
            examples: Vec::new(),
            tally: DeviceTally::default(),
            local: None,
            peer: None,
            from: None,
            media: None,
            inbox: Vec::new(),
            meter: std::array::from_fn(|_| Tally::sized(8, 16)),
            rng: SmallRng::seed_from_u64(1),
        }
    }

    /// Call the model as a transport would, and take note of what it asks for.
    pub fn call<R>(&mut self, f: impl FnOnce(&mut M, &mut Cx<'_>) -> R) -> R {
        self.call_due(self.now, f)
    }

    fn call_due<R>(&mut self, due: Time, f: impl FnOnce(&mut M, &mut Cx<'_>) -> R) -> R {
        let Self { now, window, out, rng, meter, tally, .. } = self;
        let mut cx = Cx::new(*now, due, 0, out, rng, *window, meter, tally);
        cx.local = self.local;
        cx.peer = self.peer;
        cx.from = self.from;
        cx.media = self.media;
        cx.ended = self.ended;
        cx.truncated = self.truncated;
        let answer = f(&mut self.model, &mut cx);
        let (link, wake, end, example) = (cx.link, cx.wake, cx.end, cx.example.take());
        let queued = cx.queued;
        self.excused = cx.excused;
        for (tally, bytes) in self.meter.iter_mut().zip(queued) {
            tally.counts.bytes_sent += bytes;
        }
        if link != Link::Keep {
            self.link = link;
        }
        if link == Link::Connect {
            self.connects += 1;
            self.ended = false;
        }
        if link != Link::Keep {
            self.inbox.clear();
        }
        self.wake = wake.unwrap_or(self.wake);
        self.end = end.or(self.end);
        self.cause = example.as_ref().map(|(cause, _)| *cause).or(self.cause);
        self.examples.extend(example.map(|(_, what)| what));
        answer
    }

    /// What was counted in `phase`.
    pub fn counts(&self, phase: Phase) -> Counts {
        self.meter[phase as usize].counts
    }

    /// All that was measured in `phase`.
    pub fn tally_of(&self, phase: Phase) -> &Tally {
        &self.meter[phase as usize]
    }

    /// What was counted in the measure phase.
    pub fn measured(&self) -> Counts {
        self.counts(Phase::Measure)
    }

    /// The model's own counter number `counter` over all phases.
    pub fn own(&self, counter: usize) -> u64 {
        self.meter.iter().map(|tally| tally.own[counter]).sum()
    }

    /// Failures of one kind over all phases.
    pub fn failures(&self, why: Failure) -> u64 {
        self.meter.iter().map(|tally| tally.counts.failures[why as usize]).sum()
    }

    /// How many values delay number `delay` has, and the largest, in milliseconds, over all phases.
    pub fn delay(&self, delay: usize) -> (u64, u64) {
        let histograms = self.meter.iter().map(|tally| &tally.delays[delay]);
        histograms.fold((0, 0), |(n, max), h| (n + h.len(), max.max(h.max() / 1_000_000)))
    }

    /// What the device sent since this was last asked.
    pub fn sent(&mut self) -> Vec<u8> {
        self.out.segment = 0;
        std::mem::take(&mut self.out.bytes)
    }

    /// The same as text.
    pub fn sent_text(&mut self) -> String {
        String::from_utf8_lossy(&self.sent()).into_owned()
    }
}

impl<M: Model> Bench<M> {
    /// Begin a flow.
    pub fn start(&mut self) {
        self.end = None;
        self.call(|model, cx| model.start(cx));
    }

    /// Begin a flow and let the connection come up at once.
    pub fn start_connected(&mut self) {
        self.start();
        assert_eq!(self.link, Link::Connect, "a flow begins with a connection");
        self.connected();
    }

    /// The connection is up.
    pub fn connected(&mut self) {
        self.call(|model, cx| model.connected(cx));
    }

    /// The server sends `bytes`; what the device does not use is kept for the next time.
    pub fn feed(&mut self, bytes: &[u8]) {
        self.inbox.extend_from_slice(bytes);
        let inbox = std::mem::take(&mut self.inbox);
        let used = self.call(|model, cx| model.received(cx, &inbox));
        assert!(used <= inbox.len(), "used {used} of {} bytes", inbox.len());
        if self.link != Link::Close {
            self.inbox = inbox[used..].to_vec();
        }
    }

    /// One datagram arrives.
    pub fn datagram(&mut self, bytes: &[u8]) {
        self.call(|model, cx| model.received(cx, bytes));
    }

    /// One datagram arrives at a media socket.
    pub fn media_datagram(&mut self, channel: Channel, from: SocketAddr, bytes: &[u8]) {
        let at = self.now;
        self.call(|model, cx| model.media(cx, MediaPacket { channel, from, at, bytes }));
    }

    /// The connection is lost.
    pub fn closed(&mut self, why: Failure) {
        self.inbox.clear();
        self.call(|model, cx| model.closed(cx, why));
    }

    /// The measure phase ends.
    pub fn stop(&mut self) {
        self.call(|model, cx| model.stop(cx));
    }

    /// Draining is over.
    pub fn abandon(&mut self) {
        self.call(|model, cx| model.abandoned(cx));
    }

    /// Let time pass, up to `ms` since the start, with every timer in between.
    pub fn run_to_ms(&mut self, ms: u64) {
        self.run_to(Time(ms * 1_000_000));
    }

    /// Let time pass up to `until`, with every timer in between.
    pub fn run_to(&mut self, until: Time) {
        let mut at_once = 0;
        while self.wake <= until {
            let due = self.wake;
            at_once = if due > self.now { 0 } else { at_once + 1 };
            assert!(at_once < 100_000, "the timer never stops");
            self.now = self.now.max(due);
            self.wake = Time::NEVER;
            self.call_due(due, |model, cx| model.timer(cx));
        }
        self.now = self.now.max(until);
    }
}

/// Arbitrary bytes in arbitrary pieces, with time passing and connections lost in between: the device must
/// not panic, loop, or hoard more than `hoard` bytes. How many messages it sent, and how many of them were delivered
/// or counted as failed, with the lost connections that a transport would count.
pub fn assault<M: Model>(model: M, data: &[u8], hoard: usize) -> (u64, u64) {
    assault_on(Bench::new(model), data, hoard)
}

fn assault_on<M: Model>(mut bench: Bench<M>, data: &[u8], hoard: usize) -> (u64, u64) {
    let mut lost = 0;
    bench.window.drain = Time(3_000_000_000);
    bench.start();
    bench.connected();
    let mut rest = data;
    while let Some((&op, after)) = rest.split_first() {
        rest = after;
        let out = std::mem::take(&mut bench.out.bytes);
        let segment = std::mem::take(&mut bench.out.segment);
        match op {
            // mostly bytes, in pieces of 1 to 64
            0..=191 => {
                let (piece, after) = rest.split_at(rest.len().min(usize::from(op & 63) + 1));
                rest = after;
                feed_piece(&mut bench, piece, hoard);
            }
            // what was sent comes back, with one byte changed
            192..=207 => {
                let (change, after) = rest.split_at(rest.len().min(2));
                rest = after;
                for piece in out.chunks(segment.max(1)).take(64) {
                    let mut piece = piece.to_vec();
                    if let [at, bits] = *change {
                        let at = usize::from(at) % piece.len();
                        piece[at] ^= bits;
                    }
                    feed_piece(&mut bench, &piece, hoard);
                }
            }
            208..=239 => {
                let until = Time(bench.now.0 + (u64::from(op & 31) << 23));
                for _ in 0..64 {
                    if bench.wake > until {
                        break;
                    }
                    bench.now = bench.wake.max(bench.now);
                    bench.wake = Time::NEVER;
                    bench.call(|model, cx| model.timer(cx));
                    bench.out.bytes.truncate(1 << 16);
                }
                bench.now = until;
            }
            240..=247 => {
                let why = Failure::ALL[usize::from(op) % Failure::ALL.len()];
                bench.closed(why);
                lost += u64::from(!bench.excused);
            }
            248..=253 => {
                if bench.link == Link::Connect {
                    bench.connected();
                }
            }
            254 => bench.stop(),
            255 => {
                bench.abandon();
                bench.start();
            }
        }
        if bench.end.take().is_some() {
            bench.start();
            bench.connected();
        }
    }
    bench.abandon();
    let sum = |count: fn(&Counts) -> u64| bench.meter.iter().map(|tally| count(&tally.counts)).sum::<u64>();
    let failed = sum(|counts| counts.failures.iter().sum());
    (sum(|counts| counts.messages_sent), sum(|counts| counts.messages_delivered) + failed + lost)
}

fn feed_piece<M: Model>(bench: &mut Bench<M>, piece: &[u8], hoard: usize) {
    if let (Some(at), [first, ..]) = (bench.media, piece)
        && first & 3 == 3
    {
        let channel = Channel::ALL[usize::from(first >> 2 & 1)];
        bench.media_datagram(channel, at, piece);
        bench.out.media.clear();
    } else if bench.link != Link::Close && bench.end.is_none() {
        bench.feed(piece);
        assert!(bench.inbox.len() <= hoard, "keeps {} bytes", bench.inbox.len());
    }
}

/// Noise for a device with these parameters, of which the first byte of `data` picks some: see [`assault`]. What the
/// device knows of each message that it sent is checked.
pub fn noise<P: ModelKind, M: Model>(mut params: P, device: impl Fn(P::Config) -> M, data: &[u8]) {
    let Some((&choice, data)) = data.split_first() else { return };
    let mut scheme = P::DESCRIPTION.schemes[0];
    let hoard = params.for_noise(choice, &mut scheme);
    let target = Target { scheme, host: "host".into(), port: 1, ipv6: bit(choice, 7) };
    let media = params.has_media().then(|| SocketAddr::from(([192, 0, 2, 1], 4000)));
    let (sent, known) = match params.compile(&target) {
        Ok(config) => {
            let bench = Bench { media, ..Bench::of(device(config), P::DESCRIPTION) };
            assault_on(bench, data, hoard)
        }
        Err(problem) => unreachable!("{problem}"),
    };
    let confirmed = params.confirmed();
    assert!(!confirmed || sent <= known, "{sent} messages sent, and of {known} is known what became of them");
}
