//! What a graph says of a NAT's sessions, and what each of several workers has of them.

use crate::addresses;
use crate::addressing::Links;
use crate::behaviour::{IdleTimes, PortForward, exemptions};
use crate::division::{share, steered};
use crate::filter_config::{self, AclRule};
use crate::log::{Log, LogOptions};
use crate::nat44::{DROPS, Nat44, OUTPUTS};
use crate::owner::Owner;
use crate::pcp::{Answers, PcpOptions};
use crate::public::PublicAddresses;
use crate::session_retention::SessionRetention;
use crate::shared::Shared;
use crate::sites::SiteOptions;
use crate::state::{Header, Keeper, StateError, Survey, may_put_aside, restore};
use crate::subscriber_table::most_subscribers;
use crate::tracker_pair::TrackerPair;
use ::element::interface_addr::InterfaceAddrs;
use ::element::kind::{Build, ElementKind, MakeAffinity};
use dpdk::{Claim, ClaimError};
use engine::{Clock, Element};
use nat_core::config::{Addresses, ConfigError, Filtering, IpOptions, Mtu, PoolAddress, StaticForward};
use nat_core::{Config, Ownership};
use nat_pair::{Pair, PairOptions, Terms, term};
use profile::{Address, Error};
use protocol::problem::Problem;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::net::{IpAddr, Ipv4Addr};
use std::path::Path;
use std::sync::Arc;

pub use crate::control::KIND;

/// What is said where another try may do, and what to do then.
const NOT_NOW: &str = "ND-92-45";
const LATER: &str = "Start it again when the other is well; `netdyno nat pair` shows how it is";

/// What to do where forwards of one subscriber go to several workers.
const ONE_WORKER: &str = "Give all its forwards ports of one outside address, of a pool of as many addresses as workers; or use one worker";

/// Addresses that a reload may add to those of the beginning: as many again, within these bounds. Each takes memory once it is used,
/// up to 74 kB.
const LEAST_ROOM: usize = 256;
const MOST_ROOM: usize = 4_096;

/// Says of each worker's NAT what options do not: for who starts a graph with it among [`element::kind::Extensions`].
pub struct Adjust(pub Box<dyn Fn(&mut Config)>);

/// How several workers divide subscribers among them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Steering {
    /// By a keyed hash of address and VLAN tags. What a port gives to another worker's queue is handed on.
    #[default]
    Hash,
    /// By address, as an inside port with `rss: source` steers what it receives; a pool of enough addresses likewise, as an outside port
    /// with `rss: destination` does. Whoever has the same address in other VLANs is with the same worker.
    Rss,
}

