//! When things are due: shared by all that wait for very many times at once, with DPDK and without.

mod wheel;

pub use wheel::TimerWheel;
