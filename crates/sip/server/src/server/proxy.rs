//! Proxy: requests validated, routed and sent on (RFC 3261 sections 16.3 to 16.6).

use super::auth::Realm;
use super::{Key, Peer, Server, Transport, address};
use sip_core::message::header::{NameAddr, parse};
use sip_core::message::{Message, Name, StartLine};
use sip_core::{Method, Uri};

/// Max-Forwards of a request that has none (section 16.6 step 3).
const HOPS: u32 = 70;

impl Server {
    pub(super) fn proxy(&mut self, key: &Key, request: &Message) {
        let StartLine::Request { method, uri: written } = &request.start else { return };
        let method = method.clone();
        let scheme = written.split(':').next().unwrap_or_default().to_ascii_lowercase();
        if !matches!(scheme.as_str(), "sip" | "sips") {
            let (code, reason) =
                if self.breaks("P07") { (404, "Not Found") } else { (416, "Unsupported URI Scheme") };
            return self.respond(key, code, reason, Vec::new());
        }
        let Some(uri) = request.uri() else {
            return self.respond(key, 400, "Bad Request", Vec::new());
        };
        let hops = request.get::<u32>(Name::MaxForwards).ok().flatten();
        if hops == Some(0) && !self.breaks("P06") {
            return self.respond(key, 483, "Too Many Hops", Vec::new());
        }
        let required: Vec<&str> = request.values(Name::ProxyRequire).collect();
        if !required.is_empty() && !self.breaks("P08") {
            let fields = vec![(Name::Unsupported, required.join(", "))];
            return self.respond(key, 420, "Bad Extension", fields);
        }
        let outside = request.to().is_ok_and(|to| to.tag().is_none());
        if method == Method::Invite && outside && self.settings.call_auth && self.asks() {
            let Some(_) = self.authorized(key, request, Realm::Proxy) else { return };
        }
        if method == Method::Options && self.is_ours(&uri) && uri.sip().is_some_and(|sip| sip.user.is_none())
        {
            let fields = vec![(Name::Accept, "application/sdp".into()), (Name::Supported, String::new())];
            return self.respond(key, 200, "OK", if self.breaks("P25") { Vec::new() } else { fields });
        }
        let own = address::route(request);
        let mut message = request.clone();
        if !self.take_routes(&mut message) {
            return self.respond(key, 400, "Bad Request", Vec::new());
        }
        let targets = self.targets(&message);
        if targets.is_empty() {
            let (code, reason) =
                if self.breaks("P11") { (500, "Server Error") } else { (480, "Temporarily Unavailable") };
            return self.respond(key, code, reason, Vec::new());
        }
        if method == Method::Invite && !self.breaks("P02") {
            self.respond(key, 100, "Trying", Vec::new());
        }
        for target in targets {
            let mut copy = message.clone();
            if let Some(own) = own.as_ref().filter(|_| self.breaks("P09")) {
                copy.push(Name::Route, own);
            }
            self.forward(key, copy, &target);
        }
        self.unreachable(key);
    }

    /// Section 16.4. False: a Route cannot be read.
    fn take_routes(&self, message: &mut Message) -> bool {
        let Ok(mut routes) = message.all::<NameAddr>(Name::Route) else { return false };
        let Some(uri) = message.uri() else { return true };
        let strict = uri.sip().is_some_and(sip_core::uri::SipUri::loose_router) && self.is_ours(&uri);
        if strict && let Some(last) = routes.pop() {
            address::set_uri(message, &last.uri.to_string());
        }
        // two where we changed the transport (RFC 5658 section 4)
        let ours = routes.iter().take(2).take_while(|route| self.is_ours(&route.uri)).count();
        routes.drain(..ours);
        address::set_routes(message, &routes);
        true
    }

