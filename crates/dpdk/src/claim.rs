//! The right to an interface of the kernel's, which one program has at a time: as long as it lives, and in its network namespace.

use nix::errno::Errno;
use nix::sys::socket::sockopt::PeerCredentials;
use nix::sys::socket::{
    AddressFamily, Backlog, SockFlag, SockType, UnixAddr, UnixCredentials, bind, connect, getsockopt, listen,
    socket,
};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

/// An interface that is claimed. The kernel frees it when the process ends, however that happens.
#[derive(Debug)]
pub struct Claim(Option<OwnedFd>);

/// Why there is no claim.
#[derive(Debug)]
pub enum ClaimError {
    /// This process has it.
    Taken(u32),
    /// The system refuses.
    System(io::Error),
}

impl Claim {
    /// Claim an interface, by its number, for a use.
    pub fn of(interface: u32, what: &str) -> Result<Self, ClaimError> {
        let system = |why: Errno| ClaimError::System(why.into());
        let name =
            UnixAddr::new_abstract(format!("netdyno/{what}/{interface}").as_bytes()).map_err(system)?;
        let held = stream().map_err(system)?;
        match bind(held.as_raw_fd(), &name) {
            Ok(()) => {
                Backlog::new(64).and_then(|backlog| listen(&held, backlog)).map_err(system)?;
                Ok(Self(Some(held)))
            }
            Err(Errno::EADDRINUSE) => match holder(&name) {
                // Whoever may open no port has no right to keep others from it.
                Ok(peer) if peer.uid() != 0 && peer.uid() != nix::unistd::geteuid().as_raw() => {
                    Ok(Self(None))
                }
                Ok(peer) => Err(ClaimError::Taken(peer.pid().unsigned_abs())),
                // It is very busy, or was given back just now.
                Err(why) => Err(system(why)),
            },
            Err(why) => Err(system(why)),
        }
    }

    /// Whether nobody else can have it meanwhile.
    pub fn is_held(&self) -> bool {
        self.0.is_some()
    }
}

fn stream() -> nix::Result<OwnedFd> {
    let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
    socket(AddressFamily::Unix, SockType::Stream, flags, None)
}

/// Who listens there.
fn holder(name: &UnixAddr) -> nix::Result<UnixCredentials> {
    let asking = stream()?;
    connect(asking.as_raw_fd(), name)?;
    getsockopt(&asking, PeerCredentials)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_has_it_until_it_is_given_back() {
        let one = Claim::of(u32::MAX, "test").unwrap();
        assert!(one.is_held());
        for _ in 0..20 {
            let Err(ClaimError::Taken(process)) = Claim::of(u32::MAX, "test") else { panic!("two have it") };
            assert_eq!(process, std::process::id());
        }
        assert!(
            Claim::of(u32::MAX - 1, "test").unwrap().is_held()
                && Claim::of(u32::MAX, "tests").unwrap().is_held()
        );
        drop(one);
        assert!(Claim::of(u32::MAX, "test").unwrap().is_held());
    }
}
