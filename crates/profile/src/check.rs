//! What a schema cannot say: names that must refer to something, values that must fit together.

use crate::ceiling::{BURST, QUEUES};
use crate::error::{BAD_REFERENCE, BAD_VALUE, CONFLICT, OUT_OF_RANGE};
use crate::secret;
use crate::text::capital;
use crate::{Capture, Dpdk, Error, Group, Load, Port, Profile, Resolve, Role, Target, Transport, threshold};
use models::Params;
use protocol::data::Data;
use protocol::problem::{Problem, closest};
use protocol::target::Carrier;
use protocol::unit::{Interval, Size};
use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};

/// Faults that are told: who has more looks at these first.
const FAULTS: usize = 100;

/// All that is wrong with `profile`, up to so much that more would not help.
pub fn check(profile: &Profile) -> Vec<Error> {
    let (mut errors, told) = (Vec::new(), Cell::new(0));
    let mut add = |error: Option<Error>| {
        if let Some(error) = error
            && told.get() < FAULTS
        {
            told.set(told.get() + 1);
            errors.push(error);
        }
    };
    let more = || told.get() < FAULTS;

    add(name("name", &profile.name));
    if profile.phases.measure.ns() == 0 {
        add(Some(Error::new(
            OUT_OF_RANGE,
            "phases.measure",
            "the measure phase is empty",
            "Give it a length, like \"10s\"",
        )));
    }
    if !(Interval::ms(100)..=Interval::secs(60)).contains(&profile.phases.sample) {
        let what = format!("{} is no usable spacing of samples", profile.phases.sample);
        add(Some(Error::new(OUT_OF_RANGE, "phases.sample", what, "Use \"100ms\" to \"60s\"")));
    }
    if profile.groups.is_empty() && !only_answers(profile) {
        add(Some(Error::new(
            CONFLICT,
            "groups",
            "there are no groups, so nothing would be sent",
            "Add a group of devices",
        )));
    }
    let data = match profile.data.read(profile.seed) {
        Ok(data) => Some(data),
        Err(faults) => {
            faults.into_iter().for_each(|fault| add(Some(fault)));
            None
        }
    };
    let mut seen = BTreeSet::new();
    for (i, group) in profile.groups.iter().enumerate().take_while(|_| more()) {
        let at = format!("groups[{i}]");
        add(name(&format!("{at}.name"), &group.name));
        if !seen.insert(group.name.as_str()) {
            let what = format!("there are two groups called {:?}", group.name);
            add(Some(Error::new(BAD_REFERENCE, format!("{at}.name"), what, "Give each its own name")));
        }
        check_group(profile, group, data.as_ref(), &at, &mut add);
    }
    crate::ceiling::check(profile, 1.0).into_iter().for_each(|error| add(Some(error)));
    crate::clash::check(profile).into_iter().for_each(|error| add(Some(error)));
    if let Transport::Dpdk(dpdk) = &profile.transport {
        check_dpdk(profile, dpdk, &mut add);
    }
    for (key, share) in [("offered", profile.validity.offered), ("starved", profile.validity.starved)] {
        if !(0.0..=1.0).contains(&share) {
            let what = format!("{share} is not a share");
            add(Some(Error::new(OUT_OF_RANGE, format!("validity.{key}"), what, "Use 0 to 1")));
        }
    }
    for (i, threshold) in profile.thresholds.iter().enumerate().take_while(|_| more()) {
        threshold::check(profile, threshold, &format!("thresholds[{i}]"), &mut add);
    }
    if let Some(capture) = &profile.capture {
        add(check_capture(capture, "capture").err());
    }
    errors
}

