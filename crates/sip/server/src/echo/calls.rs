//! Whose audio is returned: the parties of calls that are up.

use std::collections::HashMap;
use std::hash::Hash;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Most calls at a time that audio is returned for.
const CALLS: usize = 100_000;
/// A call that no audio came for during this time is over, whether its BYE was lost or its caller.
const SILENCE: Duration = Duration::from_secs(60);
/// Most packets that are returned in a second for each call of a source: audio has 50 to 400.
const RATE: u32 = 1_000;
const SECOND: Duration = Duration::from_secs(1);

/// Whose packets are returned, and what was counted: the server and the sockets share it.
#[derive(Debug)]
pub struct EchoCalls {
    calls: Mutex<Calls>,
    room: usize,
    /// RTP packets received, those of them that went back, those that did not as a call has no so many, and those of nobody
    /// in a call.
    pub received: AtomicU64,
    /// See `received`.
    pub returned: AtomicU64,
    /// See `received`.
    pub limited: AtomicU64,
    /// See `received`.
    pub unrelated: AtomicU64,
    /// RTP packets that our own receive queue had no room for.
    pub dropped_here: AtomicU64,
    /// RTCP packets received, which get no answer.
    pub rtcp: AtomicU64,
}

impl Default for EchoCalls {
    fn default() -> Self {
        Self::with_room(CALLS)
    }
}

/// What tells a call from others (RFC 3261 section 12): its Call-ID, and the tags of both sides.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Dialog {
    /// Call-ID.
    pub call: String,
    /// Tag of the caller.
    pub theirs: String,
    /// Our tag.
    pub ours: String,
}

#[derive(Debug, Default)]
struct Calls {
    by_dialog: HashMap<Dialog, Party>,
    /// Address and port of session descriptions: audio comes from there.
    media: HashMap<SocketAddr, Source>,
    /// Where calls were signalled: audio of phones behind NAT comes from any port there.
    signalled: HashMap<IpAddr, Source>,
}

#[derive(Debug)]
struct Party {
    signalled: IpAddr,
    media: Option<SocketAddr>,
    returns: bool,
    began: Instant,
}

/// Where audio of calls comes from.
#[derive(Debug, Default)]
struct Source {
    calls: u32,
    /// Those of them that want nothing back at the moment, as calls on hold.
    silent: u32,
    heard: Option<Instant>,
    /// Packets that went back in the present second, and when that began.
    second: Option<Instant>,
    packets: u32,
}

impl Source {
    fn has_room(&mut self, now: Instant) -> bool {
        if self.second.is_none_or(|began| now.saturating_duration_since(began) >= SECOND) {
            (self.second, self.packets) = (Some(now), 0);
        }
        let room = self.packets < self.calls.saturating_mul(RATE);
        self.packets += u32::from(room);
        room
    }

    fn heard_since(&self, then: Instant) -> bool {
        self.heard.is_some_and(|heard| heard >= then)
    }
}

fn join<K: Eq + Hash>(sources: &mut HashMap<K, Source>, at: K, returns: bool) {
    let source = sources.entry(at).or_default();
    source.calls += 1;
    source.silent += u32::from(!returns);
}

fn leave<K: Eq + Hash>(sources: &mut HashMap<K, Source>, at: &K, returns: bool) {
    if let Some(source) = sources.get_mut(at) {
        source.calls -= 1;
        source.silent -= u32::from(!returns);
        if source.calls == 0 {
            sources.remove(at);
        }
    }
}

impl Calls {
    fn end(&mut self, dialog: &Dialog) {
        let Some(party) = self.by_dialog.remove(dialog) else { return };
        leave(&mut self.signalled, &party.signalled, party.returns);
        if let Some(at) = party.media {
            leave(&mut self.media, &at, party.returns);
        }
    }

    fn is_live(&self, party: &Party, since: Instant) -> bool {
        let media = party.media.and_then(|at| self.media.get(&at));
        let signalled = self.signalled.get(&party.signalled);
        party.began >= since || media.into_iter().chain(signalled).any(|one| one.heard_since(since))
    }
}

