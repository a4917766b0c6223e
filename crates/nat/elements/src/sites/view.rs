//! What is asked of the sites of a NAT at work, page by page.

use super::leasing::{Leasing, SiteStatus, text};
use crate::control::{LINES, PAGE, Vlans};
use engine::Request;
use nat_core::Ownership;
use nat_dhcp::client::State;
use std::net::Ipv4Addr;

/// Ask for sites.
#[derive(Debug, Clone, Copy)]
pub struct Sites {
    /// The number to begin at: 0, or what the page before said.
    pub from: u32,
    /// How many at most; never more than [`PAGE`].
    pub limit: usize,
}

/// Some sites.
#[derive(Debug, Clone, PartialEq)]
pub struct SitePage {
    /// The sites.
    pub sites: Vec<SiteView>,
    /// The number to go on from. `None`: that was all.
    pub next: Option<u32>,
}

impl Request for Sites {
    type Reply = SitePage;
}

/// A site as it is shown.
#[derive(Debug, Clone, PartialEq, serde::Serialize)]
pub struct SiteView {
    /// What it is: VLANs, an address or a prefix.
    pub site: String,
    /// Its tags.
    pub vlans: Vlans,
    /// Its virtual MAC address.
    pub mac: String,
    /// Its public address now.
    pub address: Option<Ipv4Addr>,
    /// Where its DHCP client is (RFC 2131 figure 5), or `released`.
    pub state: &'static str,
    /// What is left of its lease; `None` without one, or if it never ends.
    pub lease_s: Option<f64>,
    /// The DHCP server that gave it.
    pub server: Option<Ipv4Addr>,
    /// How many of its subscribers there are.
    pub subscribers: u32,
    /// The number of the worker that has it.
    pub worker: usize,
}

/// A page of sites, which workers own.
pub fn sites(leasing: &Leasing, asked: &Sites, ownership: Option<&Ownership>, now: u64) -> SitePage {
    let limit = asked.limit.clamp(1, PAGE);
    let (found, after) = leasing.site_views(asked.from, LINES, now);
    let next = found.get(limit).map(|(number, _)| *number).or(after);
    let by = leasing.site_kind();
    let view = |(_, status): (u32, SiteStatus)| SiteView {
        site: text(status.site, by),
        vlans: Vlans::of(status.site.realm),
        mac: nat_dhcp::mac::text(&status.mac),
        address: status.address,
        state: status.state.map_or("released", name),
        lease_s: status.left.map(|left| left as f64 / 1e9),
        server: status.server,
        subscribers: status.subscribers,
        worker: ownership.map_or(0, |ownership| ownership.site(status.site)),
    };
    SitePage { sites: found.into_iter().take(limit).map(view).collect(), next }
}

fn name(state: State) -> &'static str {
    match state {
        State::Init => "init",
        State::InitReboot => "init-reboot",
        State::Selecting => "selecting",
        State::Rebooting => "rebooting",
        State::Requesting => "requesting",
        State::Bound => "bound",
        State::Renewing => "renewing",
        State::Rebinding => "rebinding",
    }
}
