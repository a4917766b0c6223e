//! UDP datagrams, each with its number and its time in the payload ([`packet::signature`]).
//!
//! A flow is a stream at a constant rate. With `echo` the other side reflects every datagram, and what
//! comes back gives delay, loss, duplicates and reordering (RFC 4737); without, it is only sent.
#![allow(dead_code)]

use crate::meter::Failure;
use crate::model::{Cx, Model};
use crate::problem::Problem;
use crate::registry::{Scheme, Target};
use crate::unit::{Interval, Rate, Size};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// Where it can be pointed at.
pub const SCHEMES: &[Scheme] = &[Scheme::udp("udp", None)];

/// What it measures: intended send time to return, with `echo`.
pub const DELAYS: &[&str] = &["round_trip"];
const ROUND_TRIP: usize = 0;

/// Parameters of the `stream` model.
#[derive(Debug, Clone, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Params {
    /// UDP payload of each datagram, 18 to 65507 bytes. Default `64B`.
    pub size: Size,
    /// Datagrams per second of each device. Default `1000/s`, unless `interval` is given.
    pub rate: Option<Rate>,
    /// Time from one datagram to the next; instead of `rate`. Default: none.
    pub interval: Option<Interval>,
    /// Datagrams per flow; 0: until the load ends. Default 0.
    pub count: u64,
    /// How many datagrams fall due together; the rate stays the same. Default 1.
    #[schemars(range(min = 1, max = 65536))]
    pub burst: u32,
    /// Whether the other side reflects the datagrams. Default `true`.
    pub echo: bool,
    /// With `echo`: how long to wait for datagrams still on their way after the last was sent. Default `1s`.
    pub timeout: Interval,
}

impl Default for Params {
    fn default() -> Self {
        Self {
            size: Size(64),
            rate: None,
            interval: None,
            count: 0,
            burst: 1,
            echo: true,
            timeout: Interval::secs(1),
        }
    }
}

/// What is the same for all devices of a group.
#[derive(Debug)]
pub struct Plan {}

impl Params {
    /// Whether the values make sense, and make sense together.
    pub fn check(&self) -> Result<(), Problem> {
        Ok(())
    }

    /// Check, and prepare what all devices share.
    pub fn compile(&self, _target: &Target) -> Result<Plan, Problem> {
        self.check()?;
        Ok(Plan {})
    }
}

impl Plan {
    /// A new device.
    pub fn device(self: &Arc<Self>, _index: u32) -> Device {
        Device { plan: Arc::clone(self) }
    }
}

/// One virtual device.
#[derive(Debug)]
pub struct Device {
    plan: Arc<Plan>,
}

impl Model for Device {
    fn start(&mut self, cx: &mut Cx<'_>) {
        let _ = &self.plan;
        cx.finish();
    }
    fn connected(&mut self, _cx: &mut Cx<'_>) {}
    fn received(&mut self, _cx: &mut Cx<'_>, bytes: &[u8]) -> usize {
        bytes.len()
    }
    fn timer(&mut self, _cx: &mut Cx<'_>) {}
    fn closed(&mut self, _cx: &mut Cx<'_>, _why: Failure) {}
    fn stop(&mut self, _cx: &mut Cx<'_>) {}
}
