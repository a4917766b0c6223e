use super::*;
use crate::arp::{Answer, ResolverChannel};
use std::net::Ipv4Addr;
use std::sync::mpsc::{Receiver, sync_channel};

const MAC: Mac = [2, 0, 0, 0, 0, 1];
const GROUP: Mac = [1, 0, 0x5e, 0, 0, 1];

/// Only who is given is bound; who hears of subscribers hears of one at a time.
fn table() -> (SubscriberTable, Receiver<BindingEvent>, Receiver<Subscriber>) {
    let ((tell_end, endings), (_, released), (tell, told)) =
        (sync_channel(8), sync_channel(8), sync_channel(1));
    let nat = SubscriberTable {
        table: Bindings::new(8, [7; 32]).unwrap(),
        // Also 0.0.0.1, and so on.
        inside: vec![Prefix::new(Ipv4Addr::UNSPECIFIED, 4)],
        non_host_addresses: Vec::new(),
        routed: Vec::new(),
        learn: false,
        leases: None,
        told: None,
        unbound: UnboundLeases::new(8),
        replica: 0,
        ownership: Arc::default(),
        neighbours: Arc::new(Neighbours::default()),
        of_standby: None,
        end: TableEnd { tell: tell_end, released, asked: sync_channel(8).1 },
        sites: SubscriberTeller::to(tell),
        resolver: ResolverChannel::new().client(),
        advanced: 0,
        restored: None,
        unconfirmed: HashSet::new(),
        confirm_by: 0,
    };
    (nat, endings, told)
}

#[test]
fn a_lease_for_a_group_address_binds_nobody() {
    let (mut nat, ..) = table();
    assert_eq!((nat.bind(1, 0, GROUP, true, 0), nat.table.len()), (None, 0));
    let hop = nat.bind(1, 0, MAC, true, 0).unwrap();
    // renewed for one: what goes to the subscriber goes where it went, and the table says so
    assert_eq!(nat.bind(1, 0, GROUP, true, 0), None);
    assert_eq!((nat.table.find(1, 0).map(|one| one.mac()), nat.neighbours.mac(hop)), (Some(MAC), Some(MAC)));
}

#[test]
fn a_lease_of_none_of_the_subscribers_binds_nobody() {
    let (mut nat, endings, told) = table();
    let outside = Ipv4Addr::new(203, 0, 113, 7);
    let (lease, leases) = sync_channel(8);
    nat.leases = Some(Leases::of(leases));
    // renewed, and given back
    for mac in [Some(MAC), Some(MAC), None] {
        lease.send(Bind { inside: outside, realm: 7 << 12, mac }).unwrap();
    }
    nat.follow(0);
    assert_eq!((nat.table.len(), endings.try_iter().count()), (0, 0));
    assert!(told.try_recv().is_err(), "it is no site's");
    // nor does whoever asks for it by name, nor what it sends
    assert_eq!(nat.bind(outside.to_bits(), 7 << 12, MAC, true, 0), None);
    let sender = Sender { hash: 0, inside: outside.to_bits(), realm: 7 << 12, mac: MAC };
    assert_eq!(nat.admit(&sender, 0), Err(NOT_INSIDE));
}

