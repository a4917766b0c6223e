use super::*;
use crate::public::PublicAddresses;
use crate::shared::SlotEnd;
use nat_core::config::SECOND;
use nat_core::testing::{NOW, datagram};
use nat_core::{Config, Endpoint, Frame, Nat, Side, SiteBy, SiteConfig, Verdict};
use proptest::prelude::*;
use std::collections::HashSet;
use std::net::SocketAddrV4;
use std::sync::mpsc::{Receiver, sync_channel};

const MOST: usize = 4;
const WORKERS: usize = 3;
const BY: SiteBy = SiteBy::Prefix(30);
/// Sites there may be, and addresses that a server gives.
const SITES: u8 = 9;
const ADDRESSES: u8 = 5;
const REMOTE: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::new(198, 51, 100, 9), 53);

fn public(last: u8) -> Ipv4Addr {
    Ipv4Addr::new(203, 0, 113, last)
}

fn site(number: u8) -> Site {
    BY.site(Ipv4Addr::new(10, 0, 0, 4 * number).to_bits(), 0)
}

fn mac(number: u32) -> Mac {
    [2, 0x4e, 0x44, 0, 0, number as u8]
}

/// Workers with their sessions, and what they are told of.
struct Net {
    ownership: Ownership,
    assignments: Assignments,
    tell: Vec<SyncSender<SlotUpdate>>,
    workers: Vec<(PublicAddresses, Nat)>,
    heard: Receiver<SlotRelease>,
    /// What numbers' sites have, as the DHCP clients say.
    has: HashMap<u32, (Site, Ipv4Addr)>,
    /// Endpoints that packets left with, and whose they were.
    sent: Vec<(Ipv4Addr, SocketAddrV4)>,
    now: u64,
}

impl Net {
    fn new() -> Self {
        let sites = SiteConfig { most: MOST, by: BY };
        let (vacated, heard) = sync_channel(1);
        let (mut tell, mut workers) = (Vec::new(), Vec::new());
        for worker in 0..WORKERS {
            let (teller, told) = sync_channel(2);
            tell.push(teller);
            let config = Config { sites: Some(sites), sessions: 128, subscribers: 64, ..Config::default() };
            let end = SlotEnd { told, vacated: vacated.clone() };
            workers.push((PublicAddresses::new(MOST, worker, end), Nat::new(config).unwrap()));
        }
        Self {
            ownership: Ownership::of_sites(sites, WORKERS, [7; 32]),
            assignments: Assignments::new(MOST, WORKERS),
            tell,
            workers,
            heard,
            has: HashMap::new(),
            sent: Vec::new(),
            now: NOW,
        }
    }

    /// A number's site has another address, as long as no other number has that one or the site.
    fn lease(&mut self, number: u32, whose: u8, last: u8) {
        let before = self.has.get(&number).map(|(site, _)| *site);
        // A number goes to another site only without an address.
        let (site, address) = (before.unwrap_or(site(whose)), public(last));
        let taken =
            |(at, its): (&u32, &(Site, Ipv4Addr))| *at != number && (its.0 == site || its.1 == address);
        if self.has.iter().any(taken) || self.has.get(&number) == Some(&(site, address)) {
            return;
        }
        self.has.insert(number, (site, address));
        let public = Public { site, number, mac: mac(number), address: Some(address) };
        self.assignments.follow(&public, &self.ownership);
    }

    fn lose(&mut self, number: u32) {
        if let Some((site, _)) = self.has.remove(&number) {
            let public = Public { site, number, mac: mac(number), address: None };
            self.assignments.follow(&public, &self.ownership);
        }
    }

    fn turn(&mut self) {
        self.heard.try_iter().for_each(|vacated| self.assignments.vacated(vacated));
        self.assignments.advance(&self.ownership);
        self.assignments.tell(&self.tell);
    }

    fn work(&mut self, worker: usize, budget: usize) {
        let (addresses, nat) = &mut self.workers[worker];
        nat.advance(self.now, budget);
        addresses.advance(nat);
    }

