//! A port of ours among others: kernel hosts that ask for it, hosts and routers that it asks for, VLANs.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use crate::lab::net::{enter_new_namespace, sh};
use crate::lab::run;
use run::{Control, SetupError};
use serde_json::{Value, json};
use std::net::UdpSocket;
use std::process::{Child, Command};
use std::time::Duration;

const MAC: &str = "02:00:00:00:00:0a";

fn run_with(profile: &Value, steer: impl FnOnce(&Control)) -> Result<Value, SetupError> {
    crate::lab::run_with(profile, |_| (), |_, control| steer(control))
}

/// A stream from port `a` to `target`.
fn stream(ports: Value, target: &str) -> Value {
    json!({
        "name": "neighbour",
        // over when all is back, however long a busy machine takes for that
        "phases": {"warmup": "100ms", "measure": "500ms", "drain": "20s", "sample": "100ms"},
        "transport": {"dpdk": {"ports": ports}},
        "groups": [{"name": "s", "model": {"stream": {"rate": "500/s"}}, "target": target, "devices": 3}]
    })
}

/// A port that sends back what it gets, until it is stopped.
fn reflector(port: Value) -> Value {
    let mut port = port;
    port["role"] = json!("reflector");
    json!({
        "name": "reflect",
        "phases": {"warmup": "0s", "measure": "60s", "drain": "100ms"},
        "transport": {"dpdk": {"ports": [port]}}
    })
}

fn total(result: &Value, count: &str) -> u64 {
    result["groups"][0]["total"][count].as_u64().unwrap()
}

fn nothing_was_lost(result: &Value) {
    assert_eq!(result.pointer("/groups/0/loss"), Some(&json!(0.0)), "{result:#}");
    assert!(total(result, "messages_delivered") > 0);
}

fn drops<'a>(result: &'a Value, name: &str) -> &'a Value {
    let all = result["elements"].as_array().unwrap();
    &all.iter().find(|e| e["name"] == name).unwrap_or_else(|| panic!("no {name} in {all:?}"))["drops"]
}

/// What `command` prints, in the namespace of this thread.
fn said(command: &str) -> String {
    let mut words = command.split_whitespace();
    let output = Command::new(words.next().unwrap()).args(words).output().unwrap();
    String::from_utf8(output.stdout).unwrap() + &String::from_utf8_lossy(&output.stderr)
}

/// The answers that `ping` counted: `3 packets transmitted, 3 received, 0% packet loss`.
fn received(said: &str) -> u32 {
    let before = said.split(" received").next().filter(|before| before.len() < said.len());
    let count = before.and_then(|text| text.rsplit(' ').next()).and_then(|word| word.parse().ok());
    count.unwrap_or_else(|| panic!("ping counts nothing: {said}"))
}

/// A cable from our port's interface `left` to the kernel's `right`.
fn cable() {
    sh("ip link add left type veth peer name right");
    sh("ip addr add 10.9.1.2/24 dev right");
    sh("ip addr add fd09:1::2/64 dev right nodad");
    sh("ip link set left up");
    sh("ip link set right up");
    // Else the kernel leaves checksums to a network card that is not there.
    sh("ethtool -K right tx off");
}

/// Send back what comes to `address`, as long as the test's process lives.
fn echo(address: &str) {
    let socket = UdpSocket::bind(address).unwrap();
    std::thread::spawn(move || {
        let mut bytes = [0; 2048];
        while let Ok((n, from)) = socket.recv_from(&mut bytes) {
            let _full = socket.send_to(&bytes[..n], from);
        }
    });
}

/// A counter of the kernel of process `who`, as /proc/net/snmp6 or snmp name it.
fn kernel(who: &str, table: &str, name: &str) -> u64 {
    let text = std::fs::read_to_string(format!("/proc/{who}/net/{table}")).unwrap();
    let lines: Vec<Vec<&str>> = text.lines().map(|line| line.split_whitespace().collect()).collect();
    let value = match table {
        "snmp6" => lines.iter().find(|line| line[0] == name).map(|line| line[1]),
        _ => lines
            .chunks(2)
            .filter(|two| two[0][0] == "Ip:")
            .find_map(|two| two[0].iter().position(|title| *title == name).map(|at| two[1][at])),
    };
    value.unwrap_or_else(|| panic!("no {name} in {text}")).parse().unwrap()
}

