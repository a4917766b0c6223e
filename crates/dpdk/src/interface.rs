//! What drivers that work over an interface of the kernel's change of it, and leave so when they close: whether it is
//! promiscuous, its MTU and its address.

use nix::libc::{
    AF_INET, IF_NAMESIZE, IFF_PROMISC, SIOCGIFFLAGS, SIOCGIFHWADDR, SIOCGIFMTU, SIOCSIFFLAGS, SIOCSIFHWADDR,
    SIOCSIFMTU, SOCK_CLOEXEC, SOCK_DGRAM, if_indextoname, ifreq, ioctl, socket,
};
use std::ffi::c_ulong;
use std::io;
use std::mem::zeroed;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

/// An interface as it was.
#[derive(Debug)]
pub(crate) struct Interface {
    /// Its number, which it keeps when it is renamed.
    index: u32,
    was: State,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct State {
    promiscuous: bool,
    mtu: i32,
    mac: [u8; 6],
}

impl Interface {
    /// As it is now; `None`: there is none of this number.
    pub(crate) fn now(index: u32) -> Option<Self> {
        let asked = Asked::new(index).ok()?;
        Some(Self { index, was: asked.state().ok()? })
    }

    /// Make it again what it was. Where it is gone there is nothing to do.
    pub(crate) fn put_back(&self) {
        let Ok(mut asked) = Asked::new(self.index) else { return };
        let Ok(now) = asked.state() else { return };
        let mut back = |what: &str, differs: bool, put: &dyn Fn(&mut Asked) -> io::Result<()>| {
            if let Some(why) = differs.then(|| put(&mut asked).err()).flatten() {
                tracing::warn!("interface {}: its {what} is not what it was before: {why}", self.index);
            }
        };
        back("promiscuous mode", now.promiscuous != self.was.promiscuous, &|asked| {
            asked.set_promiscuous(self.was.promiscuous)
        });
        back("MTU", now.mtu != self.was.mtu, &|asked| asked.set_mtu(self.was.mtu));
        back("MAC address", now.mac != self.was.mac, &|asked| asked.set_mac(self.was.mac));
    }
}

/// A socket to ask about an interface, and the request with its name.
struct Asked {
    socket: OwnedFd,
    request: ifreq,
}

impl Asked {
    fn new(index: u32) -> io::Result<Self> {
        let mut name = [0; IF_NAMESIZE];
        // SAFETY: the name has the room that the call asks for.
        if unsafe { if_indextoname(index, name.as_mut_ptr()) }.is_null() {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: no memory is passed.
        let socket = match unsafe { socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0) } {
            ..0 => return Err(io::Error::last_os_error()),
            // SAFETY: it was made above, and is owned by nobody else.
            descriptor => unsafe { OwnedFd::from_raw_fd(descriptor) },
        };
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
        own.call(SIOCGIFMTU)?;
        // SAFETY: the call before has filled this part of the union.
        let mtu = unsafe { own.request.ifr_ifru.ifru_mtu };
        own.call(SIOCGIFHWADDR)?;
        // SAFETY: as before.
        let address = unsafe { own.request.ifr_ifru.ifru_hwaddr.sa_data };
        let mac = std::array::from_fn(|at| address[at] as u8);
        Ok(State { promiscuous, mtu, mac })
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

    fn set_mtu(&mut self, mtu: i32) -> io::Result<()> {
        self.request.ifr_ifru.ifru_mtu = mtu;
        self.call(SIOCSIFMTU)
    }

    fn set_mac(&mut self, mac: [u8; 6]) -> io::Result<()> {
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
        let gone = Interface { index: u32::MAX, was: State { promiscuous: false, mtu: 1500, mac: [0; 6] } };
        gone.put_back();
    }
}
