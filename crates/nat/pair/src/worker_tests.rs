use super::super::duty::Duty;
use super::*;
use nat_core::config::SECOND;
use nat_core::testing::{NOW, REMOTE, inside, nat, send};
use std::sync::atomic::AtomicU64;

const TURN: u64 = 500_000;
const MAC: Mac = [2, 0, 0, 0, 0, 9];

/// One of two NATs: its tables, and both ends of its worker.
struct One {
    nat: Nat,
    duty: Arc<Duty>,
    counters: Arc<Counters>,
    sync: SessionSync,
    ends: Ends,
}

impl One {
    fn new(active: bool) -> Self {
        let (duty, counters) = (Arc::<Duty>::default(), Arc::<Counters>::default());
        if !active {
            duty.stop();
        }
        let (sync, ends) = SessionSync::new(Arc::clone(&duty), Arc::clone(&counters));
        let mut nat = nat();
        SessionSync::prepare(&mut nat);
        Self { nat, duty, counters, sync, ends }
    }

    fn tell(&mut self, now: u64) {
        self.sync.send_updates(&mut self.nat, now, |_| Some(MAC));
    }

    fn hear(&mut self, now: u64) {
        self.sync.apply_updates(&mut self.nat, now, |_| (1, 7));
    }

    fn open(&mut self, ports: std::ops::Range<u16>) {
        ports.for_each(|port| send(&mut self.nat, inside(1, port), REMOTE));
    }

    fn count(&self, of: impl Fn(&Counters) -> &AtomicU64) -> u64 {
        of(&self.counters).load(Ordering::Relaxed)
    }
}

/// Carry what one tells to the other, as the threads and the socket do.
fn carry(from: &One, to: &One) -> usize {
    let mut carried = 0;
    while let Ok(chunk) = from.ends.told.try_recv() {
        let bytes = chunk.bytes.clone();
        from.ends.spare.try_send(chunk.bytes).unwrap();
        to.duty.note_queued();
        to.ends.heard.try_send(Chunk { bytes, ..chunk }).unwrap();
        carried += 1;
    }
    carried
}

fn ports(one: &One) -> Vec<(u16, u16)> {
    let mut all: Vec<_> =
        one.nat.sessions().map(|(_, one)| (one.inside().port, one.outside().port)).collect();
    all.sort_unstable();
    all
}

#[test]
fn nobody_is_told_until_somebody_is_there_and_then_of_everything() {
    let (mut active, mut standby) = (One::new(true), One::new(false));
    active.open(5000..5100);
    active.tell(NOW);
    assert_eq!((carry(&active, &standby), active.nat.changes()), (0, (0, 0)));
    active.duty.set_standby(1);
    let mut now = NOW;
    while standby.count(|counters| &counters.sweeps) == 0 {
        now += TURN;
        active.tell(now);
        carry(&active, &standby);
        standby.hear(now + 1_000);
    }
    assert_eq!(ports(&standby), ports(&active));
    assert!(standby.duty.is_caught_up());
    assert_eq!(standby.count(|counters| &counters.lag), 1_000);
    assert_eq!(
        standby.count(|counters| &counters.applied),
        active.count(|counters| &counters.told),
        "nothing was refused"
    );
    // From then on what begins is there a turn later.
    active.open(6000..6003);
    active.tell(now + TURN);
    carry(&active, &standby);
    standby.hear(now + TURN);
    assert_eq!((ports(&standby).len(), ports(&standby)), (103, ports(&active)));
    standby.nat.audit().unwrap();
}

#[test]
fn a_thread_that_takes_nothing_holds_nobody_up() {
    let (mut active, mut standby) = (One::new(true), One::new(false));
    active.duty.set_standby(1);
    for turn in 0..200 {
        let port = 5000 + turn as u16;
        active.open(port..port + 1);
        active.tell(NOW + turn * TURN);
    }
    let taken = carry(&active, &standby);
    assert_eq!(taken, CHUNKS, "all buffers are under way");
    standby.hear(NOW);
    // What had to wait goes with the next turn, in order.
    active.tell(NOW + SECOND);
    carry(&active, &standby);
    (0..CHUNKS).for_each(|_| standby.hear(NOW + SECOND));
    assert_eq!(ports(&standby), ports(&active));
}

#[test]
fn what_is_left_is_told_when_it_hands_over_or_ends() {
    for ends in [false, true] {
        let (mut active, mut standby) = (One::new(true), One::new(false));
        active.duty.set_standby(1);
        (0..4).for_each(|turn| active.tell(NOW + turn * TURN));
        active.open(5000..7000);
        if ends {
            assert!(active.sync.end(&mut active.nat, NOW, |_| Some(MAC)), "somebody goes on");
        } else {
            active.duty.hand_over();
            assert!(!active.sync.is_active(NOW) && active.sync.has_stopped(&mut active.nat, NOW));
            while active.duty.flushed() == 0 {
                active.sync.flush(&mut active.nat, NOW, |_| Some(MAC));
            }
        }
        carry(&active, &standby);
        (0..CHUNKS).for_each(|_| standby.hear(NOW));
        assert_eq!(ports(&standby), ports(&active), "{ends}");
        assert_eq!(ports(&standby).len(), 2000);
    }
    // Nobody goes on with what nobody was told of.
    let mut alone = One::new(true);
    alone.open(5000..5001);
    assert!(!alone.sync.end(&mut alone.nat, NOW, |_| Some(MAC)));
}

