//! Transfers in blocks: the figures of RFC 7959 section 3.

use super::*;

const GET: &str = r#"{"path": "/status", "count": 1, "interval": "0s"}"#;
const PUT: &str =
    r#"{"path": "/options", "method": "PUT", "size": "400B", "block_size": "128B", "count": 1}"#;

fn completes(json: &str, ladder: &str, blocks: u64) -> Ladder {
    let mut played = Ladder::start(json);
    played.play(ladder);
    assert_eq!(
        (played.delivered(), played.bench.end),
        (1, Some(FlowEnd::Completed)),
        "{:?}",
        played.bench.examples
    );
    assert_eq!((played.bench.own(BLOCKS), played.bench.measured().messages_sent), (blocks, 1));
    played
}

/// Figure 2.
#[test]
fn a_simple_get() {
    completes(
        GET,
        "> CON 0 GET /status
         < ACK 0 2.05 2:0/1/128 [128]
         > CON 1 GET /status 2:1/0/128
         < ACK 1 2.05 2:1/1/128 [128]
         > CON 2 GET /status 2:2/0/128
         @ 9
         < ACK 2 2.05 2:2/0/128 [40]",
        2,
    );
}

/// Figure 3: the client says at once how large a block may be.
#[test]
fn early_negotiation() {
    completes(
        r#"{"path": "/status", "count": 1, "block_size": "64B"}"#,
        "> CON 0 GET /status 2:0/0/64
         < ACK 0 2.05 2:0/1/64 [64]
         > CON 1 GET /status 2:1/0/64
         < ACK 1 2.05 2:1/1/64 [64]
         > CON 2 GET /status 2:2/0/64
         < ACK 2 2.05 2:2/0/64 [64]",
        2,
    );
}

/// Figure 4, and with losses figures 5 and 6: the client asks for smaller blocks than those that came.
#[test]
fn late_negotiation_with_losses() {
    let ladder = completes(
        r#"{"path": "/status", "count": 1, "method": "POST", "block_size": "64B", "ack_random_factor": 1.0}"#,
        "> CON 0 POST /status
         < ACK 0 2.05 2:0/1/128 [128]
         > CON 1 POST /status 2:2/0/64
         @ 2000
         > CON 1 POST /status 2:2/0/64
         < ACK 1 2.05 2:2/1/64 [64]
         < ACK 1 2.05 2:2/1/64 [64]
         > CON 2 POST /status 2:3/0/64
         < ACK 2 2.05 2:3/1/64 [64]
         > CON 3 POST /status 2:4/0/64
         < ACK 3 2.05 2:4/1/64 [64]
         > CON 4 POST /status 2:5/0/64
         < ACK 4 2.05 2:5/0/64 [64]",
        4,
    );
    assert_eq!((ladder.bench.own(RETRANSMISSIONS), ladder.bench.measured().duplicates), (1, 1));
    assert_eq!(ladder.bench.delay(ACKNOWLEDGEMENT), (1, 0), "of the first message only");
}

/// Figures 7 and 8: atomic, and a server that takes each block by itself.
#[test]
fn a_simple_put() {
    for (code, more) in [("2.31", 1), ("2.04", 0)] {
        completes(
            PUT,
            &format!(
                "> CON 0 PUT /options 1:0/1/128 size=400 [128]
                 < ACK 0 {code} 1:0/{more}/128
                 > CON 1 PUT /options 1:1/1/128 [128]
                 < ACK 1 {code} 1:1/{more}/128
                 > CON 2 PUT /options 1:2/1/128 [128]
                 < ACK 2 {code} 1:2/{more}/128
                 > CON 3 PUT /options 1:3/0/128 \"                \"
                 < ACK 3 2.04 1:3/0/128"
            ),
            3,
        );
    }
}

/// Figure 9: the server asks for smaller blocks.
#[test]
fn a_put_with_negotiation() {
    completes(
        r#"{"path": "/options", "method": "PUT", "size": "200B", "block_size": "128B", "count": 1}"#,
        "> CON 0 PUT /options 1:0/1/128 size=200 [128]
         < ACK 0 2.31 1:0/1/32
         > CON 1 PUT /options 1:4/1/32 [32]
         < ACK 1 2.31 1:4/1/32
         > CON 2 PUT /options 1:5/1/32 [32]
         < ACK 2 2.31 1:5/1/32
         > CON 3 PUT /options 1:6/0/32 \"        \"
         < ACK 3 2.04 1:6/0/32",
        3,
    );
}

