//! Names of results that thresholds and comparisons refer to.

use protocol::meter::{Counts, Failure};
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
    /// Median.
    P50,
    /// 90th percentile.
    P90,
    /// 99th percentile.
    P99,
    /// 99.9th percentile.
    P999,
    /// Largest.
    Max,
    /// Of delays: 99.9th percentile less the smallest (RFC 5481 section 4.2).
    Pdv,
    /// Of delays: mean change from one message to the next (RFC 5481 section 4.1).
    Jitter,
}

impl Stat {
    /// Whether only delays have it.
    fn is_variation(self) -> bool {
        matches!(self, Stat::Pdv | Stat::Jitter)
    }
}

const STATS: [(&str, Stat); 9] = [
    ("min", Stat::Min),
    ("mean", Stat::Mean),
    ("p50", Stat::P50),
    ("p90", Stat::P90),
    ("p99", Stat::P99),
    ("p999", Stat::P999),
    ("max", Stat::Max),
    ("pdv", Stat::Pdv),
    ("jitter", Stat::Jitter),
];

/// What of a group is judged.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Kind {
    /// A delay, in nanoseconds: its name and which number of it.
    Delay(String, Stat),
    /// How late the generator was, in nanoseconds.
    Lateness(Stat),
    /// Share of sent messages that were not delivered.
    Loss,
    /// Share of delivered messages that came after a later one (RFC 4737), and of those that came after three.
    Reordering {
        /// After three, one right after the other.
        by_three: bool,
    },
    /// By how many arrivals such a message was late.
    Extent(Stat),
    /// By how much time, in nanoseconds.
    Late(Stat),
    /// Failures, of one kind or all.
    Errors(Option<String>),
    /// A counter, as a count or per second of the measure phase.
    Counter {
        /// The counter's name.
        name: String,
        /// Per second.
        rate: bool,
    },
}

/// `GROUP.what`, parsed.
#[derive(Debug, Clone, PartialEq, Eq, JsonSchema)]
#[schemars(with = "String")]
pub struct Metric {
    /// The group.
    pub group: String,
    /// What of it.
    pub kind: Kind,
}

impl FromStr for Metric {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let parts: Vec<&str> = text.split('.').collect();
        let stat = |name: &str| {
            STATS.iter().find(|(n, _)| *n == name).map(|(_, s)| *s).ok_or_else(|| {
                format!(
                    "{name:?} in {text:?} is not a statistic; use one of {}",
                    STATS.map(|s| s.0).join(", ")
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
        let counters = Counts::default().named().map(|(name, _)| name);
        let (group, kind) = match parts.as_slice() {
            [group, "delay", name, s] => (group, Kind::Delay((*name).to_owned(), delay(s)?)),
            [group, "lateness", s] => (group, Kind::Lateness(stat(s)?)),
            [group, "loss"] => (group, Kind::Loss),
            [group, "reordering", "ratio"] => (group, Kind::Reordering { by_three: false }),
            [group, "reordering", "by_three"] => (group, Kind::Reordering { by_three: true }),
            [group, "reordering", "extent", s] => (group, Kind::Extent(stat(s)?)),
            [group, "reordering", "late", s] => (group, Kind::Late(stat(s)?)),
            [group, "errors"] => (group, Kind::Errors(None)),
            [group, "errors", kind] if Failure::ALL.iter().any(|f| f.name() == *kind) => {
                (group, Kind::Errors(Some((*kind).to_owned())))
            }
            [group, name] if counters.contains(name) => {
                (group, Kind::Counter { name: (*name).to_owned(), rate: false })
            }
            [group, name, "rate"] if counters.contains(name) => {
                (group, Kind::Counter { name: (*name).to_owned(), rate: true })
            }
            _ => {
                return Err(format!(
                    "{text:?} is not a metric; use GROUP.delay.NAME.STAT, GROUP.lateness.STAT, GROUP.loss, \
                     GROUP.reordering.ratio, GROUP.reordering.by_three, GROUP.reordering.extent.STAT, \
                     GROUP.reordering.late.STAT, GROUP.errors[.KIND] or GROUP.COUNTER[.rate] with COUNTER one of {}",
                    counters.join(", ")
                ));
            }
        };
        Ok(Self { group: (*group).to_owned(), kind })
    }
}

impl fmt::Display for Metric {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let stat = |s: &Stat| STATS.iter().find(|(_, x)| x == s).map_or("", |(n, _)| *n);
        write!(f, "{}.", self.group)?;
        match &self.kind {
            Kind::Delay(name, s) => write!(f, "delay.{name}.{}", stat(s)),
            Kind::Lateness(s) => write!(f, "lateness.{}", stat(s)),
            Kind::Loss => f.write_str("loss"),
            Kind::Reordering { by_three: false } => f.write_str("reordering.ratio"),
            Kind::Reordering { by_three: true } => f.write_str("reordering.by_three"),
            Kind::Extent(s) => write!(f, "reordering.extent.{}", stat(s)),
            Kind::Late(s) => write!(f, "reordering.late.{}", stat(s)),
            Kind::Errors(None) => f.write_str("errors"),
            Kind::Errors(Some(kind)) => write!(f, "errors.{kind}"),
            Kind::Counter { name, rate: false } => f.write_str(name),
            Kind::Counter { name, rate: true } => write!(f, "{name}.rate"),
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
            "a.lateness.max",
            "a.loss",
            "a.errors",
            "a.errors.timeout",
            "a.messages_sent",
            "a.messages_delivered.rate",
        ] {
            assert_eq!(text.parse::<Metric>().expect(text).to_string(), text);
        }
        for text in [
            "a",
            "a.delay.publish",
            "a.delay.publish.p95th",
            "a.lateness.jitter",
            "a.errors.bad",
            "a.nothing",
            "a.loss.rate",
            "a.reordering",
            "a.reordering.ratio.p99",
            "a.reordering.extent",
        ] {
            assert!(text.parse::<Metric>().is_err(), "{text}");
        }
    }
}