impl Steering {
    fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

/// The sessions of a carrier-grade NAT (RFC 6888) between two ports. Packets from the inside come to it from a `nat`, those from the
/// outside from a `validity`. Several of it, with the affinity `owner`, have an equal share each of the pool and of the room.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Options {
    /// The port towards the subscribers. Its address is their gateway.
    pub inside: String,
    /// The port towards the rest of the world.
    pub outside: String,
    /// Outside addresses, or prefixes of them. Either this or `sites`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub pool: Vec<Address>,
    /// In place of a pool: each site has an address of its own, that `nat-sites` gets by DHCP. Several workers divide the sites.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sites: Option<SiteOptions>,
    /// Who is a subscriber. Default: the private addresses of RFC 1918 and RFC 6598.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub subscribers: Vec<Address>,
    /// Sessions there may be: 64 bytes each, and about 40 more in tables. Default 1048576.
    #[serde(default = "sessions")]
    pub sessions: usize,
    /// Subscribers there may be. Default 16384.
    #[serde(default = "most_subscribers")]
    pub most_subscribers: usize,
    /// Ports of a block: a power of two from 64 to 16384. Default 512.
    #[serde(default = "ports_per_block")]
    pub ports_per_block: u16,
    /// Port blocks that a subscriber may have, up to 8. Default 4.
    #[serde(default = "blocks_per_subscriber")]
    pub blocks_per_subscriber: u8,
    /// Sessions that a subscriber may have. Default 8192.
    #[serde(default = "sessions_per_subscriber")]
    pub sessions_per_subscriber: u32,
    /// Who may answer to a UDP mapping (RFC 4787 section 5). Default endpoint_independent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub udp_filtering: Option<Filtering>,
    /// Who may answer to a TCP mapping (RFC 5382 REQ-3). Default address_and_port_dependent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tcp_filtering: Option<Filtering>,
    /// Outside endpoints that always lead to inside ones.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub forwards: Vec<PortForward>,
    /// Destinations that are forwarded untranslated (RFC 6888 REQ-6). Subscribers with one address in several VLANs cannot both speak
    /// to them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub exempt: Vec<Address>,
    /// A prefix of subscribers whose address and ports follow from their own address alone (RFC 7422), so that nothing need be
    /// logged. One worker only. Default: ports are drawn.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deterministic: Option<Address>,
    /// How several workers divide subscribers. Default hash.
    #[serde(default, skip_serializing_if = "Steering::is_default")]
    pub steering: Steering,
    /// Idle times after which sessions are over.
    #[serde(default, skip_serializing_if = "IdleTimes::is_default")]
    pub timeouts: IdleTimes,
    /// Where sessions and port blocks are logged. Default: nowhere.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub log: Option<LogOptions>,
    /// Let subscribers ask for mappings by PCP (RFC 6887) at the inside port's address. Default: they cannot.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pcp: Option<PcpOptions>,
    /// Rules for packets that begin something, in order: the first that a packet matches decides. One that matches none is permitted.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub acl: Vec<AclRule>,
    /// Packets with which IP options are forwarded. Default no_source_route.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ip_options: Option<IpOptions>,
    /// Prefixes in the subscribers' space that are reached by the outside port. Default: none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub outside_prefixes: Vec<Address>,
    /// Addresses that no host has: network and broadcast addresses of the ports' networks. Default: none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub non_host_addresses: Vec<Ipv4Addr>,
    /// The largest MSS that a SYN may ask for. Default: as it asks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mss: Option<u16>,
    /// A file, from the root on, in which sessions and port blocks are kept over a restart: it is written when the graph ends, and
    /// read when it begins. Default: they end with the graph.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state: Option<String>,
    /// Another NAT of this machine that knows the sessions of this one and takes over when it ends, dies or hangs. Default: none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pair: Option<PairOptions>,
}

fn sessions() -> usize {
    1 << 20
}

fn ports_per_block() -> u16 {
    512
}

fn blocks_per_subscriber() -> u8 {
    4
}

fn sessions_per_subscriber() -> u32 {
    8192
}

impl Options {
    /// As the NAT takes it, if there is one worker.
    fn config(&self) -> Config {
        let mut config = Config {
            pool: addresses::all(&self.pool).map(PoolAddress::all_ports).collect(),
            sites: self.sites.as_ref().map(SiteOptions::config),
            sessions: self.sessions,
            subscribers: self.most_subscribers,
            ports_per_block: self.ports_per_block,
            blocks_per_subscriber: self.blocks_per_subscriber,
            sessions_per_subscriber: self.sessions_per_subscriber,
            mss: self.mss,
            packet_filter: filter_config::packet_filter(
                &self.acl,
                self.ip_options,
                &self.outside_prefixes,
                &self.non_host_addresses,
            ),
            // Nobody reads them without a log.
            events: 0,
            ..Config::default()
        };
        if !self.subscribers.is_empty() {
            config.inside = addresses::prefixes(&self.subscribers);
        }
        let filtering = &mut config.filtering;
        filtering.udp = self.udp_filtering.unwrap_or(filtering.udp);
        filtering.tcp = self.tcp_filtering.unwrap_or(filtering.tcp);
        config.static_forwards = self.forwards.iter().map(Into::into).collect();
        config.exempt = exemptions(&self.exempt);
        config.deterministic = self.deterministic.as_slice().iter().find_map(addresses::prefix);
        config.timeouts = self.timeouts.over(config.timeouts);
        if let Some(log) = &self.log {
            log.configure(&mut config);
        }
        config
    }

    /// What each of `count` workers has of the pool in the beginning.
    fn divided(&self, count: usize) -> Vec<Vec<PoolAddress>> {
        let pool: Vec<_> = addresses::all(&self.pool).map(PoolAddress::all_ports).collect();
        let steered = steered(&pool, count).filter(|_| self.steering == Steering::Rss);
        steered.unwrap_or_else(|| (0..count).map(|i| share(&pool, self.ports_per_block, i, count)).collect())
    }

