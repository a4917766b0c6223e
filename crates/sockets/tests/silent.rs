//! Servers that stop answering: each message without an answer is a failure of the measure phase, whenever its flow
//! began.

use crate::lab::net::{Host, enter_new_namespace, sh};
use crate::lab::{profile, run_until, run_with};
use protocol::meter::Failure;
use run::Control;
use run::result::{GroupResult, TrialResult};
use serde_json::{Value, json};
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::sleep;
use std::time::Duration;

/// Failures of one kind in the measure phase.
fn measured(group: &GroupResult, kind: &str) -> u64 {
    group.measured["failures"][kind].as_u64().unwrap_or(0)
}

fn errors(result: &TrialResult, kind: &str) -> (u64, u64) {
    let of_kind = result.groups[0].errors.iter().find(|e| e.kind == kind);
    of_kind.map_or((0, 0), |e| (e.count, e.total))
}

/// Until the test ends it.
fn long(groups: Value) -> Value {
    let mut profile = profile(groups);
    profile["phases"] = json!({"warmup": "200ms", "measure": "1h", "drain": "300ms", "sample": "100ms"});
    profile
}

/// Wait until `what` holds.
fn until(what: impl Fn() -> bool) {
    for _ in 0..3_000 {
        if what() {
            return;
        }
        sleep(Duration::from_millis(10));
    }
    panic!("it does not come about");
}

fn in_measure_phase(control: &Control) {
    until(|| control.now().is_some_and(|now| now > control.window().measure));
}

/// Connections of this namespace whose SYN nobody has answered.
fn connecting() -> usize {
    // the state of tcp_states.h: TCP_SYN_SENT
    let table = std::fs::read_to_string("/proc/thread-self/net/tcp").expect("proc is mounted");
    table.lines().filter(|line| line.split_whitespace().nth(3) == Some("02")).count()
}

/// A server that answers what it reads with `answer`, until it is told to go away.
struct Server {
    address: SocketAddr,
    /// Connections taken, over all.
    taken: Arc<AtomicUsize>,
    /// Connections that the other side has ended.
    left: Arc<AtomicUsize>,
    /// Answers nothing while this is set.
    silent: Arc<AtomicBool>,
    /// Bytes of answers not given.
    kept_back: Arc<AtomicUsize>,
    /// Those that it has not ended itself.
    connections: Arc<Mutex<Vec<Connection>>>,
}

struct Connection {
    stream: TcpStream,
    /// Answers given.
    answered: Arc<AtomicUsize>,
}

impl Server {
    fn new(answer: fn(&[u8]) -> Vec<u8>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("bind");
        let server = Self {
            address: listener.local_addr().expect("address"),
            taken: Arc::default(),
            left: Arc::default(),
            silent: Arc::default(),
            kept_back: Arc::default(),
            connections: Arc::default(),
        };
        let (taken, left) = (Arc::clone(&server.taken), Arc::clone(&server.left));
        let (silent, kept_back) = (Arc::clone(&server.silent), Arc::clone(&server.kept_back));
        let connections = Arc::clone(&server.connections);
        std::thread::spawn(move || {
            for mut stream in listener.incoming().flatten() {
                let answered = Arc::<AtomicUsize>::default();
                let taking = stream.try_clone().expect("clone");
                let connection = Connection { stream: taking, answered: Arc::clone(&answered) };
                connections.lock().expect("connections").push(connection);
                taken.fetch_add(1, Ordering::SeqCst);
                let (silent, kept_back) = (Arc::clone(&silent), Arc::clone(&kept_back));
                let left = Arc::clone(&left);
                std::thread::spawn(move || {
                    let mut buffer = [0; 4096];
                    while let Ok(n @ 1..) = stream.read(&mut buffer) {
                        let answer = answer(&buffer[..n]);
                        if silent.load(Ordering::SeqCst) {
                            kept_back.fetch_add(answer.len(), Ordering::SeqCst);
                            continue;
                        }
                        answered.fetch_add(1, Ordering::SeqCst);
                        let _gone = stream.write_all(&answer);
                    }
                    left.fetch_add(1, Ordering::SeqCst);
                });
            }
        });
        server
    }

