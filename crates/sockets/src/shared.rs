//! UDP sockets that devices share: received in batches with the kernel's time stamps, sent many at a time.
//!
//! The kernel hands over datagrams of one sender and size that came close together as one buffer (UDP_GRO), and cuts one buffer
//! into datagrams of one size (UDP_SEGMENT). So what devices send waits until the worker looks for events, grouped by
//! destination and size; datagrams of one device stay in their order.

use crate::datagram::{GSO_BYTES, GSO_SEGMENTS, TRIES, tell_errors};
use crate::receive_queue::{self, Overflows};
use device::{Batch, ConnError, Datagram};
use nix::cmsg_space;
use nix::errno::Errno as NixErrno;
use nix::sys::socket::{
    ControlMessage, ControlMessageOwned, MsgFlags, MultiHeaders, RecvMsg, SockaddrStorage, recvmmsg, recvmsg,
    sendmsg, setsockopt, sockopt,
};
use nix::sys::time::TimeSpec;
use protocol::meter::Failure;
use protocol::model::Outbox;
use run::GroupPlan;
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, connect, getsockname, ipproto, socket_with};
use std::collections::{HashSet, VecDeque};
use std::io::{IoSlice, IoSliceMut};
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::rc::Rc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Buffers read at once, and the size of each: what the kernel may put together.
const BUFFERS: usize = 16;
const BUFFER: usize = 1 << 16;
/// Room for datagrams on their way to the network, bytes.
const SEND_ROOM: usize = 4 << 20;
/// Most bytes that wait for the socket: what is more is refused.
const WAITING_MAX: usize = 16 << 20;
/// From so many buffers on that were read in a row the queue may have been full.
const MANY_READS: usize = 8;
/// Most addresses beside those of the peers that datagrams are taken from.
const ELSEWHERE_MAX: usize = 1 << 16;
/// Most errors taken at once, and as much as is read of the datagram that came back with one.
const ERRORS: usize = 64;
const QUOTED: usize = 600;

/// A socket, and to whom devices send from it at first.
#[derive(Debug)]
pub(crate) struct Path {
    pub socket: u32,
    pub local: SocketAddr,
    pub peer: SocketAddr,
}

/// A device's share of a socket. There may be a million of them.
#[derive(Debug)]
pub(crate) struct Member {
    pub path: Rc<Path>,
    /// Whom it answers, where that is another than the path's peer.
    pub other: Option<Box<SocketAddr>>,
    /// Where its last datagram waits: in the queue as it was filled for the `flush`-th time, under this number.
    flush: u32,
    last: u32,
}

impl Member {
    pub fn new(path: Rc<Path>) -> Self {
        Self { path, other: None, flush: 0, last: 0 }
    }

    fn peer(&self) -> SocketAddr {
        self.other.as_deref().copied().unwrap_or(self.path.peer)
    }
}

/// Datagrams of one size to one destination.
#[derive(Debug)]
struct Train {
    to: SocketAddr,
    size: usize,
    bytes: Vec<u8>,
}

/// A socket, and what waits to be sent.
#[derive(Debug)]
pub(crate) struct SharedUdp {
    fd: OwnedFd,
    pub local: SocketAddr,
    /// Number of its group, of its address among the group's sources, and whether it is of IPv4.
    pub key: (usize, usize, bool),
    /// Whom it takes datagrams from.
    peers: Box<[SocketAddr]>,
    any_port: bool,
    trains: VecDeque<Train>,
    /// Emptied ones, whose memory is used again.
    spare: Vec<Vec<u8>>,
    waiting: usize,
    /// So many of the first trains take no more.
    closed: usize,
    /// How many trains were sent before the first that waits, and how often the queue was emptied.
    gone: u32,
    flush: u32,
    /// Datagrams of this size and larger are not cut by the kernel here.
    uncut: usize,
    refused: Vec<(ConnError, Vec<u8>)>,
    /// Buffers read since the socket was asked what it dropped, and what it had dropped by then.
    reads: usize,
    dropped: u32,
    /// Datagrams of others than the peers, since the last batch.
    strangers: u64,
    /// To whom something was sent that is no peer: datagrams are taken from these too.
    elsewhere: HashSet<SocketAddr>,
}

