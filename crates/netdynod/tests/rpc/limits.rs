//! So many, and no more.

use crate::rpc::daemon::{Daemon, error, until};
use serde_json::{Value, json};

const CONNECTIONS: usize = 64;
const SUBSCRIPTIONS: usize = 16;

#[test]
fn connections_are_limited_and_their_places_are_free_again() {
    let daemon = Daemon::start();
    let mut open: Vec<_> = (0..CONNECTIONS).map(|_| daemon.connect()).collect();
    assert_eq!(open[CONNECTIONS - 1].get("run.status")["state"], "idle");
    let mut refused = daemon.connect();
    let data = error(&refused.line().unwrap(), -32007);
    assert_eq!(data["code"], "ND-104-15");
    assert!(data["what"].as_str().unwrap().contains("64 connections"));
    assert_eq!(refused.line(), None);
    daemon.logged("refused: 64 are open");
    assert_eq!(open[0].get("run.status")["state"], "idle", "the others are served");
    open.truncate(CONNECTIONS - 1);
    until("there is room again", || {
        let mut client = daemon.connect();
        let asked = client.try_send(b"{\"jsonrpc\": \"2.0\", \"id\": 1, \"method\": \"control.hello\"}\n");
        asked.is_ok() && client.line().is_some_and(|line| line["result"] == true)
    });
}

#[test]
fn a_connection_takes_one_descriptor_from_the_devices() {
    let daemon = Daemon::start();
    let open = || std::fs::read_dir(format!("/proc/{}/fd", daemon.child.id())).unwrap().count();
    let mut first = daemon.connect();
    first.get("run.status");
    let before = open();
    let mut more: Vec<_> = (0..10).map(|_| daemon.connect()).collect();
    more.iter_mut().for_each(|client| drop(client.get("run.status")));
    assert_eq!(open() - before, more.len());
}

#[test]
fn subscriptions_of_a_connection_are_limited() {
    let daemon = Daemon::start();
    let mut client = daemon.connect();
    let numbers: Vec<Value> =
        (0..SUBSCRIPTIONS).map(|_| client.get("stats.subscribe")["subscription"].take()).collect();
    let data = client.fails("stats.subscribe", json!({}), -32007);
    assert_eq!((&data["code"], &data["at"]), (&json!("ND-104-15"), &json!("stats.subscribe")));
    daemon.connect().get("stats.subscribe");
    client.call("stats.unsubscribe", json!({"subscription": numbers[5]}));
    client.get("stats.subscribe");
}
