//! HTTP/1.1 client (RFC 9110 semantics, RFC 9112 syntax).
//!
//! A flow is one connection and `requests` requests on it, one after the other or pipelined:
//! connect → request → response → … → close. When the server closes in between, as it may after any
//! response, the flow connects again and goes on.
#![allow(dead_code)]

use crate::meter::Failure;
use crate::model::{Cx, Model};
use crate::problem::Problem;
use crate::registry::{Scheme, Target};
use crate::unit::{Interval, Size};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Where it can be pointed at.
pub const SCHEMES: &[Scheme] = &[Scheme::tcp("http", Some(80)), Scheme::tls("https", Some(443))];

/// What it measures: start of the flow to connection up; intended send time to last byte of the response;
/// intended send time to its first byte.
pub const DELAYS: &[&str] = &["connect", "response", "first_byte"];
const CONNECT: usize = 0;
const RESPONSE: usize = 1;
const FIRST_BYTE: usize = 2;

/// Parameters of the `http` model.
#[derive(Debug, Clone, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Params {
    /// Request method. Default `GET`.
    pub method: String,
    /// Request target: path and query; a template. Default `/`.
    pub path: String,
    /// Further header fields; the values are templates. `Host` and `User-Agent` are sent without being named here.
    pub headers: BTreeMap<String, String>,
    /// Request body, a template. Default: none.
    pub body: Option<String>,
    /// Size of the request body: `body` is cut or padded with spaces to it. Default: as long as `body`.
    pub size: Option<Size>,
    /// Whether one connection carries many requests; `false` asks the server to close after each. Default `true`.
    pub keep_alive: bool,
    /// How many requests may wait for their response on one connection; 1 is no pipelining. Default 1, at most 1024.
    #[schemars(range(min = 1, max = 1024))]
    pub pipelining: u16,
    /// Requests per flow; 0: until the load ends. Default 0.
    pub requests: u32,
    /// Time from one request to the next, whether or not the former is answered. `0s`: the next is due when
    /// the former is answered. Default `0s`.
    pub interval: Interval,
    /// Status codes that are a success: `"200"`, `"2xx"` or `"200-399"`. Others count as `rejected`. Default `["200-399"]`.
    pub expect: Vec<String>,
    /// Longest wait for the connection, and for a whole response; the flow fails then. Default `10s`.
    pub timeout: Interval,
}

impl Default for Params {
    fn default() -> Self {
        Self {
            method: "GET".into(),
            path: "/".into(),
            headers: BTreeMap::new(),
            body: None,
            size: None,
            keep_alive: true,
            pipelining: 1,
            requests: 0,
            interval: Interval::secs(0),
            expect: vec!["200-399".into()],
            timeout: Interval::secs(10),
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
