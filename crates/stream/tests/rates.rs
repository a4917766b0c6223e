//! What was asked is what was sent, by the counts of both ports: in frames a second, bits on the wire or in frames,
//! and shares of the line.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod lab;

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
        "validity": {"offered": 0.999, "lateness_p99": "1s", "starved": 1.0},
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

fn near(found: f64, wanted: f64) -> bool {
    (found / wanted - 1.0).abs() < 0.001
}

/// All that was sent is in the ports' counts; what was intended is what was asked.
fn counts_agree(result: &Value) {
    let total =
        |name: &str| (0..4).map(|g| number(result, &format!("/groups/{g}/total/{name}"))).sum::<f64>();
    assert_eq!(number(result, "/interfaces/a/tx_packets"), total("messages_sent"));
    assert_eq!(number(result, "/interfaces/a/tx_bytes"), total("bytes_sent"));
    assert_eq!(number(result, "/interfaces/b/rx_packets"), total("messages_delivered"));
    for (g, (_, rate, frames)) in asked().into_iter().enumerate() {
        let intended = number(result, &format!("/groups/{g}/measured/messages_intended"));
        assert!((intended - frames * MEASURE).abs() <= 2.0, "{rate}: {intended} frames intended");
    }
}

#[test]
fn what_was_asked_is_what_the_port_sent() {
    let _alone = lab::alone();
    for _ in 0..5 {
        let result = lab::run(&profile()).unwrap();
        counts_agree(&result);
        if result["validity"]["valid"] == json!(false) {
            // A machine too busy to keep the rate has to be one that says so.
            assert!(
                result["validity"]["reasons"].to_string().contains("ND-90-01"),
                "{:#}",
                result["validity"]
            );
            continue;
        }
        let mut frames_asked = 0.0;
        for (g, (size, rate, frames)) in asked().into_iter().enumerate() {
            let measured = |name: &str| number(&result, &format!("/groups/{g}/measured/{name}"));
            let sent = measured("messages_sent");
            assert!(near(sent / MEASURE, frames), "{rate}: {sent} frames in {MEASURE} s");
            // Bytes of results have no FCS.
            let bits = (measured("bytes_sent") + 4.0 * sent) * 8.0 / MEASURE;
            assert!(near(bits, frames * size as f64 * 8.0), "{rate}: {bits} bit/s");
            frames_asked += frames;
        }
        let sent = number(&result, "/interfaces/a/tx_packets");
        assert!(near(sent, frames_asked * (WARMUP + MEASURE)), "{sent} frames left the port");
        return;
    }
    panic!("the machine is too busy to send 40,000 frames a second");
}
