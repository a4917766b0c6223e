//! Impaired links: made between namespaces, changed and counted while they carry, gone with whoever asked for them.

#[path = "../../../impair/tests/host/mod.rs"]
mod host;

use crate::rpc::daemon::{Client, Daemon, until};
use host::Host;
use serde_json::{Value, json};
use std::net::{Ipv4Addr, UdpSocket};
use std::time::{Duration, Instant};

impl Host {
    fn has_link(&self) -> bool {
        self.ask("ip link show dev wan0").is_ok()
    }

    fn end(&self, n: usize) -> Value {
        json!({"namespace": self.namespace, "name": "wan0", "mac": format!("02:00:00:00:00:0{n}")})
    }
}

fn hosts() -> Option<[Host; 2]> {
    Some([Host::new()?, Host::new()?])
}

/// A writer, and the link that it has made between these hosts.
fn linked(daemon: &Daemon, hosts: &[Host; 2], spec: Value) -> (Client, String) {
    let mut writer = daemon.connect();
    writer.get("control.acquire");
    let ends = json!({"a": hosts[0].end(1), "b": hosts[1].end(2), "spec": spec});
    let link = writer.call("impair.start", ends)["link"].as_str().unwrap().to_owned();
    for (n, host) in (1..).zip(hosts) {
        host.sh(&format!("ip addr add 10.79.0.{n}/24 dev wan0"));
        let (other, mac) = (3 - n, format!("02:00:00:00:00:0{}", 3 - n));
        host.sh(&format!("ip neigh replace 10.79.0.{other} lladdr {mac} dev wan0 nud permanent"));
    }
    (writer, link)
}

/// Datagrams that came of `count` sent from a to b.
fn send(hosts: &[Host; 2], count: usize) -> usize {
    let to = hosts[1].run(|| UdpSocket::bind("10.79.0.2:7000").unwrap());
    let from = hosts[0].run(|| UdpSocket::bind("10.79.0.1:0").unwrap());
    let there = (Ipv4Addr::new(10, 79, 0, 2), 7000);
    (0..count).for_each(|_| assert_eq!(from.send_to(&[0; 100], there).unwrap(), 100));
    to.set_read_timeout(Some(Duration::from_secs(1))).unwrap();
    std::iter::from_fn(|| to.recv(&mut [0; 200]).ok()).count()
}

#[test]
fn what_is_lost_is_counted_and_parameters_change_live() {
    let Some(hosts) = hosts() else { return };
    let daemon = Daemon::start();
    let lossy = json!({"a_to_b": {"loss": {"periodic": 4}}});
    let (mut writer, link) = linked(&daemon, &hosts, lossy.clone());
    let mut viewer = daemon.connect();
    assert_eq!(send(&hosts, 40), 30);
    writer.call("impair.set", json!({"link": link, "spec": "metro"}));
    assert_eq!(send(&hosts, 20), 20);
    let stats = viewer.call("impair.stats", json!({"link": link}));
    let there = &stats["a_to_b"];
    assert_eq!(
        (&there["packets_in"], &there["packets_out"], &there["lost"]),
        (&json!(60), &json!(50), &json!(10))
    );
    assert_eq!(
        (&there["held"], &stats["b_to_a"]["packets_in"], &stats["error"]),
        (&json!(0), &json!(0), &Value::Null)
    );
    let listed = viewer.get("impair.list");
    assert_eq!(
        (&listed[0]["link"], &listed[0]["a"]),
        (
            &json!(link),
            &json!({"mtu": 1500, "name": "wan0", "namespace": hosts[0].namespace, "mac": "02:00:00:00:00:01"})
        )
    );
    let metro = writer
        .get("impair.presets")
        .as_array()
        .unwrap()
        .iter()
        .find(|p| p["name"] == "metro")
        .unwrap()
        .clone();
    assert_eq!(listed[0]["spec"], metro["spec"]);
    // those who watch are told unasked
    viewer.get("stats.subscribe");
    let told = viewer.notification().unwrap();
    assert_eq!((&told["method"], &told["params"]["a_to_b"]["lost"]), (&json!("impair.sample"), &json!(10)));
    let stopped = writer.call("impair.stop", json!({"link": link}));
    assert_eq!(stopped["a_to_b"]["lost"], 10);
    assert_eq!(stopped["recorded"]["a_to_b"]["loss"], lossy["a_to_b"]["loss"]);
    assert_eq!(stopped["recorded"]["timeline"]["steps"][0]["a_to_b"], metro["spec"]["a_to_b"]);
    assert!(!hosts.iter().any(Host::has_link));
    assert_eq!(writer.get("impair.list"), json!([]));
    for method in ["impair.stats", "impair.stop"] {
        writer.fails(method, json!({"link": link}), -32004);
    }
}

