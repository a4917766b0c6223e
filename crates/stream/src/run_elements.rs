//! What a run has for the elements of its graph that send and measure its groups.

use crate::expected::{ExpectedGroup, PlainUdp};
use crate::frames;
use crate::report::{Report, Reporter, RunContext};
use crate::rx_offload::RxOffload;
use crate::streams::Streams;
use dpdk::Mempool;
use protocol::meter::Tally;
use run::{GroupPlan, Plan};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::mpsc::Sender;

/// Why one of them cannot be built: what checks the graph refuses it before.
pub const OUTSIDE: &str = "the graph is of no run";

/// What a run has for them.
#[derive(Debug)]
pub struct RunElements {
    /// What each generator sends, by its name, and where its packets come from.
    pub streams: BTreeMap<String, (Vec<Streams>, Mempool)>,
    /// The ports that receivers name.
    pub receiving: BTreeMap<String, ReceivingPort>,
    /// Names of the elements that report, in the order of their numbers.
    pub reporters: Vec<String>,
    /// What frames of each group are like.
    pub plain: Vec<Option<PlainUdp>>,
    /// Stream number of each group's first device.
    pub first_streams: Vec<u32>,
    /// The plan.
    pub plan: Arc<Plan>,
    /// The run's clock.
    pub run: Arc<RunContext>,
    /// Where reports go.
    pub to: Sender<Report>,
}

/// A port that receivers name.
#[derive(Debug, Clone, Default)]
pub struct ReceivingPort {
    /// What it says of frames.
    pub rx_offload: Option<RxOffload>,
    /// All streams come back here, by one queue.
    pub all: bool,
    /// How many receivers name it.
    pub receivers: usize,
}

impl RunElements {
    /// By which an element reports.
    pub fn reporter(&mut self, name: &str) -> Reporter {
        self.reporters.push(name.to_owned());
        Reporter::new(Arc::clone(&self.run), self.reporters.len() - 1, self.to.clone())
    }

    /// What a receiver must know of all groups.
    pub fn expected(&self) -> Vec<ExpectedGroup> {
        let groups = self.plan.groups.iter().zip(&self.plain).zip(&self.first_streams).enumerate();
        let group =
            |(i, ((group, plain), first)): (usize, ((&GroupPlan, &Option<PlainUdp>), &u32))| ExpectedGroup {
                group: i,
                streams: *first..first + group.devices,
                meter: [(); 3].map(|()| Tally::of(group.about)),
                delay: frames::delay(i, &self.plan),
                whole: self.plan.profile.groups[i].frame.is_some(),
                plain: plain.clone(),
            };
        groups.map(group).collect()
    }
}
