//! Challenges of several: proxies and the server, each in its realm.

use super::*;

const PROXY: &str = "Proxy-Authenticate: Digest realm=\"edge\", nonce=\"p1\", qop=\"auth\"\r\n";
const SERVER: &str = "WWW-Authenticate: Digest realm=\"home\", nonce=\"s1\", qop=\"auth\"\r\n";

fn guarded(preset: Preset) -> Bench<UserAgent> {
    let (scenario, password) = (Scenario::Preset(preset), Some("secret".to_owned()));
    let mut bench = bench_of(0, Params { scenario, password, ..Params::default() });
    begin(&mut bench);
    bench
}

/// Whether `message` has credentials for the proxy and for the server.
fn credentials(message: &str) -> (bool, bool) {
    let for_proxy = message.contains("\r\nProxy-Authorization: Digest username=\"user0\", realm=\"edge\"");
    (for_proxy, message.contains("\r\nAuthorization: Digest username=\"user0\", realm=\"home\""))
}

/// Reject the request that was sent; what is sent then, without the ACK to a failure.
fn rejected(bench: &mut Bench<UserAgent>, status: u16, challenge: &str) -> String {
    let request = sent(bench).pop().expect("a request");
    receive(bench, &response(&request, status, "x", challenge));
    let all = sent(bench);
    let next = all.iter().find(|one| !one.starts_with("ACK ")).cloned().unwrap_or_default();
    bench.out.bytes.extend_from_slice(next.as_bytes());
    next
}

#[test]
fn a_proxy_and_the_server_behind_it_are_both_answered() {
    for preset in [Preset::Register, Preset::Call, Preset::Options] {
        let mut bench = guarded(preset);
        assert_eq!(credentials(&rejected(&mut bench, 407, PROXY)), (true, false), "{preset:?}");
        assert_eq!(credentials(&rejected(&mut bench, 401, SERVER)), (true, true), "{preset:?}");
        let request = one(&mut bench);
        let contact = format!("Contact: {}\r\n", value(&request, "Contact"));
        receive(&mut bench, &response(&request, 200, "x", &contact));
        assert_eq!(counter(&bench, "challenges"), 2);
        if preset != Preset::Call {
            assert_eq!(bench.end, Some(FlowEnd::Completed), "{preset:?}");
            continue;
        }
        let all = sent(&mut bench);
        assert!(all[0].starts_with("ACK ") && all[1].starts_with("BYE "), "{all:?}");
        // section 22.1: the ACK has what its INVITE had
        for name in ["Authorization", "Proxy-Authorization"] {
            assert_eq!(value(&all[0], name), value(&request, name));
            assert_ne!(value(&all[1], name), value(&request, name));
        }
        receive(&mut bench, &response(&all[1], 200, "", ""));
        assert_eq!(bench.end, Some(FlowEnd::Completed));
    }
}

#[test]
fn a_proxy_that_forks_passes_on_the_challenges_of_all() {
    let mut bench = guarded(Preset::Register);
    let second = "Proxy-Authenticate: Digest realm=\"other\", nonce=\"o1\"\r\n";
    let next = rejected(&mut bench, 401, &[PROXY, second, SERVER, SERVER].concat());
    assert_eq!(credentials(&next), (true, true));
    assert_eq!(next.matches("Authorization: ").count(), 3, "{next}");
}

#[test]
fn credentials_that_one_of_them_refuses_are_a_failure() {
    for (status, challenge) in [(407, PROXY), (401, SERVER)] {
        let mut bench = guarded(Preset::Register);
        rejected(&mut bench, 407, PROXY);
        rejected(&mut bench, 401, SERVER);
        assert_eq!(rejected(&mut bench, status, &challenge.replace("1\"", "2\"")), "");
        assert_eq!((bench.end, bench.failures(Failure::Rejected)), (Some(FlowEnd::Failed), 1));
    }
    // a nonce that was too old is no refusal
    let mut bench = guarded(Preset::Register);
    rejected(&mut bench, 407, PROXY);
    rejected(&mut bench, 401, SERVER);
    let next = rejected(&mut bench, 407, &PROXY.replace("qop", "stale=true, qop"));
    assert_eq!(credentials(&next), (true, true));
    // one that invents a realm each time is given up
    let mut bench = guarded(Preset::Register);
    let rounds = (0..20)
        .take_while(|n| !rejected(&mut bench, 401, &SERVER.replace("home", &n.to_string())).is_empty());
    assert_eq!(rounds.count(), 8);
}
