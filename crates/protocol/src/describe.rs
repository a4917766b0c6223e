//! Descriptions of models: results, thresholds, the schema, live views, reports, exporters and quick starts
//! by URL take it from here, so that nothing outside a model's own files names it.

use crate::data::Data;
use crate::problem::Problem;
use crate::rate_timeline::RateTimeline;
use crate::shared_socket::{Framing, Recipient, SharedSocket};
use crate::target::{Carrier, Scheme, Target};
use crate::unit::{Interval, Rate};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Serialize, Serializer};
use std::borrow::Cow;
use std::sync::Arc;

/// A model, in what does not depend on its parameters.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, JsonSchema)]
pub struct Description {
    /// Its name in profiles, `mqtt` in `{"mqtt": {…}}`, and in results.
    pub name: &'static str,
    /// What it is, in a few words.
    pub about: &'static str,
    /// The URL schemes that it can be pointed at; the first is the usual one.
    pub schemes: &'static [Scheme],
    /// The delays that it measures.
    pub delays: &'static [Delay],
    /// What it measures that is no time: ratings.
    pub values: &'static [Value],
    /// Counters of its own, besides those that every group has.
    pub counters: &'static [Counter],
    /// Figures that follow from counters.
    pub indices: &'static [Index],
    /// Whether the other side confirms each message, so that silence is loss; a key: unless that is 0 or false.
    #[schemars(extend("default" = true))]
    pub confirmed: Confirmed,
    /// Whether its messages have an order that shows where they arrive (RFC 4737).
    pub ordered: bool,
    /// How a URL and a few options become a profile; null: it needs a profile.
    pub quick: Option<UrlMapping>,
    /// Keys of its parameters with texts in which some characters have a meaning, and which: `template` (braces), `escapes` (the
    /// backslash) or `escapes_and_template`. `steps.send` is the key `send` of an entry of `steps`.
    pub texts: &'static [(&'static str, Text)],
}

/// A delay that a model measures.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Delay {
    /// Its name, `connect` in `GROUP.delay.connect.p99`.
    pub name: &'static str,
    /// From when to when.
    pub about: &'static str,
}

/// Something that a model measures on a scale of its own, such as a rating. It is kept in thousandths.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Value {
    /// Its name, `mos` in `GROUP.value.mos.p5`.
    pub name: &'static str,
    /// What it says, and on which scale.
    pub about: &'static str,
    /// Whether more of it is better.
    #[schemars(extend("default" = "neither"))]
    pub better: Better,
}

/// Something that is counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Counter {
    /// Its name in results, and in metrics: `GROUP.counts.NAME`.
    pub name: &'static str,
    /// Of what.
    #[schemars(extend("default" = "events"))]
    pub unit: Unit,
    /// What is counted, in a sentence.
    pub about: &'static str,
    /// Whether more of it is better.
    #[schemars(extend("default" = "neither"))]
    pub better: Better,
}

/// A figure that follows from counters: `over / (under − less)`, each a sum; undefined where that is by zero.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Index {
    /// Its name in results, and in metrics: `GROUP.index.NAME`.
    pub name: &'static str,
    /// Of its values.
    #[schemars(extend("default" = "ratio"))]
    pub unit: Unit,
    /// What it says, in a sentence.
    pub about: &'static str,
    /// Whether more of it is better.
    #[schemars(extend("default" = "neither"))]
    pub better: Better,
    /// Counters above the line: the model's own, or those that every group has.
    pub over: &'static [&'static str],
    /// Counters below the line.
    pub under: &'static [&'static str],
    /// Counters taken off those below the line (RFC 6076 takes redirections off session requests).
    pub less: &'static [&'static str],
}

impl Index {
    /// Its value, where `count` gives each counter's.
    pub fn of(&self, count: impl Fn(&str) -> u64) -> Option<f64> {
        let sum = |names: &[&str]| names.iter().map(|name| count(name)).sum::<u64>();
        let under = sum(self.under).saturating_sub(sum(self.less));
        (under > 0).then(|| sum(self.over) as f64 / under as f64)
    }
}

