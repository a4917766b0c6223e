//! Steps that the user writes, for protocols that have no model: send, expect, delay, repeat.
//!
//! A flow connects, plays the steps from first to last, and closes. Over TCP and TLS `expect` searches the
//! bytes that came, and uses them up to the end of what it found; over UDP it looks at one datagram at a time.

use crate::describe::{Confirmed, Delay, Description, ModelParams};
use crate::meter::Failure;
use crate::model::{Cx, Model};
use crate::problem::Problem;
use crate::target::{Carrier, Scheme, Target};
use crate::template::{Template, Values};
use crate::time::Time;
use crate::unit::Interval;
use memchr::memmem::Finder;
use regex::bytes::{Regex, RegexBuilder};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use std::time::Duration;

const SCHEMES: &[Scheme] = &[Scheme::tcp("tcp", None), Scheme::tls("tls", None), Scheme::udp("udp", None)];
const CONNECT: usize = 0;
const STEP: usize = 1;
const FLOW: usize = 2;

/// What it is.
pub const DESCRIPTION: Description = Description {
    name: "script",
    about: "steps that the user writes: send, expect, delay, repeat",
    schemes: SCHEMES,
    delays: &[
        Delay { name: "connect", about: "from the start of the flow to the connection being up" },
        Delay { name: "step", about: "from a send to the match of the expect that follows it" },
        Delay { name: "flow", about: "from the start of the flow to its end" },
    ],
    counters: &[],
    indices: &[],
    // it may send what it expects no answer to
    confirmed: Confirmed::Never,
    ordered: false,
    quick: None,
};

/// One step.
#[derive(Debug, Clone, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Step {
    /// Send this text: a template with `\r \n \t \0 \\ \xHH` escapes.
    Send(String),
    /// Send these bytes, in hexadecimal: `"0a 1b 2c"`.
    SendHex(String),
    /// Wait until this text has come; with the same escapes, no places.
    Expect(String),
    /// Wait until something has come that this regular expression matches (bytes; `(?s)` lets `.` cross lines).
    ExpectRegex(String),
    /// Wait until these bytes have come, in hexadecimal.
    ExpectHex(String),
    /// Wait this long.
    Delay(Interval),
    /// From here on, each `expect` waits at most this long.
    Timeout(Interval),
    /// Play steps several times; when the load ends, no further time.
    Repeat(Repeat),
}

/// Parameters of [`Step::Repeat`].
#[derive(Debug, Clone, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Repeat {
    /// How often; 0: until the load ends.
    pub count: u32,
    /// What.
    pub steps: Vec<Step>,
}

/// Parameters of the `script` model.
#[derive(Debug, Clone, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Params {
    /// What to do once connected, in order. Default: send `hello {seq}` and a line end, once.
    pub steps: Vec<Step>,
    /// Longest wait for the connection and for each `expect`; the flow fails then. Default `5s`.
    pub timeout: Interval,
}

impl Default for Params {
    fn default() -> Self {
        Self { steps: vec![Step::Send("hello {seq}\\n".into())], timeout: Interval::secs(5) }
    }
}

/// Most steps, with those inside of repeats.
const STEPS_MAX: usize = 4096;
/// Deepest repeat inside of repeats.
const DEPTH_MAX: usize = 4;
/// Most bytes kept for an `expect` that has not found its match.
const KEPT_MAX: usize = 64 * 1024;
/// Largest compiled regular expression.
const REGEX_MAX: usize = 1 << 20;
/// How many steps one callback plays before others get their turn.
const TURN: usize = 256;

/// A step, ready to play.
#[derive(Debug)]
enum Op {
    Send(Template),
    Expect {
        pattern: Pattern,
        within: Duration,
    },
    Delay(Duration),
    /// End of a repeat: back to `start` until `count` rounds are played.
    Again {
        start: usize,
        depth: usize,
        count: u32,
    },
}

/// What an `expect` looks for.
#[derive(Debug)]
enum Pattern {
    Bytes(Box<Finder<'static>>),
    Regex(Box<Regex>),
}

impl Pattern {
    /// Where the first match ends, when the first `seen` bytes are known to hold none.
    fn find(&self, bytes: &[u8], seen: usize) -> Option<usize> {
        match self {
            Pattern::Bytes(finder) => {
                let len = finder.needle().len();
                let from = seen.saturating_sub(len - 1).min(bytes.len());
                finder.find(&bytes[from..]).map(|at| from + at + len)
            }
            // a match may begin anywhere before
            Pattern::Regex(regex) => regex.find(bytes).map(|found| found.end()),
        }
    }
}

/// What is the same for all devices of a group.
#[derive(Debug)]
pub struct Plan {
    ops: Box<[Op]>,
    timeout: Duration,
    datagrams: bool,
}

impl ModelParams for Params {
    const DESCRIPTION: &'static Description = &DESCRIPTION;
    type Plan = Plan;

