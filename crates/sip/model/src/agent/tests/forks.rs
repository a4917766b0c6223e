//! Forked calls: each further callee is acknowledged and released.

use super::*;

const FIRST: &str = "Contact: <sip:b@10.0.0.9>\r\n";
const OTHER: &str = "Contact: <sip:b@10.0.0.8>\r\nRecord-Route: <sip:p;lr>\r\n";

/// A call that the callee with tag `b1` answered; its INVITE and its BYE, which is sent with the ACK.
fn answered(bench: &mut Bench<UserAgent>) -> (String, String) {
    begin(bench);
    let invite = one(bench);
    receive(bench, &response(&invite, 200, "b1", FIRST));
    let bye = sent(bench).pop().expect("a BYE");
    (invite, bye)
}

fn is_release(all: &[String]) -> bool {
    let [ack, bye] = all else { return false };
    ack.starts_with("ACK sip:b@10.0.0.8 ")
        && bye.starts_with("BYE sip:b@10.0.0.8 ")
        && all.iter().all(|one| value(one, "To").ends_with(";tag=b2") && one.contains("Route: <sip:p;lr>"))
}

#[test]
fn the_bye_of_another_callee_is_sent_again_and_the_flow_waits_for_its_answer() {
    let mut bench = bench(Preset::Call);
    let (invite, bye) = answered(&mut bench);
    receive(&mut bench, &response(&invite, 200, "b2", OTHER));
    let release = sent(&mut bench);
    assert!(is_release(&release), "{release:?}");
    after(&mut bench, 500 * MS);
    let again = sent(&mut bench);
    assert!(again.contains(&release[1]), "{again:?}");
    // its 200 comes again: the ACK was lost
    receive(&mut bench, &response(&invite, 200, "b2", OTHER));
    assert_eq!(sent(&mut bench)[0], release[0]);
    receive(&mut bench, &response(&bye, 200, "", ""));
    assert_eq!(bench.end, None, "the other call is not over");
    receive(&mut bench, &response(&release[1], 200, "", ""));
    assert_eq!((bench.end, counter(&bench, "forks_released")), (Some(FlowEnd::Completed), 1));
    assert_eq!(counter(&bench, "unrelated_messages"), 0);
}

#[test]
fn a_callee_that_answers_after_the_call_is_released() {
    let mut bench = bench(Preset::Call);
    let (invite, bye) = answered(&mut bench);
    receive(&mut bench, &response(&bye, 200, "", ""));
    assert_eq!(bench.end, Some(FlowEnd::Completed));
    receive(&mut bench, &response(&invite, 200, "b2", OTHER));
    let release = sent(&mut bench);
    assert!(is_release(&release), "{release:?}");
    receive(&mut bench, &response(&release[1], 200, "", ""));
    receive(&mut bench, &response(&invite, 200, "b1", FIRST));
    let ack = one(&mut bench);
    assert!(ack.starts_with("ACK sip:b@10.0.0.9 ") && value(&ack, "To").ends_with(";tag=b1"), "{ack}");
    assert_eq!((counter(&bench, "forks_released"), counter(&bench, "responses_repeated")), (1, 1));
}

#[test]
fn an_answer_to_an_earlier_call_is_acknowledged_and_no_more() {
    let mut bench = bench(Preset::Call);
    let calls = [(); 2].map(|()| {
        let (invite, bye) = answered(&mut bench);
        receive(&mut bench, &response(&bye, 200, "", ""));
        invite
    });
    let invite = &calls[0];
    receive(&mut bench, &response(invite, 200, "b1", FIRST));
    let ack = one(&mut bench);
    assert!(ack.starts_with("ACK sip:b@10.0.0.9 "), "{ack}");
    assert_eq!(value(&ack, "Call-ID"), value(invite, "Call-ID"));
    assert_eq!(counter(&bench, "forks_released"), 0);
}