/// What is wrong with what is to be captured.
pub fn check_capture(capture: &Capture, at: &str) -> Result<(), Error> {
    let wrong =
        |key: &str, what: String, fix: &str| Err(Error::new(OUT_OF_RANGE, format!("{at}.{key}"), what, fix));
    if !(64..=262_144).contains(&capture.snap) {
        return wrong(
            "snap",
            format!("{} bytes cannot be kept of a packet", capture.snap),
            "Use 64 to 262144",
        );
    }
    // What compiles a filter takes as long as its square.
    if capture.filter.len() > FILTER {
        let what = format!("a filter of {} bytes takes too long to read", capture.filter.len());
        return wrong("filter", what, "Use at most 4096 bytes");
    }
    Ok(())
}

/// Longest filter of packets.
const FILTER: usize = 4096;

/// Whether nothing is to be sent but what comes in.
fn only_answers(profile: &Profile) -> bool {
    matches!(&profile.transport, Transport::Dpdk(d) if !d.ports.is_empty() && d.ports.iter().all(|p| p.role != Role::Generator))
}

fn name(at: &str, name: &str) -> Option<Error> {
    let fine = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_');
    let ok = (1..=64).contains(&name.len()) && name.chars().all(|c| fine(c) || (c == '.' && at == "name"));
    (!ok).then(|| {
        Error::new(
            BAD_VALUE,
            at,
            format!("{name:?} cannot be a name"),
            "Use 1 to 64 letters, digits, - and _",
        )
    })
}

/// A total is of messages that the model counts, from the start of the run.
fn check_total(profile: &Profile, group: &Group, at: &str, add: &mut impl FnMut(Option<Error>)) {
    let Some(total) = group.total else { return };
    if total == 0 {
        add(Some(Error::new(OUT_OF_RANGE, at, "a total of 0 sends nothing", "Use 1 or more")));
    }
    if profile.phases.warmup.ns() > 0 {
        let what = "a load with a total has no warm-up: every message counts";
        add(Some(Error::new(CONFLICT, "phases.warmup", what, "Use \"0s\"")));
    }
    if matches!(profile.transport, Transport::Dpdk(_)) && !profile.has_devices() {
        let what = "stateless streams have no total";
        add(Some(Error::new(CONFLICT, at, what, "Leave it out, and use the model's count")));
    }
    if group.model.send_rate().is_none() {
        let what = format!("this load of {} has no messages to count", group.model.name());
        add(Some(Error::new(CONFLICT, at, what, "Leave it out")));
    }
}

fn check_group(
    profile: &Profile,
    group: &Group,
    data: Option<&Data>,
    at: &str,
    add: &mut impl FnMut(Option<Error>),
) {
    check_total(profile, group, &format!("{at}.total"), add);
    for (i, text) in group.source.iter().enumerate() {
        if let Err(what) = crate::source::expand(text) {
            let key = format!("{at}.source[{i}]");
            add(Some(Error::new(BAD_VALUE, key, what, "Use an address, a prefix, or FIRST-LAST")));
        }
    }
    let mut params = group.model.clone();
    if let Some(data) = data {
        params.set_data(data);
    }
    if let Err(problem) = params.check() {
        let problem = secret::without_secrets(&params, problem);
        let problem = problem.under(&format!("{at}.model.{}", group.model.name()));
        add(Some(Error::new(BAD_VALUE, problem.key, problem.what, capital(&problem.fix))));
    }
    match profile.target(group) {
        Err(error) => add(Some(Error { at: format!("{at}.target"), ..error })),
        Ok(target) => check_target(profile, group, &target, at, add),
    }
    check_load(group, at, add);
    crate::failover::check(profile, group, at, add);
    crate::frame::check(profile, group, at, add);
    if group.frame.is_some() && !matches!(profile.transport, Transport::Dpdk(_)) {
        let what = "kernel sockets make their own frames";
        add(Some(Error::new(
            CONFLICT,
            format!("{at}.frame"),
            what,
            "Leave it out, or use the dpdk transport",
        )));
    }
    if group.first_device > 0 && matches!(profile.transport, Transport::Dpdk(_)) && !profile.has_devices() {
        let what = "streams are no devices that are numbered";
        add(Some(Error::new(CONFLICT, format!("{at}.first_device"), what, "Leave it out")));
    }
    if group.stall.ns() == 0 {
        let what = "every answer takes some time";
        add(Some(Error::new(OUT_OF_RANGE, format!("{at}.stall"), what, "Give it a length, like \"2s\"")));
    }
    if group.connect_timeout.ns() == 0 {
        let key = format!("{at}.connect_timeout");
        add(Some(Error::new(
            OUT_OF_RANGE,
            key,
            "no connection comes up in no time",
            "Give it a length, like \"5s\"",
        )));
    }
}

