//! What the network refuses or has no room for: counted under its reason, and no reason to send less.

use crate::lab::net::{Host, enter_new_namespace, sh};
use crate::lab::{profile, run, total};
use run::result::GroupResult;
use serde_json::{Value, json};
use std::net::UdpSocket;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// How many failures of each kind, by name, in the whole run.
fn errors(group: &GroupResult) -> Vec<(&'static str, u64)> {
    group.errors.iter().map(|e| (e.kind, e.total)).collect()
}

fn measured(group: &GroupResult, counter: &str) -> u64 {
    group.measured[counter].as_u64().unwrap_or_else(|| panic!("no {counter}"))
}

/// A stream of 1000 datagrams a second.
fn stream(target: &str) -> Value {
    json!([{"name": "s", "target": target,
        "model": {"stream": {"size": "18B", "rate": "1000/s", "echo": false}}}])
}

#[test]
fn a_closed_port_does_not_slow_a_stream_down() {
    let closed = UdpSocket::bind("127.0.0.1:0").expect("bind").local_addr().expect("address");
    let (result, _) = run(&profile(stream(&format!("udp://{closed}"))));
    let group = &result.groups[0];
    assert_eq!(measured(group, "messages_intended"), 600, "1000/s for 0.6 s");
    assert_eq!((total(&result, "flows_started"), total(&result, "flows_failed")), (1, 0));
    let sent = total(&result, "messages_sent");
    let [("refused", refused)] = errors(group)[..] else { panic!("{:?}", group.errors) };
    // 800 were due. A socket keeps one refusal until it is looked at, and what a late worker sends at once gets one.
    assert!(sent > 400 && (2..=sent).contains(&refused), "{refused} of {sent} refused");
}

#[test]
fn no_route_does_not_slow_a_stream_down() {
    if !enter_new_namespace() {
        return;
    }
    let (result, _) = run(&profile(stream("udp://192.0.2.9:9")));
    let group = &result.groups[0];
    assert_eq!(measured(group, "messages_intended"), 600);
    // each of them is one that did not leave
    assert_eq!(errors(group), [("unreachable", total(&result, "messages_sent"))]);
    assert_eq!((total(&result, "flows_started"), total(&result, "flows_failed")), (1, 0));
}

#[test]
fn what_a_router_forbids_is_no_fault_of_ours() {
    if !enter_new_namespace() {
        return;
    }
    let host = Host::new();
    host.sh("sysctl -qw net.ipv6.conf.all.forwarding=1 net.ipv6.icmp.ratelimit=0");
    // an ICMPv6 "administratively prohibited", which the kernel makes EACCES of (RFC 4443 section 3.1)
    host.sh("ip -6 route add prohibit 2001:db8:1::/48");
    sh("ip -6 route add 2001:db8:1::/48 via 2001:db8::2");
    let tcp = json!([{"name": "w", "target": "http://[2001:db8:1::1]:80/", "model": {"http": {}}}]);
    for (groups, more_than) in [(tcp, 0), (stream("udp://[2001:db8:1::1]:9"), 100)] {
        let (result, _) = run(&profile(groups));
        let [("unreachable", count)] = errors(&result.groups[0])[..] else {
            panic!("{:?}", result.groups[0].errors)
        };
        assert!(count > more_than, "{count}");
        assert!(result.validity.reasons.iter().all(|r| r.code != "ND-90-04"), "{:?}", result.validity);
    }
}

/// Count the datagrams that arrive at a port of this namespace.
fn sink() -> (u16, Arc<AtomicU64>) {
    let socket = UdpSocket::bind("127.0.0.1:0").expect("bind");
    let port = socket.local_addr().expect("address").port();
    let arrived = Arc::new(AtomicU64::new(0));
    let counted = Arc::clone(&arrived);
    std::thread::spawn(move || {
        while socket.recv(&mut [0; 2048]).is_ok() {
            counted.fetch_add(1, Ordering::Relaxed);
        }
    });
    (port, arrived)
}

/// What the kernel holds comes yet, and not more than was sent.
fn all_arrive(arrived: &AtomicU64, sent: u64) {
    let patience = Instant::now() + Duration::from_secs(20);
    while arrived.load(Ordering::Relaxed) < sent && Instant::now() < patience {
        std::thread::sleep(Duration::from_millis(20));
    }
    assert_eq!(arrived.load(Ordering::Relaxed), sent);
}

