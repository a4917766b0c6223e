//! The NAT table as an element: whose packet is this, and by which next hop do answers go.

use crate::addresses;
use crate::arp::ResolverClient;
use crate::bind::Bind;
use crate::headers;
use crate::leases::{LeaseFile, Leases};
use crate::owner::Owner;
use crate::restored_bindings::RestoredBindings;
use crate::shared::{
    BindingAnswerer, BindingEnd, BindingEvent, ResolvedHop, Shared, Subscriber, SubscriberTeller, TableEnd,
};
use crate::state::Bound;
use crate::unbound_leases::UnboundLeases;
use ::element::kind::{Build, ElementKind, MakeAffinity};
use dpdk::{Batch, Mbuf, Meta, MetaFlags};
use engine::{Cx, Element, ElementInfo, Mail};
use nat_core::config::{Prefix, SECOND};
use nat_core::key::{self, Key};
use nat_core::neighbours::{Host, Neighbours, is_of_one};
use nat_core::{Bindings, Config, Hop, Lookup, Mac, Ownership, Realm, Source};
use packet::ipv4;
use profile::{Address, Error};
use protocol::problem::Problem;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::HashSet;
use std::net::Ipv4Addr;
use std::sync::mpsc::TrySendError;
use std::sync::{Arc, OnceLock};

const KIND: &str = "subscriber-table";
const DROPS: [&str; 7] =
    ["not_ipv4", "not_inside", "not_bound", "spoofed", "table_full", "martian_source", "reverse_path"];
const NOT_IPV4: usize = 0;
const NOT_INSIDE: usize = 1;
const NOT_BOUND: usize = 2;
const SPOOFED: usize = 3;
const TABLE_FULL: usize = 4;
const MARTIAN_SOURCE: usize = 5;
const REVERSE_PATH: usize = 6;

/// Time between two looks at what is idle, ns.
const TURN: u64 = 500_000;
/// Lines that are looked at in one of them.
const BUDGET: usize = 64;
/// What leases say that is done in one of them.
const BINDS: usize = 64;
/// Within that time the lease file tells who has a lease, ns.
const CONFIRM: u64 = 30 * SECOND;
/// A learned binding is over when it was silent for as long as the longest session may be: 2 h 4 min (RFC 5382 REQ-5).
const IDLE: u64 = 7_440 * SECOND;
/// Leases that are followed for each binding that there may be: those for which there is no room wait for it.
const LEASES: usize = 2;
/// Packets ahead of which lines are asked for: of more at once a CPU forgets some. The last packets of a batch ask for a line that
/// nobody needs.
const AHEAD: usize = 32;

/// The NAT table: private address and VLAN tags → Ethernet address, for what comes from subscribers. Who is no subscriber gets no
/// further. Bindings are learned from what subscribers send, as ARP would; or else they are given, and then a packet that comes
/// from another Ethernet address than its sender's is dropped as `spoofed`. ICMP errors of routers inside pass by the subscriber that
/// they are about.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Options {
    /// Who is a subscriber. Default: the private addresses of RFC 1918 and RFC 6598.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub subscribers: Vec<Address>,
    /// Addresses that are nobody's, among these: the box's own, and network and broadcast addresses. Default: none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub non_host_addresses: Vec<Ipv4Addr>,
    /// Subscribers' prefixes that there is a route to by the inside port: what comes from others is dropped as `reverse_path` (strict
    /// reverse path forwarding, RFC 3704 section 2.2). Default: any.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub reverse_path: Vec<Address>,
    /// Bindings there may be, of all workers: 128 bytes each. Default 16384; a worker has 65534 at most.
    #[serde(default = "most_subscribers")]
    pub most_subscribers: usize,
    /// The lease file of the DHCP server that subscribers have their addresses from: who has a lease is bound, and no longer
    /// than that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub leases: Option<LeaseFile>,
    /// Whether bindings are learned from what subscribers send. Default: where there is no lease file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub learn: Option<bool>,
}

