//! A profile made ready to run: names resolved, models compiled, load scaled.

use crate::addresses::Addresses;
use crate::receive_room;
use crate::setup_error::SetupError;
use crate::{interfaces, tls};
use profile::secret::{self, Secrets};
use profile::{Load, Profile};
use protocol::data::Data;
use protocol::describe::{Description, Identity, LoadUnit};
use protocol::rate_timeline::RateTimeline;
use protocol::shared_socket::SharedSocket;
use protocol::target::{self, Carrier, Scheme};
use protocol::time::Time;
use protocol::turns::Turns;
use protocol::unit::Interval;
use rustls_pki_types::ServerName;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::hash::{BuildHasher, DefaultHasher, Hash, Hasher, RandomState};
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

/// Most points of a series, and most over all groups: what a result of a run of any length may hold.
const POINTS: u64 = 10_000;
const GROUP_POINTS: u64 = 50_000;

/// What a trial changes about its profile.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Trial {
    /// Instead of `phases.warmup`.
    pub warmup: Option<Interval>,
    /// Instead of `phases.measure`.
    pub measure: Option<Interval>,
    /// Instead of `phases.drain`.
    pub drain: Option<Interval>,
    /// Factor on every rate (open loop, frames) or number of devices (closed loop).
    pub load: Option<f64>,
    /// Secrets besides those that the schema marks: texts that are not stored, reported or logged.
    pub secrets: Vec<String>,
}

/// What a transport carries.
#[derive(Debug)]
pub struct Plan {
    /// The profile, with the trial's changes made.
    pub profile: Profile,
    /// Factor on open-loop rates and those of frames.
    pub factor: f64,
    /// The groups, in the profile's order.
    pub groups: Vec<GroupPlan>,
    /// Texts that are not to be stored, reported or logged.
    pub secrets: Secrets,
}

