//! Connections that clients opened: over which of them a contact is reached (RFC 5626 section 5.3), and which stand for the
//! address that their Via names (RFC 5923).

use super::{Message, Peer};
use crate::peer::Transport;
use sip_core::Uri;
use sip_core::message::header::{Contact, Via};
use sip_core::uri::SipUri;
use std::collections::HashMap;
use std::net::SocketAddr;

/// Contacts of one connection that are remembered: a proxy before the server has many users on one.
const MOST: usize = 10_000;
/// Default ports of TCP and TLS (RFC 3261 section 19.1.2).
const TCP_PORT: u16 = 5060;
const TLS_PORT: u16 = 5061;

/// Connections by the contacts and hosts that messages over them named.
#[derive(Debug, Default)]
pub(super) struct Flows {
    peers: HashMap<String, Peer>,
    names: HashMap<Peer, Vec<String>>,
    /// Whether TCP connections are reused by their alias.
    accepts_aliases: bool,
}

impl Flows {
    pub fn new(accepts_aliases: bool) -> Self {
        Self { accepts_aliases, ..Self::default() }
    }

    /// Learn whom a connection leads to: who sent the message, and the contact in it. `proves`: whether the client's certificate is
    /// of a host.
    pub fn learn(&mut self, from: Peer, message: &Message, proves: &dyn Fn(&str) -> bool) {
        if from.transport == Transport::Udp {
            return;
        }
        let of_clients = from.transport.from_clients();
        let names_sender = message.method().is_some() && (of_clients || self.accepts_aliases);
        if names_sender && let Ok(via) = message.top_via() {
            self.learn_sender(from, &via, proves);
        }
        if !of_clients {
            return;
        }
        let fails = message.code().is_some_and(|code| code >= 300);
        let contacts = if fails { Vec::new() } else { message.contacts().unwrap_or_default() };
        let uris = contacts.iter().filter_map(Contact::address).filter_map(|one| one.uri.sip());
        for uri in uris {
            self.add(of(uri), from);
        }
    }

    /// The connection stands for its sender's host and port: a client of WebSocket is reached no other way; over TLS where the
    /// sender asks for it and its certificate is of that host (RFC 5923 section 8.1), over TCP where we were told to believe it.
    fn learn_sender(&mut self, from: Peer, via: &Via, proves: &dyn Fn(&str) -> bool) {
        let asks = via.params.has("alias");
        match from.transport {
            Transport::Ws | Transport::Wss => self.add(name("", &via.host, via.port), from),
            Transport::Tls if asks && proves(&via.host) => {
                self.alias(from, &via.host, via.port.unwrap_or(TLS_PORT));
            }
            Transport::Tcp if asks && self.accepts_aliases => {
                // its host may be anybody's name: what counts is where the connection comes from
                let host = uri_host(from.address);
                self.alias(from, &host, via.port.unwrap_or(TCP_PORT));
            }
            Transport::Tls | Transport::Tcp | Transport::Udp => {}
        }
    }

    fn alias(&mut self, from: Peer, host: &str, port: u16) {
        self.add(alias_name(from.transport, host, port), from);
    }

    fn add(&mut self, name: String, peer: Peer) {
        if self.peers.get(&name) == Some(&peer) {
            return;
        }
        let names = self.names.entry(peer).or_default();
        if names.len() < MOST {
            names.push(name.clone());
            self.peers.insert(name, peer);
        }
    }

    /// The connection by which a URI is reached.
    pub fn to(&self, uri: &Uri) -> Option<Peer> {
        let sip = uri.sip()?;
        let transport = sip.param("transport").flatten().map(str::to_ascii_lowercase);
        let alias = match transport.as_deref() {
            Some("tls") => Some((Transport::Tls, TLS_PORT)),
            Some("tcp") | None if sip.secure => Some((Transport::Tls, TLS_PORT)),
            Some("tcp") => Some((Transport::Tcp, TCP_PORT)),
            _ => None,
        };
        let alias = alias.map(|(transport, port)| alias_name(transport, &sip.host, sip.port.unwrap_or(port)));
        self.peers
            .get(&of(sip))
            .or_else(|| self.peers.get(&name("", &sip.host, sip.port)))
            .or_else(|| self.peers.get(&alias?))
            .copied()
    }

    /// A connection is gone.
    pub fn closed(&mut self, peer: Peer) {
        for name in self.names.remove(&peer).unwrap_or_default() {
            if self.peers.get(&name) == Some(&peer) {
                self.peers.remove(&name);
            }
        }
    }
}

fn of(uri: &SipUri) -> String {
    name(uri.user.as_deref().unwrap_or_default(), &uri.host, uri.port)
}

fn name(user: &str, host: &str, port: Option<u16>) -> String {
    format!("{user}@{}:{}", host.to_ascii_lowercase(), port.unwrap_or_default())
}

fn alias_name(transport: Transport, host: &str, port: u16) -> String {
    format!("{} {}:{port}", transport.name(), host.to_ascii_lowercase())
}

/// An address as the host of a URI.
fn uri_host(address: SocketAddr) -> String {
    match address.ip() {
        std::net::IpAddr::V4(ip) => ip.to_string(),
        std::net::IpAddr::V6(ip) => format!("[{ip}]"),
    }
}