impl EchoCalls {
    pub(crate) fn with_room(room: usize) -> Self {
        let none = AtomicU64::default;
        Self {
            calls: Mutex::default(),
            room,
            received: none(),
            returned: none(),
            limited: none(),
            unrelated: none(),
            dropped_here: none(),
            rtcp: none(),
        }
    }

    fn calls(&self) -> MutexGuard<'_, Calls> {
        self.calls.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A call is answered, or changed by a further INVITE. Its audio comes from where it was signalled, or from exactly the
    /// address and port in its session description; `returns`: whether the other side wants audio. False: there are too many.
    pub fn begin(
        &self,
        dialog: Dialog,
        signalled: IpAddr,
        media: Option<SocketAddr>,
        returns: bool,
        now: Instant,
    ) -> bool {
        let mut calls = self.calls();
        calls.end(&dialog);
        if calls.by_dialog.len() >= self.room {
            return false;
        }
        join(&mut calls.signalled, signalled, returns);
        if let Some(at) = media {
            join(&mut calls.media, at, returns);
        }
        calls.by_dialog.insert(dialog, Party { signalled, media, returns, began: now });
        true
    }

    /// A call is over.
    pub fn end(&self, dialog: &Dialog) {
        self.calls().end(dialog);
    }

    /// End the calls that no audio came for of late.
    pub(super) fn end_silent(&self, now: Instant) {
        let Some(since) = now.checked_sub(SILENCE) else { return };
        let mut calls = self.calls();
        let silent = calls.by_dialog.iter().filter(|(_, party)| !calls.is_live(party, since));
        let silent: Vec<Dialog> = silent.map(|(dialog, _)| dialog.clone()).collect();
        silent.iter().for_each(|dialog| calls.end(dialog));
    }

