//! Parameters of the `http` model.

use super::capture::{Capture, CaptureRules};
use super::config::Exchange;
use super::request::{LENGTH_BLANK, Request, is_token};
use super::{Config, DESCRIPTION, wire};
use crate::data::Data;
use crate::describe::{Description, FlowLength, ModelKind, ModelParams, SendRate};
use crate::pace::Pace;
use crate::problem::Problem;
use crate::rate_timeline::RateTimeline;
use crate::target::Target;
use crate::template::{Template, Values};
use crate::time::Time;
use crate::unit::{Interval, Size};
use base64::Engine as _;
use rand::SeedableRng;
use rand::rngs::SmallRng;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Parameters of the `http` model.
#[derive(Debug, Clone, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Params {
    /// Request method. Default `GET`.
    pub method: String,
    /// Request target (RFC 9112 section 3.2); a template: a path and query from `/` on, `*` with `OPTIONS`, or the whole URL
    /// for a proxy. Characters beyond ASCII are sent percent-encoded, as UTF-8. Parameters like `token` are not kept.
    /// Default `/`.
    #[schemars(extend("x-netdyno-secret" = "query"))]
    pub path: String,
    /// Further header fields; the values are templates. `Host` and `User-Agent` are sent without being named here.
    /// `Authorization`, `Cookie` and their like are not kept; `{env: NAME}` and `{file: PATH}` name where one is.
    #[schemars(extend("x-netdyno-secret" = "names"))]
    pub headers: BTreeMap<String, String>,
    /// Request body, a template. Default: none.
    pub body: Option<String>,
    /// Values to take from the response, by name: `{"header": "Location"}`, `{"json": "/data/token"}` (RFC 6901) or
    /// `{"regex": "id=([0-9]+)"}`, from the first MiB of the body. Later requests of the flow name them as
    /// `{response.NAME}`; a response without the value is a failure of the kind `rejected`. Default: none.
    pub capture: BTreeMap<String, Capture>,
    /// Requests that each flow begins with, such as a login: each is sent when the former is answered, and a failure ends the
    /// flow. They are not among `requests`, and the first other request is due when they are done. Default: none.
    pub before: Vec<StepRequest>,
    /// Requests that follow this one, in order; then it is this one's turn again, on the same connection: a visitor's round.
    /// Each counts among `requests`. Default: none.
    pub then: Vec<StepRequest>,
    /// Rest after the response, before the next request: a user's think time. Needs an `interval` of `0s`. Default `0s`.
    pub pause: Interval,
    /// How much longer the rest may be; each time it is drawn evenly. Default `0s`.
    pub pause_spread: Interval,
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
    /// The profile's tables, which templates may name; none while only the form is checked.
    #[serde(skip)]
    #[schemars(skip)]
    pub data: Option<Data>,
}

/// One request of several.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct StepRequest {
    /// Request method. Default `GET`.
    pub method: String,
    /// Request target, as in the model. Default `/`.
    #[schemars(extend("x-netdyno-secret" = "query"))]
    pub path: String,
    /// Further header fields, as in the model; those of the model are not sent.
    #[schemars(extend("x-netdyno-secret" = "names"))]
    pub headers: BTreeMap<String, String>,
    /// Request body, a template. Default: none.
    pub body: Option<String>,
    /// Values to take from the response, as in the model.
    pub capture: BTreeMap<String, Capture>,
    /// Status codes that are a success. Default `["200-399"]`.
    pub expect: Vec<String>,
    /// Rest after the response, as in the model. Default `0s`.
    pub pause: Interval,
    /// How much longer the rest may be, as in the model. Default `0s`.
    pub pause_spread: Interval,
}

impl Default for StepRequest {
    fn default() -> Self {
        let Params { method, path, headers, body, capture, expect, pause, pause_spread, .. } =
            Params::default();
        Self { method, path, headers, body, capture, expect, pause, pause_spread }
    }
}

impl Default for Params {
    fn default() -> Self {
        Self {
            method: "GET".into(),
            path: "/".into(),
            headers: BTreeMap::new(),
            body: None,
            capture: BTreeMap::new(),
            before: Vec::new(),
            then: Vec::new(),
            pause: Interval::secs(0),
            pause_spread: Interval::secs(0),
            size: None,
            keep_alive: true,
            pipelining: 1,
            requests: 0,
            interval: Interval::secs(0),
            expect: vec!["200-399".into()],
            head_limit: Size(wire::HEAD_MAX as u64),
            timeout: Interval::secs(10),
            data: None,
        }
    }
}

