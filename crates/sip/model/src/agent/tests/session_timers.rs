//! Session timers (RFC 4028): refreshes, and calls that end without one.

use super::*;
use crate::session_timer::{RefreshMethod, SessionTimer, Side};

fn timer(method: RefreshMethod, refresher: Option<Side>) -> Params {
    let session_timer = Some(SessionTimer { expires: Interval::secs(90), refresher, method });
    Params { session_timer, hold: Interval::secs(1000), ..Params::default() }
}

/// A call whose 200 says this of the session interval.
fn call(params: Params, says: &str) -> Bench<UserAgent> {
    let mut bench = bench_of(0, Params { scenario: Scenario::Preset(Preset::Call), ..params });
    begin(&mut bench);
    let invite = one(&mut bench);
    assert_eq!(value(&invite, "Supported"), "timer");
    assert!(value(&invite, "Session-Expires").starts_with("90"), "{invite}");
    receive(&mut bench, &response(&invite, 200, "b", &format!("{says}Contact: <sip:b@sip.example.net>\r\n")));
    assert!(one(&mut bench).starts_with("ACK "));
    bench
}

#[test]
fn the_refresher_refreshes_halfway_by_update() {
    let mut bench =
        call(timer(RefreshMethod::Update, Some(Side::Caller)), "Session-Expires: 90;refresher=uac\r\n");
    for round in 1..=3 {
        after(&mut bench, 44_000 * MS);
        assert!(sent(&mut bench).is_empty(), "round {round}");
        after(&mut bench, 1_000 * MS);
        let update = one(&mut bench);
        assert!(update.starts_with("UPDATE sip:b@sip.example.net SIP/2.0\r\n"), "{update}");
        assert_eq!(value(&update, "Session-Expires"), "90;refresher=uac");
        receive(&mut bench, &response(&update, 200, "b", "Session-Expires: 90;refresher=uac\r\n"));
        assert!(sent(&mut bench).is_empty());
    }
    assert_eq!((counter(&bench, "session_refreshes"), counter(&bench, "sessions_expired")), (3, 0));
    assert_eq!(bench.end, None, "the call goes on");
}

#[test]
fn a_reinvite_refreshes_it_and_is_acknowledged() {
    let mut bench = call(timer(RefreshMethod::Invite, None), "Session-Expires: 90;refresher=uac\r\n");
    after(&mut bench, 45_000 * MS);
    let invite = one(&mut bench);
    assert!(invite.starts_with("INVITE sip:b@") && invite.contains("v=0"), "{invite}");
    receive(
        &mut bench,
        &response(&invite, 200, "b", "Session-Expires: 90;refresher=uac\r\nContact: <sip:b@h>\r\n"),
    );
    let ack = one(&mut bench);
    assert!(ack.starts_with("ACK "), "{ack}");
    assert_eq!(value(&ack, "CSeq").split(' ').next(), value(&invite, "CSeq").split(' ').next());
    assert_eq!(counter(&bench, "session_requests"), 1, "no further session was asked for");
}

#[test]
fn a_call_that_nobody_refreshes_ends() {
    let mut bench =
        call(timer(RefreshMethod::Update, Some(Side::Callee)), "Session-Expires: 90;refresher=uas\r\n");
    after(&mut bench, 59_000 * MS);
    assert!(sent(&mut bench).is_empty(), "the other side refreshes");
    after(&mut bench, 1_000 * MS);
    assert!(one(&mut bench).starts_with("BYE "), "section 10: a third of the interval before its end");
    assert_eq!(bench.end, Some(FlowEnd::Failed));
    assert_eq!(counter(&bench, "sessions_expired"), 1);
    assert!(bench.examples[0].contains("expired without a refresh"), "{:?}", bench.examples);
}

#[test]
fn a_call_that_the_other_side_does_not_know_any_more_ends() {
    let mut bench = call(timer(RefreshMethod::Update, None), "Session-Expires: 90;refresher=uac\r\n");
    after(&mut bench, 45_000 * MS);
    let update = one(&mut bench);
    receive(&mut bench, &response(&update, 481, "b", ""));
    assert!(one(&mut bench).starts_with("BYE "));
    assert_eq!(bench.end, Some(FlowEnd::Failed));
}

#[test]
fn a_server_without_timers_has_none() {
    let mut bench = call(timer(RefreshMethod::Update, None), "");
    after(&mut bench, 900_000 * MS);
    assert!(sent(&mut bench).is_empty());
}

#[test]
fn a_callee_agrees_and_hears_refreshes() {
    let scenario = Scenario::Preset(Preset::Uas);
    let mut bench = bench_of(0, Params { scenario, ..timer(RefreshMethod::Update, None) });
    begin(&mut bench);
    let invite = "INVITE sip:nd00000000@h SIP/2.0\r\nVia: SIP/2.0/UDP h;branch=z9hG4bKa\r\nFrom: <sip:a@h>;tag=a\r\nTo: <sip:b@h>\r\n\
        Call-ID: c\r\nCSeq: 1 INVITE\r\nContact: <sip:a@h>\r\nSupported: timer\r\nSession-Expires: 90;refresher=uac\r\n\
        Content-Length: 0\r\n\r\n";
    receive(&mut bench, invite);
    let said = sent(&mut bench);
    let ok = said.iter().find(|one| one.starts_with("SIP/2.0 200")).expect("answered");
    assert_eq!((value(ok, "Session-Expires"), value(ok, "Require")), ("90;refresher=uac", "timer"));
    let to = value(ok, "To").to_owned();
    let request = |method: &str, cseq: u32, more: &str| {
        format!(
            "{method} sip:nd00000000@h SIP/2.0\r\nVia: SIP/2.0/UDP h;branch=z9hG4bK{cseq}{method}\r\nFrom: <sip:a@h>;tag=a\r\n\
            To: {to}\r\nCall-ID: c\r\nCSeq: {cseq} {method}\r\n{more}Content-Length: 0\r\n\r\n"
        )
    };
    receive(&mut bench, &request("ACK", 1, ""));
    after(&mut bench, 50_000 * MS);
    receive(&mut bench, &request("UPDATE", 2, "Contact: <sip:a@h>\r\nSession-Expires: 90;refresher=uac\r\n"));
    let ok = one(&mut bench);
    assert!(ok.starts_with("SIP/2.0 200") && value(&ok, "Session-Expires") == "90;refresher=uac", "{ok}");
    after(&mut bench, 59_000 * MS);
    assert!(sent(&mut bench).is_empty(), "it was refreshed");
    after(&mut bench, 1_000 * MS);
    assert!(sent(&mut bench).iter().any(|one| one.starts_with("BYE ")), "and then no more");
}
