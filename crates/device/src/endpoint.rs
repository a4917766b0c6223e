//! Interface to the transport of devices' bytes: kernel sockets, or a stack of our own.
//!
//! An [`Endpoint`] belongs to one worker and shares nothing. It moves bytes and knows nothing of models, timers or
//! tallies; the [worker](crate::Worker) knows nothing of descriptors or packets. Where a loss is counted is the worker's
//! business, so a [`Connection`] only says how many datagrams became what.

use crate::conn_error::ConnError;
use protocol::media::{Channel, MediaOutbox};
use protocol::meter::Failure;
use protocol::model::Outbox;
use protocol::shared_socket::Framing;
use run::interfaces::Interfaces;
use run::{GroupPlan, SetupError};
use std::fmt::Debug;
use std::net::{IpAddr, SocketAddr};
use std::ops::Range;
use std::time::Duration;

/// Names a connection in [`Event`]s, so that one of an earlier connection is not taken for the present one's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Token(pub u64);

impl Token {
    /// Of the device in slot `slot`, for its connection number `generation`.
    pub fn new(slot: u32, generation: u32) -> Self {
        Self(u64::from(generation) << 32 | u64::from(slot))
    }

    /// Of a socket that devices share.
    pub fn shared(number: u32) -> Self {
        Self::new(u32::MAX, number)
    }

    /// The number of the shared socket that it is of, if it is of one.
    pub fn shared_number(self) -> Option<u32> {
        (self.slot() == u32::MAX).then(|| self.generation())
    }

    /// The slot.
    pub fn slot(self) -> u32 {
        self.0 as u32
    }

    /// Which of the slot's connections.
    pub fn generation(self) -> u32 {
        (self.0 >> 32) as u32
    }
}

/// Something can be done with a connection again. Told once each time (edge-triggered).
#[derive(Debug, Clone, Copy)]
pub struct Event {
    /// Which.
    pub token: Token,
    /// [`Endpoint::receive`] may have something.
    pub readable: bool,
    /// [`Endpoint::send`] may take more, or the connection came up or failed to.
    pub writable: bool,
    /// The peer has said that it sends no more, or the connection broke: what came before is still to be received.
    pub ended: bool,
}

/// Result of [`Endpoint::receive`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Input {
    /// Nothing more for now.
    Dry,
    /// Something came that is not for the model: TLS's own records, other hosts' pings. [`Endpoint::send`] is due.
    Aside,
    /// So many bytes, in the buffer given.
    Bytes {
        /// How many.
        len: usize,
        /// There is no more for now, unless the peer [has ended](Event::ended) meanwhile.
        dry: bool,
    },
    /// So many datagrams found our own receive queue full: no loss of the network's.
    Dropped(u64),
    /// The peer has closed.
    End {
        /// Whether all is here that it sent. TLS that ends without close_notify does not know (RFC 8446 section 6.1).
        complete: bool,
    },
}

/// A datagram received from a media socket.
#[derive(Debug, Clone, Copy)]
pub struct MediaInput {
    /// Its length.
    pub len: usize,
    /// Who sent it.
    pub from: SocketAddr,
    /// How long ago it arrived at this host.
    pub age: Duration,
}

/// Datagrams that came to a shared socket, or messages to a shared connection, and the memory for them.
#[derive(Debug, Default)]
pub struct Batch {
    /// Number of their group in the profile.
    pub group: usize,
    /// Their bytes.
    pub bytes: Box<[u8]>,
    /// Where each of them is, in the order in which they came.
    pub datagrams: Vec<Datagram>,
    /// How many datagrams of others than the group's target came.
    pub strangers: u64,
    /// How many datagrams the socket had no room for since the last batch.
    pub dropped: u64,
    /// Datagrams that were sent and came back with an error, or as much of them as did.
    pub refused: Vec<(ConnError, Vec<u8>)>,
    /// There may be more.
    pub more: bool,
}

/// One datagram of a [`Batch`].
#[derive(Debug, Clone)]
pub struct Datagram {
    /// Its place in the bytes.
    pub place: Range<usize>,
    /// Where it came from.
    pub from: SocketAddr,
    /// How long it had waited when the batch was read, where the kernel says.
    pub waited: Duration,
}

/// Opens connections and moves their bytes. Nothing here waits but [`poll`](Self::poll).
pub trait Endpoint {
    /// A connection of this endpoint.
    type Conn: Connection;

    /// Whether [`poll`](Self::poll) polls by itself, so that an answer wakes nobody and a rest before would only delay it.
    const POLLS: bool = false;

    /// Most events that a [`poll`](Self::poll) tells.
    const EVENTS: usize = usize::MAX;

