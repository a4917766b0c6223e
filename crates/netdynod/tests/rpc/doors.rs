//! What a request can make of the daemon: no file of others', no wait without end, no more memory than there is.

use crate::rpc::daemon::{Client, Daemon, TOKEN, error, loaded, profile, request, sink, until};
use crate::rpc::graph::over_a_cable;
use capture::read::frames;
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Write};
use std::net::UdpSocket;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::os::unix::net::UnixStream;
use std::process::{Command, Stdio};

/// A writer whose captures are of the loopback interface; `None` where that is not allowed.
fn capturing(daemon: &Daemon) -> Option<Client> {
    let mut writer = daemon.connect();
    if writer.get("core.describe")["rights"]["net_raw"] == false {
        outcome::skipped("it needs CAP_NET_RAW");
        return None;
    }
    writer.get("control.acquire");
    Some(writer)
}

pub fn guest(address: &str) -> Client {
    let mut client = Client::tcp(address);
    client.call("control.hello", json!({"token": TOKEN}));
    client.get("control.acquire");
    client
}

#[test]
fn a_capture_takes_no_others_place_and_waits_for_nobody() {
    let daemon = Daemon::start();
    let Some(mut writer) = capturing(&daemon) else { return };
    let at = |name: &str| daemon.file(name);
    std::fs::write(at("theirs"), "theirs").unwrap();
    symlink(at("theirs"), at("link")).unwrap();
    symlink(at("absent"), at("dangling")).unwrap();
    assert!(Command::new("mkfifo").arg(at("fifo")).status().unwrap().success());
    for name in ["theirs", "link", "dangling", "fifo", "."] {
        let data = writer.fails("capture.start", json!({"path": at(name), "interface": "lo"}), -32005);
        assert_eq!((&data["code"], &data["at"]), (&json!("ND-92-09"), &json!("capture.path")), "{name}");
        let why = data["what"].as_str().unwrap();
        assert!(!why.contains("Error reading bytes"), "{name}: the cause, not the library's words: {why}");
    }
    assert_eq!(std::fs::read(at("theirs")).unwrap(), b"theirs");
    assert!(!at("absent").exists());
    writer.call("capture.start", json!({"path": at("new"), "interface": "lo"}));
    assert_eq!(std::fs::metadata(at("new")).unwrap().permissions().mode() & 0o777, 0o600);
    for (key, value) in [("snap", json!(1)), ("snap", json!(u32::MAX)), ("filter", json!("x".repeat(4097)))] {
        let mut params = json!({"path": at("other"), "interface": "lo"});
        params[key] = value;
        assert_eq!(writer.fails("capture.start", params, -32602)["at"], format!("params.{key}"));
    }
}

#[test]
fn a_capture_can_be_read_after_the_daemon_was_killed() {
    let mut daemon = Daemon::start();
    let Some(mut writer) = capturing(&daemon) else { return };
    let (path, sink) = (daemon.file("c.pcapng"), UdpSocket::bind("127.0.0.1:0").unwrap());
    let filter = format!("udp dst port {}", sink.local_addr().unwrap().port());
    writer.call("capture.start", json!({"path": path, "interface": "lo", "filter": filter}));
    (0..50).for_each(|_| {
        drop(UdpSocket::bind("127.0.0.1:0").unwrap().send_to(&[7; 999], sink.local_addr().unwrap()))
    });
    until("it is captured", || writer.get("capture.status")["packets"] == 50);
    // What the status tells is in the file.
    daemon.signal("KILL");
    daemon.ended();
    assert_eq!(frames(&path).unwrap().len(), 50);
}

#[test]
fn a_capture_of_a_port_can_be_read_after_the_daemon_was_killed() {
    let mut daemon = Daemon::start();
    let mut writer = daemon.connect();
    let path = daemon.file("c.pcapng");
    writer.get("control.acquire");
    writer.call("run.load", json!({"profile": over_a_cable()}));
    writer.get("run.start");
    writer.call("capture.start", json!({"path": path}));
    until("packets pass", || writer.get("capture.status")["packets"].as_u64() > Some(100));
    let told = writer.get("capture.status")["packets"].as_u64().unwrap();
    daemon.signal("KILL");
    daemon.ended();
    assert!(frames(&path).unwrap().len() as u64 >= told);
}

