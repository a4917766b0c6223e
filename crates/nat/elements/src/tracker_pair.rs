//! A connection tracker of a NAT that is one of a pair: what it does each turn beside its packets.

use crate::hops::Hops;
use crate::log::Log;
use crate::shared::BindingAsker;
use crate::state::Bound;
use nat_core::neighbours::{Neighbours, is_of_one};
use nat_core::{Hop, Nat, Realm};
use nat_pair::{Pair, PairView, SessionSync};
use std::sync::Arc;
use std::sync::mpsc::{SyncSender, TrySendError};

/// The next hop away from subscribers.
const GATEWAY: Hop = 1;

/// Lines of the table of subscribers that are looked at for their VLANs in a turn.
const LINES: u32 = 256;

/// One worker's part of a pair.
#[derive(Debug)]
pub struct TrackerPair {
    pair: Arc<Pair>,
    sync: SessionSync,
    /// The NAT table numbers next hops: it is asked for those of subscribers that the other NAT knows.
    bindings: BindingAsker,
    vlans: VlanTeller,
}

/// Tells in which VLANs subscribers are when the NAT begins to translate.
#[derive(Debug)]
struct VlanTeller {
    to: SyncSender<Realm>,
    /// How often it had begun when it was told.
    begun: u32,
    /// The line to go on from.
    from: Option<u32>,
}

impl VlanTeller {
    fn turn(&mut self, nat: &Nat, begun: u32) {
        if begun != self.begun {
            (self.begun, self.from) = (begun, Some(0));
        }
        let Some(from) = self.from else { return };
        let (subscribers, next) = nat.subscribers_from(from, LINES);
        let realms = subscribers.map(|(_, subscriber)| subscriber.realm()).filter(|realm| *realm != 0);
        let mut last = None;
        for realm in realms {
            if last.replace(realm) == Some(realm) {
                continue;
            }
            match self.to.try_send(realm) {
                Ok(()) => {}
                // The whole page is told again: who announces knows what it has heard.
                Err(TrySendError::Full(_)) => return,
                Err(TrySendError::Disconnected(_)) => return self.from = None,
            }
        }
        self.from = next;
    }
}

impl TrackerPair {
    /// Of this worker; `nat` notes what changes from now on, when somebody is to be told.
    pub fn new(
        pair: Arc<Pair>,
        (sync, bindings, vlans): (SessionSync, BindingAsker, SyncSender<Realm>),
        nat: &mut Nat,
    ) -> Self {
        SessionSync::prepare(nat);
        Self { pair, sync, bindings, vlans: VlanTeller { to: vlans, begun: 0, from: None } }
    }

    /// Whether it translates.
    #[inline]
    pub fn is_active(&self, now: u64) -> bool {
        self.sync.is_active(now)
    }

    /// Tell the standby, or be told. Whether it translates.
    pub fn turn(
        &mut self,
        nat: &mut Nat,
        (hops, neighbours): (&mut Hops, &Neighbours),
        log: Option<&mut Log>,
        now: u64,
    ) -> bool {
        while let Ok(Bound { inside, realm, hop, .. }) = self.bindings.bound.try_recv() {
            hops.learn((inside, realm), hop);
        }
        if self.sync.has_stopped(nat, now)
            && let Some(log) = log
        {
            // What was until now is in its log; what ends from now on is in the other's.
            while log.drain(nat, now) {}
        }
        let mac = |hop| neighbours.mac(hop);
        if self.sync.is_active(now) {
            self.sync.send_updates(nat, now, mac);
            self.vlans.turn(nat, self.pair.duty.start_count());
            return true;
        }
        self.sync.flush(nat, now, mac);
        let wanted = &self.bindings.wanted;
        self.sync.apply_updates(nat, now, |kept| {
            let (inside, realm, mac) = (kept.inside, kept.realm, kept.mac);
            if is_of_one(mac) {
                let _with_the_next_sweep = wanted.try_send(Bound { inside, realm, mac, hop: 0 });
            }
            (GATEWAY, hops.of((inside, realm)).unwrap_or_default())
        });
        while nat.pop_event().is_some() {}
        while nat.pop_output().is_some() {}
        false
    }

    /// The NAT ends. Whether somebody goes on with what it knows.
    pub fn end(&mut self, nat: &mut Nat, neighbours: &Neighbours, now: u64) -> bool {
        self.sync.end(nat, now, |hop| neighbours.mac(hop))
    }

    /// What this worker's log has to say still, where the standby goes on.
    pub fn close(&self, nat: &mut Nat, mut log: Log, now: u64) {
        while log.drain(nat, now) {}
        log.close();
        self.pair.keep_log(log);
    }

    /// As it is shown.
    pub fn view(&self) -> PairView {
        self.pair.view()
    }

    /// Let the standby go on. An error says why that cannot be now.
    pub fn hand_over(&self) -> Result<(), &'static str> {
        self.pair.hand_over()
    }
}
