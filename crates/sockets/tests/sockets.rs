//! The sockets transport against real sockets on loopback: what it says it did, the other side saw.

use crate::lab::{profile, run, run_with, total};
use outcome::Machine;
use run::result::TrialResult;
use serde_json::json;
use sockets::reflector::{Counters, Mode, Reflector};
use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

/// Percent of what was intended that a run offers at least, or it says that it had too little time: what falls due last may come too
/// late.
const LEAST: u64 = 90;

/// Whether the run had too little time, which is said.
fn starved(machine: &Machine, result: &TrialResult) -> bool {
    machine.starved(result.validity.reasons.iter().map(|reason| (reason.code, reason.what.as_str())))
}

struct Far {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<Counters>,
    udp: SocketAddr,
    tcp: SocketAddr,
}

impl Far {
    fn new(mode: Mode, host: &str) -> Self {
        let any: SocketAddr = format!("{host}:0").parse().expect("address");
        let mut reflector = Reflector::new(mode, Some(any), Some(any)).expect("listen");
        let (udp, tcp) = (reflector.udp_address().expect("udp"), reflector.tcp_address().expect("tcp"));
        let stop = Arc::new(AtomicBool::new(false));
        let asked = Arc::clone(&stop);
        let thread = std::thread::spawn(move || {
            reflector.run(&asked, |_| {});
            reflector.counters()
        });
        Self { stop, thread, udp, tcp }
    }

    fn counters(self) -> Counters {
        std::thread::sleep(Duration::from_millis(150));
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().expect("reflector")
    }
}

#[test]
fn datagrams_sent_are_datagrams_received() {
    for host in ["127.0.0.1", "[::1]"] {
        let far = Far::new(Mode::Sink, host);
        let groups = json!([{"name": "s", "target": format!("udp://{host}:{}", far.udp.port()), "devices": 4,
            "model": {"stream": {"size": "100B", "rate": "5000/s", "echo": false}}}]);
        let (result, flows) = run(&profile(groups));
        let counters = far.counters();
        let sent = total(&result, "messages_sent");
        assert_eq!(counters.datagrams_received, sent, "{host}");
        assert_eq!(counters.bytes_received, sent * 100, "{host}");
        assert_eq!(flows.iter().map(|f| f.tally.sent).sum::<u64>(), sent);
        assert_eq!(result.groups[0].loss, None, "nothing confirms one-way datagrams");
    }
}

#[test]
fn a_paced_stream_sends_what_was_asked() {
    let machine = Machine::watch();
    let far = Far::new(Mode::Echo, "127.0.0.1");
    let groups = json!([{"name": "s", "target": format!("udp://{}", far.udp), "devices": 2,
        "model": {"stream": {"size": "18B", "rate": "1000/s", "echo": true}}}]);
    let (result, flows) = run(&profile(groups));
    let counters = far.counters();
    let measured = |name: &str| result.groups[0].measured[name].as_u64().expect(name);
    assert_eq!(measured("messages_intended"), 1200, "two devices, 1000/s, 0.6 s");
    let sent = measured("messages_sent");
    if sent < LEAST * 1200 / 100 && starved(&machine, &result) {
        return;
    }
    assert!((LEAST * 1200 / 100..=1200).contains(&sent), "{sent}");
    assert_eq!(measured("messages_delivered"), sent);
    assert_eq!(result.groups[0].loss, Some(0.0));
    assert_eq!(result.groups[0].delays["round_trip"].count, sent);
    assert_eq!(counters.datagrams_sent, total(&result, "messages_delivered"));
    assert_eq!(flows.iter().map(|f| f.tally.delivered).sum::<u64>(), counters.datagrams_sent);
    // what a point of the series counts adds up to the whole
    let points: u64 =
        result.series.iter().map(|p| p.groups["s"].counts["messages_sent"].as_u64().expect("sent")).sum();
    assert_eq!(points, total(&result, "messages_sent"));
}

#[test]
fn a_dead_port_is_refused_and_not_hammered() {
    let closed = TcpListener::bind("127.0.0.1:0").expect("bind").local_addr().expect("address");
    let groups =
        json!([{"name": "w", "target": format!("http://{closed}"), "devices": 3, "model": {"http": {}}}]);
    let (result, _) = run(&profile(groups));
    let failed = total(&result, "flows_failed");
    assert!((3..=3 * 9).contains(&failed), "0.8 s with 0.1 s between tries: {failed}");
    assert_eq!(result.groups[0].errors[0].kind, "refused");
    assert_eq!(result.groups[0].errors[0].total, failed);
    assert!(result.groups[0].errors[0].example.as_ref().is_some_and(|e| e.contains("refused")));
}