    /// How many addresses each of `count` workers may get beside those that it has in the beginning, while packets pass.
    fn room(&self, count: usize) -> usize {
        if self.sites.is_some() || self.deterministic.is_some() || self.pair.is_some() {
            return 0;
        }
        let pool = addresses::all(&self.pool).count();
        pool.clamp(LEAST_ROOM, MOST_ROOM).div_ceil(count)
    }

    /// As worker `index` of `count` takes it in the beginning, and who of them owns what by the secret `divided`.
    pub(crate) fn config_of(
        &self,
        index: usize,
        count: usize,
        seed: [u8; 32],
        divided: [u8; 32],
    ) -> Result<(Config, Ownership), Problem> {
        self.config_with(&self.divided(count), index, seed, divided)
    }

    /// The same where each worker has of the pool what `pools` say.
    pub(crate) fn config_with(
        &self,
        pools: &[Vec<PoolAddress>],
        index: usize,
        seed: [u8; 32],
        divided: [u8; 32],
    ) -> Result<(Config, Ownership), Problem> {
        let (mut config, count) = (self.config(), pools.len());
        if count > 1 && config.deterministic.is_some() {
            let what = "several workers cannot divide it";
            return Err(Problem::new("deterministic", what, "Use one worker, or leave it out"));
        }
        let (by_rss, room) = (self.steering == Steering::Rss, self.room(count));
        // Addresses of the beginning may all have made room for others.
        let later = config.pool.len() + room * count;
        let mut ownership = match config.sites {
            None if by_rss => Ownership::by_rss(pools).with_room(later, divided),
            None => Ownership::new(pools, divided).with_room(later, divided),
            Some(sites) => Ownership::of_sites(sites, count, divided),
        };
        ownership = ownership.with_untranslated(self.most_subscribers, divided);
        ownership.assign_forwards(&config.static_forwards).map_err(|wrong| {
            let at = config.static_forwards.iter().position(|one| *one == wrong).unwrap_or(0);
            let what = "its subscriber has another forward, to ports that another worker has";
            Problem::new(format!("forwards[{at}].outside"), what, ONE_WORKER)
        })?;
        let is_ours = |forward: &StaticForward| ownership.endpoint(forward.outside_endpoint()) == Some(index);
        config.static_forwards.retain(is_ours);
        config.seed = seed;
        config.pool = pools.get(index).cloned().unwrap_or_default();
        config.pool_room = room;
        config.sessions = self.sessions.div_ceil(count);
        config.subscribers = self.most_subscribers.div_ceil(count);
        Ok((config, ownership))
    }

    /// Be one of a pair. By which secret workers divide subscribers: as those of the other NAT.
    fn begin_pair(
        &self,
        pair: &PairOptions,
        cx: &mut Build<'_>,
        count: usize,
        sides: [&InterfaceAddrs; 2],
    ) -> Result<[u8; 32], Error> {
        let shared = Shared::of(cx)?;
        if let Some(pair) = &shared.pair {
            return Ok(pair.seed);
        }
        let (duty, gateway, seed) = (Arc::clone(&shared.duty), Arc::clone(&shared.gateway), shared.seed);
        if !Path::new(&pair.socket).parent().is_some_and(Path::is_dir) {
            return Err(cx.fault("pair.socket", "its folder is not there"));
        }
        let begun = Pair::begin(pair, self.terms(pair, count, sides), count, seed, (duty, gateway));
        let begun = begun.map_err(|why| match why.passes() {
            true => Error::new(NOT_NOW, format!("elements.{}.pair.socket", cx.name), why.to_string(), LATER),
            false => cx.fault("pair.socket", &why.to_string()),
        })?;
        let seed = begun.seed;
        Shared::of(cx)?.pair = Some(Arc::new(begun));
        Ok(seed)
    }

