//! Ports over memory that is shared with another process, by the memif protocol: DPDK has a driver for it, `net_memif`, whose
//! names and arguments are used here. That driver waits for each frame that the other core has just written; this asks for all of
//! a burst first. Its memory cannot go while a burst uses it, either.

use crate::batch::{BURST, Batch};
use crate::mempool::Mempool;
use dpdk_sys::rte_mbuf;
use memif::{Config, Memif, Receiver, Role, Sender};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

/// What it is called.
pub(crate) const DRIVER: &str = "net_memif";
/// Most queues each way.
pub(crate) const QUEUES: u16 = 255;
/// What its link says, Mbit/s: that of DPDK's driver.
pub(crate) const SPEED: u32 = 10_000;
/// The longest frame, bytes.
const LONGEST: usize = 1 << 16;
/// What copies go by, bytes.
const LINE: usize = 64;

/// A port of this kind.
#[derive(Debug)]
pub(crate) struct MemifPort {
    config: Config,
    /// Its own address, if one was asked for.
    pub(crate) mac: Option<[u8; 6]>,
    connection: OnceLock<Memif>,
    received: Arc<PortTraffic>,
    sent: Arc<PortTraffic>,
}

/// Frames and bytes that went through a port's queues.
#[derive(Debug, Default)]
pub(crate) struct PortTraffic {
    frames: AtomicU64,
    bytes: AtomicU64,
    /// Frames that were not fit to be read.
    malformed: AtomicU64,
    /// Bursts for which the pool had no packets.
    no_memory: AtomicU64,
}

impl PortTraffic {
    #[inline]
    fn add(&self, frames: usize, bytes: usize) {
        self.frames.fetch_add(frames as u64, Ordering::Relaxed);
        self.bytes.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    #[cold]
    fn no_memory(&self) -> usize {
        self.no_memory.fetch_add(1, Ordering::Relaxed);
        0
    }

    #[cold]
    fn malformed(&self, more: u64) {
        self.malformed.fetch_add(more, Ordering::Relaxed);
    }

    fn now(&self) -> (u64, u64) {
        (self.frames.load(Ordering::Relaxed), self.bytes.load(Ordering::Relaxed))
    }
}

impl MemifPort {
    /// The port that these arguments of `net_memif` mean.
    pub(crate) fn read(arguments: &str) -> Result<Self, String> {
        let mut config = Config::new(Role::Client, "/run/memif.sock");
        config.abstract_socket = true;
        let mut mac = None;
        for argument in arguments.split(',').filter(|argument| !argument.is_empty()) {
            let (key, value) = argument.split_once('=').unwrap_or((argument, ""));
            let bad = |what: &str| format!("{key}={value} is no {what}");
            match key {
                "role" => {
                    config.role = match value {
                        "server" | "master" => Role::Server,
                        "client" | "slave" => Role::Client,
                        _ => return Err(bad("server or client")),
                    };
                }
                "id" => config.id = value.parse().map_err(|_| bad("number"))?,
                "socket" => config.socket = PathBuf::from(value),
                "socket-abstract" => {
                    config.abstract_socket = parse_yes_no(value).ok_or_else(|| bad("yes or no"))?
                }
                "secret" => config.secret = Some(value.to_owned()),
                "rsize" => config.ring_size_log2 = value.parse().map_err(|_| bad("power of two, 1 to 14"))?,
                "bsize" => config.buffer_size = value.parse().map_err(|_| bad("number of bytes"))?,
                "mac" => mac = Some(address(value).ok_or_else(|| bad("MAC address"))?),
                "zero-copy" if parse_yes_no(value) == Some(false) => {}
                "zero-copy" => return Err("frames are copied: leave zero-copy out".into()),
                _ => return Err(format!("{key} is no argument of net_memif that netdyno knows")),
            }
        }
        let [received, sent] = Default::default();
        Ok(Self { config, mac, connection: OnceLock::new(), received, sent })
    }

    /// Bind or connect, with so many queues each way.
    pub(crate) fn start(&self, rx: u16, tx: u16) -> Result<(Vec<Receiver>, Vec<Sender>), memif::Error> {
        let config = Config { rx_queues: rx, tx_queues: tx, ..self.config.clone() };
        let (connection, receivers, senders) = Memif::open(config)?;
        // A port is started once.
        let _first = self.connection.set(connection);
        Ok((receivers, senders))
    }

