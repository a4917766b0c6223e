//! Streams over DPDK ports that any machine can make: counts exact, delays seen, faults said.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use capture::{Capture, Status};
use pcap_file::pcapng::blocks::enhanced_packet::{EnhancedPacketBlock, EnhancedPacketOption};
use pcap_file::pcapng::{Block, PcapNgReader};
use run::{Control, SetupError, Transport};
use serde_json::{Value, json};
use std::fs::File;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, SystemTime};
use stream::Dpdk;

/// A generator and a reflector at the two ends of a cable.
fn cable(name: &str, stream: Value) -> Value {
    json!({
        "name": "cable",
        // over when all is back, however long a busy machine takes for that
        "phases": {"warmup": "100ms", "measure": "500ms", "drain": "20s", "sample": "100ms"},
        "transport": {"dpdk": {"ports": [
            {"name": "a", "device": format!("pair:{name}"), "ip": "10.9.0.1"},
            {"name": "b", "device": format!("pair:{name}"), "ip": "10.9.0.2", "role": "reflector"}
        ]}},
        "groups": [{"name": "s", "model": {"stream": stream}, "target": "udp://10.9.0.2:7", "devices": 3}]
    })
}

/// Start it when no other is at work.
fn start_with(profile: &Value, steer: impl FnOnce(&Control)) -> Result<Value, SetupError> {
    let _alone = crate::lab::one_at_a_time();
    crate::lab::run_with(profile, |_| (), |_, control| steer(control))
}

fn start(profile: &Value) -> Result<Value, SetupError> {
    start_with(profile, |_| ())
}

fn run(profile: &Value) -> Value {
    start(profile).unwrap_or_else(|why| panic!("{why}"))
}

fn number(result: &Value, pointer: &str) -> u64 {
    result.pointer(pointer).and_then(Value::as_u64).unwrap_or_else(|| panic!("no {pointer} in {result:#}"))
}

fn count(result: &Value, name: &str) -> u64 {
    number(result, &format!("/groups/0/measured/{name}"))
}

/// Packets taken by an element, and its drops.
fn element<'a>(result: &'a Value, name: &str) -> (u64, &'a Value) {
    let all = result["elements"].as_array().unwrap();
    let element = all.iter().find(|e| e["name"] == name).unwrap_or_else(|| panic!("no {name} in {all:?}"));
    (element["packets_in"].as_u64().unwrap(), &element["drops"])
}

/// All that was sent came back, as every counter agrees.
fn all_came_back(result: &Value) {
    assert_eq!(result.pointer("/groups/0/loss"), Some(&json!(0.0)), "{result:#}");
    let sent = element(result, "a.tx").0;
    assert_eq!(element(result, "a.receiver"), (sent, &json!({})));
    assert_eq!(element(result, "b.reflector"), (sent, &json!({})));
    assert_eq!(number(result, "/interfaces/a/tx_packets"), sent);
    assert_eq!(number(result, "/interfaces/b/rx_packets"), sent);
    assert_eq!(number(result, "/interfaces/a/rx_packets"), sent);
    assert_eq!(count(result, "messages_sent"), count(result, "messages_delivered"));
    assert_eq!((count(result, "duplicates"), count(result, "reordered")), (0, 0));
}

#[test]
fn over_a_cable_on_one_worker() {
    let result = run(&cable("one", json!({"size": "18B", "rate": "20k/s"})));
    all_came_back(&result);
    // Half a second at 3 × 20,000 a second; the phase's ends are exact.
    let intended = count(&result, "messages_intended");
    assert!(intended.abs_diff(30_000) <= 3, "{intended}");
    assert_eq!(count(&result, "bytes_received"), 18 * count(&result, "messages_delivered"));
    assert!(number(&result, "/groups/0/delays/round_trip/p50") > 0);
}

#[test]
fn over_a_cable_split_over_two_workers() {
    let mut profile = cable("two", json!({"size": "1KiB", "rate": "5k/s", "burst": 4}));
    for placement in [
        json!([{"elements": ["a.generator", "a.receiver"]}, {"elements": ["b.reflector"]}]),
        json!([{"elements": ["a.generator"]}, {"elements": ["a.receiver", "b.reflector"]}]),
    ] {
        profile["transport"]["dpdk"]["placement"] = placement;
        let result = run(&profile);
        all_came_back(&result);
        assert_eq!(result["workers"].as_array().unwrap().len(), 2);
    }
}

