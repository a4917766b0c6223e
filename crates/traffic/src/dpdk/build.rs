//! From the plan to the graph: ports opened, peers found, elements connected.

use super::assist::Assist;
use super::beat::Gaps;
use super::capture::{Captured, Taps};
use super::cutter::Cutter;
use super::expected::{Expected, Plain};
use super::frames;
use super::generator::{Generator, Streams};
use super::impaired::{self, Impaired};
use super::l2fwd::L2fwd;
use super::lanes::{self, Lanes};
use super::neighbour::{self, Neighbour, Stations};
use super::observe::PortFacts;
use super::offloads::{self, Leaving};
use super::peers;
use super::ready;
use super::receiver::{Receiver, Stream};
use super::reflector::Reflector;
use super::report::{Report, Reporter, Run};
use super::slots::{Shape, Slots};
use super::spread::Spread;
use super::wiring::{self, Wiring};
use crate::memory;
use crate::plan::{GroupPlan, Plan};
use crate::transport::Unready;
use dpdk::{Eal, EalOptions, Mempool, Offloads, Port, PortConfig, PortInfo, RxQueue, TxQueue};
use engine::Graph;
use engine::port::{PortRx, PortTx};
use packet::ethernet::{TAG, Tags};
use packet::frame::MacAddress;
use packet::{Flow, Mac};
use profile::{Dpdk, Role, parse_mac};
use protocol::meter::Tally;
use std::net::{IpAddr, SocketAddr};
use std::ops::Range;
use std::sync::Arc;
use std::sync::mpsc::Sender;

/// Packets in the pool all ports share.
const PACKETS: u32 = 16_383;
/// And these for each queue of a port that it has besides the first.
const QUEUED: u32 = 2_048;
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
    /// How each port's queues are used.
    pub lanes: Vec<Lanes>,
    /// What the ports are.
    pub facts: Vec<PortFacts>,
}

/// One port, open.
pub(super) struct Open<'a> {
    pub settings: &'a profile::Port,
    pub index: usize,
    pub rx: Vec<RxQueue>,
    pub tx: Vec<TxQueue>,
    pub stations: Stations,
    lanes: Lanes,
    info: PortInfo,
    taps: &'a Taps,
    port: Port,
    /// What the port does by itself.
    does: Offloads,
    /// And of what groups.
    leaving: Leaving,
    /// Most bytes of a packet behind its Ethernet header.
    mtu: usize,
}

impl Open<'_> {
    /// Bits per second, if anybody knows.
    fn speed(&self) -> Option<f64> {
        let own = || Some(self.port.link().mbps).filter(|mbps| *mbps > 0).map(|mbps| f64::from(mbps) * 1e6);
        self.settings.speed.map(|speed| speed.bits()).or_else(own)
    }

    /// Tell everybody on the link of its addresses, unless there is nobody to tell.
    fn announce(&mut self, pool: &Mempool) {
        // At the other end of a cable is a port of ours, which knows; and who names the peer wants no other frames.
        let silent = self.settings.role == Role::L2fwd || self.settings.peer_mac.is_some();
        if !silent && !self.settings.device.starts_with("pair:") {
            neighbour::announce(&self.stations, &mut self.tx[0], pool);
        }
    }

    pub(super) fn port(&self) -> &Port {
        &self.port
    }

    fn facts(&self) -> PortFacts {
        PortFacts {
            name: self.settings.name.clone(),
            device: self.port.device(),
            driver: self.info.driver.clone(),
            mac: MacAddress(self.stations.bare().mac).to_string(),
            rx_queues: self.lanes.rx,
            tx_queues: self.lanes.tx,
            uses: self.does.names(&self.info).into_iter().chain(self.lanes.rss().then_some("rss")).collect(),
            offers: self.info.offers.clone(),
            work: offloads::shares(self.settings, self.does, self.lanes, self.leaving),
        }
    }
}

/// An obstacle that DPDK told of.
pub fn unready(at: &str, why: &dpdk::Error) -> Unready {
    let said = why.log().iter().map(|line| format!("; dpdk: {line}")).collect::<String>();
    Unready::new("ND-92-12", at, why.what() + &said, why.fix())
}

