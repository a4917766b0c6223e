//! The socket between two NATs, and the lock that only the active one has.

use super::message::LONGEST;
use rustix::fs::{FlockOperation, Mode, OFlags};
use rustix::io::Errno;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketAddrUnix, SocketFlags, SocketType};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

/// Packets of the socket that the kernel keeps for who reads slowly, bytes.
const BUFFER: usize = 4 << 20;

fn seqpacket() -> io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    Ok(rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?)
}

/// What came.
#[derive(Debug, PartialEq, Eq)]
pub enum LinkEvent {
    /// A packet of so many bytes.
    Packet(usize),
    /// Nothing, yet.
    Nothing,
    /// The other end is closed.
    Closed,
}

/// A connection. Nothing of it waits.
#[derive(Debug)]
pub struct Link(OwnedFd);

impl Link {
    /// To who listens at a path.
    pub fn connect(path: &Path) -> io::Result<Self> {
        let socket = seqpacket()?;
        rustix::net::connect(&socket, &SocketAddrUnix::new(path)?)?;
        Self::of(socket)
    }

    fn of(socket: OwnedFd) -> io::Result<Self> {
        // As much as the kernel allows.
        let _less = rustix::net::sockopt::set_socket_send_buffer_size(&socket, BUFFER);
        Ok(Self(socket))
    }

    /// The process at the other end, if it is of the same user.
    pub fn peer(&self) -> io::Result<u32> {
        let peer = rustix::net::sockopt::socket_peercred(&self.0)?;
        if peer.uid != rustix::process::geteuid() {
            return Err(io::Error::from(io::ErrorKind::PermissionDenied));
        }
        Ok(peer.pid.as_raw_nonzero().get().cast_unsigned())
    }

    /// Send a packet. `false`: the other end has not read what was sent before.
    pub fn send(&self, bytes: &[u8]) -> io::Result<bool> {
        match rustix::net::send(&self.0, bytes, SendFlags::NOSIGNAL) {
            Ok(_) => Ok(true),
            Err(Errno::AGAIN | Errno::NOBUFS) => Ok(false),
            Err(why) => Err(why.into()),
        }
    }

    /// Take the next packet.
    pub fn receive(&self, into: &mut [u8; LONGEST]) -> io::Result<LinkEvent> {
        match rustix::net::recv(&self.0, &mut into[..], RecvFlags::empty()) {
            Ok((0, _)) => Ok(LinkEvent::Closed),
            Ok((len, whole)) if len == whole => Ok(LinkEvent::Packet(len)),
            Ok(_) => Err(io::ErrorKind::InvalidData.into()),
            Err(Errno::AGAIN | Errno::INTR) => Ok(LinkEvent::Nothing),
            Err(Errno::CONNRESET) => Ok(LinkEvent::Closed),
            Err(why) => Err(why.into()),
        }
    }

    /// Whether nothing waits to be read, and the other end is open.
    pub fn is_quiet(&self) -> bool {
        rustix::net::recv(&self.0, &mut [0; 1][..], RecvFlags::PEEK) == Err(Errno::AGAIN)
    }
}

impl AsFd for Link {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Remove the socket of a NAT that is gone, or steps back, if one is there: of this user, and of the kind that NATs have. What else
/// stands there is somebody else's, and a link is not followed.
fn make_way(path: &Path) -> io::Result<()> {
    may_listen(path)?;
    match std::fs::remove_file(path) {
        Err(why) if why.kind() != io::ErrorKind::NotFound => Err(why),
        _ => Ok(()),
    }
}

/// Whether nothing stands at a path but the socket of a NAT of this user.
pub fn may_listen(path: &Path) -> io::Result<()> {
    let there = match std::fs::symlink_metadata(path) {
        Err(why) if why.kind() == io::ErrorKind::NotFound => return Ok(()),
        there => there?,
    };
    let refused = |what: &str| Err(io::Error::new(io::ErrorKind::AlreadyExists, what.to_owned()));
    if !there.file_type().is_socket() {
        return refused("what stands there is no socket");
    }
    if there.uid() != rustix::process::geteuid().as_raw() {
        return refused("another user's socket stands there");
    }
    match rustix::net::connect(&seqpacket()?, &SocketAddrUnix::new(path)?) {
        Err(Errno::PROTOTYPE) => refused("another program's socket stands there"),
        Err(Errno::CONNREFUSED | Errno::AGAIN | Errno::NOENT) | Ok(()) => Ok(()),
        Err(why) => Err(why.into()),
    }
}

/// Where the active NAT is found.
#[derive(Debug)]
pub struct Listener(OwnedFd);

impl Listener {
    /// Listen at a path, in place of who did before. Only who has the lock does.
    pub fn at(path: &Path) -> io::Result<Self> {
        make_way(path)?;
        let socket = seqpacket()?;
        // Before it has a name: there is no moment in which others may connect.
        rustix::fs::fchmod(&socket, Mode::RUSR | Mode::WUSR)?;
        rustix::net::bind(&socket, &SocketAddrUnix::new(path)?)?;
        rustix::net::listen(&socket, 8)?;
        Ok(Self(socket))
    }

