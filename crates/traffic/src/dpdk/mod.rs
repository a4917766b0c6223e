//! Traffic over DPDK ports: streams at their times, every datagram measured.
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

mod assist;
mod beat;
pub mod between;
mod build;
mod capture;
mod cutter;
mod device_clock;
mod expected;
mod frames;
mod generator;
#[cfg(any(test, feature = "testing"))]
pub mod hostile;
pub mod impaired;
pub mod kinds;
mod l2fwd;
mod lanes;
mod neighbour;
pub mod observe;
mod offloads;
mod peers;
mod ready;
mod receiver;
mod reflector;
mod report;
mod slots;
mod spread;
mod supervisor;
mod tape;
#[cfg(test)]
mod tape_tests;
mod tracker;
mod watch;
mod wiring;

/// What [`tape`] shares between threads: here the real ones.
mod sync {
    pub use std::sync::Arc;
    pub use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
}

use crate::capture::Source;
use crate::cpu;
use crate::plan::Plan;
use crate::transport::{Control, Sample, Transport, Unready};
use capture::{PortCapture, Taps};
use engine::{Engine, EngineError, Misfit, Options, Placement, Seat, Threads, Topology, View, Wish};
use impaired::Impaired;
use lanes::Lanes;
use observe::{Observer, PortFacts};
use std::collections::BTreeSet;
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use wiring::Wiring;

/// The transport.
#[derive(Debug)]
pub struct Dpdk {
    settings: profile::Dpdk,
    cores: Vec<u16>,
    /// Where frames can be copied, by port.
    taps: Vec<Taps>,
    /// How each port's queues are used: as expected, until the ports are open.
    lanes: Mutex<Vec<Lanes>>,
    /// What is known of the ports once they are open.
    ports: Mutex<Vec<PortFacts>>,
    /// The graph, once it is at work.
    view: Mutex<Option<View>>,
    /// The hands on ports that are impaired, once they are open.
    impaired: Mutex<Vec<Impaired>>,
}

impl Dpdk {
    /// Workers as the settings place them; without a placement one worker runs all.
    pub fn new(settings: &profile::Dpdk) -> Result<Self, Unready> {
        let allowed: Vec<usize> = cpu::cores().into_iter().map(usize::from).collect();
        let wishes: Vec<Wish> = match &settings.placement[..] {
            [] => vec![Wish::default()],
            workers => workers.iter().map(wish).collect(),
        };
        let cores = Topology::of(&allowed).assign(&wishes).map_err(|why| {
            let at = format!("transport.dpdk.placement[{}]", why.worker());
            let fix = match why {
                Misfit::NoCore { .. } => "Name one of those",
                Misfit::NoNode { .. } => "Name one of those nodes; `lscpu -e` shows which core is where",
                Misfit::NoneOwn { .. } => "Use fewer workers, or leave threads out",
                Misfit::NoSibling { .. } => {
                    "Leave threads out; `lscpu -e` shows which cores are one physical core"
                }
            };
            Unready::new("ND-92-06", at, why.to_string(), fix)
        })?;
        let taps = settings.ports.iter().map(|port| Taps::new(port.queues.into())).collect();
        let lanes = settings.ports.iter().map(|port| Lanes::expected(port, true)).collect();
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
        placement.workers =
            self.cores.iter().map(|core| Seat { core: Some((*core).into()), elements: Vec::new() }).collect();
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

/// What a worker wants of its core.
fn wish(worker: &profile::Worker) -> Wish {
    Wish {
        core: worker.core.map(usize::from),
        node: worker.node.map(usize::from),
        threads: match worker.threads {
            None => Threads::Any,
            Some(profile::Threads::Own) => Threads::Own,
            Some(profile::Threads::Shared) => Threads::Shared,
        },
    }
}

/// Why the engine did not start, and what to do.
fn refused(why: &EngineError) -> Unready {
    let (at, fix) = match why {
        EngineError::Dpdk(why) => return build::unready("transport.dpdk", why),
        EngineError::Graph(_) => (
            "transport.dpdk.placement",
            "Name each element once, as PORT.generator, PORT.receiver, PORT.reflector, PORT.l2fwd or PORT.impair; what is \
             not named runs on the first worker",
        ),
        EngineError::Core { .. } => (
            "transport.dpdk.placement",
            "Name a core that `taskset -p $$` shows, or leave core out to have one chosen",
        ),
        EngineError::Thread { .. } => ("transport.dpdk.placement", "Raise ulimit -u, or use fewer workers"),
    };
    Unready::new("ND-92-14", at, why.to_string(), fix)
}

impl Transport for Dpdk {
    fn start(
        &self,
        plan: Arc<Plan>,
        control: Arc<Control>,
        samples: Sender<Sample>,
    ) -> Result<Vec<JoinHandle<()>>, Unready> {
        let run = Arc::new(report::Run::new(control));
        let (to, reports) = channel();
        let built = build::build(&self.settings, &self.taps, &plan, &run, &to)?;
        *self.lanes.lock().unwrap_or_else(PoisonError::into_inner) = built.lanes;
        *self.ports.lock().unwrap_or_else(PoisonError::into_inner) = built.facts;
        let engine = Engine::start(built.eal, built.graph, &self.placement(), &Options::default());
        let engine = engine.map_err(|why| refused(&why))?;
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
            Unready::new("ND-92-05", "workers", what, "Raise the limit of threads (ulimit -u)")
        })?;
        Ok(vec![thread])
    }

    fn workers(&self) -> usize {
        self.cores.len()
    }

    fn cores(&self) -> Vec<u16> {
        self.cores.clone()
    }

    fn observe(&self) -> Option<Observer> {
        let view = self.view.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let ports = self.ports.lock().unwrap_or_else(PoisonError::into_inner).clone();
        Some(Observer::new(self.wiring(), ports, &self.placement(), view))
    }

    fn impaired(&self) -> Vec<Impaired> {
        self.impaired.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn capture(&self, settings: &profile::Capture) -> Option<Result<Box<dyn Source>, Unready>> {
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
