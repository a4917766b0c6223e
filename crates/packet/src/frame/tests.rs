use super::*;
use crate::Layers;
use crate::ethernet::Tags;
use crate::signature::{self, Signature};
use etherparse::{NetSlice, SlicedPacket, TransportSlice};
use proptest::prelude::*;
use serde_json::{Value as Json, json};
use std::net::IpAddr;

pub(super) fn flow() -> Flow {
    Flow {
        source_mac: [2, 0, 0, 0, 0, 1],
        destination_mac: [2, 0, 0, 0, 0, 2],
        source: "10.0.0.1:10000".parse().expect("an address"),
        destination: "10.0.0.2:7".parse().expect("an address"),
    }
}

const SIGNATURE: Signature = Signature { stream: 7, sequence: 41, sent_ns: 123_456_789 };

fn made(layers: Json, vary: Json, sizes: Sizes, measured: bool) -> Result<Program, FrameError> {
    let layers: Vec<Layer> = serde_json::from_value(layers).expect("layers");
    let vary: Vec<Vary> = serde_json::from_value(vary).expect("variation");
    let flow = flow();
    compose(&Recipe {
        layers: &layers,
        vary: &vary,
        sizes: &sizes,
        measured,
        flow: &flow,
        devices: Devices::default(),
        seed: 1,
    })
}

fn program(layers: Json, vary: Json, size: usize) -> Program {
    made(layers, vary, Sizes::Cycle(vec![size]), true).expect("a program")
}

fn next(program: &mut Program) -> Vec<u8> {
    let mut frame = vec![0xaa; program.next_len()];
    assert_ne!(program.write(&mut frame, 0, &SIGNATURE), Written::Nothing);
    frame
}

/// Every checksum of the frame, by another implementation than ours.
pub(super) fn judge(frame: &[u8]) {
    let sliced = SlicedPacket::from_ethernet(frame).expect("a frame that others can read");
    let Some(net) = &sliced.net else { return };
    let (addresses, end): ((IpAddr, IpAddr), _) = match net {
        NetSlice::Ipv4(ip) => {
            let header = ip.header().to_header();
            assert_eq!(header.calc_header_checksum(), header.header_checksum, "{header:?}");
            ((header.source.into(), header.destination.into()), ip.payload().payload)
        }
        NetSlice::Ipv6(ip) => {
            let header = ip.header().to_header();
            ((header.source.into(), header.destination.into()), ip.payload().payload)
        }
        NetSlice::Arp(_) => return,
    };
    match &sliced.transport {
        Some(TransportSlice::Udp(udp)) => {
            let header = udp.to_header();
            assert_eq!(usize::from(header.length), end.len());
            if header.checksum != 0 {
                let right = match addresses {
                    (IpAddr::V4(s), IpAddr::V4(d)) => {
                        header.calc_checksum_ipv4_raw(s.octets(), d.octets(), udp.payload())
                    }
                    (IpAddr::V6(s), IpAddr::V6(d)) => {
                        header.calc_checksum_ipv6_raw(s.octets(), d.octets(), udp.payload())
                    }
                    _ => unreachable!("one version"),
                };
                assert_eq!(right, Ok(header.checksum));
            }
            if header.destination_port == 4789 {
                judge(&udp.payload()[8..]);
            }
        }
        Some(TransportSlice::Tcp(tcp)) => {
            let header = tcp.to_header();
            let right = match addresses {
                (IpAddr::V4(s), IpAddr::V4(d)) => {
                    header.calc_checksum_ipv4_raw(s.octets(), d.octets(), tcp.payload())
                }
                (IpAddr::V6(s), IpAddr::V6(d)) => {
                    header.calc_checksum_ipv6_raw(s.octets(), d.octets(), tcp.payload())
                }
                _ => unreachable!("one version"),
            };
            assert_eq!(right, Ok(header.checksum));
        }
        Some(TransportSlice::Icmpv4(_)) => assert_eq!(crate::checksum::of(end), 0),
        Some(TransportSlice::Icmpv6(icmp)) => {
            let (IpAddr::V6(s), IpAddr::V6(d)) = addresses else { unreachable!("ICMPv6 over IPv6") };
            assert!(icmp.is_checksum_valid(s.octets(), d.octets()));
        }
        _ => {}
    }
}

