//! Public addresses by DHCP as an element: a client for each subscriber site, at a virtual MAC address of its own.
//!
//! ```text
//!  nat ──(subscribers come and go)──▶ nat-sites ──(a site has an address, or none)──▶ the nat44 of its worker
//!                                        ◀──(nothing goes by what it had any more)──
//!                 validity.local ──▶ nat-sites ──▶ nat-host
//!                                        └─ tx ──▶ the outside port
//! ```

pub mod assigning;
mod known;
pub mod leasing;
pub mod options;
#[cfg(test)]
mod stand_in;
pub mod view;

pub(crate) use options::{FIRST_MAC, Macs};
pub use options::{Options, SiteOptions};

use self::assigning::Assignments;
use self::known::Keeper;
use self::leasing::{Leasing, Settings};
use crate::addresses;
use crate::shared::{Shared, SiteEnd, Subscriber};
use ::element::interface_addr::InterfaceAddr;
use ::element::kind::{Build, ElementKind};
use dpdk::{Batch, Mbuf, Mempool};
use engine::{Cx, Element, ElementInfo, Mail};
use nat_core::config::{Config, Prefix};
use nat_dhcp::client::Verdict;
use packet::arp::{Arp, FRAME};
use packet::ethernet::{self, Tags, kind};
use packet::ipv4;
use profile::Error;
use protocol::problem::Problem;
use rand::TryRngCore;
use rand::rngs::OsRng;
use std::net::IpAddr;
use std::path::Path;

/// The kind of the element.
pub const KIND: &str = "nat-sites";
const OUTPUTS: [&str; 2] = ["out", "tx"];
const TX: usize = 1;
const DROPS: [&str; 3] = ["dhcp_ignored", "address_conflict", "spoofed_source"];
const DHCP_IGNORED: usize = 0;
const ADDRESS_CONFLICT: usize = 1;
const SPOOFED_SOURCE: usize = 2;

/// Time between two turns, ns.
const TURN: u64 = 1_000_000;
/// What is done in one of them: subscribers that came or went, slots that are empty, clients that wake, frames that are sent.
const SUBSCRIBERS: usize = 256;
const VACATED: usize = 256;
const CLIENTS: usize = 32;
const FRAMES: usize = 32;
/// Time between two writings of what is known, ns.
const KEEP: u64 = 1_000_000_000;

impl ElementKind for Options {
    const KIND: &'static str = KIND;
    const DROPS: &'static [&'static str] = &DROPS;
    const REPLICABLE: bool = false;
    const EXAMPLE: &'static str = r#"{"port": "b", "sites": {"most": 1024, "by": "vlan"}}"#;

    fn check(&self) -> Vec<Problem> {
        self.problems()
    }

    fn outputs(&self) -> Vec<String> {
        OUTPUTS.map(str::to_owned).to_vec()
    }

    fn ports(&self) -> Vec<(&'static str, &str)> {
        vec![("port", &self.port)]
    }

    fn files(&mut self) -> Vec<(&'static str, &mut String)> {
        self.known.iter_mut().map(|file| ("known", file)).collect()
    }

    fn build(&self, cx: &mut Build<'_>) -> Result<Box<dyn Element>, Error> {
        let addrs = cx.port("port", &self.port)?.1.addrs.clone();
        let macs = self.macs();
        if macs.number(addrs.bare().mac).is_some() {
            return Err(cx.fault("macs", "the MAC address of the port is one of them"));
        }
        let mut seed = [0; 8];
        OsRng.try_fill_bytes(&mut seed).map_err(|why| cx.fault("port", &why.to_string()))?;
        let shared = Shared::of(cx)?;
        let (agree, end) = (shared.agree(self.sites.config()), shared.site_end());
        if !agree {
            return Err(cx.fault("sites", "nat44 has it otherwise"));
        }
        let Some(end) = end else {
            return Err(cx.fault("sites", "a graph can have one of it, and this is another"));
        };
        let inside = match addresses::prefixes(&self.subscribers) {
            none if none.is_empty() => Config::default().inside,
            some => some,
        };
        let own = addrs.own().iter().filter_map(|own| match own.ip {
            IpAddr::V4(ip) => Some(ip),
            IpAddr::V6(_) => None,
        });
        let others = own.chain(self.gateway).map(|ip| Prefix::new(ip, 32));
        let tags = addrs.bare().tags;
        let mut leasing = Leasing::new(
            Settings {
                most: self.sites.most,
                by: self.sites.config().by,
                macs,
                release_after: self.release_after.ns(),
                least_lease: u32::try_from(self.least_lease.ns() / nat_core::config::SECOND)
                    .unwrap_or(u32::MAX),
                tags,
                never: inside.into_iter().chain(addresses::prefixes(&self.never)).chain(others).collect(),
            },
            u64::from_ne_bytes(seed),
        );
        let keeper = match &self.known {
            None => None,
            Some(file) => {
                let fault =
                    |cx: &Build<'_>, why: std::io::Error| cx.fault("known", &format!("{file}: {why}"));
                let known = known::read(Path::new(file)).map_err(|why| fault(cx, why))?;
                let taken = leasing.remember(&known);
                let left_out = known.len() - taken.len();
                let keeper = Keeper::start(Path::new(file), taken, ::element::kind::Endings::of(cx))
                    .map_err(|why| fault(cx, why))?;
                if left_out > 0 {
                    let old = known::put_aside(Path::new(file)).map_err(|why| fault(cx, why))?;
                    let (of, old) = (known.len(), old.display());
                    tracing::warn!("{file}: {left_out} of {of} sites are none now; all of them are in {old}");
                }
                Some(keeper)
            }
        };
        let pool = cx.pool.clone();
        Ok(Box::new(Sites { leasing, end, assignments: None, keeper, kept: 0, turned: 0, tags, pool }))
    }
}

