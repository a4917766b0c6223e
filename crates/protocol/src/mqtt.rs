//! MQTT client (OASIS MQTT 3.1.1 and 5.0).
//!
//! A flow is one virtual device's session on one TCP connection:
//! connect → CONNECT/CONNACK → \[SUBSCRIBE/SUBACK\] → `count` × PUBLISH, each acknowledged → DISCONNECT.
#![allow(dead_code)]

use crate::meter::Failure;
use crate::model::{Cx, Model};
use crate::problem::Problem;
use crate::registry::{Scheme, Target};
use crate::unit::{Interval, Size};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// Where it can be pointed at.
pub const SCHEMES: &[Scheme] = &[Scheme::tcp("mqtt", Some(1883)), Scheme::tls("mqtts", Some(8883))];

/// What it measures: start of the flow to connection up; CONNECT to CONNACK; intended send time to PUBACK or
/// PUBCOMP; intended send time to arrival at a subscriber of the run.
pub const DELAYS: &[&str] = &["connect", "connack", "publish", "end_to_end"];
const CONNECT: usize = 0;
const CONNACK: usize = 1;
const PUBLISH: usize = 2;
const END_TO_END: usize = 3;

/// Protocol version.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, Serialize, JsonSchema)]
pub enum Version {
    /// MQTT 3.1.1, protocol level 4.
    #[default]
    #[serde(rename = "3.1.1")]
    V311,
    /// MQTT 5.0, protocol level 5.
    #[serde(rename = "5.0")]
    V5,
}

/// A subscription.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Filter {
    /// Topic filter, with `+` and `#`; a template.
    pub topic: String,
    /// Highest quality of service to receive with: 0, 1 or 2. Default 0.
    #[serde(default)]
    #[schemars(range(max = 2))]
    pub qos: u8,
}

/// What the broker publishes when the device is lost.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Will {
    /// Topic; a template.
    pub topic: String,
    /// Payload; a template. Default empty.
    #[serde(default)]
    pub payload: String,
    /// Quality of service: 0, 1 or 2. Default 0.
    #[serde(default)]
    #[schemars(range(max = 2))]
    pub qos: u8,
    /// Whether the broker keeps it. Default `false`.
    #[serde(default)]
    pub retain: bool,
}

/// What a device does when its connection is lost or refused.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Reconnect {
    /// The flow fails; the load decides whether the device begins another.
    #[default]
    None,
    /// Connect again, each time after the same pause.
    Fixed(Fixed),
    /// Connect again, after a pause that doubles each time.
    Backoff(Backoff),
}

/// Parameters of [`Reconnect::Fixed`].
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Fixed {
    /// The pause. Default `1s`.
    pub delay: Interval,
    /// How often in a row before the flow fails; 0: without end. Default 0.
    pub attempts: u16,
}

impl Default for Fixed {
    fn default() -> Self {
        Self { delay: Interval::secs(1), attempts: 0 }
    }
}

/// Parameters of [`Reconnect::Backoff`].
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Backoff {
    /// The first pause; each pause is drawn between half of it and all, so that devices do not come back at
    /// once. Default `1s`.
    pub min: Interval,
    /// The longest pause. Default `1min`.
    pub max: Interval,
    /// How often in a row before the flow fails; 0: without end. Default 0.
    pub attempts: u16,
}

impl Default for Backoff {
    fn default() -> Self {
        Self { min: Interval::secs(1), max: Interval::secs(60), attempts: 0 }
    }
}

/// Parameters of the `mqtt` model.
#[derive(Debug, Clone, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Params {
    /// Protocol version: `"3.1.1"` or `"5.0"`. Default `"3.1.1"`.
    pub version: Version,
    /// Client identifier; a template. Default `nd-{device}`.
    pub client_id: String,
    /// User name; a template. Default: none.
    pub username: Option<String>,
    /// Password; a template. Default: none.
    pub password: Option<String>,
    /// Whether the broker forgets the former session (3.1.1 clean session, 5.0 clean start). Default `true`.
    pub clean_session: bool,
    /// How long the broker keeps the session after the connection, in whole seconds; 5.0 only. Default `0s`.
    pub session_expiry: Interval,
    /// Keep-alive, in whole seconds up to 65535; `0s` turns it off. Default `60s`.
    pub keep_alive: Interval,
    /// What the broker publishes when the device is lost. Default: nothing.
    pub will: Option<Will>,
    /// Whether the device publishes; `false`: it only subscribes. Default `true`.
    pub publish: bool,
    /// Topic to publish to; a template. Default `nd/{device}`.
    pub topic: String,
    /// Payload; a template. Default `{{"device":{device},"seq":{seq}}}`.
    pub payload: String,
    /// Size of the payload: it is cut or padded with spaces to it. Default: as long as it is.
    pub size: Option<Size>,
    /// Quality of service of publishes: 0, 1 or 2. QoS 0 is never confirmed: it counts as sent, not as
    /// delivered. Default 1.
    #[schemars(range(max = 2))]
    pub qos: u8,
    /// Whether the broker keeps the last message of a topic. Default `false`.
    pub retain: bool,
    /// Time from one publish to the next, whether or not the former is acknowledged; counts from CONNACK (from
    /// SUBACK when it subscribes). `0s`: the next is due when the former is acknowledged. Default `1s`.
    pub interval: Interval,
    /// Publishes per flow; 0: until the load ends. Default 0.
    pub count: u32,
    /// How many publishes may wait for their acknowledgement; a message due when that many do waits, and its
    /// delay counts. Default 1, at most 1024.
    #[schemars(range(min = 1, max = 1024))]
    pub max_inflight: u16,
    /// Topic filters to subscribe to before publishing. Default: none.
    pub subscribe: Vec<Filter>,
    /// Whether the last 18 bytes of each payload carry the intended send time, from which subscribers take the
    /// end-to-end delay. Default: when the device itself subscribes.
    pub mark: Option<bool>,
    /// How long a subscriber stays after its last publish, for messages still on their way. Default `1s`.
    pub linger: Interval,
    /// Longest wait for the connection together with CONNACK and SUBACK. Default `10s`.
    pub connect_timeout: Interval,
    /// Longest wait for an acknowledgement or PINGRESP; the connection counts as dead then. Default `10s`.
    pub ack_timeout: Interval,
    /// Largest packet taken from the broker. Default `1MiB`.
    pub max_packet: Size,
    /// What to do when the connection is lost or refused: `"none"`, `{"fixed": {…}}` or `{"backoff": {…}}`.
    /// Default `"none"`.
    pub reconnect: Reconnect,
    /// Whether a flow ends with DISCONNECT; `false` just closes, and the broker publishes the will. Default `true`.
    pub clean_disconnect: bool,
}

impl Default for Params {
    fn default() -> Self {
        Self {
            version: Version::V311,
            client_id: "nd-{device}".into(),
            username: None,
            password: None,
            clean_session: true,
            session_expiry: Interval::secs(0),
            keep_alive: Interval::secs(60),
            will: None,
            publish: true,
            topic: "nd/{device}".into(),
            payload: r#"{{"device":{device},"seq":{seq}}}"#.into(),
            size: None,
            qos: 1,
            retain: false,
            interval: Interval::secs(1),
            count: 0,
            max_inflight: 1,
            subscribe: Vec::new(),
            mark: None,
            linger: Interval::secs(1),
            connect_timeout: Interval::secs(10),
            ack_timeout: Interval::secs(10),
            max_packet: Size(1 << 20),
            reconnect: Reconnect::None,
            clean_disconnect: true,
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
