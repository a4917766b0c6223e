//! HTTP/1.1 client (RFC 9110 semantics, RFC 9112 syntax).
//!
//! A flow is one connection and `requests` requests on it, one after the other or pipelined:
//! connect → request → response → … → close. When the server closes in between, as it may after any
//! response, the flow connects again and goes on.

pub mod wire;

use self::wire::{Body, Malformed};
use crate::describe::{
    Better, Confirmed, Counter, Delay, Description, Index, ModelParams, Paced, Quick, QuickSize, Repeats,
    Unit,
};
use crate::meter::Failure;
use crate::model::{Cx, Link, Model};
use crate::pace::Pace;
use crate::problem::Problem;
use crate::target::{Scheme, Target};
use crate::template::{Template, Values};
use crate::time::Time;
use crate::unit::{Interval, Size};
use rand::SeedableRng;
use rand::rngs::SmallRng;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

const SCHEMES: &[Scheme] = &[Scheme::tcp("http", Some(80)), Scheme::tls("https", Some(443))];
const CONNECT: usize = 0;
const RESPONSE: usize = 1;
const FIRST_BYTE: usize = 2;
/// Counters of responses by class (RFC 9110 §15), from 2xx to 5xx, and of connections.
const CLASS_2XX: usize = 0;
const CONNECTIONS: usize = 4;

/// What it is.
pub const DESCRIPTION: Description = Description {
    name: "http",
    about: "HTTP/1.1 client",
    schemes: SCHEMES,
    delays: &[
        Delay { name: "connect", about: "from the start of the flow to the connection being up" },
        Delay { name: "response", about: "from the intended send time to the last byte of the response" },
        Delay { name: "first_byte", about: "from the intended send time to the first byte of the response" },
    ],
    counters: &[
        Counter {
            name: "responses_2xx",
            unit: Unit::Messages,
            about: "Whole responses with a status from 200 to 299.",
            better: Better::More,
        },
        Counter {
            name: "responses_3xx",
            unit: Unit::Messages,
            about: "Whole responses with a status from 300 to 399.",
            better: Better::Neither,
        },
        Counter {
            name: "responses_4xx",
            unit: Unit::Messages,
            about: "Whole responses with a status from 400 to 499.",
            better: Better::Less,
        },
        Counter {
            name: "responses_5xx",
            unit: Unit::Messages,
            about: "Whole responses with a status from 500 to 599.",
            better: Better::Less,
        },
        Counter {
            name: "connections",
            unit: Unit::Sessions,
            about: "Connections that came up.",
            better: Better::Neither,
        },
    ],
    indices: &[Index {
        name: "server_errors",
        unit: Unit::Ratio,
        about: "Share of the responses whose status is 500 to 599.",
        better: Better::Less,
        over: &["responses_5xx"],
        under: &["responses_2xx", "responses_3xx", "responses_4xx", "responses_5xx"],
        less: &[],
    }],
    confirmed: Confirmed::Always,
    ordered: false,
    quick: Some(Quick {
        messages: "requests",
        device: "connection",
        devices: 10,
        count: "requests",
        interval: "interval",
        rate: None,
        size: QuickSize::Refused {
            why: "the server chooses the size of an HTTP answer",
            fix: "Name a path: http://HOST/512",
        },
        path: Some("path"),
        options: &[],
    }),
};

/// Parameters of the `http` model.
#[derive(Debug, Clone, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Params {
    /// Request method. Default `GET`.
    pub method: String,
    /// Request target: path and query; a template. Parameters like `token` are not kept. Default `/`.
    #[schemars(extend("x-netdyno-secret" = "query"))]
    pub path: String,
    /// Further header fields; the values are templates. `Host` and `User-Agent` are sent without being named here.
    /// `Authorization`, `Cookie` and their like are not kept; `{env: NAME}` and `{file: PATH}` name where one is.
    #[schemars(extend("x-netdyno-secret" = "names"))]
    pub headers: BTreeMap<String, String>,
    /// Request body, a template. Default: none.
    pub body: Option<String>,
    /// Size of the request body: `body` is cut or padded with spaces to it. Default: as long as `body`.
    pub size: Option<Size>,
    /// Whether one connection carries many requests; `false` asks the server to close after each. Default `true`.
    pub keep_alive: bool,
    /// How many requests may wait for their response on one connection; 1 is no pipelining. Default 1, at most 1024.
    #[schemars(range(min = 1, max = 1024))]
    pub pipelining: u16,
    /// Requests per flow; 0: until the load ends. Default 0.
    pub requests: u32,
    /// Time from one request to the next, whether or not the former is answered. `0s`: the next is due when
    /// the former is answered and the connection is up. Default `0s`.
    pub interval: Interval,
    /// Status codes that are a success: `"200"`, `"2xx"` or `"200-399"`. Others count as `rejected`. Default `["200-399"]`.
    pub expect: Vec<String>,
    /// Longest response head taken, from the status line to the empty line, 1KiB to 512KiB; a longer one is a failure of
    /// the kind `protocol`. Default `32KiB`.
    pub head_limit: Size,
    /// Longest wait for the connection, and for a whole response; the flow fails then. Default `10s`.
    pub timeout: Interval,
}