impl ModelKind for Params {
    const DESCRIPTION: &'static Description = &DESCRIPTION;
    type Config = Config;

    fn compile(&self, target: &Target) -> Result<Config, Problem> {
        self.check()?;
        self.with_captures(|params| {
            let names = params.capture_names();
            let exchanges = |steps: &[StepRequest]| -> Result<Vec<Exchange>, Problem> {
                steps.iter().map(|step| params.step(step).exchange(target, &names)).collect()
            };
            let mut round = vec![params.exchange(target, &names)?];
            round.append(&mut exchanges(&params.then)?);
            Ok(Config {
                before: exchanges(&params.before)?.into(),
                round: round.into(),
                captures: names.len(),
                keep_alive: self.keep_alive,
                depth: usize::from(self.pipelining),
                requests: u64::from(self.requests),
                pace: Pace::every(self.interval),
                head_limit: self.head_limit.bytes(),
                timeout: self.timeout.0,
            })
        })
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
        self.with_captures(|params| {
            for (key, steps) in [("before", &params.before), ("then", &params.then)] {
                for (i, step) in steps.iter().enumerate() {
                    params.step(step).check_request().map_err(|p| p.under(&format!("{key}[{i}]")))?;
                }
            }
            params.check_request()?;
            params.check_pauses()
        })
    }

    fn send_rate(&self) -> Option<SendRate> {
        Some(SendRate { key: "interval", per_second: self.interval.per_second() })
    }

    fn repeats(&self) -> Option<FlowLength> {
        Some(FlowLength { key: "requests", count: self.requests.into(), interval: self.interval })
    }

    fn filled(&self) -> u64 {
        self.size.map_or(0, |size| size.0)
    }

    fn path(&self) -> Option<&str> {
        Some(&self.path)
    }

    fn set_data(&mut self, data: &Data) {
        self.data = Some(data.clone());
    }

    fn set_path(&mut self, path: &str) {
        // a fragment is for the client alone (RFC 3986 section 3.5); an empty path is sent as / (RFC 9112 section 3.2.1)
        let path = path.split_once('#').map_or(path, |(path, _)| path);
        self.path = if path.starts_with('/') { path.to_owned() } else { format!("/{path}") };
    }

    fn set_credentials(&mut self, name: &str, password: Option<&str>) -> Result<(), Problem> {
        let given = self.headers.keys().any(|key| key.eq_ignore_ascii_case("authorization"));
        let what = || "names credentials, and the header Authorization does too".into();
        Problem::unless(!given, "", what, "leave out one of them")?;
        // RFC 7617 section 2
        let what = || "has a user name with a colon, which Basic cannot send".into();
        Problem::unless(!name.contains(':'), "", what, "use another user")?;
        let both = format!("{name}:{}", password.unwrap_or_default());
        let basic = format!("Basic {}", base64::engine::general_purpose::STANDARD.encode(both));
        for step in self.before.iter_mut().chain(&mut self.then) {
            if !step.headers.keys().any(|key| key.eq_ignore_ascii_case("authorization")) {
                step.headers.insert("Authorization".to_owned(), basic.clone());
            }
        }
        self.headers.insert("Authorization".to_owned(), basic);
        Ok(())
    }

    #[cfg(any(test, feature = "testing"))]
    fn for_noise(&mut self, choice: u8, _scheme: &mut crate::target::Scheme) -> usize {
        use crate::describe::bit;
        self.method = if bit(choice, 0) { "HEAD" } else { "GET" }.into();
        self.pipelining = if bit(choice, 1) { 4 } else { 1 };
        self.keep_alive = !bit(choice, 2) || bit(choice, 1);
        self.interval = Interval::ms(u64::from(bit(choice, 3)));
        self.requests = 5 * u32::from(bit(choice, 4));
        self.then = vec![StepRequest::default(); usize::from(bit(choice, 5))];
        let rests = bit(choice, 6) && !bit(choice, 1) && !bit(choice, 3);
        self.pause_spread = Interval::ms(u64::from(rests));
        wire::HEAD_MAX
    }
}

impl Params {
    /// Names of everything that is captured, in the order in which a device keeps it.
    fn capture_names(&self) -> Vec<String> {
        let steps = self.before.iter().chain(&self.then);
        let all = steps.flat_map(|step| step.capture.keys()).chain(self.capture.keys());
        all.collect::<BTreeSet<_>>().into_iter().cloned().collect()
    }