    /// What both NATs of a pair have to have alike. What may change by a reload is not among it.
    fn terms(&self, pair: &PairOptions, workers: usize, sides: [&InterfaceAddrs; 2]) -> Terms {
        let all = [
            ("pool", term(&self.pool)),
            ("subscribers", term(&self.subscribers)),
            ("ports_per_block", term(&self.ports_per_block)),
            ("deterministic", term(&self.deterministic)),
            ("pair.silence", term(&pair.silence)),
            ("workers", term(&workers)),
            ("steering", term(&self.steering)),
            // Who takes over goes on with the other's log.
            ("log", LogOptions::knowledge(self.log.as_ref())),
            ("inside.ip", term(&ipv4(sides[0]))),
            ("outside.ip", term(&ipv4(sides[1]))),
        ];
        all.into_iter().map(|(key, sum)| (key.to_owned(), sum)).collect()
    }

    /// The right to the interfaces of the ports: of two NATs on one each would answer for the other's packets.
    fn claims(&self, cx: &Build<'_>) -> Result<Vec<Claim>, Error> {
        let mut claims = Vec::new();
        for key in ["inside", "outside"] {
            let name = if key == "inside" { &self.inside } else { &self.outside };
            let (_, port) = cx.port(key, name)?;
            if port.interface == 0 {
                continue;
            }
            match Claim::of(port.interface, "nat") {
                Ok(claim) => claims.push(claim),
                Err(why) => {
                    let what = match why {
                        ClaimError::Taken(process) => {
                            format!("another NAT, process {process}, has opened it")
                        }
                        ClaimError::System(why) => format!("it cannot be claimed: {why}"),
                    };
                    let fix = "End that NAT, or use another device; `netdyno nat status` shows what runs";
                    return Err(Error::new("ND-92-12", format!("ports.{name}.device"), what, fix));
                }
            }
        }
        Ok(claims)
    }

    /// Look for what was kept, and let somebody keep what there will be. By which secret workers divide subscribers: as before.
    fn begin_state(&self, shared: &mut Shared, count: usize) -> Result<[u8; 32], String> {
        let Some(path) = self.state.as_deref().map(Path::new) else { return Ok(shared.seed) };
        if shared.keeper.is_none() {
            let survey = Survey::of(path);
            match &survey {
                Ok(_) | Err(StateError::None) => {}
                // What is not its own would be moved, and in the end be replaced.
                Err(why) if !why.is_own() => return Err(format!("{}: {why}", path.display())),
                Err(why) => tracing::warn!("{}: {why}; the NAT begins without it", path.display()),
            }
            may_put_aside(path).map_err(|why| format!("{}.old: {why}", path.display()))?;
            shared.survey = survey.ok();
            let seed = shared.survey.as_ref().map_or(shared.seed, |survey| survey.header.seed);
            let log = Some(LogOptions::knowledge(self.log.as_ref()));
            let header = Header { workers: count as u32, written_ms: 0, seed, log };
            shared.keeper = Some(Arc::new(Keeper::new(path, header, shared.endings.clone())));
        }
        Ok(shared.survey.as_ref().map_or(shared.seed, |survey| survey.header.seed))
    }
}

/// What is wrong with the NAT's configuration, by the keys of the options.
fn problem(fault: &ConfigError) -> Problem {
    let said = fault.to_string();
    let (key, what) = said.split_once(": ").unwrap_or(("pool", &said));
    let (key, fix) = match fault {
        ConfigError::Forward { at, .. } => {
            (format!("forwards[{at}]"), "Correct it, or leave it out".to_owned())
        }
        ConfigError::Short { .. } => (key.to_owned(), "Use that or more".to_owned()),
        ConfigError::Long { .. } => (key.to_owned(), "Use that or less".to_owned()),
        ConfigError::Range { least, most, .. } => (key.to_owned(), format!("Use {least} to {most}")),
        _ => (key.to_owned(), "See docs/reference/elements.md".to_owned()),
    };
    Problem::new(key, what, fix)
}