/// Whether DPDK can have so much. Of huge pages it sees itself how many there are; and what it has it need not get.
pub fn has_memory(at: &str, bytes: u64, huge_pages: bool) -> Result<(), Unready> {
    if huge_pages || Eal::running().is_some() {
        return Ok(());
    }
    memory::enough(at, bytes, memory::available())
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
    has_memory("transport.dpdk.memory", settings.memory.0, settings.huge_pages)?;
    let eal = Eal::start(&options).map_err(|why| unready("transport.dpdk", &why))?;
    for (i, group) in plan.groups.iter().enumerate() {
        frames::refuse(i, group, plan)?;
    }
    let longest = frames::longest(plan)?;
    let room = u16::try_from(longest + 2 * TAG).unwrap_or(u16::MAX).max(ROOM);
    // Each queue in each direction may hold as many as it has room for.
    let more: u32 = settings.ports.iter().map(|port| u32::from(port.queues.saturating_sub(1)) * QUEUED).sum();
    let packets = (u64::from(PACKETS + more) * u64::from(ROOM) / u64::from(room)) as u32;
    let ways = settings.ports.iter().filter(|port| port.impair.is_some()).count();
    let (packets, on_the_way) = impaired::packets(settings.memory.0, ways, room.into(), packets);
    let pool = Mempool::new(eal, packets, room).map_err(|why| unready("transport.dpdk.memory", &why))?;
    let mut sends = vec![Sends::default(); settings.ports.len()];
    for (i, group) in plan.groups.iter().enumerate() {
        let sends = &mut sends[sender(settings, plan, i)?];
        sends.sources.extend(&group.sources);
        sends.cut |= is_cut(plan, i);
    }
    let mut ports = Vec::new();
    let mut order: Vec<usize> = (0..settings.ports.len()).collect();
    order.sort_by_key(|index| ready::connects(&settings.ports[*index]));
    for index in order {
        let (settings, taps) = (&settings.ports[index], &taps[index]);
        let how = (lanes::steady(plan), &sends[index]);
        let attempt = || open(eal, (index, settings, taps), &pool, longest, how);
        ports.push(ready::open(settings, &run.control, attempt)?);
    }
    ports.sort_by_key(|port| port.index);
    ready::links(&ports, &run.control)?;
    ports.iter_mut().for_each(|port| port.announce(&pool));

    let first_streams = first_streams(plan)?;
    let mut plain = Vec::new();
    let mut sending: Vec<Vec<Vec<Streams>>> =
        ports.iter().map(|port| (0..port.lanes.count).map(|_| Vec::new()).collect()).collect();
    for (i, group) in plan.groups.iter().enumerate() {
        let on = sender(settings, plan, i)?;
        let peer = peers::find(i, (&plan.profile.groups[i], group), on, &mut ports, &pool)?;
        let flow = flow(group, &ports[on], peer);
        plain.push(frames::plain(i, group, plan, flow.source.ip())?);
        let tags = peers::tags(&plan.profile.groups[i], &ports[on]);
        let does = ports[on].does;
        let (program, headers) =
            frames::program(i, group, plan, &flow, offloads::left(does, is_cut(plan, i)))?;
        // Of frames that are counted whole, no byte is a header.
        let headers = if headers > 0 { headers + tags.bytes().len() } else { 0 };
        let program = program.tagged(&tags);
        let cut = program.cut();
        let by_port = cut.filter(|cut| {
            offloads::cuts(does, &ports[on].info, ports[on].mtu, (cut, pool.segments(cut.whole())))
        });
        let segments = by_port.map(|cut| offloads::segments(&cut, does));
        let work = program.left().filter(|_| cut.is_none()).map(|carried| offloads::work(&carried, does));
        let leaving = &mut ports[on].leaving;
        leaving.groups += 1;
        leaving.checksums += usize::from(work.or(segments).is_some());
        leaving.cut += usize::from(cut.is_some());
        leaving.segments += usize::from(segments.is_some());
        let shape = frames::shape(i, group, plan, &program, ports[on].speed())?;
        let lanes = sending[on].len();
        for (part, devices) in parts(&shape, lanes).into_iter().enumerate() {
            let shape = Shape { devices: devices.len() as u32, ..shape.clone() };
            // Different for each group, and for each part of one.
            let seed = plan.profile.seed.wrapping_add(i as u64).wrapping_add((part as u64) << 32);
            if !devices.is_empty() {
                sending[on][(part + i) % lanes].push(Streams {
                    group: i,
                    slots: Slots::new(&shape, seed),
                    marked: program.is_marked(),
                    program: program.clone(),
                    work,
                    cutter: cut.map(|cut| Box::new(Cutter::new(cut, segments))),
                    headers,
                    priority: plan.profile.groups[i].frame.as_ref().map_or(0, |frame| frame.priority),
                    from: devices.start,
                    first: first_streams[i].wrapping_add(devices.start as u16),
                    meter: [(); 3].map(|()| Tally::of(group.about)),
                });
            }
        }
    }
    let lanes: Vec<Lanes> = ports.iter().map(|port| port.lanes).collect();
    let facts = ports.iter().map(Open::facts).collect();
    let mut built = Built {
        eal,
        graph: Graph::new(),
        ports: Vec::new(),
        reporters: Vec::new(),
        impaired: Vec::new(),
        lanes,
        facts,
    };
    for (open, streams) in ports.into_iter().zip(sending) {
        let port = &open.settings.name;
        let assist = Assist::of(&open.port, open.does).map_err(|why| unready("transport.dpdk", &why))?;
        built.ports.push((port.clone(), open.port));
        for ((i, tx), tap) in open.tx.into_iter().enumerate().zip(&open.taps.tx) {
            let name = wiring::name(port, "tx", i, open.lanes.tx);
            built.graph.add(name, Captured::new(PortTx(tx), tap.clone()));
        }
        for ((i, rx), tap) in open.rx.into_iter().enumerate().zip(&open.taps.rx) {
            let name = wiring::name(port, "rx", i, open.lanes.rx);
            built.graph.add(name, Captured::new(PortRx(rx), tap.clone()));
        }
        let seed = plan.profile.seed.wrapping_add(open.index as u64);
        if let Some(impaired) = Impaired::new(open.settings, seed) {
            built.graph.add(format!("{port}.impair"), impaired.element(&pool, on_the_way));
            built.impaired.push(impaired);
        }
        if open.lanes.spread() {
            built.graph.add(format!("{port}.spread"), Spread::new(open.lanes.count));
        }
        for (lane, streams) in streams.into_iter().enumerate() {
            let name = |kind: &str| wiring::name(port, kind, lane, open.lanes.count);
            match open.settings.role {
                Role::Reflector => {
                    built.graph.add(name("reflector"), Reflector(open.stations.clone()));
                }
                Role::L2fwd => {
                    let mode = open.settings.forward.unwrap_or_default();
                    built.graph.add(name("l2fwd"), L2fwd(mode));
                }
                Role::Generator => {
                    let mut reporter = |name: &str| {
                        built.reporters.push(name.to_owned());
                        Reporter::new(run.clone(), built.reporters.len() - 1, to.clone())
                    };
                    let (sends, receives) = (name("generator"), name("receiver"));
                    let generator = Generator::new(streams, pool.clone(), reporter(&sends));
                    let (groups, streams) = expected(plan, &plain);
                    let receiver = Receiver::new(groups, streams, reporter(&receives), assist.clone());
                    built.graph.add(sends, generator);
                    built.graph.add(receives, receiver);
                }
            }
        }
        if open.settings.role == Role::Generator {
            built.graph.add(format!("{port}.neighbour"), Neighbour(open.stations));
        }
    }
    // What is missing here is found when the graph is checked.
    for (from, output, to) in Wiring::new(settings, &built.lanes).edges {
        if let (Some(from), Some(to)) = (built.graph.find(&from), built.graph.find(&to)) {
            built.graph.connect_output(from, output, to);
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

/// What groups send on a port.
#[derive(Debug, Clone, Default)]
struct Sends {
    /// Where it comes from besides the port: it is answered for where it leaves.
    sources: Vec<IpAddr>,
    /// Whether some of it is to be cut.
    cut: bool,
}

fn is_cut(plan: &Plan, index: usize) -> bool {
    plan.profile.groups.get(index).and_then(|group| group.frame.as_ref()).is_some_and(profile::Frame::is_cut)
}

fn open<'a>(
    eal: &'static Eal,
    (index, settings, taps): (usize, &'a profile::Port, &'a Taps),
    pool: &Mempool,
    longest: usize,
    (steady, sends): (bool, &Sends),
) -> Result<Open<'a>, Unready> {
    let at = format!("transport.dpdk.ports[{index}]");
    let device = |why: dpdk::Error| unready(&format!("{at}.device"), &why);
    let port = Port::open(eal, &settings.device).map_err(device)?;
    let wanted = settings.mac.as_deref().and_then(parse_mac);
    let mtu = longest.saturating_sub(packet::ethernet::LEN);
    let mtu = if mtu > 1500 { u16::try_from(mtu).unwrap_or(u16::MAX) } else { 0 };
    let info = port.info().map_err(device)?;
    let lanes = Lanes::of(settings, &info, steady);
    let mut does = offloads::choose(settings, &info, sends.cut, &at)?;
    let config = PortConfig {
        mac: wanted,
        mtu,
        rx_queues: lanes.rx as u16,
        tx_queues: lanes.tx as u16,
        rss: lanes.rss(),
        offloads: does,
        ..PortConfig::default()
    };
    let (rx, tx) = port.start(&config, pool).map_err(device)?;
    if does.rx_timestamp && port.clock().is_none() {
        // Stamps that nobody can tell the time from.
        does.rx_timestamp = false;
        if settings.offloads.wants(profile::Offload::Timestamp) == Some(true) {
            return Err(offloads::lacking(&at, "a clock to read", &info.offers));
        }
    }
    // Ports without an address of their own get one that is locally administered.
    let own = Some(port.mac()).filter(|mac| *mac != [0; 6]);
    let mac = wanted.or(own).unwrap_or([2, 0x6e, 0x64, 0, 0, index as u8]);
    let tags = Tags::vlans(settings.vlan.ids()).unwrap_or_default();
    let own: Vec<IpAddr> = settings.ip.0.iter().map(|address| address.ip).collect();
    let stations = Stations::new(mac, tags, &own, &sends.sources);
    let (leaving, mtu) = (Leaving::default(), usize::from(mtu).max(1500));
    Ok(Open { settings, index, rx, tx, stations, lanes, info, taps, port, does, leaving, mtu })
}

/// Which of a group's devices each lane has. A recording that is played as it was, and devices that take turns in it,
/// cannot be divided.
fn parts(shape: &Shape, lanes: usize) -> Vec<Range<u32>> {
    let lanes = if matches!(shape.gaps, Gaps::Given(_)) { 1 } else { lanes };
    let border = |part: usize| (u64::from(shape.devices) * part as u64 / lanes as u64) as u32;
    (0..lanes).map(|part| border(part)..border(part + 1)).collect()
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

fn flow(group: &GroupPlan, port: &Open<'_>, peer: Mac) -> Flow {
    let own = port.settings.ip.towards(group.address.ip());
    Flow {
        source_mac: port.stations.bare().mac,
        destination_mac: peer,
        source: SocketAddr::new(group.source(0).unwrap_or(own), frames::FIRST_SOURCE_PORT),
        destination: group.address,
    }
}

/// What a receiver must know: all groups and their streams.
fn expected(plan: &Plan, plain: &[Option<Plain>]) -> (Vec<Expected>, Vec<Stream>) {
    let groups = plan.groups.iter().zip(plain).enumerate().map(|(i, (group, plain))| Expected {
        group: i,
        meter: [(); 3].map(|()| Tally::of(group.about)),
        delay: frames::delay(i, plan),
        whole: plan.profile.groups[i].frame.is_some(),
        plain: plain.clone(),
    });
    let streams = plan.groups.iter().enumerate();
    let streams = streams.flat_map(|(i, group)| (0..group.devices).map(move |d| Stream::new(i as u16, d)));
    (groups.collect(), streams.collect())
}
