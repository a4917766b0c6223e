//! UDP datagrams, each with its number and its time in the payload ([`packet::signature`]).
//!
//! A flow is a stream at a constant rate. With `echo` the other side reflects every datagram, and what
//! comes back gives delay, loss, duplicates and reordering (RFC 4737); without, it is only sent.

mod replies;

use crate::describe::{
    Confirmed, Delay, Description, FlowLength, ModelKind, ModelParams, Replies, SendRate, SizeOption,
    StatelessStream, UrlMapping,
};
use crate::meter::{Failure, Phase};
use crate::model::{Cx, Model};
use crate::pace::Pace;
use crate::problem::Problem;
use crate::rate_timeline::RateTimeline;
use crate::reordering::OutOfOrder;
use crate::sequence_window::SequenceClass;
use crate::target::{Carrier, Scheme, Target};
use crate::time::Time;
use crate::unit::{Interval, Rate, Size};
use packet::signature::{self, Signature};
use replies::FlowReplies;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use std::time::Duration;

const SCHEMES: &[Scheme] = &[Scheme::udp("udp", None)];
const ROUND_TRIP: usize = 0;
const ONE_WAY: usize = 1;

/// What it is.
pub const DESCRIPTION: Description = Description {
    name: "stream",
    about: "UDP datagrams, each with a sequence number and its time",
    schemes: SCHEMES,
    delays: &[
        Delay { name: "round_trip", about: "with `echo`: from the intended send time to the return" },
        Delay {
            name: "one_way",
            about: "without `echo`, where the transport has both ends: from the intended send time to the arrival",
        },
    ],
    values: &[],
    counters: &[],
    indices: &[],
    confirmed: Confirmed::By("echo"),
    ordered: true,
    quick: Some(UrlMapping {
        messages: "datagrams",
        device: "device",
        devices: 1,
        count: "count",
        interval: "interval",
        rate: Some("rate"),
        size: SizeOption::Key("size"),
        path: None,
        options: &[],
    }),
    texts: &[],
};

/// Parameters of the `stream` model.
#[derive(Debug, Clone, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Params {
    /// UDP payload of each datagram, 18 to 65507 bytes. Default `64B`.
    pub size: Size,
    /// Datagrams per second of each device. Default `1000/s`, unless `interval` is given.
    pub rate: Option<Rate>,
    /// Time from one datagram to the next; instead of `rate`. Default: none.
    pub interval: Option<Interval>,
    /// Datagrams per flow; 0: until the load ends. Default 0.
    pub count: u64,
    /// How many datagrams fall due together; the rate stays the same. Default 1.
    #[schemars(range(min = 1, max = 65536))]
    pub burst: u32,
    /// Whether the other side reflects the datagrams. Default `true`.
    pub echo: bool,
    /// With `echo`: how long to wait for datagrams still on their way after the last was sent. Default `1s`.
    pub timeout: Interval,
}

impl Default for Params {
    fn default() -> Self {
        Self {
            size: Size(64),
            rate: None,
            interval: None,
            count: 0,
            burst: 1,
            echo: true,
            timeout: Interval::secs(1),
        }
    }
}

/// Largest UDP payload in an IPv4 packet.
const SIZE_MAX: Size = Size(65_507);
/// Rate of a device when nothing is said.
const RATE: Rate = Rate(1000.0);
/// Highest rate of one device: beyond it the time between two datagrams has no meaning.
const RATE_MAX: f64 = 1e8;
/// Most datagrams of one callback: what the kernel takes in one segmented send (UDP_MAX_SEGMENTS).
const BATCH: usize = 64;
/// Most bytes of one callback, for the same reason.
const BATCH_BYTES: usize = 65_507;
/// How many datagrams back duplicates are known by: what may be on its way, within these limits.
const WINDOW: (u64, u64) = (1 << 10, 1 << 20);

/// What is the same for all devices of a group.
#[derive(Debug)]
pub struct Config {
    /// A whole payload; the signature goes over its start.
    payload: Box<[u8]>,
    batch: usize,
    pace: Pace,
    count: u64,
    echo: bool,
    /// Whether it waits for each datagram until the next one leaves at least: only then does silence tell something.
    listens: bool,
    timeout: Duration,
    /// Latest numbers whose replies are told from copies.
    window: u64,
}

impl ModelKind for Params {
    const DESCRIPTION: &'static Description = &DESCRIPTION;
    type Config = Config;

    fn compile(&self, _target: &Target) -> Result<Config, Problem> {
        self.check()?;
        let (size, pace) = (self.size.bytes(), self.pace()?);
        let away = pace.due_by(Time::ZERO, Time::ZERO + self.timeout.0);
        Ok(Config {
            payload: (0..size).map(|i| i as u8).collect(),
            batch: BATCH.min(BATCH_BYTES / size),
            pace,
            count: self.count,
            echo: self.echo,
            listens: self.echo && away > u64::from(self.burst),
            timeout: self.timeout.0,
            window: away.clamp(WINDOW.0, WINDOW.1).next_power_of_two(),
        })
    }

