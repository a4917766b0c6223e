//! Two hosts, namespaces of their own, joined by the link; the kernel's TCP, ping and counters are the
//! witnesses.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use crate::host::Host;
use impair::spec::LinkSpec;
use impair::tap::{Link, Options, Tap, TapLocation};
use impair::{Direction, Stats};
use serde_json::{Value, from_value, json};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use thread_priority::{
    RealtimeThreadSchedulePolicy, ThreadPriority, ThreadSchedulePolicy, set_thread_priority_and_policy,
    thread_native_id,
};

/// How long a condition is waited for.
const PATIENCE: Duration = Duration::from_secs(60);

/// Wait until it is so.
fn until(what: &str, ready: impl Fn() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !ready() {
        assert!(Instant::now() < deadline, "not within {PATIENCE:?}: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

impl Host {
    fn place(&self) -> TapLocation {
        TapLocation::new(Some(self.namespace.clone()), "link")
    }

    /// A counter of this host's kernel, such as `Tcp RetransSegs`, from /proc/net/snmp and netstat.
    fn counter(&self, group: &str, name: &str) -> u64 {
        let text = self.run(|| {
            let read = |name| std::fs::read_to_string(format!("/proc/thread-self/net/{name}")).unwrap();
            read("snmp") + &read("netstat")
        });
        let mut lines = text.lines().filter_map(|line| line.strip_prefix(&format!("{group}: ")));
        let (names, values) = (lines.next().unwrap(), lines.next().unwrap());
        let at = names.split(' ').position(|n| n == name).unwrap_or_else(|| panic!("no {name}"));
        values.split(' ').nth(at).unwrap().parse().unwrap()
    }
}

struct Lab {
    hosts: [Host; 2],
    link: Link,
}

fn spec(a_to_b: Value, b_to_a: Value) -> LinkSpec {
    let spec: LinkSpec = from_value(json!({"seed": 11, "a_to_b": a_to_b, "b_to_a": b_to_a})).unwrap();
    spec.check().unwrap();
    spec
}

fn lab(a_to_b: Value, b_to_a: Value) -> Option<Lab> {
    lab_with(a_to_b, b_to_a, &Options::default())
}

fn lab_with(a_to_b: Value, b_to_a: Value, options: &Options) -> Option<Lab> {
    let hosts = [Host::new()?, Host::new()?];
    let link = Link::start(&hosts[0].place(), &hosts[1].place(), &spec(a_to_b, b_to_a), options);
    let link = link.unwrap_or_else(|why| panic!("{why}"));
    for (end, host) in hosts.iter().enumerate() {
        host.sh("ip link set dev link up");
        host.sh(&format!("ip addr add 10.78.0.{}/24 dev link", end + 1));
        let other = format!("10.78.0.{} lladdr {}", 2 - end, mac(&hosts[1 - end]));
        host.sh(&format!("ip neigh replace {other} dev link nud permanent"));
    }
    Some(Lab { hosts, link })
}

fn mac(host: &Host) -> String {
    let shown = host.sh("ip -j link show dev link");
    let shown: Value = serde_json::from_str(&shown).unwrap();
    shown[0]["address"].as_str().unwrap().to_owned()
}

/// What a file of that length has at `at`.
fn byte(at: usize) -> u8 {
    (at.wrapping_mul(0x9e37_79b9) >> 13) as u8
}

impl Lab {
    /// Send `len` bytes from a to b, and check each as it comes.
    fn transfer(&self, len: usize) {
        self.transfer_to("10.78.0.2:5000", len);
    }

    fn transfer_to(&self, address: &'static str, len: usize) {
        let listener = self.hosts[1].run(move || TcpListener::bind(address).unwrap());
        let receiver = std::thread::spawn(move || {
            let mut stream = listener.accept().unwrap().0;
            stream.set_read_timeout(Some(PATIENCE)).unwrap();
            let (mut at, mut buffer) = (0, vec![0; 1 << 16]);
            loop {
                let n = stream.read(&mut buffer).unwrap();
                if n == 0 {
                    return at;
                }
                let wrong = buffer[..n].iter().enumerate().find(|(i, b)| **b != byte(at + i));
                assert!(wrong.is_none(), "byte {} of {len} is wrong", at + wrong.unwrap().0);
                at += n;
            }
        });
        let mut stream = self.hosts[0].run(move || TcpStream::connect(address).unwrap());
        let bytes: Vec<u8> = (0..len).map(byte).collect();
        stream.write_all(&bytes).unwrap();
        drop(stream);
        assert_eq!(receiver.join().unwrap(), len);
    }

    /// The counters once nothing is on its way, which everything is accounted for in.
    fn settled(&self) -> [Stats; 2] {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let stats = self.link.live().stats();
            if stats.iter().all(|stats| stats.held == 0) {
                for stats in &stats {
                    assert_eq!(stats.packets_in + stats.duplicated, stats.packets_out + stats.dropped());
                    assert_eq!((stats.queue_full, stats.not_taken), (0, 0), "{stats:?}");
                }
                assert_eq!(self.link.missed_frames(), [0, 0]);
                return stats;
            }
            assert!(Instant::now() < deadline, "{stats:?}");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    fn no_checksum_errors(&self) {
        for host in &self.hosts {
            assert_eq!(host.counter("Tcp", "InCsumErrors"), 0);
            assert_eq!(host.counter("Ip", "InHdrErrors"), 0);
        }
    }
}

#[test]
fn ping_sees_the_delay() {
    let way = |ms: u64| json!({"delay": {"constant": format!("{ms}ms")}});
    let (machine, Some(lab)) = (outcome::Machine::watch(), lab(way(30), way(10))) else { return };
    let pings = lab.hosts[0].sh("ping -c 20 -i 0.05 10.78.0.2");
    let times: Vec<f64> = pings
        .lines()
        .filter_map(|line| line.split("time=").nth(1))
        .map(|rest| rest.split(' ').next().unwrap().parse().unwrap())
        .collect();
    assert_eq!(times.len(), 20, "{pings}");
    // Never less than asked; how much more is the machine's load, so only the quickest is held to a bound.
    let least = times.iter().copied().fold(f64::INFINITY, f64::min);
    assert!(least >= 40.0, "{least} ms of {times:?}");
    // From 40 to 12 ms, live.
    lab.link.live().set(&spec(way(2), way(10)));
    let after = lab.hosts[0].sh("ping -c 10 -i 0.05 10.78.0.2");
    let later = after.split("rtt min/avg/max/mdev = ").nth(1).unwrap().split('/').next().unwrap();
    let later: f64 = later.parse().unwrap();
    assert!(later >= 12.0, "{after}");
    let [there, back] = lab.settled();
    assert_eq!((there.packets_in, back.packets_in, there.changes), (30, 30, 2));
    if !machine.disturbed() {
        assert!(least < 45.0 && later < 17.0, "{least} ms of {times:?}; {after}");
    }
}

#[test]
fn a_lossy_path_is_byte_exact_and_every_loss_is_a_retransmit() {
    let way = json!({"delay": {"constant": "1ms"}, "loss": {"independent": "1%"}});
    let Some(lab) = lab(way, json!({"delay": {"constant": "1ms"}})) else { return };
    lab.transfer(20_000_000);
    let [there, back] = lab.settled();
    assert!(there.lost > 80, "{there:?}");
    // Packets on the wire, not super-segments: 20 MB are at least 13,800 of them.
    assert!(there.packets_in as usize > 20_000_000 / 1448, "{there:?}");
    let resent = lab.hosts[0].counter("Tcp", "RetransSegs");
    // What it sent again in vain the other side tells it, and that may be late; the last acknowledgement is
    // not sent again.
    let in_vain = lab.hosts[0].counter("TcpExt", "TCPDSACKRecv");
    assert!(
        (there.lost - 1..=there.lost + in_vain + 2).contains(&resent),
        "{resent} sent again, {} lost, {in_vain} in vain",
        there.lost
    );
    assert_eq!(back.lost, 0);
    lab.no_checksum_errors();
}

#[test]
fn a_peer_without_offloads_gets_right_packets_whatever_happens_to_them() {
    let way = json!({
        "delay": {"uniform": {"from": "1ms", "to": "2ms"}},
        "loss": {"gilbert_elliott": {"enter_bad": "0.2%", "leave_bad": "50%"}},
        "duplicate": "0.5%",
        "reorder": {"share": "0.5%", "by": {"packets": 3}},
        "bottleneck": {"rate": "400Mbit/s"}
    });
    let Some(lab) = lab(way, json!({})) else { return };
    // The kernel then checks each checksum in software, and takes super-segments apart before that.
    lab.hosts[1].sh("ethtool -K link rx off gro off");
    lab.hosts[0].sh("ethtool -K link tx-udp-segmentation on");
    lab.transfer(10_000_000);
    let [there, _] = lab.settled();
    assert!(there.lost > 0 && there.duplicated > 0 && there.reordered > 0, "{there:?}");
    lab.no_checksum_errors();
}

#[test]
fn ipv6_and_jumbo_frames_fare_the_same() {
    let way = json!({"delay": {"constant": "1ms"}, "loss": {"periodic": 50}, "duplicate": "1%"});
    let Some(lab) = lab(way, json!({})) else { return };
    for (end, host) in lab.hosts.iter().enumerate() {
        host.run(|| std::fs::write("/proc/sys/net/ipv6/conf/link/disable_ipv6", "0").unwrap());
        host.sh(&format!("ip addr add fd78::{}/64 dev link nodad", end + 1));
        host.sh("ip link set dev link mtu 9000");
        host.sh("ethtool -K link rx off gro off");
    }
    lab.transfer_to("[fd78::2]:5000", 20_000_000);
    let [there, _] = lab.settled();
    assert_eq!(there.lost, there.packets_in / 50);
    // 8928 bytes to a packet.
    assert!((2240..3500).contains(&there.packets_in), "{there:?}");
    lab.no_checksum_errors();
}

#[test]
fn damage_is_seen_by_the_receiver_and_repaired() {
    let Some(lab) = lab(json!({"corrupt": "1%"}), json!({})) else { return };
    lab.transfer(5_000_000);
    let [there, _] = lab.settled();
    assert!(there.corrupted > 10, "{there:?}");
    assert_eq!(lab.hosts[1].counter("Tcp", "InCsumErrors"), there.corrupted);
}

#[test]
fn udp_super_segments_are_taken_apart_around_a_loss() {
    let Some(lab) = lab(json!({"loss": {"list": [3, 4, 10]}}), json!({})) else { return };
    let to = lab.hosts[1].run(|| UdpSocket::bind("10.78.0.2:6000").unwrap());
    // One send of ten datagrams of 1000 bytes (UDP_SEGMENT), as one super-segment where the kernel has USO.
    let whole: Vec<u8> = (0..9_500).map(byte).collect();
    let sent = whole.clone();
    lab.hosts[0].run(move || {
        let from = UdpSocket::bind("10.78.0.1:0").unwrap();
        from.connect("10.78.0.2:6000").unwrap();
        nix::sys::socket::setsockopt(&from, nix::sys::socket::sockopt::UdpGsoSegment, &1000).unwrap();
        assert_eq!(from.send(&sent).unwrap(), 9_500);
    });
    let (mut came, mut buffer) = (Vec::new(), [0; 2000]);
    let lost = [2, 3, 9];
    to.set_read_timeout(Some(PATIENCE)).unwrap();
    while let Ok(n) = to.recv(&mut buffer) {
        came.push(buffer[..n].to_vec());
        if came.len() == 10 - lost.len() {
            // And no more.
            to.set_read_timeout(Some(Duration::from_millis(500))).unwrap();
        }
    }
    let expected: Vec<Vec<u8>> = whole
        .chunks(1000)
        .enumerate()
        .filter(|(i, _)| !lost.contains(i))
        .map(|(_, chunk)| chunk.to_vec())
        .collect();
    assert_eq!(
        came.iter().map(Vec::len).collect::<Vec<_>>(),
        expected.iter().map(Vec::len).collect::<Vec<_>>()
    );
    assert_eq!(came, expected);
    assert_eq!(lab.settled()[0].lost, 3);
    assert_eq!(lab.hosts[1].counter("Udp", "InErrors"), 0);
}

#[test]
fn a_rate_limit_is_kept_and_two_threads_do_the_same() {
    let options = Options { two_threads: true, ..Options::default() };
    let way = json!({"bottleneck": {"rate": "80Mbit/s", "queue": {"tail_drop": {"packets": 100}}}});
    let Some(lab) = lab_with(way, json!({}), &options) else { return };
    let began = Instant::now();
    lab.transfer(10_000_000);
    let took = began.elapsed().as_secs_f64();
    let [there, _] = lab.settled();
    // What left on the wire took its time, to the microsecond, whatever the machine was busy with.
    let least = there.bytes_out as f64 * 8.0 / 80e6;
    assert!(took >= least * 0.98, "{took} s for {least} s on the line");
    assert!(there.bytes_out > 10_000_000 / 1448 * 1538, "{there:?}");
    lab.no_checksum_errors();
}

#[test]
fn what_is_not_fetched_in_time_is_counted() {
    let Some(host) = Host::new() else { return };
    let tap = Tap::open(&host.place()).unwrap();
    host.sh("ip addr add 10.78.0.1/24 dev link");
    host.sh("ip neigh replace 10.78.0.2 lladdr 02:00:00:00:00:02 dev link nud permanent");
    assert_eq!(tap.missed_frames(), Some(0));
    host.run(|| {
        let from = UdpSocket::bind("10.78.0.1:0").unwrap();
        (0..5000).for_each(|_| assert!(from.send_to(&[0; 10], "10.78.0.2:9").is_ok()));
    });
    // 4096 wait, and nobody fetches them.
    assert_eq!(tap.missed_frames(), Some(5000 - 4096));
}

#[test]
fn a_core_that_is_not_there_is_refused() {
    let Some(lab) = lab_with(json!({}), json!({}), &Options { cores: vec![100_000], ..Options::default() })
    else {
        return;
    };
    until("it is noticed", || lab.link.end_reason().is_some());
    assert!(lab.link.end_reason().unwrap().to_string().contains("a core for the link"));
}

#[test]
fn real_time_priority_is_had_where_it_is_allowed() {
    let Some(lab) = lab(json!({}), json!({})) else { return };
    // Field 41 of a thread's stat file is its policy, and 1 is SCHED_FIFO (proc(5)).
    let allowed = std::thread::spawn(|| {
        let fifo = ThreadSchedulePolicy::Realtime(RealtimeThreadSchedulePolicy::Fifo);
        set_thread_priority_and_policy(thread_native_id(), ThreadPriority::Min, fifo).is_ok()
    });
    let wanted = if allowed.join().unwrap() { "1" } else { "0" };
    let had = || {
        let tasks = std::fs::read_dir("/proc/self/task").unwrap();
        let stats = tasks.filter_map(|task| std::fs::read_to_string(task.ok()?.path().join("stat")).ok());
        let policy = |stat: String| stat.rsplit(')').next()?.split(' ').nth(39).map(str::to_owned);
        stats.filter(|stat| stat.contains("(impair0)")).filter_map(policy).any(|policy| policy == wanted)
    };
    until(&format!("a thread of a link has policy {wanted}"), had);
    lab.transfer(1_000_000);
    assert!(lab.link.end_reason().is_none());
}

#[test]
fn a_link_whose_end_is_taken_away_says_which() {
    let Some(lab) = lab(json!({}), json!({})) else { return };
    assert!(lab.link.end_reason().is_none());
    lab.hosts[1].sh("ip link del dev link");
    until("it is noticed", || lab.link.end_reason().is_some());
    let why = lab.link.end_reason().unwrap().to_string();
    assert!(why.starts_with("the interface link is gone"), "{why}");
}

#[test]
fn an_end_that_cannot_be_is_refused_with_its_name_and_place() {
    if Host::new().is_none() {
        return;
    }
    let nowhere = TapLocation::new(Some("/nonexistent/namespace".into()), "link");
    let why =
        Link::start(&nowhere, &nowhere, &LinkSpec::default(), &Options::default()).unwrap_err().to_string();
    assert!(why.contains("link in /nonexistent/namespace"), "{why}");
}

#[test]
fn iperf3_and_the_link_count_the_same_bytes() {
    let Some(lab) = lab(json!({"delay": {"constant": "1ms"}}), json!({"delay": {"constant": "1ms"}})) else {
        return;
    };
    if Command::new("iperf3").arg("-v").output().is_err() {
        return outcome::skipped("iperf3 is not installed");
    }
    let mut server = lab.hosts[1].run(|| {
        Command::new("iperf3").args(["-s", "-1"]).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
    });
    until("iperf3 listens", || lab.hosts[1].sh("ss -Hltn").contains(":5201 "));
    let seen = lab.hosts[0].sh("iperf3 -J -c 10.78.0.2 -n 50M -C cubic");
    server.wait().unwrap();
    let seen: Value = serde_json::from_str(&seen).unwrap();
    let sent = seen["end"]["sum_sent"]["bytes"].as_u64().unwrap();
    let [there, _] = lab.settled();
    // Each of at least sent / 1448 packets has 66 bytes of headers and 24 more on the wire; the rest is
    // control.
    let least = sent + sent / 1448 * 90;
    assert!((least..least + least / 50).contains(&there.bytes_out), "{} for {least}", there.bytes_out);
    assert_eq!(lab.link.live().direction(Direction::AToB).stats().lost, 0);
}
