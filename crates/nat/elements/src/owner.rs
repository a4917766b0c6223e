//! Which of several workers a packet is for: what comes from the inside goes by its subscriber, what comes from the outside by
//! who owns the port that it goes to. Both directions of a session meet there.

use crate::headers;
use crate::shared::Shared;
use ::element::kind::MakeAffinity;
use arrayvec::ArrayVec;
use dpdk::{BURST, Mbuf, MetaFlags};
use engine::Affinity;
use nat_core::key::{self, Realm};
use nat_core::{Ownership, PieceOwners, Side};
use packet::layers::protocol;
use packet::rss;
use std::sync::{Arc, OnceLock};

/// Goes by what each worker owns.
#[derive(Debug, Clone)]
pub struct Owner {
    ownership: Arc<OnceLock<(u16, Ownership)>>,
    /// Of what comes by this edge in pieces.
    pieces: PieceOwners,
}

impl Owner {
    /// One for each edge that leads to the workers.
    pub fn maker(shared: &Shared) -> MakeAffinity {
        let ownership = Arc::clone(&shared.ownership);
        Box::new(move || Box::new(Self { ownership: Arc::clone(&ownership), pieces: PieceOwners::default() }))
    }
}

impl Affinity for Owner {
    fn replicas(&mut self, mbufs: &[Mbuf], replicas: usize, to: &mut [u8]) {
        let Some((inside, ownership)) = self.ownership.get() else { return to.fill(0) };
        if let Some(workers) = ownership.by_address() {
            for (mbuf, to) in mbufs.iter().zip(to) {
                *to = match subscriber(mbuf, *inside) {
                    Some((address, _)) => workers[rss::bucket(address)],
                    None => worker(ownership, *inside, &mut self.pieces, mbuf).min(replicas - 1) as u8,
                };
            }
            return;
        }
        let (mut who, mut others) = (ArrayVec::<(u32, Realm), BURST>::new(), ArrayVec::<usize, BURST>::new());
        for (at, mbuf) in mbufs.iter().take(BURST).enumerate() {
            let subscriber = subscriber(mbuf, *inside);
            who.push(subscriber.unwrap_or_default());
            if subscriber.is_none() {
                others.push(at);
            }
        }
        if others.len() < who.len() {
            ownership.subscribers(&who, to);
        }
        for at in others {
            if let (Some(mbuf), Some(to)) = (mbufs.get(at), to.get_mut(at)) {
                *to = worker(ownership, *inside, &mut self.pieces, mbuf).min(replicas - 1) as u8;
            }
        }
    }

    fn replica(&mut self, mbuf: &Mbuf, _: usize) -> usize {
        // It was said before the first packet came.
        let Some((inside, ownership)) = self.ownership.get() else { return 0 };
        worker(ownership, *inside, &mut self.pieces, mbuf)
    }
}

/// The worker of a packet.
fn worker(ownership: &Ownership, inside: u16, pieces: &mut PieceOwners, mbuf: &Mbuf) -> usize {
    let Some(meta) = mbuf.meta() else { return 0 };
    let side = if meta.in_port == inside { Side::Inside } else { Side::Outside };
    // What belongs to nobody the first one drops, and counts.
    headers::of(mbuf, meta)
        .and_then(|headers| pieces.worker(ownership, side, mbuf.data(), &headers))
        .unwrap_or(0)
}

/// The subscriber that sent a packet which came by the port of that number. `None`: it came by the other, or may quote another's packet.
#[inline]
fn subscriber(mbuf: &Mbuf, inside: u16) -> Option<(u32, Realm)> {
    let meta = mbuf.meta()?;
    let v4 = meta.flags.has(MetaFlags::IP) && !meta.flags.has(MetaFlags::V6);
    if meta.in_port != inside || !v4 || meta.protocol == protocol::ICMP {
        return None;
    }
    let source = mbuf.data().get(usize::from(meta.l3) + 12..)?.first_chunk()?;
    Some((u32::from_be_bytes(*source), key::realm(meta.tags, meta.tagged)))
}
