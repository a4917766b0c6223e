//! From the plan to the graph: ports opened, peers found, elements connected.

use crate::expected;
use crate::frames;
use crate::graph;
use crate::peers;
use crate::report::{Report, RunContext};
use crate::run_elements::{ReceivingPort, RunElements};
use crate::rx_offload::RxOffload;
use crate::schedule::{Schedule, Timing};
use crate::segmenter::Segmenter;
use crate::streams::Streams;
use capture::Capture;
use dataplane::graph::CheckedGraph;
use dataplane::graph::assemble::{Parts, Queues, assemble, placement};
use dataplane::impaired::{self, Impaired, ImpairedElements};
use dataplane::ports::{self, OpenPort, PortNeeds, has_memory, pci, setup_error};
use dataplane::queue_pairs::QueuePairs;
use dataplane::{link_up, offloads};
use dpdk::{Eal, EalOptions, NodePools, Port};
use element::capture::{Captured, Taps};
use element::kind::{Extensions, GraphPort};
use element::registry::Registry;
use engine::port::{PortRx, PortTx};
use engine::{Element, Graph, Placement};
use packet::ethernet::TAG;
use packet::signature::STREAM_MAX;
use packet::{Flow, Mac};
use profile::Dpdk;
use protocol::meter::Tally;
use protocol::pacer::Gaps;
use run::graph::PortFacts;
use run::{GroupPlan, Plan, SetupError};
use std::collections::BTreeMap;
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
pub struct RunGraph {
    /// The EAL it belongs to.
    pub eal: &'static Eal,
    /// The graph.
    pub graph: Graph,
    /// The ports by name, to read their counters.
    pub ports: Vec<(String, Port)>,
    /// Where its elements run.
    pub placement: Placement,
    /// Names of the elements that report, in the order of their numbers.
    pub reporters: Vec<String>,
    /// Handles of the elements that impair.
    pub impaired: Vec<Impaired>,
    /// Files that elements write packets to.
    pub captures: Vec<Capture>,
    /// What the ports are.
    pub facts: Vec<PortFacts>,
}

