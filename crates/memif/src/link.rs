//! A connection's shared memory, and how the data path learns of it.

use crate::Role;
use crate::layout::Layout;
use crate::protocol::AddRing;
use crate::region::Region;
use crate::ring::{self, MASK_INT, Ring};
use nix::sys::eventfd::EventFd;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// A ring, and what wakes who receives from it.
#[derive(Debug)]
pub(crate) struct LinkRing {
    pub ring: Ring,
    pub interrupt: OwnedFd,
}

/// What both ends share while they are connected. Unmapped when nobody uses it any more.
#[derive(Debug)]
pub(crate) struct Link {
    pub role: Role,
    pub regions: Vec<Region>,
    /// Rings to the client, and to the server.
    rings: [Vec<LinkRing>; 2],
    /// What is in the region, if we made it.
    pub layout: Option<Layout>,
    /// The other end broke the rules.
    bad: AtomicBool,
    /// Wakes the thread that looks after the connection.
    control: Arc<EventFd>,
}

// SAFETY: the addresses of the rings are in regions that this owns; rings are used by atomic instructions only.
unsafe impl Send for Link {}
// SAFETY: as above.
unsafe impl Sync for Link {}

impl Link {
    /// A server's, of which the rings come later.
    pub(crate) fn server(control: Arc<EventFd>) -> Self {
        Self {
            role: Role::Server,
            regions: Vec::new(),
            rings: [Vec::new(), Vec::new()],
            layout: None,
            bad: AtomicBool::new(false),
            control,
        }
    }

    /// A client's, in a region of its own; and the file of that.
    pub(crate) fn client(
        layout: Layout,
        control: Arc<EventFd>,
        interrupt: impl Fn() -> io::Result<OwnedFd>,
    ) -> io::Result<(Self, OwnedFd)> {
        let (region, file) = Region::create(layout.size())?;
        let ring = |to_server: bool, index: u16| {
            // SAFETY: the region is as large as the layout asks for, rings begin at lines, and the region outlives them.
            let ring = unsafe {
                let base = region.base().add(layout.ring(to_server, index) as usize);
                Ring::new(base, layout.ring_size_log2)
            };
            let first = layout.buffers_of(to_server, index);
            for slot in 0..ring.size() {
                ring.set_descriptor(slot, 0, 0, layout.buffer_size);
                ring.set_offset(slot, (first + u64::from(slot) * layout.stride()) as u32);
            }
            ring.begin(if to_server { 0 } else { MASK_INT });
            Ok(LinkRing { ring, interrupt: interrupt()? })
        };
        let to_client = (0..layout.to_client).map(|index| ring(false, index)).collect::<io::Result<_>>()?;
        let to_server = (0..layout.to_server).map(|index| ring(true, index)).collect::<io::Result<_>>()?;
        let link = Self {
            role: Role::Client,
            regions: vec![region],
            rings: [to_client, to_server],
            layout: Some(layout),
            bad: AtomicBool::new(false),
            control,
        };
        Ok((link, file))
    }

    /// Take a ring that the client made.
    pub(crate) fn add(&mut self, told: AddRing, interrupt: OwnedFd) -> Result<(), &'static str> {
        let region = self.regions.get(usize::from(told.region)).ok_or("ring in no region")?;
        let bytes = ring::bytes(told.ring_size_log2) as u32;
        let base = region.at(told.offset, bytes).ok_or("ring is not within its region")?;
        if !told.offset.is_multiple_of(64) {
            return Err("ring does not begin at a line");
        }
        // SAFETY: within the region, aligned as its pages are, and the region outlives it: both go with the link.
        let ring = unsafe { Ring::new(base, told.ring_size_log2) };
        if !ring.is_ring() {
            return Err("ring has a wrong cookie");
        }
        self.rings[usize::from(told.to_server)].push(LinkRing { ring, interrupt });
        Ok(())
    }

    /// Say that we poll what we receive from.
    pub(crate) fn mask_interrupts(&self) {
        self.rings[1].iter().for_each(|ring| ring.ring.set_flags(MASK_INT));
    }

    pub(crate) fn ring(&self, to_server: bool, index: u16) -> Option<&LinkRing> {
        self.rings[usize::from(to_server)].get(usize::from(index))
    }

    pub(crate) fn is_bad(&self) -> bool {
        self.bad.load(Ordering::Acquire)
    }

    /// Have the connection ended.
    #[cold]
    pub(crate) fn set_bad(&self) {
        if !self.bad.swap(true, Ordering::AcqRel) {
            let _ = self.control.write(1);
        }
    }
}

/// What an interface's threads know of its connection.
#[derive(Debug, Default)]
pub(crate) struct Shared {
    /// Changes with the link.
    generation: AtomicU32,
    link: Mutex<Option<Arc<Link>>>,
    up: AtomicBool,
    losses: AtomicU32,
    last_error: Mutex<Option<String>>,
}

impl Shared {
    pub(crate) fn set(&self, link: Option<Arc<Link>>) {
        let up = link.is_some();
        let mut held = self.link.lock().unwrap_or_else(PoisonError::into_inner);
        *held = link;
        self.generation.fetch_add(1, Ordering::Release);
        self.up.store(up, Ordering::Release);
    }

    /// The other end has ended a connection that was up.
    pub(crate) fn disconnected(&self) {
        self.set(None);
        self.losses.fetch_add(1, Ordering::Release);
    }

    pub(crate) fn is_up(&self) -> bool {
        self.up.load(Ordering::Acquire)
    }

    /// Rings to the other end, while there is a connection.
    pub(crate) fn tx_rings(&self) -> Option<usize> {
        let held = self.link.lock().unwrap_or_else(PoisonError::into_inner);
        held.as_ref().map(|link| link.rings[usize::from(matches!(link.role, Role::Client))].len())
    }

    pub(crate) fn losses(&self) -> u32 {
        self.losses.load(Ordering::Acquire)
    }

    pub(crate) fn fail(&self, why: impl Into<String>) {
        *self.last_error.lock().unwrap_or_else(PoisonError::into_inner) = Some(why.into());
    }

    pub(crate) fn last_error(&self) -> Option<String> {
        self.last_error.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// A thread's own view of the connection.
#[derive(Debug)]
pub(crate) struct View {
    shared: Arc<Shared>,
    generation: u32,
    link: Option<Arc<Link>>,
}

impl View {
    pub(crate) fn new(shared: Arc<Shared>) -> Self {
        Self { shared, generation: 0, link: None }
    }

    #[inline]
    pub(crate) fn is_old(&self) -> bool {
        self.shared.generation.load(Ordering::Acquire) != self.generation
    }

    /// The connection as it is now.
    #[cold]
    pub(crate) fn renew(&mut self) -> Option<&Link> {
        let held = self.shared.link.lock().unwrap_or_else(PoisonError::into_inner);
        self.generation = self.shared.generation.load(Ordering::Acquire);
        self.link.clone_from(&held);
        drop(held);
        self.link()
    }

    pub(crate) fn link(&self) -> Option<&Link> {
        self.link.as_deref()
    }
}
