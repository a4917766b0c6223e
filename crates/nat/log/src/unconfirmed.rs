//! Events that were written to a stream, and that the collector's host has not confirmed: they are sent again when the connection breaks.

use crate::event::Event;
use std::collections::VecDeque;

/// Events that may be in flight, 64 bytes each. Beyond, the rest waits in the queue, where what finds no room is counted.
const MOST: usize = 1 << 15;

/// A message that was written to the stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SentMessage {
    /// Bytes of the stream up to its end.
    pub end: u64,
    /// Events in it.
    pub events: u32,
    /// How many were lost by then, if it says so.
    pub lost: Option<u64>,
}

/// Of one connection.
#[derive(Debug, Default)]
pub struct UnackedMessages {
    events: VecDeque<Event>,
    messages: VecDeque<SentMessage>,
}

impl UnackedMessages {
    /// These messages, with these events, were written.
    pub fn push(&mut self, events: impl Iterator<Item = Event>, messages: &[SentMessage]) {
        self.events.extend(events);
        self.messages.extend(messages);
    }

    /// So many bytes of the stream are confirmed. The last number of lost events that was said in them.
    pub fn confirm(&mut self, bytes: u64) -> Option<u64> {
        let mut said = None;
        while let Some(message) = self.messages.front().copied().filter(|message| message.end <= bytes) {
            self.messages.pop_front();
            self.events.drain(..self.events.len().min(message.events as usize));
            said = message.lost.or(said);
        }
        said
    }

    /// The connection broke: the events, in order, are to be sent again.
    pub fn take_back(&mut self) -> impl Iterator<Item = Event> {
        self.messages.clear();
        self.events.drain(..)
    }

    /// Events in flight.
    pub fn len(&self) -> usize {
        self.events.len()
    }

    /// Whether nothing is in flight.
    pub fn is_empty(&self) -> bool {
        self.messages.is_empty()
    }

    /// Whether as many are in flight as may be.
    pub fn is_full(&self) -> bool {
        self.len() >= MOST
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::EventKind;

    fn event(number: u64) -> Event {
        Event { at_ms: number, what: EventKind::AddressesExhausted { pool: 0 } }
    }

    #[test]
    fn what_is_not_confirmed_comes_back_in_order() {
        let mut in_flight = UnackedMessages::default();
        let message = |end, events, lost| SentMessage { end, events, lost };
        in_flight.push((0..5).map(event), &[message(100, 2, None), message(200, 3, Some(7))]);
        in_flight.push((5..9).map(event), &[message(250, 0, None), message(300, 4, Some(8))]);
        assert_eq!((in_flight.confirm(99), in_flight.len()), (None, 9));
        assert_eq!((in_flight.confirm(100), in_flight.len()), (None, 7), "a whole message is");
        assert_eq!((in_flight.confirm(299), in_flight.len()), (Some(7), 4));
        let back: Vec<u64> = in_flight.take_back().map(|event| event.at_ms).collect();
        assert_eq!((back, in_flight.is_empty()), (vec![5, 6, 7, 8], true));
    }

    #[test]
    fn so_many_are_in_flight_and_no_more() {
        let mut in_flight = UnackedMessages::default();
        let most = MOST as u64;
        in_flight
            .push((0..most - 1).map(event), &[SentMessage { end: 1, events: MOST as u32 - 1, lost: None }]);
        assert!(!in_flight.is_full());
        in_flight.push([event(most)].into_iter(), &[SentMessage { end: 2, events: 1, lost: None }]);
        assert!(in_flight.is_full());
        in_flight.confirm(1);
        assert!(!in_flight.is_full());
    }
}
