//! What one core does with many packets on their way: frames from a generator through the `impair` element to
//! a sink that checks their order and frees them, on one worker. Prints Mpps and cycles per packet.
//!
//!     store run --release -p impair --example impair_speed [SECONDS] [FLIGHT] [DELAY_MS] [huge] [jitter]
//! [ports]
//!
//! What is sent is paced so that FLIGHT packets are on their way if the core can do it: a million over 200 ms
//! are 5 Mpps, over 40 ms more than it can. `ports` puts a pair of DPDK ring ports on either side of the
//! element. `jitter` draws each delay from a quarter less to a quarter more, so that packets overtake each
//! other.

use dpdk::{Batch, Eal, EalOptions, Mempool, Port, PortConfig};
use engine::port::{PortRx, PortTx};
use engine::{Cx, Element, ElementInfo, Engine, Graph, Options, Placement};
use impair::{Direction, DirectionControl, Impair, LinkSpec};
use rustix::time::{ClockId, clock_gettime};
use serde_json::{from_value, json};
use std::error::Error;
use std::time::Duration;

/// Of the frame with its check sequence.
const FRAME: usize = 64;

/// Numbered frames, `flight` of them in each `delay`.
struct Source {
    pool: Mempool,
    next: u64,
    flight: u64,
    delay: u64,
    began: u64,
}

impl Element for Source {
    fn about(&self) -> ElementInfo {
        ElementInfo { kind: "source", takes: false, outputs: &["out"], drops: &[], polled: true }
    }

    fn poll(&mut self, batch: &mut Batch, cx: &mut Cx<'_>) {
        if self.began == 0 {
            self.began = cx.now();
        }
        let due =
            ((u128::from(cx.now() - self.began) * u128::from(self.flight)) / u128::from(self.delay)) as u64;
        // What there was no time for is left out.
        self.next = self.next.max(due.saturating_sub(self.flight / 100));
        let want = due.saturating_sub(self.next).min(32) as usize;
        if want == 0 || !self.pool.fill(batch, want) {
            return;
        }
        for mbuf in batch.frames_mut() {
            if let Some(bytes) = mbuf.set_len(FRAME - 4) {
                bytes[..8].copy_from_slice(&self.next.to_ne_bytes());
            }
            self.next += 1;
        }
    }
}

#[derive(Default)]
struct Sink {
    ordered: bool,
    last: u64,
}

impl Element for Sink {
    fn about(&self) -> ElementInfo {
        ElementInfo { kind: "sink", takes: true, outputs: &[], drops: &[], polled: false }
    }

    fn push(&mut self, batch: &mut Batch, cx: &mut Cx<'_>) {
        for mbuf in batch.frames() {
            let number = mbuf.data().first_chunk().map_or(0, |bytes| u64::from_ne_bytes(*bytes));
            assert!(!self.ordered || number >= self.last, "{number} after {}", self.last);
            self.last = number;
        }
        cx.consume(batch);
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let numbers: Vec<u64> = words.iter().filter_map(|word| word.parse().ok()).collect();
    let asked = |word: &str| words.iter().any(|w| w == word);
    let number = |at: usize, other: u64| numbers.get(at).copied().unwrap_or(other);
    let (seconds, flight, ms) = (number(0, 3), number(1, 1_000_000), number(2, 200));
    // Ours, and what rings and caches hold.
    let packets = flight + flight / 2 + 16_384;
    let memory_mib = ((packets * 448) >> 20) as u32 + 64;
    let eal = Eal::start(&EalOptions { huge_pages: asked("huge"), memory_mib, ..EalOptions::default() })?;
    let pool = Mempool::new(eal, u32::try_from(packets)?, 64)?;
    let jitter = asked("jitter");
    let delay = match jitter {
        false => json!({"constant": format!("{ms}ms")}),
        true => json!({"uniform": {"from": format!("{}us", ms * 750), "to": format!("{}us", ms * 1250)}}),
    };
    let spec: LinkSpec = from_value(json!({"a_to_b": {"delay": delay, "overtaking": jitter}}))?;
    let live = DirectionControl::new(&spec, Direction::AToB);
    let mut graph = Graph::new();
    let source =
        graph.add("source", Source { pool: pool.clone(), next: 0, flight, delay: ms * 1_000_000, began: 0 });
    let impair = graph.add("impair", Impair::new(live.clone(), pool.clone(), packets as usize));
    let sink = graph.add("sink", Sink { ordered: !jitter, last: 0 });
    if asked("ports") {
        for (cable, from, to) in [("pair:in", source, impair), ("pair:out", impair, sink)] {
            let config = PortConfig::default();
            let [a, b] = [Port::open(eal, cable)?, Port::open(eal, cable)?];
            let (_, mut tx) = a.start(&config, &pool)?;
            let (mut rx, _) = b.start(&config, &pool)?;
            let tx = graph.add(format!("{cable}.tx"), PortTx(tx.remove(0)));
            let rx = graph.add(format!("{cable}.rx"), PortRx(rx.remove(0)));
            graph.connect(from, tx);
            graph.connect(rx, to);
        }
    } else {
        graph.connect(source, impair);
        graph.connect(impair, sink);
    }
    let engine = Engine::start(eal, graph, &Placement::single(None), &Options::default())?;
    std::thread::sleep(Duration::from_millis(500 + 2 * ms));
    // Of the whole process; nobody but the worker has anything to do.
    let spent = || clock_gettime(ClockId::ProcessCPUTime);
    let (before, began) = (live.stats(), spent());
    std::thread::sleep(Duration::from_secs(seconds));
    let (after, ended) = (live.stats(), spent());
    let packets = (after.packets_out - before.packets_out) as f64 / 1e6;
    let cpu = (ended.tv_sec - began.tv_sec) as f64 + (ended.tv_nsec - began.tv_nsec) as f64 / 1e9;
    println!(
        "{:.2} Mpps, {:.2} per second of processor time, {} on their way",
        packets / seconds as f64,
        packets / cpu,
        after.held
    );
    println!(
        "late p50 {:.1} p99 {:.1} max {:.1} µs, dropped {}",
        after.late_p50_ns as f64 / 1e3,
        after.late_p99_ns as f64 / 1e3,
        after.late_max_ns as f64 / 1e3,
        after.dropped()
    );
    for element in engine.stop() {
        println!(
            "  {:<12} {:>7.1} cycles/packet, drops {:?}",
            element.name,
            element.cycles_per_packet(),
            element.drops
        );
    }
    Ok(())
}
