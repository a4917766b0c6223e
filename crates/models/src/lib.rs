//! Every model by name: the one list that profiles, transports, the schema and all that shows results are made from.
//!
//! A model is a module with `Params` (what a profile says; implements [`ModelKind`]), `Config` (compiled once per group,
//! shared) and `Device` (one virtual device; implements [`Model`]). This crate stands above those that provide models,
//! so that one may come from any of them. A device is an enum, not a `dyn`: thousands lie side by side, and a call costs
//! a jump.

mod catalogue;

pub use catalogue::{Catalogue, FailureKind, ModelDescription};

use protocol::describe::{Description, ModelKind, ModelParams};
use protocol::media::MediaPacket;
use protocol::meter::Failure;
use protocol::model::{Cx, Model};
use protocol::problem::Problem;
use protocol::rate_timeline::RateTimeline;
use protocol::shared_socket::{Framing, Recipient};
use protocol::target::{Scheme, Target};
use protocol::time::Time;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::ops::{Deref, DerefMut};
use std::sync::Arc;

macro_rules! registry {
    ($( $(#[$doc:meta])* $name:ident($($module:ident)::+) ),+ $(,)?) => {
        /// The parameters of one model, as in a profile: `{"mqtt": {…}}`.
        #[derive(Debug, Clone, PartialEq, Deserialize, Serialize, JsonSchema)]
        #[serde(rename_all = "snake_case")]
        pub enum Params {
            $( $(#[$doc])* $name($($module)::+::Params), )+
        }

        /// What each model says about itself, in the order of the list.
        pub const ALL: &[&Description] = &[$( <$($module)::+::Params as ModelKind>::DESCRIPTION ),+];

        impl Params {
            /// The name of every model.
            pub const NAMES: &[&str] = &[$( <$($module)::+::Params as ModelKind>::DESCRIPTION.name ),+];

            /// The model's parameters when a profile says nothing about them.
            pub fn default_of(name: &str) -> Option<Self> {
                $( if <$($module)::+::Params as ModelKind>::DESCRIPTION.name == name {
                    return Some(Self::$name(Default::default()));
                } )+
                None
            }

            /// Check, and prepare everything that is the same for all devices of the group.
            pub fn compile(&self, target: &Target) -> Result<Config, Problem> {
                Ok(match self {
                    $( Self::$name(params) => Config::$name(Arc::new(params.compile(target)?)), )+
                })
            }
        }

        /// What follows from the parameters.
        impl Deref for Params {
            type Target = dyn ModelParams;

            fn deref(&self) -> &Self::Target {
                match self { $( Self::$name(params) => params, )+ }
            }
        }

        impl DerefMut for Params {
            fn deref_mut(&mut self) -> &mut Self::Target {
                match self { $( Self::$name(params) => params, )+ }
            }
        }

        /// What is the same for all devices of a group.
        #[derive(Debug, Clone)]
        pub enum Config {
            $( $(#[$doc])* $name(Arc<$($module)::+::Config>), )+
        }

        impl Config {
            /// A new device of this group.
            pub fn device(&self, index: u32) -> Device {
                match self { $( Self::$name(config) => Device::$name(config.device(index)), )+ }
            }

            /// The rate at which each device of this group sends, which may be changed while the run goes on.
            pub fn timeline(&self) -> Option<&Arc<RateTimeline>> {
                match self { $( Self::$name(config) => <$($module)::+::Params as ModelKind>::timeline(config), )+ }
            }

            /// The highest rate of a device, a second, at which replies can be told apart; `None`: any.
            pub fn most_per_second(&self) -> Option<f64> {
                match self {
                    $( Self::$name(config) => <$($module)::+::Params as ModelKind>::most_per_second(config), )+
                }
            }

            /// Whose a datagram is that came to a shared socket. `own`: it is one that a device sent and that came back with an
            /// error, perhaps cut short.
            #[inline]
            pub fn recipient(&self, datagram: &[u8], own: bool) -> Recipient {
                match self {
                    $( Self::$name(config) => {
                        <$($module)::+::Params as ModelKind>::recipient(config, datagram, own)
                    } )+
                }
            }

            /// What the bytes that came over a shared connection begin with.
            #[inline]
            pub fn framing(&self, bytes: &[u8]) -> Framing {
                match self { $( Self::$name(_) => <$($module)::+::Params as ModelKind>::framing(bytes), )+ }
            }
        }

        /// One virtual device of any model.
        #[derive(Debug)]
        pub enum Device {
            $( $(#[$doc])* $name($($module)::+::Device), )+
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

            fn leaves_behind(&self) -> bool {
                match self { $( Self::$name(device) => device.leaves_behind(), )+ }
            }

            fn clean_up(&mut self, cx: &mut Cx<'_>) {
                match self { $( Self::$name(device) => device.clean_up(cx), )+ }
            }

            fn cleaned_up(&mut self, cx: &mut Cx<'_>) {
                match self { $( Self::$name(device) => device.cleaned_up(cx), )+ }
            }

            #[inline]
            fn waiting_since(&self) -> Time {
                match self { $( Self::$name(device) => device.waiting_since(), )+ }
            }

            #[inline]
            fn media(&mut self, cx: &mut Cx<'_>, packet: MediaPacket<'_>) {
                match self { $( Self::$name(device) => device.media(cx, packet), )+ }
            }

            #[inline]
            fn is_free(&self) -> bool {
                match self { $( Self::$name(device) => device.is_free(), )+ }
            }

            #[inline]
            fn overdue(&self, end: Time) -> u64 {
                match self { $( Self::$name(device) => device.overdue(end), )+ }
            }

            fn holds_back(&self) -> bool {
                match self { $( Self::$name(device) => device.holds_back(), )+ }
            }
        }

        /// Noise for a device of the model called `name`: the one entry point of the fuzz targets, and of the bounded
        /// run in `cargo test`.
        #[cfg(any(test, feature = "testing"))]
        pub fn fuzz(name: &str, data: &[u8]) {
            $( if <$($module)::+::Params as ModelKind>::DESCRIPTION.name == name {
                let params = $($module)::+::Params::default();
                return protocol::testing::noise(params, |config| Arc::new(config).device(0), data);
            } )+
        }
    };
}

registry! {
    /// MQTT 3.1.1 or 5.0 client.
    Mqtt(protocol::mqtt),
    /// HTTP/1.1 client.
    Http(protocol::http),
    /// ICMP echo.
    Ping(protocol::ping),
    /// UDP datagrams, each with a sequence number and its time.
    Stream(protocol::stream),
    /// Steps that the user writes: send, expect, delay, repeat.
    Script(protocol::script),
    /// CoAP client over UDP.
    Coap(protocol::coap),
    /// SIP user agent: registrations and calls.
    Sip(sip_model),
}

impl Params {
    /// The model's name.
    pub fn name(&self) -> &'static str {
        self.about().name
    }

    /// The URL schemes it can be pointed at; the first is the usual one.
    pub fn schemes(&self) -> &'static [Scheme] {
        self.about().schemes
    }

    /// The scheme called `name`, if this model can be pointed at it.
    pub fn scheme(&self, name: &str) -> Result<Scheme, Problem> {
        Scheme::find(self.name(), self.schemes(), name)
    }
}

/// What the model called `name` says about itself.
pub fn describe(name: &str) -> Option<&'static Description> {
    ALL.iter().find(|about| about.name == name).copied()
}

#[cfg(test)]
mod tests;
