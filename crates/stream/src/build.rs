//! From the plan to the graph: ports opened, peers found, elements connected.

use crate::expected::{self, Expected, Plain};
use crate::frames;
use crate::generator::{Generator, Streams};
use crate::pacer::Gaps;
use crate::peers;
use crate::receiver::Receiver;
use crate::report::{Report, Reporter, Run};
use crate::rx_offload::RxOffload;
use crate::schedule::{Schedule, Timing};
use crate::segmenter::Segmenter;
use crate::stream_table::Lane;
use dataplane::impaired::{self, Impaired};
use dataplane::ports::{self, OpenPort, PortNeeds, has_memory, pci, setup_error};
use dataplane::queue_pairs::QueuePairs;
use dataplane::wiring::{self, Wiring};
use dataplane::{link_up, offloads};
use dpdk::{Eal, EalOptions, NodePools, Port};
use element::arp_nd::ArpNd;
use element::capture::{Captured, Taps};
use element::distribute::Distribute;
use element::l2fwd::L2fwd;
use element::reflect::Reflector;
use engine::Graph;
use engine::port::{PortRx, PortTx};
use packet::ethernet::TAG;
use packet::signature::STREAM_MAX;
use packet::{Flow, Mac};
use profile::{Dpdk, Role};
use protocol::meter::Tally;
use run::graph::PortFacts;
use run::{GroupPlan, Plan, SetupError};
use std::net::SocketAddr;
use std::ops::Range;
use std::sync::Arc;
use std::sync::mpsc::Sender;

/// Packets in the pool that the ports of a NUMA node share.
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
    pub lanes: Vec<QueuePairs>,
    /// What the ports are.
    pub facts: Vec<PortFacts>,
}

