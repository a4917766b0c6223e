//! What a profile says about `mqtt`, and whether it makes sense.

use super::version::Version;
use super::{Config, DESCRIPTION, Message, field};
use crate::data::Data;
use crate::describe::{Description, FlowLength, Identity, ModelKind, ModelParams, SendRate};
use crate::pace::Pace;
use crate::problem::Problem;
use crate::rate_timeline::RateTimeline;
#[cfg(any(test, feature = "testing"))]
use crate::target::Scheme;
use crate::target::Target;
use crate::template::Template;
use crate::unit::{Interval, Size};
use packet::signature;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::sync::Arc;

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
    /// Client identifier; a template. An empty one lets the broker choose. Default: `nd`, eight letters and digits of
    /// the run and group, and the device's number; with a kept session, of the profile and group, so that the next run
    /// finds it.
    pub client_id: Option<String>,
    /// User name; a template. Default: none.
    pub username: Option<String>,
    /// Password; a template. It is not kept; `{env: NAME}` and `{file: PATH}` name where it is. Default: none.
    #[schemars(extend("x-netdyno-secret" = true))]
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
    /// end-to-end delay. Default: when the device itself subscribes; set it to `true` when only another group does.
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
    /// The profile's tables, which templates may name; none while only the form is checked.
    #[serde(skip)]
    #[schemars(skip)]
    pub data: Option<Data>,
    /// The packet identifier before a device's first.
    #[serde(skip)]
    pub first_id: u16,
}

impl Default for Params {
    fn default() -> Self {
        Self {
            version: Version::V311,
            client_id: None,
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
            data: None,
            first_id: 0,
        }
    }
}

/// Largest payload.
const PAYLOAD_MAX: Size = Size(16 << 20);
/// Longest string or binary datum in a packet (§1.5.4).
const DATUM_MAX: usize = 65_535;
/// Largest remaining length and fixed header.
const PACKET_MAX: Size = Size(field::REMAINING_MAX as u64 + 5);

impl ModelKind for Params {
    const DESCRIPTION: &'static Description = &DESCRIPTION;
    type Config = Config;

    fn compile(&self, _target: &Target) -> Result<Config, Problem> {
        self.config()
    }

    fn timeline(config: &Config) -> Option<&Arc<RateTimeline>> {
        Some(config.pace.timeline())
    }
}

impl ModelParams for Params {
    fn about(&self) -> &'static Description {
        &DESCRIPTION
    }

    fn check(&self) -> Result<(), Problem> {
        self.config().map(drop)
    }

    fn confirmed(&self) -> bool {
        self.qos > 0
    }

    fn send_rate(&self) -> Option<SendRate> {
        let paced = SendRate { key: "interval", per_second: self.interval.per_second() };
        self.publish.then_some(paced)
    }

    fn repeats(&self) -> Option<FlowLength> {
        let repeats = FlowLength { key: "count", count: self.count.into(), interval: self.interval };
        self.publish.then_some(repeats)
    }

    fn filled(&self) -> u64 {
        self.size.map_or(0, |size| size.0)
    }

    fn set_data(&mut self, data: &Data) {
        self.data = Some(data.clone());
    }

    fn set_credentials(&mut self, name: &str, password: Option<&str>) -> Result<(), Problem> {
        let given = self.username.is_some() || self.password.is_some();
        let what = || "names credentials, and username or password does too".into();
        Problem::unless(!given, "", what, "leave out one of them")?;
        self.username = (!name.is_empty()).then(|| Template::escaped(name));
        self.password = password.map(Template::escaped);
        Ok(())
    }

    fn identify(&mut self, identity: Identity) {
        if !self.clean_session {
            // the broker may keep identifiers of a run that was cut short, and take new messages for old ones
            self.first_id = (identity.run >> 16) as u16;
        }
        // a session that is kept is looked for under the same name by the next run
        self.name_clients(if self.clean_session { identity.run } else { identity.profile });
    }

    #[cfg(any(test, feature = "testing"))]
    fn for_noise(&mut self, choice: u8, _scheme: &mut Scheme) -> usize {
        let bit = |n| crate::describe::bit(choice, n);
        self.version = if bit(0) { Version::V5 } else { Version::V311 };
        self.qos = 1 + u8::from(bit(1));
        self.clean_session = bit(2);
        self.interval = Interval::ms(u64::from(bit(3)));
        self.max_inflight = 1 + 3 * u16::from(bit(4));
        self.max_packet = Size(4096);
        if bit(5) {
            self.subscribe.push(Filter { topic: "#".into(), qos: 2 });
        }
        if bit(6) {
            self.reconnect = Reconnect::Fixed(Fixed::default());
        }
        self.count = 5 * u32::from(bit(7));
        4096
    }
}

