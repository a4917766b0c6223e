//! Rates that are changed by hand while a run goes on: what is asked for, whether it can be, and what results say of it.

use crate::control::Control;
use crate::plan::{GroupPlan, Plan};
use crate::setup_error::SetupError;
use profile::{Load, Transport, ceiling};
use protocol::rate_timeline::{CHANGES, RateTimeline};
use protocol::time::Time;
use protocol::unit::{Interval, Rate};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// All workers learn of a change before it comes: none sleeps longer.
const AHEAD: u64 = 50_000_000;
/// A change waits for the end of the sample under way, so that each point of the series has one rate, but not longer than this.
const WAIT: u64 = 1_100_000_000;

/// What a rate is of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum RateOf {
    /// Messages of each flow under way.
    Flow,
    /// Messages of all devices of the group together, each with a flow under way.
    Group,
    /// Flows that begin, over the whole group: an open loop.
    Arrivals,
}

/// The rate that a group is to have.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RateRequest {
    /// So many a second.
    pub rate: Rate,
    /// Of what. Default: `arrivals` in an open loop, else `group`.
    #[serde(default)]
    pub of: Option<RateOf>,
}

/// A change of a group's rate by `run.rate`.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct RateChange {
    /// Seconds since the start.
    pub t: f64,
    /// The group.
    pub group: String,
    /// What the rate is of.
    pub of: RateOf,
    /// The rate from then on, a second.
    pub rate: f64,
    /// The rate until then, a second.
    pub before: f64,
}

/// When a change that is asked for now takes effect; `None` when the load is over by then.
pub fn moment(control: &Control, now: Time) -> Option<Time> {
    let soon = Time(now.0 + AHEAD);
    let next = control.boundary(Time(soon.0 - 1));
    let at = if next.since(now) <= WAIT { next } else { soon };
    (at < control.window().drain).then_some(at)
}

/// A change that has been checked.
struct Checked<'a> {
    timeline: &'a Arc<RateTimeline>,
    factor: f64,
    change: RateChange,
}

/// From `at` on these groups have these rates: all of them or, when one cannot be, none.
pub fn change(
    plan: &Plan,
    at: Time,
    requests: &BTreeMap<String, RateRequest>,
) -> Result<Vec<RateChange>, SetupError> {
    let checked: Vec<Checked<'_>> =
        requests.iter().map(|(name, request)| check(plan, at, name, *request)).collect::<Result<_, _>>()?;
    let mut changes = Vec::new();
    for Checked { timeline, factor, change } in checked {
        if timeline.change_to(at, factor) {
            changes.push(change);
        }
    }
    Ok(changes)
}

fn check<'a>(
    plan: &'a Plan,
    at: Time,
    name: &str,
    RateRequest { rate, of }: RateRequest,
) -> Result<Checked<'a>, SetupError> {
    let refuse = |code, what: String, fix: String| SetupError::new(code, format!("groups.{name}"), what, fix);
    let Some(group) = plan.groups.iter().find(|group| group.name == name) else {
        let names: Vec<&str> = plan.groups.iter().map(|group| group.name.as_str()).collect();
        let fix = format!("Name one of {}", protocol::problem::choices(names.into_iter()));
        return Err(refuse("ND-104-06", "the run has no such group".into(), fix));
    };
    let is_open = matches!(group.load, Load::Open(_));
    let of = of.unwrap_or(if is_open { RateOf::Arrivals } else { RateOf::Group });
    let timeline = timeline(group, of).map_err(|(what, fix)| refuse("ND-104-07", what, fix))?;
    let devices = f64::from(group.devices.max(1));
    let per = if of == RateOf::Group { devices } else { 1.0 };
    if !(rate.0 > 0.0 && rate.0.is_finite()) {
        let fix = "Give a rate above 0; run.pause stops the load".into();
        return Err(refuse("ND-104-05", format!("{rate} is no rate to send at"), fix));
    }
    let each = rate.0 / per;
    let all = if of == RateOf::Arrivals { rate.0 } else { each * devices };
    if all > ceiling::RATE * (1.0 + f64::EPSILON) {
        let what = format!("{all:e} a second are more than one each nanosecond");
        return Err(refuse("ND-104-05", what, "Use at most \"1000M/s\" over the whole group".into()));
    }
    if of != RateOf::Arrivals {
        check_model_rate(plan, group, each).map_err(|(what, fix)| refuse("ND-104-05", what, fix))?;
    }
    if timeline.count() >= CHANGES {
        let what = format!("its rate was changed {CHANGES} times, which is the most");
        return Err(refuse("ND-104-11", what, "Say with the load's stages what changes when".into()));
    }
    if (0..timeline.count()).next_back().and_then(|last| timeline.change(last)).is_some_and(|(t, _)| t >= at)
    {
        let what = format!("another rate is about to begin, {:.3} s into the run", at.0 as f64 / 1e9);
        return Err(refuse("ND-104-11", what, "Change it again after that".into()));
    }
    let nominal = timeline.nominal();
    let before = nominal * timeline.factor() * per;
    let change = RateChange { t: at.0 as f64 / 1e9, group: name.to_owned(), of, rate: rate.0, before };
    Ok(Checked { timeline, factor: each / nominal, change })
}