/// One group made ready.
#[derive(Debug)]
pub struct GroupPlan {
    /// Its place in the profile.
    pub number: usize,
    /// What tells its sessions from those of other runs and groups.
    pub token: u64,
    /// Its name.
    pub name: String,
    /// What its model says about itself.
    pub about: &'static Description,
    /// Its target, as a URL.
    pub target: String,
    /// The name or address in it.
    pub host: String,
    /// The addresses that this stands for.
    pub addresses: Addresses,
    /// What carries it.
    pub scheme: Scheme,
    /// The compiled model.
    pub model: models::Config,
    /// Whether every message is to be confirmed, so that silence is loss.
    pub confirmed: bool,
    /// What its load is counted in.
    pub unit: LoadUnit,
    /// Whether devices wait for answers at all, or for connections.
    pub waits: bool,
    /// Whether devices keep their connection from one flow to the next.
    pub keeps_connection: bool,
    /// Whether devices have media sockets in addition to their connection.
    pub has_media: bool,
    /// How its devices share a datagram socket of each worker, or connections; `None`: each has its own.
    pub shared: Option<SharedSocket>,
    /// A wait longer than this is a stall, ns.
    pub stall: u64,
    /// How much of a reply is compared with what was sent.
    pub verified: Option<ReplyCheck>,
    /// How many devices.
    pub devices: u32,
    /// Number of the first of them.
    pub first_device: u32,
    /// Whose turn it is where other hosts share the group.
    pub turns: Turns,
    /// When flows begin.
    pub load: Load,
    /// How its open-loop rate is changed while the run goes on; without a rate in a closed loop, and where stages change it.
    pub arrivals: Arc<RateTimeline>,
    /// How many messages all devices send together.
    pub total: Option<u64>,
    /// Addresses to send from, in turn; empty: the kernel chooses.
    pub sources: Vec<IpAddr>,
    /// Longest wait for a connection.
    pub connect_timeout: u64,
    /// Receive buffer of each device's socket, bytes.
    pub receive_room: usize,
    /// For TLS: whom to trust, and the name to ask for.
    pub tls: Option<(Arc<rustls::ClientConfig>, ServerName<'static>)>,
}

impl Plan {
    /// Resolve and compile. `profile` must have passed its checks.
    pub fn new(mut profile: Profile, trial: &Trial) -> Result<Self, Vec<SetupError>> {
        let phases = &mut profile.phases;
        phases.warmup = trial.warmup.unwrap_or(phases.warmup);
        phases.measure = trial.measure.unwrap_or(phases.measure);
        phases.drain = trial.drain.unwrap_or(phases.drain);
        let factor = trial.load.unwrap_or(1.0);
        if !(factor > 0.0 && factor.is_finite()) {
            let what = format!("{factor} is no factor for a load");
            return Err(vec![SetupError::new("ND-104-05", "trial.load", what, "Use a number above 0")]);
        }
        if phases.measure.ns() == 0 {
            let what = "the measure phase is empty";
            return Err(vec![SetupError::new(
                "ND-104-05",
                "trial.measure",
                what,
                "Give it a length, like \"10s\"",
            )]);
        }
        if phases.warmup.ns() > 0 && profile.groups.iter().any(|group| group.total.is_some()) {
            let what = "a load with a total has no warm-up: every message counts";
            return Err(vec![SetupError::new(
                "ND-104-07",
                "trial.warmup",
                what,
                "Leave it out, or use \"0s\"",
            )]);
        }
        phases.sample = spacing(phases, profile.groups.len());
        for group in &mut profile.groups {
            // Frames have a rate of the whole group, which the factor is on.
            if group.frame.as_ref().is_some_and(profile::Frame::is_paced) {
                continue;
            }
            if let Load::Closed(closed) = &mut group.load
                && closed.scales
            {
                let scaled = |devices: u32| (f64::from(devices) * factor).round() as u32;
                // more devices than before have numbers of their own beside those of other hosts, whose profiles are scaled as well
                if factor > 1.0 {
                    let end = scaled(group.first_device.saturating_add(group.devices));
                    group.first_device = scaled(group.first_device);
                    group.devices = end.saturating_sub(group.first_device);
                } else {
                    group.devices = scaled(group.devices).max(1);
                }
                closed.stages.iter_mut().for_each(|stage| stage.devices = scaled(stage.devices));
            }
        }
        let beyond = profile::ceiling::check(&profile, factor);
        if !beyond.is_empty() {
            let told = |e: SetupError| {
                let what = format!("{factor:e} times the load is too much at {}: {}", e.at, e.what);
                SetupError::new("ND-104-05", "trial.load", what, "Use a smaller factor")
            };
            return Err(beyond.into_iter().map(told).collect());
        }
        let data = profile.data.read(profile.seed)?;
        let mut groups = Vec::new();
        let mut errors = Vec::new();
        let token = run_token();
        for i in 0..profile.groups.len() {
            match GroupPlan::new(&profile, i, &data, (token, factor)) {
                Ok(group) => groups.push(group),
                Err(error) => errors.push(error),
            }
        }
        let secrets = Secrets::of(&profile, &data, trial.secrets.iter().cloned());
        if errors.is_empty() {
            return Ok(Self { profile, factor, groups, secrets });
        }
        let hidden =
            |e: SetupError| SetupError { what: secrets.hide(&e.what), fix: secrets.hide(&e.fix), ..e };
        Err(errors.into_iter().map(hidden).collect())
    }
}

/// The spacing of samples of the profile, or the multiple of it that keeps the series within bounds.
fn spacing(phases: &profile::Phases, groups: usize) -> Interval {
    let run = [phases.warmup, phases.measure, phases.drain].iter().map(|phase| phase.0).sum::<Duration>();
    let points = POINTS.min(GROUP_POINTS / (groups as u64).max(1));
    let most = phases.sample.0.as_nanos().max(1) * u128::from(points);
    let times = run.as_nanos().div_ceil(most).max(1);
    Interval(phases.sample.0.saturating_mul(u32::try_from(times).unwrap_or(u32::MAX)))
}

impl GroupPlan {
    /// The token as texts of its sessions have it, a Call-ID of SIP for one.
    pub fn shown_token(&self) -> String {
        format!("{:016x}", self.token)
    }

