//! From the plan to the graph: ports opened, peers found, elements connected.

use super::capture::{Captured, Taps};
use super::frames;
use super::generator::{Generator, Streams};
use super::impaired::{self, Impaired};
use super::l2fwd::L2fwd;
use super::neighbour::{self, Neighbour, Station};
use super::peers;
use super::receiver::{Expected, Receiver, Stream};
use super::reflector::Reflector;
use super::report::{Report, Reporter, Run};
use super::slots::Slots;
use super::wiring::Wiring;
use crate::plan::{GroupPlan, Plan};
use crate::transport::Unready;
use dpdk::{Eal, EalOptions, Mempool, Port, PortConfig, RxQueue, TxQueue};
use engine::port::{PortRx, PortTx};
use engine::{ElementId, Graph};
use packet::ethernet::{TAG, Tags};
use packet::{Flow, Mac};
use profile::{Dpdk, Role, parse_mac};
use protocol::meter::Tally;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::mpsc::Sender;

/// Packets in the pool all ports share.
const PACKETS: u32 = 16_383;
/// Their room, unless a group sends longer frames.
const ROOM: u16 = 2_048;

/// A graph ready to be placed.
pub struct Built {
    /// The EAL it belongs to.
    pub eal: &'static Eal,
    /// The graph.
    pub graph: Graph,
    /// The ports by name, to read their counters.
    pub ports: Vec<(String, Port)>,
    /// Names of the elements that report, in the order of their numbers.
    pub reporters: Vec<String>,
    /// Ports whose incoming frames are impaired.
    pub impaired: Vec<Impaired>,
}

/// One port, open.
pub(super) struct Open<'a> {
    pub settings: &'a profile::Port,
    pub index: usize,
    pub rx: RxQueue,
    pub tx: TxQueue,
    pub station: Station,
    taps: &'a Taps,
    port: Port,
}

impl Open<'_> {
    /// Bits per second, if anybody knows.
    fn speed(&self) -> Option<f64> {
        let own = || Some(self.port.link().mbps).filter(|mbps| *mbps > 0).map(|mbps| f64::from(mbps) * 1e6);
        self.settings.speed.map(|speed| speed.bits()).or_else(own)
    }
}

/// An obstacle that DPDK told of.
pub fn unready(at: &str, why: &dpdk::Error) -> Unready {
    let said = why.log().iter().map(|line| format!("; dpdk: {line}")).collect::<String>();
    Unready::new("ND-92-12", at, why.what() + &said, why.fix())
}

