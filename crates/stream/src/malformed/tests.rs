//! Everything that receives is shown the corpus, and counts every frame of it under a reason.

use super::corpus::{Case, Frame, arp, corpus, echo, echo6, probe, solicitation};
use super::*;
use crate::receiver::Receiver;
use crate::report::{Reporter, RunContext};
use capture::{Direction, Source, SourceState};
use dpdk::{Batch, Eal, EalOptions, Mempool};
use element::arp_nd::ArpNd;
use element::capture::{Captured, PortCapture, Taps};
use element::distribute::Distribute;
use element::l2fwd::L2fwd;
use element::reflect::Reflector;
use engine::{Cx, Element, ElementInfo, ElementStats, Engine, Graph, Options, Placement};
use proptest::prelude::*;
use run::Control;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

fn eal() -> &'static Eal {
    Eal::start(&EalOptions::default()).expect("DPDK starts without huge pages")
}

/// Source of given frames.
struct Feed {
    frames: std::vec::IntoIter<Frame>,
    pool: Mempool,
}

impl Element for Feed {
    fn about(&self) -> ElementInfo {
        ElementInfo { kind: "feed", takes: false, outputs: &["out"], drops: &[], polled: true }
    }

    fn poll(&mut self, batch: &mut Batch, _: &mut Cx<'_>) {
        // Few at a time: they are long, and the pool is small.
        while batch.len() < 32
            && let Some(frame) = self.frames.next()
        {
            let mut segments = frame.iter().map(|bytes| {
                let mut one = Batch::new();
                assert!(self.pool.fill(&mut one, 1));
                let mut mbuf = one.into_iter().next().expect("filled");
                mbuf.set_len(bytes.len()).expect("room").copy_from_slice(bytes);
                mbuf
            });
            let mut whole = segments.next().expect("at least one segment");
            segments.for_each(|segment| whole.chain(segment).expect("few"));
            batch.push(whole).expect("room");
        }
    }
}

/// Sink: the end of everything.
struct End;

impl Element for End {
    fn about(&self) -> ElementInfo {
        ElementInfo { kind: "end", takes: true, outputs: &[], drops: &[], polled: false }
    }

    fn push(&mut self, batch: &mut Batch, cx: &mut Cx<'_>) {
        cx.consume(batch);
    }
}

/// Let `frames` go through `element`; what it counted. `taps` is where they can be captured.
fn through(
    frames: Vec<Frame>,
    element: impl Element + 'static,
    taps: &Taps,
    run: &RunContext,
) -> ElementStats {
    let count = frames.len() as u64;
    let pool = Mempool::new(eal(), 127, 65_200).expect("memory");
    let mut graph = Graph::new();
    let feed =
        graph.add("feed", Captured::new(Feed { frames: frames.into_iter(), pool }, taps.rx[0].clone()));
    let element = graph.add("element", element);
    let end = graph.add("end", Captured::new(End, taps.tx[0].clone()));
    graph.chain(&[feed, element, end]);
    let engine = Engine::start(eal(), graph, &Placement::single(None), &Options::default()).expect("it runs");
    let began = Instant::now();
    while engine.elements()[0].packets_out < count {
        assert!(began.elapsed() < Duration::from_secs(20), "{:?}", engine.elements());
        std::thread::sleep(Duration::from_micros(200));
    }
    run.end();
    engine.stop().swap_remove(1)
}

fn standing() -> RunContext {
    RunContext::new(Arc::new(Control::new(0, u64::MAX, 0, u64::MAX)))
}

/// Every frame went out, was used, or was dropped for a reason that `allowed` names.
fn all_counted(case: &Case, stats: &ElementStats, (out, used): (&str, u64), allowed: &[&str]) {
    let name = case.name;
    assert_eq!(stats.packets_in, case.frames.len() as u64, "{name}");
    assert_eq!(stats.packets_in, stats.packets_out + used + stats.dropped(), "{name}: {stats:?}");
    let mut became: Vec<&str> = stats.drops.iter().map(|(reason, _)| reason.as_str()).collect();
    became.extend((stats.packets_out > 0).then_some(out));
    became.extend((used > 0).then_some("measured"));
    assert!(became.iter().all(|what| allowed.contains(what)), "{name}: {became:?}, not only {allowed:?}");
}

#[test]
fn the_receiver_counts_every_frame_under_a_reason() {
    for case in corpus() {
        let (to, reports) = channel();
        let run = Arc::new(standing());
        let reporter = Reporter::new(run.clone(), 0, to);
        let receiver = Receiver::new(vec![expected(None)], (Lane::ALL, true), reporter, None);
        let stats = through(case.frames.clone(), receiver, &Taps::new(1), &run);
        let tallies = reports.iter().flat_map(|report| report.groups).flat_map(|(_, phases)| phases);
        let used = tallies.map(|tally| tally.counts.messages_delivered + tally.counts.duplicates).sum();
        all_counted(&case, &stats, ("other", used), case.receiver);
    }
}

