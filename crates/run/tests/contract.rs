//! What every [`Transport`] keeps to: the same tests over each of them.

use ::sockets::Sockets;
use ::sockets::reflector::{Mode, Reflector};
use protocol::meter::Phase;
use protocol::time::Time;
use run::collect::{Collector, TrialHeader};
use run::flows::Flows;
use run::result::TrialResult;
use run::{Control, Plan, SetupError, Transport, Trial, cpu};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{JoinHandle, sleep};
use std::time::{Duration, Instant};
use stream::Dpdk;

/// A transport under test, and somebody at the far end who sends everything back.
trait Subject {
    /// A trial on two workers: three devices that each send `rate` datagrams and wait for them to come back.
    fn profile(&self, rate: &str) -> Value;
    /// Profiles that cannot be started here, and what is said: the code and the place.
    fn unready(&self) -> Vec<(Value, &'static str, &'static str)>;
    /// How many datagrams have reached the far end, by its own count, now that the run is over.
    fn arrived(self: Box<Self>, run: &Run) -> u64;
}

fn trial(transport: Value, target: &str, rate: &str) -> Value {
    json!({
        "name": "contract",
        // these tests count; how late a busy test machine is does not matter to them
        "validity": {"lateness_p99": "60s", "starved": 1.0, "offered": 0.1},
        "phases": {"warmup": "200ms", "measure": "500ms", "drain": "3s", "sample": "100ms"},
        "transport": transport,
        "groups": [{"name": "g", "target": target, "devices": 3, "model": {"stream": {"rate": rate}}}]
    })
}

struct Kernel {
    far: SocketAddr,
    stop: Arc<AtomicBool>,
    thread: JoinHandle<u64>,
}

impl Kernel {
    fn subject() -> Box<dyn Subject> {
        let any = "127.0.0.1:0".parse().ok();
        let mut reflector = Reflector::new(Mode::Echo, any, None).expect("a reflector");
        let far = reflector.udp_address().expect("its address");
        let stop = Arc::new(AtomicBool::new(false));
        let asked = Arc::clone(&stop);
        let thread = std::thread::spawn(move || {
            reflector.run(&asked, |_| {});
            reflector.counters().datagrams_received
        });
        Box::new(Self { far, stop, thread })
    }
}

impl Subject for Kernel {
    fn profile(&self, rate: &str) -> Value {
        let there = cpu::cores();
        trial(
            json!({"sockets": {"cores": [there[0], there[there.len() - 1]]}}),
            &format!("udp://{}", self.far),
            rate,
        )
    }

    fn unready(&self) -> Vec<(Value, &'static str, &'static str)> {
        let mut core = self.profile("1k/s");
        core["transport"]["sockets"]["cores"] = json!([999]);
        let mut source = self.profile("1k/s");
        source["groups"][0]["source"] = json!(["203.0.113.9"]);
        vec![(core, "ND-92-06", "transport.sockets.cores"), (source, "ND-92-07", "groups[0].source")]
    }

    fn arrived(self: Box<Self>, _: &Run) -> u64 {
        // what it has not read yet is in its socket
        sleep(Duration::from_millis(200));
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().expect("the reflector")
    }
}

/// Two ports, back to back.
struct Cable;

impl Cable {
    fn subject() -> Box<dyn Subject> {
        Box::new(Self)
    }
}

impl Subject for Cable {
    fn profile(&self, rate: &str) -> Value {
        let dpdk = json!({"dpdk": {
            "ports": [
                {"name": "a", "device": "pair:contract", "ip": "10.9.0.1"},
                {"name": "b", "device": "pair:contract", "ip": "10.9.0.2", "role": "reflector"}
            ],
            "placement": [{"elements": ["a.generator", "a.receiver"]}, {"elements": ["b.reflector"]}]
        }});
        trial(dpdk, "udp://10.9.0.2:7", rate)
    }

