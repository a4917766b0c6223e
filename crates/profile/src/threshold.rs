//! What a schema cannot say about thresholds: that their metrics are of this profile's groups, and their bounds in the
//! metrics' units.

use crate::error::{BAD_REFERENCE, BAD_VALUE, CONFLICT, OUT_OF_RANGE};
use crate::metric::{Metric, MetricKind};
use crate::text::choices;
use crate::{Bound, Error, Group, Profile, Threshold, Transport, model};
use protocol::problem::closest;
use protocol::unit::{Interval, Rate};

/// What is wrong with the threshold that stands at `at`.
pub(crate) fn check(profile: &Profile, threshold: &Threshold, at: &str, add: &mut impl FnMut(Option<Error>)) {
    let key = format!("{at}.metric");
    let metric = &threshold.metric;
    match profile.groups.iter().find(|g| g.name == metric.group) {
        _ if matches!(metric.kind, MetricKind::Port(_)) => add(check_port(profile, &metric.group, key)),
        None => {
            let names = || profile.groups.iter().map(|g| g.name.as_str());
            let fix = match closest(&metric.group, names()) {
                Some(near) => format!("Did you mean {near:?}?"),
                None if profile.groups.is_empty() => "Add the group, or leave the threshold out".to_owned(),
                None => format!("Use one of {}", choices(names())),
            };
            add(Some(Error::new(BAD_REFERENCE, key, format!("there is no group {:?}", metric.group), fix)));
        }
        Some(group) => {
            let of_order = matches!(
                metric.kind,
                MetricKind::Reordering(_)
                    | MetricKind::Disorder(..)
                    | MetricKind::Noticeable
                    | MetricKind::Losses(..)
            );
            if of_order && !group.model.about().ordered {
                let what = format!("messages of {} have no order", group.model.name());
                let fix = format!("Use it with {}", model::models_where(|about, _| about.ordered));
                add(Some(Error::new(BAD_REFERENCE, key.clone(), what, fix)));
            }
            add(check_metric_name(group, metric, key));
        }
    }
    match (&threshold.max, &threshold.min) {
        (Some(_), Some(_)) => {
            add(Some(Error::new(
                CONFLICT,
                at,
                "a threshold has max or min, not both",
                "Make two thresholds of it",
            )));
        }
        (None, None) => {
            add(Some(Error::new(CONFLICT, at, "the threshold has no bound", "Give it max or min")))
        }
        (Some(bound), None) | (None, Some(bound)) => {
            if let Err((what, fix)) = bound.value(&metric.kind) {
                let side = if threshold.max.is_some() { "max" } else { "min" };
                add(Some(Error::new(BAD_VALUE, format!("{at}.{side}"), what, fix)));
            }
        }
    }
    if !(0.5..1.0).contains(&threshold.confidence) {
        let what = format!("{} is not a usable confidence", threshold.confidence);
        add(Some(Error::new(
            OUT_OF_RANGE,
            format!("{at}.confidence"),
            what,
            "Use 0.5 to below 1, such as 0.95",
        )));
    }
}

/// A port that the profile does not have.
fn check_port(profile: &Profile, port: &str, at: String) -> Option<Error> {
    let Transport::Dpdk(dpdk) = &profile.transport else {
        let what = format!("there is no port {port:?}: the transport is sockets");
        return Some(Error::new(BAD_REFERENCE, at, what, "Use it with transport.dpdk, or leave it out"));
    };
    let names = || dpdk.ports.iter().map(|port| port.name.as_str());
    if names().any(|name| name == port) {
        return None;
    }
    let fix = match closest(port, names()) {
        Some(near) => format!("Did you mean {near:?}?"),
        None => format!("Use one of {}", choices(names())),
    };
    Some(Error::new(BAD_REFERENCE, at, format!("there is no port {port:?}"), fix))
}