/// A web server of one thread a connection that counts what it answers.
fn web(answer: &'static [u8]) -> (SocketAddr, Arc<AtomicU64>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("bind");
    let address = listener.local_addr().expect("address");
    let answered = Arc::new(AtomicU64::new(0));
    let count = Arc::clone(&answered);
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let count = Arc::clone(&count);
            std::thread::spawn(move || {
                let mut out = stream.try_clone().expect("clone");
                let mut lines = BufReader::new(stream).lines();
                while let Some(Ok(line)) = lines.next() {
                    if line.is_empty() {
                        count.fetch_add(1, Ordering::Relaxed);
                        if out.write_all(answer).is_err() {
                            return;
                        }
                    }
                }
            });
        }
    });
    (address, answered)
}

#[test]
fn every_request_is_one_that_the_server_answered() {
    let (address, answered) = web(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello");
    let groups = json!([{"name": "w", "target": format!("http://{address}/x"), "devices": 8,
        "model": {"http": {"requests": 10}}, "load": {"closed": {"flow_interval": "5ms"}}}]);
    let (result, _) = run(&profile(groups));
    let sent = total(&result, "messages_sent");
    assert!(total(&result, "flows_completed") > 0, "{:?}", result.groups[0].errors);
    assert_eq!(answered.load(Ordering::Relaxed), sent);
    assert_eq!(total(&result, "messages_delivered"), sent);
    assert_eq!(total(&result, "flows_started"), total(&result, "flows_completed"));
    assert_eq!(total(&result, "flows_failed"), 0);
}

/// What `count` gives once it stands still: it must not move for half a second, and has 20 s to come to that.
fn settled(count: &dyn Fn() -> u64) -> u64 {
    for _ in 0..40 {
        let before = count();
        std::thread::sleep(Duration::from_millis(500));
        if count() == before {
            return before;
        }
    }
    panic!("it goes on while the run is paused");
}

#[test]
fn garbage_from_a_server_is_counted_and_survived() {
    let (address, _) = web(b"\x00\x01garbage HTTP nonsense\r\n\r\n");
    let groups =
        json!([{"name": "w", "target": format!("http://{address}"), "devices": 2, "model": {"http": {}}}]);
    let (result, _) = run(&profile(groups));
    assert!(
        result.groups[0].errors.iter().any(|e| e.kind == "protocol" && e.count > 2),
        "{:?}",
        result.groups[0].errors
    );
}

#[test]
fn open_arrivals_are_all_begun() {
    let machine = Machine::watch();
    let (address, answered) = web(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
    // a device for each arrival, however long the server takes
    let groups = json!([{"name": "w", "target": format!("http://{address}"), "devices": 160,
        "model": {"http": {"requests": 1}}, "load": {"open": {"rate": "200/s"}}}]);
    let (result, _) = run(&profile(groups));
    assert_eq!(result.groups[0].measured["flows_intended"], 120, "200/s for 0.6 s");
    let started = result.groups[0].measured["flows_started"].as_u64().expect("flows");
    if started < LEAST * 120 / 100 && starved(&machine, &result) {
        return;
    }
    assert!((LEAST * 120 / 100..=120).contains(&started), "{started}");
    assert_eq!(result.groups[0].measured["flows_completed"], started);
    assert_eq!(answered.load(Ordering::Relaxed), total(&result, "messages_sent"));
}

#[test]
fn more_than_can_be_offered_is_invalid_and_says_by_how_much() {
    // nobody ever answers: one device is busy with its first flow until its time-out
    let silent = TcpListener::bind("127.0.0.1:0").expect("bind");
    let address = silent.local_addr().expect("address");
    let groups = json!([{"name": "w", "target": format!("http://{address}"), "devices": 1,
        "model": {"http": {"requests": 1, "timeout": "10s"}}, "load": {"open": {"rate": "100/s"}}}]);
    let mut short = profile(groups);
    short["phases"]["drain"] = json!("200ms");
    let (result, _) = run(&short);
    assert!(!result.validity.valid);
    let reason = result
        .validity
        .reasons
        .iter()
        .find(|r| matches!(r.code, "ND-90-01" | "ND-90-08"))
        .expect("short of the intended load");
    assert!(reason.what.contains("0 of 60 intended flows"), "{}", reason.what);
    assert_eq!(total(&result, "flows_failed"), 1, "the one under way when draining ended");
}

#[test]
fn a_stop_ends_it_early_and_says_so() {
    let far = Far::new(Mode::Echo, "127.0.0.1");
    let groups = json!([{"name": "s", "target": format!("udp://{}", far.udp),
        "model": {"stream": {"size": "18B", "rate": "1000/s", "echo": true}}}]);
    let mut long = profile(groups);
    long["phases"]["measure"] = json!("1h");
    let (result, _) = run_with(&long, |control| {
        std::thread::sleep(Duration::from_millis(500));
        control.stop();
    });
    assert!(result.phases.measure < 5.0);
    assert!(result.validity.reasons.iter().any(|r| r.code == "ND-90-05"));
    assert_eq!(total(&result, "messages_sent"), far.counters().datagrams_received);
}

#[test]
fn nothing_is_sent_while_paused() {
    let sink = UdpSocket::bind("127.0.0.1:0").expect("bind");
    sink.set_read_timeout(Some(Duration::from_secs(3))).expect("timeout");
    let address = sink.local_addr().expect("address");
    let arrived = Arc::new(AtomicU64::new(0));
    let counted = Arc::clone(&arrived);
    let counting = std::thread::spawn(move || {
        // the pause is shorter than the time-out, so that silence means the end
        while sink.recv(&mut [0; 64]).is_ok() {
            counted.fetch_add(1, Ordering::Relaxed);
        }
    });
    let seen = || arrived.load(Ordering::Relaxed);
    let groups = json!([{"name": "s", "target": format!("udp://{address}"),
        "model": {"stream": {"size": "18B", "rate": "1000/s", "echo": false}}}]);
    let at_pause = std::cell::Cell::new(0);
    let mut long = profile(groups);
    long["phases"]["warmup"] = json!("500ms");
    long["phases"]["measure"] = json!("1s");
    let (result, _) = run_with(&long, |control| {
        std::thread::sleep(Duration::from_millis(700));
        control.pause();
        at_pause.set(settled(&seen));
        control.resume();
    });
    counting.join().expect("counted");
    // as many fell due as without the pause: the run's clock stood still
    assert_eq!(result.groups[0].measured["messages_intended"], 1000, "1000/s for 1 s");
    assert!(seen() > at_pause.get(), "it goes on after the pause");
    assert_eq!(seen(), total(&result, "messages_sent"));
}

#[test]
fn ping_reaches_this_host() {
    let groups = json!([{"name": "p", "target": "ping://127.0.0.1", "devices": 3,
        "model": {"ping": {"interval": "50ms"}}}]);
    let (result, _) = run(&profile(groups));
    assert_eq!(
        total(&result, "messages_sent"),
        total(&result, "messages_delivered"),
        "{:?}",
        result.groups[0].errors
    );
    assert!(total(&result, "messages_sent") >= 3, "each device pings");
}

#[test]
fn a_script_speaks_to_the_reflector() {
    let far = Far::new(Mode::Echo, "127.0.0.1");
    let groups = json!([{"name": "s", "target": format!("tcp://{}", far.tcp), "devices": 2,
        "model": {"script": {"steps": [{"send": "hello {device}\\n"}, {"expect": "hello"}]}},
        "load": {"closed": {"flow_interval": "20ms"}}}]);
    let (result, _) = run(&profile(groups));
    assert!(total(&result, "flows_completed") > 0, "{:?}", result.groups[0].errors);
    assert_eq!(total(&result, "flows_failed"), 0, "{:?}", result.groups[0].errors);
    assert_eq!(far.counters().connections, total(&result, "flows_started"));
}

/// A server that hands each connection to `f`.
fn server(f: impl Fn(std::net::TcpStream) + Clone + Send + 'static) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("bind");
    let address = listener.local_addr().expect("address");
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let f = f.clone();
            std::thread::spawn(move || f(stream));
        }
    });
    address
}