    fn new(
        profile: &Profile,
        index: usize,
        data: &Data,
        (trial, factor): (u64, f64),
    ) -> Result<Self, SetupError> {
        let group = &profile.groups[index];
        let at = |key: &str| format!("groups[{index}].{key}");
        let target = profile.target(group).map_err(|e| SetupError { at: at("target"), ..e })?;
        let scheme = group
            .model
            .scheme(&target.scheme)
            .map_err(|p| SetupError::new("ND-104-07", at("target"), p.what, p.fix))?;
        let mut sources = Vec::new();
        for (i, text) in group.source.iter().enumerate() {
            let more = profile::source::expand(text).map_err(|what| {
                let fix = "Use an address, a prefix, or FIRST-LAST";
                SetupError::new("ND-104-04", at(&format!("source[{i}]")), what, fix)
            })?;
            sources.extend(more);
        }
        let port = target.port.or(scheme.port).unwrap_or(0);
        let family = sources.first().map(IpAddr::is_ipv4).or_else(|| port_family(profile, group));
        let found = match &group.failover {
            Some(failover) => Addresses::servers(failover),
            None => Addresses::of(&target.host, port, group.resolve, family),
        };
        let mut addresses = found.map_err(|what| {
            SetupError::new("ND-92-03", at("target"), what, "Check the name, or give an address")
        })?;
        let is_literal = target.host.parse::<IpAddr>().is_ok();
        if let (SocketAddr::V6(v6), true, profile::Transport::Sockets(_)) =
            (addresses.first_mut(), is_literal && group.failover.is_none(), &profile.transport)
        {
            let scope = scope(v6.ip(), target.zone.as_deref());
            v6.set_scope_id(
                scope.map_err(|(what, fix)| SetupError::new("ND-92-03", at("target"), what, fix))?,
            );
        }
        if let Some(far) = addresses.iter().find(|a| sources.iter().any(|s| s.is_ipv4() != a.is_ipv4())) {
            let what = format!("the source addresses cannot reach {} (IPv4 and IPv6 mixed)", far.ip());
            return Err(SetupError::new("ND-104-07", at("source"), what, "Use one family for both"));
        }
        let host = if target.host.contains(':') { format!("[{}]", target.host) } else { target.host.clone() };
        let seen = target::Target { scheme, host, port, ipv6: addresses.first().is_ipv6() };
        let mut params = group.model.clone();
        if let Some(path) = &target.path {
            params.set_path(path); // the profile's checks see to it that only one of the two is set
        }
        if let Some(user) = &target.user {
            params.set_credentials(&user.name, user.password.as_deref()).map_err(|p| {
                SetupError::new("ND-104-07", at("target"), format!("{target} {}", p.what), p.fix)
            })?;
        }
        params.set_data(data);
        let whose = |run: u64| token(&(run, &profile.name, &group.name));
        params.identify(Identity { run: whose(trial), profile: whose(0), trial });
        let model = params.compile(&seen).map_err(|p| {
            let p = p.under(&at(&format!("model.{}", group.model.name())));
            SetupError::new("ND-104-04", p.key, p.what, p.fix)
        })?;
        let tls =
            scheme.tls.then(|| tls::config(group.tls.as_ref(), &target.host)).transpose().map_err(
                |(key, what, fix)| SetupError::new("ND-92-04", at(&format!("tls.{key}")), what, fix),
            )?;
        Ok(Self {
            number: index,
            token: whose(trial),
            name: group.name.clone(),
            about: group.model.about(),
            confirmed: group.model.confirmed(),
            unit: group.model.load_unit(),
            waits: group.model.awaits_answers(scheme.carrier),
            keeps_connection: group.model.keeps_connection(),
            has_media: group.model.has_media(),
            shared: group.model.shared_socket().filter(|_| scheme.carrier != Carrier::Icmp),
            stall: group.stall.ns(),
            verified: ReplyCheck::of(profile, group),
            target: secret::query(&target.to_string()),
            host: seen.host,
            addresses,
            scheme,
            model,
            devices: group.devices,
            first_device: group.first_device,
            turns: match &group.turns {
                Some(turns) => Turns::new(turns.own, &turns.before, &turns.after),
                None => Turns::new(group.devices, &[], &[]),
            },
            load: group.load.clone(),
            arrivals: Arc::new(RateTimeline::new(match &group.load {
                Load::Open(open) if open.stages.is_empty() => open.rate.0 * factor,
                Load::Open(_) | Load::Closed(_) => 0.0,
            })),
            total: group.total,
            sources,
            connect_timeout: group.connect_timeout.ns(),
            receive_room: match (group.model.replies(), group.model.shared_socket()) {
                (_, Some(_)) => receive_room::MOST,
                (Some(replies), None) => {
                    receive_room::receive_buffer(replies.per_second, replies.burst, replies.bytes)
                }
                (None, None) => receive_room::LEAST,
            },
            tls,
        })
    }

