//! RPC methods of a NAT that is not there, and files that its elements name.

use crate::rpc::daemon::{Client, Daemon};
use crate::rpc::doors::guest;
use serde_json::json;

const METHODS: [&str; 5] = ["nat.sessions", "nat.subscribers", "nat.sites", "nat.status", "nat.clear"];

/// A graph at work that forwards from one end of a cable to the other, and its writer.
fn without_nat(daemon: &Daemon) -> (Client, String) {
    let mut writer = daemon.connect();
    writer.get("control.acquire");
    let graph = json!({
        "ports": {"a": {"device": "pair:nat"}, "b": {"device": "pair:nat"}},
        "elements": {"c": {"kind": "counter"}},
        "edges": ["a.rx -> c -> b.tx", "b.rx -> a.tx"],
    });
    let started = writer.call("graph.run", json!({"graph": graph}));
    (writer, started["graph"].as_str().unwrap().to_owned())
}

#[test]
fn a_graph_that_is_not_there_has_no_nat() {
    let daemon = Daemon::start();
    let mut viewer = daemon.connect();
    for method in METHODS {
        let data = viewer.fails(method, json!({"graph": "graph-9"}), -32004);
        assert_eq!((&data["code"], &data["at"]), (&json!("ND-104-11"), &json!("graph")));
        viewer.fails(method, json!({}), -32602);
        viewer.fails(method, json!({"graph": "graph-9", "grahp": "x"}), -32602);
    }
}

#[test]
fn a_graph_without_connection_tracker_says_so() {
    let daemon = Daemon::start();
    let (mut writer, graph) = without_nat(&daemon);
    for method in METHODS {
        let data = writer.fails(method, json!({"graph": graph}), -32004);
        assert!(
            data["what"].as_str().unwrap().contains(if method == "nat.sites" {
                "nat-sites"
            } else {
                "nat44"
            }),
            "{data:?}"
        );
    }
    writer.call("graph.stop", json!({"graph": graph}));
}

#[test]
fn over_tcp_a_lease_file_outside_the_folder_is_refused() {
    let (_daemon, address) = Daemon::with_tcp();
    let leases = json!({"file": "/etc/shadow", "server": "kea"});
    let graph = json!({"ports": {"a": {"device": "null"}},
        "elements": {"n": {"kind": "subscriber-table", "leases": leases, "subscribers": ["10.0.0.0/8"]}},
        "edges": ["a.rx -> n", "n -> a.tx"]});
    let data = guest(&address).fails("graph.run", json!({"graph": graph}), -32006);
    assert_eq!((&data["code"], &data["at"]), (&json!("ND-104-16"), &json!("elements.n.leases.file")));
}