pub fn most_subscribers() -> usize {
    1 << 14
}

impl ElementKind for Options {
    const KIND: &'static str = KIND;
    const DROPS: &'static [&'static str] = &DROPS;
    const REPLICABLE: bool = true;
    const OWNED: bool = true;
    const EXAMPLE: &'static str = r#"{"subscribers": ["10.0.0.0/8"]}"#;

    fn files(&mut self) -> Vec<(&'static str, &mut String)> {
        self.leases.iter_mut().map(|leases| ("leases.file", &mut leases.file)).collect()
    }

    fn check(&self) -> Vec<Problem> {
        let mut problems = addresses::not_ipv4("subscribers", &self.subscribers);
        problems.extend(addresses::not_ipv4("reverse_path", &self.reverse_path));
        if self.most_subscribers == 0 {
            let what = "there is no room for a subscriber";
            problems.push(Problem::new("most_subscribers", what, "Use 1 or more"));
        }
        problems.extend(self.leases.as_ref().and_then(|leases| leases.check("leases")));
        problems
    }

    fn owner(&self, cx: &mut Build<'_>) -> Result<Option<MakeAffinity>, Error> {
        Ok(Some(Owner::maker(Shared::of(cx)?)))
    }

    fn build(&self, cx: &mut Build<'_>) -> Result<Box<dyn Element>, Error> {
        let (replica, replicas) = (cx.replica, cx.replicas);
        let shared = Shared::of(cx)?;
        let (seed, neighbours, end) = (shared.seed, shared.neighbours(replica), shared.table_end(replica));
        let ownership = Arc::clone(&shared.ownership);
        let (sites, resolver) = (shared.subscriber_teller(), shared.resolver.client());
        let of_standby = shared.binding_answerer(replica);
        let Some(end) = end else {
            return Err(cx.fault("subscribers", "a graph can have one NAT, and this is another"));
        };
        let most = self.most_subscribers.div_ceil(replicas.max(1));
        let table =
            Bindings::new(most, seed).map_err(|why| cx.fault("most_subscribers", &why.to_string()))?;
        let inside = match addresses::prefixes(&self.subscribers) {
            none if none.is_empty() => Config::default().inside,
            some => some,
        };
        let restored = Some(RestoredBindings::of(Shared::of(cx)?, replica));
        let most_leases = self.most_subscribers.saturating_mul(LEASES);
        let leases = self.leases.as_ref().map(|file| Leases::follow(file, most_leases));
        let leases = leases.transpose().map_err(|why| cx.fault("leases.file", &why.to_string()))?;
        let learn = self.learn.unwrap_or(leases.is_none());
        let nat = SubscriberTable {
            table,
            inside,
            non_host_addresses: self.non_host_addresses.clone(),
            routed: addresses::prefixes(&self.reverse_path),
            learn,
            leases,
            told: None,
            unbound: UnboundLeases::new(most_leases),
            replica,
            ownership,
            neighbours,
            end,
            of_standby,
            sites,
            resolver,
            restored,
            unconfirmed: HashSet::new(),
            confirm_by: 0,
            advanced: 0,
        };
        Ok(Box::new(nat))
    }
}

/// Element: lets through what subscribers send, and says by which next hop answers go.
#[derive(Debug)]
struct SubscriberTable {
    table: Bindings,
    inside: Vec<Prefix>,
    /// Those that are no host's.
    non_host_addresses: Vec<Ipv4Addr>,
    /// Where there is a route to, if that counts.
    routed: Vec<Prefix>,
    learn: bool,
    leases: Option<Leases>,
    /// What was told and cannot be done yet.
    told: Option<Bind>,
    /// Leases by which nobody is bound.
    unbound: UnboundLeases,
    /// Which of the replicas this is, and who of them owns what.
    replica: usize,
    ownership: Arc<OnceLock<(u16, Ownership)>>,
    neighbours: Arc<Neighbours>,
    end: TableEnd,
    /// Asks for bindings that the other NAT of a pair has.
    of_standby: Option<BindingAnswerer>,
    /// Public addresses go by who is there.
    sites: SubscriberTeller,
    /// Asks for subscribers by ARP.
    resolver: ResolverClient,
    /// Who was bound before a restart, until it begins.
    restored: Option<RestoredBindings>,
    /// Of these, who had a lease then and was not found to have one yet; and until when that may be.
    unconfirmed: HashSet<(u32, Realm)>,
    confirm_by: u64,
    advanced: u64,
}

