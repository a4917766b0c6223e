//! User agents whose server is the test.

mod challenges;
mod computed;
mod dialogs;
mod early_calls;
mod ended;
mod failover;
mod forks;
mod hold;
mod leaving;
mod next_hops;
mod redirects;
mod refusals;
mod reliable;
mod rest;
mod session_timers;
mod steps;
mod websocket;

use super::UserAgent;
use crate::scenario::{Preset, Scenario, Step};
use crate::{DESCRIPTION, Params};
use protocol::describe::{ModelKind, ModelParams};
use protocol::meter::{Failure, Phase};
use protocol::model::{FlowEnd, Link, Model};
use protocol::target::Target;
use protocol::testing::Bench;
use protocol::time::Time;
use protocol::unit::Interval;
use std::sync::Arc;
use std::time::Duration;

const MS: u64 = 1_000_000;

pub(super) fn bench_of(scheme: usize, params: Params) -> Bench<UserAgent> {
    let scheme = crate::description::SCHEMES[scheme];
    let target = Target { scheme, host: "sip.example.net".into(), port: 5060, ipv6: false };
    let config = Arc::new(Params { run: 0xab, ..params }.compile(&target).expect("good parameters"));
    let mut bench = Bench::of(UserAgent::new(config), &DESCRIPTION);
    bench.local = Some("10.0.0.1:40000".parse().expect("address"));
    bench
}

fn bench(preset: Preset) -> Bench<UserAgent> {
    bench_of(0, Params { scenario: Scenario::Preset(preset), ..Params::default() })
}

/// Begin a flow, whose connection comes up at once.
pub(super) fn begin(bench: &mut Bench<UserAgent>) {
    let local = bench.local.take();
    bench.call(|device, cx| device.start(cx));
    assert_eq!((bench.link, sent(bench).len()), (Link::Connect, 0));
    bench.local = local;
    bench.call(|device, cx| device.connected(cx));
}

/// What was sent, a message each.
pub(super) fn sent(bench: &mut Bench<UserAgent>) -> Vec<String> {
    let bytes = std::mem::take(&mut bench.out.bytes);
    bench.out.clear();
    let mut rest = String::from_utf8(bytes).expect("text");
    let mut all = Vec::new();
    while !rest.is_empty() {
        let length = sip_core::message::frame(rest.as_bytes()).expect("a message").expect("a whole one");
        let behind = rest.split_off(length);
        all.push(std::mem::replace(&mut rest, behind));
    }
    all
}

pub(super) fn one(bench: &mut Bench<UserAgent>) -> String {
    let mut all = sent(bench);
    assert_eq!(all.len(), 1, "{all:?}");
    all.remove(0)
}

/// The value of a header field of `message`.
pub(super) fn value<'a>(message: &'a str, name: &str) -> &'a str {
    let field = |line: &'a str| line.strip_prefix(name)?.strip_prefix(": ");
    message.lines().find_map(field).unwrap_or_else(|| panic!("{name} in {message}"))
}

/// A response to `request`, with more header fields.
pub(super) fn response(request: &str, status: u16, to_tag: &str, more: &str) -> String {
    let copied =
        ["Via", "From", "Call-ID", "CSeq"].map(|name| format!("{name}: {}\r\n", value(request, name)));
    let to = value(request, "To");
    let tag =
        if to_tag.is_empty() || to.contains(";tag=") { String::new() } else { format!(";tag={to_tag}") };
    let binds =
        request.starts_with("REGISTER ") && (200..300).contains(&status) && !more.contains("Contact:");
    let binding =
        if binds { format!("Contact: {};expires=60\r\n", value(request, "Contact")) } else { String::new() };
    let head = format!("SIP/2.0 {status} Reason\r\n{}To: {to}{tag}\r\n", copied.concat());
    format!("{head}{binding}{more}Content-Length: 0\r\n\r\n")
}

pub(super) fn receive(bench: &mut Bench<UserAgent>, message: &str) {
    bench.call(|device, cx| device.received(cx, message.as_bytes()));
}

fn after(bench: &mut Bench<UserAgent>, wait: u64) {
    bench.now = bench.now + Duration::from_nanos(wait);
    if bench.wake <= bench.now {
        bench.wake = Time::NEVER;
        bench.call(|device, cx| device.timer(cx));
    }
}

