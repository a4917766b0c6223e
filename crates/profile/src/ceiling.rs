//! How much is too much: what a clock of nanoseconds can tell apart, and what counters and memory can hold.

use crate::error::OUT_OF_RANGE;
use crate::source::Pool;
use crate::{Error, Group, Load, Profile};
use protocol::describe::SendRate;

/// Most groups of a profile.
pub const GROUPS: usize = 1_000;
/// Most thresholds of a profile.
pub const THRESHOLDS: usize = 1_000;
/// Most targets that a profile names.
pub const TARGETS: usize = 1_000;
/// Most texts that a group's source addresses are written in, and most addresses of all groups together.
pub const SOURCES: usize = 1_000;
const ADDRESSES: usize = 1 << 20;
/// Most cores of the sockets transport: what a set of cores has room for.
pub const CORES: usize = 1_024;
/// Most ports: as many as DPDK has room for.
pub const PORTS: usize = 32;
/// Most queues of a port in each direction.
pub const QUEUES: u16 = 16;
/// Most packets that a port receives or sends at once.
pub const BURST: u16 = 128;
/// Most workers of a placement.
pub const WORKERS: usize = 1_024;
/// Most elements of a worker.
pub const ELEMENTS: usize = 2_048;
/// Most layers of a frame.
pub const LAYERS: usize = 64;
/// Most fields of a frame that change.
pub const VARIED: usize = 64;
/// Most regular expressions of all scripts: each may take a MiB when it is compiled.
const PATTERNS: usize = 128;
/// Most bytes of all groups' payloads that are filled up to a size.
const FILLED: u64 = 256 << 20;
/// Most devices of a group.
pub const DEVICES: u32 = 10_000_000;
/// Highest number of a group's first device: those behind it have numbers of 32 bits, too.
const FIRST_DEVICE: u32 = 4_000_000_000;
/// Most flows, or messages of all devices together, that a group may begin in a second: one each nanosecond.
pub const RATE: f64 = 1e9;

/// What goes beyond in `profile` when its open loops are `factor` times as fast.
pub fn check(profile: &Profile, factor: f64) -> Vec<Error> {
    let mut errors = Vec::new();
    errors.extend(check_memory(profile));
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
        if group.first_device > FIRST_DEVICE {
            let what = format!("devices cannot be numbered from {}", group.first_device);
            let fix = format!("Use 0 to {FIRST_DEVICE}");
            errors.push(Error::new(OUT_OF_RANGE, format!("{at}.first_device"), what, fix));
        }
        errors.extend(turns(group, &at));
        errors.extend(flows(group, factor, &at));
        errors.extend(messages(group, &at));
    }
    errors
}

/// Turns with other hosts.
fn turns(group: &Group, at: &str) -> Option<Error> {
    let turns = group.turns.as_ref()?;
    let others = turns.before.iter().chain(&turns.after);
    let all = others.map(|(devices, hosts)| u128::from(*devices) * u128::from(*hosts)).sum::<u128>();
    let (key, what) = match turns.own {
        0 => ("own", "a host without devices has no turn".to_owned()),
        own if all + u128::from(own) > FIRST_DEVICE.into() => {
            ("before", format!("{} devices on all hosts are too many", all + u128::from(own)))
        }
        _ => return None,
    };
    let fix = format!("Use 1 to {FIRST_DEVICE} on all hosts together, or leave `turns` out");
    Some(Error::new(OUT_OF_RANGE, format!("{at}.turns.{key}"), what, fix))
}

/// What all groups together take of the memory.
fn check_memory(profile: &Profile) -> Option<Error> {
    let (mut addresses, mut patterns, mut filled) = (0usize, 0, 0u64);
    let error = |at: String, what: String, fix: &str| Some(Error::new(OUT_OF_RANGE, at, what, fix));
    for (i, group) in profile.groups.iter().enumerate() {
        let pools = group.source.iter().filter_map(|text| Pool::read(text).ok());
        addresses = pools.fold(addresses, |sum, pool| sum.saturating_add(pool.count()));
        if addresses > ADDRESSES {
            let what =
                format!("{addresses} source addresses of all groups up to here are more than can be held");
            return error(format!("groups[{i}].source"), what, "Use at most 1048576 in all");
        }
        filled = filled.saturating_add(group.model.filled());
        if filled > FILLED {
            let what =
                format!("the payloads of all groups up to here have {filled} bytes, more than can be held");
            let at = format!("groups[{i}].model.{}", group.model.name());
            return error(at, what, "Use at most \"256MiB\" in all");
        }
        if let Some((key, more)) = group.model.expressions() {
            patterns += more;
            if patterns > PATTERNS {
                let what = format!("{patterns} regular expressions up to here are more than can be held");
                let at = format!("groups[{i}].model.{}.{key}", group.model.name());
                return error(at, what, "Use at most 128 in all");
            }
        }
    }
    None
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
    let SendRate { key, per_second: each } = group.model.send_rate()?;
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
