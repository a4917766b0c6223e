//! Devices over DPDK ports: the [stack] of each port, driven by the worker of its devices.
//!
//! ```text
//!  device::Worker ──► Endpoint (here) ──► stack ──► frames ──► port
//! ```

mod check;
mod conn;
mod datagrams;
mod endpoint;
mod link;
mod port;

pub use check::check;

use dataplane::link_up;
use dataplane::ports::{self, OpenPort, PortNeeds, has_memory, pci, setup_error};
use dataplane::workers;
use dpdk::{Eal, EalOptions, NodePools};
use element::capture::Taps;
use endpoint::OnItsWay;
use port::StackPort;
use protocol::target::Carrier;
use run::{Control, Plan, Sample, SetupError, Transport};
use std::collections::HashMap;
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

/// Packets in the pool that the ports of a NUMA node share, and their room.
const PACKETS: u32 = 16_383;
const ROOM: u16 = 2_048;

/// The transport.
#[derive(Debug)]
pub struct DpdkDevices {
    settings: profile::Dpdk,
    cores: Vec<u16>,
}

impl DpdkDevices {
    /// One worker drives all ports.
    pub fn new(settings: &profile::Dpdk) -> Result<Self, SetupError> {
        if let Some(fault) = check::settings(settings).into_iter().next() {
            return Err(fault);
        }
        let cores = workers::cores(&settings.placement, "transport.dpdk.placement")?;
        let cores = cores.into_iter().filter_map(|core| u16::try_from(core).ok()).collect();
        Ok(Self { settings: settings.clone(), cores })
    }

    /// Open the ports, and give each a stack for its groups.
    fn open(&self, plan: &Plan, control: &Control) -> Result<OnItsWay, SetupError> {
        let settings = &self.settings;
        let options = EalOptions {
            huge_pages: settings.huge_pages,
            memory_mib: u32::try_from(settings.memory.0.div_ceil(1 << 20)).unwrap_or(u32::MAX),
            pci: settings.ports.iter().filter_map(|port| pci(&port.device)).collect(),
            extra: Vec::new(),
        };
        has_memory("transport.dpdk.memory", settings.memory.0, settings.huge_pages)?;
        let eal = Eal::start(&options).map_err(|why| setup_error("transport.dpdk", &why))?;
        let pools =
            NodePools::new(eal, PACKETS, ROOM).map_err(|why| setup_error("transport.dpdk.memory", &why))?;
        let port_of = groups(plan, settings);
        let taps: Vec<Taps> = settings.ports.iter().map(|_| Taps::new(1)).collect();
        let mut order: Vec<usize> = (0..settings.ports.len()).collect();
        order.sort_by_key(|index| link_up::connects(&settings.ports[*index]));
        let mut opened: Vec<OpenPort<'_>> = Vec::new();
        for index in order {
            let mine = plan.groups.iter().filter(|group| port_of.get(&group.name) == Some(&index));
            let needs = PortNeeds {
                sources: mine.flat_map(|group| group.sources.iter().copied()).collect(),
                steady: true,
                ..PortNeeds::default()
            };
            let (port, taps) = (&settings.ports[index], &taps[index]);
            let attempt = || ports::open(eal, (index, port, taps), &pools, &needs);
            opened.push(link_up::open(port, control, attempt)?);
        }
        opened.sort_by_key(|port| port.index);
        link_up::links(&opened, control)?;
        opened.iter_mut().for_each(OpenPort::announce);
        let devices = |index: usize, streams: bool| -> usize {
            let mine = plan.groups.iter().filter(|group| port_of.get(&group.name) == Some(&index));
            let alike = mine.filter(|group| (group.scheme.carrier == Carrier::Stream) == streams);
            alike.map(|group| group.devices as usize).sum()
        };
        let stacks = opened.into_iter().map(|open| {
            let index = open.index;
            StackPort::new(open, (devices(index, true), devices(index, false)), plan.profile.seed)
        });
        let stacks = stacks.collect::<Result<Vec<_>, _>>()?;
        Ok(OnItsWay { eal, ports: stacks, port_of })
    }
}

/// The number of the port of each group, by the group's name.
fn groups(plan: &Plan, settings: &profile::Dpdk) -> HashMap<String, usize> {
    let port = |name: Option<&str>| {
        let at = |name| settings.ports.iter().position(|port| port.name == name);
        name.and_then(at).unwrap_or(0)
    };
    let all = plan.profile.groups.iter();
    all.map(|group| (group.name.clone(), port(group.port.as_deref()))).collect()
}

impl Transport for DpdkDevices {
    fn start(
        &self,
        plan: Arc<Plan>,
        control: Arc<Control>,
        samples: Sender<Sample>,
    ) -> Result<Vec<JoinHandle<()>>, SetupError> {
        let endpoint = self.open(&plan, &control)?;
        // there is one worker, and its thread takes it
        let place = Arc::new(Mutex::new(Some(endpoint)));
        let take = move |_number| {
            let taken = place.lock().unwrap_or_else(PoisonError::into_inner).take();
            let another = || {
                SetupError::new("ND-92-05", "workers", "a second worker wants the ports", "Use one worker")
            };
            taken.ok_or_else(another)?.arrive()
        };
        device::start(&self.cores, &plan, &control, &samples, take)
    }

    fn cores(&self) -> Vec<u16> {
        self.cores.clone()
    }

    fn capture(&self, settings: &profile::Capture) -> Option<Result<Box<dyn capture::Source>, SetupError>> {
        let own = |name: &String| self.settings.ports.iter().any(|port| port.name == *name);
        settings.interface.as_ref().is_none_or(own).then(|| {
            let what = "packets of ports that carry devices cannot be captured yet";
            let fix = "Capture at the kernel's interface at the other end: name it in capture.interface";
            Err(SetupError::new("ND-104-07", "capture", what, fix))
        })
    }
}
