use super::*;
use crate::meter::Phase;
use crate::model::FlowEnd;
use crate::testing::{Bench, assault};
use proptest::prelude::*;

fn config(json: &str, ipv6: bool) -> Arc<Config> {
    let params: Params = serde_json::from_str(json).expect(json);
    let target = Target { scheme: SCHEMES[0], host: "h".into(), port: 0, ipv6 };
    Arc::new(params.compile(&target).expect(json))
}

fn bench(json: &str) -> Bench<Device> {
    Bench::new(config(json, false).device(0))
}

/// What a host answers to each request in `sent` (RFC 1122 §3.2.2.6).
fn replies(sent: &[u8], each: usize) -> Vec<Vec<u8>> {
    let reply = |request: &[u8]| {
        let mut reply = request.to_vec();
        reply[0] = if request[0] == REQUEST_V6 { REPLY_V6 } else { REPLY_V4 };
        reply[2..4].fill(0);
        let sum = checksum(&reply);
        reply[2..4].copy_from_slice(&sum.to_be_bytes());
        reply
    };
    sent.chunks(each).map(reply).collect()
}

fn answer(bench: &mut Bench<Device>) {
    let each = bench.out.segment;
    let sent = bench.sent();
    replies(&sent, each.max(1)).iter().for_each(|reply| bench.datagram(reply));
}

#[test]
fn a_device_is_small() {
    assert!(std::mem::size_of::<Device>() <= 80, "{}", std::mem::size_of::<Device>());
}

