//! The box itself, on one of its ports: it answers for its addresses, and those of the pool, and asks where the router is. What is
//! for the box and not answered here may go to the host's kernel.

use crate::address_removal::{self, AddressRemovals};
use crate::addresses;
use crate::announce::{Announcer, NewAddresses};
use crate::arp::{Query, Resolver, Route};
use crate::exception::{self, Part};
use crate::link;
use crate::origin::{Origins, SourceFault, Sources};
use crate::shared::Shared;
use ::element::interface_addr::{AddressQuery, InterfaceAddr, InterfaceAddrs};
use ::element::kind::{Build, ElementKind};
use dpdk::{Batch, Mbuf, Mempool};
use engine::{Cx, Element, ElementInfo, Mail, Request};
use nat_core::neighbours::Neighbour;
use packet::ethernet::{self, Tags, kind};
use packet::ipv4;
use profile::{Address, Error};
use protocol::problem::Problem;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::sync::mpsc::Receiver;

/// The kind of elements that understand [`AddressUpdate`].
pub const KIND: &str = "nat-host";
const DROPS: [&str; 8] = [
    "not_for_us",
    "segmented",
    "standby",
    "martian_source",
    "spoofed_source",
    "not_inside",
    "own_destination",
    "fragmented",
];
/// With a kernel for the box's own address.
const OUTPUTS: [&str; 3] = ["out", "host", "resolution"];
const HOST: usize = 1;
const RESOLUTION: usize = 2;
const NOT_FOR_US: usize = 0;
const SEGMENTED: usize = 1;
const STANDBY: usize = 2;
const MARTIAN_SOURCE: usize = 3;
const SPOOFED_SOURCE: usize = 4;
const NOT_INSIDE: usize = 5;
const OWN_DESTINATION: usize = 6;
const FRAGMENTED: usize = 7;

/// Time between two questions for the router's address, ns: while it is unknown, and to learn that it is another one.
const ASK: u64 = 1_000_000_000;
const ASK_AGAIN: u64 = 30 * ASK;
/// Bytes of a question, and of the shortest frame.
const QUESTION: usize = 60;
/// How many subscribers that are to be asked for are taken in one turn.
const QUERIES: usize = 64;

/// A NAT's own addresses on a port: answers ARP, neighbour discovery and echo for them, and ARP for those of the pool. Towards the
/// outside it asks for the router's Ethernet address, to which everything is sent; towards the inside for those of silent subscribers. With `host` the port's own address is the
/// kernel's of this host: what is for it leaves by `host`, and ARP and neighbour discovery by `resolution`. An echo request in fragments
/// is answered by a kernel alone.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Options {
    /// The port.
    pub port: String,
    /// Addresses, or prefixes of them, that it answers ARP for besides the port's own: those of the pool.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub answers_for: Vec<Address>,
    /// The router that everything goes to. Default: there is none on this port.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gateway: Option<Ipv4Addr>,
    /// Prefixes of subscribers that are on this port's link, in whatever VLAN. Who of them is spoken to from outside before it has sent
    /// anything is asked for by ARP. Default: nobody is asked for.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub on_link: Vec<Address>,
    /// Networks behind routers on this port's link: who is there is reached by the router. Default: none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub routes: Vec<RouteOption>,
    /// Whether the host's kernel has the port's own address, and answers for it in the port's VLAN. Without a VLAN that is what
    /// has no tag; in other VLANs it is answered here all the same. Default false.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub host: bool,
    /// Addresses of the box at its other ports, for which it answers echo here, too, and no ARP. Default: none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub also: Vec<Ipv4Addr>,
    /// With `host`, whether those of `also` are the kernel's as well: what is for them leaves by `host`. Default false.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub also_host: bool,
    /// From whom it takes IPv4 packets. Default: from all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sources: Option<Sources>,
    /// Whether the NAT is one of a pair: then it says and answers nothing while the other translates, and announces all of its
    /// addresses when it begins to. Default false.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub pair: bool,
}

/// A network behind a router.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RouteOption {
    /// The network, a prefix.
    pub to: Address,
    /// The router on this port's link that leads there, in whatever VLAN.
    pub via: Ipv4Addr,
}