fn v4_udp() -> Json {
    json!([{"ethernet": {}}, {"ipv4": {}}, {"udp": {}}])
}

#[test]
fn each_device_has_its_own_source() {
    let layers: Vec<Layer> = serde_json::from_value(v4_udp()).expect("layers");
    let sources = ["10.0.0.1", "10.0.0.5"].map(|ip| ip.parse().expect("an address"));
    let (flow, sizes) = (flow(), Sizes::Cycle(vec![60]));
    let devices = Devices { count: 4, ports: 3, sources: &sources };
    let recipe =
        Recipe { layers: &layers, vary: &[], sizes: &sizes, measured: true, flow: &flow, devices, seed: 1 };
    let mut program = compose(&recipe).expect("a program");
    let seen = [0, 1, 2, 3, 1].map(|device| {
        let mut frame = vec![0; 60];
        program.write(&mut frame, device, &SIGNATURE);
        judge(&frame);
        let (source, _) = crate::ipv4::addresses(&frame, 14).expect("addresses");
        format!("{source}:{}", u16::from_be_bytes([frame[34], frame[35]]))
    });
    assert_eq!(
        seen,
        ["10.0.0.1:10000", "10.0.0.5:10001", "10.0.0.1:10002", "10.0.0.5:10000", "10.0.0.5:10001"]
    );
}

#[test]
fn every_layer_is_what_others_read() {
    let frames = [
        v4_udp(),
        json!([{"ethernet": {}}, {"vlan": {"id": 100, "priority": 5}}, {"ipv4": {"dscp": 46, "ecn": 1}}, {"tcp": {"flags": "SA", "sequence": 9}}]),
        json!([{"ethernet": {}}, {"vlan": {"id": 10}}, {"vlan": {"id": 20}}, {"ipv4": {}}, {"icmp": {"identifier": 3}}]),
        json!([{"ethernet": {}}, {"ipv6": {"source": "2001:db8::1", "destination": "2001:db8::2", "flow_label": 5}}, {"udp": {}}]),
        json!([{"ethernet": {}}, {"ipv6": {"source": "2001:db8::1", "destination": "2001:db8::2"}}, {"icmp": {}}]),
        json!([{"ethernet": {}}, {"ipv6": {"source": "2001:db8::1", "destination": "2001:db8::2"}}, {"tcp": {"flags": "A"}}]),
        json!([{"ethernet": {}}, {"ipv4": {}}, {"udp": {}}, {"vxlan": {"vni": 77}}, {"ethernet": {}}, {"ipv4": {"source": "192.168.1.1"}}, {"udp": {}}]),
        json!([{"ethernet": {}}, {"ipv4": {}}, {"udp": {"checksum": true}}, {"vxlan": {}}, {"ethernet": {}}, {"vlan": {"id": 3}}, {"ipv4": {}}, {"tcp": {}}, {"payload": {"text": "odd"}}]),
    ];
    for layers in frames {
        for size in [140, 141, 1514] {
            let frame = next(&mut program(layers.clone(), json!([]), size));
            assert_eq!(frame.len(), size);
            judge(&frame);
        }
    }
}

#[test]
fn tags_labels_and_tunnels_stand_as_their_rfcs_have_them() {
    let layers = json!([{"ethernet": {}}, {"vlan": {"id": 1}}, {"vlan": {"id": 2}},
        {"mpls": {"label": 16, "traffic_class": 3}}, {"mpls": {"label": 17, "ttl": 9}}, {"ipv4": {}}]);
    let frame = next(&mut program(layers, json!([]), 100));
    assert_eq!(frame[12..22], [0x88, 0xa8, 0, 1, 0x81, 0, 0, 2, 0x88, 0x47]);
    assert_eq!(frame[22..30], [0, 1, 6, 64, 0, 1, 0x11, 9]);
    assert_eq!(frame[30], 0x45);

    let layers = json!([{"ethernet": {}}, {"ipv4": {}}, {"gre": {"key": 0x01020304, "sequence": 5}},
        {"ethernet": {}}, {"ipv4": {"source": "192.0.2.1"}}, {"udp": {}}]);
    let frame = next(&mut program(layers, json!([]), 120));
    assert_eq!(frame[23], 47);
    assert_eq!(frame[34..46], [0x30, 0, 0x65, 0x58, 1, 2, 3, 4, 0, 0, 0, 5]);
    judge(&frame[46..]);

    let layers = json!([{"ethernet": {}}, {"arp": {"sender": "10.0.0.1", "target": "10.0.0.9"}}]);
    let frame = next(&mut made(layers, json!([]), Sizes::Cycle(vec![60]), false).expect("a program"));
    let heard = crate::arp::Arp::parse(&frame).expect("ARP");
    assert_eq!((heard.sender_mac, heard.target.to_string()), ([2, 0, 0, 0, 0, 1], "10.0.0.9".to_owned()));
}