/// Make everything that `settings` and the plan ask for.
pub fn build(
    settings: &Dpdk,
    taps: &[Taps],
    plan: &Plan,
    run: &Arc<Run>,
    to: &Sender<Report>,
) -> Result<Built, Unready> {
    let options = EalOptions {
        huge_pages: settings.huge_pages,
        memory_mib: u32::try_from(settings.memory.0.div_ceil(1 << 20)).unwrap_or(u32::MAX),
        pci: settings.ports.iter().filter_map(|port| pci(&port.device)).collect(),
        extra: Vec::new(),
    };
    let eal = Eal::start(&options).map_err(|why| unready("transport.dpdk", &why))?;
    for (i, group) in plan.groups.iter().enumerate() {
        frames::refuse(i, group, plan)?;
    }
    let longest = frames::longest(plan)?;
    let room = u16::try_from(longest + 2 * TAG).unwrap_or(u16::MAX).max(ROOM);
    let packets = (u64::from(PACKETS) * u64::from(ROOM) / u64::from(room)) as u32;
    let ways = settings.ports.iter().filter(|port| port.impair.is_some()).count();
    let (packets, on_the_way) = impaired::packets(settings.memory.0, ways, room.into(), packets);
    let pool = Mempool::new(eal, packets, room).map_err(|why| unready("transport.dpdk.memory", &why))?;
    let mut ports = open(eal, settings, taps, &pool, longest)?;

    let first_streams = first_streams(plan)?;
    let mut sending: Vec<Vec<Streams>> = ports.iter().map(|_| Vec::new()).collect();
    for (i, group) in plan.groups.iter().enumerate() {
        let on = sender(settings, plan, i)?;
        let peer = peers::find(i, (&plan.profile.groups[i], group), on, &mut ports, &pool)?;
        let flow = flow(group, &ports[on].station, peer);
        let tags = peers::tags(&plan.profile.groups[i], &ports[on]);
        let (program, headers) = frames::program(i, group, plan, &flow)?;
        // Of frames that are counted whole, no byte is a header.
        let headers = if headers > 0 { headers + tags.bytes().len() } else { 0 };
        let program = program.tagged(&tags);
        let shape = frames::shape(i, group, plan, &program, ports[on].speed())?;
        sending[on].push(Streams {
            group: i,
            slots: Slots::new(&shape, plan.profile.seed.wrapping_add(i as u64)),
            program,
            headers,
            priority: plan.profile.groups[i].frame.as_ref().map_or(0, |frame| frame.priority),
            first: first_streams[i],
            meter: [(); 3].map(|()| Tally::new(group.delays.len())),
        });
    }
    let mut built =
        Built { eal, graph: Graph::new(), ports: Vec::new(), reporters: Vec::new(), impaired: Vec::new() };
    for (open, streams) in ports.into_iter().zip(sending) {
        let name = &open.settings.name;
        built.ports.push((name.clone(), open.port));
        built.graph.add(format!("{name}.tx"), Captured::new(PortTx(open.tx), open.taps.tx.clone()));
        built.graph.add(format!("{name}.rx"), Captured::new(PortRx(open.rx), open.taps.rx.clone()));
        let seed = plan.profile.seed.wrapping_add(open.index as u64);
        if let Some(impaired) = Impaired::new(open.settings, seed) {
            built.graph.add(format!("{name}.impair"), impaired.element(&pool, on_the_way));
            built.impaired.push(impaired);
        }
        match open.settings.role {
            Role::Generator => {}
            Role::Reflector => {
                built.graph.add(format!("{name}.reflector"), Reflector(open.station));
                continue;
            }
            Role::L2fwd => {
                let mode = open.settings.forward.unwrap_or_default();
                built.graph.add(format!("{name}.l2fwd"), L2fwd(mode));
                continue;
            }
        }
        let mut add = |kind: &str, make: &mut dyn FnMut(&mut Graph, String, Reporter) -> ElementId| {
            let name = format!("{name}.{kind}");
            let reporter = Reporter::new(run.clone(), built.reporters.len(), to.clone());
            built.reporters.push(name.clone());
            make(&mut built.graph, name, reporter)
        };
        let mut streams = Some(streams);
        add("generator", &mut |graph, name, reporter| {
            graph.add(name, Generator::new(streams.take().unwrap_or_default(), pool.clone(), reporter))
        });
        add("receiver", &mut |graph, name, reporter| {
            let (groups, streams) = expected(plan);
            graph.add(name, Receiver::new(groups, streams, reporter))
        });
        built.graph.add(format!("{name}.neighbour"), Neighbour(open.station));
    }
    // What is missing here is found when the graph is checked.
    for (from, to) in Wiring::new(settings).edges {
        if let (Some(from), Some(to)) = (built.graph.find(&from), built.graph.find(&to)) {
            built.graph.connect(from, to);
        }
    }
    Ok(built)
}

/// The address, if the device is on the PCI bus.
pub fn pci(device: &str) -> Option<String> {
    match device.parse() {
        Ok(dpdk::Device::Pci(address)) => Some(address),
        _ => None,
    }
}

