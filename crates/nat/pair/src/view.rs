//! What is shown of a pair, and what its workers count.

use nat_core::state::SkipReason;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

/// Counted by all workers, since the start.
#[derive(Debug, Default)]
pub struct Counters {
    /// Updates that were told.
    pub told: AtomicU64,
    /// Changes that found no room; the next sweep tells of them.
    pub lost: AtomicU64,
    /// Updates that were taken in.
    pub applied: AtomicU64,
    /// Chunks that a worker had no room for.
    pub dropped: AtomicU64,
    /// Chunks of which the rest was no update that can be.
    pub broken: AtomicU64,
    /// Sweeps that were taken in.
    pub sweeps: AtomicU64,
    /// How old the last chunk was when it was taken in, ns.
    pub lag: AtomicU64,
    left_out: [AtomicU64; SkipReason::ALL.len()],
}

impl Counters {
    /// An update does not fit.
    pub fn leave_out(&self, why: SkipReason) {
        if let Some(count) = self.left_out.get(why as usize) {
            count.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn left_out(&self) -> BTreeMap<&'static str, u64> {
        let counts = self.left_out.iter().map(|count| count.load(Ordering::Relaxed));
        SkipReason::ALL
            .into_iter()
            .map(SkipReason::name)
            .zip(counts)
            .filter(|(_, count)| *count > 0)
            .collect()
    }
}

/// What a NAT of a pair is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// It translates.
    Active,
    /// It knows what the other does, and translates nothing.
    Standby,
    /// It looks for the other.
    Joining,
}

/// Why a standby took over.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Cause {
    /// It was handed over to.
    HandedOver,
    /// The other closed the connection, or its process died.
    Closed,
    /// The other was silent.
    Silent,
}

impl Cause {
    /// In words.
    pub fn name(self) -> &'static str {
        match self {
            Self::HandedOver => "handed over",
            Self::Closed => "connection closed",
            Self::Silent => "silent",
        }
    }
}

/// When this NAT took over.
#[derive(Debug, Clone, Copy, PartialEq, serde::Serialize)]
pub struct Takeover {
    /// Why.
    pub cause: Cause,
    /// From the last message of the other until a worker of this one translated, ms.
    pub since_heard_ms: f64,
    /// From when it was noticed, ms.
    pub took_ms: f64,
    /// Seconds since then.
    pub ago_s: f64,
}

/// A pair, as one of the two sees it.
#[derive(Debug, Clone, PartialEq, serde::Serialize)]
pub struct PairView {
    /// What it is.
    pub role: Role,
    /// For how long, s.
    pub since_s: f64,
    /// The socket.
    pub socket: String,
    /// The other's process; `None` while there is no other.
    pub peer: Option<u32>,
    /// Whether the standby knows everything.
    pub synced: bool,
    /// How often it took over.
    pub takeovers: u64,
    /// The last time.
    pub takeover: Option<Takeover>,
    /// Updates that it told.
    pub told: u64,
    /// Changes and chunks that found no room; the next sweep told of them.
    pub lost: u64,
    /// Updates that it took in.
    pub applied: u64,
    /// Sweeps that it took in.
    pub sweeps: u64,
    /// How old the last update was when it was taken in, ms.
    pub lag_ms: f64,
    /// Updates that did not fit, by reason.
    pub left_out: BTreeMap<&'static str, u64>,
    /// Why it cannot join, if it cannot.
    pub error: Option<String>,
}

/// What the thread says of itself.
#[derive(Debug, Clone)]
pub struct MemberStatus {
    pub role: Role,
    pub since: Instant,
    pub peer: Option<u32>,
    pub synced: bool,
    pub takeovers: u64,
    /// And when it was.
    pub takeover: Option<(Takeover, Instant)>,
    pub error: Option<String>,
}

impl MemberStatus {
    /// In this role from now on.
    pub fn new(role: Role) -> Self {
        let (since, takeovers) = (Instant::now(), 0);
        Self { role, since, peer: None, synced: false, takeovers, takeover: None, error: None }
    }

    /// It is another from now on.
    pub fn turn(&mut self, role: Role, peer: Option<u32>) {
        if self.role != role {
            (self.role, self.since) = (role, Instant::now());
        }
        (self.peer, self.synced, self.error) = (peer, false, None);
    }

    /// As it is shown.
    pub fn view(&self, socket: &str, counters: &Counters) -> PairView {
        let of = |count: &AtomicU64| count.load(Ordering::Relaxed);
        let takeover = self.takeover.map(|(one, at)| Takeover { ago_s: at.elapsed().as_secs_f64(), ..one });
        PairView {
            role: self.role,
            since_s: self.since.elapsed().as_secs_f64(),
            socket: socket.to_owned(),
            peer: self.peer,
            synced: self.synced,
            takeovers: self.takeovers,
            takeover,
            told: of(&counters.told),
            lost: of(&counters.lost) + of(&counters.dropped) + of(&counters.broken),
            applied: of(&counters.applied),
            sweeps: of(&counters.sweeps),
            lag_ms: of(&counters.lag) as f64 / 1e6,
            left_out: counters.left_out(),
            error: self.error.clone(),
        }
    }
}
