use super::*;
use crate::sites::stand_in::{DECLINE, DISCOVER, DhcpRequest, RELEASE, REQUEST, Server};
use proptest::prelude::*;

const FIRST: Mac = [2, 0x4e, 0x44, 0, 0, 0];
const ROUTER: Mac = [2, 0, 0, 0, 9, 1];
const LEASE: u32 = 600;
const GRACE: u64 = 30 * SECOND;

fn public(last: u8) -> Ipv4Addr {
    Ipv4Addr::new(203, 0, 113, last)
}

/// Sites, a server, and the time.
struct Net {
    leasing: Leasing,
    server: Server,
    now: u64,
    /// Who has what, as it was told.
    has: HashMap<u32, (Site, Ipv4Addr)>,
    told: Vec<Public>,
}

impl Net {
    fn new(most: usize) -> Self {
        let server = Server::new(ROUTER, public(1), public(100), LEASE);
        Self { leasing: leasing(most), server, now: SECOND, has: HashMap::new(), told: Vec::new() }
    }

    /// Let so many seconds pass.
    fn pass(&mut self, seconds: u64) {
        for _ in 0..2 * seconds {
            self.now += SECOND / 2;
            self.leasing.advance(self.now, 4);
            while let Some(frame) = self.leasing.transmit() {
                if let Some(answer) = self.server.handle_frame(&frame) {
                    self.leasing.receive(&answer, self.now);
                }
            }
            self.follow();
        }
    }

    fn follow(&mut self) {
        while let Some(told) = self.leasing.public() {
            assert_eq!(told.mac, self.leasing.settings.macs.of(told.number));
            match told.address {
                Some(address) => {
                    assert!(self.has.values().all(|(site, its)| *its != address && *site != told.site));
                    self.has.insert(told.number, (told.site, address));
                    assert_eq!(self.leasing.holder(address), Some(told.mac));
                }
                None => drop(self.has.remove(&told.number).expect("it had one")),
            }
            self.told.push(told);
        }
    }

    /// Messages of this type, and of whom.
    fn heard(&self, kind: u8) -> Vec<DhcpRequest> {
        self.server.heard.iter().filter(|heard| heard.kind == kind).copied().collect()
    }

    fn address_of(&self, vlan: u32) -> Option<Ipv4Addr> {
        self.has.values().find(|(site, _)| site.realm == vlan << 12).map(|(_, address)| *address)
    }
}

fn leasing(most: usize) -> Leasing {
    let settings = Settings {
        most,
        by: SiteBy::Tags,
        macs: Macs::new(FIRST, most),
        release_after: GRACE,
        least_lease: 60,
        tags: Tags::NONE,
        never: vec![Prefix::new(Ipv4Addr::new(10, 0, 0, 0), 8), Prefix::new(public(2), 32)],
    };
    Leasing::new(settings, 7)
}

#[test]
fn a_site_has_an_address_from_its_first_subscriber_until_a_while_after_its_last() {
    let mut net = Net::new(4);
    for host in 1..=3 {
        net.leasing.add(host, 7 << 12, net.now);
    }
    net.pass(3);
    assert_eq!((net.address_of(7), net.heard(DISCOVER).len()), (Some(public(100)), 1), "one client");
    assert!(net.server.heard.iter().all(|heard| heard.mac == FIRST && heard.from == FIRST));
    assert_eq!(net.leasing.announce(net.now), Some((FIRST, public(100))));
    // it stays while it is renewed, and when all are gone for a short time
    net.pass(2 * u64::from(LEASE));
    assert!(net.told.len() == 1 && net.heard(REQUEST).len() > 2);
    (1..=3).for_each(|host| net.leasing.remove(host, 7 << 12, net.now));
    net.pass(GRACE / SECOND - 5);
    net.leasing.add(9, 7 << 12, net.now);
    net.pass(60);
    assert_eq!((net.told.len(), net.heard(RELEASE).len()), (1, 0));
    net.leasing.remove(9, 7 << 12, net.now);
    net.pass(GRACE / SECOND + 1);
    assert_eq!((net.address_of(7), net.heard(RELEASE).len()), (None, 1));
    assert_eq!((net.leasing.announce(net.now), net.leasing.holder(public(100))), (None, None));
    // others come meanwhile; it comes back, and has its own again
    net.leasing.add(1, 8 << 12, net.now);
    net.pass(3);
    net.leasing.add(1, 7 << 12, net.now);
    net.pass(3);
    assert_eq!((net.address_of(7), net.address_of(8)), (Some(public(100)), Some(public(101))));
    assert_eq!(
        net.heard(DISCOVER).last().map(|heard| (heard.mac, heard.wants)),
        Some((FIRST, Some(public(100))))
    );
}

