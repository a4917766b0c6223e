//! Work that ports do by themselves: the same is measured as without, peers find nothing wrong, and it is said who did it.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use crate::lab::net::{enter_new_namespace, sh};
use crate::lab::{one_at_a_time, run, run_with};
use serde_json::{Value, json};
use std::net::UdpSocket;
use std::time::Duration;

fn stream(ports: Value, target: &str) -> Value {
    json!({
        "name": "offloads",
        "validity": {"lateness_p99": "5s", "starved": 1.0},
        "phases": {"warmup": "100ms", "measure": "900ms", "drain": "1s", "sample": "100ms"},
        "transport": {"dpdk": {"ports": ports}},
        "groups": [{"name": "s", "model": {"stream": {"rate": "500/s", "size": "300B"}}, "target": target, "devices": 3}]
    })
}

fn total(result: &Value, count: &str) -> u64 {
    result["groups"][0]["total"][count].as_u64().unwrap()
}

/// Who does which work of the result's first port.
fn work<'a>(result: &'a Value, what: &str) -> &'a str {
    result["ports"][0]["work"][what].as_str().unwrap_or_else(|| panic!("{:#}", result["ports"]))
}

/// The two ends of a virtio queue: whichever generates leaves to the port what it offers, the other does nothing.
#[test]
fn checksums_and_tags_are_right_at_a_peer_that_does_nothing() {
    let _alone = one_at_a_time();
    let folder = std::env::temp_dir().join(format!("nd-offloads-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let path = folder.join("socket");
    for vhost in [true, false] {
        let mut ports = json!([
            {"name": "a", "device": format!("net_vhost,iface={}", path.display())},
            {"name": "b", "device": format!("virtio:{}", path.display())},
        ]);
        let (ours, other) = if vhost { (0, 1) } else { (1, 0) };
        for (port, role, ip) in [(ours, "generator", "10.9.2.1"), (other, "reflector", "10.9.2.2")] {
            ports[port]["role"] = json!(role);
            ports[port]["ip"] = json!(ip);
            ports[port]["vlan"] = json!(100);
        }
        for offloads in [json!(["checksum", "vlan"]), json!("none")] {
            ports[ours]["offloads"] = offloads.clone();
            let mut profile = stream(ports.clone(), "udp://10.9.2.2:7");
            // The second group's checksums are in the frames whoever sends them.
            profile["groups"].as_array_mut().unwrap().push(json!({
                "name": "i", "model": {"stream": {"rate": "100/s", "echo": false}}, "target": "udp://10.9.2.2:7",
                "frame": {"layers": [{"ethernet": {}}, {"vlan": {"id": 100}}, {"ipv4": {}}, {"icmp": {}}], "size": {"fixed": "100B"}}
            }));
            let result = run(&profile).unwrap_or_else(|why| panic!("{why}"));
            let (sent, back) = (total(&result, "messages_sent"), total(&result, "messages_delivered"));
            assert!(sent > 50 && sent == back && total(&result, "corrupted") == 0, "{offloads}: {result:#}");
            let port = result["ports"]
                .as_array()
                .unwrap()
                .iter()
                .find(|p| p["work"]["stamps"] == "software")
                .unwrap();
            let (sent, tags) = match offloads.is_array() {
                true => ("port and software", "port"),
                false => ("software", "software"),
            };
            let said = &port["work"];
            assert_eq!((&said["checksums_sent"], &said["vlan"]), (&json!(sent), &json!(tags)), "{said}");
        }
    }
    std::fs::remove_dir_all(folder).unwrap();
}

/// The kernel looks at every checksum; the tap's driver makes them, or we do.
#[test]
fn the_kernel_finds_no_wrong_checksum() {
    if !enter_new_namespace() {
        return;
    }
    let _alone = one_at_a_time();
    let counter = |name: &str| -> u64 {
        let text = std::fs::read_to_string("/proc/thread-self/net/snmp").unwrap();
        let lines: Vec<Vec<&str>> =
            text.lines().filter(|l| l.starts_with("Udp:")).map(|l| l.split(' ').collect()).collect();
        lines[1][lines[0].iter().position(|title| *title == name).unwrap()].parse().unwrap()
    };
    for (offloads, by) in [(json!("auto"), "software"), (json!(["checksum"]), "port")] {
        let port = json!([{
            "name": "a", "device": "tap:ndtap2", "ip": "10.9.3.1", "peer_mac": "ff:ff:ff:ff:ff:ff", "offloads": offloads
        }]);
        let mut profile = stream(port, "udp://10.9.3.2:7");
        profile["groups"][0]["model"]["stream"]["echo"] = json!(false);
        profile["groups"][0]["frame"] = json!({"vary": [
            {"field": "ipv4.source", "change": {"increment": {"from": "10.9.3.10", "count": 50}}}
        ]});
        profile["groups"][0]["model"]["stream"]["size"] = json!("301B");
        let socket = UdpSocket::bind("0.0.0.0:7").unwrap();
        socket.set_read_timeout(Some(Duration::from_secs(2))).unwrap();
        // The kernel looks when somebody reads.
        let reader = std::thread::spawn(move || {
            let mut bytes = [0; 512];
            std::iter::repeat_with(|| socket.recv(&mut bytes)).take_while(Result::is_ok).count()
        });
        let result = run_with(
            &profile,
            |_| (),
            |_, _| {
                sh("ip addr add 10.9.3.2/24 dev ndtap2");
                sh("ip link set ndtap2 up");
            },
        )
        .unwrap_or_else(|why| panic!("{why}"));
        let heard = reader.join().unwrap();
        assert_eq!((work(&result, "checksums_sent"), counter("InCsumErrors")), (by, 0), "{offloads}");
        assert!(heard > 50, "{offloads}: {heard} of {}", total(&result, "messages_sent"));
    }
}

/// What comes back broken is counted as such, whether the port says it is or we find out.
#[test]
fn wrong_checksums_are_counted_whoever_looks() {
    if !enter_new_namespace() {
        return;
    }
    let _alone = one_at_a_time();
    for (offloads, by) in [(json!(["checksum"]), "port"), (json!("none"), "software")] {
        // Of what comes to the reflector a fifth has a byte changed.
        let ports = json!([
            {"name": "a", "device": "tap:ndtap3", "ip": "10.9.4.1", "peer_mac": "ff:ff:ff:ff:ff:ff", "offloads": offloads},
            {"name": "b", "device": "af_packet:ndtap3", "role": "reflector", "impair": {"corrupt": "20%"}}
        ]);
        let result = run(&stream(ports, "udp://10.9.4.2:7")).unwrap_or_else(|why| panic!("{why}"));
        let receiver =
            result["elements"].as_array().unwrap().iter().find(|e| e["name"] == "a.receiver").unwrap();
        assert_eq!(work(&result, "checksums_received"), by);
        assert!(total(&result, "corrupted") > 5, "{result:#}");
        assert!(
            receiver["drops"]["bad_checksum"].as_u64().unwrap() >= total(&result, "corrupted"),
            "{receiver}"
        );
        // One frame in five, of some hundred.
        let (corrupted, sent) = (total(&result, "corrupted") as f64, total(&result, "messages_sent") as f64);
        assert!((0.1..0.3).contains(&(corrupted / sent)), "{corrupted} of {sent}");
    }
}

#[test]
fn what_a_port_does_not_offer_is_refused() {
    let _alone = one_at_a_time();
    let ports = json!([
        {"name": "a", "device": "pair:offloads", "offloads": ["vlan"]}, {"name": "b", "device": "pair:offloads", "role": "reflector"}
    ]);
    let why = run(&stream(ports, "udp://10.9.5.2:7")).expect_err("a cable has no offloads");
    assert_eq!((why.code, why.at.as_str()), ("ND-92-16", "transport.dpdk.ports[0].offloads"), "{why}");
    assert!(why.what.contains("vlan") && why.what.contains("nothing"), "{why}");
}
