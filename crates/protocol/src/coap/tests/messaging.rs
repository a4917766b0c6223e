//! Messages: RFC 7252 sections 4 and 5.

use super::*;

const ONCE: &str = r#"{"path": "/temperature", "count": 1}"#;

/// Appendix A, figure 16.
#[test]
fn a_piggybacked_response() {
    let mut ladder = Ladder::start(ONCE);
    ladder.play(
        "> CON 0 GET /temperature
         @ 20
         < ACK 0 2.05 [6]",
    );
    assert_eq!((ladder.bench.end, ladder.bench.link), (Some(FlowEnd::Completed), Link::Close));
    assert_eq!((ladder.bench.delay(RESPONSE), ladder.bench.delay(ACKNOWLEDGEMENT)), ((1, 20), (1, 20)));
    let counts = ladder.bench.measured();
    assert_eq!((counts.messages_sent, counts.messages_delivered), (1, 1));
    assert_eq!((counts.bytes_sent, counts.bytes_received), (8 + 12, 8 + 7));
}

/// Appendix A, figures 18 and 19: the request is lost, then the acknowledgement.
#[test]
fn a_confirmable_request_is_sent_again_until_it_is_acknowledged() {
    let json = r#"{"path": "/t", "count": 1, "ack_random_factor": 1.0}"#;
    let mut ladder = Ladder::start(json);
    ladder.play(
        "> CON 0 GET /t
         @ 1999
         @ 2000
         > CON 0 GET /t
         @ 5999
         @ 6000
         > CON 0 GET /t
         @ 6010
         < ACK 0 2.05 [6]
         < ACK 0 2.05 [6]",
    );
    assert_eq!(ladder.bench.end, Some(FlowEnd::Completed));
    assert_eq!(ladder.bench.delay(RESPONSE), (1, 6010), "a retransmission does not begin the delay anew");
    assert_eq!((ladder.bench.own(RETRANSMISSIONS), ladder.bench.measured().messages_sent), (2, 1));
}

