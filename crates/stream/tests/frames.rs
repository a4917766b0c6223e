//! Frames of all kinds from one port of ours to another: what was asked for is sent, and all of it is measured.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use pcap_file::pcap::{PcapHeader, PcapPacket, PcapWriter};
use pcap_file::{DataLink, TsResolution};
use run::SetupError;
use serde_json::{Value, json};
use std::fs::File;
use std::time::Duration;

/// Groups that send from `a` to `b`, where all is received.
fn profile(cable: &str, groups: Vec<Value>) -> Value {
    let group = |(i, frame): (usize, Value)| {
        json!({
            "name": format!("g{i}"),
            "model": {"stream": {"echo": false}},
            "target": "udp://10.9.0.2:7",
            "devices": 2,
            "port": "a",
            "frame": frame
        })
    };
    json!({
        "name": "frames",
        "phases": {"warmup": "100ms", "measure": "400ms", "drain": "20s", "sample": "100ms"},
        "transport": {"dpdk": {"ports": [
            {"name": "a", "device": format!("pair:{cable}"), "ip": "10.9.0.1", "speed": "1Gbit/s"},
            {"name": "b", "device": format!("pair:{cable}"), "ip": "10.9.0.2"}
        ]}},
        "groups": groups.into_iter().enumerate().map(group).collect::<Vec<_>>()
    })
}

fn start(profile: &Value) -> Result<Value, SetupError> {
    let _alone = crate::lab::one_at_a_time();
    crate::lab::run(profile)
}

/// What was intended, sent, delivered, and the bytes sent. On a busy machine not all that is intended is sent.
fn counts(result: &Value, group: usize) -> [u64; 4] {
    let counts = ["messages_intended", "messages_sent", "messages_delivered", "bytes_sent"]
        .map(|name| result["groups"][group]["measured"][name].as_u64().unwrap());
    assert!(0 < counts[1] && counts[1] <= counts[0], "{result:#}");
    counts
}

#[test]
fn every_kind_of_frame_arrives_whole() {
    let ethernet = || json!({"ethernet": {}});
    let v6 = || json!({"ipv6": {"source": "fd09::1", "destination": "fd09::2"}});
    let kinds = [
        json!([ethernet(), {"vlan": {"id": 10}}, {"vlan": {"id": 20}}, {"ipv4": {}}, {"udp": {}}]),
        json!([ethernet(), {"ipv4": {}}, {"tcp": {"flags": "A"}}]),
        json!([ethernet(), v6(), {"icmp": {}}]),
        json!([ethernet(), {"mpls": {"label": 16}}, {"ipv4": {}}, {"udp": {}}]),
        json!([ethernet(), {"ipv4": {}}, {"gre": {}}, v6(), {"udp": {}}]),
        json!([ethernet(), {"ipv4": {}}, {"udp": {}}, {"vxlan": {"vni": 5}}, ethernet(), {"ipv4": {}}, {"tcp": {}}]),
        json!([ethernet(), {"payload": {"fill": "random"}}]),
    ];
    let frame = |layers| {
        json!({
            "layers": layers,
            "size": {"fixed": "200B"},
            "rate": {"frames": "5k/s"},
        })
    };
    let result = start(&profile("kinds", kinds.into_iter().map(frame).collect())).unwrap();
    for group in 0..7 {
        let [intended, sent, delivered, bytes] = counts(&result, group);
        assert_eq!((intended, delivered), (2_000, sent), "group {group}: {result:#}");
        assert_eq!(bytes, 196 * sent);
        assert_eq!(result["groups"][group]["measured"]["bytes_received"], bytes);
    }
}

