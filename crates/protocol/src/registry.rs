//! Every model by name: the one list that profiles, transports and the schema are made from.
//!
//! A model is a module with `Params` (what a profile says), `Plan` (compiled once per group, shared), `Device`
//! (one virtual client, implements [`Model`]), `DELAYS` (names of its delay histograms) and `SCHEMES`.

use crate::meter::Failure;
use crate::model::{Cx, Model};
use crate::problem::{Problem, closest};
use crate::time::Time;
use crate::{http, mqtt, ping, script, stream};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// What carries a model.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Carrier {
    /// An ordered byte stream: TCP or TLS.
    Stream,
    /// Datagrams: UDP.
    Datagram,
    /// ICMP messages, from the ICMP header on.
    Icmp,
}

/// The first part of a URL, and what it means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Scheme {
    /// `mqtt` in `mqtt://host`.
    pub name: &'static str,
    /// The port when the URL has none; `None`: the URL must have one. Always `None` for [`Carrier::Icmp`].
    pub port: Option<u16>,
    /// What carries it.
    pub carrier: Carrier,
    /// Whether the stream is inside TLS.
    pub tls: bool,
}

impl Scheme {
    /// A scheme over TCP.
    pub const fn tcp(name: &'static str, port: Option<u16>) -> Self {
        Self { name, port, carrier: Carrier::Stream, tls: false }
    }

    /// A scheme over TLS.
    pub const fn tls(name: &'static str, port: Option<u16>) -> Self {
        Self { name, port, carrier: Carrier::Stream, tls: true }
    }

    /// A scheme over UDP.
    pub const fn udp(name: &'static str, port: Option<u16>) -> Self {
        Self { name, port, carrier: Carrier::Datagram, tls: false }
    }
}

/// What a group is pointed at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Target {
    /// The scheme of its URL.
    pub scheme: Scheme,
    /// Host as the URL has it, a name or an address; an IPv6 address in brackets.
    pub host: String,
    /// The port; 0 for ICMP.
    pub port: u16,
    /// Whether it is reached over IPv6.
    pub ipv6: bool,
}

