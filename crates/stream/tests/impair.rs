//! A path made as bad as wanted, seen by those at its ends: as late, and as little, as was put in.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use dataplane::port_bridge::{Options, PortBridge};
use dpdk::{BURST, Batch, Eal, EalOptions, Mempool, Port, PortConfig, RxQueue, TxQueue};
use impair::{Burst, Direction, DirectionControl, LinkSpec, PacketStore, Path, Stats};
use serde_json::{Value, from_value, json};
use std::collections::BTreeMap;
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The first to start DPDK in a process says how much memory it has; all tests share it.
fn eal() -> &'static Eal {
    Eal::start(&EalOptions { memory_mib: 512, ..EalOptions::default() }).unwrap()
}

fn run(profile: &Value) -> Value {
    let _alone = crate::lab::one_at_a_time();
    eal();
    crate::lab::run(profile).unwrap_or_else(|why| panic!("{why}"))
}

/// Two generators at the ends of a cable, which measure each other's frames; `b` is the end that `there` leads to.
fn both_ways(cable: &str, there: &Value, back: &Value) -> Value {
    let device = format!("pair:{cable}");
    let stream = json!({"stream": {"size": "18B", "rate": "20k/s", "count": 4000, "echo": false}});
    let load = json!({"closed": {"flows": 1}});
    let group = |name: &str, port: &str, to: &str| json!({"name": name, "port": port, "model": stream, "target": format!("udp://{to}:7"), "load": load});
    json!({
        "name": "both-ways",
        "seed": 5,
        "validity": {"lateness_p99": "5s", "starved": 1.0},
        "phases": {"warmup": "0s", "measure": "900ms", "drain": "1s", "sample": "100ms"},
        "transport": {"dpdk": {"memory": "96MiB", "ports": [
            {"name": "a", "device": device, "ip": "10.9.0.1", "impair": back},
            {"name": "b", "device": device, "ip": "10.9.0.2", "impair": there}
        ]}},
        "groups": [group("there", "a", "10.9.0.2"), group("back", "b", "10.9.0.1")]
    })
}

/// Frames that only are.
struct Nothing;

impl PacketStore for Nothing {
    type Load = ();
    fn burst(&self, (): &()) -> Burst {
        Burst::single(60)
    }
    fn split(&mut self, (): &mut (), _: u32) -> Option<()> {
        None
    }
    fn copy(&mut self, (): &()) -> Option<()> {
        Some(())
    }
    fn corrupt(&mut self, (): &mut (), _: u64) {}
    fn free(&mut self, (): ()) {}
}

/// What a path decides for so many frames: the same seed, the same decisions.
fn foreseen(seed: u64, way: &Value, frames: u64) -> Stats {
    let spec: LinkSpec = from_value(json!({"seed": seed, "a_to_b": way})).unwrap();
    let live = DirectionControl::new(&spec, Direction::AToB);
    let mut path = Path::new(live.clone(), 10_000);
    path.advance(1, &mut Nothing);
    (0..frames).for_each(|n| path.offer(1 + n, (), &mut Nothing));
    while path.pop_due(u64::MAX / 2, &mut Nothing).is_some() {}
    live.stats()
}

fn element<'a>(result: &'a Value, name: &str) -> &'a Value {
    result["elements"].as_array().unwrap().iter().find(|e| e["name"] == name).unwrap()
}

#[test]
fn each_way_is_as_late_and_as_little_as_was_put_in() {
    let there = json!({
        "delay": {"constant": "3ms"}, "loss": {"independent": "2%"}, "duplicate": "1%",
        "reorder": {"share": "1%", "by": {"packets": 3}}
    });
    let back = json!({"delay": {"constant": "12ms"}, "loss": {"periodic": 7}});
    let result = run(&both_ways("bothways", &there, &back));
    for (group, port, seed, way, ns) in [(0, "b", 6, &there, 3_000_000), (1, "a", 5, &back, 12_000_000)] {
        as_foreseen(&result, group, port, &foreseen(seed, way, 4000));
        // Never early. How much later is up to the machine: that the path itself adds nothing its own tests show, in
        // simulated time (`a_delay_is_kept_to_the_nanosecond`). The least is the lower end of its bucket in a histogram
        // of three digits.
        let least = result["groups"][group]["delays"]["one_way"]["min"].as_u64().unwrap();
        assert!(least >= ns - ns / 1000, "{least} ns for {ns}");
    }
}

