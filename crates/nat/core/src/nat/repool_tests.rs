use super::*;
use crate::config::{Config, SECOND, StaticForward};
use crate::explicit::MappingRequest;
use crate::key::Endpoint;
use crate::nat::ClearBounds;
use crate::nat::testing::send;
use crate::reason::Reason;
use crate::state::ImportClock;
use crate::verdict::{Side, Verdict};
use std::collections::HashSet;

/// All sessions, also what was asked for.
const ALL: ClearBounds = ClearBounds { lines: 64, sessions: 64, asked: true };
const REMOTE: Endpoint = Endpoint::new(0xc633_6409, 53);

fn outside(last: u8) -> Ipv4Addr {
    Ipv4Addr::new(203, 0, 113, last)
}

fn whole(addresses: &[u8]) -> Vec<PoolAddress> {
    addresses.iter().map(|last| PoolAddress::all_ports(outside(*last))).collect()
}

fn config(addresses: &[u8]) -> Config {
    let pool = whole(addresses);
    Config { pool, pool_room: 2, sessions: 64, subscribers: 8, log_sessions: true, ..Config::default() }
}

fn nat(addresses: &[u8]) -> Nat {
    Nat::new(config(addresses)).unwrap()
}

fn change(nat: &mut Nat, added: &[u8], removed: &[u8]) {
    nat.change_pool(&PoolChange { added: whole(added), removed: whole(removed) });
    nat.audit().unwrap();
}

fn host(last: u8, port: u16) -> Endpoint {
    Endpoint::new(0x0a00_0000 + u32::from(last), port)
}

/// Let a subscriber send: its endpoint outside.
fn opens(nat: &mut Nat, from: Endpoint, now: u64) -> Endpoint {
    let verdict = send(nat, Side::Inside, from, REMOTE, now);
    assert!(matches!(verdict, Verdict::Forward(_)), "{from}: {verdict:?}");
    let found = nat.sessions().find(|(_, session)| (session.inside(), session.remote()) == (from, REMOTE));
    found.unwrap().1.outside()
}

fn last(endpoint: Endpoint) -> u8 {
    Ipv4Addr::from_bits(endpoint.address).octets()[3]
}

/// Its addresses, those that drain, and what was given up since the last time.
fn told(nat: &mut Nat) -> (Vec<u8>, Vec<u8>, Vec<u8>) {
    let (usage, _) = nat.pool().usage_from(0, (99, usize::MAX), 0);
    let all = usage.iter().filter(|one| !one.draining).map(|one| one.address.octets()[3]).collect();
    let draining = nat.draining().iter().map(|one| one.octets()[3]).collect();
    let given_up = std::iter::from_fn(|| nat.pop_given_up()).map(|one| one.octets()[3]).collect();
    (all, draining, given_up)
}

fn settle(nat: &mut Nat, now: u64) {
    while nat.advance(now, 1) {}
    nat.audit().unwrap();
}

/// Let time pass until all sessions that nobody uses are over.
fn idle(nat: &mut Nat, from: u64) -> u64 {
    for second in 1..400 {
        while nat.advance(from + second * SECOND, 100) {}
    }
    from + 400 * SECOND
}

#[test]
fn what_is_added_is_used_at_once() {
    let mut nat = nat(&[1]);
    opens(&mut nat, host(1, 5000), SECOND);
    change(&mut nat, &[7, 9], &[]);
    assert_eq!(told(&mut nat), (vec![1, 7, 9], vec![], vec![]));
    assert_eq!((nat.pool().addresses(), nat.pool().blocks()), (3, (378, 377)));
    let used: HashSet<u8> = (2..8).map(|i| last(opens(&mut nat, host(i, 5000), SECOND))).collect();
    assert!(used.contains(&7) || used.contains(&9), "{used:?}");
    assert_eq!(last(opens(&mut nat, host(1, 5001), SECOND)), 1, "pooling is paired");
    // The way back is found.
    let to = opens(&mut nat, host(2, 5000), SECOND);
    assert!(matches!(send(&mut nat, Side::Outside, REMOTE, to, SECOND), Verdict::Forward(_)));
    nat.audit().unwrap();
}

