//! The hand-off to the replicas of a stage, where the port does not do it.

use crate::affinity::Affinity;
use crate::element::{Cx, Element, ElementInfo, MOST_REPLICAS};
use crate::mailbox::Mail;
use dpdk::{BURST, Batch};

const OUTPUTS: [&str; MOST_REPLICAS] = [
    "0", "1", "2", "3", "4", "5", "6", "7", "8", "9", "10", "11", "12", "13", "14", "15", "16", "17", "18",
    "19", "20", "21", "22", "23", "24", "25", "26", "27", "28", "29", "30", "31",
];

/// Hands each packet to the replica that its [`Affinity`] names. Packets of one key stay in order, as they go one way. What a
/// replica has no room for is dropped, as a port does that spreads over full queues.
pub(crate) struct Distributor {
    affinity: Box<dyn Affinity>,
    replicas: usize,
    /// For the first replica: empty between two calls.
    kept: Box<Batch>,
}

impl Distributor {
    pub(crate) fn new(affinity: Box<dyn Affinity>, replicas: usize) -> Self {
        Self { affinity, replicas: replicas.clamp(1, MOST_REPLICAS), kept: Box::default() }
    }
}

impl Element for Distributor {
    fn about(&self) -> ElementInfo {
        ElementInfo {
            kind: "distributor",
            takes: true,
            outputs: &OUTPUTS[..self.replicas],
            drops: &[],
            polled: false,
        }
    }

    fn push(&mut self, batch: &mut Batch, cx: &mut Cx<'_>) {
        let mut to = [0; BURST];
        self.affinity.replicas(batch.frames(), self.replicas, &mut to);
        match one_of(&to[..batch.len()]) {
            // As behind a port that steers them so.
            Some(0) => {}
            Some(replica) => cx.emit_all(usize::from(replica).min(self.replicas - 1), batch),
            None => cx.distribute(batch, &to, &mut self.kept),
        }
    }

    fn control(&mut self, mail: Mail, now: u64) {
        self.affinity.control(mail, now);
    }
}

/// The one number that all these are.
#[inline]
fn one_of(all: &[u8]) -> Option<u8> {
    let first = *all.first()?;
    // All are looked at, many at a time.
    let differ = all.iter().fold(0, |differ, one| differ | (one ^ first));
    (differ == 0).then_some(first)
}
