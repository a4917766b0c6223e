//! One client (RFC 2131 section 4.4).

use super::message::{Kind, Reply, Request};
use super::shared::Shared;
use super::terms::{Terms, Times};
use super::wire::Endpoints;
use super::{Event, IgnoreReason, LossReason, SECOND};
use packet::Mac;
use rand::Rng;
use std::net::Ipv4Addr;

/// How often a DHCPREQUEST is sent for an offer: for 60 s in all (RFC 2131 section 3.1.5).
const REQUESTS: u32 = 4;
/// How often for an address it had, before it asks for any: a server that knows nothing of it is silent.
const REBOOTS: u32 = 2;
/// Before a client that found a conflict begins again (RFC 2131 section 3.1.5).
const AFTER_CONFLICT: u64 = 10 * SECOND;
/// Between two DHCPREQUEST to renew (RFC 2131 section 4.4.5).
const RENEW_AGAIN: u64 = 60 * SECOND;

/// The states of RFC 2131 figure 5.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum State {
    /// It will ask for an address.
    Init,
    /// It will ask for the address that it had.
    InitReboot,
    /// It asked who offers one.
    Selecting,
    /// It asked for the one it had.
    Rebooting,
    /// It asked for the one that was offered.
    Requesting,
    /// It has one.
    Bound,
    /// It asked the server for longer (after T1).
    Renewing,
    /// It asked any server for longer (after T2).
    Rebinding,
}

/// A client, and when it wakes.
#[derive(Debug)]
pub(super) struct Client {
    pub mac: Mac,
    pub state: State,
    /// When it does something by itself.
    pub due: u64,
    xid: u32,
    /// When the exchange began.
    began: u64,
    /// What was said last of how long ago that was, s.
    secs: u16,
    /// When the last DHCPREQUEST was sent: leases count from there (RFC 2131 section 4.4.1).
    asked: u64,
    /// Sent in this exchange.
    sent: u32,
    /// Refused and declined since it had an address until that was to be renewed.
    refused: u32,
    /// The address it had or would like.
    wanted: Option<Ipv4Addr>,
    /// What was offered (REQUESTING) or is had (BOUND and after).
    terms: Option<Terms>,
    times: Times,
    /// The hardware address from which the server's messages come: the server's own, or that of the router before it.
    next_hop: Mac,
}

impl Client {
    /// One that begins at `due`.
    pub(super) fn new(mac: Mac, wanted: Option<Ipv4Addr>, bound: bool, due: u64) -> Self {
        Self {
            mac,
            state: if bound && wanted.is_some() { State::InitReboot } else { State::Init },
            due,
            xid: 0,
            began: due,
            secs: 0,
            asked: due,
            sent: 0,
            refused: 0,
            wanted,
            terms: None,
            times: Times { t1: u64::MAX, t2: u64::MAX, end: u64::MAX },
            next_hop: packet::ethernet::BROADCAST,
        }
    }

    /// What it has.
    pub(super) fn lease(&self) -> Option<&Terms> {
        matches!(self.state, State::Bound | State::Renewing | State::Rebinding)
            .then_some(self.terms.as_ref())?
    }

    /// Its time has come.
    pub(super) fn wake(&mut self, now: u64, shared: &mut Shared) {
        if self.lease().is_some() && now >= self.times.end {
            self.lose(LossReason::Expired, now, shared);
        }
        match self.state {
            State::Rebooting if self.sent >= REBOOTS => self.state = State::Init,
            State::Requesting if self.sent >= REQUESTS => self.state = State::Init,
            _ => {}
        }
        let next = match self.state {
            State::Init => State::Selecting,
            State::InitReboot => State::Rebooting,
            State::Bound if now < self.times.t2 => State::Renewing,
            State::Bound | State::Renewing if now >= self.times.t2 => State::Rebinding,
            same => same,
        };
        if next != self.state {
            if self.state == State::Bound {
                // Not when it got the address: what is declined at once, again and again, is asked for less and less.
                self.refused = 0;
            }
            self.begin(next, now, shared);
        }
        self.send(now, shared);
    }

