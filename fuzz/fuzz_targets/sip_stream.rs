//! Messages of a stream are found alike however it is cut into parts.
#![no_main]

use sip_core::message::{Framer, frame};

// A byte, then the stream, which comes in parts of as many bytes.
libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    let Some((step, mut rest)) = data.split_first() else { return };
    let step = usize::from(*step).max(1);
    let (mut framer, mut end) = (Framer::default(), 0);
    while end < rest.len() {
        end = (end + step).min(rest.len());
        let found = framer.frame(&rest[..end]);
        assert_eq!(found, frame(&rest[..end]));
        match found {
            Ok(None) => {}
            Err(_) => return,
            Ok(Some(length)) => {
                assert!((1..=end).contains(&length));
                sip_core::testing::agree(&rest[..length]);
                rest = &rest[length..];
                end = 0;
            }
        }
    }
});