/// What the load of a group is counted in: what was asked for, begun and brought to its end, each by the name of a counter.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
pub struct LoadUnit {
    /// In the plural: `messages`, `calls`.
    pub name: &'static str,
    /// Counter of those that the load asks for; null: the other side asks for them.
    pub intended: Option<&'static str>,
    /// Counter of those that were begun.
    pub offered: &'static str,
    /// Counter of those of them that ended well.
    pub delivered: &'static str,
}

impl LoadUnit {
    /// Messages, each for itself.
    pub const MESSAGES: Self = Self {
        name: "messages",
        intended: Some("messages_intended"),
        offered: "messages_sent",
        delivered: "messages_delivered",
    };

    /// Flows of so many messages, by a name of their own.
    pub const fn flows(name: &'static str) -> Self {
        Self {
            name,
            intended: Some("flows_intended"),
            offered: "flows_started",
            delivered: "flows_completed",
        }
    }
}

/// The unit of a count or an index.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Unit {
    /// Flows.
    Flows,
    /// Messages.
    Messages,
    /// Datagrams.
    Datagrams,
    /// Bytes.
    Bytes,
    /// Connections or sessions.
    Sessions,
    /// Other events.
    Events,
    /// A share, from 0 to 1.
    Ratio,
}

/// Which way a figure is better.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Better {
    /// The more of it the better.
    More,
    /// The less of it the better.
    Less,
    /// Neither.
    Neither,
}

/// Which messages the other side confirms. In JSON: `true`, `false` or the key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Confirmed {
    /// All.
    Always,
    /// None has to be: the model cannot know which messages ask for an answer.
    Never,
    /// All, unless this key of the parameters is 0 or `false`.
    By(&'static str),
}

impl Serialize for Confirmed {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Always => s.serialize_bool(true),
            Self::Never => s.serialize_bool(false),
            Self::By(key) => s.serialize_str(key),
        }
    }
}

impl JsonSchema for Confirmed {
    fn schema_name() -> Cow<'static, str> {
        "Confirmed".into()
    }

    fn inline_schema() -> bool {
        true
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({"type": ["boolean", "string"]})
    }
}

/// Which characters of a text have a meaning: what is to be sent as it is doubles them. The key of an entry in a list or an object
/// is `KEY.ENTRY`, whatever is between; of all entries `KEY`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Text {
    /// Braces: a [template](crate::template).
    Template,
    /// The backslash.
    Escapes,
    /// Both.
    EscapesAndTemplate,
}

/// How `netdyno run URL` and its options become a profile: keys of the model's parameters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
pub struct UrlMapping {
    /// What its messages are called, in the plural.
    pub messages: &'static str,
    /// What one device is called.
    pub device: &'static str,
    /// How many devices there are when nothing is said.
    pub devices: u32,
    /// Messages per flow.
    pub count: &'static str,
    /// Time from one message to the next.
    pub interval: &'static str,
    /// Messages per second of a device; null: the interval is set.
    pub rate: Option<&'static str>,
    /// Size of a message: `{key}`, or `{refused: {why, fix}}`.
    pub size: SizeOption,
    /// Takes the path of the URL.
    pub path: Option<&'static str>,
    /// Options of this model alone, and their keys: `--qos` sets `qos`. The key `target` stands for the URL: `--user` sets its
    /// credentials.
    pub options: &'static [(&'static str, &'static str)],
}

/// What `--size` does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum SizeOption {
    /// It sets this key.
    Key(&'static str),
    /// It is refused.
    Refused {
        /// Why.
        why: &'static str,
        /// What to do instead.
        fix: &'static str,
    },
}

/// Send rate of a device.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SendRate {
    /// The key that says so.
    pub key: &'static str,
    /// Messages per second; 0: each waits for the former.
    pub per_second: f64,
}

