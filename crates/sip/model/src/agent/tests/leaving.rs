//! The end of a run: what a user agent takes back of what it left with its server.

use super::*;

/// The run is over, and what is left is taken back over the connection that was kept.
fn leave(bench: &mut Bench<UserAgent>) {
    assert!(bench.model.leaves_behind());
    bench.end = None;
    bench.abandon();
    assert!(bench.model.leaves_behind(), "it has yet to be taken back");
    bench.call(|device, cx| device.clean_up(cx));
}

fn taken_back(bench: &mut Bench<UserAgent>) -> [u64; 5] {
    bench.call(|device, cx| device.cleaned_up(cx));
    assert!(!bench.model.leaves_behind());
    ["bindings_removed", "bindings_left", "calls_cancelled", "calls_released", "calls_left"]
        .map(|name| counter(bench, name))
}

fn calling(to_answer: bool) -> (Bench<UserAgent>, String) {
    let mut bench = bench_of(
        0,
        Params { scenario: Scenario::Preset(Preset::Call), hold: Interval::secs(600), ..Params::default() },
    );
    begin(&mut bench);
    let invite = one(&mut bench);
    receive(&mut bench, &response(&invite, 180, "b1", ""));
    if to_answer {
        receive(&mut bench, &response(&invite, 200, "b1", "Contact: <sip:b@10.0.0.9>\r\n"));
        assert!(one(&mut bench).starts_with("ACK "));
    }
    (bench, invite)
}

#[test]
fn a_registration_is_removed() {
    let mut bench = bench_of(0, Params { password: Some("secret".into()), ..Params::default() });
    begin(&mut bench);
    let register = one(&mut bench);
    receive(&mut bench, &response(&register, 200, "s", ""));
    assert_eq!(bench.end, Some(FlowEnd::Completed));
    leave(&mut bench);
    let removal = one(&mut bench);
    for name in ["Contact", "To", "Call-ID"] {
        assert_eq!(value(&removal, name), value(&register, name));
    }
    assert_eq!((value(&removal, "Expires"), value(&removal, "CSeq")), ("0", "2 REGISTER"));
    let challenge = "WWW-Authenticate: Digest realm=\"example\", nonce=\"abc\", qop=\"auth\"\r\n";
    receive(&mut bench, &response(&removal, 401, "s", challenge));
    let answered = one(&mut bench);
    assert!(answered.contains("\r\nAuthorization: "), "{answered}");
    receive(&mut bench, &response(&answered, 200, "s", ""));
    assert_eq!((bench.end, bench.wake), (Some(FlowEnd::Completed), Time::NEVER));
    assert_eq!(taken_back(&mut bench), [1, 0, 0, 0, 0]);
}

#[test]
fn a_registration_that_was_removed_or_is_kept_is_not_taken_back() {
    let mut bench = registered(Preset::Unregister);
    let removal = one(&mut bench);
    receive(&mut bench, &response(&removal, 200, "s", ""));
    assert!(!bench.model.leaves_behind());
    let mut kept = bench_of(0, Params { keep_bindings: true, ..Params::default() });
    begin(&mut kept);
    let register = one(&mut kept);
    receive(&mut kept, &response(&register, 200, "s", ""));
    assert!(!kept.model.leaves_behind());
    let mut rejected = super::bench(Preset::Register);
    begin(&mut rejected);
    let register = one(&mut rejected);
    receive(&mut rejected, &response(&register, 403, "s", ""));
    assert!(!rejected.model.leaves_behind());
}

#[test]
fn each_address_and_each_user_that_was_registered_is_removed() {
    let mut bench = bench_of(0, Params { user: "u{seq}".into(), ..Params::default() });
    let mut registered = Vec::new();
    for port in [40_000, 40_000, 40_001] {
        bench.local = Some(([10, 0, 0, 1], port).into());
        begin(&mut bench);
        let register = one(&mut bench);
        registered.push(["To", "Contact"].map(|name| value(&register, name).to_owned()));
        receive(&mut bench, &response(&register, 200, "s", ""));
    }
    leave(&mut bench);
    let mut removed = Vec::new();
    while bench.end.is_none() {
        let removal = one(&mut bench);
        removed.push(["To", "Contact"].map(|name| value(&removal, name).to_owned()));
        receive(&mut bench, &response(&removal, 200, "s", ""));
    }
    registered.sort();
    removed.sort();
    assert_eq!(registered, removed);
    assert_eq!(taken_back(&mut bench), [3, 0, 0, 0, 0]);
}

#[test]
fn a_removal_that_fails_is_told() {
    let mut rejected = super::bench(Preset::Register);
    begin(&mut rejected);
    let register = one(&mut rejected);
    receive(&mut rejected, &response(&register, 200, "s", ""));
    leave(&mut rejected);
    let removal = one(&mut rejected);
    receive(&mut rejected, &response(&removal, 500, "s", ""));
    after(&mut rejected, 0);
    assert!(rejected.end.is_some());
    assert_eq!(taken_back(&mut rejected), [0, 1, 0, 0, 0]);
    // its time is over before the answer, and before it began
    for begins in [true, false] {
        let mut bench = super::bench(Preset::Register);
        begin(&mut bench);
        let register = one(&mut bench);
        receive(&mut bench, &response(&register, 200, "s", ""));
        if begins {
            leave(&mut bench);
        }
        assert_eq!(taken_back(&mut bench), [0, 1, 0, 0, 0]);
    }
}

