//! Hosts that refuse what our port sends, or send back something else.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use crate::lab::net::{enter_new_namespace, sh};
use crate::lab::run;
use serde_json::{Value, json};
use std::net::UdpSocket;

/// A cable from our port's interface `left` to the kernel's `right`.
fn cable() {
    sh("ip link add left type veth peer name right");
    sh("ip link set left up");
    sh("ip link set right up");
    // Else the kernel leaves checksums to a network card that is not there.
    sh("ethtool -K right tx off");
    sh("ip addr add 10.9.1.2/24 dev right");
    sh("ip addr add fd09:1::2/64 dev right nodad");
}

fn profile(port: Value, target: &str, stream: Value) -> Value {
    json!({
        "name": "errors",
        "validity": {"lateness_p99": "5s", "starved": 1.0, "offered": 0.0},
        "phases": {"warmup": "100ms", "measure": "500ms", "drain": "500ms", "sample": "100ms"},
        "transport": {"dpdk": {"ports": [port]}},
        "groups": [{"name": "s", "model": {"stream": stream}, "target": target, "devices": 3}]
    })
}

/// A count of the first group, over all phases.
fn total(result: &Value, at: &str) -> u64 {
    result.pointer(&format!("/groups/0/total/{at}")).and_then(Value::as_u64).unwrap_or(0)
}

fn drops(result: &Value, reason: &str) -> u64 {
    let all = result["elements"].as_array().unwrap();
    let receiver = all.iter().find(|e| e["name"] == "a.receiver").unwrap();
    receiver["drops"][reason].as_u64().unwrap_or(0)
}

#[test]
fn a_closed_port_refuses_and_nothing_is_delivered() {
    if !enter_new_namespace() {
        return;
    }
    cable();
    let _alone = crate::lab::one_at_a_time();
    for (ip, target) in [("10.9.1.1", "udp://10.9.1.2:7"), ("fd09:1::1", "udp://[fd09:1::2]:7")] {
        let port = json!({"name": "a", "device": "af_packet:left", "ip": ip});
        for echo in [true, false] {
            let stream = json!({"rate": "200/s", "echo": echo, "size": "200B"});
            let result = run(&profile(port.clone(), target, stream)).unwrap_or_else(|e| panic!("{e}"));
            let (sent, refused) = (total(&result, "messages_sent"), total(&result, "failures/refused"));
            let unanswered = total(&result, "failures/unanswered");
            // how many the kernel says is up to its own limit (sysctl net.ipv4.icmp_ratelimit)
            assert!(sent > 0 && refused > 0, "{target}: {result:#}");
            assert_eq!(total(&result, "messages_delivered") + total(&result, "corrupted"), 0, "{target}");
            assert_eq!(drops(&result, "icmp_error"), refused, "{target}");
            if echo {
                assert_eq!(refused + unanswered, sent, "{target}: {result:#}");
                assert_eq!(result.pointer("/groups/0/loss"), Some(&json!(1.0)));
            } else {
                assert_eq!(
                    (unanswered, result.pointer("/groups/0/loss")),
                    (0, Some(&Value::Null)),
                    "{target}"
                );
            }
            let errors = result.pointer("/groups/0/errors").and_then(Value::as_array).unwrap();
            let example = errors.iter().find(|e| e["kind"] == "refused").map(|e| e["example"].to_string());
            assert!(example.unwrap().contains("nobody listens"), "{errors:?}");
        }
    }
}

#[test]
fn an_address_that_is_prohibited_is_unreachable() {
    if !enter_new_namespace() {
        return;
    }
    cable();
    sh("sysctl -qw net.ipv4.ip_forward=1");
    sh("ip route add prohibit 198.51.100.0/24");
    let _alone = crate::lab::one_at_a_time();
    let port = json!({"name": "a", "device": "af_packet:left", "ip": "10.9.1.1/24", "gateway": "10.9.1.2"});
    let wanted = profile(port, "udp://198.51.100.1:7", json!({"rate": "200/s"}));
    let result = run(&wanted).unwrap_or_else(|e| panic!("{e}"));
    let (sent, unreachable) = (total(&result, "messages_sent"), total(&result, "failures/unreachable"));
    assert!(unreachable > 0, "{result:#}");
    assert_eq!(total(&result, "messages_delivered"), 0);
    assert_eq!(unreachable + total(&result, "failures/unanswered"), sent, "{result:#}");
}

#[test]
fn a_reflector_that_changes_replies_is_found_out() {
    if !enter_new_namespace() {
        return;
    }
    cable();
    let socket = UdpSocket::bind("10.9.1.2:7").unwrap();
    // one bit of each, another one each time; every fourth is cut, or has something more
    std::thread::spawn(move || {
        let (mut bytes, mut count) = ([0; 2048], 0);
        while let Ok((n, from)) = socket.recv_from(&mut bytes) {
            let bit = count * 7919 % (8 * n);
            let len = match count % 8 {
                3 => n / 2,
                7 => n + 4,
                _ => {
                    bytes[bit / 8] ^= 1 << (bit % 8);
                    n
                }
            };
            let _full = socket.send_to(&bytes[..len], from);
            count += 1;
        }
    });
    let _alone = crate::lab::one_at_a_time();
    let port = json!({"name": "a", "device": "af_packet:left", "ip": "10.9.1.1"});
    let wanted = profile(port, "udp://10.9.1.2:7", json!({"rate": "200/s", "size": "300B"}));
    let result = run(&wanted).unwrap_or_else(|e| panic!("{e}"));
    let (sent, corrupted) = (total(&result, "messages_sent"), total(&result, "corrupted"));
    assert!(corrupted > 0 && corrupted <= sent, "{result:#}");
    assert_eq!(total(&result, "messages_delivered"), 0, "{result:#}");
    assert_eq!(total(&result, "failures/unanswered"), sent);
    assert_eq!(drops(&result, "corrupted"), corrupted);
}
