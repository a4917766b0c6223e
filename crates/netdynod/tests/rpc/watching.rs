//! Subscriptions: everything, in order, and nobody holds another back.

use crate::rpc::daemon::{Daemon, loaded, profile, request, sink, states, until};
use serde_json::json;

#[test]
fn each_viewer_is_told_all_in_order() {
    let (daemon, sink) = (Daemon::start(), sink());
    let mut viewers = [(); 3].map(|()| daemon.connect());
    for viewer in &mut viewers {
        viewer.get("stats.subscribe");
    }
    let mut writer = loaded(&daemon, &sink, "500ms");
    assert_eq!(writer.get("run.start")["state"], "running");
    let told = viewers.each_mut().map(|viewer| viewer.told_until("done"));
    let (statuses, points) = &told[0];
    assert_eq!(states(statuses), ["loaded", "running", "draining", "done"]);
    assert!(told.iter().all(|one| one == &told[0]));
    let times: Vec<f64> = points.iter().map(|p| p["t"].as_f64().unwrap()).collect();
    assert!(times.is_sorted_by(|a, b| a < b), "{times:?}");
    let result = writer.get("run.result");
    assert_eq!(result["series"], json!(points));
    let sent = |p: &serde_json::Value| p["groups"]["s"]["counts"]["messages_sent"].as_u64().unwrap();
    assert_eq!(json!(points.iter().map(sent).sum::<u64>()), result["groups"][0]["total"]["messages_sent"]);
}

#[test]
fn a_subscription_ends_when_it_is_taken_back() {
    let (daemon, sink) = (Daemon::start(), sink());
    let mut writer = loaded(&daemon, &sink, "300ms");
    let mut viewer = daemon.connect();
    let number = &viewer.get("stats.subscribe")["subscription"];
    // only its own connection can end it
    assert_eq!(writer.call("stats.unsubscribe", json!({"subscription": number})), false);
    assert_eq!(viewer.call("stats.unsubscribe", json!({"subscription": number})), true);
    assert_eq!(viewer.call("stats.unsubscribe", json!({"subscription": number})), false);
    writer.get("stats.subscribe");
    writer.get("run.start");
    writer.told_until("done");
    // anything that it had been told would come before this answer
    viewer.send(request(99, "run.status", json!({})));
    assert_eq!(viewer.line().unwrap()["id"], 99);
}

#[test]
fn a_viewer_who_does_not_read_is_hung_up_on_and_holds_nobody_back() {
    let (daemon, sink) = (Daemon::talkative(), sink());
    let mut writer = loaded(&daemon, &sink, "500ms");
    let mut deaf = daemon.connect();
    deaf.get("stats.subscribe");
    writer.get("stats.subscribe");
    // an answer has the id of its request: nine of 1 MiB are one for the socket and eight for the queue
    for _ in 0..9 {
        let id = "x".repeat(1 << 20);
        deaf.send(format!("{}\n", json!({"jsonrpc": "2.0", "id": id, "method": "run.status"})));
    }
    deaf.send("{\"jsonrpc\": \"2.0\", \"method\": \"core.describe\"}\n");
    until("the nine are in the queue", || daemon.log().contains("core.describe"));
    writer.get("control.acquire"); // on a busy machine that took longer than a lease
    writer.get("run.start");
    let (_, points) = writer.told_until("done");
    daemon.logged("does not read");
    while deaf.line().is_some() {}
    assert_eq!(writer.get("run.result")["series"], json!(points));
    assert_eq!(daemon.connect().get("run.status")["state"], "done");
}

#[test]
fn a_start_that_fails_is_told() {
    let (daemon, sink) = (Daemon::start(), sink());
    let mut writer = daemon.connect();
    writer.get("control.acquire");
    writer.get("stats.subscribe");
    let mut profile = profile(&sink, "1s");
    profile["groups"][0]["source"] = json!(["203.0.113.1"]); // RFC 5737: nobody's
    writer.call("run.load", json!({"profile": profile}));
    let data = writer.fails("run.start", json!({}), -32005);
    assert_eq!((&data["code"], &data["at"]), (&json!("ND-92-07"), &json!("groups[0].source")));
    let (statuses, points) = writer.told_until("failed");
    assert_eq!(states(&statuses), ["loaded", "failed"]);
    assert_eq!(statuses[1]["error"], json!(data));
    assert_eq!(points.len(), 0);
    assert_eq!(writer.fails("run.result", json!({}), -32005), data);
    // the next one is not held up by it
    profile["groups"][0]["source"] = json!([]);
    writer.call("run.load", json!({"profile": profile}));
    writer.get("run.start");
}
