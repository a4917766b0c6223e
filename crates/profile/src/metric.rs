//! Names of results that thresholds and comparisons refer to.

use protocol::meter::{Counts, Failure};
use protocol::problem::closest;
use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use std::fmt;
use std::str::FromStr;

/// Which number of a distribution.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stat {
    /// Smallest.
    Min,
    /// Mean.
    Mean,
    /// A percentile, in millionths of a per cent point: `p99.9` is 99,900,000.
    Percentile(u32),
    /// Largest.
    Max,
    /// Of delays: 99.9th percentile less the smallest (RFC 5481 section 4.2).
    Pdv,
    /// Of delays: mean change from one message to the next (RFC 5481 section 4.1).
    Jitter,
}

/// Millionths in one per cent point, and the digits that they take.
const MILLIONTHS: u32 = 1_000_000;
const DIGITS: usize = 6;

impl Stat {
    /// Whether only delays have it.
    fn is_variation(self) -> bool {
        matches!(self, Stat::Pdv | Stat::Jitter)
    }

    /// The statistic of this name. An error is a hint what to write instead, which may be empty.
    fn from_name(name: &str) -> Result<Self, String> {
        match STATS.iter().find(|(known, _)| *known == name) {
            Some((_, stat)) => Ok(*stat),
            None => percentile(name).map(Stat::Percentile),
        }
    }
}

const STATS: [(&str, Stat); 6] = [
    ("min", Stat::Min),
    ("mean", Stat::Mean),
    ("max", Stat::Max),
    ("pdv", Stat::Pdv),
    ("jitter", Stat::Jitter),
    // former spelling of p99.9
    ("p999", Stat::Percentile(99_900_000)),
];

/// `pNN` or `pNN.N…`, above 0 and below 100.
fn percentile(name: &str) -> Result<u32, String> {
    let Some(number) = name.strip_prefix('p').filter(|n| n.starts_with(|c: char| c.is_ascii_digit())) else {
        return Err(String::new());
    };
    let (whole, part) = number.split_once('.').unwrap_or((number, ""));
    let digits = |text: &str| text.bytes().all(|b| b.is_ascii_digit());
    if !digits(whole) || !digits(part) || number.ends_with('.') {
        return Err(String::new());
    }
    if whole.len() > 2 {
        return Err(match whole.split_at(2) {
            _ if whole.trim_start_matches('0') == "100" => "; use max".to_owned(),
            (head, tail) if part.is_empty() && tail.len() <= DIGITS => {
                format!("; did you mean p{head}.{tail}?")
            }
            _ => String::new(),
        });
    }
    if part.len() > DIGITS {
        return Err(format!("; a percentile has at most {DIGITS} decimals"));
    }
    let part: u32 = format!("{part:0<DIGITS$}").parse().map_err(|_| String::new())?;
    let whole: u32 = whole.parse().map_err(|_| String::new())?;
    match whole * MILLIONTHS + part {
        0 => Err("; use min".to_owned()),
        found => Ok(found),
    }
}

impl fmt::Display for Stat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Stat::Percentile(millionths) = self else {
            return f.write_str(STATS.iter().find(|(_, stat)| stat == self).map_or("", |(name, _)| *name));
        };
        let (whole, part) = (millionths / MILLIONTHS, millionths % MILLIONTHS);
        match format!("{part:0DIGITS$}").trim_end_matches('0') {
            "" => write!(f, "p{whole}"),
            part => write!(f, "p{whole}.{part}"),
        }
    }
}

/// The statistics as messages list them.
const LISTED: &str = "min, mean, max, or a percentile like p50, p95, p99 or p99.9";

