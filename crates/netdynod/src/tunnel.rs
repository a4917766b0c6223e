//! Where mutual TLS ends: what comes over it goes on over a pair of sockets, whose other end is served like any connection.

use crate::connection::serve;
use crate::connection_limit::ConnectionPermit;
use crate::core::Core;
use crate::files::Door;
use crate::pending_connections::PendingSlot;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustls::{ServerConfig, ServerConnection};
use serde_json::Value;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::{Duration, Instant};
use system::rpc::{self, Error};

/// How long the handshake may take.
const HANDSHAKE: Duration = Duration::from_secs(5);
/// How long who was refused may take to read why.
const LEAVING: Duration = Duration::from_secs(1);
/// Bytes that are taken at a time from what is served, and kept until they are written.
const PIECE: usize = 64 << 10;

/// A connection whose other end has shown a certificate.
pub struct Tunnel {
    socket: Arc<TcpStream>,
    tls: ServerConnection,
}

impl Tunnel {
    /// Shake hands. `None`: it did not work out, which the other end was told if it could be.
    pub fn open(socket: Arc<TcpStream>, config: Arc<ServerConfig>, place: &PendingSlot) -> Option<Self> {
        let tls = match ServerConnection::new(config) {
            Ok(tls) => tls,
            Err(e) => {
                tracing::warn!("TLS cannot begin: {e}");
                return None;
            }
        };
        let mut tunnel = Self { socket, tls };
        match tunnel.handshake() {
            Ok(()) => Some(tunnel),
            Err(why) => {
                if place.is_worth_a_line() {
                    let from = tunnel.socket.peer_addr().map_or_else(|_| "?".to_owned(), |at| at.to_string());
                    tracing::warn!(from, "refused over TLS: {why}");
                }
                tunnel.leave();
                None
            }
        }
    }

    fn handshake(&mut self) -> io::Result<()> {
        self.socket.set_nonblocking(true)?;
        let until = Instant::now() + HANDSHAKE;
        while self.tls.is_handshaking() || self.tls.wants_write() {
            let wanted = if self.tls.wants_write() { PollFlags::OUT } else { PollFlags::IN };
            let left = until.saturating_duration_since(Instant::now());
            let wait = Timespec::try_from(left).map_err(io::Error::other)?;
            let mut one = [PollFd::new(&self.socket, wanted)];
            if left.is_zero() || poll(&mut one, Some(&wait))? == 0 {
                return Err(io::Error::new(ErrorKind::TimedOut, "no handshake in time"));
            }
            if wanted == PollFlags::OUT {
                self.write()?;
            } else if !self.read()? {
                return Err(io::Error::new(ErrorKind::UnexpectedEof, "it closed the connection"));
            }
        }
        Ok(())
    }

    /// Let the other end read why before it is hung up on: unread bytes of its own would take that from it.
    fn leave(&self) {
        let until = Instant::now() + LEAVING;
        let mut unread = [0; 4 << 10];
        let mut open = self.socket.shutdown(Shutdown::Write).is_ok();
        while open
            && let left = until.saturating_duration_since(Instant::now())
            && !left.is_zero()
        {
            let mut one = [PollFd::new(&self.socket, PollFlags::IN)];
            let Ok(wait) = Timespec::try_from(left) else { return };
            open = poll(&mut one, Some(&wait)).is_ok_and(|ready| ready > 0)
                && (&mut self.socket.as_ref()).read(&mut unread).is_ok_and(|read| read > 0);
        }
    }

    /// Tell why it is not served.
    pub fn refuse(mut self, why: Error) {
        let line = rpc::answer(&Value::Null, Err(why));
        let _gone = self.tls.writer().write_all(line.as_bytes()).and_then(|()| self.write());
        self.leave();
    }

