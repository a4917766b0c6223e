//! Stateless streams over DPDK ports: sent at their times, every datagram tracked and measured.
//!
//! What a port's role stands for is a graph ([`dataplane::graph::preset`]), of elements of the kinds that all graphs can have and
//! of two more that send and measure the groups of a run's profile.

mod build;
mod device_clock;
mod expected;
mod frames;
mod generator;
pub mod graph;
#[cfg(any(test, feature = "testing"))]
pub mod malformed;
mod peers;
mod receiver;
mod report;
mod run_elements;
mod rx_offload;
mod schedule;
mod segmenter;
mod stream_table;
mod streams;
mod summaries;
mod supervisor;

use capture::Source;
use dataplane::engine_error;
use dataplane::graph::CheckedGraph;
use dataplane::impaired::Impaired;
use dataplane::observe::Observer;
use dataplane::workers;
use element::capture::{PortCapture, Taps};
use element::registry::Registry;
use engine::{Engine, Options, View};
use run::graph::{GraphView, ImpairedPort, PortFacts};
use run::{Control, Plan, Sample, SetupError, Transport};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

/// The transport.
#[derive(Debug)]
pub struct Dpdk {
    settings: profile::Dpdk,
    cores: Vec<u16>,
    /// The kinds of elements that its graph can have.
    kinds: Registry,
    /// Where frames can be copied, by port.
    taps: Vec<Taps>,
    /// As it will be, unless ports have other queues than is expected.
    planned: CheckedGraph,
    /// What is known of the ports once they are open.
    ports: Mutex<Vec<PortFacts>>,
    /// The graph, once it is at work.
    view: Mutex<Option<View>>,
    /// The handles of elements that impair, once they are there.
    impaired: Mutex<Vec<Impaired>>,
}

impl Dpdk {
    /// Workers as the settings place them; without a placement one worker runs all.
    pub fn new(settings: &profile::Dpdk, kinds: &Registry) -> Result<Self, SetupError> {
        let cores = workers::cores(&settings.placement, "transport.dpdk.placement")?;
        let planned =
            graph::of(settings, &graph::expected_queues(settings), kinds).map_err(build::first_fault)?;
        let taps = settings.ports.iter().map(|port| Taps::new(port.queues.into())).collect();
        let cores = cores.into_iter().filter_map(|core| u16::try_from(core).ok()).collect();
        Ok(Self {
            settings: settings.clone(),
            cores,
            kinds: kinds.clone(),
            taps,
            planned,
            ports: Mutex::default(),
            view: Mutex::default(),
            impaired: Mutex::default(),
        })
    }

    /// The workers' cores.
    fn worker_cores(&self) -> Vec<usize> {
        self.cores.iter().copied().map(usize::from).collect()
    }
}

impl Transport for Dpdk {
    fn start(
        &self,
        plan: Arc<Plan>,
        control: Arc<Control>,
        samples: Sender<Sample>,
    ) -> Result<Vec<JoinHandle<()>>, SetupError> {
        let run = Arc::new(report::RunContext::new(control));
        let (to, reports) = channel();
        let cores = self.worker_cores();
        let built = build::build(
            (&self.settings, &self.planned, &self.kinds),
            (&self.taps, &cores),
            &plan,
            &run,
            &to,
        )?;
        *self.ports.lock().unwrap_or_else(PoisonError::into_inner) = built.facts;
        let engine = Engine::start(built.eal, built.graph, &built.placement, &Options::default());
        let engine = engine.map_err(|why| engine_error(&why))?;
        *self.view.lock().unwrap_or_else(PoisonError::into_inner) = Some(engine.view());
        *self.impaired.lock().unwrap_or_else(PoisonError::into_inner) = built.impaired.clone();
        let supervisor = supervisor::Supervisor::new(
            plan,
            run,
            engine,
            built.ports,
            (built.impaired, built.captures),
            &built.reporters,
            reports,
            samples,
            self.cores.len(),
        );
        let thread = std::thread::Builder::new().name("nd-dpdk".into()).spawn(move || supervisor.run());
        let thread = thread.map_err(|why| {
            let what = format!("no thread for the supervisor ({why})");
            SetupError::new("ND-92-05", "workers", what, "Raise the limit of threads (ulimit -u)")
        })?;
        Ok(vec![thread])
    }

    fn cores(&self) -> Vec<u16> {
        self.cores.clone()
    }

    fn graph(&self) -> Option<Box<dyn GraphView>> {
        let view = self.view.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let ports = self.ports.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let cores = self.worker_cores();
        Some(Box::new(match view {
            Some(view) => Observer::of(view, ports, &cores.into_iter().map(Some).collect::<Vec<_>>()),
            None => Observer::planned(&self.planned, ports, &cores),
        }))
    }

    fn impaired(&self) -> Vec<Box<dyn ImpairedPort>> {
        let ports = self.impaired.lock().unwrap_or_else(PoisonError::into_inner);
        ports.iter().map(|port| Box::new(port.clone()) as Box<dyn ImpairedPort>).collect()
    }

    fn capture(&self, settings: &profile::Capture) -> Option<Result<Box<dyn Source>, SetupError>> {
        let ports = &self.settings.ports;
        let at = match &settings.interface {
            Some(name) => ports.iter().position(|port| port.name == *name)?,
            None => ports.iter().position(|port| port.role == profile::Role::Generator).unwrap_or(0),
        };
        let (port, taps) = (ports.get(at)?, self.taps.get(at)?);
        Some(
            PortCapture::start(&port.name, taps, settings)
                .map(|capture| Box::new(capture) as Box<dyn Source>),
        )
    }
}
