use super::follow::Sweeps;
use super::*;
use std::path::Path;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::{JoinHandle, sleep, spawn};

/// The other ends of a worker's channels.
struct Worker {
    told: SyncSender<Chunk>,
    spare: Receiver<Vec<u8>>,
    heard: Receiver<Chunk>,
}

impl Worker {
    fn tell(&self, standby: u32, len: usize) {
        self.told.send(Chunk { standby, bytes: vec![7; len], swept: false, gap: false, at: 0 }).unwrap();
    }
}

fn member(folder: &Path, silence: u64) -> (Member, Worker) {
    let (tell, told) = sync_channel(1_000);
    let (give_back, spare) = sync_channel(1_000);
    let (hear, heard) = sync_channel(2);
    let (_, used) = sync_channel(2);
    let ends =
        Ends { told, spare: give_back, heard: hear, used, whole: Arc::default(), turned: Arc::default() };
    let settings = Settings { socket: folder.join("pair"), silence, terms: Terms::new() };
    let own = (Arc::default(), Arc::new(Neighbour::default()));
    (Member::new(settings, own, vec![ends], [3; 32]), Worker { told: tell, spare, heard })
}

/// A standby that was welcomed, and its end of the link.
fn welcomed(member: &mut Member) -> (StandbyPeer, Link) {
    let listener = Listener::at(&member.settings.socket).unwrap();
    let theirs = Link::connect(&member.settings.socket).unwrap();
    let own = listener.accept().unwrap().unwrap();
    (member.accept_standby(own, 1).unwrap(), theirs)
}

fn read(link: &Link) -> Vec<Vec<u8>> {
    let (mut room, mut read) = (Box::new([0; LONGEST]), Vec::new());
    while let Ok(LinkEvent::Packet(len)) = link.receive(&mut room) {
        read.push(room[..len].to_vec());
    }
    read
}

fn updates(messages: &[Vec<u8>]) -> usize {
    messages.iter().filter(|one| matches!(Message::decode(one), Ok(Message::Updates { .. }))).count()
}

#[test]
fn the_next_standby_is_not_told_what_the_last_one_was_to_be() {
    let folder = tempfile::tempdir().unwrap();
    let (mut member, worker) = member(folder.path(), 60_000_000_000);
    let (first, link) = welcomed(&mut member);
    assert_eq!(member.duty.standby(), first.number);
    // It dies with chunks under way, of which one ends a sweep.
    worker.tell(first.number, 9);
    drop((first, link));
    member.leave_standby();
    let (mut second, link) = welcomed(&mut member);
    worker.tell(second.number, 10);
    worker.tell(second.number - 1, 11);
    member.send_chunks(&mut second).unwrap();
    assert_eq!(updates(&read(&link)), 1);
    let back: Vec<_> = worker.spare.try_iter().map(|bytes| bytes.len()).collect();
    assert_eq!(back, [9, 10, 11], "the buffers come back all the same");
}

#[test]
fn heartbeats_go_between_chunks_and_a_standby_that_reads_slowly_stays() {
    let folder = tempfile::tempdir().unwrap();
    let (mut member, worker) = member(folder.path(), 60_000_000_000);
    let (mut other, link) = welcomed(&mut member);
    (0..1_000).for_each(|_| worker.tell(other.number, 60_000));
    while !other.unsent {
        member.send_chunks(&mut other).unwrap();
    }
    let messages = read(&link);
    let alive = |one: &Vec<u8>| matches!(Message::decode(one), Ok(Message::Alive(_)));
    assert!(messages.iter().position(alive).is_some_and(|at| at < 3), "it does not wait for all chunks");
    // What found no room goes through once it has read, and the lease begins with that.
    let before = other.lease.due();
    member.send_chunks(&mut other).unwrap();
    assert!(other.lease.due() > before);
}

/// Who comes as soon as somebody listens, and says this.
fn guest(socket: PathBuf, says: Vec<Message<'static>>) -> JoinHandle<Link> {
    spawn(move || {
        let link = loop {
            match Link::connect(&socket) {
                Ok(link) => break link,
                Err(_) => sleep(AGAIN),
            }
        };
        let mut bytes = Vec::new();
        for message in says {
            message.encode(&mut bytes);
            link.send(&bytes).unwrap();
        }
        link
    })
}

#[test]
fn who_lapsed_lets_the_other_have_the_lock_first() {
    let folder = tempfile::tempdir().unwrap();
    // Over before it can be kept.
    let (mut member, _worker) = member(folder.path(), 6);
    let Ok(JoinOutcome::Active(lock)) = member.join_first() else { panic!("nobody has the lock") };
    let socket = member.settings.socket.clone();
    let guest = guest(socket, vec![Message::Hello(VERSION, Terms::new())]);
    assert!(member.lead(&lock), "it yields");
    assert!(lock.is_held() && !member.duty.is_active(0), "and is silent, though nobody took the lock");
    drop((lock, guest.join()));
    assert!(member.try_join(false).unwrap().is_none(), "it joins who is there, and nobody is");
    assert!(matches!(member.try_join(true), Ok(Some((JoinOutcome::Active(_), _)))));
}