    /// Wait until each of its three devices has had ten more answers: more than it has messages in flight, so that
    /// all that are in flight then were sent after this was called.
    fn answers_each(&self) {
        let answered = || -> Vec<usize> {
            let connections = self.connections.lock().expect("connections");
            connections.iter().map(|connection| connection.answered.load(Ordering::SeqCst)).collect()
        };
        until(|| answered().len() == 3);
        let before = answered();
        until(|| answered().iter().zip(&before).all(|(now, before)| now >= &(before + 10)));
    }

    fn destroy(&self) {
        for connection in self.connections.lock().expect("connections").drain(..) {
            let _gone = connection.stream.shutdown(Shutdown::Both);
        }
    }

    /// Send each of its clients a reset, once: as `ss -K` does, or a firewall that forgot them.
    fn reset(&self) {
        for Connection { stream, .. } in self.connections.lock().expect("connections").drain(..) {
            let lingering = nix::libc::linger { l_onoff: 1, l_linger: 0 };
            nix::sys::socket::setsockopt(&stream, nix::sys::socket::sockopt::Linger, &lingering)
                .expect("linger");
            let _gone = stream.shutdown(Shutdown::Read);
        }
    }
}

fn http(_: &[u8]) -> Vec<u8> {
    b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n".to_vec()
}

/// CONNACK for CONNECT, PUBACK for each PUBLISH (QoS 1, short).
fn broker(mut packets: &[u8]) -> Vec<u8> {
    let mut answers = Vec::new();
    while let [kind, len, rest @ ..] = packets {
        let (body, after) = rest.split_at(usize::from(*len).min(rest.len()));
        match kind >> 4 {
            1 => answers.extend_from_slice(&[0x20, 2, 0, 0]),
            3 => {
                let id = 2 + usize::from(body[1]);
                answers.extend_from_slice(&[0x40, 2, body[id], body[id + 1]]);
            }
            _ => {}
        }
        packets = after;
    }
    answers
}

fn groups(scheme: &str, address: SocketAddr, model: Value) -> Value {
    json!([{"name": "g", "target": format!("{scheme}://{address}"), "devices": 3, "model": model}])
}

#[test]
fn a_server_that_accepts_and_never_answers_fails_every_message() {
    let silent = Server::new(http);
    silent.silent.store(true, Ordering::SeqCst);
    let script = json!({"script": {"timeout": "1h", "steps": [{"send": "x"}, {"expect": "y"}]}});
    for (scheme, model) in [
        ("http", json!({"http": {"timeout": "1h"}})),
        ("mqtt", json!({"mqtt": {"connect_timeout": "1h"}})),
        ("tcp", script),
    ] {
        let before = silent.kept_back.load(Ordering::SeqCst);
        let (result, flows) = run_with(&long(groups(scheme, silent.address, model)), |control| {
            // each device has sent what it waits for the answer of, however late it began
            until(|| silent.kept_back.load(Ordering::SeqCst) == before + 3 * http(&[]).len());
            in_measure_phase(control);
            control.stop();
        });
        // waited for all the time
        assert_eq!(measured(&result.groups[0], "unanswered"), 3, "{scheme}: {:?}", result.groups[0].errors);
        assert_eq!(errors(&result, "unanswered"), (3, 3), "{scheme}");
        assert_eq!(result.groups[0].measured["flows_failed"], 3, "{scheme}");
        assert_eq!(flows.iter().map(|flow| flow.tally.failed).collect::<Vec<_>>(), [1, 1, 1], "{scheme}");
    }
}

