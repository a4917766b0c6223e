use super::*;
use crate::config::{Config, PoolAddress, SECOND};
use crate::event::EventKind;
use crate::explicit::MappingRequest;
use crate::key::Endpoint;
use crate::nat::testing::send;
use crate::verdict::{Side, Verdict};
use std::net::Ipv4Addr;

const HOST: u32 = 0x0a00_0001;
const REMOTE: Endpoint = Endpoint::new(0xc633_6409, 53);
const ALL: ClearBounds = ClearBounds { lines: u32::MAX, sessions: usize::MAX, asked: false };

fn nat() -> Nat {
    let pool = vec![PoolAddress::all_ports(Ipv4Addr::new(203, 0, 113, 1))];
    let config = Config { pool, sessions: 2048, subscribers: 8, log_sessions: true, ..Config::default() };
    Nat::new(config).unwrap()
}

fn sends(nat: &mut Nat, side: Side, from: Endpoint, to: Endpoint, now: u64) -> bool {
    matches!(send(nat, side, from, to, now), Verdict::Forward(_))
}

fn open(nat: &mut Nat, host: u32, ports: std::ops::RangeInclusive<u16>) {
    for port in ports {
        assert!(sends(nat, Side::Inside, Endpoint::new(host, port), REMOTE, SECOND));
    }
}

fn events(nat: &mut Nat) -> Vec<EventKind> {
    std::iter::from_fn(|| nat.pop_event()).map(|event| event.what).collect()
}

#[test]
fn what_is_meant_ends_in_the_log_with_its_ports_and_blocks_and_nothing_else() {
    let mut nat = nat();
    open(&mut nat, HOST, 1..=700);
    open(&mut nat, HOST + 1, 1..=5);
    let before: Vec<Endpoint> = nat.sessions().map(|(_, one)| one.outside()).collect();
    assert_eq!(events(&mut nat).len(), 705 + 3, "sessions, and blocks of 512 ports");
    assert_eq!(nat.clear_from(0, ALL, |one| one.inside().address == HOST, SECOND), (700, None));
    nat.audit().unwrap();
    let told = events(&mut nat);
    let ended =
        |what: &&EventKind| matches!(what, EventKind::SessionEnded(of, _) if of.inside.address == HOST);
    assert_eq!(told.iter().filter(ended).count(), 700);
    let released = told.iter().filter(|what| matches!(what, EventKind::BlockReleased(_))).count();
    assert_eq!((released, told.len()), (1, 701), "it keeps one block, as whoever has no session");
    assert!(nat.sessions().all(|(_, one)| one.inside().address == HOST + 1));
    // Nobody reaches what was cleared, and its ports rest.
    let (gone, there) = before.split_at(700);
    assert!(gone.iter().all(|outside| !sends(&mut nat, Side::Outside, REMOTE, *outside, SECOND)));
    assert!(there.iter().all(|outside| sends(&mut nat, Side::Outside, REMOTE, *outside, SECOND)));
    open(&mut nat, HOST, 1..=300);
    let again: Vec<Endpoint> = nat.sessions().map(|(_, one)| one.outside()).collect();
    assert!(again.len() == 305 && again.iter().all(|outside| !gone.contains(outside)));
    nat.audit().unwrap();
}

#[test]
fn work_is_bounded_and_goes_on_where_it_ended() {
    for (lines, sessions) in [(1, 1), (7, 100), (100, 7), (64, 64), (u32::MAX, 33)] {
        let mut nat = nat();
        open(&mut nat, HOST, 1..=500);
        let (mut from, mut all, mut turns) = (Some(0), 0, 0);
        while let Some(line) = from {
            let bounds = ClearBounds { lines, sessions, asked: false };
            let (ended, next) = nat.clear_from(line, bounds, |one| one.inside().port % 2 == 0, SECOND);
            assert!(ended <= sessions && next.is_none_or(|next| next > line && next - line <= lines));
            (from, all, turns) = (next, all + ended, turns + 1);
        }
        assert_eq!((all, nat.session_count()), (250, 250), "{lines} {sessions}");
        assert!(turns >= 500 / lines as usize && turns >= 250 / sessions, "{turns}");
        nat.audit().unwrap();
    }
    // No room for any is no progress, and what somebody makes up leads nowhere.
    let mut nat = nat();
    open(&mut nat, HOST, 1..=5);
    assert_eq!(nat.clear_from(2, ClearBounds { sessions: 0, ..ALL }, |_| true, SECOND), (0, Some(2)));
    assert_eq!(nat.clear_from(u32::MAX, ALL, |_| true, SECOND), (0, None));
    assert_eq!(nat.session_count(), 5);
}

#[test]
fn what_was_asked_for_stays_unless_it_is_meant_too() {
    let mut nat = nat();
    let (mapped, peer) = (Endpoint::new(HOST, 80), Endpoint::new(HOST, 81));
    let outside = nat.map(&MappingRequest::new(mapped, 17, 0, 9_000 * SECOND), SECOND).unwrap();
    nat.peer(&MappingRequest::new(peer, 17, 0, 9_000 * SECOND), REMOTE, SECOND).unwrap();
    open(&mut nat, HOST, 80..=80);
    assert_eq!(nat.clear_from(0, ALL, |_| true, SECOND), (1, None));
    assert!(sends(&mut nat, Side::Outside, REMOTE, outside, SECOND), "strangers reach the mapping");
    assert_eq!((nat.explicit_count(HOST, 0), nat.session_count()), (1, 2));
    let (ended, _) = nat.clear_from(0, ClearBounds { asked: true, ..ALL }, |_| true, SECOND);
    assert_eq!((ended, nat.explicit_count(HOST, 0), nat.session_count()), (3, 0, 0));
    assert!(!sends(&mut nat, Side::Outside, REMOTE, outside, SECOND));
    nat.audit().unwrap();
}