    fn unready(&self) -> Vec<(Value, &'static str, &'static str)> {
        let mut core = self.profile("1k/s");
        core["transport"]["dpdk"]["placement"][0]["core"] = json!(999);
        let mut device = self.profile("1k/s");
        device["transport"]["dpdk"] = json!({"ports": [{"name": "a", "device": "af_packet:nosuch"}]});
        vec![
            (core, "ND-92-06", "transport.dpdk.placement[0]"),
            (device, "ND-92-12", "transport.dpdk.ports[0].device"),
        ]
    }

    fn arrived(self: Box<Self>, run: &Run) -> u64 {
        let reflector = run.result.elements.iter().find(|element| element.name == "b.reflector");
        reflector.expect("the reflector's counts").packets_in
    }
}

/// A sample as it came.
struct RecordedSample {
    worker: usize,
    from: Time,
    until: Time,
    phase: Phase,
    sent: u64,
    intended: u64,
    last: bool,
}

struct Run {
    workers: usize,
    window: protocol::meter::Window,
    samples: Vec<RecordedSample>,
    result: TrialResult,
    flows: Flows,
    took: Duration,
}

impl Run {
    fn count(&self, of: &Value, name: &str) -> u64 {
        of[name].as_u64().unwrap_or_else(|| panic!("no {name} in {of}"))
    }

    fn total(&self, name: &str) -> u64 {
        self.count(&self.result.groups[0].total, name)
    }

    fn measured(&self, name: &str) -> u64 {
        self.count(&self.result.groups[0].measured, name)
    }

    fn reasons(&self) -> Vec<&str> {
        self.result.validity.reasons.iter().map(|reason| reason.code).collect()
    }
}

fn transport(profile: &profile::Profile) -> Result<Box<dyn Transport>, SetupError> {
    Ok(match &profile.transport {
        profile::Transport::Sockets(settings) => Box::new(Sockets::new(settings)?),
        profile::Transport::Dpdk(settings) => Box::new(Dpdk::new(settings, &stream::graph::kinds())?),
    })
}

/// Run it to its end; `steer` is called when it has begun.
fn start(profile: &Value, steer: impl FnOnce(&Control)) -> Result<Run, SetupError> {
    start_sampled(profile, None, steer)
}

/// Run it to its end, with a sample each so many nanoseconds instead of the profile's.
fn start_sampled(
    profile: &Value,
    sample: Option<u64>,
    steer: impl FnOnce(&Control),
) -> Result<Run, SetupError> {
    let profile = profile::load(&profile.to_string()).unwrap_or_else(|errors| panic!("{errors:#?}"));
    let transport = transport(&profile)?;
    let plan = Arc::new(Plan::new(profile, &Trial::default()).unwrap_or_else(|errors| panic!("{errors:#?}")));
    let phases = &plan.profile.phases;
    let (measure, drain) = (phases.measure.ns(), phases.drain.ns());
    let sample = sample.unwrap_or(phases.sample.ns());
    let control = Arc::new(Control::new(phases.warmup.ns(), measure, drain, sample));
    let (sender, receiver) = channel();
    let threads = transport.start(Arc::clone(&plan), Arc::clone(&control), sender)?;
    let mut collector = Collector::new(plan, Arc::clone(&control), transport.cores());
    let began = Instant::now();
    control.start_workers();
    steer(&control);
    let mut samples = Vec::new();
    // every sender is gone when every worker is
    while let Ok(sample) = receiver.recv_timeout(Duration::from_secs(30)) {
        let sum = |count: fn(&protocol::meter::Counts) -> u64| {
            sample.groups.iter().flatten().map(|tally| count(&tally.counts)).sum()
        };
        samples.push(RecordedSample {
            worker: sample.worker,
            from: sample.from,
            until: sample.until,
            phase: sample.phase,
            sent: sum(|counts| counts.messages_sent),
            intended: sum(|counts| counts.messages_intended),
            last: sample.last.is_some(),
        });
        collector.take(sample);
    }
    threads.into_iter().for_each(|thread| thread.join().expect("a worker"));
    let took = began.elapsed();
    assert!(collector.is_done(), "every worker says when it leaves");
    let header =
        TrialHeader { run: "r".into(), transport: "", started: String::new(), stopped: None, ports: vec![] };
    let (result, flows) = collector.finish(header);
    let run =
        Run { workers: transport.cores().len(), window: control.window(), samples, result, flows, took };
    adds_up(&run);
    Ok(run)
}

