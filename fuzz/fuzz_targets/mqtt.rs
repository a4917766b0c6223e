//! What comes from a server must not break a `mqtt` device.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| models::fuzz("mqtt", data));
