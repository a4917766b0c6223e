//! What carries a plan's traffic.

use crate::control::Control;
use crate::graph::{GraphView, ImpairedPort, PortFacts};
use crate::plan::Plan;
use crate::sample::Sample;
use crate::setup_error::SetupError;
use capture::Source;
use std::sync::Arc;
use std::sync::mpsc::Sender;
use std::thread::JoinHandle;

/// Carries a plan's traffic. Its contract is `tests/contract.rs`; a new transport is one more subject there.
///
/// It starts workers and returns. From then on a worker looks at [`Control`] each turn of its loop, and sends a [`Sample`]
/// at each boundary the control names. Nothing else passes between them, so a worker never waits.
pub trait Transport {
    /// Check that all is there, then start the workers. They wait until [`Control::start_workers`].
    fn start(
        &self,
        plan: Arc<Plan>,
        control: Arc<Control>,
        samples: Sender<Sample>,
    ) -> Result<Vec<JoinHandle<()>>, SetupError>;

    /// The core each worker is pinned to: as many as [`Transport::start`] makes workers.
    fn cores(&self) -> Vec<u16>;

    /// The graph of elements that carries the traffic, where there is one.
    fn graph(&self) -> Option<Box<dyn GraphView>> {
        None
    }

    /// Its DPDK ports, once they are open.
    fn ports(&self) -> Vec<PortFacts> {
        self.graph().map(|graph| graph.shape().ports.clone()).unwrap_or_default()
    }

    /// Its impaired ports, once they are open.
    fn impaired(&self) -> Vec<Box<dyn ImpairedPort>> {
        Vec::new()
    }

    /// Packets of the port that the settings name, or of the first that sends. `None` when that is none of
    /// this transport's ports, but perhaps the kernel's.
    fn capture(&self, settings: &profile::Capture) -> Option<Result<Box<dyn Source>, SetupError>> {
        let _of_the_kernel = settings;
        None
    }
}
