//! The same of ports, of where their elements are placed, and of the frames that they send.

use super::{dpdk, judge, with};
use serde_json::{Value, json};

/// What there is to be placed.
const ALL: [&str; 3] = ["a.generator", "a.receiver", "b.reflector"];

#[test]
fn each_fault_of_ports_is_named_with_its_place_and_a_remedy() {
    let d = |at: &str, value: Value| with(dpdk(), at, value);
    let with_port = |keys: Value| {
        let mut profile = dpdk();
        let port = &mut profile["transport"]["dpdk"]["ports"][0];
        keys.as_object().unwrap().iter().for_each(|(key, value)| port[key] = value.clone());
        profile.to_string()
    };
    let segmented = json!([{"ethernet": {}}, {"ipv4": {}}, {"tcp": {"segment": 1460}}]);
    judge(vec![
        ("cut off", "{\"name\": \"x\"".into(), "ND-104-01", "", "EOF"),
        (
            "half a cable",
            d("/transport/dpdk/ports/1/device", json!("net_ring0")),
            "ND-104-06",
            "transport.dpdk.ports",
            "two ports",
        ),
        (
            "bad MAC",
            d("/transport/dpdk/ports/0/mac", json!("02:00:00:00:00")),
            "ND-104-04",
            "transport.dpdk.ports[0].mac",
            "02:00",
        ),
        (
            "an MTU below IPv4's least",
            d("/transport/dpdk/ports/0/mtu", json!(100)),
            "ND-104-05",
            "transport.dpdk.ports[0].mtu",
            "576",
        ),
        (
            "a maximum segment size that no frame has",
            d("/transport/dpdk/ports/0/tcp", json!({"mss": 9561})),
            "ND-104-05",
            "transport.dpdk.ports[0].tcp.mss",
            "9560",
        ),
        (
            "a window below a segment",
            d("/transport/dpdk/ports/0/tcp", json!({"window": "1KiB"})),
            "ND-104-05",
            "transport.dpdk.ports[0].tcp.window",
            "2KiB",
        ),
        (
            "bad address",
            d("/transport/dpdk/ports/0/ip", json!("10.1")),
            "ND-104-04",
            "transport.dpdk.ports[0].ip",
            "IP",
        ),
        (
            "a prefix too long",
            d("/transport/dpdk/ports/0/ip", json!("10.0.0.1/33")),
            "ND-104-04",
            "transport.dpdk.ports[0].ip",
            "0 and 32",
        ),
        (
            "two addresses of a kind",
            d("/transport/dpdk/ports/0/ip", json!(["10.0.0.1", "10.0.0.2"])),
            "ND-104-07",
            "transport.dpdk.ports[0].ip",
            "one IPv4 and one IPv6",
        ),
        (
            "a gateway of the kind that the port has no address of",
            with_port(json!({"ip": "10.0.0.1/24", "gateway": ["10.0.0.254", "fd00::fe"]})),
            "ND-104-07",
            "transport.dpdk.ports[0].ip",
            "fd00::fe",
        ),
        (
            "no queue",
            d("/transport/dpdk/ports/0/queues", json!(0)),
            "ND-104-05",
            "transport.dpdk.ports[0].queues",
            "1 to 16",
        ),
        (
            "more queues than a port can have",
            d("/transport/dpdk/ports/0/queues", json!(17)),
            "ND-104-05",
            "transport.dpdk.ports[0].queues",
            "1 to 16",
        ),
        (
            "a longer burst than a batch",
            d("/transport/dpdk/ports/0/burst", json!(129)),
            "ND-104-05",
            "transport.dpdk.ports[0].burst",
            "1 to 128",
        ),
        (
            "a VLAN as text",
            d("/transport/dpdk/ports/0/vlan", json!("100")),
            "ND-104-04",
            "transport.dpdk.ports[0].vlan",
            "a number like 100",
        ),
        (
            "no VLAN",
            d("/transport/dpdk/ports/0/vlan", json!(4095)),
            "ND-104-05",
            "transport.dpdk.ports[0].vlan",
            "4094",
        ),
        (
            "too many VLANs",
            d("/transport/dpdk/ports/0/vlan", json!([1, 2, 3])),
            "ND-104-05",
            "transport.dpdk.ports[0].vlan",
            "two",
        ),
        (
            "a gateway to everybody",
            d("/transport/dpdk/ports/0/gateway", json!("10.0.0.254")),
            "ND-104-07",
            "transport.dpdk.ports[0].ip",
            "prefix",
        ),
        (
            "a gateway elsewhere",
            with_port(json!({"ip": "10.0.0.1/24", "gateway": "10.0.1.254"})),
            "ND-104-07",
            "transport.dpdk.ports[0].gateway",
            "own network",
        ),
        (
            "a gateway that is the port itself",
            with_port(json!({"ip": "10.0.0.1/24", "gateway": "10.0.0.1"})),
            "ND-104-07",
            "transport.dpdk.ports[0].gateway",
            "no neighbour",
        ),
        (
            "a gateway and a peer",
            with_port(json!({"ip": "10.0.0.1/24", "gateway": "10.0.0.2", "peer_mac": "02:00:00:00:00:01"})),
            "ND-104-07",
            "transport.dpdk.ports[0].gateway",
            "one of them",
        ),
        (
            "an impairment that cannot be",
            with_port(json!({"impair": {"delay": {"constant": "61s"}}})),
            "ND-104-04",
            "transport.dpdk.ports[0].impair.delay.constant",
            "at most",
        ),
        (
            "an impairment without a unit",
            with_port(json!({"impair": {"delay": {"constant": 40}}})),
            "ND-104-04",
            "transport.dpdk.ports[0].impair.delay.constant",
            "40",
        ),
        (
            "an unknown impairment",
            with_port(json!({"impair": {"los": {"independent": "1%"}}})),
            "ND-104-02",
            "transport.dpdk.ports[0].impair.los",
            "loss",
        ),
        (
            "a change of nothing",
            with_port(json!({"impair_timeline": {"steps": [{"at": "1s", "impair": {}}]}})),
            "ND-104-07",
            "transport.dpdk.ports[0].impair_timeline",
            "Give impair",
        ),
        (
            "a step before the one before",
            with_port(json!({"impair": {}, "impair_timeline": {"steps": [
                {"at": "2s", "impair": {}}, {"at": "1s", "impair": {}}
            ]}})),
            "ND-104-04",
            "transport.dpdk.ports[0].impair_timeline.steps[1].at",
            "order",
        ),
        (
            "a step that cannot be",
            with_port(json!({"impair": {}, "impair_timeline": {"steps": [
                {"at": "2s", "impair": {"loss": {"periodic": 0}}}
            ]}})),
            "ND-104-04",
            "transport.dpdk.ports[0].impair_timeline.steps[0].impair.loss.periodic",
            "every",
        ),
        (
            "an impairment that is placed nowhere",
            {
                let mut profile: Value = serde_json::from_str(&with_port(json!({"impair": {}}))).unwrap();
                profile["transport"]["dpdk"]["placement"] = json!([{"elements": ALL}]);
                profile.to_string()
            },
            "ND-104-06",
            "transport.dpdk.placement",
            "a.impair",
        ),
        (
            "no such offload",
            with_port(json!({"offloads": ["checksums"]})),
            "ND-104-04",
            "transport.dpdk.ports[0].offloads",
            "a list of some of",
        ),
        (
            "signatures in frames that are segmented",
            d("/groups/0/frame", json!({"layers": segmented, "size": {"fixed": "9000B"}})),
            "ND-104-07",
            "groups[0].frame.layers[2].tcp.segment",
            "\"measured\": false",
        ),
        (
            "less than a segment",
            d("/groups/0/frame", json!({"layers": segmented, "size": {"fixed": "1000B"}, "measured": false})),
            "ND-104-07",
            "groups[0].frame.layers[2].tcp.segment",
            "fits into one segment",
        ),
        (
            "time stamps of a reflector",
            d("/transport/dpdk/ports/1/offloads", json!(["vlan", "timestamp"])),
            "ND-104-07",
            "transport.dpdk.ports[1].offloads",
            "generator",
        ),
        (
            "time stamps from before the impairment",
            with_port(json!({"impair": {}, "offloads": ["timestamp"]})),
            "ND-104-07",
            "transport.dpdk.ports[0].offloads",
            "impair",
        ),
        (
            "a gateway of a reflector",
            d("/transport/dpdk/ports/1/gateway", json!("10.0.0.254")),
            "ND-104-07",
            "transport.dpdk.ports[1].gateway",
            "generator",
        ),
        (
            "no such role",
            d("/transport/dpdk/ports/0/role", json!("mirror")),
            "ND-104-02",
            "transport.dpdk.ports[0].role",
            "reflector",
        ),
        ("no such port", d("/groups/0/port", json!("b")), "ND-104-06", "groups[0].port", "generator"),
        ("not over dpdk", d("/groups/0/model", json!({"mqtt": {}})), "ND-104-07", "groups[0].", ""),
        (
            "misplaced",
            d("/transport/dpdk/placement", json!([{"elements": ["a.generater"]}])),
            "ND-104-06",
            "transport.dpdk.placement[0].elements[0]",
            "\"a.generator\"",
        ),
        (
            "forwards what it generates",
            d("/transport/dpdk/ports/0/to", json!("b")),
            "ND-104-07",
            "transport.dpdk.ports[0].to",
            "l2fwd",
        ),
        (
            "forwards how",
            d("/transport/dpdk/ports/0/forward", json!("io")),
            "ND-104-07",
            "transport.dpdk.ports[0].forward",
            "l2fwd",
        ),
        (
            "forwards to nobody",
            d(
                "/transport/dpdk/ports/1",
                json!({"name": "b", "device": "pair:x", "role": "l2fwd", "to": "a"}),
            ),
            "ND-104-06",
            "transport.dpdk.ports[1].to",
            "send frames back",
        ),
        (
            "a core and a node",
            d("/transport/dpdk/placement", json!([{"core": 0, "node": 0, "elements": ALL}])),
            "ND-104-07",
            "transport.dpdk.placement[0].core",
            "Give core, or",
        ),
        (
            "nobody to share with",
            d("/transport/dpdk/placement", json!([{"threads": "shared", "elements": ALL}])),
            "ND-104-07",
            "transport.dpdk.placement[0].threads",
            "after",
        ),
        (
            "no such threads",
            d("/transport/dpdk/placement", json!([{"threads": "alone", "elements": ALL}])),
            "ND-104-02",
            "transport.dpdk.placement[0].threads",
            "own",
        ),
        (
            "placed nowhere",
            d("/transport/dpdk/placement", json!([{"elements": ["a.generator", "a.receiver"]}])),
            "ND-104-06",
            "transport.dpdk.placement",
            "b.reflector",
        ),
        (
            "placed twice",
            d(
                "/transport/dpdk/placement",
                json!([{"elements": ["a.generator", "a.receiver", "b.reflector", "b.reflector"]}]),
            ),
            "ND-104-06",
            "transport.dpdk.placement[0].elements[3]",
            "once",
        ),
    ]);
}