#[test]
fn the_tags_that_frames_begin_with_are_known_before_they_are_made() {
    let vlan = |more: Json| json!([{"ethernet": {}}, {"vlan": {"id": 7, "priority": 5}}, more, {"ipv4": {}}]);
    let some = vlan(json!({"vlan": {"id": 4095, "drop_eligible": true, "tpid": 0x8100}}));
    for layers in [v4_udp(), vlan(json!({"mpls": {"label": 16}})), some.clone()] {
        let tags = tags(&serde_json::from_value::<Vec<Layer>>(layers.clone()).expect("layers"));
        let frame = next(&mut program(layers, json!([]), 100));
        assert_eq!(tags, Some(Tags::of(&frame)));
    }
    let mut three = some;
    three.as_array_mut().expect("layers").insert(1, json!({"vlan": {"id": 1}}));
    assert_eq!(tags(&serde_json::from_value::<Vec<Layer>>(three).expect("layers")), None);
}

#[test]
fn a_port_may_put_tags_before_anything() {
    let vary = json!([
        {"field": "ipv4.source", "change": {"increment": {"from": "10.1.0.254", "count": 3}}},
        {"field": "ethernet.source", "change": {"increment": {"from": "02:00:00:00:00:ff", "count": 2}}},
    ]);
    for ids in [&[100][..], &[200, 1]] {
        let tags = Tags::vlans(ids).expect("at most two");
        let mut bare = program(v4_udp(), vary.clone(), 60);
        let mut tagged = bare.clone().tagged(&tags);
        assert_eq!((tagged.longest(), tagged.is_signed()), (60 + 4 * ids.len(), true));
        for _ in 0..7 {
            let (mut bare, tagged) = (next(&mut bare), next(&mut tagged));
            judge(&tagged);
            assert_eq!(Tags::of(&tagged), tags);
            bare.splice(12..12, tags.bytes().iter().copied());
            assert_eq!(bare, tagged);
        }
    }
}

#[test]
fn fields_vary_together_and_checksums_follow() {
    let vary = json!([
        {"field": "ipv4.source", "change": {"increment": {"from": "10.1.0.254", "count": 3}}},
        {"field": "ipv4.destination", "change": {"list": ["10.2.0.1", "10.2.9.9"]}, "each": 3},
        {"field": "udp.source_port", "change": {"decrement": {"from": 1025, "count": 2, "step": 5}}},
        {"field": "ethernet.source", "change": {"increment": {"from": "02:00:00:00:00:ff", "count": 2}}},
        {"field": "ethernet.destination", "change": {"random": {"from": 0, "to": 0x0000ffffffffu64}}},
    ]);
    let mut program = program(v4_udp(), vary, 60);
    let mut seen = Vec::new();
    for _ in 0..7 {
        let frame = next(&mut program);
        judge(&frame);
        assert_eq!(Signature::parse(&frame[42..]), Some(SIGNATURE));
        let (source, destination) = crate::ipv4::addresses(&frame, 14).expect("addresses");
        let port = u16::from_be_bytes([frame[34], frame[35]]);
        assert_eq!(&frame[6..10], &[2, 0, 0, 0]);
        seen.push(format!("{source} {destination} {port} {:x}{:02x}", frame[10], frame[11]));
    }
    assert_eq!(
        seen,
        [
            "10.1.0.254 10.2.0.1 1025 0ff",
            "10.1.0.255 10.2.0.1 1020 100",
            "10.1.1.0 10.2.0.1 1025 0ff",
            "10.1.0.254 10.2.9.9 1020 100",
            "10.1.0.255 10.2.9.9 1025 0ff",
            "10.1.1.0 10.2.9.9 1020 100",
            "10.1.0.254 10.2.0.1 1025 0ff",
        ]
    );
}