#[test]
fn workers_are_where_they_were_asked_to_be() {
    let mut profile = cable("cores", json!({"rate": "1k/s"}));
    profile["transport"]["dpdk"]["placement"] = json!([{"node": 0, "elements": ["a.generator", "a.receiver"]}, {"core": 0, "elements": ["b.reflector"]}]);
    let result = run(&profile);
    all_came_back(&result);
    let cores: Vec<u64> =
        result["workers"].as_array().unwrap().iter().map(|w| w["core"].as_u64().unwrap()).collect();
    assert_eq!(cores[1], 0);
    assert!(cores[0] != 0 || run::cpu::cores().len() == 1, "{cores:?}");
}

#[test]
fn ipv6_and_several_groups() {
    let mut profile = cable("six", json!({}));
    let ports = &mut profile["transport"]["dpdk"]["ports"];
    ports[0]["ip"] = json!("fd09::1");
    ports[1]["ip"] = json!("fd09::2");
    let group = |name: &str, port: u16| {
        let target = format!("udp://[fd09::2]:{port}");
        json!({"name": name, "model": {"stream": {"rate": "1k/s"}}, "target": target})
    };
    profile["groups"] = json!([group("x", 7), group("y", 8)]);
    let result = run(&profile);
    for name in ["/groups/0", "/groups/1"] {
        assert_eq!(result.pointer(&format!("{name}/loss")), Some(&json!(0.0)), "{result:#}");
        assert!(number(&result, &format!("{name}/measured/messages_intended")).abs_diff(500) <= 1);
    }
}

#[test]
fn flows_that_end_are_counted() {
    let mut profile = cable("count", json!({"rate": "1k/s", "count": 20}));
    profile["phases"]["warmup"] = json!("0s");
    profile["groups"][0]["load"] = json!({"closed": {"flows": 2, "flow_interval": "10ms"}});
    let result = run(&profile);
    assert_eq!((count(&result, "flows_started"), count(&result, "flows_completed")), (6, 6));
    assert_eq!((count(&result, "messages_intended"), count(&result, "messages_delivered")), (120, 120));
}

#[test]
fn two_forwarding_ports_are_a_wire() {
    let mut profile = cable("near", json!({"rate": "5k/s"}));
    let ports = |forward: &str| {
        json!([
            {"name": "a", "device": "pair:near", "ip": "10.9.0.1", "mac": "02:00:00:00:00:0a"},
            {"name": "x", "device": "pair:near", "role": "l2fwd", "to": "y", "forward": forward},
            {"name": "y", "device": "pair:far", "role": "l2fwd", "to": "x", "forward": forward},
            {"name": "b", "device": "pair:far", "ip": "10.9.0.2", "role": "reflector"},
        ])
    };
    let split = json!([
        {"elements": ["a.generator", "a.receiver", "b.reflector"]},
        {"elements": ["x.l2fwd", "y.l2fwd"]}
    ]);
    for (forward, placement) in [("io", json!([])), ("macswap", split)] {
        profile["transport"]["dpdk"]["ports"] = ports(forward);
        profile["transport"]["dpdk"]["placement"] = placement;
        let result = run(&profile);
        all_came_back(&result);
        let sent = element(&result, "a.tx").0;
        for hop in ["x.l2fwd", "y.tx", "y.l2fwd", "x.tx"] {
            assert_eq!(element(&result, hop), (sent, &json!({})), "{hop}");
        }
    }
}

