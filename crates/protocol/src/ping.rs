//! ICMP echo (RFC 792 for IPv4, RFC 4443 for IPv6).
//!
//! A flow is a series of echo requests, each with its number; the other side returns them as they are.
#![allow(dead_code)]

use crate::meter::Failure;
use crate::model::{Cx, Model};
use crate::problem::Problem;
use crate::registry::{Carrier, Scheme, Target};
use crate::unit::{Interval, Size};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// Where it can be pointed at.
pub const SCHEMES: &[Scheme] = &[Scheme { name: "ping", port: None, carrier: Carrier::Icmp, tls: false }];

/// What it measures: intended send time to echo reply.
pub const DELAYS: &[&str] = &["round_trip"];
const ROUND_TRIP: usize = 0;

/// Parameters of the `ping` model.
#[derive(Debug, Clone, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Params {
    /// Bytes after the 8-byte ICMP header. Default `56B`, at most 65499.
    pub size: Size,
    /// Time from one echo request to the next. `0s`: the next is due when the former is answered or given up.
    /// Default `1s`.
    pub interval: Interval,
    /// Echo requests per flow; 0: until the load ends. Default 0.
    pub count: u32,
    /// An echo not answered within this time is lost. Default `1s`.
    pub timeout: Interval,
}

impl Default for Params {
    fn default() -> Self {
        Self { size: Size(56), interval: Interval::secs(1), count: 0, timeout: Interval::secs(1) }
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
