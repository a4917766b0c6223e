//! Port Control Protocol (RFC 6887) at the box's inside address: subscribers ask for mappings, and whoever keeps their sessions answers.

mod mappings;

use self::mappings::NatMappings;
use ::protocol::problem::Problem;
use ::protocol::unit::Interval;
use nat_core::{Forward, Headers, Hop, Nat, Realm, Side, key};
use nat_pcp::{CLIENT_PORT, Client, Config, Epoch, MAX_LEN, SERVER_PORT, Server, announcement_at_ms};
use packet::checksum::{Sum, pseudo_header};
use packet::ethernet::{TAG, Tags};
use packet::ipv4::{self, Ipv4};
use packet::layers::protocol::UDP;
use packet::{Mac, udp};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddrV4};

/// Those who hear announcements (RFC 6887 section 14.1.3), and their Ethernet address (RFC 1112 section 6.4).
const ALL_HOSTS: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::new(224, 0, 0, 1), CLIENT_PORT);
pub const ALL_HOSTS_MAC: Mac = [1, 0, 0x5e, 0, 0, 1];
/// Most mappings of a subscriber, and the longest lifetime: a day (RFC 6887 section 15).
const MOST_MAPPINGS: u32 = 4096;
const LONGEST_S: u64 = 86_400;

/// Port Control Protocol for subscribers (RFC 6887).
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PcpOptions {
    /// Mappings that a subscriber may have by it, 1 to 4096. Default 32.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mappings_per_subscriber: Option<u32>,
    /// How long a mapping lives before it must be asked for again.
    #[serde(default, skip_serializing_if = "Lifetimes::is_default")]
    pub lifetime: Lifetimes,
}

/// Bounds of lifetimes that are asked for.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Lifetimes {
    /// The shortest, 1s at least. Default 2min.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub least: Option<Interval>,
    /// The longest, 24h at most. Default 2h, by when a subscriber that is learned from what it sends is heard again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub most: Option<Interval>,
}

impl Lifetimes {
    /// Whether nothing is said.
    pub fn is_default(&self) -> bool {
        *self == Self::default()
    }

    /// In seconds.
    fn bounds(&self) -> (u64, u64) {
        let s = |said: Option<Interval>, other| said.map_or(other, |said| said.0.as_secs());
        (s(self.least, 120), s(self.most, 7_200))
    }
}

impl PcpOptions {
    /// What is wrong with them.
    pub fn check(&self) -> Vec<Problem> {
        let mut problems = Vec::new();
        let mappings = self.config().quota;
        if !(1..=MOST_MAPPINGS).contains(&mappings) {
            let what = format!("{mappings} mappings are not within 1 to {MOST_MAPPINGS}");
            problems.push(Problem::new("mappings_per_subscriber", what, "Use 32, or leave it out"));
        }
        let (least, most) = self.lifetime.bounds();
        if least < 1 {
            problems.push(Problem::new("lifetime.least", "it is less than 1s", "Use 2min, or leave it out"));
        }
        if most > LONGEST_S {
            problems.push(Problem::new("lifetime.most", "it is more than 24h", "Use 24h at most"));
        }
        if most < least {
            let what = format!("{most} s are less than the {least} s of lifetime.least");
            problems.push(Problem::new("lifetime.most", what, "Make it as long, or longer"));
        }
        problems
    }

    fn config(&self) -> Config {
        let (least, most) = self.lifetime.bounds();
        let default = Config::default();
        Config {
            quota: self.mappings_per_subscriber.unwrap_or(default.quota),
            min_lifetime_s: least as u32,
            max_lifetime_s: most as u32,
            filters: nat_core::explicit::FILTERS,
            ..default
        }
    }
}

/// The server of one worker's subscribers.
#[derive(Debug)]
pub struct Answers {
    server: Server,
    own: Ipv4Addr,
    /// In which VLANs a restart is announced.
    realm: Realm,
    /// How often it was; the other workers' mappings were lost with those of the one that announces it.
    announced: Option<u32>,
    /// When the first look at the time was, ms.
    began_ms: Option<u64>,
    /// Answers for which there was no room.
    lost: u64,
}

impl Answers {
    /// At this address of the box; with `announces` it tells the VLANs of `tags` that mappings were lost.
    pub fn new(options: &PcpOptions, own: Ipv4Addr, tags: &Tags, announces: bool) -> Self {
        let server = Server::new(options.config(), Epoch::since(0));
        let realm = realm(tags);
        Self { server, own, realm, announced: announces.then_some(0), began_ms: None, lost: 0 }
    }