#[test]
fn a_forwarding_port_alone_sends_all_back_with_swapped_addresses() {
    let mut profile = cable("swap", json!({"rate": "1k/s"}));
    let port = &mut profile["transport"]["dpdk"]["ports"][1];
    (port["role"], port["forward"]) = (json!("l2fwd"), json!("macswap"));
    profile["transport"]["dpdk"]["ports"][0]["mac"] = json!("02:00:00:00:00:0a");
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("swap.pcapng");
    let (result, _) = captured(&profile, json!({}), &path);
    assert_eq!(result.pointer("/groups/0/loss"), Some(&json!(0.0)), "{result:#}");
    assert_eq!(element(&result, "b.l2fwd"), (element(&result, "a.tx").0, &json!({})));
    for packet in packets(&path) {
        let ours = if packet.options == [EnhancedPacketOption::Flags(1)] { 0..6 } else { 6..12 };
        assert_eq!(packet.data[ours], [2, 0, 0, 0, 0, 0xa]);
    }
}

#[test]
fn nobody_reflects_and_all_is_lost() {
    let mut profile = cable("dead", json!({"rate": "1k/s"}));
    // The other end is somebody else.
    profile["transport"]["dpdk"]["ports"][1]["ip"] = json!("10.9.0.3");
    profile["phases"]["drain"] = json!("200ms");
    let result = run(&profile);
    let sent = element(&result, "a.tx").0;
    assert_eq!(result.pointer("/groups/0/loss"), Some(&json!(1.0)), "{result:#}");
    assert_eq!(element(&result, "b.reflector"), (sent, &json!({"not_for_us": sent})));
    assert_eq!(result.pointer("/groups/0/errors/0/kind"), Some(&json!("unanswered")));
}

#[test]
fn two_ports_measure_one_way() {
    let mut profile = cable("one-way", json!({"rate": "1k/s"}));
    profile["transport"]["dpdk"]["ports"][1]["role"] = json!("generator");
    let result = run(&profile);
    assert_eq!(result.pointer("/groups/0/loss"), Some(&json!(0.0)), "{result:#}");
    assert_eq!(element(&result, "b.receiver").0, element(&result, "a.tx").0);
}

#[test]
fn a_rate_beyond_reach_makes_the_run_invalid() {
    let result = run(&cable("beyond", json!({"rate": "100M/s"})));
    assert_eq!(result.pointer("/validity/valid"), Some(&json!(false)));
    let (intended, sent) = (count(&result, "messages_intended"), count(&result, "messages_sent"));
    let reasons = result["validity"]["reasons"].as_array().unwrap();
    let short = reasons.iter().find(|reason| reason["code"] == "ND-90-01").expect("the shortfall");
    let words = format!("{sent} of {intended} intended messages sent");
    assert!(short["what"].as_str().unwrap().starts_with(&words), "{short}");
    assert_eq!(short["value"], json!(sent as f64 / intended as f64));
    // Half a second of 300 million a second.
    assert!(intended.abs_diff(150_000_000) < 10_000, "{intended}");
    assert!(sent < intended / 2);
}

/// What is behind is told as well of devices that a ramp wakes: their slots are not all the same.
#[test]
fn a_rate_beyond_reach_after_a_ramp_is_told_as_exactly() {
    let mut profile = cable("beyond-ramp", json!({"rate": "100M/s"}));
    profile["groups"][0]["load"] = json!({"closed": {"flows": 1, "ramp": "90ms"}});
    let result = run(&profile);
    let reasons = result["validity"]["reasons"].as_array().unwrap();
    assert!(reasons.iter().any(|reason| reason["code"] == "ND-90-01"), "{reasons:?}");
    let intended = count(&result, "messages_intended");
    assert!(intended.abs_diff(150_000_000) < 10_000, "{intended}");
}

#[test]
fn a_pause_sends_nothing_and_loses_nothing() {
    let profile = cable("pause", json!({"rate": "10k/s"}));
    let result = start_with(&profile, |control| {
        let ms = std::time::Duration::from_millis;
        std::thread::sleep(ms(300));
        control.pause();
        std::thread::sleep(ms(300));
        control.resume();
    })
    .unwrap();
    all_came_back(&result);
    let intended = count(&result, "messages_intended");
    // What falls into the pause's begin may be due twice or not at all.
    assert!(intended.abs_diff(15_000) < 200, "{intended}");
}