    /// The next that comes, if one does.
    pub fn accept(&self) -> io::Result<Option<Link>> {
        match rustix::net::accept_with(&self.0, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK) {
            Ok(socket) => Link::of(socket).map(Some),
            Err(Errno::AGAIN | Errno::INTR | Errno::CONNABORTED) => Ok(None),
            Err(why) => Err(why.into()),
        }
    }
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// The lock beside the socket. The kernel gives it back when its process dies, however that happens.
#[derive(Debug)]
pub struct Lock {
    file: File,
    path: PathBuf,
}

impl Lock {
    fn open(path: &Path, more: OFlags) -> io::Result<File> {
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::CLOEXEC | OFlags::NOFOLLOW | more;
        let file = File::from(rustix::fs::open(path, flags | OFlags::NONBLOCK, Mode::RUSR | Mode::WUSR)?);
        let about = file.metadata()?;
        if about.is_file() && about.len() == 0 {
            return Ok(file);
        }
        Err(io::Error::new(io::ErrorKind::AlreadyExists, "another program's file stands there"))
    }

    /// Take it if nobody has it.
    pub fn take(path: &Path) -> io::Result<Option<Self>> {
        let file = Self::open(path, OFlags::empty())?;
        match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(Errno::WOULDBLOCK) => return Ok(None),
            Err(why) => return Err(why.into()),
        }
        let lock = Self { file, path: path.to_owned() };
        // It may be another file's by now.
        Ok(lock.is_held().then_some(lock))
    }

    /// Take it from a process that hangs, and has lost the right to it: from now on the file is another.
    pub fn steal(path: &Path) -> io::Result<Self> {
        if let Some(lock) = Self::take(path)? {
            return Ok(lock);
        }
        let mut name = path.as_os_str().to_owned();
        name.push(".new");
        let new = PathBuf::from(name);
        match std::fs::remove_file(&new) {
            Err(why) if why.kind() != io::ErrorKind::NotFound => return Err(why),
            _ => {}
        }
        let file = Self::open(&new, OFlags::EXCL)?;
        rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive)?;
        std::fs::rename(&new, path)?;
        Ok(Self { file, path: path.to_owned() })
    }

    /// Whether it is the lock still, and not one that was stolen.
    pub fn is_held(&self) -> bool {
        let (Ok(own), Ok(there)) = (self.file.metadata(), std::fs::symlink_metadata(&self.path)) else {
            return false;
        };
        (own.dev(), own.ino()) == (there.dev(), there.ino())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_has_the_lock_and_a_stolen_one_is_known() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("pair.lock");
        let one = Lock::take(&path).unwrap().unwrap();
        assert!(one.is_held() && Lock::take(&path).unwrap().is_none());
        assert_eq!(std::fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
        let other = Lock::steal(&path).unwrap();
        assert!(other.is_held() && !one.is_held() && Lock::take(&path).unwrap().is_none());
        drop(one);
        assert!(other.is_held() && Lock::take(&path).unwrap().is_none());
        drop(other);
        assert!(Lock::steal(&path).unwrap().is_held(), "nobody has it: it is taken");
    }

    #[test]
    fn what_is_no_socket_of_a_nat_stays() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        std::fs::write(at("file"), "letters").unwrap();
        std::os::unix::fs::symlink(at("file"), at("link")).unwrap();
        std::os::unix::fs::symlink(at("absent"), at("dangling")).unwrap();
        std::fs::create_dir(at("folder")).unwrap();
        let _stream = std::os::unix::net::UnixListener::bind(at("stream")).unwrap();
        for name in ["file", "link", "dangling", "folder", "stream"] {
            assert_eq!(Listener::at(&at(name)).unwrap_err().kind(), io::ErrorKind::AlreadyExists, "{name}");
            assert!(std::fs::symlink_metadata(at(name)).is_ok(), "{name} is there");
        }
        assert!(Lock::take(&at("file")).is_err() && Lock::steal(&at("file")).is_err());
        assert_eq!(std::fs::read(at("file")).unwrap(), b"letters");
    }

    #[test]
    fn packets_come_whole_from_the_same_user() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("pair");
        assert!(Link::connect(&path).is_err());
        let listener = Listener::at(&path).unwrap();
        assert_eq!(std::fs::symlink_metadata(&path).unwrap().mode() & 0o777, 0o600);
        let own = Link::connect(&path).unwrap();
        let other = listener.accept().unwrap().unwrap();
        assert!(listener.accept().unwrap().is_none());
        assert_eq!((own.peer().unwrap(), other.peer().unwrap()), (std::process::id(), std::process::id()));
        let mut room = Box::new([0; LONGEST]);
        assert_eq!((other.receive(&mut room).unwrap(), other.is_quiet()), (LinkEvent::Nothing, true));
        assert!(own.send(&[7; LONGEST]).unwrap() && own.send(b"next").unwrap());
        assert!(!other.is_quiet(), "what waits is looked at, and not taken");
        assert_eq!(other.receive(&mut room).unwrap(), LinkEvent::Packet(LONGEST));
        assert_eq!((other.receive(&mut room).unwrap(), &room[..4]), (LinkEvent::Packet(4), &b"next"[..]));
        // Who does not read is not waited for.
        let sent = (0..10_000).take_while(|_| own.send(&[7; LONGEST]).unwrap()).count();
        assert!((1..10_000).contains(&sent), "{sent}");
        drop(other);
        assert!(own.send(b"x").is_err() && !own.is_quiet());
        // A new one listens in its place.
        drop((own, listener));
        Listener::at(&path).unwrap();
    }
}