/// The rate that is meant, or why there is none, and what to do.
fn timeline(group: &GroupPlan, of: RateOf) -> Result<&Arc<RateTimeline>, (String, String)> {
    let name = group.about.name;
    if of == RateOf::Arrivals {
        return match &group.load {
            Load::Open(_) if group.arrivals.nominal() > 0.0 => Ok(&group.arrivals),
            Load::Open(_) => Err((
                "its arrivals follow stages, or none is to come".into(),
                "Leave load.open.stages out of the profile, and give load.open.rate".into(),
            )),
            Load::Closed(_) => Err((
                "its flows begin when others end, at no rate: the load is a closed loop".into(),
                "Change the rate of its messages (`of`: group or flow), or give the profile load.open.rate"
                    .into(),
            )),
        };
    }
    let timeline = group.model.timeline().filter(|timeline| timeline.nominal() > 0.0).ok_or_else(|| {
        let what = format!(
            "its devices send at no rate: {name} waits for answers, or follows a script or a recording"
        );
        let fix = match group.load {
            Load::Open(_) => "Change the rate at which flows begin (`of`: arrivals)",
            Load::Closed(_) => "Give the model an interval or a rate, or the load an open loop",
        };
        (what, fix.to_owned())
    })?;
    if of == RateOf::Group && matches!(group.load, Load::Open(_)) {
        let what = "how many of its flows are under way is not known: the load is an open loop".into();
        return Err((what, "Change the rate of each flow, or of arrivals (`of`: flow or arrivals)".into()));
    }
    Ok(timeline)
}

/// Whether the model can send so often: as if the profile said so.
fn check_model_rate(plan: &Plan, group: &GroupPlan, each: f64) -> Result<(), (String, String)> {
    let params = &plan.profile.groups[group.number].model;
    let Some(paced) = params.send_rate() else { return Ok(()) };
    let mut changed = serde_json::to_value(params).unwrap_or_default();
    let interval = Interval(Duration::try_from_secs_f64(1.0 / each).unwrap_or(Duration::MAX));
    let value = if paced.key == "rate" { Rate(each).to_string() } else { interval.to_string() };
    changed[params.name()][paced.key] = Value::from(value);
    let checked = serde_json::from_value::<models::Params>(changed).map(|params| params.check());
    if let Ok(Err(why)) = checked {
        return Err((format!("{} {}", why.key, why.what), why.fix));
    }
    let most =
        group.model.most_per_second().filter(|_| matches!(plan.profile.transport, Transport::Sockets(_)));
    if let Some(most) = most.filter(|most| each > *most) {
        let what = format!(
            "at {each}/s more datagrams are on their way than the {most}/s that replies are told apart at"
        );
        return Err((what, "Begin the run with a higher rate, or a shorter timeout".into()));
    }
    Ok(())
}