#[test]
fn a_stop_ends_the_load_early() {
    let mut profile = cable("stop", json!({"rate": "10k/s"}));
    profile["phases"]["measure"] = json!("60s");
    let result = start_with(&profile, |control| {
        std::thread::sleep(std::time::Duration::from_millis(400));
        control.stop();
    })
    .unwrap();
    all_came_back(&result);
    assert!(count(&result, "messages_sent") < 30_000);
}

#[test]
fn a_kernel_host_answers_over_veth() {
    // A namespace of this test's own thread: nothing of it is seen outside, and it ends with the thread.
    if !outcome::network_namespace() {
        return;
    }
    ip("link add left type veth peer name right");
    ip("addr add 10.9.1.2/24 dev right");
    ip("link set left up");
    ip("link set right up");
    // Else the kernel leaves checksums to a network card that is not there.
    let off = Command::new("ethtool").args(["-K", "right", "tx", "off"]).output();
    if !off.is_ok_and(|output| output.status.success()) {
        return outcome::skipped("ethtool is not installed");
    }
    let echo = std::net::UdpSocket::bind("10.9.1.2:7").unwrap();
    std::thread::spawn(move || {
        let mut bytes = [0; 2048];
        while let Ok((n, from)) = echo.recv_from(&mut bytes) {
            let _full = echo.send_to(&bytes[..n], from);
        }
    });
    let mut profile = cable("veth", json!({"rate": "500/s"}));
    profile["transport"]["dpdk"]["ports"] =
        json!([{"name": "a", "device": "af_packet:left", "ip": "10.9.1.1"}]);
    profile["groups"][0]["target"] = json!("udp://10.9.1.2:7");
    let result = run(&profile);
    assert_eq!(result.pointer("/groups/0/loss"), Some(&json!(0.0)), "{result:#}");
    assert!(count(&result, "messages_intended").abs_diff(750) <= 3, "{result:#}");
    // How many of them were sent depends on when the worker had CPU.
    assert_eq!(count(&result, "messages_delivered"), count(&result, "messages_sent"), "{result:#}");

    profile["groups"][0]["target"] = json!("udp://10.9.1.9:7");
    let why = start(&profile).unwrap_err();
    assert!(why.code == "ND-92-13" && why.what.contains("10.9.1.9"), "{why}");
}

#[test]
fn a_reflector_of_another_run_answers_over_veth() {
    if !outcome::network_namespace() {
        return;
    }
    ip("link add left type veth peer name right");
    ip("link set left up");
    ip("link set right up");
    let reflector = json!({
        "name": "reflect",
        "phases": {"warmup": "0s", "measure": "60s", "drain": "100ms"},
        "transport": {"dpdk": {"ports": [
            {"name": "b", "device": "af_packet:right", "ip": "10.9.2.2", "role": "reflector"}
        ]}}
    });
    let mut profile = cable("other", json!({"rate": "500/s"}));
    profile["transport"]["dpdk"]["ports"] =
        json!([{"name": "a", "device": "af_packet:left", "ip": "10.9.2.1"}]);
    profile["groups"][0]["target"] = json!("udp://10.9.2.2:7");
    let mut result = Value::Null;
    // The reflector's run goes on while the other one asks for its address, sends, and ends.
    let reflected = start_with(&reflector, |control| {
        result = crate::lab::run(&profile).unwrap_or_else(|why| panic!("{why}"));
        control.stop();
    })
    .unwrap();
    assert_eq!(result.pointer("/groups/0/loss"), Some(&json!(0.0)), "{result:#}");
    let sent = number(&result, "/groups/0/total/messages_sent");
    // The kernel sends some of its own over a fresh link; those are dropped by reason.
    let (taken, drops) = element(&reflected, "b.reflector");
    let dropped: u64 = drops.as_object().unwrap().values().filter_map(Value::as_u64).sum();
    assert!(
        (sent + 1..=sent + 3).contains(&(taken - dropped)),
        "{sent} and the question: {taken} − {dropped}"
    );
}

/// A minute of a stream from port `a`, which lasts as long as `a` does.
fn on_port(device: &str) -> Value {
    let mut profile = cable("lost", json!({"rate": "2k/s"}));
    profile["phases"]["measure"] = json!("60s");
    let port = json!({"name": "a", "device": device, "ip": "10.9.0.1", "peer_mac": "02:00:00:00:00:01"});
    profile["transport"]["dpdk"]["ports"] = json!([port]);
    profile
}

