//! Flows of an open loop that no device has time for are counted all the same.

use crate::lab::{profile, run, run_with};
use serde_json::{Value, json};
use std::net::TcpListener;
use std::time::Duration;

/// Flows at `rate` for one device, whose first one lasts until the end.
fn busy(silent: &TcpListener, open: Value) -> Value {
    let target = format!("http://{}", silent.local_addr().expect("address"));
    let mut profile = profile(json!([{"name": "w", "target": target, "devices": 1,
        "model": {"http": {"requests": 1, "timeout": "60s"}}, "load": {"open": open}}]));
    profile["phases"] = json!({"warmup": "100ms", "measure": "500ms", "drain": "100ms", "sample": "100ms"});
    profile
}

#[test]
fn the_highest_rate_is_counted_to_the_last_flow() {
    let silent = TcpListener::bind("127.0.0.1:0").expect("bind");
    let (result, _) = run(&busy(&silent, json!({"rate": "1000M/s"})));
    let group = &result.groups[0];
    let counted = |of: &Value, name: &str| of[name].as_u64().expect("a count");
    assert!(counted(&group.measured, "flows_intended").abs_diff(500_000_000) <= 2, "{}", group.measured);
    assert!(counted(&group.total, "flows_intended").abs_diff(600_000_000) <= 2, "{}", group.total);
    assert_eq!(counted(&group.total, "flows_started"), 1);
    assert!(
        result.validity.reasons.iter().any(|r| matches!(r.code, "ND-90-01" | "ND-90-08")),
        "{:?}",
        result.validity
    );
    // each interval has its own: nothing waits to be counted until the end
    for point in result.series.iter().filter(|point| point.t < 0.55) {
        let intended = counted(&point.groups["w"].counts, "flows_intended");
        assert!(intended.abs_diff(100_000_000) <= 2, "{intended} at {}", point.t);
    }
}

#[test]
fn random_arrivals_are_counted_as_often_as_the_rate_says() {
    let silent = TcpListener::bind("127.0.0.1:0").expect("bind");
    let (result, _) = run(&busy(&silent, json!({"rate": "1M/s", "arrival": "poisson"})));
    let intended = result.groups[0].measured["flows_intended"].as_u64().expect("a count");
    // five standard deviations
    assert!(intended.abs_diff(500_000) < 5 * 707, "{intended}");
}

#[test]
fn a_stop_ends_what_is_intended_too() {
    let silent = TcpListener::bind("127.0.0.1:0").expect("bind");
    let mut profile = busy(&silent, json!({"rate": "10k/s"}));
    profile["phases"]["measure"] = json!("1h");
    let (result, _) = run_with(&profile, |control| {
        std::thread::sleep(Duration::from_millis(400));
        control.stop();
    });
    let intended = result.groups[0].measured["flows_intended"].as_u64().expect("a count");
    let due = (result.phases.measure * 10_000.0) as u64;
    assert!(intended.abs_diff(due) <= 1, "{intended} in {:?}", result.phases);
}

#[test]
fn devices_take_turns_while_any_is_free() {
    // who has just ended may still be known to the server: the one that has rested longest comes first
    let sink = std::net::UdpSocket::bind("127.0.0.1:0").expect("bind");
    let target = format!("udp://{}", sink.local_addr().expect("address"));
    let (_, flows) = run(&profile(json!([{"name": "s", "target": target, "devices": 100,
        "model": {"stream": {"size": "18B", "count": 1, "echo": false}}, "load": {"open": {"rate": "50k/s"}}}])));
    let each = || flows.iter().map(|flow| flow.tally.flows.0);
    let (least, most) = (each().min().expect("devices"), each().max().expect("devices"));
    assert!(least > 10 && most - least <= 1, "{least} to {most} flows of a device");
}
