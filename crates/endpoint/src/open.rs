//! Opens the ports of a transport, each with a stack for each worker.

use crate::check::workers;
use crate::exchange::ROOM;
use crate::port::StackPort;
use dataplane::kernel_addresses;
use dataplane::link_up;
use dataplane::offloads::TxWorkShare;
use dataplane::ports::{self, OpenPort, PortNeeds, has_memory, pci, setup_error};
use dpdk::{Device, Eal, EalOptions, NodePools};
use element::capture::Taps;
use run::graph::PortFacts;
use run::{Control, SetupError};
use std::net::IpAddr;

/// Packets in the pool that the ports of a NUMA node share, for one worker.
const PACKETS: u32 = 16_383;
/// Packets more for each other worker: its receive queues, and what it holds of them.
const MORE: u32 = 8_192;

/// Bytes of a frame around its IP packet: Ethernet, and two tags.
const LINK: u16 = 22;

/// An address of a port that the kernel has, too, on an interface where it sees what comes for the port: it would answer with resets.
fn not_the_kernels(
    settings: &profile::Dpdk,
    sources: impl Fn(usize) -> Vec<IpAddr>,
) -> Result<(), SetupError> {
    for (index, port) in settings.ports.iter().enumerate() {
        let device = port.device.parse::<Device>().ok();
        if device.as_ref().and_then(Device::shared_interface).is_none() {
            continue;
        }
        let own = port.ip.0.iter().map(|own| own.ip).chain(sources(index));
        for ip in own {
            let Some(interface) = kernel_addresses::holder(ip) else { continue };
            let what =
                format!("{interface} of the kernel has {ip}, too, and the kernel would answer with resets");
            let fix = format!(
                "Give the port an address that no interface has, or take it away: ip address del {ip} dev {interface}"
            );
            return Err(SetupError::new("ND-92-12", format!("transport.dpdk.ports[{index}].ip"), what, fix));
        }
    }
    Ok(())
}

/// Ports that are open.
#[derive(Debug)]
pub struct Opened {
    pub eal: &'static Eal,
    /// Of each worker the ports, in the order of the settings.
    pub workers: Vec<Vec<StackPort>>,
    /// What the ports are.
    pub ports: Vec<PortFacts>,
}

/// Where the frames of each port can be captured.
pub fn taps(settings: &profile::Dpdk) -> Vec<Taps> {
    settings.ports.iter().map(|_| Taps::new(workers(settings))).collect()
}

/// Open the ports. `sources` gives the addresses that the port of a number has besides its own, `room` how many connections and
/// datagram sockets each worker has there at a time; `taps` is where frames of each can be captured. A server (`serves`) does not wait for links: its clients may come later.
pub fn open(
    settings: &profile::Dpdk,
    control: &Control,
    (serves, taps): (bool, &[Taps]),
    sources: impl Fn(usize) -> Vec<IpAddr>,
    room: impl Fn(usize) -> (usize, usize),
) -> Result<Opened, SetupError> {
    not_the_kernels(settings, &sources)?;
    let options = EalOptions {
        huge_pages: settings.huge_pages,
        memory_mib: u32::try_from(settings.memory.0.div_ceil(1 << 20)).unwrap_or(u32::MAX),
        pci: settings.ports.iter().filter_map(|port| pci(&port.device)).collect(),
        extra: Vec::new(),
    };
    has_memory("transport.dpdk.memory", settings.memory.0, settings.huge_pages)?;
    let eal = Eal::start(&options).map_err(|why| setup_error("transport.dpdk", &why))?;
    let workers = workers(settings);
    let packets = PACKETS + MORE * (workers as u32 - 1);
    let longest = settings.ports.iter().filter_map(|port| port.mtu).max().unwrap_or(0);
    let size = longest.saturating_add(LINK).max(ROOM);
    // as much memory, down to half as many packets
    let packets = (packets * u32::from(ROOM) / u32::from(size)).max(packets / 2);
    let pools =
        NodePools::new(eal, packets, size).map_err(|why| setup_error("transport.dpdk.memory", &why))?;
    let mut order: Vec<usize> = (0..settings.ports.len()).collect();
    order.sort_by_key(|index| link_up::connects(&settings.ports[*index]));
    let mut opened: Vec<OpenPort<'_>> = Vec::new();
    for index in order {
        let needs = PortNeeds {
            sources: sources(index),
            steady: true,
            workers: Some(workers),
            ..PortNeeds::default()
        };
        let (port, taps) = (&settings.ports[index], &taps[index]);
        let attempt = || ports::open(eal, (index, port, taps), &pools, &needs);
        opened.push(link_up::open(port, control, attempt)?);
    }
    opened.sort_by_key(|port| port.index);
    if !serves {
        link_up::links(&opened, control)?;
    }
    opened.iter_mut().for_each(|port| {
        let (checksums, segments) = (port.does.tx_checksum.into(), port.does.tso.into());
        port.share = TxWorkShare { groups: 1, checksums, segmented: 1, segments };
        port.announce();
    });
    let facts = opened.iter().map(OpenPort::facts).collect();
    let mut all: Vec<Vec<StackPort>> = (0..workers).map(|_| Vec::new()).collect();
    for open in opened {
        let room = room(open.index);
        let stacks = StackPort::for_workers(open, eal, workers, room)?;
        all.iter_mut().zip(stacks).for_each(|(ports, stack)| ports.push(stack));
    }
    Ok(Opened { eal, workers: all, ports: facts })
}
