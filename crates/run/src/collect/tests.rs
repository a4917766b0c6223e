use super::*;
use crate::FailureExample;
use crate::Trial;
use crate::answer_times::{AnswerTimes, Concurrency};
use crate::result::StallResult;
use crate::stalls::Stalls;
use protocol::cause::{Cause, Detail};
use protocol::meter::Failure;

/// For workers that begin a run of 2 s in the measure phase and 1 s of draining.
fn collector(workers: u16) -> Collector {
    let text = r#"{"name": "t", "phases": {"warmup": "0s", "measure": "2s", "drain": "1s"}, "groups": [
        {"name": "g", "target": "udp://127.0.0.1:9", "model": {"stream": {"echo": false}}}]}"#;
    let plan = Plan::new(profile::load(text).expect("good"), &Trial::default()).expect("a plan");
    let control = Control::new(0, 2_000_000_000, 1_000_000_000, 1_000_000_000);
    Collector::new(Arc::new(plan), Arc::new(control), (0..workers).collect())
}

/// One message, sent by `worker` between these, milliseconds.
fn sample(worker: usize, from: u64, until: u64) -> Sample {
    let time = |ms: u64| Time(ms * 1_000_000);
    let mut tallies = [(); 3].map(|()| Tally::new(1));
    tallies[Phase::Measure as usize].counts.messages_sent = 1;
    Sample {
        worker,
        from: time(from),
        until: time(until),
        phase: if from < 2000 { Phase::Measure } else { Phase::Drain },
        groups: vec![tallies],
        active: vec![0],
        stalls: vec![Stalls {
            time: 500_000_000,
            longest: until * 1_000_000,
            waiting: 1,
            ..Stalls::default()
        }],
        ran: 0,
        waited: 0,
        took: time(until - from).0,
        pauses: None,
        addresses: Vec::new(),
        examples: Vec::new(),
        ports: Interfaces::new(),
        elements: Vec::new(),
        last: None,
        devices: None,
    }
}

fn last(worker: usize, from: u64, until: u64) -> Sample {
    Sample { last: Some(Ok(())), ..sample(worker, from, until) }
}

fn after(samples: impl IntoIterator<Item = Sample>) -> Collector {
    let mut collector = collector(2);
    for sample in samples {
        collector.take(sample);
    }
    collector
}

fn finish(collector: Collector) -> TrialResult {
    let header = TrialHeader {
        run: String::new(),
        transport: "",
        started: String::new(),
        stopped: None,
        ports: vec![],
    };
    collector.finish(header).0
}

/// End, length and messages sent of each point.
fn series(samples: impl IntoIterator<Item = Sample>) -> Vec<(f64, f64, u64)> {
    let mut collector = collector(2);
    let mut given = 0;
    for sample in samples {
        given += collector.take(sample).len();
    }
    let result = finish(collector);
    assert_eq!(given, result.series.len(), "every point is given once");
    let point = |p: &SeriesPoint| (p.t, p.dt, p.groups["g"].counts["messages_sent"].as_u64().unwrap_or(0));
    result.series.iter().map(point).collect()
}

#[test]
fn a_servers_words_are_shown_and_not_done() {
    let text = "\x1b[2Jgone".to_owned();
    let told = vec![FailureExample { group: 0, cause: Failure::Timeout.into(), text }];
    let collector = after([Sample { examples: told, ..sample(0, 0, 1000) }]);
    let example = collector.groups[0].example(Failure::Timeout);
    assert_eq!(example.as_deref(), Some("\\u{1b}[2Jgone"));
}

