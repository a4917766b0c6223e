//! A NAT that takes over tells switches and routers where its addresses are now.

use crate::link;
use ::element::interface_addr::InterfaceAddr;
use dpdk::{Batch, Mempool};
use nat_core::Realm;
use nat_pair::Duty;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

/// Addresses that are announced at once, and the time until the next ones, ns.
const AT_ONCE: usize = 16;
const PAUSE: u64 = 1_000_000;
/// All of it is said twice (RFC 5227 section 2.3), ns after the first time.
const AGAIN: u64 = 2_000_000_000;
/// Bytes of the shortest frame.
const SHORTEST: usize = 60;
/// VLANs of subscribers that are told of at a time, and that are taken in a turn.
const UNDER_WAY: usize = 1_024;
const TAKEN: usize = 64;

/// The way to who announces the box to subscribers, if there is somebody: by it workers say in which VLANs these are.
#[derive(Debug)]
pub struct VlanChannel {
    tell: SyncSender<Realm>,
    told: Option<Receiver<Realm>>,
}

impl VlanChannel {
    /// Nobody announces yet.
    pub fn new() -> Self {
        let (tell, told) = sync_channel(UNDER_WAY);
        Self { tell, told: Some(told) }
    }

    /// For a worker.
    pub fn teller(&self) -> SyncSender<Realm> {
        self.tell.clone()
    }

    /// For who announces, once.
    pub fn end(&mut self) -> Option<Receiver<Realm>> {
        self.told.take()
    }
}

/// Who announces the addresses of a port.
#[derive(Debug)]
pub struct Announcer {
    duty: Arc<Duty>,
    /// The port's own addresses, and others that it answers for.
    own: Vec<InterfaceAddr>,
    pool: Vec<InterfaceAddr>,
    /// VLANs of subscribers besides the port's own: there its own addresses are announced, too.
    vlans: Option<Receiver<Realm>>,
    known: BTreeSet<Realm>,
    /// All of them.
    addrs: Vec<InterfaceAddr>,
    /// How often the NAT had begun to translate when it was announced.
    begun: u32,
    rounds: AnnounceSchedule,
}

impl Announcer {
    /// Of these addresses, and of the port's own in the VLANs that it is told of.
    pub fn new(
        duty: Arc<Duty>,
        own: Vec<InterfaceAddr>,
        pool: Vec<InterfaceAddr>,
        vlans: Option<Receiver<Realm>>,
    ) -> Self {
        let (known, addrs) = (BTreeSet::new(), own.iter().chain(&pool).copied().collect());
        Self { duty, own, pool, vlans, known, addrs, begun: 0, rounds: AnnounceSchedule::default() }
    }

    /// It answers for these others from now on. Those that came are announced by who tells so; all of them when it begins again.
    pub fn change(&mut self, pool: Vec<InterfaceAddr>, now: u64) {
        self.pool = pool;
        let in_vlans = self.known.iter().flat_map(|realm| in_vlan(&self.own, *realm));
        self.addrs = self.own.iter().chain(&self.pool).copied().chain(in_vlans).collect();
        if self.rounds.left > 0 {
            self.rounds = AnnounceSchedule { at: 0, due: now, ..self.rounds };
        }
    }

    /// Whether the NAT translates.
    pub fn is_active(&self, now: u64) -> bool {
        self.duty.is_active(now)
    }

    /// Announce some of them if it is time, as far as they are `there` still.
    pub fn send(
        &mut self,
        batch: &mut Batch,
        pool: &Mempool,
        now: u64,
        there: impl Fn(&InterfaceAddr) -> bool,
    ) {
        if !self.duty.is_active(now) {
            return;
        }
        if self.begun != self.duty.start_count() {
            self.begun = self.duty.start_count();
            self.rounds = AnnounceSchedule { left: 2, at: 0, due: now };
        }
        self.receive_announcements(now);
        self.rounds.announce(&self.addrs, batch, pool, now, there);
    }

    /// Of VLANs with subscribers.
    fn receive_announcements(&mut self, now: u64) {
        let vlans = self.vlans.iter().flat_map(|vlans| vlans.try_iter().take(TAKEN));
        for realm in vlans.filter(|realm| self.known.insert(*realm)) {
            // Those of before are announced: it goes on with this one, and then through all again.
            if self.rounds.left == 0 {
                self.rounds = AnnounceSchedule { left: 2, at: self.addrs.len(), due: now };
            }
            self.addrs.extend(in_vlan(&self.own, realm));
        }
    }
}

/// A port's own addresses, in a VLAN.
fn in_vlan(own: &[InterfaceAddr], realm: Realm) -> impl Iterator<Item = InterfaceAddr> {
    let tags = link::tags(realm);
    own.iter().map(move |own| InterfaceAddr { tags, ..*own })
}

/// Addresses that have come to a port, until all of them are announced.
#[derive(Debug, Default)]
pub struct NewAddresses {
    addrs: Vec<InterfaceAddr>,
    rounds: AnnounceSchedule,
}