#[test]
fn sizes_come_as_asked() {
    let cycle = Sizes::weighted(&[(60, 7), (590, 4), (1514, 1)]);
    let Sizes::Cycle(order) = &cycle else { unreachable!("a cycle") };
    assert_eq!(order.len(), 12);
    assert_eq!([60, 590, 1514].map(|size| order.iter().filter(|s| **s == size).count()), [7, 4, 1]);
    assert!(order.windows(3).all(|three| three != [590; 3]), "evenly spread: {order:?}");
    let mut program = made(v4_udp(), json!([]), cycle.clone(), true).expect("a program");
    assert_eq!(program.longest(), 1514);
    assert!((program.mean_len() - 357.8).abs() < 0.1, "{}", program.mean_len());
    for expected in order.iter().chain(order) {
        let frame = next(&mut program);
        assert_eq!(frame.len(), *expected);
        judge(&frame);
    }
    let mut any = made(v4_udp(), json!([]), Sizes::Random(60, 70), true).expect("a program");
    let lens: std::collections::BTreeSet<usize> = (0..500).map(|_| next(&mut any).len()).collect();
    assert_eq!(lens, (60..=70).collect());
}

#[test]
fn a_recording_is_sent_as_it_is() {
    let mut program = Program::replay([vec![1; 60], vec![2; 100]]);
    assert_eq!(
        (next(&mut program), next(&mut program), next(&mut program)),
        (vec![1; 60], vec![2; 100], vec![1; 60])
    );
    assert!(!program.is_signed());
    let mut none = Program::replay([]);
    assert_eq!((none.next_len(), none.write(&mut [], 0, &SIGNATURE)), (0, Written::Nothing));
}

#[test]
fn each_mistake_is_named() {
    let mistake = |layers: Json, vary: Json, size: usize| {
        let error = made(layers, vary, Sizes::Cycle(vec![size]), true).expect_err("a mistake");
        assert!(!error.fix.is_empty());
        error.to_string()
    };
    let vary = |field: &str, change: Json| mistake(v4_udp(), json!([{"field": field, "change": change}]), 60);
    let five = || json!({"increment": {"from": 5, "count": 2}});
    let said = [
        mistake(json!([]), json!([]), 60),
        mistake(json!([{"ipv4": {}}]), json!([]), 60),
        mistake(json!([{"ethernet": {}}, {"udp": {}}]), json!([]), 60),
        mistake(json!([{"ethernet": {}}, {"ipv4": {}}, {"udp": {}}, {"vxlan": {}}]), json!([]), 90),
        mistake(json!([{"ethernet": {}}, {"ipv6": {}}]), json!([]), 90),
        mistake(json!([{"ethernet": {}}, {"vlan": {"id": 4096}}]), json!([]), 90),
        mistake(json!([{"ethernet": {}}, {"ipv4": {}}, {"tcp": {"flags": "X"}}]), json!([]), 90),
        mistake(json!([{"ethernet": {}}, {"payload": {"hex": "0"}}]), json!([]), 90),
        mistake(json!([{"ethernet": {}}, {"ipv4": {}}, {"tcp": {}}]), json!([]), 60),
        mistake(v4_udp(), json!([]), 59),
        mistake(v4_udp(), json!([]), 20_000),
        vary("ipv4", five()),
        vary("ipv6.source", five()),
        vary("ipv4[1].source", five()),
        vary("udp.port", five()),
        vary("udp.source_port", json!({"increment": {"from": 65535, "count": 2}})),
        vary("udp.source_port", json!({"decrement": {"from": 0, "count": 2}})),
        vary("udp.source_port", json!({"random": {"from": 9, "to": 1}})),
        vary("udp.source_port", json!({"list": []})),
        vary("udp.source_port", json!({"list": ["10.0.0.1"]})),
        vary("ipv4.source", json!({"list": ["10.0.0.256"]})),
    ];
    let expected = [
        "layers: there is none",
        "layers[0].ipv4: a frame begins with ethernet",
        "layers[1].udp: udp cannot follow ethernet",
        "layers[3].vxlan: nothing follows",
        "layers[1].ipv6.source: neither the port nor the target has an address of this IP version",
        "layers[1].vlan.id: 4096 is more than 4095",
        "layers[2].tcp.flags: 'X' is no TCP flag",
        "layers[1].payload.hex: \"0\" is no row of bytes",
        "size: a frame of 60 bytes is too short: headers and payload take 54, the signature 18 (all without FCS)",
        "size: a frame of 59 bytes (without FCS) is not between 60 and 16380",
        "size: a frame of 20000 bytes (without FCS) is not between 60 and 16380",
        "vary[0].field: \"ipv4\" names no field of a layer",
        "vary[0].field: the frame has no layer \"ipv6\"; it has ethernet, ipv4, udp",
        "vary[0].field: the frame has no layer \"ipv4[1]\"; it has ethernet, ipv4, udp",
        "vary[0].field: udp has no field \"port\" that can vary; it has source_port, destination_port",
        "vary[0].change.increment.count: 2 values run out of the field's range, 0 to 65535",
        "vary[0].change.decrement.count: 2 values run out of the field's range, 0 to 65535",
        "vary[0].change.random: from is greater than to",
        "vary[0].change.list: there is no value",
        "vary[0].change.list[0]: \"10.0.0.1\" is not a number",
        "vary[0].change.list[0]: \"10.0.0.256\" is not an IPv4 address",
    ];
    assert_eq!(said, expected);
    let twice =
        json!([{"field": "ipv4.source", "change": five()}, {"field": "ipv4.source", "change": five()}]);
    assert_eq!(mistake(v4_udp(), twice, 60), "vary[1].field: ipv4.source varies already, in vary[0]");
    let layers = json!([{"ethernet": {}}, {"ipv4": {}}, {"udp": {}}, {"payload": {}}]);
    let late = json!([{"field": "payload.0", "change": five()}]);
    assert!(mistake(layers, late, 60).contains("no room for it before the signature"));
}