#[test]
fn causes_are_told_apart_by_phase_with_an_example_of_each() {
    let status = |code| Cause { kind: Failure::Rejected, detail: Detail::Status(code) };
    let failing = |worker: usize, from: u64, phase: Phase, causes: &[(Cause, u64)]| {
        let mut one = sample(worker, from, from + 1000);
        for (cause, times) in causes {
            one.groups[0][phase as usize].failed(*cause, *times);
            let text = format!("status of {}", cause.detail);
            one.examples.push(FailureExample { group: 0, cause: *cause, text });
        }
        one
    };
    let collector = after([
        failing(0, 0, Phase::Warmup, &[(status(503), 5)]),
        failing(1, 0, Phase::Measure, &[(status(404), 100), (Failure::Refused.into(), 2)]),
        failing(0, 1000, Phase::Measure, &[(status(404), 18), (status(503), 2)]),
        last(0, 2000, 2100),
        last(1, 1000, 2100),
    ]);
    let result = finish(collector);
    let point = serde_json::to_value(&result.series[0].groups["g"]).expect("plain");
    assert_eq!(point["causes"], serde_json::json!({"rejected": {"404": 100, "503": 5}}));
    let errors = serde_json::to_value(&result.groups[0].errors).expect("plain");
    assert_eq!(
        errors,
        serde_json::json!([
            {"kind": "refused", "count": 2, "total": 2, "example": "status of ", "causes": [], "other": 0},
            {"kind": "rejected", "count": 120, "total": 125, "example": "status of 503", "other": 0, "causes": [
                {"cause": "404", "count": 118, "total": 118, "example": "status of 404"},
                {"cause": "503", "count": 2, "total": 7, "example": "status of 503"},
            ]},
        ])
    );
}

#[test]
fn a_point_is_there_when_the_slowest_has_reported() {
    let samples = [sample(0, 0, 1000), sample(0, 1000, 2000), sample(1, 0, 1000), sample(1, 1000, 2000)];
    assert_eq!(series(samples), [(1.0, 1.0, 2), (2.0, 1.0, 2)]);
}

#[test]
fn one_that_leaves_early_strands_no_sample_of_the_others() {
    let one = || vec![sample(0, 0, 1000), sample(0, 1000, 2000), last(0, 2000, 2400)];
    let other = || vec![sample(1, 0, 1000), last(1, 1000, 1300)];
    let expected = [(1.0, 1.0, 2), (2.0, 1.0, 2), (2.4, 2.4 - 2.0, 1)];
    for samples in [one().into_iter().chain(other()), other().into_iter().chain(one())] {
        let seen = series(samples);
        assert_eq!(seen.len(), expected.len(), "{seen:?}");
        for (seen, expected) in seen.iter().zip(&expected) {
            assert!((seen.0 - expected.0).abs() + (seen.1 - expected.1).abs() < 1e-9, "{seen:?}");
            assert_eq!(seen.2, expected.2);
        }
    }
}