pub(super) fn counter(bench: &Bench<UserAgent>, name: &str) -> u64 {
    let place = DESCRIPTION.counters.iter().position(|one| one.name == name).expect(name);
    [Phase::Measure, Phase::Drain].into_iter().map(|phase| bench.tally_of(phase).own[place]).sum()
}

fn delays(bench: &Bench<UserAgent>, name: &str) -> Vec<u64> {
    let place = DESCRIPTION.delays.iter().position(|one| one.name == name).expect(name);
    let histogram = &bench.tally_of(Phase::Measure).delays[place];
    let times = |count| usize::try_from(count).expect("few");
    let recorded = histogram.iter_recorded();
    recorded.flat_map(|one| vec![one.value_iterated_to() / MS; times(one.count_at_value())]).collect()
}

#[test]
fn a_registration_answers_its_challenge_and_is_timed_from_the_first_request() {
    let password = Some("secret".to_owned());
    let mut bench = bench_of(0, Params { password, ..Params::default() });
    begin(&mut bench);
    let first = one(&mut bench);
    assert!(first.starts_with("REGISTER sip:sip.example.net SIP/2.0\r\n"), "{first}");
    assert_eq!(value(&first, "To"), "<sip:user0@sip.example.net>");
    assert_eq!(value(&first, "Contact"), "<sip:nd00000000@10.0.0.1:40000>");
    bench.now = Time(30 * MS);
    let challenge = "WWW-Authenticate: Digest realm=\"example\", nonce=\"abc\", qop=\"auth\"\r\n";
    receive(&mut bench, &response(&first, 401, "s1", challenge));
    let second = one(&mut bench);
    assert_eq!((value(&first, "CSeq"), value(&second, "CSeq")), ("1 REGISTER", "2 REGISTER"));
    assert_eq!(value(&first, "Call-ID"), value(&second, "Call-ID"));
    let answer = value(&second, "Authorization");
    assert!(
        answer.contains("username=\"user0\"") && answer.contains("uri=\"sip:sip.example.net\""),
        "{answer}"
    );
    bench.now = Time(70 * MS);
    receive(&mut bench, &response(&second, 200, "s2", ""));
    assert_eq!(bench.end, Some(FlowEnd::Completed));
    assert_eq!(delays(&bench, "registration"), [70]);
    let counted = ["registrations", "registrations_accepted", "registrations_ineffective", "challenges"];
    assert_eq!(counted.map(|name| counter(&bench, name)), [1, 1, 0, 1]);
    let counts = bench.measured();
    assert_eq!((counts.messages_sent, counts.messages_delivered), (1, 1));
}

#[test]
fn a_challenge_that_comes_again_is_a_failure() {
    let mut bench = bench_of(0, Params { password: Some("wrong".into()), ..Params::default() });
    begin(&mut bench);
    let challenge = "WWW-Authenticate: Digest realm=\"example\", nonce=\"abc\"\r\n";
    for _ in 0..2 {
        let request = one(&mut bench);
        receive(&mut bench, &response(&request, 401, "s1", challenge));
    }
    assert_eq!(bench.end, Some(FlowEnd::Failed));
    assert_eq!(counter(&bench, "registrations_ineffective"), 1);
    // a rejection is no registration, however quick
    assert_eq!((delays(&bench, "registration").len(), delays(&bench, "response").len()), (0, 1));
    assert_eq!(bench.measured().failures[Failure::Rejected as usize], 1);
    assert!(bench.examples[0].contains("REGISTER was answered with 401"), "{:?}", bench.examples);
}