    /// The address that is tried first; for transports that know no other, the only one.
    pub fn address(&self) -> SocketAddr {
        self.addresses.first()
    }

    /// How many messages worker `number` of `workers` sends: those of its devices, over which the total is spread evenly.
    pub fn share(&self, number: usize, workers: usize) -> Option<u64> {
        let (total, devices) = (self.total?, u64::from(self.devices.max(1)));
        let mine = (number as u64..devices).step_by(workers.max(1));
        let (each, rest) = (total / devices, total % devices);
        Some(mine.map(|device| each + u64::from(device < rest)).sum())
    }

    /// How many changes of its rates have come by `at`.
    pub fn rate_changes(&self, at: Time) -> usize {
        let messages = self.model.timeline().map_or(0, |timeline| timeline.count_by(at));
        messages + self.arrivals.count_by(at)
    }

    /// The number of device `index` of this run.
    pub fn device_number(&self, index: u32) -> u32 {
        self.first_device.saturating_add(index)
    }

    /// Where device `index` sends from.
    pub fn source(&self, index: u32) -> Option<IpAddr> {
        (!self.sources.is_empty()).then(|| self.sources[index as usize % self.sources.len()])
    }
}

/// The interface that a link-local address is on: there may be the same one on each (RFC 4007 §6).
fn scope(ip: &Ipv6Addr, zone: Option<&str>) -> Result<u32, (String, String)> {
    let Some(zone) = zone else {
        if ip.is_unicast_link_local() {
            let what = format!("{ip} is a link-local address, and may be on any interface");
            return Err((what, format!("Name the interface: [{ip}%25eth0]")));
        }
        return Ok(0);
    };
    let there = interfaces::names();
    if let Some((index, _)) = there.iter().find(|(index, name)| name == zone || index.to_string() == zone) {
        return Ok(*index);
    }
    let names = protocol::problem::choices(there.iter().map(|(_, name)| name.as_str()));
    Err((format!("there is no interface {zone:?} here"), format!("Use one of {names}")))
}

fn token(of: &impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    of.hash(&mut hasher);
    hasher.finish()
}

/// Another number for each run, here and elsewhere.
fn run_token() -> u64 {
    RandomState::new().hash_one(SystemTime::now())
}

/// How much of a reply is compared with what was sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ReplyCheck {
    /// Every byte of the payload.
    Payload,
    /// The signature and the checksums of the headers: the payload is the user's own.
    Signature,
}

impl ReplyCheck {
    fn of(profile: &Profile, group: &profile::Group) -> Option<Self> {
        if matches!(profile.transport, profile::Transport::Sockets(_)) || profile.has_devices() {
            return group.model.compares().then_some(Self::Payload);
        }
        match &group.frame {
            Some(frame) if frame.replay.is_some() || !frame.measured => None,
            Some(frame) if !frame.is_plain() => Some(Self::Signature),
            _ => Some(Self::Payload),
        }
    }
}

