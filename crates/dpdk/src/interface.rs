//! What drivers that work over an interface of the kernel's change of it, and leave so when they close: its MTU and its
//! address. Whether it is promiscuous is asked for by the port, not by its driver.

use nix::libc::{
    AF_INET, AF_PACKET, IF_NAMESIZE, IFF_PROMISC, IFF_RUNNING, PACKET_ADD_MEMBERSHIP, PACKET_MR_PROMISC,
    SIOCGIFFLAGS, SIOCGIFHWADDR, SIOCGIFMTU, SIOCSIFFLAGS, SIOCSIFHWADDR, SIOCSIFMTU, SOCK_CLOEXEC,
    SOCK_DGRAM, SOCK_RAW, SOL_PACKET, c_int, if_indextoname, ifreq, ioctl, packet_mreq, setsockopt, socket,
};
use std::ffi::c_ulong;
use std::io;
use std::mem::{size_of, zeroed};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::OnceLock;

/// An interface as it was, and what the port that was opened over it made of it.
#[derive(Debug)]
pub(crate) struct Interface {
    /// Its number, which it keeps when it is renamed.
    index: u32,
    was: State,
    /// Known when the port has started.
    made: OnceLock<State>,
    /// Held, it keeps the interface promiscuous: the kernel counts who wants that, and forgets who is gone.
    promiscuous: OnceLock<OwnedFd>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct State {
    promiscuous: bool,
    mtu: i32,
    mac: [u8; 6],
}

impl Interface {
    /// As it is before a port is opened over it; `None`: there is none of this number.
    pub(crate) fn now(index: u32) -> Option<Self> {
        let was = InterfaceCalls::new(index).ok()?.state().ok()?;
        Some(Self { index, was, made: OnceLock::new(), promiscuous: OnceLock::new() })
    }

    /// The largest IP packet that the interface of this number takes now.
    pub(crate) fn mtu(index: u32) -> Option<u16> {
        let state = InterfaceCalls::new(index).ok()?.state().ok()?;
        Some(u16::try_from(state.mtu).unwrap_or(u16::MAX))
    }

    /// The port has started: what its driver made of it is known from here on. A driver that starts sets the flag of
    /// promiscuous mode, which is the user's, to what it was told itself: that is put back at once.
    pub(crate) fn started(&self, promiscuous: bool) -> io::Result<()> {
        let mut asked = InterfaceCalls::new(self.index)?;
        let made = asked.state()?;
        let _once = self.made.set(made);
        if made.promiscuous != self.was.promiscuous {
            asked.set_promiscuous(self.was.promiscuous)?;
        }
        if promiscuous {
            let _once = self.promiscuous.set(held_promiscuous(self.index)?);
        }
        Ok(())
    }

    /// Make it again what it was, but for what somebody else has changed since the port started. Where it is gone there
    /// is nothing to do.
    pub(crate) fn put_back(&self) {
        let Ok(mut asked) = InterfaceCalls::new(self.index) else { return };
        let Ok(now) = asked.state() else { return };
        let (was, made) = (self.was, *self.made.get().unwrap_or(&now));
        if self.made.get().is_none() && now.promiscuous != was.promiscuous {
            self.warn_unrestored("promiscuous mode", asked.set_promiscuous(was.promiscuous));
        }
        if made.mtu != was.mtu && now.mtu == made.mtu {
            self.warn_unrestored("MTU", asked.set_mtu(was.mtu));
        }
        if made.mac != was.mac && now.mac == made.mac {
            self.warn_unrestored("MAC address", asked.set_mac(was.mac));
        }
    }

