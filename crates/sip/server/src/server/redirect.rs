//! Redirect server: requests to 302 with the bindings of the callee (RFC 3261 section 8.3).

use super::{Key, Server, user};
use sip_core::message::{Message, Name};

impl Server {
    pub(super) fn redirect(&mut self, key: &Key, request: &Message) {
        let Some(uri) = request.uri() else {
            return self.respond(key, 400, "Bad Request", Vec::new());
        };
        if !self.is_known(&user(&uri)) {
            let (code, reason) = if self.breaks("D03") { (480, "Unavailable") } else { (404, "Not Found") };
            return self.respond(key, code, reason, Vec::new());
        }
        let mut bound = self.contacts(&uri);
        // section 8.3: a redirection to the Request-URI itself would go round
        if !self.breaks("D07") {
            bound.retain(|(_, contact)| !contact.equivalent(&uri));
        }
        if bound.is_empty() {
            let (code, reason) = if self.breaks("D04") { (404, "Not Found") } else { (480, "Unavailable") };
            return self.respond(key, code, reason, Vec::new());
        }
        let fields = bound.into_iter().map(|(text, _)| (Name::Contact, format!("<{text}>"))).collect();
        let fields = if self.breaks("D01") { Vec::new() } else { fields };
        self.respond(key, 302, "Moved Temporarily", fields);
    }
}
