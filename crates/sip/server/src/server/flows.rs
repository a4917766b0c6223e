//! Connections that clients opened: over which of them a contact is reached (RFC 5626 section 5.3, RFC 5923).

use super::{Message, Peer};
use sip_core::Uri;
use sip_core::message::header::Contact;
use sip_core::uri::SipUri;
use std::collections::HashMap;

/// Contacts of one connection that are remembered: a proxy before the server has many users on one.
const MOST: usize = 10_000;

/// Connections by the contacts and hosts that messages over them named.
#[derive(Debug, Default)]
pub(super) struct Flows {
    peers: HashMap<String, Peer>,
    names: HashMap<Peer, Vec<String>>,
}

impl Flows {
    /// Learn whom a connection leads to: who sent the message, and the contact in it.
    pub fn learn(&mut self, from: Peer, message: &Message) {
        if !from.transport.from_clients() {
            return;
        }
        if let Some(via) = message.top_via().ok().filter(|_| message.method().is_some()) {
            self.add(name("", &via.host, via.port), from);
        }
        let fails = message.code().is_some_and(|code| code >= 300);
        let contacts = if fails { Vec::new() } else { message.contacts().unwrap_or_default() };
        let uris = contacts.iter().filter_map(Contact::address).filter_map(|one| one.uri.sip());
        for uri in uris {
            self.add(of(uri), from);
        }
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
        self.peers.get(&of(sip)).or_else(|| self.peers.get(&name("", &sip.host, sip.port))).copied()
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
