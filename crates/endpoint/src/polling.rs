//! Polling of ports: without a pause while packets come, then at rest in between, so that other threads have the core.

use std::time::{Duration, Instant};

/// How long it polls without a pause after the last packet.
const SPIN: Duration = Duration::from_micros(50);
/// Turns without a packet from one that gives the core to who waits for it to the next.
const YIELD: u32 = 16;
/// How long it rests.
pub const REST: Duration = Duration::from_micros(20);

/// Take turns until one of them tells of an event, for `longest` at most. `turn` moves packets, adds events, and returns whether
/// there was a packet.
pub fn until_event<E>(longest: Duration, events: &mut Vec<E>, mut turn: impl FnMut(&mut Vec<E>) -> bool) {
    let begun = Instant::now();
    let (mut last, mut idle) = (begun, 0);
    loop {
        let any = turn(events);
        let now = Instant::now();
        if !events.is_empty() || now.duration_since(begun) >= longest {
            return;
        }
        if any {
            (last, idle) = (now, 0);
            continue;
        }
        idle += 1;
        if now.duration_since(last) > SPIN {
            std::thread::sleep(REST);
        } else if u32::is_multiple_of(idle, YIELD) {
            std::thread::yield_now();
        } else {
            std::hint::spin_loop();
        }
    }
}
