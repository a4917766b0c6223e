//! Observations: RFC 7641.

use super::*;

const OBSERVE: &str = r#"{"path": "/temperature", "observe": true}"#;

/// Appendix A, figure 4, from registration to the end.
#[test]
fn notifications_are_received_until_the_load_ends() {
    let mut ladder = Ladder::start(OBSERVE);
    ladder.play(
        "> CON 0 GET /temperature obs=0
         @ 5
         < ACK 0 2.05 obs=12 age=15 [6]
         @ 4000
         < CON 700 2.05 obs=44 age=15 [6]
         > ACK 700
         @ 8000
         < NON 701 2.05 obs=60 age=15 [6]",
    );
    assert_eq!((ladder.delivered(), ladder.bench.delay(RESPONSE)), (1, (1, 5)));
    assert_eq!((ladder.bench.measured().messages_received, ladder.bench.own(NOTIFICATIONS)), (2, 2));
    assert_eq!(ladder.bench.model.waiting_since(), Time::NEVER, "nothing was asked");
    ladder.stop();
    ladder.play(
        "> CON 1 GET /temperature obs=1
         < NON 702 2.05 obs=61 [6]
         < ACK 1 2.05 [6]",
    );
    assert_eq!((ladder.bench.end, ladder.bench.link), (Some(FlowEnd::Completed), Link::Close));
    assert_eq!((ladder.delivered(), ladder.bench.own(NOTIFICATIONS)), (2, 3));
}