    /// Serve it until one side ends.
    pub fn serve(mut self, core: &Arc<Core>, permit: ConnectionPermit) -> io::Result<()> {
        let (ours, theirs) = UnixStream::pair()?;
        ours.set_nonblocking(true)?;
        serve(theirs.into(), core, Door::Tcp, Ok(permit))?;
        // as much as one piece is put in at a time, and no more before it is out
        self.tls.set_buffer_limit(None);
        let done = self.pump(&ours);
        let _gone = self.socket.shutdown(Shutdown::Both);
        done
    }

    fn pump(&mut self, ours: &UnixStream) -> io::Result<()> {
        let (mut plain, mut piece) = (Vec::new(), vec![0; PIECE]);
        let mut said_all = false;
        loop {
            said_all |= self.tls.reader().read_to_end(&mut plain).is_ok();
            if said_all && plain.is_empty() {
                // what is being answered still goes out
                let _gone = ours.shutdown(Shutdown::Write);
            }
            let mut far = PollFlags::empty();
            far.set(PollFlags::IN, plain.is_empty() && !said_all);
            far.set(PollFlags::OUT, self.tls.wants_write());
            let mut near = PollFlags::empty();
            near.set(PollFlags::OUT, !plain.is_empty());
            near.set(PollFlags::IN, !self.tls.wants_write());
            let (far, near) = wait(&self.socket, far, ours, near)?;
            if far.contains(PollFlags::OUT) {
                self.write()?;
            }
            if far.intersects(PollFlags::IN | PollFlags::HUP | PollFlags::ERR) && !self.read()? {
                said_all = true;
            }
            if near.contains(PollFlags::OUT) {
                let written = retried((&mut &*ours).write(&plain))?.unwrap_or(0);
                plain.drain(..written);
            }
            if near.intersects(PollFlags::IN | PollFlags::HUP) && !self.tls.wants_write() {
                match retried((&mut &*ours).read(&mut piece))? {
                    Some(0) => return self.bye(),
                    Some(read) => self.tls.writer().write_all(&piece[..read])?,
                    None => {}
                }
            }
        }
    }

    /// Take in what came. False: nothing more will come.
    fn read(&mut self) -> io::Result<bool> {
        let Some(read) = retried(self.tls.read_tls(&mut self.socket.as_ref()))? else { return Ok(true) };
        if let Err(e) = self.tls.process_new_packets() {
            // an alert says why
            let _gone = self.write();
            return Err(io::Error::new(ErrorKind::InvalidData, e));
        }
        Ok(read > 0)
    }

    fn write(&mut self) -> io::Result<()> {
        retried(self.tls.write_tls(&mut self.socket.as_ref())).map(drop)
    }

    fn bye(&mut self) -> io::Result<()> {
        self.tls.send_close_notify();
        self.write()
    }
}

/// Until one of two can do what is wanted of it; who has nothing to do is not looked at.
fn wait(
    far: &TcpStream,
    of_far: PollFlags,
    near: &UnixStream,
    of_near: PollFlags,
) -> io::Result<(PollFlags, PollFlags)> {
    let mut both = Vec::with_capacity(2);
    if !of_far.is_empty() {
        both.push(PollFd::new(far, of_far));
    }
    if !of_near.is_empty() {
        both.push(PollFd::new(near, of_near));
    }
    match poll(&mut both, None) {
        Ok(_) => {}
        Err(rustix::io::Errno::INTR) => return Ok((PollFlags::empty(), PollFlags::empty())),
        Err(e) => return Err(e.into()),
    }
    let mut seen = both.iter().map(PollFd::revents);
    let far = if of_far.is_empty() { PollFlags::empty() } else { seen.next().unwrap_or(PollFlags::empty()) };
    Ok((far, seen.next().unwrap_or(PollFlags::empty())))
}

/// `None`: not now.
fn retried(done: io::Result<usize>) -> io::Result<Option<usize>> {
    match done {
        Ok(n) => Ok(Some(n)),
        Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => Ok(None),
        Err(e) => Err(e),
    }
}
