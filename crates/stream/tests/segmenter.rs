//! Large frames of TCP that leave as several packets: what is counted is what is on the wire, whoever segments them.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use crate::lab::net::{enter_new_namespace, sh};
use crate::lab::{one_at_a_time, run, run_with};
use serde_json::{Value, json};
use std::time::Duration;

/// Who the frames are for.
const PEER: &str = "02:00:00:00:09:06";

/// A stream of frames with FCS of so many bytes.
fn large(ports: Value, ip: Value, tcp: Value, size: &str, rate: &str) -> Value {
    json!({
        "name": "segments",
        "validity": {"lateness_p99": "5s", "starved": 1.0},
        "phases": {"warmup": "100ms", "measure": "300ms", "drain": "200ms", "sample": "100ms"},
        "transport": {"dpdk": {"ports": ports}},
        "groups": [{
            "name": "s", "model": {"stream": {"echo": false}}, "target": "udp://10.9.6.2:9",
            "frame": {
                "layers": [{"ethernet": {"destination": PEER}}, ip, {"tcp": tcp}],
                "size": {"fixed": size}, "rate": {"frames": rate}, "measured": false
            }
        }]
    })
}

fn total(result: &Value, count: &str) -> u64 {
    result["groups"][0]["total"][count].as_u64().unwrap()
}

fn work<'a>(result: &'a Value, what: &str) -> &'a str {
    result["ports"][0]["work"][what].as_str().unwrap_or_else(|| panic!("{:#}", result["ports"]))
}

/// Packets that an interface received; nothing when there is no such interface.
fn received(interface: &str) -> Option<u64> {
    let text = std::fs::read_to_string("/proc/thread-self/net/dev").unwrap();
    let line = text.lines().find_map(|line| line.trim().strip_prefix(interface)?.strip_prefix(':'));
    line.map(|line| line.split_whitespace().nth(1).unwrap().parse().unwrap())
}

/// A count of one element.
fn element(result: &Value, name: &str, count: &str) -> u64 {
    let all = result["elements"].as_array().unwrap();
    all.iter().find(|element| element["name"] == name).unwrap()[count].as_u64().unwrap()
}

/// A counter of the kernel's TCP.
fn counter(name: &str) -> u64 {
    let text = std::fs::read_to_string("/proc/thread-self/net/snmp").unwrap();
    let lines: Vec<Vec<&str>> =
        text.lines().filter(|l| l.starts_with("Tcp:")).map(|l| l.split(' ').collect()).collect();
    lines[1][lines[0].iter().position(|title| *title == name).unwrap()].parse().unwrap()
}

/// The kernel gets as many packets as we say, and looks at every checksum.
#[test]
fn the_kernel_counts_the_same_packets_whoever_segments() {
    if !enter_new_namespace() {
        return;
    }
    let _alone = one_at_a_time();
    let v6 = || json!({"ipv6": {"source": "fd00::1", "destination": "fd00::2"}});
    // DPDK's driver for taps does not segment IPv6, nor into packets of 1,460 bytes where 1,500 are the most.
    for (offloads, ip, segment, by) in [
        (json!("auto"), json!({"ipv4": {}}), 1440, "software"),
        (json!(["segment"]), json!({"ipv4": {}}), 1440, "port"),
        (json!(["segment"]), json!({"ipv4": {}}), 1460, "software"),
        (json!(["segment"]), v6(), 1440, "software"),
    ] {
        let port = json!([{
            "name": "a", "device": "tap:ndtap6", "ip": "10.9.6.1", "peer_mac": PEER, "offloads": offloads
        }]);
        let profile = large(port, ip, json!({"flags": "A", "segment": segment}), "30000B", "5k/s");
        let (looked, mut last) = (counter("InSegs"), 0);
        let result = run_with(
            &profile,
            |_| (),
            |_, _| {
                sh(&format!("ip link set ndtap6 address {PEER}"));
                sh("ip addr add 10.9.6.2/24 dev ndtap6");
                sh("ip addr add fd00::2/64 dev ndtap6 nodad");
                // It is gone when the run is over, and there for a while after the last packet.
                while let Some(packets) = received("ndtap6") {
                    last = packets;
                    std::thread::sleep(Duration::from_millis(2));
                }
            },
        )
        .unwrap_or_else(|why| panic!("{why}"));
        let (sent, looked) = (total(&result, "messages_sent"), counter("InSegs") - looked);
        let who = format!("{offloads}, {segment}: {:#}", result["ports"]);
        // The kernel may ask who we are, to answer.
        let answers = element(&result, "a.arp-nd", "packets_out");
        assert_eq!((work(&result, "segments"), last), (by, sent + answers), "{who}");
        let due = total(&result, "messages_intended");
        assert!(sent <= due && (sent % 21, due % 21) == (0, 0), "{due}: {who}");
        assert!(looked > 100 && looked <= sent && counter("InCsumErrors") == 0, "{looked} of {sent}: {who}");
    }
}

