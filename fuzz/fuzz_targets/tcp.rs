//! Whatever a path does with the segments of two stacks, and whatever strangers add: a simple reference agrees with what they say,
//! every byte that arrives is right, memory is bounded, and all of it ends.
#![no_main]

#[path = "../../crates/stack/tests/lockstep.rs"]
mod lockstep;
#[path = "../../crates/stack/tests/wire.rs"]
mod wire;

libfuzzer_sys::fuzz_target!(|data: &[u8]| lockstep::play(data));
