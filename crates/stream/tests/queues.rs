//! Ports with several queues: streams spread over lanes of their own, by the port or by an element, and counted as
//! exactly as on one.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use crate::lab::net;
use crate::lab::{run, run_with};
use run::Transport;
use serde_json::{Value, json};
use std::net::UdpSocket;
use std::time::{Duration, Instant};

/// A generator and a reflector with two queues each, and a stream of each of `devices` devices.
fn cable(name: &str, devices: u32) -> Value {
    json!({
        "name": "queues",
        "phases": {"warmup": "100ms", "measure": "400ms", "drain": "20s", "sample": "100ms"},
        "transport": {"dpdk": {"ports": [
            {"name": "a", "device": format!("pair:{name}"), "ip": "10.9.6.1", "queues": 2},
            {"name": "b", "device": format!("pair:{name}"), "ip": "10.9.6.2", "queues": 2, "role": "reflector"}
        ]}},
        "groups": [{
            "name": "s", "model": {"stream": {"size": "60B", "rate": "1k/s"}}, "target": "udp://10.9.6.2:7",
            "devices": devices
        }]
    })
}

/// Packets taken by an element, or given by a source, and its drops.
fn element<'a>(result: &'a Value, name: &str) -> (u64, &'a Value) {
    let all = result["elements"].as_array().unwrap();
    let element = all.iter().find(|e| e["name"] == name).unwrap_or_else(|| panic!("no {name} in {all:?}"));
    (element["packets_in"].as_u64().unwrap().max(element["packets_out"].as_u64().unwrap()), &element["drops"])
}

fn all_came_back(result: &Value, lanes: [&str; 2]) -> u64 {
    assert_eq!(result.pointer("/groups/0/loss"), Some(&json!(0.0)), "{result:#}");
    let total = &result["groups"][0]["total"];
    let (sent, delivered) = (&total["messages_sent"], &total["messages_delivered"]);
    assert_eq!((&total["duplicates"], &total["reordered"]), (&json!(0), &json!(0)));
    assert_eq!(sent, delivered);
    let sent = sent.as_u64().unwrap();
    for kind in lanes {
        let counts = [0, 1].map(|i| element(result, &format!("a.{kind}{i}")));
        assert_eq!(counts[0].0 + counts[1].0, sent, "{kind}");
        assert!(counts.iter().all(|(n, drops)| *n > sent / 10 && **drops == json!({})), "{kind}: {counts:?}");
    }
    sent
}

#[test]
fn where_a_port_has_no_rss_an_element_spreads() {
    let _alone = crate::lab::one_at_a_time();
    for placement in [
        json!([]),
        json!([
            {"elements": ["a.generator0", "a.receiver1", "b.reflector0"]},
            {"elements": ["a.generator1", "a.receiver0", "b.reflector1"]}
        ]),
    ] {
        // Five streams cannot be dealt out evenly.
        let mut profile = cable("spread", 5);
        profile["transport"]["dpdk"]["placement"] = placement;
        let result = run(&profile).unwrap_or_else(|why| panic!("{why}"));
        let sent = all_came_back(&result, ["generator", "receiver"]);
        // Half a second of five streams, at 1,000 a second each.
        let intended = result["groups"][0]["total"]["messages_intended"].as_u64().unwrap();
        assert!(intended.abs_diff(2_500) <= 5, "{intended}");
        assert_eq!(element(&result, "a.flow-distributor").0, sent);
        let reflected = [0, 1].map(|i| element(&result, &format!("b.reflector{i}")).0);
        assert!(reflected[0] + reflected[1] == sent && reflected.iter().all(|n| *n > 0), "{reflected:?}");
        assert_eq!(result.pointer("/interfaces/a/tx_bytes"), Some(&json!(102 * sent)));
    }
}

#[test]
fn a_stream_stays_together_whatever_varies_in_it() {
    let _alone = crate::lab::one_at_a_time();
    let mut profile = cable("vary", 2);
    let vary = json!([{"field": "udp.source_port", "change": {"random": {"from": 1024, "to": 65535}}}]);
    profile["groups"][0]["frame"] =
        json!({"layers": [{"ethernet": {}}, {"ipv4": {}}, {"udp": {}}], "vary": vary});
    let result = run(&profile).unwrap_or_else(|why| panic!("{why}"));
    all_came_back(&result, ["generator", "receiver"]);
}