impl ElementKind for Options {
    const KIND: &'static str = KIND;
    const DROPS: &'static [&'static str] = &DROPS;
    const REPLICABLE: bool = true;
    const OWNED: bool = true;
    const EXAMPLE: &'static str = r#"{"inside": "a", "outside": "b", "pool": ["203.0.113.16/28"]}"#;

    fn check(&self) -> Vec<Problem> {
        let mut problems = addresses::problems("pool", &self.pool);
        let sites = self.sites.iter().flat_map(SiteOptions::check);
        problems.extend(sites.map(|problem| problem.under("sites")));
        if self.sites.is_some() && !self.pool.is_empty() {
            let what = "there is a pool, and addresses of sites in place of it";
            problems.push(Problem::new("sites", what, "Use one of both"));
        }
        problems.extend(addresses::not_ipv4("exempt", &self.exempt));
        if self.deterministic.is_some_and(|own| addresses::prefix(&own).is_none()) {
            problems.push(Problem::new("deterministic", "it is no IPv4 prefix", "Use one like 10.0.0.0/22"));
        }
        problems.extend(addresses::not_ipv4("subscribers", &self.subscribers));
        problems.extend(filter_config::problems(&self.acl));
        problems.extend(addresses::not_ipv4("outside_prefixes", &self.outside_prefixes));
        let log = self.log.iter().flat_map(LogOptions::check);
        problems.extend(log.map(|problem| problem.under("log")));
        let pcp = self.pcp.iter().flat_map(PcpOptions::check);
        problems.extend(pcp.map(|problem| problem.under("pcp")));
        if let Some(file) = self.state.as_ref().filter(|file| !file.starts_with('/')) {
            let what = format!("{file:?} is no path from the root on");
            problems.push(Problem::new("state", what, "Use one like /var/lib/netdyno/cgn.state"));
        }
        if self.steering == Steering::Rss && self.sites.is_some() {
            let what = "sites are divided by what tells one from another, not by addresses";
            problems.push(Problem::new("steering", what, "Leave one of steering and sites out"));
        }
        if self.state.is_some() && self.sites.is_some() {
            let what = "addresses of sites are assigned anew after a restart, so no session can go on";
            problems.push(Problem::new("state", what, "Leave one of state and sites out"));
        }
        let pair = self.pair.iter().flat_map(PairOptions::check);
        problems.extend(pair.map(|problem| problem.under("pair")));
        for (key, there, why) in [
            ("sites", self.sites.is_some(), "addresses of sites are those of one NAT's DHCP client"),
            ("state", self.state.is_some(), "the other NAT of a pair has the sessions"),
        ] {
            if self.pair.is_some() && there {
                problems.push(Problem::new("pair", why, format!("Leave one of pair and {key} out")));
            }
        }
        if self.inside == self.outside {
            let what = "inside and outside are the same port";
            problems.push(Problem::new("outside", what, "Give each side a port of its own"));
        }
        if problems.is_empty() {
            problems.extend(self.config().faults().iter().map(problem));
        }
        problems
    }

    fn check_replicas(&self, count: usize) -> Vec<Problem> {
        // By any secret: a forward's endpoint has its worker by the pool alone.
        self.config_of(0, count, [0; 32], [0; 32]).err().into_iter().collect()
    }

    fn outputs(&self) -> Vec<String> {
        OUTPUTS.map(str::to_owned).to_vec()
    }

    fn ports(&self) -> Vec<(&'static str, &str)> {
        vec![("inside", &self.inside), ("outside", &self.outside)]
    }

    fn files(&mut self) -> Vec<(&'static str, &mut String)> {
        let socket = self.pair.iter_mut().map(|pair| ("pair.socket", &mut pair.socket));
        self.state.iter_mut().map(|file| ("state", file)).chain(socket).collect()
    }

    fn owner(&self, cx: &mut Build<'_>) -> Result<Option<MakeAffinity>, Error> {
        Ok(Some(Owner::maker(Shared::of(cx)?)))
    }

    fn build(&self, cx: &mut Build<'_>) -> Result<Box<dyn Element>, Error> {
        let (inside, outside) = (cx.port("inside", &self.inside)?, cx.port("outside", &self.outside)?);
        let mtu = Mtu { inside: inside.1.mtu, outside: outside.1.mtu };
        let sides = [inside, outside].map(|(number, port)| (number as u16, port.addrs.clone()));
        let (replica, replicas, name) = (cx.replica, cx.replicas.max(1), cx.name.to_owned());
        let folder = self.state.as_ref().map(|file| Path::new(file).parent());
        if folder.is_some_and(|folder| !folder.is_some_and(Path::is_dir)) {
            return Err(cx.fault("state", "its folder is not there"));
        }
        let shared = Shared::of(cx)?;
        let is_ours = shared.is_nat44(&name);
        let Some(end) = shared.session_end(replica).filter(|_| is_ours) else {
            return Err(cx.fault("inside", "a graph can have one NAT, and this is another"));
        };
        let neighbours = shared.neighbours(replica);
        let agree = self.sites.is_none_or(|sites| shared.agree(sites.config()));
        let slots = |sites: SiteOptions| {
            Some(PublicAddresses::new(sites.most, replica, shared.slot_end(replica, replicas)?))
        };
        let told = self.sites.and_then(slots);
        let links = Links { gateway: Arc::clone(&shared.gateway), neighbours, end, sites: told };
        let seed = shared.seed;
        if !agree {
            return Err(cx.fault("sites", "nat-sites has it otherwise"));
        }
        let divided = match &self.pair {
            Some(pair) => self.begin_pair(pair, cx, replicas, [&sides[0].1, &sides[1].1])?,
            None => self.begin_state(Shared::of(cx)?, replicas).map_err(|why| cx.fault("state", &why))?,
        };
        let (mut config, mut ownership) =
            self.config_of(replica, replicas, seed, divided).map_err(|why| cx.fault(&why.key, &why.what))?;
        config.mtu = mtu;
        config.addresses = Addresses { inside: ipv4(&sides[0].1), outside: ipv4(&sides[1].1) };
        if let Some(Adjust(adjust)) = cx.extensions.get_mut() {
            adjust(&mut config);
        }
        let shared = Shared::of(cx)?;
        // The first says it; the others would say the same.
        if shared.ownership.get().is_none() {
            if let Some(survey) = &shared.survey {
                let _said = shared.bound.set(survey.settle(&mut ownership, replicas, config.subscribers));
            }
            let _said = shared.ownership.set((sides[0].0, ownership));
        }
        let kept = SessionRetention::of(shared, replica);
        let untranslated =
            shared.ownership.get().and_then(|(_, ownership)| ownership.untranslated().cloned());
        let endings = shared.endings.clone();
        let log = self.log.as_ref().map(|log| Log::start(log, replica as u32, &endings)).transpose();
        let log = log.map_err(|why| cx.fault("log", &why.to_string()))?;
        let pool = cx.pool.clone();
        let sides = [(sides[0].0, &sides[0].1), (sides[1].0, &sides[1].1)];
        let pcp = match (&self.pcp, config.addresses.inside) {
            (Some(options), Some(own)) => {
                Some(Answers::new(options, own, &sides[0].1.bare().tags, replica == 0))
            }
            (Some(_), None) => return Err(cx.fault("pcp", "the inside port has no IPv4 address")),
            (None, _) => None,
        };
        let made = Nat44::new(config, sides, links, log, pool);
        let made = made.map_err(|why| cx.fault("sessions", &why.to_string()))?;
        let wanted = (made.nat().memory().total() * replicas) as u64;
        if let Some(free) = element::memory::available().filter(|free| *free < wanted) {
            let why =
                format!("their tables take {} MiB of memory, and {} MiB are free", wanted >> 20, free >> 20);
            return Err(cx.fault("sessions", &why));
        }
        let claims = if replica == 0 { self.claims(cx)? } else { Vec::new() };
        let mut made = made.with_pcp(pcp).with_claims(claims);
        if let Some(untranslated) = untranslated {
            made.nat_mut().share_untranslated(&untranslated);
        }
        made.keep(kept, |nat, log| {
            let shared = Shared::of(cx).ok()?;
            let (survey, (_, ownership)) = (shared.survey.as_ref()?, shared.ownership.get()?);
            let bound = shared.bound.get()?.get(replica)?;
            let knows = LogOptions::knowledge(self.log.as_ref());
            let log = (log, survey.header.log.is_some_and(|before| before != knows));
            Some((restore(survey, (replica, ownership), bound, nat, log, Clock::get().now()), bound.clone()))
        });
        let shared = Shared::of(cx)?;
        if let Some(pair) = shared.pair.clone() {
            let (asker, vlans) = (shared.binding_asker(replica), shared.vlans.teller());
            made.join(|nat| {
                let ends = (pair.worker(replica)?, asker?, vlans);
                Some(TrackerPair::new(Arc::clone(&pair), ends, nat))
            });
        }
        Ok(Box::new(made))
    }
}

