//! A port whose flows two stacks share: whichever receives a frame, its owner gets it, and nobody else answers.

use crate::datagrams::error;
use crate::wire::{Frames, MS, config, ip};
use stack::{
    Arrival, DatagramError, DropReason, Handle, Received, Recipient, SendOutcome, Share, SocketHandle,
    SocketKind, Stack, TcpConfig,
};
use std::net::SocketAddr;

/// Two workers of side 0, and a stack at the other end.
struct Shared {
    workers: [Stack; 2],
    peer: Stack,
    now: u64,
    /// Frames that one worker received for the other.
    redirected: usize,
    /// The worker whose queue the port uses; `None`: each in turn.
    queue: Option<usize>,
    frames: usize,
}

impl Shared {
    fn new(queue: Option<usize>) -> Self {
        let of = |worker| {
            Stack::new(stack::Config {
                share: Share { worker, workers: 2 },
                ..config(0, TcpConfig::default())
            })
        };
        let peer = Stack::new(config(1, TcpConfig::default()));
        Self { workers: [of(0), of(1)], peer, now: 1_000 * MS, redirected: 0, queue, frames: 0 }
    }

    /// A frame arrives at the port of the workers.
    fn arrive(&mut self, frame: &[u8]) {
        self.frames += 1;
        let at = self.queue.unwrap_or(self.frames % 2);
        match self.workers[at].receive(frame, self.now) {
            Recipient::Here => {}
            Recipient::Worker(other) => {
                assert_eq!(other, 1 - at);
                assert_eq!(self.workers[other].receive(frame, self.now), Recipient::Here, "it is its own");
                self.redirected += 1;
            }
            Recipient::All => assert_eq!(self.workers[1 - at].receive(frame, self.now), Recipient::All),
        }
    }

    fn run(&mut self, time: u64) {
        let end = self.now + time;
        while self.now < end {
            self.now += MS;
            let mut back = Frames::default();
            for worker in &mut self.workers {
                worker.advance(self.now);
                let mut out = Frames::default();
                assert!(worker.transmit(self.now, &mut out));
                out.0.iter().for_each(|frame| _ = self.peer.receive(frame, self.now));
                while worker.event().is_some() {}
            }
            self.peer.advance(self.now);
            assert!(self.peer.transmit(self.now, &mut back));
            back.0.iter().for_each(|frame| self.arrive(frame));
            while self.peer.event().is_some() {}
        }
    }

    /// Connections that wait to be accepted by `stack`, each with what it reads to its end.
    fn served(stack: &mut Stack, now: u64) -> Vec<(Handle, Vec<u8>)> {
        let mut all = Vec::new();
        while let Some(handle) = stack.accept(9) {
            let mut buffer = [0; 64];
            let bytes = match stack.read(handle, &mut buffer, now) {
                Ok(Received::Bytes(length, _)) => buffer[..length].to_vec(),
                other => panic!("{other:?}"),
            };
            all.push((handle, bytes));
        }
        all
    }
}

const BOTH: [Option<usize>; 3] = [None, Some(0), Some(1)];

#[test]
fn connections_of_each_worker_come_up_wherever_frames_arrive() {
    for (queue, v6) in BOTH.into_iter().flat_map(|queue| [(queue, false), (queue, true)]) {
        let mut shared = Shared::new(queue);
        shared.peer.listen(80, 100);
        let remote = SocketAddr::new(ip(1, v6), 80);
        let mut ports = Vec::new();
        for n in 0..40_u8 {
            let worker = &mut shared.workers[usize::from(n % 2)];
            let handle = worker.connect(ip(0, v6), remote, 1, shared.now).expect("a port");
            worker.write(handle, &[n], shared.now).expect("room");
            ports.push(worker.status(handle).expect("it is there").local.port());
        }
        ports.sort_unstable();
        ports.dedup();
        assert_eq!(ports.len(), 40, "no port is used twice");
        shared.run(1_000 * MS);
        let mut all: Vec<u8> =
            Shared::served(&mut shared.peer, shared.now).into_iter().flat_map(|(_, bytes)| bytes).collect();
        all.sort_unstable();
        assert_eq!(all, (0..40).collect::<Vec<u8>>());
        assert!(shared.redirected > 0);
        assert_eq!(shared.workers.each_ref().map(|one| one.counters().resets_sent), [0, 0]);
    }
}