fn open<'a>(
    eal: &'static Eal,
    settings: &'a Dpdk,
    taps: &'a [Taps],
    pool: &Mempool,
    longest: usize,
) -> Result<Vec<Open<'a>>, Unready> {
    let mut ports = Vec::new();
    for (index, (settings, taps)) in settings.ports.iter().zip(taps).enumerate() {
        let at = format!("transport.dpdk.ports[{index}]");
        let device = |why: dpdk::Error| unready(&format!("{at}.device"), &why);
        let port = Port::open(eal, &settings.device).map_err(device)?;
        let wanted = settings.mac.as_deref().and_then(parse_mac);
        let mtu = longest.saturating_sub(packet::ethernet::LEN);
        let mtu = if mtu > 1500 { u16::try_from(mtu).unwrap_or(u16::MAX) } else { 0 };
        let config = PortConfig { mac: wanted, mtu, ..PortConfig::default() };
        let (mut rx, mut tx) = port.start(&config, pool).map_err(device)?;
        let (Some(rx), Some(mut tx)) = (rx.pop(), tx.pop()) else { continue };
        // Ports without an address of their own get one that is locally administered.
        let own = Some(port.mac()).filter(|mac| *mac != [0; 6]);
        let mac = wanted.or(own).unwrap_or([2, 0x6e, 0x64, 0, 0, index as u8]);
        let tags = Tags::vlans(settings.vlan.ids()).unwrap_or_default();
        let station = Station { mac, ip: settings.ip.ip, tags };
        // At the other end of a cable is a port of ours, which knows; and who names the peer wants no other frames.
        let silent = settings.role == Role::L2fwd || settings.peer_mac.is_some();
        if !silent && !settings.device.starts_with("pair:") {
            neighbour::announce(&station, &mut tx, pool);
        }
        ports.push(Open { settings, index, rx, tx, station, taps, port });
    }
    Ok(ports)
}

/// Stream number of each group's first device.
fn first_streams(plan: &Plan) -> Result<Vec<u16>, Unready> {
    let mut next = 0u32;
    let mut first = Vec::new();
    for (i, group) in plan.groups.iter().enumerate() {
        first.push(next as u16);
        next = next.saturating_add(group.devices);
        if next > u32::from(u16::MAX) + 1 {
            let what = format!("{next} streams are more than the 65536 that signatures can number");
            return Err(Unready::new("ND-104-05", format!("groups[{i}].devices"), what, "Use fewer devices"));
        }
    }
    Ok(first)
}

/// The number of the port that group `index` sends on.
fn sender(settings: &Dpdk, plan: &Plan, index: usize) -> Result<usize, Unready> {
    let wanted = plan.profile.groups.get(index).and_then(|group| group.port.as_deref());
    let fits = |port: &profile::Port| {
        port.role == Role::Generator && wanted.is_none_or(|wanted| wanted == port.name)
    };
    settings.ports.iter().position(fits).ok_or_else(|| {
        let what = "no port with the role generator is there for the group".to_owned();
        Unready::new("ND-104-06", format!("groups[{index}].port"), what, "Name one of transport.dpdk.ports")
    })
}

fn flow(group: &GroupPlan, station: &Station, peer: Mac) -> Flow {
    Flow {
        source_mac: station.mac,
        destination_mac: peer,
        source: SocketAddr::new(group.source(0).unwrap_or(station.ip), frames::FIRST_SOURCE_PORT),
        destination: group.address,
    }
}

/// What a receiver must know: all groups and their streams.
fn expected(plan: &Plan) -> (Vec<Expected>, Vec<Stream>) {
    let groups = plan.groups.iter().enumerate().map(|(i, group)| Expected {
        group: i,
        meter: [(); 3].map(|()| Tally::new(group.delays.len())),
        delay: frames::delay(i, group, plan),
        whole: plan.profile.groups[i].frame.is_some(),
    });
    let streams = plan.groups.iter().enumerate();
    let streams = streams.flat_map(|(i, group)| (0..group.devices).map(move |d| Stream::new(i as u16, d)));
    (groups.collect(), streams.collect())
}
