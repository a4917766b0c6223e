//! Packets that no router forwards, by their addresses and IP options.
//!
//! Addresses: RFC 1812 section 5.3.7 and RFC 6890 (martians), RFC 2827 (spoofed sources), RFC 2644 (directed broadcasts). Options:
//! RFC 7126. Only packets of the slow path are looked at: a session with a martian endpoint never begins, and those of hairpins
//! never leave the slow path.

use crate::config::Config;
use crate::headers::Headers;
use crate::nat::{Flow, Nat};
use crate::reason::Reason;
use crate::rules::IpOptions;
use crate::verdict::Side;
use std::net::Ipv4Addr;

/// Bytes of an IP header without options.
const BARE: usize = 20;

/// Whether an address is no single host's on any network that packets are forwarded to or from: groups (RFC 1812 section 5.3.7), and
/// what RFC 6890 and its registry call not forwardable: 0/8, 127/8, 169.254/16, 240/4 with the limited broadcast, and 192.0.0.0/24 but
/// for 192.0.0.0/29, 192.0.0.9 and 192.0.0.10. Prefixes for documentation are forwarded: labs use them.
#[inline]
pub fn is_martian(address: u32) -> bool {
    matches!(address >> 24, 0 | 127 | 224..)
        || address >> 16 == 0xa9fe
        || address >> 8 == 0x00c0_0000 && !matches!(address & 0xff, 0..=7 | 9 | 10)
}

impl IpOptions {
    /// Whether a packet with these options is forwarded.
    fn check(self, frame: &[u8], headers: &Headers) -> Result<(), Reason> {
        /// Loose and strict source route (RFC 791 section 3.1).
        const SOURCE_ROUTES: [u8; 2] = [131, 137];
        let (l3, l4) = (usize::from(headers.l3), usize::from(headers.l4));
        if l4 <= l3 + BARE || self == Self::Any {
            return Ok(());
        }
        if self == Self::None {
            return Err(Reason::IpOptions);
        }
        let mut options = frame.get(l3 + BARE..l4).ok_or(Reason::Truncated)?;
        while let Some((kind, rest)) = options.split_first() {
            options = match (kind, rest.first()) {
                (0, _) => return Ok(()),
                (1, _) => rest,
                (kind, _) if SOURCE_ROUTES.contains(kind) => return Err(Reason::IpOptions),
                (_, Some(length @ 2..)) => options.get(usize::from(*length)..).ok_or(Reason::Malformed)?,
                _ => return Err(Reason::Malformed),
            };
        }
        Ok(())
    }
}

impl Config {
    /// Whether an address is the box's own.
    fn is_own(&self, address: u32) -> bool {
        [self.addresses.inside, self.addresses.outside].contains(&Some(Ipv4Addr::from_bits(address)))
    }

    fn is_non_host_address(&self, address: u32) -> bool {
        self.packet_filter.non_host_addresses.contains(&Ipv4Addr::from_bits(address))
    }

    /// Whether no host but the box can have an address.
    pub(crate) fn is_no_host(&self, address: u32) -> bool {
        is_martian(address) || self.is_own(address) || self.is_non_host_address(address)
    }

    /// Whether an address of the subscribers' space is outside nevertheless.
    fn is_outside(&self, address: u32) -> bool {
        self.packet_filter.outside.iter().any(|prefix| prefix.has(address))
            || self.exempt.iter().any(|exempt| exempt.destination.has(address))
    }
}

impl Nat {
    /// Whether a packet that came in by `side` may be forwarded, by its addresses and options.
    pub(crate) fn passes_filter(&self, side: Side, frame: &[u8], headers: &Headers) -> Result<(), Reason> {
        self.config.packet_filter.options.check(frame, headers)?;
        match self.filter_addresses(side, headers) {
            // Many routers outside have private addresses; without their errors nobody finds out the MTU of a path (RFC 6752 section 5,
            // RFC 5508 REQ-4). What they quote says more than where they say to be.
            Err(Reason::SpoofedSource) if self.is_report_of_outside(side, frame, headers) => Ok(()),
            result => result,
        }
    }

    /// Whether it is an ICMP error about what a subscriber has sent, by a router whose address could be a subscriber's.
    fn is_report_of_outside(&self, side: Side, frame: &[u8], headers: &Headers) -> bool {
        let source = headers.source();
        side == Side::Outside
            && !self.config.is_own(source.address)
            && !self.pool.is_here(source)
            && self.reports_sent(frame, headers)
    }

    /// Whether a subscriber's endpoint may begin a session with a remote one, as a packet would.
    pub(crate) fn may_begin(&self, flow: &Flow) -> Result<(), Reason> {
        let headers = Headers { protocol: flow.protocol, realm: flow.realm, ..Headers::default() };
        let headers = headers.between(flow.inside, flow.remote);
        self.filter_addresses(Side::Inside, &headers)?;
        self.begins(&headers)
    }

