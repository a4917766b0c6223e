//! What a profile says about the `coap` model.

use super::request::{BLOCK_MAX, Request};
use super::wire::{Block, Code};
use super::{Config, DESCRIPTION};
use crate::data::Data;
use crate::describe::{Description, FlowLength, ModelKind, ModelParams, SendRate};
use crate::pace::Pace;
use crate::problem::Problem;
use crate::rate_timeline::RateTimeline;
use crate::target::Target;
use crate::template::Template;
use crate::unit::{Interval, Rate, Size};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::net::Ipv4Addr;
use std::sync::Arc;

/// Request methods (RFC 7252 section 5.8).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "UPPERCASE")]
pub enum Method {
    /// Retrieve a representation.
    #[default]
    Get,
    /// Have a representation processed.
    Post,
    /// Create or replace a representation.
    Put,
    /// Delete the resource.
    Delete,
}

impl Method {
    fn code(self) -> Code {
        match self {
            Method::Get => Code::GET,
            Method::Post => Code::of(0, 2),
            Method::Put => Code::of(0, 3),
            Method::Delete => Code::of(0, 4),
        }
    }
}

/// Parameters of the `coap` model.
#[derive(Debug, Clone, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Params {
    /// Request method: `GET`, `POST`, `PUT` or `DELETE`. Default `GET`.
    pub method: Method,
    /// Path and query of the resource; a template. Parameters like `token` are not kept. Default `/`.
    #[schemars(extend("x-netdyno-secret" = "query"))]
    pub path: String,
    /// Whether requests are confirmable: they are acknowledged, and sent again until they are. Default `true`.
    pub confirmable: bool,
    /// Whether the device observes the resource (RFC 7641): a flow registers, receives notifications and deregisters.
    /// With `GET` only. Default `false`.
    pub observe: bool,
    /// Body of a `POST` or `PUT`, a template. Default: none.
    pub payload: Option<String>,
    /// Size of the body: `payload` is cut or padded with spaces to it. Default: as long as `payload`.
    pub size: Option<Size>,
    /// Content-Format of the body, a number of RFC 7252 section 12.3: 0 is text, 42 bytes, 50 JSON, 60 CBOR. Default: none.
    pub content_format: Option<u16>,
    /// Content-Format that the response is to have. Default: none.
    pub accept: Option<u16>,
    /// Largest block (RFC 7959): 16B, 32B, 64B, 128B, 256B, 512B or 1024B. A larger body is sent in blocks, and a `GET` asks
    /// for blocks of this size if it is less than the most. Default `1KiB`.
    pub block_size: Size,
    /// Time from one request to the next, whether or not the former is answered. `0s`: the next is due when the former is
    /// answered or given up. Default `1s`, unless `rate` is given.
    pub interval: Option<Interval>,
    /// Requests per second of each device; instead of `interval`. Default: none.
    pub rate: Option<Rate>,
    /// Requests per flow, with `observe` notifications; 0: until the load ends. Default 0.
    pub count: u32,
    /// NSTART: how many requests may be outstanding, neither acknowledged nor answered; one that is due when that many are
    /// waits, and its delay counts. Default 1, at most 1024.
    #[schemars(range(min = 1, max = 1024))]
    pub nstart: u16,
    /// ACK_TIMEOUT: shortest wait for an acknowledgement before the first retransmission; each further wait is twice as
    /// long. Default `2s`.
    pub ack_timeout: Interval,
    /// ACK_RANDOM_FACTOR: the first wait is drawn from `ack_timeout` to so many times that, 1 to 10. Default 1.5.
    #[schemars(range(min = 1.0, max = 10.0))]
    pub ack_random_factor: f64,
    /// MAX_RETRANSMIT: how often a confirmable message is sent again, at most 20. Default 4.
    #[schemars(range(max = 20))]
    pub max_retransmit: u8,
    /// Longest wait for the response to a message, from when it was sent first; the request is lost then. Default: for
    /// confirmable ones MAX_TRANSMIT_WAIT, which is `93s` if nothing of the above is changed; for others `2s`.
    pub timeout: Option<Interval>,
    /// Codes that are a success: `"2.05"`, or `"2.xx"` for all that begin so. Others count as `rejected`. Default `["2.xx"]`.
    pub expect: Vec<String>,
    /// Largest response taken, of all blocks together, at most 1GiB; a larger one is a failure of the kind `protocol`.
    /// Default `16MiB`.
    pub max_response: Size,
    /// The profile's tables, which templates may name; none while only the form is checked.
    #[serde(skip)]
    #[schemars(skip)]
    pub data: Option<Data>,
}

