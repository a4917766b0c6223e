//! Sockets of messages: made, connected, and what goes over them.

use crate::Config;
use crate::error::Error;
use crate::protocol::{Message, SIZE};
use nix::cmsg_space;
use nix::errno::Errno;
use nix::sys::socket::{
    AddressFamily, Backlog, ControlMessage, ControlMessageOwned, MsgFlags, SockFlag, SockType, UnixAddr,
    accept4, bind, connect, listen, recvmsg, sendmsg, socket,
};
use std::io::{IoSlice, IoSliceMut};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

/// Bytes of an address of the kind.
const ADDRESS: usize = 108;
/// Most files that come with a message.
const FILES: usize = 253;

/// Where a server listens.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Address {
    path: PathBuf,
    is_abstract: bool,
    /// The network namespace, which abstract names belong to.
    namespace: u64,
}

impl Address {
    pub(crate) fn of(config: &Config) -> Result<Self, Error> {
        let length = config.socket.as_os_str().len();
        // A path has a NUL after it, an abstract name one before it, too.
        if length == 0 || length > ADDRESS - 1 - usize::from(config.abstract_socket) {
            return Err(Error::Config { what: "socket", allowed: "a name of 1 to 106 bytes" });
        }
        if config.socket.as_os_str().as_bytes().contains(&0) {
            return Err(Error::Config { what: "socket", allowed: "a name without NUL" });
        }
        let (path, namespace) = if config.abstract_socket {
            let namespace = std::fs::metadata("/proc/thread-self/ns/net").map_or(0, |file| file.ino());
            (config.socket.clone(), namespace)
        } else {
            (config.socket.clone(), 0)
        };
        Ok(Self { path, is_abstract: config.abstract_socket, namespace })
    }

    /// As people write it.
    pub(crate) fn text(&self) -> String {
        format!("{}{}", if self.is_abstract { "@" } else { "" }, self.path.display())
    }

    /// The addresses to try, in their order. An abstract name is a NUL and the name. Old versions of DPDK fill it up with
    /// NULs, which are part of the name then.
    fn sockets(&self) -> nix::Result<Vec<UnixAddr>> {
        if !self.is_abstract {
            return Ok(vec![UnixAddr::new(&self.path)?]);
        }
        let name = self.path.as_os_str().as_bytes();
        let mut filled = name.to_vec();
        filled.resize(ADDRESS - 1, 0);
        Ok(vec![UnixAddr::new_abstract(name)?, UnixAddr::new_abstract(&filled)?])
    }
}

fn new_socket() -> nix::Result<OwnedFd> {
    let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
    socket(AddressFamily::Unix, SockType::SeqPacket, flags, None)
}

/// A socket that clients come to; its file goes with it.
#[derive(Debug)]
pub(crate) struct Listening {
    socket: OwnedFd,
    /// Its file: the path, device and number.
    file: Option<(PathBuf, u64, u64)>,
}

impl Listening {
    pub(crate) fn new(address: &Address) -> Result<Self, Error> {
        let failed = |action| {
            move |cause: Errno| Error::System { action, socket: address.text(), cause: cause.into() }
        };
        let sockets = address.sockets().map_err(failed("naming"))?;
        let own = sockets.first().ok_or(Errno::EINVAL).map_err(failed("naming"))?;
        let socket = new_socket().map_err(failed("making"))?;
        match bind(socket.as_raw_fd(), own) {
            Err(Errno::EADDRINUSE) if !address.is_abstract && is_stale(&address.path, own) => {
                let removed = std::fs::remove_file(&address.path);
                removed.map_err(|cause| Error::System {
                    action: "replacing",
                    socket: address.text(),
                    cause,
                })?;
                bind(socket.as_raw_fd(), own).map_err(failed("binding"))?;
            }
            Err(Errno::EADDRINUSE) => return Err(Error::InUse { socket: address.text() }),
            bound => bound.map_err(failed("binding"))?,
        }
        let file = match std::fs::symlink_metadata(&address.path) {
            Ok(file) if !address.is_abstract => Some((address.path.clone(), file.dev(), file.ino())),
            _ => None,
        };
        let listening = Self { socket, file };
        let backlog = Backlog::new(64).map_err(failed("listening at"))?;
        listen(&listening.socket, backlog).map_err(failed("listening at"))?;
        Ok(listening)
    }

    pub(crate) fn accept(&self) -> nix::Result<Channel> {
        let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
        let accepted = accept4(self.socket.as_raw_fd(), flags)?;
        // SAFETY: it is new, and nobody else's.
        Ok(Channel(unsafe { OwnedFd::from_raw_fd(accepted) }))
    }
}