#[test]
fn a_call_that_rings_is_cancelled_and_one_that_nobody_has_heard_of_is_not() {
    let (mut bench, invite) = calling(false);
    leave(&mut bench);
    let cancel = one(&mut bench);
    assert!(cancel.starts_with("CANCEL sip:callee0@sip.example.net SIP/2.0\r\n"), "{cancel}");
    for name in ["Via", "From", "To", "Call-ID"] {
        assert_eq!(value(&cancel, name), value(&invite, name));
    }
    assert_eq!(value(&cancel, "CSeq"), "1 CANCEL");
    receive(&mut bench, &response(&cancel, 200, "b1", ""));
    receive(&mut bench, &response(&invite, 487, "b1", ""));
    assert!(one(&mut bench).starts_with("ACK "));
    assert_eq!(bench.end, Some(FlowEnd::Completed));
    assert_eq!(taken_back(&mut bench), [0, 0, 1, 0, 0]);

    let mut silent = super::bench(Preset::Call);
    begin(&mut silent);
    assert!(one(&mut silent).starts_with("INVITE "));
    assert!(!silent.model.leaves_behind());
}

#[test]
fn a_call_that_is_answered_as_it_is_cancelled_is_ended() {
    let (mut bench, invite) = calling(false);
    leave(&mut bench);
    let cancel = one(&mut bench);
    receive(&mut bench, &response(&invite, 200, "b1", "Contact: <sip:b@10.0.0.9>\r\n"));
    let said = sent(&mut bench);
    assert!(said[0].starts_with("ACK sip:b@10.0.0.9 ") && said[1].starts_with("BYE "), "{said:?}");
    receive(&mut bench, &response(&cancel, 200, "b1", ""));
    receive(&mut bench, &response(&said[1], 200, "b1", ""));
    assert_eq!(bench.end, Some(FlowEnd::Completed));
    assert_eq!(taken_back(&mut bench), [0, 0, 1, 0, 0]);
}

#[test]
fn a_call_that_is_up_is_ended_whoever_hangs_up_first() {
    for they_do in [false, true] {
        let (mut bench, invite) = calling(true);
        leave(&mut bench);
        let bye = one(&mut bench);
        assert!(bye.starts_with("BYE "), "{bye}");
        if they_do {
            let theirs = incoming("BYE", 7, value(&invite, "Call-ID"), value(&bye, "From"));
            receive(
                &mut bench,
                &theirs.replace("From: <sip:a@x>;tag=a1", &format!("From: {}", value(&bye, "To"))),
            );
            assert!(one(&mut bench).starts_with("SIP/2.0 200 "));
        }
        let status = if they_do { 481 } else { 200 };
        receive(&mut bench, &response(&bye, status, "b1", ""));
        assert_eq!(bench.end, Some(FlowEnd::Completed));
        assert_eq!(taken_back(&mut bench), [0, 0, 0, 1, 0]);
    }
}

#[test]
fn a_call_that_does_not_end_does_not_keep_the_registration() {
    let steps = r#"[{"send": {"method": "REGISTER"}}, {"expect": {"status": 200}}, {"send": {"method": "INVITE"}}, {"expect": {"status": 200}}]"#;
    let steps: Vec<Step> = serde_json::from_str(steps).expect("steps");
    let mut bench = bench_of(0, Params { scenario: Scenario::Steps(steps), ..Params::default() });
    begin(&mut bench);
    let register = one(&mut bench);
    receive(&mut bench, &response(&register, 200, "s", ""));
    let invite = one(&mut bench);
    receive(&mut bench, &response(&invite, 180, "b1", ""));
    leave(&mut bench);
    assert!(one(&mut bench).starts_with("CANCEL "));
    let until = bench.now + Duration::from_secs(4);
    bench.run_to(until);
    let said = sent(&mut bench);
    let removal = said.iter().find(|one| one.starts_with("REGISTER ")).expect("a removal");
    receive(&mut bench, &response(removal, 200, "s", ""));
    assert!(bench.end.is_some());
    assert_eq!(taken_back(&mut bench), [1, 0, 0, 0, 1]);
}

#[test]
fn a_call_that_has_yet_to_be_answered_is_refused() {
    let ring = Interval::secs(600);
    let scenario = Scenario::Preset(Preset::Uas);
    let mut bench = bench_of(0, Params { scenario, ring, ..Params::default() });
    begin(&mut bench);
    receive(&mut bench, &incoming("INVITE", 1, "1", "<sip:b@x>"));
    assert!(one(&mut bench).starts_with("SIP/2.0 180 "));
    assert!(bench.model.leaves_behind());
    bench.abandon();
    assert!(one(&mut bench).starts_with("SIP/2.0 480 "));
    assert!(!bench.model.leaves_behind());
}

#[test]
fn a_connection_is_opened_again_where_it_was_closed() {
    let mut bench = bench_of(1, Params::default());
    begin(&mut bench);
    let register = one(&mut bench);
    receive(&mut bench, &response(&register, 200, "s", ""));
    bench.closed(Failure::Closed);
    bench.abandon();
    bench.local = None;
    bench.end = None;
    bench.link = Link::Keep;
    bench.call(|device, cx| device.clean_up(cx));
    assert_eq!((bench.link, sent(&mut bench).len()), (Link::Connect, 0));
    bench.local = Some("10.0.0.1:40009".parse().expect("address"));
    bench.connected();
    let removal = one(&mut bench);
    assert_eq!(value(&removal, "Contact"), value(&register, "Contact"), "that of the binding");
    bench.feed(response(&removal, 200, "s", "").as_bytes());
    assert_eq!(bench.end, Some(FlowEnd::Completed));
    assert_eq!(taken_back(&mut bench), [1, 0, 0, 0, 0]);
}