/// Make everything that `settings` and the plan ask for.
pub fn build(
    (settings, planned, kinds): (&Dpdk, &CheckedGraph, &Registry),
    (taps, cores): (&[Taps], &[usize]),
    plan: &Arc<Plan>,
    run: &Arc<RunContext>,
    to: &Sender<Report>,
) -> Result<RunGraph, SetupError> {
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
    let ways = planned.of_kind(impaired::KIND).count();
    let (packets, on_the_way) = impaired::packets(settings.memory.0, ways, room.into(), packets);
    let pools =
        NodePools::new(eal, packets, room).map_err(|why| setup_error("transport.dpdk.memory", &why))?;
    let shared = PortNeeds { longest, steady: frames::steady(plan), ..PortNeeds::default() };
    let need = |port: &profile::Port| PortNeeds {
        direct: graph::is_direct(planned, &port.name),
        queues: settings.has_graph().then(|| planned.named_queues(&port.name)),
        ..shared.clone()
    };
    let mut needs: Vec<PortNeeds> = settings.ports.iter().map(need).collect();
    for (i, group) in plan.groups.iter().enumerate() {
        let needs = &mut needs[sender(settings, planned, plan, i)?];
        needs.sources.extend(&group.sources);
        needs.segments |= is_segmented(plan, i);
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

    // How queues are used is known now, and with it what the roles stand for.
    let queues: Vec<QueuePairs> = ports.iter().map(|port| port.queues).collect();
    let checked = graph::of(settings, &queues, kinds).map_err(first_fault)?;
    let first_streams = first_streams(plan)?;
    let mut plain = Vec::new();
    let generators: Vec<Vec<&str>> =
        settings.ports.iter().map(|port| graph::generators(&checked, &port.name)).collect();
    let mut sending: Vec<Vec<Vec<Streams>>> =
        generators.iter().map(|all| all.iter().map(|_| Vec::new()).collect()).collect();
    for (i, group) in plan.groups.iter().enumerate() {
        let on = sender(settings, &checked, plan, i)?;
        let peer = peers::find(i, (&plan.profile.groups[i], group), on, &mut ports)?;
        let flow = flow(group, &ports[on], peer);
        plain.push(frames::plain(i, group, plan, flow.source.ip())?);
        let tags = peers::tags(&plan.profile.groups[i], &ports[on]);
        let does = ports[on].does;
        let (program, headers) =
            frames::program(i, group, plan, &flow, offloads::port_checksums(does, is_segmented(plan, i)))?;
        // Of frames that are counted whole, no byte is a header.
        let headers = if headers > 0 { headers + tags.bytes().len() } else { 0 };
        let program = program.tagged(&tags);
        let segmentation = program.segmentation();
        let by_port = segmentation.filter(|segmentation| {
            offloads::segments_in_port(
                does,
                &ports[on].info,
                ports[on].mtu,
                (segmentation, ports[on].pool.segments(segmentation.frame_bytes())),
            )
        });
        let segments = by_port.map(|segmentation| offloads::segments(&segmentation, does));
        let work = program
            .offloaded()
            .filter(|_| segmentation.is_none())
            .map(|carried| offloads::tx_work(&carried, does));
        let share = &mut ports[on].share;
        share.groups += 1;
        share.checksums += usize::from(work.or(segments).is_some());
        share.segmented += usize::from(segmentation.is_some());
        share.segments += usize::from(segments.is_some());
        let timing = frames::timing(i, group, plan, &program, ports[on].speed())?;
        if let Some(timeline) = group.model.timeline() {
            // a recording has its own times
            let paced = !matches!(timing.gaps, Gaps::Given(_));
            timeline.set_nominal(if paced { 1e9 / timing.interval_ns } else { 0.0 });
        }
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
                    segmenter: segmentation
                        .map(|segmentation| Box::new(Segmenter::new(segmentation, segments))),
                    headers,
                    priority: plan.profile.groups[i].frame.as_ref().map_or(0, |frame| frame.priority),
                    from: devices.start,
                    first: first_streams[i].wrapping_add(devices.start),
                    meter: [(); 3].map(|()| Tally::of(group.about)),
                    under_way: [0; 3],
                    timeline: group.model.timeline().cloned(),
                    changes: 0,
                });
            }
        }
    }
    let facts = ports.iter().map(OpenPort::facts).collect();
    let mut elements = RunElements {
        streams: BTreeMap::new(),
        receiving: BTreeMap::new(),
        reporters: Vec::new(),
        plain,
        first_streams,
        plan: Arc::clone(plan),
        run: Arc::clone(run),
        to: to.clone(),
    };
    let receives = |port: &&profile::Port| !graph::receivers(&checked, &port.name).is_empty();
    let alone = settings.ports.iter().filter(receives).count() == 1;
    let pool = ports.first().map(|port| port.pool.clone());
    let (mut queues, mut places, mut opened) = (BTreeMap::new(), Vec::new(), Vec::new());
    for ((open, streams), generators) in ports.into_iter().zip(sending).zip(&generators) {
        let name = open.settings.name.clone();
        let rx_offload =
            RxOffload::of(&open.port, open.does).map_err(|why| setup_error("transport.dpdk", &why))?;
        // Elsewhere a stream may come back on any port, or on any queue.
        let all = alone && !open.queues.rss();
        let receivers = graph::receivers(&checked, &name).len();
        elements.receiving.insert(name.clone(), ReceivingPort { rx_offload, all, receivers });
        for (generator, streams) in generators.iter().zip(streams) {
            elements.streams.insert((*generator).to_owned(), (streams, open.pool.clone()));
        }
        let tx = open.tx.into_iter().zip(&open.taps.tx);
        let tx =
            tx.map(|(tx, tap)| Some(Box::new(Captured::new(PortTx(tx), tap.clone())) as Box<dyn Element>));
        let rx = open.rx.into_iter().zip(&open.taps.rx);
        let rx =
            rx.map(|(rx, tap)| Some(Box::new(Captured::new(PortRx(rx), tap.clone())) as Box<dyn Element>));
        queues.insert(name.clone(), Queues { rx: rx.collect(), tx: tx.collect() });
        let (mtu, interface) = (open.link_mtu, open.info.interface);
        places.push(GraphPort { name: name.clone(), addrs: open.addrs, mtu, interface });
        opened.push((name, open.port));
    }
    let pool = pool.map_or_else(|| pools.on(None), Ok);
    let pool = pool.map_err(|why| setup_error("transport.dpdk.memory", &why))?;
    let (mut captures, mut extensions) = (Vec::new(), Extensions::default());
    extensions.insert(elements);
    extensions.insert(ImpairedElements::new(plan.profile.seed, on_the_way));
    let parts =
        Parts { queues, ports: &places, pool: &pool, captures: &mut captures, extensions: &mut extensions };
    let (graph, replicas) = assemble(&checked, parts).map_err(|why| in_profile(settings, why))?;
    let placement = placement(&checked.file.placement, cores, &graph, replicas);
    let impaired = extensions.take::<ImpairedElements>().map_or_else(Vec::new, |all| all.handles);
    let reporters = extensions.take::<RunElements>().map_or_else(Vec::new, |all| all.reporters);
    Ok(RunGraph { eal, graph, placement, ports: opened, reporters, impaired, captures, facts })
}

/// The first of several faults, where one can be told.
pub fn first_fault(faults: Vec<SetupError>) -> SetupError {
    let none =
        || SetupError::new("ND-104-33", "transport.dpdk", "the graph cannot run", "Validate the profile");
    faults.into_iter().next().unwrap_or_else(none)
}

/// A fault of a graph's file, by the place in the profile.
fn in_profile(settings: &Dpdk, why: SetupError) -> SetupError {
    let at = why.at.strip_prefix("ports.").and_then(|rest| {
        let (name, key) = rest.split_once('.')?;
        let number = settings.ports.iter().position(|port| port.name == name)?;
        Some(format!("ports[{number}].{key}"))
    });
    SetupError { at: format!("transport.dpdk.{}", at.unwrap_or(why.at.clone())), ..why }
}

fn is_segmented(plan: &Plan, index: usize) -> bool {
    plan.profile
        .groups
        .get(index)
        .and_then(|group| group.frame.as_ref())
        .is_some_and(profile::Frame::is_segmented)
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
fn sender(settings: &Dpdk, graph: &CheckedGraph, plan: &Plan, index: usize) -> Result<usize, SetupError> {
    let wanted = plan.profile.groups.get(index).and_then(|group| group.port.as_deref());
    graph::sender(settings, graph, wanted).ok_or_else(|| {
        let what = "no port with a generator is there for the group".to_owned();
        let fix = "Name one of transport.dpdk.ports";
        SetupError::new("ND-104-06", format!("groups[{index}].port"), what, fix)
    })
}

fn flow(group: &GroupPlan, port: &OpenPort<'_>, peer: Mac) -> Flow {
    let own = port.settings.ip.towards(group.address().ip());
    Flow {
        source_mac: port.addrs.bare().mac,
        destination_mac: peer,
        source: SocketAddr::new(group.source(0).unwrap_or(own), expected::FIRST_SOURCE_PORT),
        destination: group.address(),
    }
}