#[test]
fn the_reflector_counts_every_frame_under_a_reason() {
    for case in corpus() {
        let stats = through(case.frames.clone(), Reflector(ADDR.into()), &Taps::new(1), &standing());
        all_counted(&case, &stats, ("out", 0), case.reflector);
    }
}

#[test]
fn the_neighbour_counts_every_frame_under_a_reason() {
    for case in corpus() {
        let stats = through(case.frames.clone(), ArpNd(ADDR.into()), &Taps::new(1), &standing());
        all_counted(&case, &stats, ("out", 0), case.neighbour);
        let stats = through(case.frames.clone(), ArpNd(ADDR6.into()), &Taps::new(1), &standing());
        all_counted(&case, &stats, ("out", 0), case.neighbour6);
    }
}

#[test]
fn the_spreader_drops_nothing() {
    for case in corpus() {
        let stats = through(case.frames.clone(), Distribute::new(1), &Taps::new(1), &standing());
        all_counted(&case, &stats, ("out", 0), &["out"]);
    }
}

#[test]
fn the_forwarder_hands_on_all_that_has_addresses() {
    for case in corpus() {
        let forward = L2fwd(profile::Forward::Macswap);
        let stats = through(case.frames.clone(), forward, &Taps::new(1), &standing());
        all_counted(&case, &stats, ("out", 0), &["out", "truncated"]);
        let short = case.frames.iter().filter(|frame| frame[0].len() < ethernet::LEN).count();
        assert_eq!(stats.dropped(), short as u64, "{}", case.name);
    }
}

/// An element that lets all pass.
struct Pass;

impl Element for Pass {
    fn about(&self) -> ElementInfo {
        ElementInfo { kind: "pass", takes: true, outputs: &["out"], drops: &[], polled: false }
    }
}

#[test]
fn the_capture_has_every_frame_as_it_was() {
    let filtered = |text: &str| profile::Capture { filter: text.into(), ..profile::Capture::default() };
    for case in corpus() {
        let taps = Taps::new(1);
        let mut capture = PortCapture::start("a", &taps, &filtered("")).expect("it starts");
        through(case.frames.clone(), Pass, &taps, &standing());
        capture.stop();
        let mut seen: [Vec<(Vec<u8>, usize)>; 2] = Default::default();
        let mut keep = |packet: &capture::Packet<'_>| {
            let which = usize::from(packet.direction == Some(Direction::Out));
            seen[which].push((packet.data.to_vec(), packet.len as usize));
            ControlFlow::Continue(())
        };
        while !matches!(capture.poll(&mut keep).expect("it reads"), SourceState::Ended) {}
        assert_eq!(capture.dropped(), 0, "{}", case.name);
        let whole = |frame: &Frame| (frame[0].clone(), frame.iter().map(Vec::len).sum());
        let expected: Vec<(Vec<u8>, usize)> = case.frames.iter().map(whole).collect();
        assert!(seen[0] == expected && seen[1] == expected, "{}", case.name);

        // No filter is broken by them either.
        let taps = Taps::new(1);
        let mut capture = PortCapture::start("a", &taps, &filtered("vlan and udp and ip[6:2] & 0x3fff = 0"));
        let stats = through(case.frames.clone(), Pass, &taps, &standing());
        assert_eq!(stats.packets_out, case.frames.len() as u64);
        capture.as_mut().expect("it started").stop();
    }
}

#[test]
fn each_of_the_corpus_is_shown_to_all() {
    corpus().iter().flat_map(|case| &case.frames).for_each(|frame| show(&frame.concat()));
}

proptest! {
    /// Near to a question, so that some are one.
    #[test]
    fn nothing_breaks_the_neighbour_or_makes_it_say_what_is_wrong(
        kind in 0usize..5,
        changes in proptest::collection::vec((0usize..90, any::<u8>()), 0..4),
        more in proptest::collection::vec(any::<u8>(), 0..80),
        cut in 0usize..=170,
    ) {
        let mut frame = [arp, echo, solicitation, probe, echo6][kind]();
        for (at, value) in changes {
            if let Some(byte) = frame.get_mut(at) {
                *byte = value;
            }
        }
        frame.extend(more);
        frame.truncate(cut.max(1));
        show(&frame);
    }

    #[test]
    fn nothing_breaks_anything(frame in proptest::collection::vec(any::<u8>(), 0..256)) {
        show(&frame);
    }
}
