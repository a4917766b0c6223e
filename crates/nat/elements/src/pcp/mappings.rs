//! The NAT, as the PCP server asks it.

use nat_core::config::{Prefix, SECOND};
use nat_core::{Endpoint, ExplicitMapping, MappingError, MappingRequest, Nat, Reason, RemoteFilter};
use nat_pcp::{Client, Explicit, Inside, Map, MappingGrant, Mappings, Nonce, Origin, Peer, Refusal};
use std::net::{Ipv4Addr, SocketAddrV4};

/// The NAT at a time.
#[derive(Debug)]
pub struct NatMappings<'a> {
    pub nat: &'a mut Nat,
    pub now: u64,
}

fn endpoint(inside: &Inside) -> Endpoint {
    Endpoint::new(inside.client.address.to_bits(), inside.port)
}

fn address(end: Endpoint) -> SocketAddrV4 {
    SocketAddrV4::new(Ipv4Addr::from_bits(end.address), end.port)
}

impl NatMappings<'_> {
    fn expiry(&self, lifetime_s: u32) -> u64 {
        self.now.saturating_add(u64::from(lifetime_s) * SECOND)
    }

    /// Seconds that are left.
    fn remaining_seconds(&self, until: u64) -> u32 {
        u32::try_from(until.saturating_sub(self.now).div_ceil(SECOND)).unwrap_or(u32::MAX)
    }
}

impl Mappings for NatMappings<'_> {
    fn explicit(&self, inside: Inside) -> Option<Explicit> {
        Some(match self.nat.explicit(endpoint(&inside), inside.protocol, inside.client.realm)? {
            ExplicitMapping::Static(outside) => {
                Explicit { origin: Origin::Static, external: address(outside), lifetime_s: u32::MAX }
            }
            ExplicitMapping::Requested(outside, explicit) => Explicit {
                origin: Origin::Pcp(explicit.nonce),
                external: address(outside),
                lifetime_s: self.remaining_seconds(explicit.until),
            },
        })
    }

    fn count(&self, client: Client) -> u32 {
        self.nat.explicit_count(client.address.to_bits(), client.realm) as u32
    }

    fn map(&mut self, map: Map) -> Result<MappingGrant, Refusal> {
        let filter = |filter: &nat_pcp::Filter| RemoteFilter {
            network: Prefix::new(filter.address, filter.prefix),
            port: filter.port,
        };
        let filters: Vec<RemoteFilter> = map.filters.add.iter().map(filter).collect();
        let wanted = MappingRequest {
            address: map.address.map(Ipv4Addr::to_bits),
            port: map.port,
            exact: map.exact,
            nonce: map.nonce,
            clear: map.filters.clear,
            filters: &filters,
            ..self.mapping_request(&map.inside, map.lifetime_s)
        };
        let outside = self.nat.map(&wanted, self.now).map_err(refusal)?;
        Ok(MappingGrant { external: address(outside), lifetime_s: map.lifetime_s })
    }

    fn delete(&mut self, inside: Inside) {
        let (end, now) = (endpoint(&inside), self.now);
        let _was_there = self.nat.unmap(end, inside.protocol, inside.client.realm, now);
    }

    fn delete_all(&mut self, client: Client, protocol: Option<u8>, nonce: Nonce) {
        self.nat.unmap_all(client.address.to_bits(), client.realm, protocol, &nonce, self.now);
    }

    fn peer(&mut self, peer: Peer) -> Result<MappingGrant, Refusal> {
        let wanted = MappingRequest {
            address: peer.address.map(Ipv4Addr::to_bits),
            port: peer.port,
            // RFC 6887 section 12.2: at another endpoint the connection that it is for could not go on.
            exact: peer.address.is_some() || peer.port.is_some(),
            nonce: peer.nonce,
            ..self.mapping_request(&peer.inside, peer.lifetime_s)
        };
        let remote = Endpoint::new(peer.remote.ip().to_bits(), peer.remote.port());
        let (outside, until) = self.nat.peer(&wanted, remote, self.now).map_err(refusal)?;
        Ok(MappingGrant { external: address(outside), lifetime_s: self.remaining_seconds(until) })
    }
}

impl NatMappings<'_> {
    fn mapping_request(&self, inside: &Inside, lifetime_s: u32) -> MappingRequest<'static> {
        MappingRequest::new(endpoint(inside), inside.protocol, inside.client.realm, self.expiry(lifetime_s))
    }
}

fn refusal(why: MappingError) -> Refusal {
    match why {
        MappingError::Taken => Refusal::CannotProvideExternal,
        MappingError::Filters => Refusal::ExcessiveRemotePeers,
        MappingError::NotThere => Refusal::NotThere,
        MappingError::Refused(Reason::SubscriberSessions | Reason::SubscriberPorts) => Refusal::Quota,
        MappingError::Refused(Reason::NoPublicAddress) => Refusal::NetworkFailure,
        MappingError::Refused(
            Reason::NotInside
            | Reason::Protocol
            | Reason::NoMapping
            | Reason::MartianSource
            | Reason::MartianDestination
            | Reason::InsideDestination
            | Reason::Land
            | Reason::Acl,
        ) => Refusal::NotAuthorized,
        MappingError::Refused(_) => Refusal::NoResources,
    }
}