    /// Where a packet goes by its headers, and what becomes of it there.
    fn process(
        &mut self,
        side: Side,
        from: SocketAddrV4,
        to: SocketAddrV4,
    ) -> Option<(usize, Verdict, Vec<u8>)> {
        let mut bytes = datagram(from, to);
        let headers = nat_core::Headers::of(&bytes).unwrap();
        let worker = self.ownership.worker(side, &bytes, &headers)?;
        let mut frames = [Frame::new(&mut bytes)];
        self.workers[worker].1.process(side, &mut frames, self.now);
        let verdict = frames[0].verdict;
        Some((worker, verdict, bytes))
    }

    /// What a subscriber sends leaves with its site's address and MAC address, which no other worker has.
    fn up(&mut self, host: u8, port: u16) -> Result<(), TestCaseError> {
        let inside = SocketAddrV4::new(Ipv4Addr::new(10, 0, 0, host), port);
        let (worker, verdict, bytes) = self.process(Side::Inside, inside, REMOTE).unwrap();
        let Verdict::Forward(forward) = verdict else { return Ok(()) };
        // By a slot that was withdrawn nothing leaves.
        let Ok(its) = self.workers[worker].0.mac(forward.hop, [0; 6]) else { return Ok(()) };
        let endpoint = source(&bytes);
        prop_assert_eq!(self.worker_of(*endpoint.ip()), Some(worker));
        let site = BY.site(inside.ip().to_bits(), 0);
        let number = self.assignments.sites.get(&site).copied();
        prop_assert_eq!(number.map(mac), Some(its));
        prop_assert_eq!(self.assignments.addresses.get(endpoint.ip()).copied(), number);
        // Until it is to end, which its worker may not have heard of yet.
        let told = number.and_then(|number| self.assignments.lines[number as usize].told);
        if told.is_some_and(|(_, ends)| !ends) {
            let found = self.ownership.outside(Endpoint::new(endpoint.ip().to_bits(), endpoint.port()));
            prop_assert_eq!(found, Some(worker), "answers meet it");
            self.sent.push((*inside.ip(), endpoint));
        }
        Ok(())
    }

    /// An answer reaches who asked, or nobody.
    fn down(&mut self, at: usize) -> Result<(), TestCaseError> {
        let Some((_, endpoint)) = self.sent.get(at).copied() else { return Ok(()) };
        let asked: HashSet<Ipv4Addr> =
            self.sent.iter().filter(|(_, its)| *its == endpoint).map(|(host, _)| *host).collect();
        if let Some((_, Verdict::Forward(_), bytes)) = self.process(Side::Outside, REMOTE, endpoint) {
            prop_assert!(asked.contains(&destination(&bytes)));
        }
        Ok(())
    }

    fn worker_of(&self, address: Ipv4Addr) -> Option<usize> {
        self.workers.iter().position(|(_, nat)| nat.pool().has(address.to_bits()))
    }

    /// No address is at two workers, and who is steered to a worker finds nobody else with it.
    fn check(&self) -> Result<(), TestCaseError> {
        for address in (0..ADDRESSES).map(public) {
            let has = |(_, nat): &&(PublicAddresses, Nat)| nat.pool().has(address.to_bits());
            prop_assert!(self.workers.iter().filter(has).count() <= 1, "{} is at two workers", address);
            let steered = self.ownership.outside(Endpoint::new(address.to_bits(), 2000));
            if let (Some(steered), Some(has)) = (steered, self.worker_of(address)) {
                prop_assert_eq!(steered, has);
            }
        }
        Ok(())
    }

    /// Until all that was told is done.
    fn settle(&mut self) {
        for _ in 0..50 {
            self.turn();
            (0..WORKERS).for_each(|worker| self.work(worker, 1_000));
        }
    }
}

fn source(frame: &[u8]) -> SocketAddrV4 {
    let (address, _) = packet::ipv4::addresses(frame, 14).unwrap();
    SocketAddrV4::new(address, u16::from_be_bytes([frame[34], frame[35]]))
}

fn destination(frame: &[u8]) -> Ipv4Addr {
    packet::ipv4::addresses(frame, 14).unwrap().1
}

