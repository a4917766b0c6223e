//! What comes in at a DPDK port must not break what receives it, nor make it answer what it should not.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| stream::malformed::show(data));
