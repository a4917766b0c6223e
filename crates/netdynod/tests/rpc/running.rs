//! A run from its profile to its result.

use crate::rpc::daemon::{Client, Daemon, loaded, profile, sink, states};
use serde_json::{Value, json};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

fn sent(result: &Value) -> u64 {
    result["groups"][0]["total"]["messages_sent"].as_u64().unwrap()
}

#[test]
fn what_the_result_counts_is_what_arrived() {
    let (daemon, sink) = (Daemon::start(), sink());
    let mut writer = loaded(&daemon, &sink, "500ms");
    writer.get("stats.subscribe");
    writer.fails("run.result", json!({}), -32004);
    writer.get("run.start");
    writer.told_until("done");
    let result = writer.get("run.result");
    assert_eq!((&result["stopped"], &result["error"]), (&Value::Null, &Value::Null));
    let arrived = std::iter::from_fn(|| sink.recv(&mut [0; 2048]).ok()).count() as u64;
    assert!((2..=100).contains(&arrived), "{arrived} datagrams");
    assert_eq!(sent(&result), arrived);
    let flows = writer.get("run.flows");
    assert_eq!(flows["total"], 2);
    let by_device: u64 = flows["flows"].as_array().unwrap().iter().map(|row| row[4].as_u64().unwrap()).sum();
    assert_eq!(by_device, arrived);
    assert_eq!(
        writer.call("run.flows", json!({"offset": 1, "limit": 5}))["flows"].as_array().unwrap().len(),
        1
    );
    writer.fails("run.start", json!({}), -32003);
}

fn since_1970() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs_f64()
}

#[test]
fn a_run_begins_at_the_time_that_was_given() {
    let (daemon, sink) = (Daemon::start(), sink());
    let mut writer = loaded(&daemon, &sink, "200ms");
    writer.get("stats.subscribe");
    let data = writer.fails("run.start", json!({"at": since_1970() - 5.0}), -32602);
    assert!(data["what"].as_str().unwrap().contains("s ago"), "{data:?}");
    writer.fails("run.start", json!({"at": since_1970() + 3700.0}), -32602);
    assert_eq!(writer.get("run.status")["state"], "loaded", "a refused start changes nothing");
    let at = since_1970() + 2.0;
    writer.call("run.start", json!({"at": at}));
    let in_time = since_1970() < at;
    let waiting = writer.get("run.status");
    if since_1970() < at - 0.1 {
        assert_eq!((&waiting["phase"], &waiting["elapsed"]), (&Value::Null, &json!(0.0)));
        writer.fails("run.pause", json!({}), -32003);
    }
    writer.told_until("done");
    let result = writer.get("run.result");
    let started = humantime::parse_rfc3339(result["started"].as_str().unwrap()).unwrap();
    let off = started.duration_since(UNIX_EPOCH).unwrap().as_secs_f64() - at;
    // what is written has milliseconds; later only where it took until then to get ready
    assert!(off > -0.002 && (off < 0.002 || !in_time), "{off} s");
    assert!(sent(&result) >= 2);
}

#[test]
fn a_start_that_is_waited_for_can_be_stopped() {
    let (daemon, sink) = (Daemon::start(), sink());
    let mut writer = loaded(&daemon, &sink, "60s");
    writer.get("stats.subscribe");
    writer.call("run.start", json!({"at": since_1970() + 600.0}));
    writer.get("run.stop");
    writer.told_until("done");
    assert_eq!(writer.get("run.result")["stopped"], "stopped");
    assert!(sink.recv(&mut [0; 2048]).is_err(), "nothing was sent");
}

#[test]
fn a_trial_changes_its_profile_and_targets_may_come_with_it() {
    let (daemon, sink) = (Daemon::start(), sink());
    let mut writer = daemon.connect();
    writer.get("control.acquire");
    let mut profile = profile(&sink, "60s");
    let target = profile["groups"][0]["target"].take();
    profile["groups"][0]["target"] = json!("far");
    let trial = json!({"measure": "300ms", "drain": "100ms", "load": 0.5});
    let loaded =
        writer.call("run.load", json!({"profile": profile, "targets": {"far": target}, "trial": trial}));
    assert_eq!(loaded["groups"][0]["target"], target);
    writer.get("stats.subscribe");
    writer.get("run.start");
    writer.told_until("done");
    assert_eq!(writer.get("run.result")["run"], loaded["run"]);
}

#[test]
fn a_wrong_profile_is_refused_with_all_its_faults() {
    let (daemon, sink) = (Daemon::start(), sink());
    let mut writer = loaded(&daemon, &sink, "1s");
    let mut profile = profile(&sink, "1s");
    profile["groups"][0]["devices"] = json!(0);
    profile["thresholds"] = json!([{"metric": "x.loss", "max": 0}]);
    let data = writer.fails("run.load", json!({"profile": profile}), -32002);
    let codes: Vec<&Value> = data["all"].as_array().unwrap().iter().map(|one| &one["code"]).collect();
    assert_eq!(codes, ["ND-104-05", "ND-104-06"]);
    assert_eq!(data["at"], "groups[0].devices");
    assert_eq!(writer.call("profile.validate", json!({"profile": profile}))["errors"], data["all"]);
    // nor does anything that is not even the beginning of one do harm
    for (nonsense, at) in [(json!({"targets": 5}), "targets"), (json!([]), ""), (json!("text"), "")] {
        let targets = json!({"far": "udp://127.0.0.1:9"});
        let data = writer.fails("run.load", json!({"profile": nonsense, "targets": targets}), -32002);
        assert_eq!(data["at"], at, "{nonsense}: {data:?}");
    }
    let data = writer.fails("run.load", json!({"profile": {}, "trail": {}}), -32602);
    assert!(data["what"].as_str().unwrap().contains("trail"));
    assert_eq!(writer.get("run.status")["state"], "loaded", "the one before is kept");
}

