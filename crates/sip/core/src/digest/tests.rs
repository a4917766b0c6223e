use super::*;

/// Algorithm, qop, response: computed apart from this crate, for `bob`, realm `biloxi.com`, password `zanzibar`, nonce `n0nce`,
/// cnonce `0a4f113b`, `INVITE sip:bob@biloxi.com` and the body `v=0\r\n`.
const RESPONSES: &[(&str, &str, &str)] = &[
    ("MD5", "", "d80f4485ba9186c2a213b47165e71145"),
    ("MD5", "auth", "9b98e711eb984581ec7e684aa3a08c31"),
    ("MD5", "auth-int", "4a1c1aac2e837a7a3d9ee95d63804c8a"),
    ("MD5-sess", "", "064acad555707068fbc3332265770a73"),
    ("MD5-sess", "auth", "8c51a7b83622e7565ff7315b09a08bab"),
    ("MD5-sess", "auth-int", "96cd744ffb77f4e6c65d6800fe1a17c6"),
    ("SHA-256", "", "1400d84fe5bc24564be4643d19d957816f7141444404359ab33654e82263b4c4"),
    ("SHA-256", "auth", "477905bb2eb03363ddfa774e0abb39ecf692225358b34b11545ba8ac5f34c790"),
    ("SHA-256", "auth-int", "b320df414107434076fd19aab3a6a1273d3954e4b6481ab09c0aca6714546327"),
    ("SHA-256-sess", "", "797e7081cc1663c6f1107cf8e8c8d09fdbd2b44c04c16a7e5991a04616af631d"),
    ("SHA-256-sess", "auth", "e54acce5f857058e79e1fdce7700217c017748b1906300dac7a41a5d04424cd3"),
    ("SHA-256-sess", "auth-int", "58e1576cc2b39c0e21bfffdf1bbb2b526b03665c3ebb4f035a1af918ccccc0e6"),
    ("SHA-512-256", "", "1440d6351a47115c870611fad9ab6076466ae2db47fcc23f2b1b02b2527221c2"),
    ("SHA-512-256", "auth", "1149a25dde5046e1eccb5c2af1c9fe1c451dcaadfd6a97e9dd9692d8ca9711dc"),
    ("SHA-512-256", "auth-int", "c172a20473c90cd9e6ce3b2808dea0c5344ad037aacca2c0205794546a1548c3"),
    ("SHA-512-256-sess", "", "0f77f776f9eed922963426aee7ae8cdfa60312343728f9f618611cf4ab5733b2"),
    ("SHA-512-256-sess", "auth", "f997cd5aed4a3704306dc0df96b95284e610f725fc45ae4a91823c1d512f1a3d"),
    ("SHA-512-256-sess", "auth-int", "9436bc8ec68c3bd71ad01daed66242524ecbee4e9706f1f011bfc25ccdf87bce"),
];

/// Algorithm, qop, `rspauth` for the same request and a response without body.
const PROOFS: &[(&str, &str, &str)] = &[
    ("MD5", "auth", "8f729f50d1c125e11cac728d12f97bca"),
    ("SHA-256", "auth", "357edd09093c7e9aeedb7a0cfc2864ec2be4dd4c229a265dfad8e0d0528d55e7"),
    ("SHA-256", "auth-int", "47eb99398e1f0f78dfdfee90692df02db3c70823972fe94741eb491827ea421d"),
    ("SHA-512-256-sess", "auth", "4a4d237634cc183f9d28417e4b91969d5f77f588e86071f196e5be06e688e2e2"),
];

#[test]
fn every_algorithm_and_qop_is_answered_and_verified() {
    for (algorithm, qop, response) in RESPONSES {
        let qop = if qop.is_empty() { String::new() } else { format!(", qop=\"{qop}\"") };
        let value = format!(
            "Digest realm=\"biloxi.com\", nonce=\"n0nce\", opaque=\"op\", algorithm={algorithm}{qop}, stale=false"
        );
        let challenge = Challenge::parse(value.as_bytes()).unwrap();
        let ha1 = challenge.algorithm.ha1(b"bob", challenge.realm, b"zanzibar");
        let answer = Answer {
            challenge: &challenge,
            username: b"bob",
            ha1: &ha1,
            method: b"INVITE",
            uri: b"sip:bob@biloxi.com",
            body: b"v=0\r\n",
            qop: challenge.qop(false),
            cnonce: b"0a4f113b",
            nc: 1,
        };
        assert_eq!(answer.response().to_string(), *response, "{algorithm} {qop}");

        let mut written = Vec::new();
        answer.write(&mut written);
        let credentials = Credentials::parse(&written).unwrap();
        assert_eq!((credentials.realm, credentials.nonce), (&b"biloxi.com"[..], &b"n0nce"[..]));
        assert_eq!((credentials.qop, credentials.opaque), (challenge.qop(false), Some(&b"op"[..])));
        assert_eq!(credentials.nc, challenge.qop(false).map(|_| 1));
        assert_eq!(credentials.uri, b"sip:bob@biloxi.com");
        assert!(credentials.is_user(b"bob") && !credentials.is_user(b"bo"));
        assert_eq!(credentials.verify(&ha1, b"INVITE", b"v=0\r\n"), Ok(()));
        assert_eq!(credentials.verify(&ha1, b"BYE", b"v=0\r\n"), Err(Mismatch::Response));
        let wrong = challenge.algorithm.ha1(b"bob", challenge.realm, b"zanzibaR");
        assert_eq!(credentials.verify(&wrong, b"INVITE", b"v=0\r\n"), Err(Mismatch::Response));
        let body = credentials.verify(&ha1, b"INVITE", b"v=1\r\n");
        assert_eq!(
            body.is_err(),
            credentials.qop == Some(Qop::AuthInt),
            "the body counts for auth-int alone"
        );
    }
}