impl Params {
    /// Client identifiers that no other group and no other run has: a broker ends the session of a client when another
    /// with its name comes (§3.1.4). 3.1.1 §3.1.3.1 promises 23 letters and digits; ten million devices need 18.
    pub(super) fn name_clients(&mut self, token: u64) {
        const DIGITS: &[u8] = b"0123456789abcdefghijklmnopqrstuvwxyz";
        let digit = |i: u32| char::from(DIGITS[(token / 36u64.pow(i) % 36) as usize]);
        let token = (0..8).map(digit).collect::<String>();
        self.client_id.get_or_insert_with(|| format!("nd{token}{{device}}"));
    }

    fn config(&self) -> Result<Config, Problem> {
        let v5 = self.version == Version::V5;
        Problem::unless(self.qos <= 2, "qos", || no_qos(self.qos), "use 0, 1 or 2")?;
        // a group's own takes this one's place before it runs
        let client_id = self.client_id.as_deref().unwrap_or("nd{device}");
        // 3.1.1 §3.1.3.1: the broker makes up an identifier only for a clean session
        Problem::unless(
            !client_id.is_empty() || self.clean_session || v5,
            "client_id",
            || "is empty, and the session is to be kept".into(),
            "give each device one, like nd-{device}",
        )?;
        let client_id = self.datum("client_id", client_id)?;
        Problem::unless(
            v5 || self.password.is_none() || self.username.is_some(),
            "password",
            || "without a user name is not allowed in 3.1.1".into(),
            "set username, or version to \"5.0\"",
        )?;
        let keep_alive = u16::try_from(whole_seconds("keep_alive", self.keep_alive)?)
            .map_err(|_| Problem::new("keep_alive", "is longer than 65535s", "use at most 65535s"))?;
        let session_expiry = whole_seconds("session_expiry", self.session_expiry)?;
        Problem::unless(
            v5 || session_expiry == 0,
            "session_expiry",
            || "exists only in 5.0".into(),
            "set version to \"5.0\", or clean_session to false",
        )?;
        let will = self
            .will
            .as_ref()
            .map(|will| self.compile_will(will).map_err(|p| p.under("will")))
            .transpose()?;
        let topic = self.topic("topic", &self.topic)?;
        let payload = Template::with(&self.payload, "payload", self.data.as_ref())?;
        let size = self.size.map(Size::bytes);
        let mark = self.mark.unwrap_or(!self.subscribe.is_empty());
        let large = self.size.unwrap_or(Size(payload.max_len() as u64));
        Problem::unless(
            large <= PAYLOAD_MAX,
            if self.size.is_some() { "size" } else { "payload" },
            || format!("may be {large}"),
            format!("use at most {PAYLOAD_MAX}"),
        )?;
        let room = size.is_none_or(|size| !mark || size >= signature::LEN);
        Problem::unless(
            room,
            "size",
            || "has no room for the mark".into(),
            "use at least 18B, or set mark to false",
        )?;
        Problem::unless(
            self.qos > 0 || self.interval > Interval::default() || self.count > 0 || !self.publish,
            "interval",
            || "is zero, and QoS 0 has no acknowledgement to wait for".into(),
            "give an interval or a count, or use qos 1",
        )?;
        let window = (1..=1024).contains(&self.max_inflight);
        Problem::unless(
            window,
            "max_inflight",
            || format!("{} is out of range", self.max_inflight),
            "use 1 to 1024",
        )?;
        let filters =
            self.subscribe.iter().enumerate().map(|(i, filter)| {
                self.subscription(filter).map_err(|p| p.under(&format!("subscribe[{i}]")))
            });
        let filters = filters.collect::<Result<Box<[_]>, _>>()?;
        for (key, wait) in [("connect_timeout", self.connect_timeout), ("ack_timeout", self.ack_timeout)] {
            Problem::unless(wait > Interval::default(), key, || "is zero".into(), "use 10s")?;
        }
        let packet = (Size(64)..=PACKET_MAX).contains(&self.max_packet);
        Problem::unless(
            packet,
            "max_packet",
            || format!("{} is out of range", self.max_packet),
            "use 64B to 256MB",
        )?;
        self.reconnect.check().map_err(|p| p.under("reconnect"))?;
        let optional =
            |key, text: &Option<String>| text.as_ref().map(|text| self.datum(key, text)).transpose();
        Ok(Config {
            version: self.version,
            client_id,
            username: optional("username", &self.username)?,
            password: optional("password", &self.password)?,
            clean: self.clean_session,
            session_expiry,
            keep_alive,
            will,
            publishes: self.publish,
            message: Message { topic, payload, qos: self.qos, retain: self.retain },
            size,
            mark,
            pace: Pace::every(self.interval),
            count: u64::from(self.count),
            window: self.max_inflight,
            filters,
            linger: if self.subscribe.is_empty() { Interval::default().0 } else { self.linger.0 },
            connect_timeout: self.connect_timeout.0,
            ack_timeout: self.ack_timeout.0,
            max_packet: self.max_packet.bytes(),
            reconnect: self.reconnect.clone(),
            clean_disconnect: self.clean_disconnect,
            first_id: self.first_id,
        })
    }

