//! Media sockets: pairs of UDP sockets of devices, with the kernel's time stamps of what they receive.

use crate::receive_queue;
use device::{ConnError, MediaInput};
use nix::sys::socket::{ControlMessageOwned, MsgFlags, SockaddrStorage, recvmsg, setsockopt, sockopt};
use nix::sys::time::TimeSpec;
use nix::time::{ClockId, clock_gettime};
use protocol::media::{Channel, MediaOutbox};
use protocol::meter::Failure;
use run::SetupError;
use rustix::buffer::spare_capacity;
use rustix::event::Timespec;
use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SendFlags, SocketFlags, SocketType, bind, ipproto, sendto, socket_with};
use std::io::IoSliceMut;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::time::Duration;

/// Ports that pairs are taken from: above the well-known ones, up to the last even one.
const FIRST_PORT: u16 = 16_384;
const LAST_PORT: u16 = 65_534;
/// Media sockets told of between two looks at the timers.
const EVENTS_PER_TURN: usize = 256;

/// A device's two sockets.
#[derive(Debug)]
struct Pair {
    sockets: [OwnedFd; 2],
}

/// Media sockets of one worker, by the slots of their devices, and what watches them.
pub(crate) struct MediaSockets {
    epoll: OwnedFd,
    pairs: Vec<Option<Pair>>,
    ready: Vec<epoll::Event>,
    /// Where the search for the next free pair begins.
    next_port: u16,
    /// Room for the kernel's time stamp.
    control: Vec<u8>,
}

impl MediaSockets {
    /// None yet.
    pub fn new() -> Result<Self, SetupError> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC).map_err(|e| {
            let fix = "Raise the limit of open files (ulimit -n)";
            SetupError::new("ND-92-01", "epoll", std::io::Error::from(e).to_string(), fix)
        })?;
        // workers and other programs look for free ports too: each begins somewhere else
        let pairs = u32::from((LAST_PORT - FIRST_PORT) / 2);
        let begin = (std::process::id().wrapping_mul(7919) ^ (epoll.as_raw_fd() as u32) << 9) % pairs;
        Ok(Self {
            epoll,
            pairs: Vec::new(),
            ready: Vec::with_capacity(EVENTS_PER_TURN),
            next_port: FIRST_PORT + 2 * begin as u16,
            control: nix::cmsg_space!(TimeSpec),
        })
    }

    /// Open a pair at `ip` for the device in `slot`: an even port and the next (RFC 3550 section 11).
    pub fn open(&mut self, slot: u32, ip: IpAddr) -> Result<SocketAddr, ConnError> {
        let pairs = (LAST_PORT - FIRST_PORT) / 2;
        for _ in 0..=pairs {
            let port = self.next_port;
            self.next_port = if port >= LAST_PORT { FIRST_PORT } else { port + 2 };
            let rtp = match open(SocketAddr::new(ip, port)) {
                Ok(fd) => fd,
                Err(Errno::ADDRINUSE) => continue,
                Err(e) => return Err(ConnError::errno(e, "media socket")),
            };
            let rtcp = match open(SocketAddr::new(ip, port + 1)) {
                Ok(fd) => fd,
                Err(Errno::ADDRINUSE) => continue,
                Err(e) => return Err(ConnError::errno(e, "media socket")),
            };
            let pair = Pair { sockets: [rtp, rtcp] };
            for channel in Channel::ALL {
                // level-triggered: one datagram is read for each event, and there is mostly one
                let data = EventData::new_u64(u64::from(slot) << 1 | channel as u64);
                epoll::add(&self.epoll, &pair.sockets[channel as usize], data, EventFlags::IN)
                    .map_err(|e| ConnError::errno(e, "epoll"))?;
            }
            let place = slot as usize;
            if self.pairs.len() <= place {
                self.pairs.resize_with(place + 1, || None);
            }
            self.pairs[place] = Some(pair);
            return Ok(SocketAddr::new(ip, port));
        }
        Err(ConnError::errno(Errno::ADDRNOTAVAIL, format!("no free pair of ports at {ip} for media")))
    }

    fn socket(&self, slot: u32, channel: Channel) -> Option<&OwnedFd> {
        let pair = self.pairs.get(slot as usize)?.as_ref()?;
        Some(&pair.sockets[channel as usize])
    }

    /// Send all of `outbox`; what is not taken is lost, and told of.
    #[inline]
    pub fn send(&self, slot: u32, outbox: &MediaOutbox) -> Option<ConnError> {
        let mut lost: Option<ConnError> = None;
        let mut lose = |broken: ConnError| {
            let before = lost.as_ref().map_or(0, |lost| lost.times);
            lost = Some(broken.datagrams(before + 1));
        };
        for (channel, to, bytes) in outbox.iter() {
            let Some(fd) = self.socket(slot, channel) else {
                lose(ConnError::new(Failure::Local, "the device has no media socket"));
                continue;
            };
            match sendto(fd, bytes, SendFlags::NOSIGNAL | SendFlags::DONTWAIT, &to) {
                Ok(_) => {}
                Err(e) => lose(ConnError::errno(e, format!("send media to {to}"))),
            }
        }
        lost
    }

    /// Take what can be read now.
    pub fn ready(&mut self, ready: &mut Vec<(u32, Channel)>) {
        self.ready.clear();
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        // an interrupted look is made again in the next turn
        let _found = epoll::wait(&self.epoll, spare_capacity(&mut self.ready), Some(&now));
        let channel = |data: u64| if data & 1 == 0 { Channel::Rtp } else { Channel::Rtcp };
        ready.extend(self.ready.iter().map(|event| {
            let data = event.data.u64();
            ((data >> 1) as u32, channel(data))
        }));
    }

    /// Read one datagram.
    pub fn receive(&mut self, slot: u32, channel: Channel, buffer: &mut [u8]) -> Option<MediaInput> {
        let fd = self.pairs.get(slot as usize)?.as_ref()?.sockets[channel as usize].as_raw_fd();
        let mut parts = [IoSliceMut::new(buffer)];
        // an error of an earlier datagram is told once, and says nothing about this one
        let got = recvmsg::<SockaddrStorage>(fd, &mut parts, Some(&mut self.control), MsgFlags::MSG_DONTWAIT)
            .ok()?;
        let from = got.address.as_ref().and_then(socket_address)?;
        let stamp = got.cmsgs().ok()?.find_map(|message| match message {
            ControlMessageOwned::ScmTimestampns(stamp) => Some(Duration::from(stamp)),
            _ => None,
        });
        let age = stamp.and_then(|stamp| {
            let now = clock_gettime(ClockId::CLOCK_REALTIME).ok()?;
            Duration::from(now).checked_sub(stamp)
        });
        Some(MediaInput { len: got.bytes, from, age: age.unwrap_or_default() })
    }

    /// Close the pair of `slot`. How many datagrams its queues had no room for.
    pub fn close(&mut self, slot: u32) -> u64 {
        let pair = self.pairs.get_mut(slot as usize).and_then(Option::take);
        pair.map_or(0, |pair| pair.sockets.iter().map(|fd| u64::from(receive_queue::dropped(fd))).sum())
    }
}

