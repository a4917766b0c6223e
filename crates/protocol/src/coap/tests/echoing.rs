//! Requests that a server has repeated with the Echo option (RFC 9175 section 2.3).

use super::*;

#[test]
fn a_challenge_is_answered_once_and_its_delay_counts() {
    // the RFC's own figure 2: 4.01 with Echo, and the request again with it
    let mut ladder = Ladder::start(r#"{"path": "/lock", "count": 1}"#);
    ladder.play(
        "> CON 0 GET /lock
         @ 100
         < ACK 0 4.01 echo=7
         > CON 1 GET /lock 252=7
         @ 250
         < ACK 1 2.05",
    );
    assert_eq!((ladder.delivered(), ladder.bench.own(ECHO_CHALLENGES), ladder.bench.own(BLOCKS)), (1, 1, 0));
    assert_eq!(ladder.bench.delay(RESPONSE), (1, 250), "from when the request was due");
    assert_eq!(ladder.bench.measured().messages_sent, 1, "one request of the load");
    assert_eq!(ladder.bench.end, Some(FlowEnd::Completed));
}

#[test]
fn a_second_challenge_is_a_rejection() {
    let mut ladder = Ladder::start(r#"{"path": "/lock", "count": 1}"#);
    ladder.play(
        "> CON 0 GET /lock
         < ACK 0 4.01 echo=7
         > CON 1 GET /lock 252=7
         < ACK 1 4.01 echo=8",
    );
    assert_eq!((ladder.delivered(), ladder.failures(Failure::Rejected)), (0, 1));
    assert_eq!(ladder.example(), "4.01, and Echo again after it was repeated");
    // without Echo, 4.01 is what it says
    let mut plain = Ladder::start(r#"{"count": 1}"#);
    plain.play("> CON 0 GET /\n < ACK 0 4.01");
    assert_eq!((plain.failures(Failure::Rejected), plain.example().as_str()), (1, "4.01"));
    // and where it is what the profile expects, it is a success
    let mut wanted = Ladder::start(r#"{"count": 1, "expect": ["4.01"]}"#);
    wanted.play("> CON 0 GET /\n < ACK 0 4.01 echo=7");
    assert_eq!((wanted.delivered(), wanted.bench.own(ECHO_CHALLENGES)), (1, 0));
}

#[test]
fn what_is_sent_again_has_the_same_value() {
    let mut ladder =
        Ladder::start(r#"{"path": "/a", "interval": "1s", "nstart": 2, "ack_random_factor": 1}"#);
    ladder.play(
        "> CON 0 GET /a
         < ACK 0 4.01 echo=7
         > CON 1 GET /a 252=7
         @ 1000
         > CON 2 GET /a
         < ACK 2 4.01 echo=8
         > CON 3 GET /a 252=8
         @ 2000
         > CON 1 GET /a 252=7
         < ACK 1 2.05
         > CON 4 GET /a
         < ACK 3 2.05",
    );
    assert_eq!((ladder.bench.own(ECHO_CHALLENGES), ladder.bench.own(RETRANSMISSIONS)), (2, 1));
}

#[test]
fn a_value_that_comes_unasked_goes_into_the_next_request() {
    let mut ladder = Ladder::start(r#"{"interval": "1s"}"#);
    ladder.play(
        "> CON 0 GET /
         < ACK 0 2.05 echo=7
         @ 1000
         > CON 1 GET / 252=7
         < ACK 1 2.05
         @ 2000
         > CON 2 GET /",
    );
    assert_eq!((ladder.delivered(), ladder.bench.own(ECHO_CHALLENGES)), (2, 0));
}

#[test]
fn a_block_may_be_challenged_and_those_behind_it_take_the_value_along() {
    let mut ladder =
        Ladder::start(r#"{"method": "PUT", "path": "/f", "size": "40B", "block_size": "16B", "count": 1}"#);
    ladder.play(
        "> CON 0 PUT /f 1:0/1/16 size=40 \"                \"
         < ACK 0 4.01 echo=7
         > CON 1 PUT /f 1:0/1/16 size=40 252=7 \"                \"
         < ACK 1 2.31 1:0/1/16
         > CON 2 PUT /f 1:1/1/16 252=7 \"                \"
         < ACK 2 2.31 1:1/1/16
         > CON 3 PUT /f 1:2/0/16 252=7 \"        \"
         < ACK 3 2.04 1:2/0/16",
    );
    assert_eq!((ladder.delivered(), ladder.bench.own(ECHO_CHALLENGES), ladder.bench.own(BLOCKS)), (1, 1, 2));
}

#[test]
fn an_observation_and_a_separate_response_are_challenged_alike() {
    let mut ladder = Ladder::start(r#"{"path": "/t", "observe": true, "count": 1}"#);
    ladder.play(
        "> CON 0 GET /t obs=0
         < ACK 0 4.01 echo=7
         > CON 1 GET /t obs=0 252=7
         < ACK 1 2.05 obs=1
         < NON 50 2.05 obs=2
         > CON 2 GET /t obs=1
         < ACK 2 4.01 echo=8
         > CON 3 GET /t obs=1 252=8
         < ACK 3 2.05",
    );
    assert_eq!((ladder.bench.end, ladder.bench.own(ECHO_CHALLENGES)), (Some(FlowEnd::Completed), 2));
    let mut separate = Ladder::start(r#"{"count": 1}"#);
    separate.play(
        "> CON 0 GET /
         < ACK 0
         < CON 60 4.01 echo=7
         > ACK 60
         > CON 1 GET / 252=7
         < ACK 1
         < CON 61 2.05
         > ACK 61",
    );
    assert_eq!((separate.delivered(), separate.bench.own(ECHO_CHALLENGES)), (1, 1));
}
