use super::*;
use crate::meter::Phase;
use crate::model::FlowEnd;
use crate::testing::{Bench, assault};
use proptest::prelude::*;

fn config(json: &str) -> Arc<Config> {
    let params: Params = serde_json::from_str(json).expect(json);
    let target = Target { scheme: SCHEMES[0], host: "h".into(), port: 9, ipv6: false };
    Arc::new(params.compile(&target).expect(json))
}

fn bench(json: &str) -> Bench<Device> {
    Bench::new(config(json).device(0))
}

/// The datagrams sent since the last time.
fn datagrams(bench: &mut Bench<Device>) -> Vec<Vec<u8>> {
    let segment = bench.out.segment.max(1);
    bench.sent().chunks(segment).map(<[u8]>::to_vec).collect()
}

#[test]
fn a_device_is_small() {
    assert!(std::mem::size_of::<Device>() <= 64, "{}", std::mem::size_of::<Device>());
}

#[test]
fn datagrams_carry_number_and_intended_time() {
    let mut stream = bench(r#"{"size": "20B", "rate": "1000/s", "count": 3}"#);
    stream.start();
    stream.now = Time(1_500_000);
    stream.call(|device, cx| device.timer(cx));
    let sent = datagrams(&mut stream);
    assert_eq!(sent.len(), 2);
    let mark = Signature { stream: 0, sequence: 1, sent_ns: 1_000_000 };
    assert_eq!(Signature::parse(&sent[1]), Some(mark));
    assert_eq!(&sent[1][18..], [18, 19]);
    assert_eq!(stream.wake, Time(2_000_000));
}

#[test]
fn reflected_datagrams_are_delivered_and_the_flow_ends_with_the_last() {
    let mut stream = bench(r#"{"interval": "1ms", "count": 5}"#);
    stream.start();
    for ms in 0..5 {
        stream.run_to_ms(ms);
        let sent = datagrams(&mut stream);
        stream.now = Time(ms * 1_000_000 + 300_000);
        sent.iter().for_each(|bytes| stream.datagram(bytes));
    }
    assert_eq!(stream.end, Some(FlowEnd::Completed));
    assert_eq!((stream.measured().messages_delivered, stream.tally.delay_max), (5, 300_000));
}

#[test]
fn order_duplicates_and_loss_are_told_apart() {
    let mut stream = bench(r#"{"interval": "1ms", "burst": 8, "count": 8, "timeout": "100ms"}"#);
    stream.start();
    let sent = datagrams(&mut stream);
    assert_eq!(sent.len(), 8);
    // RFC 4737 §3: 1 and 3 came after a higher one; 6 is lost
    for i in [0, 2, 1, 2, 5, 3, 4, 4, 7] {
        stream.datagram(&sent[i]);
    }
    let counts = stream.measured();
    assert_eq!((counts.messages_delivered, counts.duplicates, counts.reordered), (7, 2, 3));
    assert_eq!((stream.tally.duplicates, stream.tally.reordered), (2, 3));
    // RFC 4737 §4.2: one, one and two places late
    let extent = stream.tally_of(Phase::Measure).reordering().expect("there is some").extent.clone();
    assert_eq!((extent.len(), extent.max(), extent.count_at(1)), (3, 2, 2));
    stream.run_to_ms(99);
    assert_eq!(stream.end, None);
    stream.run_to_ms(100);
    assert_eq!(stream.end, Some(FlowEnd::Completed));
}

#[test]
fn it_waits_from_the_first_datagram_after_the_last_that_came_back() {
    let mut stream = bench(r#"{"interval": "10ms", "timeout": "1s"}"#);
    stream.start();
    let first = datagrams(&mut stream);
    assert_eq!(stream.model.waiting_since(), Time::ZERO);
    stream.datagram(&first[0]);
    assert_eq!(stream.model.waiting_since(), Time::NEVER);
    stream.run_to_ms(15);
    assert_eq!(stream.model.waiting_since(), Time(10_000_000));
    stream.run_to_ms(25);
    let sent = datagrams(&mut stream);
    // the first of the two is lost and not waited for
    stream.datagram(&sent[1]);
    assert_eq!(stream.model.waiting_since(), Time::NEVER);
    stream.run_to_ms(9_000);
    assert_eq!(stream.model.waiting_since(), Time(30_000_000));
    for silent in [r#"{"interval": "2s", "timeout": "1s"}"#, r#"{"echo": false}"#] {
        let mut stream = bench(silent);
        stream.start();
        assert_eq!(stream.model.waiting_since(), Time::NEVER, "{silent}");
    }
}

#[test]
fn places_and_losses_are_told_when_the_flow_ends() {
    let mut stream = bench(r#"{"interval": "1ms", "burst": 10, "count": 10, "timeout": "100ms"}"#);
    stream.start();
    let sent = datagrams(&mut stream);
    // 2 and 3 are lost, 5 is late by one, and so is the end lost: 8 and 9
    for i in [0, 1, 4, 6, 5, 7] {
        stream.datagram(&sent[i]);
    }
    stream.run_to_ms(100);
    assert_eq!(stream.end, Some(FlowEnd::Completed));
    let order = stream.tally_of(Phase::Measure).reordering().expect("there is some");
    assert_eq!((order.densities.early[0], order.densities.late[0]), (1, 1));
    assert_eq!(order.densities.waiting[..5], [1, 1, 1, 1, 0], "for the two that were lost");
    assert_eq!((order.losses.lengths.len(), order.losses.lost(), order.losses.between.max()), (2, 4, 5));
    let seen = crate::reordering::Pattern { loss_periods: 2, longest_loss: 2, furthest: 1, most_waiting: 4 };
    assert_eq!(stream.tally.pattern, seen);
}

#[test]
fn what_was_lost_in_the_warm_up_is_in_no_pattern() {
    let lost = |measure_ms: u64| {
        let mut stream = bench(r#"{"interval": "1ms", "count": 10, "timeout": "100ms"}"#);
        stream.window.measure = Time(measure_ms * 1_000_000);
        stream.start();
        for ms in 0..10 {
            stream.run_to_ms(ms);
            let sent = datagrams(&mut stream);
            sent.iter().filter(|_| ms < 4).for_each(|bytes| stream.datagram(bytes));
        }
        stream.run_to_ms(200);
        assert_eq!(stream.end, Some(FlowEnd::Completed));
        let of = |phase| stream.tally_of(phase).reordering().map_or(0, |order| order.losses.lost());
        (of(Phase::Warmup), of(Phase::Measure))
    };
    assert_eq!([0, 7, 9].map(lost), [(0, 6), (0, 3), (0, 1)], "from the first that is measured on");
    assert_eq!(lost(10), (0, 0), "the flow was over before");
}

#[test]
fn delays_vary_from_message_to_message() {
    let mut stream = bench(r#"{"interval": "1ms", "count": 4}"#);
    stream.start();
    for (number, ns) in (0..).zip([300_000, 500_000, 100_000, 100_000]) {
        stream.run_to_ms(number);
        let sent = datagrams(&mut stream);
        stream.now = Time(number * 1_000_000 + ns);
        sent.iter().for_each(|bytes| stream.datagram(bytes));
    }
    let ipdv = &stream.tally_of(Phase::Measure).variation[ROUND_TRIP];
    let (mean, ipdv) = (ipdv.mean(), ipdv.distribution());
    let at = |ns: u64| ipdv.count_at(ns);
    assert_eq!(mean, Some(200_000.0));
    assert_eq!((ipdv.len(), at(0), at(200_000), at(400_000)), (3, 1, 1, 1));
}

#[test]
fn one_way_is_only_sent() {
    let mut stream = bench(r#"{"echo": false, "count": 100, "rate": "1M/s", "burst": 100}"#);
    stream.start();
    assert_eq!(datagrams(&mut stream).len(), BATCH, "no more in one send");
    stream.run_to(Time(1));
    assert_eq!(datagrams(&mut stream).len(), 100 - BATCH);
    assert_eq!((stream.end, stream.measured().messages_sent), (Some(FlowEnd::Completed), 100));
    let mut large = bench(r#"{"echo": false, "size": "9000B", "burst": 64}"#);
    large.start();
    assert_eq!(datagrams(&mut large).len(), 7, "65507 bytes in one send");
}

#[test]
fn a_late_generator_catches_up_and_says_how_late_it_was() {
    let mut stream = bench(r#"{"echo": false, "rate": "1k/s"}"#);
    stream.start();
    stream.now = Time(10_000_000);
    stream.call(|device, cx| device.timer(cx));
    assert_eq!(stream.measured().messages_sent, 11);
    let lateness = &stream.tally_of(Phase::Measure).lateness;
    assert_eq!((lateness.len(), lateness.max() / 1_000_000), (11, 9));
}

#[test]
fn bursts_keep_the_rate() {
    let mut stream = bench(r#"{"echo": false, "rate": "1k/s", "burst": 10}"#);
    stream.start();
    assert_eq!((stream.measured().messages_sent, stream.wake), (10, Time(10_000_000)));
    stream.run_to_ms(99);
    assert_eq!(stream.measured().messages_sent, 100);
}

#[test]
fn a_refused_datagram_does_not_stop_the_load() {
    let mut stream = bench(r#"{"echo": false, "rate": "1k/s"}"#);
    stream.start();
    for why in Failure::ALL {
        stream.closed(why);
    }
    stream.run_to_ms(9);
    assert_eq!((stream.end, stream.measured().messages_sent), (None, 10));
}

#[test]
fn what_is_not_as_it_was_sent_is_told() {
    let mut stream = bench(r#"{"interval": "1ms"}"#);
    stream.start();
    let sent = datagrams(&mut stream).remove(0);
    let mut time = sent.clone();
    time[17] ^= 1;
    let mut number = sent.clone();
    number[9] ^= 1;
    let mut other = sent.clone();
    other[3] ^= 1;
    for bytes in [&time[..], &number, &other, &sent[..17], &sent[..63], b""] {
        stream.datagram(bytes);
    }
    assert_eq!((stream.measured().corrupted, stream.measured().failures), (6, Default::default()));
    stream.datagram(&sent);
    assert_eq!(stream.measured().messages_delivered, 1);
    stream.now = Time(5);
    stream.start();
    stream.datagram(&sent);
    assert_eq!(stream.measured().messages_received, 1, "from the flow before");
}

#[test]
fn each_lost_datagram_is_unanswered_in_its_own_phase() {
    let mut stream = bench(r#"{"interval": "1ms", "count": 10, "timeout": "100ms"}"#);
    stream.window.measure = Time(4_000_000);
    stream.start();
    for ms in 0..10 {
        stream.run_to_ms(ms);
        let sent = datagrams(&mut stream);
        // 1, 4, 7 and what was changed of 8
        let answer = |bytes: &Vec<u8>| stream.datagram(bytes);
        sent.iter().filter(|_| ![1, 4, 7, 8].contains(&ms)).for_each(answer);
        if ms == 8 {
            let mut changed = sent[0].clone();
            changed[40] ^= 1;
            stream.datagram(&changed);
        }
    }
    stream.run_to_ms(200);
    let of = |phase| {
        let counts = stream.counts(phase);
        let unanswered = counts.failures[Failure::Unanswered as usize];
        assert_eq!(counts.messages_sent, counts.messages_delivered + unanswered);
        unanswered
    };
    assert_eq!((of(Phase::Warmup), of(Phase::Measure)), (1, 3));
    assert_eq!((stream.tally.failed, stream.measured().corrupted), (4, 1));
}

#[test]
fn what_the_transport_saw_fail_is_not_unanswered_too() {
    let mut stream = bench(r#"{"interval": "1ms", "count": 10, "timeout": "100ms"}"#);
    stream.window.measure = Time(4_000_000);
    stream.start();
    stream.run_to_ms(3);
    stream.tally.failed += 2;
    stream.closed(Failure::Refused);
    stream.run_to_ms(6);
    stream.tally.failed += 4;
    stream.abandon();
    let unanswered = |phase| stream.counts(phase).failures[Failure::Unanswered as usize];
    // four and three were sent
    assert_eq!((unanswered(Phase::Warmup), unanswered(Phase::Measure)), (1, 0));
    assert_eq!(stream.tally.failed, 7);
    stream.abandon();
    assert_eq!(stream.tally.failed, 7, "once");
}

#[test]
fn what_only_leaves_is_never_unanswered() {
    let mut stream = bench(r#"{"echo": false, "interval": "1ms"}"#);
    stream.start();
    stream.run_to_ms(9);
    stream.abandon();
    assert_eq!((stream.measured().messages_sent, stream.tally.failed), (10, 0));
}

#[test]
fn stop_counts_what_was_due() {
    let mut stream = bench(r#"{"rate": "1k/s", "echo": false, "burst": 2}"#);
    stream.window.drain = Time(10_000_000);
    stream.start();
    stream.now = Time(10_000_000);
    let behind = [0, 2_000_000, 2_000_001, 10_000_000].map(|end| stream.model.overdue(Time(end)));
    assert_eq!(behind, [0, 0, 2, 8], "due by twos, at 0, 2, … ms; the first have been sent");
    stream.stop();
    assert_eq!(stream.model.overdue(Time(10_000_000)), 0, "counted now");
    assert_eq!((stream.measured().messages_sent, stream.measured().messages_intended), (2, 10));
    assert_eq!(stream.end, Some(FlowEnd::Completed));
}

#[test]
fn wrong_parameters_are_explained() {
    let problem = |json: &str| {
        let params: Params = serde_json::from_str(json).expect(json);
        params.check().expect_err(json).to_string()
    };
    assert!(problem(r#"{"size": "17B"}"#).contains("18B"));
    assert!(problem(r#"{"size": "65508B"}"#).contains("65507B"));
    assert!(problem(r#"{"rate": "1/s", "interval": "1s"}"#).contains("one of the two"));
    assert!(problem(r#"{"rate": "0/s"}"#).starts_with("rate"));
    assert!(problem(r#"{"rate": "101M/s"}"#).contains("100M/s"));
    assert!(problem(r#"{"interval": "0s"}"#).starts_with("interval"));
    assert!(problem(r#"{"burst": 0}"#).contains("1 to 65536"));
    assert!(problem(r#"{"burst": 65537}"#).contains("1 to 65536"));
    config(r#"{"size": "18B", "rate": "100M/s", "burst": 65536}"#);
    config(r#"{"size": "65507B"}"#);
}

proptest! {
    #[test]
    fn no_bit_of_a_reply_can_change_unseen(size in 18u32..200, bit: prop::sample::Index, flow in 0usize..3) {
        let json = format!(r#"{{"interval": "1ms", "count": 2, "burst": 2, "size": "{size}B"}}"#);
        let mut stream = bench(&json);
        for _ in 0..flow {
            stream.start();
            datagrams(&mut stream).iter().for_each(|bytes| stream.datagram(bytes));
            stream.now = stream.now + Duration::from_millis(7);
        }
        stream.start();
        let sent = datagrams(&mut stream);
        let bit = bit.index(8 * size as usize);
        let mut changed = sent[1].clone();
        changed[bit / 8] ^= 1 << (bit % 8);
        stream.datagram(&changed);
        let delivered = 2 * flow as u64;
        let counts = stream.measured();
        prop_assert_eq!((counts.messages_delivered, counts.corrupted), (delivered, 1));
        prop_assert_eq!((counts.messages_received, counts.duplicates), (0, 0));
        sent.iter().for_each(|bytes| stream.datagram(bytes));
        prop_assert_eq!(stream.measured().messages_delivered, delivered + 2);
        prop_assert_eq!(stream.measured().failures, <[u64; Failure::ALL.len()]>::default());
    }

    #[test]
    fn nothing_that_comes_breaks_a_device(
        data in prop::collection::vec(any::<u8>(), 0..300), echo: bool, count in 0u32..50, burst in 1u32..9,
    ) {
        let json = format!(r#"{{"echo": {echo}, "count": {count}, "burst": {burst}, "size": "20B"}}"#);
        let (sent, known) = assault(config(&json).device(0), &data, usize::MAX);
        prop_assert!(!echo || sent <= known, "of {known} of {sent} is known what became of them");
    }
}
