//! Reliable provisional responses (RFC 3262), as a caller and as a callee.

use super::*;

const RELIABLE: &str = "Contact: <sip:b@10.0.0.9>\r\nRecord-Route: <sip:p;lr>\r\nRequire: 100rel\r\n";

fn progress(invite: &str, tag: &str, rseq: u32) -> String {
    response(invite, 183, tag, &format!("{RELIABLE}RSeq: {rseq}\r\n"))
}

#[test]
fn a_caller_acknowledges_each_reliable_response_once_and_in_turn() {
    let mut bench = bench(Preset::EarlyMedia);
    begin(&mut bench);
    let invite = one(&mut bench);
    assert_eq!(value(&invite, "Supported"), "100rel");
    receive(&mut bench, &progress(&invite, "b1", 7));
    let prack = one(&mut bench);
    assert!(prack.starts_with("PRACK sip:b@10.0.0.9 SIP/2.0\r\n"), "{prack}");
    assert_eq!((value(&prack, "RAck"), value(&prack, "CSeq")), ("7 1 INVITE", "2 PRACK"));
    assert_eq!(value(&prack, "Route"), "<sip:p;lr>");
    assert!(value(&prack, "To").ends_with(";tag=b1"));
    // again, and out of turn
    receive(&mut bench, &progress(&invite, "b1", 7));
    receive(&mut bench, &progress(&invite, "b1", 9));
    assert_eq!(sent(&mut bench).len(), 0);
    after(&mut bench, 500 * MS);
    assert_eq!(one(&mut bench), prack, "it is sent again until its answer comes");
    receive(&mut bench, &response(&prack, 200, "", ""));
    receive(&mut bench, &progress(&invite, "b1", 8));
    let next = one(&mut bench);
    assert_eq!((value(&next, "RAck"), value(&next, "CSeq")), ("8 1 INVITE", "3 PRACK"));
    // another callee of a forked call has a sequence of its own
    receive(&mut bench, &progress(&invite, "b2", 1));
    let other = one(&mut bench);
    assert!(value(&other, "To").ends_with(";tag=b2"), "{other}");
    receive(&mut bench, &response(&other, 200, "", ""));
    receive(&mut bench, &response(&invite, 200, "b1", RELIABLE));
    let all = sent(&mut bench);
    assert_eq!((all.len(), value(&all[1], "CSeq")), (2, "5 BYE"), "{all:?}");
    receive(&mut bench, &response(&all[1], 200, "", ""));
    assert_eq!(bench.end, None, "a PRACK is under way");
    receive(&mut bench, &response(&next, 200, "", ""));
    assert_eq!(bench.end, Some(FlowEnd::Completed));
    assert_eq!(["pracks", "pracks_accepted"].map(|name| counter(&bench, name)), [3, 3]);
}

#[test]
fn a_prack_that_is_refused_fails_the_call() {
    let mut bench = bench(Preset::EarlyMedia);
    begin(&mut bench);
    let invite = one(&mut bench);
    receive(&mut bench, &progress(&invite, "b1", 7));
    let prack = one(&mut bench);
    receive(&mut bench, &response(&prack, 481, "", ""));
    assert_eq!(bench.end, Some(FlowEnd::Failed));
    assert!(bench.examples[0].contains("PRACK was answered with 481"), "{:?}", bench.examples);
}

fn called(supported: &str) -> (Bench<UserAgent>, Vec<String>) {
    let mut bench = registered(Preset::AnswerEarlyMedia);
    let supported = format!("\r\n{supported}Content-Length");
    let invite = incoming("INVITE", 1, "call-1", "<sip:b@x>").replacen("\r\nContent-Length", &supported, 1);
    receive(&mut bench, &invite);
    let all = sent(&mut bench);
    (bench, all)
}

fn prack(progress: &str, rseq: &str) -> String {
    let to = value(progress, "To");
    let rack = format!("\r\nRAck: {rseq} 1 INVITE\r\nContent-Length");
    incoming("PRACK", 2, "call-1", to).replacen("\r\nContent-Length", &rack, 1)
}

#[test]
fn a_callee_sends_it_again_until_its_prack_and_only_then_answers() {
    let (mut bench, all) = called("Supported: timer, 100rel\r\n");
    let [progress] = &all[..] else { panic!("{all:?}") };
    assert!(progress.starts_with("SIP/2.0 183 ") && progress.contains("m=audio"), "{progress}");
    assert_eq!(value(progress, "Require"), "100rel");
    let rseq = value(progress, "RSeq").to_owned();
    for wait in [500, 1000, 2000, 4000, 8000] {
        after(&mut bench, wait * MS);
        assert_eq!(&one(&mut bench), progress);
    }
    receive(&mut bench, &prack(progress, "1"));
    assert!(one(&mut bench).starts_with("SIP/2.0 481 "));
    receive(&mut bench, &prack(progress, &rseq).replace("z9hG4bKpPRACK2", "z9hG4bKpPRACK3"));
    let all = sent(&mut bench);
    assert!(all[0].starts_with("SIP/2.0 200 ") && value(&all[0], "CSeq") == "2 PRACK", "{all:?}");
    assert!(all[1].starts_with("SIP/2.0 200 ") && value(&all[1], "CSeq") == "1 INVITE", "{all:?}");
    assert!(!all[1].contains("m=audio"), "the reliable response had the answer");
    assert_eq!(counter(&bench, "provisionals_acknowledged"), 1);
}

#[test]
fn a_caller_without_100rel_gets_a_plain_response_and_the_answer_again() {
    let (_, all) = called("");
    assert_eq!(all.len(), 2, "{all:?}");
    assert!(!all[0].contains("RSeq") && all.iter().all(|one| one.contains("m=audio")), "{all:?}");
}

#[test]
fn a_call_whose_prack_never_comes_is_rejected() {
    let (mut bench, _) = called("Require: 100rel\r\n");
    while bench.end.is_none() {
        let wait = bench.wake.since(bench.now);
        after(&mut bench, wait);
    }
    assert_eq!(bench.now, Time(32_000 * MS));
    assert!(sent(&mut bench).pop().expect("a response").starts_with("SIP/2.0 504 "));
    assert!(bench.examples[0].contains("no PRACK to our 183"), "{:?}", bench.examples);
}