impl Default for Params {
    fn default() -> Self {
        Self {
            method: "GET".into(),
            path: "/".into(),
            headers: BTreeMap::new(),
            body: None,
            size: None,
            keep_alive: true,
            pipelining: 1,
            requests: 0,
            interval: Interval::secs(0),
            expect: vec!["200-399".into()],
            head_limit: Size(wire::HEAD_MAX as u64),
            timeout: Interval::secs(10),
        }
    }
}

/// What is the same for all devices of a group.
#[derive(Debug)]
pub struct Plan {
    request: Request,
    /// Method HEAD: responses have no body.
    head: bool,
    keep_alive: bool,
    depth: usize,
    requests: u64,
    pace: Pace,
    head_limit: usize,
    /// One bit for each status code that is a success.
    expect: [u64; 16],
    timeout: Duration,
}

/// A request, as ready as it can be.
#[derive(Debug)]
enum Request {
    /// The same every time: one copy.
    Fixed(Box<[u8]>),
    /// To be filled in.
    Template {
        head: Template,
        body: Template,
        size: Option<usize>,
        /// The head ends with a blank Content-Length, written once the body is there.
        length: bool,
    },
}

/// Room for the digits of Content-Length; spaces before the value are allowed (RFC 9110 §5.5).
const LENGTH_BLANK: &str = "          ";

impl ModelParams for Params {
    const DESCRIPTION: &'static Description = &DESCRIPTION;
    type Plan = Plan;

    fn check(&self) -> Result<(), Problem> {
        let token = "use letters, digits and -";
        Problem::unless(
            is_token(&self.method),
            "method",
            || format!("{:?} is no method", self.method),
            token,
        )?;
        Problem::unless(
            self.method != "CONNECT",
            "method",
            || "CONNECT turns the connection into a tunnel".into(),
            "use another method",
        )?;
        let path_ok = !self.path.is_empty() && self.path.bytes().all(|b| b > b' ' && b != 0x7f);
        Problem::unless(
            path_ok,
            "path",
            || format!("{:?} is empty or has a space in it", self.path),
            "write a space as %20",
        )?;
        let limit = (Size(1 << 10)..=HEAD_LIMIT_MAX).contains(&self.head_limit);
        let what = || format!("{} is out of range", self.head_limit);
        Problem::unless(limit, "head_limit", what, "use 1KiB to 512KiB")?;
        Template::parse(&self.path, "path")?;
        for (name, value) in &self.headers {
            let key = format!("headers.{name}");
            Problem::unless(is_token(name), &key, || format!("{name:?} is no field name"), token)?;
            let clean = value.bytes().all(|b| b >= b' ' && b != 0x7f || b == b'\t');
            Problem::unless(clean, &key, || "has a control character".into(), "remove it")?;
            for (ours, instead) in [
                ("content-length", "leave it out, or set `size`"),
                ("transfer-encoding", "leave it out"),
                ("connection", "set `keep_alive`"),
            ] {
                let free = !name.eq_ignore_ascii_case(ours);
                Problem::unless(free, &key, || "is set by the model itself".into(), instead)?;
            }
            Template::parse(value, &key)?;
        }
        Template::parse(self.body.as_deref().unwrap_or_default(), "body")?;
        let size = self.size.unwrap_or_default();
        Problem::unless(
            size <= BODY_MAX,
            "size",
            || format!("{size} is too large"),
            format!("use at most {BODY_MAX}"),
        )?;
        let depth_ok = (1..=1024).contains(&self.pipelining);
        Problem::unless(
            depth_ok,
            "pipelining",
            || format!("{} is out of range", self.pipelining),
            "use 1 to 1024",
        )?;
        Problem::unless(
            self.keep_alive || self.pipelining == 1,
            "pipelining",
            || "needs keep_alive".into(),
            "set keep_alive to true or pipelining to 1",
        )?;
        let waits = self.timeout > Interval::default();
        Problem::unless(waits, "timeout", || "is zero, so every request would fail".into(), "use 10s")?;
        self.statuses().map(drop)
    }

