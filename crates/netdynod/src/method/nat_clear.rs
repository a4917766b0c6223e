//! `nat.clear`: an operator ends sessions.
//!
//! Workers end some of them between two bursts; a call here asks again until its time is up, and is called again for the rest.

use super::Answer;
use super::nat::{Cursor, Trackers};
use super::nat_filter::Filter;
use crate::caller::Caller;
use crate::files::Door;
use crate::rpc::Error;
use nat::clear::{Clear, Cleared};
use serde::Deserialize;
use serde_json::json;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

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
pub fn clear(caller: &Caller, params: Params) -> Answer {
    // Over the Unix socket comes its owner, whoever holds the lease.
    if caller.door == Door::Tcp {
        caller.core.as_writer(caller.session)?;
    }
    let trackers = Trackers::of(caller, &params.graph)?;
    let filter = params.filter.read()?;
    if (filter == Default::default()) != params.all {
        let what = if params.all { "all sessions, and a filter" } else { "nothing says which sessions" };
        return Err(Error::params("params.all", what));
    }
    let from = trackers.cursor(params.cursor.as_deref())?;
    let began = Instant::now();
    let go_on = || began.elapsed() < TIME && !caller.core.ending.load(Ordering::Relaxed);
    let mut moved = began;
    let (ended, next) = clear_all(trackers.names.len(), from, go_on, |at| {
        let unlogged = moved.elapsed() >= PATIENCE;
        let asked = Clear { from: at.line, filter, asked: params.mappings, unlogged };
        let done = trackers.ask(&trackers.names[at.tracker], asked)?;
        if done.next == Some(at.line) {
            std::thread::sleep(WAIT);
        } else if !unlogged {
            moved = Instant::now();
        }
        Ok(done)
    })?;
    tracing::info!(graph = %params.graph, ended, ?filter, "sessions cleared");
    Ok(json!({"ended": ended, "next": next.map(|next| next.to_string())}))
}

/// Ask tracker after tracker, from `at` on, until all have been asked or `go_on` says no: how many were ended, and where to go on.
fn clear_all(
    trackers: usize,
    mut at: Cursor,
    go_on: impl Fn() -> bool,
    mut ask: impl FnMut(Cursor) -> Result<Cleared, Error>,
) -> Result<(usize, Option<Cursor>), Error> {
    let mut all = 0;
    loop {
        let Cleared { ended, next } = ask(at)?;
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
    fn ask(tables: &[u32], at: Cursor) -> Cleared {
        let lines = tables[at.tracker];
        let end = lines.min(at.line + 3);
        Cleared { ended: (end - at.line) as usize, next: (end < lines).then_some(end) }
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
        let late = |_| Err(Error::state("late", "ask again"));
        assert!(clear_all(1, Cursor::default(), || true, late).is_err());
    }
}
