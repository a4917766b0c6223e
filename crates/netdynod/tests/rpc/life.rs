//! The daemon's beginning and end.

use crate::rpc::daemon::{Daemon, loaded, sink};
use serde_json::json;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::process::{Command, Output};

fn second(socket: &Path) -> Output {
    Command::new(env!("CARGO_BIN_EXE_netdynod")).arg("--socket").arg(socket).output().unwrap()
}

#[test]
fn the_socket_is_the_owners_and_goes_with_the_daemon() {
    for signal in ["TERM", "INT"] {
        let mut daemon = Daemon::start();
        assert_eq!(daemon.socket().metadata().unwrap().permissions().mode() & 0o777, 0o600);
        daemon.signal(signal);
        assert_eq!(daemon.ended().code(), Some(0), "{}", daemon.log());
        assert!(!daemon.socket().exists());
    }
}

#[test]
fn a_signal_ends_a_run_too() {
    let (mut daemon, sink) = (Daemon::start(), sink());
    let mut writer = loaded(&daemon, &sink, "60s");
    writer.get("run.start");
    daemon.signal("TERM");
    assert_eq!(daemon.ended().code(), Some(0), "{}", daemon.log());
    assert!(!daemon.socket().exists());
}

#[test]
fn the_writer_can_end_it_and_is_answered() {
    let mut daemon = Daemon::start();
    let mut writer = daemon.connect();
    writer.get("control.acquire");
    assert_eq!(writer.get("core.shutdown"), true);
    assert_eq!(daemon.ended().code(), Some(0));
    assert!(!daemon.socket().exists());
    assert_eq!(writer.line(), None);
}

#[test]
fn a_second_daemon_leaves_the_first_alone() {
    let daemon = Daemon::start();
    let done = second(&daemon.socket());
    assert_eq!(done.status.code(), Some(92));
    let said = String::from_utf8(done.stderr).unwrap();
    for part in ["ND-92-11", "another daemon answers", daemon.socket().to_str().unwrap(), "--socket"] {
        assert!(said.contains(part), "{part}: {said}");
    }
    assert_eq!(done.stdout, b"", "it does not say that it is ready");
    assert_eq!(daemon.connect().get("run.status")["state"], "idle");
}

#[test]
fn a_socket_nobody_answers_on_is_replaced() {
    let mut daemon = Daemon::start();
    daemon.signal("KILL");
    assert_eq!(daemon.ended().code(), None);
    assert!(daemon.socket().exists());
    daemon.again();
    assert_eq!(daemon.connect().get("run.status")["state"], "idle");
}

#[test]
fn what_is_no_socket_is_not_removed() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("file");
    std::fs::write(&file, "text").unwrap();
    assert_eq!(second(&file).status.code(), Some(92));
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "text");
}

#[test]
fn a_daemon_removes_no_socket_but_its_own() {
    let mut daemon = Daemon::start();
    std::fs::remove_file(daemon.socket()).unwrap();
    let other = UnixListener::bind(daemon.socket()).unwrap();
    daemon.signal("TERM");
    daemon.ended();
    assert!(daemon.socket().exists(), "it is {other:?}'s");
}

#[test]
fn it_says_what_it_is_and_can() {
    let daemon = Daemon::start();
    let mut client = daemon.connect();
    let about = client.get("core.describe");
    assert_eq!((&about["name"], &about["version"]), (&json!("netdynod"), &json!(env!("CARGO_PKG_VERSION"))));
    assert_eq!(about["pid"], daemon.child.id());
    let names = |key: &str| -> Vec<String> {
        about[key].as_array().unwrap().iter().map(|one| one["name"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(names("transports"), ["sockets", "dpdk"]);
    for protocol in ["mqtt", "http", "ping", "stream", "script"] {
        assert!(names("models").iter().any(|name| name == protocol), "{protocol}");
    }
    assert_eq!(names("counters").len(), 15);
    assert!(names("failures").contains(&"timeout".to_owned()));
    for model in about["models"].as_array().unwrap() {
        assert!(
            model["delays"][0]["about"].is_string() && model["schemes"][0]["carrier"].is_string(),
            "{model}"
        );
    }
    for (limit, value) in [("connections", 64), ("subscriptions", 16), ("line", 32 << 20)] {
        assert_eq!(about["limits"][limit], value, "{limit}");
    }
    assert!(about["limits"]["nofile"].as_u64() > Some(0));
    assert!(about["rights"]["net_raw"].is_boolean() && about["rights"]["net_admin"].is_boolean());
    assert!(about["huge_pages"].is_array() && !about["cores"].as_array().unwrap().is_empty());
    let ports = client.get("ports.list");
    let lo = ports.as_array().unwrap().iter().find(|port| port["name"] == "lo").unwrap();
    assert_eq!((&lo["kind"], &lo["link"]), (&json!("kernel"), &json!(true)));
    client.get("control.acquire");
    let model = json!({"stream": {"rate": "10/s", "echo": false}});
    let device = json!({"name": "a", "device": "null", "role": "generator", "ip": "192.0.2.1"});
    let profile = json!({
        "name": "ports",
        "transport": {"dpdk": {"ports": [device]}},
        "groups": [{"name": "s", "target": "udp://192.0.2.2:9", "model": model}],
    });
    client.call("run.load", json!({"profile": profile}));
    let ports = client.get("ports.list");
    let port = ports.as_array().unwrap().iter().find(|port| port["name"] == "a").unwrap();
    assert_eq!((&port["kind"], &port["device"]), (&json!("dpdk"), &json!("null")));
    assert_eq!(port["link"], json!(null), "it is not open");
}
