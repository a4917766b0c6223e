//! What a profile may say and hardly means: told beside its errors, and no reason to refuse it.

use crate::error::{CONFLICT, OUT_OF_RANGE};
use crate::{Error, Profile, Transport};
use protocol::describe::FlowLength;
use protocol::unit::Interval;

/// What to look at again in a profile that passed its checks.
pub fn advise(profile: &Profile) -> Vec<Error> {
    let phases = &profile.phases;
    let load = phases.warmup.0.saturating_add(phases.measure.0);
    let groups = profile.groups.iter().enumerate();
    let long = groups.filter_map(|(i, group)| {
        let FlowLength { key, count, interval } = group.model.repeats().filter(|flow| flow.count > 0)?;
        // The last message need not be waited for.
        let takes = interval.0.checked_mul(u32::try_from(count).unwrap_or(u32::MAX) - 1)?;
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
