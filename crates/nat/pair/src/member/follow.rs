//! The standby's part of a pair's thread: it hands on to the workers what the active NAT tells, and notices when that is gone.

use super::super::TICK;
use super::super::lease::Watch;
use super::super::link::{Link, LinkEvent, Lock};
use super::super::message::Message;
use super::super::view::{Cause, Role};
use super::super::worker::{Chunk, Ends};
use super::{BURST, Member, Outage, monotonic, wait};
use std::collections::BTreeSet;
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::sync::mpsc::TrySendError;
use std::time::{Duration, Instant};

/// A worker that is about to take some in is waited for, for so long, a pause at a time.
const ROOM: Duration = Duration::from_millis(10);
const PAUSE: Duration = Duration::from_micros(250);

/// What a standby was told of, by the numbers of workers.
#[derive(Debug, Default)]
pub(super) struct Sweeps {
    /// Those of which a whole sweep was delivered.
    pub whole: BTreeSet<u16>,
    /// Those of which the sweep under way has lost a chunk.
    torn: BTreeSet<u16>,
}

impl Sweeps {
    /// A chunk came whole or not, and a sweep ends with it or does not. Of what is missing the next whole sweep tells.
    fn note(&mut self, worker: u16, (delivered, gap): (bool, bool), ends: bool) {
        if !delivered || gap {
            self.torn.insert(worker);
            self.whole.remove(&worker);
        }
        if delivered && ends && !self.torn.remove(&worker) {
            self.whole.insert(worker);
        }
    }
}

impl Member {
    /// Take in what the active NAT tells, until it is gone; with the lock, if this NAT has taken it by then.
    pub(super) fn follow(&mut self, link: &Link) -> Option<Lock> {
        let now = self.clock.now();
        let mut watch = Watch::new(self.settings.silence, now);
        let mut sweeps = Sweeps::default();
        self.status().turn(Role::Standby, link.peer().ok());
        tracing::info!("standby of process {}", link.peer().unwrap_or(0));
        while !self.is_ending() {
            for _ in 0..BURST {
                let received = link.receive(&mut self.room);
                let now = self.clock.now();
                let cause = match received {
                    Ok(LinkEvent::Packet(len)) => {
                        watch.message_received(now);
                        match self.handle_message(len, &mut sweeps) {
                            Ok(()) => continue,
                            Err(cause) => cause,
                        }
                    }
                    Ok(LinkEvent::Nothing) => break,
                    Ok(LinkEvent::Closed) | Err(_) => Cause::Closed,
                };
                self.outage = Some(Outage { cause, heard: watch.last_message(), noticed: now });
                return None;
            }
            self.tell_synced(link, &sweeps);
            let now = self.clock.now();
            if watch.is_silent(now) && link.is_quiet() {
                self.outage =
                    Some(Outage { cause: Cause::Silent, heard: watch.last_message(), noticed: now });
                return self.steal();
            }
            wait(&[(link.as_fd(), false)], 2 * TICK);
        }
        None
    }

    /// The other hangs: its lease is over. The link is closed only after this, so that it sees the lock's loss first.
    fn steal(&mut self) -> Option<Lock> {
        let mut path = self.settings.socket.as_os_str().to_owned();
        path.push(".lock");
        match Lock::steal(&PathBuf::from(path)) {
            Ok(lock) => Some(lock),
            Err(why) => {
                self.cannot_join(&format!("the lock of a silent NAT cannot be taken: {why}"));
                None
            }
        }
    }

    /// A message of the active NAT. An error: it goes no further.
    pub(super) fn handle_message(&mut self, len: usize, sweeps: &mut Sweeps) -> Result<(), Cause> {
        match Message::decode(self.room.get(..len).unwrap_or(&[])) {
            Ok(Message::Alive(gateway)) => {
                if let Some(mac) = gateway {
                    self.gateway.set(mac);
                }
            }
            Ok(Message::Updates { worker, swept: ends, gap, at, bytes }) => {
                let age = monotonic().saturating_sub(at);
                let at = self.clock.now().saturating_sub(age);
                // Who had no room for the last one is not waited for again before the next sweep.
                let most = if sweeps.torn.contains(&worker) { Duration::ZERO } else { ROOM };
                let delivered = self.ends.get(usize::from(worker)).is_some_and(|to| {
                    let mut chunk = to.used.try_recv().unwrap_or_default();
                    chunk.clear();
                    chunk.extend(bytes);
                    self.duty.note_queued();
                    let sent = deliver(to, Chunk { standby: 0, bytes: chunk, swept: ends, gap, at }, most);
                    if !sent {
                        self.duty.note_taken();
                    }
                    sent
                });
                self.counters.dropped.fetch_add(u64::from(!delivered), Ordering::Relaxed);
                sweeps.note(worker, (delivered, gap), ends);
            }
            Ok(Message::HandOver) => return Err(Cause::HandedOver),
            Ok(_) | Err(_) => {
                self.counters.broken.fetch_add(1, Ordering::Relaxed);
            }
        }
        Ok(())
    }

    /// When all workers have been told of everything, and have taken all of it in, the other is to know; and when something is missing again.
    pub(super) fn tell_synced(&mut self, link: &Link, sweeps: &Sweeps) {
        let is_caught_up = self.duty.is_caught_up();
        let are_whole = || self.ends.iter().all(|ends| ends.whole.load(Ordering::Acquire));
        let knows_all = sweeps.whole.len() == self.ends.len() && are_whole();
        let message = match (self.status().synced, knows_all) {
            (false, true) if is_caught_up => Message::Synced,
            (true, false) => Message::OutOfSync,
            _ => return,
        };
        message.encode(&mut self.out);
        if let Ok(true) = link.send(&self.out) {
            self.status().synced = knows_all;
        }
    }
}

/// Hand a chunk to a worker that may be about to make room for it.
fn deliver(to: &Ends, mut chunk: Chunk, most: Duration) -> bool {
    let began = Instant::now();
    loop {
        chunk = match to.heard.try_send(chunk) {
            Ok(()) => return true,
            Err(TrySendError::Full(chunk)) => chunk,
            Err(TrySendError::Disconnected(_)) => return false,
        };
        if began.elapsed() >= most {
            return false;
        }
        std::thread::sleep(PAUSE);
    }
}
