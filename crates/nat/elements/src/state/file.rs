//! The file: a header, records, and at the end how many there are and a checksum of all of it.

use crate::own_file;
use crc32fast::Hasher;
use nat_core::state::{LONGEST, Record};
use std::fs::{File, OpenOptions};
use std::io::{self, BufWriter, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

const MAGIC: [u8; 8] = *b"NDNATST\0";
/// What records look like: another number is another layout. The one before had no log in its header.
const VERSION: u32 = 2;
const BEFORE: u32 = 1;
const HEADER: usize = 8 + 4 + 4 + 8 + 32 + 4;
const HEADER_BEFORE: usize = HEADER - 4;
/// Where a record's kind would be: there are no more.
const END: u8 = 0;
const TRAILER: usize = 1 + 4 * 8 + 4;
/// Bytes that are written or read at once.
const PIECE: usize = 1 << 18;
/// Bytes of a file at most: sessions, subscribers, and groups of 64 ports of three protocols that rest since two periods, as many as
/// the largest limits and the largest pool have.
pub const MOST: u64 = LONGEST as u64 * ((1 << 30) + (1 << 28) + (1 << 16) * 1024 * 3 * 2);

/// What is known of the NAT that wrote a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    /// How many workers it had.
    pub workers: u32,
    /// When it was written, ms since 1970-01-01 UTC.
    pub written_ms: u64,
    /// By which its workers divided subscribers.
    pub seed: [u8; 32],
    /// Of its log, as [`LogOptions::knowledge`](crate::log::LogOptions::knowledge) says it; `None`: it is not known.
    pub log: Option<u32>,
}

/// How many records there are.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Totals {
    /// Subscribers.
    pub subscribers: u64,
    /// Groups of ports that rest.
    pub ports: u64,
    /// Sessions.
    pub sessions: u64,
    /// What was asked for.
    pub asked: u64,
}

impl Totals {
    fn count(&mut self, record: &Record) {
        match record {
            Record::Subscriber(_) => self.subscribers += 1,
            Record::Ports(_) => self.ports += 1,
            Record::Session(_) => self.sessions += 1,
            Record::Mapping(_) => self.asked += 1,
        }
    }

    fn bytes(&self) -> [u8; 32] {
        let all = [self.subscribers, self.ports, self.sessions, self.asked];
        let mut bytes = [0; 32];
        for (to, count) in bytes.chunks_exact_mut(8).zip(all) {
            to.copy_from_slice(&count.to_le_bytes());
        }
        bytes
    }
}