#[test]
fn what_is_removed_drains_and_is_given_up_with_its_last_session() {
    let mut nat = nat(&[1]);
    let old = opens(&mut nat, host(1, 5000), SECOND);
    let idles = opens(&mut nat, host(2, 5000), SECOND);
    assert_eq!((last(old), last(idles)), (1, 1));
    change(&mut nat, &[2], &[1]);
    // Nothing begins on it, though a subscriber has blocks there; what is there goes on, also from another remote endpoint.
    let new = opens(&mut nat, host(1, 5001), SECOND);
    assert_eq!((last(new), last(opens(&mut nat, host(3, 1), SECOND))), (2, 2));
    assert_eq!(opens(&mut nat, host(1, 5000), SECOND), old);
    let other = Endpoint::new(REMOTE.address, 54);
    assert!(matches!(send(&mut nat, Side::Inside, host(1, 5000), other, SECOND), Verdict::Forward(_)));
    assert!(matches!(send(&mut nat, Side::Outside, other, old, SECOND), Verdict::Forward(_)));
    settle(&mut nat, SECOND);
    assert_eq!(told(&mut nat), (vec![2], vec![1], vec![]));
    let usage = nat.pool().usage_from(0, (99, usize::MAX), 0).0;
    let of = |address: u8| *usage.iter().find(|one| one.address == outside(address)).unwrap();
    assert_eq!((of(1).draining, of(1).subscribers, of(1).used[1]), (true, 2, 2));
    assert_eq!((of(2).draining, of(2).subscribers), (false, 2));
    assert_eq!((nat.pool().addresses(), nat.pool().blocks().0), (1, 126), "only what may be used counts");
    // It is used still, and so it stays.
    let mut now = SECOND;
    for _ in 0..6 {
        now += 100 * SECOND;
        assert!(matches!(send(&mut nat, Side::Inside, host(1, 5000), REMOTE, now), Verdict::Forward(_)));
        settle(&mut nat, now);
    }
    let usage = nat.pool().usage_from(0, (99, usize::MAX), 0).0;
    assert_eq!((usage[0].address, usage[0].subscribers), (outside(1), 1));
    assert_eq!(told(&mut nat).2, [0; 0]);
    idle(&mut nat, now);
    nat.audit().unwrap();
    assert_eq!(told(&mut nat), (vec![2], vec![], vec![1]));
    assert_eq!(told(&mut nat), (vec![2], vec![], vec![]), "it is told once");
    assert!(!nat.pool().has(outside(1).to_bits()));
    assert!(matches!(send(&mut nat, Side::Outside, REMOTE, old, now), Verdict::Drop(Reason::NoMapping)));
}

#[test]
fn one_that_drains_comes_back_beside_a_new_one() {
    let mut nat = nat(&[1, 2, 3]);
    let vacancies = nat.pool().vacancies();
    let had: Vec<(Endpoint, Endpoint)> =
        (1..=8).map(|i| host(i, 5000)).map(|from| (from, opens(&mut nat, from, SECOND))).collect();
    let on = |address| had.iter().filter(move |(_, outside)| last(*outside) == address);
    assert!(on(2).count() > 0 && on(3).count() > 0, "{had:?}");
    nat.clear_from(0, ALL, |one| last(one.outside()) == 2, SECOND);
    change(&mut nat, &[], &[2, 3]);
    settle(&mut nat, SECOND);
    assert_eq!(told(&mut nat), (vec![1], vec![3], vec![2]));
    change(&mut nat, &[2, 3], &[]);
    settle(&mut nat, SECOND);
    assert_eq!(told(&mut nat), (vec![1, 2, 3], vec![], vec![]));
    assert_eq!(nat.pool().vacancies(), vacancies);
    for (from, outside) in on(3) {
        assert_eq!(opens(&mut nat, *from, SECOND), *outside);
    }
}

#[test]
fn blocks_that_nobody_uses_are_given_back_at_once_and_logged() {
    let mut nat = nat(&[1]);
    let old = opens(&mut nat, host(1, 5000), SECOND);
    let now = idle(&mut nat, SECOND);
    // It has no session, and keeps its block for a while.
    opens(&mut nat, host(2, 5000), now);
    assert_eq!(nat.clear_from(0, ALL, |_| true, now).0, 1);
    while nat.pop_event().is_some() {}
    assert_eq!(nat.pool().blocks(), (126, 124));
    change(&mut nat, &[2], &[1]);
    settle(&mut nat, now);
    assert_eq!(told(&mut nat), (vec![2], vec![], vec![1]));
    let events: Vec<_> = std::iter::from_fn(|| nat.pop_event()).collect();
    let released = |event: &crate::Event| matches!(event.what, crate::EventKind::BlockReleased(block) if block.outside == outside(1));
    assert_eq!(events.iter().filter(|event| released(event)).count(), 2, "{events:?} {old}");
}