/// The counts of those at the ends, and of the element, are those of the path. Ports have seeds of their own: that of
/// the profile, and their number.
fn as_foreseen(result: &Value, group: usize, port: &str, path: &Stats) {
    assert_eq!(result["validity"]["valid"], true, "{:#}", result["validity"]);
    let seen = &result["groups"][group];
    let total = |name: &str| seen["total"][name].as_u64().unwrap();
    let counts = [total("messages_sent"), total("duplicates"), total("reordered")];
    assert_eq!(counts, [4000, path.duplicated, path.reordered], "{seen:#}");
    assert_eq!(total("messages_delivered"), 4000 - path.lost);
    // Three others pass those that are held back; few have copies or other late ones among these.
    let extent = &seen["reordering"]["extent"];
    let held = if path.reordered > 0 { 3 } else { 0 };
    assert_eq!((&extent["count"], &extent["p50"]), (&json!(path.reordered), &json!(held)), "{extent}");
    let element = element(result, &format!("{port}.impair"));
    assert_eq!(element["drops"], json!({"lost": path.lost}));
    assert_eq!((&element["packets_in"], &element["packets_out"]), (&json!(4000), &json!(path.packets_out)));
}

#[test]
fn what_goes_one_way_is_waited_for_when_the_load_ends() {
    let mut profile = both_ways("tailway", &json!({"delay": {"constant": "50ms"}}), &json!({}));
    profile["groups"].as_array_mut().unwrap().truncate(1);
    profile["groups"][0]["model"]["stream"]["count"] = json!(0);
    profile["phases"] = json!({"warmup": "0s", "measure": "300ms", "drain": "20s", "sample": "100ms"});
    let result = run(&profile);
    assert_eq!(result.pointer("/groups/0/loss"), Some(&json!(0.0)), "{result:#}");
    let counts = |port: &str| element(&result, port)["packets_in"].as_u64().unwrap();
    assert!(counts("a.tx") > 0 && counts("b.receiver") == counts("a.tx"));
    assert_eq!(element(&result, "b.impair")["drops"], json!({}));
    // It ends when all came. What was lost is waited for until the end.
    let drain = |result: &Value| result["phases"]["drain"].as_f64().unwrap();
    assert!(drain(&result) < 19.0, "{}", drain(&result));
    profile["transport"]["dpdk"]["ports"][1]["impair"] = json!({"loss": {"periodic": 10}});
    profile["phases"]["drain"] = json!("400ms");
    let result = run(&profile);
    assert!(drain(&result) >= 0.4, "{}", drain(&result));
}

#[test]
fn it_has_its_place_in_the_graph_and_may_have_its_own_worker() {
    let way = json!({"delay": {"constant": "1ms"}, "loss": {"periodic": 10}});
    let mut profile = both_ways("placedway", &way, &json!({}));
    profile["transport"]["dpdk"]["placement"] = json!([
        {"elements": ["a.generator", "a.receiver", "a.impair", "b.generator", "b.receiver"]},
        {"elements": ["b.impair"]}
    ]);
    let result = run(&profile);
    let at = |name: &str| element(&result, name)["worker"].clone();
    assert_eq!([at("b.impair"), at("b.rx"), at("b.receiver"), at("a.rx")], [1, 1, 0, 0].map(|n| json!(n)));
    // A machine that is busy sends fewer in the time that there is.
    let count = |name: &str, what: &str| element(&result, name)[what].as_u64().unwrap();
    let through = count("b.impair", "packets_in");
    assert!(through > 10);
    assert_eq!(element(&result, "b.impair")["drops"], json!({"lost": through / 10}));
    assert!((1..=through - through / 10).contains(&count("b.receiver", "packets_in")));
}