impl AsFd for Listening {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl Drop for Listening {
    fn drop(&mut self) {
        if let Some((path, device, number)) = &self.file {
            // Someone may have put another in its place.
            if std::fs::symlink_metadata(path)
                .is_ok_and(|file| (file.dev(), file.ino()) == (*device, *number))
            {
                let _ = std::fs::remove_file(path);
            }
        }
    }
}

/// Whether what is there is a socket that nobody listens at.
fn is_stale(path: &Path, address: &UnixAddr) -> bool {
    let is_socket = std::fs::symlink_metadata(path).is_ok_and(|file| file.file_type().is_socket());
    is_socket
        && new_socket().is_ok_and(|probe| connect(probe.as_raw_fd(), address) == Err(Errno::ECONNREFUSED))
}

/// A connection over which messages go.
#[derive(Debug)]
pub(crate) struct Channel(OwnedFd);

/// What came.
#[derive(Debug)]
pub(crate) enum Received {
    Message(Message, Vec<OwnedFd>),
    Nothing,
    /// No message; the reason to give with DISCONNECT.
    Unfit(&'static str),
    Ended,
}

impl Channel {
    /// To the server, if there is one.
    pub(crate) fn connect(address: &Address) -> nix::Result<Self> {
        let mut result = Err(Errno::EINVAL);
        for to in address.sockets()? {
            let socket = new_socket()?;
            result = connect(socket.as_raw_fd(), &to).map(|()| Self(socket));
            if result.is_ok() {
                break;
            }
        }
        result
    }

    pub(crate) fn send(&self, message: &Message, file: Option<BorrowedFd<'_>>) -> nix::Result<()> {
        let bytes = message.encode();
        let files = file.map(|file| [file.as_raw_fd()]);
        let rights = files.as_ref().map(|files| [ControlMessage::ScmRights(files)]);
        let rights: &[ControlMessage<'_>] = rights.as_ref().map_or(&[], |rights| rights);
        let flags = MsgFlags::MSG_NOSIGNAL | MsgFlags::MSG_DONTWAIT;
        sendmsg::<()>(self.0.as_raw_fd(), &[IoSlice::new(&bytes)], rights, flags, None).map(drop)
    }

    /// Say why it ends. Whether that arrives does not matter.
    pub(crate) fn end(&self, reason: &str) {
        let _ = self.send(&Message::Disconnect { code: 0, reason: reason.into() }, None);
    }

    pub(crate) fn receive(&self) -> Received {
        let mut bytes = [0; SIZE];
        // Room for all that can be sent: none are lost that we would own without knowing.
        let mut control = cmsg_space!([RawFd; FILES]);
        let flags = MsgFlags::MSG_DONTWAIT | MsgFlags::MSG_CMSG_CLOEXEC;
        let (length, flags, files) = {
            let mut into = [IoSliceMut::new(&mut bytes)];
            let received = match recvmsg::<()>(self.0.as_raw_fd(), &mut into, Some(&mut control), flags) {
                Ok(received) => received,
                // The other end went without having read all: what it said before is yet to come.
                Err(Errno::EAGAIN | Errno::EINTR | Errno::ECONNRESET) => return Received::Nothing,
                Err(_) => return Received::Ended,
            };
            let mut files = Vec::new();
            for message in received.cmsgs().into_iter().flatten() {
                if let ControlMessageOwned::ScmRights(came) = message {
                    // SAFETY: they were made for us by the kernel just now.
                    files.extend(came.into_iter().map(|file| unsafe { OwnedFd::from_raw_fd(file) }));
                }
            }
            (received.bytes, received.flags, files)
        };
        if length == 0 {
            return Received::Ended;
        }
        if length != SIZE || flags.intersects(MsgFlags::MSG_TRUNC | MsgFlags::MSG_CTRUNC) {
            return Received::Unfit("message of a wrong size");
        }
        match Message::decode(&bytes) {
            Some(message) => Received::Message(message, files),
            None => Received::Unfit("unknown message"),
        }
    }
}

impl AsFd for Channel {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Whether what came as a ring's interrupt is one, made so that it is never waited for.
pub(crate) fn check_interrupt(file: &OwnedFd) -> Result<(), &'static str> {
    use nix::fcntl::{FcntlArg, OFlag, fcntl};
    const WRONG: &str = "interrupt is no eventfd";
    let link = std::fs::read_link(format!("/proc/self/fd/{}", file.as_raw_fd())).map_err(|_| WRONG)?;
    if link.as_os_str().as_bytes() != b"anon_inode:[eventfd]" {
        return Err(WRONG);
    }
    fcntl(file, FcntlArg::F_SETFL(OFlag::O_NONBLOCK)).map(drop).map_err(|_| WRONG)
}
