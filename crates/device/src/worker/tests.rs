use super::*;
use crate::endpoint::{Closed, Connection, Event, Input, Token};
use protocol::meter::{Failure, Phase};
use protocol::model::{Cx, FlowEnd};
use run::{GroupPlan, SetupError, Trial};
use std::cell::Cell;
use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::mpsc::{Receiver, channel};

/// An endpoint whose connections receive what the test puts there.
#[derive(Default)]
struct Scripted {
    inputs: VecDeque<Input>,
    /// How long each poll was to wait.
    waits: Vec<Duration>,
}

#[derive(Debug)]
struct ScriptedConn {
    datagrams: bool,
}

impl Connection for ScriptedConn {
    fn is_datagram(&self) -> bool {
        self.datagrams
    }

    fn is_up(&self) -> bool {
        true
    }

    fn local(&self) -> Option<std::net::SocketAddr> {
        None
    }

    fn is_flushed(&self) -> bool {
        true
    }

    fn queued_bytes(&self) -> u64 {
        0
    }

    fn sent_bytes(&mut self, _: bool) -> u64 {
        0
    }

    fn take_refused(&mut self) -> Option<ConnError> {
        None
    }
}

impl Endpoint for Scripted {
    type Conn = ScriptedConn;

    fn open(&mut self, group: &GroupPlan, _: u32, _: usize, _: Token) -> Result<ScriptedConn, ConnError> {
        Ok(ScriptedConn { datagrams: group.scheme.carrier != protocol::target::Carrier::Stream })
    }

    fn send(&mut self, _: &mut ScriptedConn, outbox: &mut Outbox) -> Result<(), ConnError> {
        outbox.bytes.clear();
        Ok(())
    }

    fn receive(&mut self, _: &mut ScriptedConn, buffer: &mut [u8]) -> Result<Input, ConnError> {
        buffer[..16].fill(b'x');
        Ok(self.inputs.pop_front().unwrap_or(Input::Dry))
    }

    fn close(&mut self, _: ScriptedConn) -> Closed {
        Closed { unsent: 0, dropped: 3 }
    }

    fn poll(&mut self, longest: Duration, _: &mut Vec<Event>) -> Result<(), SetupError> {
        self.waits.push(longest);
        Ok(())
    }
}

const HOUR: u64 = 3_600_000_000_000;