/// Make everything that `settings` and the plan ask for.
pub fn build(
    settings: &Dpdk,
    taps: &[Taps],
    plan: &Plan,
    run: &Arc<Run>,
    to: &Sender<Report>,
) -> Result<Built, SetupError> {
    let options = EalOptions {
        huge_pages: settings.huge_pages,
        memory_mib: u32::try_from(settings.memory.0.div_ceil(1 << 20)).unwrap_or(u32::MAX),
        pci: settings.ports.iter().filter_map(|port| pci(&port.device)).collect(),
        extra: Vec::new(),
    };
    has_memory("transport.dpdk.memory", settings.memory.0, settings.huge_pages)?;
    let eal = Eal::start(&options).map_err(|why| setup_error("transport.dpdk", &why))?;
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
    let pools =
        NodePools::new(eal, packets, room).map_err(|why| setup_error("transport.dpdk.memory", &why))?;
    let shared = PortNeeds { longest, steady: frames::steady(plan), ..PortNeeds::default() };
    let mut needs = vec![shared; settings.ports.len()];
    for (i, group) in plan.groups.iter().enumerate() {
        let needs = &mut needs[sender(settings, plan, i)?];
        needs.sources.extend(&group.sources);
        needs.segments |= is_cut(plan, i);
    }
    let mut opened = Vec::new();
    let mut order: Vec<usize> = (0..settings.ports.len()).collect();
    order.sort_by_key(|index| link_up::connects(&settings.ports[*index]));
    for index in order {
        let (settings, taps) = (&settings.ports[index], &taps[index]);
        let attempt = || ports::open(eal, (index, settings, taps), &pools, &needs[index]);
        opened.push(link_up::open(settings, &run.control, attempt)?);
    }
    let mut ports = opened;
    ports.sort_by_key(|port| port.index);
    link_up::links(&ports, &run.control)?;
    ports.iter_mut().for_each(|port| port.announce());

    let first_streams = first_streams(plan)?;
    let mut plain = Vec::new();
    let mut sending: Vec<Vec<Vec<Streams>>> =
        ports.iter().map(|port| (0..port.queues.count).map(|_| Vec::new()).collect()).collect();
    for (i, group) in plan.groups.iter().enumerate() {
        let on = sender(settings, plan, i)?;
        let peer = peers::find(i, (&plan.profile.groups[i], group), on, &mut ports)?;
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
            offloads::cuts(does, &ports[on].info, ports[on].mtu, (cut, ports[on].pool.segments(cut.whole())))
        });
        let segments = by_port.map(|cut| offloads::segments(&cut, does));
        let work = program.left().filter(|_| cut.is_none()).map(|carried| offloads::work(&carried, does));
        let share = &mut ports[on].share;
        share.groups += 1;
        share.checksums += usize::from(work.or(segments).is_some());
        share.cut += usize::from(cut.is_some());
        share.segments += usize::from(segments.is_some());
        let timing = frames::timing(i, group, plan, &program, ports[on].speed())?;
        let lanes = sending[on].len();
        for (part, devices) in parts(&timing, lanes).into_iter().enumerate() {
            let timing = Timing { devices: devices.len() as u32, ..timing.clone() };
            // Different for each group, and for each part of one.
            let seed = plan.profile.seed.wrapping_add(i as u64).wrapping_add((part as u64) << 32);
            if !devices.is_empty() {
                sending[on][(part + i) % lanes].push(Streams {
                    group: i,
                    schedule: Schedule::new(&timing, seed),
                    marked: program.is_marked(),
                    program: program.clone(),
                    work,
                    segmenter: cut.map(|cut| Box::new(Segmenter::new(cut, segments))),
                    headers,
                    priority: plan.profile.groups[i].frame.as_ref().map_or(0, |frame| frame.priority),
                    from: devices.start,
                    first: first_streams[i].wrapping_add(devices.start),
                    meter: [(); 3].map(|()| Tally::of(group.about)),
                    under_way: [0; 3],
                });
            }
        }
    }
    let lanes: Vec<QueuePairs> = ports.iter().map(|port| port.queues).collect();
    let facts = ports.iter().map(OpenPort::facts).collect();
    let mut built = Built {
        eal,
        graph: Graph::new(),
        ports: Vec::new(),
        reporters: Vec::new(),
        impaired: Vec::new(),
        lanes,
        facts,
    };
    let alone = settings.ports.iter().filter(|port| port.role == Role::Generator).count() == 1;
    for (open, streams) in ports.into_iter().zip(sending) {
        let port = &open.settings.name;
        let rx_offload =
            RxOffload::of(&open.port, open.does).map_err(|why| setup_error("transport.dpdk", &why))?;
        built.ports.push((port.clone(), open.port));
        for ((i, tx), tap) in open.tx.into_iter().enumerate().zip(&open.taps.tx) {
            let name = wiring::name(port, "tx", i, open.queues.tx);
            built.graph.add(name, Captured::new(PortTx(tx), tap.clone()));
        }
        for ((i, rx), tap) in open.rx.into_iter().enumerate().zip(&open.taps.rx) {
            let name = wiring::name(port, "rx", i, open.queues.rx);
            built.graph.add(name, Captured::new(PortRx(rx), tap.clone()));
        }
        let seed = plan.profile.seed.wrapping_add(open.index as u64);
        if let Some(impaired) = Impaired::new(open.settings, seed) {
            built.graph.add(format!("{port}.impair"), impaired.element(&open.pool, on_the_way));
            built.impaired.push(impaired);
        }
        if open.queues.spread() {
            built.graph.add(format!("{port}.spread"), Distribute::new(open.queues.count));
        }
        for (lane, streams) in streams.into_iter().enumerate() {
            let name = |kind: &str| wiring::name(port, kind, lane, open.queues.count);
            match open.settings.role {
                Role::Reflector => {
                    built.graph.add(name("reflector"), Reflector(open.addrs.clone()));
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
                    let generator = Generator::new(streams, open.pool.clone(), reporter(&sends));
                    let own = match open.queues.spread() {
                        true => Lane::new(lane, open.queues.count),
                        false => Lane::ALL,
                    };
                    // Elsewhere a stream may come back on any port, or on any queue.
                    let all = alone && !open.queues.rss();
                    let groups = expected(plan, &plain, &first_streams);
                    let receiver = Receiver::new(groups, (own, all), reporter(&receives), rx_offload.clone());
                    built.graph.add(sends, generator);
                    built.graph.add(receives, receiver);
                }
            }
        }
        if open.settings.role == Role::Generator {
            built.graph.add(format!("{port}.neighbour"), ArpNd(open.addrs));
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

fn is_cut(plan: &Plan, index: usize) -> bool {
    plan.profile.groups.get(index).and_then(|group| group.frame.as_ref()).is_some_and(profile::Frame::is_cut)
}

/// Which of a group's devices each lane has. A recording that is played as it was, and devices that take turns in it,
/// cannot be divided.
fn parts(timing: &Timing, lanes: usize) -> Vec<Range<u32>> {
    let lanes = if matches!(timing.gaps, Gaps::Given(_)) { 1 } else { lanes };
    let border = |part: usize| (u64::from(timing.devices) * part as u64 / lanes as u64) as u32;
    (0..lanes).map(|part| border(part)..border(part + 1)).collect()
}

/// Stream number of each group's first device.
fn first_streams(plan: &Plan) -> Result<Vec<u32>, SetupError> {
    let mut next = 0u32;
    let mut first = Vec::new();
    for (i, group) in plan.groups.iter().enumerate() {
        first.push(next);
        next = next.saturating_add(group.devices);
        if next > STREAM_MAX + 1 {
            let what =
                format!("{next} streams are more than the {} that signatures can number", STREAM_MAX + 1);
            return Err(SetupError::new(
                "ND-104-05",
                format!("groups[{i}].devices"),
                what,
                "Use fewer devices",
            ));
        }
    }
    Ok(first)
}

/// The number of the port that group `index` sends on.
fn sender(settings: &Dpdk, plan: &Plan, index: usize) -> Result<usize, SetupError> {
    let wanted = plan.profile.groups.get(index).and_then(|group| group.port.as_deref());
    let fits = |port: &profile::Port| {
        port.role == Role::Generator && wanted.is_none_or(|wanted| wanted == port.name)
    };
    settings.ports.iter().position(fits).ok_or_else(|| {
        let what = "no port with the role generator is there for the group".to_owned();
        SetupError::new(
            "ND-104-06",
            format!("groups[{index}].port"),
            what,
            "Name one of transport.dpdk.ports",
        )
    })
}

fn flow(group: &GroupPlan, port: &OpenPort<'_>, peer: Mac) -> Flow {
    let own = port.settings.ip.towards(group.address.ip());
    Flow {
        source_mac: port.addrs.bare().mac,
        destination_mac: peer,
        source: SocketAddr::new(group.source(0).unwrap_or(own), expected::FIRST_SOURCE_PORT),
        destination: group.address,
    }
}

/// What a receiver must know of all groups.
fn expected(plan: &Plan, plain: &[Option<Plain>], first_streams: &[u32]) -> Vec<Expected> {
    let groups = plan.groups.iter().zip(plain).zip(first_streams).enumerate();
    let group = |(i, ((group, plain), first)): (usize, ((&GroupPlan, &Option<Plain>), &u32))| Expected {
        group: i,
        streams: *first..first + group.devices,
        meter: [(); 3].map(|()| Tally::of(group.about)),
        delay: frames::delay(i, plan),
        whole: plan.profile.groups[i].frame.is_some(),
        plain: plain.clone(),
    };
    groups.map(group).collect()
}