#[test]
fn a_timeline_changes_it_while_the_run_goes_on() {
    let mut profile = both_ways("changingway", &json!({}), &json!({}));
    let port = &mut profile["transport"]["dpdk"]["ports"][1];
    port["impair_timeline"] =
        json!({"steps": [{"at": "100ms", "impair": {"loss": {"independent": "100%"}}}]});
    let result = run(&profile);
    let (came, lost) = (
        element(&result, "b.receiver")["packets_in"].as_u64().unwrap(),
        element(&result, "b.impair")["drops"]["lost"].as_u64().unwrap(),
    );
    // The load takes 200 ms if nothing keeps it.
    assert!(came > 0 && lost > 0 && came + lost == 4000, "{came} came, {lost} lost");
}

#[test]
fn more_on_its_way_than_there_is_memory_for_makes_the_run_invalid() {
    let mut profile = both_ways("fullway", &json!({"delay": {"constant": "30s"}}), &json!({}));
    profile["transport"]["dpdk"]["memory"] = json!("48MiB");
    profile["groups"][0]["model"]["stream"]["count"] = json!(200_000);
    profile["groups"][0]["model"]["stream"]["rate"] = json!("200k/s");
    let result = run(&profile);
    let codes: Vec<&Value> =
        result["validity"]["reasons"].as_array().unwrap().iter().map(|r| &r["code"]).collect();
    assert!(codes.contains(&&json!("ND-90-07")), "{codes:?}");
}