impl SharedUdp {
    /// Open and bind the socket of worker number `worker` for devices of `group` that send from `source`.
    pub fn open(
        group: &GroupPlan,
        worker: usize,
        source: Option<IpAddr>,
        key: (usize, usize, bool),
        peer: SocketAddr,
    ) -> Result<Self, ConnError> {
        let fail = |e| ConnError::errno(e, "socket");
        let fd = udp(peer.is_ipv4()).map_err(fail)?;
        tell_errors(&fd, peer.is_ipv6()).map_err(fail)?;
        receive_queue::enlarge(&fd, group.receive_room);
        let _what_is_allowed = setsockopt(&fd, sockopt::SndBuf, &SEND_ROOM);
        // without them single datagrams come, and delays end when they are read
        let _as_the_kernel_has_it = setsockopt(&fd, sockopt::UdpGroSegment, &true);
        let _stamped_where_possible = setsockopt(&fd, sockopt::ReceiveTimestampns, &true);
        let ip = match source.filter(|source| source.is_ipv4() == peer.is_ipv4()) {
            Some(source) => source,
            None => route(peer)?,
        };
        let listen = group.shared.and_then(|shared| shared.listen);
        let port = listen.map_or(0, |port| port.saturating_add(u16::try_from(worker).unwrap_or(u16::MAX)));
        let address = SocketAddr::new(ip, port);
        bind(&fd, &address).map_err(|e| ConnError::errno(e, format!("bind to {address}")))?;
        let local = getsockname(&fd).map_err(fail)?;
        Ok(Self {
            local: SocketAddr::try_from(local).unwrap_or(address),
            fd,
            key,
            peers: group.addresses.iter().collect(),
            any_port: listen.is_some(),
            trains: VecDeque::new(),
            spare: Vec::new(),
            waiting: 0,
            closed: 0,
            gone: 0,
            flush: 1,
            uncut: usize::MAX,
            refused: Vec::new(),
            reads: 0,
            dropped: 0,
            strangers: 0,
            elsewhere: HashSet::new(),
        })
    }

    fn is_peer(&self, from: SocketAddr) -> bool {
        let is = |peer: &SocketAddr| peer.ip() == from.ip() && (self.any_port || peer.port() == from.port());
        self.peers.iter().any(is) || self.elsewhere.contains(&from)
    }

    /// Whether something waits for the worker that no event tells of.
    pub fn has_refused(&self) -> bool {
        !self.refused.is_empty()
    }

    /// Whether datagrams wait that the socket did not take.
    pub fn is_waiting(&self) -> bool {
        !self.trains.is_empty()
    }

    /// Queue the datagrams of a device.
    pub fn queue(&mut self, member: &mut Member, outbox: &mut Outbox) -> Result<(), ConnError> {
        let result = if self.waiting > WAITING_MAX {
            let refused = ConnError::new(Failure::Local, "the socket takes no more datagrams");
            Err(refused.datagrams(outbox.datagrams()))
        } else {
            let mut rest = &outbox.bytes[..];
            let mut sizes = outbox.sizes.iter();
            while !rest.is_empty() {
                let alike = if outbox.segment == 0 { rest.len() } else { outbox.segment };
                let size = sizes.next().copied().unwrap_or(alike).clamp(1, rest.len());
                let (datagram, behind) = rest.split_at(size);
                self.push(member, member.peer(), datagram);
                rest = behind;
            }
            for (to, datagram) in &outbox.elsewhere {
                if !self.is_peer(*to) && self.elsewhere.len() < ELSEWHERE_MAX {
                    self.elsewhere.insert(*to);
                }
                self.push(member, *to, datagram);
            }
            Ok(())
        };
        outbox.clear();
        result
    }