/// Tell a host for which addresses it answers from now on, besides the port's own.
#[derive(Debug)]
pub struct AddressUpdate {
    /// All of them, in order.
    pub answers_for: Vec<IpAddr>,
    /// Of these, those that are to be announced.
    pub added: Vec<IpAddr>,
    /// Those that it goes on answering for until they are given up.
    pub leaving: AddressRemovals,
    /// From whom it takes packets from now on.
    pub sources: Option<Sources>,
}

impl Request for AddressUpdate {
    type Reply = ();
}

/// What has changed for a host: what it is to be told, without what goes.
pub fn answering(old: &Options, new: &Options) -> Option<AddressUpdate> {
    let all = |options: &Options| -> BTreeSet<IpAddr> {
        addresses::all(&options.answers_for).map(IpAddr::V4).collect()
    };
    let (was, is) = (all(old), all(new));
    let added = is.difference(&was).copied().collect();
    let changed = was != is || old.sources != new.sources;
    let sources = new.sources.clone();
    changed.then(|| AddressUpdate {
        answers_for: is.into_iter().collect(),
        added,
        leaving: Vec::new().into(),
        sources,
    })
}

impl ElementKind for Options {
    const KIND: &'static str = KIND;
    const DROPS: &'static [&'static str] = &DROPS;
    const REPLICABLE: bool = false;
    const EXAMPLE: &'static str = r#"{"port": "b", "answers_for": ["203.0.113.16/28"]}"#;

    fn check(&self) -> Vec<Problem> {
        let mut problems = addresses::problems("answers_for", &self.answers_for);
        problems.extend(addresses::not_ipv4("on_link", &self.on_link));
        let on_link = addresses::prefixes(&self.on_link);
        for (at, route) in self.routes.iter().enumerate() {
            let key = format!("routes[{at}]");
            if addresses::prefix(&route.to).is_none() {
                problems.push(Problem::new(format!("{key}.to"), "it is not IPv4", "Use an IPv4 prefix"));
            }
            if !on_link.iter().any(|prefix| prefix.has(route.via.to_bits())) {
                let what = format!("{} is not on the link", route.via);
                problems.push(Problem::new(
                    format!("{key}.via"),
                    what,
                    "Name a router of the port's own network",
                ));
            }
        }
        problems.extend(self.sources.iter().flat_map(Sources::check));
        if self.also_host && !self.host {
            let what = "without host the kernel has no address here";
            problems.push(Problem::new("also_host", what, "Leave it out, or say host"));
        }
        if self.pair && self.host {
            let what = "the kernel would answer for the box on both NATs of a pair";
            problems.push(Problem::new("pair", what, "Leave one of pair and host out"));
        }
        problems
    }

    fn outputs(&self) -> Vec<String> {
        outputs(self.host).iter().map(|name| (*name).to_owned()).collect()
    }

    fn ports(&self) -> Vec<(&'static str, &str)> {
        vec![("port", &self.port)]
    }

    fn build(&self, cx: &mut Build<'_>) -> Result<Box<dyn Element>, Error> {
        let addrs = cx.port("port", &self.port)?.1.addrs.clone();
        let own: Vec<IpAddr> = addrs.own().iter().map(|addr| addr.ip).collect();
        let more: Vec<IpAddr> = addresses::all(&self.answers_for).map(IpAddr::V4).collect();
        let bare = *addrs.bare();
        let all = InterfaceAddrs::new(bare.mac, bare.tags, &own, &more);
        let router = match self.gateway {
            None => None,
            Some(gateway) => {
                let query = AddressQuery { ip: gateway.into(), tags: bare.tags };
                let known = Arc::clone(&Shared::of(cx)?.gateway);
                let Some(own) = all.matching_family(gateway.into()).copied() else {
                    return Err(cx.fault("gateway", "the port has no IPv4 address to ask from"));
                };
                Some(Router { query, own, known, asked: None })
            }
        };
        let subscribers = match all.matching_family(Ipv4Addr::UNSPECIFIED.into()).copied() {
            _ if self.on_link.is_empty() => None,
            None => return Err(cx.fault("on_link", "the port has no IPv4 address to ask from")),
            Some(own) => {
                let Some(queries) = Shared::of(cx)?.resolver.end() else {
                    return Err(cx.fault("on_link", "another element asks for subscribers"));
                };
                let routes = self.routes.iter().filter_map(|route| {
                    Some(Route { to: addresses::prefix(&route.to)?, via: route.via.to_bits() })
                });
                let resolver = Resolver::new(addresses::prefixes(&self.on_link), own.mac);
                let resolver = resolver.with_routes(routes.collect());
                Some(Subscribers { resolver, queries, own })
            }
        };
        // Of an address of the box that there is not nothing could be the kernel's.
        if self.host && addrs.own().iter().all(|own| own.ip.is_unspecified()) {
            return Err(cx.fault("host", "the port has no address of its own"));
        }
        let announcer = if self.pair {
            let own = addrs.own().iter().filter(|own| !own.ip.is_unspecified()).copied();
            let pool = more.iter().map(|ip| InterfaceAddr { ip: *ip, mac: bare.mac, tags: bare.tags });
            let shared = Shared::of(cx)?;
            // Towards subscribers, where the port has no VLAN of its own, in which all of them would be.
            let has_vlans = self.gateway.is_none() && bare.tags == Tags::NONE;
            let vlans = if has_vlans { shared.vlans.end() } else { None };
            Some(Announcer::new(Arc::clone(&shared.duty), own.collect(), pool.collect(), vlans))
        } else {
            None
        };
        let (answers_for, newcomers) = (all.answering_for(more), NewAddresses::default());
        let also = all.answering_for(self.also.iter().copied().map(IpAddr::V4).collect());
        let also_host = self.also_host;
        let origins = self.sources.as_ref().map(Origins::from).unwrap_or_default();
        let kernel = self.host.then_some(addrs);
        let addrs = InterfaceAddrs::new(bare.mac, bare.tags, &own, &[]);
        let (leaving, pool) = (Vec::new(), cx.pool.clone());
        Ok(Box::new(Host {
            addrs,
            answers_for,
            leaving,
            announces: !self.answers_for.is_empty(),
            newcomers,
            kernel,
            also,
            also_host,
            origins,
            router,
            subscribers,
            announcer,
            pool,
        }))
    }
}