#[test]
fn requests_look_as_the_rfcs_have_them() {
    let mut v4 = bench(r#"{"size": "4B"}"#);
    v4.start();
    assert_eq!(v4.out.segment, 12);
    assert_eq!(v4.sent(), [8, 0, 0xf5, 0xfb, 0, 0, 0, 0, 0, 1, 2, 3]);
    let mut v6 = Bench::new(config(r#"{"size": "20B"}"#, true).device(0));
    v6.start();
    let sent = v6.sent();
    assert_eq!((sent.len(), &sent[..8], &sent[26..]), (28, &[128, 0, 0, 0, 0, 0, 0, 0][..], &[18, 19][..]));
    assert!(Signature::parse(&sent[8..]).is_some());
    // the example of RFC 1071 §3
    assert_eq!(checksum(&[0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7]), !0xddf2);
    assert_eq!(checksum(&[1]), !0x0100);
}

#[test]
fn replies_give_the_round_trip() {
    for (json, ipv6) in [(r#"{"count": 3}"#, false), (r#"{"count": 3, "size": "0B"}"#, true)] {
        let mut ping = Bench::new(config(json, ipv6).device(0));
        ping.start();
        for i in 0..3 {
            ping.run_to_ms(1000 * i + 20);
            answer(&mut ping);
        }
        assert_eq!(ping.end, Some(FlowEnd::Completed));
        assert_eq!(ping.delay(ROUND_TRIP), (3, 20));
        assert_eq!(ping.measured().messages_delivered, 3);
        assert_eq!(ping.measured().bytes_sent, ping.measured().bytes_received);
    }
}

#[test]
fn what_does_not_come_back_is_lost_and_what_comes_late_too() {
    let mut ping = bench(r#"{"count": 2, "interval": "100ms", "timeout": "300ms"}"#);
    ping.start();
    let first = ping.sent();
    ping.run_to_ms(299);
    assert_eq!(ping.failures(Failure::Unanswered), 0);
    ping.run_to_ms(300);
    assert_eq!(ping.failures(Failure::Unanswered), 1);
    ping.datagram(&replies(&first, 64)[0]);
    assert_eq!((ping.measured().messages_delivered, ping.measured().messages_received), (0, 1));
    ping.run_to_ms(400);
    assert_eq!((ping.failures(Failure::Unanswered), ping.end), (2, Some(FlowEnd::Completed)));
}

#[test]
fn an_echo_that_nothing_comes_of_is_lost_in_the_phase_it_was_due_in() {
    let mut ping = bench(r#"{"interval": "1s", "timeout": "1h"}"#);
    ping.window.measure = Time(1_500_000_000);
    ping.start();
    ping.run_to_ms(4_500);
    ping.abandon();
    let unanswered = |phase| ping.counts(phase).failures[Failure::Unanswered as usize];
    assert_eq!((unanswered(Phase::Warmup), unanswered(Phase::Measure)), (2, 3));
    // a socket that breaks is counted once, for the oldest
    let mut broken = bench(r#"{"interval": "1s", "timeout": "1h"}"#);
    broken.start();
    broken.run_to_ms(2_500);
    broken.closed(Failure::Local);
    assert_eq!((broken.end, broken.failures(Failure::Unanswered)), (Some(FlowEnd::Failed), 2));
}

#[test]
fn it_waits_from_the_first_echo_after_the_last_reply() {
    let mut ping = bench(r#"{"interval": "100ms", "timeout": "1s"}"#);
    ping.start();
    answer(&mut ping);
    assert_eq!(ping.model.waiting_since(), Time::NEVER);
    ping.run_to_ms(350);
    assert_eq!(ping.model.waiting_since(), Time(100_000_000));
    // one of the three is lost
    let sent = ping.sent();
    ping.datagram(&replies(&sent[64..128], 64)[0]);
    assert_eq!(ping.model.waiting_since(), Time(350_000_000));
    ping.run_to_ms(5_000);
    assert_eq!(ping.model.waiting_since(), Time(350_000_000), "echoes go on, and none is answered");
    // what is given up before the next is sent is not waited for
    let mut slow = bench(r#"{"interval": "5s", "timeout": "1s"}"#);
    slow.start();
    slow.run_to_ms(999);
    assert_eq!(slow.model.waiting_since(), Time::ZERO);
    slow.run_to_ms(1_000);
    assert_eq!(slow.model.waiting_since(), Time::NEVER);
}

#[test]
fn a_second_reply_is_a_duplicate() {
    let mut ping = bench("{}");
    ping.start();
    let reply = replies(&ping.sent(), 64).remove(0);
    ping.datagram(&reply);
    ping.datagram(&reply);
    assert_eq!((ping.measured().messages_delivered, ping.measured().duplicates), (1, 1));
}

#[test]
fn without_interval_the_next_follows_the_reply_or_its_loss() {
    let mut ping = bench(r#"{"interval": "0s", "timeout": "1s"}"#);
    ping.start();
    for _ in 0..1000 {
        answer(&mut ping);
    }
    assert_eq!(ping.measured().messages_delivered, 1000);
    assert!(ping.model.echoes.len() <= REMEMBERED + 1, "memory is bounded");
    ping.sent();
    ping.run_to_ms(1500);
    assert_eq!((ping.failures(Failure::Unanswered), ping.measured().messages_sent), (1, 1002));
}

#[test]
fn sequence_numbers_wrap() {
    let mut ping = bench(r#"{"interval": "1us", "timeout": "1ms", "size": "18B"}"#);
    ping.start();
    for us in 1..70_000 {
        answer(&mut ping);
        ping.run_to(Time(us * 1000));
    }
    assert_eq!(ping.measured().messages_delivered, 69_999);
    assert_eq!(ping.examples, [""; 0]);
}

#[test]
fn what_is_not_our_reply_is_told() {
    let mut ping = bench("{}");
    ping.start();
    let reply = replies(&ping.sent(), 64).remove(0);
    let changed = |at: usize, fix: bool| {
        let mut bytes = reply.clone();
        bytes[at] ^= 1;
        if fix {
            bytes[2..4].fill(0);
            let sum = checksum(&bytes);
            bytes[2..4].copy_from_slice(&sum.to_be_bytes());
        }
        bytes
    };
    for (bytes, what) in [
        (reply[..7].to_vec(), "an ICMP message shorter than its header"),
        (changed(40, false), "an ICMP message with a wrong checksum"),
        (changed(40, true), "a reply with another payload than the request"),
        (changed(11, true), "a reply with another payload than the request"),
        (changed(7, true), "a reply to no request"),
    ] {
        ping.datagram(&bytes);
        assert_eq!(ping.examples.pop().as_deref(), Some(what));
    }
    assert_eq!((ping.measured().corrupted, ping.end), (5, None), "the flow goes on");
    assert_eq!(ping.measured().failures, <[u64; Failure::ALL.len()]>::default());
    ping.datagram(&changed(0, true));
    ping.datagram(&reply);
    assert_eq!(ping.measured().messages_delivered, 1);
}

#[test]
fn an_icmp_error_ends_the_wait_for_its_echo() {
    let mut ping = bench(r#"{"count": 1}"#);
    ping.start();
    let request = ping.sent();
    let mut error = vec![UNREACHABLE_V4, 1, 0, 0, 0, 0, 0, 0, 0x45];
    error.resize(28, 0);
    error.extend_from_slice(&request[..8]);
    let sum = checksum(&error);
    error[2..4].copy_from_slice(&sum.to_be_bytes());
    ping.datagram(&error);
    assert_eq!((ping.failures(Failure::Unreachable), ping.end), (1, Some(FlowEnd::Completed)));
    // told by the socket instead: the next echo is tried when it is due
    let mut ping = bench(r#"{"count": 2}"#);
    ping.start();
    ping.closed(Failure::Unreachable);
    ping.sent();
    ping.run_to_ms(1000);
    answer(&mut ping);
    assert_eq!((ping.measured().messages_delivered, ping.end), (1, Some(FlowEnd::Completed)));
    let mut denied = bench("{}");
    denied.start();
    denied.closed(Failure::Local);
    assert_eq!(denied.end, Some(FlowEnd::Failed));
}

#[test]
fn stop_waits_for_replies() {
    let mut ping = bench(r#"{"interval": "10ms"}"#);
    ping.window.drain = Time(15_000_000);
    ping.start();
    ping.run_to_ms(15);
    ping.stop();
    assert_eq!(ping.end, None);
    answer(&mut ping);
    assert_eq!(ping.end, Some(FlowEnd::Completed));
    assert_eq!((ping.measured().messages_intended, ping.counts(Phase::Drain).messages_intended), (2, 0));
}

#[test]
fn wrong_parameters_are_explained() {
    let problem = |json: &str| {
        let params: Params = serde_json::from_str(json).expect(json);
        params.check().expect_err(json).to_string()
    };
    assert!(problem(r#"{"size": "65508B"}"#).starts_with("size"));
    assert!(problem(r#"{"timeout": "0s"}"#).starts_with("timeout"));
    assert!(problem(r#"{"interval": "1us", "timeout": "32768us"}"#).contains("32768 echoes"));
    config(r#"{"interval": "1us", "timeout": "32767us", "size": "65507B"}"#, false);
}

proptest! {
    /// A router that changes a byte may update the checksum, too.
    #[test]
    fn no_bit_of_the_payload_can_change_unseen(
        size in 0u32..200, bit: prop::sample::Index, ipv6: bool, fix: bool, asked in 0u64..3,
    ) {
        let mut ping = Bench::new(config(&format!(r#"{{"size": "{size}B"}}"#), ipv6).device(0));
        ping.start();
        for second in 1..=asked {
            answer(&mut ping);
            ping.run_to_ms(1000 * second);
        }
        let reply = replies(&ping.sent(), HEADER + size as usize).remove(0);
        if size > 0 {
            let bit = bit.index(8 * size as usize);
            let mut changed = reply.clone();
            changed[HEADER + bit / 8] ^= 1 << (bit % 8);
            if fix {
                changed[2..4].fill(0);
                let sum = checksum(&changed);
                changed[2..4].copy_from_slice(&sum.to_be_bytes());
            }
            ping.datagram(&changed);
            prop_assert_eq!((ping.measured().messages_delivered, ping.measured().corrupted), (asked, 1));
            prop_assert_eq!(ping.measured().duplicates, 0);
        }
        ping.datagram(&reply);
        prop_assert_eq!(ping.measured().messages_delivered, asked + 1);
    }

    #[test]
    fn nothing_that_comes_breaks_a_device(
        data in prop::collection::vec(any::<u8>(), 0..300), size in 0u32..40, ipv6: bool, interval in 0u32..3,
    ) {
        let json = format!(r#"{{"size": "{size}B", "interval": "{interval}ms", "timeout": "5ms"}}"#);
        assault(config(&json, ipv6).device(0), &data, usize::MAX);
    }
}