#[test]
fn over_tcp_files_are_those_of_one_folder() {
    let (daemon, address) = Daemon::with_tcp();
    let mut guest = guest(&address);
    let outside = tempfile::tempdir().unwrap();
    let owned = outside.path().join("owned");
    let not_allowed = |data: serde_json::Map<String, Value>, at: &str| {
        assert_eq!((&data["code"], &data["at"]), (&json!("ND-104-16"), &json!(at)));
    };
    not_allowed(
        guest.fails("capture.start", json!({"path": owned, "interface": "lo"}), -32006),
        "capture.path",
    );
    not_allowed(
        guest.fails("capture.start", json!({"path": "../x", "interface": "lo"}), -32006),
        "capture.path",
    );
    let sink = sink();
    let mut secret = profile(&sink, "1s");
    secret["groups"][0] = json!({"name": "s", "target": "https://127.0.0.1:9/", "model": {"http": {}},
        "tls": {"ca": "/etc/shadow"}});
    not_allowed(guest.fails("run.load", json!({"profile": secret}), -32006), "groups[0].tls.ca");
    // Nothing of a file that may not be named is read, and not even whether it is there: by no method.
    let table = outside.path().join("users.csv");
    std::fs::write(&table, "user,password\nroot,hunter2\n").unwrap();
    for (group, data, at) in [
        (json!({"tls": {"cert": "/etc/shadow"}}), json!({}), "groups[0].tls.cert"),
        (json!({"tls": {"cert": "log", "key": "/etc/shadow"}}), json!({}), "groups[0].tls.key"),
        (json!({}), json!({"u": table}), "data.u"),
        (json!({}), json!({"u": {"file": table}}), "data.u.file"),
        (json!({}), json!(table), "data"),
        (json!({}), json!({"u": "/nowhere/at/all"}), "data.u"),
    ] {
        let mut named = json!({"name": "s", "data": data, "groups": [
            {"name": "s", "target": "https://127.0.0.1:9/", "model": {"http": {"path": "/{u.no}"}}}]});
        named["groups"][0].as_object_mut().unwrap().extend(group.as_object().unwrap().clone());
        for method in ["run.load", "profile.validate", "graph.describe", "graph.expand"] {
            not_allowed(guest.fails(method, json!({"profile": named}), -32006), at);
        }
    }
    // Of the folder they can be named; this one is none.
    secret["groups"][0]["tls"]["ca"] = json!("log");
    let data = guest.fails("run.load", json!({"profile": secret}), -32002);
    assert!(data["what"].as_str().unwrap().contains(daemon.file("log").to_str().unwrap()), "{data:?}");
    let device = format!("net_pcap,tx_pcap={}", owned.display());
    let port = json!({"name": "a", "device": device, "role": "reflector"});
    let files = json!({"name": "x", "transport": {"dpdk": {"ports": [port]}}});
    not_allowed(guest.fails("run.load", json!({"profile": files}), -32006), "transport.dpdk.ports[0].device");
    let ends = json!({"a": {"device": device}, "b": {"device": "null"}});
    not_allowed(guest.fails("impair.start", ends, -32006), "a.device");
    let ends = json!({"a": {"namespace": "/proc/1/ns/net", "name": "x"}, "b": {"name": "y"}});
    not_allowed(guest.fails("impair.start", ends, -32006), "a");
    assert!(!owned.exists());
    if guest.get("core.describe")["rights"]["net_raw"] == true {
        guest.call("capture.start", json!({"path": "mine.pcapng", "interface": "lo"}));
        assert!(daemon.file("mine.pcapng").exists());
    }
}

#[test]
fn files_that_never_end_or_never_begin_are_refused() {
    let daemon = Daemon::start();
    let mut writer = daemon.connect();
    writer.get("control.acquire");
    let fifo = daemon.file("fifo");
    assert!(Command::new("mkfifo").arg(&fifo).status().unwrap().success());
    let sink = sink();
    for path in [fifo.to_str().unwrap(), "/dev/zero"] {
        let mut secure = profile(&sink, "1s");
        secure["groups"][0] = json!({"name": "s", "target": "https://127.0.0.1:9/", "model": {"http": {}},
            "tls": {"ca": path}});
        let data = writer.fails("run.load", json!({"profile": secure}), -32002);
        assert!(data["what"].as_str().unwrap().contains("not a regular file"), "{data:?}");
        let mut replayed = over_a_cable();
        replayed["groups"][0]["frame"] = json!({"replay": {"file": path}});
        writer.call("run.load", json!({"profile": replayed}));
        let data = writer.fails("run.start", json!({}), -32002);
        assert_eq!(
            (&data["code"], &data["at"]),
            (&json!("ND-104-08"), &json!("groups[0].frame.replay.file"))
        );
        let reflector = json!({"name": "a", "device": format!("net_pcap,rx_pcap={path},tx_pcap={path}"),
            "role": "reflector"});
        let files = json!({"name": "x", "transport": {"dpdk": {"ports": [reflector]}}});
        writer.call("run.load", json!({"profile": files}));
        let data = writer.fails("run.start", json!({}), -32005);
        assert!(data["fix"].as_str().unwrap().contains("not a regular file"), "{data:?}");
    }
}

