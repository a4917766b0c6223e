//! A file that grows, and is rotated, truncated, deleted and made again.

use crate::lease::{Faults, Format, Parser, Record};
use rustix::fs::OFlags;
use std::collections::VecDeque;
use std::collections::btree_map::{BTreeMap, Entry};
use std::ffi::OsString;
use std::fs::{File, Metadata, OpenOptions};
use std::io;
use std::net::Ipv4Addr;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// Bytes that one system call reads.
const CHUNK: usize = 64 * 1024;
/// Bytes before our place in a file that are compared, to see that it is still the same text.
const MARK: usize = 64;
/// How often a set of files is opened that changes meanwhile.
const TRIES: usize = 8;

/// A file is the same as long as these are; while it is open nobody else gets them.
type Identity = (u64, u64);

/// A file read in part.
#[derive(Debug)]
struct Part {
    file: File,
    parser: Parser,
    offset: u64,
    /// The last bytes before the offset.
    mark: Vec<u8>,
}

/// Reads a lease file, and what its server keeps beside it.
#[derive(Debug)]
pub(super) struct Tail {
    path: PathBuf,
    format: Format,
    /// Files yet to be read before we follow the last of them.
    parts: VecDeque<Part>,
    /// The file that is at `path`, as far as we know: the last of the parts. None: there was none.
    current: Option<Identity>,
    /// What the files say while they are read from their beginning. Only what they say last of an address is told: all
    /// before is old news.
    batch: Option<BTreeMap<Ipv4Addr, Record>>,
    most: usize,
    refused: u64,
    faults: Faults,
    started: bool,
}

impl Tail {
    /// Nothing is read yet.
    pub(super) fn new(path: PathBuf, format: Format, most: usize) -> Self {
        Self {
            path,
            format,
            parts: VecDeque::new(),
            current: None,
            batch: None,
            // Files speak also of addresses that are free by now.
            most: most.saturating_mul(4),
            refused: 0,
            faults: Faults::default(),
            started: false,
        }
    }

    /// Read everything anew.
    pub(super) fn restart(&mut self) {
        self.parts.clear();
        (self.current, self.batch, self.started) = (None, None, false);
    }

    /// What could not be read.
    pub(super) fn faults(&self) -> &Faults {
        &self.faults
    }

    /// Records for which there was no room.
    pub(super) fn refused(&self) -> u64 {
        self.refused
    }

    /// Read at most about so many bytes; true: there is more.
    pub(super) fn advance(&mut self, most: usize, told: &mut impl FnMut(Record)) -> io::Result<bool> {
        let mut left = most;
        if self.batch.is_none() {
            // Before it is read: what is written to a file until it is replaced is read below.
            let replaced =
                !self.started || identity(&self.path)?.is_some_and(|found| Some(found) != self.current);
            if self.parts.front().is_some_and(Part::is_other_text) {
                self.parts.clear();
                if !self.reload()? {
                    return Ok(true);
                }
            } else if self.read(&mut left, told)? {
                return Ok(true);
            } else if !replaced {
                return Ok(false);
            } else if !self.reload()? {
                return Ok(true);
            }
        }
        self.read(&mut left, told)
    }

    /// Read the parts; true: there is more.
    fn read(&mut self, left: &mut usize, told: &mut impl FnMut(Record)) -> io::Result<bool> {
        let Self { parts, batch, faults, refused, most, .. } = self;
        while let Some(part) = parts.front_mut() {
            let more = part.read(left, |record| match batch {
                None => told(record),
                Some(batch) => {
                    let full = batch.len() >= *most;
                    match batch.entry(record.address()) {
                        Entry::Vacant(_) if full => *refused += 1,
                        Entry::Vacant(place) => drop(place.insert(record)),
                        Entry::Occupied(mut place) => drop(place.insert(record)),
                    }
                }
            });
            faults.append(part.parser.take_faults());
            if more? {
                return Ok(true);
            }
            if parts.len() == 1 {
                break;
            }
            if let Some(mut whole) = parts.pop_front() {
                whole.parser.finish();
                faults.append(whole.parser.take_faults());
            }
        }
        // What is over is told first, and then what ends first: that makes room for others.
        let mut records: Vec<Record> = batch.take().into_iter().flat_map(BTreeMap::into_values).collect();
        records.sort_by_key(|record| match record {
            Record::Free(..) => None,
            Record::Leased(lease) => Some(lease.expires.unwrap_or(u64::MAX)),
        });
        records.into_iter().for_each(told);
        Ok(false)
    }

