//! The kernel's TCP: one epoll set.

use super::network::{Event, Network};
use rustix::buffer::spare_capacity;
use rustix::event::Timespec;
use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, Shutdown, recv, send, shutdown};
use std::io;
use std::net::{TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

/// Events that are taken at a time.
const EVENTS: usize = 256;
/// How long nothing is accepted after the process had no room for another connection.
const PAUSE: Duration = Duration::from_millis(100);
/// The event of the socket that listens.
const ACCEPT: u64 = u64::MAX;

pub(super) struct Kernel {
    listener: TcpListener,
    epoll: OwnedFd,
    ready: Vec<epoll::Event>,
    pauses_until: Option<Instant>,
}

impl Kernel {
    pub fn new(listener: TcpListener) -> io::Result<Self> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        epoll::add(&epoll, &listener, EventData::new_u64(ACCEPT), EventFlags::IN)?;
        Ok(Self { listener, epoll, ready: Vec::with_capacity(EVENTS), pauses_until: None })
    }
}

impl Network for Kernel {
    type Stream = TcpStream;

    fn wait(&mut self, longest: Duration, events: &mut Vec<Event>) -> io::Result<()> {
        if self.pauses_until.is_some_and(|until| until <= Instant::now()) {
            self.pauses_until = None;
            epoll::modify(&self.epoll, &self.listener, EventData::new_u64(ACCEPT), EventFlags::IN)?;
        }
        let wait = Timespec { tv_sec: 0, tv_nsec: i64::from(longest.subsec_nanos()) };
        self.ready.clear();
        match epoll::wait(&self.epoll, spare_capacity(&mut self.ready), Some(&wait)) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        events.extend(self.ready.iter().map(|event| {
            let (data, flags) = (event.data, event.flags);
            match data.u64() {
                ACCEPT => Event::Accept,
                slot => Event::Ready {
                    slot: slot as u32,
                    room: flags.contains(EventFlags::OUT),
                    input: flags.intersects(EventFlags::IN | EventFlags::HUP | EventFlags::ERR),
                },
            }
        }));
        Ok(())
    }

    fn accept(&mut self, slot: u32) -> io::Result<Option<TcpStream>> {
        loop {
            match self.listener.accept() {
                Ok((stream, _)) => {
                    if stream.set_nonblocking(true).is_err() {
                        continue;
                    }
                    let _as_it_is = stream.set_nodelay(true);
                    if epoll::add(&self.epoll, &stream, EventData::new_u64(slot.into()), EventFlags::IN)
                        .is_ok()
                    {
                        return Ok(Some(stream));
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(None),
                // no descriptor or memory is left: those that wait are accepted later
                Err(error) if is_full(&error) => {
                    self.pauses_until = Some(Instant::now() + PAUSE);
                    let nothing = EventFlags::empty();
                    epoll::modify(&self.epoll, &self.listener, EventData::new_u64(ACCEPT), nothing)?;
                    return Ok(None);
                }
                // of a connection that is gone already
                Err(_) => {}
            }
        }
    }

    fn receive(&mut self, stream: &mut TcpStream, buffer: &mut [u8]) -> io::Result<usize> {
        let (length, _) = recv(&*stream, buffer, RecvFlags::DONTWAIT)?;
        Ok(length)
    }

    fn send(&mut self, stream: &mut TcpStream, bytes: &[u8]) -> io::Result<usize> {
        Ok(send(&*stream, bytes, SendFlags::NOSIGNAL | SendFlags::DONTWAIT)?)
    }

    fn end(&mut self, stream: &mut TcpStream) -> io::Result<()> {
        Ok(shutdown(&*stream, Shutdown::Write)?)
    }

    fn watch(&mut self, stream: &mut TcpStream, slot: u32, room: bool, input: bool) -> io::Result<()> {
        let mut flags = EventFlags::empty();
        flags.set(EventFlags::OUT, room);
        flags.set(EventFlags::IN, input);
        Ok(epoll::modify(&self.epoll, &*stream, EventData::new_u64(slot.into()), flags)?)
    }

    fn close(&mut self, stream: TcpStream) {
        // with its descriptor, which epoll then forgets
        drop(stream);
    }
}

fn is_full(error: &io::Error) -> bool {
    let full = Errno::from_io_error(error);
    matches!(full, Some(Errno::MFILE | Errno::NFILE | Errno::NOMEM | Errno::NOBUFS))
}
