//! The file of what sites had, over a restart. A thread writes it, whole or not at all.

use super::leasing::{Change, KnownSite};
use packet::Mac;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::thread::JoinHandle;

/// What the file says that it is.
const FORMAT: &str = "netdyno-nat-sites/1";

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Document {
    format: String,
    sites: Vec<KnownSite>,
}

/// What sites had, by a file. Nothing, where there is no file yet.
pub fn read(file: &Path) -> io::Result<Vec<KnownSite>> {
    let text = match fs::read(file) {
        Err(why) if why.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        text => text?,
    };
    let document: Document = serde_json::from_slice(&text)?;
    if document.format != FORMAT {
        return Err(io::Error::other(format!("its format is {:?}, not {FORMAT}", document.format)));
    }
    Ok(document.sites)
}

/// Write a file, so that whoever reads it, and a machine that loses its power, has the old one or the new one.
fn write(file: &Path, sites: &BTreeMap<Mac, KnownSite>) -> io::Result<()> {
    let sites = sites.values().copied().collect();
    let text = serde_json::to_vec(&Document { format: FORMAT.into(), sites })?;
    let mut name = file.as_os_str().to_owned();
    name.push(".new");
    let new = PathBuf::from(name);
    let mut open = File::create(&new)?;
    open.write_all(&text)?;
    open.sync_all()?;
    fs::rename(&new, file)?;
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

impl Keeper {
    /// For this file, which is written once to see that it can be.
    pub fn start(file: &Path, sites: Vec<KnownSite>) -> io::Result<Self> {
        let mut sites = sites.into_iter().map(|site| (site.mac, site)).collect();
        write(file, &sites)?;
        let (tell, told) = sync_channel(1);
        let file = file.to_owned();
        let run = move || keep(&file, &mut sites, &told);
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

fn keep(file: &Path, sites: &mut BTreeMap<Mac, KnownSite>, told: &Receiver<Vec<Change>>) {
    let mut failing = false;
    while let Ok(changes) = told.recv() {
        for (mac, site) in changes {
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
            }
            written => failing = written.is_err(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;

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
        let keeper = Keeper::start(&file, vec![one(1)]).unwrap();
        assert_eq!(read(&file).unwrap(), [one(1)]);
        let set = |last| (one(last).mac, Some(one(last)));
        assert_eq!((keeper.give(vec![]), keeper.give(vec![set(2)])), (None, None));
        keeper.end(vec![(one(1).mac, None), set(4), set(3)]);
        assert_eq!(read(&file).unwrap(), [2, 3, 4].map(one));
        assert_eq!(fs::read_dir(file.parent().unwrap()).unwrap().count(), 1, "nothing else is left there");
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
        Keeper::start(&file.join("below"), vec![]).unwrap_err();
    }
}
