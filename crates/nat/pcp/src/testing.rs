//! A book of mappings that stands for the NAT, and requests as a client writes them.

use crate::mappings::{
    Client, Explicit, Filter, Inside, Map, MappingGrant, Mappings, Nonce, Origin, Peer, Refusal,
};
use std::collections::HashMap;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddrV4};

/// Mappings of one outside address.
#[derive(Debug, Clone)]
pub struct MappingTable {
    /// The outside address.
    pub outside: Ipv4Addr,
    /// The explicit mappings.
    pub explicit: HashMap<Inside, Explicit>,
    /// Their filters.
    pub filters: HashMap<Inside, Vec<Filter>>,
    /// What is answered to each request for a new mapping, if not yes.
    pub refusal: Option<Refusal>,
}

impl Default for MappingTable {
    fn default() -> Self {
        let outside = Ipv4Addr::new(192, 0, 2, 1);
        Self { outside, explicit: HashMap::new(), filters: HashMap::new(), refusal: None }
    }
}

impl MappingTable {
    fn taken(&self, protocol: u8, port: u16) -> bool {
        self.explicit
            .iter()
            .any(|(inside, there)| inside.protocol == protocol && there.external.port() == port)
    }
}

impl Mappings for MappingTable {
    fn explicit(&self, inside: Inside) -> Option<Explicit> {
        self.explicit.get(&inside).copied()
    }

    fn count(&self, client: Client) -> u32 {
        let own = |(inside, there): &(&Inside, &Explicit)| {
            inside.client == client && there.origin != Origin::Static
        };
        self.explicit.iter().filter(own).count() as u32
    }

    fn map(&mut self, map: Map) -> Result<MappingGrant, Refusal> {
        if let Some(refusal) = self.refusal {
            return Err(refusal);
        }
        let protocol = map.inside.protocol;
        let there = self.explicit.get(&map.inside).map(|there| there.external.port());
        let wish = map.port.filter(|port| !self.taken(protocol, *port));
        let ours = map.address.is_none_or(|address| address == self.outside);
        if there.is_none() && map.exact && (!ours || (map.port.is_some() && wish.is_none())) {
            return Err(Refusal::CannotProvideExternal);
        }
        let free = || (1024..=u16::MAX).find(|port| !self.taken(protocol, *port));
        let port = there.or(wish).or_else(free).ok_or(Refusal::NoResources)?;
        let external = SocketAddrV4::new(self.outside, port);
        let lifetime_s = map.lifetime_s;
        self.explicit.insert(map.inside, Explicit { origin: Origin::Pcp(map.nonce), external, lifetime_s });
        let filters = self.filters.entry(map.inside).or_default();
        if map.filters.clear {
            filters.clear();
        }
        filters.extend(map.filters.add);
        Ok(MappingGrant { external, lifetime_s })
    }

    fn delete(&mut self, inside: Inside) {
        self.explicit.remove(&inside);
        self.filters.remove(&inside);
    }

    fn delete_all(&mut self, client: Client, protocol: Option<u8>, nonce: Nonce) {
        self.explicit.retain(|inside, there| {
            inside.client != client
                || there.origin != Origin::Pcp(nonce)
                || protocol.is_some_and(|protocol| protocol != inside.protocol)
        });
        let Self { explicit, filters, .. } = self;
        filters.retain(|inside, _| explicit.contains_key(inside));
    }

    fn peer(&mut self, peer: Peer) -> Result<MappingGrant, Refusal> {
        if let Some(refusal) = self.refusal {
            return Err(refusal);
        }
        let port = self.explicit.get(&peer.inside).map(|there| there.external.port());
        let external = SocketAddrV4::new(self.outside, port.or(peer.port).unwrap_or(2048));
        Ok(MappingGrant { external, lifetime_s: peer.lifetime_s.max(300) })
    }
}

/// What a client asks for. Zeros and unspecified addresses are no wish.
#[derive(Debug, Clone, Copy)]
pub struct Ask {
    /// Opcode: 0 ANNOUNCE, 1 MAP, 2 PEER.
    pub opcode: u8,
    /// Requested lifetime.
    pub lifetime_s: u32,
    /// The client's own address.
    pub client: Ipv4Addr,
    /// Mapping nonce.
    pub nonce: Nonce,
    /// IP protocol.
    pub protocol: u8,
    /// Internal port.
    pub port: u16,
    /// Suggested external address and port.
    pub external: SocketAddrV4,
    /// The other end, of PEER.
    pub remote: SocketAddrV4,
}

impl Ask {
    /// The request, with these options.
    pub fn bytes(&self, options: &[Vec<u8>]) -> Vec<u8> {
        let mut bytes = vec![crate::VERSION, self.opcode, 0, 0];
        bytes.extend(self.lifetime_s.to_be_bytes());
        bytes.extend(self.client.to_ipv6_mapped().octets());
        if self.opcode > 0 {
            bytes.extend(self.nonce);
            bytes.extend([self.protocol, 0, 0, 0]);
            bytes.extend(self.port.to_be_bytes());
            bytes.extend(self.external.port().to_be_bytes());
            bytes.extend(self.external.ip().to_ipv6_mapped().octets());
        }
        if self.opcode == 2 {
            bytes.extend(self.remote.port().to_be_bytes());
            bytes.extend([0; 2]);
            bytes.extend(self.remote.ip().to_ipv6_mapped().octets());
        }
        bytes.extend(options.concat());
        bytes
    }
}

/// An option, padded.
pub fn option(code: u8, value: &[u8]) -> Vec<u8> {
    let mut bytes = vec![code, 0];
    bytes.extend((value.len() as u16).to_be_bytes());
    bytes.extend_from_slice(value);
    bytes.resize(bytes.len().next_multiple_of(4), 0);
    bytes
}

/// THIRD_PARTY.
pub fn third_party(address: Ipv4Addr) -> Vec<u8> {
    option(1, &address.to_ipv6_mapped().octets())
}

/// PREFER_FAILURE.
pub fn prefer_failure() -> Vec<u8> {
    option(2, &[])
}

/// FILTER, with a prefix length of 128 bits.
pub fn filter(prefix: u8, port: u16, address: Ipv6Addr) -> Vec<u8> {
    let mut value = vec![0, prefix];
    value.extend(port.to_be_bytes());
    value.extend(address.octets());
    option(3, &value)
}
