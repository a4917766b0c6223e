//! Ends waiting for a process at the other end of a vhost socket that does not answer: DPDK asks it, and waits for the answer without
//! a limit. After a time the connection is shut down here, so that DPDK finds it broken and goes on.

use crate::device::{Device, kind};
use nix::sys::socket::{Shutdown, UnixAddr, getpeername, getsockname, shutdown};
use std::fs;
use std::os::fd::RawFd;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

/// How long the other end may take for all that it is asked while a port is opened, started, or closed.
const PATIENCE: Duration = Duration::from_secs(5);
/// From then on how often to look for a connection: there may be several, one after the other.
const AGAIN: Duration = Duration::from_millis(100);

/// Watches until it is dropped.
#[derive(Debug)]
pub(crate) struct PeerWatch {
    done: Option<Sender<()>>,
    thread: Option<JoinHandle<bool>>,
}

/// The path of the socket over which a driver with these arguments talks to another process. `None`: it does not.
fn path<'a>(driver: &str, arguments: &'a str) -> Option<&'a Path> {
    let wanted = match kind(driver) {
        "vhost" => "iface",
        "virtio_user" => "path",
        _ => return None,
    };
    let mut pairs = arguments.split(',').filter_map(|argument| argument.split_once('='));
    pairs.find(|(key, _)| *key == wanted).map(|(_, value)| Path::new(value))
}

impl PeerWatch {
    /// Watch the peer of a device from now on; `None`: it has none that is asked anything.
    pub fn of(device: &Device) -> Option<Self> {
        let Device::Virtual { driver, arguments } = device else { return None };
        path(driver, arguments).map(|path| Self::new(path, PATIENCE))
    }

    /// Watch from now on: the connections over the socket at `path` may last so long.
    fn new(path: &Path, patience: Duration) -> Self {
        let (done, ended) = channel();
        let path = PathBuf::from(path);
        let watch = move || {
            let (mut wait, mut has_cut) = (patience, false);
            while ended.recv_timeout(wait) == Err(RecvTimeoutError::Timeout) {
                has_cut |= cut(&path);
                wait = AGAIN;
            }
            has_cut
        };
        let thread = std::thread::Builder::new().name("vhost-watch".into()).spawn(watch).ok();
        Self { done: Some(done), thread }
    }

    /// Watch no more. Whether a connection was cut.
    pub fn end(mut self) -> bool {
        self.stop()
    }

    fn stop(&mut self) -> bool {
        self.done = None;
        self.thread.take().is_some_and(|thread| thread.join().unwrap_or(false))
    }
}

impl Drop for PeerWatch {
    fn drop(&mut self) {
        self.stop();
    }
}

/// Shut down what this process has connected over the socket at `path`, at either end; whether there was anything.
fn cut(path: &Path) -> bool {
    let Ok(all) = fs::read_dir("/proc/self/fd") else { return false };
    let numbers = all.flatten().filter_map(|entry| entry.file_name().to_str()?.parse::<RawFd>().ok());
    let is_it = |address: &UnixAddr| address.path() == Some(path);
    let connected = numbers.filter(|fd| {
        getpeername::<UnixAddr>(*fd)
            .is_ok_and(|peer| is_it(&peer) || getsockname::<UnixAddr>(*fd).is_ok_and(|own| is_it(&own)))
    });
    connected.filter(|fd| shutdown(*fd, Shutdown::Both).is_ok()).count() > 0
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;
    use std::os::unix::net::{UnixListener, UnixStream};

    #[test]
    fn only_vhost_has_a_peer_that_is_asked() {
        assert_eq!(path("net_vhost0", "iface=/run/v,queues=1"), Some(Path::new("/run/v")));
        assert_eq!(path("net_virtio_user0", "queues=1,path=/run/v"), Some(Path::new("/run/v")));
        assert_eq!(path("net_tap0", "iface=t0"), None);
    }

    #[test]
    fn who_never_answers_is_cut_off() {
        let folder = tempfile::tempdir().expect("a folder");
        let at = |name: &str| folder.path().join(name);
        let listeners = ["silent", "other"].map(|name| UnixListener::bind(at(name)).expect("bound"));
        let mut other = UnixStream::connect(at("other")).expect("connected");
        for accepts in [true, false] {
            let mut stream = UnixStream::connect(at("silent")).expect("connected");
            let accepted = listeners[0].accept().expect("a connection").0;
            let watch = PeerWatch::new(&at("silent"), Duration::from_millis(50));
            let mut waits = if accepts { accepted } else { stream.try_clone().expect("the same") };
            // both ends are this process's: without the watch this waits for ever
            assert_eq!(waits.read(&mut [0; 8]).expect("the end"), 0);
            assert!(watch.end());
            assert_eq!(stream.read(&mut [0; 8]).expect("the end"), 0);
        }
        other.set_nonblocking(true).expect("set");
        let untouched = other.read(&mut [0; 8]).expect_err("nothing came, and no end").kind();
        assert_eq!(untouched, std::io::ErrorKind::WouldBlock);
        assert!(!PeerWatch::new(&at("silent"), PATIENCE).end(), "in time");
    }
}