#[test]
fn a_payload_can_vary_and_an_ipv6_address_in_its_lower_half() {
    let layers = json!([{"ethernet": {}}, {"ipv6": {"source": "::", "destination": "2001:db8::2"}}, {"udp": {}},
        {"payload": {"hex": "de ad be ef 00 00 00 00", "fill": "increment"}}]);
    let vary = json!([
        {"field": "ipv6.source", "change": {"increment": {"from": "2001:db8:1:2::ffff", "count": 2}}},
        {"field": "payload.4", "change": {"increment": {"from": 1, "count": 100}}},
    ]);
    let mut program = program(layers, vary, 120);
    for n in 1..5u8 {
        let frame = next(&mut program);
        judge(&frame);
        assert_eq!(frame[62..70], [0xde, 0xad, 0xbe, 0xef, 0, 0, 0, n]);
        assert_eq!(frame[70..74], [0, 1, 2, 3]);
        assert_eq!(frame[22..30], [0x20, 1, 0xd, 0xb8, 0, 1, 0, 2]);
    }
}

/// A stack of layers, and names of fields that can vary in it.
fn stack() -> impl Strategy<Value = (Json, Vec<&'static str>)> {
    let v4 = json!({"ipv4": {"source": "10.3.2.1"}});
    let v6 = json!({"ipv6": {"source": "2001:db8::9", "destination": "2001:db8::a"}});
    let inner = [
        (
            vec![v4.clone(), json!({"udp": {}}), json!({"payload": {"fill": "increment"}})],
            vec!["ipv4.source", "ipv4.ttl", "udp.source_port"],
        ),
        (vec![v4.clone(), json!({"tcp": {"flags": "A"}})], vec!["ipv4.dscp", "tcp.sequence", "tcp.flags"]),
        (
            vec![v4.clone(), json!({"icmp": {}}), json!({"payload": {"fill": "random"}})],
            vec!["icmp.sequence", "ipv4.identification"],
        ),
        (vec![v6.clone(), json!({"udp": {}})], vec!["ipv6.flow_label", "udp.destination_port"]),
        (vec![v6, json!({"icmp": {}})], vec!["ipv6.hop_limit", "icmp.identifier"]),
    ];
    let outer = [
        (vec![], vec![]),
        (vec![json!({"vlan": {"id": 9}})], vec!["vlan.id", "vlan.priority"]),
        (
            vec![v4, json!({"udp": {"checksum": true}}), json!({"vxlan": {}}), json!({"ethernet": {}})],
            vec!["ipv4.destination", "vxlan.vni"],
        ),
    ];
    (proptest::sample::select(inner.to_vec()), proptest::sample::select(outer.to_vec())).prop_map(
        |((inner, mut names), (outer, more))| {
            let layers = [vec![json!({"ethernet": {}})], outer, inner].concat();
            names.extend(more);
            let both = names.iter().filter(|n| n.starts_with("udp")).count() > 0
                && layers.iter().filter(|l| l.get("ipv4").is_some()).count() > 1;
            names.retain(|name| !(both && *name == "udp.destination_port"));
            (json!(layers), names)
        },
    )
}