#[test]
fn a_kernel_host_pings_our_port() {
    if !enter_new_namespace() {
        return;
    }
    let _alone = crate::lab::one_at_a_time();
    cable();
    // One port, an address of each kind; and those that its streams come from.
    let port = json!({"name": "a", "device": "af_packet:left", "ip": ["10.9.1.1", "fd09:1::1"], "mac": MAC});
    let mut generator = stream(json!([port]), "udp://10.9.1.2:7");
    generator["phases"]["measure"] = json!("60s");
    generator["groups"][0]["model"]["stream"]["echo"] = json!(false);
    generator["groups"][0]["source"] = json!(["10.9.1.10-10.9.1.12"]);
    let own = ["10.9.1.1", "fd09:1::1"];
    for (profile, more) in [(reflector(port), None), (generator, Some("10.9.1.11"))] {
        run_with(&profile, |control| {
            for ip in own.into_iter().chain(more) {
                // Until three are answered, or more where answers to several come at once: what is asked while the
                // port's worker has no CPU waits in a queue.
                let pings = said(&format!("ping -n -c 3 -i 0.1 -w 20 {ip}"));
                assert!(received(&pings) >= 3, "{pings}");
                let neighbour = said(&format!("ip neighbour show {ip}"));
                assert!(neighbour.contains(&format!("lladdr {MAC}")), "{neighbour}");
            }
            let nobody = said("ping -n -c 1 -W 1 10.9.1.13");
            assert_eq!(received(&nobody), 0, "{nobody}");
            control.stop();
        })
        .unwrap_or_else(|why| panic!("{why}"));
    }
}

#[test]
fn a_kernel_host_is_found_over_ipv6() {
    if !enter_new_namespace() {
        return;
    }
    let _alone = crate::lab::one_at_a_time();
    cable();
    echo("[fd09:1::2]:7");
    let port = json!([{"name": "a", "device": "af_packet:left", "ip": "fd09:1::1"}]);
    let mut profile = stream(port, "udp://[fd09:1::2]:7");
    let before = kernel("thread-self", "snmp6", "Udp6InDatagrams");
    let result = run(&profile).unwrap_or_else(|why| panic!("{why}"));
    nothing_was_lost(&result);
    let received = kernel("thread-self", "snmp6", "Udp6InDatagrams") - before;
    assert_eq!(received, total(&result, "messages_sent"));

    profile["groups"][0]["target"] = json!("udp://[fd09:1::9]:7");
    let why = run(&profile).unwrap_err();
    assert!(why.code == "ND-92-13" && why.what.contains("fd09:1::9"), "{why}");
    // Who has no address of that kind cannot be answered.
    profile["groups"][0]["target"] = json!("udp://10.9.1.2:7");
    let why = run(&profile).unwrap_err();
    assert_eq!((why.code, why.at.as_str()), ("ND-92-13", "transport.dpdk.ports[0].ip"));
    assert!(why.what.contains("IPv4"), "{why}");
}