    fn compile_will(&self, will: &Will) -> Result<Message, Problem> {
        Problem::unless(will.qos <= 2, "qos", || no_qos(will.qos), "use 0, 1 or 2")?;
        Ok(Message {
            topic: self.topic("topic", &will.topic)?,
            payload: self.datum("payload", &will.payload)?,
            qos: will.qos,
            retain: will.retain,
        })
    }

    fn datum(&self, key: &str, text: &str) -> Result<Template, Problem> {
        let template = Template::with(text, key, self.data.as_ref())?;
        let fits = template.max_len() <= DATUM_MAX;
        Problem::unless(
            fits,
            key,
            || format!("may be {} bytes", template.max_len()),
            format!("use at most {DATUM_MAX}"),
        )?;
        Problem::unless(!text.contains('\0'), key, || "has a NUL in it".into(), "remove it")?;
        template.cells_are(key, |byte| byte != 0)?;
        Ok(template)
    }

    /// A topic name (§4.7.1).
    fn topic(&self, key: &str, text: &str) -> Result<Template, Problem> {
        Problem::unless(!text.is_empty(), key, || "is empty".into(), "name a topic, like nd/{device}")?;
        let plain = !text.contains(['+', '#']);
        Problem::unless(
            plain,
            key,
            || format!("{text:?} has a wildcard"),
            "wildcards are for subscribe only",
        )?;
        let template = self.datum(key, text)?;
        template.cells_are(key, |byte| !b"+#".contains(&byte))?;
        Ok(template)
    }

    /// A topic filter (§4.7.1): `#` alone in the last level, `+` alone in a level.
    fn subscription(&self, filter: &Filter) -> Result<(Template, u8), Problem> {
        let text = &filter.topic;
        Problem::unless(filter.qos <= 2, "qos", || no_qos(filter.qos), "use 0, 1 or 2")?;
        Problem::unless(!text.is_empty(), "topic", || "is empty".into(), "name a filter, like nd/#")?;
        // 5.0 section 4.8.2, and brokers of 3.1.1: $share/NAME/FILTER
        if let Some(shared) = text.strip_prefix("$share/") {
            let named = shared.split_once('/').is_some_and(|(name, filter)| {
                !name.is_empty() && !name.contains(['+', '#']) && !filter.is_empty()
            });
            let what = || format!("{text:?} is no shared subscription");
            Problem::unless(named, "topic", what, "write $share/NAME/FILTER")?;
        }
        let last = text.split('/').count() - 1;
        let well = text.split('/').enumerate().all(|(i, level)| match level {
            "#" => i == last,
            "+" => true,
            _ => !level.contains(['+', '#']),
        });
        let how = "a wildcard takes a whole level, and # the last one";
        Problem::unless(well, "topic", || format!("{text:?} is no topic filter"), how)?;
        Ok((self.datum("topic", text)?, filter.qos))
    }
}

impl Reconnect {
    fn check(&self) -> Result<(), Problem> {
        let zero = |key, pause: Interval| {
            Problem::unless(pause > Interval::default(), key, || "is zero".into(), "use 1s")
        };
        match self {
            Reconnect::None => Ok(()),
            Reconnect::Fixed(fixed) => zero("fixed.delay", fixed.delay),
            Reconnect::Backoff(Backoff { min, max, .. }) => {
                zero("backoff.min", *min)?;
                Problem::unless(
                    min <= max,
                    "backoff.max",
                    || format!("{max} is below min"),
                    format!("use {min} or more"),
                )
            }
        }
    }
}

fn no_qos(qos: u8) -> String {
    format!("{qos} is no quality of service")
}

fn whole_seconds(key: &str, time: Interval) -> Result<u32, Problem> {
    let whole = time.0.subsec_nanos() == 0;
    Problem::unless(whole, key, || format!("{time} is not in whole seconds"), "MQTT counts whole seconds")?;
    Ok(u32::try_from(time.0.as_secs()).unwrap_or(u32::MAX))
}
