//! One resource observed (RFC 7641): registered, kept fresh, its notifications put in order, and let go.

use super::blocks::{Answer, NextStep};
use super::echo::Echoes;
use super::exchange::{Exchange, Part, Purpose, Stage};
use super::wire::Message;
use super::{Device, NOTIFICATIONS};
use crate::cause::{Cause, Detail};
use crate::meter::Failure;
use crate::model::Cx;
use crate::time::Time;
use rand::Rng;
use std::time::Duration;

/// What only observers need, and devices of servers that respond separately or ask for Echo.
#[derive(Debug, Default)]
pub struct ObserverState {
    pub recent: RecentIds,
    pub echoes: Echoes,
    observed: Observation,
}

/// The identifiers of the server's latest messages (RFC 7252 section 4.5).
#[derive(Debug, Default)]
pub struct RecentIds {
    ids: [u16; 32],
    /// How many came.
    came: usize,
}

impl RecentIds {
    /// Whether it came lately.
    pub fn has(&self, id: u16) -> bool {
        self.ids[..self.came.min(self.ids.len())].contains(&id)
    }

    /// It came now.
    pub fn add(&mut self, id: u16) {
        self.ids[self.came % self.ids.len()] = id;
        // beyond their number only the place counts
        self.came = if self.came < 2 * self.ids.len() - 1 { self.came + 1 } else { self.ids.len() };
    }
}

/// What is known of the resource.
#[derive(Debug, Default)]
struct Observation {
    /// The server keeps us as an observer.
    registered: bool,
    /// The newest notification's number, and when it came.
    number: u32,
    at: Time,
    /// When to register again if none has come.
    stale: Time,
    /// How many notifications came.
    notified: u64,
}

impl Observation {
    /// Whether a notification with this number is newer than the newest (section 3.4).
    fn newer(&self, number: u32, now: Time) -> bool {
        let (v1, v2) = (self.number, number);
        v1 < v2 && v2 - v1 < 1 << 23 || v1 > v2 && v1 - v2 > 1 << 23 || now > self.at + REORDERING
    }
}

/// After this long any notification is newer (section 3.4).
const REORDERING: Duration = Duration::from_secs(128);
/// How long a representation is fresh when the server does not say (RFC 7252 section 5.10.5).
const MAX_AGE: u32 = 60;
/// How long after it was fresh to register again, in milliseconds (section 3.3.1).
const RENEWAL_MS: std::ops::RangeInclusive<u64> = 5_000..=15_000;

impl Device {
    fn current_observation(&self) -> Option<&Observation> {
        self.rare.as_ref().map(|rare| &rare.observed)
    }

    /// Whether the server keeps us as an observer.
    pub(super) fn observing(&self) -> bool {
        self.config.observe && self.current_observation().is_some_and(|observed| observed.registered)
    }

    /// When the observation has to be renewed.
    pub(super) fn stale(&self) -> Time {
        match self.current_observation() {
            Some(observed) if self.observing() && self.observation().is_none() => observed.stale,
            _ => Time::NEVER,
        }
    }

    /// The exchange that registers or deregisters, if one is under way.
    pub(super) fn observation(&self) -> Option<usize> {
        if !self.config.observe {
            return None;
        }
        self.exchanges.iter().position(|x| {
            let about = matches!(x.purpose, Purpose::Register | Purpose::Deregister);
            about && x.part == Part::Request && !x.stage.over()
        })
    }

    /// Renew the observation, or end it. False: the request for it does not fit into this callback.
    pub(super) fn observe(&mut self, cx: &mut Cx<'_>) -> bool {
        let Some(observed) = self.current_observation().filter(|observed| observed.registered) else {
            return true;
        };
        if self.observation().is_some() || self.failed {
            return true;
        }
        let enough = self.config.count > 0 && observed.notified >= self.config.count;
        if self.stopping || enough || !cx.loading() {
            return self.begin(cx, Purpose::Deregister, cx.now);
        }
        let stale = observed.stale;
        stale > cx.now || self.begin(cx, Purpose::Register, stale)
    }

