//! The load that a group offers: flows begun at a rate, or devices at work.

use crate::bounded;
use protocol::unit::{Interval, Rate};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Most stages of a load.
const STAGES: usize = 10_000;

/// Most numbers of devices that hosts of a fleet differ in.
const SIZES: usize = 10_000;

/// How a group is shared with other hosts of a fleet.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Turns {
    /// Devices of the group on this host, before a load factor.
    #[schemars(range(min = 1))]
    pub own: u32,
    /// How many devices how many other hosts have that come before this one in the fleet: `[[2, 3]]` is three hosts with two
    /// each. Default: none.
    #[serde(
        default,
        skip_serializing_if = "Vec::is_empty",
        deserialize_with = "bounded::list::<_, _, SIZES>"
    )]
    #[schemars(length(max = 10000))]
    pub before: Vec<(u32, u32)>,
    /// The same of those behind it. Default: none.
    #[serde(
        default,
        skip_serializing_if = "Vec::is_empty",
        deserialize_with = "bounded::list::<_, _, SIZES>"
    )]
    #[schemars(length(max = 10000))]
    pub after: Vec<(u32, u32)>,
}

/// When flows begin.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Load {
    /// Flows begin at given times, whether or not earlier ones are done. When every device is busy a
    /// flow waits for one, and its delay counts from when it should have begun.
    Open(Open),
    /// Each device begins its next flow when the last one is done.
    Closed(Closed),
}

impl Default for Load {
    fn default() -> Self {
        Load::Closed(Closed::default())
    }
}

/// Arrivals that do not wait for the system under test.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Open {
    /// Flows per second, over the whole group, at most `1000M/s`; each stage may change it.
    pub rate: Rate,
    /// How the gaps between arrivals are spread. Default constant.
    #[serde(default)]
    pub arrival: Arrival,
    /// Ramps and steps, one after the other from the start of the run. After the last, its rate stays.
    #[serde(
        default,
        skip_serializing_if = "Vec::is_empty",
        deserialize_with = "bounded::list::<_, _, STAGES>"
    )]
    #[schemars(length(max = 10000))]
    pub stages: Vec<RateStage>,
    /// Flows at a time, over the whole group; 0: as many as there are devices. One that is due while as many are under way is never
    /// begun, and counts as `flows_suppressed`, as with `-l` of SIPp. Default 0.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub max_flows: u32,
}

fn is_zero(number: &u32) -> bool {
    *number == 0
}

/// How arrivals are spread in time.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Arrival {
    /// Equal gaps.
    #[default]
    Constant,
    /// Exponential gaps: independent devices.
    Poisson,
    /// Gaps uniform between 0 and twice the mean.
    Uniform,
}

/// A stretch of time over which the rate goes, in a straight line, to `rate`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RateStage {
    /// How long the change takes; `"0s"` is a step.
    pub over: Interval,
    /// Flows per second at its end.
    pub rate: Rate,
}

/// Devices that go round and round.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Closed {
    /// Rest between the end of a device's flow and the start of its next. Default 0s.
    pub flow_interval: Interval,
    /// Time over which the devices come alive, evenly. Default 0s.
    pub ramp: Interval,
    /// Flows per device; 0 = until the load ends. Default 0.
    pub flows: u32,
    /// How many devices are at work: goes in a straight line to `devices` over each stage, one after the
    /// other. Where it goes down, devices end their flow when the message on its way is answered. Replaces `ramp`.
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "bounded::list::<_, _, STAGES>")]
    #[schemars(length(max = 10000))]
    pub stages: Vec<DeviceStage>,
    /// Whether a trial's load factor changes the number of devices. `false` for devices that others call, and that are
    /// to be there at any load. Default `true`.
    pub scales: bool,
}

impl Default for Closed {
    fn default() -> Self {
        Self {
            flow_interval: Interval::secs(0),
            ramp: Interval::secs(0),
            flows: 0,
            stages: Vec::new(),
            scales: true,
        }
    }
}

/// A stretch of time over which the number of devices at work goes to `devices`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct DeviceStage {
    /// How long the change takes.
    pub over: Interval,
    /// Devices at work at its end; at most the group's `devices`.
    pub devices: u32,
}
