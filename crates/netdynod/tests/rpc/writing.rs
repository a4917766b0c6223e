//! One writes, and must be heard from; others watch.

use crate::rpc::daemon::{Daemon, loaded, profile, sink, states, until};
use serde_json::json;
use std::time::{Duration, Instant};

#[test]
fn only_the_writer_changes_things_and_anybody_reads() {
    let (daemon, sink) = (Daemon::start(), sink());
    let mut writer = loaded(&daemon, &sink, "60s");
    let mut viewer = daemon.connect();
    let data = viewer.fails("control.acquire", json!({}), -32001);
    assert_eq!(data["code"], "ND-104-12");
    for method in
        ["run.start", "run.stop", "core.shutdown", "control.heartbeat", "control.release", "capture.stop"]
    {
        viewer.fails(method, json!({}), -32001);
    }
    // the clock is anybody's, once it goes: the result has every pause
    viewer.fails("run.pause", json!({}), -32003);
    viewer.fails("run.load", json!({"profile": profile(&sink, "1s")}), -32001);
    viewer.fails("capture.start", json!({"path": "/nowhere/x.pcapng"}), -32001);
    assert_eq!(viewer.get("run.status")["state"], "loaded");
    assert_eq!(viewer.get("core.describe")["name"], "netdynod");
    assert!(viewer.get("ports.list").as_array().unwrap().iter().any(|p| p["name"] == "lo"));
    assert_eq!(viewer.get("profile.schema")["type"], "object");
    assert!(viewer.get("log.tail")["entries"].as_array().unwrap().iter().any(|e| e["message"] == "loaded"));
    writer.get("control.acquire"); // again is no fault
    writer.get("control.release");
    writer.fails("run.start", json!({}), -32001);
    viewer.get("control.acquire");
    viewer.get("run.start");
}

#[test]
fn a_silent_writer_loses_the_run_and_one_who_is_heard_does_not() {
    let (daemon, sink) = (Daemon::start(), sink());
    let mut writer = loaded(&daemon, &sink, "60s");
    let mut viewer = daemon.connect();
    viewer.get("stats.subscribe");
    writer.get("run.start");
    let began = Instant::now();
    let mut heard = began;
    while began.elapsed() < Duration::from_millis(3500) {
        std::thread::sleep(Duration::from_millis(500));
        heard = Instant::now(); // at the earliest
        assert_eq!(writer.get("control.heartbeat"), true);
    }
    let (statuses, _) = viewer.told_until("done");
    assert!(heard.elapsed() >= Duration::from_millis(3000), "he was heard {:?} ago", heard.elapsed());
    assert_eq!(states(&statuses), ["running", "draining", "done"]);
    let result = viewer.get("run.result");
    assert_eq!((&result["stopped"], &result["validity"]["valid"]), (&json!("lease"), &json!(false)));
    daemon.logged("silent for 3s");
    writer.fails("run.load", json!({"profile": profile(&sink, "1s")}), -32001);
    viewer.get("control.acquire");
}

#[test]
fn a_run_that_its_writer_released_ends_unless_another_takes_it() {
    let (daemon, sink) = (Daemon::start(), sink());
    let mut writer = loaded(&daemon, &sink, "60s");
    let mut other = daemon.connect();
    other.get("stats.subscribe");
    writer.get("run.start");
    writer.get("control.release");
    writer.fails("run.stop", json!({}), -32001);
    other.get("control.acquire");
    assert_eq!(other.get("run.pause")["state"], "paused");
    assert_eq!(other.get("run.resume")["state"], "running");
    let released = Instant::now();
    other.get("control.release");
    // what it asks does not keep what it gave up
    while other.get("run.status")["state"] == "running" {
        assert!(released.elapsed() < Duration::from_secs(8), "the run goes on without a writer");
        std::thread::sleep(Duration::from_millis(50));
    }
    assert!(released.elapsed() >= Duration::from_millis(2900));
    let (statuses, _) = other.told_until("done");
    assert_eq!(states(&statuses), ["running", "paused", "running", "draining", "done"]);
    assert_eq!(other.get("run.result")["stopped"], "lease");
}

#[test]
fn a_writer_who_hangs_up_can_be_followed_at_once() {
    let (daemon, sink) = (Daemon::start(), sink());
    let mut writer = loaded(&daemon, &sink, "60s");
    writer.get("run.start");
    drop(writer);
    let mut other = daemon.connect();
    until("another can write", || other.ask("control.acquire", json!({})).get("result").is_some());
    assert_eq!(other.get("run.status")["state"], "running");
    assert_eq!(other.get("run.stop")["state"], "draining");
}