#[test]
fn a_lease_that_is_lost_is_told_and_the_address_comes_back() {
    let mut net = Net::new(4);
    net.leasing.add(1, 7 << 12, net.now);
    net.pass(3);
    net.server.silent = true;
    net.pass(u64::from(LEASE) - 10);
    assert_eq!(net.told.len(), 1, "it is its own to the end");
    net.pass(10);
    assert_eq!((net.address_of(7), net.told.len()), (None, 2));
    assert_eq!(net.leasing.holder(public(100)), None, "nobody answers ARP for it");
    net.server.silent = false;
    net.pass(70);
    assert_eq!((net.address_of(7), net.told.len()), (Some(public(100)), 3));
    // a server that knows nothing of it any more refuses to renew, and gives another
    net.server.leases.clear();
    net.server.leases.insert([2; 6], public(100));
    net.pass(u64::from(LEASE));
    assert!(net.address_of(7).is_some_and(|other| other != public(100)) && net.told.len() == 5);
    assert_eq!(net.leasing.ignored(), []);
}

#[test]
fn after_a_restart_a_site_asks_for_what_it_had() {
    let mut net = Net::new(4);
    for vlan in [7, 8, 9] {
        net.leasing.add(1, vlan << 12, net.now);
        net.pass(3);
    }
    net.leasing.remove(1, 8 << 12, net.now);
    net.pass(60);
    let changes = net.leasing.changes();
    let mut known: Vec<KnownSite> = changes.iter().filter_map(|(_, site)| *site).collect();
    assert_eq!((changes.len(), known.len(), net.leasing.changes()), (3, 3, vec![]));
    net.leasing.change_again(&changes[..1]);
    assert_eq!(net.leasing.changes(), changes[..1]);
    assert_eq!(known.iter().map(|one| one.bound).collect::<Vec<_>>(), [true, false, true]);
    // what does not fit is left out: other sites, others' MAC addresses, and what is there twice
    let wrong = [
        KnownSite { inside: Ipv4Addr::new(10, 0, 0, 1), mac: net.leasing.settings.macs.of(3), ..known[0] },
        KnownSite { realm: 5 << 12, mac: [2; 6], ..known[0] },
        KnownSite { realm: 6 << 12, ..known[0] },
        KnownSite { mac: net.leasing.settings.macs.of(3), ..known[0] },
    ];
    known.extend(wrong);
    (net.leasing, net.has) = (leasing(4), HashMap::new());
    assert_eq!(net.leasing.remember(&known), known[..3]);
    net.server.heard.clear();
    for vlan in [9, 8, 7] {
        net.leasing.add(1, vlan << 12, net.now);
    }
    net.pass(3);
    assert_eq!([7, 8, 9].map(|vlan| net.address_of(vlan)), [100, 101, 102].map(|last| Some(public(last))));
    assert_eq!(net.heard(DISCOVER).len(), 1, "two ask for what they still have (INIT-REBOOT)");
}

#[test]
fn who_finds_no_room_waits_for_it() {
    let mut net = Net::new(2);
    for vlan in [7, 8, 9, 10] {
        net.leasing.add(1, vlan << 12, net.now);
    }
    net.leasing.remove(1, 9 << 12, net.now);
    net.pass(3);
    assert!(net.has.len() == 2 && net.address_of(10).is_none());
    net.leasing.remove(1, 7 << 12, net.now);
    net.pass(GRACE / SECOND + 4);
    assert!(net.address_of(7).is_none() && net.address_of(10).is_some());
    assert_eq!(net.heard(DISCOVER).last().unwrap().wants, None, "what was another site's is not asked for");
    assert_eq!(net.leasing.site_views(0, 10, net.now).0.len(), 2);
    // in its turn it waits, and is the next
    net.leasing.add(1, 7 << 12, net.now);
    net.leasing.remove(1, 8 << 12, net.now);
    net.pass(GRACE / SECOND + 4);
    assert!(net.address_of(7).is_some() && net.address_of(8).is_none());
    assert!(net.leasing.waiting.is_empty() && net.leasing.idle.is_empty() && net.leasing.leaving.is_empty());
}

#[test]
fn an_address_that_is_no_public_one_is_not_taken_and_another_servers_is() {
    for wrong in [Ipv4Addr::new(10, 0, 0, 7), public(2)] {
        let mut net = Net::new(2);
        let mut rogue = Server::new([2, 0, 0, 0, 9, 66], public(66), wrong, LEASE);
        rogue.leases.insert(FIRST, wrong);
        let right = std::mem::replace(&mut net.server, rogue);
        net.leasing.add(1, 7 << 12, net.now);
        net.pass(60);
        let asked = net.heard(REQUEST).len() + net.heard(DECLINE).len();
        assert_eq!((net.has.len(), asked), (0, 0), "a server's pool is not drained");
        assert!(net.heard(DISCOVER).len() > 3 && net.leasing.warn > net.now);
        // Of two servers the wrong one answers first each time.
        rogue = std::mem::replace(&mut net.server, right);
        for _ in 0..140 {
            net.now += SECOND / 2;
            net.leasing.advance(net.now, 4);
            while let Some(frame) = net.leasing.transmit() {
                for answer in
                    [rogue.handle_frame(&frame), net.server.handle_frame(&frame)].into_iter().flatten()
                {
                    net.leasing.receive(&answer, net.now);
                }
            }
            net.follow();
        }
        assert_eq!(net.address_of(7), Some(public(100)));
    }
}

