//! Lines: one request each, however they come, and whatever is in them.

use crate::rpc::daemon::{Daemon, PATIENCE, error, request};
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;

#[test]
fn several_requests_in_one_write_are_answered_in_order() {
    let daemon = Daemon::start();
    let mut client = daemon.connect();
    let lines: String = (1..=50).map(|id| request(id, "run.status", json!({}))).collect();
    client.send(lines);
    for id in 1..=50 {
        assert_eq!(client.answer(id)["result"]["state"], "idle");
    }
}

#[test]
fn one_request_may_come_in_many_writes() {
    let daemon = Daemon::start();
    let mut client = daemon.connect();
    for byte in request(7, "control.hello", json!({})).into_bytes() {
        client.send([byte]);
    }
    assert_eq!(client.answer(7)["result"], true);
}

#[test]
fn what_is_no_request_is_answered_and_the_connection_lives_on() {
    let daemon = Daemon::start();
    let mut client = daemon.connect();
    let null = Value::Null;
    let cases: [(&[u8], i32, Value); 13] = [
        (b"{", -32700, null.clone()),
        (b"\xff\xfe", -32700, null.clone()),
        (b"{\"jsonrpc\": \"2.0\", \"id\": 7, \"method\": \"\xff\"}", -32700, null.clone()),
        (b"[]", -32600, null.clone()),
        (br#"[{"jsonrpc": "2.0", "id": 7, "method": "run.status"}]"#, -32600, null.clone()),
        (br#"["2.0", 7, "run.status"]"#, -32600, null.clone()),
        (br#""text""#, -32600, null.clone()),
        (br#"{"jsonrpc": "2.0", "id": [7], "method": "run.status"}"#, -32600, null),
        (br#"{"jsonrpc": "2.0", "id": 7}"#, -32600, json!(7)),
        (br#"{"jsonrpc": "1.0", "id": 7, "method": "run.status"}"#, -32600, json!(7)),
        (br#"{"id": "x", "method": "run.status"}"#, -32600, json!("x")),
        (br#"{"jsonrpc": "2.0", "id": 7, "method": "run.fly"}"#, -32601, json!(7)),
        (br#"{"jsonrpc": "2.0", "id": 7, "method": "run.flows", "params": [0, 5]}"#, -32602, json!(7)),
    ];
    for (line, code, id) in cases {
        client.send([line, b"\n"].concat());
        error(&client.answer(id), code);
    }
    assert_eq!(client.get("run.status")["state"], "idle");
}

#[test]
fn parameters_are_those_of_the_method_and_no_others() {
    let daemon = Daemon::start();
    let mut client = daemon.connect();
    for (method, params, named) in [
        ("run.flows", json!({"limit": "many"}), "many"),
        ("run.flows", json!({"limt": 1}), "limt"),
        ("run.flows", json!({"limit": -1}), "-1"),
        ("run.status", json!({"run": "x"}), "run"),
        ("core.describe", json!({"all": true}), "all"),
        ("stats.unsubscribe", json!({}), "subscription"),
        ("profile.validate", json!({}), "profile"),
        ("log.tail", json!({"level": "loud"}), "loud"),
        ("control.hello", json!({"tokn": ""}), "tokn"),
    ] {
        let data = client.fails(method, params, -32602);
        assert_eq!(data["code"], "ND-104-10");
        assert!(data["what"].as_str().unwrap().contains(named), "{method}: {data:?}");
    }
}

#[test]
fn notifications_and_empty_lines_are_not_answered() {
    let daemon = Daemon::start();
    let mut client = daemon.connect();
    client.send("\n \r\n");
    client.send("{\"jsonrpc\": \"2.0\", \"method\": \"run.status\"}\n");
    client.send("{\"jsonrpc\": \"2.0\", \"method\": \"run.fly\"}\n");
    client.send("{\"jsonrpc\": \"2.0\", \"method\": \"control.acquire\"}\r\n");
    // it was done all the same
    assert_eq!(client.get("control.heartbeat"), true);
}

#[test]
fn a_line_without_end_is_cut_off() {
    let daemon = Daemon::start();
    let mut other = daemon.connect();
    let mut client = daemon.connect();
    let chunk = vec![b'x'; 1 << 20];
    let sent = (0..40).take_while(|_| client.try_send(&chunk).is_ok()).count();
    assert!((32..40).contains(&sent), "{sent} MiB were taken");
    let data = error(&client.answer(Value::Null), -32600);
    assert!(data["what"].as_str().unwrap().contains("33554432 bytes"));
    assert_eq!(client.line(), None);
    assert_eq!(other.get("run.status")["state"], "idle");
}

#[test]
fn who_says_no_more_still_gets_his_answers() {
    let daemon = Daemon::start();
    let mut stream = UnixStream::connect(daemon.socket()).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let lines = request(1, "profile.schema", json!({})) + &request(2, "run.status", json!({}));
    stream.write_all(lines.trim_end().as_bytes()).unwrap();
    stream.shutdown(Shutdown::Write).unwrap();
    let answers: Vec<String> = BufReader::new(stream).lines().map(Result::unwrap).collect();
    assert_eq!(answers.len(), 2);
    assert!(answers[1].contains("idle"));
}