fn run(profile: &Value) -> Run {
    start(profile, |_| ()).unwrap_or_else(|why| panic!("{why}"))
}

/// What holds of any run, however it was steered.
fn adds_up(run: &Run) {
    let mut by_worker: BTreeMap<usize, Vec<&RecordedSample>> = BTreeMap::new();
    run.samples.iter().for_each(|sample| by_worker.entry(sample.worker).or_default().push(sample));
    assert_eq!(by_worker.keys().copied().collect::<Vec<_>>(), (0..run.workers).collect::<Vec<_>>());
    assert_eq!(run.result.workers.len(), run.workers);
    let mut boundaries = BTreeSet::new();
    for samples in by_worker.values() {
        assert_eq!(samples[0].from, Time::ZERO, "the first sample begins with the run");
        for pair in samples.windows(2) {
            assert!(!pair[0].last, "nothing comes after the last sample");
            assert_eq!(pair[0].until, pair[1].from, "no gap and no overlap");
        }
        for sample in samples {
            assert!(sample.from <= sample.until);
            assert_eq!(sample.phase, run.window.phase(sample.from));
            let end = Time(sample.until.0.saturating_sub(1)).max(sample.from);
            assert_eq!(sample.phase, run.window.phase(end), "no sample straddles two phases");
        }
        let (last, others) = samples.split_last().expect("a last sample");
        assert!(last.last, "the last one says so");
        boundaries.insert(others.iter().map(|sample| sample.until).collect::<Vec<_>>());
    }
    let longest = boundaries.iter().max_by_key(|all| all.len()).expect("a worker");
    for shorter in &boundaries {
        assert!(longest.starts_with(shorter), "workers report at the same times");
    }

    let sent = run.samples.iter().map(|sample| sample.sent).sum::<u64>();
    let intended = run.samples.iter().map(|sample| sample.intended).sum::<u64>();
    assert_eq!((run.total("messages_sent"), run.total("messages_intended")), (sent, intended));
    assert!(sent <= intended && run.total("messages_delivered") <= sent);
    assert!(run.measured("messages_sent") <= run.measured("messages_intended"));
    assert_eq!(run.flows.iter().map(|flow| flow.tally.sent).sum::<u64>(), sent, "of all devices together");
    let series = &run.result.series;
    let in_series = series.iter().map(|point| run.count(&point.groups["g"].counts, "messages_sent"));
    assert_eq!(in_series.sum::<u64>(), sent);
    let mut end = 0.0;
    for point in series {
        assert!((point.t - point.dt - end).abs() < 1e-6, "points follow each other");
        end = point.t;
    }
    let until = run.samples.iter().map(|sample| sample.until.0).max().expect("samples");
    assert!((end - until as f64 / 1e9).abs() < 1e-6, "the series covers the run");
}

// ---- the contract ----

fn what_is_asked_is_intended_sent_and_counted(subject: Box<dyn Subject>) {
    // fewer over the whole run than a cable or a socket has room for: whoever has no CPU for a while loses nothing
    let run = run(&subject.profile("400/s"));
    // the ends of phases are exact, and devices begin within one interval
    assert!(run.measured("messages_intended").abs_diff(600) <= 3, "{}", run.measured("messages_intended"));
    // what a busy machine has no time for before the end stays intended; what is sent comes back
    assert!(run.measured("messages_sent") > 200, "{}", run.measured("messages_sent"));
    assert_eq!(run.result.groups[0].loss, Some(0.0), "{:?}", run.result.groups[0].errors);
    assert!(run.result.validity.valid, "{:?}", run.reasons());
    let sent = run.total("messages_sent");
    assert_eq!(subject.arrived(&run), sent);
}

