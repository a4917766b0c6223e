//! What is done about a request (RFC 6887 sections 8.2, 11.3, 12.3 and 15).

use crate::codec::{self, Body, MappingWish, Request, UnreadReason, ipv4};
use crate::epoch::Epoch;
use crate::limit::{Limit, Limiter};
use crate::mappings::{Client, Inside, Map, Mappings, Origin, Peer, Refusal};
use crate::result::ResultCode;
use std::net::{Ipv4Addr, SocketAddrV4};

/// What a server allows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Config {
    /// The shortest lifetime that is given, in s.
    pub min_lifetime_s: u32,
    /// The longest.
    pub max_lifetime_s: u32,
    /// Explicit mappings of a subscriber.
    pub quota: u32,
    /// Filters in a request.
    pub filters: usize,
    /// Who may make mappings for others: addresses of management hosts. Empty: the option THIRD_PARTY is not supported.
    pub third_party: Vec<Ipv4Addr>,
    /// Requests of a subscriber.
    pub limit: Limit,
}

impl Default for Config {
    /// Lifetimes as section 15 recommends.
    fn default() -> Self {
        Self {
            min_lifetime_s: 120,
            max_lifetime_s: 86_400,
            quota: 32,
            filters: 8,
            third_party: Vec::new(),
            limit: Limit::default(),
        }
    }
}

/// What came in.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Statistics {
    /// Answers, by [`ResultCode`].
    pub answers: [u64; ResultCode::NAMES.len()],
    /// Not answered, because it was no request.
    pub noise: u64,
    /// Not answered, because the subscriber sent too many.
    pub limited: u64,
}

/// An answer: lifetime, and outside address and port where there is one. Or an error with its lifetime.
type Outcome = Result<(u32, Option<SocketAddrV4>), (ResultCode, u32)>;

/// Answers requests.
#[derive(Debug)]
pub struct Server {
    config: Config,
    epoch: Epoch,
    limiter: Limiter,
    statistics: Statistics,
}

impl Server {
    /// A server whose mappings began with this epoch.
    pub fn new(config: Config, epoch: Epoch) -> Self {
        let limiter = Limiter::new(config.limit);
        Self { config, epoch, limiter, statistics: Statistics::default() }
    }

    /// What came in so far.
    pub fn statistics(&self) -> Statistics {
        self.statistics
    }

    /// The mappings are lost: the epoch begins anew, which clients learn from announcements and answers.
    pub fn restart(&mut self, now_ms: u64) {
        self.epoch = Epoch::since(now_ms);
    }

    /// The message that tells clients of a restart (RFC 6887 section 14.1).
    pub fn announcement(&self, now_ms: u64) -> Vec<u8> {
        codec::error(&[codec::VERSION, 0], ResultCode::Success, 0, self.epoch.at(now_ms))
    }

    /// Answer a datagram from a subscriber, whose address is the datagram's source; `None`: it gets no answer.
    pub fn answer(
        &mut self,
        now_ms: u64,
        client: Client,
        datagram: &[u8],
        mappings: &mut impl Mappings,
    ) -> Option<Vec<u8>> {
        if self.limiter.exceeded(client, now_ms) {
            self.statistics.limited += 1;
            return None;
        }
        let epoch = self.epoch.at(now_ms);
        let (answer, code) = match codec::read(datagram, client.address.to_ipv6_mapped()) {
            Err(UnreadReason::Noise) => {
                self.statistics.noise += 1;
                return None;
            }
            Err(UnreadReason::Error(code)) => (codec::unread(datagram, code, epoch), code),
            Ok(request) => match self.carry_out(client, &request, mappings) {
                Ok((lifetime_s, external)) => {
                    (codec::success(&request, lifetime_s, epoch, external), ResultCode::Success)
                }
                Err((code, lifetime_s)) => (codec::error(datagram, code, lifetime_s, epoch), code),
            },
        };
        self.statistics.answers[code as usize] += 1;
        Some(answer)
    }