#[test]
fn a_link_ends_with_the_lease_of_who_asked_for_it() {
    let Some(hosts) = hosts() else { return };
    let daemon = Daemon::start();
    let (writer, link) = linked(&daemon, &hosts, json!({}));
    let mut viewer = daemon.connect();
    viewer.fails("impair.stop", json!({"link": link}), -32001);
    viewer.fails("impair.set", json!({"link": link, "spec": {}}), -32001);
    viewer.fails("impair.start", json!({"a": {"name": "x"}, "b": {"name": "y"}}), -32001);
    let gone = Instant::now();
    drop(writer);
    assert!(hosts[0].has_link(), "another may take it over");
    until("the link is gone", || !hosts.iter().any(Host::has_link));
    assert!(gone.elapsed() >= Duration::from_millis(2900));
    assert_eq!(viewer.get("impair.list"), json!([]));
    daemon.logged("its links are taken away");
}

#[test]
fn a_link_ends_with_the_daemon_however_that_ends() {
    let Some(hosts) = hosts() else { return };
    for signal in ["TERM", "KILL"] {
        let mut daemon = Daemon::start();
        let (_writer, _link) = linked(&daemon, &hosts, json!({}));
        assert!(hosts.iter().all(Host::has_link));
        daemon.signal(signal);
        daemon.ended();
        until("the link is gone", || !hosts.iter().any(Host::has_link));
    }
}

#[test]
fn a_link_whose_end_is_taken_away_says_so() {
    let Some(hosts) = hosts() else { return };
    let daemon = Daemon::start();
    let (mut writer, link) = linked(&daemon, &hosts, json!({}));
    hosts[1].sh("ip link del dev wan0");
    let mut error = Value::Null;
    until("it is noticed", || {
        error = writer.call("impair.stats", json!({"link": link}))["error"].take();
        !error.is_null()
    });
    assert_eq!(error["code"], "ND-91-02");
    assert!(error["what"].as_str().unwrap().contains("wan0 is gone"), "{error}");
    writer.call("impair.stop", json!({"link": link}));
    assert!(!hosts[0].has_link());
}

#[test]
fn what_cannot_be_is_refused_with_its_place() {
    let daemon = Daemon::start();
    let mut writer = daemon.connect();
    writer.get("control.acquire");
    let start = |a: Value, spec: Value| json!({"a": a, "b": {"name": "y"}, "spec": spec});
    let far = json!({"namespace": "nd-no-such-place", "name": "x"});
    for (params, code, nd, at) in [
        (start(far, json!({})), -32005, "ND-92-15", ""),
        (start(json!({"name": "x/y"}), json!({})), -32602, "ND-104-10", "a.name"),
        (start(json!({"name": "x"}), json!("lute")), -32602, "ND-104-06", ""),
        (start(json!({"name": "x"}), json!({"a_to_b": {"delay": 4}})), -32602, "ND-104-04", "a_to_b.delay"),
    ] {
        let data = writer.fails("impair.start", params, code);
        assert_eq!((&data["code"], &data["at"]), (&json!(nd), &json!(at)), "{data:?}");
    }
    let check = |writer: &mut Client, spec: Value| {
        writer.call("impair.validate", json!({"spec": spec}))["errors"].take()
    };
    assert_eq!(check(&mut writer, json!("geo")), json!([]));
    assert_eq!(check(&mut writer, json!({"a_to_b": {"lost": "1%"}}))[0]["at"], "a_to_b.lost");
    assert_eq!(writer.get("impair.list"), json!([]));
}

