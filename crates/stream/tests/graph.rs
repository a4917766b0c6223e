//! The graph as it is shown: planned, at work, and the way of single packets through it.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod lab;

use run::Transport;
use serde_json::{Value, json};
use std::time::Duration;
use stream::Dpdk;

#[test]
fn the_graph_is_the_one_that_runs_and_its_packets_can_be_followed() {
    let profile = json!({
        "name": "graph",
        "phases": {"warmup": "0s", "measure": "60s", "drain": "1s", "sample": "100ms"},
        "transport": {"dpdk": {
            "ports": [
                {"name": "a", "device": "pair:observed", "ip": "10.9.0.1"},
                {"name": "b", "device": "pair:observed", "ip": "10.9.0.2", "role": "reflector"}
            ],
            "placement": [{"elements": ["a.generator", "a.receiver"]}, {"elements": ["b.reflector"]}]
        }},
        "groups": [{"name": "s", "model": {"stream": {"rate": "1k/s", "size": "18B"}}, "target": "udp://10.9.0.2:7"}]
    });
    let mut view = None;
    let result = lab::run_with(&profile, planned, |transport, control| {
        follow(transport);
        view = transport.graph();
        control.stop();
    })
    .unwrap();

    // A view stays when the run is over, and has the last counts.
    let elements = json!(view.unwrap().elements());
    let count = |all: &Value| -> Vec<Value> {
        let about =
            |e: &Value| json!([e["name"], e["worker"], e["packets_in"], e["packets_out"], e["drops"]]);
        let mut counts: Vec<Value> = all.as_array().unwrap().iter().map(about).collect();
        counts.sort_by_key(ToString::to_string);
        counts
    };
    assert_eq!(count(&elements), count(&result["elements"]));
}

fn planned(transport: &Dpdk) {
    let observer = transport.graph().unwrap();
    assert!(observer.elements().iter().all(|element| element.packets_in + element.packets_out == 0));
    assert_eq!(observer.trace(1, "", Duration::ZERO, &|| true), Ok(None), "there is nothing to trace yet");
    let shape = observer.shape();
    let names = ["a.tx", "a.rx", "a.generator", "a.receiver", "a.neighbour", "b.tx", "b.rx", "b.reflector"];
    assert_eq!(shape.elements.iter().map(|e| e.name.as_str()).collect::<Vec<_>>(), names);
    assert_eq!(shape.elements[7].kind, "reflector");
    assert_eq!(shape.elements.iter().map(|e| e.worker).collect::<Vec<_>>(), [0, 0, 0, 0, 0, 1, 1, 1]);
    let edges: Vec<_> = shape.edges.iter().map(|e| (e.from.as_str(), e.to.as_str(), e.ring)).collect();
    let mine = [("a.generator", "a.tx", false), ("a.rx", "a.receiver", false)];
    assert_eq!(edges[..2], mine);
    assert_eq!(edges[5], ("b.reflector", "b.tx", false));
    assert_eq!(shape.workers.len(), 2);
    assert_eq!(shape.workers[1].core, shape.elements[7].core);
}

fn follow(transport: &Dpdk) {
    let observer = transport.graph().unwrap();
    let wait = Duration::from_secs(20);
    let why = observer.trace(1, "no such word", wait, &|| true).unwrap_err();
    assert_eq!((why.code, why.at.as_str()), ("ND-104-04", "params.filter"));
    let nothing = observer.trace(1, "tcp", Duration::from_millis(50), &|| true).unwrap().unwrap();
    assert_eq!((nothing.packets.len(), nothing.complete), (0, false));
    let trace = observer.trace(4, "udp dst port 7", wait, &|| true).unwrap().unwrap();
    assert!(trace.complete && trace.packets.len() == 4, "{trace:?}");
    for packet in &trace.packets {
        assert!(
            packet.summary.starts_with("10.9.0.1:") && packet.summary.ends_with("> 10.9.0.2:7 UDP, 60 B")
        );
        let way: Vec<_> = packet.steps.iter().filter_map(|step| step["element"].as_str()).collect();
        // What was sent from a, or what came out of the cable at b.
        assert!(way == ["a.generator", "a.tx"] || way == ["b.rx", "b.reflector", "b.tx"], "{way:?}");
    }
    let stopped = observer.trace(1, "tcp", wait, &|| false).unwrap().unwrap();
    assert!(!stopped.complete);
    assert_eq!(observer.workers().len(), 2);
}