    fn compile(&self, target: &Target) -> Result<Plan, Problem> {
        self.check()?;
        Ok(Plan {
            request: self.request(target)?,
            head: self.method == "HEAD",
            keep_alive: self.keep_alive,
            depth: usize::from(self.pipelining),
            requests: u64::from(self.requests),
            pace: Pace::every(self.interval),
            expect: self.statuses()?,
            head_limit: self.head_limit.bytes(),
            timeout: self.timeout.0,
        })
    }

    fn paced(&self) -> Option<Paced> {
        Some(Paced { key: "interval", per_second: self.interval.per_second() })
    }

    fn repeats(&self) -> Option<Repeats> {
        Some(Repeats { key: "requests", count: self.requests.into(), interval: self.interval })
    }

    fn filled(&self) -> u64 {
        self.size.map_or(0, |size| size.0)
    }

    fn path(&self) -> Option<&str> {
        Some(&self.path)
    }

    fn set_path(&mut self, path: &str) {
        path.clone_into(&mut self.path);
    }

    #[cfg(any(test, feature = "testing"))]
    fn for_noise(&mut self, choice: u8, _scheme: &mut Scheme) -> usize {
        use crate::describe::bit;
        self.method = if bit(choice, 0) { "HEAD" } else { "GET" }.into();
        self.pipelining = if bit(choice, 1) { 4 } else { 1 };
        self.keep_alive = !bit(choice, 2) || bit(choice, 1);
        self.interval = Interval::ms(u64::from(bit(choice, 3)));
        self.requests = 5 * u32::from(bit(choice, 4));
        wire::HEAD_MAX
    }
}

impl Params {
    fn request(&self, target: &Target) -> Result<Request, Problem> {
        let mut head = format!("{} {} HTTP/1.1\r\n", self.method, self.path);
        let given = |name: &str| self.headers.keys().any(|key| key.eq_ignore_ascii_case(name));
        if !given("host") {
            // RFC 9110 §7.2: the port is left out when it is the scheme's own
            let port = match target.scheme.port {
                Some(port) if port == target.port => String::new(),
                _ => format!(":{}", target.port),
            };
            head += &format!("Host: {}{port}\r\n", target.host.replace('{', "{{").replace('}', "}}"));
        }
        if !given("user-agent") {
            head += concat!("User-Agent: netdyno/", env!("CARGO_PKG_VERSION"), "\r\n");
        }
        for (name, value) in &self.headers {
            head += &format!("{name}: {value}\r\n");
        }
        if !self.keep_alive {
            head += "Connection: close\r\n";
        }
        let body = Template::parse(self.body.as_deref().unwrap_or_default(), "body")?;
        let size = self.size.map(Size::bytes);
        let known = size.or(body.fixed().map(<[u8]>::len));
        // RFC 9110 §8.6: methods that are about a body say so even when it is empty
        let usual = matches!(&*self.method, "POST" | "PUT" | "PATCH");
        match known {
            Some(0) if !usual => head += "\r\n",
            Some(len) => head += &format!("Content-Length: {len}\r\n\r\n"),
            None => head += &format!("Content-Length:{LENGTH_BLANK}\r\n\r\n"),
        }
        let head = Template::parse(&head, "path")?;
        let request = Request::Template { head, body, size, length: known.is_none() };
        Ok(match &request {
            Request::Template { head, body, .. } if head.fixed().is_some() && body.fixed().is_some() => {
                let mut bytes = Vec::new();
                let values = Values { device: 0, seq: 0, now: Time::ZERO };
                request.render(values, &mut SmallRng::seed_from_u64(0), &mut bytes);
                Request::Fixed(bytes.into())
            }
            _ => request,
        })
    }