#[test]
fn ports_are_joined_in_the_same_words() {
    let daemon = Daemon::start();
    let mut writer = daemon.connect();
    writer.get("control.acquire");
    let start = |a: Value, b: Value| json!({"a": a, "b": b, "memory": "64MiB"});
    let port = |device: &str| json!({"device": device});
    for (params, nd, at) in [
        (start(port("eth0"), port("pair:r")), "ND-104-04", "a.device"),
        (start(json!({"device": "pair:l", "name": "x"}), port("pair:r")), "ND-104-10", "a.device"),
        (start(port("pair:l"), json!({"name": "x"})), "ND-104-07", "b"),
    ] {
        let data = writer.fails("impair.start", params, -32602);
        assert_eq!((&data["code"], &data["at"]), (&json!(nd), &json!(at)), "{data:?}");
    }
    let link = writer.call("impair.start", start(port("pair:l"), port("pair:r")))["link"].clone();
    let mut stats = Value::Null;
    let mut changed = |writer: &mut Client, times: u64| {
        stats = writer.call("impair.stats", json!({"link": link}));
        stats["a_to_b"]["changes"] == times
    };
    // One that comes before the first was taken up takes its place.
    until("the first parameters hold", || changed(&mut writer, 1));
    writer.call("impair.set", json!({"link": link, "spec": "metro"}));
    assert_eq!(writer.get("impair.list")[0]["b"], json!({"device": "pair:r", "mtu": 1500}));
    until("the change holds", || changed(&mut writer, 2));
    assert_eq!((&stats["error"], &stats["b_to_a"]["missed"]), (&Value::Null, &json!(0)));
    // Its elements can be watched, and packets followed through them.
    let whose = json!({"link": link});
    let shape = writer.call("graph.describe", whose.clone());
    assert_eq!((&shape["run"], &shape["ports"][1]["device"]), (&link, &json!("pair:r")));
    let edge = |from: &str, to: &str| json!({"from": from, "to": to, "ring": false});
    let edges = [("a.rx", "a.impair"), ("a.impair", "b.tx"), ("b.rx", "b.impair"), ("b.impair", "a.tx")];
    assert_eq!(shape["edges"], json!(edges.map(|(from, to)| edge(from, to))));
    let counted = writer.call("graph.stats", whose);
    assert_eq!((&counted["status"]["run"], &counted["status"]["state"]), (&link, &json!("running")));
    let names = |of: &Value| -> Vec<Value> {
        of["elements"].as_array().unwrap().iter().map(|element| element["name"].clone()).collect()
    };
    assert_eq!((names(&counted).len(), counted["workers"].as_array().unwrap().len()), (6, 1));
    assert!(names(&shape).iter().all(|name| names(&counted).contains(name)));
    let traced = writer.call("graph.trace", json!({"link": link, "packets": 1, "wait": 0.05}));
    assert_eq!(traced, json!({"packets": [], "complete": false}));
    for (method, params) in [("graph.stats", json!({"link": "link-9"})), ("graph.stats", json!({}))] {
        writer.fails(method, params, -32004);
    }
    let recorded = writer.call("impair.stop", json!({"link": link}))["recorded"].take();
    assert_eq!(recorded["timeline"]["steps"][0]["a_to_b"]["delay"], json!({"constant": "500us"}));
    // The ports are free again.
    let again = writer.call("impair.start", start(port("pair:r"), port("pair:l")))["link"].clone();
    writer.call("impair.stop", json!({"link": again}));
}

