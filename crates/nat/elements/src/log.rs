//! The log of a connection tracker: which subscriber had which outside address and ports, and when, to collectors.
//!
//! ```text
//!  worker   Nat ──Log::drain─┬─▶ queue ─▶ thread ─▶ IPFIX collector
//!        (never waits)       └─▶ queue ─▶ thread ─▶ syslog collector
//! ```
//! Each replica has a log of its own, with a thread for each collector: a collector that is slow or gone holds up neither packets nor the other
//! one. To a collector, replicas are exporters of their own: their IPFIX observation domains are numbered on.

use ::element::kind::Endings;
use nat_core::Nat;
use nat_log::{
    Clock, Encode, Framing, Logger, Producer, Sender, Source, Statistics, Transport, ipfix, queue, syslog,
};
use profile::Error;
use protocol::problem::Problem;
use protocol::unit::Interval;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use std::borrow::Cow;
use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender as Keep, channel};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Records that the NAT keeps until they are drained.
const EVENTS: usize = 1 << 16;
/// Records that are drained at once: some 10 µs.
const BUDGET: usize = 256;
/// Drains of a turn of a NAT at most.
pub const DRAINS: usize = 4;
/// Sessions that may end together in a turn: with their port blocks half of what is drained in it. The rest is of what packets begin
/// and end. Where the collector takes nothing at least so many do, and what finds no room is counted.
const ENDS: u64 = (DRAINS * BUDGET / 4) as u64;
const LEAST_ENDS: u64 = 16;
/// Time between two looks at the system's clock, ns.
const SET_CLOCK: u64 = 1_000_000_000;
/// Time between two looks into a queue.
const PAUSE: Duration = Duration::from_millis(10);
/// What is left at the end is sent for so long, if the collector takes it.
const LINGER: Duration = Duration::from_secs(1);
/// And waited for so long: a connection attempt may be under way.
const PATIENCE: Duration = Duration::from_secs(3);

/// When a NAT ends: lines of which all ends at once, the records that this makes at most (a session and a port block of each, or all
/// port blocks of a subscriber), and time between two looks whether there is room for them.
const LINES: u32 = 7;
const ENDED: u64 = 56;
const WAIT: Duration = Duration::from_millis(1);
const _: () =
    assert!(ENDED == LINES as u64 * nat_core::subscriber::BLOCKS as u64 && ENDED <= *QUEUE.start() as u64);

/// Bounds of [`LogOptions::queue`], in events.
const QUEUE: std::ops::RangeInclusive<usize> = 64..=1 << 24;
/// The least MTU: the longest template and its record, with the headers of UDP and IPv6.
const LEAST_MTU: u16 = (ipfix::MIN_MESSAGE + 48) as u16;

/// Where sessions and port blocks are logged (RFC 6888 section 4): to an IPFIX collector, a syslog collector, or both.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct LogOptions {
    /// The IPFIX collector (RFC 7011, RFC 8158): its address and port, like `192.0.2.9:4739`, with `tcp://` before it for TCP. Default: none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ipfix: Option<Collector>,
    /// The syslog collector (RFC 5424): its address and port, like `192.0.2.9:514`, with `tcp://` before it for TCP. Default: none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub syslog: Option<Collector>,
    /// Log each session with its remote endpoint, and not port blocks only; docs/reference/nat-log.md says how much that is. Default false.
    #[serde(default)]
    pub sessions: bool,
    /// Events of a replica that may wait for each collector, 64 to 16777216, 64 bytes each. What does not fit is counted. Default 65536.
    #[serde(default = "queue_len")]
    pub queue: usize,
    /// The number of this NAT in each record: `natInstanceID` of IPFIX, `instance` of syslog. Default 1.
    #[serde(default = "one")]
    pub instance: u32,
    /// The IPFIX observation domain of the first replica; each further one has the next number. Default 1.
    #[serde(default = "one")]
    pub domain: u32,
    /// The MTU of the path to the IPFIX collector, 240 to 65535 bytes: messages are no longer. Default 1500.
    #[serde(default = "mtu")]
    pub mtu: u16,
    /// How often IPFIX templates are sent again over UDP, 1s to 24h. Default 60s.
    #[serde(default = "templates")]
    pub templates: Interval,
    /// The syslog facility, 0 to 23; 16 is local0. Default 16.
    #[serde(default = "facility")]
    pub facility: u8,
    /// The name of this host in syslog messages: up to 255 printable ASCII characters without spaces. Default `-`, for none.
    #[serde(default = "unnamed_host")]
    pub host: String,
    /// Your private enterprise number (IANA), in the name of syslog's structured data. Default 32473, that of documentation (RFC 5612).
    #[serde(default = "documentation")]
    pub enterprise: u32,
}

fn queue_len() -> usize {
    1 << 16
}