    fn statuses(&self) -> Result<[u64; 16], Problem> {
        let mut bits = [0; 16];
        for (i, text) in self.expect.iter().enumerate() {
            let range = status_range(text).ok_or_else(|| {
                let what = format!("{text:?} is no status code");
                Problem::new(format!("expect[{i}]"), what, "write it like \"200\", \"2xx\" or \"200-399\"")
            })?;
            range.for_each(|code| bits[usize::from(code) / 64] |= 1 << (code % 64));
        }
        let what = || "no status would be a success".into();
        Problem::unless(!self.expect.is_empty(), "expect", what, "leave it out for 200-399")?;
        Ok(bits)
    }
}

/// Longest head that can be asked for: transports keep no more than twice as much of an unfinished message.
const HEAD_LIMIT_MAX: Size = Size(512 << 10);
/// Largest request body.
const BODY_MAX: Size = Size(16 << 20);

fn is_token(text: &str) -> bool {
    // RFC 9110 §5.6.2
    !text.is_empty() && text.bytes().all(|b| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&b))
}

fn status_range(text: &str) -> Option<std::ops::RangeInclusive<u16>> {
    let code = |text: &str| text.parse().ok().filter(|code| (100..=599).contains(code) && text.len() == 3);
    if let Some(class) = text.strip_suffix("xx") {
        let low = code(&format!("{class}00"))?;
        return Some(low..=low + 99);
    }
    let (low, high) = text.split_once('-').unwrap_or((text, text));
    let (low, high) = (code(low)?, code(high)?);
    (low <= high).then_some(low..=high)
}

impl Request {
    #[inline]
    fn render(&self, values: Values, rng: &mut SmallRng, out: &mut Vec<u8>) {
        match self {
            Request::Fixed(bytes) => out.extend_from_slice(bytes),
            Request::Template { head, body, size, length } => {
                head.render(values, rng, out);
                let start = out.len();
                body.render(values, rng, out);
                match size {
                    Some(size) => out.resize(start + size, b' '),
                    None if *length => {
                        let mut left = out.len() - start;
                        // backwards from the last digit, over the blanks
                        for digit in out[..start - "\r\n\r\n".len()].iter_mut().rev() {
                            *digit = b'0' + (left % 10) as u8;
                            left /= 10;
                            if left == 0 {
                                break;
                            }
                        }
                    }
                    None => {}
                }
            }
        }
    }
}

impl Plan {
    /// A new device.
    pub fn device(self: &Arc<Self>, _index: u32) -> Device {
        Device {
            plan: Arc::clone(self),
            waiting: VecDeque::with_capacity(self.depth.min(8)),
            next: 0,
            base: Time::NEVER,
            since: Time::ZERO,
            armed: Time::NEVER,
            reading: None,
            status: 0,
            state: State::Idle,
            close: false,
            begun: false,
            stopping: false,
        }
    }
}

/// A request on its way.
#[derive(Debug, Clone, Copy)]
struct Waiting {
    intended: Time,
    sent: Time,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// No flow.
    Idle,
    /// Between two connections of a flow.
    Down,
    Connecting,
    Up,
}

/// One virtual device.
#[derive(Debug)]
pub struct Device {
    plan: Arc<Plan>,
    /// Requests without a complete response, oldest first.
    waiting: VecDeque<Waiting>,
    /// Number of the next request.
    next: u64,
    /// When the first request was due.
    base: Time,
    /// When the connection was asked for.
    since: Time,
    /// When the timer is set to.
    armed: Time,
    /// The body being read; `None`: a head comes next.
    reading: Option<Body>,
    status: u16,
    state: State,
    /// The server closes after this response.
    close: bool,
    /// The first byte of this response is here.
    begun: bool,
    stopping: bool,
}

impl Model for Device {
    fn start(&mut self, cx: &mut Cx<'_>) {
        self.reset(State::Idle);
        self.next = 0;
        self.base = Time::NEVER;
        self.armed = Time::NEVER;
        self.stopping = false;
        self.connect(cx, cx.intended);
        self.arm(cx);
    }

    fn connected(&mut self, cx: &mut Cx<'_>) {
        cx.delay(self.since, CONNECT);
        cx.count(cx.now, CONNECTIONS);
        self.state = State::Up;
        if self.base == Time::NEVER {
            self.base = cx.now;
        }
        // what was pipelined behind a response that closed the connection (RFC 9112 §9.3.2)
        let first = self.next - self.waiting.len() as u64;
        for i in 0..self.waiting.len() {
            self.waiting[i].sent = cx.now;
            self.emit(cx, first + i as u64);
        }
        self.pump(cx);
    }