/// Frames to a reflector whose port is impaired, until it is stopped.
fn over_a_bad_path() -> Value {
    let model = json!({"stream": {"rate": "1k/s", "size": "18B"}});
    json!({
        "name": "bad-path",
        "groups": [{"name": "s", "target": "udp://10.9.0.2:7", "devices": 1, "model": model}],
        "phases": {"warmup": "0s", "measure": "60s", "drain": "100ms", "sample": "100ms"},
        "transport": {"dpdk": {"memory": "64MiB", "ports": [
            {"name": "a", "device": "pair:hand", "ip": "10.9.0.1"},
            {"name": "b", "device": "pair:hand", "ip": "10.9.0.2", "role": "reflector", "impair": {}}
        ]}},
    })
}

/// What the path into b took, and what it lost.
fn passed(client: &mut Client) -> (u64, u64) {
    let stats = client.get("graph.stats");
    let element = stats["elements"].as_array().unwrap().iter().find(|e| e["name"] == "b.impair").unwrap();
    (element["packets_in"].as_u64().unwrap(), element["drops"]["lost"].as_u64().unwrap_or(0))
}

#[test]
fn a_path_of_a_run_is_changed_while_it_goes_on_and_its_result_says_so() {
    let daemon = Daemon::start();
    let (mut writer, mut other) = (daemon.connect(), daemon.connect());
    let ports = |ports: Value| json!({"ports": ports});
    let lossy = json!({"impair": {"loss": {"periodic": 2}}});
    other.fails("run.impair", ports(json!({"b": lossy})), -32004);
    writer.get("control.acquire");
    writer.call("run.load", json!({"profile": over_a_bad_path()}));
    other.fails("run.impair", ports(json!({"b": lossy})), -32003);
    writer.get("run.start");
    for (wrong, nd, at) in [
        (json!({"b": lossy, "a": lossy}), "ND-104-06", "a"),
        (json!({"b": {"impair": {"delay": 4}}}), "ND-104-04", "b.impair.delay"),
        (json!({"b": {"impair": {"delay": {"constant": "61s"}}}}), "ND-104-05", "b.impair.delay.constant"),
        (json!({"b": {}}), "ND-104-03", "b"),
    ] {
        let data = other.fails("run.impair", ports(wrong), -32602);
        assert_eq!((&data["code"], &data["at"]), (&json!(nd), &json!(at)), "{data:?}");
    }
    until("frames pass", || passed(&mut writer).0 > 10);
    assert_eq!(passed(&mut writer).1, 0);
    // One who is not the writer may.
    assert_eq!(other.call("run.impair", ports(json!({"b": lossy})))["state"], "running");
    until("some are lost", || passed(&mut writer).1 > 5);
    let later = json!({"steps": [{"at": "20ms", "impair": {"loss": {"periodic": 1}}}]});
    other.call("run.impair", ports(json!({"b": {"impair": {}, "impair_timeline": later}})));
    let before = passed(&mut writer).1;
    until("all are lost", || passed(&mut writer).1 > before + 5);
    writer.get("stats.subscribe");
    writer.get("run.stop");
    writer.told_until("done");
    other.fails("run.impair", ports(json!({"b": lossy})), -32003);
    let mut changes = writer.get("run.result")["changes"].take();
    let times: Vec<f64> = (0..2).map(|n| changes[n]["t"].take().as_f64().unwrap()).collect();
    assert!(0.0 < times[0] && times[0] <= times[1], "{times:?}");
    assert_eq!(changes[0], json!({"t": null, "port": "b", "impair": changes[0]["impair"]}));
    assert_eq!(changes[0]["impair"]["loss"], json!({"periodic": 2}));
    assert_eq!(changes[1]["impair_timeline"]["steps"][0]["at"], "20ms");
    assert_eq!(changes.as_array().unwrap().len(), 2);
}