fn one() -> u32 {
    1
}

fn mtu() -> u16 {
    1500
}

fn templates() -> Interval {
    Interval::secs(60)
}

fn facility() -> u8 {
    16
}

fn unnamed_host() -> String {
    "-".into()
}

fn documentation() -> u32 {
    32473
}

/// A collector: an address, a port, and how it is reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Collector {
    /// Address and port.
    pub address: SocketAddr,
    /// Over TCP; else over UDP.
    pub tcp: bool,
}

impl FromStr for Collector {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (tcp, address) = match text.split_once("://") {
            None => (false, text),
            Some(("udp", address)) => (false, address),
            Some(("tcp", address)) => (true, address),
            Some((other, _)) => {
                return Err(format!("a collector is reached by udp:// or tcp://, not {other:?}"));
            }
        };
        let address: SocketAddr = address.parse().map_err(|_| {
            format!("{address:?} is not an IP address and a port; write it like 192.0.2.9:4739")
        })?;
        if address.port() == 0 || address.ip().is_unspecified() {
            return Err(format!("{address} is nobody's address"));
        }
        Ok(Self { address, tcp })
    }
}

impl fmt::Display for Collector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", if self.tcp { "tcp://" } else { "" }, self.address)
    }
}

impl<'de> Deserialize<'de> for Collector {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(de::Error::custom)
    }
}

impl Serialize for Collector {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl JsonSchema for Collector {
    fn schema_name() -> Cow<'static, str> {
        "Collector".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "type": "string",
            "pattern": r"^((udp|tcp)://)?([0-9.]+|\[[0-9A-Fa-f:.]+\]):[0-9]{1,5}$",
            "description": "An IP address and a port, over UDP, or with `tcp://` before them over TCP, like 192.0.2.9:4739"
        })
    }
}

impl LogOptions {
    /// What is wrong with it. Keys are those of the options.
    pub fn check(&self) -> Vec<Problem> {
        let mut problems = Vec::new();
        let mut unless = |holds: bool, key: &str, what: String, fix: &str| {
            if !holds {
                problems.push(Problem::new(key, what, fix));
            }
        };
        let collector = self.ipfix.is_some() || self.syslog.is_some();
        unless(
            collector,
            "",
            "the log has no collector".into(),
            "Name one in ipfix or syslog, or leave the log out",
        );
        let within = format!("{} events cannot wait", self.queue);
        unless(QUEUE.contains(&self.queue), "queue", within, "Use 64 to 16777216");
        let short = format!("an MTU of {} bytes has no room for a record and its template", self.mtu);
        unless(self.mtu >= LEAST_MTU, "mtu", short, "Use 240 to 65535");
        let often = (1..=86_400).contains(&self.templates.0.as_secs());
        let fix = "Use 1s to 24h";
        unless(often, "templates", format!("templates cannot be sent every {}", self.templates), fix);
        if let Err(fault) = syslog::Formatter::new(self.syslog_config()) {
            let key = match fault {
                syslog::Fault::Facility(_) => "facility",
                syslog::Fault::Header { .. } => "host",
                syslog::Fault::Instance(_) => "instance",
            };
            unless(false, key, fault.to_string(), "See docs/reference/nat-log.md");
        }
        problems
    }

    /// Let a NAT record what this log is to have. Without a log, [`events`](nat_core::Config::events) is to be 0.
    pub fn configure(&self, config: &mut nat_core::Config) {
        config.events = EVENTS;
        config.log_sessions = self.sessions;
    }

    /// By what a log that is told of everything from the start on is told from another: its collectors, and whether they get sessions.
    pub fn knowledge(of: Option<&Self>) -> u32 {
        let of = of.map(|log| (&log.ipfix, &log.syslog, log.sessions));
        crc32fast::hash(serde_json::to_string(&of).unwrap_or_default().as_bytes())
    }

    fn syslog_config(&self) -> syslog::Config {
        syslog::Config {
            facility: self.facility,
            host: self.host.clone(),
            enterprise: self.enterprise,
            instance: self.instance.to_string(),
            ..syslog::Config::default()
        }
    }

    fn ipfix_config(&self, collector: Collector, replica: u32) -> ipfix::Config {
        let refresh = u64::try_from(self.templates.0.as_millis()).unwrap_or(u64::MAX);
        ipfix::Config {
            domain: self.domain.wrapping_add(replica),
            instance: self.instance,
            max_message: ipfix::payload(self.mtu.into(), collector.address.is_ipv6()),
            // A stream loses none (RFC 7011 section 10.4).
            refresh_ms: if collector.tcp { 0 } else { refresh },
        }
    }
}