    fn check(&self) -> Result<(), Problem> {
        self.ops().map(drop)
    }

    fn compile(&self, target: &Target) -> Result<Plan, Problem> {
        let datagrams = target.scheme.carrier == Carrier::Datagram;
        Ok(Plan { ops: self.ops()?.into(), timeout: self.timeout.0, datagrams })
    }

    fn waits(&self, carrier: Carrier) -> bool {
        carrier == Carrier::Stream || self.expects()
    }

    fn expressions(&self) -> Option<(&'static str, usize)> {
        Some(("steps", expressions(&self.steps)))
    }

    #[cfg(any(test, feature = "testing"))]
    fn for_noise(&mut self, choice: u8, scheme: &mut Scheme) -> usize {
        let round = vec![
            Step::Send("a{seq}".into()),
            Step::Expect("a".into()),
            Step::ExpectRegex("[0-9]+b".into()),
            Step::Delay(Interval::ms(1)),
            Step::ExpectHex("00ff".into()),
        ];
        let count = 2 * u32::from(crate::describe::bit(choice, 2));
        self.steps = vec![Step::Repeat(Repeat { count, steps: round })];
        *scheme = SCHEMES[usize::from(choice & 3) % SCHEMES.len()];
        KEPT_MAX
    }
}

/// How many regular expressions there are in `steps`.
fn expressions(steps: &[Step]) -> usize {
    let of = |step: &Step| match step {
        Step::ExpectRegex(_) => 1,
        Step::Repeat(repeat) => expressions(&repeat.steps),
        _ => 0,
    };
    steps.iter().map(of).sum()
}

impl Params {
    /// Whether any step waits for the other side.
    fn expects(&self) -> bool {
        fn any(steps: &[Step]) -> bool {
            steps.iter().any(|step| match step {
                Step::Expect(_) | Step::ExpectRegex(_) | Step::ExpectHex(_) => true,
                Step::Repeat(repeat) => any(&repeat.steps),
                Step::Send(_) | Step::SendHex(_) | Step::Delay(_) | Step::Timeout(_) => false,
            })
        }
        any(&self.steps)
    }