#[test]
fn a_prefix_is_all_of_its_addresses() {
    let ip = |text: &str| text.parse::<Ipv4Addr>().unwrap();
    for (prefix, bits, first, last) in [
        ("10.1.2.3", 8, "10.0.0.0", "10.255.255.255"),
        ("203.0.113.2", 32, "203.0.113.2", "203.0.113.2"),
        ("203.0.113.7", 30, "203.0.113.4", "203.0.113.7"),
        ("1.2.3.4", 0, "0.0.0.0", "255.255.255.255"),
    ] {
        assert_eq!(range(&Prefix::new(ip(prefix), bits)), ip(first)..=ip(last));
    }
}

#[test]
fn an_address_is_defended_now_and_then() {
    let mut net = Net::new(2);
    net.leasing.add(1, 7 << 12, net.now);
    net.pass(3);
    assert_eq!(announced(&mut net, 3), [0, 2]);
    let mut defended = 0;
    for _ in 0..25 {
        net.leasing.defend(FIRST, [4; 6], net.now);
        net.leasing.defend([2; 6], [4; 6], net.now);
        // One that has no address.
        net.leasing.defend(net.leasing.settings.macs.of(1), [4; 6], net.now);
        defended += std::iter::from_fn(|| net.leasing.announce(net.now)).count();
        net.pass(1);
    }
    assert_eq!(defended, 3);
}

/// In which of the next seconds the first site's address is announced.
fn announced(net: &mut Net, seconds: u64) -> Vec<u64> {
    let mut found = Vec::new();
    for second in 0..seconds {
        while let Some(announced) = net.leasing.announce(net.now) {
            assert_eq!(announced.0, FIRST);
            found.push(second);
        }
        net.pass(1);
    }
    found
}

#[test]
fn an_address_that_has_come_is_announced_twice_unless_it_goes_before() {
    let mut net = Net::new(2);
    net.leasing.add(1, 7 << 12, net.now);
    net.pass(3);
    // RFC 5227 section 2.3: two, 2 s apart. A renewal is not announced.
    assert_eq!(announced(&mut net, u64::from(LEASE)), [0, 2]);
    net.leasing.remove(1, 7 << 12, net.now);
    net.pass(GRACE / SECOND + 1);
    net.leasing.add(1, 7 << 12, net.now);
    net.pass(3);
    assert_eq!(announced(&mut net, 1), [0]);
    // It goes within these 2 s, as another client's after a conflict.
    net.leasing.clients.conflict(FIRST, net.now);
    net.leasing.follow(net.now);
    net.server.silent = true;
    assert!(announced(&mut net, 5).is_empty());
}

#[derive(Debug, Clone)]
enum Step {
    Add(u32),
    Remove(u32),
    Pass(u64),
    Silent(bool),
    /// A server says something that nobody asked for, or answers wrongly.
    Say(u8, u8, u8),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (1u32..7).prop_map(Step::Add),
        3 => (1u32..7).prop_map(Step::Remove),
        4 => (0u64..90).prop_map(Step::Pass),
        1 => any::<bool>().prop_map(Step::Silent),
        4 => (1u8..8, 0u8..5, 98u8..104).prop_map(|(kind, whom, last)| Step::Say(kind, whom, last)),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    /// Whoever comes and goes, and whatever servers say: no two sites have one address, and no site has two.
    #[test]
    fn no_two_sites_share_an_address(steps in proptest::collection::vec(step(), 1..60)) {
        let mut net = Net::new(4);
        let mut there = HashMap::<u32, u32>::new();
        for step in steps {
            match step {
                Step::Add(vlan) => {
                    *there.entry(vlan).or_default() += 1;
                    net.leasing.add(there[&vlan], vlan << 12, net.now);
                }
                Step::Remove(vlan) => {
                    let count = there.entry(vlan).or_default();
                    net.leasing.remove(*count, vlan << 12, net.now);
                    *count = count.saturating_sub(1);
                }
                Step::Pass(seconds) => net.pass(seconds),
                Step::Silent(silent) => net.server.silent = silent,
                Step::Say(kind, whom, last) => {
                    // With the number of the exchange, which only who reads along knows.
                    let mac = net.leasing.settings.macs.of(whom.into());
                    let heard = net.server.heard.iter().rev().find(|heard| heard.mac == mac).copied();
                    if let Some(heard) = heard {
                        let frame = net.server.answer(kind, &heard, public(last));
                        net.leasing.receive(&frame, net.now);
                        net.follow();
                    }
                }
            }
            // What was told is what the clients have.
            for (number, standing) in net.leasing.site_views(0, 100, net.now).0 {
                prop_assert_eq!(standing.address, net.has.get(&number).map(|(_, address)| *address));
                prop_assert_eq!(standing.subscribers, there.get(&(standing.site.realm >> 12)).copied().unwrap_or(0));
            }
            let active = there.values().filter(|count| **count > 0).count();
            prop_assert!(net.leasing.waiting.len() + 4 >= active);
        }
        // In the end all that there is room for have one.
        net.server.silent = false;
        net.pass(400);
        let active = there.values().filter(|count| **count > 0).count();
        prop_assert_eq!(net.has.len(), active.min(4));
    }
}