#[test]
fn a_200_that_registers_nothing_is_a_failure() {
    for (more, why) in [("", "without a binding"), ("Contact: CONTACT;expires=0\r\n", "has ended")] {
        let mut bench = bench(Preset::Register);
        begin(&mut bench);
        let register = one(&mut bench);
        let contact = value(&register, "Contact").to_owned();
        let whole = response(&register, 200, "s", "");
        let binding = format!("Contact: {contact};expires=60\r\n");
        receive(&mut bench, &whole.replace(&binding, &more.replace("CONTACT", &contact)));
        assert_eq!((bench.end, bench.failures(Failure::Protocol)), (Some(FlowEnd::Failed), 1));
        assert!(bench.examples[0].contains(why), "{:?}", bench.examples);
        let counted = ["registrations", "registrations_accepted", "registrations_ineffective"];
        assert_eq!(counted.map(|name| counter(&bench, name)), [1, 0, 1]);
    }
    // a binding that is removed is in no 200
    let mut bench = registered(Preset::Unregister);
    let removal = one(&mut bench);
    let whole = response(&removal, 200, "s", "");
    receive(
        &mut bench,
        &whole
            .lines()
            .filter(|line| !line.starts_with("Contact"))
            .map(|line| format!("{line}\r\n"))
            .collect::<String>(),
    );
    assert_eq!((bench.end, counter(&bench, "registrations_accepted")), (Some(FlowEnd::Completed), 2));
}

#[test]
fn a_request_is_sent_again_until_timer_f() {
    let mut bench = bench(Preset::Register);
    begin(&mut bench);
    let first = one(&mut bench);
    let mut times = Vec::new();
    while bench.end.is_none() {
        let wake = bench.wake;
        assert!(wake != Time::NEVER);
        let wait = wake.since(bench.now);
        after(&mut bench, wait);
        for again in sent(&mut bench) {
            assert_eq!(again, first);
            times.push(bench.now.0 / MS);
        }
    }
    // RFC 3261 section 17.1.2.2: 500 ms, 1 s, 2 s, then every 4 s until 32 s
    assert_eq!(times, [500, 1500, 3500, 7500, 11_500, 15_500, 19_500, 23_500, 27_500, 31_500]);
    assert_eq!(counter(&bench, "register_retransmissions"), 10);
    assert_eq!(bench.measured().failures[Failure::Unanswered as usize], 1);
    assert_eq!(bench.now, Time(32_000 * MS));
}

#[test]
fn a_call_is_set_up_held_and_ended() {
    let hold = Interval::ms(100);
    let mut bench =
        bench_of(0, Params { scenario: Scenario::Preset(Preset::Call), hold, ..Params::default() });
    begin(&mut bench);
    let invite = one(&mut bench);
    assert!(invite.starts_with("INVITE sip:callee0@sip.example.net SIP/2.0\r\n"), "{invite}");
    assert!(invite.contains("m=audio"));
    receive(&mut bench, &response(&invite, 100, "", ""));
    bench.now = Time(20 * MS);
    receive(&mut bench, &response(&invite, 180, "b1", "Contact: <sip:b@10.0.0.9:5080>\r\n"));
    bench.now = Time(50 * MS);
    let answer =
        "Contact: <sip:b@10.0.0.9:5080>\r\nRecord-Route: <sip:p1;lr>\r\nRecord-Route: <sip:p2;lr>\r\n";
    receive(&mut bench, &response(&invite, 200, "b1", answer));
    let ack = one(&mut bench);
    assert!(ack.starts_with("ACK sip:b@10.0.0.9:5080 SIP/2.0\r\n"), "{ack}");
    assert!(ack.contains("Route: <sip:p2;lr>\r\nRoute: <sip:p1;lr>\r\n"), "{ack}");
    assert_eq!(value(&ack, "CSeq"), "1 ACK");
    assert!(value(&ack, "To").ends_with(";tag=b1"));
    // the 200 comes again, as if the ACK was lost
    receive(&mut bench, &response(&invite, 200, "b1", answer));
    assert_eq!(one(&mut bench), ack);
    after(&mut bench, 100 * MS);
    let bye = one(&mut bench);
    assert!(
        bye.starts_with("BYE sip:b@10.0.0.9:5080 SIP/2.0\r\n") && value(&bye, "CSeq") == "2 BYE",
        "{bye}"
    );
    after(&mut bench, 7 * MS);
    receive(&mut bench, &response(&bye, 200, "", ""));
    assert_eq!(bench.end, Some(FlowEnd::Completed));
    assert_eq!(delays(&bench, "session_request"), [20]);
    assert_eq!(delays(&bench, "session_setup"), [50]);
    assert_eq!(delays(&bench, "session_disconnect"), [7]);
    let counted = ["session_requests", "sessions_answered", "sessions_completed", "responses_repeated"];
    assert_eq!(counted.map(|name| counter(&bench, name)), [1, 1, 1, 1]);
}