fn check_target(
    profile: &Profile,
    group: &Group,
    target: &Target,
    at: &str,
    add: &mut impl FnMut(Option<Error>),
) {
    let key = format!("{at}.target");
    let scheme = match group.model.scheme(&target.scheme) {
        Ok(scheme) => scheme,
        Err(problem) => return add(Some(Error::new(CONFLICT, key, problem.what, capital(&problem.fix)))),
    };
    if scheme.carrier != Carrier::Icmp && target.port.or(scheme.port).is_none() {
        let fix = format!("Write {}://{}:PORT", target.scheme, target.host);
        add(Some(Error::new(BAD_VALUE, key.clone(), format!("{target} needs a port"), fix)));
    } else if scheme.carrier == Carrier::Icmp && target.port.is_some() {
        add(Some(Error::new(
            BAD_VALUE,
            key.clone(),
            "ICMP has no ports",
            format!("Write {}://{}", target.scheme, target.host),
        )));
    }
    let mut params = group.model.clone();
    let default = Params::default_of(group.model.name());
    let default = default.as_ref().and_then(|params| params.path());
    if let Some(path) = &target.path {
        params.set_path(path);
        match (group.model.path(), params.path()) {
            (Some(own), Some(path)) if Some(own) != default && own != path => {
                let (path, own) = (secret::query(path), secret::query(own));
                let what = format!("the target asks for {path}, the model for {own}");
                add(Some(Error::new(CONFLICT, key.clone(), what, "Leave the path out of one of them")));
            }
            (Some(_), _) => {}
            (None, _) => {
                let what = format!("{}:// has no path, and the target has one", target.scheme);
                add(Some(Error::new(BAD_VALUE, key.clone(), what, "Leave out what is behind host and port")));
            }
        }
    }
    if let Some(user) = &target.user
        && let Err(problem) = params.set_credentials(&user.name, user.password.as_deref())
    {
        let what = format!("{target} {}", problem.what);
        add(Some(Error::new(CONFLICT, key.clone(), what, capital(&problem.fix))));
    } else if group.model.check().is_ok()
        && let Err(problem) = params.check()
    {
        // what the URL brought
        let problem = secret::without_secrets(&params, problem);
        let what = format!("{target}: {} {}", problem.key, problem.what);
        add(Some(Error::new(BAD_VALUE, key.clone(), what, capital(&problem.fix))));
    }
    if group.tls.is_some() && !scheme.tls {
        let what = format!("{}:// does not use TLS", target.scheme);
        add(Some(Error::new(
            CONFLICT,
            format!("{at}.tls"),
            what,
            "Leave tls out, or use a TLS scheme in the target",
        )));
    }
    if matches!(profile.transport, Transport::Dpdk(_)) && group.resolve == Resolve::All {
        let what = "the dpdk transport sends to one address of a name";
        let fix = "Use first, v4 or v6, or a group for each address";
        add(Some(Error::new(CONFLICT, format!("{at}.resolve"), what, fix)));
    }
    if matches!(profile.transport, Transport::Dpdk(_)) && profile.has_devices() {
        let is_shared = group.model.shared_socket().is_some();
        let sockets = "or use the sockets transport";
        if scheme.is_sctp() {
            let what = "the stack over dpdk has no SCTP";
            add(Some(Error::new(CONFLICT, format!("{at}.target"), what, "Use the sockets transport")));
        }
        let found = if is_shared {
            let what = "over dpdk each device has a socket of its own".to_owned();
            Some(("model", what, format!("Leave shared sockets and connections out, {sockets}")))
        } else if group.model.has_media() {
            let what = "the dpdk transport does not carry audio of calls".to_owned();
            Some(("model", what, format!("Leave media out, {sockets}")))
        } else if group.frame.is_some() {
            let what = format!("beside devices the port's TCP/IP makes the frames of {}", group.model.name());
            Some(("frame", what, "Leave frame out, or make streams a run of their own".to_owned()))
        } else {
            None
        };
        add(found.map(|(key, what, fix)| Error::new(CONFLICT, format!("{at}.{key}"), what, fix)));
    }
}

