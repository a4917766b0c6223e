//! The thread of a client: it looks for the server, negotiates, and sees when the connection ends.

use crate::control::{self, PATIENCE, PAUSE};
use crate::link::{Link, Shared};
use crate::negotiation::{self, Attach, LinkRequest, Next};
use crate::protocol::Message;
use crate::socket::{Address, Channel, Received};
use nix::errno::Errno;
use nix::sys::eventfd::EventFd;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Instant;

/// A client's thread; ended and joined when this goes.
#[derive(Debug)]
pub(crate) struct Client {
    stop: Arc<AtomicBool>,
    wake: Arc<EventFd>,
    thread: Option<JoinHandle<()>>,
}

impl Client {
    pub(crate) fn start(address: Address, wanted: LinkRequest, shared: Arc<Shared>) -> io::Result<Self> {
        let (stop, wake) = (Arc::<AtomicBool>::default(), Arc::new(control::event()?));
        let work = Work { address, wanted, shared, stop: Arc::clone(&stop), wake: Arc::clone(&wake) };
        let thread = control::start("memif-client", move || work.run())?;
        Ok(Self { stop, wake, thread: Some(thread) })
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
        let _ = self.wake.write(1);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

struct Work {
    address: Address,
    wanted: LinkRequest,
    shared: Arc<Shared>,
    stop: Arc<AtomicBool>,
    wake: Arc<EventFd>,
}

/// How a connection ended.
enum End {
    /// It is to be closed, for this reason.
    Here(String),
    /// The server closed it.
    There(String),
}

impl Work {
    fn run(self) {
        while !self.stops() {
            match Channel::connect(&self.address) {
                Ok(channel) => self.serve(&channel),
                Err(cause) => {
                    self.shared.fail(format!(
                        "cannot connect to '{}': {}",
                        self.address.text(),
                        cause.desc()
                    ));
                }
            }
            let until = Instant::now() + PAUSE;
            while !self.stops() && Instant::now() < until {
                control::wait(&self.wake, &[], Some(until));
            }
        }
    }

    fn stops(&self) -> bool {
        self.stop.load(Ordering::Acquire)
    }

    /// A connection from its beginning to its end.
    fn serve(&self, channel: &Channel) {
        let end = self.connection(channel);
        let why = match end {
            End::Here(why) => {
                channel.end(&why);
                why
            }
            End::There(why) => why,
        };
        if self.stops() {
            self.shared.set(None);
            return;
        }
        self.shared.fail(why);
        if self.shared.is_up() {
            self.shared.disconnected();
        }
    }

    fn connection(&self, channel: &Channel) -> End {
        let mut negotiation = negotiation::Client::new(self.wanted.clone());
        let (mut made, mut link): (Option<(Link, OwnedFd)>, Option<Arc<Link>>) = (None, None);
        let deadline = Instant::now() + PATIENCE;
        loop {
            if self.stops() {
                return End::Here("closed".into());
            }
            if link.as_ref().is_some_and(|link| link.is_bad()) {
                return End::Here("broken ring".into());
            }
            if link.is_none() && Instant::now() >= deadline {
                return End::Here("negotiation took too long".into());
            }
            let until = if link.is_some() { None } else { Some(deadline) };
            if control::wait(&self.wake, &[channel.as_fd()], until) != [true] {
                continue;
            }
            let message = match channel.receive() {
                Received::Message(message, _) => message,
                Received::Nothing => continue,
                Received::Unfit(why) => return End::Here(why.into()),
                Received::Ended => return End::There("server closed the connection".into()),
            };
            match negotiation.receive(message) {
                Ok(Next::Wait) => {}
                Ok(Next::Ended(why)) => return End::There(format!("server ended the connection: {why}")),
                Ok(Next::Send(message, attach)) => {
                    if let Err(why) = self.send(channel, &negotiation, &mut made, &message, attach) {
                        return End::Here(format!("cannot negotiate: {why}"));
                    }
                }
                Ok(Next::Up) => {
                    let Some((up, _)) = made.take() else { return End::Here("no region".into()) };
                    let up = Arc::new(up);
                    link = Some(Arc::clone(&up));
                    self.shared.set(Some(up));
                }
                Err(why) => return End::Here(why.into()),
            }
        }
    }

    /// Send a message, with what goes along; the region is made with the first.
    fn send(
        &self,
        channel: &Channel,
        negotiation: &negotiation::Client,
        made: &mut Option<(Link, OwnedFd)>,
        message: &Message,
        attach: Attach,
    ) -> io::Result<()> {
        let (link, file) = match made {
            Some(made) => made,
            None => {
                let layout = negotiation.layout().ok_or(Errno::EPROTO)?;
                made.insert(Link::client(layout, Arc::clone(&self.wake), control::interrupt)?)
            }
        };
        let file = match attach {
            Attach::Nothing => None,
            Attach::Region => Some(file.as_fd()),
            Attach::Interrupt { to_server, index } => {
                link.ring(to_server, index).map(|ring| ring.interrupt.as_fd())
            }
        };
        Ok(channel.send(message, file)?)
    }
}