    fn most_per_second(config: &Config) -> Option<f64> {
        let most = config.window as f64 / config.timeout.as_secs_f64().max(1e-9);
        config.echo.then_some(most)
    }

    fn timeline(config: &Config) -> Option<&Arc<RateTimeline>> {
        Some(config.pace.timeline())
    }
}

impl ModelParams for Params {
    fn about(&self) -> &'static Description {
        &DESCRIPTION
    }

    fn check(&self) -> Result<(), Problem> {
        self.pace().map(drop)?;
        let size_ok = (Size(signature::LEN as u64)..=SIZE_MAX).contains(&self.size);
        Problem::unless(
            size_ok,
            "size",
            || format!("{} is out of range", self.size),
            "use 18B (the signature) to 65507B",
        )?;
        let burst_ok = (1..=65_536).contains(&self.burst);
        Problem::unless(burst_ok, "burst", || format!("{} is out of range", self.burst), "use 1 to 65536")
    }

    fn confirmed(&self) -> bool {
        self.echo
    }

    fn awaits_answers(&self, _carrier: Carrier) -> bool {
        self.echo
    }

    fn compares(&self) -> bool {
        self.echo
    }

    fn send_rate(&self) -> Option<SendRate> {
        Some(match (self.rate, self.interval) {
            (None, Some(interval)) => SendRate { key: "interval", per_second: interval.per_second() },
            (rate, _) => SendRate { key: "rate", per_second: rate.map_or(0.0, |rate| rate.0) },
        })
    }

    fn repeats(&self) -> Option<FlowLength> {
        let interval = match (self.interval, self.rate) {
            (Some(interval), _) => interval,
            (None, Some(rate)) if rate.0 > 0.0 => Interval(Duration::try_from_secs_f64(1.0 / rate.0).ok()?),
            (None, _) => Interval::ms(1),
        };
        Some(FlowLength { key: "count", count: self.count, interval })
    }

    fn replies(&self) -> Option<Replies> {
        let every = |interval: Interval| 1e9 / interval.ns().max(1) as f64;
        let per_second = self.rate.map(|rate| rate.0).or(self.interval.map(every)).unwrap_or(RATE.0);
        Some(Replies { per_second, burst: f64::from(self.burst), bytes: self.size.bytes() as f64 })
    }

    fn stateless(&self) -> Option<StatelessStream> {
        Some(StatelessStream {
            size: self.size.bytes(),
            rate: self.rate,
            interval: self.interval,
            count: self.count,
            burst: self.burst,
            echo: self.echo,
            delay: if self.echo { ROUND_TRIP } else { ONE_WAY },
        })
    }

    #[cfg(any(test, feature = "testing"))]
    fn for_noise(&mut self, choice: u8, _scheme: &mut Scheme) -> usize {
        use crate::describe::bit;
        self.echo = !bit(choice, 0);
        self.burst = 1 + 9 * u32::from(bit(choice, 1));
        self.size = Size(18 + u64::from(choice >> 4));
        self.count = 50 * u64::from(bit(choice, 2));
        usize::MAX
    }
}

impl Params {
    fn pace(&self) -> Result<Pace, Problem> {
        let pace = match (self.rate, self.interval) {
            (Some(_), Some(_)) => {
                return Err(Problem::new("interval", "stands beside rate", "give one of the two"));
            }
            (None, Some(interval)) => {
                let waits = interval > Interval::default();
                Problem::unless(waits, "interval", || "is zero".into(), "give the rate that is meant")?;
                Pace::every(interval)
            }
            (rate, None) => {
                let rate = rate.unwrap_or(RATE);
                let rate_ok = rate.0 > 1e-6 && rate.0 <= RATE_MAX;
                Problem::unless(rate_ok, "rate", || format!("{rate} is out of range"), "use at most 100M/s")?;
                Pace::per_second(rate)
            }
        };
        Ok(pace.in_bursts(self.burst))
    }
}

impl Config {
    /// A new device.
    pub fn device(self: &Arc<Self>, _index: u32) -> Device {
        Device {
            config: Arc::clone(self),
            replies: self.echo.then(|| Box::new(FlowReplies::new(self.window))),
            next: 0,
            base: Time::ZERO,
            quiet: Time::ZERO,
            silent: Time::NEVER,
            running: false,
            stopping: false,
        }
    }
}

