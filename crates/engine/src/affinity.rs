//! Which replica of a stage a packet goes to: packets with the same key go to the same one, in order.

use crate::mailbox::Mail;
use crate::parser;
use dpdk::{Mbuf, Meta, MetaFlags};
use packet::{FlowKey, Parsed};

/// The name of [`SymmetricFlow`] in placements.
pub const FLOW: &str = "flow";
/// The name of [`RoundRobin`] in placements.
pub const ROUND_ROBIN: &str = "round_robin";
/// In placements: each replica with the one of the same number before it.
pub const UPSTREAM: &str = "upstream";

/// In placements, for transmit queues: each of as many replicas before has its own, as what a flow's packets came to keeps them in order;
/// from any other number flows are spread, as by [`FLOW`].
pub const QUEUE: &str = "queue";

/// A rule that picks one of a stage's replicas for each packet. It is made once for each edge that leads to the stage, and
/// runs on the worker that hands packets on.
///
/// It goes by the packet's [`Meta`] where a parser wrote it, and reads headers only where there is none.
pub trait Affinity: Send {
    /// The replica for this packet, below `replicas`; a higher one is taken as the last.
    fn replica(&mut self, mbuf: &Mbuf, replicas: usize) -> usize;

    /// The same for each of a batch: for a rule that takes less time for many at once.
    #[inline]
    fn replicas(&mut self, mbufs: &[Mbuf], replicas: usize, to: &mut [u8]) {
        for (mbuf, to) in mbufs.iter().zip(to) {
            *to = self.replica(mbuf, replicas).min(replicas - 1) as u8;
        }
    }

    /// Answer a request, such as to take a new owner of a range into account: see
    /// [`Element::control`](crate::Element::control).
    fn control(&mut self, mail: Mail, now: u64) {
        let _not_understood = (mail, now);
    }
}

/// Makes a rule, once for each edge that leads to the stage.
pub type MakeAffinity = Box<dyn Fn() -> Box<dyn Affinity> + Send>;

/// A share of `0..replicas` for a hash, without a division.
#[inline]
fn share(hash: u32, replicas: usize) -> usize {
    ((u64::from(hash) * replicas as u64) >> 32) as usize
}

/// What is known of a packet and its flow, whether or not a parser saw it. `None`: it is broken.
#[inline]
fn packet_meta(mbuf: &Mbuf, key: &FlowKey) -> Option<Meta> {
    mbuf.meta().filter(|meta| meta.flags.has(MetaFlags::HASHED)).or_else(|| {
        let frame = mbuf.data();
        let parsed = Parsed::of(frame).ok()?;
        Some(parser::meta(frame, &parsed, Some(key.hash(frame, &parsed)), u16::MAX))
    })
}

/// Both directions of a flow (protocol, addresses, ports) on one replica.
#[derive(Debug, Clone, Copy)]
pub struct SymmetricFlow {
    key: FlowKey,
}

impl SymmetricFlow {
    /// By the hash that parsers of this process write.
    pub fn new() -> Self {
        Self { key: FlowKey::shared() }
    }
}

impl Default for SymmetricFlow {
    fn default() -> Self {
        Self::new()
    }
}

impl Affinity for SymmetricFlow {
    #[inline]
    fn replica(&mut self, mbuf: &Mbuf, replicas: usize) -> usize {
        packet_meta(mbuf, &self.key).map_or(0, |meta| share(meta.hash, replicas))
    }
}

/// One after the other, whatever packets are: for stages that keep no state, where order does not matter.
#[derive(Debug, Clone, Copy, Default)]
pub struct RoundRobin {
    next: usize,
}

impl Affinity for RoundRobin {
    #[inline]
    fn replica(&mut self, _: &Mbuf, replicas: usize) -> usize {
        let this = if self.next < replicas { self.next } else { 0 };
        self.next = this + 1;
        this
    }
}