proptest! {
    #[test]
    fn whatever_varies_checksums_are_right(
        (layers, names) in stack(),
        seed in any::<u32>(),
        size in 140usize..400,
    ) {
        let least = |name: &str| if name == "udp.destination_port" { 5000 } else { 0 };
        let most = |name: &str| match name {
            "udp.destination_port" | "udp.source_port" | "icmp.sequence" | "icmp.identifier"
            | "ipv4.identification" => 65_535u64,
            "vlan.priority" => 7,
            "vlan.id" => 4095,
            "ipv4.dscp" => 63,
            "ipv4.ttl" | "ipv6.hop_limit" | "tcp.flags" => 255,
            "ipv6.flow_label" => 0xf_ffff,
            "vxlan.vni" => 0xff_ffff,
            _ => u64::from(u32::MAX),
        };
        // TCP's length of options is not in the flags' byte, so any flags will do.
        let vary: Vec<Json> = names.iter()
            .map(|name| json!({"field": name, "change": {"random": {"from": least(name), "to": most(name)}}}))
            .collect();
        let layers: Vec<Layer> = serde_json::from_value(layers).expect("layers");
        let vary: Vec<Vary> = serde_json::from_value(json!(vary)).expect("variation");
        let (flow, sizes) = (flow(), Sizes::Random(size, size + 3));
        let recipe = Recipe { layers: &layers, vary: &vary, sizes: &sizes, measured: true, flow: &flow, devices: Devices::default(), seed: seed.into() };
        let mut program = compose(&recipe).expect("a program");
        let mut leaving = compose_for(&recipe, ChecksumOffload::All).expect("a program");
        for _ in 0..20 {
            let frame = next(&mut program);
            judge(&frame);
            // What is left to the port is all that is missing.
            let mut unfinished = next(&mut leaving);
            let found = Layers::find(&frame).expect("whole");
            prop_assert_eq!(leaving.offloaded().is_some(), matches!(found.protocol, 6 | 17));
            if let Some(left) = leaving.offloaded() {
                prop_assert_eq!((left.ip, left.l4, left.v6, left.tcp), (found.ip, found.l4, found.is_v6(), found.protocol == 6));
                let transport = left.l4 + if left.tcp { 16 } else { 6 };
                for at in [Some(transport), (!left.v6).then_some(left.ip + 10)].into_iter().flatten() {
                    prop_assert_eq!(&unfinished[at..at + 2], &[0, 0]);
                    unfinished[at..at + 2].copy_from_slice(&frame[at..at + 2]);
                }
            }
            prop_assert_eq!(&unfinished, &frame);
            let at = (frame.len() - signature::LEN) & !1;
            prop_assert_eq!(Signature::parse(&frame[at..]), Some(SIGNATURE));
            prop_assert!(Layers::find(&frame).is_ok());
        }
    }
}