    fn received(&mut self, cx: &mut Cx<'_>, bytes: &[u8]) -> usize {
        let mut used = 0;
        while used < bytes.len() && self.state == State::Up {
            match self.read(cx, &bytes[used..]) {
                Ok(0) => break,
                Ok(n) => used += n,
                Err(what) => {
                    self.fail(cx, Failure::Protocol, || what.to_string());
                    return bytes.len();
                }
            }
        }
        self.pump(cx);
        if self.state == State::Up { used } else { bytes.len() }
    }

    fn timer(&mut self, cx: &mut Cx<'_>) {
        self.armed = Time::NEVER;
        if self.state == State::Idle {
            return;
        }
        if self.deadline() <= cx.now {
            let what = if self.state == State::Up { "no response in time" } else { "no connection in time" };
            self.fail(cx, Failure::Timeout, || what.into());
        } else {
            self.pump(cx);
        }
    }

    fn closed(&mut self, cx: &mut Cx<'_>, why: Failure) {
        if self.state == State::Up && why == Failure::Closed {
            if self.reading == Some(Body::UntilClose) {
                cx.excuse();
                self.answered(cx);
                return self.pump(cx);
            }
            // RFC 9112 §9.3: an idle connection may be closed at any time
            if self.waiting.is_empty() {
                cx.excuse();
                self.reset(State::Down);
                return self.pump(cx);
            }
        }
        if self.state != State::Idle {
            self.end(cx);
            cx.give_up();
        }
    }

    fn stop(&mut self, cx: &mut Cx<'_>) {
        self.missed(cx);
        self.stopping = true;
        if self.state != State::Idle {
            self.pump(cx);
        }
    }

    fn abandoned(&mut self, cx: &mut Cx<'_>) {
        if self.waiting.is_empty() && self.state == State::Connecting {
            cx.never_answered(self.since, "no connection by the end of the drain");
        }
        for message in &self.waiting {
            cx.never_answered(message.intended, "no response by the end of the drain");
        }
        self.reset(State::Idle);
    }

    #[inline]
    fn waiting_since(&self) -> Time {
        self.waiting.front().map_or(Time::NEVER, |oldest| oldest.sent)
    }
}

impl Device {
    fn reset(&mut self, state: State) {
        self.state = state;
        self.waiting.clear();
        self.reading = None;
        self.begun = false;
        self.close = false;
    }

    /// Requests that fell due and will not be sent any more still count as intended.
    fn missed(&mut self, cx: &mut Cx<'_>) {
        if self.base != Time::NEVER && !self.stopping && self.state != State::Idle {
            self.plan.pace.missed(cx, self.base, self.next, self.plan.requests);
        }
    }

    /// The flow is over. What ended it stands for the oldest request; the others have no answer either.
    fn end(&mut self, cx: &mut Cx<'_>) {
        for message in self.waiting.iter().skip(1) {
            cx.unanswered(message.intended, "pipelined behind a request whose connection was lost");
        }
        self.missed(cx);
        self.reset(State::Idle);
        cx.wake_at(Time::NEVER);
    }

    fn connect(&mut self, cx: &mut Cx<'_>, since: Time) {
        self.state = State::Connecting;
        self.since = since;
        cx.connect();
    }

    fn fail(&mut self, cx: &mut Cx<'_>, why: Failure, what: impl FnOnce() -> String) {
        self.end(cx);
        cx.fail(cx.now, why, what);
    }

