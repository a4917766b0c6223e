//! The file of what sites had, over a restart. A thread writes it, whole or not at all.

use super::leasing::{Change, KnownSite};
use crate::own_file;
use ::element::kind::Endings;
use packet::Mac;
use profile::Error;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, sync_channel};
use std::thread::JoinHandle;
use std::time::Duration;

/// What the file says that it is.
const FORMAT: &str = "netdyno-nat-sites/1";
/// Bytes of a file at most: those of as many sites as there may be, each with some 150.
const MOST: u64 = 64 << 20;
/// So many copies of a file are put aside.
const COPIES: usize = 9;
/// A file that could not be written is tried again so long after that.
const AGAIN: Duration = Duration::from_secs(10);

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Document {
    format: String,
    sites: Vec<KnownSite>,
}

/// What sites had, by a file. Nothing, where there is no file yet.
pub fn read(file: &Path) -> io::Result<Vec<KnownSite>> {
    let text = match own_file::read(file, MOST) {
        Err(why) if why.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        text => text?,
    };
    let document: Document = serde_json::from_slice(&text)?;
    if document.format != FORMAT {
        return Err(io::Error::other(format!("its format is {:?}, not {FORMAT}", document.format)));
    }
    Ok(document.sites)
}

/// A file beside it.
fn sibling_file(file: &Path, ending: &str) -> PathBuf {
    let mut name = file.as_os_str().to_owned();
    name.push(ending);
    PathBuf::from(name)
}

/// Copy a file whose sites are not all taken, so that who mistyped an option has them still: where the copy is. No copy takes the
/// place of one that says otherwise.
pub fn put_aside(file: &Path) -> io::Result<PathBuf> {
    let text = own_file::read(file, MOST)?;
    let names =
        (1..=COPIES).map(|n| sibling_file(file, &if n == 1 { ".old".into() } else { format!(".old{n}") }));
    for old in names {
        match File::options().write(true).create_new(true).open(&old) {
            Ok(mut open) => {
                open.write_all(&text)?;
                open.sync_all()?;
                return Ok(old);
            }
            Err(why) if why.kind() == io::ErrorKind::AlreadyExists => {
                if own_file::read(&old, MOST).is_ok_and(|there| there == text) {
                    return Ok(old);
                }
            }
            Err(why) => return Err(why),
        }
    }
    Err(io::Error::other(format!("there are {COPIES} copies of it already, to .old{COPIES}; move them away")))
}

/// Write all of it to a file beside it.
fn prepare(file: &Path, sites: &BTreeMap<Mac, KnownSite>) -> io::Result<PathBuf> {
    let sites = sites.values().copied().collect();
    let text = serde_json::to_vec(&Document { format: FORMAT.into(), sites })?;
    let new = sibling_file(file, ".new");
    own_file::may_replace(file, FORMAT.as_bytes())?;
    own_file::remove(&new, FORMAT.as_bytes())?;
    let mut open = File::options().write(true).create_new(true).open(&new)?;
    open.write_all(&text)?;
    open.sync_all()?;
    Ok(new)
}

/// Write a file, so that whoever reads it, and a machine that loses its power, has the old one or the new one.
fn write(file: &Path, sites: &BTreeMap<Mac, KnownSite>) -> io::Result<()> {
    fs::rename(prepare(file, sites)?, file)?;
    // The name is in the folder.
    let folder = file.parent().filter(|folder| !folder.as_os_str().is_empty());
    folder.map_or(Ok(()), |folder| File::open(folder)?.sync_all())
}

/// Writes a file. It is told what changes, so that who tells it is done soon, however many sites there are. What it was told last
/// is written before it is gone.
#[derive(Debug)]
pub struct Keeper {
    tell: Option<SyncSender<Vec<Change>>>,
    thread: Option<JoinHandle<()>>,
}

/// Where what could not be written at the end is said.
fn report_unwritten(endings: &Endings, file: &Path, why: &io::Error) {
    let what = format!("{} cannot be written: {why}; sites may get other addresses", file.display());
    let fix = "Make room there, or name a file in another folder";
    endings.fault(Error::new("ND-92-18", "sites.known", what, fix));
}

impl Keeper {
    /// For this file. That it can be written is seen by one beside it: a NAT that never runs leaves it as it was.
    pub fn start(file: &Path, sites: Vec<KnownSite>, endings: Endings) -> io::Result<Self> {
        let mut sites = sites.into_iter().map(|site| (site.mac, site)).collect();
        fs::remove_file(prepare(file, &sites)?)?;
        let (tell, told) = sync_channel(1);
        let file = file.to_owned();
        let run = move || {
            if let Err(why) = write_changes(&file, &mut sites, &told, AGAIN) {
                report_unwritten(&endings, &file, &why);
            }
        };
        let thread = std::thread::Builder::new().name("nd-sites".into()).spawn(run)?;
        Ok(Self { tell: Some(tell), thread: Some(thread) })
    }

    /// Write this. `Some`: the thread has enough to write now.
    pub fn give(&self, changes: Vec<Change>) -> Option<Vec<Change>> {
        if changes.is_empty() {
            return None;
        }
        self.tell.as_ref()?.try_send(changes).err().map(|why| match why {
            TrySendError::Full(changes) | TrySendError::Disconnected(changes) => changes,
        })
    }