    /// Begin at the beginning of all files. False: they change too fast.
    fn reload(&mut self) -> io::Result<bool> {
        for _ in 0..TRIES {
            let Some((files, current)) = self.open()? else { continue };
            if let Some(mut old) = self.parts.pop_back() {
                old.parser.finish();
                self.faults.append(old.parser.take_faults());
            }
            let format = self.format;
            self.parts = files
                .into_iter()
                .map(|file| Part { file, parser: Parser::new(format), offset: 0, mark: Vec::new() })
                .collect();
            self.current = current;
            self.batch = Some(BTreeMap::new());
            self.started = true;
            return Ok(true);
        }
        Ok(false)
    }

    /// All files that say what is leased, the oldest first, and which is the last one. `None`: one was replaced while they
    /// were opened, so that they may be of different times.
    fn open(&self) -> io::Result<Option<(Vec<File>, Option<Identity>)>> {
        let paths = self.paths();
        let mut files = Vec::new();
        for path in &paths {
            files.push(open(path)?);
        }
        let mut identities = Vec::new();
        for (path, file) in paths.iter().zip(&files) {
            let opened = file.as_ref().map(File::metadata).transpose()?.map(|data| of(&data));
            if identity(path)? != opened {
                return Ok(None);
            }
            identities.push(opened);
        }
        if self.format == Format::Kea && files[0].is_some() {
            files.drain(1..3);
        }
        Ok(Some((files.into_iter().flatten().collect(), identities.pop().flatten())))
    }

    /// Kea's lease file clean-up has `.1` renamed from the file itself, `.2` from before that, and its result `.completed`,
    /// which stands for both and becomes `.2`. ISC's server puts a whole new file in the old one's place.
    fn paths(&self) -> Vec<PathBuf> {
        let beside = |ending: &str| {
            let mut name = OsString::from(&self.path);
            name.push(ending);
            PathBuf::from(name)
        };
        match self.format {
            Format::Kea => vec![beside(".completed"), beside(".2"), beside(".1"), self.path.clone()],
            Format::Isc => vec![self.path.clone()],
        }
    }
}

impl Part {
    /// Read on; true: there is more.
    fn read(&mut self, left: &mut usize, mut found: impl FnMut(Record)) -> io::Result<bool> {
        let mut buffer = vec![0; CHUNK];
        while *left > 0 {
            let count = match self.file.read_at(&mut buffer, self.offset) {
                Ok(0) => return Ok(false),
                Ok(count) => count,
                Err(why) if why.kind() == io::ErrorKind::Interrupted => continue,
                Err(why) => return Err(why),
            };
            let bytes = &buffer[..count];
            self.parser.feed(bytes, &mut found);
            self.offset += count as u64;
            *left = left.saturating_sub(count);
            self.mark.extend_from_slice(&bytes[count.saturating_sub(MARK)..]);
            self.mark.drain(..self.mark.len().saturating_sub(MARK));
        }
        Ok(true)
    }

    /// Whether the file was truncated, also when it has grown since.
    fn is_other_text(&self) -> bool {
        let mut found = vec![0; self.mark.len()];
        let read = self.file.read_exact_at(&mut found, self.offset - self.mark.len() as u64);
        read.is_err() || found != self.mark
    }
}

fn of(data: &Metadata) -> Identity {
    (data.dev(), data.ino())
}

/// Which file is there, if there is one.
fn identity(path: &Path) -> io::Result<Option<Identity>> {
    if_exists(std::fs::metadata(path).map(|data| of(&data)))
}

/// The file, if there is one.
fn open(path: &Path) -> io::Result<Option<File>> {
    // A named pipe would wait for its writer.
    let flags = OFlags::NONBLOCK.bits().cast_signed();
    let Some(file) = if_exists(OpenOptions::new().read(true).custom_flags(flags).open(path))? else {
        return Ok(None);
    };
    if !file.metadata()?.is_file() {
        let what = format!("{} is no regular file", path.display());
        return Err(io::Error::new(io::ErrorKind::InvalidInput, what));
    }
    Ok(Some(file))
}

fn if_exists<T>(result: io::Result<T>) -> io::Result<Option<T>> {
    match result {
        Ok(found) => Ok(Some(found)),
        Err(why) if matches!(why.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => Ok(None),
        Err(why) => Err(why),
    }
}