#[test]
fn a_port_that_is_lost_ends_the_run_and_is_named() {
    if !outcome::network_namespace() {
        return;
    }
    let veth = ["link add left type veth peer name right", "link set left up", "link set right up"];
    for (before, device, what, happened) in [
        (&veth[..], "af_packet:left", "link set right down", "the link of left went down"),
        (&veth[2..], "af_packet:left", "link del right", "the interface left is gone"),
        (&[], "tap:ndtap1", "link del ndtap1", "the interface ndtap1 is gone"),
    ] {
        before.iter().for_each(|command| ip(command));
        let result = start_with(&on_port(device), |_| {
            std::thread::sleep(Duration::from_millis(400));
            ip(what);
        })
        .unwrap_or_else(|why| panic!("{what}: {why}"));
        let error = &result["error"];
        assert_eq!((&error["code"], &error["at"]), (&json!("ND-91-01"), &json!("transport.dpdk.ports[0]")));
        let words = error["what"].as_str().unwrap();
        assert!(words.starts_with("port a (net_") && words.ends_with(happened), "{what}: {words}");
        let validity = &result["validity"];
        assert_eq!((&result["stopped"], &validity["valid"]), (&json!("failed"), &json!(false)));
        let lost = |reason: &Value| reason["code"] == "ND-90-06" && reason["what"] == error["what"];
        assert!(validity["reasons"].as_array().unwrap().iter().any(lost), "{validity}");
        // What was before is kept, and it ended at once.
        assert!(count(&result, "messages_sent") > 0);
        assert!(result.pointer("/phases/measure").unwrap().as_f64().unwrap() < 10.0);
    }
}

#[test]
fn a_tap_that_moves_to_another_namespace_is_not_lost() {
    if !outcome::network_namespace() {
        return;
    }
    let mut host =
        Command::new("unshare").args(["-n", "sleep", "30"]).spawn().expect("util-linux is installed");
    let space = |process: &str| std::fs::read_link(format!("/proc/{process}/ns/net")).unwrap();
    while space(&host.id().to_string()) == space("thread-self") {
        std::thread::sleep(Duration::from_millis(1));
    }
    let mut profile = on_port("tap:ndtap2");
    // Nothing comes back from there.
    profile["phases"]["drain"] = json!("200ms");
    let result = start_with(&profile, |control| {
        ip(&format!("link set ndtap2 netns {}", host.id()));
        std::thread::sleep(Duration::from_millis(500));
        control.stop();
    })
    .unwrap();
    host.kill().and_then(|()| host.wait()).unwrap();
    assert_eq!((&result["error"], &result["stopped"]), (&Value::Null, &Value::Null));
}

fn begin(transport: &Dpdk, settings: Value, path: &Path) -> Result<Capture, SetupError> {
    let settings: profile::Capture = serde_json::from_value(settings).unwrap();
    let source = transport.capture(&settings).expect("a port of the run")?;
    Capture::start_from(source, &settings, path)
}

/// Run it, and capture from before it begins until after it ended.
fn captured(profile: &Value, settings: Value, path: &Path) -> (Value, Status) {
    let _alone = crate::lab::one_at_a_time();
    let mut capture = None;
    let prepare = |transport: &Dpdk| capture = Some(begin(transport, settings, path).unwrap());
    let result = crate::lab::run_with(profile, prepare, |_, _| ()).unwrap_or_else(|why| panic!("{why}"));
    (result, capture.unwrap().stop())
}

fn packets(path: &Path) -> Vec<EnhancedPacketBlock<'static>> {
    let mut reader = PcapNgReader::new(File::open(path).unwrap()).unwrap();
    let mut packets = Vec::new();
    while let Some(block) = reader.next_block() {
        if let Block::EnhancedPacket(packet) = block.unwrap() {
            packets.push(packet.into_owned());
        }
    }
    packets
}