    /// These parameters with the names of captures known to templates.
    fn with_captures<R>(&self, f: impl FnOnce(&Self) -> Result<R, Problem>) -> Result<R, Problem> {
        let mut params = self.clone();
        if let Some(data) = &mut params.data {
            data.captured = self.capture_names().into();
        }
        f(&params)
    }

    /// A request of `before` or `then` as parameters of its own.
    fn step(&self, step: &StepRequest) -> Self {
        let StepRequest { method, path, headers, body, capture, expect, pause, pause_spread } = step.clone();
        let (before, then, size) = (Vec::new(), Vec::new(), None);
        Self {
            method,
            path,
            headers,
            body,
            capture,
            expect,
            pause,
            pause_spread,
            before,
            then,
            size,
            ..self.clone()
        }
    }

    /// Rests are between requests that wait for the response to the one before.
    fn check_pauses(&self) -> Result<(), Problem> {
        let rests =
            |pause: Interval, spread: Interval| pause > Interval::default() || spread > Interval::default();
        let steps = |key: &str, steps: &[StepRequest]| {
            let at = steps.iter().position(|step| rests(step.pause, step.pause_spread));
            at.map(|i| format!("{key}[{i}].pause"))
        };
        let own = rests(self.pause, self.pause_spread).then(|| "pause".to_owned());
        let at = own.or_else(|| steps("before", &self.before)).or_else(|| steps("then", &self.then));
        let Some(at) = at else { return Ok(()) };
        let waits = self.interval == Interval::default();
        let what = "rests after the response, and `interval` sends whether or not one has come";
        Problem::unless(waits, &at, || what.into(), "leave out one of them")?;
        let what = "rests after the response, and `pipelining` does not wait for one";
        Problem::unless(self.pipelining == 1, &at, || what.into(), "leave out one of them")
    }

    fn exchange(&self, target: &Target, names: &[String]) -> Result<Exchange, Problem> {
        Ok(Exchange {
            request: self.request(target)?,
            method: self.method.as_str().into(),
            head: self.method == "HEAD",
            idempotent: IDEMPOTENT.contains(&&*self.method),
            expect: self.statuses()?,
            captures: CaptureRules::new(&self.capture, names)?,
            pause: self.pause.0,
            pause_spread: self.pause_spread.0,
        })
    }

    /// What is wrong with one request.
    fn check_request(&self) -> Result<(), Problem> {
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
        self.check_path()?;
        let limit = (Size(1 << 10)..=HEAD_LIMIT_MAX).contains(&self.head_limit);
        let what = || format!("{} is out of range", self.head_limit);
        Problem::unless(limit, "head_limit", what, "use 1KiB to 512KiB")?;
        let data = self.data.as_ref();
        // what the cells of tables may hold depends on where they stand (RFC 9112 §3.2, RFC 9110 §5.5)
        Template::with(&self.path, "path", data)?.cells_are("path", |b| is_visible(b) && b != b'#')?;
        let mut names = BTreeSet::new();
        for (name, value) in &self.headers {
            let key = format!("headers.{name}");
            // two of Host are forbidden (RFC 9112 section 3.2), as are two of most others (RFC 9110 section 5.3)
            let first = names.insert(name.to_ascii_lowercase());
            Problem::unless(first, &key, || "is there twice: names have no case".into(), "keep one of them")?;
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
            if name.eq_ignore_ascii_case("host") {
                let fine = |b: u8| is_visible(b) && !b"/?#@,\\".contains(&b);
                let fix = "write it like example.com:8080";
                Problem::unless(value.bytes().all(fine), &key, || "is no host".into(), fix)?;
                Template::with(value, &key, data)?.cells_are(&key, fine)?;
            }
            Template::with(value, &key, data)?.cells_are(&key, |b| b >= b' ' && b != 0x7f || b == b'\t')?;
        }
        // RFC 9110 section 9.3.8
        let has_body = self.body.is_some() || self.size.is_some_and(|size| size > Size(0));
        let body = if self.body.is_some() { "body" } else { "size" };
        Problem::unless(
            self.method != "TRACE" || !has_body,
            body,
            || "is not allowed with TRACE".into(),
            "leave it out, or use another method",
        )?;
        Template::with(self.body.as_deref().unwrap_or_default(), "body", data)?;
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
        Problem::unless(
            self.capture.is_empty() || self.pipelining == 1,
            "pipelining",
            || "sends requests before the value that they may name is there".into(),
            "set it to 1, or leave capture out",
        )?;
        CaptureRules::new(&self.capture, &[])?;
        self.statuses().map(drop)
    }

