//! Calls that come before their callee has registered.

use super::*;

/// A user agent of one run's groups.
fn agent(trial: u64, params: Params) -> Bench<UserAgent> {
    let scheme = crate::description::SCHEMES[0];
    let target = Target { scheme, host: "sip.example.net".into(), port: 5060, ipv6: false };
    let config = Arc::new(Params { run: 0xab, trial, ..params }.compile(&target).expect("good parameters"));
    config.expect_callee(0);
    let mut bench = Bench::of(UserAgent::new(config), &DESCRIPTION);
    bench.local = Some("10.0.0.1:40000".parse().expect("address"));
    bench
}

fn preset(preset: Preset) -> Params {
    Params { scenario: Scenario::Preset(preset), ..Params::default() }
}

fn callee(trial: u64) -> Bench<UserAgent> {
    agent(trial, Params { user: "callee{device}".into(), ..preset(Preset::Answer) })
}

/// A call at `ms` that is answered with `status`: the kinds of failure that it counts as, and its cause.
fn call(trial: u64, ms: u64, status: u16) -> (u64, u64, String) {
    let mut caller = agent(trial, preset(Preset::Call));
    caller.now = Time(ms * MS);
    begin(&mut caller);
    let invite = one(&mut caller);
    caller.now = Time((ms + 20) * MS);
    receive(&mut caller, &response(&invite, status, "b1", ""));
    assert_eq!(caller.end, Some(FlowEnd::Failed));
    let kinds = [Failure::Local, Failure::Rejected].map(|kind| caller.failures(kind));
    (kinds[0], kinds[1], caller.cause.expect("a cause").detail.to_string())
}

#[test]
fn a_call_before_the_registration_of_its_callee_is_the_loads_own_failure() {
    const TRIAL: u64 = 0x5001;
    let mut callee = callee(TRIAL);
    let early = (1, 0, crate::callees::CALLED_EARLY.to_owned());
    assert_eq!(call(TRIAL, 0, 404), early);
    begin(&mut callee);
    let register = one(&mut callee);
    assert_eq!(call(TRIAL, 10, 480), early);
    // whatever else is said is no matter of registrations
    assert_eq!(call(TRIAL, 10, 503).1, 1);
    callee.now = Time(100 * MS);
    receive(&mut callee, &response(&register, 200, "s", ""));
    assert_eq!(call(TRIAL, 90, 404), early, "it was due before, and answered later");
    let late = call(TRIAL, 101, 404);
    assert_eq!((late.0, late.1), (0, 1), "now it is the server's failure");
}

#[test]
fn a_registration_that_is_rejected_or_never_answered_is_the_servers_failure() {
    for (trial, answered) in [(0x5002, true), (0x5003, false)] {
        let mut callee = callee(trial);
        begin(&mut callee);
        let register = one(&mut callee);
        if answered {
            receive(&mut callee, &response(&register, 403, "s", ""));
        }
        while callee.end.is_none() {
            callee.now = callee.wake;
            after(&mut callee, 0);
        }
        assert_eq!(call(trial, 40_000, 404).1, 1);
    }
}

#[test]
fn others_than_the_callees_of_the_run_are_judged_as_before() {
    const TRIAL: u64 = 0x5004;
    let _phones = agent(TRIAL, Params { user: "callee{device}".into(), ..preset(Preset::Register) });
    assert_eq!(call(TRIAL, 0, 404).1, 1, "who only registers is not called");
    let _callee = callee(TRIAL + 1);
    assert_eq!(call(TRIAL, 0, 404).1, 1, "a callee of another run");
    let _callee = callee(TRIAL);
    assert_eq!(call(TRIAL, 0, 404).0, 1);
}