    /// A notification or response has this number: it is the newest.
    fn note(&mut self, cx: &mut Cx<'_>, number: u32, max_age: Option<u32>) {
        let fresh = Duration::from_secs(max_age.unwrap_or(MAX_AGE).into());
        let renewal = Duration::from_millis(cx.rng.random_range(RENEWAL_MS));
        let observed = &mut self.rare.get_or_insert_default().observed;
        observed.number = number;
        observed.at = cx.now;
        observed.stale = cx.now + fresh + renewal;
    }

    /// The response to a registration or its end.
    pub(super) fn registered(&mut self, cx: &mut Cx<'_>, i: usize, message: &Message<'_>) {
        let x = self.exchanges[i];
        let mut next = self.next(cx, &x, i, message);
        if x.purpose == Purpose::Deregister {
            // whatever it is, no more comes
            self.rare.get_or_insert_default().observed.registered = false;
            if let Ok(NextStep::Block { .. }) = next {
                next = Ok(NextStep::Done);
            }
        } else if matches!(next, Ok(NextStep::Done | NextStep::Block { .. })) {
            let Some(number) = message.options.observe else {
                // section 4.1
                let what = || "the server responded, but keeps no observers of this resource".into();
                return self.fail(cx, i, Cause::named(Failure::Rejected, "no observers kept"), what);
            };
            let observed = &mut self.rare.get_or_insert_default().observed;
            let newest = !observed.registered || observed.newer(number, cx.now);
            observed.registered = true;
            if newest || number == observed.number {
                self.note(cx, number, message.options.max_age);
            }
        }
        self.go_on(cx, i, next, message);
    }

    /// A message with the token of the observation that is no acknowledgement.
    pub(super) fn notified(&mut self, cx: &mut Cx<'_>, message: &Message<'_>, len: usize) {
        let pending = self.observation().filter(|i| self.exchanges[*i].awaits_reply());
        let number = message.options.observe.filter(|_| message.header.code.success());
        match (pending, number) {
            (Some(i), None) => self.response(cx, i, message, len),
            // a notification that overtakes the response to a registration is as good
            (Some(i), Some(_)) if self.exchanges[i].purpose == Purpose::Register => {
                self.response(cx, i, message, len);
            }
            (_, Some(number)) => {
                cx.arrived(cx.now, len);
                self.notification(cx, number, message);
            }
            (None, None) => {
                // section 4.2: an error, or a response without the option, is the last
                let kind = if self.config.expects(message.header.code) {
                    Failure::Closed
                } else {
                    Failure::Rejected
                };
                let why = Cause { kind, detail: Detail::Response(message.header.code.0) };
                cx.failure(cx.now, why, || format!("the server ended the observation: {}", Answer(message)));
                self.failed = true;
            }
        }
    }

    fn notification(&mut self, cx: &mut Cx<'_>, number: u32, message: &Message<'_>) {
        let observed = &self.rare.get_or_insert_default().observed;
        if !observed.newer(number, cx.now) {
            if number == observed.number {
                cx.tally.duplicates = cx.tally.duplicates.saturating_add(1);
                cx.at(cx.now).counts.duplicates += 1;
            } else {
                cx.tally.reordered = cx.tally.reordered.saturating_add(1);
                cx.at(cx.now).counts.reordered += 1;
            }
            return;
        }
        // RFC 7959 section 2.6: a notification carries the first block, the others are asked for
        let first = Exchange::of(Purpose::Fetch, cx.now, Part::Request, self.config.request.szx);
        let next = match self.config.follow(&first, 0, message) {
            Ok(next) => next,
            Err(wrong) => {
                cx.failure(cx.now, Failure::Protocol, || wrong.to_string());
                self.failed = true;
                return;
            }
        };
        self.note(cx, number, message.options.max_age);
        self.rare.get_or_insert_default().observed.notified += 1;
        cx.count_unrequested(cx.now);
        cx.count(cx.now, NOTIFICATIONS);
        // what was asked for of an older one is of no use
        if let Some(i) = self.exchanges.iter().position(|x| x.purpose == Purpose::Fetch && !x.stage.over()) {
            self.over(cx, i, Stage::Failed);
        }
        if let NextStep::Block { part, offset, szx, etag } = next {
            let mut fetch = Exchange::of(Purpose::Fetch, cx.now, part, szx);
            (fetch.offset, fetch.etag) = (offset, etag);
            self.add(fetch);
        }
    }
}