/// Why a file is not used.
#[derive(Debug, thiserror::Error)]
pub enum StateError {
    /// There is none: a first start.
    #[error("there is no file")]
    None,
    /// It cannot be read.
    #[error("it cannot be read: {0}")]
    Io(#[from] io::Error),
    /// It is no file, or anybody may write it.
    #[error("{0}")]
    Untrusted(&'static str),
    /// It is something else.
    #[error("it is no state of a NAT")]
    Foreign,
    /// It was written by another version of netdyno.
    #[error("its layout is version {0}, and this netdyno reads version {VERSION}")]
    Version(u32),
    /// It ends early, or its checksum is wrong.
    #[error("it is cut short or damaged")]
    Damaged,
}

impl StateError {
    /// Whether the file may be put aside, and another take its place: it is a NAT's, whatever became of it.
    pub fn is_own(&self) -> bool {
        matches!(self, Self::None | Self::Version(_) | Self::Damaged)
    }
}

/// Whether nothing stands where a state is put aside, beside `path`, but an older one.
pub fn may_put_aside(path: &Path) -> io::Result<()> {
    let mut old = path.as_os_str().to_owned();
    old.push(".old");
    own_file::may_replace(Path::new(&old), &MAGIC)
}

/// Writes a file beside the one whose place it takes when it is complete.
#[derive(Debug)]
pub struct Writer {
    to: BufWriter<File>,
    new: PathBuf,
    path: PathBuf,
    sum: Hasher,
    totals: Totals,
    bytes: Vec<u8>,
}

impl Writer {
    /// Begin one that will be at `path`. Nobody else may read it: it says who talks to whom.
    pub fn begin(path: &Path, header: &Header) -> io::Result<Self> {
        let mut name = path.as_os_str().to_owned();
        name.push(".new");
        let new = PathBuf::from(name);
        own_file::remove(&new, &MAGIC)?;
        let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&new)?;
        let to = BufWriter::with_capacity(PIECE, file);
        let (sum, totals) = (Hasher::new(), Totals::default());
        let mut writer =
            Self { to, new, path: path.to_owned(), sum, totals, bytes: Vec::with_capacity(LONGEST) };
        let mut bytes = Vec::with_capacity(HEADER);
        bytes.extend(MAGIC);
        bytes.extend(VERSION.to_le_bytes());
        bytes.extend(header.workers.to_le_bytes());
        bytes.extend(header.written_ms.to_le_bytes());
        bytes.extend(header.seed);
        bytes.extend(header.log.unwrap_or_default().to_le_bytes());
        writer.put(&bytes)?;
        Ok(writer)
    }

    fn put(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.sum.update(bytes);
        self.to.write_all(bytes)
    }

    /// Add a record.
    pub fn record(&mut self, record: &Record) -> io::Result<()> {
        let mut bytes = std::mem::take(&mut self.bytes);
        bytes.clear();
        record.encode(&mut bytes);
        self.totals.count(record);
        let put = self.put(&bytes);
        self.bytes = bytes;
        put
    }

    /// It is complete: from now on it is the file, whatever happens.
    pub fn finish(&mut self) -> io::Result<Totals> {
        let totals = self.totals;
        self.put(&[END])?;
        self.put(&totals.bytes())?;
        let sum = self.sum.clone().finalize();
        self.to.write_all(&sum.to_le_bytes())?;
        self.to.flush()?;
        self.to.get_ref().sync_all()?;
        own_file::may_replace(&self.path, &MAGIC)?;
        std::fs::rename(&self.new, &self.path)?;
        sync_folder(&self.path);
        Ok(totals)
    }
}

/// Let the name of a file be what it is after a crash of the machine, too.
pub fn sync_folder(path: &Path) {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    if let Err(why) = File::open(folder.unwrap_or(Path::new("."))).and_then(|folder| folder.sync_all()) {
        tracing::warn!("the folder of {} cannot be synchronised: {why}", path.display());
    }
}

impl Drop for Writer {
    /// What was not finished is of no use; what was is there no more under this name.
    fn drop(&mut self) {
        let _not_there = std::fs::remove_file(&self.new);
    }
}

/// Reads a file, record by record.
#[derive(Debug)]
pub struct Reader {
    from: File,
    piece: Vec<u8>,
    at: usize,
    sum: Hasher,
    totals: Totals,
    /// What is left to be read of a file that is no longer than it may be.
    left: u64,
}

impl Reader {
    /// Open a file.
    pub fn open(path: &Path) -> Result<(Self, Header), StateError> {
        let from = own_file::open(path).map_err(|why| match why.kind() {
            io::ErrorKind::NotFound => StateError::None,
            io::ErrorKind::Other => StateError::Untrusted("it is no regular file, or a symbolic link"),
            _ => StateError::Io(why),
        })?;
        let about = from.metadata()?;
        if about.mode() & 0o022 != 0 {
            return Err(StateError::Untrusted("others may write it"));
        }
        // Its owner may write it, whatever its mode says.
        if about.uid() != 0 && about.uid() != rustix::process::geteuid().as_raw() {
            return Err(StateError::Untrusted("it is another user's"));
        }
        if about.len() > MOST {
            return Err(StateError::Untrusted("it is longer than the state of a NAT can be"));
        }
        let (sum, totals) = (Hasher::new(), Totals::default());
        let mut reader = Self { from, piece: Vec::new(), at: 0, sum, totals, left: about.len() };
        reader.fill(HEADER)?;
        let header = reader.rest().get(..HEADER).ok_or(StateError::Foreign)?.to_vec();
        let (magic, rest) = header.split_at(8);
        if magic != MAGIC {
            return Err(StateError::Foreign);
        }
        let word = |at: usize| {
            rest.get(at..).and_then(|rest| rest.first_chunk()).copied().map_or(0, u32::from_le_bytes)
        };
        let (len, log) = match word(0) {
            VERSION => (HEADER, Some(word(HEADER_BEFORE - 8))),
            BEFORE => (HEADER_BEFORE, None),
            other => return Err(StateError::Version(other)),
        };
        let written_ms = u64::from(word(8)) | u64::from(word(12)) << 32;
        let seed = rest.get(16..).and_then(|rest| rest.first_chunk()).copied().unwrap_or_default();
        reader.pass(len);
        Ok((reader, Header { workers: word(4), written_ms, seed, log }))
    }

    fn rest(&self) -> &[u8] {
        self.piece.get(self.at..).unwrap_or(&[])
    }

    /// What is next was understood.
    fn pass(&mut self, len: usize) {
        let end = (self.at + len).min(self.piece.len());
        self.sum.update(self.piece.get(self.at..end).unwrap_or(&[]));
        self.at = end;
    }

    /// Have so many bytes at hand, or all that there are.
    fn fill(&mut self, len: usize) -> io::Result<()> {
        if self.rest().len() >= len {
            return Ok(());
        }
        self.piece.drain(..self.at);
        self.at = 0;
        let want = (PIECE as u64).min(self.left);
        let got = (&self.from).take(want).read_to_end(&mut self.piece)?;
        // What grows meanwhile is not read.
        self.left = if got == 0 { 0 } else { self.left - got as u64 };
        Ok(())
    }

    /// The next record. `None`: that was all, and it is what was written.
    pub fn next(&mut self) -> Result<Option<Record>, StateError> {
        self.fill(LONGEST.max(TRAILER))?;
        if self.rest().first() != Some(&END) {
            let (record, len) = Record::decode(self.rest()).map_err(|_| StateError::Damaged)?;
            self.totals.count(&record);
            self.pass(len);
            return Ok(Some(record));
        }
        let trailer: [u8; TRAILER] = self.rest().try_into().map_err(|_| StateError::Damaged)?;
        let (told, sum) = trailer.split_at(TRAILER - 4);
        self.sum.update(told);
        let right = told.get(1..) == Some(&self.totals.bytes()[..])
            && sum == self.sum.clone().finalize().to_le_bytes()
            && self.left == 0;
        if right { Ok(None) } else { Err(StateError::Damaged) }
    }

    /// Read to the end: whether it is as it was written.
    pub fn check(mut self) -> Result<Totals, StateError> {
        while self.next()?.is_some() {}
        Ok(self.totals)
    }
}
