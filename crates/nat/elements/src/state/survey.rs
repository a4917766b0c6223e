//! Whose is what of a file: settled before the first worker reads it.

use super::file::{Header, Reader, StateError, Totals};
use super::keeper::wall_ms;
use crate::log::Log;
use nat_core::neighbours::is_of_one;
use nat_core::state::{ImportClock, Record, SkipReason};
use nat_core::{Endpoint, Hop, Mac, Nat, Ownership, Realm};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::{Path, PathBuf};

/// Next hops from here on are subscribers'.
const FIRST: Hop = 2;
/// The next hop away from subscribers.
const GATEWAY: Hop = 1;
/// Records between two looks after the log.
const PACE: u64 = 256;

/// A subscriber's Ethernet address, and the number of the next hop towards it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bound {
    /// Its private address.
    pub inside: u32,
    /// Its tags.
    pub realm: Realm,
    /// Its Ethernet address.
    pub mac: Mac,
    /// Its next hop.
    pub hop: Hop,
}

/// What became of a file's records, of one worker.
#[derive(Debug, Clone, Default, PartialEq, Eq, serde::Serialize)]
pub struct Tally {
    /// Seconds since the file was written.
    pub age_s: u64,
    /// Subscribers that are there again.
    pub subscribers: u64,
    /// Sessions that go on.
    pub sessions: u64,
    /// Records that were left out, by reason.
    pub left_out: BTreeMap<&'static str, u64>,
}

/// A file that was read through and found whole.
#[derive(Debug)]
pub struct Survey {
    path: PathBuf,
    /// What it says of itself.
    pub header: Header,
    /// How many records it has.
    pub totals: Totals,
    /// Time since it was written, ns; none if the clock was set back.
    passed: u64,
}

impl Survey {
    /// Read a file through, whatever limits the NAT has now: what finds no room is left out, and ends in the log.
    pub fn of(path: &Path) -> Result<Self, StateError> {
        let (reader, header) = Reader::open(path)?;
        let totals = reader.check()?;
        let passed = wall_ms().saturating_sub(header.written_ms).saturating_mul(1_000_000);
        Ok(Self { path: path.to_owned(), header, totals, passed })
    }

    /// Let subscribers be with the workers that have their port blocks now, and give each its next hop: by worker. `most` is how
    /// many subscribers a worker may have.
    pub fn settle(&self, ownership: &mut Ownership, workers: usize, most: usize) -> Vec<Vec<Bound>> {
        let (mut bound, mut seen) = (vec![Vec::new(); workers], HashSet::new());
        let mut each = |record: &Record| {
            let Record::Subscriber(kept) = record else { return };
            if seen.len() >= most.saturating_mul(workers) || !seen.insert((kept.inside, kept.realm)) {
                return;
            }
            if kept.blocks > 0
                && let Some(worker) = ownership.outside(Endpoint::new(kept.outside, kept.first[0]))
            {
                ownership.settle(kept.inside, kept.realm, worker);
            }
            let Some(own) = bound.get_mut(ownership.subscriber(kept.inside, kept.realm)) else { return };
            let hop = Hop::try_from(usize::from(FIRST) + own.len()).ok();
            let fits = own.len() < most && is_of_one(kept.mac);
            if let Some(hop) = hop.filter(|_| fits) {
                own.push(Bound { inside: kept.inside, realm: kept.realm, mac: kept.mac, hop });
            }
        };
        if let Err(why) = self.read(&mut each) {
            tracing::warn!("{}: {why}", self.path.display());
        }
        bound
    }

    fn read(&self, each: &mut impl FnMut(&Record)) -> Result<(), StateError> {
        let (mut reader, header) = Reader::open(&self.path)?;
        if header != self.header {
            return Err(StateError::Damaged);
        }
        while let Some(record) = reader.next()? {
            each(&record);
        }
        Ok(())
    }
}

/// Let worker `replica` have again what is its own of a file. What is left out, and was in the log, ends there; of what goes on a log is told
/// that is `new`.
pub fn restore(
    survey: &Survey,
    (replica, ownership): (usize, &Ownership),
    bound: &[Bound],
    nat: &mut Nat,
    (mut log, new): (Option<&mut Log>, bool),
    now: u64,
) -> Tally {
    let hops: HashMap<(u32, Realm), Hop> =
        bound.iter().map(|one| ((one.inside, one.realm), one.hop)).collect();
    let past = ImportClock { passed: survey.passed, now };
    let mut tally = Tally { age_s: survey.passed / 1_000_000_000, ..Tally::default() };
    let mut read = 0u64;
    let read_all = survey.read(&mut |record| {
        let owner = match record {
            // Ports of nobody's need not rest.
            Record::Ports(kept) => ownership.outside(kept.outside),
            _ => record.subscriber().map(|(inside, realm)| ownership.subscriber(inside, realm)),
        };
        if owner != Some(replica) {
            return;
        }
        let down = record.subscriber().and_then(|of| hops.get(&of).copied()).unwrap_or_default();
        let done = nat.import(record, past, (GATEWAY, down));
        if new && done.is_ok() {
            nat.tell_imported(record, now);
        }
        match (record, done) {
            (Record::Subscriber(_), Ok(())) => tally.subscribers += 1,
            (Record::Session(_), Ok(())) => tally.sessions += 1,
            // What it is of was left out and is counted, or its time is over.
            (Record::Mapping(_), Err(_)) => {}
            (_, Err(lost)) => *tally.left_out.entry(SkipReason::name(lost)).or_default() += 1,
            (Record::Ports(_) | Record::Mapping(_), Ok(())) => {}
        }
        read += 1;
        if read.is_multiple_of(PACE)
            && let Some(log) = log.as_deref_mut()
        {
            while log.drain(nat, now) {}
        }
    });
    if let Err(why) = read_all {
        tracing::warn!("{}: {why}; the rest of it is left out", survey.path.display());
    }
    tally
}