#[test]
fn a_worker_says_when_it_stopped_and_when_it_has_work_again() {
    let mut one = One::new(true);
    assert!(!one.sync.has_stopped(&mut one.nat, NOW));
    one.duty.hold(Some(NOW + 5));
    assert!(
        !one.sync.has_stopped(&mut one.nat, NOW + 4) && one.sync.has_stopped(&mut one.nat, NOW + 5),
        "its lease is over"
    );
    assert!(!one.sync.has_stopped(&mut one.nat, NOW + 6), "once");
    one.duty.begin();
    assert_eq!(one.duty.first_start(), None);
    assert!(!one.sync.has_stopped(&mut one.nat, NOW + 9));
    assert_eq!((one.duty.first_start(), one.duty.start_count()), (Some(NOW + 9), 1));
}

#[test]
fn what_is_no_update_is_counted() {
    let mut standby = One::new(false);
    for bytes in [vec![0xee; 9], vec![3, 1]] {
        standby.duty.note_queued();
        standby.ends.heard.try_send(Chunk { standby: 0, bytes, swept: false, gap: false, at: 0 }).unwrap();
    }
    standby.hear(NOW);
    assert_eq!((standby.count(|counters| &counters.broken), ports(&standby).len()), (2, 0));
}

#[test]
fn what_was_heard_before_it_took_over_is_old() {
    let (mut active, mut standby) = (One::new(true), One::new(false));
    active.duty.set_standby(1);
    active.open(5000..5001);
    active.tell(NOW);
    carry(&active, &standby);
    standby.duty.begin();
    assert!(!standby.sync.has_stopped(&mut standby.nat, NOW), "it begins");
    assert!(standby.duty.is_caught_up());
    assert_eq!((ports(&standby).len(), standby.count(|counters| &counters.dropped)), (0, 1));
}

#[test]
fn a_sweep_is_whole_when_nothing_of_it_was_left_out() {
    let (mut active, mut standby) = (One::new(true), One::new(false));
    active.duty.set_standby(1);
    // The standby gave this subscriber's block to another, and its endpoint too.
    (0..60).for_each(|last| send(&mut standby.nat, inside(100 + last, 7000), REMOTE));
    active.open(5000..5010);
    let mut sweep = |now: u64| {
        let before = standby.count(|counters| &counters.sweeps);
        let mut now = now;
        while standby.count(|counters| &counters.sweeps) == before {
            now += TURN;
            active.tell(now);
            carry(&active, &standby);
            standby.hear(now);
        }
        (standby.ends.whole.load(Ordering::Relaxed), now)
    };
    let (whole, mut now) = sweep(NOW);
    assert!(!whole, "what it has is in the way");
    for _ in 0..4 {
        now = sweep(now + PERIOD).1;
    }
    assert!(standby.ends.whole.load(Ordering::Relaxed), "what nobody tells of has aged");
    assert_eq!(ports(&standby), ports(&active));
}

#[test]
fn changes_that_found_no_room_are_a_gap_until_the_next_sweep() {
    let mut active = One::new(true);
    active.nat.reserve_changes(8);
    active.duty.set_standby(1);
    let gaps = |active: &mut One, now| {
        active.tell(now);
        let chunks: Vec<_> = active.ends.told.try_iter().collect();
        let gaps = chunks.iter().map(|chunk| chunk.gap).collect::<Vec<_>>();
        for Chunk { bytes, .. } in chunks {
            active.ends.spare.try_send(bytes).unwrap();
        }
        gaps
    };
    active.open(5000..5003);
    assert_eq!(gaps(&mut active, NOW), [false], "the sweep tells of those");
    active.open(6000..6100);
    let left = active.nat.changes().1;
    assert!(left > 0);
    assert!(gaps(&mut active, NOW + TURN)[0]);
    assert_eq!(active.count(|counters| &counters.lost), left);
    active.open(7000..7001);
    assert!(!gaps(&mut active, NOW + 2 * TURN)[0], "once");
    // Another one is told of everything: for it there is none.
    active.open(8000..8100);
    active.duty.set_standby(2);
    assert!(!gaps(&mut active, NOW + 3 * TURN)[0]);
}

#[test]
fn who_lapsed_notes_nothing_and_tells_its_standby_of_a_gap() {
    let mut one = One::new(true);
    one.duty.set_standby(1);
    one.open(5000..5001);
    one.tell(NOW);
    one.duty.hold(Some(NOW + 5));
    assert!(one.sync.has_stopped(&mut one.nat, NOW + 5));
    one.open(6000..6100);
    assert_eq!(one.nat.changes(), (0, 0), "what it takes in is no news");
    // Its heartbeat was sent in time all the same.
    one.duty.hold(None);
    assert!(!one.sync.has_stopped(&mut one.nat, NOW + TURN));
    one.ends.told.try_iter().for_each(drop);
    one.tell(NOW + TURN);
    let chunk = one.ends.told.try_recv().unwrap();
    assert!(chunk.gap && !chunk.bytes.is_empty(), "and of everything, from the start");
}

#[test]
fn turns_are_waited_for_while_there_is_a_worker() {
    let mut one = One::new(true);
    let turned = Arc::clone(&one.ends.turned);
    assert!(!one.sync.has_stopped(&mut one.nat, NOW));
    assert_eq!(turned.load(Ordering::Relaxed), NOW);
    drop(one);
    assert_eq!(turned.load(Ordering::Relaxed), 0);
}