#[test]
fn many_frames_at_once_are_the_same_as_one_by_one() {
    let vary = json!([
        {"field": "ethernet.source", "change": {"increment": {"from": "02:00:00:00:01:00", "count": 50}}},
        {"field": "ipv4.source", "change": {"increment": {"from": "10.1.0.0", "count": 77}}},
        {"field": "ipv4.destination", "change": {"decrement": {"from": "10.2.0.200", "count": 11}}, "each": 3},
        {"field": "udp.source_port", "change": {"random": {"from": 1024, "to": 65535}}},
        {"field": "udp.destination_port", "change": {"list": [7, 9, 5000]}},
    ]);
    let vxlan = json!([{"ethernet": {}}, {"ipv4": {}}, {"udp": {}}, {"vxlan": {}}, {"ethernet": {}}, {"ipv4": {}}, {"udp": {}}]);
    let inner = json!([{"field": "ipv4[1].source", "change": {"random": {"from": 1, "to": 9}}}]);
    for (layers, vary, sizes) in [
        (v4_udp(), vary.clone(), Sizes::Cycle(vec![60])),
        (v4_udp(), vary.clone(), Sizes::Cycle(vec![60, 594, 60, 1514])),
        (v4_udp(), vary, Sizes::Random(60, 90)),
        (vxlan, inner, Sizes::Cycle(vec![124, 200])),
    ] {
        let mut one = made(layers, vary, sizes, true).expect("a program");
        let mut many = one.clone();
        let mut sequence = 0;
        for burst in [1, ROWS, 3, 0, ROWS, 17, 2].into_iter().cycle().take(50) {
            let mut marks = Marks::NONE;
            for row in 0..burst {
                let signature = Signature { stream: 9, sequence, sent_ns: sequence * 977 };
                marks.set(row, row as u32, &signature);
                sequence += 1;
            }
            let mut frames: Vec<Vec<u8>> = (0..burst).map(|row| vec![0xaa; many.len_ahead(row)]).collect();
            many.write_all(&mut frames.iter_mut().map(Vec::as_mut_slice).collect::<Vec<_>>(), &marks);
            for (row, frame) in frames.iter().enumerate() {
                let mut alone = vec![0x55; one.next_len()];
                let sequence = marks.sequences[row];
                let signature = Signature { stream: 9, sequence, sent_ns: sequence * 977 };
                assert_eq!(one.write(&mut alone, row as u32, &signature), Written::Signed);
                assert_eq!(*frame, alone, "frame {row} of {burst}");
                judge(frame);
            }
        }
    }
}

#[test]
fn only_what_a_port_knows_how_to_make_is_left_to_it() {
    let left = |layers: Json, vary: Json| {
        let layers: Vec<Layer> = serde_json::from_value(layers).expect("layers");
        let vary: Vec<Vary> = serde_json::from_value(vary).expect("variation");
        let (flow, sizes) = (flow(), Sizes::Cycle(vec![200]));
        let devices = Devices::default();
        let recipe = Recipe {
            layers: &layers,
            vary: &vary,
            sizes: &sizes,
            measured: true,
            flow: &flow,
            devices,
            seed: 1,
        };
        assert_eq!(compose(&recipe).expect("a program").offloaded(), None);
        let program = compose_for(&recipe, ChecksumOffload::Transport).expect("a program");
        let tagged = program.clone().tagged(&Tags::vlans(&[5]).expect("one")).offloaded();
        assert_eq!(
            program.offloaded().map(|left| (left.ip + 4, left.l4 + 4)),
            tagged.map(|left| (left.ip, left.l4))
        );
        program.offloaded().map(|left| (left.ip, left.l4))
    };
    assert_eq!(left(v4_udp(), json!([])), Some((14, 34)));
    let tagged = json!([{"ethernet": {}}, {"vlan": {"id": 3}}, {"ipv6": {"source": "::1", "destination": "::2"}}, {"tcp": {}}]);
    assert_eq!(left(tagged, json!([])), Some((18, 58)));
    let none = [
        json!([{"ethernet": {}}, {"ipv4": {}}, {"icmp": {}}]),
        json!([{"ethernet": {}}, {"ipv4": {}}, {"udp": {"checksum": false}}]),
        json!([{"ethernet": {}}, {"mpls": {"label": 1}}, {"ipv4": {}}, {"udp": {}}]),
        json!([{"ethernet": {}}, {"ipv4": {}}, {"gre": {}}, {"ipv4": {}}, {"udp": {}}]),
        json!([{"ethernet": {"ethertype": 1}}, {"ipv4": {}}, {"udp": {}}]),
        json!([{"ethernet": {}}, {"ipv4": {"protocol": 6}}, {"udp": {}}]),
    ];
    for layers in none {
        assert_eq!(left(layers.clone(), json!([])), None, "{layers}");
    }
    let protocol = json!([{"field": "ipv4.protocol", "change": {"list": [6, 17]}}]);
    assert_eq!(left(v4_udp(), protocol), None);
}