    fn ops(&self) -> Result<Vec<Op>, Problem> {
        let waits = self.timeout > Interval::default();
        Problem::unless(waits, "timeout", || "is zero".into(), "use 5s")?;
        let mut ops = Vec::new();
        compile(&self.steps, 0, &mut self.timeout.0.clone(), &mut ops).map_err(|p| p.under("steps"))?;
        let few = ops.len() <= STEPS_MAX;
        Problem::unless(
            few,
            "steps",
            || format!("are {}", ops.len()),
            format!("use at most {STEPS_MAX}, or repeat"),
        )?;
        Ok(ops)
    }
}

fn compile(steps: &[Step], depth: usize, timeout: &mut Duration, ops: &mut Vec<Op>) -> Result<(), Problem> {
    Problem::unless(!steps.is_empty(), "", || "is empty".into(), "give at least one step")?;
    for (i, step) in steps.iter().enumerate() {
        let at = format!("[{i}]");
        let expect = |pattern, timeout: &Duration| Op::Expect { pattern, within: *timeout };
        match step {
            Step::Send(text) => {
                let key = format!("{at}.send");
                ops.push(Op::Send(Template::parse_bytes(&unescape(text, true, &key)?, &key)?));
            }
            Step::SendHex(text) => {
                ops.push(Op::Send(Template::literal(&hex(text, &format!("{at}.send_hex"))?)))
            }
            Step::Expect(text) => {
                let key = format!("{at}.expect");
                ops.push(expect(literal(&unescape(text, false, &key)?, &key)?, timeout));
            }
            Step::ExpectHex(text) => {
                let key = format!("{at}.expect_hex");
                ops.push(expect(literal(&hex(text, &key)?, &key)?, timeout));
            }
            Step::ExpectRegex(text) => {
                ops.push(expect(regex(text, &format!("{at}.expect_regex"))?, timeout));
            }
            Step::Delay(time) => ops.push(Op::Delay(time.0)),
            Step::Timeout(time) => {
                let waits = *time > Interval::default();
                Problem::unless(waits, &format!("{at}.timeout"), || "is zero".into(), "use 5s")?;
                *timeout = time.0;
            }
            Step::Repeat(Repeat { count, steps }) => {
                let key = format!("{at}.repeat");
                let what = || "is inside of too many others".into();
                Problem::unless(depth < DEPTH_MAX, &key, what, format!("use at most {DEPTH_MAX} levels"))?;
                let start = ops.len();
                compile(steps, depth + 1, timeout, ops).map_err(|p| p.under("steps").under(&key))?;
                let waits = ops[start..].iter().any(|op| match op {
                    Op::Expect { .. } => true,
                    Op::Delay(time) => !time.is_zero(),
                    Op::Send(_) | Op::Again { .. } => false,
                });
                let what = || "never ends and never waits".into();
                Problem::unless(
                    *count > 0 || waits,
                    &key,
                    what,
                    "give a count, or put a delay or an expect into it",
                )?;
                ops.push(Op::Again { start, depth, count: *count });
            }
        }
    }
    Ok(())
}

fn literal(bytes: &[u8], key: &str) -> Result<Pattern, Problem> {
    let some = !bytes.is_empty() && bytes.len() <= KEPT_MAX / 2;
    Problem::unless(some, key, || "is empty or too long".into(), "give 1 to 32768 bytes to wait for")?;
    Ok(Pattern::Bytes(Box::new(Finder::new(bytes).into_owned())))
}

fn regex(text: &str, key: &str) -> Result<Pattern, Problem> {
    let built =
        RegexBuilder::new(text).unicode(false).size_limit(REGEX_MAX).dfa_size_limit(REGEX_MAX).build();
    let regex = built.map_err(|error| {
        // the last line says what is wrong, those before point at it
        let error = error.to_string();
        let what = error.lines().last().unwrap_or_default().trim_start_matches("error: ").to_owned();
        Problem::new(key, what, "see https://docs.rs/regex/#syntax")
    })?;
    let what = || "matches nothing at all".into();
    Problem::unless(!regex.is_match(b""), key, what, "write + for *, or say what comes behind")?;
    Ok(Pattern::Regex(Box::new(regex)))
}

/// `\r \n \t \0 \\ \xHH`. In a template (`places`), a brace written as `\x7b` is no place.
fn unescape(text: &str, places: bool, key: &str) -> Result<Vec<u8>, Problem> {
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        if byte != b'\\' {
            out.push(byte);
            continue;
        }
        let plain = match rest.next() {
            Some(b'r') => b'\r',
            Some(b'n') => b'\n',
            Some(b't') => b'\t',
            Some(b'0') => 0,
            Some(b'\\') => b'\\',
            Some(b'x') => {
                let digit = |byte: Option<u8>| char::from(byte?).to_digit(16);
                let (Some(high), Some(low)) = (digit(rest.next()), digit(rest.next())) else {
                    return Err(Problem::new(
                        key,
                        "\\x without two hexadecimal digits",
                        "write it like \\x1b",
                    ));
                };
                let byte = (high << 4 | low) as u8;
                if places && matches!(byte, b'{' | b'}') {
                    out.push(byte);
                }
                byte
            }
            _ => {
                let fix = "use \\r \\n \\t \\0 \\\\ \\xHH (in JSON each \\ is written \\\\)";
                return Err(Problem::new(key, "an unknown escape", fix));
            }
        };
        out.push(plain);
    }
    Ok(out)
}

fn hex(text: &str, key: &str) -> Result<Vec<u8>, Problem> {
    let wrong = || Problem::new(key, format!("{text:?} is not hexadecimal"), "write it like \"0a 1b 2c\"");
    let mut out = Vec::new();
    for word in text.split_ascii_whitespace() {
        let digits = word.as_bytes();
        if digits.len() % 2 == 1 {
            return Err(wrong());
        }
        for pair in digits.chunks(2) {
            let value = pair.iter().try_fold(0, |v, d| Some(v << 4 | char::from(*d).to_digit(16)?));
            out.push(value.ok_or_else(wrong)? as u8);
        }
    }
    Ok(out)
}