    /// Begin to connect device number `device` of `group` to the target's address number `address`; events name the
    /// connection by `token`.
    fn open(
        &mut self,
        group: &GroupPlan,
        device: u32,
        address: usize,
        token: Token,
    ) -> Result<Self::Conn, ConnError>;

    /// Send what is in `outbox`, which is empty afterwards, behind what an earlier call could not; what does not go now
    /// is kept. With an empty one: move on what there is to move, a handshake included.
    fn send(&mut self, conn: &mut Self::Conn, outbox: &mut Outbox) -> Result<(), ConnError>;

    /// What came, once. For datagrams one of them.
    fn receive(&mut self, conn: &mut Self::Conn, buffer: &mut [u8]) -> Result<Input, ConnError>;

    /// Say goodbye and close. What was not sent by now is not.
    fn close(&mut self, conn: Self::Conn) -> Closed;

    /// What came to shared socket number `socket`; `framing` says where messages of a group begin in a stream. Endpoints
    /// without such sockets leave `batch` as it is.
    fn receive_shared(
        &mut self,
        socket: u32,
        framing: impl Fn(usize, &[u8]) -> Framing,
        batch: &mut Batch,
    ) -> Result<(), ConnError> {
        let _none_is_shared = (socket, framing, batch);
        Ok(())
    }

    /// Send what waits for shared sockets.
    fn flush(&mut self) {}

    /// The messages of a shared socket that `conn` sends go to `peer` from now on.
    fn answer_to(&mut self, conn: &mut Self::Conn, peer: SocketAddr) {
        let _has_one_peer = (conn, peer);
    }

    /// Wait for events, up to `timeout`, and put them into `events`, which is empty.
    fn poll(&mut self, timeout: Duration, events: &mut Vec<Event>) -> Result<(), SetupError>;

    /// Open media sockets at `ip` for the device in `slot`; the address of that for RTP.
    fn open_media(&mut self, slot: u32, ip: IpAddr) -> Result<SocketAddr, ConnError> {
        let _has_none = (slot, ip);
        Err(ConnError::new(Failure::Local, "this transport has no media sockets"))
    }

    /// Send datagrams from the media sockets of the device in `slot`. How many were not taken, and why the last was not.
    fn send_media(&mut self, slot: u32, outbox: &MediaOutbox) -> Option<ConnError> {
        let _has_none = (slot, outbox);
        None
    }

    /// Take what the last [`poll`](Self::poll) found: media sockets that have something.
    fn ready_media(&mut self, ready: &mut Vec<(u32, Channel)>) {
        let _has_none = ready;
    }

    /// A datagram that came to a media socket, put into `buffer`. It is told again while there is another.
    fn receive_media(&mut self, slot: u32, channel: Channel, buffer: &mut [u8]) -> Option<MediaInput> {
        let _has_none = (slot, channel, buffer);
        None
    }

    /// Close the media sockets of the device in `slot`. How many datagrams their queues had no room for.
    fn close_media(&mut self, slot: u32) -> u64 {
        let _has_none = slot;
        0
    }

    /// What its own interfaces counted since the run began; of the kernel's it knows nothing.
    fn interfaces(&mut self) -> Interfaces {
        Interfaces::new()
    }
}

/// State of a connection.
pub trait Connection: Debug {
    /// Whether it keeps messages apart.
    fn is_datagram(&self) -> bool;

    /// Whether bytes can be exchanged: it is connected, and TLS has shaken hands.
    fn is_up(&self) -> bool;

    /// Our address and port; `None` where ports are unknown to it.
    fn local(&self) -> Option<SocketAddr>;

    /// The other end, where it is known. Datagrams may be sent to others too then ([`Outbox::elsewhere`]).
    fn peer(&self) -> Option<SocketAddr> {
        None
    }

    /// Who sent the datagram that was received last, where that is not the [peer](Self::peer).
    fn stranger(&self) -> Option<SocketAddr> {
        None
    }

    /// Whether all that was given to it has been sent.
    fn is_flushed(&self) -> bool;

    /// Bytes of the stream that it was given so far, with those of TLS around them.
    fn queued_bytes(&self) -> u64;

    /// How many of them have left this host. Unless it is to be `exact`, what the system has taken in small pieces counts.
    fn sent_bytes(&mut self, exact: bool) -> u64;

    /// Datagrams that did not get through; told once each.
    fn take_refused(&mut self) -> Option<ConnError>;
}

/// Datagrams that a closed connection did not send or take.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Closed {
    /// Datagrams that were given to it and never sent.
    pub unsent: u64,
    /// Datagrams dropped by its receive queue since that was last told of.
    pub dropped: u64,
}