    fn warn_unrestored(&self, what: &str, done: io::Result<()>) {
        if let Err(why) = done {
            tracing::warn!("interface {}: its {what} is not what it was before: {why}", self.index);
        }
    }
}

/// A socket that keeps an interface promiscuous as long as it is open. It receives nothing: it is of no protocol.
fn held_promiscuous(index: u32) -> io::Result<OwnedFd> {
    let held = opened(AF_PACKET, SOCK_RAW)?;
    // SAFETY: a plain C structure, for which all zeroes are a value.
    let mut wanted: packet_mreq = unsafe { zeroed() };
    wanted.mr_ifindex = index as c_int;
    wanted.mr_type = PACKET_MR_PROMISC as _;
    let size = size_of::<packet_mreq>() as _;
    // SAFETY: the option takes this structure, of this size, and keeps no pointer to it.
    match unsafe {
        setsockopt(held.as_raw_fd(), SOL_PACKET, PACKET_ADD_MEMBERSHIP, (&raw const wanted).cast(), size)
    } {
        ..0 => Err(io::Error::last_os_error()),
        _ => Ok(held),
    }
}

fn opened(family: c_int, kind: c_int) -> io::Result<OwnedFd> {
    // SAFETY: no memory is passed.
    match unsafe { socket(family, kind | SOCK_CLOEXEC, 0) } {
        ..0 => Err(io::Error::last_os_error()),
        // SAFETY: it was made above, and is owned by nobody else.
        descriptor => Ok(unsafe { OwnedFd::from_raw_fd(descriptor) }),
    }
}

/// A socket to ask about an interface, and the request with its name.
pub(crate) struct InterfaceCalls {
    socket: OwnedFd,
    request: ifreq,
}

impl InterfaceCalls {
    pub(crate) fn new(index: u32) -> io::Result<Self> {
        let mut name = [0; IF_NAMESIZE];
        // SAFETY: the name has the room that the call asks for.
        if unsafe { if_indextoname(index, name.as_mut_ptr()) }.is_null() {
            return Err(io::Error::last_os_error());
        }
        let socket = opened(AF_INET, SOCK_DGRAM)?;
        // SAFETY: a plain C structure, for which all zeroes are a value.
        let mut request: ifreq = unsafe { zeroed() };
        request.ifr_name = name;
        Ok(Self { socket, request })
    }

    fn call(&mut self, what: c_ulong) -> io::Result<()> {
        // SAFETY: each of these calls takes an `ifreq`, which outlives it.
        match unsafe { ioctl(self.socket.as_raw_fd(), what as _, &raw mut self.request) } {
            ..0 => Err(io::Error::last_os_error()),
            _ => Ok(()),
        }
    }

    fn state(&self) -> io::Result<State> {
        let mut own = Self { socket: self.socket.try_clone()?, request: self.request };
        let promiscuous = own.flags()? & IFF_PROMISC as i16 != 0;
        Ok(State { promiscuous, mtu: own.mtu()?, mac: own.mac()? })
    }

    pub(crate) fn mtu(&mut self) -> io::Result<i32> {
        self.call(SIOCGIFMTU)?;
        // SAFETY: the call before has filled this part of the union.
        Ok(unsafe { self.request.ifr_ifru.ifru_mtu })
    }

    pub(crate) fn mac(&mut self) -> io::Result<[u8; 6]> {
        self.call(SIOCGIFHWADDR)?;
        // SAFETY: as before.
        let address = unsafe { self.request.ifr_ifru.ifru_hwaddr.sa_data };
        Ok(std::array::from_fn(|at| address[at] as u8))
    }

    /// Whether it is up, and so is its link.
    pub(crate) fn is_running(&mut self) -> io::Result<bool> {
        Ok(self.flags()? & IFF_RUNNING as i16 != 0)
    }

    fn flags(&mut self) -> io::Result<i16> {
        self.call(SIOCGIFFLAGS)?;
        // SAFETY: the call before has filled this part of the union.
        Ok(unsafe { self.request.ifr_ifru.ifru_flags })
    }

    fn set_promiscuous(&mut self, on: bool) -> io::Result<()> {
        let flags = self.flags()?;
        let bit = IFF_PROMISC as i16;
        self.request.ifr_ifru.ifru_flags = if on { flags | bit } else { flags & !bit };
        self.call(SIOCSIFFLAGS)
    }

    pub(crate) fn set_mtu(&mut self, mtu: i32) -> io::Result<()> {
        self.request.ifr_ifru.ifru_mtu = mtu;
        self.call(SIOCSIFMTU)
    }

    pub(crate) fn set_mac(&mut self, mac: [u8; 6]) -> io::Result<()> {
        // The kind of address is asked for with it.
        self.call(SIOCGIFHWADDR)?;
        // SAFETY: the call before has filled this part of the union.
        let address = unsafe { &mut self.request.ifr_ifru.ifru_hwaddr.sa_data };
        for (to, byte) in address.iter_mut().zip(mac) {
            *to = byte as _;
        }
        self.call(SIOCSIFHWADDR)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interface_that_is_not_there_is_nothing_to_put_back() {
        assert!(Interface::now(u32::MAX).is_none());
        let was = State { promiscuous: false, mtu: 1500, mac: [0; 6] };
        let gone = Interface { index: u32::MAX, was, made: OnceLock::new(), promiscuous: OnceLock::new() };
        gone.put_back();
        assert!(gone.started(true).is_err());
    }
}