    /// Whether a packet from the inside may begin a session: by the operator's rules, and not with itself. In that case the outside
    /// endpoint would stand at both ends, and whoever answers there answers itself.
    pub(crate) fn begins(&self, headers: &Headers) -> Result<(), Reason> {
        self.permits(Side::Inside, headers)?;
        let (source, destination) = (headers.source(), headers.destination());
        let mapped =
            self.pool.has(destination.address).then(|| self.mapped_outside(destination, headers.protocol));
        let behind = mapped.flatten().and_then(|mapped| self.inside_endpoint(mapped));
        if behind == Some((source, headers.realm)) { Err(Reason::Land) } else { Ok(()) }
    }

    fn filter_addresses(&self, side: Side, headers: &Headers) -> Result<(), Reason> {
        let (source, destination) = (headers.source(), headers.destination().address);
        if is_martian(source.address) || self.config.is_non_host_address(source.address) {
            return Err(Reason::MartianSource);
        }
        match side {
            // The box's own from inside; from outside it is a spoofed one.
            Side::Inside if self.config.is_no_host(source.address) => Err(Reason::MartianSource),
            Side::Inside if is_martian(destination) || self.config.is_non_host_address(destination) => {
                Err(Reason::MartianDestination)
            }
            Side::Inside if self.config.is_own(destination) => Err(Reason::OwnDestination),
            Side::Inside if self.is_inside(destination) && !self.config.is_outside(destination) => {
                Err(Reason::InsideDestination)
            }
            Side::Outside if self.is_spoofed(headers) => Err(Reason::SpoofedSource),
            _ => Ok(()),
        }
    }

    /// Whether a packet from the outside claims to be of the box, a subscriber, or the pool. What one worker's subscriber sends to
    /// another's comes back from the router outside: with the pool's part of the other worker as its source.
    fn is_spoofed(&self, headers: &Headers) -> bool {
        let source = headers.source();
        self.config.is_own(source.address)
            || self.is_inside(source.address) && !self.config.is_outside(source.address)
            // Pieces that are not the first name no port: they go as the first one went.
            || !headers.is(Headers::LATER) && self.pool.is_here(source)
    }

    /// Whether the operator permits that a packet begins something.
    pub(crate) fn permits(&self, side: Side, headers: &Headers) -> Result<(), Reason> {
        let rule = self.config.packet_filter.rules.iter().find(|rule| rule.matches(side, headers));
        if rule.is_none_or(|rule| rule.permit) { Ok(()) } else { Err(Reason::Acl) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn martians_are_those_of_the_registry() {
        let is = |text: &str| is_martian(text.parse::<Ipv4Addr>().unwrap().to_bits());
        for martian in [
            "0.0.0.0",
            "0.255.255.255",
            "127.0.0.1",
            "127.255.255.255",
            "169.254.0.0",
            "169.254.255.255",
            "224.0.0.0",
            "239.255.255.255",
            "240.0.0.0",
            "255.255.255.255",
            "192.0.0.8",
            "192.0.0.11",
            "192.0.0.170",
            "192.0.0.255",
        ] {
            assert!(is(martian), "{martian}");
        }
        for good in [
            "1.0.0.0",
            "126.255.255.255",
            "128.0.0.0",
            "169.253.255.255",
            "169.255.0.0",
            "223.255.255.255",
            "192.0.0.0",
            "192.0.0.7",
            "192.0.0.9",
            "192.0.0.10",
            "192.0.1.0",
            "191.255.255.255",
            "10.0.0.1",
            "100.64.0.1",
            "172.16.0.1",
            "192.168.0.1",
            "198.18.0.1",
        ] {
            assert!(!is(good), "{good}");
        }
    }

    #[test]
    fn source_routes_are_found_wherever_they_stand() {
        let with = |options: &[u8]| {
            let frame = [&[0; 14][..], &[0x45; 20], options].concat();
            let headers = Headers { l3: 14, l4: (34 + options.len()) as u16, ..Headers::default() };
            (
                IpOptions::NoSourceRoute.check(&frame, &headers),
                IpOptions::None.check(&frame, &headers),
                IpOptions::Any.check(&frame, &headers),
            )
        };
        assert_eq!(with(&[]), (Ok(()), Ok(()), Ok(())));
        for (options, expected) in [
            // Router alert, record route, nothing at all.
            (&[148, 4, 0, 0][..], Ok(())),
            (&[7, 7, 4, 0, 0, 0, 0, 0], Ok(())),
            (&[1, 1, 1, 0], Ok(())),
            (&[131, 7, 4, 1, 2, 3, 4, 0], Err(Reason::IpOptions)),
            (&[1, 137, 7, 4, 1, 2, 3, 4], Err(Reason::IpOptions)),
            (&[148, 4, 0, 0, 131, 3, 4, 0], Err(Reason::IpOptions)),
            // Behind the end of the list is nothing.
            (&[0, 131, 3, 4], Ok(())),
            (&[148, 1, 0, 0], Err(Reason::Malformed)),
            (&[148, 9, 0, 0], Err(Reason::Malformed)),
            (&[1, 1, 1, 148], Err(Reason::Malformed)),
        ] {
            assert_eq!(with(options), (expected, Err(Reason::IpOptions), Ok(())), "{options:?}");
        }
    }
}