    /// Whether it is a request target (RFC 9112 section 3.2). What is filled into a template has digits and letters alone.
    fn check_path(&self) -> Result<(), Problem> {
        let path = &self.path;
        // a captured value gets the slash that it lacks when it is sent
        let proxy = ["http://", "https://", "{response."].iter().any(|scheme| path.starts_with(scheme));
        let wrong = |what: &str, fix: &str| Err(Problem::new("path", what, fix));
        match path.as_str() {
            "" => wrong("is empty", "write /"),
            "*" if self.method == "OPTIONS" => Ok(()),
            "*" => wrong("* is for OPTIONS alone", "write /, or set method to OPTIONS"),
            _ if !path.starts_with('/') && !proxy => wrong("does not begin with /", "write it like /v1/x"),
            _ if path.bytes().any(|b| b <= b' ' || b == 0x7f) => {
                wrong("has a space or a control character in it", "write a space as %20")
            }
            _ if path.contains('#') => wrong(
                "has a # in it, and what is behind one is not sent",
                "leave that out, or write # as %23",
            ),
            _ => Ok(()),
        }
    }

    fn request(&self, target: &Target) -> Result<Request, Problem> {
        let mut head = " HTTP/1.1\r\n".to_owned();
        let given = |name: &str| self.headers.keys().any(|key| key.eq_ignore_ascii_case(name));
        if !given("host") {
            // RFC 9110 §7.2: the port is left out when it is the scheme's own
            let port = match target.scheme.port {
                Some(port) if port == target.port => String::new(),
                _ => format!(":{}", target.port),
            };
            head += &format!("Host: {}{port}\r\n", Template::escaped(&target.host));
        }
        if !given("user-agent") {
            head += concat!("User-Agent: netdyno/", env!("CARGO_PKG_VERSION"), "\r\n");
        }
        for (name, value) in &self.headers {
            head += &format!("{name}: {value}\r\n");
        }
        // RFC 9110 §7.6.1: fields for the next hop alone are named, so that a proxy does not pass them on
        let options = HOP_BY_HOP.iter().copied().filter(|name| given(name));
        let options: Vec<_> = options.chain((!self.keep_alive).then_some("close")).collect();
        if !options.is_empty() {
            head += &format!("Connection: {}\r\n", options.join(", "));
        }
        let data = self.data.as_ref();
        let body = Template::with(self.body.as_deref().unwrap_or_default(), "body", data)?;
        let size = self.size.map(Size::bytes);
        let known = size.or(body.fixed().map(<[u8]>::len));
        // RFC 9110 §8.6: methods that are about a body say so even when it is empty
        let usual = matches!(&*self.method, "POST" | "PUT" | "PATCH");
        match known {
            Some(0) if !usual => head += "\r\n",
            Some(len) => head += &format!("Content-Length: {len}\r\n\r\n"),
            None => head += &format!("Content-Length:{LENGTH_BLANK}\r\n\r\n"),
        }
        let head = Template::concat([
            Template::literal(self.method.as_bytes()),
            Template::literal(b" "),
            Template::with(&ascii(&self.path), "path", data)?.in_url(),
            Template::with(&head, "headers", data)?,
        ]);
        let request = Request::Template { head, body, size, length: known.is_none() };
        Ok(match &request {
            Request::Template { head, body, .. } if head.fixed().is_some() && body.fixed().is_some() => {
                let mut bytes = Vec::new();
                let values = Values { device: 0, seq: 0, now: Time::ZERO };
                request.render(values, &[], &mut SmallRng::seed_from_u64(0), &mut bytes);
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
/// Fields that `Connection` names where they are sent: RFC 9110 §7.8 and §10.1.4, RFC 7540 §3.2.1.
const HOP_BY_HOP: [&str; 3] = ["Upgrade", "HTTP2-Settings", "TE"];
/// Methods of which a second request changes nothing that the first did not (RFC 9110 §9.2.2).
const IDEMPOTENT: [&str; 6] = ["GET", "HEAD", "OPTIONS", "TRACE", "PUT", "DELETE"];
/// Largest request body.
const BODY_MAX: Size = Size(16 << 20);

/// A path whose characters beyond ASCII are percent-encoded (RFC 3987 section 3.1).
fn ascii(path: &str) -> String {
    let mut out = String::with_capacity(path.len());
    for c in path.chars() {
        if c.is_ascii() {
            out.push(c);
            continue;
        }
        for byte in c.encode_utf8(&mut [0; 4]).bytes() {
            out += &format!("%{byte:02X}");
        }
    }
    out
}

fn is_visible(byte: u8) -> bool {
    byte > b' ' && byte < 0x7f
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
