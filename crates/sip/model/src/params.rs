//! Parameters of the `sip` model, and whether they make sense.

use crate::aka::Aka;
use crate::callees::Callees;
use crate::config::{Config, Resource};
use crate::description::{DESCRIPTION, is_websocket};
use crate::identity::{Identity, SIGNED};
use crate::late_audio::LateAudio;
use crate::media::Media;
use crate::method::Method;
use crate::scenario::{
    self, Alternative, Compiled, ExpectedMessage, Leaving, Op, Scenario, Step, headers_of, line,
};
use crate::session_timer::SessionTimer;
use protocol::data::Data;
use protocol::describe::{Description, Identity as RunIdentity, LoadUnit, ModelKind, ModelParams};
use protocol::problem::Problem;
use protocol::shared_socket::{Framing, Recipient, SharedSocket};
use protocol::target::{Carrier, Target};
use protocol::template::Template;
use protocol::unit::{Interval, Size};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::sync::Arc;

/// Parameters of the `sip` model: one device is one user agent.
#[derive(Debug, Clone, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Params {
    /// What each user agent does in a flow. Default: `{"preset": "register"}`.
    pub scenario: Scenario,
    /// User part of the address of record; a template. Default `user{device}`.
    pub user: String,
    /// Domain of the address of record and of the callee; a template. Default: the host of the target.
    pub domain: Option<String>,
    /// User name for digest authentication; a template. Default: `user`.
    pub auth_user: Option<String>,
    /// Password for digest authentication; a template. It is not kept; `{env: NAME}` and `{file: PATH}` name where it
    /// is. Default: none, so that a challenge is a failure.
    #[schemars(extend("x-netdyno-secret" = "key"))]
    pub password: Option<String>,
    /// Keys for digest AKA (RFC 3310, `AKAv1-MD5`), as a SIM has them. Default: none, so that such a challenge is a failure.
    pub aka: Option<Box<Aka>>,
    /// Signs INVITE and MESSAGE outside of a dialog with an Identity header field (RFC 8224). Default: none.
    pub identity: Option<Box<Identity>>,
    /// Whether the next flow answers the challenge of the one before, without waiting for another. Default `false`.
    pub reuse_nonce: bool,
    /// User part of whom to call; a template; empty: the server itself. Default `callee{device}`.
    pub callee: String,
    /// Lifetime of a registration, in whole seconds. Default `3600s`.
    pub expires: Interval,
    /// Whether registrations stay with the server when the run is over. Default `false`: they are removed.
    pub keep_bindings: bool,
    /// How long a call lasts, from ACK to BYE. Default `0s`.
    pub hold: Interval,
    /// How long a call rings, from 180 to 200. Default `0s`.
    pub ring: Interval,
    /// Estimate of the round-trip time, after which a request is sent again over UDP (RFC 3261 T1). Default `500ms`.
    pub t1: Interval,
    /// Longest time between two transmissions of a request (RFC 3261 T2). Default `4s`.
    pub t2: Interval,
    /// Longest wait for a final response (RFC 3261 Timers B and F); with `failover` for that of one server. Default: 64 times `t1`.
    pub timeout: Option<Interval>,
    /// Size of session descriptions: they are padded to it with lines that say nothing. Default: as long as they are.
    pub sdp_size: Option<Size>,
    /// Audio of calls. Default: none, and session descriptions say that there is none.
    pub media: Option<Media>,
    /// Sockets of the user agents, over UDP. Default `own`.
    pub sockets: AgentSockets,
    /// Connections of the user agents, over TCP and TLS: `each` has its own, or so many as this number are shared by those that send
    /// from one address in `source`, `1` or `one` by all of them; each worker has one at least. Default `each`.
    pub connections: Connections,
    /// With shared sockets: port on which calls are received; the worker's number is added to it. Requests are then taken from
    /// any port of the target's addresses, and answered to where they came from. Default: one that the kernel chooses, and
    /// messages are taken from the target's address and port alone.
    pub port: Option<u16>,
    /// Over WebSocket: path of the server's resource. Default `/`.
    pub websocket_path: Option<String>,
    /// Whether every request goes to the server, those within a dialog too, as of a phone with an outbound proxy. Default `false`:
    /// over UDP, requests within a dialog go where RFC 3261 section 12.2.1.1 says.
    pub outbound_proxy: bool,
    /// Session timers of calls (RFC 4028). Default: none.
    pub session_timer: Option<SessionTimer>,
    /// Whether a call that gets a 3xx which no step waits for goes to the Contacts of that, by their `q`, each once (RFC 3261 section
    /// 8.1.3.4). Default `false`: it fails.
    pub follow_redirects: bool,
    /// Over TCP and TLS: whether Via has `alias`, so that the server may send requests of the other side over our connections (RFC
    /// 5923). Default `false`.
    pub alias: bool,
    /// More header fields of every request; values are templates. Those of `X-Auth-Token`, `Cookie` and their like are not
    /// kept; `{env: NAME}` and `{file: PATH}` name where one is.
    #[schemars(extend("x-netdyno-secret" = "names"))]
    pub headers: BTreeMap<String, String>,
    /// The profile's tables, which templates may name; none while only the form is checked.
    #[serde(skip)]
    #[schemars(skip)]
    pub data: Option<Data>,
    /// What tells messages of this group from others'.
    #[serde(skip)]
    #[schemars(skip)]
    pub run: u64,
    /// What all groups of this run have in common; 0: there is no run.
    #[serde(skip)]
    #[schemars(skip)]
    pub trial: u64,
}