/// What the standby hears of worker 0: whether a sweep ends with it, and whether something before it is missing.
fn hear(member: &mut Member, (swept, gap): (bool, bool), sweeps: &mut Sweeps) -> usize {
    Message::Updates { worker: 0, swept, gap, at: 0, bytes: &[] }.encode(&mut member.out);
    member.room[..member.out.len()].copy_from_slice(&member.out);
    member.handle_message(member.out.len(), sweeps).unwrap();
    sweeps.whole.len()
}

#[test]
fn a_sweep_that_lost_a_chunk_is_not_whole() {
    let folder = tempfile::tempdir().unwrap();
    let (mut member, worker) = member(folder.path(), 60_000_000_000);
    let mut sweeps = Sweeps::default();
    let mut hear = |swept| hear(&mut member, (swept, false), &mut sweeps);
    // There is room for two.
    assert_eq!([hear(false), hear(false), hear(false)], [0; 3]);
    worker.heard.try_iter().for_each(drop);
    assert_eq!(hear(true), 0, "its end alone says nothing");
    assert_eq!(hear(true), 1, "the next one is whole");
}

#[test]
fn a_standby_says_when_it_knows_everything_and_when_it_does_not_any_more() {
    let folder = tempfile::tempdir().unwrap();
    let (mut standby, worker) = member(folder.path(), 60_000_000_000);
    let listener = Listener::at(&standby.settings.socket).unwrap();
    let own = Link::connect(&standby.settings.socket).unwrap();
    let active = listener.accept().unwrap().unwrap();
    let mut sweeps = Sweeps::default();
    standby.ends[0].whole.store(true, Ordering::Relaxed);
    let mut turn = |swept, gap, is_taken_in: bool| {
        hear(&mut standby, (swept, gap), &mut sweeps);
        if is_taken_in {
            worker.heard.try_iter().for_each(|_| standby.duty.note_taken());
        }
        standby.tell_synced(&own, &sweeps);
        read(&active).first().map(|one| Message::decode(one) == Ok(Message::Synced))
    };
    assert_eq!(turn(true, false, false), None, "a sweep came, and is not taken in");
    assert_eq!(turn(false, false, true), Some(true));
    assert_eq!(turn(true, false, true), None, "it has said so");
    assert_eq!(turn(false, true, true), Some(false), "something was left out");
    assert_eq!(turn(true, false, true), None, "the sweep may have passed it");
    assert_eq!(turn(true, false, true), Some(true));
    // What a worker has no room for is missing too.
    assert_eq!([turn(false, false, false), turn(false, false, false)], [None; 2]);
    assert_eq!(turn(false, false, false), Some(false));
}

#[test]
fn it_is_not_handed_over_to_a_standby_that_lacks_something() {
    let folder = tempfile::tempdir().unwrap();
    let (mut member, worker) = member(folder.path(), 60_000_000_000);
    let (mut other, link) = welcomed(&mut member);
    let mut says = |member: &mut Member, message: Message<'_>| {
        let mut bytes = Vec::new();
        message.encode(&mut bytes);
        link.send(&bytes).unwrap();
        member.carry(&mut other, 0).unwrap();
        (member.is_synced(), member.duty.is_synced())
    };
    assert_eq!(says(&mut member, Message::Synced), (true, true));
    assert_eq!(says(&mut member, Message::OutOfSync), (false, false));
    assert_eq!(says(&mut member, Message::Synced), (true, true));
    // Before the standby has said so: the order may come in between.
    worker.told.send(Chunk { standby: 1, bytes: vec![7], swept: false, gap: true, at: 0 }).unwrap();
    assert_eq!(says(&mut member, Message::Alive(None)), (false, false));
}

#[test]
fn the_standby_goes_on_when_a_worker_hangs() {
    let folder = tempfile::tempdir().unwrap();
    let (mut member, _worker) = member(folder.path(), 60_000_000_000);
    let Ok(JoinOutcome::Active(lock)) = member.join_first() else { panic!("nobody has the lock") };
    let now = member.clock.now();
    let turned = Arc::clone(&member.ends[0].turned);
    assert_eq!(member.hung(u64::MAX), None, "it has had none yet");
    turned.store(now, Ordering::Relaxed);
    assert_eq!((member.hung(now + 59_999_999_999), member.hung(now + 60_000_000_000)), (None, Some(0)));
    // It hangs from the start.
    turned.store(1, Ordering::Relaxed);
    member.patience = 1;
    let socket = member.settings.socket.clone();
    let standby = guest(socket, vec![Message::Hello(VERSION, Terms::new()), Message::Synced]);
    assert!(member.lead(&lock), "it yields");
    let said = read(&standby.join().unwrap());
    assert_eq!(said.last().map(|last| Message::decode(last)), Some(Ok(Message::HandOver)));
}
