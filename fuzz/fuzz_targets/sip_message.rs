//! The one-pass scan and the full grammar of SIP must agree, and nothing that comes may break what is made of it.
#![no_main]

use sip_core::message::Message;
use sip_core::transaction::{ack, cancel};

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    sip_core::testing::agree(data);
    let Ok(message) = Message::parse(data) else { return };
    for bytes in [message.to_bytes(), message.to_compact_bytes()] {
        assert_eq!(Message::parse(&bytes).map(|again| again.to_bytes()), Ok(message.to_bytes()));
    }
    let response = Message::response(&message, 180, "Ringing", Some("t"));
    let _ = (ack(&message, &response), cancel(&message));
});
