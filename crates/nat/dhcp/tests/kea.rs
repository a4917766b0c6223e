//! Against Kea: addresses by its DHCP, and its lease file as it writes and rotates it.
//!
//! Each end of a cable in a namespace of the test's own: Kea on `far`, virtual hardware addresses on `near`. The clients' clock
//! is the test's, and jumps to when they renew.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use crate::server::Kea;
use nat_dhcp::client::{Config, Event, KnownAddress, LossReason, State};
use nat_dhcp::lease::LeaseEnd;
use nat_dhcp::{Clients, Format, LeaseEvent, Watcher};
use nix::sys::socket::{AddressFamily, MsgFlags, SockFlag, SockProtocol, SockType, bind, recv, send, socket};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::net::Ipv4Addr;
use std::os::fd::{AsRawFd, OwnedFd};
use std::time::{Duration, Instant, SystemTime};

/// Longest wait for what must come.
const PATIENCE: Duration = Duration::from_secs(60);

type Mac = [u8; 6];

fn mac(number: u8) -> Mac {
    [2, 0, 0, 0, 1, number]
}

/// Frames to and from an interface of this namespace.
fn raw(interface: &str) -> OwnedFd {
    let port =
        socket(AddressFamily::Packet, SockType::Raw, SockFlag::SOCK_CLOEXEC, SockProtocol::EthAll).unwrap();
    let all = nix::ifaddrs::getifaddrs().unwrap();
    let mut of_it = all.filter(|found| found.interface_name == interface).filter_map(|found| found.address);
    let link = of_it.find_map(|address| address.as_link_addr().copied()).unwrap();
    bind(port.as_raw_fd(), &link).unwrap();
    port
}

/// Clients on one end of the cable, and the watcher of the server's file.
struct Rig {
    port: OwnedFd,
    clients: Clients,
    watcher: Watcher,
    began: Instant,
    /// How far the clients' clock is ahead.
    ahead: u64,
    events: Vec<Event>,
    told: Vec<LeaseEvent>,
}

impl Rig {
    fn new(kea: &Kea) -> Self {
        Self {
            port: raw("near"),
            clients: Clients::new(config(), 1),
            watcher: Watcher::new(&kea.leases(), Format::Kea, 1000).unwrap(),
            began: Instant::now(),
            ahead: 0,
            events: Vec::new(),
            told: Vec::new(),
        }
    }

    fn now(&self) -> u64 {
        self.ahead + u64::try_from(self.began.elapsed().as_nanos()).unwrap()
    }

    /// Let the clients' time jump to when the next of them does something.
    fn jump(&mut self) {
        let due = self.clients.next_due().expect("something is due");
        self.ahead += due.saturating_sub(self.now());
    }

    /// Send, receive and read what there is.
    fn turn(&mut self) {
        let now = self.now();
        self.clients.advance(now);
        while let Some(frame) = self.clients.transmit() {
            send(self.port.as_raw_fd(), &frame, MsgFlags::empty()).unwrap();
        }
        let mut fds = [PollFd::new(&self.port, PollFlags::IN), PollFd::new(&self.watcher, PollFlags::IN)];
        poll(&mut fds, Some(&Timespec { tv_sec: 0, tv_nsec: 20_000_000 })).unwrap();
        let [frames, leases] = fds.map(|fd| !fd.revents().is_empty());
        let mut frame = [0; 2048];
        if frames {
            let length = recv(self.port.as_raw_fd(), &mut frame, MsgFlags::empty()).unwrap();
            let now = self.now();
            self.clients.receive(&frame[..length], now);
        }
        self.events.extend(std::iter::from_fn(|| self.clients.event()));
        // Only when it says so: it must not need to be asked.
        while leases && self.watcher.poll(unix(), |event| self.told.push(event)).unwrap() {}
    }

    /// Go on until so many events of the clients and of the watcher have come, and take them.
    fn until(&mut self, events: usize, told: usize, kea: &Kea) -> (Vec<Event>, Vec<LeaseEvent>) {
        self.go_on(kea, |rig| rig.events.len() >= events && rig.told.len() >= told);
        (std::mem::take(&mut self.events), std::mem::take(&mut self.told))
    }

    fn go_on(&mut self, kea: &Kea, mut done: impl FnMut(&mut Self) -> bool) {
        let began = Instant::now();
        while !done(self) {
            let waited = began.elapsed();
            assert!(
                waited < PATIENCE,
                "{:?}\n{:?}\n{:?}\n{}\n{}",
                self.events,
                self.told,
                self.clients.ignored().collect::<Vec<_>>(),
                kea.log(),
                std::fs::read_to_string(kea.leases()).unwrap_or_default()
            );
            self.turn();
        }
    }
}

fn config() -> Config {
    Config { start_delay: [0, 0], ..Config::default() }
}

fn unix() -> u64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs()
}

/// Who acquired which address.
fn acquired(events: &[Event]) -> Vec<(Mac, Ipv4Addr)> {
    let mut found: Vec<_> = events
        .iter()
        .map(|event| match event {
            Event::Acquired { mac, lease } => (*mac, lease.address),
            other => panic!("{other:?}"),
        })
        .collect();
    found.sort_unstable();
    found
}