/// Read a request's head.
fn read_head(stream: &std::net::TcpStream) {
    for line in BufReader::new(stream).lines() {
        if line.is_ok_and(|l| l.is_empty()) {
            return;
        }
    }
}

#[test]
fn an_end_that_comes_with_the_last_bytes_is_seen() {
    // without a length the body lasts until the server closes (RFC 9112 section 6.3)
    let address = server(|mut stream| {
        read_head(&stream);
        let _gone = stream.write_all(b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nhello");
    });
    let groups = json!([{"name": "w", "target": format!("http://{address}"), "devices": 4,
        "model": {"http": {"requests": 1, "timeout": "10s"}}, "load": {"closed": {"flow_interval": "1ms"}}}]);
    let (result, _) = run(&profile(groups));
    assert!(total(&result, "flows_completed") > 0, "{}", result.groups[0].total);
    assert_eq!(total(&result, "flows_failed"), 0, "{:?}", result.groups[0].errors);
}

#[test]
fn answers_that_come_during_a_pause_wait_for_its_end() {
    let (address, answered) = web(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
    let groups = json!([{"name": "w", "target": format!("http://{address}"), "devices": 2,
        "model": {"http": {"requests": 0}}}]);
    let seen = || answered.load(Ordering::Relaxed);
    let mut at_pause = 0;
    let (result, _) = run_with(&profile(groups), |control| {
        std::thread::sleep(Duration::from_millis(200));
        control.pause();
        at_pause = settled(&seen);
        control.resume();
    });
    assert!(seen() > at_pause, "it goes on after the pause");
    assert!(total(&result, "messages_delivered") > 0);
    assert_eq!(total(&result, "flows_failed"), 0, "{:?}", result.groups[0].errors);
}

#[test]
fn what_comes_after_a_stop_is_not_of_the_measure_phase() {
    let far = Far::new(Mode::Echo, "127.0.0.1");
    let groups = json!([{"name": "s", "target": format!("udp://{}", far.udp),
        "model": {"stream": {"size": "18B", "rate": "1000/s", "echo": true}}}]);
    let mut long = profile(groups);
    long["phases"] = json!({"warmup": "0s", "measure": "1h", "drain": "1s", "sample": "10s"});
    let (result, _) = run_with(&long, |control| {
        std::thread::sleep(Duration::from_millis(500));
        control.stop();
    });
    assert_eq!(result.series[0].phase, protocol::meter::Phase::Measure);
    assert!((result.series[0].t - result.phases.measure).abs() < 1e-6);
    assert!(result.phases.measure < 3_600.0, "{:?}", result.phases);
    // rates are over the time that the phase really took
    let (group, took) = (&result.groups[0], result.phases.measure);
    let due = group.measured["messages_intended"].as_f64().expect("a number");
    assert!((1.0..=took * 1000.0 + 1.0).contains(&due), "{due} in {took} s");
    assert!((group.rates.messages_intended * took - due).abs() < 1e-6, "{:?}", group.rates);
    far.counters();
}

#[test]
fn a_server_that_floods_and_resets_is_one_failure_a_flow() {
    let address = server(|mut stream| {
        read_head(&stream);
        // unread bytes behind the head make the close a reset
        let _gone = stream.write_all(&[b'x'; 1 << 20]);
    });
    let groups = json!([{"name": "w", "target": format!("http://{address}"), "devices": 8,
        "model": {"http": {"method": "POST", "body": "y".repeat(4096)}}}]);
    let (result, flows) = run(&profile(groups));
    let failed = total(&result, "flows_failed");
    let errors: u64 = result.groups[0].errors.iter().map(|e| e.total).sum();
    assert!(failed > 8, "{failed}");
    assert_eq!(errors, failed, "{:?}", result.groups[0].errors);
    assert_eq!(flows.iter().map(|f| u64::from(f.tally.failed)).sum::<u64>(), errors);
}

#[test]
fn a_server_that_takes_nothing_does_not_fill_the_memory() {
    // MQTT at QoS 0 waits for nobody: what the server does not take has to go somewhere
    let address = server(|mut stream| {
        let _gone = stream.write_all(b"\x20\x02\x00\x00");
        std::thread::sleep(Duration::from_secs(20));
    });
    let groups = json!([{"name": "m", "target": format!("mqtt://{address}"), "devices": 1,
        "model": {"mqtt": {"qos": 0, "count": 0, "interval": "1ms", "size": "100kB"}}}]);
    // what may wait here, and what the two sockets take, is 40 MB at most: 400 messages
    let mut long = profile(groups);
    long["phases"]["measure"] = json!("4s");
    let (result, _) = run(&long);
    let group = &result.groups[0];
    let error = group.errors.iter().find(|e| e.kind == "timeout");
    let error = error.unwrap_or_else(|| panic!("{:?}, {}", group.errors, group.total));
    assert!(error.example.as_ref().is_some_and(|e| e.contains("does not read")), "{error:?}");
}

#[test]
fn an_echo_that_never_comes_is_loss() {
    let far = Far::new(Mode::Sink, "127.0.0.1");
    let groups = json!([{"name": "s", "target": format!("udp://{}", far.udp),
        "model": {"stream": {"size": "18B", "rate": "500/s", "echo": true}}}]);
    let (result, _) = run(&profile(groups));
    assert_eq!(result.groups[0].loss, Some(1.0));
}

#[test]
fn a_live_view_of_an_overload_shows_what_fell_due() {
    let far = Far::new(Mode::Sink, "127.0.0.1");
    let groups = json!([{"name": "s", "target": format!("udp://{}", far.udp), "devices": 2,
        "model": {"stream": {"size": "18B", "rate": "20M/s", "echo": false}}}]);
    let (result, _) = run(&profile(groups));
    let measured = &result.groups[0].measured;
    assert_eq!(measured["messages_intended"], 24_000_000, "two devices, 20M/s, 0.6 s");
    let points = result.series.iter().filter(|p| p.phase == protocol::meter::Phase::Measure);
    let intended: Vec<u64> =
        points.map(|p| p.groups["s"].counts["messages_intended"].as_u64().expect("intended")).collect();
    assert_eq!(intended.iter().sum::<u64>(), 24_000_000);
    // one more or less, as devices do not begin together
    assert!(intended.iter().all(|n| n.abs_diff(4_000_000) <= 2), "{intended:?}");
    far.counters();
}
