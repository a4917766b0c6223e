//! Challenges and credentials of any kind are read, and every challenge that can be answered has an answer that verifies.
#![no_main]

use sip_core::digest::{Answer, AuthenticationInfo, Credentials, Nonces, Preference, choose, list};

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    let _ = (Credentials::parse(data), AuthenticationInfo::parse(data));
    let mut nonces = Nonces::new([7; 32], 1_000, 2);
    assert!(nonces.take(data, Some(1), 0).is_err());
    assert!(list(data).count() <= data.len());
    let Ok(challenge) = choose(&[data], Preference::Strongest) else { return };
    let ha1 = challenge.algorithm.ha1(b"u\"\\", challenge.realm, b"p");
    for integrity in [false, true] {
        let answer = Answer {
            challenge: &challenge,
            username: b"u\"\\",
            ha1: &ha1,
            method: b"INVITE",
            uri: b"sip:a@b",
            body: data,
            qop: challenge.qop(integrity),
            cnonce: b"c",
            nc: 0xffff_ffff,
        };
        let mut written = Vec::new();
        answer.write(&mut written);
        let credentials = Credentials::parse(&written).expect("what is written is read");
        assert!(credentials.is_user(b"u\"\\"));
        assert_eq!(credentials.verify(&ha1, b"INVITE", data), Ok(()));
        assert!(credentials.verify(&ha1, b"BYE", data).is_err());
    }
});