#[test]
fn a_lease_that_finds_no_room_is_bound_when_there_is() {
    let (mut nat, _endings, _told) = table();
    let (lease, leases) = sync_channel(16);
    (nat.leases, nat.table) = (Some(Leases::of(leases)), Bindings::new(2, [7; 32]).unwrap());
    nat.sites = SubscriberTeller::to(sync_channel(16).0);
    let tell = |last, mac| lease.send(Bind { inside: Ipv4Addr::new(10, 0, 0, last), realm: 0, mac }).unwrap();
    let there = |nat: &SubscriberTable| {
        (1..=5).filter(|i| nat.table.find(0x0a00_0000 + i, 0).is_some()).collect::<Vec<_>>()
    };
    (1..=5).for_each(|last| tell(last, Some(MAC)));
    nat.turn(0);
    assert_eq!(there(&nat), [1, 2]);
    // one of those that wait moves to another interface, and of one the lease ends
    tell(4, Some([2, 0, 0, 0, 0, 4]));
    tell(3, None);
    nat.turn(0);
    assert_eq!(there(&nat), [1, 2]);
    tell(1, None);
    nat.turn(0);
    assert_eq!(there(&nat), [2, 4]);
    assert_eq!(nat.table.find(0x0a00_0004, 0).map(|one| one.mac()), Some([2, 0, 0, 0, 0, 4]));
    for gone in [2, 5, 4] {
        tell(gone, None);
    }
    nat.turn(0);
    assert_eq!((there(&nat), nat.unbound.first()), (vec![], None), "5 had gone meanwhile");
}

/// Three were bound before a restart; of the table there is room for two.
fn restored(nat: &mut SubscriberTable) {
    let bound = [1, 2, 3].map(|i| Bound { inside: 0x0a00_0000 + i, realm: 0, mac: MAC, hop: i as Hop + 1 });
    nat.table = Bindings::new(2, [7; 32]).unwrap();
    nat.restored = Some(RestoredBindings::of_worker(bound.to_vec()));
    nat.restore(SECOND);
}

#[test]
fn who_is_bound_after_a_restart_stays_if_the_lease_file_says_so() {
    let (mut nat, endings, told) = table();
    let (lease, leases) = sync_channel(8);
    nat.leases = Some(Leases::of(leases));
    restored(&mut nat);
    let bind = |last, mac| Bind { inside: Ipv4Addr::new(10, 0, 0, last), realm: 0, mac };
    lease.send(bind(1, Some(MAC))).unwrap();
    // no lease of a host
    lease.send(bind(2, Some(GROUP))).unwrap();
    nat.follow(SECOND);
    nat.turn(CONFIRM);
    assert_eq!((nat.table.len(), endings.try_iter().count()), (2, 0), "the file may not be read yet");
    nat.turn(SECOND + CONFIRM);
    let ended = BindingEnd { inside: 0x0a00_0002, realm: 0, hop: 3 };
    assert_eq!((endings.try_iter().collect(), nat.table.len()), (vec![BindingEvent::Ended(ended)], 1));
    nat.turn(2 * CONFIRM);
    assert!(nat.table.find(0x0a00_0001, 0).is_some() && nat.unconfirmed.is_empty());
    drop(told);
    // what is learned is not asked of leases
    let (mut nat, endings, _told) = table();
    nat.learn = true;
    nat.leases = Some(Leases::of(sync_channel(1).1));
    restored(&mut nat);
    nat.turn(2 * CONFIRM);
    assert_eq!((nat.table.len(), endings.try_iter().count()), (2, 0));
}

