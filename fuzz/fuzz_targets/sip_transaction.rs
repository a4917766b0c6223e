//! Events in any order: a transaction ends once, stays terminated, and sends no more than its timers allow.
#![no_main]

use sip_core::transaction::{
    Actions, Client, InviteClient, InviteServer, MS, Server, State, Timers, Transmit,
};

/// How often a timer may make a machine send within 64 T1.
const MOST: usize = 12;

struct Watch {
    over: bool,
    repeats: usize,
}

impl Watch {
    fn see(&mut self, actions: Actions, state: State, deadline: Option<u64>, by_timer: bool) {
        if self.over {
            assert!(
                actions.end.is_none() && actions.transmit.is_none() && !actions.deliver && !actions.failed
            );
        }
        assert_eq!(actions.end.is_some(), !self.over && state == State::Terminated);
        self.over = state == State::Terminated;
        assert!(!self.over || deadline.is_none());
        let again =
            matches!(actions.transmit, Some(Transmit::Request | Transmit::Response | Transmit::Trying));
        self.repeats += usize::from(by_timer && again);
        assert!(self.repeats <= MOST || state == State::Proceeding || self.over);
    }
}

/// Two bytes an event: what, and a status code or how much time passes.
fn code(byte: u8) -> u16 {
    100 + u16::from(byte) * 3
}

macro_rules! client {
    ($machine:ident, $data:expr, $reliable:expr) => {{
        let timers = Timers::default();
        let (mut machine, _) = $machine::new(&timers, $reliable, 0);
        let (mut watch, mut now) = (Watch { over: false, repeats: 0 }, 0);
        for event in $data.as_chunks::<2>().0 {
            let by_timer = event[0] % 4 == 1;
            let actions = match event[0] % 4 {
                0 => machine.on_response(&timers, code(event[1]), now),
                1 => {
                    now = machine.deadline().unwrap_or(now).max(now);
                    machine.on_timer(&timers, now)
                }
                2 => {
                    now += u64::from(event[1]) * 10 * MS;
                    machine.on_timer(&timers, now)
                }
                _ => machine.on_transport_error(),
            };
            watch.see(actions, machine.state(), machine.deadline(), by_timer);
        }
    }};
}

macro_rules! server {
    ($machine:expr, $data:expr, $timers:expr, $ack:expr) => {{
        let (mut machine, _) = $machine;
        let (mut watch, mut now) = (Watch { over: false, repeats: 0 }, 0);
        for event in $data.as_chunks::<2>().0 {
            let by_timer = event[0] % 6 == 1;
            let actions = match event[0] % 6 {
                0 => machine.respond(&$timers, code(event[1]), now),
                1 => {
                    now = machine.deadline().unwrap_or(now).max(now);
                    machine.on_timer(&$timers, now)
                }
                2 => {
                    now += u64::from(event[1]) * 10 * MS;
                    machine.on_timer(&$timers, now)
                }
                3 => machine.on_request(),
                4 => $ack(&mut machine, now),
                _ => machine.on_transport_error(),
            };
            watch.see(actions, machine.state(), machine.deadline(), by_timer);
        }
    }};
}

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    let Some((kind, events)) = data.split_first() else { return };
    let (reliable, timers) = (kind & 4 != 0, Timers::default());
    match kind & 3 {
        0 => client!(InviteClient, events, reliable),
        1 => client!(Client, events, reliable),
        2 => server!(
            InviteServer::new(&timers, reliable, 0),
            events,
            timers,
            |machine: &mut InviteServer, now| machine.on_ack(&timers, now)
        ),
        _ => server!(Server::new(reliable), events, timers, |machine: &mut Server, _| machine.on_request()),
    }
});
