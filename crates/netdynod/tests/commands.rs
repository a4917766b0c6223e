//! The commands that are over when they have said what they have to say.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Read};
use std::net::UdpSocket;
use std::process::{Command, Stdio};
use std::time::Duration;

const GOOD: &str =
    r#"{"name": "x", "groups": [{"name": "s", "target": "udp://192.0.2.1:9", "model": {"stream": {}}}]}"#;

/// Exit code, standard output and standard error.
fn run(arguments: &[&str]) -> (i32, String, String) {
    let done = Command::new(env!("CARGO_BIN_EXE_netdynod")).args(arguments).output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (done.status.code().unwrap(), text(done.stdout), text(done.stderr))
}

#[test]
fn profiles_are_validated_each() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str, text: &str| {
        let path = folder.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let (good, bad) = (file("good.json", GOOD), file("bad.json", &GOOD.replace("groups", "grups")));
    assert_eq!(run(&["validate", &good]), (0, format!("{good}: good\n"), String::new()));
    let (code, out, err) = run(&["validate", &bad, &good, "/nowhere.json"]);
    assert_eq!((code, out), (104, format!("{good}: good\n")));
    assert!(err.contains("\"grups\"") && err.contains("ND-104-08"), "{err}");
    let (code, out, err) = run(&["validate", "--json", &good, &bad]);
    let found: Vec<Value> = out.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!((code, err.as_str(), found.len()), (104, "", 2));
    assert_eq!(found[0]["errors"], json!([]));
    assert_eq!(found[1]["errors"][0]["code"], "ND-104-02");
}

#[test]
fn graphs_are_validated_and_nothing_is_opened() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("graph.json");
    let validated = |burst: &str| {
        let graph = json!({
            "ports": {"in": {"device": "net_tap0,iface=nd-none"}, "out": {"device": "null"}},
            "elements": {"police": {"kind": "police", "limit": {"rate": "10Mbit/s", burst: "100kB"}},
                "rest": {"kind": "discard"}},
            "edges": ["in.rx -> police -> out.tx", "out.rx -> rest"],
        });
        std::fs::write(&path, graph.to_string()).unwrap();
        let (code, out, _) = run(&["validate", "--graph", "--json", path.to_str().unwrap()]);
        (code, serde_json::from_str::<Value>(&out).unwrap()["errors"].take())
    };
    assert_eq!(validated("burst"), (0, json!([])));
    let (code, errors) = validated("burst_packets");
    assert_eq!((code, &errors[0]["at"]), (104, &json!("elements.police.limit.burst_packets")), "{errors}");
    assert_eq!(run(&["validate", "--graph", "--impair", "-"]).0, 104);
}

#[test]
fn the_schema_is_printed() {
    let (code, out, _) = run(&["schema"]);
    assert_eq!((code, &serde_json::from_str::<Value>(&out).unwrap()["type"]), (0, &"object".into()));
    let (code, out, _) = run(&["schema", "--models"]);
    let models = &serde_json::from_str::<Value>(&out).unwrap()["models"];
    assert_eq!((code, models[0]["delays"][0]["name"].is_string()), (0, true), "{out}");
}

#[test]
fn each_kind_of_port_says_what_it_offers_or_why_it_cannot() {
    let (code, out, err) = run(&["ports", "0000:ff:1f.7"]);
    assert_eq!(code, 0, "{err}");
    let kinds: Vec<Value> = serde_json::from_str(&out).unwrap();
    let names: Vec<&str> = kinds.iter().map(|kind| kind["name"].as_str().unwrap()).collect();
    let all = "pair null memif pcap tap af_packet af_xdp vhost virtio 0000:ff:1f.7";
    assert_eq!(names, all.split(' ').collect::<Vec<_>>());
    for kind in &kinds {
        let (name, error) = (kind["name"].as_str().unwrap(), &kind["error"]);
        // What asks for rights or a kernel that a machine may lack; and a NIC that is none.
        let may_lack = ["tap", "af_packet", "af_xdp", "0000:ff:1f.7"].contains(&name);
        assert!(error.is_null() || may_lack, "{kind}");
        if error.is_null() {
            assert!(kind["driver"] != "" && kind["rx_queues"] != 0 && kind["tx_queues"] != 0, "{kind}");
        } else {
            assert!(error["code"] == "ND-92-12" && error["fix"] != "", "{kind}");
        }
    }
    assert!(!kinds[9]["error"].is_null(), "{}", kinds[9]);
    let offered = kinds[8]["offers"].as_array().unwrap();
    assert!(offered.contains(&"tx tcp checksum".into()), "beside its host: {}", kinds[8]);
}

#[test]
fn wrong_arguments_are_104_and_help_is_none() {
    for (arguments, named) in [
        (&["--sokcet", "x"][..], "--sokcet"),
        (&["validate"], "FILES"),
        (&["--tcp", "127.0.0.1:0"], "--token-file"),
        (&["reflect"], "ND-104-14"),
    ] {
        let (code, out, err) = run(arguments);
        assert_eq!((code, out.as_str()), (104, ""), "{arguments:?}");
        assert!(err.contains(named), "{arguments:?}: {err}");
    }
    let (code, out, err) = run(&["--help"]);
    assert_eq!((code, err.as_str()), (0, ""));
    assert!(out.contains("--token-file"));
}

#[test]
fn the_reflector_counts_what_it_sends_back() {
    let mut child = Command::new(env!("CARGO_BIN_EXE_netdynod"))
        .args(["reflect", "--udp", "0"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut out = BufReader::new(child.stdout.take().unwrap());
    let mut line = String::new();
    out.read_line(&mut line).unwrap();
    let ready: Value = serde_json::from_str(&line).unwrap();
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
    socket.send_to(b"echo", ready["ready"]["udp"].as_str().unwrap()).unwrap();
    let mut answer = [0; 16];
    let answered = socket.recv(&mut answer);
    let ended = Command::new("kill").arg(child.id().to_string()).status().unwrap().success();
    let mut counted = String::new();
    out.read_to_string(&mut counted).unwrap();
    assert!(ended && child.wait().unwrap().success());
    assert_eq!(&answer[..answered.unwrap()], b"echo");
    let counted: Value = serde_json::from_str(&counted).unwrap();
    assert_eq!(
        (&counted["datagrams_received"], &counted["datagrams_sent"]),
        (&1.into(), &1.into()),
        "{counted}"
    );
}
