//! What writing a frame costs: 64-byte UDP frames as they are, with a varying 5-tuple, in a tunnel, and IMIX.
//!
//!     cargo run --release -p packet --example frame_speed

use packet::Flow;
use packet::frame::{Devices, Layer, Marks, Program, ROWS, Recipe, Sizes, Vary, compose};
use serde_json::{Value, json};
use std::hint::black_box;
use std::time::Instant;

const BURSTS: u64 = 1_500;
const ROUNDS: usize = 400;

fn program(
    layers: Value,
    vary: Value,
    sizes: &Sizes,
    flow: &Flow,
) -> Result<Program, Box<dyn std::error::Error>> {
    let layers: Vec<Layer> = serde_json::from_value(layers)?;
    let vary: Vec<Vary> = serde_json::from_value(vary)?;
    Ok(compose(&Recipe {
        layers: &layers,
        vary: &vary,
        sizes,
        measured: true,
        flow,
        devices: Devices::default(),
        seed: 1,
    })?)
}

/// Nanoseconds a frame, the best of some rounds.
fn cost(mut program: Program) -> f64 {
    let mut rooms = vec![vec![0u8; program.longest()]; ROWS];
    let mut marks = Marks::NONE;
    let mut round = |program: &mut Program| {
        let begun = Instant::now();
        for burst in 0..BURSTS {
            marks.sequences.fill(burst);
            marks.sent_ns.fill(burst);
            let mut frames: [&mut [u8]; ROWS] = std::array::from_fn(|_| <&mut [u8]>::default());
            for (ahead, (frame, room)) in frames.iter_mut().zip(&mut rooms).enumerate() {
                *frame = room.get_mut(..program.len_ahead(ahead)).unwrap_or_default();
            }
            program.write_all(black_box(&mut frames), black_box(&marks));
        }
        begun.elapsed().as_nanos() as f64 / (BURSTS as usize * ROWS) as f64
    };
    (0..ROUNDS).map(|_| round(&mut program)).fold(f64::MAX, f64::min)
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let flow = Flow {
        source_mac: [2, 0, 0, 0, 0, 1],
        destination_mac: [2, 0, 0, 0, 0, 2],
        source: "10.0.0.1:10000".parse()?,
        destination: "10.0.0.2:7".parse()?,
    };
    let udp = || json!([{"ethernet": {}}, {"ipv4": {}}, {"udp": {}}]);
    let tuple = || {
        json!([
            {"field": "ipv4.source", "change": {"increment": {"from": "10.1.0.0", "count": 65536}}},
            {"field": "ipv4.destination", "change": {"increment": {"from": "10.2.0.0", "count": 251}}},
            {"field": "udp.source_port", "change": {"random": {"from": 1024, "to": 65535}}},
            {"field": "udp.destination_port", "change": {"increment": {"from": 5000, "count": 1000}}},
        ])
    };
    let vxlan = json!([{"ethernet": {}}, {"ipv4": {}}, {"udp": {}}, {"vxlan": {}}, {"ethernet": {}}, {"ipv4": {}}, {"udp": {}}]);
    let inner =
        json!([{"field": "ipv4[1].source", "change": {"increment": {"from": "10.1.0.0", "count": 65536}}}]);
    let small = Sizes::Cycle(vec![60]);
    let imix = Sizes::weighted(&[(60, 7), (590, 4), (1514, 1)]);
    println!("64 B, nothing varies      {:6.1} ns a frame", cost(program(udp(), json!([]), &small, &flow)?));
    println!("64 B, 5-tuple varies      {:6.1} ns a frame", cost(program(udp(), tuple(), &small, &flow)?));
    println!("IMIX, 5-tuple varies      {:6.1} ns a frame", cost(program(udp(), tuple(), &imix, &flow)?));
    println!(
        "128 B VXLAN, inner varies {:6.1} ns a frame",
        cost(program(vxlan, inner, &Sizes::Cycle(vec![124]), &flow)?)
    );
    Ok(())
}