fn elapsed(client: &mut Client) -> (Value, Value) {
    let status = client.get("run.status");
    (status["state"].clone(), status["elapsed"].clone())
}

#[test]
fn a_rate_changes_between_two_points_of_the_series() {
    let (daemon, sink) = (Daemon::start(), sink());
    let mut writer = daemon.connect();
    writer.get("control.acquire");
    let mut profile = profile(&sink, "60s");
    profile["phases"]["warmup"] = json!("0s");
    profile["phases"]["sample"] = json!("200ms");
    let group = json!({"name": "open", "target": profile["groups"][0]["target"], "devices": 4,
        "load": {"open": {"rate": "100/s"}}, "model": {"stream": {"echo": false, "count": 1}}});
    profile["groups"].as_array_mut().unwrap().push(group);
    let name = profile["groups"][0]["name"].as_str().unwrap().to_owned();
    let rates = |groups: Value| json!({"groups": groups});
    writer.fails("run.rate", rates(json!({&name: {"rate": "1/s"}})), -32004);
    writer.call("run.load", json!({"profile": profile}));
    writer.fails("run.rate", rates(json!({&name: {"rate": "1/s"}})), -32003);
    writer.get("stats.subscribe");
    writer.get("run.start");
    std::thread::sleep(Duration::from_millis(450));
    for (wrong, code) in [
        (json!({"nobody": {"rate": "1/s"}}), "ND-104-06"),
        (json!({&name: {"rate": "1/s", "of": "arrivals"}}), "ND-104-07"),
        (json!({"open": {"rate": "0/s"}}), "ND-104-05"),
        (json!({"open": {"rate": "2000M/s"}}), "ND-104-05"),
        // all or none
        (json!({"open": {"rate": "50/s"}, &name: {"rate": "1000M/s", "of": "flow"}}), "ND-104-05"),
    ] {
        assert_eq!(writer.fails("run.rate", rates(wrong), -32602)["code"], code);
    }
    let changed = writer
        .call("run.rate", rates(json!({"open": {"rate": "1000/s"}, &name: {"rate": "20/s", "of": "flow"}})));
    let at = changed["rates"][0]["t"].as_f64().unwrap();
    std::thread::sleep(Duration::from_millis(800));
    writer.get("run.stop");
    writer.told_until("done");
    let result = writer.get("run.result");
    assert_eq!(result["rates"], changed["rates"]);
    let intended =
        |point: &Value, group: &str, of: &str| point["groups"][group]["counts"][of].as_u64().unwrap();
    let devices = profile["groups"][0]["devices"].as_u64().unwrap();
    let mut parts = [0, 0];
    for point in result["series"].as_array().unwrap().iter().filter(|point| point["phase"] == "measure") {
        if point["dt"].as_f64().unwrap() < 0.199 {
            continue; // stopped in it
        }
        let later = point["t"].as_f64().unwrap() > at + 1e-6;
        parts[usize::from(later)] += 1;
        // due by the clock alone, however fast this machine is
        let flows = intended(point, "open", "flows_intended");
        assert_eq!(flows, if later { 200 } else { 20 }, "{point:#}");
        let messages = intended(point, &name, "messages_intended");
        let all = if later { 4 } else { 20 } * devices;
        assert!(messages.abs_diff(all) <= devices, "{point:#}");
    }
    assert!(parts[0] >= 2 && parts[1] >= 2, "{parts:?}");
}

#[test]
fn pause_stands_still_resume_goes_on_and_stop_ends() {
    let (daemon, sink) = (Daemon::start(), sink());
    let mut writer = loaded(&daemon, &sink, "60s");
    for method in ["run.pause", "run.resume"] {
        writer.fails(method, json!({}), -32003);
    }
    writer.get("stats.subscribe");
    writer.get("run.start");
    writer.fails("run.load", json!({"profile": profile(&sink, "1s")}), -32003);
    assert_eq!(writer.get("run.pause")["state"], "paused");
    writer.fails("run.pause", json!({}), -32003);
    let before = elapsed(&mut writer);
    std::thread::sleep(Duration::from_millis(100));
    assert_eq!(elapsed(&mut writer), before);
    assert_eq!(writer.get("run.resume")["state"], "running");
    writer.fails("run.resume", json!({}), -32003);
    assert_eq!(writer.get("run.pause")["state"], "paused");
    assert_eq!(writer.get("run.stop")["state"], "draining", "a pause does not outlast the run");
    let (statuses, _) = writer.told_until("done");
    assert_eq!(states(&statuses), ["running", "paused", "running", "paused", "draining", "done"]);
    let result = writer.get("run.result");
    assert_eq!(result["stopped"], "stopped");
    assert!(sent(&result) < 1000, "{} of 12,000 messages", sent(&result));
    assert_eq!(writer.get("run.stop")["state"], "done", "to stop what is over is no fault");
}