    fn push(&mut self, member: &mut Member, to: SocketAddr, datagram: &[u8]) {
        let size = datagram.len();
        let last = if member.flush == self.flush { member.last.wrapping_sub(self.gone) as usize } else { 0 };
        let earliest = last.max(self.closed);
        let most = if size < self.uncut { GSO_SEGMENTS } else { 1 };
        let fits = |train: &Train| {
            let full = train.bytes.len() + size > GSO_BYTES || train.bytes.len() >= most * size;
            train.size == size && train.to == to && !full
        };
        let found = self.trains.iter().enumerate().skip(earliest).rev().find(|(_, train)| fits(train));
        let place = match found.map(|(place, _)| place) {
            Some(place) => place,
            None => {
                let bytes = self.spare.pop().unwrap_or_default();
                self.trains.push_back(Train { to, size, bytes });
                self.trains.len() - 1
            }
        };
        self.trains[place].bytes.extend_from_slice(datagram);
        self.waiting += size;
        member.flush = self.flush;
        member.last = self.gone.wrapping_add(place as u32);
    }

    /// Send what waits, as much as the socket takes.
    pub fn flush(&mut self) {
        while let Some(train) = self.trains.front() {
            let cut = train.bytes.len() > train.size;
            match self.give(train, cut) {
                Ok(None) => {}
                Ok(Some(earlier)) => self.take_errors(earlier),
                Err(Errno::AGAIN | Errno::NOBUFS) => return,
                // segments larger than the path's MTU: the kernel does not cut those
                Err(Errno::INVAL | Errno::MSGSIZE | Errno::IO) if cut => {
                    self.uncut = self.uncut.min(train.size);
                    self.divide();
                    continue;
                }
                Err(e) if ConnError::remote(e, "").why != Failure::Local => self.take_errors(e),
                Err(e) => {
                    let times = (train.bytes.len() / train.size.max(1)) as u64;
                    self.refused.push((ConnError::errno(e, "send").datagrams(times), Vec::new()));
                }
            }
            self.pop();
        }
        self.flush = self.flush.wrapping_add(1).max(1);
        self.gone = 0;
    }

    fn pop(&mut self) {
        if let Some(mut train) = self.trains.pop_front() {
            self.waiting -= train.bytes.len();
            train.bytes.clear();
            self.spare.push(train.bytes);
            self.gone = self.gone.wrapping_add(1);
            self.closed = self.closed.saturating_sub(1);
        }
    }

    /// Have the datagrams of the first train sent one by one.
    fn divide(&mut self) {
        let Some(train) = self.trains.pop_front() else { return };
        for datagram in train.bytes.chunks(train.size.max(1)).rev() {
            self.trains.push_front(Train { to: train.to, size: train.size, bytes: datagram.to_vec() });
        }
        // numbers of trains have changed: what comes now is queued behind all of them
        self.flush = self.flush.wrapping_add(1).max(1);
        self.gone = 0;
        self.closed = self.trains.len();
    }

