//! Header fields that are computed: the answer to digest AKA, and Identity.

use super::*;
use crate::{Aka, Identity};

/// Test set 1 of 3GPP TS 35.208.
const K: &str = "465b5ce8b199b49faa5f0a2ee238a6bc";
const OP: &str = "cdc202d5123e20f62b6d676ac72cb318";
/// RAND, and AUTN of SQN ff9bb4d0b607 and AMF b9b9.
const NONCE: &str = "I1U8vpY3qJ0hiuZNrke/NVXzKLQ1d7m5Sp/6w1Tfr7M=";

fn with_keys(k: &str) -> Bench<UserAgent> {
    let aka = Aka { k: k.into(), op: Some(OP.into()), opc: None };
    bench_of(0, Params { aka: Some(Box::new(aka)), password: Some("unused".into()), ..Params::default() })
}

fn challenge(nonce: &str) -> String {
    format!(
        "WWW-Authenticate: Digest realm=\"ims.test\", nonce=\"{nonce}\", algorithm=AKAv1-MD5, qop=\"auth\"\r\n"
    )
}

#[test]
fn a_challenge_of_aka_is_answered_with_res_as_password() {
    let mut bench = with_keys(K);
    begin(&mut bench);
    let first = one(&mut bench);
    receive(&mut bench, &response(&first, 401, "s", &challenge(NONCE)));
    let second = one(&mut bench);
    let answer = value(&second, "Authorization");
    let part = |name: &str| {
        let (_, rest) = answer.split_once(&format!(" {name}=")).expect(name);
        rest.split([',']).next().expect("a value").trim_matches('"').to_owned()
    };
    assert_eq!((part("algorithm"), part("nonce")), ("AKAv1-MD5".into(), NONCE.into()));
    // RFC 2617, with the RES of the test set
    let md5 = |parts: &[&[u8]]| sip_core::digest::Hash::Md5.of(parts).to_string();
    let res = [0xa5, 0x42, 0x11, 0xd5, 0xe3, 0xba, 0x50, 0xbf];
    let (ha1, ha2) = (md5(&[b"user0", b"ims.test", &res]), md5(&[b"REGISTER", b"sip:sip.example.net"]));
    let all = [ha1, NONCE.into(), part("nc"), part("cnonce"), "auth".into(), ha2];
    assert_eq!(part("response"), md5(&all.each_ref().map(String::as_bytes)));
    receive(&mut bench, &response(&second, 200, "s", ""));
    assert_eq!(bench.end, Some(FlowEnd::Completed));
}

#[test]
fn a_network_that_does_not_know_the_key_is_not_answered() {
    let mut bench = with_keys(&K.replace('4', "5"));
    begin(&mut bench);
    let first = one(&mut bench);
    receive(&mut bench, &response(&first, 401, "s", &challenge(NONCE)));
    assert_eq!((sent(&mut bench).len(), bench.end), (0, Some(FlowEnd::Failed)));
    assert_eq!(counter(&bench, "challenges"), 1);
}

#[test]
fn wrong_keys_are_told_without_being_shown() {
    let told = |aka: Aka| {
        Params { aka: Some(Box::new(aka)), ..Params::default() }.check().expect_err("wrong").to_string()
    };
    let keys = |k: &str, op: Option<&str>| Aka { k: k.into(), op: op.map(Into::into), opc: None };
    let short = told(keys("465b5ce8", Some(OP)));
    assert!(short.contains("aka.k: is not 32 hexadecimal digits") && !short.contains("465b"), "{short}");
    assert!(told(keys(K, None)).contains("exactly one of op and opc"));
    let identity = Identity { key: "hidden".into(), x5u: "https://a.test/b".into(), ..Identity::default() };
    let told = Params { identity: Some(Box::new(identity)), ..Params::default() }
        .check()
        .expect_err("wrong")
        .to_string();
    assert!(told.contains("identity.key: is no private key") && !told.contains("hidden"), "{told}");
}