fn intervals_that_were_missed_are_told_before_the_run_ends(subject: Box<dyn Subject>) {
    // more often than a transport looks, which then is as late as one that gets no CPU; how samples follow each other is
    // checked of every run
    let run = start_sampled(&subject.profile("2k/s"), Some(1_000_000), |_| ());
    let run = run.unwrap_or_else(|why| panic!("{why}"));
    let of_load = run.samples.iter().filter(|sample| sample.phase != Phase::Drain);
    assert_eq!(of_load.count(), 700 * run.workers, "one a millisecond of warm-up and measurement");
}

fn what_cannot_be_sent_is_intended_all_the_same(subject: Box<dyn Subject>) {
    let mut profile = subject.profile("100M/s");
    profile["phases"]["warmup"] = json!("0s");
    profile["validity"]["offered"] = json!(1.0);
    let run = run(&profile);
    let (intended, sent) = (run.measured("messages_intended"), run.measured("messages_sent"));
    // a device begins when its worker first gets to it
    let all = 135_000_000..151_500_000;
    assert!(all.contains(&intended), "300 million a second for half a second: {intended}");
    let short =
        run.result.validity.reasons.iter().find(|reason| matches!(reason.code, "ND-90-01" | "ND-90-08"));
    let short = short.expect("short of the intended load");
    assert!(short.what.contains(&format!("{sent} of {intended} intended messages")), "{}", short.what);
    assert!((short.value - sent as f64 / intended as f64).abs() < 1e-9);
}

fn a_pause_sends_nothing_and_the_rest_comes_after_it(subject: Box<dyn Subject>) {
    let run = start(&subject.profile("2k/s"), |control| {
        sleep(Duration::from_millis(400));
        control.pause();
        let at = control.now();
        sleep(Duration::from_millis(600));
        assert_eq!(control.now(), at);
        control.resume();
    });
    let run = run.unwrap_or_else(|why| panic!("{why}"));
    assert!(run.took >= Duration::from_millis(1_300), "{:?}", run.took);
    // had it gone on, there were 3600 more
    let intended = run.measured("messages_intended");
    assert!(intended.abs_diff(3_000) <= 150, "{intended}");
    assert!((run.result.phases.measure - 0.5).abs() < 1e-6, "{:?}", run.result.phases);
    let sent = run.total("messages_sent");
    assert_eq!(subject.arrived(&run), sent);
}

fn a_stop_ends_the_load_and_waits_for_answers(subject: Box<dyn Subject>) {
    let mut profile = subject.profile("2k/s");
    profile["phases"]["measure"] = json!("1h");
    let run = start(&profile, |control| {
        sleep(Duration::from_millis(500));
        control.stop();
    });
    let run = run.unwrap_or_else(|why| panic!("{why}"));
    assert!(run.took < Duration::from_secs(10), "{:?}", run.took);
    assert!((0.25..5.0).contains(&run.result.phases.measure), "{:?}", run.result.phases);
    assert_eq!(run.reasons(), ["ND-90-05"]);
    assert_eq!(run.result.groups[0].loss, Some(0.0));
    let sent = run.total("messages_sent");
    assert_eq!(subject.arrived(&run), sent);
}

fn an_abort_ends_at_once_wherever_the_run_is(subject: Box<dyn Subject>) {
    type Steer = fn(&Control);
    let cases: [(&str, Steer); 3] = [
        ("at once", |_| ()),
        ("under way", |_| sleep(Duration::from_millis(300))),
        ("paused", |control| {
            sleep(Duration::from_millis(300));
            control.pause();
        }),
    ];
    let mut profile = subject.profile("2k/s");
    profile["phases"] = json!({"warmup": "0s", "measure": "1h", "drain": "1h", "sample": "100ms"});
    for (case, steer) in cases {
        let mut asked = Instant::now();
        let run = start(&profile, |control| {
            steer(control);
            asked = Instant::now();
            control.abort();
        });
        let run = run.unwrap_or_else(|why| panic!("{case}: {why}"));
        assert!(asked.elapsed() < Duration::from_secs(5), "{case}: {:?}", asked.elapsed());
        assert!(run.reasons().contains(&"ND-90-05"), "{case}: {:?}", run.reasons());
    }
}

