//! What was asked is what was sent, by the counts of both ports: in frames a second, bits on the wire or in frames,
//! and shares of the line.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use serde_json::{Value, json};

/// Length of the measure phase and of the warm-up before it, seconds.
const MEASURE: f64 = 3.0;
const WARMUP: f64 = 0.1;

/// Size with FCS, the rate as it is asked for, and the frames a second that this is. The port has 1 Gbit/s; on the wire a
/// frame takes 20 bytes more (preamble, start delimiter, gap).
fn asked() -> [(u64, Value, f64); 4] {
    [
        (64, json!({"frames": "20k/s"}), 20_000.0),
        (128, json!({"l1": "11.84Mbit/s"}), 11.84e6 / (148.0 * 8.0)),
        (256, json!({"l2": "16Mbit/s"}), 16e6 / (256.0 * 8.0)),
        (512, json!({"line": "1%"}), 10e6 / (532.0 * 8.0)),
    ]
}

fn profile() -> Value {
    let group = |(i, (size, rate, _)): (usize, (u64, Value, f64))| {
        json!({
            "name": format!("g{i}"),
            "model": {"stream": {"echo": false}},
            "target": "udp://10.9.0.2:7",
            "devices": 4,
            "port": "a",
            "frame": {"size": {"fixed": format!("{size}B")}, "rate": rate}
        })
    };
    json!({
        "name": "rates",
        "phases": {"warmup": "100ms", "measure": "3s", "drain": "200ms"},
        "validity": {"offered": 0.99, "lateness_p99": "1s", "starved": 1.0},
        "transport": {"dpdk": {"ports": [
            {"name": "a", "device": "pair:rates", "ip": "10.9.0.1", "speed": "1Gbit/s"},
            {"name": "b", "device": "pair:rates", "ip": "10.9.0.2"}
        ]}},
        "groups": asked().into_iter().enumerate().map(group).collect::<Vec<_>>()
    })
}

fn number(value: &Value, pointer: &str) -> f64 {
    value.pointer(pointer).and_then(Value::as_f64).unwrap_or_else(|| panic!("no {pointer} in {value:#}"))
}

/// All that was sent is in the ports' counts; what was intended is what was asked.
fn counts_agree(result: &Value) {
    let total =
        |name: &str| (0..4).map(|g| number(result, &format!("/groups/{g}/total/{name}"))).sum::<f64>();
    assert_eq!(number(result, "/interfaces/a/tx_packets"), total("messages_sent"));
    assert_eq!(number(result, "/interfaces/a/tx_bytes"), total("bytes_sent"));
    assert_eq!(number(result, "/interfaces/b/rx_packets"), total("messages_delivered"));
    for (g, (size, rate, frames)) in asked().into_iter().enumerate() {
        let measured = |name: &str| number(result, &format!("/groups/{g}/measured/{name}"));
        let intended = measured("messages_intended");
        assert!((intended - frames * MEASURE).abs() <= 2.0, "{rate}: {intended} frames intended");
        // Bytes of results have no FCS.
        let bytes = measured("messages_sent") * (size - 4) as f64;
        assert_eq!(measured("bytes_sent"), bytes, "{rate}: frames of {size} bytes");
    }
}

#[test]
fn what_was_asked_is_what_the_port_sent() {
    let _alone = crate::lab::one_at_a_time();
    let machine = outcome::Machine::watch();
    let result = crate::lab::run(&profile()).unwrap();
    counts_agree(&result);
    let reasons = result["validity"]["reasons"].as_array().unwrap();
    let words = |reason: &Value, key: &str| reason[key].as_str().unwrap().to_owned();
    let reasons: Vec<_> = reasons.iter().map(|r| (words(r, "code"), words(r, "what"))).collect();
    if machine.starved(reasons.iter().map(|(code, what)| (code.as_str(), what.as_str()))) {
        return;
    }
    // A valid run has sent what was intended, but for what fell due in its last hundredth.
    let sent = number(&result, "/interfaces/a/tx_packets");
    let frames = asked().into_iter().map(|(_, _, frames)| frames).sum::<f64>() * (WARMUP + MEASURE);
    assert!((0.99..=1.001).contains(&(sent / frames)), "{sent} of {frames} frames left the port");
}