fn check_load(group: &Group, at: &str, add: &mut impl FnMut(Option<Error>)) {
    match &group.load {
        Load::Open(open) => {
            let rates = std::iter::once(open.rate).chain(open.stages.iter().map(|s| s.rate));
            if rates.map(|r| r.0).fold(0.0, f64::max) <= 0.0 {
                let key = format!("{at}.load.open.rate");
                add(Some(Error::new(
                    OUT_OF_RANGE,
                    key,
                    "no flow ever begins at this rate",
                    "Use a rate above \"0/s\"",
                )));
            }
        }
        Load::Closed(closed) => {
            for (i, stage) in closed.stages.iter().enumerate() {
                if stage.devices > group.devices {
                    let key = format!("{at}.load.closed.stages[{i}].devices");
                    let what =
                        format!("{} devices are more than the group's {}", stage.devices, group.devices);
                    add(Some(Error::new(
                        OUT_OF_RANGE,
                        key,
                        what,
                        "Raise the group's devices, or lower the stage's",
                    )));
                }
            }
            if !closed.stages.is_empty() && closed.ramp.ns() > 0 {
                let key = format!("{at}.load.closed.ramp");
                add(Some(Error::new(
                    CONFLICT,
                    key,
                    "ramp and stages say the same thing twice",
                    "Leave one of them out",
                )));
            }
        }
    }
}

fn check_dpdk(profile: &Profile, dpdk: &Dpdk, add: &mut impl FnMut(Option<Error>)) {
    let mut names = BTreeSet::new();
    let mut cables: BTreeMap<&str, u32> = BTreeMap::new();
    if dpdk.ports.is_empty() {
        add(Some(Error::new(
            CONFLICT,
            "transport.dpdk.ports",
            "there are no ports",
            "Name at least one, like {\"name\": \"a\", \"device\": \"net_ring0\"}",
        )));
    }
    for (i, port) in dpdk.ports.iter().enumerate() {
        let at = format!("transport.dpdk.ports[{i}]");
        add(name(&format!("{at}.name"), &port.name));
        if !names.insert(port.name.as_str()) {
            let what = format!("there are two ports called {:?}", port.name);
            add(Some(Error::new(BAD_REFERENCE, format!("{at}.name"), what, "Give each its own name")));
        }
        if let Some(cable) = port.device.strip_prefix("pair:") {
            *cables.entry(cable).or_default() += 1;
        }
        add(check_forward(dpdk, port, &at));
        add(check_impair(port, &at));
        add(crate::offload::check(port, &at));
        check_port(port, &at).into_iter().for_each(|error| add(Some(error)));
    }
    for (cable, ends) in cables.iter().filter(|(_, ends)| **ends != 2) {
        let what = format!("the cable pair:{cable} has {ends} end{}", if *ends == 1 { "" } else { "s" });
        add(Some(Error::new(BAD_REFERENCE, "transport.dpdk.ports", what, "Use it on exactly two ports")));
    }
    crate::placement::check(dpdk).into_iter().for_each(|error| add(Some(error)));
    for (i, group) in profile.groups.iter().enumerate() {
        let generators = || dpdk.ports.iter().filter(|p| p.role == Role::Generator);
        let found = match &group.port {
            Some(port) => generators().any(|p| p.name == *port),
            None => generators().next().is_some(),
        };
        if !found {
            let what =
                format!("{:?} is not a port with the role generator", group.port.as_deref().unwrap_or(""));
            add(Some(Error::new(
                BAD_REFERENCE,
                format!("groups[{i}].port"),
                what,
                "Name one of transport.dpdk.ports",
            )));
        }
    }
}