/// The examples of RFC 2617 section 3.5 and RFC 7616 section 3.9.1.
#[test]
fn examples_of_the_standards() {
    let response = |value: &str, password: &str, cnonce: &str| {
        let challenge = Challenge::parse(value.as_bytes()).unwrap();
        let ha1 = challenge.algorithm.ha1(b"Mufasa", challenge.realm, password.as_bytes());
        let answer = Answer {
            challenge: &challenge,
            username: b"Mufasa",
            ha1: &ha1,
            method: b"GET",
            uri: b"/dir/index.html",
            body: b"",
            qop: challenge.qop(false),
            cnonce: cnonce.as_bytes(),
            nc: 1,
        };
        answer.response().to_string()
    };
    let rfc2617 = "Digest realm=\"testrealm@host.com\", qop=\"auth,auth-int\",
 nonce=\"dcd98b7102dd2f0e8b11d0f600bfb0c093\", opaque=\"5ccc069c403ebaf9f0171e9517f40e41\"";
    assert_eq!(response(rfc2617, "Circle Of Life", "0a4f113b"), "6629fae49393a05397450978507c4ef1");
    let rfc7616 = |algorithm: &str| {
        format!(
            "Digest realm=\"http-auth@example.org\", qop=\"auth, auth-int\", algorithm={algorithm}, \
             nonce=\"7ypf/xlj9XXwfDPEoM4URrv/xwf94BcCAzFZH4GiTo0v\""
        )
    };
    let cnonce = "f2/wE4q74E6zIJEtWaHKaf5wv/H5QzzpXusqGemxURZJ";
    let md5 = response(&rfc7616("MD5"), "Circle of Life", cnonce);
    assert_eq!(md5, "8ca523f5e9506fed4657c9700eebdbec");
    let sha = response(&rfc7616("SHA-256"), "Circle of Life", cnonce);
    assert_eq!(sha, "753927fa0e85d155564e2e272a28d1802ca10daf4496794697cf8db5856cb6c1");
}

#[test]
fn userhash_hides_the_name() {
    // RFC 7616 section 3.9.2, as corrected by erratum 4897.
    let hash = Algorithm::SHA_512_256.userhash("Jäsøn Doe".as_bytes(), b"api@example.org");
    assert_eq!(hash.to_string(), "793263caabb707a56211940d90411ea4a575adeccb7e360aeb624ed06ece9b0b");

    let value = b"Digest realm=\"r\", nonce=\"n\", algorithm=SHA-256, qop=\"auth\", userhash=true";
    let challenge = Challenge::parse(value).unwrap();
    let ha1 = challenge.algorithm.ha1(b"bob", b"r", b"p");
    let answer = Answer {
        challenge: &challenge,
        username: b"bob",
        ha1: &ha1,
        method: b"REGISTER",
        uri: b"sip:r",
        body: b"",
        qop: Some(Qop::Auth),
        cnonce: b"c",
        nc: 0xab_cdef,
    };
    let mut written = Vec::new();
    answer.write(&mut written);
    let credentials = Credentials::parse(&written).unwrap();
    assert!(credentials.userhash && credentials.is_user(b"bob") && !credentials.is_user(b"eve"));
    assert_eq!(credentials.nc, Some(0xab_cdef));
    assert_eq!(credentials.verify(&ha1, b"REGISTER", b""), Ok(()));
}