impl Plan {
    /// A new device.
    pub fn device(self: &Arc<Self>, _index: u32) -> Device {
        Device {
            plan: Arc::clone(self),
            kept: Vec::new(),
            started: Time::ZERO,
            due: Time::ZERO,
            limit: Time::NEVER,
            asked: None,
            seen: 0,
            next: 0,
            at: 0,
            rounds: [0; DEPTH_MAX],
            state: State::Idle,
            waiting: false,
            other: false,
            stopping: false,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Idle,
    Connecting,
    Playing,
}

/// One virtual device.
#[derive(Debug)]
pub struct Device {
    plan: Arc<Plan>,
    /// What came and was not used yet; for datagrams each with its length before it.
    kept: Vec<u8>,
    /// When the flow began.
    started: Time,
    /// When the step at hand was due.
    due: Time,
    /// When an expect fails or a delay is over.
    limit: Time,
    /// When the last send was due, until an expect answers it.
    asked: Option<Time>,
    /// How much of `kept` has no match in it.
    seen: u32,
    /// Number of the next send.
    next: u32,
    /// The step at hand.
    at: u32,
    /// Rounds played of each repeat around it.
    rounds: [u32; DEPTH_MAX],
    state: State,
    /// The step at hand has begun.
    waiting: bool,
    /// Something else came than what is expected.
    other: bool,
    stopping: bool,
}

impl Model for Device {
    fn start(&mut self, cx: &mut Cx<'_>) {
        let plan = Arc::clone(&self.plan);
        *self = plan.device(0);
        self.started = cx.intended;
        self.due = cx.intended;
        if plan.datagrams {
            self.state = State::Playing;
            self.play(cx);
        } else {
            self.state = State::Connecting;
            self.limit = cx.now + plan.timeout;
            cx.wake_at(self.limit);
            cx.connect();
        }
    }

    fn connected(&mut self, cx: &mut Cx<'_>) {
        if self.state == State::Connecting {
            cx.delay(self.started, CONNECT);
            self.state = State::Playing;
            self.due = cx.now;
            self.play(cx);
        }
    }

    fn received(&mut self, cx: &mut Cx<'_>, bytes: &[u8]) -> usize {
        if self.state == State::Playing {
            cx.arrived(cx.now, bytes.len());
            // kept here, as it may be looked at when only time has passed
            let framed = if self.plan.datagrams { 2 } else { 0 };
            if self.kept.len() + framed + bytes.len() > KEPT_MAX && self.plan.datagrams {
                cx.unasked(cx.now);
                return bytes.len();
            }
            if self.plan.datagrams {
                self.kept.extend_from_slice(&(bytes.len() as u16).to_be_bytes());
            }
            self.kept.extend_from_slice(bytes);
            self.play(cx);
            if self.state == State::Playing && self.kept.len() > KEPT_MAX {
                self.fail(cx, Failure::Protocol, || {
                    "more came than is kept, without what is expected".into()
                });
            }
        }
        bytes.len()
    }

    fn timer(&mut self, cx: &mut Cx<'_>) {
        match self.state {
            State::Idle => {}
            State::Connecting if self.limit <= cx.now => {
                self.fail(cx, Failure::Timeout, || "no connection in time".into());
            }
            State::Connecting => cx.wake_at(self.limit),
            State::Playing => self.play(cx),
        }
    }

    fn closed(&mut self, cx: &mut Cx<'_>, why: Failure) {
        if self.asks_no_more() && matches!(why, Failure::Closed | Failure::Reset) {
            // it has said its goodbye, and may close as well as we
            cx.excuse();
            cx.delay(self.started, FLOW);
            cx.finish();
            return self.end(cx);
        }
        if self.state != State::Idle {
            self.end(cx);
            cx.give_up();
        }
    }

    fn stop(&mut self, cx: &mut Cx<'_>) {
        // repeats end with the round at hand; what stands behind them (a farewell) is played
        self.stopping = true;
        if self.state == State::Playing {
            self.play(cx);
        }
    }

    fn abandoned(&mut self, cx: &mut Cx<'_>) {
        if self.state == State::Connecting {
            cx.never_answered(self.started, "no connection by the end of the drain");
        } else if self.waiting_since() != Time::NEVER {
            let step = self.at;
            let what = format!("step {step} had not got what it expects by the end of the drain");
            let asked = self.asked.unwrap_or(self.due);
            if self.plan.datagrams {
                cx.unanswered(asked, &what);
            } else {
                cx.never_answered(asked, &what);
            }
        }
        self.state = State::Idle;
    }

    fn waiting_since(&self) -> Time {
        match self.plan.ops.get(self.at as usize) {
            Some(Op::Expect { within, .. }) if self.state == State::Playing && self.waiting => {
                Time(self.limit.0.saturating_sub(u64::try_from(within.as_nanos()).unwrap_or(u64::MAX)))
            }
            _ => Time::NEVER,
        }
    }
}

impl Device {
    /// Whether nothing is left to play but pauses: all is sent, and all that is expected has come.
    fn asks_no_more(&self) -> bool {
        let over = |op: &Op| match op {
            Op::Send(_) | Op::Expect { .. } => false,
            Op::Delay(_) => true,
            Op::Again { depth, count, .. } => {
                self.stopping || *count > 0 && self.rounds[*depth].saturating_add(1) >= *count
            }
        };
        let left = self.plan.ops.get(self.at as usize..).unwrap_or_default();
        self.state == State::Playing && !self.plan.datagrams && left.iter().all(over)
    }

    fn end(&mut self, cx: &mut Cx<'_>) {
        self.state = State::Idle;
        self.kept = Vec::new();
        cx.wake_at(Time::NEVER);
    }

    fn fail(&mut self, cx: &mut Cx<'_>, why: Failure, what: impl FnOnce() -> String) {
        cx.fail(cx.now, why, what);
        self.end(cx);
    }

    fn step(&mut self, due: Time) {
        self.at += 1;
        self.due = due;
        self.waiting = false;
        self.other = false;
        self.seen = 0;
    }

    /// Play steps until one has to wait.
    fn play(&mut self, cx: &mut Cx<'_>) {
        let plan = Arc::clone(&self.plan);
        for _ in 0..TURN {
            let Some(op) = plan.ops.get(self.at as usize) else {
                cx.delay(self.started, FLOW);
                cx.finish();
                cx.close();
                return self.end(cx);
            };
            match op {
                Op::Send(template) => {
                    if plan.datagrams && !cx.out.bytes.is_empty() {
                        // the next datagram has to wait for the next call
                        return cx.wake_at(cx.now);
                    }
                    let values = Values { device: cx.device, seq: u64::from(self.next), now: cx.now };
                    let before = cx.out.bytes.len();
                    template.render(values, cx.rng, &mut cx.out.bytes);
                    cx.sent(self.due, cx.out.bytes.len() - before);
                    self.next = self.next.wrapping_add(1);
                    self.asked = Some(self.due);
                    self.step(self.due);
                }
                Op::Expect { pattern, within } => {
                    if !self.waiting {
                        self.waiting = true;
                        self.limit = cx.now + *within;
                    }
                    if self.found(cx, pattern) {
                        match self.asked.take() {
                            Some(asked) => cx.delivered(asked, STEP),
                            None => cx.unasked(cx.now),
                        }
                        self.step(cx.now);
                    } else if self.limit <= cx.now {
                        return self.missing(cx);
                    } else {
                        return cx.wake_at(self.limit);
                    }
                }
                Op::Delay(time) => {
                    if !self.waiting {
                        self.waiting = true;
                        self.limit = self.due + *time;
                    }
                    if self.limit > cx.now {
                        return cx.wake_at(self.limit);
                    }
                    self.step(self.limit);
                }
                Op::Again { start, depth, count } => {
                    let rounds = &mut self.rounds[*depth];
                    *rounds = rounds.saturating_add(1);
                    if (*count == 0 || *rounds < *count) && !self.stopping && cx.loading() {
                        self.at = *start as u32;
                    } else {
                        *rounds = 0;
                        self.at += 1;
                    }
                }
            }
        }
        cx.wake_at(cx.now);
    }

    /// Look for the pattern in what came; use it up to the end of the match.
    fn found(&mut self, cx: &mut Cx<'_>, pattern: &Pattern) -> bool {
        if !self.plan.datagrams {
            if self.kept.len() == self.seen as usize {
                return false;
            }
            let end = pattern.find(&self.kept, self.seen as usize);
            match end {
                Some(end) => drop(self.kept.drain(..end)),
                None => self.seen = self.kept.len() as u32,
            }
            return end.is_some();
        }
        while let Some((len, rest)) = self.kept.split_first_chunk() {
            let len = usize::from(u16::from_be_bytes(*len)).min(rest.len());
            let hit = pattern.find(&rest[..len], 0).is_some();
            self.kept.drain(..2 + len);
            if hit {
                return true;
            }
            self.other = true;
            cx.unasked(cx.now);
        }
        false
    }

    /// An expect is over without a match.
    fn missing(&mut self, cx: &mut Cx<'_>) {
        let step = self.at;
        if self.kept.is_empty() && !self.other {
            return self.fail(cx, Failure::Timeout, || format!("nothing came at step {step} in time"));
        }
        let start = self.kept[..self.kept.len().min(60)].escape_ascii().to_string();
        self.fail(cx, Failure::Rejected, || format!("not what step {step} expects: {start}"));
    }
}

#[cfg(test)]
mod tests;