/// Who was granted which address by the file.
fn granted(told: &[LeaseEvent]) -> Vec<(Mac, Ipv4Addr)> {
    let mut found: Vec<_> = told
        .iter()
        .map(|event| match event {
            LeaseEvent::Granted(lease) => (lease.hardware.unwrap(), lease.address),
            other => panic!("{other:?}"),
        })
        .collect();
    found.sort_unstable();
    found
}

#[test]
fn addresses_come_stay_go_and_come_back() {
    let Some(kea) = Kea::start() else { return };
    let mut rig = Rig::new(&kea);

    // Boot.
    for number in 0..3 {
        let now = rig.now();
        rig.clients.add(mac(number), now).unwrap();
    }
    let (events, told) = rig.until(3, 3, &kea);
    let had = acquired(&events);
    assert_eq!(had.iter().map(|(mac, _)| *mac).collect::<Vec<_>>(), [mac(0), mac(1), mac(2)]);
    assert_eq!(granted(&told), had, "the file says the same");
    for (mac, address) in &had {
        let lease = rig.clients.lease(*mac).unwrap();
        assert_eq!(
            (lease.address, lease.server, lease.router),
            (*address, crate::server::ADDRESS, Some(crate::server::ADDRESS))
        );
        assert_eq!(lease.mask, Some(Ipv4Addr::new(255, 255, 255, 0)));
        assert_eq!(lease.seconds, Some(crate::server::LEASE));
    }

    // Renew, by unicast. The file is in seconds of a clock that is some milliseconds behind: a whole one must have passed.
    let granted_at = unix();
    rig.go_on(&kea, |_| unix() > granted_at + 1);
    rig.go_on(&kea, |rig| {
        let all = rig.events.len() == had.len();
        if !all && had.iter().all(|(mac, _)| rig.clients.state(*mac) == Some(State::Bound)) {
            rig.jump();
        }
        all
    });
    let (events, told) = rig.until(3, 3, &kea);
    assert!(events.iter().all(|event| matches!(event, Event::Renewed { .. })), "{events:?}");
    assert!(told.iter().all(|told| matches!(told, LeaseEvent::Renewed(_))), "{told:?}");
    assert_eq!(rig.clients.ignored().map(|(_, count)| count).sum::<u64>(), 0);

    // The server cleans its file up, which is renamed meanwhile.
    rig.go_on(&kea, |_| kea.cleaned_up());
    assert_eq!((&rig.events[..], &rig.told[..]), (&[][..], &[][..]), "that changes nothing");
    assert_eq!(rig.watcher.table().len(), 3);

    // Who starts late reads the same, of which most stands in another file by now.
    let mut late = Vec::new();
    let mut watcher = Watcher::new(&kea.leases(), Format::Kea, 1000).unwrap();
    while watcher.poll(unix(), |event| late.push(event)).unwrap() {}
    assert_eq!(granted(&late), had);

    // Release, and come back.
    let (first, address) = had[0];
    let now = rig.now();
    assert!(rig.clients.release(first, now));
    let (events, told) = rig.until(1, 1, &kea);
    assert_eq!(events, [Event::Lost { mac: first, address, why: LossReason::Released }]);
    assert!(matches!(&told[..], [LeaseEvent::Ended(lease, _)] if lease.address == address), "{told:?}");
    rig.clients.add(first, now).unwrap();
    let (events, told) = rig.until(1, 1, &kea);
    assert_eq!(acquired(&events), [(first, address)]);
    assert_eq!(granted(&told), [(first, address)]);

    // A restart: all confirm what they had.
    let known: Vec<KnownAddress> = rig.clients.known_addresses().copied().collect();
    rig.clients = Clients::new(config(), 2);
    rig.clients.remember(known);
    for (mac, _) in &had {
        rig.clients.add(*mac, now).unwrap();
        assert_eq!(rig.clients.state(*mac), Some(State::InitReboot));
    }
    let (events, _) = rig.until(3, 0, &kea);
    assert_eq!(acquired(&events), had);

    // A conflict: the server does not give that address again soon.
    rig.told.clear();
    let (second, declined) = had[1];
    let now = rig.now();
    assert!(rig.clients.conflict(second, now));
    let (events, told) = loop {
        let (events, told) = rig.until(1, 1, &kea);
        if told.iter().any(|told| !matches!(told, LeaseEvent::Renewed(_))) {
            break (events, told);
        }
        rig.events.extend(events);
    };
    assert_eq!(events, [Event::Lost { mac: second, address: declined, why: LossReason::Conflict }]);
    let ended = |told: &LeaseEvent| matches!(told, LeaseEvent::Ended(lease, LeaseEnd::Declined) if lease.address == declined);
    assert!(told.iter().any(ended), "{told:?}");
    rig.jump();
    let (events, _) = rig.until(1, 0, &kea);
    let [(again, other)] = acquired(&events)[..] else { panic!("{events:?}") };
    assert_eq!(again, second);
    assert_ne!(other, declined);

    // What it had is none of this network's: the server rejects the request, and gives another.
    let stranger = KnownAddress { mac: mac(9), address: Ipv4Addr::new(203, 0, 113, 5), bound: true };
    rig.clients.remember([stranger]);
    rig.clients.add(stranger.mac, now).unwrap();
    let (events, _) = rig.until(2, 0, &kea);
    assert_eq!(events[0], Event::Refused { mac: stranger.mac, address: stranger.address });
    assert_eq!(acquired(&events[1..])[0].0, stranger.mac);
    assert_eq!(rig.watcher.faults().count(), 0);
}
