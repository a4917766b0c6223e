//! The receive buffer that a datagram socket needs between two reads.

/// Least room of a queue that datagrams to be measured come to.
pub const LEAST: usize = 1 << 20;
/// Most.
pub const MOST: usize = 64 << 20;
/// What the kernel needs for a datagram besides its bytes.
const OVERHEAD: f64 = 512.0;
/// The longest time between two reads.
const PATIENCE_S: f64 = 0.5;

/// Room for datagrams of `size` bytes that come at `rate` a second, `burst` at a time, with half a second between two reads.
pub fn receive_buffer(rate: f64, burst: f64, size: f64) -> usize {
    let bytes = (rate * PATIENCE_S + burst) * (size + OVERHEAD);
    (bytes as usize).clamp(LEAST, MOST)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn room_is_for_half_a_second() {
        assert_eq!(receive_buffer(0.0, 1.0, 64.0), LEAST);
        assert_eq!(receive_buffer(10_000.0, 1.0, 64.0), 5_001 * 576);
        assert_eq!(receive_buffer(1e9, 1.0, 1400.0), MOST);
        assert_eq!(receive_buffer(f64::INFINITY, 0.0, 64.0), MOST);
    }
}
