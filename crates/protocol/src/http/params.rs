//! Parameters of the `http` model.

use super::request::{LENGTH_BLANK, Request};
use super::{Config, DESCRIPTION, wire};
use crate::data::Data;
use crate::describe::{Description, ModelParams, Paced, Repeats};
use crate::pace::Pace;
use crate::problem::Problem;
use crate::target::Target;
use crate::template::{Template, Values};
use crate::time::Time;
use crate::unit::{Interval, Size};
use rand::SeedableRng;
use rand::rngs::SmallRng;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

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
    /// The profile's tables, which templates may name; none while only the form is checked.
    #[serde(skip)]
    #[schemars(skip)]
    pub data: Option<Data>,
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
            data: None,
        }
    }
}

impl ModelParams for Params {
    const DESCRIPTION: &'static Description = &DESCRIPTION;
    type Config = Config;

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
        let data = self.data.as_ref();
        // what the cells of tables may hold depends on where they stand (RFC 9112 §3.2, RFC 9110 §5.5)
        Template::with(&self.path, "path", data)?.cells_are("path", |byte| byte > b' ' && byte < 0x7f)?;
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
            Template::with(value, &key, data)?.cells_are(&key, |b| b >= b' ' && b != 0x7f || b == b'\t')?;
        }
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
        self.statuses().map(drop)
    }

    fn compile(&self, target: &Target) -> Result<Config, Problem> {
        self.check()?;
        Ok(Config {
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

    fn set_data(&mut self, data: &Data) {
        self.data = Some(data.clone());
    }

    fn set_path(&mut self, path: &str) {
        path.clone_into(&mut self.path);
    }

    #[cfg(any(test, feature = "testing"))]
    fn for_noise(&mut self, choice: u8, _scheme: &mut crate::target::Scheme) -> usize {
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
        let head = Template::with(&head, "path", data)?;
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