impl Default for Params {
    fn default() -> Self {
        Self {
            scenario: Scenario::default(),
            user: "user{device}".into(),
            domain: None,
            auth_user: None,
            password: None,
            aka: None,
            identity: None,
            reuse_nonce: false,
            callee: "callee{device}".into(),
            expires: Interval::secs(3600),
            keep_bindings: false,
            hold: Interval::default(),
            ring: Interval::default(),
            t1: Interval::ms(500),
            t2: Interval::secs(4),
            timeout: None,
            sdp_size: None,
            media: None,
            sockets: AgentSockets::default(),
            connections: Connections::default(),
            port: None,
            websocket_path: None,
            outbound_proxy: false,
            session_timer: None,
            follow_redirects: false,
            alias: false,
            headers: BTreeMap::new(),
            data: None,
            run: 0,
            trial: 0,
        }
    }
}

/// Sockets of user agents, over UDP.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum AgentSockets {
    /// Each has a socket of its own: a port of its own, and with enough addresses in `source` an address of its own.
    #[default]
    Own,
    /// Those of one worker and one address in `source` share a socket; each is known by what it wrote into its messages.
    Shared,
}

/// How many connections user agents have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(untagged)]
pub enum Connections {
    /// So many, which they share.
    Number(NonZeroU32),
    /// As the word says.
    Word(ConnectionsWord),
}

/// How many connections user agents have, in a word.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ConnectionsWord {
    /// One, which all of them share.
    One,
    /// One each.
    Each,
}

impl Default for Connections {
    fn default() -> Self {
        Self::Word(ConnectionsWord::Each)
    }
}

impl Connections {
    /// How many they share; none: each has its own.
    fn shared(self) -> Option<u32> {
        match self {
            Self::Number(number) => Some(number.get()),
            Self::Word(ConnectionsWord::One) => Some(1),
            Self::Word(ConnectionsWord::Each) => None,
        }
    }
}

/// Whether steps register, and then wait for calls.
fn registers_first(ops: &[Op]) -> bool {
    let registers =
        |op: &Op| matches!(op, Op::Send(one) if one.method == Method::Register && one.expires != Some(0));
    let calls = |op: &Op| match op {
        Op::Expect(all) => all.iter().any(|one| match &one.message {
            ExpectedMessage::Request(method) => *method == Method::Invite,
            ExpectedMessage::AnyRequest | ExpectedMessage::Response { .. } => false,
        }),
        _ => false,
    };
    let (first, call) = (ops.iter().position(registers), ops.iter().position(calls));
    first.zip(call).is_some_and(|(first, call)| first < call)
}

/// What a scenario's load is counted in, by what it does first besides registering. Who is called does not ask for the calls, and who
/// registers again and again does so in one flow.
fn load_unit(ops: &[Op]) -> LoadUnit {
    let repeats = ops.iter().any(|op| matches!(op, Op::Again { .. }));
    let accepts = ops.iter().any(|op| matches!(op, Op::Answer(one) if (200..300).contains(&one.status)));
    let sends = ops.iter().filter(|op| matches!(op, Op::Send(_))).count();
    let is_called = |all: &[Alternative]| all.iter().any(|one| one.message.is_request(Method::Invite));
    let first = ops.iter().find_map(|op| match op {
        Op::Send(one) if one.method == Method::Register => None,
        Op::Send(one) if one.method == Method::Invite => Some(LoadUnit::flows("calls")),
        Op::Send(_) if sends == 1 && !repeats => Some(LoadUnit::flows("requests")),
        Op::Send(_) => Some(LoadUnit::flows("flows")),
        Op::Expect(all) if is_called(all) && accepts => Some(CALLS_TAKEN),
        Op::Expect(all) if is_called(all) => Some(LoadUnit { delivered: CALLS_TAKEN.offered, ..CALLS_TAKEN }),
        _ => None,
    });
    let registers = || if repeats { REGISTRATIONS } else { LoadUnit::flows("registrations") };
    first.unwrap_or_else(|| if sends > 0 { registers() } else { LoadUnit::flows("flows") })
}