/// How many of them were received, and how many sent.
fn directions(packets: &[EnhancedPacketBlock<'_>]) -> (u64, u64) {
    let count = |flag| packets.iter().filter(|p| p.options == [EnhancedPacketOption::Flags(flag)]).count();
    (count(1) as u64, count(2) as u64)
}

#[test]
fn a_capture_holds_what_was_sent_and_received() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("all.pcapng");
    let began = SystemTime::now();
    let (result, status) =
        captured(&cable("capture", json!({"size": "100B", "rate": "2k/s"})), json!({"snap": 60}), &path);
    all_came_back(&result);
    let sent = element(&result, "a.tx").0;
    assert_eq!((status.packets, status.dropped, status.state), (2 * sent, 0, "stopped"));
    assert_eq!(status.interface, "a");
    let packets = packets(&path);
    assert_eq!(directions(&packets), (sent, sent));
    assert!(packets.iter().all(|packet| packet.data.len() == 60 && packet.original_len == 142));
    // The wall's time, and the order of time.
    let took = (began, SystemTime::now());
    let at = |time: SystemTime| time.duration_since(SystemTime::UNIX_EPOCH).unwrap();
    assert!(packets.iter().all(|packet| (at(took.0)..at(took.1)).contains(&packet.timestamp)));
    let late =
        packets.windows(2).filter(|pair| pair[1].timestamp + Duration::from_millis(1) < pair[0].timestamp);
    assert_eq!(late.count(), 0);
    assert!(packets.iter().any(|packet| packet.timestamp.subsec_nanos() % 1000 != 0));
    let beside = std::fs::metadata(&path).unwrap().len() - status.bytes;
    assert!(beside < 200, "{beside} bytes are no packets");

    let Ok(tshark) = Command::new("tshark").arg("-r").arg(&path).args(["-Y", "udp.dstport == 7"]).output()
    else {
        return outcome::skipped("tshark is not installed");
    };
    assert_eq!(String::from_utf8_lossy(&tshark.stdout).lines().count() as u64, sent);
}

#[test]
fn a_capture_honours_filter_limit_and_port() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).with_extension("pcapng");
    let profile = |name: &str| cable(name, json!({"size": "18B", "rate": "2k/s"}));
    // Three devices: ports 10000 to 10002.
    let settings = json!({"interface": "b", "filter": "udp src port 10001"});
    let (result, status) = captured(&profile("filter"), settings, &path("filter"));
    let sent = element(&result, "a.tx").0;
    let there = packets(&path("filter"));
    assert_eq!((status.packets, status.interface.as_str()), (there.len() as u64, "b"));
    // A third of what b received, give or take where the turn ended; what it sends back comes from port 7.
    let (received, replied) = directions(&there);
    assert!((sent / 3..=sent.div_ceil(3)).contains(&received), "{received} of {sent}");
    assert_eq!(replied, 0);

    // 96 of the 2,400 that pass in a tenth of the time.
    let mut long = profile("limit");
    long["phases"]["measure"] = json!("2s");
    let (result, status) = captured(&long, json!({"limit": "10kB"}), &path("limit"));
    all_came_back(&result);
    // 60 bytes, and 44 about them.
    assert_eq!((status.packets, status.state), (10_000 / 104, "full"));

    let (result, status) = captured(&profile("none"), json!({"filter": "tcp"}), &path("none"));
    all_came_back(&result);
    assert_eq!((status.packets, status.state), (0, "stopped"));

    let open = |settings: Value| {
        let profile = profile::load(&profile("bad").to_string()).unwrap();
        let profile::Transport::Dpdk(dpdk) = profile.transport else { panic!("not dpdk") };
        let transport = Dpdk::new(&dpdk, &stream::graph::kinds()).unwrap();
        let settings: profile::Capture = serde_json::from_value(settings).unwrap();
        transport.capture(&settings).map(|source| source.map(|_| ()))
    };
    assert_eq!(open(json!({"filter": "tcp prot 1"})).unwrap().unwrap_err().code, "ND-104-04");
    assert!(open(json!({"interface": "lo"})).is_none());
}