/// What a metric names that the group's model does not have.
fn check_metric_name(group: &Group, metric: &Metric, at: String) -> Option<Error> {
    let about = group.model.about();
    let (what, name, there): (_, _, Vec<&str>) = match &metric.kind {
        MetricKind::Delay(name, _) | MetricKind::Ipdv(name, _) => {
            ("measures no delay", name, about.delays.iter().map(|delay| delay.name).collect())
        }
        MetricKind::Count { name, .. } => {
            ("has no counter of its own", name, about.counters.iter().map(|counter| counter.name).collect())
        }
        MetricKind::Value(name, _) => {
            ("measures no value", name, about.values.iter().map(|value| value.name).collect())
        }
        MetricKind::Index(name) => {
            ("has no index", name, about.indices.iter().map(|index| index.name).collect())
        }
        _ => return None,
    };
    if there.contains(&name.as_str()) {
        return None;
    }
    let fix = match there.as_slice() {
        [] => "Leave the threshold out: it has none at all".to_owned(),
        names => format!("Use one of {}", names.join(", ")),
    };
    Some(Error::new(BAD_REFERENCE, at, format!("{} {what} called {name:?}", about.name), fix))
}

/// What a metric is measured in.
enum Unit {
    Time,
    PerSecond,
    Share,
    Count,
}

impl Unit {
    fn of(kind: &MetricKind) -> Self {
        match kind {
            MetricKind::Delay(..)
            | MetricKind::Ipdv(..)
            | MetricKind::Lateness(_)
            | MetricKind::Disorder("late", _)
            | MetricKind::Stalls("time" | "longest") => Self::Time,
            MetricKind::Counter { rate: true, .. } | MetricKind::Count { rate: true, .. } => Self::PerSecond,
            MetricKind::Loss
            | MetricKind::Noticeable
            | MetricKind::Index(_)
            | MetricKind::Reordering(_)
            | MetricKind::Stalls("share" | "waiting") => Self::Share,
            _ => Self::Count,
        }
    }

    fn example(&self) -> &'static str {
        match self {
            Self::Time => "Write it with its unit, like \"50ms\"",
            Self::PerSecond => "Write it like \"1000/s\"",
            Self::Share => "Write it like 0.01 or \"1%\"",
            Self::Count => "Write a plain number",
        }
    }

    fn read(&self, text: &str) -> Result<f64, String> {
        let plain = text.trim().parse::<f64>().ok();
        match self {
            Self::Time => text.parse::<Interval>().map(|i| i.ns() as f64).map_err(|e| e.to_string()),
            Self::PerSecond => text.parse::<Rate>().map(|r| r.0).map_err(|e| e.to_string()),
            Self::Share => text
                .strip_suffix('%')
                .and_then(|percent| Some(percent.trim().parse::<f64>().ok()? / 100.0))
                .or(plain)
                .ok_or_else(|| format!("{text:?} is no share")),
            Self::Count => plain.ok_or_else(|| format!("{text:?} is not a plain number")),
        }
    }
}

impl Bound {
    /// The bound in the metric's unit: nanoseconds, per second, a count or a ratio. An error says what to write.
    pub fn value(&self, kind: &MetricKind) -> Result<f64, (String, &'static str)> {
        let unit = Unit::of(kind);
        let value = match self {
            Bound::Number(n) => Ok(*n),
            Bound::Quantity(text) => unit.read(text),
        };
        let value = value.map_err(|what| (what, unit.example()))?;
        // Only differences of delays can be below 0; of shares only an index may be above 1.
        match kind {
            _ if !value.is_finite() => Err((format!("{value} is no bound"), unit.example())),
            MetricKind::Loss | MetricKind::Noticeable | MetricKind::Reordering(_) if value > 1.0 => {
                Err((format!("{value} is more than all"), unit.example()))
            }
            MetricKind::Ipdv(..) | MetricKind::Index(_) => Ok(value),
            _ if value < 0.0 => Err((format!("{value} is below 0, where nothing is"), unit.example())),
            _ if matches!(unit, Unit::Time) && matches!(self, Bound::Number(n) if *n != 0.0) => {
                Err((format!("{value} is a time without a unit"), unit.example()))
            }
            _ => Ok(value),
        }
    }
}