/// Who sent a packet.
#[derive(Debug, Clone, Copy, Default)]
struct Sender {
    hash: u64,
    inside: u32,
    realm: Realm,
    mac: Mac,
}

impl Sender {
    /// Of an IPv4 packet that was parsed.
    #[inline]
    fn of(mbuf: &Mbuf, meta: &Meta) -> Option<Self> {
        if !meta.flags.has(MetaFlags::IP) || meta.flags.has(MetaFlags::V6) {
            return None;
        }
        let frame = mbuf.data();
        let (inside, _) = ipv4::addresses(frame, meta.l3.into())?;
        let mac = *frame.get(6..)?.first_chunk()?;
        Some(Self { hash: 0, inside: inside.to_bits(), realm: key::realm(meta.tags, meta.tagged), mac })
    }
}

/// By what the sender of a packet is looked up.
#[inline(always)]
fn key(mbuf: &Mbuf) -> Key {
    let sender = mbuf.meta().and_then(|meta| Sender::of(mbuf, &meta));
    sender.map_or(Key::NOBODY, |sender| Key::subscriber(sender.inside, sender.realm))
}

/// Note by which next hop answers to the packet of a subscriber go.
#[inline(always)]
fn note(mbuf: &mut Mbuf, hop: Hop) -> Option<()> {
    let meta = mbuf.meta_mut()?;
    // In place of the flow's hash: no later stage goes by that, and all packets of a subscriber have the same.
    meta.hash = hop.into();
    meta.flags = meta.flags.with(MetaFlags::SUBSCRIBER).with(MetaFlags::HASHED);
    Some(())
}

/// The same, if its sender is bound.
#[inline(always)]
fn find_sender(table: &mut Lookup<'_>, mbuf: &mut Mbuf, key: Key, hash: u64) -> Option<()> {
    let (inside, realm) = key.owner();
    let mac = *mbuf.data().get(6..)?.first_chunk()?;
    let Source::Bound(hop) = table.source(hash, inside, realm, mac) else { return None };
    note(mbuf, hop)
}

impl SubscriberTable {
    /// By which next hop answers to a packet go, or why there are none.
    #[inline]
    fn admit(&mut self, sender: &Sender, now: u64) -> Result<Hop, usize> {
        let Sender { hash, inside, realm, mac } = *sender;
        match self.table.source(hash, inside, realm, mac, now) {
            Source::Bound(hop) => Ok(hop),
            seen => self.admit_new(sender, seen, now),
        }
    }

    #[cold]
    fn admit_new(&mut self, sender: &Sender, seen: Source, now: u64) -> Result<Hop, usize> {
        let Sender { inside, realm, mac, .. } = *sender;
        self.is_allowed(inside)?;
        match seen {
            // What is sent to a group everybody would read: nobody is there.
            _ if !is_of_one(mac) => Err(SPOOFED),
            Source::Unknown if !self.learn => Err(NOT_BOUND),
            Source::Elsewhere if !self.learn => Err(SPOOFED),
            _ => self.bind(inside, realm, mac, false, now).ok_or(match seen {
                Source::Unknown => TABLE_FULL,
                _ => SPOOFED,
            }),
        }
    }

