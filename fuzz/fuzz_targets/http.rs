//! What comes from a server must not break a `http` device.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| models::fuzz("http", data));