#[test]
fn a_full_socket_holds_datagrams_back_and_loses_none() {
    if !enter_new_namespace() {
        return;
    }
    // 11 Mbit/s into 4 Mbit/s: the socket's buffer fills
    sh("tc qdisc add dev lo root tbf rate 4mbit burst 4kb limit 1mb");
    let (port, arrived) = sink();
    let groups = json!([{"name": "s", "target": format!("udp://127.0.0.1:{port}"),
        "model": {"stream": {"size": "1400B", "rate": "1000/s", "echo": false}}}]);
    let (result, _) = run(&profile(groups));
    assert_eq!(errors(&result.groups[0]), []);
    assert_eq!(measured(&result.groups[0], "messages_intended"), 600);
    let sent = total(&result, "messages_sent");
    assert!(sent < 700, "{sent}: the line was not full");
    all_arrive(&arrived, sent);
}

#[test]
fn a_full_interface_holds_pings_back_and_loses_none() {
    if !enter_new_namespace() {
        return;
    }
    let _host = Host::new();
    std::fs::write("/proc/sys/net/ipv4/ping_group_range", "0 0").expect("this namespace's");
    // room for three echoes, and one leaves each 5 ms: the queue says ENOBUFS
    sh("tc qdisc add dev near root tbf rate 160kbit burst 110 limit 300");
    let groups = json!([{"name": "p", "target": "ping://192.0.2.2", "devices": 8,
        "model": {"ping": {"interval": "20ms", "timeout": "5s", "size": "56B"}}}]);
    let mut long = profile(groups);
    long["phases"]["drain"] = json!("6s");
    let (result, _) = run(&long);
    assert_eq!(errors(&result.groups[0]), []);
    // 320 of them need 1.5 s, and the load was on for 0.8 s
    assert!(result.phases.drain > 0.3, "{:?}: the line was not full", result.phases);
    assert_eq!(total(&result, "messages_delivered"), total(&result, "messages_sent"));
}

#[test]
fn a_full_interface_holds_datagrams_back_and_loses_none() {
    if !enter_new_namespace() {
        return;
    }
    // room for three buffers, and a datagram leaves each 5 ms: Linux would drop the others and say that it sent them.
    // Not tbf, which cuts a buffer of several datagrams, drops some of them, and says that all are on their way.
    sh("tc qdisc add dev lo root handle 1: htb default 1");
    sh("tc class add dev lo parent 1: classid 1:1 htb rate 160kbit burst 100 cburst 100 quantum 1000");
    sh("tc qdisc add dev lo parent 1:1 pfifo limit 3");
    let (port, arrived) = sink();
    let groups = json!([{"name": "s", "target": format!("udp://127.0.0.1:{port}"),
        "model": {"stream": {"size": "58B", "rate": "1000/s", "echo": false}}}]);
    let (result, _) = run(&profile(groups));
    assert_eq!(errors(&result.groups[0]), []);
    let sent = total(&result, "messages_sent");
    assert!((50..400).contains(&sent), "{sent}: the line was not full");
    all_arrive(&arrived, sent);
}

#[test]
fn an_empty_datagram_is_no_end() {
    let echo = UdpSocket::bind("127.0.0.1:0").expect("bind");
    let address = echo.local_addr().expect("address");
    std::thread::spawn(move || {
        let mut buffer = [0; 64];
        while let Ok((n, from)) = echo.recv_from(&mut buffer) {
            let _gone = echo.send_to(&[], from).and_then(|_| echo.send_to(&buffer[..n], from));
        }
    });
    let groups = json!([{"name": "s", "target": format!("udp://{address}"),
        "model": {"stream": {"size": "18B", "rate": "500/s", "echo": true}}}]);
    let (result, _) = run(&profile(groups));
    let sent = total(&result, "messages_sent");
    assert!(sent > 300, "{sent}");
    assert_eq!(total(&result, "messages_delivered"), sent);
    // it is not what was sent, and what was sent came too
    assert_eq!((total(&result, "corrupted"), errors(&result.groups[0])), (sent, vec![]));
}

#[test]
fn a_connection_that_does_not_come_about_is_given_up_in_time() {
    if !enter_new_namespace() {
        return;
    }
    // the host that this address would be of answers no SYN
    let _host = Host::new();
    sh("ip neighbour add 192.0.2.3 lladdr 02:00:00:00:00:03 dev near");
    let groups = json!([{"name": "w", "target": "http://192.0.2.3/", "connect_timeout": "150ms",
        "model": {"http": {"timeout": "20s"}}}]);
    let (result, _) = run(&profile(groups));
    let group = &result.groups[0];
    // 0.8 s, and 0.25 s from one to the next
    assert_eq!(errors(group), [("timeout", total(&result, "flows_failed"))]);
    assert!((2..=4).contains(&total(&result, "flows_failed")), "{:?}", group.errors);
    let example = group.errors[0].example.as_deref().unwrap_or_default();
    assert!(example.contains("no connection to 192.0.2.3:80"), "{example}");
}