#[test]
fn rates_sizes_and_variation_are_as_asked() {
    let groups = vec![
        json!({"size": {"imix": {}}, "rate": {"l2": "10Mbit/s"}}),
        json!({"size": {"fixed": "64B"}, "rate": {"line": "1%"}}),
        json!({"size": {"random": {"from": "64B", "to": "128B"}}, "rate": {"frames": "8k/s"}, "gaps": "poisson"}),
        json!({
            "size": {"genome": "ab"},
            "rate": {"frames": "10k/s"},
            "vary": [{"field": "ipv4.source", "change": {"increment": {"from": "10.9.1.0", "count": 200}}}],
            "priority": 7
        }),
    ];
    let result = start(&profile("rates", groups)).unwrap();
    let all: Vec<[u64; 4]> = (0..4).map(|group| counts(&result, group)).collect();
    for [_, sent, delivered, _] in &all {
        assert_eq!(delivered, sent, "{result:#}");
    }
    let mean = |group: usize| all[group][3] as f64 / all[group][1] as f64;
    // 10 Mbit/s of frames whose mean is 361.83 bytes with FCS, for 0.4 s.
    assert!(all[0][0].abs_diff(1_382) <= 1 && (mean(0) - 357.8).abs() < 10.0, "{:?}", all[0]);
    // 1 % of 1 Gbit/s in frames that take 84 bytes on the wire.
    assert!(all[1][0].abs_diff(5_952) <= 1, "{:?}", all[1]);
    // A Poisson process of mean 3200 has a standard deviation of 57.
    assert!(all[2][0].abs_diff(3_200) < 300 && (mean(2) - 92.0).abs() < 5.0, "{:?}", all[2]);
    assert!(all[3][0] == 4_000 && (mean(3) - 92.0).abs() < 1.0, "{:?}", all[3]);
}

/// A recording of frames to nobody in particular, 40 ms long.
fn recording(folder: &std::path::Path) -> String {
    let path = folder.join("x.pcap");
    let header = PcapHeader {
        datalink: DataLink::ETHERNET,
        ts_resolution: TsResolution::NanoSecond,
        ..PcapHeader::default()
    };
    let mut file = PcapWriter::with_header(File::create(&path).unwrap(), header).unwrap();
    for (at, len) in [(0, 60), (10, 100), (15, 1514), (40, 60)] {
        let mut data = vec![0u8; len];
        data[12..14].copy_from_slice(&[0x88, 0xb5]);
        let packet = PcapPacket::new(Duration::from_millis(5_000 + at), len as u32, &data);
        file.write_packet(&packet).unwrap();
    }
    path.to_str().unwrap().to_owned()
}

#[test]
fn a_recording_is_replayed_at_its_own_pace_or_another() {
    let folder = tempfile::tempdir().unwrap();
    let file = recording(folder.path());
    let own = json!({"replay": {"file": file, "own_timing": true, "rest": "10ms"}, "measured": false});
    let fast = json!({"replay": {"file": file}, "rate": {"frames": "10k/s"}, "measured": false});
    let result = start(&profile("replay", vec![own, fast])).unwrap();
    // Rounds take 50 ms: eight of four frames.
    let [own, fast] = [0, 1].map(|group| counts(&result, group));
    assert_eq!((own[0], own[2], fast[0]), (32, 0, 4_000), "{result:#}");
    if own[1] == 32 {
        assert_eq!(own[3], 8 * (60 + 100 + 1514 + 60));
    }
    let drops = result["elements"].as_array().unwrap().iter().find(|e| e["name"] == "b.arp-nd").unwrap();
    assert!(drops["drops"]["not_for_us"].as_u64().unwrap() >= own[1] + fast[1], "{drops}");
}

#[test]
fn who_has_priority_goes_first() {
    let group = |priority: u8| json!({"rate": {"frames": "200M/s"}, "priority": priority});
    let result = start(&profile("first", vec![group(1), group(6), group(0)])).unwrap();
    let sent = [0, 1, 2].map(|group| result["groups"][group]["total"]["messages_sent"].as_u64().unwrap());
    // More than anything can send, so nothing is left for the others.
    assert!(sent[1] > 10_000 && sent[0] < sent[1] / 100 && sent[2] < sent[1] / 100, "{sent:?}");
}

#[test]
fn what_only_a_run_can_know_is_refused_by_name() {
    let why = |mut profile: Value, frame: Value| {
        profile["groups"][0]["frame"] = frame;
        let why = start(&profile).unwrap_err();
        format!("{} {}", why.code, why.at)
    };
    let fine = profile("bad", vec![json!({})]);
    let replay = json!({"replay": {"file": "/nowhere/x.pcap"}, "measured": false});
    assert_eq!(why(fine.clone(), replay), "ND-104-08 groups[0].frame.replay.file");
    // A name may stand for an address of either kind; this one's are known only when it is asked for.
    let mut named = fine;
    named["groups"][0]["target"] = json!("udp://localhost:7");
    named["groups"][0]["source"] = json!(["10.9.0.1"]);
    let six = json!([{"ethernet": {}}, {"ipv6": {"source": "fd09::1"}}, {"udp": {}}]);
    let frame = json!({"layers": six, "size": {"fixed": "100B"}});
    assert_eq!(why(named, frame), "ND-104-07 groups[0].frame.layers[1].ipv6.destination");
}