    fn bind(&mut self, inside: u32, realm: Realm, mac: Mac, given: bool, now: u64) -> Option<Hop> {
        // What is sent to a group everybody would read: that is nobody's address, whoever says so. Who is no subscriber has no
        // address of the pool and no site, whatever a lease says.
        if !is_of_one(mac) || !self.is_subscriber(inside) {
            return None;
        }
        let is_new = self.table.find(inside, realm).is_none();
        if is_new && !self.sites.is_ready() {
            return None;
        }
        let hop = self.table.bind(inside, realm, mac, given, now)?;
        if given {
            self.unconfirmed.remove(&(inside, realm));
        }
        if is_new && self.is_own(inside, realm) {
            self.sites.tell(Subscriber { inside, realm, there: true });
        }
        self.neighbours.set(hop, mac);
        Some(hop)
    }

    /// Whether an address is a subscriber's, as the operator says; if not, why.
    fn is_allowed(&self, inside: u32) -> Result<(), usize> {
        let has = |prefixes: &[Prefix]| prefixes.iter().any(|prefix| prefix.has(inside));
        if !has(&self.inside) {
            Err(NOT_INSIDE)
        } else if self.non_host_addresses.contains(&Ipv4Addr::from_bits(inside)) {
            Err(MARTIAN_SOURCE)
        } else if !self.routed.is_empty() && !has(&self.routed) {
            Err(REVERSE_PATH)
        } else {
            Ok(())
        }
    }

    fn is_subscriber(&self, inside: u32) -> bool {
        self.is_allowed(inside).is_ok()
    }

    /// By which next hop the subscriber is reached whom an ICMP error of another host or router inside is about (RFC 5508 REQ-5). Where
    /// bindings are given, only who forwards for that one is believed.
    #[cold]
    fn reporter_hop(&self, mbuf: &Mbuf, sender: &Sender) -> Option<Hop> {
        let headers = headers::of(mbuf, mbuf.meta()?)?;
        let about = nat_core::reported_subscriber(mbuf.data(), &headers)?;
        let binding = self.table.find(about, sender.realm)?;
        let is_other = about != sender.inside && self.is_allowed(sender.inside) != Err(MARTIAN_SOURCE);
        let is_believed = self.learn || binding.mac() == sender.mac;
        (is_other && is_believed).then(|| binding.hop())
    }

    /// Whether it is this worker that a subscriber's packets come to. Of others it knows who is spoken to by its own.
    fn is_own(&self, inside: u32, realm: Realm) -> bool {
        self.ownership.get().is_none_or(|(_, ownership)| ownership.subscriber(inside, realm) == self.replica)
    }

    /// Bind who was bound before a restart. By leases, that is until the lease file was read: it tells who has a lease, and nobody who
    /// has lost it meanwhile.
    #[cold]
    fn restore(&mut self, now: u64) {
        let Some(restored) = self.restored.take() else { return };
        self.confirm_by = now + CONFIRM;
        let by_leases = self.leases.is_some() && !self.learn;
        for one in restored.bound() {
            let fits = self.is_subscriber(one.inside) && is_of_one(one.mac);
            if fits && self.table.restore(one.inside, one.realm, one.mac, one.hop, !self.learn, now) {
                self.neighbours.set(one.hop, one.mac);
                if by_leases {
                    self.unconfirmed.insert((one.inside, one.realm));
                }
            }
        }
    }

    /// End who was not found to have a lease any more, some of them at a time.
    fn end_unconfirmed(&mut self) {
        let some: Vec<(u32, Realm)> = self.unconfirmed.iter().copied().take(BINDS).collect();
        for (inside, realm) in some {
            if self.table.find(inside, realm).is_none() || self.end(inside, realm) {
                self.unconfirmed.remove(&(inside, realm));
            }
        }
    }