/// Element: has the DHCP clients of all sites.
#[derive(Debug)]
struct Sites {
    leasing: Leasing,
    /// To the NAT table and the sessions of all workers.
    end: SiteEnd,
    /// From its first turn on, when it is known how many workers there are.
    assignments: Option<Assignments>,
    keeper: Option<Keeper>,
    /// When what is known was looked at last, and when the last turn was.
    kept: u64,
    turned: u64,
    /// Of the outside port.
    tags: Tags,
    /// For its frames.
    pool: Mempool,
}

impl Sites {
    /// Whether ARP asks for a site's address, and was answered in its place.
    fn answer(&mut self, mbuf: &mut Mbuf, now: u64, cx: &mut Cx<'_>) -> Option<()> {
        let arp = Arp::parse(mbuf.data())?;
        if let Some(mac) = self.leasing.holder(arp.sender).filter(|mac| *mac != arp.sender_mac) {
            cx.count(ADDRESS_CONFLICT, 1);
            self.leasing.defend(mac, arp.sender_mac, now);
        }
        let mac = self.leasing.holder(arp.target)?;
        let ip = arp.target.into();
        InterfaceAddr { mac, ip, tags: self.tags }.respond(mbuf).then_some(())
    }

    /// Whether a packet for the box says to come from a site's address.
    fn is_of_site(&self, frame: &[u8]) -> bool {
        let ip = ethernet::payload(frame).filter(|(carried, _)| *carried == kind::IPV4);
        let addresses = ip.and_then(|(_, at)| ipv4::addresses(frame, at));
        addresses.is_some_and(|(from, _)| self.leasing.holder(from).is_some())
    }

    fn turn(&mut self, now: u64) {
        for _ in 0..SUBSCRIBERS {
            let Ok(Subscriber { inside, realm, there }) = self.end.subscribers.try_recv() else { break };
            if there {
                self.leasing.add(inside, realm, now);
            } else {
                self.leasing.remove(inside, realm, now);
            }
        }
        let _more_next_time = self.leasing.advance(now, CLIENTS);
        self.assign();
        if let Some(keeper) = &self.keeper
            && now.saturating_sub(self.kept) >= KEEP
        {
            self.kept = now;
            let changes = self.leasing.changes();
            if let Some(again) = keeper.give(changes) {
                self.leasing.change_again(&again);
            }
        }
    }

    /// Tell workers of addresses that came and went.
    fn assign(&mut self) {
        let SiteEnd { workers, vacated, ownership, .. } = &self.end;
        // It was said before the first turn.
        let (Some(workers), Some((_, ownership))) = (workers.get(), ownership.get()) else { return };
        let most = self.leasing.max_sites();
        let assignments = self.assignments.get_or_insert_with(|| Assignments::new(most, workers.len()));
        vacated.try_iter().take(VACATED).for_each(|vacated| assignments.vacated(vacated));
        while let Some(public) = self.leasing.public() {
            assignments.follow(&public, ownership);
        }
        assignments.advance(ownership);
        assignments.tell(workers);
    }

    /// Frames of the clients, and announcements.
    fn send(&mut self, now: u64, cx: &mut Cx<'_>) {
        for _ in 0..FRAMES.min(cx.room(TX)) {
            let frame = self.leasing.announce(now).and_then(|(mac, address)| {
                let mut frame = [0; FRAME + 8];
                let length = Arp::announcement(mac, address).emit_tagged(&mut frame, &self.tags)?;
                frame.get(..length).map(<[u8]>::to_vec)
            });
            let Some(frame) = frame.or_else(|| self.leasing.transmit()) else { return };
            // Without a buffer it is as if the frame were lost: clients say it again.
            if let Some(mbuf) = self.pool.packet(&frame) {
                cx.emit(TX, mbuf);
            }
        }
    }
}

impl Element for Sites {
    fn about(&self) -> ElementInfo {
        ElementInfo { kind: KIND, takes: true, outputs: &OUTPUTS, drops: &DROPS, polled: true }
    }

    fn push(&mut self, batch: &mut Batch, cx: &mut Cx<'_>) {
        let now = cx.now();
        batch.filter_map(|mut mbuf| {
            if !mbuf.is_whole() {
                return Some(mbuf);
            }
            if self.answer(&mut mbuf, now, cx).is_some() {
                cx.emit(TX, mbuf);
                return None;
            }
            match self.leasing.receive(mbuf.data(), now) {
                // Nobody outside has the address of a site.
                Verdict::NotOurs if self.is_of_site(mbuf.data()) => {
                    cx.count(SPOOFED_SOURCE, 1);
                    None
                }
                Verdict::NotOurs => Some(mbuf),
                Verdict::Accepted => None,
                Verdict::Ignored(_) => {
                    cx.count(DHCP_IGNORED, 1);
                    None
                }
            }
        });
    }

    fn poll(&mut self, _: &mut Batch, cx: &mut Cx<'_>) {
        let now = cx.now();
        if now.saturating_sub(self.turned) >= TURN {
            self.turned = now;
            self.turn(now);
        }
        self.send(now, cx);
    }

    fn control(&mut self, mail: Mail, now: u64) {
        let ownership = self.end.ownership.get().map(|(_, ownership)| ownership);
        let _not_understood =
            mail.answer(|asked: view::Sites| view::sites(&self.leasing, &asked, ownership, now));
    }
}

impl Drop for Sites {
    /// What sites have they ask for when this runs again.
    fn drop(&mut self) {
        if let Some(keeper) = self.keeper.take() {
            keeper.end(self.leasing.changes());
        }
    }
}
