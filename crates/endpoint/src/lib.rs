//! Devices and servers over DPDK ports: the [stack] of each port, driven by the worker of its devices or connections.
//!
//! ```text
//!  device::Worker ──► Endpoint ──┐
//!                                ├─ (here) ──► stack ──► frames ──► port
//!  service ─────────► Network ───┘
//! ```

mod check;
mod conn;
mod datagram_server;
mod datagrams;
mod endpoint;
mod exchange;
mod frames;
mod link;
mod open;
mod polling;
mod port;
mod server;
mod ways;

pub use check::check;
pub use datagram_server::PortDatagrams;
pub use server::{ListeningPort, PortNetwork};

use dataplane::workers;
use element::capture::{PortCapture, Taps};
use endpoint::UnstartedEndpoint;
use protocol::target::Carrier;
use run::graph::PortFacts;
use run::{Control, Plan, Sample, SetupError, Transport};
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::thread::JoinHandle;

/// The transport.
#[derive(Debug)]
pub struct DpdkDevices {
    settings: profile::Dpdk,
    cores: Vec<u16>,
    /// What the ports are, once they are open.
    ports: OnceLock<Vec<PortFacts>>,
    /// Where their frames can be captured.
    taps: Vec<Taps>,
}

impl DpdkDevices {
    /// Each worker drives its queue of each port.
    pub fn new(settings: &profile::Dpdk) -> Result<Self, SetupError> {
        if let Some(fault) = check::settings(settings).into_iter().next() {
            return Err(fault);
        }
        let cores = if settings.placement.is_empty() {
            workers::any_cores(check::workers(settings), "transport.dpdk.ports")?
        } else {
            workers::cores(&settings.placement, "transport.dpdk.placement")?
        };
        let cores = cores.into_iter().filter_map(|core| u16::try_from(core).ok()).collect();
        let taps = open::taps(settings);
        Ok(Self { settings: settings.clone(), cores, ports: OnceLock::new(), taps })
    }

    /// Open the ports, and give each a stack for its groups, on each worker.
    fn open(&self, plan: &Plan, control: &Control) -> Result<Vec<UnstartedEndpoint>, SetupError> {
        let workers = check::workers(&self.settings);
        let port_of = ways::ports_of(plan, &self.settings)?;
        let number = &port_of;
        let mine =
            |index: usize| plan.groups.iter().filter(move |group| number.get(&group.name) == Some(&index));
        let sources =
            |index: usize| mine(index).flat_map(|group| group.sources.iter().copied()).collect::<Vec<_>>();
        let devices = |index: usize, streams: bool| -> usize {
            let alike = mine(index).filter(|group| (group.scheme.carrier == Carrier::Stream) == streams);
            alike.map(|group| (group.devices as usize).div_ceil(workers)).sum()
        };
        let room = |index: usize| (devices(index, true), devices(index, false));
        let opened = open::open(&self.settings, control, (false, &self.taps), sources, room)?;
        let _opened_once = self.ports.set(opened.ports);
        let endpoint = |ports| UnstartedEndpoint { eal: opened.eal, ports, port_of: port_of.clone() };
        Ok(opened.workers.into_iter().map(endpoint).collect())
    }
}

impl Transport for DpdkDevices {
    fn start(
        &self,
        plan: Arc<Plan>,
        control: Arc<Control>,
        samples: Sender<Sample>,
    ) -> Result<Vec<JoinHandle<()>>, SetupError> {
        // each worker's thread takes its own
        let places = self.open(&plan, &control)?.into_iter().map(Some).collect::<Vec<_>>();
        let places = Arc::new(Mutex::new(places));
        let take = move |number| {
            let taken: Option<UnstartedEndpoint> = {
                let mut places = places.lock().unwrap_or_else(PoisonError::into_inner);
                places.get_mut(number).and_then(Option::take)
            };
            let none = || {
                SetupError::new(
                    "ND-92-05",
                    "workers",
                    "a worker has no queue",
                    "Use as many workers as queues",
                )
            };
            taken.ok_or_else(none)?.arrive()
        };
        device::start(&self.cores, &plan, &control, &samples, take)
    }

    fn cores(&self) -> Vec<u16> {
        self.cores.clone()
    }

    fn ports(&self) -> Vec<PortFacts> {
        self.ports.get().cloned().unwrap_or_default()
    }

    fn capture(&self, settings: &profile::Capture) -> Option<Result<Box<dyn capture::Source>, SetupError>> {
        let ports = &self.settings.ports;
        let at = match &settings.interface {
            Some(name) => ports.iter().position(|port| port.name == *name)?,
            None => 0,
        };
        let started = PortCapture::start(&ports.get(at)?.name, self.taps.get(at)?, settings);
        Some(started.map(|capture| Box::new(capture) as Box<dyn capture::Source>))
    }
}