/// From virtio to vhost nothing is segmented: what is counted is what it will be on a wire.
#[test]
fn large_packets_are_counted_as_what_they_stand_for() {
    let _alone = one_at_a_time();
    let folder = std::env::temp_dir().join(format!("nd-segments-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let path = folder.join("socket");
    let ports = json!([
        {"name": "b", "device": format!("net_vhost,iface={},tso=1", path.display()), "role": "l2fwd"},
        {"name": "a", "device": format!("virtio:{}", path.display()), "ip": "10.9.6.1", "peer_mac": PEER, "offloads": ["segment"]},
    ]);
    let v4 = json!({"ipv4": {}});
    let result = run(&large(ports, v4, json!({"segment": 1460}), "64000B", "100k/s"));
    let result = result.unwrap_or_else(|why| panic!("{why}"));
    let (sent, whole) = (total(&result, "messages_sent"), element(&result, "a.generator", "packets_out"));
    assert_eq!(result["ports"][1]["work"]["segments"], "port", "{:#}", result["ports"]);
    // 63,942 bytes are carried by 44 packets.
    assert!(whole > 100 && sent == whole * 44, "{whole} {sent}");
    assert_eq!(element(&result, "b.l2fwd", "packets_in"), whole);
    std::fs::remove_dir_all(folder).unwrap();
}

/// Whatever a batch has room for, and however devices take turns.
#[test]
fn rates_are_of_packets_and_a_count_is_of_frames() {
    let _alone = one_at_a_time();
    let of = |more: Value, frame: Value| {
        let null = json!([{"name": "a", "device": "null", "ip": "10.9.6.1"}]);
        // 946 bytes to carry, by ten packets; nine of 158 bytes with FCS and one of 104.
        let mut profile = large(null, json!({"ipv4": {}}), json!({"segment": 100}), "1004B", "20k/s");
        profile["groups"][0]["devices"] = json!(3);
        // Of what ends, once.
        profile["groups"][0]["load"] = json!({"closed": {"flows": u8::from(!more["count"].is_null())}});
        profile["groups"][0]["model"]["stream"]
            .as_object_mut()
            .unwrap()
            .extend(more.as_object().unwrap().clone());
        profile["groups"][0]["frame"]["rate"] = frame;
        let result = run(&profile).unwrap_or_else(|why| panic!("{why}"));
        let count = |name| result["groups"][0]["measured"][name].as_u64().unwrap();
        assert_eq!(count("bytes_sent"), count("messages_sent") / 10 * (9 * 154 + 100));
        assert_eq!(work(&result, "segments"), "software");
        // What a machine that is busy sends less was intended all the same.
        assert!(count("messages_sent") <= count("messages_intended"));
        (count("messages_intended"), total(&result, "messages_sent"))
    };
    // Over 300 ms, to a burst.
    let near = |(due, _), expected: u64| assert!(u64::abs_diff(due, expected) <= 70, "{due} {expected}");
    near(of(json!({}), json!({"frames": "20k/s"})), 6_000);
    near(of(json!({}), json!({"l2": "24.416Mbit/s"})), 6_000);
    near(of(json!({"rate": "4k/s"}), Value::Null), 3_600);
    near(of(json!({"interval": "10ms"}), Value::Null), 900);
    near(of(json!({"burst": 7}), json!({"frames": "70k/s"})), 21_000);
    assert_eq!(of(json!({"count": 40, "burst": 3}), json!({"frames": "60k/s"})).1, 1_200);
}
