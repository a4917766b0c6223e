//! What comes from a server must not break a `stream` device.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| models::fuzz("stream", data));