    /// Do what leases say, some of it at a time.
    fn follow(&mut self, now: u64) {
        for _ in 0..BINDS {
            let Some(told) = self.told.take().or_else(|| self.leases.as_mut()?.next()) else { return };
            let (inside, realm) = (told.inside.to_bits(), told.realm);
            if !self.is_own(inside, realm) {
                continue;
            }
            if !self.sites.is_ready() {
                self.told = Some(told);
                return;
            }
            match told.mac {
                Some(_) if !self.is_subscriber(inside) => {
                    if self.unbound.refuse((inside, realm)) {
                        tracing::warn!(
                            "{} has a lease and is none of the subscribers: it is not bound",
                            told.inside
                        );
                    }
                }
                Some(mac) if !is_of_one(mac) => {
                    if self.unbound.refuse((inside, realm)) {
                        tracing::warn!(
                            "the lease of {} is for no host's MAC address: it is not bound",
                            told.inside
                        );
                    }
                }
                Some(mac) if self.bind(inside, realm, mac, true, now).is_none() => {
                    if self.unbound.wait((inside, realm), mac) {
                        tracing::warn!(
                            "there is no room for {}, which has a lease: it is bound when there is",
                            told.inside
                        );
                    }
                }
                None if self.table.find(inside, realm).is_some() && !self.end(inside, realm) => {
                    self.told = Some(told);
                    return;
                }
                _ => self.unbound.forget((inside, realm)),
            }
        }
    }

    /// Bind who has a lease and found no room, some of them at a time.
    fn bind_waiting(&mut self, now: u64) {
        for _ in 0..BINDS {
            let Some(((inside, realm), mac)) = self.unbound.first() else { return };
            if self.bind(inside, realm, mac, true, now).is_none() {
                return;
            }
            self.unbound.forget((inside, realm));
        }
    }

    /// Bind who is bound at the other NAT of a pair, as if it had sent something; by leases alone only if it has one.
    fn bind_of_standby(&mut self, now: u64) {
        let Some(asked) = self.of_standby.take() else { return };
        for Bound { inside, realm, mac, .. } in asked.wanted.try_iter().take(BINDS) {
            let learned = self.learn.then(|| self.bind(inside, realm, mac, false, now)).flatten();
            let hop = learned.or_else(|| self.table.find(inside, realm).map(|binding| binding.hop()));
            if let Some(hop) = hop {
                let _with_the_next_sweep = asked.bound.try_send(Bound { inside, realm, mac, hop });
            }
        }
        self.of_standby = Some(asked);
    }

    /// Do what is due: what leases say, and who is gone.
    fn turn(&mut self, now: u64) {
        self.bind_of_standby(now);
        if now >= self.confirm_by && !self.unconfirmed.is_empty() {
            self.end_unconfirmed();
        }
        while let Ok(hop) = self.end.released.try_recv() {
            self.table.release_hop(hop);
        }
        self.follow(now);
        self.bind_waiting(now);
        self.find(now);
        if let Some(idle) = self.table.next_idle(IDLE, now, BUDGET) {
            let _later_if_not_now = self.end(idle.inside(), idle.realm());
        }
    }

    /// Tell sessions where subscribers are. One that is not bound is asked for by ARP, unless leases say who is one: then whoever has
    /// none could answer for another.
    fn find(&mut self, now: u64) {
        for _ in 0..BINDS {
            let Some(answer) = self.resolver.answer() else { break };
            let (inside, realm) = answer.host;
            // It may have sent something meanwhile; or was found before, and has moved.
            let there = self.table.find(inside, realm).map(|binding| binding.hop());
            let hop = answer.mac.and_then(|mac| self.bind(inside, realm, mac, false, now)).or(there);
            self.tell_found(answer.host, hop);
        }
        for _ in 0..BINDS {
            let Ok(host) = self.end.asked.try_recv() else { return };
            let hop = self.table.find(host.0, host.1).map(|binding| binding.hop());
            let may_be = self.learn && self.is_subscriber(host.0);
            if hop.is_some() || !may_be || !self.resolver.ask(host) {
                self.tell_found(host, hop);
            }
        }
    }

