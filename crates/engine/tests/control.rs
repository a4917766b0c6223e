//! Elements are asked and told things while packets pass.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use crate::common::{Recorder, eal, number, numbers};
use dpdk::{BURST, Batch};
use engine::{ControlError, Cx, Element, ElementInfo, Engine, Graph, Mail, Options, Placement, Request};
use std::time::Duration;

const COUNT: u32 = 100_000;
const PATIENCE: Duration = Duration::from_secs(20);

/// A table of what passed, by number; what is below `from` is dropped.
struct Table {
    seen: Vec<u32>,
    from: u32,
}

struct DropBelow(u32);
impl Request for DropBelow {
    /// What it was before.
    type Reply = u32;
}

/// Entries from this one on.
struct Entries(usize);
struct Page {
    entries: Vec<u32>,
    next: Option<usize>,
}
impl Request for Entries {
    type Reply = Page;
}

struct Nonsense;
impl Request for Nonsense {
    type Reply = ();
}

const PAGE: usize = 1000;

impl Element for Table {
    fn about(&self) -> ElementInfo {
        ElementInfo { kind: "table", takes: true, outputs: &["out"], drops: &["below"], polled: false }
    }

    fn push(&mut self, batch: &mut Batch, cx: &mut Cx<'_>) {
        cx.drop_rejected(batch, |mbuf| if number(mbuf.data()) < self.from { Err(0) } else { Ok(()) });
        self.seen.extend(batch.frames().iter().map(|mbuf| number(mbuf.data())));
    }

    fn control(&mut self, mail: Mail, _: u64) {
        let _not_understood =
            mail.answer(|DropBelow(from)| std::mem::replace(&mut self.from, from)).or_else(|mail| {
                mail.answer(|Entries(from)| {
                    let rest = self.seen.get(from..).unwrap_or(&[]);
                    let next = (rest.len() > PAGE).then_some(from + PAGE);
                    Page { entries: rest.iter().take(PAGE).copied().collect(), next }
                })
            });
    }
}

fn start(placement: &Placement) -> (Engine, Recorder) {
    let seen = Recorder::default();
    let mut graph = Graph::new();
    let source = graph.add("numbers", numbers(COUNT));
    let table = graph.add("table", Table { seen: Vec::with_capacity(COUNT as usize), from: 0 });
    let sink = graph.add("check", seen.check(BURST));
    graph.chain(&[source, table, sink]);
    (Engine::start(eal(), graph, placement, &Options::default()).unwrap(), seen)
}

#[test]
fn a_table_is_read_page_by_page_while_it_grows() {
    for placement in [Placement::single(None), Placement::split([&["numbers"], &["table", "check"]])] {
        let (engine, seen) = start(&placement);
        let view = engine.view();
        let (mut all, mut from) = (Vec::new(), 0);
        while all.len() < COUNT as usize {
            let page = view.request("table", Entries(from), PATIENCE).unwrap();
            assert!(page.entries.len() <= PAGE);
            let end = page.next.is_none();
            from += page.entries.len();
            all.extend(page.entries);
            if end {
                std::thread::sleep(Duration::from_millis(1));
            }
        }
        assert_eq!(all, (0..COUNT).collect::<Vec<_>>());
        seen.wait(COUNT.into());
    }
}

#[test]
fn a_setting_is_changed_at_work_and_what_it_does_is_counted() {
    let (engine, _) = start(&Placement::single(None));
    let view = engine.view();
    assert_eq!(view.request("table", DropBelow(u32::MAX), PATIENCE), Ok(0));
    assert_eq!(view.request("table", DropBelow(7), PATIENCE), Ok(u32::MAX));
    let stats = engine.stop();
    assert_eq!(stats[1].packets_in, stats[1].packets_out + stats[1].dropped());
}

#[test]
fn a_request_in_vain_says_why() {
    let (engine, _) = start(&Placement::single(None));
    let view = engine.view();
    let why = view.request("tabel", Nonsense, PATIENCE).unwrap_err();
    assert!(matches!(&why, ControlError::NoElement { .. }), "{why}");
    assert!(
        why.to_string().contains("'tabel'") && why.to_string().contains("numbers, table, check"),
        "{why}"
    );
    assert_eq!(view.request("table", Nonsense, PATIENCE), Err(ControlError::NotUnderstood("table".into())));
    assert_eq!(view.request("check", Nonsense, PATIENCE), Err(ControlError::NotUnderstood("check".into())));
    engine.stop();
    assert_eq!(view.request("table", Nonsense, PATIENCE), Err(ControlError::Stopped("table".into())));
}

/// However often it is asked, an element gets its ticks.
#[test]
fn requests_do_not_hold_up_ticks() {
    struct Ticks(u64);
    struct HowMany;
    impl Request for HowMany {
        type Reply = u64;
    }
    impl Element for Ticks {
        fn about(&self) -> ElementInfo {
            ElementInfo { kind: "ticks", takes: true, outputs: &[], drops: &[], polled: false }
        }

        fn push(&mut self, batch: &mut Batch, cx: &mut Cx<'_>) {
            cx.consume(batch);
        }

        fn tick(&mut self, _: u64) {
            self.0 += 1;
        }

        fn control(&mut self, mail: Mail, _: u64) {
            let _not_understood = mail.answer(|HowMany| self.0);
        }
    }
    let mut graph = Graph::new();
    let source = graph.add("numbers", numbers(0));
    let ticks = graph.add("ticks", Ticks(0));
    graph.connect(source, ticks);
    let options = Options { tick_ns: 100_000, ..Options::default() };
    let engine = Engine::start(eal(), graph, &Placement::single(None), &options).unwrap();
    let view = engine.view();
    while view.request("ticks", HowMany, PATIENCE).unwrap() < 10 {}
}
