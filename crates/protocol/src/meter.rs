//! What a group of devices did: counts and delays, kept apart by the phase a message was *meant* for.
//!
//! A message belongs to the phase of its intended send time, whenever its answer comes. So what was
//! sent in the measure phase and answered while draining is still measured, and loss is the
//! difference of two counts over the same messages.

use crate::cause::{Cause, Causes, Detail};
use crate::describe::{Better, Counter, Description, Unit};
pub use crate::failure::Failure;
pub use crate::histogram::{DELAY_MAX_NS, histogram, record};
pub use crate::reordering::Pattern;
use crate::reordering::ReorderingTally;
use crate::time::Time;
use crate::variation::Variation;
use hdrhistogram::Histogram;
use schemars::JsonSchema;
use serde::Serialize;
use std::collections::BTreeMap;
use std::ops::AddAssign;

/// The three parts of a trial.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Phase {
    /// Load is on, results do not count.
    Warmup = 0,
    /// What the result is made of.
    Measure = 1,
    /// No new load; answers still on their way are waited for.
    Drain = 2,
}

/// When each phase ends.
#[derive(Debug, Clone, Copy)]
pub struct Window {
    /// End of the warm-up: the measure phase starts here.
    pub measure: Time,
    /// End of the measure phase: draining starts here.
    pub drain: Time,
}

impl Window {
    /// The phase that `at` falls in.
    #[inline]
    pub fn phase(&self, at: Time) -> Phase {
        if at < self.measure {
            Phase::Warmup
        } else if at < self.drain {
            Phase::Measure
        } else {
            Phase::Drain
        }
    }

    /// The phase that something counts to which happens at `at`: draining still belongs to what was measured.
    #[inline]
    pub fn counted(&self, at: Time) -> Phase {
        match self.phase(at) {
            Phase::Drain => Phase::Measure,
            phase => phase,
        }
    }
}