#[test]
fn a_server_of_two_workers_has_each_connection_once() {
    for queue in BOTH {
        let mut shared = Shared::new(queue);
        shared.workers.iter_mut().for_each(|worker| worker.listen(80, 100));
        let remote = SocketAddr::new(ip(0, false), 80);
        for n in 0..40_u8 {
            let handle = shared.peer.connect(ip(1, false), remote, 1, shared.now).expect("a port");
            shared.peer.write(handle, &[n], shared.now).expect("room");
        }
        shared.run(1_000 * MS);
        let now = shared.now;
        let served = shared.workers.each_mut().map(|worker| Shared::served(worker, now));
        assert_eq!(served.each_ref().map(Vec::len), [20, 20], "ports in a row are shared out evenly");
        let mut all: Vec<u8> = served.into_iter().flatten().flat_map(|(_, bytes)| bytes).collect();
        all.sort_unstable();
        assert_eq!(all, (0..40).collect::<Vec<u8>>());
        assert_eq!(shared.workers.each_ref().map(|one| one.counters().resets_sent), [0, 0]);
    }
}

fn socket(stack: &mut Stack, kind: SocketKind, port: u16) -> SocketHandle {
    let remote = SocketAddr::new(ip(1, false), port);
    stack.open_socket(kind, ip(0, false), remote, 7, 1 << 20).expect("a port")
}

#[test]
fn datagrams_echoes_and_fragments_come_to_their_socket() {
    for queue in BOTH {
        let mut shared = Shared::new(queue);
        shared.peer.listen_datagrams(SocketAddr::new(ip(1, false), 7), 1 << 20);
        let sockets: Vec<_> = (0..10)
            .map(|n| {
                let worker = &mut shared.workers[n % 2];
                (n % 2, socket(worker, SocketKind::Udp, 7), socket(worker, SocketKind::Echo, 0))
            })
            .collect();
        // longer than a packet: it comes back in fragments
        let long = [7; 4000];
        for (worker, udp, echo) in &sockets {
            let mut out = Frames::default();
            shared.workers[*worker].send_datagram(*udp, &long, shared.now, &mut out);
            shared.workers[*worker].send_datagram(*echo, &[8, 0, 0, 0, 0, 0, 0, 1, 5], shared.now, &mut out);
            out.0.iter().for_each(|frame| _ = shared.peer.receive(frame, shared.now));
        }
        shared.run(300 * MS);
        let mut buffer = [0; 8192];
        let mut came = 0;
        while let Some((length, from)) = shared.peer.take_datagram(&mut buffer) {
            came += 1;
            let mut out = Frames::default();
            // the first only asks for the next hop
            while shared.peer.send_datagram_to(from, &buffer[..length], shared.now, &mut out)
                == SendOutcome::Later
            {
                shared.run(10 * MS);
            }
            assert!(out.0.is_empty(), "fragments are sent with the next");
        }
        assert_eq!(came, 10);
        shared.run(100 * MS);
        for (worker, udp, echo) in sockets {
            let stack = &mut shared.workers[worker];
            assert_eq!(stack.receive_datagram(udp, &mut buffer), Arrival::Datagram(4000, false));
            assert_eq!(buffer[..4000], long);
            assert!(matches!(stack.receive_datagram(echo, &mut buffer), Arrival::Datagram(9, false)));
        }
    }
}

#[test]
fn one_worker_answers_arp_and_each_echo_has_one_reply() {
    let mut shared = Shared::new(Some(1));
    let remote = SocketAddr::new(ip(0, false), 0);
    let sockets: Vec<_> = (0..8)
        .map(|_| shared.peer.open_socket(SocketKind::Echo, ip(1, false), remote, 7, 1 << 20).expect("room"))
        .collect();
    for socket in &sockets {
        let mut out = Frames::default();
        shared.peer.send_datagram(*socket, &[8, 0, 0, 0, 0, 0, 0, 1], shared.now, &mut out);
    }
    shared.run(500 * MS);
    let mut buffer = [0; 64];
    for socket in sockets {
        assert_eq!(shared.peer.receive_datagram(socket, &mut buffer), Arrival::Datagram(8, false));
        assert_eq!(shared.peer.receive_datagram(socket, &mut buffer), Arrival::Dry);
    }
    let sent = shared.workers.each_ref().map(|one| one.counters().frames_sent);
    // one answer of ARP by the first; each worker asks for the peer, too, when it needs it: echoes are answered as they come
    assert_eq!(sent.iter().sum::<u64>(), 9, "{sent:?}");
}