    fn tell_found(&self, host: Host, hop: Option<Hop>) {
        let _it_asks_again = self.end.tell.try_send(BindingEvent::Resolved(ResolvedHop { host, hop }));
    }

    /// End a binding: nobody is reached by its next hop from now on, and who keeps its sessions ends them. `false`: that one
    /// has too much to end already, and will be told later.
    fn end(&mut self, inside: u32, realm: Realm) -> bool {
        let Some(hop) = self.table.find(inside, realm).map(|binding| binding.hop()) else { return false };
        if !self.sites.is_ready() {
            return false;
        }
        match self.end.tell.try_send(BindingEvent::Ended(BindingEnd { inside, realm, hop })) {
            Err(TrySendError::Full(_)) => return false,
            Err(TrySendError::Disconnected(_)) => self.table.release_hop(hop),
            Ok(()) => {}
        }
        if self.is_own(inside, realm) {
            self.sites.tell(Subscriber { inside, realm, there: false });
        }
        self.neighbours.clear(hop);
        self.table.unbind(inside, realm).is_some()
    }
}

impl Element for SubscriberTable {
    fn about(&self) -> ElementInfo {
        ElementInfo { kind: KIND, takes: true, outputs: &["out"], drops: &DROPS, polled: true }
    }

    fn push(&mut self, batch: &mut Batch, cx: &mut Cx<'_>) {
        let now = cx.now();
        if self.restored.is_some() {
            self.restore(now);
        }
        let (mut keys, mut hashes) = ([Key::NOBODY; dpdk::BURST], [0; dpdk::BURST + AHEAD]);
        let count = batch.len().min(dpdk::BURST);
        for (its, mbuf) in keys.iter_mut().zip(batch.frames()) {
            *its = key(mbuf);
        }
        self.table.hash_all(&keys[..count], &mut hashes[..count]);
        let mut bound = true;
        let mut lookup = self.table.lookup(now);
        hashes.iter().take(count.min(AHEAD)).for_each(|hash| lookup.prefetch(*hash));
        let looked_up = keys.iter().zip(&hashes).zip(&hashes[AHEAD..]);
        for (mbuf, ((key, hash), later)) in batch.frames_mut().iter_mut().zip(looked_up) {
            lookup.prefetch(*later);
            bound &= find_sender(&mut lookup, mbuf, *key, *hash).is_some();
        }
        if !bound {
            let mut looked_up = keys.iter().zip(&hashes);
            cx.drop_rejected(batch, |mbuf| {
                let (key, hash) = looked_up.next().ok_or(NOT_IPV4)?;
                // It was bound, or is by now, by a packet before.
                if find_sender(&mut self.table.lookup(now), mbuf, *key, *hash).is_some() {
                    return Ok(());
                }
                let sender = mbuf.meta().and_then(|meta| Sender::of(mbuf, &meta)).ok_or(NOT_IPV4)?;
                let hop = match self.reporter_hop(mbuf, &sender) {
                    Some(hop) => hop,
                    None => self.admit(&Sender { hash: *hash, ..sender }, now)?,
                };
                note(mbuf, hop).ok_or(NOT_IPV4)
            });
        }
    }

    fn poll(&mut self, _: &mut Batch, cx: &mut Cx<'_>) {
        let now = cx.now();
        if self.restored.is_some() {
            self.restore(now);
        }
        if now.saturating_sub(self.advanced) >= TURN {
            self.advanced = now;
            self.turn(now);
        }
    }

    fn control(&mut self, mail: Mail, now: u64) {
        let _not_understood = mail.answer(|Bind { inside, realm, mac }| match mac {
            Some(mac) => self.bind(inside.to_bits(), realm, mac, true, now).is_some(),
            None => self.end(inside.to_bits(), realm),
        });
    }
}

#[cfg(test)]
#[path = "subscriber_table_tests.rs"]
mod tests;