const CALLS_TAKEN: LoadUnit =
    LoadUnit { name: "calls", intended: None, offered: "calls_received", delivered: "answers_acknowledged" };
const REGISTRATIONS: LoadUnit = LoadUnit {
    name: "registrations",
    intended: Some("registrations"),
    offered: "registrations",
    delivered: "registrations_accepted",
};

/// Largest session description: what a datagram holds beside the header.
const SDP_MAX: Size = Size(60_000);

impl Params {
    fn steps(&self) -> Vec<Step> {
        match &self.scenario {
            Scenario::Preset(preset) => preset.steps(self.hold, self.ring),
            Scenario::Steps(steps) => steps.clone(),
        }
    }

    fn ops(&self) -> Result<Compiled, Problem> {
        scenario::compile(&self.steps(), self.data.as_ref())
            .map_err(|problem| problem.under("scenario.steps"))
    }

    fn check_identity(&self) -> Result<(), Problem> {
        let Some(identity) = &self.identity else { return Ok(()) };
        identity.compile(self.data.as_ref())?;
        let ops = self.ops()?.ops;
        let steps =
            ops.iter().filter_map(|op| if let Op::Send(one) = op { Some(&*one.headers) } else { None });
        let names =
            steps.flatten().map(|header| &*header.name).chain(self.headers.keys().map(String::as_str));
        let twice = names.into_iter().find(|name| SIGNED.iter().any(|own| own.eq_ignore_ascii_case(name)));
        Problem::unless(
            twice.is_none(),
            "headers",
            || format!("have {}, which `identity` sets", twice.unwrap_or_default()),
            "keep one of them",
        )
    }

    /// A template of what stands in a URI before or behind the `@`.
    fn callee(&self) -> Result<Template, Problem> {
        if self.callee.is_empty() { Ok(Template::literal(b"")) } else { self.part(&self.callee, "callee") }
    }

    fn part(&self, text: &str, key: &str) -> Result<Template, Problem> {
        let template = line(text, key, self.data.as_ref())?;
        let fine = |b: u8| b > b' ' && !b"<>\"@\\".contains(&b);
        Problem::unless(
            !text.is_empty() && text.bytes().all(&fine),
            key,
            || format!("{text:?} cannot stand in a SIP URI"),
            "use letters, digits and -_.!~*'()&=+$,;?/",
        )?;
        template.cells_are(key, fine)?;
        Ok(template)
    }
}

impl ModelKind for Params {
    const DESCRIPTION: &'static Description = &DESCRIPTION;
    type Config = Config;

