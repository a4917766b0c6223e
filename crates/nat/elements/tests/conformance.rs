//! The conformance cases of `crates/nat/core/cases` over ports: the same packets go in and come out where validity, NAT table, sessions and the
//! box's own hosts stand between two DPDK ports. Time is the case's: it passes when the case says so, for the whole engine.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

#[path = "../../core/tests/conformance/packet.rs"]
mod packet;
#[path = "../../core/tests/conformance/play.rs"]
mod play;

use crate::common::{End, eal};
use crate::kinds;
use ::packet::arp::{self, Arp, Operation};
use dataplane::graph::{CheckedGraph, GraphRun};
use element::kind::Extensions;
use engine::{Clock, View, clock::testing};
use nat_core::config::SECOND;
use nat_core::{Config, Headers, Side};
use nat_elements::Adjust;
use nat_elements::control::{Status, StatusView};
use play::{Carrier, PacketOutcome, Sent};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::path::Path;
use std::time::{Duration, Instant};

/// Cases that end otherwise between ports, and why that is as it should be.
const OTHERWISE: &[(&str, &str)] = &[(
    "rfc5382_req5_established_lives_two_hours_four_minutes",
    "only the outside sends, and a subscriber that is learned from what it sends is forgotten after as long a silence",
)];
/// Conditions on records of the log and on the arithmetic of deterministic ports, which no packet shows. `nat/log_tests.rs` has the log's.
const UNTOLD: usize = 16;
/// Subscribers that are reached before they sent anything: the box learns where they are from what they send, so they say something first.
const SILENT: &[(&str, &str)] = &[
    ("rfc5382_req2_opened_again_from_the_outside", "10.0.0.3"),
    ("rfc5382_req8_hairpinning", "10.0.0.3"),
    ("rfc6888_req2_a_forwards_address_is_its_subscribers", "10.0.0.7"),
    ("rfc6888_req9_static_forwards_reach_the_inside", "10.0.0.2"),
];

const ROUTER: ::packet::Mac = [2, 0, 0, 0, 9, 1];
const LONG: Duration = Duration::from_secs(60);
/// Time passes in steps, as the NAT looks often at what has expired.
const STEP: u64 = 30 * SECOND;
/// At the end of that it looks some times more: of what expires together it ends a part in each turn, and a turn is 0.5 ms.
const TURNS: usize = 16;
const TURN: u64 = SECOND / 1_000;

struct Ports {
    near: End,
    far: End,
    run: Option<GraphRun>,
    view: View,
    begin: u64,
    /// What came out and nobody asked for yet.
    out: VecDeque<Sent>,
    /// What was dropped before the case.
    before: BTreeMap<String, u64>,
}

fn graph(number: usize) -> Value {
    json!({
        "ports": {
            "inside": {"device": format!("pair:in{number}"), "ip": "10.0.0.1/24"},
            "outside": {"device": format!("pair:out{number}"), "ip": "203.0.113.254/24"},
        },
        "elements": {
            "in-validity": {"kind": "validity", "port": "inside"},
            "out-validity": {"kind": "validity", "port": "outside"},
            "subscribers": {"kind": "subscriber-table", "most_subscribers": 256},
            "nat44": {"kind": "nat44", "inside": "inside", "outside": "outside", "pool": ["203.0.113.1"]},
            "in-host": {"kind": "nat-host", "port": "inside"},
            "out-host": {"kind": "nat-host", "port": "outside", "gateway": "203.0.113.253", "answers_for": ["203.0.113.1"]},
        },
        "edges": [
            "inside.rx -> in-validity",
            "in-validity.out -> subscribers -> nat44",
            "outside.rx -> out-validity",
            "out-validity.out -> nat44",
            "nat44.outside -> outside.tx",
            "nat44.inside -> inside.tx",
            "in-validity.local -> in-host -> inside.tx",
            "out-validity.local -> out-host -> outside.tx",
        ],
    })
}

impl Ports {
    fn new(number: usize, config: Config) -> Self {
        eal();
        // Ports rest by whole periods: each case begins at the same place in them.
        // And sessions are looked at by the turns of a wheel, of 2^36 ns: at the same place in these as on the logic alone.
        let begin = Clock::get().now().next_multiple_of(3_600 * SECOND) + 1_000 * SECOND;
        let place = |begin: u64| (begin % (1 << 36)).abs_diff(1_000 * SECOND % (1 << 36));
        let begin = (0..64)
            .map(|i| begin + i * 3_600 * SECOND)
            .find(|begin| place(*begin) < 3 * SECOND)
            .unwrap_or(begin);
        testing::pass(begin - Clock::get().now());
        let mut extensions = Extensions::default();
        extensions.insert(Adjust(Box::new(move |made| *made = config.clone())));
        let checked = CheckedGraph::read(&graph(number), &kinds()).unwrap_or_else(|why| panic!("{why:?}"));
        let run = GraphRun::start_with(&checked, extensions).unwrap_or_else(|why| panic!("{why}"));
        let (near, far) = (End::new(&format!("in{number}")), End::new(&format!("out{number}")));
        let (view, out, before) = (run.view(), VecDeque::new(), BTreeMap::new());
        let mut ports = Self { near, far, run: Some(run), view, begin, out, before };
        ports.be_router();
        ports
    }

