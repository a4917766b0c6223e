//! How much is too much: what a clock of nanoseconds can tell apart, and what counters and memory can hold.

use crate::error::OUT_OF_RANGE;
use crate::{Error, Group, Load, Profile};
use protocol::registry::Params;
use protocol::unit::Interval;

/// Most groups of a profile.
pub const GROUPS: usize = 1_000;
/// Most devices of a group.
pub const DEVICES: u32 = 10_000_000;
/// Most flows, or messages of all devices together, that a group may begin in a second: one each nanosecond.
pub const RATE: f64 = 1e9;

/// What goes beyond in `profile` when its open loops are `factor` times as fast.
pub fn check(profile: &Profile, factor: f64) -> Vec<Error> {
    let mut errors = Vec::new();
    if profile.groups.len() > GROUPS {
        let what = format!("{} groups are more than can be run", profile.groups.len());
        let fix = format!("Use at most {GROUPS}; like devices belong in one group");
        errors.push(Error::new(OUT_OF_RANGE, "groups", what, fix));
    }
    for (i, group) in profile.groups.iter().enumerate() {
        let at = format!("groups[{i}]");
        if !(1..=DEVICES).contains(&group.devices) {
            let what = format!("{} devices are not a number that can be run", group.devices);
            errors.push(Error::new(
                OUT_OF_RANGE,
                format!("{at}.devices"),
                what,
                format!("Use 1 to {DEVICES}"),
            ));
        }
        errors.extend(flows(group, factor, &at));
        errors.extend(messages(group, &at));
    }
    errors
}

/// Rates of an open loop that are too high.
fn flows<'a>(group: &'a Group, factor: f64, at: &'a str) -> impl Iterator<Item = Error> + 'a {
    let rates = match &group.load {
        Load::Open(open) => {
            let stages = open.stages.iter().enumerate();
            let stages = stages.map(|(i, stage)| (format!("stages[{i}].rate"), stage.rate.0));
            std::iter::once(("rate".to_owned(), open.rate.0)).chain(stages).collect()
        }
        Load::Closed(_) => Vec::new(),
    };
    rates.into_iter().filter(move |(_, rate)| rate * factor > RATE).map(move |(key, rate)| {
        let what = format!("{:e} flows a second are more than one each nanosecond", rate * factor);
        Error::new(OUT_OF_RANGE, format!("{at}.load.open.{key}"), what, "Use at most \"1000M/s\"")
    })
}

/// All devices together send too often.
fn messages(group: &Group, at: &str) -> Option<Error> {
    let per_second = |interval: Interval| if interval.ns() == 0 { 0.0 } else { 1e9 / interval.ns() as f64 };
    let (key, each) = match &group.model {
        Params::Stream(stream) => match (stream.rate, stream.interval) {
            (None, Some(interval)) => ("interval", per_second(interval)),
            (rate, _) => ("rate", rate.map_or(0.0, |rate| rate.0)),
        },
        Params::Mqtt(mqtt) => ("interval", per_second(mqtt.interval)),
        Params::Http(http) => ("interval", per_second(http.interval)),
        Params::Ping(ping) => ("interval", per_second(ping.interval)),
        Params::Script(_) => return None,
    };
    let devices = f64::from(group.devices);
    (each * devices > RATE * (1.0 + f64::EPSILON)).then(|| {
        let what = format!(
            "{:e} messages a second of {} devices are more than one each nanosecond",
            each * devices,
            group.devices
        );
        let fix = match key {
            "rate" => format!("Use at most \"{}/s\", or fewer devices", (RATE / devices).floor()),
            _ => format!("Use at least \"{}ns\", or fewer devices", group.devices),
        };
        Error::new(OUT_OF_RANGE, format!("{at}.model.{}.{key}", group.model.name()), what, fix)
    })
}
