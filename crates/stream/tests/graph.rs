//! The graph as it is shown: planned, at work, and the way of single packets through it.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use run::Transport;
use serde_json::{Value, json};
use std::time::Duration;
use stream::Dpdk;

#[test]
fn the_graph_is_the_one_that_runs_and_its_packets_can_be_followed() {
    let _alone = crate::lab::one_at_a_time();
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
    let result = crate::lab::run_with(&profile, planned, |transport, control| {
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
    let names = ["a.rx", "a.receiver", "a.arp-nd", "a.tx", "a.generator", "b.rx", "b.reflector", "b.tx"];
    assert_eq!(shape.elements.iter().map(|e| e.name.as_str()).collect::<Vec<_>>(), names);
    assert_eq!((shape.elements[2].kind.as_str(), shape.elements[6].kind.as_str()), ("arp-nd", "reflector"));
    assert_eq!(shape.elements.iter().map(|e| e.worker).collect::<Vec<_>>(), [0, 0, 0, 0, 0, 1, 1, 1]);
    let edges: Vec<_> = shape.edges.iter().map(|e| (e.from.as_str(), e.to.as_str(), e.ring)).collect();
    assert_eq!((edges[0], edges[3]), (("a.rx", "a.receiver", false), ("a.generator", "a.tx", false)));
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

/// Two ports at the ends of a cable, which do as `more` says.
fn cable(name: &str, more: [Value; 2]) -> Value {
    let port = |name: &str, more: &Value| {
        let mut port = json!({"name": name, "device": format!("pair:{}", more["cable"].as_str().unwrap())});
        port.as_object_mut().unwrap().extend(more["port"].as_object().unwrap().clone());
        port
    };
    let [a, b] = more.map(|more| json!({"cable": name, "port": more}));
    json!({
        "name": name,
        "phases": {"warmup": "0s", "measure": "200ms", "drain": "1s", "sample": "100ms"},
        "transport": {"dpdk": {"ports": [port("a", &a), port("b", &b)]}},
        "groups": [{"name": "s", "devices": 3, "port": "a", "target": "udp://10.9.0.2:7",
            "model": {"stream": {"rate": "2k/s", "size": "18B"}}}]
    })
}

/// The profile with its elements named.
fn expanded(profile: &Value) -> Value {
    let loaded = profile::load(&profile.to_string()).unwrap();
    let mut named = profile.clone();
    named["transport"] =
        json!(stream::graph::expanded(&loaded, &stream::graph::kinds()).unwrap())["transport"].clone();
    for port in named["transport"]["dpdk"]["ports"].as_array_mut().unwrap() {
        port.as_object_mut().unwrap().remove("role");
    }
    named
}

/// Elements with their workers, and edges.
fn shape(profile: &Value) -> Value {
    let profile::Transport::Dpdk(dpdk) = profile::load(&profile.to_string()).unwrap().transport else {
        panic!()
    };
    let observer = Dpdk::new(&dpdk, &stream::graph::kinds()).unwrap().graph().unwrap();
    let shape = observer.shape();
    json!([shape.elements.iter().map(|e| json!([e.name, e.kind, e.worker])).collect::<Vec<_>>(), shape.edges])
}

fn element<'a>(result: &'a Value, name: &str) -> &'a Value {
    let all = result["elements"].as_array().unwrap();
    all.iter().find(|e| e["name"] == name).unwrap_or_else(|| panic!("no {name}: {all:?}"))
}

#[test]
fn what_a_role_stands_for_runs_as_the_role_does() {
    let _alone = crate::lab::one_at_a_time();
    let (a, b) = (json!({"ip": "10.9.0.1"}), json!({"ip": "10.9.0.2", "role": "reflector"}));
    let with = |port: &Value, key: &str, value: Value| {
        let mut port = port.clone();
        port[key] = value;
        port
    };
    let placed = |mut profile: Value, workers: Value| {
        profile["transport"]["dpdk"]["placement"] = workers;
        profile
    };
    let impaired = with(&b, "impair", json!({"delay": {"constant": "1ms"}, "loss": {"periodic": 10}}));
    let swap = json!({"role": "l2fwd", "forward": "macswap"});
    let cases = [
        (cable("plain", [a.clone(), b.clone()]), &["a.rx -> a.receiver -> a.arp-nd -> a.tx"][..]),
        (cable("impaired", [a.clone(), impaired]), &["b.rx -> b.impair -> b.reflector -> b.tx"]),
        (cable("forwarded", [a.clone(), swap]), &["b.rx -> b.l2fwd -> b.tx"]),
        (
            placed(
                cable("apart", [with(&a, "queues", json!(2)), b]),
                json!([
                    {"elements": ["a.generator0", "a.generator1"]},
                    {"elements": ["a.receiver0", "a.receiver1", "a.tx", "b.reflector"]}
                ]),
            ),
            &["a.rx -> a.flow-distributor", "a.flow-distributor.1 -> a.receiver1 -> a.arp-nd"],
        ),
    ];
    for (profile, edges) in cases {
        let named = expanded(&profile);
        let name = profile["name"].as_str().unwrap();
        let written: Vec<&str> = named["transport"]["dpdk"]["edges"]
            .as_array()
            .unwrap()
            .iter()
            .filter_map(Value::as_str)
            .collect();
        assert!(edges.iter().all(|edge| written.contains(edge)), "{name}: {written:#?}");
        assert_eq!(shape(&profile), shape(&named), "{name}");
        assert_eq!(expanded(&named), named, "{name}: it stands for itself");
        let [by_role, by_name] = [&profile, &named].map(|one| crate::lab::run(one).unwrap());
        for result in [&by_role, &by_name] {
            let total = &result["groups"][0]["total"];
            let count = |name: &str| total[name].as_u64().unwrap();
            assert!(count("messages_sent") > 0, "{name}: {total:#}");
            let lost = if name == "impaired" { count("messages_sent") / 10 } else { 0 };
            assert_eq!(count("messages_delivered"), count("messages_sent") - lost, "{name}: {total:#}");
        }
        let count = |result: &Value| -> Vec<Value> {
            result["elements"].as_array().unwrap().iter().map(|e| json!([e["name"], e["worker"]])).collect()
        };
        assert_eq!(count(&by_role), count(&by_name), "{name}");
    }
}

#[test]
fn elements_of_ones_own_are_part_of_a_run() {
    let _alone = crate::lab::one_at_a_time();
    let mut profile =
        cable("own", [json!({"ip": "10.9.0.1"}), json!({"ip": "10.9.0.2", "role": "reflector"})]);
    profile = expanded(&profile);
    let dpdk = &mut profile["transport"]["dpdk"];
    dpdk["elements"]["acl"] = json!({"kind": "classifier",
        "rules": [{"match": "src port 10001", "to": "deny"}, {"match": "any", "to": "pass"}]});
    dpdk["elements"]["denied"] = json!({"kind": "discard"});
    dpdk["edges"] = json!([
        "a.rx -> a.receiver -> a.arp-nd -> a.tx",
        "a.generator -> a.tx",
        "b.rx -> acl",
        "acl.pass -> b.reflector -> b.tx",
        "acl.deny -> denied"
    ]);
    let result = crate::lab::run(&profile).unwrap();
    let total = &result["groups"][0]["total"];
    let (sent, back) =
        (total["messages_sent"].as_u64().unwrap(), total["messages_delivered"].as_u64().unwrap());
    // One of three devices is not let through.
    assert_eq!(total["failures"]["unanswered"].as_u64(), Some(sent - back));
    assert_eq!(element(&result, "denied")["packets_in"].as_u64(), Some(sent - back));
    assert!(sent - back >= sent / 3 - 2 && sent - back <= sent / 3 + 2, "{back} of {sent}");
}

#[test]
fn what_is_wrong_with_a_graph_is_named_by_its_place_in_the_profile() {
    let ports = [json!({"ip": "10.9.0.1"}), json!({"ip": "10.9.0.2", "role": "reflector"})];
    let good = expanded(&cable("wrong", ports));
    for (path, value, at, said) in [
        ("/edges/0", json!("a.rx -> a.reciever"), "transport.dpdk.edges[0]", "a.reciever"),
        (
            "/elements/a.receiver",
            json!({"kind": "receiver", "port": "c"}),
            "transport.dpdk.elements.a.receiver.port",
            "c",
        ),
        (
            "/elements/a.receiver",
            json!({"kind": "receiver", "port": "a", "share": {"number": 2, "of": 2}}),
            "transport.dpdk.elements.a.receiver.share.number",
            "no output 2",
        ),
        ("/elements/a.generator", json!({"kind": "counter"}), "groups[0].port", "no generator"),
        (
            "/placement",
            json!([{"elements": ["b.reflectr"]}]),
            "transport.dpdk.placement[0].elements[0]",
            "b.reflectr",
        ),
        ("/ports/1/role", json!("l2fwd"), "transport.dpdk.ports[1].role", "something else"),
        ("/ports/1/impair", json!({}), "transport.dpdk.ports[1].impair", "elements say"),
    ] {
        let mut wrong = good.clone();
        let (parent, key) = path.rsplit_once('/').unwrap();
        match wrong["transport"]["dpdk"].pointer_mut(parent).unwrap() {
            Value::Array(list) => list[key.parse::<usize>().unwrap()] = value,
            parent => parent[key] = value,
        }
        if path == "/elements/a.generator" {
            wrong["transport"]["dpdk"]["edges"] = json!([
                "a.rx -> a.receiver -> a.arp-nd -> a.generator -> a.tx",
                "b.rx -> b.reflector -> b.tx"
            ]);
        }
        let faults = match profile::load(&wrong.to_string()) {
            Ok(profile) => stream::graph::check(&profile, &stream::graph::kinds()),
            Err(faults) => faults,
        };
        assert!(faults.iter().any(|f| f.at == at && f.to_string().contains(said)), "{path}: {faults:#?}");
    }
}