#[test]
fn stalls_add_up_over_workers() {
    let of = |model: &str| {
        let text = format!(
            r#"{{"name": "t", "phases": {{"warmup": "0s", "measure": "2s", "drain": "1s"}}, "groups": [
            {{"name": "g", "target": "udp://127.0.0.1:9", "devices": 4, "stall": "300ms", "model": {model}}}]}}"#
        );
        let plan = Plan::new(profile::load(&text).expect("good"), &Trial::default()).expect("a plan");
        let control = Control::new(0, 2_000_000_000, 1_000_000_000, 1_000_000_000);
        let mut collector = Collector::new(Arc::new(plan), Arc::new(control), vec![0, 1]);
        for sample in [sample(0, 0, 2000), sample(1, 0, 2000), last(0, 2000, 2100), last(1, 2000, 2400)] {
            collector.take(sample);
        }
        let result = finish(collector);
        (result.groups[0].stalls, result.series.iter().map(|p| p.groups["g"].waiting).collect::<Vec<_>>())
    };
    let (stalls, waiting) = of(r#"{"stream": {"echo": true}}"#);
    // four times 0.5 s of the 8 s that four devices had; two of them waited when the measure phase ended
    let expected = StallResult {
        limit: 300_000_000,
        time: 2.0,
        share: 0.25,
        longest: 2_400_000_000,
        busy: 0.0,
        waiting: 0.5,
    };
    assert_eq!((stalls, &waiting[..]), (Some(expected), &[Some(2), Some(2)][..]));
    let (stalls, waiting) = of(r#"{"stream": {"echo": false}}"#);
    assert_eq!((stalls, &waiting[..]), (None, &[None, None][..]), "nothing to wait for");
}

#[test]
fn what_a_port_did_not_send_makes_the_result_invalid() {
    let mut collector =
        after([sample(0, 0, 2000), sample(1, 0, 2000), last(0, 2000, 2100), last(1, 2000, 2100)]);
    collector
        .ports
        .insert("a".into(), interfaces::Interface { tx_dropped: 3, tx_errors: 9, ..Default::default() });
    let result = finish(collector);
    let reason = &result.validity.reasons[0];
    assert_eq!((reason.code, reason.value), ("ND-90-04", 3.0));
    assert!(reason.what.contains("3 frames refused by the driver of port a"), "{}", reason.what);
}

#[test]
fn what_the_stacks_of_a_port_counted_is_the_sum_over_its_workers() {
    let port = |rx_packets, retransmitted: u64| interfaces::Interface {
        rx_packets,
        stack: [("tcp_retransmitted".to_owned(), retransmitted)].into(),
        ..Default::default()
    };
    let with = |sample: Sample, port| Sample { ports: [("a".to_owned(), port)].into(), ..sample };
    let collector = after([
        with(sample(0, 0, 1000), port(10, 3)),
        with(sample(1, 0, 1000), port(10, 4)),
        with(sample(0, 1000, 2000), port(25, 5)),
        with(sample(1, 1000, 2000), port(25, 4)),
        with(last(0, 2000, 2100), port(26, 5)),
        with(last(1, 2000, 2100), port(26, 6)),
    ]);
    let result = finish(collector);
    let of =
        |interfaces: &Interfaces| (interfaces["a"].rx_packets, interfaces["a"].stack["tcp_retransmitted"]);
    assert_eq!(of(&result.interfaces), (26, 11));
    let points: Vec<_> = result.series.iter().map(|point| of(&point.interfaces)).collect();
    assert_eq!(points.iter().map(|point| point.1).sum::<u64>(), 11, "{points:?}");
    let json = serde_json::to_value(&result.interfaces["a"]).expect("JSON");
    assert_eq!((&json["rx_packets"], &json["tcp_retransmitted"]), (&26.into(), &11.into()));
}

#[test]
fn a_lost_worker_makes_the_result_invalid() {
    let reasons = |result: &TrialResult| result.validity.reasons.iter().map(|r| r.code).collect::<Vec<_>>();
    let whole = || [sample(0, 0, 2000), last(0, 2000, 2100), sample(1, 0, 2000)];
    let good = after(whole().into_iter().chain([last(1, 2000, 2100)]));
    assert!(good.is_done());
    assert_eq!(reasons(&finish(good)), [""; 0]);

    // with a reason
    let why = SetupError::new("ND-92-05", "epoll", "bad file descriptor", "Say so");
    let told = Sample { last: Some(Err(why.clone())), ..last(1, 2000, 2100) };
    let result = finish(after(whole().into_iter().chain([told])));
    assert_eq!((reasons(&result), result.stopped), (vec!["ND-90-06"], Some("failed")));
    assert_eq!(result.error, Some(why));

    // without a word
    let silent = after(whole());
    assert!(!silent.is_done());
    let result = finish(silent);
    assert_eq!(reasons(&result), ["ND-90-06"]);
    assert!(result.validity.reasons[0].what.starts_with("worker 1 was lost 2.0 s into the run"));
    assert_eq!(result.series.len(), 2, "what the other told after it is shown");
    assert_eq!(result.groups[0].total["messages_sent"], 3, "what it told before counts");
}

#[test]
fn pauses_of_the_measure_phase_add_up() {
    let paused = |ns: u64| {
        let mut pauses = Pauses { from_ns: 100_000, longest_ns: ns, ..Pauses::default() };
        (pauses.count[0], pauses.ns[0]) = (1, ns);
        Some((pauses, Pauses::default()))
    };
    let with = |sample: Sample, ns| Sample { pauses: paused(ns), ..sample };
    let samples = [
        with(sample(0, 0, 1000), 150_000),
        sample(1, 0, 1000),
        with(sample(0, 1000, 2000), 120_000),
        sample(1, 1000, 2000),
        with(last(0, 2000, 2100), 190_000),
        last(1, 2000, 2100),
    ];
    let result = finish(after(samples));
    let (pauses, long_turns) = (result.workers[0].pauses.unwrap(), result.workers[0].long_turns.unwrap());
    assert_eq!((pauses.count[0], pauses.ns[0], pauses.longest_ns), (2, 270_000, 150_000));
    assert_eq!(long_turns, Pauses::default());
    assert_eq!(result.workers[1].pauses, None, "one that does not poll tells none");
    let points: Vec<_> =
        result.series.iter().map(|point| point.workers[0].pauses.map(|one| one.ns[0])).collect();
    assert_eq!(points, [Some(150_000), Some(120_000), Some(190_000)]);
}

/// The reasons of a run of 4 devices that offered a quarter of what was intended, after `change` to each of its samples.
fn short_of(group: &str, change: impl Fn(&mut Sample)) -> Vec<(&'static str, String)> {
    let text = format!(
        r#"{{"name": "t", "phases": {{"warmup": "0s", "measure": "2s", "drain": "1s"}},
            "groups": [{{"name": "g", "devices": 4, {group}}}]}}"#
    );
    let plan = Plan::new(profile::load(&text).expect("good"), &Trial::default()).expect("a plan");
    let control = Control::new(0, 2_000_000_000, 1_000_000_000, 1_000_000_000);
    let mut collector = Collector::new(Arc::new(plan), Arc::new(control), vec![0, 1]);
    for mut sample in [sample(0, 0, 2000), sample(1, 0, 2000), last(0, 2000, 2100), last(1, 2000, 2100)] {
        change(&mut sample);
        collector.take(sample);
    }
    finish(collector).validity.reasons.into_iter().map(|reason| (reason.code, reason.what)).collect()
}