#[test]
fn a_port_that_starts_tells_whose_its_address_is() {
    if !enter_new_namespace() {
        return;
    }
    let _alone = crate::lab::one_at_a_time();
    cable();
    for ip in ["10.9.1.1", "fd09:1::1"] {
        sh(&format!("ip neighbour replace {ip} lladdr 02:00:00:00:00:99 dev right nud stale"));
        let port = json!({"name": "a", "device": "af_packet:left", "ip": ip, "mac": MAC});
        let mut known = String::new();
        run_with(&reflector(port), |control| {
            for _ in 0..100 {
                known = said(&format!("ip neighbour show {ip}"));
                if known.contains(MAC) {
                    break;
                }
                std::thread::sleep(Duration::from_millis(20));
            }
            control.stop();
        })
        .unwrap_or_else(|why| panic!("{why}"));
        assert!(known.contains(MAC), "{known}");
        // Who names the peer wants nothing else sent.
        sh(&format!("ip neighbour replace {ip} lladdr 02:00:00:00:00:99 dev right nud stale"));
        let port = json!({"name": "a", "device": "af_packet:left", "ip": ip, "mac": MAC, "peer_mac": MAC});
        let mut silent = reflector(port);
        silent["phases"]["measure"] = json!("200ms");
        run(&silent).unwrap_or_else(|why| panic!("{why}"));
        assert!(said(&format!("ip neighbour show {ip}")).contains("02:00:00:00:00:99"));
    }
}

/// A router in a namespace of its own, between `left`'s network and the one of `back`, which is the kernel's here.
struct Router(Child);

impl Router {
    fn new() -> Self {
        let router = Self(Command::new("unshare").args(["-n", "sleep", "60"]).spawn().unwrap());
        let space = |who: &str| std::fs::read_link(format!("/proc/{who}/ns/net")).unwrap();
        while space(&router.who()) == space("thread-self") {
            std::thread::sleep(Duration::from_millis(1));
        }
        for (near, far, number) in [("left", "right", 1), ("back", "front", 2)] {
            sh(&format!("ip link add {near} type veth peer name {far} netns {}", router.who()));
            sh(&format!("ip link set {near} up"));
            router.sh(&format!("ip link set {far} up"));
            router.sh(&format!("ip addr add 10.9.{number}.254/24 dev {far}"));
            router.sh(&format!("ip addr add fd09:{number}::fe/64 dev {far} nodad"));
        }
        router.sh("sysctl -qw net.ipv4.ip_forward=1 net.ipv6.conf.all.forwarding=1");
        sh("ip addr add 10.9.2.2/24 dev back");
        sh("ip addr add fd09:2::2/64 dev back nodad");
        sh("ip route add 10.9.1.0/24 via 10.9.2.254");
        sh("ip route add fd09:1::/64 via fd09:2::fe");
        sh("ethtool -K back tx off");
        router
    }

    fn who(&self) -> String {
        self.0.id().to_string()
    }

    fn sh(&self, command: &str) {
        sh(&format!("nsenter -t {} -n {command}", self.0.id()));
    }
}

impl Drop for Router {
    fn drop(&mut self) {
        let _gone = self.0.kill().and_then(|()| self.0.wait());
    }
}

#[test]
fn a_kernel_router_leads_to_targets_outside_the_network() {
    if !enter_new_namespace() {
        return;
    }
    let _alone = crate::lab::one_at_a_time();
    let router = Router::new();
    for (ip, gateway, host, nobody, table, name) in [
        ("10.9.1.1/24", "10.9.1.254", "10.9.2.2:7", Some("10.9.1.253"), "snmp", "ForwDatagrams"),
        ("fd09:1::1/64", "fd09:1::fe", "[fd09:2::2]:7", None, "snmp6", "Ip6OutForwDatagrams"),
    ] {
        echo(host);
        let port = json!([{"name": "a", "device": "af_packet:left", "ip": ip, "gateway": gateway}]);
        let mut profile = stream(port, &format!("udp://{host}"));
        let before = kernel(&router.who(), table, name);
        let result = run(&profile).unwrap_or_else(|why| panic!("{why}"));
        nothing_was_lost(&result);
        let both_ways = total(&result, "messages_sent") + total(&result, "messages_delivered");
        assert_eq!(kernel(&router.who(), table, name) - before, both_ways);

        // Nobody answers over IPv6: the test of that shows it.
        if let Some(nobody) = nobody {
            profile["transport"]["dpdk"]["ports"][0]["gateway"] = json!(nobody);
            let why = run(&profile).unwrap_err();
            assert!(
                why.code == "ND-92-13" && why.what.contains(&format!("{nobody}, the gateway to")),
                "{why}"
            );
        }
        profile["transport"]["dpdk"]["ports"][0].as_object_mut().unwrap().remove("gateway");
        let why = run(&profile).unwrap_err();
        assert_eq!((why.code, why.at.as_str()), ("ND-92-13", "transport.dpdk.ports[0].gateway"));
    }
}