/// A flow of a fixed number of messages.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct FlowLength {
    /// The key that says how many.
    pub key: &'static str,
    /// How many messages.
    pub count: u64,
    /// Time from one to the next.
    pub interval: Interval,
}

/// Replies that one device may receive without a pause.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Replies {
    /// Per second.
    pub per_second: f64,
    /// At once.
    pub burst: f64,
    /// Bytes of each.
    pub bytes: f64,
}

/// Datagrams that depend on nothing but the clock: a device that a packet generator can stand in for.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct StatelessStream {
    /// UDP payload, bytes.
    pub size: usize,
    /// How many a second, where that is said.
    pub rate: Option<Rate>,
    /// Time from one to the next, where that is said instead.
    pub interval: Option<Interval>,
    /// Datagrams per flow; 0: until the load ends.
    pub count: u64,
    /// How many fall due together.
    pub burst: u32,
    /// Whether the other side reflects them.
    pub echo: bool,
    /// Which of the model's delays is the time from sending to receiving.
    pub delay: usize,
}

/// What distinguishes the sessions of a group's devices from others'.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Identity {
    /// Of this run and group: no other has it.
    pub run: u64,
    /// Of the profile and group: the next run has it too.
    pub profile: u64,
    /// Of this run: all its groups have it.
    pub trial: u64,
}

/// A model: the parameters that a profile gives it, and what a group's devices share, which is prepared from them.
pub trait ModelKind: ModelParams + Default {
    /// What the model says about itself.
    const DESCRIPTION: &'static Description;
    /// What is the same for all devices of a group.
    type Config;

    /// Check, and prepare everything that is the same for all devices of the group.
    fn compile(&self, target: &Target) -> Result<Self::Config, Problem>;

    /// The rate at which each of the group's devices sends, which may be changed while the run goes on; `None`: devices do
    /// not send at a rate. A model that has one takes a call of [`Model::timer`](crate::model::Model::timer) at any time, and
    /// sets its timer again.
    fn timeline(config: &Self::Config) -> Option<&Arc<RateTimeline>> {
        let _waits_for_answers = config;
        None
    }

    /// The highest rate of a device, a second, at which replies can be told apart; `None`: any.
    fn most_per_second(config: &Self::Config) -> Option<f64> {
        let _any = config;
        None
    }

    /// Whose a datagram is that came to a shared socket. `own`: it is one that a device sent and that came back with an error,
    /// perhaps cut short.
    fn recipient(config: &Self::Config, datagram: &[u8], own: bool) -> Recipient {
        let _each_has_its_own = (config, datagram, own);
        Recipient::Stray
    }

    /// What the bytes that came over a shared connection begin with.
    fn framing(bytes: &[u8]) -> Framing {
        Framing::Message(bytes.len())
    }
}

/// The parameters of a model, as in a profile. A method says what follows from them, in place of a list elsewhere of
/// models for which it does; each default is what most models want.
pub trait ModelParams {
    /// What the model that they are of says about itself.
    fn about(&self) -> &'static Description;

    /// What cannot be said in the schema: whether the values make sense, and make sense together.
    fn check(&self) -> Result<(), Problem>;

    /// Whether every message is to be confirmed, so that silence is loss. As [`Description::confirmed`] says.
    fn confirmed(&self) -> bool {
        !matches!(self.about().confirmed, Confirmed::Never)
    }

    /// What the load is counted in.
    fn load_unit(&self) -> LoadUnit {
        LoadUnit::MESSAGES
    }

    /// Whether devices wait for answers, or for connections.
    fn awaits_answers(&self, carrier: Carrier) -> bool {
        let _either_way = carrier;
        true
    }

    /// Whether every byte of a reply is compared with what was sent.
    fn compares(&self) -> bool {
        false
    }

    /// How often a device sends, where that is fixed.
    fn send_rate(&self) -> Option<SendRate> {
        None
    }

