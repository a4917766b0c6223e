//! A cable inside the process: two Ethernet ports joined by two rings.

use crate::eal::Eal;
use crate::error::{self, Result};
use crate::ring::Ring;
use dpdk_sys::rte_ring;
use std::collections::BTreeMap;
use std::ffi::CString;
use std::ptr::NonNull;
use std::sync::{Mutex, PoisonError};

/// Packets that each direction holds; more are refused at the sender, as by a full transmit queue.
const CAPACITY: u32 = 2047;

/// The cables that have at least one end open, by name.
static CABLES: Mutex<BTreeMap<String, Cable>> = Mutex::new(BTreeMap::new());

struct Cable {
    /// From end 0 to end 1, and back.
    rings: [Ring; 2],
    open: [bool; 2],
}

/// One open end of a cable.
#[derive(Debug)]
pub(crate) struct CableEnd {
    cable: String,
    side: usize,
    /// DPDK's name of the port.
    pub(crate) name: String,
    /// To receive from and to send to; the cable keeps them.
    pub(crate) rings: [NonNull<rte_ring>; 2],
}

// SAFETY: as for `Ring`.
unsafe impl Send for CableEnd {}
// SAFETY: as for `Ring`.
unsafe impl Sync for CableEnd {}

/// Open the free end of the cable called `name`, which is made if it does not exist.
pub(crate) fn open(eal: &'static Eal, name: &str) -> Result<CableEnd> {
    let mut cables = CABLES.lock().unwrap_or_else(PoisonError::into_inner);
    if !cables.contains_key(name) {
        let rings = [Ring::create(eal, CAPACITY)?, Ring::create(eal, CAPACITY)?];
        cables.insert(name.into(), Cable { rings, open: [false; 2] });
    }
    let taken = || error::port(&format!("pair:{name}"), "opening", -16, "Both ends of this pair are in use.");
    let cable = cables.get_mut(name).ok_or_else(taken)?;
    let side = cable.open.iter().position(|open| !open).ok_or_else(taken)?;
    let short = format!("{name}_{side}");
    let c_name = CString::new(short.as_str()).map_err(|_| taken())?;
    let rings = [&cable.rings[1 - side], &cable.rings[side]].map(Ring::raw);
    let [mut rx, mut tx] = rings.map(NonNull::as_ptr);
    let made = {
        let _control = eal.control();
        // SAFETY: the EAL runs; both arrays have one ring, for one queue, which the cable keeps until both ends are closed.
        unsafe { dpdk_sys::rte_eth_from_rings(c_name.as_ptr(), &raw mut rx, 1, &raw mut tx, 1, 0) }
    };
    if made < 0 {
        let why = error::port(
            &format!("pair:{name}"),
            "opening",
            error::errno(),
            "Is DPDK's net_ring driver installed?",
        );
        if cable.open == [false; 2] {
            cables.remove(name);
        }
        return Err(why);
    }
    cable.open[side] = true;
    Ok(CableEnd { cable: name.into(), side, name: format!("net_ring_{short}"), rings })
}

impl Drop for CableEnd {
    /// The port is closed by now. What is under way to it is lost; the last end takes the cable along.
    fn drop(&mut self) {
        let mut cables = CABLES.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(cable) = cables.get_mut(&self.cable) else { return };
        cable.open[self.side] = false;
        cable.rings[1 - self.side].drain();
        if cable.open == [false; 2] {
            cables.remove(&self.cable);
        }
    }
}