#[test]
fn a_count_of_notifications_ends_the_flow() {
    let mut ladder = Ladder::start(r#"{"path": "/t", "observe": true, "count": 2, "confirmable": false}"#);
    ladder.play(
        "> NON 0 GET /t obs=0
         < NON 1 2.05 obs=1 [1]
         < NON 2 2.05 obs=2 [1]
         < CON 3 2.05 obs=3 [1]
         > ACK 3
         > NON 1 GET /t obs=1
         < NON 4 2.05 [1]",
    );
    assert_eq!((ladder.delivered(), ladder.bench.end), (2, Some(FlowEnd::Completed)));
}

/// Section 3.4.
#[test]
fn the_newest_notification_is_known_by_its_number() {
    let mut ladder = Ladder::start(OBSERVE);
    ladder.play(
        "> CON 0 GET /temperature obs=0
         < ACK 0 2.05 obs=10 age=1000 [6]
         < NON 1 2.05 obs=12 age=1000 [6]
         < NON 2 2.05 obs=11 age=1000 [6]
         < NON 3 2.05 obs=12 age=1000 [6]
         < NON 3 2.05 obs=12 age=1000 [6]
         < NON 4 2.05 obs=8388619 age=1000 [6]
         < NON 5 2.05 obs=16777215 age=1000 [6]
         < NON 6 2.05 obs=0 age=1000 [6]
         @ 127999
         < NON 7 2.05 obs=16777000 age=1000 [6]
         @ 128001
         < NON 8 2.05 obs=16777000 age=1000 [6]",
    );
    // 12, 8388619 (2^23 − 1 ahead), 16777215, 0 (wrapped), and what comes after 128 s
    assert_eq!(ladder.bench.own(NOTIFICATIONS), 5);
    let counts = ladder.bench.measured();
    assert_eq!((counts.reordered, counts.duplicates, counts.messages_received), (2, 2, 5));
}

/// Section 3.3.1: when it is no longer fresh, and a random time is over.
#[test]
fn an_observation_is_renewed_when_nothing_comes() {
    let mut ladder = Ladder::start(r#"{"path": "/t", "observe": true}"#);
    ladder.play("> CON 0 GET /t obs=0\n < ACK 0 2.05 obs=1 age=30 [1]");
    let token = ladder.token.clone();
    let renewed = ladder.until_sent();
    assert!((35_000..=45_001).contains(&renewed), "{renewed} ms");
    assert_eq!(ladder.next().as_deref(), Some("CON 1 GET /t obs=0"));
    assert_eq!(ladder.token, token, "with the same token");
    ladder.play("< ACK 1 2.05 obs=2 [1]");
    // 60 s unless the server says how long
    let again = ladder.until_sent() - renewed;
    assert!((65_000..=75_001).contains(&again), "{again} ms");
    assert_eq!(ladder.next().as_deref(), Some("CON 2 GET /t obs=0"));
    assert_eq!((ladder.delivered(), ladder.bench.own(NOTIFICATIONS)), (2, 0));
    // the server is gone
    ladder.until_ms(300_000);
    assert_eq!((ladder.failures(Failure::Unanswered), ladder.bench.end), (1, Some(FlowEnd::Failed)));
}

#[test]
fn a_notification_may_come_before_the_response() {
    let mut ladder = Ladder::start(OBSERVE);
    ladder.play(
        "> CON 0 GET /temperature obs=0
         < CON 7 2.05 obs=5 [1]
         > ACK 7
         < ACK 0 2.05 obs=4 [1]
         < NON 8 2.05 obs=6 [1]",
    );
    assert_eq!((ladder.delivered(), ladder.bench.own(NOTIFICATIONS)), (1, 1));
    // after an empty acknowledgement the response comes by itself
    let mut ladder = Ladder::start(OBSERVE);
    ladder.play("> CON 0 GET /temperature obs=0\n < ACK 0\n < CON 7 2.05 obs=5 [1]\n > ACK 7");
    assert_eq!((ladder.delivered(), ladder.bench.own(NOTIFICATIONS)), (1, 0));
}

#[test]
fn a_server_that_keeps_no_observers_fails_the_flow() {
    for (answer, why) in [
        ("2.05 [1]", Failure::Rejected),
        ("4.04", Failure::Rejected),
        ("2.05 obs=1 opt=9", Failure::Protocol),
    ] {
        let mut ladder = Ladder::start(OBSERVE);
        ladder.play(&format!("> CON 0 GET /temperature obs=0\n < ACK 0 {answer}"));
        assert_eq!((ladder.failures(why), ladder.bench.end), (1, Some(FlowEnd::Failed)), "{answer}");
        assert_eq!(ladder.bench.link, Link::Close);
    }
    let mut ladder = Ladder::start(OBSERVE);
    ladder.play("> CON 0 GET /temperature obs=0\n < RST 0");
    assert_eq!((ladder.failures(Failure::Reset), ladder.bench.end), (1, Some(FlowEnd::Failed)));
}

/// Section 4.2, and 3.2 of RFC 7252 for what it does not allow.
#[test]
fn the_server_may_end_an_observation() {
    for (last, reply, why) in [
        ("NON 9 4.04", "", Failure::Rejected),
        ("CON 9 5.00", "> ACK 9", Failure::Rejected),
        ("NON 9 2.05 [1]", "", Failure::Closed),
        ("CON 9 2.05 obs=2 opt=9", "> RST 9", Failure::Protocol),
        ("NON 9 2.05 obs=2 2:1/0/64 [9]", "", Failure::Protocol),
    ] {
        let mut ladder = Ladder::start(OBSERVE);
        ladder.play("> CON 0 GET /temperature obs=0\n < ACK 0 2.05 obs=1 [1]");
        ladder.play(&format!("< {last}\n {reply}"));
        assert_eq!((ladder.failures(why), ladder.bench.end), (1, Some(FlowEnd::Failed)), "{last}");
    }
}

/// RFC 7959 section 3.4: the first block comes by itself, the others are asked for, with another token.
#[test]
fn a_large_representation_is_fetched() {
    let mut ladder = Ladder::start(r#"{"path": "/s", "observe": true}"#);
    ladder.play(
        "> CON 0 GET /s obs=0
         < ACK 0 2.05 obs=1 2:0/1/128 [128]
         > CON 1 GET /s 2:1/0/128
         < ACK 1 2.05 2:1/0/128 [27]",
    );
    assert_eq!(ladder.delivered(), 1);
    let observation = ladder.bench.model.salt.to_be_bytes();
    let hear = |ladder: &mut Ladder, text: &str| {
        ladder.token = observation.to_vec();
        let bytes = ladder.message(text);
        ladder.hear(&bytes);
    };
    hear(&mut ladder, "NON 5 2.05 obs=2 2:0/1/128 [128]");
    ladder.play("> CON 2 GET /s 2:1/0/128");
    assert_ne!(ladder.token, observation);
    ladder.play("< ACK 2 2.05 2:1/1/128 [128]\n > CON 3 GET /s 2:2/0/128");
    // a newer one comes in between: what is left of the old one is of no use
    hear(&mut ladder, "NON 6 2.05 obs=3 2:0/1/128 [128]");
    ladder.play("> CON 4 GET /s 2:1/0/128\n < ACK 4 2.05 2:1/0/128 [1]");
    assert_eq!((ladder.bench.own(NOTIFICATIONS), ladder.bench.own(BLOCKS)), (2, 4));
    assert_eq!((ladder.delivered(), ladder.bench.measured().messages_sent), (1, 1));
    // one that gets lost is a failure, and the observation goes on
    hear(&mut ladder, "NON 7 2.05 obs=4 2:0/1/128 [128]");
    ladder.play("> CON 5 GET /s 2:1/0/128\n < ACK 5 4.04");
    assert_eq!((ladder.failures(Failure::Rejected), ladder.bench.end), (1, None));
    ladder.stop();
    assert_eq!(ladder.next().as_deref(), Some("CON 6 GET /s obs=1"));
}

#[test]
fn notifications_without_end_cost_nothing() {
    let mut ladder = Ladder::start(OBSERVE);
    ladder.play("> CON 0 GET /temperature obs=0\n < ACK 0 2.05 obs=1 [1]");
    for i in 2..100_000u32 {
        let bytes = ladder.message(&format!("CON {} 2.05 obs={i} [1]", i % 60_000));
        ladder.hear(&bytes);
        ladder.sent.clear();
    }
    assert_eq!(ladder.bench.own(NOTIFICATIONS), 99_998);
    assert!(ladder.bench.model.exchanges.len() <= 1);
    ladder.bench.abandon();
    assert_eq!(ladder.bench.measured().failures.iter().sum::<u64>(), 0);
}
