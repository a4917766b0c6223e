//! Calls that the other side ends.

use super::*;

/// A call of this scenario that is up, held for a minute where the scenario says so.
fn up(preset: Preset) -> (Bench<UserAgent>, String) {
    let (scenario, hold) = (Scenario::Preset(preset), Interval::secs(60));
    let mut bench = bench_of(0, Params { scenario, hold, ..Params::default() });
    bench.now = Time(MS);
    begin(&mut bench);
    let invite = one(&mut bench);
    receive(&mut bench, &response(&invite, 200, "b1", "Contact: <sip:b@10.0.0.9>\r\n"));
    assert!(one(&mut bench).starts_with("ACK "));
    (bench, invite)
}

/// The other side's BYE, and what was sent to it.
fn hang_up(bench: &mut Bench<UserAgent>, invite: &str) -> String {
    let bye = incoming("BYE", 1, value(invite, "Call-ID"), value(invite, "From"));
    let bye = bye.replace(";tag=a1", ";tag=b1");
    receive(bench, &bye);
    one(bench)
}

fn counted(bench: &Bench<UserAgent>) -> [u64; 3] {
    ["sessions_completed", "calls_ended_by_callee", "disconnect_requests"].map(|name| counter(bench, name))
}

#[test]
fn a_callee_that_hangs_up_first_completes_the_call() {
    for preset in [Preset::Call, Preset::EarlyMedia] {
        let (mut bench, invite) = up(preset);
        after(&mut bench, 1_000 * MS);
        assert!(hang_up(&mut bench, &invite).starts_with("SIP/2.0 200 "));
        assert_eq!((bench.end, counted(&bench)), (Some(FlowEnd::Completed), [1, 1, 0]), "{preset:?}");
        assert_eq!(Failure::ALL.map(|why| bench.failures(why)), [0; 10]);
    }
}

#[test]
fn a_call_that_ends_before_its_scenario_has_failed_and_is_completed() {
    let (mut bench, invite) = up(Preset::HeldCall);
    assert!(hang_up(&mut bench, &invite).starts_with("SIP/2.0 200 "));
    assert_eq!((bench.end, counted(&bench)), (Some(FlowEnd::Failed), [1, 1, 0]));
    assert!(bench.examples[0].contains("ended the call"), "{:?}", bench.examples);
}

#[test]
fn byes_that_cross_complete_the_call_once() {
    for status in [200, 481] {
        let (mut bench, invite) = up(Preset::Call);
        after(&mut bench, 60_000 * MS);
        let bye = one(&mut bench);
        assert!(hang_up(&mut bench, &invite).starts_with("SIP/2.0 200 "));
        assert_eq!(bench.end, None, "ours is not answered yet");
        assert!(hang_up(&mut bench, &invite).starts_with("SIP/2.0 200 "), "it comes again");
        receive(&mut bench, &response(&bye, status, "", ""));
        assert_eq!((bench.end, counted(&bench)), (Some(FlowEnd::Completed), [1, 0, 1]), "{status}");
        assert_eq!(bench.failures(Failure::Rejected), 0);
    }
}

#[test]
fn a_scenario_may_wait_for_the_callee_to_hang_up() {
    let steps = r#"[{"send": {"method": "INVITE", "sdp": true}}, {"expect": {"status": 200}}, {"send": {"method": "ACK"}},
        {"expect": {"request": "BYE"}}, {"answer": {"status": 200}}]"#;
    let steps: Vec<Step> = serde_json::from_str(steps).expect("steps");
    let mut params = Params { scenario: Scenario::Steps(steps), ..Params::default() };
    params.set_data(&protocol::data::Data::default());
    let mut bench = bench_of(0, params);
    begin(&mut bench);
    let invite = one(&mut bench);
    receive(&mut bench, &response(&invite, 200, "b1", "Contact: <sip:b@10.0.0.9>\r\n"));
    assert!(one(&mut bench).starts_with("ACK "));
    assert!(hang_up(&mut bench, &invite).starts_with("SIP/2.0 200 "));
    assert_eq!((bench.end, counted(&bench)), (Some(FlowEnd::Completed), [1, 1, 0]));
}

#[test]
fn a_bye_of_a_stranger_ends_no_call() {
    let (mut bench, _) = up(Preset::Call);
    receive(&mut bench, &incoming("BYE", 1, "other", "<sip:b@x>;tag=1"));
    assert!(one(&mut bench).starts_with("SIP/2.0 481 "));
    after(&mut bench, 60_000 * MS);
    let bye = one(&mut bench);
    receive(&mut bench, &response(&bye, 200, "", ""));
    assert_eq!((bench.end, counted(&bench)), (Some(FlowEnd::Completed), [1, 0, 1]));
}
