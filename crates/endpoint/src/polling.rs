//! Polling of ports: without a pause while packets come, then at rest in between, so that other threads have the core.

use std::time::{Duration, Instant};

/// Turns without a packet after which it rests between two of them: some 100 µs.
const SPINS: u32 = 512;
/// Of those, from one that gives the core to who waits for it to the next.
const YIELD: u32 = 16;
/// How long it rests.
pub const REST: Duration = Duration::from_micros(20);

/// Take turns until one of them tells of an event, for `longest` at most. `turn` moves packets, adds events, and returns whether
/// there was a packet.
pub fn until_event<E>(longest: Duration, events: &mut Vec<E>, mut turn: impl FnMut(&mut Vec<E>) -> bool) {
    let begun = Instant::now();
    let mut idle = 0;
    loop {
        let any = turn(events);
        if !events.is_empty() || begun.elapsed() >= longest {
            return;
        }
        idle = if any { 0 } else { idle + 1 };
        if idle > SPINS {
            std::thread::sleep(REST);
        } else if idle > 0 && idle.is_multiple_of(YIELD) {
            std::thread::yield_now();
        } else {
            std::hint::spin_loop();
        }
    }
}
