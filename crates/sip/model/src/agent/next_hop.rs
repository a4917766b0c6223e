//! Where a request within a dialog goes: to its first Route, or else its remote target (RFC 3261 sections 8.1.2, 12.2.1.1).
//!
//! Over UDP alone: over a connection it goes to whom that leads. No name is looked up. It goes to the server, as other requests
//! do, where that is the outbound proxy, by its parameter or a `Route` of the scenario; where the address cannot be reached
//! from here, as of a server behind NAT that names its private one; and where the target is a user agent of a run of ours, whose
//! registration is bound to the server (RFC 5626).

use super::UserAgent;
use crate::dialog::{Dialog, contact_uri};
use crate::message::read_contact_user;
use crate::method::Method;
use crate::scenario::{Header, Request};
use std::net::{IpAddr, SocketAddr};

impl UserAgent {
    /// Where a request of `dialog` goes; none: to the server.
    pub(super) fn hop(&self, dialog: &Dialog) -> Option<SocketAddr> {
        let config = &self.config;
        if config.reliable || config.outbound_proxy || names_route(&config.headers) {
            return None;
        }
        let peer = self.peer?;
        next_hop(&dialog.routes, &dialog.target, peer)
    }

    /// Where the request of a step goes.
    pub(super) fn hop_of(&self, request: &Request) -> Option<SocketAddr> {
        match request.method {
            Method::Register => None,
            // section 9.1: where its INVITE went
            Method::Cancel => self.dialogs.invite.as_ref().and_then(|invite| invite.to),
            _ if request.uri.is_some() || names_route(&request.headers) => None,
            Method::Invite if !self.in_session() && !names_route(&self.config.headers) => {
                self.redirected_to()
            }
            _ => self
                .dialogs
                .dialog
                .as_ref()
                .filter(|dialog| dialog.confirmed)
                .and_then(|dialog| self.hop(dialog)),
        }
    }
}

fn names_route(headers: &[Header]) -> bool {
    headers.iter().any(|header| header.name.eq_ignore_ascii_case("Route"))
}

fn next_hop(routes: &[u8], target: &[u8], peer: SocketAddr) -> Option<SocketAddr> {
    let uri = match routes.strip_prefix(b"Route: ") {
        Some(route) => contact_uri(&route[..memchr::memchr(b'\r', route)?]),
        None if read_contact_user(target).is_some() => return None,
        None => target,
    };
    direct(uri, peer)
}

/// The address of `uri`, where it is another than `peer` and can be reached.
pub(super) fn direct(uri: &[u8], peer: SocketAddr) -> Option<SocketAddr> {
    address(uri).filter(|at| *at != peer && at.is_ipv4() == peer.is_ipv4() && reaches(at.ip(), peer.ip()))
}

/// The address of a URI that is reached over UDP; none where it has a name.
fn address(uri: &[u8]) -> Option<SocketAddr> {
    let (scheme, rest) = std::str::from_utf8(uri).ok()?.split_once(':')?;
    let rest = rest.split_once('@').map_or(rest, |(_, rest)| rest);
    let (host, params) = rest.split_at(rest.find([';', '?']).unwrap_or(rest.len()));
    let params = params.to_ascii_lowercase();
    let elsewhere = params.contains(";maddr=")
        || params.split(';').any(|one| one.starts_with("transport=") && one != "transport=udp");
    if elsewhere || !scheme.eq_ignore_ascii_case("sip") {
        return None;
    }
    let plain = || host.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>().ok();
    host.parse().ok().or_else(|| plain().map(|ip| SocketAddr::new(ip, 5060)))
}

/// Whether `at` can be reached by who reaches `peer`.
fn reaches(at: IpAddr, peer: IpAddr) -> bool {
    let usable = !at.is_unspecified() && !at.is_multicast();
    usable && at.is_loopback() == peer.is_loopback() && (!is_private(at) || is_private(peer))
}

/// Private, shared and link-local addresses, and those of this host (RFCs 1918, 3927, 4193, 4291, 6598).
fn is_private(ip: IpAddr) -> bool {
    match ip {
        IpAddr::V4(ip) => {
            let [a, b, ..] = ip.octets();
            ip.is_private() || ip.is_link_local() || ip.is_loopback() || a == 100 && b & 0xc0 == 64
        }
        IpAddr::V6(ip) => ip.is_unique_local() || ip.is_unicast_link_local() || ip.is_loopback(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_goes_to_its_first_route_or_its_target() {
        let hop = |routes: &str, target: &str, peer: &str| {
            let hop = next_hop(routes.as_bytes(), target.as_bytes(), peer.parse().expect("address"));
            hop.map(|at| at.to_string())
        };
        let lab = "10.0.0.1:5060";
        for (target, to) in [
            ("sip:b@10.0.0.1", None),
            ("sip:b@10.0.0.1:5060;lr", None),
            ("sip:b@10.0.0.1:5070", Some("10.0.0.1:5070")),
            ("sip:10.0.0.9;transport=UDP;ob", Some("10.0.0.9:5060")),
            ("sip:b@10.0.0.9:5070?x=y", Some("10.0.0.9:5070")),
            ("sip:b@192.0.2.9", Some("192.0.2.9:5060")),
            ("sip:b@10.0.0.9;transport=tcp", None),
            ("sip:b@10.0.0.9;maddr=10.0.0.8", None),
            ("sips:b@10.0.0.9", None),
            ("sip:b@host", None),
            ("sip:b@0.0.0.0", None),
            ("sip:b@127.0.0.1:5070", None),
            ("sip:b@[fd00::1]", None),
            ("sip:nd0000000a@10.0.0.9:5070", None),
            ("", None),
        ] {
            assert_eq!(hop("", target, lab).as_deref(), to, "{target}");
        }
        // behind NAT: nobody outside reaches a private address
        assert_eq!(hop("", "sip:b@10.0.0.9", "192.0.2.1:5060"), None);
        assert_eq!(hop("", "sip:b@100.64.0.9", "192.0.2.1:5060"), None);
        assert_eq!(hop("", "sip:b@[fd00::2]:5070", "[fd00::1]:5060").as_deref(), Some("[fd00::2]:5070"));
        let routes = "Route: <sip:10.0.0.7;lr>\r\nRoute: <sip:10.0.0.1;lr>\r\n";
        assert_eq!(hop(routes, "sip:nd0000000a@10.0.0.9", lab).as_deref(), Some("10.0.0.7:5060"));
        assert_eq!(hop("Route: <sip:10.0.0.1;lr>\r\n", "sip:b@10.0.0.9", lab), None);
    }
}