#[test]
fn each_response_that_came_again_is_counted() {
    let mut bench = bench(Preset::Call);
    begin(&mut bench);
    let invite = one(&mut bench);
    // an overloaded server answers each copy of the INVITE with all that it said before
    for _ in 0..2 {
        receive(&mut bench, &response(&invite, 100, "", ""));
        receive(&mut bench, &response(&invite, 180, "b1", ""));
    }
    receive(&mut bench, &response(&invite, 200, "b1", "Contact: <sip:b@10.0.0.9:5080>\r\n"));
    for status in [100, 180, 200] {
        receive(&mut bench, &response(&invite, status, "b1", "Contact: <sip:b@10.0.0.9:5080>\r\n"));
    }
    let names = ["trying_responses", "provisional_responses", "sessions_answered", "responses_repeated"];
    assert_eq!(names.map(|name| counter(&bench, name)), [3, 3, 1, 1]);
}

#[test]
fn a_failure_to_invite_is_acknowledged_with_its_branch() {
    let mut bench = bench(Preset::Call);
    begin(&mut bench);
    let invite = one(&mut bench);
    bench.now = Time(5 * MS);
    receive(&mut bench, &response(&invite, 486, "b1", ""));
    let ack = one(&mut bench);
    assert!(ack.starts_with("ACK sip:callee0@"), "{ack}");
    assert_eq!(value(&ack, "Via"), value(&invite, "Via"));
    assert!(value(&ack, "To").ends_with(";tag=b1"));
    assert_eq!(bench.end, Some(FlowEnd::Failed));
    let counted = ["session_requests", "session_requests_effective", "session_attempts_ineffective"];
    assert_eq!(counted.map(|name| counter(&bench, name)), [1, 1, 0]);
    assert_eq!(delays(&bench, "session_request_failed"), [5]);
}

#[test]
fn a_200_without_tag_makes_no_dialog() {
    let mut bench = bench(Preset::Call);
    begin(&mut bench);
    let invite = one(&mut bench);
    receive(&mut bench, &response(&invite, 200, "", "Contact: <sip:b@10.0.0.9>\r\n"));
    assert_eq!(bench.end, Some(FlowEnd::Failed));
    assert_eq!(bench.measured().failures[Failure::Protocol as usize], 1);
}

#[test]
fn an_alert_of_tls_is_told_although_it_is_too_short_for_a_message() {
    let tcp = crate::description::SCHEMES.iter().position(|scheme| scheme.name == "sip+tcp").expect("TCP");
    for (answer, why) in [(&b"\x15\x03\x03\x00\x02\x02\x46"[..], "TLS"), (b"HTTP/1.1 400 Bad", "HTTP")] {
        let mut bench =
            bench_of(tcp, Params { scenario: Scenario::Preset(Preset::Register), ..Params::default() });
        begin(&mut bench);
        bench.feed(answer);
        assert_eq!((bench.end, bench.failures(Failure::Protocol)), (Some(FlowEnd::Failed), 1));
        assert!(bench.examples[0].contains(why), "{:?}", bench.examples);
    }
}

#[test]
fn responses_to_others_are_counted_and_change_nothing() {
    let mut bench = bench(Preset::Register);
    begin(&mut bench);
    let register = one(&mut bench);
    receive(&mut bench, &response(&register, 200, "s", "").replace("z9hG4bKnd", "z9hG4bKxx"));
    receive(&mut bench, &response(&register, 200, "s", "").replace("000000ab;", "000000ac;"));
    receive(&mut bench, "SIP/2.0 200 OK\r\nbroken");
    assert_eq!(bench.end, None);
    assert_eq!((counter(&bench, "unrelated_messages"), counter(&bench, "malformed_messages")), (2, 1));
    receive(&mut bench, &response(&register, 200, "s", ""));
    assert_eq!(bench.end, Some(FlowEnd::Completed));
}