/// The log of one replica. It belongs to the worker, beside its [`Nat`]. Dropping it sends what is left, for a second at most,
/// to a collector that takes it.
#[derive(Debug)]
pub struct Log {
    /// Before the threads: its queues are closed when they are to end.
    source: Source,
    threads: Vec<Thread>,
    /// When the clock was set.
    set: Option<u64>,
}

/// What a thread says of itself.
#[derive(Debug, Default)]
struct Counts {
    lost: AtomicU64,
    suppressed: AtomicU64,
}

/// Where a thread sends to, and who is told how that ended.
#[derive(Debug, Clone)]
struct CollectorInfo {
    /// The key of the collector.
    key: &'static str,
    replica: u32,
    collector: Collector,
    endings: Endings,
}

impl CollectorInfo {
    /// The last of it is sent, or given up: `left` records are not known to have arrived.
    fn set_final(&self, statistics: Statistics, left: u64) {
        let to = self.collector;
        let mut missing = Vec::new();
        if left > 0 {
            missing.push(format!("{left} log records were not confirmed by {to}"));
        }
        if statistics.lost > 0 {
            missing.push(format!("{} log records did not reach {to}", statistics.lost));
        }
        if !missing.is_empty() {
            self.set_fault(missing.join(", and "));
        } else if !to.tcp && statistics.events > 0 {
            self.endings.note(format!("log records went to {to} by UDP: nobody confirms that they arrived"));
        }
    }

    fn set_fault(&self, what: String) {
        let fix =
            "Start the collector before the NAT and end it after; `log_lost` of `nat status` counts losses";
        self.endings.fault(Error::new("ND-91-03", format!("log.{}", self.key), what, fix));
    }
}

/// A thread that sends to one collector. It ends when this is dropped.
#[derive(Debug)]
struct Thread {
    about: CollectorInfo,
    counts: Arc<Counts>,
    /// Hung up to end it.
    keep: Option<Keep<()>>,
    /// Hung up when it has ended.
    ended: Receiver<()>,
}

impl Log {
    /// Start the threads of a replica, the so-many-eth of its element. No collector need be there.
    pub fn start(options: &LogOptions, replica: u32, endings: &Endings) -> io::Result<Self> {
        let (mut queues, mut threads) = (Vec::new(), Vec::new());
        let refused = |why: &dyn fmt::Display| io::Error::new(io::ErrorKind::InvalidInput, why.to_string());
        if let Some(to) = options.ipfix {
            let exporter =
                ipfix::Exporter::new(options.ipfix_config(to, replica)).map_err(|why| refused(&why))?;
            let sender = sender(to, Framing::Plain);
            let about = CollectorInfo { key: "ipfix", replica, collector: to, endings: endings.clone() };
            threads.push(start(about, exporter, sender, options.queue, &mut queues)?);
        }
        if let Some(to) = options.syslog {
            let formatter = syslog::Formatter::new(options.syslog_config()).map_err(|why| refused(&why))?;
            let sender = sender(to, Framing::OctetCounting);
            let about = CollectorInfo { key: "syslog", replica, collector: to, endings: endings.clone() };
            threads.push(start(about, formatter, sender, options.queue, &mut queues)?);
        }
        // What the NAT's time 0 is, is said with the first records.
        let source = Source::new(queues, Clock { zero_ms: 0 });
        Ok(Self { source, threads, set: None })
    }

    /// Hand over what the NAT recorded until `now`, in the NAT's time: some of it, as packets wait. Whether there may be more: then it is to
    /// be called again after the next burst, else from time to time. Neither waits nor allocates.
    pub fn drain(&mut self, nat: &mut Nat, now: u64) -> bool {
        if self.set.is_none_or(|set| now.saturating_sub(set) >= SET_CLOCK) {
            self.set = Some(now);
            self.source.set_clock(Clock { zero_ms: wall_ms().saturating_sub(now / 1_000_000) });
        }
        self.source.drain(nat, BUDGET)
    }

    /// Records that there is room for.
    pub fn room(&mut self) -> u64 {
        self.source.room()
    }

    /// Sessions that may end in a turn because somebody, or an address, is gone: thousands of them do at once.
    pub fn ends(&mut self) -> usize {
        (self.source.room() / 4).clamp(LEAST_ENDS, ENDS) as usize
    }

    /// Nothing comes any more, and all that is there ends: hand that over, and wait for room in the queue, but not beyond `until`. What
    /// finds no room then is counted.
    pub fn end(&mut self, nat: &mut Nat, now: u64, until: Instant) {
        // A block of an address that drains is there as long as the sessions are that it was left for.
        let mut from = (nat.config().log_sessions || !nat.passing().is_empty()).then_some(0);
        while let Some(line) = from {
            from = nat.end_from(line, LINES, now);
            self.hand_over(nat, now, until);
        }
        from = Some(0);
        while let Some(line) = from {
            from = nat.release_from(line, LINES, now);
            self.hand_over(nat, now, until);
        }
        self.end_forwards(nat, now, until);
    }