/// Keys of the role l2fwd, and where its frames go.
fn check_forward(dpdk: &Dpdk, port: &Port, at: &str) -> Option<Error> {
    if port.role != Role::L2fwd {
        let key = if port.to.is_some() { "to" } else { "forward" };
        let fix = "Leave it out, or give the port \"role\": \"l2fwd\"";
        let what = "only a port with the role l2fwd hands frames on";
        return (port.to.is_some() || port.forward.is_some())
            .then(|| Error::new(CONFLICT, format!("{at}.{key}"), what, fix));
    }
    let to = port.to.as_ref()?;
    if dpdk.ports.iter().any(|other| other.name == *to && other.role == Role::L2fwd) {
        return None;
    }
    let what = format!("{to:?} is not a port with the role l2fwd");
    Some(Error::new(BAD_REFERENCE, format!("{at}.to"), what, "Name one, or leave it out to send frames back"))
}

/// What is wrong with a port by itself, whoever uses it.
pub fn check_port(port: &Port, at: &str) -> Vec<Error> {
    let mut errors = Vec::new();
    if !(1..=QUEUES).contains(&port.queues) {
        let what = format!("a port has 1 to {QUEUES} queues, not {}", port.queues);
        errors.push(Error::new(OUT_OF_RANGE, format!("{at}.queues"), what, "Use one for each worker"));
    }
    if let Some(burst) = port.burst.filter(|burst| !(1..=BURST).contains(burst)) {
        let what = format!("a burst has 1 to {BURST} packets, not {burst}");
        let fix = "Leave it out for as many as a batch has";
        errors.push(Error::new(OUT_OF_RANGE, format!("{at}.burst"), what, fix));
    }
    errors.extend(check_network(port, at));
    for (key, mac) in [("mac", &port.mac), ("peer_mac", &port.peer_mac)] {
        if let Some(mac) = mac.as_ref().filter(|m| crate::parse_mac(m).is_none()) {
            let what = format!("{mac:?} is not a MAC address");
            let fix = "Write it like \"02:00:00:00:00:01\"";
            errors.push(Error::new(BAD_VALUE, format!("{at}.{key}"), what, fix));
        }
    }
    errors
}