#[test]
fn sessions_are_told_where_a_silent_subscriber_is() {
    const HOST: Host = (0x0a00_0007, 7 << 12);
    const THERE: Mac = [2, 0, 0, 0, 0, 2];
    let found = |told: &Receiver<BindingEvent>| match told.try_recv() {
        Ok(BindingEvent::Resolved(ResolvedHop { host: HOST, hop })) => Some(hop),
        _ => None,
    };
    let (mut nat, told, _sites) = table();
    let ((ask, asked), mut channel) = (sync_channel(8), ResolverChannel::new());
    (nat.end.asked, nat.resolver) = (asked, channel.client());
    let queries = channel.end().unwrap();
    let ask = |nat: &mut SubscriberTable| {
        ask.send(HOST).unwrap();
        nat.turn(0);
    };
    // By leases: who has none is nowhere, and nobody is asked.
    ask(&mut nat);
    assert_eq!((found(&told), queries.try_iter().count()), (Some(None), 0));
    let hop = nat.bind(HOST.0, HOST.1, MAC, true, 0);
    ask(&mut nat);
    assert_eq!((found(&told), queries.try_iter().count()), (Some(hop), 0));
    // Learned: it is asked for, and bound as it answers.
    nat.table = Bindings::new(8, [7; 32]).unwrap();
    nat.learn = true;
    nat.sites = SubscriberTeller::to(sync_channel(8).0);
    ask(&mut nat);
    let query = queries.try_recv().unwrap();
    assert_eq!((query.host, found(&told)), (HOST, None));
    query.reply.send(Answer { host: HOST, mac: Some(MAC) }).unwrap();
    nat.turn(0);
    let hop = nat.table.find(HOST.0, HOST.1).map(|binding| binding.hop());
    assert_eq!((found(&told), hop.and_then(|hop| nat.neighbours.mac(hop))), (Some(hop), Some(MAC)));
    // It moves, and goes by the same next hop; one that was given does not.
    query.reply.send(Answer { host: HOST, mac: Some(THERE) }).unwrap();
    nat.turn(0);
    assert_eq!((found(&told), hop.and_then(|hop| nat.neighbours.mac(hop))), (Some(hop), Some(THERE)));
    assert_eq!(nat.bind(HOST.0, HOST.1, MAC, true, 0), hop);
    query.reply.send(Answer { host: HOST, mac: Some(THERE) }).unwrap();
    nat.turn(0);
    assert_eq!((found(&told), hop.and_then(|hop| nat.neighbours.mac(hop))), (Some(hop), Some(MAC)));
    // It does not answer.
    nat.table = Bindings::new(8, [7; 32]).unwrap();
    query.reply.send(Answer { host: HOST, mac: None }).unwrap();
    nat.turn(0);
    assert_eq!((found(&told), nat.table.len()), (Some(None), 0));
}

#[test]
fn a_next_hop_of_before_a_restart_is_nobody_elses() {
    let (mut nat, _endings, _told) = table();
    restored(&mut nat);
    assert!(nat.end(0x0a00_0001, 0) && nat.sites.is_ready());
    // for the third there was no room, but sessions that go on may name its next hop
    assert_eq!(nat.bind(9, 0, MAC, true, SECOND), Some(5));
}

#[test]
fn sites_are_told_of_a_subscriber_by_its_own_worker_alone() {
    let mut ownership = Ownership::new(&[Vec::new(), Vec::new()], [7; 32]);
    ownership.settle(8, 0, 0);
    ownership.settle(9, 0, 1);
    let (mut nat, endings, told) = table();
    nat.ownership.set((0, ownership)).unwrap();
    for inside in [8, 9] {
        assert!(nat.bind(inside, 0, MAC, false, 0).is_some() && nat.sites.is_ready());
    }
    assert!(nat.end(9, 0));
    assert_eq!(endings.try_iter().count(), 1, "its sessions here end");
    let there = Subscriber { inside: 8, realm: 0, there: true };
    assert_eq!((told.try_recv(), told.try_recv().is_err()), (Ok(there), true));
}

#[test]
fn sites_are_told_of_everybody_who_comes_and_goes() {
    let (mut nat, endings, told) = table();
    let (inside, realm) = (9, 7 << 12);
    assert!(nat.bind(inside, realm, MAC, true, 0).is_some());
    // a renewal is nobody new
    assert!(nat.bind(inside, realm, [2; 6], true, 0).is_some());
    // there is room for one to be told, and one waits: for a third there is none now
    assert!(nat.bind(10, realm, MAC, true, 0).is_some());
    assert!(nat.bind(11, realm, MAC, true, 0).is_none() && !nat.end(inside, realm));
    assert_eq!((nat.table.len(), endings.try_iter().count()), (2, 0));
    assert_eq!(told.recv(), Ok(Subscriber { inside, realm, there: true }));
    assert!(nat.end(inside, realm) && endings.try_recv().is_ok());
    assert_eq!(told.recv(), Ok(Subscriber { inside: 10, realm, there: true }));
    assert!(nat.sites.is_ready());
    assert_eq!(told.recv(), Ok(Subscriber { inside, realm, there: false }));
}