/// Of each sample: what was intended, offered, and answered.
fn counted(sample: &mut Sample, flows: bool, [intended, offered, answered]: [u64; 3]) {
    let counts = &mut sample.groups[0][Phase::Measure as usize].counts;
    if flows {
        (counts.flows_intended, counts.flows_started) = (intended, offered);
    } else {
        (counts.messages_intended, counts.messages_sent) = (intended, offered);
    }
    counts.messages_delivered = answered;
}

const OPEN: &str = r#""target": "http://127.0.0.1:9", "model": {"http": {"requests": 1}}, "load": {"open": {"rate": "10/s"}}"#;
const ECHO: &str = r#""target": "udp://127.0.0.1:9", "model": {"stream": {"echo": true}}"#;

#[test]
fn an_open_loop_out_of_devices_says_what_they_carry() {
    // 40 of each 2 s intended; 10 started by the two samples of the measure phase: 4 devices / 5/s = 800 ms each
    let of = |active: u32, ran: u64| {
        short_of(OPEN, |sample| {
            counted(sample, true, [10, 5, 5]);
            (sample.active, sample.ran) = (vec![active], ran);
        })
    };
    let [(code, what)] = &of(2, 0)[..] else { panic!("one reason") };
    assert_eq!(*code, "ND-90-08");
    let expected = "; all 4 devices were waiting for replies: 4 × 800 ms = 5/s of 20/s";
    assert!(what.starts_with("20 of 40 intended flows started (−50.0 %)"), "{what}");
    assert!(what.ends_with(expected), "{what}");
    let [(code, what)] = &of(1, 0)[..] else { panic!("one reason") };
    assert_eq!(
        (*code, what.contains("devices")),
        ("ND-90-01", false),
        "two were free: the generator had no time"
    );
    let [(code, what)] = &of(2, 2_000_000_000)[..] else { panic!("one reason") };
    assert_eq!(
        (*code, what.contains("devices")),
        ("ND-90-01", false),
        "a worker at its limit reads answers late"
    );
}