#[test]
fn neighbours_find_each_other_in_their_vlan() {
    if !enter_new_namespace() {
        return;
    }
    let _alone = crate::lab::one_at_a_time();
    cable();
    let layers = json!([{"ethernet": {}}, {"vlan": {"id": 300}}, {"ipv4": {}}, {"udp": {}}]);
    let own = json!({"layers": layers, "size": {"fixed": "100B"}});
    for (ours, theirs, frame, near, far) in [
        (json!(100), json!(100), Value::Null, "10.9.3.1", "10.9.3.2"),
        (json!([200, 100]), json!([200, 100]), Value::Null, "fd09:3::1", "fd09:3::2"),
        // Frames with tags of their own are resolved with those.
        (json!([]), json!(300), own.clone(), "10.9.3.1", "10.9.3.2"),
        (json!(100), json!(300), own, "10.9.3.1", "10.9.3.2"),
    ] {
        let host = if far.contains(':') { format!("[{far}]") } else { far.to_owned() };
        let port = json!([{"name": "a", "device": "af_packet:left", "ip": near, "vlan": ours}]);
        let mut profile = stream(port, &format!("udp://{host}:7"));
        // Nobody is found in another VLAN: one of them shows it, as it takes seconds to be sure.
        let astray = frame.is_null() && ours.is_number();
        if !frame.is_null() {
            profile["groups"][0]["frame"] = frame;
        }
        let other = reflector(json!({"name": "b", "device": "af_packet:right", "ip": far, "vlan": theirs}));
        let (mut result, mut elsewhere) = (Value::Null, None);
        run_with(&other, |control| {
            result = run(&profile).unwrap_or_else(|why| panic!("{ours} and {theirs}: {why}"));
            if astray {
                profile["transport"]["dpdk"]["ports"][0]["vlan"] = json!(101);
                elsewhere = Some(run(&profile));
            }
            control.stop();
        })
        .unwrap_or_else(|why| panic!("{why}"));
        nothing_was_lost(&result);
        if let Some(found) = elsewhere {
            let why = found.unwrap_err();
            assert!(why.code == "ND-92-13" && why.what.contains(far), "{why}");
        }
    }
}

#[test]
fn plain_streams_have_the_tags_of_their_port() {
    let _alone = crate::lab::one_at_a_time();
    let ports = |theirs: Value| {
        json!([
            {"name": "a", "device": "pair:vlan", "ip": "10.9.4.1", "vlan": [200, 100]},
            {"name": "b", "device": "pair:vlan", "ip": "10.9.4.2", "vlan": theirs, "role": "reflector"}
        ])
    };
    let mut profile = stream(ports(json!([200, 100])), "udp://10.9.4.2:7");
    profile["groups"][0]["model"]["stream"]["size"] = json!("100B");
    let result = run(&profile).unwrap_or_else(|why| panic!("{why}"));
    nothing_was_lost(&result);
    let sent = total(&result, "messages_sent");
    // What the datagrams carry is counted, and no tag; on the cable are both tags.
    assert_eq!((total(&result, "bytes_sent"), total(&result, "bytes_received")), (100 * sent, 100 * sent));
    assert_eq!(result.pointer("/interfaces/a/tx_bytes"), Some(&json!((14 + 8 + 20 + 8 + 100) * sent)));

    profile["transport"]["dpdk"]["ports"] = ports(json!([200, 101]));
    profile["phases"]["drain"] = json!("200ms");
    let result = run(&profile).unwrap_or_else(|why| panic!("{why}"));
    assert_eq!(result.pointer("/groups/0/loss"), Some(&json!(1.0)), "{result:#}");
    assert_eq!(drops(&result, "b.reflector"), &json!({"not_for_us": total(&result, "messages_sent")}));
}