#[test]
fn every_block_that_was_left_is_logged_as_released_once() {
    let mut nat = Nat::new(Config { ports_per_block: 64, sessions: 1_024, ..config(&[1]) }).unwrap();
    let ports = 1000..1040;
    for port in ports.clone() {
        opens(&mut nat, host(1, port), SECOND);
    }
    let before: Vec<_> = nat.subscribers().map(|(_, line)| line.blocks().len()).collect();
    assert_eq!(before, [1], "one block has room for them");
    for port in 1040..1060 {
        opens(&mut nat, host(1, 2 * port), SECOND);
    }
    while nat.pop_event().is_some() {}
    let taken = nat.pool().blocks().0 - nat.pool().blocks().1;
    change(&mut nat, &[2], &[1]);
    // As many blocks as it may have are there for it, whatever it has left.
    for port in 0..200 {
        opens(&mut nat, host(1, 10_000 + port), SECOND);
    }
    settle(&mut nat, SECOND);
    idle(&mut nat, SECOND);
    nat.audit().unwrap();
    let released = std::iter::from_fn(|| nat.pop_event()).filter(
        |event| matches!(event.what, crate::EventKind::BlockReleased(block) if block.outside == outside(1)),
    );
    let blocks: Vec<_> = released.collect();
    assert_eq!(blocks.len() as u64, taken, "{blocks:?}");
    assert_eq!(told(&mut nat), (vec![2], vec![], vec![1]));
}

#[test]
fn an_address_may_come_back_while_it_drains_and_after() {
    let mut nat = nat(&[1]);
    let old = opens(&mut nat, host(1, 5000), SECOND);
    let moved = opens(&mut nat, host(2, 5000), SECOND);
    change(&mut nat, &[2], &[1]);
    settle(&mut nat, SECOND);
    assert_eq!(last(opens(&mut nat, host(2, 5001), SECOND)), 2);
    change(&mut nat, &[1], &[2]);
    settle(&mut nat, SECOND);
    assert_eq!(told(&mut nat), (vec![1], vec![2], vec![]));
    // Both have their blocks there again: who has not moved yet, and who has.
    let lines: Vec<_> = nat.subscribers().map(|(_, line)| line.blocks().len()).collect();
    assert_eq!(lines, [1, 1]);
    assert_eq!(opens(&mut nat, host(1, 5000), SECOND), old);
    let again = opens(&mut nat, host(1, 5001), SECOND);
    assert_eq!((last(again), again.port / 512), (1, old.port / 512));
    assert_eq!(opens(&mut nat, host(2, 5000), SECOND), moved);
    assert_eq!(nat.passing(), [(outside(2), 0..=u16::MAX)]);
    assert_eq!(last(opens(&mut nat, host(2, 5002), SECOND)), 1);
    let now = idle(&mut nat, SECOND);
    assert_eq!(told(&mut nat), (vec![1], vec![], vec![2]));
    // After it was given up, it is as any other; its ports may rest still, and so its place is the same.
    change(&mut nat, &[2, 3], &[1]);
    settle(&mut nat, now);
    assert_eq!(told(&mut nat), (vec![2, 3], vec![], vec![1]));
    nat.audit().unwrap();
}

#[test]
fn who_has_another_address_by_now_keeps_what_is_left_on_one_that_came_back() {
    let mut nat = nat(&[1]);
    let old = opens(&mut nat, host(1, 5000), SECOND);
    change(&mut nat, &[2], &[1]);
    let new = opens(&mut nat, host(1, 5001), SECOND);
    settle(&mut nat, SECOND);
    change(&mut nat, &[1], &[]);
    settle(&mut nat, SECOND);
    assert_eq!(told(&mut nat), (vec![1, 2], vec![], vec![]));
    assert_eq!(last(opens(&mut nat, host(1, 5002), SECOND)), last(new), "pooling is paired");
    assert_eq!(opens(&mut nat, host(1, 5000), SECOND), old);
    let passing = nat.passing();
    assert!(
        passing.len() == 1 && passing[0].0 == outside(1) && passing[0].1.contains(&old.port),
        "{passing:?}"
    );
    idle(&mut nat, SECOND);
    nat.audit().unwrap();
    assert_eq!((nat.passing().len(), told(&mut nat).0), (0, vec![1, 2]));
}