impl AsFd for MediaSockets {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.epoll.as_fd()
    }
}

fn open(address: SocketAddr) -> Result<OwnedFd, Errno> {
    let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let fd = socket_with(family, SocketType::DGRAM, flags, Some(ipproto::UDP))?;
    // without it a datagram counts from when it is read
    let _best_effort = setsockopt(&fd, sockopt::ReceiveTimestampns, &true);
    bind(&fd, &address)?;
    Ok(fd)
}

fn socket_address(storage: &SockaddrStorage) -> Option<SocketAddr> {
    let v4 = storage.as_sockaddr_in().map(|v4| SocketAddr::from((v4.ip(), v4.port())));
    v4.or_else(|| storage.as_sockaddr_in6().map(|v6| SocketAddr::from((v6.ip(), v6.port()))))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::UdpSocket;

    #[test]
    fn a_pair_has_an_even_port_and_the_next_and_says_when_datagrams_came() {
        let mut media = MediaSockets::new().expect("epoll");
        let here: IpAddr = "127.0.0.1".parse().expect("address");
        let first = media.open(0, here).expect("a pair");
        let second = media.open(7, here).expect("another");
        assert!(first.port().is_multiple_of(2) && second.port().is_multiple_of(2));
        assert_ne!(first, second);
        let peer = UdpSocket::bind("127.0.0.1:0").expect("a socket");
        let mut outbox = MediaOutbox::default();
        let to = peer.local_addr().expect("bound");
        outbox.push(Channel::Rtp, to, |out| out.extend_from_slice(b"media"));
        outbox.push(Channel::Rtcp, to, |out| out.extend_from_slice(b"report"));
        assert!(media.send(7, &outbox).is_none());
        let mut buffer = [0; 100];
        let from = [(); 2].map(|()| peer.recv_from(&mut buffer).expect("a datagram").1.port());
        assert_eq!(from, [second.port(), second.port() + 1]);
        // the kernel begins to stamp a while after a first socket of the machine has asked for it: one that came before
        // that counts from when it was read
        let deadline = std::time::Instant::now() + Duration::from_secs(10);
        loop {
            peer.send_to(b"answer", (here, second.port() + 1)).expect("sent");
            std::thread::sleep(Duration::from_millis(20));
            let mut ready = Vec::new();
            media.ready(&mut ready);
            assert_eq!(ready, [(7, Channel::Rtcp)]);
            let input = media.receive(7, Channel::Rtcp, &mut buffer).expect("the answer");
            assert_eq!((&buffer[..input.len], input.from), (&b"answer"[..], to));
            if input.age >= Duration::from_millis(20) {
                break;
            }
            assert!(std::time::Instant::now() < deadline, "{:?}", input.age);
        }
        assert!(media.receive(7, Channel::Rtcp, &mut buffer).is_none());
        assert_eq!(media.close(7), 0);
        assert_eq!(media.send(7, &outbox).expect("closed").times, 2);
    }
}