    /// Begin an exchange. A DHCPREQUEST for an offer goes on with that of the offer.
    fn begin(&mut self, state: State, now: u64, shared: &mut Shared) {
        self.state = state;
        self.sent = 0;
        if state != State::Requesting {
            self.xid = shared.random.random();
            self.began = now;
        }
    }

    /// Say what the state asks for, and wake when it is to be said again.
    fn send(&mut self, now: u64, shared: &mut Shared) {
        let request = match (self.state, self.terms, self.wanted) {
            (State::Requesting, Some(Terms { address, server, .. }), _) => {
                Request::Select { address, server }
            }
            (State::Rebooting, _, Some(address)) => Request::Reboot { address },
            (State::Renewing | State::Rebinding, Some(terms), _) => {
                Request::Extend { address: terms.address }
            }
            (_, _, wanted) => Request::Discover { wanted },
        };
        self.send_request(&request, now, shared);
        self.asked = now;
        let again =
            |until: u64| until.min(now.saturating_add(RENEW_AGAIN.max(until.saturating_sub(now) / 2)));
        self.due = match self.state {
            State::Renewing => again(self.times.t2),
            State::Rebinding => again(self.times.end),
            _ => now.saturating_add(back_off(self.sent, &mut shared.random)),
        };
        self.sent += 1;
    }

    /// A frame with this request: to the server while it has an address and may, else to everybody.
    fn send_request(&mut self, request: &Request, now: u64, shared: &mut Shared) {
        let to_server = match *request {
            Request::Extend { address } if self.state == State::Renewing => Some(address),
            Request::Release { address, .. } => Some(address),
            _ => None,
        };
        let source = match *request {
            Request::Extend { address } => address,
            _ => to_server.unwrap_or(Ipv4Addr::UNSPECIFIED),
        };
        let server = to_server.and(self.terms).map(|terms| (self.next_hop, terms.server));
        // A DHCPREQUEST for an offer says what the DHCPDISCOVER said, so that relays hand both to the same servers (RFC 2131
        // section 3.1, step 3).
        if !matches!(request, Request::Select { .. }) {
            self.secs = u16::try_from(now.saturating_sub(self.began) / SECOND).unwrap_or(u16::MAX);
        }
        shared.send(&Endpoints { mac: self.mac, source, server }, request, self.xid, self.secs);
    }

    /// A server says something.
    pub(super) fn handle_reply(
        &mut self,
        reply: &Reply,
        from: Mac,
        now: u64,
        shared: &mut Shared,
    ) -> Result<(), IgnoreReason> {
        if matches!(self.state, State::Init | State::InitReboot | State::Bound) {
            return Err(IgnoreReason::Unexpected);
        }
        if reply.xid != self.xid {
            return Err(IgnoreReason::OtherExchange);
        }
        // Any server may speak for an address that is asked for without naming one.
        let chosen =
            matches!(self.state, State::Requesting | State::Renewing).then_some(self.terms).flatten();
        if chosen.is_some_and(|terms| terms.server != reply.server) {
            return Err(IgnoreReason::OtherServer);
        }
        match (self.state, reply.kind) {
            (State::Selecting, Kind::Offer) => {
                // It goes on listening: a rogue server that answers first takes no other server's place.
                let terms = Terms::of(reply, &shared.config).inspect_err(|why| {
                    if *why == IgnoreReason::BadAddress {
                        let Reply { address, server, .. } = *reply;
                        shared.push_event(Event::Unfit { mac: self.mac, address, server });
                    }
                })?;
                shared.is_free(terms.address, self.mac)?;
                self.terms = Some(terms);
                self.begin(State::Requesting, now, shared);
                self.send(now, shared);
                Ok(())
            }
            (State::Selecting, _) | (_, Kind::Offer) => Err(IgnoreReason::Unexpected),
            (_, Kind::Ack) => self.acknowledged(reply, from, now, shared),
            (_, Kind::Nak) => {
                self.refused(now, shared);
                Ok(())
            }
        }
    }