/// The family of the addresses of the port that a group sends on, where it has only one (dpdk); whether IPv4.
fn port_family(profile: &Profile, group: &profile::Group) -> Option<bool> {
    let profile::Transport::Dpdk(dpdk) = &profile.transport else { return None };
    let mut generators = dpdk.ports.iter().filter(|port| port.role == profile::Role::Generator);
    let port = match &group.port {
        Some(name) => generators.find(|port| port.name == *name),
        None => generators.next(),
    }?;
    let v4 = port.ip.0.first()?.ip.is_ipv4();
    port.ip.0.iter().all(|own| own.ip.is_ipv4() == v4).then_some(v4)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn plan(group: Value, trial: Value) -> Result<Plan, Vec<SetupError>> {
        let mut profile = json!({"name": "p", "groups": [{"name": "g", "target": "http://127.0.0.1/", "model": {"http": {}}}]});
        if group.get("total").is_some() {
            profile["phases"] = json!({"warmup": "0s"});
        }
        let into = profile["groups"][0].as_object_mut().expect("a group");
        into.extend(group.as_object().cloned().unwrap_or_default());
        let profile = profile::load(&profile.to_string()).expect("a good profile");
        Plan::new(profile, &serde_json::from_value(trial).expect("a trial"))
    }

    #[test]
    fn numbers_of_devices_of_several_hosts_stay_apart_by_any_factor() {
        let closed = json!({"closed": {"flows": 1, "scales": true}});
        for factor in [0.01, 0.3, 0.5, 0.99, 1.0, 1.2, 1.5, 2.7, 10.0] {
            let mut before = 0;
            let mut first = 0;
            for devices in [3, 3, 2, 1, 1, 7] {
                let group = json!({"devices": devices, "first_device": first, "load": closed});
                let plan = plan(group, json!({"load": factor})).expect("good");
                let group = &plan.groups[0];
                assert!(group.devices >= 1 && group.first_device >= before, "{factor}: {group:?}");
                before = group.device_number(group.devices - 1) + 1;
                first += devices;
            }
            if factor >= 1.0 {
                assert_eq!(f64::from(before), (17.0_f64 * factor).round(), "none is left out");
            }
        }
    }

    #[test]
    fn a_factor_may_not_go_beyond_what_a_profile_may() {
        let devices = json!({"devices": 1_000_000});
        let open = json!({"load": {"open": {"rate": "1M/s"}}});
        assert_eq!(
            plan(devices.clone(), json!({"load": 10.0})).expect("at the limit").groups[0].devices,
            10_000_000
        );
        assert!(plan(open.clone(), json!({"load": 1000.0})).is_ok());
        for (group, load, at) in [
            (&devices, 10.1, "groups[0].devices"),
            (&devices, 1e300, "groups[0].devices"),
            (&open, 1000.1, "groups[0].load.open.rate"),
            (&open, 1e300, "groups[0].load.open.rate"),
        ] {
            let why = plan(group.clone(), json!({"load": load})).expect_err("too much");
            assert_eq!(
                (why.len(), why[0].code, why[0].at.as_str()),
                (1, "ND-104-05", "trial.load"),
                "{why:?}"
            );
            assert!(
                why[0].what.contains(at) && why[0].what.starts_with(&format!("{load:e} times")),
                "{why:?}"
            );
        }
        for load in [0.0, -1.0] {
            let why = plan(open.clone(), json!({"load": load})).expect_err("no load");
            assert_eq!(why[0].at, "trial.load");
        }
    }

    #[test]
    fn clients_of_each_run_and_group_have_names_of_their_own() {
        let ids = |session: &str| {
            let group = |name: &str| {
                let model = json!({"mqtt": {"clean_session": session == "clean"}});
                json!({"name": name, "target": "mqtt://127.0.0.1", "model": model})
            };
            let text = json!({"name": "p", "groups": [group("a"), group("b")]}).to_string();
            let plan = Plan::new(profile::load(&text).expect("good"), &Trial::default()).expect("a plan");
            // the number that its messages begin with is of the run, also where the session is kept
            let name = |model: String| {
                let (_, rest) = model.split_once("client_id").expect("a client");
                rest.split("username").next().unwrap_or_default().to_owned()
            };
            plan.groups.iter().map(|group| name(format!("{:?}", group.model))).collect::<Vec<_>>()
        };
        let (clean, kept) = (ids("clean"), ids("kept"));
        assert!(clean[0] != clean[1] && kept[0] != kept[1], "groups would evict each other");
        assert!(clean != ids("clean"), "runs would evict each other");
        assert_eq!(kept, ids("kept"), "the next run finds its session");
    }

    #[test]
    fn a_link_local_address_is_on_the_interface_that_is_named() {
        let address = |host: &str| {
            let group = json!({"target": format!("http://{host}:8080/"), "model": {"http": {}}});
            plan(group, json!({})).map(|plan| plan.groups[0].addresses.first())
        };
        let on = |zone: &str| match address(&format!("[fe80::1%25{zone}]")).expect(zone) {
            SocketAddr::V6(v6) => v6.scope_id(),
            SocketAddr::V4(_) => 0,
        };
        // the loopback interface is the first of every network namespace
        assert_eq!((on("lo"), on("1")), (1, 1));
        assert_eq!(address("[2001:db8::1]").expect("global").to_string(), "[2001:db8::1]:8080");
        for (host, what, fix) in [
            ("[fe80::1%25nosuch0]", "no interface \"nosuch0\"", "lo"),
            ("[fe80::1]", "any interface", "[fe80::1%25eth0]"),
        ] {
            let why = address(host).expect_err(host).remove(0);
            assert_eq!((why.code, why.at.as_str()), ("ND-92-03", "groups[0].target"));
            assert!(why.what.contains(what) && why.fix.contains(fix), "{why:?}");
        }
    }

    #[test]
    fn the_shares_of_workers_add_up_to_the_total() {
        for (devices, total) in [(1, 1), (3, 7), (10, 3), (7, 1000), (1000, 999)] {
            let group = json!({"devices": devices, "total": total});
            let plan = plan(group, json!({"warmup": "0s"})).expect("a plan");
            for workers in [1, 2, 3, 16] {
                let shares: u64 = (0..workers).filter_map(|w| plan.groups[0].share(w, workers)).sum();
                assert_eq!(shares, total, "{devices} devices, {workers} workers");
            }
        }
        assert_eq!(plan(json!({}), json!({})).expect("a plan").groups[0].share(0, 1), None);
        let why = plan(json!({"total": 5}), json!({"warmup": "1s"})).expect_err("a warm-up");
        assert_eq!((why[0].code, why[0].at.as_str()), ("ND-104-07", "trial.warmup"));
    }

    #[test]
    fn a_long_run_has_a_coarser_series() {
        let sample = |measure: &str, groups: usize| {
            let phases = profile::Phases {
                warmup: Interval::default(),
                measure: measure.parse().expect("a length"),
                drain: Interval::default(),
                sample: Interval::secs(1),
            };
            spacing(&phases, groups).to_string()
        };
        assert_eq!([sample("10s", 1), sample("10000s", 1), sample("10001s", 1)], ["1s", "1s", "2s"]);
        assert_eq!([sample("10000s", 5), sample("10000s", 6), sample("500s", 100)], ["1s", "2s", "1s"]);
        assert_eq!(sample("8760h", 1), "3154s");
        assert_eq!(sample("0s", 0), "1s");
        // what runs is what the result's profile says
        let long = plan(json!({}), json!({"warmup": "0s", "measure": "48h", "drain": "0s"})).expect("a plan");
        assert_eq!(long.profile.phases.sample.to_string(), "18s");
    }
}