#[test]
fn a_writer_who_is_lost_in_a_call_loses_the_lease() {
    let daemon = Daemon::start();
    let (mut writer, mut other) = (daemon.connect(), daemon.connect());
    writer.get("control.acquire");
    writer.call("run.load", json!({"profile": over_a_cable()}));
    writer.get("run.start");
    // A call that takes ten seconds, and more of his that wait behind it.
    writer.send(request(90, "graph.trace", json!({"packets": 1, "filter": "tcp", "wait": 10})));
    writer.send(request(91, "control.heartbeat", json!({})));
    error(&other.ask("control.acquire", json!({})), -32001);
    drop(writer);
    daemon.logged("gone while a call of his is under way");
    other.get("control.acquire");
    assert_eq!(other.call("run.stop", json!({}))["state"], "draining");
}

#[test]
fn more_memory_than_there_is_is_refused() {
    let daemon = Daemon::start();
    let mut writer = daemon.connect();
    writer.get("control.acquire");
    let mut greedy = over_a_cable();
    greedy["transport"]["dpdk"]["memory"] = json!("900000GiB");
    writer.call("run.load", json!({"profile": greedy}));
    let data = writer.fails("run.start", json!({}), -32005);
    assert_eq!((&data["code"], &data["at"]), (&json!("ND-92-12"), &json!("transport.dpdk.memory")));
    let ends = json!({"a": {"device": "null"}, "b": {"device": "null"}, "memory": "900000GiB"});
    assert_eq!(writer.fails("impair.start", ends, -32005)["at"], "memory");
    // It goes on, and there is room for less.
    writer.call("run.load", json!({"profile": over_a_cable()}));
    writer.get("run.start");
}

#[test]
fn a_document_that_is_too_large_is_refused_before_it_is_held() {
    let (daemon, sink) = (Daemon::start(), sink());
    let mut writer = loaded(&daemon, &sink, "1s");
    let group = r#"{"name": "g", "target": "udp://127.0.0.1:9", "model": {"stream": {}}}"#;
    let groups = format!(r#"{{"name": "x", "groups": [{}]}}"#, vec![group; 51_000].join(","));
    let empty = vec![r#"{"":0}"#; 200_000].join(",");
    let ask = |params: String| {
        format!(r#"{{"jsonrpc": "2.0", "id": 9, "method": "profile.validate", "params": {params}}}"#)
    };
    writer.send(ask(format!(r#"{{"profile": {groups}}}"#)) + "\n");
    error(&writer.answer(Value::Null), -32600);
    writer.send(ask(format!(r#"{{"profile": [{empty}]}}"#)) + "\n");
    error(&writer.answer(Value::Null), -32600);
    // As a text it is one value, whose content is counted when it is read.
    let found = writer.call("profile.validate", json!({"profile": groups}))["errors"].take();
    assert_eq!(
        (found[0]["code"].as_str(), found.as_array().unwrap().len()),
        (Some("ND-104-05"), 1),
        "{found}"
    );
    let status = std::fs::read_to_string(format!("/proc/{}/status", daemon.child.id())).unwrap();
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    let kib: u64 = peak.trim().trim_end_matches(" kB").parse().unwrap();
    assert!(kib < 200 << 10, "{kib} KiB");
}

#[test]
fn the_log_shows_what_would_steer_a_terminal() {
    let folder = tempfile::tempdir().unwrap();
    let (socket, log) = (folder.path().join("s"), folder.path().join("log"));
    let mut child = Command::new(env!("CARGO_BIN_EXE_netdynod"))
        .args(["--log-level", "debug", "--socket"])
        .arg(&socket)
        .stdout(Stdio::piped())
        .stderr(std::fs::File::create(&log).unwrap())
        .spawn()
        .unwrap();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut String::new()).unwrap();
    let mut stream = UnixStream::connect(&socket).unwrap();
    let steers = "\x1b]0;owned\x07\u{9b}2J";
    for method in [steers, "control.acquire", "run.load"] {
        let params = json!({"profile": {"name": steers, steers: steers}});
        let params = if method == "control.acquire" { json!({}) } else { params };
        stream.write_all(request(1, method, params).as_bytes()).unwrap();
        BufReader::new(&stream).read_line(&mut String::new()).unwrap();
    }
    assert!(Command::new("kill").arg(child.id().to_string()).status().unwrap().success());
    child.wait().unwrap();
    let log = std::fs::read_to_string(log).unwrap();
    assert!(log.contains("owned"), "{log}");
    assert!(!log.contains(|c: char| c.is_control() && c != '\n'), "{log:?}");
}
