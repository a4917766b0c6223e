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
}

const STATS: [(&str, Stat); 7] = [
    ("min", Stat::Min),
    ("mean", Stat::Mean),
    ("p50", Stat::P50),
    ("p90", Stat::P90),
    ("p99", Stat::P99),
    ("p999", Stat::P999),
    ("max", Stat::Max),
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
        let counters = Counts::default().named().map(|(name, _)| name);
        let (group, kind) = match parts.as_slice() {
            [group, "delay", name, s] => (group, Kind::Delay((*name).to_owned(), stat(s)?)),
            [group, "lateness", s] => (group, Kind::Lateness(stat(s)?)),
            [group, "loss"] => (group, Kind::Loss),
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
                     GROUP.errors[.KIND] or GROUP.COUNTER[.rate] with COUNTER one of {}",
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
            "a.lateness.max",
            "a.loss",
            "a.errors",
            "a.errors.timeout",
            "a.messages_sent",
            "a.messages_delivered.rate",
        ] {
            assert_eq!(text.parse::<Metric>().expect(text).to_string(), text);
        }
        for text in
            ["a", "a.delay.publish", "a.delay.publish.p95th", "a.errors.bad", "a.nothing", "a.loss.rate"]
        {
            assert!(text.parse::<Metric>().is_err(), "{text}");
        }
    }
}