#[test]
fn connections_that_never_rest_limit_messages_by_littles_law() {
    // two samples of 1 message each in 2 s: 4 devices / 1/s = 4 s per message
    let of = |longest: u64| {
        short_of(ECHO, |sample| {
            counted(sample, false, [10, 1, 1]);
            sample.stalls = vec![Stalls { time: 0, longest, waiting: 0, ..Stalls::default() }];
        })
    };
    let [(code, what)] = &of(4_000_000_000)[..] else { panic!("one reason") };
    assert_eq!(*code, "ND-90-08");
    assert!(what.ends_with("; all 4 devices were waiting for replies: 4 × 4000 ms = 1/s of 20/s"), "{what}");
    let [(code, _)] = &of(2_000_000_000)[..] else { panic!("one reason") };
    assert_eq!(*code, "ND-90-01", "no wait was as long: connections rested");
}

#[test]
fn messages_that_stalled_devices_did_not_send_are_the_servers_doing() {
    let of = |group: &str, time: u64, ran: u64| {
        let found = short_of(group, |sample| {
            counted(sample, false, [10, 1, 1]);
            sample.stalls = vec![Stalls { time, longest: 4_000_000_000, waiting: 1, ..Stalls::default() }];
            sample.ran = ran;
        });
        found.into_iter().map(|(code, _)| code).collect::<Vec<_>>()
    };
    assert_eq!(
        of(ECHO, 1_900_000_000, 0),
        [""; 0],
        "95 % of 8 s of device time: a result, and no fault of ours"
    );
    assert_eq!(of(ECHO, 900_000_000, 0), ["ND-90-08"], "45 % do not explain 95 % that are missing");
    assert_eq!(of(ECHO, 1_900_000_000, 2_000_000_000), ["ND-90-01"], "a worker at its limit");
    let one_way = ECHO.replace("true", "false");
    assert_eq!(of(&one_way, 1_900_000_000, 0), ["ND-90-01"], "nothing to wait for");
}

#[test]
fn connections_that_would_do_if_answers_took_no_longer_under_load_do_not_make_a_run_invalid() {
    // 4 devices of two workers: 2 of 20 messages sent, with 4 s for each answer
    let of = |few_ms: u64, ran: u64| {
        let found = short_of(ECHO, |sample| {
            counted(sample, false, [10, 1, 1]);
            let mut answers = AnswerTimes::default();
            for _ in 0..4 {
                answers.record(Concurrency::of(1, 2), few_ms * 1_000_000);
                answers.record(Concurrency::of(2, 2), 4_000_000_000);
            }
            sample.stalls = vec![Stalls { longest: 4_000_000_000, answers, ..Stalls::default() }];
            sample.ran = ran;
        });
        found.into_iter().map(|(code, _)| code).collect::<Vec<_>>()
    };
    assert_eq!(of(50, 0), [""; 0], "4 / 50 ms = 80/s of 10/s: the server is too slow");
    assert_eq!(
        of(390, 0),
        ["ND-90-08"],
        "4 / 390 ms = 10.3/s: hardly enough, as answers do not all take as long"
    );
    assert_eq!(of(4_000, 0), ["ND-90-08"], "the server takes its time, however few wait");
    assert_eq!(of(50, 2_000_000_000), ["ND-90-01"], "a worker at its limit reads answers late");
}
