//! Calls whose server, or the connection to it, goes away while they are up.

use super::*;
use protocol::model::Cx;

const CONTACT: &str = "Contact: <sip:b@10.0.0.9>\r\n";

/// A call over TCP that is up and held for a minute.
fn held() -> Bench<UserAgent> {
    let tcp = crate::description::SCHEMES.iter().position(|scheme| scheme.name == "sip+tcp").expect("TCP");
    let (scenario, hold) = (Scenario::Preset(Preset::Call), Interval::secs(60));
    let mut bench = bench_of(tcp, Params { scenario, hold, ..Params::default() });
    begin(&mut bench);
    let invite = one(&mut bench);
    receive(&mut bench, &response(&invite, 200, "b1", CONTACT));
    assert!(one(&mut bench).starts_with("ACK "));
    bench
}

/// Call the model, whose target has a further server; how many messages were not to the server's credit.
fn with_next(bench: &mut Bench<UserAgent>, f: impl FnOnce(&mut UserAgent, &mut Cx<'_>)) -> u64 {
    bench.call(|device, cx| {
        cx.has_next = true;
        f(device, cx);
        cx.disowned
    })
}

/// The connection is lost; what is asked for then.
fn lost(bench: &mut Bench<UserAgent>, why: Failure) -> Link {
    bench.link = Link::Keep;
    with_next(bench, |device, cx| device.closed(cx, why));
    bench.link
}

/// The BYE of the held call, over a connection that has just come up.
fn bye(bench: &mut Bench<UserAgent>) -> String {
    with_next(bench, |device, cx| device.connected(cx));
    assert!(sent(bench).is_empty(), "nothing was being asked");
    after(bench, 60_000 * MS);
    let bye = one(bench);
    assert!(bye.starts_with("BYE "), "{bye}");
    bye
}

#[test]
fn a_connection_closed_while_nothing_is_asked_is_opened_to_the_same_server_first() {
    let mut bench = held();
    assert_eq!((lost(&mut bench, Failure::Closed), bench.excused), (Link::Connect, true));
    with_next(&mut bench, |device, cx| device.connected(cx));
    // closed at once, and nothing came: this is no idle connection
    assert!(matches!(lost(&mut bench, Failure::Closed), Link::Next(_)));
    with_next(&mut bench, |device, cx| device.connected(cx));
    // idle again, for longer
    bench.now = bench.now + Duration::from_secs(5);
    assert_eq!(lost(&mut bench, Failure::Closed), Link::Connect);
    let bye = bye(&mut bench);
    let credit = with_next(&mut bench, |device, cx| {
        device.received(cx, response(&bye, 200, "", "").as_bytes());
    });
    assert_eq!((bench.end, credit), (Some(FlowEnd::Completed), 0));
    let counted = ["sessions_completed", "calls_dropped", "requests_moved"];
    assert_eq!(counted.map(|name| counter(&bench, name)), [1, 0, 0]);
}

#[test]
fn a_call_that_its_next_server_does_not_know_was_dropped_whenever_its_server_went() {
    for (why, asks) in [(Failure::Closed, Link::Connect), (Failure::Reset, Link::Next(Failure::Reset.into()))]
    {
        let mut bench = held();
        assert_eq!(lost(&mut bench, why), asks);
        let bye = bye(&mut bench);
        let disowned = with_next(&mut bench, |device, cx| {
            device.received(cx, response(&bye, 481, "", "").as_bytes());
        });
        assert_eq!((bench.end, disowned), (Some(FlowEnd::Completed), 1), "{why:?}");
        let counted = ["sessions_completed", "calls_dropped", "requests_moved"];
        assert_eq!(counted.map(|name| counter(&bench, name)), [0, 1, 0], "{why:?}");
        assert_eq!(bench.failures(Failure::Rejected), 0);
    }
}

#[test]
fn a_bye_that_a_server_never_left_does_not_know_is_its_error() {
    let mut bench = held();
    after(&mut bench, 60_000 * MS);
    let bye = one(&mut bench);
    with_next(&mut bench, |device, cx| {
        device.received(cx, response(&bye, 481, "", "").as_bytes());
    });
    assert_eq!((bench.end, counter(&bench, "calls_dropped")), (Some(FlowEnd::Failed), 0));
}

/// Lose the connection where there is no other server; what is asked for then, and whether that was in order.
fn lost_alone(bench: &mut Bench<UserAgent>, why: Failure) -> (Link, bool) {
    (bench.link, bench.excused) = (Link::Keep, false);
    bench.call(|device, cx| device.closed(cx, why));
    (bench.link, bench.excused)
}

#[test]
fn a_connection_closed_in_a_held_call_is_opened_again_for_its_bye() {
    for why in [Failure::Closed, Failure::Reset] {
        let mut bench = held();
        assert_eq!(lost_alone(&mut bench, why), (Link::Keep, true), "nothing is to be said yet");
        assert!(bench.end.is_none() && sent(&mut bench).is_empty());
        after(&mut bench, 60_000 * MS);
        assert_eq!((bench.link, sent(&mut bench).len()), (Link::Connect, 0));
        bench.local = Some("10.0.0.1:40001".parse().expect("address"));
        bench.call(|device, cx| device.connected(cx));
        let bye = one(&mut bench);
        assert!(bye.starts_with("BYE ") && value(&bye, "Via").contains(":40001"), "{bye}");
        receive(&mut bench, &response(&bye, 200, "", ""));
        assert_eq!(bench.end, Some(FlowEnd::Completed));
        assert_eq!((counter(&bench, "sessions_completed"), bench.failures(why)), (1, 0));
    }
}

#[test]
fn a_server_that_takes_no_other_connection_or_closes_it_again_has_failed() {
    let mut bench = held();
    lost_alone(&mut bench, Failure::Closed);
    after(&mut bench, 60_000 * MS);
    assert_eq!(lost_alone(&mut bench, Failure::Refused), (Link::Keep, false));
    assert_eq!(bench.end, Some(FlowEnd::Failed));
    // it closes as the BYE is on its way, which may be by chance; and again, which is not
    let mut bench = held();
    after(&mut bench, 60_000 * MS);
    let bye = one(&mut bench);
    assert_eq!(lost_alone(&mut bench, Failure::Closed), (Link::Connect, true));
    bench.call(|device, cx| device.connected(cx));
    assert_eq!(value(&one(&mut bench), "CSeq"), value(&bye, "CSeq"));
    assert_eq!(lost_alone(&mut bench, Failure::Closed), (Link::Keep, false));
    assert_eq!(bench.end, Some(FlowEnd::Failed));
}

#[test]
fn a_connection_that_is_lost_while_something_is_asked_or_awaited_fails_the_flow() {
    let tcp = crate::description::SCHEMES.iter().position(|scheme| scheme.name == "sip+tcp").expect("TCP");
    let of = |preset| bench_of(tcp, Params { scenario: Scenario::Preset(preset), ..Params::default() });
    let mut bench = of(Preset::Call);
    begin(&mut bench);
    let invite = one(&mut bench);
    receive(&mut bench, &response(&invite, 180, "b1", CONTACT));
    assert_eq!(lost_alone(&mut bench, Failure::Closed), (Link::Keep, false));
    assert_eq!(bench.end, Some(FlowEnd::Failed));
    // nobody can call it any more
    let mut bench = registered_of(of(Preset::Answer));
    assert_eq!(lost_alone(&mut bench, Failure::Closed), (Link::Keep, false));
    assert_eq!(bench.end, Some(FlowEnd::Failed));
}

#[test]
fn a_request_that_was_due_is_sent_although_the_connection_comes_up_when_the_load_is_over() {
    let tls = crate::description::SCHEMES.iter().position(|scheme| scheme.name == "sips").expect("TLS");
    let (scenario, hold) = (Scenario::Preset(Preset::Call), Interval::secs(60));
    let mut bench = bench_of(tls, Params { scenario, hold, ..Params::default() });
    let local = bench.local.take();
    bench.call(|device, cx| device.start(cx));
    bench.window.drain = bench.now + Duration::from_secs(1);
    bench.now = bench.window.drain + Duration::from_secs(1);
    bench.call(|device, cx| device.stop(cx));
    bench.local = local;
    with_next(&mut bench, |device, cx| device.connected(cx));
    let invite = one(&mut bench);
    assert!(invite.starts_with("INVITE "), "{invite}");
    assert_eq!((bench.end, counter(&bench, "session_requests")), (None, 1));
    // nobody waits for a call that is held when the load is over
    receive(&mut bench, &response(&invite, 200, "b1", CONTACT));
    assert!(
        matches!(&sent(&mut bench)[..], [ack, bye] if ack.starts_with("ACK ") && bye.starts_with("BYE "))
    );
}

#[test]
fn a_flow_that_falls_due_when_the_load_is_over_sends_nothing() {
    let mut bench = bench_of(0, Params { scenario: Scenario::Preset(Preset::Options), ..Params::default() });
    bench.window.drain = bench.now;
    begin(&mut bench);
    assert_eq!((sent(&mut bench).len(), bench.end), (0, Some(FlowEnd::Completed)));
}
