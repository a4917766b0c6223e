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
