//! What one core does: 64-byte frames over a cable between two ports of ours, number and delay of each
//! measured. Prints packets per second, cycles per element, and the delay at a rate that is easily met.
//!
//!     cargo run --release -p traffic --example dpdk_speed [STREAMS] [SECONDS] [split] [huge]

#[path = "../tests/lab/mod.rs"]
mod lab;

use run::SetupError;
use serde_json::{Value, json};

fn run(streams: u64, rate: u64, seconds: u64, split: bool, huge: bool) -> Result<Value, SetupError> {
    let mut profile = json!({
        "name": "speed",
        "phases": {"warmup": "500ms", "measure": format!("{seconds}s"), "drain": "500ms"},
        "transport": {"dpdk": {"ports": [
            {"name": "a", "device": "pair:speed", "ip": "10.9.0.1"},
            {"name": "b", "device": "pair:speed", "ip": "10.9.0.2"}
        ]}},
        "groups": [{
            "name": "s",
            "model": {"stream": {"size": "18B", "rate": format!("{}/s", rate / streams)}},
            "target": "udp://10.9.0.2:7",
            "devices": streams
        }]
    });
    profile["transport"]["dpdk"]["huge_pages"] = json!(huge);
    if split {
        profile["transport"]["dpdk"]["placement"] = json!([
            {"elements": ["a.generator", "b.generator"]},
            {"elements": ["a.receiver", "b.receiver"]}
        ]);
    }
    lab::run(&profile)
}

fn main() -> Result<(), SetupError> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let number =
        |at: usize, other: u64| arguments.get(at).and_then(|text| text.parse().ok()).unwrap_or(other);
    let (streams, seconds) = (number(0, 1), number(1, 3).max(1));
    let asked = |word: &str| arguments.iter().any(|argument| argument == word);
    let (split, huge) = (asked("split"), asked("huge"));

    let flat_out = run(streams, 100_000_000, seconds, split, huge)?;
    // What took place in the measure phase, whenever it was meant for: flat out it was meant for long before.
    let mpps = |name: &str| flat_out["groups"][0]["rates"][name].as_f64().unwrap_or(0.0) / 1e6;
    println!("{streams} streams, {} workers, flat out", if split { 2 } else { 1 });
    println!(
        "  sent {:.2} Mpps, received and measured {:.2} Mpps",
        mpps("messages_sent"),
        mpps("messages_delivered")
    );
    for element in flat_out["elements"].as_array().into_iter().flatten() {
        let cycles = element["cycles_per_packet"].as_f64().unwrap_or(0.0);
        if cycles > 0.0 {
            println!(
                "  {:<14} {cycles:>7.1} cycles/packet, drops {}",
                element["name"].as_str().unwrap_or(""),
                element["drops"]
            );
        }
    }
    let easy = run(streams, 100_000, seconds, split, huge)?;
    let delay = &easy["groups"][0]["delays"]["round_trip"];
    println!(
        "at 100 kpps: delay min {} p50 {} p99 {} max {} ns, lost {}, valid {}",
        delay["min"],
        delay["p50"],
        delay["p99"],
        delay["max"],
        easy["groups"][0]["loss"],
        easy["validity"]["valid"]
    );
    Ok(())
}