/// One virtual device.
#[derive(Debug)]
pub struct Device {
    config: Arc<Config>,
    /// With `echo` only.
    replies: Option<Box<FlowReplies>>,
    /// Number of the next datagram.
    next: u64,
    /// When the first datagram was due.
    base: Time,
    /// When the last datagram was sent.
    quiet: Time,
    /// When the first was sent after the last that came back.
    silent: Time,
    running: bool,
    stopping: bool,
}

impl Model for Device {
    fn start(&mut self, cx: &mut Cx<'_>) {
        if let Some(replies) = &mut self.replies {
            replies.begin(self.next, cx.tally.failed);
        }
        self.next = 0;
        self.base = cx.intended;
        self.quiet = cx.now;
        self.silent = Time::NEVER;
        self.running = true;
        self.stopping = false;
        self.pump(cx);
    }

    fn connected(&mut self, _cx: &mut Cx<'_>) {}

    #[inline]
    fn received(&mut self, cx: &mut Cx<'_>, bytes: &[u8]) -> usize {
        if self.running {
            self.datagram(cx, bytes);
            if self.is_back() && !self.has_more(cx) {
                self.finish_flow(cx);
            }
        }
        bytes.len()
    }

    fn timer(&mut self, cx: &mut Cx<'_>) {
        if self.running {
            self.pump(cx);
        }
    }

    fn closed(&mut self, _cx: &mut Cx<'_>, _why: Failure) {
        // what is lost does not change when the next datagram is due
    }

    fn stop(&mut self, cx: &mut Cx<'_>) {
        if self.running {
            self.count_missed(cx);
            self.stopping = true;
            self.pump(cx);
        }
    }

    fn abandoned(&mut self, cx: &mut Cx<'_>) {
        if self.running {
            self.settle(cx);
            self.running = false;
        }
    }

    #[inline]
    fn waiting_since(&self) -> Time {
        if self.running && self.config.listens { self.silent } else { Time::NEVER }
    }

    fn overdue(&self, end: Time) -> u64 {
        let sends = self.running && !self.stopping;
        if sends { self.config.pace.pending(self.base, self.next, self.config.count, end) } else { 0 }
    }
}

impl Device {
    fn count_missed(&mut self, cx: &mut Cx<'_>) {
        if !self.stopping {
            self.config.pace.count_missed(cx, self.base, self.next, self.config.count);
        }
    }

    fn end(&mut self, cx: &mut Cx<'_>) {
        self.count_missed(cx);
        self.settle(cx);
        self.running = false;
        cx.wake_at(Time::NEVER);
    }

    /// Whether every datagram came back, if they are to.
    fn is_back(&self) -> bool {
        self.replies.as_ref().is_none_or(|replies| replies.back() == self.next)
    }

    /// Nothing more comes back of this flow: what did not is unanswered, unless the transport has counted why.
    fn settle(&mut self, cx: &mut Cx<'_>) {
        let Some(replies) =
            self.replies.as_mut().filter(|replies| replies.order.is_some() || replies.next < self.next)
        else {
            return;
        };
        let due = |number| self.config.pace.due(self.base, number);
        // what was lost in the warm-up is in no pattern, and a flow's end belongs to its last datagram
        let measure = cx.window.measure.0.checked_sub(1);
        let warmup = measure.map_or(0, |last| self.config.pace.due_by(self.base, Time(last)));
        let last = replies.next.max(warmup)..self.next;
        let into = cx.at(due(self.next.saturating_sub(1))).reordering_mut();
        let back = replies.back();
        let pattern = replies.order().finish(back, last, into);
        cx.tally.pattern.merge(&pattern);
        let warmup = warmup.min(self.next);
        let mut lost =
            [warmup.saturating_sub(replies.back[0]), (self.next - warmup).saturating_sub(replies.back[1])];
        let early = replies.failed_warmup - replies.failed_before;
        let mut known = [early, cx.tally.failed.saturating_sub(replies.failed_before + early)].map(u64::from);
        // what failed just after the warm-up may have been sent just before its end
        for (of, seen) in [(0, 0), (1, 1), (0, 1), (1, 0)] {
            let told = known[seen].min(lost[of]);
            lost[of] -= told;
            known[seen] -= told;
        }
        let ends = [cx.window.measure.0.saturating_sub(1), cx.window.measure.0].map(Time);
        for (at, lost) in ends.into_iter().zip(lost) {
            cx.failures(at, lost, Failure::Unanswered, || format!("{lost} datagrams did not come back"));
        }
    }

    fn finish_flow(&mut self, cx: &mut Cx<'_>) {
        self.end(cx);
        cx.finish();
        cx.close();
    }

    #[inline]
    fn has_more(&self, cx: &Cx<'_>) -> bool {
        (self.config.count == 0 || self.next < self.config.count) && !self.stopping && cx.loading()
    }

