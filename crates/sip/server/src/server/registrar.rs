//! Registrar: REGISTER to bindings (RFC 3261 section 10.3).

use super::auth::Realm;
use super::location::Binding;
use super::{Field, Key, Server, user};
use sip_core::Uri;
use sip_core::message::header::{Contact, NameAddr};
use sip_core::message::{Message, Name};

const SECOND: u64 = 1_000_000_000;

impl Server {
    pub(super) fn register(&mut self, key: &Key, request: &Message) {
        let ours = request.uri().is_some_and(|uri| self.is_domain(&uri) || self.is_ours(&uri));
        if !ours && !self.breaks("R12") {
            return self.respond(key, 403, "Forbidden", Vec::new());
        }
        let required: Vec<&str> = request.values(Name::Require).collect();
        if !required.is_empty() && !self.breaks("R13") {
            let fields = vec![(Name::Unsupported, required.join(", "))];
            return self.respond(key, 420, "Bad Extension", fields);
        }
        let Ok(to) = request.to() else { return };
        let name = user(&to.uri);
        if self.asks() {
            let Some(owner) = self.authorized(key, request, Realm::Registrar) else { return };
            if !self.is_domain(&to.uri) && !self.breaks("R11") && !self.breaks("R12") {
                return self.respond(key, 404, "Not Found", Vec::new());
            }
            if owner != name && !self.breaks("R17") {
                return self.respond(key, 403, "Forbidden", Vec::new());
            }
        } else if !self.is_domain(&to.uri) && !self.breaks("R11") && !self.breaks("R12") {
            return self.respond(key, 404, "Not Found", Vec::new());
        }
        self.bind(key, request, &name);
    }

    fn bind(&mut self, key: &Key, request: &Message, name: &str) {
        let (Ok(contacts), Ok(call_id), Ok(cseq)) = (request.contacts(), request.call_id(), request.cseq())
        else {
            return self.respond(key, 400, "Bad Request", Vec::new());
        };
        let header = request.get::<u32>(Name::Expires).ok().flatten();
        let now = self.now;
        let known = self.location.of(name, now);
        let older = known.iter().any(|one| one.call_id == call_id && one.cseq >= cseq.number);
        if !contacts.is_empty() && older && !self.breaks("R10") {
            return self.respond(key, 500, "CSeq Too Low", Vec::new());
        }
        if contacts.contains(&Contact::All) {
            if (contacts.len() > 1 || header != Some(0)) && !self.breaks("R09") {
                return self.respond(key, 400, "Bad Request", Vec::new());
            }
            if !self.breaks("R08") {
                self.location.clear(name);
            }
            self.counters.removals += 1;
            return self.bound(key, request, name);
        }
        let mut wanted: Vec<(&NameAddr, u32)> = Vec::new();
        for contact in &contacts {
            let Some(address) = contact.address() else { continue };
            let own = contact.expires().filter(|_| !(self.breaks("R04") && header.is_some()));
            let seconds =
                own.or(header).unwrap_or(self.settings.default_expires).min(self.settings.max_expires);
            if seconds > 0 && seconds < self.settings.min_expires {
                let least = self.settings.min_expires.to_string();
                let fields = if self.breaks("R06") { Vec::new() } else { vec![(Name::MinExpires, least)] };
                return self.respond(key, 423, "Interval Too Brief", fields);
            }
            wanted.push((address, seconds));
        }
        if self.location.full() && wanted.iter().any(|(_, seconds)| *seconds > 0) {
            return self.respond(key, 503, "Service Unavailable", Vec::new());
        }
        self.counters.removals +=
            u64::from(!wanted.is_empty() && wanted.iter().all(|(_, seconds)| *seconds == 0));
        for (address, seconds) in wanted {
            self.change(name, address, seconds, &call_id, cseq.number);
        }
        self.bound(key, request, name);
    }

    /// Add, refresh or remove one binding.
    fn change(&mut self, name: &str, address: &NameAddr, seconds: u32, call_id: &str, cseq: u32) {
        if seconds == 0 {
            self.location.remove(name, &address.uri);
            if self.breaks("R07") {
                self.location.clear(name);
            }
            return;
        }
        let is_there = |one: &Binding| one.uri.equivalent(&address.uri);
        if self.breaks("R03") && self.location.of(name, self.now).iter().any(is_there) {
            return;
        }
        let q = address.params.get("q").filter(|_| !self.breaks("R18")).map(str::to_owned);
        let binding = Binding {
            uri: address.uri.clone(),
            text: address.uri.to_string(),
            q,
            call_id: call_id.to_owned(),
            cseq,
            until: self.now + u64::from(seconds) * SECOND,
        };
        self.location.add(name, binding);
    }

    /// 200 with all bindings.
    fn bound(&mut self, key: &Key, request: &Message, name: &str) {
        self.counters.registrations += 1;
        let now = self.now;
        let mute = self.breaks("R01") || self.breaks("R05");
        let mut fields: Vec<Field> = Vec::new();
        for one in self.location.of(name, now) {
            let q = one.q.as_ref().map(|q| format!(";q={q}")).unwrap_or_default();
            let left = if mute { String::new() } else { format!(";expires={}", one.remaining_seconds(now)) };
            fields.push((Name::Contact, format!("<{}>{q}{left}", one.text)));
        }
        if self.breaks("R02") && request.contacts().is_ok_and(|contacts| contacts.is_empty()) {
            fields.truncate(1);
        }
        self.respond(key, 200, "OK", fields);
    }

    /// Contacts of an address of record, in the order in which they came.
    pub(super) fn contacts(&mut self, uri: &Uri) -> Vec<(String, Uri)> {
        let name = user(uri);
        let now = self.now;
        self.location.of(&name, now).iter().map(|one| (one.text.clone(), one.uri.clone())).collect()
    }
}