impl Default for Params {
    fn default() -> Self {
        Self {
            method: Method::Get,
            path: "/".into(),
            confirmable: true,
            observe: false,
            payload: None,
            size: None,
            content_format: None,
            accept: None,
            block_size: Size(BLOCK_MAX as u64),
            interval: None,
            rate: None,
            count: 0,
            nstart: 1,
            ack_timeout: Interval::secs(2),
            ack_random_factor: 1.5,
            max_retransmit: 4,
            timeout: None,
            expect: vec!["2.xx".into()],
            max_response: Size(16 << 20),
            data: None,
        }
    }
}

/// Largest body.
const BODY_MAX: Size = Size(16 << 20);
/// Largest response: more has no block number.
const RESPONSE_MAX: Size = Size(1 << 30);
/// Largest value of Uri-Host, Uri-Path and Uri-Query (section 5.10).
const OPTION_MAX: usize = 255;
/// Highest rate of one device.
const RATE_MAX: f64 = 1e7;
const MAX_RETRANSMIT_MAX: u8 = 20;
/// How long a response that needs no acknowledgement is waited for.
const NON_TIMEOUT: Interval = Interval::secs(2);
const DEFAULT_INTERVAL: Interval = Interval::secs(1);

impl ModelKind for Params {
    const DESCRIPTION: &'static Description = &DESCRIPTION;
    type Config = Config;

    fn compile(&self, target: &Target) -> Result<Config, Problem> {
        self.config(Some(target))
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
        self.config(None).map(drop)
    }

    fn send_rate(&self) -> Option<SendRate> {
        let per_second = match self.rate {
            _ if self.observe => return None,
            Some(rate) => rate.0,
            None => self.interval.unwrap_or(DEFAULT_INTERVAL).per_second(),
        };
        Some(SendRate { key: if self.rate.is_some() { "rate" } else { "interval" }, per_second })
    }

    fn repeats(&self) -> Option<FlowLength> {
        let interval = match self.rate {
            _ if self.observe => return None,
            Some(_) => return None,
            None => self.interval.unwrap_or(DEFAULT_INTERVAL),
        };
        Some(FlowLength { key: "count", count: self.count.into(), interval })
    }

    fn path(&self) -> Option<&str> {
        Some(&self.path)
    }

    fn set_data(&mut self, data: &Data) {
        self.data = Some(data.clone());
    }

    fn set_path(&mut self, path: &str) {
        // section 6.4, step 8: an empty path is as good as /; a fragment is refused (step 5)
        self.path = if path.starts_with('/') { path.to_owned() } else { format!("/{path}") };
    }

    #[cfg(any(test, feature = "testing"))]
    fn for_noise(&mut self, choice: u8, _scheme: &mut crate::target::Scheme) -> usize {
        use crate::describe::bit;
        self.confirmable = bit(choice, 0);
        if bit(choice, 1) {
            self.method = Method::Put;
            self.size = Some(Size(100));
        } else {
            self.observe = bit(choice, 2);
        }
        self.block_size = Size(if bit(choice, 3) { 16 } else { 1024 });
        self.interval = (!self.observe).then_some(Interval::ms(u64::from(bit(choice, 4))));
        self.nstart = 1 + 3 * u16::from(bit(choice, 5));
        self.count = 5 * u32::from(bit(choice, 6));
        self.ack_timeout = Interval::ms(10);
        self.timeout = Some(Interval::ms(200));
        self.max_response = Size(4096);
        usize::MAX
    }
}

