//! Calls that are put on hold, as a caller and as a callee.

use super::*;

const CONTACT: &str = "Contact: <sip:b@10.0.0.9>\r\n";

#[test]
fn a_caller_holds_resumes_and_ends_its_call() {
    let (scenario, hold) = (Scenario::Preset(Preset::HeldCall), Interval::ms(100));
    let mut bench = bench_of(0, Params { scenario, hold, ..Params::default() });
    begin(&mut bench);
    let mut invite = one(&mut bench);
    for cseq in [1, 2, 3] {
        assert_eq!(value(&invite, "CSeq"), format!("{cseq} INVITE"));
        assert_eq!(value(&invite, "To").ends_with(";tag=b1"), cseq > 1, "{invite}");
        receive(&mut bench, &response(&invite, 200, "b1", CONTACT));
        assert_eq!(value(&one(&mut bench), "CSeq"), format!("{cseq} ACK"));
        after(&mut bench, 100 * MS);
        invite = one(&mut bench);
    }
    assert_eq!(value(&invite, "CSeq"), "4 BYE");
    receive(&mut bench, &response(&invite, 200, "", ""));
    assert_eq!(bench.end, Some(FlowEnd::Completed));
    let counted = ["session_requests", "sessions_answered", "sessions_completed"];
    assert_eq!(counted.map(|name| counter(&bench, name)), [1, 1, 1]);
}

#[test]
fn a_callee_answers_a_reinvite_without_a_step() {
    let mut bench = registered(Preset::Answer);
    for call in ["call-1", "call-2"] {
        receive(&mut bench, &incoming("INVITE", 1, call, "<sip:b@x>"));
        let to = value(&sent(&mut bench)[1], "To").to_owned();
        receive(&mut bench, &incoming("ACK", 1, call, &to));
        receive(&mut bench, &incoming("INVITE", 2, call, &to));
        let answer = one(&mut bench);
        assert!(answer.starts_with("SIP/2.0 200 ") && answer.contains("m=audio"), "{answer}");
        assert_eq!((value(&answer, "CSeq"), value(&answer, "To")), ("2 INVITE", &*to));
        receive(&mut bench, &incoming("ACK", 2, call, &to));
        assert_eq!(sent(&mut bench).len(), 0);
        receive(&mut bench, &incoming("BYE", 3, call, &to));
        assert!(one(&mut bench).starts_with("SIP/2.0 200 "));
    }
    assert_eq!(["calls_received", "answers_acknowledged"].map(|name| counter(&bench, name)), [2, 4]);
}

/// A callee that has answered the INVITE of a call and got its ACK, and the To of that call.
fn in_call(call: &str) -> (Bench<UserAgent>, String) {
    let mut bench = registered(Preset::Answer);
    receive(&mut bench, &incoming("INVITE", 1, call, "<sip:b@x>"));
    let to = value(&sent(&mut bench)[1], "To").to_owned();
    receive(&mut bench, &incoming("ACK", 1, call, &to));
    (bench, to)
}

#[test]
fn an_ack_counts_that_the_next_reinvite_has_overtaken() {
    let (mut bench, to) = in_call("call-1");
    for message in [("INVITE", 2), ("INVITE", 3), ("ACK", 2), ("ACK", 3), ("ACK", 2)] {
        receive(&mut bench, &incoming(message.0, message.1, "call-1", &to));
    }
    assert_eq!(sent(&mut bench).len(), 2);
    assert_eq!((counter(&bench, "answers_acknowledged"), counter(&bench, "unrelated_messages")), (3, 1));
    // an INVITE that comes again behind a later one changes nothing
    receive(&mut bench, &incoming("INVITE", 2, "call-1", &to));
    assert_eq!((sent(&mut bench).len(), counter(&bench, "requests_repeated")), (0, 1));
    after(&mut bench, 40_000 * MS);
    assert_eq!((bench.end, sent(&mut bench).len()), (None, 0), "nothing waits for an ACK any more");
}

#[test]
fn the_first_ack_may_come_behind_the_reinvite() {
    let mut bench = registered(Preset::Answer);
    receive(&mut bench, &incoming("INVITE", 1, "call-1", "<sip:b@x>"));
    let to = value(&sent(&mut bench)[1], "To").to_owned();
    for message in [("INVITE", 2), ("ACK", 1), ("ACK", 2), ("BYE", 3)] {
        receive(&mut bench, &incoming(message.0, message.1, "call-1", &to));
    }
    let answers = sent(&mut bench);
    assert_eq!(answers.iter().map(|one| value(one, "CSeq")).collect::<Vec<_>>(), ["2 INVITE", "3 BYE"]);
    assert_eq!(counter(&bench, "answers_acknowledged"), 2);
}

#[test]
fn an_ack_counts_that_the_bye_has_overtaken() {
    for waits in [0, 900, 1100] {
        let (mut bench, to) = in_call("call-1");
        receive(&mut bench, &incoming("INVITE", 2, "call-1", &to));
        // the load ends, and with it the flow
        bench.window.drain = bench.now;
        bench.call(|device, cx| device.stop(cx));
        receive(&mut bench, &incoming("BYE", 3, "call-1", &to));
        let removal = sent(&mut bench).pop().expect("a REGISTER");
        assert!(removal.starts_with("REGISTER ") && value(&removal, "Expires") == "0", "{removal}");
        receive(&mut bench, &response(&removal, 200, "", ""));
        assert_eq!(bench.end, None, "the ACK may be on its way");
        while bench.end.is_none() && bench.wake <= Time(waits * MS) {
            bench.now = bench.wake;
            after(&mut bench, 0);
        }
        assert_eq!(bench.end.is_some(), waits > 1000);
        // it counts when the flow is over, too
        receive(&mut bench, &incoming("ACK", 2, "call-1", &to));
        assert_eq!(bench.end, Some(FlowEnd::Completed));
        assert_eq!(counter(&bench, "answers_acknowledged"), 2);
        assert_eq!(bench.measured().failures.iter().sum::<u64>(), 0);
    }
}