#[test]
fn an_address_that_leads_nowhere_answers_nothing() {
    if !enter_new_namespace() {
        return;
    }
    let _host = Host::new();
    std::fs::write("/proc/sys/net/ipv4/ping_group_range", "0 0").expect("this namespace's");
    // the host that this address would be of takes all and says nothing
    sh("ip neighbour add 192.0.2.3 lladdr 02:00:00:00:00:03 dev near");
    let http = json!({"http": {"timeout": "1h"}});
    for (scheme, model) in [("http", http), ("ping", json!({"ping": {"interval": "100ms"}}))] {
        let groups = json!([{"name": "g", "target": format!("{scheme}://192.0.2.3"), "devices": 3,
            "connect_timeout": "1h", "model": model}]);
        let (result, _) = if scheme == "http" {
            run_with(&long(groups), |control| {
                until(|| connecting() == 3);
                in_measure_phase(control);
                control.stop();
            })
        } else {
            run_until(&long(groups), |measured| measured.counts.messages_sent >= 9)
        };
        let group = &result.groups[0];
        let expected =
            if scheme == "http" { 3 } else { group.measured["messages_sent"].as_u64().expect("sent") };
        assert_eq!(measured(group, "unanswered"), expected, "{scheme}: {:?}", group.errors);
        assert!(expected > 0, "{scheme}");
    }
    // and one that the kernel itself refuses is the network's fault, not ours
    sh("ip route add blackhole 198.51.100.0/24");
    sh("ip route add prohibit 203.0.113.0/24");
    for host in ["198.51.100.1", "203.0.113.1"] {
        for (scheme, model) in [
            ("http", json!({"http": {}})),
            ("ping", json!({"ping": {"interval": "50ms"}})),
            ("udp", json!({"stream": {"rate": "100/s"}})),
        ] {
            let port = if scheme == "ping" { "" } else { ":9" };
            let groups = json!([{"name": "g", "target": format!("{scheme}://{host}{port}"), "model": model}]);
            let at = Failure::Unreachable as usize;
            let (result, _) = run_until(&long(groups), |measured| measured.counts.failures[at] > 0);
            let group = &result.groups[0];
            assert!(measured(group, "unreachable") > 0, "{scheme}://{host}: {:?}", group.errors);
            assert_eq!(measured(group, "local"), 0, "{scheme}://{host}: {:?}", group.errors);
            let example =
                group.errors.iter().find(|e| e.kind == "unreachable").and_then(|e| e.example.as_deref());
            assert!(example.is_some_and(|text| text.contains("no route to host")), "{example:?}");
        }
    }
}

#[test]
fn connections_that_are_all_reset_while_measured_are_as_many_failures() {
    let server = Server::new(http);
    // with a request on its way, of a kind that may not be sent again
    let model = json!({"http": {"method": "POST"}});
    let (result, flows) = run_with(&long(groups("http", server.address, model)), |control| {
        in_measure_phase(control);
        server.answers_each();
        server.silent.store(true, Ordering::SeqCst);
        until(|| server.kept_back.load(Ordering::SeqCst) == 3 * http(b"").len());
        server.silent.store(false, Ordering::SeqCst);
        server.reset();
        server.answers_each();
        control.stop();
    });
    // each device's first, on the connection that it had from the warm-up on
    assert_eq!(errors(&result, "reset"), (3, 3), "{:?}", result.groups[0].errors);
    assert_eq!(result.groups[0].measured["flows_failed"], 3);
    assert_eq!(flows.iter().map(|flow| flow.tally.failed).collect::<Vec<_>>(), [1, 1, 1]);
}

#[test]
fn a_broker_that_goes_away_and_comes_back_shows() {
    let server = Server::new(broker);
    let model = json!({"mqtt": {"interval": "10ms", "reconnect": {"fixed": {"delay": "20ms"}}}});
    let (result, _) = run_with(&long(groups("mqtt", server.address, model)), |control| {
        in_measure_phase(control);
        server.answers_each();
        server.destroy();
        server.answers_each();
        control.stop();
    });
    let group = &result.groups[0];
    assert_eq!(measured(group, "closed") + measured(group, "reset"), 3, "{:?}", group.errors);
    assert_eq!((&group.measured["flows_failed"], &group.total["flows_started"]), (&json!(0), &json!(3)));
}

