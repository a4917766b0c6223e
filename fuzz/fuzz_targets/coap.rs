//! What comes from a server must not break a `coap` device.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| models::fuzz("coap", data));
