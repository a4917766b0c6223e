//! An output that takes less than it is handed says so, whichever it is, and nothing is lost on the way.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use crate::common::{Recorder, eal, number, numbers};
use dpdk::{BURST, Batch, Mbuf};
use engine::{Cx, Element, ElementInfo, Engine, Graph, Options, Placement};
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

const COUNT: u32 = 20_000;

/// Every third packet goes to the second output, in order; what does not fit waits here.
struct Patient {
    waiting: VecDeque<Mbuf>,
    /// Ask for room before anything is handed on, else find out afterwards.
    asks: bool,
    refused: Arc<AtomicU64>,
}

impl Patient {
    fn hand_on(&mut self, cx: &mut Cx<'_>) {
        let most = if self.asks { cx.room(1) } else { BURST };
        for _ in 0..most.min(self.waiting.len()) {
            let Some(mbuf) = self.waiting.pop_front() else { break };
            if let Err(mbuf) = cx.offer(1, mbuf) {
                assert!(!self.asks, "it said that there was room");
                self.waiting.push_front(mbuf);
                break;
            }
        }
    }
}

impl Element for Patient {
    fn about(&self) -> ElementInfo {
        ElementInfo { kind: "patient", takes: true, outputs: &["rest", "threes"], drops: &[], polled: true }
    }

    fn push(&mut self, batch: &mut Batch, cx: &mut Cx<'_>) {
        batch.filter_map(|mbuf| {
            if number(mbuf.data()).is_multiple_of(3) {
                self.waiting.push_back(mbuf);
                return None;
            }
            Some(mbuf)
        });
        self.hand_on(cx);
    }

    fn poll(&mut self, _: &mut Batch, cx: &mut Cx<'_>) {
        self.hand_on(cx);
    }

    fn refused(&mut self, output: usize, batch: &mut Batch, cx: &mut Cx<'_>) {
        if output == 1 {
            assert_eq!(cx.room(1), 0, "what was refused cannot be handed on again at once");
            self.refused.fetch_add(batch.len() as u64, Relaxed);
            for mbuf in std::mem::take(batch).into_iter().collect::<Vec<_>>().into_iter().rev() {
                self.waiting.push_front(mbuf);
            }
        }
    }
}

/// How often the side output refused.
fn run(asks: bool, placement: &Placement, most: usize) -> u64 {
    let (threes, rest, refused) = (Recorder::default(), Recorder::default(), Arc::<AtomicU64>::default());
    let mut graph = Graph::new();
    let source = graph.add("numbers", numbers(COUNT));
    let split = graph.add("split", Patient { waiting: VecDeque::new(), asks, refused: refused.clone() });
    let threes_sink = graph.add("threes", threes.check(most));
    let rest_sink = graph.add("rest", rest.check(BURST));
    graph.connect(source, split);
    graph.connect(split, rest_sink);
    graph.connect_output(split, 1, threes_sink);
    let engine = Engine::start(eal(), graph, placement, &Options::default()).unwrap();
    let third = u64::from(COUNT).div_ceil(3);
    threes.wait(third);
    let stats = engine.stop();
    assert_eq!(stats[1].packets_in, u64::from(COUNT));
    assert_eq!((stats[2].packets_in, stats[2].dropped()), (third, 0));
    assert!(stats[1].drops.iter().all(|(reason, _)| reason == "refused"), "{:?}", stats[1]);
    refused.load(Relaxed)
}

fn two(ring: u32) -> Placement {
    Placement { ring, ..Placement::split([&["numbers", "split", "rest"], &["threes"]]) }
}

#[test]
fn what_a_side_output_refuses_comes_back_and_goes_on_later() {
    assert!(run(false, &Placement::single(None), 5) > 0, "an element that takes five at once");
    assert!(run(false, &two(7), 5) > 0, "a ring of seven");
}

#[test]
fn who_asks_for_room_is_never_refused_by_a_ring() {
    assert_eq!(run(true, &two(7), 5), 0);
    assert_eq!(run(true, &two(1023), BURST), 0);
}