    /// Write this as the last.
    pub fn end(mut self, last: Vec<Change>) {
        if let Some(tell) = self.tell.take().filter(|_| !last.is_empty()) {
            let _thread_is_gone = tell.send(last);
        }
        if let Some(thread) = self.thread.take() {
            let _panicked = thread.join();
        }
    }
}

/// Write what is told, until nobody tells any more. What could not be written is written `again` later, and as the last of all: whether
/// that was.
fn write_changes(
    file: &Path,
    sites: &mut BTreeMap<Mac, KnownSite>,
    told: &Receiver<Vec<Change>>,
    again: Duration,
) -> io::Result<()> {
    let (mut failing, mut over) = (false, false);
    let mut last = Ok(());
    while !over {
        let changes = if failing { told.recv_timeout(again) } else { told.recv().map_err(Into::into) };
        over = changes == Err(RecvTimeoutError::Disconnected);
        if over && !failing {
            return Ok(());
        }
        for (mac, site) in changes.unwrap_or_default() {
            match site {
                Some(site) => drop(sites.insert(mac, site)),
                None => drop(sites.remove(&mac)),
            }
        }
        match write(file, sites) {
            Err(why) if !failing => {
                tracing::warn!(
                    "{} cannot be written: {why}; sites may get other addresses after a restart",
                    file.display()
                );
                failing = true;
                last = Err(why);
            }
            written => {
                failing = written.is_err();
                last = written;
            }
        }
    }
    last
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;
    use std::time::Instant;

    fn one(last: u8) -> KnownSite {
        KnownSite {
            inside: Ipv4Addr::UNSPECIFIED,
            realm: 7 << 12,
            mac: [2, 0x4e, 0x44, 0, 0, last],
            address: Ipv4Addr::new(203, 0, 113, last),
            bound: true,
        }
    }

    #[test]
    fn what_was_given_last_is_read_back() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("sites.json");
        assert_eq!(read(&file).unwrap(), []);
        let keeper = Keeper::start(&file, vec![one(1)], Endings::default()).unwrap();
        assert_eq!(
            fs::read_dir(folder.path()).unwrap().count(),
            0,
            "nothing is written before a site changes"
        );
        let set = |last| (one(last).mac, Some(one(last)));
        assert_eq!((keeper.give(vec![]), keeper.give(vec![set(2)])), (None, None));
        keeper.end(vec![(one(1).mac, None), set(4), set(3)]);
        assert_eq!(read(&file).unwrap(), [2, 3, 4].map(one));
        assert_eq!(fs::read_dir(file.parent().unwrap()).unwrap().count(), 1, "nothing else is left there");
        assert_eq!(read(&put_aside(&file).unwrap()).unwrap(), [2, 3, 4].map(one));
    }

    #[test]
    fn a_copy_is_kept_whatever_is_put_aside_after_it() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("sites.json");
        let copies: Vec<PathBuf> = (1..=COPIES as u8)
            .map(|last| {
                write(&file, &[(one(last).mac, one(last))].into()).unwrap();
                let copy = put_aside(&file).unwrap();
                assert_eq!(put_aside(&file).unwrap(), copy, "the same is not copied twice");
                copy
            })
            .collect();
        for (last, copy) in (1..).zip(&copies) {
            assert_eq!(read(copy).unwrap(), [one(last)]);
        }
        write(&file, &BTreeMap::new()).unwrap();
        assert!(put_aside(&file).unwrap_err().to_string().contains("9 copies"));
    }

    #[test]
    fn what_could_not_be_written_is_written_later_without_a_change() {
        let folder = tempfile::tempdir().unwrap();
        let (file, in_its_way) = (folder.path().join("sites.json"), folder.path().join("sites.json.new"));
        let kept = |again, then: &dyn Fn()| {
            fs::create_dir(&in_its_way).unwrap();
            let (tell, told) = sync_channel(0);
            std::thread::scope(|threads| {
                let (file, tell) = (&file, tell);
                threads.spawn(move || write_changes(file, &mut BTreeMap::new(), &told, again).unwrap());
                // The second is taken when the first was tried; that one is, too, within a moment.
                for last in [1, 2] {
                    tell.send(vec![(one(last).mac, Some(one(last)))]).unwrap();
                }
                std::thread::sleep(Duration::from_millis(50));
                assert_eq!(read(file).unwrap(), []);
                fs::remove_dir(&in_its_way).unwrap();
                then();
            });
            assert_eq!(read(&file).unwrap(), [1, 2].map(one));
            fs::remove_file(&file).unwrap();
        };
        kept(Duration::from_millis(1), &|| {
            let end = Instant::now() + Duration::from_secs(60);
            while read(&file).unwrap().len() < 2 {
                assert!(Instant::now() < end, "it is not written");
                std::thread::sleep(Duration::from_millis(1));
            }
        });
        // It ends before it is tried again.
        kept(Duration::from_secs(3_600), &|| ());
    }

    #[test]
    fn another_file_is_not_taken_for_it() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("sites.json");
        for text in ["", "{", "[]", r#"{"format": "netdyno-nat/1", "sites": []}"#, r#"{"sites": []}"#] {
            fs::write(&file, text).unwrap();
            read(&file).unwrap_err();
        }
        // A folder that cannot be written to is told at once.
        Keeper::start(&file.join("below"), vec![], Endings::default()).unwrap_err();
    }
}