/// An INVITE from outside, as a proxy passes it on.
pub(super) fn incoming(method: &str, cseq: u32, call: &str, to: &str) -> String {
    let contact = if method == "INVITE" {
        "Contact: <sip:a@10.0.0.7:5070>\r\nRecord-Route: <sip:p1;lr>\r\n"
    } else {
        ""
    };
    let branch = if method == "CANCEL" { "INVITE" } else { method };
    format!(
        "{method} sip:nd00000000@10.0.0.1:40000 SIP/2.0\r\nVia: SIP/2.0/UDP 10.0.0.2;branch=z9hG4bKp{branch}{cseq}\r\n\
         Via: SIP/2.0/UDP 10.0.0.7;branch=z9hG4bKa{branch}{cseq}\r\nFrom: <sip:a@x>;tag=a1\r\nTo: {to}\r\n\
         Call-ID: {call}\r\nCSeq: {cseq} {method}\r\n{contact}Content-Length: 0\r\n\r\n"
    )
}

fn registered(preset: Preset) -> Bench<UserAgent> {
    registered_of(bench(preset))
}

pub(super) fn registered_of(mut bench: Bench<UserAgent>) -> Bench<UserAgent> {
    begin(&mut bench);
    let register = one(&mut bench);
    receive(&mut bench, &response(&register, 200, "s", ""));
    assert_eq!(bench.end, None);
    bench
}

#[test]
fn a_callee_answers_and_measures_the_ack() {
    let mut bench = registered(Preset::Answer);
    for call in ["call-1", "call-2"] {
        receive(&mut bench, &incoming("INVITE", 1, call, "<sip:b@x>"));
        let all = sent(&mut bench);
        assert_eq!(all.len(), 2, "{all:?}");
        assert!(all[0].starts_with("SIP/2.0 180 Ringing\r\n") && all[1].starts_with("SIP/2.0 200 OK\r\n"));
        let answer = &all[1];
        assert_eq!(answer.matches("Via: ").count(), 2);
        assert!(answer.contains("Record-Route: <sip:p1;lr>\r\n") && answer.contains("m=audio"));
        let to = value(answer, "To").to_owned();
        assert!(to.starts_with("<sip:b@x>;tag="));
        // the INVITE comes again: so does its answer; the answer comes again by itself after T1
        receive(&mut bench, &incoming("INVITE", 1, call, "<sip:b@x>"));
        assert_eq!(&one(&mut bench), answer);
        after(&mut bench, 500 * MS);
        assert_eq!(&one(&mut bench), answer);
        after(&mut bench, 20 * MS);
        receive(&mut bench, &incoming("ACK", 1, call, &to));
        after(&mut bench, 60_000 * MS);
        assert_eq!(sent(&mut bench), [""; 0]);
        receive(&mut bench, &incoming("BYE", 2, call, &to));
        assert!(one(&mut bench).starts_with("SIP/2.0 200 OK\r\n"));
    }
    assert_eq!(delays(&bench, "answer_signal"), [520, 520]);
    let counted = ["calls_received", "answers_acknowledged", "requests_repeated"];
    assert_eq!(counted.map(|name| counter(&bench, name)), [2, 2, 2]);
    // the load is over: a call that is on its way is still answered, then the binding is removed
    bench.call(|device, cx| device.stop(cx));
    assert_eq!((bench.end, sent(&mut bench).len()), (None, 0));
    after(&mut bench, 900 * MS);
    receive(&mut bench, &incoming("INVITE", 1, "call-3", "<sip:b@x>"));
    let to = value(&sent(&mut bench)[1], "To").to_owned();
    receive(&mut bench, &incoming("ACK", 1, "call-3", &to));
    after(&mut bench, 200 * MS);
    assert_eq!(sent(&mut bench).len(), 0, "in a call");
    receive(&mut bench, &incoming("BYE", 2, "call-3", &to));
    let all = sent(&mut bench);
    assert!(all[0].starts_with("SIP/2.0 200 ") && all[1].starts_with("REGISTER "), "{all:?}");
    assert_eq!(value(&all[1], "Expires"), "0");
    receive(&mut bench, &response(&all[1], 200, "s", ""));
    assert_eq!(bench.end, Some(FlowEnd::Completed));
}

