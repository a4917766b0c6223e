//! `run.*`: load, steer, and read one run.

use super::{Answer, NoParams};
use crate::caller::Caller;
use crate::clock;
use crate::run::{Run, Status, paths};
use profile::Target;
use run::Trial;
use run::rates::RateRequest;
use serde::Deserialize;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant, UNIX_EPOCH};
use system::method::CallContext;
use system::rpc::{Error, NOTHING_THERE};

/// What to run, and what to change about it.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Load {
    profile: Value,
    #[serde(default)]
    targets: BTreeMap<String, Target>,
    #[serde(default)]
    trial: Trial,
}

/// Put a run in place of the last one.
pub fn load(caller: &Caller, params: Load) -> Answer {
    caller.core.as_writer(caller.session)?;
    let run = caller.core.load(
        caller.session,
        caller.files(),
        &with_targets(params.profile, &params.targets),
        &params.trial,
    )?;
    let groups: Vec<Value> = run
        .plan
        .groups
        .iter()
        .map(|g| {
            json!({
                "name": g.name, "protocol": g.about.name, "target": g.target, "devices": g.devices, "unit": g.unit,
                "delays": g.about.delays.iter().map(|delay| delay.name).collect::<Vec<_>>(), "confirmed": g.confirmed,
                "token": g.shown_token()
            })
        })
        .collect();
    Ok(json!({"run": run.id, "groups": groups}))
}

/// The profile with these targets: before its checks, so that it may leave them open.
fn with_targets(mut profile: Value, targets: &BTreeMap<String, Target>) -> Value {
    if !targets.is_empty()
        && let Some(profile) = profile.as_object_mut()
        // what is there and no object is the checks' to refuse
        && let Some(all) = profile.entry("targets").or_insert_with(|| json!({})).as_object_mut()
    {
        all.extend(targets.iter().map(|(name, target)| (name.clone(), target.to_string().into())));
    }
    profile
}

pub(super) fn loaded(caller: &Caller) -> Result<Arc<Run>, Error> {
    caller.core.run().ok_or_else(|| {
        Error::new(NOTHING_THERE, "ND-104-11", "run", "no run is loaded", "Call run.load first")
    })
}

fn steer(caller: &Caller, f: impl FnOnce(&Arc<Run>) -> Result<(), Error>) -> Answer {
    let run = loaded(caller)?;
    f(&run)?;
    Ok(json!(run.status()))
}

/// The longest wait for a start.
const LONGEST_WAIT: f64 = 3600.0;

/// When to begin.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Start {
    /// Seconds since 1970, UTC, by this machine's clock; at once when missing.
    at: Option<f64>,
}

impl Start {
    /// When that is, by the clock that runs are timed by.
    fn moment(&self) -> Result<Option<Instant>, Error> {
        let Some(at) = self.at else { return Ok(None) };
        let (wall, now) = clock::read_clocks();
        let wait = at - wall.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64();
        if (0.0..=LONGEST_WAIT).contains(&wait) {
            return Ok(Some(now + Duration::from_secs_f64(wait)));
        }
        let what = if wait < 0.0 {
            format!("that was {:.3} s ago by this machine's clock", -wait)
        } else {
            format!("that is more than {LONGEST_WAIT} s ahead by this machine's clock")
        };
        Err(Error::params("at", what))
    }
}

/// Begin to send, at once or at a time, so that several machines begin together.
pub fn start(caller: &Caller, params: Start) -> Answer {
    caller.core.as_writer(caller.session)?;
    steer(caller, |run| run.start(params.moment()?))
}

/// Stop the run's clock. Anybody may: the result has every pause.
pub fn pause(caller: &Caller, _: NoParams) -> Answer {
    steer(caller, |run| run.pause())
}

/// Let it go on. Anybody may.
pub fn resume(caller: &Caller, _: NoParams) -> Answer {
    steer(caller, |run| run.resume())
}

/// Go to the drain phase.
pub fn stop(caller: &Caller, _: NoParams) -> Answer {
    caller.core.as_writer(caller.session)?;
    steer(caller, |run| {
        run.stop("stopped");
        Ok(())
    })
}

/// Ports by name, and all that is to hold of each.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Paths {
    ports: BTreeMap<String, Value>,
}

/// From now on so. Anybody may: who turns a bad path is another than who sends over it.
pub fn impair(caller: &Caller, params: Paths) -> Answer {
    let run = loaded(caller)?;
    let read = |(port, way): (String, Value)| paths::parse_impairment(&port, &way).map(|way| (port, way));
    run.impair(params.ports.into_iter().map(read).collect::<Result<_, Error>>()?)?;
    Ok(json!(run.status()))
}

/// Groups by name, and the rate of each.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rates {
    groups: BTreeMap<String, RateRequest>,
}

/// Another rate from the next point of the series on. Anybody of this machine may: the result has every change.
pub fn rate(caller: &Caller, params: Rates) -> Answer {
    caller.may_change()?;
    let run = loaded(caller)?;
    let changes = run.set_rates(&params.groups)?;
    Ok(json!({"run": run.id, "rates": changes}))
}

/// How far it is.
pub fn status(caller: &Caller, _: NoParams) -> Answer {
    let status = caller.core.run().map_or_else(Status::idle, |r| r.status());
    Ok(json!(status))
}

/// The trial's result.
pub fn result(caller: &Caller, _: NoParams) -> Answer {
    Ok(json!(*loaded(caller)?.result()?))
}

/// Which devices' summaries.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Page {
    #[serde(default)]
    offset: usize,
    #[serde(default = "page_size")]
    limit: usize,
}

fn page_size() -> usize {
    10_000
}

/// What each device delivered.
pub fn flows(caller: &Caller, page: Page) -> Answer {
    let run = loaded(caller)?;
    let flows = run.flows();
    let rows: Vec<Value> = flows
        .page(page.offset, page.limit.min(100_000))
        .map(|f| {
            let t = &f.tally;
            let mean = t.delay_sum.checked_div(t.delivered).unwrap_or(0);
            let group = &run.plan.groups[usize::from(f.group)].name;
            json!([
                group,
                f.device,
                t.flows.0,
                t.flows.1,
                t.sent,
                t.delivered,
                t.failed,
                mean,
                t.delay_max,
                t.duplicates,
                t.reordered,
                t.pattern.loss_periods,
                t.pattern.longest_loss,
                t.pattern.furthest,
                t.pattern.most_waiting
            ])
        })
        .collect();
    Ok(json!({"total": flows.len(), "flows": rows}))
}
