//! A description that is read is written and read alike, and can be answered or refused.
#![no_main]

use sip_core::sdp::{Audio, Codec, Crypto, Direction, Session, answer, check_answer, offer};

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    let Ok(session) = Session::parse(data) else { return };
    let written = session.to_string();
    let again = Session::parse(written.as_bytes()).map(|again| again.to_string());
    assert_eq!(again.as_deref(), Ok(written.as_str()));
    let audio = Audio {
        host: "192.0.2.1".to_owned(),
        port: 4_000,
        codecs: vec![Codec::pcmu(), Codec::pcma()],
        telephone_event: Some(101),
        ptime: None,
        direction: Direction::SendRecv,
        crypto: Vec::new(),
    };
    let crypto = Crypto { tag: 1, suite: "AES_CM_128_HMAC_SHA1_80".to_owned(), key: vec![1; 30] };
    let protected = Audio { crypto: vec![crypto], ..audio.clone() };
    for audio in [&audio, &protected] {
        if let Ok((reply, agreed)) = answer(&session, audio, 1, 1) {
            assert_eq!(reply.media.len(), session.media.len());
            assert_eq!(agreed.crypto.is_some(), !audio.crypto.is_empty());
            assert!(Session::parse(reply.to_string().as_bytes()).is_ok());
        }
        let _ = check_answer(&offer(audio, 1, 1), audio, &session);
    }
});
