use super::{Actions, Core, End, NEVER, State, Timers, Transmit, common};

/// INVITE client transaction (RFC 3261 section 17.1.1, RFC 6026 section 8.4).
#[derive(Debug, Clone, Copy)]
pub struct InviteClient {
    core: Core,
}

common!(InviteClient);

impl InviteClient {
    /// A transaction whose request is sent now.
    pub fn new(timers: &Timers, reliable: bool, now: u64) -> (Self, Actions) {
        let mut core = Core::new(State::Calling, reliable);
        // Timer A, timer B.
        core.retransmit_after(now, timers.t1);
        core.end_at = now.saturating_add(timers.limit());
        (Self { core }, Actions::transmit(Transmit::Request))
    }

    /// A response with this status code came.
    pub fn on_response(&mut self, timers: &Timers, code: u16, now: u64) -> Actions {
        match (self.core.state, code) {
            (State::Calling | State::Proceeding, 100..200) => {
                self.core.enter(State::Proceeding, NEVER);
                Actions::deliver()
            }
            (State::Calling | State::Proceeding, 200..300) => {
                // Timer M.
                self.core.enter(State::Accepted, now.saturating_add(timers.limit()));
                Actions::deliver()
            }
            (State::Calling | State::Proceeding, 300..700) => {
                // Timer D.
                let end = self.core.linger(State::Completed, now, timers.d);
                Actions { deliver: true, end, ..Actions::transmit(Transmit::Ack) }
            }
            // Further 2xx come from other branches, or since the ACK was lost.
            (State::Accepted, 200..300) => Actions::deliver(),
            (State::Completed, 300..700) => Actions::transmit(Transmit::Ack),
            _ => Actions::NONE,
        }
    }

    /// The deadline has come.
    pub fn on_timer(&mut self, _timers: &Timers, now: u64) -> Actions {
        let core = &mut self.core;
        if now >= core.end_at {
            let end = if core.state == State::Calling { End::Timeout } else { End::Normal };
            return core.terminate(end);
        }
        if now >= core.again_at {
            // Timer A doubles without limit.
            core.retransmit_after(now, core.interval.saturating_mul(2));
            return Actions::transmit(Transmit::Request);
        }
        Actions::NONE
    }

    /// The transport could not send the request or the ACK (RFC 3261 section 17.1.4).
    pub fn on_transport_error(&mut self) -> Actions {
        match self.core.state {
            State::Calling | State::Completed => self.core.terminate(End::TransportError),
            _ => Actions::NONE,
        }
    }
}
