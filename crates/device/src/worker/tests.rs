use super::*;
use crate::endpoint::{Closed, Connection, Event, Input, To, Token};
use protocol::meter::Phase;
use run::{GroupPlan, SetupError, Trial};
use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::mpsc::channel;

/// An endpoint whose connections receive what the test puts there.
#[derive(Default)]
struct Scripted {
    inputs: VecDeque<Input>,
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

    fn is_flushed(&self) -> bool {
        true
    }

    fn local(&self) -> Option<SocketAddr> {
        None
    }

    fn peer(&self) -> Option<SocketAddr> {
        None
    }

    fn take_refused(&mut self) -> Option<ConnError> {
        None
    }
}

impl Endpoint for Scripted {
    type Conn = ScriptedConn;

    fn open(&mut self, group: &GroupPlan, _: u32, _: To, _: Token) -> Result<ScriptedConn, ConnError> {
        Ok(ScriptedConn { datagrams: group.scheme.carrier != protocol::target::Carrier::Stream })
    }

    fn accept(
        &mut self,
        _: &mut ScriptedConn,
        _: Token,
    ) -> Result<Option<(ScriptedConn, SocketAddr)>, ConnError> {
        Ok(None)
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

    fn poll(&mut self, _: Duration, _: &mut Vec<Event>) -> Result<(), SetupError> {
        Ok(())
    }
}

/// A worker with one device, in a run that has begun; nothing goes on unless the test does it.
fn worker(target: &str, model: &str) -> Worker<Scripted> {
    let text =
        format!(r#"{{"name": "t", "groups": [{{"name": "g", "target": "{target}", "model": {model}}}]}}"#);
    let profile = profile::load(&text).unwrap_or_else(|e| panic!("{e:#?}"));
    let plan = Arc::new(Plan::new(profile, &Trial::default()).unwrap_or_else(|e| panic!("{e:#?}")));
    let hour = 3_600_000_000_000;
    let control = Arc::new(Control::new(0, hour, 0, hour));
    control.go();
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