    fn compile(&self, target: &Target) -> Result<Config, Problem> {
        self.check()?;
        let reliable = target.scheme.carrier == Carrier::Stream;
        Problem::unless(
            !reliable || self.sockets == AgentSockets::Own,
            "sockets",
            || "share a socket over UDP only".into(),
            "leave it out, or use a target over UDP",
        )?;
        let websocket = is_websocket(target.scheme);
        Problem::unless(
            self.connections.shared().is_none() || reliable && !websocket,
            "connections",
            || format!("are those of TCP and TLS, and the target is {}://", target.scheme.name),
            "leave it out, or use a target like sip+tcp://HOST",
        )?;
        Problem::unless(
            websocket || self.websocket_path.is_none(),
            "websocket_path",
            || format!("is for WebSocket, and the target is {}://", target.scheme.name),
            "leave it out, or use a target like sip+ws://HOST",
        )?;
        Problem::unless(
            !self.alias || reliable && !websocket,
            "alias",
            || format!("is for connections of TCP and TLS, and the target is {}://", target.scheme.name),
            "leave it out, or use a target like sip+tcp://HOST",
        )?;
        let websocket = websocket.then(|| {
            let shown = if target.scheme.port == Some(target.port) {
                String::new()
            } else {
                format!(":{}", target.port)
            };
            Resource {
                host: format!("{}{shown}", target.host),
                path: self.websocket_path.clone().unwrap_or_else(|| "/".into()),
            }
        });
        let data = self.data.as_ref();
        let templates =
            |text: &Option<String>, key| text.as_deref().map(|text| line(text, key, data)).transpose();
        let domain = match &self.domain {
            Some(domain) => self.part(domain, "domain")?,
            None => Template::literal(target.host.as_bytes()),
        };
        let user = self.part(&self.user, "user")?;
        let Compiled { mut ops, captures, legs } = self.ops()?;
        // as a number alone stands for a device: what else a template names differs from one message to the next
        let named = [&user, &domain].iter().all(|part| part.per_device());
        let is_callee = named && registers_first(&ops);
        let prack = ops.iter().any(|op| matches!(op, Op::Send(one) if one.method == Method::Prack));
        let leaving = Leaving::append(&mut ops, legs);
        let refreshes = self.session_timer.as_ref().map(|timer| timer.requests(legs)).unwrap_or_default();
        Ok(Config {
            ops: ops.into(),
            leaving,
            refreshes,
            session_timer: self.session_timer.clone(),
            captures,
            legs,
            acknowledges_provisionals: !prack,
            auth_user: templates(&self.auth_user, "auth_user")?.unwrap_or_else(|| user.clone()),
            user,
            domain,
            callee: self.callee()?,
            password: templates(&self.password, "password")?,
            aka: self.aka.as_ref().map(|aka| aka.compile(data)).transpose()?,
            identity: self.identity.as_ref().map(|identity| identity.compile(data)).transpose()?,
            reuse_nonce: self.reuse_nonce,
            expires: scenario::seconds(self.expires),
            keep_bindings: self.keep_bindings,
            one_user: named,
            t1: self.t1.0,
            t2: self.t2.0,
            timeout: self.timeout.map_or(self.t1.0 * 64, |timeout| timeout.0),
            sdp_size: self.sdp_size.map_or(0, |size| size.bytes()),
            media: self.media.as_ref().map(Media::compile).transpose()?,
            alias: self.alias,
            outbound_proxy: self.outbound_proxy,
            follow_redirects: self.follow_redirects,
            headers: headers_of(&self.headers, data)?,
            scheme: target.scheme,
            websocket,
            reliable,
            run: self.run,
            callees: (self.trial != 0).then(|| Callees::of(self.trial)),
            is_callee,
            late_audio: if self.trial == 0 { Arc::default() } else { LateAudio::of(self.trial) },
        })
    }

    fn recipient(config: &Config, datagram: &[u8], own: bool) -> Recipient {
        crate::recipient::recipient(config, datagram, own)
    }

    fn framing(bytes: &[u8]) -> Framing {
        crate::recipient::framing(bytes)
    }
}