    pub(crate) fn is_up(&self) -> bool {
        self.connection.get().is_some_and(Memif::is_up)
    }

    /// Rings of the connection to send by.
    pub(crate) fn tx_rings(&self) -> Option<usize> {
        self.connection.get().filter(|connection| connection.is_up()).and_then(Memif::tx_rings)
    }

    /// Frames that a queue skipped, as they were not fit to be read.
    pub(crate) fn malformed(&self) -> u64 {
        self.received.malformed.load(Ordering::Relaxed)
    }

    /// Why there is no connection, as far as is known.
    pub(crate) fn link_fault(&self) -> Option<String> {
        self.connection.get().filter(|connection| !connection.is_up()).and_then(Memif::last_error)
    }

    /// Bursts for which there were no packets.
    pub(crate) fn no_memory(&self) -> u64 {
        self.received.no_memory.load(Ordering::Relaxed)
    }

    /// Frames and bytes received, and sent.
    pub(crate) fn passed(&self) -> [(u64, u64); 2] {
        [self.received.now(), self.sent.now()]
    }

    pub(crate) fn rx(&self, receiver: Receiver, pool: &Mempool) -> Rx {
        let (passed, pool) = (Arc::clone(&self.received), pool.clone());
        Rx { receiver, malformed: 0, pool, passed, whole: vec![0; LONGEST].into() }
    }

