//! What a server gives, and whether that can be.

use super::message::Reply;
use super::{Config, IgnoreReason, SECOND};
use crate::lease::of_a_host;
use rand::Rng;
use std::net::Ipv4Addr;

/// What an option says for a lease that never ends.
const INFINITE: u32 = u32::MAX;
/// Nobody is made to renew more often, unless the lease is shorter than twice this; in seconds.
const LEAST_T1: u64 = 60;

/// An address, and on which terms a client has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Terms {
    /// The address.
    pub address: Ipv4Addr,
    /// Of its network, if the server says so.
    pub mask: Option<Ipv4Addr>,
    /// The first router, if the server names one.
    pub router: Option<Ipv4Addr>,
    /// Who gave it (option 54).
    pub server: Ipv4Addr,
    /// How long, in seconds; none: for ever.
    pub seconds: Option<u32>,
}

impl Terms {
    /// What a reply offers.
    pub(super) fn of(reply: &Reply, config: &Config) -> Result<Self, IgnoreReason> {
        let (address, server) = (reply.address, reply.server);
        let seconds = reply.lease.ok_or(IgnoreReason::Malformed)?;
        if !of_a_host(server) {
            return Err(IgnoreReason::Malformed);
        }
        let router = reply.router.filter(|router| of_a_host(*router));
        let edge = reply.mask.is_some_and(|mask| is_edge(address, mask));
        let one = of_a_host(address) && config.allows(address);
        if !one || address == server || Some(address) == router || edge {
            return Err(IgnoreReason::BadAddress);
        }
        if seconds == 0 || seconds < config.least_lease {
            return Err(IgnoreReason::ShortLease);
        }
        let seconds = (seconds != INFINITE).then_some(seconds);
        Ok(Self { address, mask: reply.mask, router, server, seconds })
    }
}

/// Whether it is the address of the network itself, or that of its broadcasts.
fn is_edge(address: Ipv4Addr, mask: Ipv4Addr) -> bool {
    let (address, hosts) = (u32::from(address), !u32::from(mask));
    // RFC 3021: a network of two has neither. A mask with holes says nothing.
    let known = hosts.leading_zeros() + hosts.trailing_ones() == 32 && hosts > 1 && hosts < u32::MAX;
    known && (address & hosts == 0 || address & hosts == hosts)
}

/// When a client renews, rebinds, and gives up: nanoseconds on its clock, or never.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Times {
    pub t1: u64,
    pub t2: u64,
    pub end: u64,
}

impl Times {
    /// Of a lease that was asked for at `from`. T1 and T2 as the server says where they are in order and not absurd, else
    /// half and seven eighths of the lease; both a little earlier at random (RFC 2131 section 4.4.5).
    pub(super) fn new(reply: &Reply, seconds: Option<u32>, from: u64, random: &mut impl Rng) -> Self {
        let Some(seconds) = seconds.map(u64::from) else {
            return Self { t1: u64::MAX, t2: u64::MAX, end: u64::MAX };
        };
        let lease = seconds * SECOND;
        let said = |option: Option<u32>, default| option.map_or(default, |said| u64::from(said) * SECOND);
        let defaults = (lease / 2, lease / 8 * 7);
        let (t1, t2) = (said(reply.t1, defaults.0), said(reply.t2, defaults.1));
        let least = defaults.0.min(LEAST_T1 * SECOND);
        let (t1, t2) = if least <= t1 && t1 < t2 && t2 < lease { (t1, t2) } else { defaults };
        let mut earlier = |span: u64| random.random_range(0..=span / 20);
        let (t1, t2) = (t1 - earlier(t1), t2 - earlier(t2 - t1));
        let at = |after| from.saturating_add(after);
        Self { t1: at(t1), t2: at(t2), end: at(lease) }
    }
}
