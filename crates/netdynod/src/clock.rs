//! The time of day: as text, and beside the clock that runs are timed by.

use std::time::{Instant, SystemTime};

/// Now, UTC, RFC 3339 with milliseconds.
pub fn now() -> String {
    text(SystemTime::now())
}

/// A moment, likewise.
pub fn text(at: SystemTime) -> String {
    humantime::format_rfc3339_millis(at).to_string()
}

/// How often both clocks are read: between two readings of one the thread may be without a CPU.
const READINGS: usize = 5;

/// Both clocks at one moment, as near as they can be read together.
pub fn read_clocks() -> (SystemTime, Instant) {
    let mut best = read();
    for _ in 1..READINGS {
        let next = read();
        if next.2 < best.2 {
            best = next;
        }
    }
    (best.0, best.1)
}

/// One reading of both, and within which time.
fn read() -> (SystemTime, Instant, std::time::Duration) {
    let (before, wall) = (Instant::now(), SystemTime::now());
    let took = before.elapsed();
    (wall, before + took / 2, took)
}

/// The time of day at a moment of the other clock.
pub fn wall(at: Instant) -> SystemTime {
    let (wall, now) = read_clocks();
    match at.checked_duration_since(now) {
        Some(ahead) => wall + ahead,
        None => wall - now.duration_since(at),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn a_moment_is_the_same_by_both_clocks() {
        let (wall, now) = read_clocks();
        for (at, expected) in [
            (now + Duration::from_secs(60), wall + Duration::from_secs(60)),
            (now - Duration::from_millis(5), wall - Duration::from_millis(5)),
        ] {
            let found = super::wall(at);
            let off = found.duration_since(expected).or_else(|_| expected.duration_since(found)).unwrap();
            assert!(off < Duration::from_millis(1), "{off:?}");
        }
    }
}
