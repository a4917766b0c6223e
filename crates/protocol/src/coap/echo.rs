//! The Echo option (RFC 9175 section 2): a server that doubts that a request is fresh, or comes from where it seems to,
//! has it repeated with a value of its own.

use super::Device;
use super::wire::{Code, ECHO_MAX, Message};

/// A value that a server gave.
#[derive(Debug, Clone, Copy)]
pub struct Echo {
    value: [u8; ECHO_MAX],
    len: u8,
}

impl Echo {
    fn of(value: &[u8]) -> Option<Self> {
        let mut echo = Self { value: [0; ECHO_MAX], len: u8::try_from(value.len()).ok()? };
        echo.value.get_mut(..value.len())?.copy_from_slice(value);
        Some(echo)
    }

    /// The value.
    pub fn bytes(&self) -> &[u8] {
        &self.value[..usize::from(self.len)]
    }
}

/// The values that a device has of its server.
#[derive(Debug, Default)]
pub struct Echoes {
    /// From a response that asked for nothing: the next request takes it along (section 2.3).
    next: Option<Echo>,
    /// Those of exchanges under way, by their number: a message that is sent again is the same message.
    current: Vec<(u64, Echo)>,
}

impl Echoes {
    /// The value that the message of exchange `number` carries; `fresh`: it is sent for the first time.
    pub fn of(&self, number: u64, fresh: bool) -> Option<Echo> {
        let current = self.current.iter().find(|(of, _)| *of == number).map(|(_, echo)| *echo);
        current.or(self.next.filter(|_| fresh))
    }

    /// The message of exchange `number` has left with this value.
    pub fn sent(&mut self, number: u64, echo: Echo) {
        if !self.current.iter().any(|(of, _)| *of == number) {
            self.current.push((number, echo));
            self.next = None;
        }
    }

    /// Exchange `number` is over.
    pub fn forget(&mut self, number: u64) {
        self.current.retain(|(of, _)| *of != number);
    }

    fn replace(&mut self, number: u64, echo: Echo) {
        self.forget(number);
        self.current.push((number, echo));
    }
}

/// Whether a request was repeated with the Echo option.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Challenge {
    /// The server asked for none.
    No,
    /// The repeated message is to be sent.
    Asked,
    /// It was sent: a server that asks again rejects the request.
    Answered,
}

impl Device {
    /// What a response says of Echo. True: it asks that exchange `i` be repeated with it, and that is on its way.
    pub(super) fn echo(&mut self, i: usize, message: &Message<'_>) -> bool {
        let Some(echo) = message.options.echo.and_then(Echo::of) else { return false };
        let code = message.header.code;
        let asks = code == Code::UNAUTHORIZED && !self.config.expects(code);
        let number = self.number(i);
        let echoes = &mut self.rare.get_or_insert_default().echoes;
        if !asks {
            echoes.next = Some(echo);
            return false;
        }
        if self.exchanges[i].challenge != Challenge::No {
            return false;
        }
        echoes.replace(number, echo);
        self.exchanges[i].challenge = Challenge::Asked;
        self.next_message(i);
        true
    }
}