impl NewAddresses {
    /// These have come; what is left of those before is announced with them.
    pub fn add(&mut self, addrs: impl Iterator<Item = InterfaceAddr>, now: u64) {
        self.addrs.extend(addrs);
        self.rounds = AnnounceSchedule { left: 2, at: 0, due: now };
    }

    /// Announce some of them if it is time, as far as they are `there` still.
    pub fn send(
        &mut self,
        batch: &mut Batch,
        pool: &Mempool,
        now: u64,
        there: impl Fn(&InterfaceAddr) -> bool,
    ) {
        if self.addrs.is_empty() {
            return;
        }
        self.rounds.announce(&self.addrs, batch, pool, now, there);
        if self.rounds.left == 0 {
            self.addrs = Vec::new();
        }
    }
}

/// Which addresses are next.
#[derive(Debug, Default, Clone, Copy)]
struct AnnounceSchedule {
    left: u32,
    at: usize,
    due: u64,
}

impl AnnounceSchedule {
    /// Announce the next of these if it is time, as far as they are `there`.
    fn announce(
        &mut self,
        addrs: &[InterfaceAddr],
        batch: &mut Batch,
        pool: &Mempool,
        now: u64,
        there: impl Fn(&InterfaceAddr) -> bool,
    ) {
        let (from, to) = self.next(addrs.len(), now);
        let mut done = 0;
        for addr in addrs.get(from..to).unwrap_or(&[]) {
            if there(addr) {
                let Some(mut mbuf) = pool.packet(&[0; SHORTEST]) else { break };
                if addr.announce(mbuf.data_mut()).is_some() && batch.push(mbuf).is_err() {
                    break;
                }
            }
            done += 1;
        }
        if from < to {
            self.note(done, addrs.len(), now);
        }
    }

    /// From this one of so many to that.
    fn next(&self, count: usize, now: u64) -> (usize, usize) {
        if self.left == 0 || now < self.due {
            return (0, 0);
        }
        (self.at, (self.at + AT_ONCE).min(count))
    }

    /// So many of those were announced; the others found no room, and are the next.
    fn note(&mut self, done: usize, count: usize, now: u64) {
        (self.at, self.due) = (self.at + done, now + PAUSE);
        if self.at >= count {
            (self.left, self.at, self.due) = (self.left - 1, 0, now + AGAIN);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use packet::ethernet::Tags;
    use std::net::Ipv4Addr;

    #[test]
    fn all_are_announced_twice_some_at_a_time() {
        let mut rounds = AnnounceSchedule { left: 2, at: 0, due: 5 };
        assert_eq!(rounds.next(40, 4), (0, 0), "it is not time");
        let (mut now, mut said) = (5, Vec::new());
        for _ in 0..8 {
            let (from, to) = rounds.next(40, now);
            // Once there is room for some of them only.
            let done = if said.len() == 16 { 5 } else { to - from };
            said.extend(from..from + done);
            rounds.note(done, 40, now);
            assert_eq!(rounds.next(40, now), (0, 0), "not at once");
            now = rounds.due;
        }
        assert_eq!(said, (0..40).chain(0..40).collect::<Vec<_>>());
        assert!(now >= 5 + 2 * AGAIN);
        assert_eq!(AnnounceSchedule { left: 1, at: 0, due: 0 }.next(0, 0), (0, 0));
    }

    #[test]
    fn the_port_is_announced_in_each_vlan_and_the_pool_as_it_is_now() {
        let addr = |last, tags| InterfaceAddr { mac: [2; 6], ip: Ipv4Addr::new(10, 0, 0, last).into(), tags };
        let mut channel = VlanChannel::new();
        let (teller, told) = (channel.teller(), channel.end());
        assert!(told.is_some() && channel.end().is_none(), "one announces");
        let (own, pool) = (addr(1, Tags::NONE), |last| addr(last, Tags::NONE));
        let mut announcer = Announcer::new(Arc::default(), vec![own], vec![pool(7), pool(8)], told);
        let said = |announcer: &Announcer| {
            announcer.addrs.iter().map(|one| (one.ip.to_string(), link::realm(&one.tags))).collect::<Vec<_>>()
        };
        [7 << 12, 7 << 12, 7 << 12 | 9].into_iter().for_each(|realm| teller.send(realm).unwrap());
        announcer.receive_announcements(5);
        let all = |pool: &[&str]| {
            let mut all = vec![("10.0.0.1".to_owned(), 0)];
            all.extend(pool.iter().map(|ip| ((*ip).to_owned(), 0)));
            all.extend([7 << 12, 7 << 12 | 9].map(|realm| ("10.0.0.1".to_owned(), realm)));
            all
        };
        assert_eq!(said(&announcer), all(&["10.0.0.7", "10.0.0.8"]));
        assert_eq!(announcer.rounds.next(5, 5), (3, 5), "those that were announced are not first");
        announcer.change(vec![pool(8), pool(9)], 6);
        assert_eq!(said(&announcer), all(&["10.0.0.8", "10.0.0.9"]));
        assert_eq!(announcer.rounds.next(5, 6), (0, 5));
    }
}