#[test]
fn ports_rest_over_the_time_in_which_their_address_is_gone() {
    let mut nat = nat(&[1]);
    let old = opens(&mut nat, host(1, 5000), SECOND);
    change(&mut nat, &[2], &[1]);
    assert_eq!(nat.clear_from(0, ALL, |_| true, SECOND).0, 1);
    settle(&mut nat, SECOND);
    assert_eq!(told(&mut nat).2, [1]);
    change(&mut nat, &[1], &[]);
    let resting: Vec<_> = nat.pool.resting_ports(2 * SECOND).collect();
    let rests = |end: Endpoint| {
        let at = |first: Endpoint| u32::from(end.port) - u32::from(first.port);
        resting.iter().any(|(first, _, _, bits)| {
            first.address == end.address && (0..64).contains(&at(*first)) && bits >> at(*first) & 1 == 1
        })
    };
    assert!(resting.len() == 1 && rests(old), "{resting:?}");
}

#[test]
fn there_is_room_for_so_many_and_no_more() {
    let mut nat = nat(&[1]);
    assert_eq!((nat.pool().vacancies(), nat.without_room(&whole(&[1, 2, 3]))), (2, 0));
    assert_eq!(nat.without_room(&whole(&[2, 3, 4, 5])), 2);
    opens(&mut nat, host(1, 5000), SECOND);
    change(&mut nat, &[2, 3, 4], &[1]);
    assert_eq!(told(&mut nat).0, [2, 3], "what finds no room is left out");
    // One that drains has its place still, and comes back to it.
    settle(&mut nat, SECOND);
    assert_eq!((nat.without_room(&whole(&[4])), nat.without_room(&whole(&[1]))), (1, 0));
    idle(&mut nat, SECOND);
    assert_eq!(nat.without_room(&whole(&[4])), 0);
    // A part of an address that is there whole is no other address.
    let part = PoolAddress { address: outside(2), ports: 1024..=2047 };
    assert_eq!(nat.without_room(&[part]), 1);
    // Places are used again.
    for round in 0..200u8 {
        let (old, new) = (10 + round, 11 + round);
        change(&mut nat, &[new], if round == 0 { &[2, 3] } else { std::slice::from_ref(&old) });
        settle(&mut nat, 500 * SECOND);
    }
    assert_eq!(told(&mut nat).0, [210]);
}

#[test]
fn deterministic_ports_and_sites_keep_their_addresses() {
    let prefix = crate::config::Prefix::new(Ipv4Addr::new(10, 0, 0, 0), 30);
    let fixed = Nat::new(Config { deterministic: Some(prefix), ..config(&[1]) }).unwrap();
    let by = crate::sites::SiteBy::Tags;
    let sites = Some(crate::config::SiteConfig { most: 2, by });
    let sites = Nat::new(Config { sites, pool: Vec::new(), ..config(&[]) }).unwrap();
    for (mut nat, before) in [(fixed, vec![1]), (sites, vec![])] {
        change(&mut nat, &[2], &[1]);
        assert_eq!(told(&mut nat).0, before);
    }
}

#[test]
fn whoever_leads_to_an_address_that_is_given_up_begins_anew() {
    let mut nat = nat(&[1]);
    let server = opens(&mut nat, host(1, 5000), SECOND);
    // Another subscriber talks to it by the address outside.
    assert!(
        matches!(send(&mut nat, Side::Inside, host(2, 6000), server, SECOND), Verdict::Forward(forward) if forward.to == Side::Inside)
    );
    change(&mut nat, &[2], &[1]);
    let mut now = SECOND;
    for _ in 0..8 {
        now += 100 * SECOND;
        let _dropped_in_the_end = send(&mut nat, Side::Inside, host(2, 6000), server, now);
        settle(&mut nat, now);
        nat.clear_from(0, ALL, |one| one.inside() == host(1, 5000), now);
    }
    // Its own mapping was on the address, too: it is over with the address.
    idle(&mut nat, now);
    assert_eq!((told(&mut nat), nat.session_count()), ((vec![2], vec![], vec![1]), 0));
    let verdict = send(&mut nat, Side::Inside, host(2, 6000), server, now + 500 * SECOND);
    assert!(matches!(verdict, Verdict::Forward(forward) if forward.to == Side::Outside), "{verdict:?}");
    nat.audit().unwrap();
}