#[test]
fn names_with_quotes_are_escaped() {
    let challenge = Challenge::parse(b"Digest realm=\"r\", nonce=\"n\"").unwrap();
    let ha1 = challenge.algorithm.ha1(b"a\"b\\c", b"r", b"p");
    let username = b"a\"b\\c";
    let answer = Answer {
        challenge: &challenge,
        username,
        ha1: &ha1,
        method: b"REGISTER",
        uri: b"sip:r",
        body: b"",
        qop: None,
        cnonce: b"",
        nc: 1,
    };
    let mut written = Vec::new();
    answer.write(&mut written);
    assert!(written.starts_with(br#"Digest username="a\"b\\c", realm="r""#));
    assert!(Credentials::parse(&written).unwrap().is_user(username));
}

#[test]
fn challenges_are_chosen() {
    let md5 = b"Digest realm=\"a\", nonce=\"1\"".as_slice();
    let sha = b"Digest realm=\"a\", nonce=\"2\", algorithm=SHA-256".as_slice();
    let odd = b"Digest realm=\"a\", nonce=\"3\", algorithm=SHA3".as_slice();
    let basic = b"Basic realm=\"a\"".as_slice();
    let nonce = |values: &[&'static [u8]], preference| choose(values, preference).map(|c| c.nonce);
    assert_eq!(nonce(&[odd, md5, sha], Preference::Topmost), Ok(&b"1"[..]));
    assert_eq!(nonce(&[basic, odd, md5, sha], Preference::Strongest), Ok(&b"2"[..]));
    assert_eq!(nonce(&[odd, basic], Preference::Strongest), Err(ChallengeError::Algorithm));
    assert_eq!(nonce(&[basic], Preference::Topmost), Err(ChallengeError::Scheme));
    assert_eq!(nonce(&[], Preference::Topmost), Err(ChallengeError::None));
    let both = [basic, md5, sha].join(&b", "[..]);
    let all: Vec<_> = list(&both).map(|c| c.map(|c| c.nonce)).collect();
    assert_eq!(all, [Err(ChallengeError::Scheme), Ok(&b"1"[..]), Ok(&b"2"[..])]);
}

#[test]
fn qop_follows_the_offer() {
    let qop = |offer: &str, integrity| {
        let value = format!("Digest realm=\"a\", nonce=\"1\"{offer}");
        Challenge::parse(value.as_bytes()).map(|challenge| challenge.qop(integrity))
    };
    assert_eq!(qop("", true), Ok(None));
    assert_eq!(qop(", qop=\"auth\"", true), Ok(Some(Qop::Auth)));
    assert_eq!(qop(", qop=\"auth,auth-int\"", false), Ok(Some(Qop::Auth)));
    assert_eq!(qop(", qop=\"future, AUTH-INT , auth\"", true), Ok(Some(Qop::AuthInt)));
    assert_eq!(qop(", qop=\"auth-int\"", false), Ok(Some(Qop::AuthInt)));
    assert_eq!(qop(", qop=auth", false), Ok(Some(Qop::Auth)));
    assert_eq!(qop(", qop=\"future\"", false), Err(ChallengeError::Qop));
}

#[test]
fn malformed_challenges_are_refused() {
    let syntax = |value: &str| matches!(Challenge::parse(value.as_bytes()), Err(ChallengeError::Syntax(_)));
    for value in [
        "Digest",
        "Digest realm",
        "Digest realm=\"a",
        "Digest realm=\"a\" nonce=\"b\";",
        "Digest realm=\"a\", realm=\"b\", nonce=\"c\"",
        "Digest realm=a, nonce=\"b\"",
        "Digest realm=\"a\", nonce=\"b\",",
        "Digest realm=\"a\r\n b\", nonce=\"c\"",
        "=",
    ] {
        assert!(syntax(value), "{value:?}: {:?}", Challenge::parse(value.as_bytes()));
    }
    assert_eq!(Challenge::parse(b"Digest nonce=\"b\""), Err(ChallengeError::Realm));
    assert_eq!(Challenge::parse(b"Digest realm=\"b\""), Err(ChallengeError::Nonce));
    assert!(
        Challenge::parse(b"digest\r\n REALM = \"a\"\r\n ,\tNonce=\"b\" , new=1, stale=TRUE").unwrap().stale
    );
}

#[test]
fn malformed_credentials_are_refused() {
    let all = "Digest username=\"u\", realm=\"r\", nonce=\"n\", uri=\"sip:r\", response=\"0\", qop=auth, cnonce=\"c\", nc=00000001";
    assert!(Credentials::parse(all.as_bytes()).is_ok());
    for missing in ["username", "realm", "nonce", "uri", "response", "cnonce", "nc"] {
        let value = all.replace(&format!(" {missing}="), " other=");
        assert_eq!(Credentials::parse(value.as_bytes()), Err(Mismatch::Missing(missing)));
    }
    for (from, to) in
        [("00000001", "1"), ("00000001", "+0000001"), ("=auth", "=other"), ("\"r\"", "r"), ("sip:r\"", "")]
    {
        let value = all.replace(from, to);
        assert!(matches!(Credentials::parse(value.as_bytes()), Err(Mismatch::Syntax(_))), "{value}");
    }
    assert_eq!(Credentials::parse(b"Basic YTpi"), Err(Mismatch::Scheme));
    let odd = all.replace("qop=auth", "algorithm=SHA3");
    assert_eq!(Credentials::parse(odd.as_bytes()), Err(Mismatch::Algorithm));
}

/// The proof that a server sends: computed apart from this crate, for the request of `RESPONSES` and an empty body.
#[test]
fn the_server_proves_itself() {
    for (algorithm, qop, proof) in PROOFS {
        let value =
            format!("Digest realm=\"biloxi.com\", nonce=\"n0nce\", algorithm={algorithm}, qop=\"{qop}\"");
        let challenge = Challenge::parse(value.as_bytes()).unwrap();
        let ha1 = challenge.algorithm.ha1(b"bob", challenge.realm, b"zanzibar");
        let answer = Answer {
            challenge: &challenge,
            username: b"bob",
            ha1: &ha1,
            method: b"INVITE",
            uri: b"sip:bob@biloxi.com",
            body: b"",
            qop: challenge.qop(false),
            cnonce: b"0a4f113b",
            nc: 1,
        };
        let info =
            format!("rspauth=\"{proof}\", qop={qop}, cnonce=\"0a4f113b\", nc=00000001, nextnonce=\"n2\"");
        let verify = |info: &str| AuthenticationInfo::parse(info.as_bytes()).unwrap().verify(&answer, b"");
        assert_eq!(verify(&info), Ok(()), "{algorithm} {qop}");
        assert_eq!(AuthenticationInfo::parse(info.as_bytes()).unwrap().next_nonce, Some(&b"n2"[..]));
        for (from, to) in
            [(&proof[..4], "beef"), ("nc=00000001", "nc=00000002"), ("0a4f", "0a4e"), ("rspauth", "x")]
        {
            assert_eq!(verify(&info.replacen(from, to, 1)), Err(InfoError::ResponseAuth), "{to}");
        }
    }
    for bad in
        ["", "nc=1", "rspauth=1", "qop=x", "nextnonce=\"a\";", "nc=00000001, nc=00000001", "nextnonce=\"a"]
    {
        assert!(matches!(AuthenticationInfo::parse(bad.as_bytes()), Err(InfoError::Syntax(_))), "{bad}");
    }
}

#[test]
fn nonces_age() {
    let mut nonces = Nonces::new([7; 32], 1_000, 4);
    let nonce = nonces.issue(5_000);
    assert_eq!(nonces.take(nonce.as_bytes(), Some(1), 6_000), Ok(()));
    assert_eq!(nonces.take(nonce.as_bytes(), Some(2), 6_001), Err(NonceError::Stale));
    let mut other = Nonces::new([8; 32], 1_000, 4);
    assert_eq!(other.take(nonce.as_bytes(), Some(1), 5_000), Err(NonceError::Unknown));
    for bad in ["", &nonce[1..], &format!("{nonce}0"), &nonce.replacen('0', "1", 1)] {
        assert_eq!(nonces.take(bad.as_bytes(), Some(9), 5_000), Err(NonceError::Unknown), "{bad}");
    }
}

#[test]
fn nonce_counts_serve_once_in_any_order() {
    let mut nonces = Nonces::new([7; 32], 1_000, 4);
    let nonce = nonces.issue(0);
    let mut take = |nc| nonces.take(nonce.as_bytes(), nc, 0);
    for nc in [1, 3, 2, 66, 200, 199, 137] {
        assert_eq!(take(Some(nc)), Ok(()), "{nc}");
        assert_eq!(take(Some(nc)), Err(NonceError::Replayed), "{nc}");
    }
    for nc in [0, 1, 4, 136] {
        assert_eq!(take(Some(nc)), Err(NonceError::Replayed), "{nc}");
    }
    assert_eq!(take(Some(u32::MAX)), Ok(()));
    let bare = nonces.issue(0);
    assert_eq!(nonces.take(bare.as_bytes(), None, 0), Ok(()));
    assert_eq!(nonces.take(bare.as_bytes(), None, 0), Err(NonceError::Replayed));
}

#[test]
fn forgotten_nonces_cannot_be_replayed() {
    let mut nonces = Nonces::new([7; 32], 1_000, 2);
    let all: Vec<_> = (0..4).map(|_| nonces.issue(0)).collect();
    let results: Vec<_> =
        [1, 2, 3, 1, 0, 2, 3].iter().map(|at: &usize| nonces.take(all[*at].as_bytes(), Some(1), 0)).collect();
    assert_eq!(results[..3], [Ok(()); 3]);
    assert_eq!(results[3..5], [Err(NonceError::Stale); 2], "forgotten, and issued before it");
    assert_eq!(results[5..], [Err(NonceError::Replayed); 2]);
    assert_eq!(nonces.remembered(), 2);
}