/// What makes the port a neighbour of others: its VLANs and its gateway.
fn check_network(port: &Port, at: &str) -> Vec<Error> {
    let mut errors = Vec::new();
    let mut error = |code, key: &str, what: String, fix: &str| {
        errors.push(Error::new(code, format!("{at}.{key}"), what, fix));
    };
    let ids = port.vlan.ids();
    if let Some(id) = ids.iter().find(|id| !(1..=4094).contains(*id)) {
        error(OUT_OF_RANGE, "vlan", format!("{id} is no VLAN"), "Use 1 to 4094");
    }
    if ids.len() > 2 {
        let what = format!("{} tags are more than a port puts before its frames", ids.len());
        error(OUT_OF_RANGE, "vlan", what, "Use one VLAN, or two for QinQ");
    }
    if let Some(mtu) = port.mtu.filter(|mtu| !(576..=9600).contains(mtu)) {
        error(OUT_OF_RANGE, "mtu", format!("{mtu} is out of range"), "Use 576 to 9600");
    }
    if port.tcp.keep_alive.is_some_and(|every| every < Interval::secs(1)) {
        error(OUT_OF_RANGE, "tcp.keep_alive", "shorter than 1s".to_owned(), "Use 1s or more");
    }
    if let Some(mss) = port.tcp.mss.filter(|mss| !(88..=9560).contains(mss)) {
        error(OUT_OF_RANGE, "tcp.mss", format!("{mss} is out of range"), "Use 88 to 9560");
    }
    if let Some(Size(bytes)) = port.tcp.window.filter(|window| !(2 << 10..=64 << 20).contains(&window.0)) {
        error(OUT_OF_RANGE, "tcp.window", format!("{bytes} B is out of range"), "Use 2KiB to 64MiB");
    }
    if port.role == Role::L2fwd && !ids.is_empty() {
        let what = "a port with the role l2fwd hands frames on as they are".to_owned();
        error(CONFLICT, "vlan", what, "Leave it out");
    }
    let own = port.ip.0.iter().map(|address| address.ip).collect();
    for (key, all) in [("ip", own), ("gateway", port.gateway.0.clone())] {
        let v4 = all.iter().filter(|ip| ip.is_ipv4()).count();
        if v4 > 1 || all.len() - v4 > 1 {
            let what =
                "a port has one IPv4 and one IPv6 address at most, and one gateway for each".to_owned();
            error(CONFLICT, key, what, "Give further addresses as the source of a group");
        }
    }
    if port.gateway.is_empty() {
        return errors;
    }
    if port.role != Role::Generator {
        let what = "only a port with the role generator has targets, and needs a way to them".to_owned();
        error(CONFLICT, "gateway", what, "Leave it out");
        return errors;
    }
    if port.peer_mac.is_some() {
        let what = "peer_mac says already where frames go".to_owned();
        error(CONFLICT, "gateway", what, "Leave one of them out");
        return errors;
    }
    for gateway in &port.gateway.0 {
        let Some(own) = port.ip.matching_family(*gateway).filter(|own| own.prefix.is_some()) else {
            let what = format!("no address of the port says which targets are behind the gateway {gateway}");
            error(
                CONFLICT,
                "ip",
                what,
                "Write it with the prefix length of its network, like \"10.0.0.1/24\"",
            );
            continue;
        };
        if *gateway == own.ip || !own.reaches(*gateway) {
            let what = format!("{gateway} is no neighbour of {own}");
            error(CONFLICT, "gateway", what, "Give the router's address in the port's own network");
        }
    }
    errors
}

/// What happens to frames that come in.
fn check_impair(port: &Port, at: &str) -> Option<Error> {
    let wrong = |problem: Problem| Error::new(BAD_VALUE, problem.key, problem.what, capital(&problem.fix));
    if let (None, Some(_)) = (&port.impair, &port.impair_timeline) {
        let what = "nothing is there that could change";
        return Some(Error::new(
            CONFLICT,
            format!("{at}.impair_timeline"),
            what,
            "Give impair, what holds at first",
        ));
    }
    let first = port
        .impair
        .as_ref()
        .and_then(|impair| impair.check().err())
        .map(|p| p.under(&format!("{at}.impair")));
    let later = || {
        let wrong = port.impair_timeline.as_ref()?.check().err()?;
        Some(wrong.under(&format!("{at}.impair_timeline")))
    };
    first.or_else(later).map(wrong)
}

impl Profile {
    /// Whether it has devices with a state of their own, and not stateless streams only. Over DPDK all groups are devices then.
    pub fn has_devices(&self) -> bool {
        self.groups.iter().any(|group| group.model.stateless().is_none())
    }

    /// Where `group`'s load goes: one of the profile's targets by name, or a URL in its place.
    pub fn target(&self, group: &Group) -> Result<Target, Error> {
        if let Some(target) = self.targets.get(&group.target) {
            return Ok(target.clone());
        }
        if group.target.contains("://") {
            return group.target.parse().map_err(|e: String| {
                let (what, fix) = e.split_once("; ").unwrap_or((&e, ""));
                Error::new(BAD_VALUE, "", what, capital(fix))
            });
        }
        let fix = match closest(&group.target, self.targets.keys().map(String::as_str)) {
            Some(near) => format!("Did you mean {near:?}?"),
            None => "Name one of the profile's targets, or give a URL".to_owned(),
        };
        Err(Error::new(BAD_REFERENCE, "", format!("there is no target {:?}", group.target), fix))
    }
}