/// The outputs, with the host's kernel and without.
fn outputs(host: bool) -> &'static [&'static str] {
    if host { &OUTPUTS } else { &OUTPUTS[..HOST] }
}

/// The router that everything goes to.
#[derive(Debug)]
struct Router {
    query: AddressQuery,
    /// Who asks.
    own: InterfaceAddr,
    known: Arc<Neighbour>,
    asked: Option<u64>,
}

/// The subscribers that it asks for.
#[derive(Debug)]
struct Subscribers {
    resolver: Resolver,
    queries: Receiver<Query>,
    /// Who asks.
    own: InterfaceAddr,
}

/// Element: the box itself, on one of its ports.
#[derive(Debug)]
struct Host {
    /// The port's own addresses.
    addrs: InterfaceAddrs,
    /// Others that it answers for: those of the pool.
    answers_for: InterfaceAddrs,
    /// Those that it answers for until they are given up.
    leaving: Vec<AddressRemovals>,
    /// Whether those that come are announced, and those of them that are yet to be.
    announces: bool,
    newcomers: NewAddresses,
    /// The port's own addresses, if they are the host's kernel's.
    kernel: Option<InterfaceAddrs>,
    /// The box's addresses at other ports, and whether they are the kernel's, too.
    also: InterfaceAddrs,
    also_host: bool,
    /// From whom it takes packets.
    origins: Origins,
    router: Option<Router>,
    subscribers: Option<Subscribers>,
    /// Of a NAT that is one of a pair.
    announcer: Option<Announcer>,
    /// For its questions.
    pool: Mempool,
}

impl Host {
    /// Whether the NAT translates: the other of a pair may.
    fn is_active(&self, now: u64) -> bool {
        self.announcer.as_ref().is_none_or(|announcer| announcer.is_active(now))
    }