    fn acknowledged(
        &mut self,
        reply: &Reply,
        from: Mac,
        now: u64,
        shared: &mut Shared,
    ) -> Result<(), IgnoreReason> {
        let asked_for =
            if self.state == State::Rebooting { self.wanted } else { self.terms.map(|t| t.address) };
        if asked_for != Some(reply.address) {
            return Err(IgnoreReason::OtherAddress);
        }
        let terms = Terms::of(reply, &shared.config)?;
        if shared.is_free(terms.address, self.mac).is_err() {
            // Another of ours got it meanwhile: the server gave it twice.
            self.terms = Some(terms);
            self.decline(&terms, now, shared);
            return Ok(());
        }
        let extended = self.lease().is_some();
        self.times = Times::new(reply, terms.seconds, self.asked, &mut shared.random);
        self.terms = Some(terms);
        self.wanted = Some(terms.address);
        self.next_hop = from;
        self.state = State::Bound;
        self.due = self.times.t1;
        shared.set_address(self.mac, terms.address);
        let (mac, lease) = (self.mac, terms);
        shared.push_event(if extended {
            Event::Renewed { mac, lease }
        } else {
            Event::Acquired { mac, lease }
        });
        Ok(())
    }

    /// The server rejected the request: what it had is over, and it begins again, later each time.
    fn refused(&mut self, now: u64, shared: &mut Shared) {
        if self.lease().is_some() {
            self.lose(LossReason::Refused, now, shared);
        } else if let Some(address) = self.terms.map(|terms| terms.address).or(self.wanted) {
            shared.push_event(Event::Refused { mac: self.mac, address });
        }
        shared.forget(self.mac);
        let at_once = self.state == State::Rebooting;
        let wait = if at_once { 0 } else { back_off(self.refused, &mut shared.random) };
        self.refused = self.refused.saturating_add(1);
        self.restart(None, now.saturating_add(wait));
    }

    /// It has no address, and asks for one when `due`.
    fn restart(&mut self, wanted: Option<Ipv4Addr>, due: u64) {
        self.state = State::Init;
        self.terms = None;
        self.wanted = wanted;
        self.due = due;
    }

    /// What it has is over.
    fn lose(&mut self, why: LossReason, now: u64, shared: &mut Shared) {
        if let Some(address) = self.lease().map(|terms| terms.address) {
            shared.frees(self.mac, address);
            shared.push_event(Event::Lost { mac: self.mac, address, why });
            self.restart(Some(address), now);
        }
    }

    /// Somebody else has its address. False: it has none.
    pub(super) fn conflict(&mut self, now: u64, shared: &mut Shared) -> bool {
        let Some(terms) = self.lease().copied() else { return false };
        self.lose(LossReason::Conflict, now, shared);
        shared.forget(self.mac);
        self.decline(&terms, now, shared);
        true
    }

    fn decline(&mut self, terms: &Terms, now: u64, shared: &mut Shared) {
        self.xid = shared.random.random();
        self.began = now;
        self.send_request(&Request::Decline { address: terms.address, server: terms.server }, now, shared);
        let wait = AFTER_CONFLICT.max(back_off(self.refused, &mut shared.random));
        self.refused = self.refused.saturating_add(1);
        self.restart(None, now.saturating_add(wait));
    }

    /// It no longer needs its address.
    pub(super) fn release(&mut self, now: u64, shared: &mut Shared) {
        if let Some(Terms { address, server, .. }) = self.lease().copied() {
            self.xid = shared.random.random();
            self.began = now;
            self.send_request(&Request::Release { address, server }, now, shared);
            self.lose(LossReason::Released, now, shared);
        }
    }
}

/// 4, 8, 16, 32 and then 64 s, a second more or less (RFC 2131 section 4.1).
fn back_off(sent: u32, random: &mut impl Rng) -> u64 {
    (4 << sent.min(4)) * SECOND - SECOND + random.random_range(0..=2 * SECOND)
}