#[test]
fn one_stream_has_one_lane_and_a_second_group_the_other() {
    let _alone = crate::lab::one_at_a_time();
    let mut profile = cable("groups", 1);
    let mut second = profile["groups"][0].clone();
    second["name"] = json!("t");
    profile["groups"].as_array_mut().unwrap().push(second);
    let result = run(&profile).unwrap_or_else(|why| panic!("{why}"));
    for group in [0, 1] {
        let total = &result["groups"][group]["total"];
        let sent = total["messages_sent"].as_u64().unwrap();
        assert!(sent > 0 && total["messages_delivered"] == sent && total["reordered"] == 0, "{total}");
        assert_eq!(
            element(&result, &format!("a.generator{group}")).0,
            sent,
            "each group has a lane of its own"
        );
    }
}

#[test]
fn what_goes_through_forwarding_lanes_keeps_its_order() {
    let _alone = crate::lab::one_at_a_time();
    let mut profile = cable("near", 4);
    let ports = profile["transport"]["dpdk"]["ports"].as_array_mut().unwrap();
    ports[1]["device"] = json!("pair:far");
    for (name, device, to) in [("c", "pair:near", "d"), ("d", "pair:far", "c")] {
        ports.push(json!({"name": name, "device": device, "role": "l2fwd", "to": to, "queues": 2}));
    }
    ports[0]["peer_mac"] = json!("02:00:00:00:00:09");
    let result = run(&profile).unwrap_or_else(|why| panic!("{why}"));
    let sent = all_came_back(&result, ["generator", "receiver"]);
    for port in ["c", "d"] {
        let passed = [0, 1].map(|i| element(&result, &format!("{port}.l2fwd{i}")).0);
        assert!(passed[0] + passed[1] == sent && passed.iter().all(|n| *n > sent / 4), "{passed:?}");
    }
}

#[test]
fn where_a_port_has_rss_it_spreads_and_a_flow_keeps_its_queue() {
    if !net::enter_new_namespace() {
        return;
    }
    let _alone = crate::lab::one_at_a_time();
    let profile = json!({
        "name": "rss",
        "phases": {"warmup": "100ms", "measure": "60s", "drain": "1s", "sample": "100ms"},
        "transport": {"dpdk": {"ports": [
            {"name": "a", "device": "tap:ndrss0", "ip": "10.9.7.1", "queues": 2, "peer_mac": "02:00:00:00:97:02"}
        ]}},
        "groups": [{
            "name": "s", "model": {"stream": {"rate": "100/s"}}, "target": "udp://10.9.7.2:7", "devices": 8
        }]
    });
    // The kernel's side of the tap is there once the port is open. What is sent until it is set up is lost.
    let result = run_with(
        &profile,
        |transport| assert!(transport.graph().unwrap().shape().ports.is_empty()),
        |transport, control| {
            for command in ["address 02:00:00:00:97:02", "up"] {
                net::sh(&format!("ip link set ndrss0 {command}"));
            }
            net::sh("ip addr add 10.9.7.2/24 dev ndrss0");
            let echo = UdpSocket::bind("10.9.7.2:7").unwrap();
            std::thread::spawn(move || {
                let mut bytes = [0; 2048];
                while let Ok((n, from)) = echo.recv_from(&mut bytes) {
                    let _full = echo.send_to(&bytes[..n], from);
                }
            });
            let observer = transport.graph().unwrap();
            let port = &observer.shape().ports[0];
            assert_eq!((port.rx_queues, port.tx_queues, &port.uses[..]), (2, 2, &["rss"][..]));
            assert_eq!((port.driver.as_str(), &port.device[..]), ("net_tap", "net_tap,iface=ndrss0"));
            let deadline = Instant::now() + Duration::from_secs(20);
            let passed = |name: &str| observer.elements().iter().find(|e| e.name == name).unwrap().packets_in;
            // Some are the kernel's own: neighbour discovery, and port unreachable before the echo was there.
            while passed("a.receiver0").min(passed("a.receiver1")) < 75 {
                assert!(Instant::now() < deadline, "{:?}", observer.elements());
                std::thread::sleep(Duration::from_millis(10));
            }
            control.stop();
        },
    );
    let result = result.unwrap_or_else(|why| panic!("{why}"));
    let total = &result["groups"][0]["total"];
    assert_eq!((&total["reordered"], &total["duplicates"]), (&json!(0), &json!(0)), "{total}");
    assert!(total["messages_delivered"].as_u64().unwrap() >= 100, "{total}");
}
