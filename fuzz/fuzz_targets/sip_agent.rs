//! A conversation with a SIP user agent, made of arbitrary bytes: it must not break it, and what it keeps is bounded.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| sip_model::testing::talk(data));