fn runs_follow_each_other(subject: Box<dyn Subject>) {
    let profile = subject.profile("1k/s");
    for _ in 0..2 {
        let run = run(&profile);
        assert!(run.measured("messages_intended").abs_diff(1_500) <= 3);
        assert_eq!(run.result.groups[0].loss, Some(0.0));
    }
}

fn phases_may_be_empty_and_the_load_next_to_nothing(subject: Box<dyn Subject>) {
    let mut profile = subject.profile("1/h");
    profile["phases"] = json!({"warmup": "0s", "measure": "150ms", "drain": "0s", "sample": "100ms"});
    let run = run(&profile);
    assert!(run.took < Duration::from_secs(5), "{:?}", run.took);
    assert!(run.result.phases.warmup == 0.0 && (run.result.phases.measure - 0.15).abs() < 1e-6);
    // the first of each device is due at the start, or an hour and a part of it later
    assert!((1..=3).contains(&run.measured("messages_intended")), "{}", run.measured("messages_intended"));
    let mut ramp = subject.profile("1k/s");
    ramp["phases"] = json!({"warmup": "0s", "measure": "150ms", "drain": "0s", "sample": "100ms"});
    ramp["groups"][0]["load"] = json!({"closed": {"ramp": "1h", "flow_interval": "1s"}});
    ramp["groups"][0]["model"]["stream"]["count"] = json!(1);
    assert!(start(&ramp, |_| ()).is_ok_and(|run| run.total("messages_sent") <= 1));
}

fn what_is_not_ready_is_said_and_leaves_nothing(subject: Box<dyn Subject>) {
    let tasks = || {
        let all = std::fs::read_dir("/proc/self/task").expect("this process").flatten();
        let names = all.filter_map(|task| std::fs::read_to_string(task.path().join("comm")).ok());
        names.filter(|name| name.starts_with("nd-") || name.starts_with("worker")).count()
    };
    for (profile, code, at) in subject.unready() {
        for _ in 0..2 {
            let Err(why) = start(&profile, |_| panic!("it has begun")) else {
                panic!("{at}: it was started")
            };
            assert_eq!((why.code, why.at.as_str()), (code, at), "{why}");
            assert!(!why.what.is_empty() && !why.fix.is_empty(), "{why:?}");
            assert_eq!(tasks(), 0, "{at}: threads stay behind");
        }
    }
    assert_eq!(
        run(&subject.profile("1k/s")).result.groups[0].loss,
        Some(0.0),
        "and all that was taken is free"
    );
}

/// Runs of polling workers on a machine of two cores must not meet.
static ALONE: Mutex<()> = Mutex::new(());

macro_rules! contract {
    ($($clause:ident)*) => {
        contract!(@ sockets, Kernel, $($clause)*);
        contract!(@ dpdk, Cable, $($clause)*);
    };
    (@ $transport:ident, $subject:ident, $($clause:ident)*) => {
        mod $transport {
            use super::{ALONE, PoisonError, $subject};
            $(#[test]
            fn $clause() {
                let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
                super::$clause($subject::subject());
            })*
        }
    };
}

contract! {
    what_is_asked_is_intended_sent_and_counted
    intervals_that_were_missed_are_told_before_the_run_ends
    what_cannot_be_sent_is_intended_all_the_same
    a_pause_sends_nothing_and_the_rest_comes_after_it
    a_stop_ends_the_load_and_waits_for_answers
    an_abort_ends_at_once_wherever_the_run_is
    runs_follow_each_other
    phases_may_be_empty_and_the_load_next_to_nothing
    what_is_not_ready_is_said_and_leaves_nothing
}
