//! A profile made ready to run: names resolved, models compiled, load scaled.

use crate::transport::Unready;
use profile::{Load, Profile};
use protocol::registry::{self, Params, Scheme};
use protocol::unit::Interval;
use rustls_pki_types::ServerName;
use serde::Deserialize;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::sync::Arc;

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
    /// Factor on every rate (open loop) or number of devices (closed loop).
    pub load: Option<f64>,
}

/// What a transport carries.
#[derive(Debug)]
pub struct Plan {
    /// The profile, with the trial's changes made.
    pub profile: Profile,
    /// Factor on open-loop rates.
    pub factor: f64,
    /// The groups, in the profile's order.
    pub groups: Vec<GroupPlan>,
}

/// One group made ready.
#[derive(Debug)]
pub struct GroupPlan {
    /// Its name.
    pub name: String,
    /// Its protocol.
    pub protocol: &'static str,
    /// Names of its delays.
    pub delays: &'static [&'static str],
    /// Its target, as a URL.
    pub target: String,
    /// Its target, resolved.
    pub address: SocketAddr,
    /// What carries it.
    pub scheme: Scheme,
    /// The compiled model.
    pub model: registry::Plan,
    /// Whether every message is to be confirmed, so that silence is loss.
    pub confirmed: bool,
    /// How many devices.
    pub devices: u32,
    /// When flows begin.
    pub load: Load,
    /// Addresses to send from, in turn; empty: the kernel chooses.
    pub sources: Vec<IpAddr>,
    /// Longest wait for a connection.
    pub connect_timeout: u64,
    /// For TLS: whom to trust, and the name to ask for.
    pub tls: Option<(Arc<rustls::ClientConfig>, ServerName<'static>)>,
}

impl Plan {
    /// Resolve and compile. `profile` must have passed its checks.
    pub fn new(mut profile: Profile, trial: &Trial) -> Result<Self, Vec<Unready>> {
        let phases = &mut profile.phases;
        phases.warmup = trial.warmup.unwrap_or(phases.warmup);
        phases.measure = trial.measure.unwrap_or(phases.measure);
        phases.drain = trial.drain.unwrap_or(phases.drain);
        let factor = trial.load.unwrap_or(1.0);
        if !(factor > 0.0 && factor.is_finite()) {
            let what = format!("{factor} is no factor for a load");
            return Err(vec![Unready::new("ND-104-05", "trial.load", what, "Use a number above 0")]);
        }
        if phases.measure.ns() == 0 {
            let what = "the measure phase is empty";
            return Err(vec![Unready::new(
                "ND-104-05",
                "trial.measure",
                what,
                "Give it a length, like \"10s\"",
            )]);
        }
        let mut groups = Vec::new();
        let mut errors = Vec::new();
        for i in 0..profile.groups.len() {
            let group = &mut profile.groups[i];
            if let Load::Closed(closed) = &mut group.load {
                let scaled = |devices: u32| (f64::from(devices) * factor).round() as u32;
                group.devices = scaled(group.devices).max(1);
                closed.stages.iter_mut().for_each(|stage| stage.devices = scaled(stage.devices));
            }
            match GroupPlan::new(&profile, i) {
                Ok(group) => groups.push(group),
                Err(error) => errors.push(error),
            }
        }
        if errors.is_empty() { Ok(Self { profile, factor, groups }) } else { Err(errors) }
    }
}

impl GroupPlan {
    fn new(profile: &Profile, index: usize) -> Result<Self, Unready> {
        let group = &profile.groups[index];
        let at = |key: &str| format!("groups[{index}].{key}");
        let target = profile
            .target(group)
            .map_err(|e| Unready::new("ND-104-06", at("target"), e.what.clone(), e.fix.clone()))?;
        let scheme = group
            .model
            .scheme(&target.scheme)
            .map_err(|p| Unready::new("ND-104-07", at("target"), p.what, p.fix))?;
        let mut sources = Vec::new();
        for (i, text) in group.source.iter().enumerate() {
            let more = profile::source::expand(text).map_err(|what| {
                let fix = "Use an address, a prefix, or FIRST-LAST";
                Unready::new("ND-104-04", at(&format!("source[{i}]")), what, fix)
            })?;
            sources.extend(more);
        }
        let port = target.port.or(scheme.port).unwrap_or(0);
        let wanted = sources.first().map(IpAddr::is_ipv4);
        let address = resolve(&target.host, port, wanted).map_err(|what| {
            Unready::new("ND-92-03", at("target"), what, "Check the name, or give an address")
        })?;
        if sources.iter().any(|s| s.is_ipv4() != address.is_ipv4()) {
            let what = format!("the source addresses cannot reach {} (IPv4 and IPv6 mixed)", address.ip());
            return Err(Unready::new("ND-104-07", at("source"), what, "Use one family for both"));
        }
        let host = if target.host.contains(':') { format!("[{}]", target.host) } else { target.host.clone() };
        let seen = registry::Target { scheme, host, port, ipv6: address.is_ipv6() };
        let mut params = group.model.clone();
        if let (Params::Http(http), Some(path)) = (&mut params, &target.path) {
            http.path.clone_from(path); // the profile's checks see to it that only one of the two is set
        }
        let model = params.compile(&seen).map_err(|p| {
            let p = p.under(&at(&format!("model.{}", group.model.name())));
            Unready::new("ND-104-04", p.key, p.what, p.fix)
        })?;
        let tls = scheme
            .tls
            .then(|| crate::sockets::tls::config(group.tls.as_ref(), &target.host))
            .transpose()
            .map_err(|(key, what, fix)| Unready::new("ND-92-04", at(&format!("tls.{key}")), what, fix))?;
        Ok(Self {
            name: group.name.clone(),
            protocol: group.model.name(),
            delays: group.model.delays(),
            confirmed: match &group.model {
                Params::Mqtt(mqtt) => mqtt.qos > 0,
                Params::Stream(stream) => stream.echo,
                Params::Http(_) | Params::Ping(_) => true,
                Params::Script(_) => false, // may send what it expects no answer to
            },
            target: target.to_string(),
            address,
            scheme,
            model,
            devices: group.devices,
            load: group.load.clone(),
            sources,
            connect_timeout: group.connect_timeout.ns(),
            tls,
        })
    }

    /// Where device `index` sends from.
    pub fn source(&self, index: u32) -> Option<IpAddr> {
        (!self.sources.is_empty()).then(|| self.sources[index as usize % self.sources.len()])
    }
}

fn resolve(host: &str, port: u16, ipv4: Option<bool>) -> Result<SocketAddr, String> {
    let found: Vec<SocketAddr> =
        (host, port).to_socket_addrs().map_err(|e| format!("{host:?} cannot be resolved ({e})"))?.collect();
    found
        .iter()
        .find(|a| ipv4.is_none_or(|v4| a.is_ipv4() == v4))
        .or_else(|| found.first())
        .copied()
        .ok_or_else(|| format!("{host:?} has no address"))
}
