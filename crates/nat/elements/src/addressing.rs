//! To whom a packet goes over a link, and from whom.

use crate::link::{self, Addresses};
use crate::packet_action::PacketAction;
use crate::public::PublicAddresses;
use crate::shared::SessionEnd;
use arrayvec::ArrayVec;
use nat_core::neighbours::{Neighbour, Neighbours};
use nat_core::{BURST, Forward, Frame, Hop, Reason, Side};
use packet::Mac;
use std::sync::Arc;

/// The Ethernet address of the next hop is not known (yet).
pub const NO_NEXT_HOP: usize = Reason::NAMES.len();

/// Next hops that are no subscriber's: none yet, and the router outside.
pub const UNKNOWN: Hop = 0;
pub const GATEWAY: Hop = 1;

/// A port, as the NAT knows it.
#[derive(Debug)]
pub struct Port {
    pub number: u16,
    pub mac: Mac,
}

/// What sessions have in common with the other elements of their NAT.
#[derive(Debug)]
pub struct Links {
    /// The router outside.
    pub gateway: Arc<Neighbour>,
    /// The subscribers.
    pub neighbours: Arc<Neighbours>,
    /// Subscribers that are gone.
    pub end: SessionEnd,
    /// Where sites have addresses of their own in place of a pool.
    pub sites: Option<PublicAddresses>,
}

/// A packet whose link header has another length where it goes.
#[derive(Debug)]
pub struct RetaggedFrame {
    /// Of the burst.
    pub number: usize,
    pub forward: Forward,
    pub l3: u16,
    pub addresses: Addresses,
}

/// What is done when all packets of a burst are translated.
#[derive(Debug, Default)]
pub struct PostTranslation {
    /// Those that are yet to get their link header.
    pub tagged: ArrayVec<RetaggedFrame, BURST>,
    /// Those to a subscriber whose next hop is not in its session, by their number.
    pub unresolved: ArrayVec<(usize, Forward), BURST>,
}

/// The addresses of a burst's links.
#[derive(Debug, Clone, Copy)]
pub struct Addressing<'a> {
    ports: &'a [Port; 2],
    links: &'a Links,
    /// Where sites have no addresses of their own it is the same for all that goes outside.
    outside: Option<Addresses>,
}

impl<'a> Addressing<'a> {
    #[inline]
    pub fn new(ports: &'a [Port; 2], links: &'a Links) -> Self {
        let outside = links.gateway.mac().map(|gateway| link::addresses(gateway, ports[1].mac));
        Self { ports, links, outside }
    }

    /// Write the link header of a packet that goes on, now or later.
    #[inline(always)]
    pub fn apply(
        &self,
        number: usize,
        frame: &mut Frame<'_>,
        forward: Forward,
        later: &mut PostTranslation,
    ) -> PacketAction {
        if forward.to == Side::Inside && forward.hop == UNKNOWN {
            let _there_is_room = later.unresolved.try_push((number, forward));
            return PacketAction::AWAITS;
        }
        let addresses = match self.of(forward) {
            Ok(addresses) => addresses,
            Err(reason) => return PacketAction::drop(reason),
        };
        let l3 = frame.headers.l3;
        if forward.realm != 0 || !link::readdress(frame.bytes, l3.into(), addresses) {
            let _there_is_room = later.tagged.try_push(RetaggedFrame { number, forward, l3, addresses });
        }
        PacketAction::to(forward.to)
    }

    /// An error is a reason to drop the packet.
    #[inline(always)]
    pub fn of(&self, forward: Forward) -> Result<Addresses, usize> {
        match (forward.to, &self.links.sites) {
            (Side::Outside, None) => self.outside.ok_or(NO_NEXT_HOP),
            (Side::Outside, Some(sites)) => {
                let from = sites.mac(forward.hop, self.ports[1].mac)?;
                Ok(link::addresses(self.links.gateway.mac().ok_or(NO_NEXT_HOP)?, from))
            }
            (Side::Inside, _) => {
                let to = self.links.neighbours.mac(forward.hop).ok_or(NO_NEXT_HOP)?;
                Ok(link::addresses(to, self.ports[0].mac))
            }
        }
    }
}
