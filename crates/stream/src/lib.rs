//! Stateless streams over DPDK ports: sent at their times, every datagram tracked and measured.
//!
//! ```text
//!  generator port    generator ──► tx      rx ──► receiver ──► neighbour ──► tx
//!  reflector port    rx ──► reflector ──► tx
//!  l2fwd ports       rx ──► l2fwd ──► tx of the other
//!  with impair       rx ──► impair ──► …
//!  several queues    rx ──► spread ──► each lane's receiver, reflector or l2fwd; or rx0, rx1, … by RSS
//! ```
//! The profile's placement says which worker runs which of these; `tx` goes with what mostly sends, `rx` with
//! what mostly receives.

mod build;
mod device_clock;
mod expected;
mod frames;
mod generator;
#[cfg(any(test, feature = "testing"))]
pub mod malformed;
mod pacer;
mod peers;
mod receiver;
mod report;
mod rx_offload;
mod schedule;
mod segmenter;
mod stream_table;
mod summaries;
mod supervisor;

use capture::Source;
use dataplane::engine_error;
use dataplane::impaired::Impaired;
use dataplane::observe::Observer;
use dataplane::queue_pairs::QueuePairs;
use dataplane::wiring::{self, Wiring};
use dataplane::workers;
use element::capture::{PortCapture, Taps};
use engine::{Engine, Options, Placement, View, WorkerSpec};
use run::graph::{GraphView, ImpairedPort, PortFacts};
use run::{Control, Plan, Sample, SetupError, Transport};
use std::collections::BTreeSet;
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

/// The transport.
#[derive(Debug)]
pub struct Dpdk {
    settings: profile::Dpdk,
    cores: Vec<u16>,
    /// Where frames can be copied, by port.
    taps: Vec<Taps>,
    /// How each port's queues are used: as expected, until the ports are open.
    lanes: Mutex<Vec<QueuePairs>>,
    /// What is known of the ports once they are open.
    ports: Mutex<Vec<PortFacts>>,
    /// The graph, once it is at work.
    view: Mutex<Option<View>>,
    /// The hands on ports that are impaired, once they are open.
    impaired: Mutex<Vec<Impaired>>,
}

impl Dpdk {
    /// Workers as the settings place them; without a placement one worker runs all.
    pub fn new(settings: &profile::Dpdk) -> Result<Self, SetupError> {
        let cores = workers::cores(&settings.placement, "transport.dpdk.placement")?;
        let taps = settings.ports.iter().map(|port| Taps::new(port.queues.into())).collect();
        let lanes = settings.ports.iter().map(|port| QueuePairs::expected(port, true)).collect();
        let cores = cores.into_iter().filter_map(|core| u16::try_from(core).ok()).collect();
        Ok(Self {
            settings: settings.clone(),
            cores,
            taps,
            lanes: Mutex::new(lanes),
            ports: Mutex::default(),
            view: Mutex::default(),
            impaired: Mutex::default(),
        })
    }

    fn wiring(&self) -> Wiring {
        Wiring::new(&self.settings, &self.lanes.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// The settings' placement, with the elements that it does not name beside those they work for.
    fn placement(&self) -> Placement {
        let mut placement = Placement::single(None);
        placement.workers = self
            .cores
            .iter()
            .map(|core| WorkerSpec { core: Some((*core).into()), elements: Vec::new() })
            .collect();
        let wiring = self.wiring();
        let mut placed = BTreeSet::new();
        for (seat, worker) in placement.workers.iter_mut().zip(&self.settings.placement) {
            for element in &worker.elements {
                let beside = match wiring::kind(element) {
                    "generator" => wiring.after(element),
                    "receiver" | "reflector" | "l2fwd" => {
                        [wiring.before(element), wiring.after(element)].concat()
                    }
                    "impair" => wiring.before(element),
                    _ => Vec::new(),
                };
                // Several may lead to one port: it is with the first.
                let all = std::iter::once(element.clone()).chain(beside);
                seat.elements.extend(all.filter(|element| placed.insert(element.clone())));
            }
        }
        placement
    }
}

impl Transport for Dpdk {
    fn start(
        &self,
        plan: Arc<Plan>,
        control: Arc<Control>,
        samples: Sender<Sample>,
    ) -> Result<Vec<JoinHandle<()>>, SetupError> {
        let run = Arc::new(report::Run::new(control));
        let (to, reports) = channel();
        let built = build::build(&self.settings, &self.taps, &plan, &run, &to)?;
        *self.lanes.lock().unwrap_or_else(PoisonError::into_inner) = built.lanes;
        *self.ports.lock().unwrap_or_else(PoisonError::into_inner) = built.facts;
        let engine = Engine::start(built.eal, built.graph, &self.placement(), &Options::default());
        let engine = engine.map_err(|why| engine_error(&why))?;
        *self.view.lock().unwrap_or_else(PoisonError::into_inner) = Some(engine.view());
        *self.impaired.lock().unwrap_or_else(PoisonError::into_inner) = built.impaired.clone();
        let supervisor = supervisor::Supervisor::new(
            plan,
            run,
            engine,
            built.ports,
            built.impaired,
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
        Some(Box::new(Observer::new(self.wiring(), ports, &self.placement(), view)))
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