macro_rules! registry {
    ($( $(#[$doc:meta])* $name:ident($module:ident) ),+ $(,)?) => {
        /// The parameters of one model, as in a profile: `{"mqtt": {…}}`.
        #[derive(Debug, Clone, PartialEq, Deserialize, Serialize, JsonSchema)]
        #[serde(rename_all = "snake_case")]
        pub enum Params {
            $( $(#[$doc])* $name($module::Params), )+
        }

        impl Params {
            /// The name of every model.
            pub const NAMES: &[&str] = &[$(stringify!($module)),+];

            /// The model's parameters when a profile says nothing about them.
            pub fn default_of(name: &str) -> Option<Self> {
                match name {
                    $( stringify!($module) => Some(Self::$name($module::Params::default())), )+
                    _ => None,
                }
            }

            /// The model's name.
            pub fn name(&self) -> &'static str {
                match self { $( Self::$name(_) => stringify!($module), )+ }
            }

            /// Names of the delays that it measures, in the order of [`crate::meter::Tally::delays`].
            pub fn delays(&self) -> &'static [&'static str] {
                match self { $( Self::$name(_) => $module::DELAYS, )+ }
            }

            /// The URL schemes it can be pointed at; the first is the usual one.
            pub fn schemes(&self) -> &'static [Scheme] {
                match self { $( Self::$name(_) => $module::SCHEMES, )+ }
            }

            /// What cannot be said in the schema: whether the values make sense, and make sense together.
            pub fn check(&self) -> Result<(), Problem> {
                match self { $( Self::$name(params) => params.check(), )+ }
            }

            /// Check, and prepare everything that is the same for all devices of the group.
            pub fn compile(&self, target: &Target) -> Result<Plan, Problem> {
                Ok(match self {
                    $( Self::$name(params) => Plan::$name(Arc::new(params.compile(target)?)), )+
                })
            }
        }

        /// What is the same for all devices of a group.
        #[derive(Debug, Clone)]
        pub enum Plan {
            $( $(#[$doc])* $name(Arc<$module::Plan>), )+
        }

        impl Plan {
            /// A new device of this group.
            pub fn device(&self, index: u32) -> Device {
                match self { $( Self::$name(plan) => Device::$name(plan.device(index)), )+ }
            }
        }

        /// One virtual device of any model.
        #[derive(Debug)]
        pub enum Device {
            $( $(#[$doc])* $name($module::Device), )+
        }

        impl Model for Device {
            #[inline]
            fn start(&mut self, cx: &mut Cx<'_>) {
                match self { $( Self::$name(device) => device.start(cx), )+ }
            }

            #[inline]
            fn connected(&mut self, cx: &mut Cx<'_>) {
                match self { $( Self::$name(device) => device.connected(cx), )+ }
            }

            #[inline]
            fn received(&mut self, cx: &mut Cx<'_>, bytes: &[u8]) -> usize {
                match self { $( Self::$name(device) => device.received(cx, bytes), )+ }
            }

            #[inline]
            fn timer(&mut self, cx: &mut Cx<'_>) {
                match self { $( Self::$name(device) => device.timer(cx), )+ }
            }

            #[inline]
            fn closed(&mut self, cx: &mut Cx<'_>, why: Failure) {
                match self { $( Self::$name(device) => device.closed(cx, why), )+ }
            }

            #[inline]
            fn stop(&mut self, cx: &mut Cx<'_>) {
                match self { $( Self::$name(device) => device.stop(cx), )+ }
            }

            fn abandoned(&mut self, cx: &mut Cx<'_>) {
                match self { $( Self::$name(device) => device.abandoned(cx), )+ }
            }

            #[inline]
            fn waiting_since(&self) -> Time {
                match self { $( Self::$name(device) => device.waiting_since(), )+ }
            }

            #[inline]
            fn behind(&self, end: Time) -> u64 {
                match self { $( Self::$name(device) => device.behind(end), )+ }
            }
        }
    };
}

registry! {
    /// MQTT 3.1.1 or 5.0 client.
    Mqtt(mqtt),
    /// HTTP/1.1 client.
    Http(http),
    /// ICMP echo.
    Ping(ping),
    /// UDP datagrams, each with a sequence number and its time.
    Stream(stream),
    /// Steps that the user writes: send, expect, delay, repeat.
    Script(script),
}

impl Params {
    /// The scheme called `name`, if this model can be pointed at it.
    pub fn scheme(&self, name: &str) -> Result<Scheme, Problem> {
        let known = || self.schemes().iter().map(|scheme| scheme.name);
        self.schemes().iter().find(|scheme| scheme.name == name).copied().ok_or_else(|| {
            let usable = known().map(|name| format!("{name}://")).collect::<Vec<_>>().join(" or ");
            let fix = match closest(name, known()) {
                Some(meant) => format!("did you mean {meant}://?"),
                None => format!("use {usable}"),
            };
            Problem::new("", format!("{} does not run over {name}://", self.name()), fix)
        })
    }

    /// What carries this model to a target of that scheme.
    pub fn carrier(&self, scheme: &str) -> Result<Carrier, Problem> {
        self.scheme(scheme).map(|scheme| scheme.carrier)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(json: &str) -> Result<Params, serde_json::Error> {
        serde_json::from_str(json)
    }

    #[test]
    fn each_model_reads_from_nothing_and_writes_itself_whole() {
        for name in Params::NAMES {
            let params = read(&format!("{{\"{name}\": {{}}}}")).expect(name);
            assert_eq!(params.name(), *name);
            assert_eq!(Params::default_of(name).as_ref(), Some(&params));
            assert!(!params.delays().is_empty() && !params.schemes().is_empty());
            let written = serde_json::to_string(&params).expect(name);
            assert_eq!(read(&written).expect(&written), params);
        }
    }

    #[test]
    fn the_defaults_make_sense() {
        for name in Params::NAMES {
            let params = Params::default_of(name).expect(name);
            assert_eq!(params.check(), Ok(()), "{name}");
            for scheme in params.schemes() {
                let target = Target { scheme: *scheme, host: "h".into(), port: 1, ipv6: false };
                params.compile(&target).expect(name).device(0);
            }
        }
    }

    #[test]
    fn an_unknown_key_is_an_error() {
        for name in Params::NAMES {
            let error = read(&format!("{{\"{name}\": {{\"colour\": 1}}}}")).expect_err(name).to_string();
            assert!(error.contains("unknown field `colour`"), "{error}");
        }
    }

    #[test]
    fn the_schema_describes_every_key() {
        let schema = schemars::schema_for!(Params).to_value();
        let kinds = schema["$defs"].as_object().expect("definitions");
        let mut keys = 0;
        for (kind, definition) in kinds {
            for (key, value) in definition["properties"].as_object().into_iter().flatten() {
                assert!(value["description"].is_string(), "{kind}.{key} has no description");
                keys += 1;
            }
        }
        assert!(keys > 50, "{keys} keys");
    }

    #[test]
    fn schemes_say_port_and_carrier() {
        let mqtt = Params::default_of("mqtt").expect("mqtt");
        assert_eq!(mqtt.scheme("mqtts"), Ok(Scheme::tls("mqtts", Some(8883))));
        let wrong = mqtt.scheme("mqt").expect_err("a typo");
        assert_eq!(wrong.fix, "did you mean mqtt://?");
        let wrong = mqtt.scheme("https").expect_err("no web");
        assert_eq!(wrong.fix, "use mqtt:// or mqtts://");
        let script = Params::default_of("script").expect("script");
        assert_eq!(script.carrier("udp"), Ok(Carrier::Datagram));
        assert_eq!(script.carrier("tls"), Ok(Carrier::Stream));
    }

    #[test]
    fn a_device_is_small() {
        let size = std::mem::size_of::<Device>();
        assert!(size <= 120, "{size} bytes for each of 50,000 devices");
    }
}