    /// The router tells where it is, when it is asked.
    fn be_router(&mut self) {
        self.settle();
        let asked = self.far.drain();
        let question = Arp::parse(&asked[0]).unwrap();
        assert_eq!(question.operation, Operation::Request);
        let mut answer = [0; arp::FRAME];
        question.answer(ROUTER).emit(&mut answer);
        self.far.send(&[answer.to_vec()]);
        self.settle();
    }

    /// Until each element was polled at this time, with all that was sent.
    fn settle(&self) {
        let turns = || self.view.workers().iter().map(|worker| worker.turns).min().unwrap();
        let (enough, end) = (turns() + 2, Instant::now() + LONG);
        while turns() < enough {
            assert!(Instant::now() < end, "the worker stands still");
            std::thread::yield_now();
        }
    }

    fn status(&self) -> StatusView {
        self.view.request("nat44", Status, LONG).unwrap()
    }

    fn dropped(&self) -> BTreeMap<String, u64> {
        let mut all = BTreeMap::new();
        for element in self.view.elements() {
            for (reason, count) in element.drops {
                *all.entry(reason.to_string()).or_default() += count;
            }
        }
        all
    }

    /// What comes out.
    fn collect(&mut self) -> Vec<Sent> {
        let far = self.far.drain().into_iter().map(|frame| (Side::Outside, frame));
        let near = self.near.drain().into_iter().map(|frame| (Side::Inside, frame));
        // The box asks for its router again and again.
        far.chain(near)
            .filter_map(|(to, frame)| {
                let Headers { l3, realm, .. } = Headers::of(&frame).ok()?;
                Some(Sent { to, ip: frame[l3.into()..].to_vec(), realm })
            })
            .collect()
    }
}

impl Carrier for Ports {
    fn pass(&mut self, until: u64) {
        let until = self.begin + until;
        let now = || Clock::get().now();
        while now() < until {
            testing::pass(STEP.min(until - now()));
            self.settle();
        }
        for _ in 0..TURNS {
            testing::pass(TURN);
            self.settle();
        }
        let more = self.collect();
        self.out.extend(more);
    }

    fn send(&mut self, side: Side, frame: Vec<u8>) -> PacketOutcome {
        let before = self.dropped();
        let end = if side == Side::Inside { &mut self.near } else { &mut self.far };
        end.send(&[frame]);
        self.settle();
        let mut out = self.collect();
        let mut dropped = self.dropped();
        dropped.retain(|reason, count| *count > before.get(reason).copied().unwrap_or(0));
        let seen = match (dropped.into_keys().next(), out.is_empty()) {
            (Some(reason), _) => PacketOutcome::Dropped(reason),
            (None, true) => PacketOutcome::Held,
            // It goes to the other side, or back; what the NAT sends by itself comes after it.
            (None, false) => {
                PacketOutcome::Forwarded(out.remove(out.iter().position(|sent| sent.to != side).unwrap_or(0)))
            }
        };
        self.out.extend(out);
        seen
    }

    fn sent(&mut self) -> Option<Sent> {
        self.out.pop_front()
    }

    fn holds(&mut self, condition: &[&str]) -> Option<bool> {
        let number = |count: &str| count.parse::<u64>().unwrap();
        let status = self.status();
        match *condition {
            ["sessions", count] => Some(status.sessions == number(count)),
            ["subscribers", count] => Some(status.subscribers == number(count)),
            ["dropped", reason, count] => {
                let of = |all: &BTreeMap<String, u64>| all.get(reason).copied().unwrap_or(0);
                Some(of(&self.dropped()) - of(&self.before) == number(count))
            }
            ["logged" | "deterministic" | "packets" | "forwarded", ..] => None,
            _ => panic!("what is {condition:?}?"),
        }
    }
}

impl Drop for Ports {
    fn drop(&mut self) {
        if let Some(run) = self.run.take() {
            run.stop();
        }
    }
}

#[test]
fn each_case_passes_through_the_whole_graph() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../core/cases");
    let files: BTreeSet<_> = std::fs::read_dir(folder).unwrap().map(|file| file.unwrap().path()).collect();
    let (mut failed, mut untold) = (BTreeSet::new(), 0);
    for (number, file) in files.iter().enumerate() {
        let (name, case) =
            (file.file_stem().unwrap().to_str().unwrap(), std::fs::read_to_string(file).unwrap());
        let made = |config| {
            let mut ports = Ports::new(number, config);
            for (_, address) in SILENT.iter().filter(|(of, _)| *of == name) {
                // A message of a kind that is not forwarded.
                ports.near.send(&[packet::Packet::parse(&format!("icmp 42/0 {address} > 198.51.100.9"))
                    .unwrap()
                    .frame()]);
                ports.settle();
            }
            ports.before = ports.dropped();
            ports
        };
        match std::panic::catch_unwind(|| play::play(&case, made)) {
            Ok(count) => untold += count,
            Err(_) => {
                eprintln!("^ {name}");
                failed.insert(name.to_owned());
            }
        }
    }
    let expected: BTreeSet<String> = OTHERWISE.iter().map(|(name, _)| (*name).to_owned()).collect();
    assert_eq!((failed, untold), (expected, UNTOLD), "of {} cases", files.len());
}