/// Figure 11: blocks both ways.
#[test]
fn a_post_with_a_response_in_blocks() {
    completes(
        r#"{"path": "/soap", "method": "POST", "size": "300B", "block_size": "128B", "count": 1}"#,
        "> CON 0 POST /soap 1:0/1/128 size=300 [128]
         < ACK 0 2.31 1:0/1/128
         > CON 1 POST /soap 1:1/1/128 [128]
         < ACK 1 2.31 1:1/1/128
         > CON 2 POST /soap 1:2/0/128 [44]
         < ACK 2
         < CON 700 2.04 1:2/0/128 2:0/1/128 [128]
         > ACK 700
         > CON 3 POST /soap 2:1/0/128
         < ACK 3 2.04 2:1/1/128 [128]
         > CON 4 POST /soap 2:2/0/128
         < ACK 4 2.04 2:2/0/128 [10]",
        4,
    );
}

/// Section 2.5: 4.13 with a smaller size is a hint to try that.
#[test]
fn too_large_a_block_is_tried_smaller() {
    let ladder = completes(
        r#"{"path": "/o", "method": "PUT", "size": "40B", "block_size": "64B", "count": 1}"#,
        "> CON 0 PUT /o [40]
         < ACK 0 4.13 1:0/0/32
         > CON 1 PUT /o 1:0/1/32 size=40 [32]
         < ACK 1 2.31 1:0/1/32
         > CON 2 PUT /o 1:1/0/32 \"        \"
         < ACK 2 2.04 1:1/0/32",
        2,
    );
    assert_eq!(ladder.bench.delay(ACKNOWLEDGEMENT).0, 1);
    let mut ladder = Ladder::start(PUT);
    ladder.play("> CON 0 PUT /options 1:0/1/128 size=400 [128]\n < ACK 0 4.13 1:0/0/128");
    assert_eq!((ladder.failures(Failure::Rejected), ladder.example().as_str()), (1, "4.13"));
}

#[test]
fn the_blocks_of_a_body_are_of_one_body() {
    let json = r#"{"path": "/o", "method": "PUT", "payload": "{random:40}", "block_size": "16B", "count": 1,
                   "size": "56B"}"#;
    let mut ladder = Ladder::start(json);
    let mut body = Vec::new();
    for i in 0..4 {
        let request = ladder.sent.pop_front().expect("a block");
        let at = request.iter().position(|byte| *byte == 0xff).expect("a payload");
        body.extend_from_slice(&request[at + 1..]);
        let mut response = vec![0x64, if i < 3 { 0x5f } else { 0x44 }];
        response.extend_from_slice(&request[2..8]);
        let block = if i < 3 { i << 4 | 8 } else { i << 4 };
        response.extend_from_slice(&[0xd1, 14, block]);
        ladder.hear(&response);
    }
    assert_eq!((body.len(), ladder.delivered()), (56, 1));
    assert_eq!(body[40..], [b' '; 16]);
    let whole: Vec<u8> = {
        let model = &ladder.bench.model;
        let mut out = Vec::new();
        let x = exchange::Exchange::of(Purpose::Request, Time::ZERO, exchange::Part::Request, 2);
        let fill = request::Fill {
            values: crate::template::Values { device: 0, seq: 0, now: Time::ZERO },
            seed: u64::from(model.salt) << 32,
        };
        model.config.request.write(&mut out, true, &x, [0; 4], fill, None);
        let at = out.iter().position(|byte| *byte == 0xff).expect("a payload");
        out.split_off(at + 1)
    };
    assert_eq!(body, whole);
}