#[test]
fn sessions_that_lead_to_what_is_given_up_end() {
    let mut nat = nat(&[1, 2]);
    let mut two = (1..8).map(|i| (i, opens(&mut nat, host(i, 5000), SECOND)));
    let (first, server) = two.next().unwrap();
    let (other, _) = two.find(|(_, end)| end.address != server.address).unwrap();
    drop(two);
    assert!(matches!(send(&mut nat, Side::Inside, host(other, 6000), server, SECOND), Verdict::Forward(_)));
    change(&mut nat, &[], &[last(server)]);
    let of_address: Vec<Endpoint> = nat
        .sessions()
        .filter(|(_, one)| one.outside().address == server.address)
        .map(|(_, one)| one.inside())
        .collect();
    assert!(of_address.contains(&host(first, 5000)));
    nat.clear_from(0, ALL, |one| of_address.contains(&one.inside()), SECOND);
    settle(&mut nat, SECOND);
    assert_eq!(told(&mut nat).2, [last(server)]);
    assert!(nat.sessions().all(|(_, one)| one.remote() != server), "nothing leads there");
    assert!(nat.sessions().any(|(_, one)| one.inside() == host(other, 5000)), "others go on");
}

#[test]
fn a_mapping_that_is_asked_for_is_of_no_address_that_drains() {
    let mut nat = nat(&[1]);
    let ask = |inside, port, address| MappingRequest {
        inside,
        protocol: 17,
        realm: 0,
        port,
        address,
        exact: false,
        until: 1_000 * SECOND,
        nonce: [1; 12],
        clear: false,
        filters: &[],
    };
    let old = nat.map(&ask(host(1, 80), Some(3000), None), SECOND).unwrap();
    change(&mut nat, &[2], &[1]);
    let wished = nat.map(&ask(host(1, 81), Some(3001), Some(old.address)), SECOND).unwrap();
    assert_eq!(last(wished), 2);
    assert_eq!(nat.map(&ask(host(1, 80), None, None), SECOND).unwrap(), old, "what it has it keeps");
    assert!(nat.unmap(host(1, 80), 17, 0, SECOND));
    settle(&mut nat, SECOND);
    assert_eq!(told(&mut nat).2, [1]);
}

#[test]
fn a_forward_goes_with_its_address() {
    let forward = StaticForward {
        protocol: 17,
        outside: (outside(1), 2000),
        inside: (Ipv4Addr::new(10, 0, 0, 9), 80),
        realm: 0,
    };
    let mut nat = Nat::new(Config { static_forwards: vec![forward], ..config(&[1]) }).unwrap();
    let to = forward.outside_endpoint();
    assert!(matches!(send(&mut nat, Side::Outside, REMOTE, to, SECOND), Verdict::Forward(_)));
    change(&mut nat, &[2], &[1]);
    let moved = StaticForward { outside: (outside(2), 2000), ..forward };
    let next = Config { static_forwards: vec![moved], ..config(&[2]) };
    assert_eq!(nat.in_use(&next), []);
    nat.change(&next);
    settle(&mut nat, SECOND);
    assert_eq!((told(&mut nat), nat.session_count()), ((vec![2], vec![], vec![1]), 0));
    let to = moved.outside_endpoint();
    assert!(matches!(send(&mut nat, Side::Outside, REMOTE, to, SECOND), Verdict::Forward(_)));
    // No port of the old place is kept from who has it next.
    change(&mut nat, &[1], &[]);
    assert!(!nat.pool.is_used(forward.outside_endpoint(), 1));
}

#[test]
fn what_is_kept_over_a_restart_fits_the_changed_pool() {
    let mut nat = nat(&[1]);
    let gone = opens(&mut nat, host(1, 5000), SECOND);
    change(&mut nat, &[2, 3], &[1]);
    let stays = opens(&mut nat, host(2, 5000), SECOND);
    let moved = opens(&mut nat, host(1, 5001), SECOND);
    settle(&mut nat, SECOND);
    // Whoever stops it ends what is on addresses that drain: nothing of it could go on.
    let ends: Vec<u32> = nat.passing().iter().map(|(one, _)| one.to_bits()).collect();
    assert_eq!(nat.passing(), [(outside(1), 0..=u16::MAX)]);
    nat.clear_from(0, ALL, |one| ends.contains(&one.outside().address), SECOND);
    nat.audit().unwrap();
    let records: Vec<_> = nat.export(2 * SECOND, |_| None).collect();
    let mut next = Nat::new(config(&[2, 3])).unwrap();
    let past = ImportClock { passed: SECOND, now: 3 * SECOND };
    for record in &records {
        // Ports that rest on an address that is gone have nowhere to.
        next.import(record, past, (0, 0)).unwrap();
    }
    next.audit().unwrap();
    let mut kept: Vec<_> = next.sessions().map(|(_, one)| (one.inside(), one.outside())).collect();
    kept.sort_unstable_by_key(|(inside, _)| inside.address);
    assert_eq!(kept, [(host(1, 5001), moved), (host(2, 5000), stays)], "not {gone}");
}