#[test]
fn a_broker_that_falls_silent_leaves_its_messages_unanswered() {
    let server = Server::new(broker);
    let model = json!({"mqtt": {"interval": "0s", "max_inflight": 5, "ack_timeout": "1h"}});
    let (result, flows) = run_with(&long(groups("mqtt", server.address, model)), |control| {
        in_measure_phase(control);
        server.answers_each();
        server.silent.store(true, Ordering::SeqCst);
        // fifteen PUBACKs: all that may be in flight
        until(|| server.kept_back.load(Ordering::SeqCst) == 15 * 4);
        control.stop();
    });
    let group = &result.groups[0];
    let count = |of: &Value, name: &str| of[name].as_u64().expect("a count");
    // five of each device; and every message is delivered or failed
    assert_eq!(errors(&result, "unanswered"), (15, 15));
    let (sent, delivered) = (count(&group.total, "messages_sent"), count(&group.total, "messages_delivered"));
    assert_eq!(sent, delivered + 15);
    assert_eq!(flows.iter().map(|flow| flow.tally.failed).sum::<u32>(), 15);
}

#[test]
fn a_server_that_freezes_stalls_its_devices() {
    let server = Server::new(http);
    let mut groups = groups("http", server.address, json!({"http": {"timeout": "1h"}}));
    groups[0]["stall"] = json!("100ms");
    let (result, _) = run_with(&long(groups), |control| {
        in_measure_phase(control);
        server.answers_each();
        server.silent.store(true, Ordering::SeqCst);
        until(|| server.kept_back.load(Ordering::SeqCst) == 3 * http(&[]).len());
        sleep(Duration::from_millis(400));
        control.stop();
    });
    let stalls = result.groups[0].stalls.expect("devices wait");
    assert_eq!((stalls.limit, stalls.waiting), (100_000_000, 1.0));
    // three devices for 0.4 s, or longer where the machine is busy
    assert!(stalls.time >= 1.2 && stalls.longest >= 400_000_000, "{stalls:?}");
    let share = stalls.time / (3.0 * result.phases.measure);
    assert!(share <= 1.0 && (stalls.share - share).abs() < 1e-9, "{stalls:?} of {:?}", result.phases);
    let mut measure = result.series.iter().filter(|point| point.phase == protocol::meter::Phase::Measure);
    assert_eq!(measure.next_back().and_then(|point| point.groups["g"].waiting), Some(3));
    assert_eq!(measured(&result.groups[0], "unanswered"), 3);
}

#[test]
fn devices_retire_when_their_message_is_answered_and_come_back() {
    let stage = |over: &str, devices: u32| json!({"over": over, "devices": devices});
    let down = [stage("0s", 20), stage("400ms", 20), stage("0s", 5)];
    // time for all fifteen to go before some are wanted again
    let again = [stage("2s", 5), stage("0s", 12)];
    // flows that never end, and flows of one request
    for (scheme, model, stages) in [
        ("http", json!({"http": {"requests": 0}}), [&down[..], &again].concat()),
        ("mqtt", json!({"mqtt": {"count": 0, "interval": "5ms"}}), [&down[..], &again].concat()),
        ("http", json!({"http": {"requests": 1}}), down.to_vec()),
    ] {
        let endless = stages.len() > 3;
        let server = Server::new(if scheme == "http" { http } else { broker });
        let mut groups = groups(scheme, server.address, model);
        groups[0]["devices"] = json!(20);
        groups[0]["load"] = json!({"closed": {"flow_interval": "5ms", "stages": stages}});
        let (result, _) = run_with(&long(groups), |control| {
            let count = |of: &AtomicUsize| of.load(Ordering::SeqCst);
            if endless {
                until(|| (count(&server.left), count(&server.taken)) == (15, 27));
            } else {
                until(|| control.now().is_some_and(|now| now.0 > 2_500_000_000));
            }
            control.stop();
        });
        let group = &result.groups[0];
        if endless {
            assert_eq!(group.total["flows_started"], 27, "{scheme}: fifteen went, and seven came back");
        }
        // in good order: none is cut off
        assert_eq!(group.total["flows_failed"], 0, "{scheme}: {:?}", group.errors);
        assert_eq!(group.total["messages_sent"], group.total["messages_delivered"], "{scheme}");
        let mut of_phase =
            result.series.iter().filter(|point| point.phase == protocol::meter::Phase::Measure);
        let active = of_phase.next_back().map(|point| point.groups["g"].devices_active);
        assert!(active.is_some_and(|n| n <= if endless { 12 } else { 5 }), "{scheme}: {active:?}");
    }
}