#[test]
fn what_is_wrong_with_a_block_fails_the_request() {
    for (json, first, answer, what) in [
        (GET, "> CON 0 GET /status", "2.05 2:1/1/64 [64]", "a block at byte 64 where byte 0 was due"),
        (GET, "> CON 0 GET /status", "2.05 2:0/1/64 [63]", "a block of 64 bytes with 63"),
        (GET, "> CON 0 GET /status", "2.05 2:0/1/64 [65]", "a block of 64 bytes with 65"),
        (GET, "> CON 0 GET /status", "2.05 2:0/0/64 [65]", "a block of 64 bytes with 65"),
        (GET, "> CON 0 GET /status", "2.05 2:0/1/2048 [64]", "a block with the reserved size exponent 7"),
        (GET, "> CON 0 GET /status", "2.31", "2.31 Continue where nothing is to be continued"),
        (PUT, PUT_FIRST, "2.31", "no Block1 in the answer to a block"),
        (PUT, PUT_FIRST, "2.04", "no Block1 in the answer to a block"),
        (PUT, PUT_FIRST, "2.31 1:1/1/128", "Block1 number 1 in the answer to block 0"),
        (PUT, PUT_FIRST, "2.31 1:0/1/256", "blocks of 256 bytes asked for, where 128 were offered"),
        (PUT, PUT_FIRST, "2.31 1:0/1/2048", "a block with the reserved size exponent 7"),
    ] {
        let mut ladder = Ladder::start(json);
        ladder.play(&format!("{first}\n < ACK 0 {answer}"));
        assert_eq!((ladder.failures(Failure::Protocol), ladder.example().as_str()), (1, what), "{answer}");
        assert_eq!(ladder.bench.end, Some(FlowEnd::Completed), "{answer}");
    }
    for (answer, why, what) in [
        ("2.05 2:2/1/64 [64]", Failure::Protocol, "a block at byte 128 where byte 64 was due"),
        ("2.05 2:0/1/64 [64]", Failure::Protocol, "a block at byte 0 where byte 64 was due"),
        ("2.05 [64]", Failure::Protocol, "no Block2 in a block behind the first"),
        ("2.31", Failure::Protocol, "2.31 Continue where nothing is to be continued"),
        ("2.05 2:0/1/128 [128]", Failure::Protocol, "a block at byte 0 where byte 64 was due"),
        (
            "2.05 etag=8 2:1/1/64 [64]",
            Failure::Rejected,
            "the representation changed between two of its blocks (ETag)",
        ),
        ("4.08", Failure::Rejected, "4.08"),
    ] {
        let mut ladder = Ladder::start(GET);
        ladder.play("> CON 0 GET /status\n < ACK 0 2.05 etag=7 2:0/1/64 [64]\n > CON 1 GET /status 2:1/0/64");
        ladder.play(&format!("< ACK 1 {answer}"));
        assert_eq!((ladder.failures(why), ladder.example().as_str()), (1, what), "{answer}");
    }
}

const PUT_FIRST: &str = "> CON 0 PUT /options 1:0/1/128 size=400 [128]";

#[test]
fn a_response_without_an_end_is_ended() {
    let json = r#"{"path": "/r", "count": 1, "max_response": "160B"}"#;
    for (last, delivered) in [("2:2/0/64 [32]", 1), ("2:2/0/64 [33]", 0), ("2:2/1/64 [64]", 0)] {
        let mut ladder = Ladder::start(json);
        ladder.play(&format!(
            "> CON 0 GET /r
             < ACK 0 2.05 2:0/1/64 [64]
             > CON 1 GET /r 2:1/0/64
             < ACK 1 2.05 2:1/1/64 [64]
             > CON 2 GET /r 2:2/0/64
             < ACK 2 2.05 {last}"
        ));
        assert_eq!(
            (ladder.delivered(), ladder.failures(Failure::Protocol)),
            (delivered, 1 - delivered),
            "{last}"
        );
    }
    // block numbers end before the bytes do
    let json = r#"{"path": "/r", "count": 1, "block_size": "16B", "max_response": "1GiB"}"#;
    let mut ladder = Ladder::start(json);
    ladder.play("> CON 0 GET /r 2:0/0/16\n < ACK 0 2.05 2:0/1/16 [16]\n > CON 1 GET /r 2:1/0/16");
    ladder.bench.model.exchanges[0].offset = Block::NUMBER_MAX << 4;
    ladder.play(&format!("< ACK 1 2.05 2:{}/1/16 [16]", Block::NUMBER_MAX));
    assert_eq!(ladder.example(), "more blocks than there are numbers for");
}