/// Declares [`Counts`] and [`COUNTERS`] from one line a counter: name, unit, which way is better, meaning.
macro_rules! counters {
    ($( $name:ident: $unit:ident, $better:ident, $about:literal; )+) => {
        /// Counts of one group over some time; those that its model has of its own stand beside.
        #[derive(Debug, Clone, Copy, Default, PartialEq, Eq, JsonSchema)]
        pub struct Counts {
            $( #[doc = $about] pub $name: u64, )+
            /// Failures by kind, by when they happened; unanswered messages and lost datagrams, by when they were due.
            #[schemars(with = "BTreeMap<String, u64>")]
            pub failures: [u64; Failure::ALL.len()],
        }

        /// The counters that every group has, in the order of [`Counts::named_counters`]. The live view, exporters and the pages of
        /// documentation have names, units and meaning from here.
        pub const COUNTERS: [Counter; [$( stringify!($name) ),+].len()] = [$(
            Counter { name: stringify!($name), unit: Unit::$unit, about: $about, better: Better::$better }
        ),+];

        impl Counts {
            /// Name and value of every plain counter, for results and metrics.
            pub fn named_counters(&self) -> [(&'static str, u64); COUNTERS.len()] {
                [$( (stringify!($name), self.$name) ),+]
            }
        }

        impl AddAssign<&Counts> for Counts {
            fn add_assign(&mut self, other: &Counts) {
                $( self.$name += other.$name; )+
                self.failures.iter_mut().zip(other.failures).for_each(|(mine, theirs)| *mine += theirs);
            }
        }
    };
}

counters! {
    flows_intended: Flows, Neither, "Flows that the load asked for.";
    flows_suppressed: Flows, Neither, "Flows that were due while max_flows were under way, and were never begun: the load did not ask for them.";
    flows_started: Flows, Neither, "Flows begun.";
    flows_completed: Flows, More, "Flows that ended in good order.";
    flows_failed: Flows, Less, "Flows that ended otherwise.";
    messages_intended: Messages, Neither, "Messages that fell due: the intended load.";
    messages_sent: Messages, Neither, "Messages handed to the transport: the offered load.";
    messages_delivered: Messages, More, "Messages whose delivery was confirmed.";
    messages_received: Messages, Neither, "Messages that came unasked, like those of subscriptions.";
    duplicates: Messages, Less, "Messages that arrived again.";
    reordered: Datagrams, Less, "Datagrams that arrived after a later one (RFC 4737).";
    corrupted: Messages, Less, "Replies that were not what was sent; they count as lost as well.";
    receive_drops: Datagrams, Less, "Datagrams that our own receive queue had no room for: no loss of the network's.";
    bytes_sent: Bytes, Neither, "Payload bytes that have left this host; on datagrams, that were given to it.";
    bytes_received: Bytes, More, "Payload bytes received.";
}

/// Counts and delay histograms (nanoseconds) of one phase.
#[derive(Debug, Clone)]
pub struct Tally {
    /// What was counted.
    pub counts: Counts,
    /// One histogram per delay that the model names, in its order.
    pub delays: Vec<Histogram<u64>>,
    /// How each of these delays changed from one message of a device to its next.
    pub variation: Vec<Variation>,
    /// What the model measures that is no time, in thousandths, in the order of its [`Description::values`].
    pub values: Vec<Histogram<u64>>,
    /// What the model counts of its own, in the order of its [`Description::counters`].
    pub own: Box<[u64]>,
    /// How late the generator itself was: actual minus intended send time.
    pub lateness: Histogram<u64>,
    /// What came out of order or not at all, if anything did.
    reordering: Option<Box<ReorderingTally>>,
    /// Why what failed did, if anything did.
    causes: Option<Box<Causes>>,
}

impl Tally {
    /// An empty tally for this model.
    pub fn of(model: &Description) -> Self {
        let values = model.values.iter().map(|_| histogram()).collect();
        Self { values, ..Self::sized(model.delays.len(), model.counters.len()) }
    }

    /// An empty tally with `delays` named delays, for a model that counts nothing of its own.
    pub fn new(delays: usize) -> Self {
        Self::sized(delays, 0)
    }

    /// An empty tally with so many delays and counters of the model's own.
    pub fn sized(delays: usize, counters: usize) -> Self {
        Self {
            own: vec![0; counters].into(),
            values: Vec::new(),
            counts: Counts::default(),
            delays: (0..delays).map(|_| histogram()).collect(),
            variation: (0..delays).map(|_| Variation::default()).collect(),
            lateness: histogram(),
            reordering: None,
            causes: None,
        }
    }

    /// What came out of order, or not at all.
    pub fn reordering(&self) -> Option<&ReorderingTally> {
        self.reordering.as_deref()
    }

    /// The same, to add to. The first call asks for memory.
    pub fn reordering_mut(&mut self) -> &mut ReorderingTally {
        self.reordering.get_or_insert_default()
    }

    /// Why what failed did.
    pub fn causes(&self) -> Option<&Causes> {
        self.causes.as_deref()
    }

    /// Count failures. The first of a tally asks for memory.
    pub fn failed(&mut self, cause: Cause, times: u64) {
        self.counts.failures[cause.kind as usize] += times;
        if cause.detail != Detail::None {
            self.causes.get_or_insert_default().count(cause, times);
        }
    }

    /// Add all of `other`, which must have the same delays.
    pub fn merge(&mut self, other: &Tally) {
        self.counts += &other.counts;
        for (mine, theirs) in self.delays.iter_mut().zip(&other.delays) {
            let _grown = mine.add(theirs);
        }
        for (mine, theirs) in self.values.iter_mut().zip(&other.values) {
            let _grown = mine.add(theirs);
        }
        for (mine, theirs) in self.variation.iter_mut().zip(&other.variation) {
            mine.merge(theirs);
        }
        for (mine, theirs) in self.own.iter_mut().zip(&other.own) {
            *mine += theirs;
        }
        let _grown = self.lateness.add(&other.lateness);
        if let Some(theirs) = other.reordering() {
            self.reordering_mut().merge(theirs);
        }
        if let Some(theirs) = other.causes() {
            self.causes.get_or_insert_default().merge(theirs);
        }
    }

    /// Back to zero, keeping the memory.
    pub fn clear(&mut self) {
        self.counts = Counts::default();
        self.delays.iter_mut().for_each(Histogram::reset);
        self.values.iter_mut().for_each(Histogram::reset);
        self.variation.iter_mut().for_each(Variation::clear);
        self.own.fill(0);
        self.lateness.reset();
        self.reordering.iter_mut().for_each(|reordering| reordering.clear());
        self.causes.iter_mut().for_each(|causes| causes.clear());
    }
}

/// What one device delivered, over the whole run: the per-flow summary.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct DeviceTally {
    /// Flows begun and flows that ended in good order.
    pub flows: (u32, u32),
    /// Messages sent.
    pub sent: u64,
    /// Messages delivered.
    pub delivered: u64,
    /// Failures of any kind.
    pub failed: u32,
    /// Datagrams that arrived again.
    pub duplicates: u32,
    /// Datagrams that arrived after a later one.
    pub reordered: u32,
    /// Sum of the delays of delivered messages, ns.
    pub delay_sum: u64,
    /// Longest such delay, ns.
    pub delay_max: u64,
    /// The last one, ns.
    pub delay_last: u64,
    /// What its order was like.
    pub pattern: Pattern,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::describe::Confirmed;
    use std::collections::BTreeSet;

    #[test]
    fn each_kind_of_failure_means_something_else() {
        let meanings: BTreeSet<&str> = Failure::ALL.iter().map(|failure| failure.about()).collect();
        assert_eq!(meanings.len(), Failure::ALL.len());
    }

    #[test]
    fn what_a_model_counts_is_merged_and_cleared_like_the_rest() {
        let model = Description {
            name: "m",
            about: "",
            schemes: &[],
            delays: &[],
            values: &[],
            counters: &[COUNTERS[0], Counter { name: "more", ..COUNTERS[0] }],
            indices: &[],
            confirmed: Confirmed::Never,
            ordered: false,
            quick: None,
            texts: &[],
        };
        let (mut all, mut more) = (Tally::of(&model), Tally::of(&model));
        more.own[1] = 3;
        all.merge(&more);
        all.merge(&more);
        assert_eq!(all.own[1], 6);
        all.clear();
        assert_eq!(all.own.len(), model.counters.len());
        assert!(all.own.iter().all(|count| *count == 0));
    }
}