    /// How many messages a flow has and how far apart they are, where that is fixed.
    fn repeats(&self) -> Option<FlowLength> {
        None
    }

    /// Bytes of payload that each group keeps ready, filled up to a size.
    fn filled(&self) -> u64 {
        0
    }

    /// How many regular expressions have to be compiled, and the key that they stand under.
    fn expressions(&self) -> Option<(&'static str, usize)> {
        None
    }

    /// What may come back to one device without a pause, where that may be more than a socket's queue holds.
    fn replies(&self) -> Option<Replies> {
        None
    }

    /// Whether a device keeps its connection from one flow to the next, and hears what comes between them.
    fn keeps_connection(&self) -> bool {
        false
    }

    /// Whether a device has media sockets in addition to its connection.
    fn has_media(&self) -> bool {
        false
    }

    /// Whether a device goes on with another server where one fails: see [`Cx::next_server`](crate::model::Cx::next_server).
    fn fails_over(&self) -> bool {
        false
    }

    /// How devices share a datagram socket or connections; `None`: each has its own.
    fn shared_socket(&self) -> Option<SharedSocket> {
        None
    }

    /// What the path of a target's URL would stand for; `None`: a URL has no path.
    fn path(&self) -> Option<&str> {
        None
    }

    /// Take the path of the target's URL.
    fn set_path(&mut self, path: &str) {
        let _has_none = path;
    }

    /// Take the profile's tables, which templates may name.
    fn set_data(&mut self, data: &Data) {
        let _has_no_templates = data;
    }

    /// Take the credentials of the target's URL, without percent-encoding; refused where the model sends none, or is given
    /// others.
    fn set_credentials(&mut self, name: &str, password: Option<&str>) -> Result<(), Problem> {
        let _has_none = (name, password);
        let what = format!("{} sends no credentials, and the URL has some", self.about().name);
        Err(Problem::new("", what, "leave out what is before the @"))
    }

    /// Tell the sessions of this group's devices from all others', where the other side keeps them by name.
    fn identify(&mut self, identity: Identity) {
        let _has_none = identity;
    }

    /// The datagrams that a device sends, where they depend on nothing but the clock.
    fn stateless(&self) -> Option<StatelessStream> {
        None
    }

    /// Parameters for a device that is fed with noise, of which the bits of `choice` pick some; it may be pointed at
    /// another scheme. Gives the most bytes that such a device may leave unused.
    #[cfg(any(test, feature = "testing"))]
    fn for_noise(&mut self, choice: u8, scheme: &mut Scheme) -> usize;
}

/// A bit of [`ModelParams::for_noise`]'s choice.
#[cfg(any(test, feature = "testing"))]
pub fn bit(choice: u8, n: u32) -> bool {
    choice >> n & 1 == 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_index_is_a_quotient_of_sums() {
        // RFC 6076 §4.6: SER = INVITEs with a 200 / (INVITEs − INVITEs with a 3xx)
        let ser = Index {
            name: "ser",
            unit: Unit::Ratio,
            about: "session establishment ratio",
            better: Better::More,
            over: &["invites_200"],
            under: &["invites"],
            less: &["invites_3xx"],
        };
        let counted = |invites, redirected, ok| {
            move |name: &str| match name {
                "invites" => invites,
                "invites_3xx" => redirected,
                "invites_200" => ok,
                _ => panic!("{name}"),
            }
        };
        assert_eq!(ser.of(counted(110, 10, 80)), Some(0.8));
        assert_eq!(ser.of(counted(10, 10, 0)), None, "by zero");
    }

    #[test]
    fn confirmed_is_a_truth_or_a_key() {
        let json = |confirmed: Confirmed| serde_json::to_string(&confirmed).expect("JSON");
        assert_eq!(
            [Confirmed::Always, Confirmed::Never, Confirmed::By("qos")].map(json),
            ["true", "false", "\"qos\""]
        );
    }
}
