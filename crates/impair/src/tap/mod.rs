//! A link between the kernels of two hosts, at tens of gigabits per second.
//!
//! Each host has one end of the link as a tap with virtio-net headers, so that its kernel hands over and
//! takes super-segments of up to 64 KiB whole, without checksums summed. Frame by frame a link like this
//! carries a gigabit per second or two. No `unsafe` is needed: `tun-rs` makes the devices, `rustix` and
//! `memmap2` do the rest.

mod frame_store;
mod link;
mod link_scheduling;
mod memory;
mod segment;

pub use link::{Link, Options};

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use tun_rs::{DeviceBuilder, Layer, SyncDevice};

/// Namespace and name of the interface at one end of a link.
#[derive(Debug, Clone)]
pub struct TapLocation {
    /// File of the network namespace, such as `/run/netns/a`; `None` for this one.
    pub namespace: Option<PathBuf>,
    /// Name of the interface.
    pub name: String,
    /// Largest IP packet, bytes.
    pub mtu: u16,
    /// Its Ethernet address; `None`: a random one.
    pub mac: Option<[u8; 6]>,
}

impl TapLocation {
    /// An end with an MTU of 1500 bytes.
    pub fn new(namespace: Option<PathBuf>, name: &str) -> Self {
        Self { namespace, name: name.into(), mtu: 1500, mac: None }
    }
}

/// Why there is no link, or no more.
#[derive(Debug, Clone, thiserror::Error)]
pub enum Error {
    /// An end could not be made.
    #[error("the interface {name}{} cannot be made: {why}", namespace_text(namespace.as_ref()))]
    Make {
        /// Its name.
        name: String,
        /// Where it was to be.
        namespace: Option<PathBuf>,
        /// The system's word for it.
        why: String,
    },
    /// The system refused something else: memory, a thread, a core.
    #[error("{what}: {why}")]
    System {
        /// What it was for.
        what: &'static str,
        /// The system's word for it.
        why: String,
    },
    /// An interface was removed, with its namespace or by itself.
    #[error("the interface {name} is gone ({why})")]
    Gone {
        /// Its name.
        name: String,
        /// The system's word for it.
        why: String,
    },
}

fn namespace_text(namespace: Option<&PathBuf>) -> String {
    namespace.map_or_else(String::new, |path| format!(" in {}", path.display()))
}

/// How many frames may wait for us in the kernel before it drops some.
const BACKLOG: u32 = 4096;

/// One end: an interface of a host, and the way to its frames. It goes when this is dropped.
pub struct Tap {
    device: SyncDevice,
    name: String,
    /// `/proc/net/dev` as it is in the namespace.
    counters: File,
}

impl Tap {
    /// Make the interface, and bring it up.
    pub fn open(place: &TapLocation) -> Result<Self, Error> {
        let error = |why: io::Error| Error::Make {
            name: place.name.clone(),
            namespace: place.namespace.clone(),
            why: why.to_string(),
        };
        // The namespace of a thread decides where it is made, so a thread goes there and ends.
        let made = std::thread::scope(|scope| scope.spawn(|| make(place)).join());
        let made = made.unwrap_or_else(|_| Err(io::Error::other("the thread for it panicked")));
        let (device, counters) = made.map_err(error)?;
        Ok(Self { device, name: place.name.clone(), counters })
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Frames that the kernel dropped as too many waited for us; a super-segment is one. `None` when it does
    /// not say.
    pub fn missed_frames(&self) -> Option<u64> {
        let mut text = [0; 1 << 16];
        let len = self.counters.read_at(&mut text, 0).ok()?;
        let text = std::str::from_utf8(text.get(..len)?).ok()?;
        let mut lines = text.lines().filter_map(|line| line.split_once(':'));
        let (_, counts) = lines.find(|(name, _)| name.trim() == self.name)?;
        // Eight counts of what the host received, then what it sent: bytes, packets, errors, drops.
        counts.split_whitespace().nth(11)?.parse().ok()
    }
}

fn make(place: &TapLocation) -> io::Result<(SyncDevice, File)> {
    if let Some(path) = &place.namespace {
        let file = File::open(path)?;
        move_into_link_name_space(file.as_fd(), Some(LinkNameSpaceType::Network))?;
    }
    // `offload` is IFF_VNET_HDR and TUNSETOFFLOAD with CSUM, TSO4, TSO6 and, where the kernel has them, USO4
    // and USO6.
    let builder = DeviceBuilder::new().name(&place.name).layer(Layer::L2).offload(true);
    let builder = builder.mtu(place.mtu).tx_queue_len(BACKLOG).enable(true);
    let builder = match place.mac {
        Some(mac) => builder.mac_addr(mac),
        None => builder,
    };
    let device = builder.build_sync()?;
    device.set_nonblocking(true)?;
    Ok((device, File::open("/proc/thread-self/net/dev")?))
}

impl AsFd for Tap {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.device.as_fd()
    }
}

impl std::fmt::Debug for Tap {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Tap({})", self.name)
    }
}