fn until(what: &str, done: &dyn Fn() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(10);
    while !done() {
        assert!(Instant::now() < deadline, "{what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// The far ends of two cables with a path between their near ends.
struct Bump {
    between: Option<PortBridge>,
    pool: Mempool,
    ends: Vec<(RxQueue, TxQueue)>,
}

fn bump(name: &str, spec: Value, options: &Options) -> Bump {
    let eal = eal();
    let pool = Mempool::new(eal, 8191, 256).unwrap();
    let devices = ["l", "r"].map(|side| format!("pair:{name}{side}"));
    let spec: LinkSpec = from_value(spec).unwrap();
    let between = PortBridge::start([&devices[0], &devices[1]], &spec, options).unwrap();
    let ends = devices.iter().map(|device| {
        let (mut rx, mut tx) = Port::open(eal, device).unwrap().start(&PortConfig::default(), &pool).unwrap();
        (rx.remove(0), tx.remove(0))
    });
    Bump { ends: ends.collect(), between: Some(between), pool }
}

impl Bump {
    /// Send `count` numbered frames into one end: how often each came out of the other.
    fn send(&mut self, from: usize, count: u32) -> BTreeMap<u32, u32> {
        let live = Arc::clone(self.between.as_ref().unwrap().live());
        let (before, deadline) = (live.stats()[from].clone(), Instant::now() + Duration::from_secs(20));
        let (mut sent, mut came) = (0, BTreeMap::new());
        loop {
            let room = (count - sent).min(BURST as u32 / 2);
            let behind = u64::from(sent) - (live.stats()[from].packets_in - before.packets_in);
            if room > 0 && behind < 256 {
                let mut batch = Batch::new();
                assert!(self.pool.fill(&mut batch, room as usize));
                for mbuf in batch.frames_mut() {
                    mbuf.set_len(60).unwrap()[..4].copy_from_slice(&sent.to_be_bytes());
                    sent += 1;
                }
                self.ends[from].1.send(&mut batch);
                assert!(batch.is_empty(), "the cable has room");
            }
            let mut batch = Batch::new();
            self.ends[1 - from].0.receive(&mut batch);
            for mbuf in batch.frames() {
                *came.entry(u32::from_be_bytes(mbuf.data()[..4].try_into().unwrap())).or_default() += 1;
            }
            let stats = live.stats()[from].clone();
            let all =
                sent == count && stats.packets_in - before.packets_in == u64::from(count) && stats.held == 0;
            if all
                && batch.is_empty()
                && came.values().map(|n| u64::from(*n)).sum::<u64>() == stats.packets_out - before.packets_out
            {
                return came;
            }
            assert!(Instant::now() < deadline, "{stats:?}");
        }
    }
}

#[test]
fn two_ports_are_joined_changed_live_and_recorded() {
    let _alone = crate::lab::one_at_a_time();
    for two_threads in [false, true] {
        let spec = json!({"a_to_b": {"loss": {"periodic": 5}}, "b_to_a": {"duplicate": "100%"}});
        let options = Options { memory: 64 << 20, two_threads, ..Options::default() };
        let mut bump = bump(if two_threads { "bumptwo" } else { "bumpone" }, spec.clone(), &options);
        assert_eq!(bump.send(0, 1000), (0..1000).filter(|n| n % 5 != 4).map(|n| (n, 1)).collect());
        assert_eq!(bump.send(1, 300), (0..300).map(|n| (n, 2)).collect());
        let live = Arc::clone(bump.between.as_ref().unwrap().live());
        live.set(&from_value(json!({"a_to_b": {"loss": {"list": [1001, 1003]}}})).unwrap());
        assert_eq!(bump.send(0, 10), (0..10).filter(|n| ![0, 2].contains(n)).map(|n| (n, 1)).collect());
        // Each direction takes the change in its own time.
        until("a change is taken", &|| live.stats().iter().all(|direction| direction.changes == 2));
        let [there, back] = live.stats();
        assert_eq!((there.packets_in, there.lost, there.changes), (1010, 202, 2));
        assert_eq!((back.packets_in, back.packets_out, back.duplicated), (300, 600, 300));
        assert_eq!(bump.between.as_ref().unwrap().end_reason(), None);
        let recorded = serde_json::to_value(live.recorded()).unwrap();
        assert_eq!(recorded["a_to_b"]["loss"], spec["a_to_b"]["loss"]);
        assert_eq!(recorded["timeline"]["steps"][0]["a_to_b"]["loss"], json!({"list": [1001, 1003]}));
        bump.between = None;
        assert_eq!(live.stats(), [there, back], "nothing more passes");
    }
}

#[test]
fn what_is_no_port_is_refused_by_its_end() {
    let _alone = crate::lab::one_at_a_time();
    eal();
    let options = Options { memory: 64 << 20, ..Options::default() };
    let refused = |a: &str, b: &str| {
        let why = PortBridge::start([a, b], &LinkSpec::default(), &options).unwrap_err();
        (why.code, why.at)
    };
    assert_eq!(refused("eth0", "pair:x"), ("ND-104-04", "a.device".into()));
    assert_eq!(refused("pair:nop", "net_af_packet,iface=nd-no-such"), ("ND-92-12", "b.device".into()));
}

#[test]
fn a_port_that_vanishes_is_named_and_ends_cleanly() {
    // Of this test's own thread: it ends with it.
    if !outcome::network_namespace() {
        return;
    }
    let _alone = crate::lab::one_at_a_time();
    eal();
    let ip = |words: &str| assert!(Command::new("ip").args(words.split(' ')).status().unwrap().success());
    ip("link add left type veth peer name right");
    ip("link set left up");
    ip("link set right up");
    let options = Options { memory: 64 << 20, ..Options::default() };
    let between =
        PortBridge::start(["af_packet:left", "pair:vanish"], &LinkSpec::default(), &options).unwrap();
    assert_eq!(between.end_reason(), None);
    ip("link del right");
    until("it is noticed", &|| between.end_reason().is_some());
    let why = between.end_reason().unwrap();
    assert_eq!(why, "port net_af_packet,iface=left was lost: the interface left is gone");
    drop(between);
}