#[test]
fn captures_come_and_go_while_a_run_goes_on() {
    let folder = tempfile::tempdir().unwrap();
    let path = |i: usize| folder.path().join(format!("{i}.pcapng"));
    let mut profile = cable("midway", json!({"rate": "2k/s"}));
    profile["phases"]["measure"] = json!("60s");
    profile["transport"]["dpdk"]["placement"] =
        json!([{"elements": ["a.generator", "a.receiver"]}, {"elements": ["b.reflector"]}]);
    let _alone = crate::lab::one_at_a_time();
    let mut statuses = Vec::new();
    let steer = |transport: &Dpdk, control: &Control| {
        for i in 0..3 {
            let mut capture = begin(transport, json!({}), &path(i)).unwrap();
            std::thread::sleep(Duration::from_millis(120));
            statuses.push(capture.stop());
        }
        control.stop();
    };
    all_came_back(&crate::lab::run_with(&profile, |_| (), steer).unwrap_or_else(|why| panic!("{why}")));
    for (i, status) in statuses.iter().enumerate() {
        assert_eq!((status.state, status.dropped), ("stopped", 0));
        let (received, sent) = directions(&packets(&path(i)));
        assert_eq!(received + sent, status.packets);
        // 6,000 a second each way for a tenth of a second, or as many as a busy machine lets through.
        assert!(received > 0 && sent > 0 && status.packets < 12_000, "{received} and {sent}");
    }
}

#[test]
fn what_it_does_not_carry_is_said() {
    let mut profile = cable("open", json!({"rate": "1k/s"}));
    profile["groups"][0]["load"] = json!({"open": {"rate": "10/s"}});
    let why = start(&profile).unwrap_err();
    assert_eq!((why.code, why.at.as_str()), ("ND-104-07", "groups[0].load"));
    assert!(why.fix.contains(r#""load": {"closed": {}}"#) && why.fix.contains("the 3 devices"), "{why}");
    let stages = json!([{"over": "1s", "devices": 3}, {"over": "500ms", "devices": 2}]);
    profile["groups"][0]["load"] = json!({"closed": {"stages": stages}});
    let why = start(&profile).unwrap_err();
    assert_eq!((why.code, why.at.as_str()), ("ND-104-07", "groups[0].load.closed.stages"));
    assert!(why.fix.contains(r#""devices": 3 and "load": {"closed": {"ramp": "1500ms"}}"#), "{why}");
    let mut profile = cable("device", json!({"rate": "1k/s"}));
    profile["transport"]["dpdk"]["ports"] = json!([{"name": "a", "device": "af_packet:nosuch"}]);
    let why = start(&profile).unwrap_err();
    assert_eq!((why.code, why.at.as_str()), ("ND-92-12", "transport.dpdk.ports[0].device"));
    assert!(why.fix.contains("ip link set IFACE up"), "{why}");
    let mut profile = cable("size", json!({"rate": "1/s"}));
    profile["groups"][0]["devices"] = json!(10_000_000);
    let mut more = profile["groups"][0].clone();
    more["name"] = json!("more");
    profile["groups"].as_array_mut().expect("groups").push(more);
    let why = start(&profile).unwrap_err();
    assert_eq!((why.code, why.at.as_str()), ("ND-104-05", "groups[1].devices"), "{why}");
    assert!(why.what.contains("16777216"), "{why}");
    let mut profile = cable("core", json!({"rate": "1k/s"}));
    profile["transport"]["dpdk"]["placement"] =
        json!([{"core": 999, "elements": ["a.generator", "a.receiver", "b.reflector"]}]);
    assert_eq!(start(&profile).unwrap_err().code, "ND-92-06");
    profile["transport"]["dpdk"]["placement"] =
        json!([{"elements": ["a.generator", "a.receiver"]}, {"node": 99, "elements": ["b.reflector"]}]);
    let why = start(&profile).unwrap_err();
    assert_eq!((why.code, why.at.as_str()), ("ND-92-06", "transport.dpdk.placement[1]"));
    assert!(why.what.contains("NUMA node 99"), "{why}");
}

fn ip(arguments: &str) {
    let status = Command::new("ip").args(arguments.split(' ')).status().expect("iproute2 is installed");
    assert!(status.success(), "ip {arguments}");
}
