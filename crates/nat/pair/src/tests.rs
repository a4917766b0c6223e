//! Both of a pair in one process, over a real socket: an order of events, and no measure of time.

use super::view::{Cause, Role};
use super::*;
use engine::Clock;
use nat_core::Nat;
use nat_core::testing::{REMOTE, inside, nat, send};
use std::path::Path;
use std::time::Instant;

/// What would be waited for at most.
const PATIENCE: Duration = Duration::from_secs(60);

fn options(folder: &Path) -> PairOptions {
    // Longer than a busy machine holds a thread up.
    PairOptions { socket: folder.join("pair").to_str().unwrap().to_owned(), silence: Interval::secs(20) }
}

fn terms(pool: u32) -> Terms {
    Terms::from([("pool".to_owned(), pool)])
}

fn begin(folder: &Path, pool: u32, seed: u8) -> Result<Pair, JoinError> {
    let own = (Arc::default(), Arc::new(Neighbour::default()));
    Pair::begin(&options(folder), terms(pool), 1, [seed; 32], own)
}

/// A NAT of a pair, whose only worker this is.
struct One {
    pair: Pair,
    sync: SessionSync,
    nat: Nat,
}

impl One {
    fn begin(folder: &Path, seed: u8) -> Self {
        let pair = begin(folder, 1, seed).unwrap();
        let mut nat = nat();
        SessionSync::prepare(&mut nat);
        Self { sync: pair.worker(0).unwrap(), pair, nat }
    }

    fn turn(&mut self) {
        let now = Clock::get().now();
        let _log = self.sync.has_stopped(&mut self.nat, now);
        if self.sync.is_active(now) {
            self.sync.send_updates(&mut self.nat, now, |_| None);
        } else {
            self.sync.flush(&mut self.nat, now, |_| None);
            self.sync.apply_updates(&mut self.nat, now, |_| (1, 0));
        }
    }

    fn is(&self, role: Role, synced: bool) -> bool {
        let view = self.pair.view();
        (view.role, view.synced) == (role, synced)
    }
}

fn until(all: &mut [&mut One], what: &str, holds: impl Fn(&[&mut One]) -> bool) {
    let began = Instant::now();
    while !holds(all) {
        all.iter_mut().for_each(|one| one.turn());
        assert!(
            began.elapsed() < PATIENCE,
            "{what}: {:?}",
            all.iter().map(|one| one.pair.view()).collect::<Vec<_>>()
        );
        std::thread::sleep(Duration::from_micros(500));
    }
}

#[test]
fn the_second_is_the_standby_and_goes_on_when_the_first_ends() {
    let folder = tempfile::tempdir().unwrap();
    let mut first = One::begin(folder.path(), 3);
    until(&mut [&mut first], "it is alone and not active", |all| all[0].is(Role::Active, false));
    assert!(first.pair.hand_over().is_err(), "there is no standby");
    send(&mut first.nat, inside(1, 5000), REMOTE);
    let mut second = One::begin(folder.path(), 4);
    assert_eq!(second.pair.seed, [3; 32], "its workers divide subscribers as the first's do");
    assert!(second.pair.hand_over().is_err(), "it is not the active one");
    until(&mut [&mut first, &mut second], "it knows nothing", |all| {
        all[0].is(Role::Active, true) && all[1].is(Role::Standby, true)
    });
    assert_eq!((second.nat.session_count(), first.pair.view().peer), (1, Some(std::process::id())));
    // A third one is told that there is no room, one that is configured otherwise what differs.
    assert_eq!(begin(folder.path(), 1, 5).unwrap_err(), JoinError::Taken);
    let otherwise = begin(folder.path(), 2, 5).unwrap_err();
    assert_eq!(
        (otherwise.to_string().as_str(), otherwise.passes()),
        ("the active NAT has it otherwise: pool", false)
    );
    send(&mut first.nat, inside(1, 5001), REMOTE);
    let now = Clock::get().now();
    assert!(first.sync.end(&mut first.nat, now, |_| None));
    drop(first);
    until(&mut [&mut second], "it does not go on", |all| {
        all[0].is(Role::Active, false) && all[0].pair.view().takeover.is_some()
    });
    let view = second.pair.view();
    assert_eq!((view.takeovers, view.takeover.unwrap().cause), (1, Cause::HandedOver));
    assert_eq!(second.nat.session_count(), 2);
}

#[test]
fn handing_over_and_back_keeps_everything() {
    let folder = tempfile::tempdir().unwrap();
    let (mut one, mut other) = (One::begin(folder.path(), 3), One::begin(folder.path(), 4));
    for round in 0..2u16 {
        send(&mut one.nat, inside(1, 5000 + round), REMOTE);
        until(&mut [&mut one, &mut other], "no standby that knows everything", |all| {
            all[0].is(Role::Active, true) && all[1].is(Role::Standby, true)
        });
        one.pair.hand_over().unwrap();
        until(&mut [&mut one, &mut other], "it was not handed over", |all| {
            all[0].is(Role::Standby, true) && all[1].is(Role::Active, true)
        });
        assert_eq!(other.pair.view().takeover.unwrap().cause, Cause::HandedOver);
        assert_eq!(other.nat.session_count(), usize::from(round) + 1);
        std::mem::swap(&mut one, &mut other);
    }
    assert!(one.pair.duty.is_active(Clock::get().now()) && !other.pair.duty.is_active(0));
}

#[test]
fn a_connection_that_breaks_is_noticed_and_a_lost_lock_too() {
    let folder = tempfile::tempdir().unwrap();
    let (mut one, mut other) = (One::begin(folder.path(), 3), One::begin(folder.path(), 4));
    until(&mut [&mut one, &mut other], "no standby", |all| all[0].is(Role::Active, true));
    // As if the first had hung, and the lock were another's when it wakes up: it is silent, and the standby then.
    let path = folder.path().join("pair.lock");
    let stolen = link::Lock::steal(&path).unwrap();
    until(&mut [&mut one], "it translates all the same", |all| {
        !all[0].pair.duty.is_active(Clock::get().now())
    });
    drop(stolen);
    until(&mut [&mut one, &mut other], "nobody translates", |all| {
        let roles = all.iter().map(|one| one.pair.view().role);
        let roles: Vec<Role> = roles.collect();
        roles.contains(&Role::Active) && roles.contains(&Role::Standby)
    });
}

#[test]
fn what_cannot_be_is_said() {
    let at = |socket: &str, silence| PairOptions { socket: socket.to_owned(), silence };
    let keys = |options: PairOptions| options.check().into_iter().map(|one| one.key).collect::<Vec<_>>();
    assert!(keys(at("/run/cgn.pair", silence())).is_empty());
    assert_eq!(keys(at("cgn.pair", Interval::ms(100))), ["socket", "silence"]);
    assert_eq!(keys(at(&format!("/{}", "x".repeat(PATH)), Interval::secs(61))), ["socket", "silence"]);
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir(folder.path().join("pair.lock")).unwrap();
    let why = begin(folder.path(), 1, 1).unwrap_err();
    assert!(why.to_string().starts_with("the lock beside it"), "{why}");
}