    /// Send what is due; wait for what is on its way; end.
    fn pump(&mut self, cx: &mut Cx<'_>) {
        let config = &*self.config;
        let size = config.payload.len();
        if let Some(replies) = self.replies.as_mut().filter(|_| cx.window.phase(cx.now) == Phase::Warmup) {
            replies.failed_warmup = cx.tally.failed;
        }
        let mut due = Time::NEVER;
        if self.has_more(cx) {
            let left = if config.count == 0 { u64::MAX } else { config.count - self.next };
            let most = left.min(config.batch as u64).min(cx.left);
            let stream = cx.device & signature::STREAM_MAX;
            let first = self.replies.as_ref().map_or(0, |replies| replies.first);
            let mut sent = 0;
            due = config.pace.due(self.base, self.next);
            while sent < most && due <= cx.now {
                let start = cx.out.bytes.len();
                cx.out.bytes.extend_from_slice(&config.payload);
                if let Some(place) = cx.out.bytes[start..].first_chunk_mut() {
                    Signature { stream, sequence: first + self.next, sent_ns: due.0 }.emit(place);
                }
                cx.sent(due, size);
                cx.late(due);
                self.next += 1;
                sent += 1;
                due = config.pace.due(self.base, self.next);
            }
            if sent > 0 {
                cx.out.segment = size;
                self.quiet = cx.now;
                self.silent = self.silent.min(cx.now);
            }
        }
        if self.has_more(cx) {
            return cx.wake_at(due.max(cx.now));
        }
        let until = self.quiet + config.timeout;
        if !config.echo || self.is_back() || until <= cx.now {
            self.finish_flow(cx);
        } else {
            cx.wake_at(until);
        }
    }

    #[inline]
    fn datagram(&mut self, cx: &mut Cx<'_>, bytes: &[u8]) {
        let config = &*self.config;
        let Some(replies) = &mut self.replies else { return cx.count_unrequested(cx.now) };
        let mark = Signature::parse(bytes).filter(|mark| mark.stream == cx.device & signature::STREAM_MAX);
        let same = bytes.get(signature::LEN..) == config.payload.get(signature::LEN..);
        let Some(Signature { sequence, sent_ns, .. }) = mark.filter(|_| same) else {
            return cx.corrupted(cx.now, || changed(&config.payload, bytes));
        };
        let (sent, number) = (Time(sent_ns), sequence.wrapping_sub(replies.first) & signature::SEQUENCE_MAX);
        if sent < self.base && number > signature::SEQUENCE_MAX / 2 {
            // from a flow before this one
            return cx.count_unrequested(cx.now);
        }
        // the time follows from the number: what is changed in one of them shows
        if number >= self.next || config.pace.due(self.base, number) != sent {
            return cx
                .corrupted(cx.now, || format!("number {sequence} with another time than it was sent at"));
        }
        cx.arrived(sent, bytes.len());
        let warmup = cx.window.phase(sent) == Phase::Warmup;
        let datagram = OutOfOrder { number, index: replies.back(), now: cx.now.0 };
        match replies.arrived(number) {
            SequenceClass::InOrder => {}
            SequenceClass::Ahead(first) => {
                replies.order().skipped(first, datagram, !warmup, cx.at(sent).reordering_mut());
            }
            // RFC 4737 §3: type-P-reordered
            SequenceClass::Reordered => {
                cx.tally.reordered = cx.tally.reordered.saturating_add(1);
                let tally = cx.at(sent);
                tally.counts.reordered += 1;
                replies.order().late(datagram, tally.reordering_mut());
            }
            SequenceClass::Duplicate => {
                cx.tally.duplicates = cx.tally.duplicates.saturating_add(1);
                cx.at(sent).counts.duplicates += 1;
                return;
            }
            SequenceClass::TooLate => return cx.count_unrequested(sent),
        }
        replies.back[usize::from(!warmup)] += 1;
        // one that was lost before is not waited for, those sent after it are from now on
        self.silent = if replies.next < self.next { cx.now } else { Time::NEVER };
        cx.delivered(sent, ROUND_TRIP);
    }
}

/// How a reply differs from what was sent.
#[cold]
fn changed(sent: &[u8], reply: &[u8]) -> String {
    if sent.len() != reply.len() {
        return format!("a reply of {} bytes to a datagram of {}", reply.len(), sent.len());
    }
    let rest = sent.iter().zip(reply).enumerate().skip(signature::LEN);
    match rest.into_iter().find(|(_, (sent, reply))| sent != reply) {
        Some((at, (sent, reply))) => {
            format!("a reply with {reply:#04x} in place of {sent:#04x} at byte {at}")
        }
        None => "a reply with another signature than any datagram sent".into(),
    }
}

#[cfg(test)]
mod tests;
