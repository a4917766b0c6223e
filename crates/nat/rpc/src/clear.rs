//! `nat.clear`: an operator ends sessions.
//!
//! Workers end some of them between two bursts; a call here asks again until its time is up, and is called again for the rest.

use crate::filter::Filter;
use crate::tables::{Cursor, Trackers};
use nat_elements::clear::{Clear, ClearProgress, Standby};
use serde::Deserialize;
use serde_json::json;
use std::time::{Duration, Instant};
use system::method::CallContext;
use system::rpc::{Answer, Error};

/// A call ends after this long.
const TIME: Duration = Duration::from_millis(500);
/// A log may have no room for so long; then what it has none for is counted.
const PATIENCE: Duration = Duration::from_millis(250);
/// Time between two looks whether it has.
const WAIT: Duration = Duration::from_millis(1);

/// Which sessions, and from where on.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Params {
    graph: String,
    #[serde(default)]
    cursor: Option<String>,
    #[serde(flatten)]
    filter: Filter,
    /// Also what was asked for by PCP.
    #[serde(default)]
    mappings: bool,
    /// All sessions are meant, where no filter says which.
    #[serde(default)]
    all: bool,
}

/// End them.
pub fn clear(context: &dyn CallContext, params: Params) -> Answer {
    context.may_change()?;
    let trackers = Trackers::of(context, &params.graph)?;
    let filter = params.filter.read()?;
    if (filter == Default::default()) != params.all {
        let what = if params.all { "all sessions, and a filter" } else { "nothing says which sessions" };
        return Err(Error::params("params.all", what));
    }
    let from = trackers.cursor(params.cursor.as_deref())?;
    let began = Instant::now();
    let go_on = || began.elapsed() < TIME && !context.is_ending();
    let mut stall = Stall { tracker: from.tracker, since: began };
    let (ended, next) = clear_all(trackers.names.len(), from, go_on, |at| {
        let unlogged = stall.is_over(at.tracker, Instant::now());
        let asked = Clear { from: at.line, filter, asked: params.mappings, unlogged };
        let done = trackers.ask(&trackers.names[at.tracker], asked)?.map_err(of_standby)?;
        if done.next == Some(at.line) {
            std::thread::sleep(WAIT);
        } else if !unlogged {
            stall.since = Instant::now();
        }
        Ok(done)
    })?;
    tracing::info!(graph = %params.graph, ended, ?filter, "sessions cleared");
    Ok(json!({"ended": ended, "next": next.map(|next| next.to_string())}))
}

fn of_standby(_: Standby) -> Error {
    Error::state("this NAT is the standby of a pair", "Clear at the active one")
}

/// Since when the log of a tracker has had no room. Another's may have.
#[derive(Debug)]
struct Stall {
    tracker: usize,
    since: Instant,
}

impl Stall {
    /// Whether that is too long for this tracker.
    fn is_over(&mut self, tracker: usize, now: Instant) -> bool {
        if tracker != self.tracker {
            *self = Self { tracker, since: now };
        }
        now.duration_since(self.since) >= PATIENCE
    }
}

/// Ask tracker after tracker, from `at` on, until all have been asked or `go_on` says no: how many were ended, and where to go on. A
/// tracker that cannot answer is an error only if nothing was ended before: what was is to be told.
fn clear_all(
    trackers: usize,
    mut at: Cursor,
    go_on: impl Fn() -> bool,
    mut ask: impl FnMut(Cursor) -> Result<ClearProgress, Error>,
) -> Result<(usize, Option<Cursor>), Error> {
    let mut all = 0;
    loop {
        let ClearProgress { ended, next } = match ask(at) {
            Ok(done) => done,
            Err(why) if all == 0 => return Err(why),
            Err(_) => return Ok((all, Some(at))),
        };
        all += ended;
        at = match next {
            Some(line) => Cursor { line, ..at },
            None if at.tracker + 1 < trackers => Cursor { tracker: at.tracker + 1, line: 0 },
            None => return Ok((all, None)),
        };
        if !go_on() {
            return Ok((all, Some(at)));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Tables of lines; a request ends three.
    fn ask(tables: &[u32], at: Cursor) -> ClearProgress {
        let lines = tables[at.tracker];
        let end = lines.min(at.line + 3);
        ClearProgress { ended: (end - at.line) as usize, next: (end < lines).then_some(end) }
    }

    #[test]
    fn every_tracker_is_asked_to_its_end_whatever_a_call_has_time_for() {
        let tables = [10, 0, 7];
        for patient in [true, false] {
            let (mut from, mut all, mut calls) = (Some(Cursor::default()), 0, 0);
            while let Some(at) = from {
                let (ended, next) = clear_all(3, at, || patient, |at| Ok(ask(&tables, at))).unwrap();
                (from, all, calls) = (next, all + ended, calls + 1);
            }
            assert_eq!((all, calls), (17, if patient { 1 } else { 8 }));
        }
    }

    #[test]
    fn what_was_ended_before_a_tracker_was_late_is_told() {
        let late = || Error::state("late", "ask again");
        let (second, at) = (Cursor { tracker: 1, line: 0 }, Cursor::default());
        let ask = |at: Cursor| if at.tracker == 0 { Ok(ask(&[10, 7], at)) } else { Err(late()) };
        assert_eq!(clear_all(2, at, || true, ask).unwrap(), (10, Some(second)));
        assert!(clear_all(2, second, || true, ask).is_err(), "nothing was ended");
    }

    #[test]
    fn one_log_without_room_says_nothing_of_the_next() {
        let now = Instant::now();
        let mut stall = Stall { tracker: 0, since: now };
        assert!(!stall.is_over(0, now) && stall.is_over(0, now + PATIENCE));
        assert!(!stall.is_over(1, now + PATIENCE) && !stall.is_over(1, now + 2 * PATIENCE - WAIT));
        assert!(stall.is_over(1, now + 2 * PATIENCE));
    }
}