impl Params {
    fn config(&self, target: Option<&Target>) -> Result<Config, Problem> {
        let pace = self.pace()?;
        let request = self.request(target)?;
        Problem::unless(
            !self.observe || self.method == Method::Get,
            "observe",
            || "is for GET only".into(),
            "leave out method, or observe",
        )?;
        Problem::unless(
            (1..=1024).contains(&self.nstart),
            "nstart",
            || format!("{} is out of range", self.nstart),
            "use 1 to 1024",
        )?;
        for (key, wait) in [("ack_timeout", Some(self.ack_timeout)), ("timeout", self.timeout)] {
            let waits = wait.is_none_or(|wait| wait > Interval::default());
            Problem::unless(waits, key, || "is zero".into(), "use 2s")?;
        }
        Problem::unless(
            (1.0..=10.0).contains(&self.ack_random_factor),
            "ack_random_factor",
            || format!("{} is out of range", self.ack_random_factor),
            "use 1 to 10",
        )?;
        Problem::unless(
            self.max_retransmit <= MAX_RETRANSMIT_MAX,
            "max_retransmit",
            || format!("{} is out of range", self.max_retransmit),
            "use 0 to 20",
        )?;
        let response = (Size(1)..=RESPONSE_MAX).contains(&self.max_response);
        let what = || format!("{} is out of range", self.max_response);
        Problem::unless(response, "max_response", what, "use 1B to 1GiB")?;
        let longest = (self.ack_timeout.ns() as f64 * self.ack_random_factor) as u64;
        Ok(Config {
            request,
            confirmable: self.confirmable,
            observe: self.observe,
            pace,
            count: u64::from(self.count),
            nstart: self.nstart,
            ack_timeout: (self.ack_timeout.ns(), longest.saturating_sub(self.ack_timeout.ns())),
            max_retransmit: self.max_retransmit,
            timeout: self.timeout(longest).0,
            max_response: self.max_response.0 as u32,
            expect: self.codes()?,
        })
    }

    /// How long to wait for a response. A confirmable one by MAX_TRANSMIT_WAIT, ACK_TIMEOUT · (2^(MAX_RETRANSMIT + 1) − 1) ·
    /// ACK_RANDOM_FACTOR (section 4.8.2).
    fn timeout(&self, longest: u64) -> Interval {
        let usual = if self.confirmable {
            let waits = (1u64 << (self.max_retransmit + 1)) - 1;
            Interval(std::time::Duration::from_nanos(longest.saturating_mul(waits)))
        } else {
            NON_TIMEOUT
        };
        self.timeout.unwrap_or(usual)
    }

    fn pace(&self) -> Result<Pace, Problem> {
        let stray = if self.interval.is_some() { "interval" } else { "rate" };
        let free = !self.observe || self.interval.is_none() && self.rate.is_none();
        Problem::unless(
            free,
            stray,
            || "has no meaning with observe: the server sends when something changes".into(),
            "leave it out",
        )?;
        match (self.rate, self.interval) {
            (Some(_), Some(_)) => Err(Problem::new("interval", "stands beside rate", "give one of the two")),
            (Some(rate), None) => {
                let rate_ok = rate.0 > 1e-6 && rate.0 <= RATE_MAX;
                Problem::unless(rate_ok, "rate", || format!("{rate} is out of range"), "use at most 10M/s")?;
                Ok(Pace::per_second(rate))
            }
            (None, interval) => Ok(Pace::every(interval.unwrap_or(DEFAULT_INTERVAL))),
        }
    }

    fn request(&self, target: Option<&Target>) -> Result<Request, Problem> {
        let sends = matches!(self.method, Method::Post | Method::Put);
        let given = [
            ("payload", self.payload.is_some()),
            ("size", self.size.is_some()),
            ("content_format", self.content_format.is_some()),
        ];
        for (key, given) in given {
            // sections 5.8.1 and 5.8.4: a body has no meaning with the others
            let what = || "is for POST and PUT".into();
            Problem::unless(sends || !given, key, what, "leave it out, or set method")?;
        }
        let block = self.block_size.0;
        Problem::unless(
            (16..=BLOCK_MAX as u64).contains(&block) && block.is_power_of_two(),
            "block_size",
            || format!("{} is no size of a block", self.block_size),
            "use 16B, 32B, 64B, 128B, 256B, 512B or 1024B",
        )?;
        let body =
            Template::with(self.payload.as_deref().unwrap_or_default(), "payload", self.data.as_ref())?;
        let large = self.size.unwrap_or(Size(body.max_len() as u64));
        let most = BODY_MAX.min(Size(block * (u64::from(Block::NUMBER_MAX) + 1)));
        Problem::unless(
            large <= most,
            if self.size.is_some() { "size" } else { "payload" },
            || format!("may be {large}"),
            format!("use at most {most}"),
        )?;
        let (path, query) = resource(&self.path, self.data.as_ref())?;
        Ok(Request {
            method: self.method.code(),
            host: target.and_then(host),
            path,
            query,
            content_format: self.content_format,
            accept: self.accept,
            body,
            size: self.size.map(Size::bytes),
            szx: (block.trailing_zeros() - 4) as u8,
        })
    }