/// Section 4.8.2: 2, 4, 8, 16 and 32 s are waited.
#[test]
fn in_the_end_it_is_given_up() {
    let json = r#"{"path": "/t", "count": 1, "ack_random_factor": 1.0}"#;
    let mut ladder = Ladder::start(json);
    ladder.play(
        "> CON 0 GET /t
         @ 2000
         > CON 0 GET /t
         @ 6000
         > CON 0 GET /t
         @ 14000
         > CON 0 GET /t
         @ 30000
         > CON 0 GET /t
         @ 61999",
    );
    assert_eq!(ladder.bench.end, None);
    ladder.play("@ 62000");
    assert_eq!((ladder.failures(Failure::Unanswered), ladder.bench.end), (1, Some(FlowEnd::Completed)));
    assert_eq!(ladder.bench.own(RETRANSMISSIONS), 4);
    // a shorter patience ends it before
    let mut short = Ladder::start(r#"{"path": "/t", "count": 1, "ack_random_factor": 1.0, "timeout": "3s"}"#);
    short.play("> CON 0 GET /t\n @ 2000\n > CON 0 GET /t\n @ 2999");
    assert_eq!(short.failures(Failure::Unanswered), 0);
    short.play("@ 3000");
    assert_eq!(short.failures(Failure::Unanswered), 1);
}

#[test]
fn the_first_wait_is_drawn_between_its_bounds() {
    let mut waits: Vec<u64> = (0..50)
        .map(|i| {
            let mut ladder = Ladder::of(r#"{"path": "/t"}"#);
            for _ in 0..i {
                ladder.bench.call(|_, cx| rand::Rng::random::<u64>(cx.rng));
            }
            ladder.bench.start();
            ladder.bench.wake.0 / 1_000_000
        })
        .collect();
    waits.sort_unstable();
    waits.dedup();
    // the next request is due after one second, and waits for this one
    assert!(waits.len() > 40 && waits[0] >= 2000 && waits[waits.len() - 1] <= 3000, "{waits:?}");
}

/// Section 5.2.2, and appendix A, figures 20 and 21.
#[test]
fn a_separate_response() {
    for (first, kind, reply) in
        [("< ACK 0", "CON", "> ACK 700"), ("", "CON", "> ACK 700"), ("< ACK 0", "NON", "")]
    {
        let mut ladder = Ladder::start(ONCE);
        ladder.play("> CON 0 GET /temperature");
        ladder.play(
            &format!("@ 30\n {first}\n @ 5000\n < {kind} 700 2.05 [6]\n {reply}")
                .replace("@ 5000", if first.is_empty() { "@ 1500" } else { "@ 5000" }),
        );
        assert_eq!(
            (ladder.delivered(), ladder.bench.own(SEPARATE), ladder.bench.own(RETRANSMISSIONS)),
            (1, 1, 0)
        );
        let acknowledged = if first.is_empty() { 1500 } else { 30 };
        assert_eq!(ladder.bench.delay(ACKNOWLEDGEMENT), (1, acknowledged));
        assert_eq!(ladder.bench.end, Some(FlowEnd::Completed));
    }
    // its acknowledgement is lost, and it comes again: acknowledged again, counted apart
    let mut ladder = Ladder::start(r#"{"path": "/t", "interval": "10s"}"#);
    ladder.play(
        "> CON 0 GET /t
         < ACK 0
         < CON 700 2.05 [6]
         > ACK 700
         < CON 700 2.05 [6]
         > ACK 700
         < ACK 0",
    );
    assert_eq!((ladder.delivered(), ladder.bench.measured().duplicates), (1, 1));
    assert_eq!(ladder.bench.measured().messages_received, 0, "a late acknowledgement says nothing new");
    // it never comes
    let mut ladder = Ladder::start(r#"{"path": "/t", "interval": "100s", "timeout": "20s"}"#);
    ladder.play("> CON 0 GET /t\n < ACK 0\n < ACK 0\n @ 19999");
    assert_eq!((ladder.failures(Failure::Unanswered), ladder.bench.measured().duplicates), (0, 1));
    ladder.play("@ 20000");
    assert_eq!(ladder.failures(Failure::Unanswered), 1);
    assert!(ladder.example().contains("behind the acknowledgement"));
}

/// Appendix A, figure 23.
#[test]
fn a_request_that_is_not_confirmable() {
    let mut ladder = Ladder::start(r#"{"path": "/t", "confirmable": false, "interval": "10s"}"#);
    ladder.play(
        "> NON 0 GET /t
         @ 7
         < NON 900 2.05 [6]
         < NON 900 2.05 [6]
         < NON 901 2.05 [6]
         @ 10000
         > NON 1 GET /t
         @ 12000
         < NON 902 2.05 [6]",
    );
    assert_eq!((ladder.delivered(), ladder.bench.delay(RESPONSE)), (1, (1, 7)));
    assert_eq!(ladder.bench.delay(ACKNOWLEDGEMENT), (0, 0));
    assert_eq!((ladder.failures(Failure::Unanswered), ladder.bench.own(RETRANSMISSIONS)), (1, 0));
    assert_eq!((ladder.bench.measured().duplicates, ladder.bench.measured().messages_received), (2, 1));
    assert_eq!(ladder.bench.own(SEPARATE), 0, "to such a request each response comes apart");
    // an acknowledgement of it means nothing
    let mut ladder = Ladder::start(r#"{"path": "/t", "confirmable": false}"#);
    ladder.play("> NON 0 GET /t\n < ACK 0\n < ACK 0 2.05 [1]");
    assert_eq!(ladder.delivered(), 0);
}

#[test]
fn a_reset_ends_the_request() {
    for json in [ONCE, r#"{"path": "/temperature", "confirmable": false, "count": 1}"#] {
        let mut ladder = Ladder::start(json);
        assert!(ladder.next().expect("a request").ends_with("GET /temperature"));
        ladder.play("< RST 0\n < RST 0");
        assert_eq!((ladder.failures(Failure::Reset), ladder.bench.end), (1, Some(FlowEnd::Completed)));
    }
}

#[test]
fn codes_that_are_not_expected_are_rejected() {
    let mut ladder = Ladder::start(r#"{"path": "/t", "interval": "0s"}"#);
    ladder.play("> CON 0 GET /t\n < ACK 0 4.04 [9]\n > CON 1 GET /t\n < ACK 1 5.03\n > CON 2 GET /t");
    assert_eq!((ladder.failures(Failure::Rejected), ladder.delivered()), (2, 0));
    assert_eq!(ladder.bench.examples, ["4.04, \"xxxxxxxxx\"", "5.03"]);
    let mut ladder = Ladder::start(r#"{"path": "/t", "interval": "0s", "expect": ["4.04", "2.03"]}"#);
    ladder.play("> CON 0 GET /t\n < ACK 0 4.04\n > CON 1 GET /t\n < ACK 1 2.05\n > CON 2 GET /t");
    assert_eq!((ladder.failures(Failure::Rejected), ladder.delivered()), (1, 1));
}

/// Section 4.7.
#[test]
fn nstart_limits_what_is_outstanding() {
    let mut ladder = Ladder::start(r#"{"path": "/{seq}", "interval": "100ms", "nstart": 2}"#);
    ladder.play(
        "> CON 0 GET /0
         @ 100
         > CON 1 GET /1
         @ 900
         < ACK 1
         > CON 2 GET /2
         @ 910
         < ACK 2 2.05
         > CON 3 GET /3",
    );
    // due at 200 ms, sent at 900 ms, answered at 910 ms
    assert_eq!(ladder.bench.delay(RESPONSE), (1, 710));
    assert_eq!(ladder.bench.measured().messages_sent, 4);
    // in a closed loop it is the responses that are waited for
    let mut ladder = Ladder::start(r#"{"path": "/t", "interval": "0s"}"#);
    ladder.play("> CON 0 GET /t\n < ACK 0\n < CON 5 2.05\n > ACK 5\n > CON 1 GET /t");
    assert_eq!(ladder.bench.measured().messages_sent, 2);
}

#[test]
fn requests_of_one_size_leave_together() {
    let mut ladder = Ladder::of(r#"{"path": "/{seq}", "interval": "0s", "nstart": 12}"#);
    ladder.bench.start();
    assert_eq!((ladder.bench.out.segment, ladder.bench.out.bytes.len()), (10, 100), "0 to 9");
    ladder.settle();
    assert_eq!((ladder.sent.len(), ladder.sent[11].len()), (12, 11));
}

#[test]
fn pings_and_requests_of_the_server_are_rejected() {
    let mut ladder = Ladder::start(r#"{"path": "/t"}"#);
    ladder.play(
        "> CON 0 GET /t
         < CON 40
         > RST 40
         < CON 41 0.01
         > RST 41
         < NON 42 0.01
         < CON 43 2.05 token=none
         > RST 43
         < NON 44 2.05 obs=3 token=none
         > RST 44
         < NON 45 2.05 token=none
         < ACK 9 2.05 token=none
         < RST 9
         < ACK 9
         < ACK 0 2.05",
    );
    assert_eq!((ladder.delivered(), ladder.bench.measured().messages_received), (1, 9));
}

/// Sections 4.2, 5.3.2 and 5.4.1.
#[test]
fn what_the_protocol_does_not_allow_fails_its_request() {
    for (answer, reply, what) in [
        ("ACK 0 2.05 opt=9", None, "option 9, which is critical and unknown"),
        ("CON 7 2.05 opt=11", Some("RST 7"), "option 11, which is critical and unknown"),
        ("NON 7 2.05 opt=11", None, "option 11, which is critical and unknown"),
        ("ACK 0 2.05 token=none", None, "a response with another token than its request"),
        ("ACK 0 2.31", None, "2.31 Continue where nothing is to be continued"),
        ("ACK 0 3.05", None, "code 3.05, which is reserved"),
    ] {
        let mut ladder = Ladder::start(ONCE);
        ladder.play("> CON 0 GET /temperature");
        let bytes = ladder.message(answer);
        ladder.hear(&bytes);
        assert_eq!(ladder.next().as_deref(), reply, "{answer}");
        assert_eq!((ladder.failures(Failure::Protocol), ladder.example().as_str()), (1, what), "{answer}");
        assert_eq!(ladder.bench.end, Some(FlowEnd::Completed));
    }
    // elective ones are passed over
    let mut ladder = Ladder::start(ONCE);
    ladder.play("> CON 0 GET /temperature\n < ACK 0 2.05 opt=8");
    assert_eq!(ladder.delivered(), 1);
}

#[test]
fn what_is_no_message_is_counted_as_corrupted() {
    let mut ladder = Ladder::start(r#"{"path": "/t"}"#);
    ladder.play("> CON 0 GET /t");
    for bytes in [&[][..], &[0x60], &[0xa0, 0, 0, 0], &[0x50, 0x45, 0, 1, 0xf0], &[0x49, 0x45, 0, 9]] {
        ladder.hear(bytes);
    }
    // what is confirmable is rejected
    assert_eq!(ladder.next().as_deref(), Some("RST 9"));
    assert_eq!((ladder.bench.measured().corrupted, ladder.bench.examples.len()), (5, 5));
    ladder.play("< ACK 0 2.05");
    assert_eq!(ladder.delivered(), 1);
}

#[test]
fn the_same_message_is_sent_again_whatever_is_random_in_it() {
    let json = r#"{"path": "/{random:8}?at={timestamp}", "method": "POST", "payload": "{random:1-1000000}",
                   "ack_random_factor": 1.0, "interval": "100s"}"#;
    let mut ladder = Ladder::start(json);
    let first = ladder.sent.pop_front().expect("a request");
    ladder.until_ms(2000);
    assert_eq!(ladder.sent.pop_front(), Some(first.clone()));
    ladder.until_ms(70_000);
    ladder.sent.clear();
    ladder.until_ms(100_000);
    let second = ladder.sent.pop_front().expect("another request");
    assert_ne!(first[8..], second[8..]);
}

#[test]
fn a_refused_datagram_ends_its_request_and_the_next_is_sent_when_it_is_due() {
    let mut ladder = Ladder::start(r#"{"path": "/t", "interval": "1s", "count": 2}"#);
    ladder.play("> CON 0 GET /t");
    ladder.bench.closed(Failure::Refused);
    ladder.settle();
    ladder.play("@ 1000\n > CON 1 GET /t\n < ACK 1 2.05");
    assert_eq!((ladder.delivered(), ladder.bench.end), (1, Some(FlowEnd::Completed)));
    // in a closed loop the flow is over, and so it is when the socket cannot be used
    for (json, why) in [(r#"{"interval": "0s"}"#, Failure::Refused), ("{}", Failure::Local)] {
        let mut ladder = Ladder::start(json);
        ladder.bench.closed(why);
        assert_eq!((ladder.bench.end, ladder.bench.wake), (Some(FlowEnd::Failed), Time::NEVER));
    }
}

#[test]
fn a_response_that_comes_too_late_is_not_delivered() {
    let mut ladder = Ladder::start(r#"{"path": "/t", "timeout": "1s", "interval": "5s"}"#);
    ladder.play("> CON 0 GET /t\n @ 1000\n < CON 8 2.05\n > ACK 8\n < ACK 0 2.05");
    let counts = ladder.bench.measured();
    assert_eq!((counts.messages_delivered, counts.messages_received, counts.duplicates), (0, 2, 0));
    assert_eq!(ladder.failures(Failure::Unanswered), 1);
}

#[test]
fn stop_waits_for_responses_and_the_end_of_the_drain_ends_that() {
    let mut ladder = Ladder::start(r#"{"path": "/t", "interval": "10ms", "nstart": 8}"#);
    ladder.bench.window.drain = Time(15_000_000);
    ladder.until_ms(15);
    ladder.stop();
    ladder.play("> CON 0 GET /t\n > CON 1 GET /t\n < ACK 0 2.05");
    assert_eq!((ladder.bench.end, ladder.bench.model.waiting_since()), (None, Time(15_000_000)));
    ladder.bench.abandon();
    assert_eq!((ladder.failures(Failure::Unanswered), ladder.bench.model.waiting_since()), (1, Time::NEVER));
    let (measured, drained) = (ladder.bench.measured(), ladder.bench.counts(Phase::Drain));
    assert_eq!((measured.messages_intended, drained.messages_intended), (2, 0));
}

#[test]
fn memory_is_bounded_and_tokens_and_identifiers_wrap() {
    let mut ladder = Ladder::of(r#"{"path": "/t", "interval": "0s"}"#);
    ladder.bench.start();
    ladder.settle();
    ladder.bench.model.last_id = u16::MAX - 5;
    for _ in 0..70_000 {
        let request = ladder.sent.pop_back().expect("a request");
        let mut response = request[..8].to_vec();
        (response[0], response[1]) = (0x64, 0x45);
        ladder.hear(&response);
    }
    assert_eq!((ladder.delivered(), ladder.bench.examples.len()), (70_000, 0));
    assert!(ladder.bench.model.exchanges.len() <= REMEMBERED + 1);
    assert!(ladder.bench.model.exchanges.capacity() <= 32);
}

/// Section 5.2.2: the response stands for the acknowledgement, which may come behind it.
#[test]
fn an_acknowledgement_may_come_after_the_response() {
    let json = r#"{"path": "/t", "interval": "10s"}"#;
    let mut ladder = Ladder::start(json);
    let (sent, received) = ("> CON 0 GET /t\n < NON 700 2.05 [6]\n", "< ACK 0\n");
    ladder.play(&format!("{sent} {received}"));
    // also when the next request is under way, which it does not acknowledge
    ladder.play(&format!("@ 10000\n > CON 1 GET /t\n {received} @ 11500\n < ACK 1 2.05 [6]"));
    assert_eq!((ladder.delivered(), ladder.bench.own(RETRANSMISSIONS)), (2, 0));
    assert_eq!(ladder.bench.delay(ACKNOWLEDGEMENT), (2, 1500));
    let counts = ladder.bench.measured();
    assert_eq!((counts.messages_received, counts.duplicates, counts.corrupted), (0, 0, 0));
    // one of a message that was never sent is none of ours
    ladder.play("< ACK 9000");
    assert_eq!(ladder.bench.measured().messages_received, 1);
    assert_eq!(ladder.bench.end, None);
}
