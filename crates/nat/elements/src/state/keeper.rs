//! Who keeps a NAT's state when it stops.

use super::file::{Header, Totals, Writer, sync_folder};
use crate::log::Log;
use ::element::kind::Endings;
use nat_core::{Hop, Mac, Nat};
use profile::Error;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

/// Writes the state of all workers of a NAT into one file.
#[derive(Debug)]
pub struct Keeper {
    path: PathBuf,
    header: Header,
    endings: Endings,
    work: Mutex<Work>,
}

#[derive(Debug)]
enum Work {
    /// So many workers carry packets: the file that the NAT began with is of use until all do.
    Running { began: u32 },
    /// So many workers gave theirs. It ends after all if the file is not completed, and their logs say so.
    Writing(Box<Writer>, u32, Vec<(Nat, Log)>),
    /// The file is complete.
    Kept,
    /// It cannot be written: this is what workers gave before.
    Failed(Vec<(Nat, Log)>),
}

impl Keeper {
    /// At `path`; when it was written is said then.
    pub fn new(path: &Path, header: Header, endings: Endings) -> Self {
        Self { path: path.to_owned(), header, endings, work: Mutex::new(Work::Running { began: 0 }) }
    }

    /// A worker that has its own of the file carries packets. Once all do, the file is of the past, and is put aside as `FILE.old`: a
    /// crash must not bring back who had which port long ago.
    pub fn worker_started(&self) {
        let mut work = self.work.lock().unwrap_or_else(PoisonError::into_inner);
        let Work::Running { began } = &mut *work else { return };
        *began += 1;
        if *began != self.header.workers {
            return;
        }
        let mut old = self.path.as_os_str().to_owned();
        old.push(".old");
        match std::fs::rename(&self.path, &old) {
            Err(why) if why.kind() != io::ErrorKind::NotFound => {
                tracing::warn!("{} cannot be put aside: {why}", self.path.display());
            }
            Err(_) => {}
            Ok(()) => {
                // Not by this worker, which carries packets.
                let path = self.path.clone();
                let begun = std::thread::Builder::new().name("sync".into()).spawn(move || sync_folder(&path));
                if let Err(why) = begun {
                    tracing::warn!("the folder of {} is not synchronised: {why}", self.path.display());
                }
            }
        }
    }

    /// Whether some worker has carried packets: then all give their state, also one that has not.
    pub fn has_begun(&self) -> bool {
        let work = self.work.lock().unwrap_or_else(PoisonError::into_inner);
        !matches!(*work, Work::Running { began: 0 })
    }

    /// A worker has stopped. Whether its state is kept; the last one completes the file.
    pub fn give(&self, nat: &Nat, now: u64, mac: impl Fn(Hop) -> Option<Mac>) -> bool {
        let mut work = self.work.lock().unwrap_or_else(PoisonError::into_inner);
        match self.write(&mut work, nat, now, mac) {
            Ok(None) => !matches!(*work, Work::Failed(_)),
            Ok(Some(Totals { subscribers, sessions, .. })) => {
                let before = std::mem::replace(&mut *work, Work::Kept);
                // Their logs end now, and nobody is to wait for that.
                drop(work);
                if let Work::Writing(_, _, mut given) = before {
                    given.iter_mut().for_each(|(_, log)| log.close());
                }
                let path = self.path.display();
                tracing::info!("{path}: {sessions} sessions of {subscribers} subscribers are kept");
                true
            }
            Err(why) => {
                *work = Work::Failed(match std::mem::replace(&mut *work, Work::Kept) {
                    Work::Writing(_, _, given) => given,
                    _ => Vec::new(),
                });
                let what =
                    format!("{} cannot be written, and no session is kept: {why}", self.path.display());
                tracing::warn!("{what}");
                let fix = "Make room there, or name a file in another folder";
                self.endings.fault(Error::new("ND-92-18", "state", what, fix));
                false
            }
        }
    }

    fn write(
        &self,
        work: &mut Work,
        nat: &Nat,
        now: u64,
        mac: impl Fn(Hop) -> Option<Mac>,
    ) -> io::Result<Option<Totals>> {
        if let Work::Running { .. } = work {
            let header = Header { written_ms: wall_ms(), ..self.header };
            *work = Work::Writing(Box::new(Writer::begin(&self.path, &header)?), 0, Vec::new());
        }
        let Work::Writing(writer, given, _) = work else { return Ok(None) };
        nat.export(now, mac).try_for_each(|record| writer.record(&record))?;
        *given += 1;
        if *given < self.header.workers {
            return Ok(None);
        }
        writer.finish().map(Some)
    }

    /// What a worker gave, with its log: kept until all have given theirs. Given back if that has failed meanwhile: it ends.
    pub fn hold(&self, nat: Nat, log: Log) -> Option<(Nat, Log)> {
        let mut work = self.work.lock().unwrap_or_else(PoisonError::into_inner);
        match &mut *work {
            Work::Writing(_, _, given) => given.push((nat, log)),
            Work::Failed(_) => return Some((nat, log)),
            Work::Running { .. } | Work::Kept => {}
        }
        None
    }

    /// What workers gave before one could not give its own: it ends too.
    pub fn not_kept(&self) -> Vec<(Nat, Log)> {
        let mut work = self.work.lock().unwrap_or_else(PoisonError::into_inner);
        match &mut *work {
            Work::Failed(given) => std::mem::take(given),
            _ => Vec::new(),
        }
    }
}

/// Milliseconds since 1970-01-01 UTC.
pub fn wall_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}