    /// Read one piece of a response. `Ok(0)`: more is needed.
    #[inline]
    fn read(&mut self, cx: &mut Cx<'_>, bytes: &[u8]) -> Result<usize, Malformed> {
        let intended = self.waiting.front().ok_or(Malformed::Unasked)?.intended;
        if !self.begun {
            self.begun = true;
            cx.delay(intended, FIRST_BYTE);
        }
        let used = match &mut self.reading {
            None => {
                let Some(head) = wire::head(bytes, self.plan.head, self.plan.head_limit)? else {
                    return Ok(0);
                };
                // RFC 9110 §15.2: interim responses come before the one that counts
                match head.status {
                    101 => return Err(Malformed::Switched),
                    100..=199 => {}
                    _ => {
                        self.status = head.status;
                        self.close = head.close || !self.plan.keep_alive;
                        self.reading = Some(head.body);
                    }
                }
                head.len
            }
            Some(Body::Length(left)) => {
                let step = usize::try_from(*left).unwrap_or(usize::MAX).min(bytes.len());
                *left -= step as u64;
                step
            }
            Some(Body::Chunked(chunked)) => chunked.take(bytes)?,
            Some(Body::UntilClose) => bytes.len(),
        };
        cx.arrived(intended, used);
        let whole = match &self.reading {
            Some(Body::Length(left)) => *left == 0,
            Some(Body::Chunked(chunked)) => chunked.done(),
            None | Some(Body::UntilClose) => false,
        };
        if whole {
            let close = self.close;
            self.answered(cx);
            if close {
                cx.close();
            }
        }
        Ok(used)
    }

    /// The response to the oldest request is complete.
    #[inline]
    fn answered(&mut self, cx: &mut Cx<'_>) {
        self.reading = None;
        self.begun = false;
        if let Some(Waiting { intended, .. }) = self.waiting.pop_front() {
            let status = self.status;
            if let Some(class) = usize::from(status / 100).checked_sub(2).filter(|class| *class < 4) {
                cx.count(intended, CLASS_2XX + class);
            }
            if self.plan.expect[usize::from(status & 1023) / 64] >> (status % 64) & 1 == 1 {
                cx.delivered(intended, RESPONSE);
            } else {
                cx.failure(cx.now, Failure::Rejected, || format!("status {status}"));
            }
        }
        if self.close {
            self.close = false;
            self.state = State::Down;
        }
    }

    fn more(&self, cx: &Cx<'_>) -> bool {
        let wanted = self.plan.requests == 0 || self.next < self.plan.requests;
        wanted && !self.stopping && cx.loading()
    }

    /// Send what is due, connect for it if need be, end the flow when nothing is left.
    fn pump(&mut self, cx: &mut Cx<'_>) {
        let pace = self.plan.pace;
        while self.waiting.len() < self.plan.depth && self.more(cx) && self.state != State::Connecting {
            let intended = if pace.closed_loop() { cx.now } else { pace.due(self.base, self.next) };
            if intended > cx.now {
                break;
            }
            if self.state == State::Down {
                return self.again(cx);
            }
            let before = cx.out.bytes.len();
            self.emit(cx, self.next);
            cx.sent(intended, cx.out.bytes.len() - before);
            self.waiting.push_back(Waiting { intended, sent: cx.now });
            self.next += 1;
        }
        if self.waiting.is_empty() {
            if !self.more(cx) && self.state != State::Connecting {
                self.end(cx);
                cx.finish();
                cx.close();
                return;
            }
        } else if self.state == State::Down {
            return self.again(cx);
        }
        self.arm(cx);
    }

    /// Connect again; when the old connection is only being closed now, right after that.
    fn again(&mut self, cx: &mut Cx<'_>) {
        if cx.link == Link::Close {
            self.armed = cx.now;
            cx.wake_at(cx.now);
        } else {
            self.connect(cx, cx.now);
            self.arm(cx);
        }
    }

    #[inline]
    fn emit(&self, cx: &mut Cx<'_>, seq: u64) {
        let values = Values { device: cx.device, seq, now: cx.now };
        self.plan.request.render(values, cx.rng, &mut cx.out.bytes);
    }

    /// When the flow fails unless something happens.
    #[inline]
    fn deadline(&self) -> Time {
        match (self.state, self.waiting.front()) {
            (State::Connecting, _) => self.since + self.plan.timeout,
            (State::Up, Some(oldest)) => oldest.sent + self.plan.timeout,
            _ => Time::NEVER,
        }
    }

    /// Set the timer, unless it goes off before it is needed anyway: deadlines mostly move on.
    #[inline]
    fn arm(&mut self, cx: &mut Cx<'_>) {
        let mut at = self.deadline();
        let open = !self.plan.pace.closed_loop() && self.state != State::Connecting;
        if open && self.waiting.len() < self.plan.depth && self.more(cx) {
            at = at.min(self.plan.pace.due(self.base, self.next));
        }
        if at < self.armed {
            self.armed = at;
            cx.wake_at(at);
        }
    }
}

#[cfg(test)]
mod tests;
