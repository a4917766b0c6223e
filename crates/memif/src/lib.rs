//! memif 2.0: packets between two processes through shared memory, as FD.io VPP, libmemif and DPDK's `net_memif` do.
//!
//! One end is the server, which listens at a unix socket; the other is the client, which makes the memory and the rings in
//! it. Over the socket they only agree on those, and see each other go.
//!
//! [`Memif::open`] gives a handle and, for each queue, a [`Receiver`] and a [`Sender`], each one thread's. They work, with
//! nothing to do, while there is no connection. A [`Receiver`] and a [`Sender`] fetch a burst's descriptors and frames
//! before they are copied: the other core wrote them, and one wait is then for all.
//!
//! The other end is not trusted: nothing that it writes, to the memory or the socket, is used unchecked.

#![allow(unsafe_code)]

mod client;
mod control;
mod copy;
mod error;
mod layout;
mod link;
mod negotiation;
mod protocol;
mod receiver;
mod region;
mod ring;
mod sender;
mod server;
mod socket;

pub use error::Error;
pub use receiver::{Frames, Receiver};
pub use sender::{Sender, Space};

use layout::Layout;
use link::Shared;
use negotiation::LinkRequest;
use socket::Address;
use std::path::PathBuf;
use std::sync::Arc;

/// Most frames that are received or prepared to be sent at once.
pub const BURST: usize = 128;

/// Which end of an interface.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// Connects, and makes the memory ("slave").
    Client,
    /// Listens ("master").
    Server,
}

/// How an interface is set up.
#[derive(Debug, Clone)]
pub struct Config {
    /// Which end it is.
    pub role: Role,
    /// The socket's path, or its abstract name.
    pub socket: PathBuf,
    /// Whether `socket` is a name in the abstract namespace: a NUL and its bytes, as DPDK 22.11 has it. A client also tries
    /// the name filled up with NULs, as older versions have it.
    pub abstract_socket: bool,
    /// Which of the interfaces at the socket.
    pub id: u32,
    /// What a client must know: 1 to 24 bytes. DPDK knows 23.
    pub secret: Option<String>,
    /// Slots of a ring, as a power of two, 1 to 14. The client decides.
    pub ring_size_log2: u8,
    /// Bytes of a slot's buffer, 64 to 65536. The client decides.
    pub buffer_size: u32,
    /// Receive queues, 1 to 255; there are as many as the other end has to send to them.
    pub rx_queues: u16,
    /// Transmit queues, 1 to 255, likewise.
    pub tx_queues: u16,
}

impl Config {
    /// Interface 0 with one queue each way, of 1024 slots of 2048 bytes.
    pub fn new(role: Role, socket: impl Into<PathBuf>) -> Self {
        Self {
            role,
            socket: socket.into(),
            abstract_socket: false,
            id: 0,
            secret: None,
            ring_size_log2: 10,
            buffer_size: 2048,
            rx_queues: 1,
            tx_queues: 1,
        }
    }

    fn check(&self) -> Result<(), Error> {
        let wrong = |what, allowed| Err(Error::Config { what, allowed });
        if !(1..=ring::MOST_LOG2).contains(&self.ring_size_log2) {
            return wrong("ring size", "2^1 to 2^14");
        }
        if !(64..=65536).contains(&self.buffer_size) {
            return wrong("buffer size", "64 to 65536 bytes");
        }
        if ![self.rx_queues, self.tx_queues].iter().all(|queues| (1..=negotiation::RINGS).contains(queues)) {
            return wrong("queues", "1 to 255");
        }
        let fits = |secret: &str| (1..=protocol::SECRET).contains(&secret.len()) && !secret.contains('\0');
        if !self.secret.as_deref().is_none_or(fits) {
            return wrong("secret", "1 to 24 bytes without NUL");
        }
        let layout = Layout {
            to_server: self.tx_queues,
            to_client: self.rx_queues,
            ring_size_log2: self.ring_size_log2,
            buffer_size: self.buffer_size,
        };
        if self.role == Role::Client && layout.size() > layout::MOST {
            return wrong("memory (queues of both ways x ring size x buffer size)", "at most 1 GiB");
        }
        Ok(())
    }
}

/// The thread that looks after the connection; closed as it goes.
#[derive(Debug)]
enum End {
    Client { _client: client::Client },
    Server { _server: server::Server },
}

/// An interface. Dropped, it closes: the other end is told, and a server's socket goes with its last interface.
#[derive(Debug)]
pub struct Memif {
    shared: Arc<Shared>,
    _end: End,
}

impl Memif {
    /// Open an interface, and give the ends of its queues. A server listens from now on; a client tries to connect at
    /// once, and goes on trying every 100 ms.
    pub fn open(config: Config) -> Result<(Self, Vec<Receiver>, Vec<Sender>), Error> {
        config.check()?;
        let address = Address::of(&config)?;
        let shared = Arc::<Shared>::default();
        let receivers =
            (0..config.rx_queues).map(|queue| Receiver::new(Arc::clone(&shared), queue)).collect();
        let sender = |queue| Sender::new(Arc::clone(&shared), queue, config.buffer_size);
        let senders = (0..config.tx_queues).map(sender).collect();
        let held = Arc::clone(&shared);
        let end = match config.role {
            Role::Client => {
                let wanted = LinkRequest {
                    id: config.id,
                    secret: config.secret,
                    to_server: config.tx_queues,
                    to_client: config.rx_queues,
                    ring_size_log2: config.ring_size_log2,
                    buffer_size: config.buffer_size,
                };
                let socket = address.text();
                let client = client::Client::start(address, wanted, held);
                let client = client.map_err(|cause| Error::System { action: "watching", socket, cause })?;
                End::Client { _client: client }
            }
            Role::Server => {
                let queues = [config.rx_queues, config.tx_queues];
                let server = server::Server::start(address, config.id, config.secret, queues, held)?;
                End::Server { _server: server }
            }
        };
        Ok((Self { shared, _end: end }, receivers, senders))
    }

    /// Whether it is connected now.
    pub fn is_up(&self) -> bool {
        self.shared.is_up()
    }

    /// Rings to the other end that the connection has; `None`: it is down. Senders beyond them send nothing.
    pub fn tx_rings(&self) -> Option<usize> {
        self.shared.tx_rings()
    }

    /// How many connections the other end has ended: by a word, by going, or by breaking the rules.
    pub fn losses(&self) -> u32 {
        self.shared.losses()
    }

    /// What last went wrong.
    pub fn last_error(&self) -> Option<String> {
        self.shared.last_error()
    }
}
