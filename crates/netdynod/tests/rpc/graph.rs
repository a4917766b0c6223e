//! Watching the graph of elements, beside the one who writes.

use crate::rpc::daemon::{Client, Daemon, error, loaded, request, sink, until};
use serde_json::{Value, json};
use std::sync::mpsc::{Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

/// From one end of a cable to the other and back, until it is stopped.
pub fn over_a_cable() -> Value {
    json!({
        "name": "graph",
        "groups": [{"name": "s", "target": "udp://10.9.0.2:7", "devices": 1,
            "model": {"stream": {"rate": "1k/s", "size": "18B"}}}],
        "phases": {"warmup": "0s", "measure": "60s", "drain": "500ms", "sample": "100ms"},
        "transport": {"dpdk": {"ports": [
            {"name": "a", "device": "pair:rpc", "ip": "10.9.0.1"},
            {"name": "b", "device": "pair:rpc", "ip": "10.9.0.2", "role": "reflector"}
        ]}},
    })
}

/// A writer who is heard while others watch, however long they take on a busy machine.
struct BusyWriter {
    enough: Sender<()>,
    thread: JoinHandle<Client>,
}

impl BusyWriter {
    fn new(mut writer: Client) -> Self {
        let (enough, wait) = channel();
        let thread = std::thread::spawn(move || {
            while wait.recv_timeout(Duration::from_millis(200)).is_err() {
                writer.get("control.heartbeat");
            }
            writer
        });
        Self { enough, thread }
    }

    fn back(self) -> Client {
        self.enough.send(()).unwrap();
        self.thread.join().unwrap()
    }
}

/// Packets that `element` took so far.
fn taken(viewer: &mut Client, element: &str) -> u64 {
    let stats = viewer.get("graph.stats");
    let all = stats["elements"].as_array().unwrap();
    all.iter().find(|e| e["name"] == element).unwrap()["packets_in"].as_u64().unwrap()
}

#[test]
fn a_viewer_sees_the_graph_its_counts_and_the_way_of_packets() {
    let daemon = Daemon::start();
    let mut viewer = daemon.connect();
    // Planned: nothing is loaded for it.
    let planned = viewer.call("graph.describe", json!({"profile": over_a_cable()}));
    assert_eq!(planned["run"], Value::Null);
    let names: Vec<_> = planned["elements"].as_array().unwrap().iter().map(|e| e["name"].clone()).collect();
    let all = ["a.rx", "a.receiver", "a.arp-nd", "a.tx", "a.generator", "b.rx", "b.reflector", "b.tx"];
    assert_eq!(names, all);
    assert_eq!(planned["edges"][3], json!({"from": "a.generator", "to": "a.tx", "ring": false}));
    viewer.fails("graph.stats", json!({}), -32004);

    let mut writer = daemon.connect();
    writer.get("control.acquire");
    writer.call("run.load", json!({"profile": over_a_cable()}));
    let described = viewer.get("graph.describe");
    assert_eq!(described["run"], "graph-1");
    for key in ["workers", "elements", "edges"] {
        assert_eq!(described[key], planned[key]);
    }
    assert_eq!(taken(&mut viewer, "b.reflector"), 0);
    viewer.fails("graph.trace", json!({"packets": 1}), -32003);

    writer.get("run.start");
    let writer = BusyWriter::new(writer);
    let trace = json!({"packets": 3, "filter": "udp src port 7", "wait": 10});
    let traced = viewer.call("graph.trace", trace);
    assert_eq!((&traced["complete"], traced["packets"].as_array().unwrap().len()), (&json!(true), 3));
    let packet = &traced["packets"][0];
    assert_eq!(packet["summary"], "10.9.0.2:7 > 10.9.0.1:10000 UDP, 60 B");
    let steps = packet["steps"].as_array().unwrap();
    // The reflected packet as it comes out of the cable at a; at b it began as another one, to port 7.
    assert_eq!(steps[0]["element"], "a.rx");
    assert_eq!(steps[0]["verdict"], json!({"passed": "out"}));
    assert_eq!((&steps[1]["element"], &steps[1]["verdict"]), (&json!("a.receiver"), &json!("consumed")));
    assert!(steps[1]["at"].as_u64() >= steps[0]["at"].as_u64());

    let before = taken(&mut viewer, "b.reflector");
    let nothing = viewer.call("graph.trace", json!({"packets": 1, "filter": "tcp", "wait": 0.05}));
    assert_eq!(nothing, json!({"packets": [], "complete": false}));
    assert!(taken(&mut viewer, "b.reflector") > before);

    let mut writer = writer.back();
    writer.get("stats.subscribe");
    writer.get("run.stop");
    writer.told_until("done");
    let result = writer.get("run.result");
    let stats = viewer.get("graph.stats");
    assert_eq!(stats["status"]["state"], "done");
    assert_eq!(stats["elements"].as_array().unwrap().len(), result["elements"].as_array().unwrap().len());
    let reflected =
        result["elements"].as_array().unwrap().iter().find(|e| e["name"] == "b.reflector").unwrap();
    assert_eq!(taken(&mut viewer, "b.reflector"), reflected["packets_in"].as_u64().unwrap());
    viewer.fails("graph.trace", json!({"packets": 1}), -32003);
}

#[test]
fn one_trace_at_a_time_and_only_what_makes_sense() {
    let daemon = Daemon::talkative();
    let (mut writer, mut viewer) = (daemon.connect(), daemon.connect());
    writer.get("control.acquire");
    writer.call("run.load", json!({"profile": over_a_cable()}));
    writer.get("run.start");
    let writer = BusyWriter::new(writer);
    let data = viewer.fails("graph.trace", json!({"packets": 1, "filter": "udp prt 7"}), -32002);
    assert_eq!((&data["code"], &data["at"]), (&json!("ND-104-04"), &json!("params.filter")));
    for (key, value) in
        [("packets", json!(0)), ("packets", json!(65)), ("wait", json!(11)), ("wait", json!(-1))]
    {
        let mut params = json!({"packets": 1});
        params[key] = value;
        assert_eq!(viewer.fails("graph.trace", params, -32602)["at"], format!("params.{key}"));
    }
    // Of many at once one is let in; the end of the run ends it, long before its time is up.
    let mut viewers = [(); 6].map(|()| daemon.connect());
    let asked = daemon.log().matches("graph.trace").count();
    for viewer in &mut viewers {
        viewer.send(request(7, "graph.trace", json!({"packets": 1, "filter": "tcp", "wait": 10})));
    }
    until("all have asked", || daemon.log().matches("graph.trace").count() >= asked + 6);
    let mut writer = writer.back();
    writer.get("stats.subscribe");
    writer.get("run.stop");
    writer.told_until("done");
    let said = viewers.each_mut().map(|viewer| error(&viewer.answer(7), -32003)["what"].to_string());
    for what in ["another trace", "not under way"] {
        assert!(said.iter().any(|said| said.contains(what)), "{said:?}");
    }
}

#[test]
fn sockets_have_no_graph() {
    let (daemon, sink) = (Daemon::start(), sink());
    let mut viewer = loaded(&daemon, &sink, "1s");
    let data = viewer.fails("graph.describe", json!({}), -32004);
    assert!(data["what"].as_str().unwrap().contains("sockets"));
    let profile = crate::rpc::daemon::profile(&sink, "1s");
    viewer.fails("graph.describe", json!({"profile": profile}), -32004);
    let mut wrong = over_a_cable();
    wrong["transport"]["dpdk"]["ports"] = json!([]);
    viewer.fails("graph.describe", json!({"profile": wrong}), -32002);
}
