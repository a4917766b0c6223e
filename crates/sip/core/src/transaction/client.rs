use super::{Actions, Core, End, State, Timers, Transmit, common};

/// Client transaction of any method but INVITE and ACK (RFC 3261 section 17.1.2).
#[derive(Debug, Clone, Copy)]
pub struct Client {
    core: Core,
}

common!(Client);

impl Client {
    /// A transaction whose request is sent now.
    pub fn new(timers: &Timers, reliable: bool, now: u64) -> (Self, Actions) {
        let mut core = Core::new(State::Trying, reliable);
        // Timer E, timer F.
        core.retransmit_after(now, timers.t1);
        core.end_at = now.saturating_add(timers.limit());
        (Self { core }, Actions::transmit(Transmit::Request))
    }

    /// A response with this status code came.
    pub fn on_response(&mut self, timers: &Timers, code: u16, now: u64) -> Actions {
        match (self.core.state, code) {
            // Timers E and F run on.
            (State::Trying | State::Proceeding, 100..200) => {
                self.core.state = State::Proceeding;
                Actions::deliver()
            }
            (State::Trying | State::Proceeding, 200..700) => {
                // Timer K.
                let end = self.core.linger(State::Completed, now, timers.t4);
                Actions { end, ..Actions::deliver() }
            }
            _ => Actions::NONE,
        }
    }

    /// The deadline has come.
    pub fn on_timer(&mut self, timers: &Timers, now: u64) -> Actions {
        let core = &mut self.core;
        if now >= core.end_at {
            let end = if core.state == State::Completed { End::Normal } else { End::Timeout };
            return core.terminate(end);
        }
        if now >= core.again_at {
            let interval = match core.state {
                State::Trying => core.interval.saturating_mul(2).min(timers.t2),
                _ => timers.t2,
            };
            core.retransmit_after(now, interval);
            return Actions::transmit(Transmit::Request);
        }
        Actions::NONE
    }

    /// The transport could not send the request (RFC 3261 section 17.1.4).
    pub fn on_transport_error(&mut self) -> Actions {
        match self.core.state {
            State::Trying | State::Proceeding => self.core.terminate(End::TransportError),
            _ => Actions::NONE,
        }
    }
}