    fn carry_out(&self, client: Client, request: &Request, mappings: &mut impl Mappings) -> Outcome {
        let client = self.on_behalf(client, request)?;
        match &request.body {
            Body::Announce => Ok((0, None)),
            Body::Map(wish) if request.lifetime_s == 0 => delete(client, wish, mappings),
            Body::Map(wish) => self.map(client, wish, request, mappings),
            Body::Peer(wish, port, remote) => {
                let remote = (ipv4(*remote), *port);
                self.peer(client, wish, remote, request.lifetime_s, mappings)
            }
        }
    }

    /// For whom the mapping is (RFC 6887 section 13.1).
    fn on_behalf(&self, client: Client, request: &Request) -> Result<Client, (ResultCode, u32)> {
        let Some(other) = request.options.third_party else { return Ok(client) };
        if self.config.third_party.is_empty() {
            return Err(refused(ResultCode::UnsuppOption));
        }
        if !self.config.third_party.contains(&client.address) {
            return Err(refused(ResultCode::NotAuthorized));
        }
        match ipv4(other) {
            Some(address) if address != client.address => Ok(Client { address, ..client }),
            _ => Err(refused(ResultCode::MalformedRequest)),
        }
    }

    fn map(
        &self,
        client: Client,
        wish: &MappingWish,
        request: &Request,
        mappings: &mut impl Mappings,
    ) -> Outcome {
        if wish.protocol == 0 && wish.internal_port != 0 {
            return Err(refused(ResultCode::MalformedRequest));
        }
        supported(wish.protocol)?;
        // All ports of an address that many share.
        if wish.internal_port == 0 {
            return Err(refused(ResultCode::NotAuthorized));
        }
        let options = &request.options;
        if options.filters.add.len() > self.config.filters {
            return Err(refused(ResultCode::ExcessiveRemotePeers));
        }
        let inside = Inside { client, protocol: wish.protocol, port: wish.internal_port };
        let (address, port) = suggested_endpoint(wish);
        let lifetime_s = self.bounded(request.lifetime_s);
        match mappings.explicit(inside) {
            None if mappings.count(client) >= self.config.quota => {
                return Err(refused(ResultCode::UserExQuota));
            }
            None => {}
            Some(there) => {
                owned(there.origin, wish, there.lifetime_s)?;
                let same = address.is_none_or(|address| address == *there.external.ip())
                    && port.is_none_or(|port| port == there.external.port());
                if options.prefer_failure && !same {
                    return Err(refused(ResultCode::CannotProvideExternal));
                }
                if there.origin == Origin::Static {
                    // A forward lets everybody in, whatever is asked.
                    if !options.filters.add.is_empty() {
                        return Err(refused(ResultCode::ExcessiveRemotePeers));
                    }
                    return Ok((lifetime_s, Some(there.external)));
                }
            }
        }
        if options.prefer_failure && is_foreign(wish) {
            return Err(refused(ResultCode::CannotProvideExternal));
        }
        let map = Map {
            inside,
            nonce: wish.nonce,
            address,
            port,
            exact: options.prefer_failure,
            lifetime_s,
            filters: options.filters.clone(),
        };
        let granted = mappings.map(map).map_err(result_code)?;
        Ok((granted.lifetime_s, Some(granted.external)))
    }