    /// Answer a frame in its place, or hand it to the kernel. `None`: it went there, or is dropped.
    fn take(&self, mut mbuf: Mbuf, heard: bool, cx: &mut Cx<'_>) -> Option<Mbuf> {
        let ours = |kernel: &&InterfaceAddrs| kernel.bare().tags.same_vlans(&Tags::of(mbuf.data()));
        let Some(kernel) = self.kernel.as_ref().filter(ours) else {
            let answered =
                self.addrs.respond(&mut mbuf) || self.respond(&mut mbuf) || self.respond_also(&mut mbuf);
            // What is no question has done its work.
            cx.count(self.unanswered(mbuf.data()), u64::from(!answered && !heard));
            return answered.then_some(mbuf);
        };
        if self.respond(&mut mbuf) || !self.also_host && self.respond_also(&mut mbuf) {
            return Some(mbuf);
        }
        let also: &[IpAddr] = if self.also_host { self.also.all() } else { &[] };
        match exception::part(mbuf.data(), kernel, also) {
            Some(Part::Traffic) => cx.emit(HOST, mbuf),
            Some(Part::Resolution) => cx.emit(RESOLUTION, mbuf),
            None => cx.count(self.unanswered(mbuf.data()), u64::from(!heard)),
        }
        None
    }

    /// Answer an echo request to the box's address at another port. Who asks by ARP is not told that it is here.
    fn respond_also(&self, mbuf: &mut Mbuf) -> bool {
        let is_ip = |frame: &[u8]| ethernet::payload(frame).is_some_and(|(carried, _)| carried == kind::IPV4);
        !self.also.all().is_empty() && is_ip(mbuf.data()) && self.also.respond(mbuf)
    }

    /// Why a packet that nobody answers is dropped.
    fn unanswered(&self, frame: &[u8]) -> usize {
        let ip = ethernet::payload(frame).filter(|(carried, _)| *carried == kind::IPV4).map(|(_, at)| at);
        let Some((at, to)) = ip.and_then(|at| Some((at, IpAddr::V4(ipv4::addresses(frame, at)?.1)))) else {
            return NOT_FOR_US;
        };
        // More fragments, or an offset (RFC 791 section 3.1).
        let is_piece = frame.get(at + 6..at + 8).is_some_and(|place| place[0] & 0x3f != 0 || place[1] != 0);
        let also = self.also.owns(to);
        if is_piece && (also || self.addrs.owns(to)) {
            FRAGMENTED
        } else if also {
            OWN_DESTINATION
        } else {
            NOT_FOR_US
        }
    }

    /// Why a packet is dropped for where it says to come from, if it is.
    fn source_fault(&self, frame: &[u8]) -> Option<usize> {
        let is_own = |ip| self.addrs.owns(ip) || self.also.owns(ip);
        let answers_for = |ip| self.answers_for.owns(ip) || is_leaving(&self.leaving, ip);
        let why = self.origins.check(frame, is_own, answers_for).err()?;
        Some(match why {
            SourceFault::Martian => MARTIAN_SOURCE,
            SourceFault::Spoofed => SPOOFED_SOURCE,
            SourceFault::NotInside => NOT_INSIDE,
        })
    }

    /// Answer for an address that is not the port's own.
    fn respond(&self, mbuf: &mut Mbuf) -> bool {
        if self.answers_for.respond(mbuf) {
            return true;
        }
        !self.leaving.is_empty() && self.answers_for.respond_if(mbuf, |ip| is_leaving(&self.leaving, ip))
    }

    /// Answer for other addresses from now on.
    fn change(&mut self, told: AddressUpdate, now: u64) {
        let AddressUpdate { answers_for, added, leaving, sources } = told;
        self.origins = sources.as_ref().map(Origins::from).unwrap_or_default();
        self.answers_for = self.answers_for.answering_for(answers_for);
        self.leaving.retain(|list| list.iter().any(address_removal::AddressRemoval::is_there));
        if !leaving.is_empty() {
            self.leaving.push(leaving);
        }
        let bare = *self.answers_for.bare();
        if let Some(announcer) = &mut self.announcer {
            let going = self.leaving.iter().flat_map(|list| list.iter()).map(|one| one.address().into());
            let pool = self.answers_for.all().iter().copied().chain(going);
            announcer.change(pool.map(|ip| InterfaceAddr { ip, ..bare }).collect(), now);
        }
        self.newcomers.add(added.into_iter().map(|ip| InterfaceAddr { ip, ..bare }), now);
    }

