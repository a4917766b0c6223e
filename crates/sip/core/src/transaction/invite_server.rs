use super::{Actions, Core, End, NEVER, State, Timers, Transmit, common};

/// INVITE server transaction (RFC 3261 section 17.2.1, RFC 6026 section 8.5).
#[derive(Debug, Clone, Copy)]
pub struct InviteServer {
    core: Core,
    /// A response was sent, which a repeated request is answered with.
    responded: bool,
}

common!(InviteServer);

impl InviteServer {
    /// A transaction whose request came now; it is for the user.
    pub fn new(timers: &Timers, reliable: bool, now: u64) -> (Self, Actions) {
        let mut core = Core::new(State::Proceeding, reliable);
        // Over any transport: 100 unless the user is faster.
        core.again_at = now.saturating_add(timers.trying);
        (Self { core, responded: false }, Actions::deliver())
    }

    /// The user responds with this status code. What the state does not allow is not sent.
    pub fn respond(&mut self, timers: &Timers, code: u16, now: u64) -> Actions {
        let core = &mut self.core;
        let transmit = Actions::transmit(Transmit::Response);
        match (core.state, code) {
            (State::Proceeding, 100..200) => core.again_at = NEVER,
            // Timer L.
            (State::Proceeding, 200..300) => {
                core.enter(State::Accepted, now.saturating_add(timers.limit()));
            }
            (State::Proceeding, 300..700) => {
                // Timer H, timer G.
                core.enter(State::Completed, now.saturating_add(timers.limit()));
                core.retransmit_after(now, timers.t1);
            }
            // The user repeats its 2xx until the ACK comes (RFC 3261 section 13.3.1.4).
            (State::Accepted, 200..300) => {}
            _ => return Actions::NONE,
        }
        self.responded = true;
        transmit
    }

    /// The request came again.
    pub fn on_request(&mut self) -> Actions {
        match self.core.state {
            State::Proceeding if self.responded => Actions::transmit(Transmit::Response),
            State::Completed => Actions::transmit(Transmit::Response),
            _ => Actions::NONE,
        }
    }

    /// An ACK came.
    pub fn on_ack(&mut self, timers: &Timers, now: u64) -> Actions {
        match self.core.state {
            // RFC 6026 section 8.5: an ACK that matches is for the user.
            State::Accepted => Actions::deliver(),
            // Timer I.
            State::Completed => {
                Actions { end: self.core.linger(State::Confirmed, now, timers.t4), ..Actions::NONE }
            }
            _ => Actions::NONE,
        }
    }

    /// The deadline has come.
    pub fn on_timer(&mut self, timers: &Timers, now: u64) -> Actions {
        let core = &mut self.core;
        if now >= core.end_at {
            let end = if core.state == State::Completed { End::Timeout } else { End::Normal };
            return core.terminate(end);
        }
        if now < core.again_at {
            return Actions::NONE;
        }
        if core.state == State::Proceeding {
            core.again_at = NEVER;
            self.responded = true;
            return Actions::transmit(Transmit::Trying);
        }
        core.retransmit_after(now, core.interval.saturating_mul(2).min(timers.t2));
        Actions::transmit(Transmit::Response)
    }

    /// The transport could not send a response: the transaction stays as it is (RFC 6026 section 8.8).
    pub fn on_transport_error(&mut self) -> Actions {
        Actions { failed: self.core.state != State::Terminated, ..Actions::NONE }
    }
}
