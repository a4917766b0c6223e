use super::{Actions, Core, End, State, Timers, Transmit, common};

/// Server transaction of any method but INVITE and ACK (RFC 3261 section 17.2.2).
#[derive(Debug, Clone, Copy)]
pub struct Server {
    core: Core,
}

common!(Server);

impl Server {
    /// A transaction whose request came; it is for the user.
    pub fn new(reliable: bool) -> (Self, Actions) {
        (Self { core: Core::new(State::Trying, reliable) }, Actions::deliver())
    }

    /// The user responds with this status code. What the state does not allow is not sent.
    pub fn respond(&mut self, timers: &Timers, code: u16, now: u64) -> Actions {
        match (self.core.state, code) {
            (State::Trying | State::Proceeding, 100..200) => {
                self.core.state = State::Proceeding;
                Actions::transmit(Transmit::Response)
            }
            (State::Trying | State::Proceeding, 200..700) => {
                // Timer J.
                let end = self.core.linger(State::Completed, now, timers.limit());
                Actions { end, ..Actions::transmit(Transmit::Response) }
            }
            _ => Actions::NONE,
        }
    }

    /// The request came again.
    pub fn on_request(&mut self) -> Actions {
        match self.core.state {
            State::Proceeding | State::Completed => Actions::transmit(Transmit::Response),
            _ => Actions::NONE,
        }
    }

    /// The deadline has come.
    pub fn on_timer(&mut self, _timers: &Timers, now: u64) -> Actions {
        if now >= self.core.end_at { self.core.terminate(End::Normal) } else { Actions::NONE }
    }

    /// The transport could not send a response (RFC 3261 section 17.2.4).
    pub fn on_transport_error(&mut self) -> Actions {
        match self.core.state {
            State::Proceeding | State::Completed => self.core.terminate(End::TransportError),
            _ => Actions::NONE,
        }
    }
}