#[derive(Debug, Clone)]
enum Step {
    Lease(u32, u8, u8),
    Lose(u32),
    Turn,
    Work(usize, usize),
    Up(u8, u16),
    Down(usize),
    Pass(u64),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        3 => (0..MOST as u32, 0..SITES, 0..ADDRESSES).prop_map(|(number, site, last)| Step::Lease(number, site, last)),
        2 => (0..MOST as u32).prop_map(Step::Lose),
        4 => Just(Step::Turn),
        6 => (0..WORKERS, 1usize..12).prop_map(|(worker, budget)| Step::Work(worker, budget)),
        6 => (0..4 * SITES, 0u16..3).prop_map(|(host, port)| Step::Up(host, 5000 + port)),
        3 => (0usize..20).prop_map(Step::Down),
        1 => (1u64..400).prop_map(Step::Pass),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(192))]
    /// Whoever gets and loses which address, however late workers hear of it and however long they take to end what there was.
    #[test]
    fn no_address_is_ever_at_two_workers(steps in proptest::collection::vec(step(), 1..250)) {
        let mut net = Net::new();
        for step in steps {
            match step {
                Step::Lease(number, whose, last) => net.lease(number, whose, last),
                Step::Lose(number) => net.lose(number),
                Step::Turn => net.turn(),
                Step::Work(worker, budget) => net.work(worker, budget),
                Step::Up(host, port) => net.up(host, port)?,
                Step::Down(at) => net.down(at)?,
                Step::Pass(seconds) => net.now += seconds * SECOND,
            }
            net.check()?;
        }
        // In the end each site has what its client has, at its worker, and packets meet there.
        net.settle();
        net.check()?;
        for (number, (site, address)) in net.has.clone() {
            let worker = net.ownership.site(site);
            prop_assert_eq!(net.worker_of(address), Some(worker));
            prop_assert_eq!(net.assignments.lines[number as usize].slot.map(|(its, _)| its), Some(worker));
            let before = net.sent.len();
            net.up(Ipv4Addr::from_bits(site.inside).octets()[3] + 1, 6000)?;
            prop_assert_eq!(net.sent.len(), before + 1);
            net.down(before)?;
        }
        let has: usize = net.workers.iter().map(|(_, nat)| nat.pool().addresses()).sum();
        prop_assert_eq!(has, net.has.len());
        (0..MOST as u32).for_each(|number| net.lose(number));
        net.settle();
        for (_, nat) in &net.workers {
            prop_assert_eq!((nat.session_count(), nat.pool().addresses(), nat.pool().blocks()), (0, 0, (0, 0)));
        }
        prop_assert!(net.assignments.addresses.is_empty() && net.assignments.sites.is_empty());
        prop_assert!(net.assignments.waiting.is_empty());
        // As many slots as there may be sites, and each is for one number.
        prop_assert!(net.assignments.workers.iter().all(|worker| worker.numbers.len() <= MOST));
    }
}

/// An address goes from a site of one worker to one of another: which has it when the first has ended and logged what there was.
#[test]
fn an_address_moves_to_another_worker_when_nothing_goes_by_it() {
    let mut net = Net::new();
    let of =
        |worker: usize, net: &Net| (0..SITES).find(|one| net.ownership.site(site(*one)) == worker).unwrap();
    let (first, second) = (of(0, &net), of(1, &net));
    net.lease(0, first, 1);
    net.settle();
    net.up(4 * first + 1, 5000).unwrap();
    assert_eq!((net.workers[0].1.session_count(), net.sent.len()), (1, 1));
    net.lose(0);
    net.lease(1, second, 1);
    for _ in 0..10 {
        net.turn();
        net.work(1, 100);
    }
    assert_eq!(net.worker_of(public(1)), Some(0), "the first does not answer");
    assert_eq!(net.workers[1].1.pool().addresses(), 0);
    net.work(0, 100);
    assert_eq!(net.workers[0].1.session_count(), 1, "it has heard of it, and is to end it");
    net.settle();
    let ended = std::iter::from_fn(|| net.workers[0].1.pop_event()).map(|event| event.what);
    let released = ended
        .filter(|what| matches!(what, nat_core::EventKind::BlockReleased(one) if one.outside == public(1)));
    assert_eq!((released.count(), net.worker_of(public(1))), (1, Some(1)));
    net.up(4 * second + 1, 5000).unwrap();
    net.down(1).unwrap();
    // It is the first one's again, which has the slot that it had, so that its ports rest.
    net.lose(1);
    net.lease(0, first, 1);
    net.settle();
    assert_eq!((net.worker_of(public(1)), net.assignments.lines[0].slot), (Some(0), Some((0, 0))));
}