    /// Whether a packet from the inside is a request.
    pub fn is_request(&self, headers: &Headers) -> bool {
        headers.protocol == UDP
            && headers.special & (Headers::FRAGMENT | Headers::SHORT) == 0
            && headers.destination() == nat_core::Endpoint::new(self.own.to_bits(), SERVER_PORT)
    }

    /// Answer a request, by way of what the NAT sends by itself.
    pub fn answer(&mut self, nat: &mut Nat, frame: &[u8], headers: &Headers, hop: Hop, now: u64) {
        let now_ms = self.begin(now);
        let Headers { realm, l4, end, .. } = *headers;
        let source = headers.source();
        let client = Client { address: Ipv4Addr::from_bits(source.address), realm };
        let datagram = payload(frame.get(l4.into()..end.into()).unwrap_or(&[]));
        let mappings = &mut NatMappings { nat, now };
        let Some(answer) = self.server.answer(now_ms, client, datagram, mappings) else { return };
        let from = SocketAddrV4::new(self.own, SERVER_PORT);
        let head = head(from, SocketAddrV4::new(client.address, source.port), &answer);
        self.lost += u64::from(!nat.send_own(&[&head, &answer], Forward { to: Side::Inside, hop, realm }));
    }

    /// The packet that announces a restart, from its IP header on, and with which tags, when its time has come.
    pub fn announcement(&mut self, now: u64) -> Option<(Vec<u8>, Realm)> {
        let now_ms = self.begin(now);
        let number = self.announced.as_mut()?;
        let Some(after) = announcement_at_ms(*number) else {
            self.announced = None;
            return None;
        };
        if now_ms < self.began_ms? + after {
            return None;
        }
        *number += 1;
        let message = self.server.announcement(now_ms);
        let head = head(SocketAddrV4::new(self.own, SERVER_PORT), ALL_HOSTS, &message);
        Some(([&head[..], &message].concat(), self.realm))
    }

    /// Requests that got no answer: what is none, and those that were too many.
    pub fn unanswered(&self) -> (u64, u64) {
        let statistics = self.server.statistics();
        (statistics.noise, statistics.limited + self.lost)
    }

    /// Answers, by their result.
    pub fn results(&self) -> BTreeMap<&'static str, u64> {
        let counts = self.server.statistics().answers;
        nat_pcp::ResultCode::NAMES.into_iter().zip(counts).filter(|(_, count)| *count > 0).collect()
    }

    /// The time in ms; it begins with the first that is told.
    fn begin(&mut self, now: u64) -> u64 {
        let now_ms = now / 1_000_000;
        if self.began_ms.is_none() {
            self.began_ms = Some(now_ms);
            self.server.restart(now_ms);
        }
        now_ms
    }
}

/// What a UDP datagram carries; nothing, if its length cannot be.
fn payload(datagram: &[u8]) -> &[u8] {
    let len = datagram.get(4..6).map_or(0, |len| usize::from(u16::from_be_bytes([len[0], len[1]])));
    datagram.get(udp::LEN..len).unwrap_or(&[])
}

/// IP and UDP header of a message.
fn head(from: SocketAddrV4, to: SocketAddrV4, message: &[u8]) -> [u8; ipv4::LEN + udp::LEN] {
    let mut head = [0; ipv4::LEN + udp::LEN];
    let len = (udp::LEN + message.len().min(MAX_LEN)) as u16;
    if let Some((ip, header)) = head.split_first_chunk_mut::<{ ipv4::LEN }>() {
        let (source, destination) = (*from.ip(), *to.ip());
        Ipv4 { source, destination, protocol: UDP, ttl: 64, dscp: 48, payload: len }.emit(ip);
        header[..2].copy_from_slice(&from.port().to_be_bytes());
        header[2..4].copy_from_slice(&to.port().to_be_bytes());
        header[4..6].copy_from_slice(&len.to_be_bytes());
        let pseudo = pseudo_header(&ip[12..], UDP, len.into());
        let sum = pseudo.plus(Sum::ZERO.bytes(header)).bytes(message).checksum();
        // Zero says that there is none (RFC 768).
        let sum = if sum == 0 { u16::MAX } else { sum };
        header[6..8].copy_from_slice(&sum.to_be_bytes());
    }
    head
}

/// The tags of a port, as the NAT has them.
fn realm(tags: &Tags) -> Realm {
    let mut found = [0; 2];
    for (control, tag) in found.iter_mut().zip(tags.bytes().chunks_exact(TAG)) {
        *control = u16::from_be_bytes([tag[2], tag[3]]);
    }
    key::realm(found, (tags.bytes().len() / TAG) as u8)
}

#[cfg(test)]
#[path = "tests.rs"]
mod tests;