    fn codes(&self) -> Result<[u64; 4], Problem> {
        let mut bits = [0; 4];
        for (i, text) in self.expect.iter().enumerate() {
            let range = codes(text).ok_or_else(|| {
                let what = format!("{text:?} is no response code");
                Problem::new(format!("expect[{i}]"), what, "write it like \"2.05\" or \"2.xx\"")
            })?;
            range.for_each(|code| bits[usize::from(code) / 64] |= 1 << (code % 64));
        }
        let what = || "no response would be a success".into();
        Problem::unless(!self.expect.is_empty(), "expect", what, "leave it out for 2.xx")?;
        Ok(bits)
    }
}

/// The codes that `"2.05"` or `"2.xx"` means.
fn codes(text: &str) -> Option<std::ops::RangeInclusive<u8>> {
    let (class, detail) = text.split_once('.')?;
    let class = match class {
        "2" => 2,
        "4" => 4,
        "5" => 5,
        _ => return None,
    };
    if detail == "xx" {
        return Some(Code::of(class, 0).0..=Code::of(class, 31).0);
    }
    let plain = detail.len() == 2 && detail.bytes().all(|b| b.is_ascii_digit());
    let detail = detail.parse().ok().filter(|detail| plain && *detail < 32)?;
    Some(Code::of(class, detail).0..=Code::of(class, detail).0)
}

/// Uri-Host: the name that the target has in its URL; none where that is an address (section 6.4, step 5).
fn host(target: &Target) -> Option<Box<[u8]>> {
    let host = target.host.to_ascii_lowercase();
    let address = host.starts_with('[') || host.parse::<Ipv4Addr>().is_ok();
    (!address && !host.is_empty() && host.len() <= OPTION_MAX).then(|| host.into_bytes().into())
}

type Templates = Box<[Template]>;

/// Uri-Path and Uri-Query of a path with a query (section 6.4, steps 8 and 9).
fn resource(text: &str, data: Option<&Data>) -> Result<(Templates, Templates), Problem> {
    let wrong = |what: String, fix: &str| Problem::new("path", what, fix);
    let rest = text
        .strip_prefix('/')
        .ok_or_else(|| wrong(format!("{text:?} does not begin with /"), "write /sensors/1"))?;
    let clean = text.bytes().all(|b| b > b' ' && b != 0x7f && b != b'#');
    Problem::unless(
        clean,
        "path",
        || format!("{text:?} has a space or # in it"),
        "write a space as %20, # as %23",
    )?;
    // the places of templates have neither of these
    let (path, query) = match rest.split_once('?') {
        Some((path, query)) => (path, Some(query)),
        None => (rest, None),
    };
    // section 5.10.1; a dot may be written %2E
    let dots = path.split('/').map(|segment| segment.replace("%2e", ".").replace("%2E", "."));
    let dots = dots.into_iter().any(|segment| segment == "." || segment == "..");
    Problem::unless(!dots, "path", || "has . or .. in it".into(), "write where it leads")?;
    let option = |text: &str| {
        let bytes = decoded(text)?;
        let utf8 = std::str::from_utf8(&bytes).is_ok();
        let what = || format!("{text:?} stands for no text in UTF-8");
        Problem::unless(utf8, "path", what, "write what its percent signs stand for as UTF-8")?;
        let template = Template::compile(&bytes, "path", data)?;
        Problem::unless(
            template.max_len() <= OPTION_MAX,
            "path",
            || format!("{text:?} may be {} bytes", template.max_len()),
            "use at most 255 in each segment, and each argument of the query",
        )?;
        Ok(template)
    };
    let path = if path.is_empty() { Ok([].into()) } else { path.split('/').map(option).collect() };
    let query = query.map_or(Ok([].into()), |query| query.split('&').map(option).collect());
    Ok((path?, query?))
}

/// The bytes that percent signs stand for, as a template has them.
fn decoded(text: &str) -> Result<Vec<u8>, Problem> {
    let wrong =
        || Problem::new("path", format!("{text:?} has a % that stands for nothing"), "write % as %25");
    let mut out = Vec::with_capacity(text.len());
    let mut bytes = text.bytes();
    while let Some(byte) = bytes.next() {
        if byte != b'%' {
            out.push(byte);
            continue;
        }
        let mut digit = || bytes.next().and_then(|b| char::from(b).to_digit(16)).ok_or_else(wrong);
        let byte = (digit()? * 16 + digit()?) as u8;
        out.push(byte);
        if matches!(byte, b'{' | b'}') {
            out.push(byte);
        }
    }
    Ok(out)
}