    /// The NAT translates: static forwards that came have begun.
    pub fn begin_forwards(&mut self, nat: &mut Nat, now: u64) {
        let room = usize::try_from(self.source.room()).unwrap_or(usize::MAX);
        nat.log_forwards(now, room.min(BUDGET));
    }

    /// The NAT stops, and so do its static forwards, also where sessions are kept for the next start: until then nobody has them.
    pub fn end_forwards(&mut self, nat: &mut Nat, now: u64, until: Instant) {
        let mut more = true;
        while more {
            self.hand_over(nat, now, until);
            more = nat.end_forwards(now, ENDED as usize);
        }
        while self.drain(nat, now) {}
    }

    fn hand_over(&mut self, nat: &mut Nat, now: u64, until: Instant) {
        while self.drain(nat, now) {}
        while self.source.room() < ENDED && Instant::now() < until {
            std::thread::sleep(WAIT);
        }
    }

    /// Nothing comes any more: its threads send what is left while others are waited for.
    pub fn close(&mut self) {
        self.source = Source::new(Vec::new(), Clock { zero_ms: 0 });
        self.threads.iter_mut().for_each(|thread| drop(thread.keep.take()));
    }

    /// Records that did not reach a collector, as far as is known here: the queue was full, or over UDP the kernel did not take them. One that
    /// reached neither of two is counted twice.
    pub fn lost(&self) -> u64 {
        self.threads.iter().map(|thread| thread.counts.lost.load(Ordering::Relaxed)).sum()
    }

    /// Refusals that were not logged, as there were too many in a second; of two collectors, those of the one that missed more.
    pub fn suppressed(&self) -> u64 {
        let each = self.threads.iter().map(|thread| thread.counts.suppressed.load(Ordering::Relaxed));
        each.max().unwrap_or(0)
    }
}

impl Drop for Thread {
    fn drop(&mut self) {
        drop(self.keep.take());
        // What is said is nothing: it hangs up. If it takes too long it is left to itself.
        if self.ended.recv_timeout(PATIENCE) == Err(RecvTimeoutError::Timeout) {
            let to = self.about.collector;
            self.about.set_fault(format!("it is not known which log records {to} has: it does not answer"));
        }
    }
}

fn sender(collector: Collector, framing: Framing) -> Sender {
    Sender::new(if collector.tcp { Transport::Tcp(framing) } else { Transport::Udp }, collector.address)
}

fn wall_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

/// Start a thread that sends; the end of its queue that takes events goes to `queues`.
fn start<E: Encode + Send + 'static>(
    about: CollectorInfo,
    encoder: E,
    sender: Sender,
    capacity: usize,
    queues: &mut Vec<Producer>,
) -> io::Result<Thread> {
    let (producer, consumer) = queue(capacity);
    let logger = Logger::new(encoder, sender, vec![consumer]);
    let counts = Arc::<Counts>::default();
    let ((keep, kept), (end, ended)) = (channel(), channel::<()>());
    let (counted, of_thread) = (Arc::clone(&counts), about.clone());
    let name = format!("log-{}{}", about.key, about.replica);
    std::thread::Builder::new().name(name).spawn(move || {
        let (statistics, left) = send(logger, &counted, &kept);
        of_thread.set_final(statistics, left);
        drop(end);
    })?;
    queues.push(producer);
    Ok(Thread { about, counts, keep: Some(keep), ended })
}

/// Send what comes, until nobody keeps this thread and all is sent, or the collector takes no more: what became of it, and how many
/// records are given up.
fn send<E: Encode>(mut logger: Logger<E>, counts: &Counts, kept: &Receiver<()>) -> (Statistics, u64) {
    let mut ending: Option<Instant> = None;
    loop {
        let sent = logger.turn(wall_ms());
        let statistics = logger.statistics();
        counts.lost.store(statistics.lost, Ordering::Relaxed);
        counts.suppressed.store(statistics.suppressed, Ordering::Relaxed);
        if logger.is_over() {
            return (statistics, 0);
        }
        let waits = sent > 0 || logger.unconfirmed() > 0;
        if ending.is_some_and(|since| !waits || since.elapsed() >= LINGER) {
            let left = logger.abandon();
            tracing::warn!("a NAT's log ended before its collector had confirmed the last {left} records");
            return (logger.statistics(), left);
        }
        let pause = if sent >= nat_log::TURN { Duration::ZERO } else { PAUSE };
        if ending.is_some() {
            std::thread::sleep(pause);
        } else if kept.recv_timeout(pause) == Err(RecvTimeoutError::Disconnected) {
            ending = Some(Instant::now());
        }
    }
}

#[cfg(test)]
#[path = "log_tests.rs"]
mod tests;
