//! A pool of packets for each NUMA node that ports are on.

use crate::eal::Eal;
use crate::error::Result;
use crate::mempool::Mempool;
use crate::port::Port;
use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

/// Pools of one shape, one for each NUMA node that has ports, made when the first port of a node asks.
///
/// A port's packets lie in the memory of its own node: the port writes them there, and its worker, placed on a core of that
/// node, reads them there. On a machine with one node, and without huge pages, there is one pool for all.
///
/// Each pool has as many packets: on two nodes with ports twice the memory is taken, half of it from each.
#[derive(Debug)]
pub struct NodePools {
    eal: &'static Eal,
    packets: u32,
    room: u16,
    pools: Mutex<BTreeMap<Option<u32>, Mempool>>,
}

impl NodePools {
    /// Pools of `packets` packets of up to `room` bytes each. Where there will be one pool for all, it is made at once.
    pub fn new(eal: &'static Eal, packets: u32, room: u16) -> Result<Self> {
        let pools = Self { eal, packets, room, pools: Mutex::default() };
        if eal.nodes().is_empty() {
            pools.on(None)?;
        }
        Ok(pools)
    }

    /// The pool for this port: that of its node.
    pub fn of(&self, port: &Port) -> Result<Mempool> {
        self.on(port.node())
    }

    /// The pool of this node; of no node, the one for ports that are on none.
    pub fn on(&self, node: Option<u32>) -> Result<Mempool> {
        let node = node.filter(|node| self.eal.nodes().contains(node));
        let mut pools = self.pools.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(pool) = pools.get(&node) {
            return Ok(pool.clone());
        }
        let pool = Mempool::on(self.eal, node, self.packets, self.room)?;
        pools.insert(node, pool.clone());
        Ok(pool)
    }

    /// The pools made so far, each with its node.
    pub fn pools(&self) -> Vec<(Option<u32>, Mempool)> {
        let pools = self.pools.lock().unwrap_or_else(PoisonError::into_inner);
        pools.iter().map(|(node, pool)| (*node, pool.clone())).collect()
    }
}