/// What of a group is judged.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MetricKind {
    /// A delay, in nanoseconds: its name and which number of it.
    Delay(String, Stat),
    /// How late the generator was, in nanoseconds.
    Lateness(Stat),
    /// Share of sent messages that were not delivered.
    Loss,
    /// How a delay changed from message to message, in nanoseconds: its name and which number of it.
    Ipdv(String, Stat),
    /// A share of the delivered messages that came out of order: one of [`ORDER_SHARES`].
    Reordering(&'static str),
    /// By how much they did: one of [`ORDER_SPREADS`].
    Disorder(&'static str, Stat),
    /// Share of the lost messages that came close after another (RFC 3357).
    Noticeable,
    /// How the lost ones lay: one of [`LOSS_SPREADS`].
    Losses(&'static str, Stat),
    /// Waits for answers that were longer than the group's `stall`: one of [`STALLS`].
    Stalls(&'static str),
    /// Failures, of one kind or all.
    Errors(Option<String>),
    /// What the model counts of its own, as a count or per second of the measure phase.
    Count {
        /// The counter's name.
        name: String,
        /// Per second.
        rate: bool,
    },
    /// A figure that follows from counters, which the model names.
    Index(String),
    /// What the model measures that is no time: its name and which number of it.
    Value(String, Stat),
    /// What a DPDK port and the stacks over it counted in the whole run: one of [`PORT_COUNTERS`].
    Port(&'static str),
    /// A counter that every group has, as a count or per second of the measure phase.
    Counter {
        /// The counter's name.
        name: String,
        /// Per second.
        rate: bool,
    },
}

/// Out of order by RFC 4737, and by three places or more; not at its place by RFC 5236.
const ORDER_SHARES: [&str; 3] = ["ratio", "by_three", "displaced"];
/// Reordering extent, in messages, and late time offset, in nanoseconds (RFC 4737); distance from its place, and how
/// many waited when each came (RFC 5236).
const ORDER_SPREADS: [&str; 4] = ["extent", "late", "displacement", "waiting"];
/// Lost in a row; from each loss to the one before, and from each row to the one before (RFC 3357); in messages.
const LOSS_SPREADS: [&str; 3] = ["length", "distance", "between"];

/// Share of the devices' time spent in them, that time and the longest in nanoseconds, and the share of the
/// devices that were in one when the measure phase ended.
const STALLS: [&str; 4] = ["share", "time", "longest", "waiting"];

/// Counters of a DPDK port in a result, those of the stacks over it included.
pub const PORT_COUNTERS: [&str; 34] = [
    "rx_packets",
    "rx_bytes",
    "tx_packets",
    "tx_bytes",
    "rx_dropped",
    "tx_dropped",
    "rx_errors",
    "tx_errors",
    "tcp_segments_sent",
    "tcp_retransmitted",
    "tcp_timeouts",
    "tcp_resets_sent",
    "tcp_frames_segmented_by_port",
    "icmp_errors_sent",
    "icmp_errors_limited",
    "dropped_other_host",
    "dropped_not_for_us",
    "dropped_malformed",
    "dropped_bad_checksum",
    "dropped_fragment",
    "dropped_no_connection",
    "dropped_old_timestamp",
    "dropped_out_of_window",
    "dropped_challenged",
    "dropped_bad_ack",
    "dropped_listener_full",
    "dropped_foreign_icmp",
    "dropped_reply_queue_full",
    "dropped_socket_full",
    "dropped_bad_source",
    "dropped_not_copied",
    "dropped_other_vlan",
    "dropped_duplicate_address",
    "dropped_routing_header",
];

/// `GROUP.what` or `PORT.port.COUNTER`, parsed.
#[derive(Debug, Clone, PartialEq, Eq, JsonSchema)]
#[schemars(with = "String")]
pub struct Metric {
    /// The group, or the port.
    pub group: String,
    /// What of it.
    pub kind: MetricKind,
}

/// Whether `text` may be the name of a model's counter or index. Whether there is one is the model's to say.
fn is_name(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_')
}

/// A metric's parts between points, but a percentile's decimals stay with it.
fn joined(text: &str) -> Vec<&str> {
    let mut parts: Vec<&str> = text.split('.').collect();
    if let [.., before, last] = parts.as_slice()
        && before.starts_with('p')
        && before[1..].starts_with(|c: char| c.is_ascii_digit())
        && last.starts_with(|c: char| c.is_ascii_digit())
    {
        let from = text.len() - before.len() - 1 - last.len();
        parts.truncate(parts.len() - 2);
        parts.push(&text[from..]);
    }
    parts
}

impl FromStr for Metric {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let parts: Vec<&str> = joined(text);
        let stat = |name: &str| {
            Stat::from_name(name).map_err(|hint| {
                format!(
                    "{name:?} in {text:?} is not a statistic; use {LISTED}, of delays pdv or jitter too{hint}"
                )
            })
        };
        let delay = stat;
        let stat = |name: &str| match stat(name)? {
            variation if variation.is_variation() => {
                Err(format!("{name:?} in {text:?} is a statistic of delays alone"))
            }
            other => Ok(other),
        };
        let one_of = |names: &[&'static str], name: &str| {
            let unknown = || format!("{name:?} in {text:?} is none of {}", names.join(", "));
            names.iter().find(|n| **n == name).copied().ok_or_else(unknown)
        };
        let counters = Counts::default().named_counters().map(|(name, _)| name);
        let (group, kind) = match parts.as_slice() {
            [group, "delay", name, s] => (group, MetricKind::Delay((*name).to_owned(), delay(s)?)),
            [group, "lateness", s] => (group, MetricKind::Lateness(stat(s)?)),
            [group, "loss"] => (group, MetricKind::Loss),
            [group, "ipdv", name, s] => (group, MetricKind::Ipdv((*name).to_owned(), stat(s)?)),
            [group, "losses", "noticeable"] => (group, MetricKind::Noticeable),
            [group, "losses", what, s] => (group, MetricKind::Losses(one_of(&LOSS_SPREADS, what)?, stat(s)?)),
            [group, "reordering", share] => (group, MetricKind::Reordering(one_of(&ORDER_SHARES, share)?)),
            [group, "reordering", what, s] => {
                (group, MetricKind::Disorder(one_of(&ORDER_SPREADS, what)?, stat(s)?))
            }
            [group, "stalls", what] => (group, MetricKind::Stalls(one_of(&STALLS, what)?)),
            [group, "errors"] => (group, MetricKind::Errors(None)),
            [group, "errors", kind] if Failure::ALL.iter().any(|f| f.name() == *kind) => {
                (group, MetricKind::Errors(Some((*kind).to_owned())))
            }
            [group, "counts", name] if is_name(name) => {
                (group, MetricKind::Count { name: (*name).to_owned(), rate: false })
            }
            [group, "counts", name, "rate"] if is_name(name) => {
                (group, MetricKind::Count { name: (*name).to_owned(), rate: true })
            }
            [port, "port", name] => match PORT_COUNTERS.iter().find(|known| *known == name) {
                Some(known) => (port, MetricKind::Port(known)),
                None => {
                    let near = closest(name, PORT_COUNTERS);
                    let near = near.map_or(String::new(), |near| format!("; did you mean {near:?}?"));
                    return Err(format!(
                        "{name:?} in {text:?} is no counter of a port; use one of {}{near}",
                        PORT_COUNTERS.join(", ")
                    ));
                }
            },
            [group, "index", name] if is_name(name) => (group, MetricKind::Index((*name).to_owned())),
            [group, "value", name, s] if is_name(name) => {
                (group, MetricKind::Value((*name).to_owned(), stat(s)?))
            }
            [group, name] if counters.contains(name) => {
                (group, MetricKind::Counter { name: (*name).to_owned(), rate: false })
            }
            [group, name, "rate"] if counters.contains(name) => {
                (group, MetricKind::Counter { name: (*name).to_owned(), rate: true })
            }
            _ => {
                return Err(format!(
                    "{text:?} is not a metric; use GROUP.delay.NAME.STAT, GROUP.lateness.STAT, GROUP.loss, \
                     GROUP.losses.noticeable, GROUP.losses.{}.STAT, GROUP.ipdv.NAME.STAT, GROUP.reordering.{}, \
                     GROUP.reordering.{}.STAT, GROUP.stalls.{}, GROUP.errors[.KIND], GROUP.counts.NAME[.rate], \
                     GROUP.index.NAME, GROUP.value.NAME.STAT, GROUP.COUNTER[.rate] or PORT.port.COUNTER with STAT {LISTED} (of delays \
                     pdv or jitter too) and COUNTER of a group one of {}",
                    LOSS_SPREADS.join("|"),
                    ORDER_SHARES.join("|"),
                    ORDER_SPREADS.join("|"),
                    STALLS.join("|"),
                    counters.join(", ")
                ));
            }
        };
        Ok(Self { group: (*group).to_owned(), kind })
    }
}

impl fmt::Display for Metric {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.", self.group)?;
        match &self.kind {
            MetricKind::Delay(name, s) => write!(f, "delay.{name}.{s}"),
            MetricKind::Lateness(s) => write!(f, "lateness.{s}"),
            MetricKind::Loss => f.write_str("loss"),
            MetricKind::Ipdv(name, s) => write!(f, "ipdv.{name}.{s}"),
            MetricKind::Reordering(share) => write!(f, "reordering.{share}"),
            MetricKind::Disorder(what, s) => write!(f, "reordering.{what}.{s}"),
            MetricKind::Noticeable => f.write_str("losses.noticeable"),
            MetricKind::Losses(what, s) => write!(f, "losses.{what}.{s}"),
            MetricKind::Stalls(what) => write!(f, "stalls.{what}"),
            MetricKind::Errors(None) => f.write_str("errors"),
            MetricKind::Errors(Some(kind)) => write!(f, "errors.{kind}"),
            MetricKind::Count { name, rate: false } => write!(f, "counts.{name}"),
            MetricKind::Count { name, rate: true } => write!(f, "counts.{name}.rate"),
            MetricKind::Index(name) => write!(f, "index.{name}"),
            MetricKind::Value(name, s) => write!(f, "value.{name}.{s}"),
            MetricKind::Port(name) => write!(f, "port.{name}"),
            MetricKind::Counter { name, rate: false } => f.write_str(name),
            MetricKind::Counter { name, rate: true } => write!(f, "{name}.rate"),
        }
    }
}

impl<'de> Deserialize<'de> for Metric {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        String::deserialize(d)?.parse().map_err(de::Error::custom)
    }
}

impl Serialize for Metric {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.collect_str(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metrics_read_and_show_alike() {
        for text in [
            "a.delay.publish.p99",
            "a.delay.publish.pdv",
            "a.reordering.ratio",
            "a.reordering.by_three",
            "a.reordering.extent.p99",
            "a.reordering.late.max",
            "a.reordering.displaced",
            "a.reordering.displacement.mean",
            "a.reordering.waiting.max",
            "a.ipdv.round_trip.p99.9",
            "a.delay.publish.p95",
            "a.delay.publish.p99.99",
            "a.delay.publish.p0.1",
            "a.delay.publish.p5",
            "a.lateness.p99.999999",
            "a.losses.noticeable",
            "a.losses.length.max",
            "a.losses.distance.min",
            "a.losses.between.p50",
            "a.lateness.max",
            "a.loss",
            "a.stalls.share",
            "a.stalls.time",
            "a.stalls.longest",
            "a.stalls.waiting",
            "a.errors",
            "a.errors.timeout",
            "a.errors.unanswered",
            "a.messages_sent",
            "a.messages_delivered.rate",
            "a.counts.responses_5xx",
            "a.counts.responses_5xx.rate",
            "a.index.server_errors",
            "a.value.mos.p5",
            "a.port.tcp_retransmitted",
            "a.port.dropped_bad_checksum",
        ] {
            assert_eq!(text.parse::<Metric>().expect(text).to_string(), text);
        }
        for text in [
            "a",
            "a.delay.publish",
            "a.delay.publish.p95th",
            "a.delay.publish.p100",
            "a.delay.publish.p0",
            "a.delay.publish.p9999",
            "a.delay.publish.p99.",
            "a.delay.publish.p99.9.9",
            "a.delay.publish.p99.1234567",
            "a.delay.publish.p-1",
            "a.delay.publish.p+5",
            "a.delay.publish.p",
            "a.loss.p95",
            "a.lateness.jitter",
            "a.errors.bad",
            "a.nothing",
            "a.loss.rate",
            "a.reordering",
            "a.reordering.ratio.p99",
            "a.reordering.extent",
            "a.reordering.displaced.max",
            "a.ipdv.round_trip",
            "a.ipdv.round_trip.jitter",
            "a.losses.length",
            "a.stalls",
            "a.stalls.limit",
            "a.stalls.longest.max",
            "a.counts",
            "a.counts.",
            "a.counts.Responses",
            "a.counts.sessions.max",
            "a.index",
            "a.index.server_errors.rate",
            "a.value.mos",
            "a.port",
            "a.port.retransmitted",
            "a.port.tcp_retransmitted.rate",
            "a.value.mos.pdv",
        ] {
            assert!(text.parse::<Metric>().is_err(), "{text}");
        }
    }

    #[test]
    fn the_former_spelling_of_a_percentile_is_read() {
        let read = |text: &str| text.parse::<Metric>().expect(text);
        assert_eq!(read("a.delay.publish.p999"), read("a.delay.publish.p99.9"));
        assert_eq!(read("a.delay.publish.p99.90"), read("a.delay.publish.p99.9"));
    }

    #[test]
    fn what_is_no_counter_of_a_port_is_told_which_there_are() {
        let wrong = "a.port.tcp_retransmited".parse::<Metric>().expect_err("misspelt");
        assert!(wrong.contains("did you mean \"tcp_retransmitted\"?"), "{wrong}");
        assert!(wrong.contains("rx_packets") && wrong.contains("dropped_bad_checksum"), "{wrong}");
    }

    #[test]
    fn what_is_no_statistic_is_told_which_there_are() {
        for (text, said) in [
            ("a.delay.publish.p9999", "did you mean p99.99?"),
            ("a.delay.publish.p100", "use max"),
            ("a.delay.publish.p0", "use min"),
            ("a.delay.publish.median", "p50, p95, p99 or p99.9"),
            ("a.delay.publish", "p50, p95, p99 or p99.9"),
        ] {
            let wrong = text.parse::<Metric>().expect_err(text);
            assert!(wrong.contains(said), "{wrong}");
        }
    }
}