    fn peer(
        &self,
        client: Client,
        wish: &MappingWish,
        (remote, remote_port): (Option<Ipv4Addr>, u16),
        lifetime_s: u32,
        mappings: &mut impl Mappings,
    ) -> Outcome {
        if wish.protocol == 0 || wish.internal_port == 0 || remote_port == 0 {
            return Err(refused(ResultCode::MalformedRequest));
        }
        supported(wish.protocol)?;
        // There is no way from here to an IPv6 address.
        let remote = remote.filter(|remote| !remote.is_unspecified());
        let Some(remote) = remote else { return Err(refused(ResultCode::MalformedRequest)) };
        let inside = Inside { client, protocol: wish.protocol, port: wish.internal_port };
        if let Some(there) = mappings.explicit(inside) {
            owned(there.origin, wish, there.lifetime_s)?;
        }
        let (address, port) = suggested_endpoint(wish);
        if is_foreign(wish) {
            return Err(refused(ResultCode::CannotProvideExternal));
        }
        let lifetime_s = if lifetime_s == 0 { 0 } else { self.bounded(lifetime_s) };
        let remote = SocketAddrV4::new(remote, remote_port);
        let peer = Peer { inside, nonce: wish.nonce, address, port, remote, lifetime_s };
        match mappings.peer(peer) {
            Ok(granted) => Ok((granted.lifetime_s, Some(granted.external))),
            // as to delete what is not there
            Err(Refusal::NotThere) => Ok((0, None)),
            Err(refusal) => Err(result_code(refusal)),
        }
    }

    fn bounded(&self, lifetime_s: u32) -> u32 {
        lifetime_s.min(self.config.max_lifetime_s).max(self.config.min_lifetime_s)
    }
}

/// A MAP request of lifetime 0 (RFC 6887 section 15.1). To delete what is not there is a success.
fn delete(client: Client, wish: &MappingWish, mappings: &mut impl Mappings) -> Outcome {
    if wish.internal_port == 0 {
        let protocol = (wish.protocol != 0).then_some(wish.protocol);
        mappings.delete_all(client, protocol, wish.nonce);
        return Ok((0, None));
    }
    if wish.protocol == 0 {
        return Err(refused(ResultCode::MalformedRequest));
    }
    let inside = Inside { client, protocol: wish.protocol, port: wish.internal_port };
    match mappings.explicit(inside) {
        None => {}
        Some(there) if there.origin == Origin::Static => return Err(refused(ResultCode::NotAuthorized)),
        Some(there) => {
            owned(there.origin, wish, there.lifetime_s)?;
            mappings.delete(inside);
        }
    }
    Ok((0, None))
}

/// A mapping is changed only with the nonce that it was made with; the error lasts as long as the mapping (RFC 6887 section 11.3).
fn owned(origin: Origin, wish: &MappingWish, lifetime_s: u32) -> Result<(), (ResultCode, u32)> {
    match origin {
        Origin::Pcp(nonce) if nonce != wish.nonce => Err((ResultCode::NotAuthorized, lifetime_s)),
        _ => Ok(()),
    }
}

/// The NAT maps ports of TCP and UDP.
fn supported(protocol: u8) -> Result<(), (ResultCode, u32)> {
    if matches!(protocol, 6 | 17) { Ok(()) } else { Err(refused(ResultCode::UnsuppProtocol)) }
}

/// The outside address and port that are wished for; zeros are no wish.
fn suggested_endpoint(wish: &MappingWish) -> (Option<Ipv4Addr>, Option<u16>) {
    let address = ipv4(wish.address).filter(|address| !address.is_unspecified());
    (address, (wish.port != 0).then_some(wish.port))
}

/// Whether an outside address is wished for that is not IPv4: it is none of ours.
fn is_foreign(wish: &MappingWish) -> bool {
    ipv4(wish.address).is_none() && !wish.address.is_unspecified()
}

fn refused(code: ResultCode) -> (ResultCode, u32) {
    (code, code.lifetime_s())
}

fn result_code(refusal: Refusal) -> (ResultCode, u32) {
    refused(match refusal {
        Refusal::NotAuthorized => ResultCode::NotAuthorized,
        Refusal::NetworkFailure => ResultCode::NetworkFailure,
        // NotThere is no refusal to whom asked
        Refusal::NoResources | Refusal::NotThere => ResultCode::NoResources,
        Refusal::Quota => ResultCode::UserExQuota,
        Refusal::CannotProvideExternal => ResultCode::CannotProvideExternal,
        Refusal::ExcessiveRemotePeers => ResultCode::ExcessiveRemotePeers,
    })
}