/// So many devices in a run that has begun.
fn trial(target: &str, model: &str, devices: u32) -> (Arc<Plan>, Arc<Control>) {
    let group = format!(r#"{{"name": "g", "target": "{target}", "devices": {devices}, "model": {model}}}"#);
    let text = format!(r#"{{"name": "t", "groups": [{group}]}}"#);
    let profile = profile::load(&text).unwrap_or_else(|e| panic!("{e:#?}"));
    let plan = Arc::new(Plan::new(profile, &Trial::default()).unwrap_or_else(|e| panic!("{e:#?}")));
    let control = Arc::new(Control::new(0, HOUR, 0, HOUR));
    control.start_workers();
    (plan, control)
}

/// A worker with one device, in a run that has begun; nothing goes on unless the test does it.
fn worker(target: &str, model: &str) -> Worker<Scripted> {
    let (plan, control) = trial(target, model, 1);
    let mut worker = Worker::new(Scripted::default(), 0, 1, plan, control, channel().0);
    worker.tick();
    worker
}

fn counts(worker: &Worker<Scripted>) -> &protocol::meter::Counts {
    &worker.groups[0].meter[Phase::Measure as usize].counts
}

fn readable(worker: &Worker<Scripted>) -> Event {
    let token = Token::new(0, worker.slots[0].generation);
    Event { token, readable: true, writable: false, ended: false }
}

#[test]
fn a_connection_with_much_to_read_waits_for_its_turn_once() {
    let mut worker = worker("udp://127.0.0.1:9", r#"{"stream": {"rate": "1/s"}}"#);
    worker.begin(0, Time::ZERO);
    worker.endpoint.inputs = vec![Input::Bytes { len: 12, dry: false }; 150].into();
    // more comes while it waits
    for _ in 0..3 {
        worker.event(&readable(&worker));
        assert_eq!((counts(&worker).corrupted, worker.unread.len()), (64, 1));
    }
    worker.read_on();
    assert_eq!((counts(&worker).corrupted, worker.unread.len()), (128, 1));
    worker.read_on();
    assert_eq!((counts(&worker).corrupted, worker.unread.len()), (150, 0));
    worker.event(&readable(&worker));
    assert_eq!(worker.unread.len(), 0);
}

#[test]
fn what_is_not_for_the_model_does_not_hold_a_worker_up() {
    let mut worker = worker("ping://127.0.0.1", r#"{"ping": {"interval": "1s"}}"#);
    worker.begin(0, Time::ZERO);
    worker.endpoint.inputs = vec![Input::Aside; 202].into();
    worker.event(&readable(&worker));
    assert_eq!(worker.unread.len(), 1, "202 messages are more than one turn");
    while !worker.unread.is_empty() {
        worker.read_on();
    }
    assert_eq!(counts(&worker).messages_delivered, 0);
}

#[test]
fn events_of_an_earlier_connection_are_nobodys() {
    let mut worker = worker("udp://127.0.0.1:9", r#"{"stream": {"rate": "1/s"}}"#);
    worker.begin(0, Time::ZERO);
    let earlier = readable(&worker);
    worker.hang_up(0);
    worker.open(0).expect("opened again");
    worker.endpoint.inputs = vec![Input::Bytes { len: 12, dry: false }].into();
    worker.event(&earlier);
    assert_eq!((counts(&worker).corrupted, worker.endpoint.inputs.len()), (0, 1));
}

#[test]
fn what_receive_queues_dropped_is_counted_when_told_and_at_the_close() {
    let mut worker = worker("udp://127.0.0.1:9", r#"{"stream": {"rate": "1/s"}}"#);
    worker.begin(0, Time::ZERO);
    worker.endpoint.inputs = vec![Input::Dropped(5)].into();
    worker.event(&readable(&worker));
    assert_eq!(counts(&worker).receive_drops, 5);
    worker.hang_up(0);
    assert_eq!(counts(&worker).receive_drops, 8);
}

#[test]
fn a_connection_is_waited_for_no_longer_when_another_timer_comes_first() {
    let mut worker = worker("tcp://127.0.0.1:9", r#"{"script": {"steps": [{"send": "x"}]}}"#);
    let by = worker.now + Duration::from_secs(5);
    let slot = &mut worker.slots[0];
    (slot.state, slot.wake, slot.connect_by) = (State::Active, worker.now, by);
    worker.arm(0);
    worker.fire_timers();
    assert_eq!(worker.slots[0].wake, Time::NEVER, "it fired");
    assert_eq!(worker.timers.next(), by);
}

/// A device whose next message is due at one time, and that counts how often it is asked about it.
struct Due {
    at: Time,
    holds_back: bool,
    asked: Rc<Cell<u64>>,
}

impl Model for Due {
    fn start(&mut self, cx: &mut Cx<'_>) {
        cx.wake_at(self.at);
    }

    fn connected(&mut self, _: &mut Cx<'_>) {}

    fn received(&mut self, _: &mut Cx<'_>, bytes: &[u8]) -> usize {
        bytes.len()
    }

    fn timer(&mut self, cx: &mut Cx<'_>) {
        cx.sent(self.at, 1);
        self.at = Time::NEVER;
    }

    fn closed(&mut self, _: &mut Cx<'_>, _: Failure) {}

    fn stop(&mut self, _: &mut Cx<'_>) {}

    fn abandoned(&mut self, _: &mut Cx<'_>) {}

    fn waiting_since(&self) -> Time {
        Time::ZERO
    }

    fn overdue(&self, end: Time) -> u64 {
        self.asked.set(self.asked.get() + 1);
        u64::from(self.at < end)
    }

    fn holds_back(&self) -> bool {
        self.holds_back
    }
}

/// `devices` with a flow under way each, the first `late` of which have a message due at 1 s and the others one in half
/// an hour; what they count that are asked about it.
fn due(devices: u32, late: u32) -> (Worker<Scripted, Due>, Receiver<Sample>, Rc<Cell<u64>>) {
    let (plan, control) = trial("udp://127.0.0.1:9", r#"{"stream": {"rate": "1/s"}}"#, devices);
    let (asked, (samples, taken)) = (Rc::new(Cell::new(0)), channel());
    let device = |_: &GroupPlan, index| {
        let at = Time(if index < late { 1_000_000_000 } else { HOUR / 2 });
        Due { at, holds_back: false, asked: Rc::clone(&asked) }
    };
    let mut worker = Worker::with_devices(Scripted::default(), (0, 1), plan, control, samples, device);
    worker.tick();
    (0..devices).for_each(|i| worker.begin(i, Time::ZERO));
    (worker, taken, asked)
}

/// What a sample at `at` says is intended and who is stalled, and how many devices were asked for it.
fn sampled(
    worker: &mut Worker<Scripted, Due>,
    taken: &Receiver<Sample>,
    asked: &Cell<u64>,
    at: u64,
) -> (u64, u32, u64) {
    asked.set(0);
    (worker.now, worker.boundary) = (Time(at), Time(at));
    worker.sample(None);
    let sample = taken.try_recv().expect("a sample");
    let intended = sample.groups[0].iter().map(|tally| tally.counts.messages_intended).sum();
    (intended, sample.stalls[0].waiting, asked.get())
}

/// Fire so many timers that were due at the last sample.
fn fire(worker: &mut Worker<Scripted, Due>, timers: usize) {
    for _ in 0..timers {
        let (i, due) = worker.timers.pop(worker.sampled).expect("one is late");
        worker.call(i, due, |device, cx| device.timer(cx));
    }
}

#[test]
fn a_sample_asks_no_device_but_those_that_are_late() {
    for devices in [10, 100_000] {
        let (mut worker, taken, asked) = due(devices, 3);
        assert_eq!(sampled(&mut worker, &taken, &asked, 500_000_000), (0, 0, 0), "nothing is due");
        // each is asked about two phases
        assert_eq!(sampled(&mut worker, &taken, &asked, 1_500_000_000), (3, 0, 6));
        assert_eq!(
            sampled(&mut worker, &taken, &asked, 3_000_000_000),
            (0, devices, 6),
            "they wait for over 2 s"
        );
        fire(&mut worker, 3);
        assert_eq!(sampled(&mut worker, &taken, &asked, 3_500_000_000), (0, devices, 0), "each counts once");
        // where a phase ends all are asked
        let (intended, stalled, asked) = sampled(&mut worker, &taken, &asked, HOUR);
        assert_eq!((intended, stalled, asked), (u64::from(devices) - 3, devices, 2 * u64::from(devices)));
    }
}

#[test]
fn where_many_are_late_a_sample_asks_some_and_none_is_left_out_in_the_end() {
    let (mut worker, taken, asked) = due(10_000, 10_000);
    let (first, _, looks) = sampled(&mut worker, &taken, &asked, 1_500_000_000);
    assert_eq!((first, looks), (4096, 2 * 4096));
    assert_eq!(sampled(&mut worker, &taken, &asked, 2_000_000_000).0, 0, "nothing more is known");
    fire(&mut worker, 64);
    let (more, ..) = sampled(&mut worker, &taken, &asked, 2_500_000_000);
    assert_eq!(more, 64, "those sent were counted, and 64 others come up");
    let (rest, ..) = sampled(&mut worker, &taken, &asked, HOUR);
    assert_eq!(first + more + rest, 10_000);
}

#[test]
fn messages_that_wait_for_answers_are_intended_when_they_fall_due() {
    for devices in [10, 10_000] {
        let (mut worker, taken, asked) = due(devices, devices);
        // each waits for an answer: no timer tells that its message is due
        worker.slots.iter_mut().for_each(|slot| slot.device.holds_back = true);
        (0..devices).for_each(|i| worker.timers.set(i, Time::NEVER));
        let looks = u64::from(devices.min(4096));
        assert_eq!(sampled(&mut worker, &taken, &asked, 500_000_000), (0, 0, 2 * looks));
        assert_eq!(
            sampled(&mut worker, &taken, &asked, 1_500_000_000).0,
            looks,
            "of many, those of the first"
        );
        assert_eq!(sampled(&mut worker, &taken, &asked, 2_500_000_000).0, 0, "each counts once");
        assert_eq!(sampled(&mut worker, &taken, &asked, HOUR).0, u64::from(devices) - looks);
    }
}

#[test]
fn a_worker_that_had_no_cpu_where_the_load_ended_straddles_no_phases() {
    let second = 1_000_000_000;
    let (mut worker, taken, _) = due(2, 0);
    worker.control = Arc::new(Control::new(2 * second, 2 * second, second, second));
    worker.window = worker.control.window();
    worker.boundary = worker.control.boundary(Time::ZERO);
    worker.now = Time(4 * second + second / 2);
    worker.report();
    let ends: Vec<u64> = taken.try_iter().map(|sample| sample.until.0 / second).collect();
    assert_eq!((ends, worker.sampled), (vec![1, 2, 3, 4], Time(4 * second)));
}

#[test]
fn a_total_is_sent_exactly_and_ends_the_load() {
    // each device would send a hundred at once
    let group = r#"{"name": "g", "target": "udp://127.0.0.1:9", "devices": 3, "total": 7,
        "model": {"stream": {"rate": "1000/s", "burst": 100, "echo": false}}}"#;
    let text = format!(r#"{{"name": "t", "phases": {{"warmup": "0s"}}, "groups": [{group}]}}"#);
    let profile = profile::load(&text).unwrap_or_else(|e| panic!("{e:#?}"));
    let plan = Arc::new(Plan::new(profile, &Trial::default()).unwrap_or_else(|e| panic!("{e:#?}")));
    let control = Arc::new(Control::new(0, HOUR, 0, HOUR));
    control.start_workers();
    let mut worker = Worker::new(Scripted::default(), 0, 1, plan, control, channel().0);
    for _ in 0..10 {
        worker.tick();
        worker.end_spent_groups();
        worker.begin_flows();
        worker.fire_timers();
        worker.report_broken();
    }
    worker.end_spent_groups();
    let counted = counts(&worker);
    assert_eq!((counted.messages_sent, counted.messages_intended), (7, 7));
    assert!(worker.is_spent() && worker.slots.iter().all(|slot| slot.state == State::Done));
}

/// A device whose servers all are silent: it asks one after the other, 400 ms each.
struct Patient;

impl Model for Patient {
    fn start(&mut self, cx: &mut Cx<'_>) {
        cx.connect();
    }

    fn connected(&mut self, cx: &mut Cx<'_>) {
        cx.wake_at(cx.now + Duration::from_millis(400));
    }

    fn received(&mut self, _: &mut Cx<'_>, bytes: &[u8]) -> usize {
        bytes.len()
    }

    fn timer(&mut self, cx: &mut Cx<'_>) {
        if cx.has_next {
            cx.next_server(Failure::Unanswered.into());
        } else {
            cx.give_up();
        }
    }

    fn closed(&mut self, _: &mut Cx<'_>, _: Failure) {}

    fn stop(&mut self, _: &mut Cx<'_>) {}

    fn abandoned(&mut self, _: &mut Cx<'_>) {}

    fn waiting_since(&self) -> Time {
        Time::ZERO
    }
}

#[test]
fn a_request_is_tried_at_each_server_once_however_soon_they_are_forgiven() {
    for avoid in ["0s", "300ms", "30s"] {
        let servers =
            [1, 2, 3].map(|n| format!(r#"{{"address": "127.0.0.1:{n}", "priority": {n}}}"#)).join(",");
        let group = format!(
            r#"{{"name": "g", "target": "sip://127.0.0.1:1", "devices": 1, "model": {{"sip": {{}}}},
                "failover": {{"servers": [{servers}], "avoid": "{avoid}"}}}}"#
        );
        let profile = profile::load(&format!(r#"{{"name": "t", "groups": [{group}]}}"#));
        let profile = profile.unwrap_or_else(|e| panic!("{e:#?}"));
        let plan = Arc::new(Plan::new(profile, &Trial::default()).unwrap_or_else(|e| panic!("{e:#?}")));
        let control = Arc::new(Control::new(0, HOUR, 0, HOUR));
        control.start_workers();
        let samples = channel().0;
        let mut worker =
            Worker::with_devices(Scripted::default(), (0, 1), plan, control, samples, |_, _| Patient);
        worker.tick();
        worker.begin(0, Time::ZERO);
        let mut asked = vec![worker.slots[0].address];
        while worker.has_next(0) && asked.len() < 9 {
            worker.now = worker.now + Duration::from_millis(400);
            worker.call(0, Time::ZERO, |device, cx| device.timer(cx));
            asked.push(worker.slots[0].address);
        }
        assert_eq!(asked, [0, 1, 2], "avoid {avoid}");
    }
}

/// A device that leaves something behind, unless its number is 0, and takes it back at once.
#[derive(Debug)]
struct Leaver {
    left: bool,
    answers: bool,
}

impl Model for Leaver {
    fn start(&mut self, cx: &mut Cx<'_>) {
        cx.finish();
    }

    fn connected(&mut self, _: &mut Cx<'_>) {}

    fn received(&mut self, _: &mut Cx<'_>, bytes: &[u8]) -> usize {
        bytes.len()
    }

    fn timer(&mut self, _: &mut Cx<'_>) {}

    fn closed(&mut self, _: &mut Cx<'_>, _: Failure) {}

    fn stop(&mut self, _: &mut Cx<'_>) {}

    fn abandoned(&mut self, _: &mut Cx<'_>) {}

    fn waiting_since(&self) -> Time {
        Time::NEVER
    }

    fn leaves_behind(&self) -> bool {
        self.left
    }

    fn clean_up(&mut self, cx: &mut Cx<'_>) {
        cx.sent(cx.now, 9);
        cx.failure(cx.now, Failure::Rejected, || "of no interest".into());
        if self.answers {
            self.left = false;
            cx.finish();
        }
    }

    fn cleaned_up(&mut self, cx: &mut Cx<'_>) {
        let counts = &mut cx.at(cx.window.measure).counts;
        if self.left {
            counts.corrupted += 1;
        } else {
            counts.duplicates += 1;
        }
    }
}

#[test]
fn what_devices_take_back_is_measured_by_nobody_and_counted_once() {
    for answers in [true, false] {
        let (plan, control) = trial("udp://127.0.0.1:9", r#"{"stream": {"rate": "1/s"}}"#, 100);
        let device = |_: &GroupPlan, index| Leaver { left: index > 0, answers };
        let mut worker =
            Worker::with_devices(Scripted::default(), (0, 1), plan, control, channel().0, device);
        worker.tick();
        worker.drain();
        let mut turns = 0;
        while worker.cleans_up() {
            worker.tick();
            turns += 1;
            // 99 devices at 500 a second
            std::thread::sleep(Duration::from_millis(1));
            if !answers && worker.groups[0].active == 99 {
                break;
            }
        }
        assert!(turns > 10, "{turns} turns: they did not begin together");
        worker.end_cleanup();
        let counts = &worker.groups[0].meter[Phase::Measure as usize].counts;
        let told = [counts.duplicates, counts.corrupted];
        assert_eq!(told, if answers { [99, 0] } else { [0, 99] });
        assert_eq!((counts.messages_sent, counts.failures[Failure::Rejected as usize]), (0, 0));
        assert!(worker.examples.is_empty() && worker.slots.iter().all(|slot| slot.tally.sent == 0));
    }
}

#[test]
fn flows_that_are_due_while_as_many_are_under_way_as_may_be_never_begin() {
    let group = r#"{"name": "g", "target": "tcp://127.0.0.1:9", "devices": 20, "model": {"script": {"steps": [{"expect": "x"}]}},
        "load": {"open": {"rate": "2k/s", "max_flows": 5}}}"#;
    let profile = profile::load(&format!(r#"{{"name": "t", "groups": [{group}]}}"#));
    let profile = profile.unwrap_or_else(|e| panic!("{e:#?}"));
    let plan = Arc::new(Plan::new(profile, &Trial::default()).unwrap_or_else(|e| panic!("{e:#?}")));
    let control = Arc::new(Control::new(0, HOUR, 0, HOUR));
    control.start_workers();
    let mut worker = Worker::new(Scripted::default(), 0, 1, plan, control, channel().0);
    while counts(&worker).flows_suppressed < 20 {
        worker.tick();
        worker.begin_flows();
    }
    assert_eq!((worker.groups[0].active, counts(&worker).flows_started), (5, 5));
    assert_eq!(counts(&worker).flows_intended, 5, "the load asked for no more");
    // one ends: another begins when it is due, and none of those that were due before
    worker.flow_ended(0, FlowEnd::Completed);
    let suppressed = counts(&worker).flows_suppressed;
    while counts(&worker).flows_started < 6 {
        worker.tick();
        worker.begin_flows();
    }
    assert_eq!((worker.groups[0].active, counts(&worker).flows_suppressed), (5, suppressed));
}

/// As in an element, which is polled among others: two workers and what else there is share a thread.
#[test]
fn its_caller_owns_the_loop() {
    let group = r#"{"name": "g", "target": "udp://127.0.0.1:9", "devices": 2, "model": {"stream": {"rate": "1k/s"}}}"#;
    let profile = profile::load(&format!(r#"{{"name": "t", "groups": [{group}]}}"#));
    let profile = profile.unwrap_or_else(|e| panic!("{e:#?}"));
    let plan = Arc::new(Plan::new(profile, &Trial::default()).unwrap_or_else(|e| panic!("{e:#?}")));
    let control = Arc::new(Control::new(0, HOUR, 0, HOUR));
    let (samples, told) = channel();
    let new = |number| {
        let (plan, control) = (Arc::clone(&plan), Arc::clone(&control));
        Worker::new(Scripted::default(), number, 2, plan, control, samples.clone())
    };
    let mut workers = [new(0), new(1)];
    let mut turn = |times: usize| {
        for _ in 0..times {
            assert!(workers.iter_mut().all(|worker| worker.turn(Duration::ZERO)));
        }
        workers.each_ref().map(|worker| (counts(worker).messages_sent, worker.endpoint.waits.clone()))
    };
    assert_eq!(turn(3), [(0, vec![]), (0, vec![])], "the run has not begun");
    control.start_workers();
    let begun = std::time::Instant::now();
    while turn(10).iter().any(|(sent, _)| *sent < 5) {
        assert!(begun.elapsed() < Duration::from_secs(60), "they send nothing");
    }
    assert!(turn(1).iter().all(|(_, waits)| waits.iter().all(Duration::is_zero)), "nothing waits");
    control.abort();
    assert!(workers.iter_mut().all(|worker| !worker.turn(Duration::ZERO)), "the run is over");
    drop((workers, samples));
    let last: Vec<_> = told.iter().filter(|sample| sample.last.is_some()).collect();
    assert_eq!(last.len(), 2, "each has told its last sample");
}