/// Frames that each worker is given count once when they are dropped, whichever receives them.
#[test]
fn what_both_workers_hear_of_and_neither_takes_is_counted_once() {
    for queue in BOTH {
        let mut shared = Shared::new(queue);
        let sockets: Vec<_> =
            (0..20).map(|n| (n % 2, socket(&mut shared.workers[n % 2], SocketKind::Udp, 9))).collect();
        let mut packets = Vec::new();
        for repeat in 0..2 {
            for (worker, socket) in &sockets {
                let mut out = Frames::default();
                shared.workers[*worker].send_datagram(*socket, b"anybody?", shared.now, &mut out);
                out.0.iter().for_each(|frame| _ = shared.peer.receive(frame, shared.now));
                packets.extend(out.0.into_iter().filter(|_| repeat == 1));
            }
            shared.run(300 * MS);
            for (worker, socket) in &sockets {
                let arrival = shared.workers[*worker].receive_datagram(*socket, &mut [0; 64]);
                let refused = DatagramError::Icmp { v6: false, kind: 3, code: 3 };
                assert_eq!(arrival, Arrival::Error(refused, 1));
            }
        }
        let dropped = |shared: &Shared, why| {
            shared.workers.iter().map(|worker| worker.counters().dropped(why)).sum::<u64>()
        };
        assert_eq!(dropped(&shared, DropReason::ForeignIcmp), 0, "each is of one of them");
        assert_eq!(packets.len(), 20);
        // to another port: nobody's, of either worker's share; and such that quote no flow
        for packet in &packets {
            let mut foreign = packet[14..].to_vec();
            foreign[23] ^= 64;
            shared.arrive(&error(3, 3, &foreign));
            shared.arrive(&error(3, 3, &foreign[..10]));
        }
        assert_eq!(dropped(&shared, DropReason::ForeignIcmp), 40);
        // segments and echoes that nobody sent: IPv4 with DF, protocol 6 or 1
        for protocol in [6, 1] {
            let mut foreign = packets[0][14..].to_vec();
            foreign[9] = protocol;
            shared.arrive(&error(3, 1, &foreign));
        }
        assert_eq!(dropped(&shared, DropReason::ForeignIcmp), 42);
        // a request for the time (RFC 792)
        shared.arrive(&error(13, 0, &[0; 12]));
        assert_eq!(dropped(&shared, DropReason::NotForUs), 1);
        // the first piece of a packet, again with another end, and one of which the rest never comes
        let piece = |(protocol, identification): (u8, u8), field: u16, bytes: usize| {
            let mut frame = error(8, 0, &vec![0; bytes]);
            frame[19] = identification;
            frame[20..22].copy_from_slice(&field.to_be_bytes());
            frame[23] = protocol;
            frame[24..26].fill(0);
            let sum = packet::checksum::of(&frame[14..34]).to_be_bytes();
            frame[24..26].copy_from_slice(&sum);
            frame
        };
        [16, 8].iter().for_each(|bytes| shared.arrive(&piece((1, 1), 0x2000, *bytes)));
        assert_eq!(dropped(&shared, DropReason::Fragment), 1);
        shared.arrive(&piece((1, 2), 0x2000, 16));
        shared.now += 61_000 * MS;
        shared.arrive(&piece((1, 3), 0x2000, 16));
        assert_eq!(dropped(&shared, DropReason::Fragment), 2);
        // a packet that is put together, of what has no flows: SCTP
        [0x2000, 3].iter().for_each(|field| shared.arrive(&piece((132, 4), *field, 16)));
        assert_eq!(dropped(&shared, DropReason::NotForUs), 2);
        // ARP of what is no Ethernet, and from no station
        let (mac, theirs, ours) = (crate::wire::mac(1), [10, 0, 0, 2].into(), [10, 0, 0, 1].into());
        let mut asks = vec![0; packet::arp::FRAME];
        packet::arp::Arp::request(mac, theirs, ours)
            .emit_tagged(&mut asks, &packet::ethernet::Tags::NONE)
            .expect("room");
        let (mut odd, mut group) = (asks.clone(), asks);
        odd[15] = 9;
        group[22] = 0xff;
        [odd, group].iter().for_each(|frame| shared.arrive(frame));
        let both = [DropReason::Malformed, DropReason::BadSource].map(|why| dropped(&shared, why));
        assert_eq!(both, [1, 1]);
    }
}