    /// Where a request is for (section 16.5).
    fn targets(&mut self, message: &Message) -> Vec<String> {
        let Some(uri) = message.uri() else { return Vec::new() };
        let route = address::route(message);
        if route.is_none() && self.is_domain(&uri) {
            return self.contacts(&uri).into_iter().map(|(text, _)| text).collect();
        }
        let next = route.map_or_else(|| uri.clone(), |route| route.uri);
        let reachable = self.destination(&next).is_some();
        let StartLine::Request { uri: written, .. } = &message.start else { return Vec::new() };
        if reachable { vec![written.clone()] } else { Vec::new() }
    }

    /// Section 16.6, for one target. A binding that is no address is passed over: nobody can be reached there.
    fn forward(&mut self, key: &Key, mut message: Message, target: &str) {
        let same = matches!(&message.start, StartLine::Request { uri, .. } if uri == target);
        if self.breaks("P10") && same {
            address::set_uri(&mut message, &target.replace("someone", "rewritten"));
        } else if !self.breaks("P01") {
            address::set_uri(&mut message, target);
        }
        let hops = message.get::<u32>(Name::MaxForwards).ok().flatten();
        let kept =
            ["P04", "P06"].iter().any(|purpose| self.breaks(purpose)) || self.breaks("P05") && hops.is_none();
        if !kept {
            message.set(Name::MaxForwards, hops.map_or(HOPS, |hops| hops.saturating_sub(1)));
        }
        let route = address::route(&message);
        let next = match &route {
            Some(route) if !(self.breaks("P09") && self.is_ours(&route.uri)) => self.destination(&route.uri),
            _ => Uri::parse(target).and_then(|uri| self.destination(&uri)),
        };
        let Some(next) = next else { return };
        if message.method() == Some(&Method::Invite) {
            let secure = target.starts_with("sips:");
            let from = self.incoming.get(key).map_or(next.transport, |one| one.to.transport);
            if from != next.transport {
                message.push_front(Name::RecordRoute, self.record_route(from, secure));
            }
            message.push_front(Name::RecordRoute, self.record_route(next.transport, secure));
        }
        if let Some(route) = route.filter(|route| !loose(route) && !self.breaks("P12")) {
            // step 6: the next hop is a strict router
            let mut routes = message.all::<NameAddr>(Name::Route).unwrap_or_default();
            if !routes.is_empty() {
                routes.remove(0);
            }
            routes.extend(parse::<NameAddr>(&format!("<{target}>")));
            address::set_routes(&mut message, &routes);
            address::set_uri(&mut message, &route.uri.to_string());
        }
        self.send_on(key, message, next);
    }

    /// The connection that a URI is reached over, or an address.
    pub(super) fn destination(&self, uri: &Uri) -> Option<Peer> {
        self.flows.to(uri).or_else(|| address::destination(uri))
    }

    fn record_route(&self, transport: Transport, secure: bool) -> String {
        let loose = if self.breaks("P13") { "" } else { ";lr" };
        format!("<{}{loose}>", self.own_uri(transport, secure))
    }

    /// An ACK to a 2xx: sent on without a transaction (section 16.11).
    pub(super) fn pass_on(&mut self, mut message: Message) {
        let routed = self.take_routes(&mut message);
        let sent = if routed { self.targets(&message) } else { Vec::new() };
        let Some(target) = sent.first() else {
            self.counters.unrelated += 1;
            return;
        };
        address::set_uri(&mut message, target);
        let hops = message.get::<u32>(Name::MaxForwards).ok().flatten();
        if hops == Some(0) {
            self.counters.unrelated += 1;
            return;
        }
        message.set(Name::MaxForwards, hops.map_or(HOPS, |hops| hops - 1));
        let next = address::route(&message).map_or_else(|| Uri::parse(target), |route| Some(route.uri));
        let Some(next) = next.and_then(|uri| self.destination(&uri)) else {
            self.counters.unrelated += 1;
            return;
        };
        let branch = if self.breaks("P03") { String::new() } else { address::branch() };
        self.add_via(&mut message, next, &branch);
        self.counters.forwarded("ACK");
        self.out.push((next, message.to_bytes()));
    }
}

fn loose(route: &NameAddr) -> bool {
    route.uri.sip().is_some_and(sip_core::uri::SipUri::loose_router)
}