impl ModelParams for Params {
    fn about(&self) -> &'static Description {
        &DESCRIPTION
    }

    fn check(&self) -> Result<(), Problem> {
        self.ops()?;
        self.part(&self.user, "user")?;
        self.callee()?;
        self.domain.as_deref().map(|domain| self.part(domain, "domain")).transpose()?;
        headers_of(&self.headers, self.data.as_ref())?;
        self.aka.as_ref().map(|aka| aka.compile(self.data.as_ref())).transpose()?;
        self.check_identity()?;
        let sized = self.sdp_size.is_none_or(|size| size <= SDP_MAX);
        Problem::unless(sized, "sdp_size", || "is too large".into(), format!("use at most {SDP_MAX}"))?;
        self.media.as_ref().map_or(Ok(()), Media::check)?;
        self.session_timer.as_ref().map_or(Ok(()), SessionTimer::check)?;
        let (t1, t2) = (self.t1, self.t2);
        Problem::unless(t1 > Interval::default(), "t1", || "is zero".into(), "use 500ms")?;
        Problem::unless(t2 >= t1, "t2", || format!("{t2} is shorter than t1, {t1}"), "use at least t1")?;
        let shares = self.port.is_none() || self.sockets == AgentSockets::Shared;
        Problem::unless(
            shares,
            "port",
            || "is for shared sockets".into(),
            "leave it out, or use {\"sockets\": \"shared\"}",
        )?;
        let is_path =
            |path: &str| path.starts_with('/') && path.bytes().all(|b| b.is_ascii_graphic() && b != b'#');
        Problem::unless(
            self.websocket_path.as_deref().is_none_or(is_path),
            "websocket_path",
            || "is no path of a URL".into(),
            "write it like /ws",
        )?;
        Problem::unless(self.port != Some(0), "port", || "is zero".into(), "leave it out, or use 5060")?;
        let waits = self.timeout.is_none_or(|timeout| timeout > Interval::default());
        Problem::unless(waits, "timeout", || "is zero".into(), "use 32s")
    }

    fn set_data(&mut self, data: &Data) {
        self.data = Some(data.clone());
    }

    fn set_credentials(&mut self, name: &str, password: Option<&str>) -> Result<(), Problem> {
        let given = self.password.is_some() || self.auth_user.is_some();
        Problem::unless(
            !given,
            "",
            || "has credentials, and the parameters have some too".into(),
            "keep one of them",
        )?;
        self.auth_user = Some(Template::escaped(name));
        self.password = password.map(Template::escaped);
        Ok(())
    }

    fn load_unit(&self) -> LoadUnit {
        self.ops().map_or(LoadUnit::MESSAGES, |compiled| load_unit(&compiled.ops))
    }

    fn keeps_connection(&self) -> bool {
        true
    }

    fn fails_over(&self) -> bool {
        true
    }

    fn has_media(&self) -> bool {
        self.media.is_some()
    }

    fn shared_socket(&self) -> Option<SharedSocket> {
        let connections = self.connections.shared();
        let shares = self.sockets == AgentSockets::Shared || connections.is_some();
        shares.then_some(SharedSocket { listen: self.port, connections: connections.unwrap_or_default() })
    }

    fn identify(&mut self, identity: RunIdentity) {
        self.run = identity.run;
        self.trial = identity.trial;
    }

    #[cfg(any(test, feature = "testing"))]
    fn for_noise(&mut self, choice: u8, scheme: &mut protocol::target::Scheme) -> usize {
        use crate::scenario::Preset;
        const PRESETS: [Preset; 4] = [Preset::Register, Preset::Call, Preset::Answer, Preset::Cancel];
        self.scenario = Scenario::Preset(PRESETS[usize::from(choice & 3)]);
        self.timeout = Some(Interval::ms(50));
        self.t1 = Interval::ms(5);
        self.t2 = Interval::ms(20);
        self.password = protocol::describe::bit(choice, 2).then(|| "secret".into());
        self.media = protocol::describe::bit(choice, 5).then(Media::default);
        *scheme = crate::description::SCHEMES[[0, 1, 3, 1][usize::from(choice >> 3 & 3)]];
        sip_core::message::MAX_HEAD + sip_core::message::MAX_BODY
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenario::Preset;

    #[test]
    fn a_load_is_counted_in_what_was_asked_for() {
        let unit = |scenario: Scenario| Params { scenario, ..Params::default() }.load_unit();
        let of = |preset| unit(Scenario::Preset(preset));
        for preset in [Preset::Call, Preset::HeldCall, Preset::Cancel, Preset::Redirect, Preset::EarlyMedia] {
            assert_eq!(of(preset), LoadUnit::flows("calls"), "{preset:?}");
        }
        for preset in [Preset::Register, Preset::Reregister, Preset::Unregister] {
            assert_eq!(of(preset), LoadUnit::flows("registrations"), "{preset:?}");
        }
        assert_eq!(of(Preset::StayRegistered), REGISTRATIONS, "one flow, and many of them");
        assert_eq!(of(Preset::Options), LoadUnit::flows("requests"));
        for preset in [Preset::Answer, Preset::Uas, Preset::AnswerEarlyMedia] {
            assert_eq!(of(preset), CALLS_TAKEN, "{preset:?}");
        }
        assert_eq!(of(Preset::Busy).delivered, "calls_received", "none is to be acknowledged");
        let names: Vec<_> = DESCRIPTION.counters.iter().map(|counter| counter.name).collect();
        let own = [CALLS_TAKEN, REGISTRATIONS].map(|unit| [unit.offered, unit.delivered]).concat();
        assert!(own.iter().all(|name| names.contains(name)), "{own:?}");
        let all = protocol::meter::COUNTERS.map(|counter| counter.name);
        for unit in [LoadUnit::MESSAGES, LoadUnit::flows("calls")] {
            let named = [unit.intended.unwrap_or_default(), unit.offered, unit.delivered];
            assert!(named.iter().all(|name| all.contains(name)), "{named:?}");
        }
    }
}