#[test]
fn a_forked_call_talks_to_the_first_who_answers() {
    let hold = Interval::secs(10);
    let mut bench =
        bench_of(0, Params { scenario: Scenario::Preset(Preset::Call), hold, ..Params::default() });
    begin(&mut bench);
    let invite = one(&mut bench);
    receive(&mut bench, &response(&invite, 200, "b1", "Contact: <sip:b@10.0.0.9>\r\n"));
    let ack = one(&mut bench);
    receive(&mut bench, &response(&invite, 200, "b2", "Contact: <sip:b@10.0.0.8>\r\n"));
    let all = sent(&mut bench);
    assert!(
        all[0].starts_with("ACK sip:b@10.0.0.8 ") && all[1].starts_with("BYE sip:b@10.0.0.8 "),
        "{all:?}"
    );
    assert!(all.iter().all(|one| value(one, "To").ends_with(";tag=b2")));
    receive(&mut bench, &response(&all[1], 200, "", ""));
    assert_eq!((bench.end, counter(&bench, "forks_released")), (None, 1));
    receive(&mut bench, &response(&invite, 200, "b1", "Contact: <sip:b@10.0.0.9>\r\n"));
    assert_eq!(one(&mut bench), ack, "the first is as it was");
    after(&mut bench, 10_000 * MS);
    assert!(one(&mut bench).starts_with("BYE sip:b@10.0.0.9 "));
}

#[test]
fn a_connection_is_kept_and_what_comes_between_flows_is_answered() {
    let mut bench = bench(Preset::Call);
    begin(&mut bench);
    let invite = one(&mut bench);
    let answer = response(&invite, 200, "b1", "Contact: <sip:b@10.0.0.9>\r\n");
    receive(&mut bench, &answer);
    let all = sent(&mut bench);
    receive(&mut bench, &response(&all[1], 200, "", ""));
    assert_eq!(bench.end.take(), Some(FlowEnd::Completed));
    receive(&mut bench, &answer);
    assert_eq!(one(&mut bench), all[0], "its ACK was lost");
    receive(&mut bench, &incoming("OPTIONS", 1, "ping", "<sip:b@x>"));
    assert!(one(&mut bench).starts_with("SIP/2.0 200 "));
    receive(&mut bench, &incoming("BYE", 1, "other", "<sip:b@x>;tag=1"));
    assert!(one(&mut bench).starts_with("SIP/2.0 481 "));
    bench.call(|device, cx| device.start(cx));
    let next = one(&mut bench);
    assert!(next.starts_with("INVITE ") && value(&next, "Call-ID") != value(&invite, "Call-ID"));
}

#[test]
fn a_server_may_close_an_idle_connection_just_as_it_is_used_again() {
    let mut bench = bench_of(1, Params::default());
    begin(&mut bench);
    let register = one(&mut bench);
    receive(&mut bench, &response(&register, 200, "s", ""));
    assert_eq!(bench.end.take(), Some(FlowEnd::Completed));
    bench.call(|device, cx| device.start(cx));
    let register = one(&mut bench);
    bench.link = Link::Keep;
    bench.call(|device, cx| device.closed(cx, Failure::Closed));
    assert!(bench.excused && bench.link == Link::Connect);
    bench.local = Some("10.0.0.1:40001".parse().expect("address"));
    bench.call(|device, cx| device.connected(cx));
    let again = one(&mut bench);
    assert_eq!(
        (value(&again, "CSeq"), value(&again, "Call-ID")),
        (value(&register, "CSeq"), value(&register, "Call-ID"))
    );
    assert!(value(&again, "Contact").contains("40001"));
    receive(&mut bench, &response(&again, 200, "s", ""));
    assert_eq!(bench.end, Some(FlowEnd::Completed));
    assert_eq!((bench.measured().messages_sent, counter(&bench, "registrations_accepted")), (2, 2));
    // a second time it is a failure
    bench.call(|device, cx| device.start(cx));
    let register = one(&mut bench);
    receive(&mut bench, &response(&register, 100, "", ""));
    bench.excused = false;
    bench.call(|device, cx| device.closed(cx, Failure::Closed));
    assert!(!bench.excused);
}

#[test]
fn a_request_that_is_refused_is_counted_by_the_transport_alone() {
    for (scheme, why) in [(0, Failure::Refused), (1, Failure::Reset)] {
        let mut bench = bench_of(scheme, Params::default());
        begin(&mut bench);
        assert!(one(&mut bench).starts_with("REGISTER "));
        bench.call(|device, cx| device.closed(cx, why));
        assert_eq!((bench.end, bench.excused), (Some(FlowEnd::Failed), false));
        assert_eq!(Failure::ALL.map(|why| bench.failures(why)), [0; 10]);
    }
}

