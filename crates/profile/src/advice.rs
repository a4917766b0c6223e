//! What a profile may say and hardly means: told beside its errors, and no reason to refuse it.

use crate::error::{CONFLICT, OUT_OF_RANGE};
use crate::{Error, Profile, Transport};
use protocol::registry::Params;
use protocol::unit::Interval;
use std::time::Duration;

/// What to look at again in a profile that passed its checks.
pub fn advise(profile: &Profile) -> Vec<Error> {
    let phases = &profile.phases;
    let load = phases.warmup.0.saturating_add(phases.measure.0);
    let groups = profile.groups.iter().enumerate();
    let long = groups.filter_map(|(i, group)| {
        let (key, count, interval) = repeats(&group.model)?;
        // The last message need not be waited for.
        let takes = interval.0.checked_mul(count.saturating_sub(1))?;
        (takes > load).then(|| {
            let what = format!(
                "a flow of {count} messages each {interval} takes {} at least, and warm-up and measure phase \
                 together {}: none ends in good order",
                Interval(takes),
                Interval(load)
            );
            let at = format!("groups[{i}].model.{}.{key}", group.model.name());
            Error::new(CONFLICT, at, what, "Use a longer phases.measure, or fewer messages a flow")
        })
    });
    long.collect()
}

/// Cores that a machine with these does not have.
pub fn advise_here(profile: &Profile, cores: &[u16]) -> Vec<Error> {
    let named: Vec<(String, u16)> = match &profile.transport {
        Transport::Sockets(sockets) => {
            let cores = sockets.cores.iter().enumerate();
            cores.map(|(i, core)| (format!("transport.sockets.cores[{i}]"), *core)).collect()
        }
        Transport::Dpdk(dpdk) => {
            let workers = dpdk.placement.iter().enumerate();
            let core = |(w, worker): (usize, &crate::Worker)| {
                Some((format!("transport.dpdk.placement[{w}].core"), worker.core?))
            };
            workers.filter_map(core).collect()
        }
    };
    let absent = named.into_iter().filter(|(_, core)| !cores.contains(core));
    let told = |(at, core)| {
        let what = format!("core {core} is none that may be used on this machine");
        Error::new(OUT_OF_RANGE, at, what, format!("Use some of {cores:?}, or run it elsewhere"))
    };
    absent.map(told).collect()
}

/// How many messages a flow has, and how far apart they are, where that is fixed.
fn repeats(model: &Params) -> Option<(&'static str, u32, Interval)> {
    let (key, count, interval) = match model {
        Params::Mqtt(mqtt) if mqtt.publish => ("count", mqtt.count, mqtt.interval),
        Params::Http(http) => ("requests", http.requests, http.interval),
        Params::Ping(ping) => ("count", ping.count, ping.interval),
        Params::Stream(stream) => {
            let each = match (stream.interval, stream.rate) {
                (Some(interval), _) => interval,
                (None, Some(rate)) if rate.0 > 0.0 => {
                    Interval(Duration::try_from_secs_f64(1.0 / rate.0).ok()?)
                }
                (None, _) => Interval::ms(1),
            };
            ("count", u32::try_from(stream.count).unwrap_or(u32::MAX), each)
        }
        Params::Mqtt(_) | Params::Script(_) => return None,
    };
    (count > 0).then_some((key, count, interval))
}