    pub(crate) fn tx(&self, sender: Sender) -> Tx {
        Tx { sender, passed: Arc::clone(&self.sent), whole: vec![0; LONGEST].into() }
    }
}

/// What to do about it.
pub(crate) fn hint(why: &memif::Error, usual: &str) -> String {
    match why {
        memif::Error::Config { .. } | memif::Error::IdInUse { .. } => why.to_string(),
        memif::Error::InUse { .. } => {
            format!("{why}: a program listens there, or it is no socket. Name another one.")
        }
        memif::Error::System { .. } => format!("{why}. {usual}"),
    }
}

/// The system's number for what went wrong.
pub(crate) fn errno(why: &memif::Error) -> i32 {
    match why {
        memif::Error::Config { .. } => nix::libc::EINVAL,
        memif::Error::InUse { .. } | memif::Error::IdInUse { .. } => nix::libc::EADDRINUSE,
        memif::Error::System { cause, .. } => cause.raw_os_error().unwrap_or(nix::libc::EIO),
    }
}

fn parse_yes_no(word: &str) -> Option<bool> {
    match word {
        "yes" => Some(true),
        "no" => Some(false),
        _ => None,
    }
}

fn address(text: &str) -> Option<[u8; 6]> {
    let bytes: Vec<u8> =
        text.split(':').map(|part| u8::from_str_radix(part, 16)).collect::<Result<_, _>>().ok()?;
    bytes.try_into().ok()
}

/// A receive queue.
#[derive(Debug)]
pub(crate) struct Rx {
    receiver: Receiver,
    /// Those of its malformed frames that are counted.
    malformed: u64,
    pool: Mempool,
    passed: Arc<PortTraffic>,
    /// A frame that one packet of the pool has no room for.
    whole: Box<[u8]>,
}

impl Rx {
    /// Take what has arrived, at most `most` and as much as `batch` and the pool have room for.
    #[inline]
    pub(crate) fn receive(&mut self, batch: &mut Batch, most: usize) -> usize {
        let malformed = self.receiver.malformed();
        if malformed != self.malformed {
            self.passed.malformed(malformed - self.malformed);
            self.malformed = malformed;
        }
        let frames = self.receiver.burst(most.min(batch.room()));
        if frames.is_empty() {
            return 0;
        }
        let room = self.pool.room();
        let first = frames.length(0);
        let (mut short, mut bytes, mut alike) = (0, 0, true);
        while short < frames.len() && frames.length(short) <= room {
            let length = frames.length(short);
            (bytes, alike) = (bytes + length, alike && length == first);
            short += 1;
        }
        if short == 0 {
            let parts = self.pool.segments(first);
            let Some(whole) = self.whole.get_mut(..first).filter(|_| parts <= BURST) else {
                frames.release(1);
                self.passed.malformed(1);
                return 0;
            };
            frames.copy_to(0, whole);
            let Some(packet) = self.pool.packet(whole) else { return self.passed.no_memory() };
            frames.release(1);
            self.passed.add(1, first);
            // There is room for one at least.
            let _full = batch.push(packet);
            return 1;
        }
        let wide = room.is_multiple_of(LINE);
        let copy = |at: usize, to: &mut [u8]| {
            if wide {
                // SAFETY: the packet has room for `room` bytes, of which the length is at most as many; lines end where it does.
                unsafe { frames.copy_wide(at, to.as_mut_ptr()) };
            } else {
                frames.copy_to(at, to);
            }
        };
        // Most bursts are of one length: their packets come with it.
        let length = if alike { first } else { 0 };
        let Some(mut fresh) = self.pool.fresh_frames(batch, batch.len() + short, length) else {
            return self.passed.no_memory();
        };
        if alike {
            fresh.data_mut().enumerate().for_each(|(at, to)| copy(at, to));
        } else {
            fresh.with_lengths(|at| frames.length(at)).enumerate().for_each(|(at, to)| copy(at, to));
        }
        frames.release(short);
        self.passed.add(short, bytes);
        short
    }
}

/// A transmit queue.
#[derive(Debug)]
pub(crate) struct Tx {
    sender: Sender,
    passed: Arc<PortTraffic>,
    /// A frame of several segments, put together.
    whole: Box<[u8]>,
}

impl Tx {
    /// Send as many packets as there is room for, in order; the rest stay in `batch`. A frame that is longer than any may be, or
    /// than the whole ring, goes nowhere, and is counted by `unfit`.
    #[inline]
    pub(crate) fn send(&mut self, batch: &mut Batch, unfit: &AtomicU64) -> usize {
        let mut space = self.sender.begin(batch.len());
        if space.room() == 0 {
            return 0;
        }
        let (mut taken, mut bytes, mut lost) = (0, 0, 0);
        for mbuf in batch.frames() {
            let length = mbuf.len();
            let put = if mbuf.is_whole() {
                let data = mbuf.data();
                if mbuf.capacity() >= data.len().next_multiple_of(LINE) {
                    // SAFETY: so many bytes of its buffer can be read.
                    unsafe { space.put_wide(data.as_ptr(), data.len()) }
                } else {
                    space.put(data)
                }
            } else {
                match self.whole.get_mut(..length) {
                    Some(whole) => mbuf.copy_to(whole) && space.put(whole),
                    None => {
                        lost += 1;
                        taken += 1;
                        continue;
                    }
                }
            };
            if !put {
                if !space.is_all_free() {
                    break;
                }
                lost += 1;
                taken += 1;
                continue;
            }
            taken += 1;
            bytes += length;
        }
        let sent = space.commit();
        self.passed.add(sent, bytes);
        if lost > 0 {
            unfit.fetch_add(lost, Ordering::Relaxed);
        }
        let free = |from: *mut *mut rte_mbuf, _: usize| {
            // SAFETY: the first packets of the batch, whose bytes have been copied; nobody uses them again.
            unsafe { dpdk_sys::nd_free_burst(from, taken as u32) };
            taken
        };
        // SAFETY: `free` takes over the first `taken`, which are at most as many as there are.
        unsafe { batch.take(free) };
        taken
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_are_those_of_dpdk_s_driver() {
        let port = MemifPort::read(
            "role=server,id=3,socket-abstract=no,socket=/run/x,secret=abc,rsize=11,bsize=4096",
        )
        .unwrap();
        let config = port.config;
        assert_eq!((config.role, config.id, config.abstract_socket), (Role::Server, 3, false));
        assert_eq!((config.socket.to_str(), config.secret.as_deref()), (Some("/run/x"), Some("abc")));
        assert_eq!((config.ring_size_log2, config.buffer_size), (11, 4096));
        let port = MemifPort::read("mac=02:00:00:00:00:0a,zero-copy=no").unwrap();
        assert_eq!(
            (port.mac, port.config.role, port.config.abstract_socket),
            (Some([2, 0, 0, 0, 0, 10]), Role::Client, true)
        );
        for bad in
            ["role=both", "id=x", "zero-copy=yes", "mac=1:2", "socket-abstract=1", "queues=3", "rsize=300"]
        {
            assert!(MemifPort::read(bad).is_err(), "{bad}");
        }
    }
}