/// A port's own IPv4 address.
fn ipv4(addrs: &InterfaceAddrs) -> Option<Ipv4Addr> {
    addrs.own().iter().find_map(|own| match own.ip {
        IpAddr::V4(ip) => Some(ip),
        IpAddr::V6(_) => None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use nat_core::Endpoint;
    use packet::rss;

    #[test]
    fn workers_own_what_rss_steers_to_them() {
        let of = |pool: &str, workers| {
            let options = format!(
                r#"{{"inside": "a", "outside": "b", "pool": {pool}, "steering": "rss", "forwards": [
                    {{"protocol": "tcp", "outside": "203.0.113.17:80", "inside": "10.0.0.9:80"}}]}}"#
            );
            let options: Options = serde_json::from_str(&options).unwrap();
            assert!(options.check().is_empty());
            (0..workers).map(|i| options.config_of(i, workers, [7; 32], [8; 32]).unwrap()).collect::<Vec<_>>()
        };
        for workers in 2..6 {
            for (i, (config, ownership)) in of(r#"["203.0.113.16/28"]"#, workers).iter().enumerate() {
                assert!((16 / workers..=16_usize.div_ceil(workers)).contains(&config.pool.len()));
                for own in &config.pool {
                    assert_eq!(rss::queue_of(own.address, workers), i);
                    assert_eq!(ownership.outside(Endpoint::new(own.address.to_bits(), 2000)), Some(i));
                }
                for inside in (0x0a00_0100..0x0a00_0400_u32).step_by(7) {
                    for realm in [0, 1] {
                        assert_eq!(ownership.subscriber(inside, realm), rss::queue(inside, workers));
                    }
                }
                // Who has a forward is with its address, wherever its own packets come in.
                let forwards = rss::queue_of(Ipv4Addr::new(203, 0, 113, 17), workers);
                assert_eq!(ownership.subscriber(0x0a00_0009, 0), forwards);
            }
        }
        // These are all of one worker by their last bit: they are divided otherwise, evenly.
        let uneven = of(r#"["203.0.113.17", "203.0.113.19", "203.0.113.21", "203.0.113.23"]"#, 2);
        assert!(uneven.iter().all(|(config, _)| config.pool.len() == 2));
    }

    #[test]
    fn what_several_workers_cannot_divide_is_told() {
        let of = |more: &str| {
            let options =
                format!(r#"{{"inside": "a", "outside": "b", "pool": ["203.0.113.16/31"], {more}}}"#);
            serde_json::from_str::<Options>(&options).unwrap()
        };
        let forwards = |second: &str| {
            let one = |outside: &str, port: u16| {
                format!(r#"{{"protocol": "udp", "outside": "{outside}", "inside": "10.0.0.7:{port}"}}"#)
            };
            of(&format!(r#""forwards": [{}, {}]"#, one("203.0.113.16:5060", 5060), one(second, 5061)))
        };
        let wrong = |options: &Options, count| {
            options.check_replicas(count).iter().map(|problem| problem.key.clone()).collect::<Vec<_>>()
        };
        let apart = forwards("203.0.113.17:5061");
        assert_eq!((wrong(&apart, 1), wrong(&apart, 2)), (vec![], vec!["forwards[1].outside".to_owned()]));
        assert_eq!(wrong(&forwards("203.0.113.16:5061"), 2), Vec::<String>::new());
        let deterministic = of(r#""deterministic": "10.0.0.0/22""#);
        assert_eq!(wrong(&deterministic, 2), ["deterministic"]);
    }

    #[test]
    fn what_a_worker_has_is_a_right_configuration() {
        let options = r#"{"inside": "a", "outside": "b", "pool": ["203.0.113.16/31"], "sessions": 1000}"#;
        let options: Options = serde_json::from_str(options).unwrap();
        for i in 0..3 {
            let (config, ownership) = options.config_of(i, 3, [7; 32], [8; 32]).unwrap();
            config.check().unwrap();
            assert_eq!(config.sessions, 334);
            for own in &config.pool {
                let endpoint = Endpoint::new(own.address.to_bits(), *own.ports.start());
                assert_eq!(ownership.endpoint(endpoint), Some(i));
            }
        }
    }
}