    /// Whether a frame says where somebody is who is asked for.
    fn learn_neighbour(&mut self, frame: &[u8]) -> bool {
        let router = self.router.as_ref().and_then(|router| {
            router.known.set(router.query.answer(frame)?);
            Some(())
        });
        router.is_some() || self.subscribers.as_mut().is_some_and(|its| its.resolver.learn(frame))
    }

    fn ask_for_router(&mut self, batch: &mut Batch, now: u64) {
        let Some(router) = &mut self.router else { return };
        let pause = if router.known.mac().is_some() { ASK_AGAIN } else { ASK };
        if router.asked.is_some_and(|asked| now < asked + pause) {
            return;
        }
        router.asked = Some(now);
        solicit(&router.own, &router.query, &self.pool, batch);
    }

    fn ask_for_subscribers(&mut self, batch: &mut Batch, now: u64) {
        let Some(Subscribers { resolver, queries, own }) = &mut self.subscribers else { return };
        queries.try_iter().take(QUERIES).for_each(|query| resolver.ask(query));
        if let Some((inside, realm)) = resolver.next(now) {
            let query = AddressQuery { ip: Ipv4Addr::from_bits(inside).into(), tags: link::tags(realm) };
            solicit(own, &query, &self.pool, batch);
        }
    }
}

/// Whether an address goes, and is answered for still.
fn is_leaving(leaving: &[AddressRemovals], ip: IpAddr) -> bool {
    let IpAddr::V4(ip) = ip else { return false };
    let is_there = address_removal::AddressRemoval::is_there;
    leaving
        .iter()
        .any(|list| address_removal::find(list, ip).and_then(|at| list.get(at)).is_some_and(is_there))
}

/// Ask who has an address. Without a buffer it is as if the question were lost.
fn solicit(own: &InterfaceAddr, query: &AddressQuery, pool: &Mempool, batch: &mut Batch) {
    let Some(mut mbuf) = pool.packet(&[0; QUESTION]) else { return };
    if own.solicit(query, mbuf.data_mut()).is_some() {
        let _asked_again_if_full = batch.push(mbuf);
    }
}

impl Element for Host {
    fn about(&self) -> ElementInfo {
        let outputs = outputs(self.kernel.is_some());
        let asks = self.router.is_some() || self.subscribers.is_some();
        let polled = asks || self.announcer.is_some() || self.announces;
        ElementInfo { kind: KIND, takes: true, outputs, drops: &DROPS, polled }
    }

    fn push(&mut self, batch: &mut Batch, cx: &mut Cx<'_>) {
        if self.announcer.is_some() && !self.is_active(cx.now()) {
            cx.drop_rejected(batch, |_| Err(STANDBY));
            return;
        }
        batch.filter_map(|mbuf| {
            if !mbuf.is_whole() {
                cx.count(SEGMENTED, 1);
                return None;
            }
            if let Some(reason) = self.source_fault(mbuf.data()) {
                cx.count(reason, 1);
                return None;
            }
            let heard = self.learn_neighbour(mbuf.data());
            // Who tells where it is may have asked something, too.
            self.take(mbuf, heard, cx)
        });
    }

    fn poll(&mut self, batch: &mut Batch, cx: &mut Cx<'_>) {
        let now = cx.now();
        if let Some(announcer) = &mut self.announcer {
            let (all, leaving) = ([&self.addrs, &self.answers_for], &self.leaving);
            let there = |addr: &InterfaceAddr| {
                all.iter().any(|addrs| addrs.owns(addr.ip)) || is_leaving(leaving, addr.ip)
            };
            announcer.send(batch, &self.pool, now, there);
            if !announcer.is_active(now) {
                return;
            }
        }
        let answers_for = &self.answers_for;
        self.newcomers.send(batch, &self.pool, now, |addr| answers_for.owns(addr.ip));
        self.ask_for_router(batch, now);
        self.ask_for_subscribers(batch, now);
    }

    fn control(&mut self, mail: Mail, now: u64) {
        let _not_understood = mail.answer(|told: AddressUpdate| self.change(told, now));
    }
}
