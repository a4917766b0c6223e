//! What an operator changes while packets pass: limits, times, filters, exemptions and static forwards.

use super::{Mapped, Nat};
use crate::config::{Config, StaticForward};
use crate::event::EventKind;
use crate::key::Endpoint;
use crate::pool::class;
use crate::session::Session;

/// Static forwards that there may be more than in the beginning.
pub(crate) const MORE: usize = 1_024;

/// Why a static forward cannot be added now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ForwardConflict {
    /// A subscriber's mapping has its outside endpoint.
    Outside,
    /// Its inside endpoint has a mapping already, to here.
    Inside(Endpoint),
    /// There are as many as there may be without a restart.
    Full,
}

/// Forwards that are no more, until the last session of them has ended.
#[derive(Debug, Default)]
pub struct RemovedForwards {
    forwards: Vec<StaticForward>,
    /// Where the search for their sessions goes on, while there is one.
    cursor: Option<u32>,
}

impl RemovedForwards {
    /// Whether sessions of some are looked for still.
    pub fn is_searching(&self) -> bool {
        self.cursor.is_some()
    }
}

/// A place for a forward that has none.
pub(super) const FREE: u8 = 0;

impl Nat {
    /// Which static forwards of a configuration cannot be added now, by their place in it.
    pub fn in_use(&self, config: &Config) -> Vec<(usize, ForwardConflict)> {
        let added = self.added(config);
        let live = self.live_forwards().count() + self.removed.forwards.len();
        let mut room = (self.config.static_forwards.len() + MORE).saturating_sub(live);
        let why = |(at, forward): (usize, &StaticForward)| {
            if room == 0 {
                return Some((at, ForwardConflict::Full));
            }
            room -= 1;
            self.why_not(forward).map(|why| (at, why))
        };
        added.filter_map(why).collect()
    }

    fn added<'a>(&self, config: &'a Config) -> impl Iterator<Item = (usize, &'a StaticForward)> {
        let all = config.static_forwards.iter().enumerate();
        all.filter(|(_, forward)| !self.forwards.contains(forward))
    }

    /// The static forwards that there are.
    pub fn live_forwards(&self) -> impl Iterator<Item = &StaticForward> {
        self.forwards.iter().filter(|forward| forward.protocol != FREE)
    }

    fn why_not(&self, forward: &StaticForward) -> Option<ForwardConflict> {
        let outside = forward.outside_endpoint();
        let same =
            |other: &StaticForward| other.protocol == forward.protocol && other.outside == forward.outside;
        // What another forward has or had is nobody else's.
        let kept = self.live_forwards().chain(&self.removed.forwards).any(same);
        if !kept && self.pool.is_used(outside, class(forward.protocol)) {
            return Some(ForwardConflict::Outside);
        }
        match self.mapped_inside(forward.inside_endpoint(), forward.protocol, forward.realm) {
            Some(Mapped::Session(of)) => {
                self.sessions.at(of).map(|session| ForwardConflict::Inside(session.outside()))
            }
            _ => None,
        }
    }

    /// Go on with another configuration: of limits of a subscriber, idle times, filtering, exemptions, what is dropped by addresses
    /// and rules, the largest MSS and static forwards. Sessions go on, but for those of forwards that are no more: these end with [`Nat::advance`]. What
    /// [`Nat::in_use`] names is left out; the rest of the configuration stays.
    pub fn change(&mut self, config: &Config) {
        self.config.sessions_per_subscriber = config.sessions_per_subscriber;
        self.config.blocks_per_subscriber = config.blocks_per_subscriber;
        self.config.filtering = config.filtering;
        self.config.exempt.clone_from(&config.exempt);
        if !self.config.exempt.is_empty() {
            self.untranslated.make_room();
        }
        self.config.mss = config.mss;
        self.config.packet_filter.clone_from(&config.packet_filter);
        let quarantine = self.config.timeouts.port_quarantine;
        self.config.timeouts = crate::config::Timeouts { port_quarantine: quarantine, ..config.timeouts };
        self.idle = super::Idle::new(&self.config.timeouts);
        let refused: Vec<usize> = self.in_use(config).into_iter().map(|(at, _)| at).collect();
        let added = self.added(config).filter(|(at, _)| !refused.contains(at));
        let added: Vec<StaticForward> = added.map(|(_, forward)| *forward).collect();
        for number in 0..self.forwards.len() {
            let forward = self.forwards[number];
            if forward.protocol != FREE && !config.static_forwards.contains(&forward) {
                self.unindex_forward(number);
                self.forwards[number].protocol = FREE;
                self.forward_log.removed(&forward);
                self.removed.forwards.push(forward);
                self.removed.cursor = Some(0);
            }
        }
        for forward in added {
            self.forward_log.added(forward);
            let free = self.forwards.iter().position(|place| place.protocol == FREE);
            let number = free.unwrap_or(self.forwards.len());
            match free {
                Some(place) => self.forwards[place] = forward,
                None => self.forwards.push(forward),
            }
            self.index_forward(number);
        }
    }

    /// End sessions of forwards that are no more, in the next `budget` lines; whether there is more to look at.
    pub(crate) fn advance_removed(&mut self, now: u64, budget: usize) -> bool {
        let Some(from) = self.removed.cursor else { return false };
        let lines = self.sessions.used();
        let mut last = from.saturating_add(budget as u32).min(lines);
        for index in from..last {
            let Some(session) = self.sessions.at(index).copied() else { continue };
            let goes = session.is_alive() && session.has(Session::STATIC) && !self.has_forward(&session);
            if goes && !self.end_in_turn(index, now) {
                last = index;
                break;
            }
        }
        if last < lines {
            self.removed.cursor = Some(last);
            return true;
        }
        self.removed.cursor = None;
        for forward in std::mem::take(&mut self.removed.forwards) {
            if !self.live_forwards().any(|other| *other == forward)
                && self.forward_log.session_ended(&forward)
            {
                self.events.push(now, EventKind::MappingDeleted(forward.record()));
            }
            let of = (forward.protocol, forward.outside);
            if !self.live_forwards().any(|other| (other.protocol, other.outside) == of) {
                self.pool.unreserve(forward.outside_endpoint(), class(forward.protocol), now);
            }
        }
        false
    }

    /// Whether the forward of a session is there.
    fn has_forward(&self, session: &Session) -> bool {
        let mapped = self.mapped_outside(session.outside(), session.protocol());
        matches!(mapped, Some(Mapped::Static(number)) if self.forwards.get(number as usize).is_some_and(
            |forward| (forward.inside_endpoint(), forward.realm) == (session.inside(), session.realm())
        ))
    }
}

#[cfg(test)]
#[path = "change_tests.rs"]
mod tests;