    /// Whether a packet from there goes back.
    pub(super) fn is_returned(&self, from: SocketAddr, packet: &[u8], now: Instant) -> bool {
        let count = |counter: &AtomicU64| counter.fetch_add(1, Ordering::Relaxed);
        // RFC 3550 section 5.1, RFC 5761 section 4
        let is_media = packet.len() >= 12 && packet[0] >> 6 == 2;
        if is_media && (192..=223).contains(&packet[1]) {
            count(&self.rtcp);
            return false;
        }
        let mut calls = self.calls();
        let Calls { media, signalled, .. } = &mut *calls;
        let source = media.get_mut(&from).or_else(|| signalled.get_mut(&from.ip()));
        let Some(source) = source.filter(|_| is_media) else {
            count(&self.unrelated);
            return false;
        };
        count(&self.received);
        source.heard = Some(now);
        if source.silent == source.calls {
            return false;
        }
        let room = source.has_room(now);
        if !room {
            count(&self.limited);
        }
        room
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RTP: [u8; 12] = [0x80; 12];

    fn at(text: &str) -> SocketAddr {
        text.parse().expect("address")
    }

    fn dialog(call: &str) -> Dialog {
        Dialog { call: call.into(), theirs: "t".into(), ours: "o".into() }
    }

    fn counted(counter: &AtomicU64) -> u64 {
        counter.load(Ordering::Relaxed)
    }

    #[test]
    fn only_parties_of_calls_get_their_packets_back() {
        let (calls, now) = (EchoCalls::default(), Instant::now());
        let (party, nat) = (at("192.0.2.9:4000"), at("198.51.100.1:9"));
        let takes = |from: SocketAddr, packet: &[u8]| calls.is_returned(from, packet, now);
        assert!(!takes(party, &RTP), "no call is up");
        calls.begin(dialog("a"), nat.ip(), Some(party), true, now);
        calls.begin(dialog("b"), nat.ip(), None, true, now);
        assert!(takes(party, &RTP) && takes(nat, &RTP));
        assert!(!takes(at("192.0.2.9:4002"), &RTP), "the session description names another port");
        assert!(!takes(party, &[0x80; 11]) && !takes(party, &[0; 12]), "no RTP");
        assert!(!takes(party, &[0x80, 200, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0]), "RTCP");
        calls.begin(dialog("a"), nat.ip(), Some(party), false, now);
        assert!(!takes(party, &RTP), "on hold");
        assert!(takes(nat, &RTP), "the other call is not");
        calls.end(&dialog("a"));
        assert!(!takes(party, &RTP) && takes(nat, &RTP), "the other call is up");
        calls.end(&dialog("b"));
        calls.end(&dialog("b"));
        assert!(!takes(nat, &RTP));
        assert_eq!((counted(&calls.received), counted(&calls.unrelated), counted(&calls.rtcp)), (5, 6, 1));
        let left = calls.calls();
        assert!(left.by_dialog.is_empty() && left.signalled.is_empty() && left.media.is_empty());
    }

    #[test]
    fn a_call_on_hold_silences_no_other_of_the_same_address() {
        let (calls, now, party) = (EchoCalls::default(), Instant::now(), at("192.0.2.9:4000"));
        calls.begin(dialog("held"), party.ip(), Some(party), false, now);
        assert!(!calls.is_returned(party, &RTP, now));
        calls.begin(dialog("talks"), party.ip(), Some(party), true, now);
        assert!(calls.is_returned(party, &RTP, now));
        calls.end(&dialog("held"));
        assert!(calls.is_returned(party, &RTP, now));
    }

    #[test]
    fn a_bye_of_another_dialog_ends_nothing() {
        let (calls, now, party) = (EchoCalls::default(), Instant::now(), at("192.0.2.9:4000"));
        calls.begin(dialog("a"), party.ip(), Some(party), true, now);
        calls.end(&Dialog { ours: "guessed".into(), ..dialog("a") });
        assert!(calls.is_returned(party, &RTP, now));
    }

    #[test]
    fn a_call_without_audio_for_a_minute_is_over() {
        let (calls, began) = (EchoCalls::default(), Instant::now());
        let (talks, gone, nat) = (at("192.0.2.9:4000"), at("192.0.2.9:4002"), at("198.51.100.1:9"));
        calls.begin(dialog("talks"), talks.ip(), Some(talks), true, began);
        calls.begin(dialog("gone"), gone.ip(), Some(gone), true, began);
        calls.begin(dialog("nat"), nat.ip(), Some(at("10.0.0.1:7")), true, began);
        let second = |s| began + Duration::from_secs(s);
        calls.end_silent(second(59));
        assert_eq!(calls.calls().by_dialog.len(), 3);
        assert!(calls.is_returned(talks, &RTP, second(50)) && calls.is_returned(nat, &RTP, second(50)));
        calls.end_silent(second(61));
        let left = calls.calls();
        assert!(left.by_dialog.contains_key(&dialog("talks")) && left.by_dialog.contains_key(&dialog("nat")));
        assert_eq!((left.by_dialog.len(), left.media.len()), (2, 2));
    }

    #[test]
    fn so_many_packets_go_back_in_a_second_for_each_call() {
        let (calls, began, party) = (EchoCalls::default(), Instant::now(), at("192.0.2.9:4000"));
        let returned = |now| (0..5_000).filter(|_| calls.is_returned(party, &RTP, now)).count();
        calls.begin(dialog("a"), party.ip(), Some(party), true, began);
        assert_eq!((returned(began), returned(began + SECOND / 2)), (1_000, 0));
        calls.begin(dialog("b"), party.ip(), Some(party), true, began);
        assert_eq!(returned(began + SECOND), 2_000);
        assert_eq!(counted(&calls.limited), 12_000);
    }

    #[test]
    fn there_is_room_for_so_many_calls() {
        let (calls, now, ip) = (EchoCalls::with_room(1), Instant::now(), at("192.0.2.9:1").ip());
        assert!(calls.begin(dialog("a"), ip, None, true, now));
        assert!(!calls.begin(dialog("b"), ip, None, true, now));
        assert!(calls.begin(dialog("a"), ip, None, false, now), "it is changed");
        calls.end(&dialog("a"));
        assert!(calls.begin(dialog("b"), ip, None, true, now));
    }
}
