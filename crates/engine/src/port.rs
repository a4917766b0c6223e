//! Where packets come into the graph and leave it.

use crate::element::{Cx, Element, ElementInfo};
use dpdk::{Batch, RxQueue, TxQueue};

/// Source: what a receive queue has.
#[derive(Debug)]
pub struct PortRx(pub RxQueue);

impl Element for PortRx {
    fn about(&self) -> ElementInfo {
        ElementInfo { kind: "rx", takes: false, outputs: &["out"], drops: &[], polled: true }
    }

    fn counts_bytes(&self) -> bool {
        true
    }

    #[inline]
    fn poll(&mut self, batch: &mut Batch, _: &mut Cx<'_>) {
        self.0.receive(batch);
    }
}

/// Sink: a transmit queue. Refuses what the port has no room for.
#[derive(Debug)]
pub struct PortTx(pub TxQueue);

impl Element for PortTx {
    fn about(&self) -> ElementInfo {
        ElementInfo { kind: "tx", takes: true, outputs: &[], drops: &[], polled: false }
    }

    fn counts_bytes(&self) -> bool {
        true
    }

    #[inline]
    fn push(&mut self, batch: &mut Batch, _: &mut Cx<'_>) {
        self.0.send(batch);
    }
}