#[test]
fn a_callee_without_ack_gives_up() {
    let mut bench = registered(Preset::Answer);
    receive(&mut bench, &incoming("INVITE", 1, "call-1", "<sip:b@x>"));
    while bench.end.is_none() {
        let wait = bench.wake.since(bench.now);
        after(&mut bench, wait);
    }
    assert_eq!(bench.end, Some(FlowEnd::Failed));
    assert!(bench.examples[0].contains("no ACK"), "{:?}", bench.examples);
}

#[test]
fn a_second_call_is_busy_and_the_first_goes_on() {
    let mut bench = registered(Preset::Answer);
    receive(&mut bench, &incoming("INVITE", 1, "call-1", "<sip:b@x>"));
    let to = value(&sent(&mut bench)[1], "To").to_owned();
    receive(&mut bench, &incoming("INVITE", 1, "call-2", "<sip:b@x>"));
    assert!(one(&mut bench).starts_with("SIP/2.0 486 "));
    receive(&mut bench, &incoming("ACK", 1, "call-1", &to));
    receive(&mut bench, &incoming("BYE", 2, "call-1", &to));
    assert!(one(&mut bench).starts_with("SIP/2.0 200 "));
    assert_eq!(bench.end, None);
}

#[test]
fn a_call_that_is_cancelled_is_terminated() {
    let mut bench = registered(Preset::NoAnswer);
    receive(&mut bench, &incoming("INVITE", 1, "call-1", "<sip:b@x>"));
    assert!(one(&mut bench).starts_with("SIP/2.0 180 "));
    receive(&mut bench, &incoming("CANCEL", 1, "call-1", "<sip:b@x>"));
    let all = sent(&mut bench);
    assert!(all[0].starts_with("SIP/2.0 200 ") && all[0].contains("CSeq: 1 CANCEL"), "{all:?}");
    assert!(all[1].starts_with("SIP/2.0 487 ") && all[1].contains("CSeq: 1 INVITE"), "{all:?}");
    receive(&mut bench, &incoming("ACK", 1, "call-1", "<sip:b@x>"));
    receive(&mut bench, &incoming("INVITE", 1, "call-2", "<sip:b@x>"));
    assert!(one(&mut bench).starts_with("SIP/2.0 180 "), "the next call");
}

#[test]
fn a_cancel_takes_its_answers_in_either_order() {
    for swapped in [false, true] {
        let mut bench = bench(Preset::Cancel);
        begin(&mut bench);
        let invite = one(&mut bench);
        receive(&mut bench, &response(&invite, 180, "b1", ""));
        let cancel = one(&mut bench);
        assert!(cancel.starts_with("CANCEL sip:callee0@"), "{cancel}");
        assert_eq!((value(&cancel, "Via"), value(&cancel, "CSeq")), (value(&invite, "Via"), "1 CANCEL"));
        let mut answers = [response(&cancel, 200, "b1", ""), response(&invite, 487, "b1", "")];
        if swapped {
            answers.reverse();
        }
        answers.iter().for_each(|answer| receive(&mut bench, answer));
        assert_eq!(bench.end, Some(FlowEnd::Completed), "{swapped}");
    }
}

#[test]
fn over_tcp_nothing_is_sent_again_and_messages_are_cut_apart() {
    let mut bench = bench_of(1, Params { scenario: Scenario::Preset(Preset::Call), ..Params::default() });
    begin(&mut bench);
    let invite = one(&mut bench);
    assert!(value(&invite, "Via").starts_with("SIP/2.0/TCP "));
    after(&mut bench, 5_000 * MS);
    assert_eq!(sent(&mut bench).len(), 0);
    let both = response(&invite, 180, "b1", "")
        + "\r\n\r\n"
        + &response(&invite, 200, "b1", "Contact: <sip:b@h>\r\n");
    let (first, second) = both.split_at(both.len() - 20);
    let used = bench.call(|device, cx| device.received(cx, first.as_bytes()));
    assert!(used < first.len());
    let rest = format!("{}{second}", &first[used..]);
    assert_eq!(bench.call(|device, cx| device.received(cx, rest.as_bytes())), rest.len());
    let all = sent(&mut bench);
    assert!(all[0].starts_with("ACK sip:b@h ") && all[1].starts_with("BYE sip:b@h "), "{all:?}");
}