    /// Give one train to the socket. An error about an earlier datagram is told in place of sending, once each: the last of
    /// these comes back too.
    fn give(&self, train: &Train, cut: bool) -> Result<Option<Errno>, Errno> {
        let size = u16::try_from(train.size).unwrap_or(u16::MAX);
        let (with, without) = ([ControlMessage::UdpGsoSegments(&size)], []);
        let control: &[ControlMessage<'_>] = if cut { &with } else { &without };
        let (to, bytes) = (SockaddrStorage::from(train.to), [IoSlice::new(&train.bytes)]);
        let mut earlier = None;
        for _ in 0..TRIES {
            match sendmsg(self.fd.as_raw_fd(), &bytes, control, MsgFlags::MSG_NOSIGNAL, Some(&to)) {
                Ok(_) => return Ok(earlier),
                Err(NixErrno::EINTR) => {}
                Err(e) => {
                    let e = Errno::from_raw_os_error(e as i32);
                    if ConnError::remote(e, "").why == Failure::Local {
                        return Err(e);
                    }
                    earlier = Some(e);
                }
            }
        }
        Err(earlier.unwrap_or(Errno::AGAIN))
    }

    /// Read what came, once.
    pub fn receive(&mut self, overflows: &mut Overflows, batch: &mut Batch) -> Result<(), ConnError> {
        batch.datagrams.clear();
        batch.refused.clear();
        batch.refused.append(&mut self.refused);
        (batch.group, batch.dropped, batch.more) = (self.key.0, 0, false);
        if batch.bytes.len() != BUFFERS * BUFFER {
            batch.bytes = vec![0; BUFFERS * BUFFER].into();
        }
        let received = self.read(batch);
        let count = match received {
            Ok(count) => count,
            Err(Errno::AGAIN | Errno::INTR) => 0,
            Err(e) if ConnError::remote(e, "").why != Failure::Local => {
                self.take_errors(e);
                batch.refused.append(&mut self.refused);
                batch.more = true;
                0
            }
            Err(e) => return Err(ConnError::errno(e, "receive")),
        };
        batch.strangers = std::mem::take(&mut self.strangers);
        batch.more |= count == BUFFERS;
        self.reads += count;
        if self.reads >= MANY_READS && (!batch.more || self.reads >= 64 * BUFFERS) {
            self.reads = 0;
            let now = receive_queue::dropped(&self.fd);
            let more = now.wrapping_sub(std::mem::replace(&mut self.dropped, now));
            batch.dropped = overflows.of(more.into());
        }
        Ok(())
    }

    /// Read up to [`BUFFERS`] buffers, and part them into datagrams. How many buffers there were.
    fn read(&mut self, batch: &mut Batch) -> Result<usize, Errno> {
        // made for each call: the kernel shortens the control buffers of those that it fills
        let mut headers =
            MultiHeaders::<SockaddrStorage>::preallocate(BUFFERS, Some(cmsg_space!(TimeSpec, i32)));
        let mut slices: Vec<[IoSliceMut<'_>; 1]> =
            batch.bytes.chunks_mut(BUFFER).map(|buffer| [IoSliceMut::new(buffer)]).collect();
        let flags = MsgFlags::MSG_DONTWAIT;
        let received = recvmmsg(self.fd.as_raw_fd(), &mut headers, slices.iter_mut(), flags, None)
            .map_err(|e| Errno::from_raw_os_error(e as i32))?;
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let mut count = 0;
        for message in received {
            let at = count * BUFFER;
            count += 1;
            let Some(from) = message.address.as_ref().and_then(address) else { continue };
            if !self.is_peer(from) {
                self.strangers += 1;
                continue;
            }
            let (stamp, segment) = control(&message);
            let waited = stamp.map_or(Duration::ZERO, |stamp| now.saturating_sub(stamp));
            let segment = segment.unwrap_or(message.bytes).max(1);
            for start in (0..message.bytes).step_by(segment) {
                let end = (start + segment).min(message.bytes);
                batch.datagrams.push(Datagram { place: at + start..at + end, from, waited });
            }
        }
        Ok(count)
    }

    /// Take the errors that are queued, with the datagrams that came back; the socket told of `e`.
    fn take_errors(&mut self, e: Errno) {
        let mut taken = 0;
        while taken < ERRORS {
            let mut quoted = [0; QUOTED];
            let mut slices = [IoSliceMut::new(&mut quoted)];
            let flags = MsgFlags::MSG_ERRQUEUE | MsgFlags::MSG_DONTWAIT;
            let Ok(message) = recvmsg::<SockaddrStorage>(self.fd.as_raw_fd(), &mut slices, None, flags)
            else {
                break;
            };
            let length = message.bytes.min(QUOTED);
            self.refused.push((ConnError::remote(e, "send").datagrams(1), quoted[..length].to_vec()));
            taken += 1;
        }
        if taken == 0 {
            self.refused.push((ConnError::remote(e, "send").datagrams(1), Vec::new()));
        }
    }
}

impl AsFd for SharedUdp {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

fn udp(v4: bool) -> Result<OwnedFd, Errno> {
    let family = if v4 { AddressFamily::INET } else { AddressFamily::INET6 };
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    socket_with(family, SocketType::DGRAM, flags, Some(ipproto::UDP))
}

/// The address of ours from which `peer` is reached.
pub(crate) fn route(peer: SocketAddr) -> Result<IpAddr, ConnError> {
    let fail = |e| ConnError::route(e, format!("connect to {peer}"));
    let fd = udp(peer.is_ipv4()).map_err(fail)?;
    connect(&fd, &peer).map_err(fail)?;
    let local = getsockname(&fd).map_err(fail)?;
    SocketAddr::try_from(local).map(|local| local.ip()).map_err(|_| fail(Errno::AFNOSUPPORT))
}

fn address(address: &SockaddrStorage) -> Option<SocketAddr> {
    match (address.as_sockaddr_in(), address.as_sockaddr_in6()) {
        (Some(v4), _) => Some(SocketAddr::V4((*v4).into())),
        (_, Some(v6)) => Some(SocketAddr::V6((*v6).into())),
        _ => None,
    }
}

/// When a buffer came, and of what size its datagrams are.
fn control(message: &RecvMsg<'_, '_, SockaddrStorage>) -> (Option<Duration>, Option<usize>) {
    let (mut stamp, mut segment) = (None, None);
    for one in message.cmsgs().into_iter().flatten() {
        match one {
            ControlMessageOwned::ScmTimestampns(at) => stamp = Some(Duration::from(at)),
            ControlMessageOwned::UdpGroSegments(size) => segment = usize::try_from(size).ok(),
            _ => {}
        }
    }
    (stamp, segment)
}

#[cfg(test)]
mod tests {
    use super::*;
    use run::{Plan, Trial};
    use std::net::UdpSocket;

    /// A shared socket that sends to `server` and listens to it, or on a port of its own.
    fn socket(server: SocketAddr, listen: Option<u16>) -> SharedUdp {
        let listen = listen.map_or(String::new(), |port| format!(r#", "port": {port}"#));
        let model = format!(r#"{{"sip": {{"sockets": "shared"{listen}}}}}"#);
        let text = format!(
            r#"{{"name": "t", "groups": [{{"name": "g", "target": "sip://{server}", "model": {model}}}]}}"#
        );
        let plan = Plan::new(profile::load(&text).expect("good"), &Trial::default()).expect("a plan");
        SharedUdp::open(&plan.groups[0], 0, None, (0, 0, server.is_ipv4()), server).expect("a socket")
    }

    fn server(address: &str) -> (UdpSocket, SocketAddr) {
        let server = UdpSocket::bind(address).expect("a socket");
        server.set_read_timeout(Some(Duration::from_secs(5))).expect("a timeout");
        let address = server.local_addr().expect("an address");
        (server, address)
    }

    fn member(socket: &SharedUdp, peer: SocketAddr) -> Member {
        Member::new(Rc::new(Path { socket: 0, local: socket.local, peer }))
    }

    fn send(socket: &mut SharedUdp, member: &mut Member, datagrams: &[&[u8]]) {
        let mut outbox = Outbox::default();
        datagrams.iter().for_each(|datagram| outbox.push_datagram(datagram));
        socket.queue(member, &mut outbox).expect("room");
        assert!(outbox.bytes.is_empty());
    }

    fn received(server: &UdpSocket, count: usize) -> Vec<Vec<u8>> {
        let mut buffer = [0; 2048];
        (0..count)
            .map(|_| {
                let size = server.recv(&mut buffer).expect("a datagram");
                buffer[..size].to_vec()
            })
            .collect()
    }

    fn receive(socket: &mut SharedUdp) -> Batch {
        let mut batch = Batch::default();
        let mut overflows = Overflows::new();
        for _ in 0..500 {
            socket.receive(&mut overflows, &mut batch).expect("readable");
            if !batch.datagrams.is_empty() || !batch.refused.is_empty() || batch.strangers > 0 {
                break;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        batch
    }

    #[test]
    fn datagrams_of_one_device_stay_in_their_order() {
        for address in ["127.0.0.1:0", "[::1]:0"] {
            let (server, to) = server(address);
            let mut socket = socket(to, None);
            let [mut first, mut second] = [(); 2].map(|()| member(&socket, to));
            // sizes alike are put together over devices, but no later one before an earlier of its device
            send(&mut socket, &mut second, &[b"second:bye"]);
            send(&mut socket, &mut first, &[b"first:ack1", b"first:longer", b"first:bye1"]);
            send(&mut socket, &mut second, &[b"second:more"]);
            assert_eq!(socket.trains.len(), 4);
            socket.flush();
            let all = received(&server, 5);
            let of =
                |name: &[u8]| all.iter().filter(|one| one.starts_with(name)).cloned().collect::<Vec<_>>();
            assert_eq!(of(b"first"), [&b"first:ack1"[..], b"first:longer", b"first:bye1"]);
            assert_eq!(of(b"second"), [&b"second:bye"[..], b"second:more"]);
        }
    }

    #[test]
    fn what_came_together_is_parted_again_and_has_its_time() {
        let (server, to) = server("127.0.0.1:0");
        let mut ours = socket(to, None);
        let mut device = member(&ours, to);
        let many: Vec<Vec<u8>> = (0..100u8).map(|n| vec![n; 300]).collect();
        send(&mut ours, &mut device, &many.iter().map(Vec::as_slice).collect::<Vec<_>>());
        ours.flush();
        assert_eq!(received(&server, 100), many);
        many.iter().for_each(|one| assert_eq!(server.send_to(one, ours.local).ok(), Some(300)));
        std::thread::sleep(Duration::from_millis(5));
        let mut back = Vec::new();
        while back.len() < 100 {
            let batch = receive(&mut ours);
            assert!(
                batch.datagrams.iter().all(|one| one.from == to && one.waited >= Duration::from_millis(4))
            );
            back.extend(batch.datagrams.iter().map(|one| batch.bytes[one.place.clone()].to_vec()));
        }
        assert_eq!(back, many);
    }

    #[test]
    fn segments_of_another_socket_of_ours_arrive_whole() {
        let (_server, to) = server("127.0.0.1:0");
        let mut a = socket(to, None);
        let mut b = socket(a.local, None);
        // each is the other's target
        a.peers = [b.local].into();
        let mut device = member(&b, a.local);
        let many: Vec<Vec<u8>> = (0..150u8).map(|n| vec![n; 200 + usize::from(n % 3)]).collect();
        send(&mut b, &mut device, &many.iter().map(Vec::as_slice).collect::<Vec<_>>());
        b.flush();
        let mut all = Vec::new();
        while all.len() < many.len() {
            let batch = receive(&mut a);
            assert!(!batch.datagrams.is_empty(), "{} of {}", all.len(), many.len());
            all.extend(batch.datagrams.iter().map(|one| batch.bytes[one.place.clone()].to_vec()));
        }
        assert_eq!(all, many);
    }

    #[test]
    fn strangers_are_counted_and_not_heard() {
        let (server, to) = server("127.0.0.1:0");
        let (stranger, _) = self::server("127.0.0.1:0");
        let mut ours = socket(to, None);
        stranger.send_to(b"forged", ours.local).expect("sent");
        let batch = receive(&mut ours);
        assert_eq!((batch.strangers, batch.datagrams.len()), (1, 0));
        server.send_to(b"true", ours.local).expect("sent");
        let batch = receive(&mut ours);
        assert_eq!((batch.strangers, batch.datagrams.len()), (0, 1));
    }

    #[test]
    fn a_datagram_that_nobody_takes_comes_back() {
        let (server, to) = server("127.0.0.1:0");
        drop(server);
        let mut ours = socket(to, None);
        let mut device = member(&ours, to);
        send(&mut ours, &mut device, &[b"REGISTER sip:h SIP/2.0"]);
        ours.flush();
        let batch = receive(&mut ours);
        let [(why, quoted)] = &batch.refused[..] else { panic!("{:?}", batch.refused) };
        assert_eq!((why.why, &quoted[..]), (Failure::Refused, &b"REGISTER sip:h SIP/2.0"[..]));
    }
}
