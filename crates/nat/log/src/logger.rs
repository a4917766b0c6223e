//! From the workers' queues to a collector.

use crate::event::Event;
use crate::ipfix::MessageSink;
use crate::queue::Consumer;
use crate::sender::Sender;
use crate::unconfirmed::{SentMessage, UnackedMessages};
use crate::{ipfix, syslog};

/// Events that are encoded and sent together, and sent again when a TCP connection broke meanwhile.
const BATCH: usize = 512;
/// Events of a turn at most: whoever counts what is lost, and tells the time, has its turn as well.
pub const TURN: u64 = 16 * BATCH as u64;

/// Makes messages of events.
pub trait Encode {
    /// A new transport session begins: nothing that was said before is known.
    fn restart(&mut self);
    /// Write an event; messages that are complete go to `out`.
    fn event(&mut self, now_ms: u64, event: &Event, out: MessageSink<'_>);
    /// Write that `total` events were lost, `new` of them since this was last said.
    fn lost(&mut self, now_ms: u64, new: u64, total: u64, out: MessageSink<'_>);
    /// Complete what was begun.
    fn flush(&mut self, now_ms: u64, out: MessageSink<'_>);
}

impl Encode for ipfix::Exporter {
    fn restart(&mut self) {
        self.restart();
    }

    fn event(&mut self, now_ms: u64, event: &Event, out: MessageSink<'_>) {
        self.event(now_ms, event, out);
    }

    fn lost(&mut self, now_ms: u64, _new: u64, total: u64, out: MessageSink<'_>) {
        self.lost(now_ms, total, out);
    }

    fn flush(&mut self, now_ms: u64, out: MessageSink<'_>) {
        self.flush(now_ms, out);
    }
}

impl Encode for syslog::Formatter {
    fn restart(&mut self) {}

    fn event(&mut self, _now_ms: u64, event: &Event, out: MessageSink<'_>) {
        out(self.event(event), 1);
    }

    fn lost(&mut self, now_ms: u64, new: u64, total: u64, out: MessageSink<'_>) {
        out(self.lost(now_ms, new, total), 0);
    }

    fn flush(&mut self, _now_ms: u64, _out: MessageSink<'_>) {}
}

/// What became of the events.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Statistics {
    /// Events handed to the kernel. Over UDP nobody knows whether they arrived; over TCP those count that need not be sent again.
    pub events: u64,
    /// Messages handed to the kernel.
    pub messages: u64,
    /// Bytes of these messages.
    pub bytes: u64,
    /// Messages that the kernel did not take.
    pub errors: u64,
    /// Events lost: the queue was full, or over UDP a message was not taken.
    pub lost: u64,
    /// Refusals that were not logged, because there were too many in a second.
    pub suppressed: u64,
}

/// Takes events from the workers' queues, and sends them to one collector.
///
/// Over TCP, events stay in the queue while there is no connection, and what the collector's host had not confirmed when a connection
/// broke is sent again on the next one: a collector may see an event twice. Over UDP they are sent as they come; after an error
/// of the socket they wait for another one.
#[derive(Debug)]
pub struct Logger<E> {
    encoder: E,
    sender: Sender,
    queues: Vec<Consumer>,
    batch: Vec<Event>,
    statistics: Statistics,
    /// Over UDP: events in messages that were not taken.
    refused: u64,
    /// Losses that were said, and of these what was confirmed.
    reported: u64,
    confirmed: u64,
    /// Over TCP: what this connection was given.
    in_flight: UnackedMessages,
    written: Vec<SentMessage>,
}

impl<E: Encode> Logger<E> {
    /// From these queues, one of each worker.
    pub fn new(encoder: E, sender: Sender, queues: Vec<Consumer>) -> Self {
        Self {
            encoder,
            sender,
            queues,
            batch: Vec::with_capacity(BATCH),
            statistics: Statistics::default(),
            refused: 0,
            reported: 0,
            confirmed: 0,
            in_flight: UnackedMessages::default(),
            written: Vec::new(),
        }
    }

    /// Send what there is, but no more than [`TURN`] events, and say how many that were: at that there may be more. An event waits for
    /// this call, so it should come ten times a second or more, more often where the queues are short.
    pub fn turn(&mut self, now_ms: u64) -> u64 {
        let mut sent = 0;
        for _ in 0..TURN / BATCH as u64 {
            self.confirm(self.sender.confirmed());
            let (ready, new) = self.sender.ready(now_ms);
            if new {
                self.encoder.restart();
                self.take_back();
            }
            if !ready || self.in_flight.is_full() {
                break;
            }
            self.fill();
            let (more, before) = (self.batch.len() >= BATCH, self.statistics.events);
            let broke = self.send(now_ms).is_err();
            sent += self.statistics.events - before;
            if broke && self.sender.is_stream() {
                break;
            }
            self.batch.clear();
            if !more {
                break;
            }
        }
        sent
    }

    /// Events that were sent over TCP, and that the collector's host has not confirmed.
    pub fn unconfirmed(&self) -> u64 {
        self.in_flight.len() as u64
    }

    /// So many bytes of the connection are confirmed.
    fn confirm(&mut self, bytes: u64) {
        self.confirmed = self.in_flight.confirm(bytes).unwrap_or(self.confirmed);
    }

    /// What the last connection did not confirm is sent again, before all else.
    fn take_back(&mut self) {
        self.confirm(self.sender.confirmed_before());
        self.statistics.events -= self.unconfirmed();
        self.batch.splice(..0, self.in_flight.take_back());
        self.reported = if self.sender.is_stream() { self.confirmed } else { self.reported };
    }

    /// What became of the events so far.
    pub fn statistics(&self) -> Statistics {
        let suppressed = self.queues.iter().map(Consumer::suppressed).sum();
        Statistics { lost: self.lost(), suppressed, ..self.statistics }
    }

    /// Whether all workers are gone, and all that they said is sent, and confirmed where it is known.
    pub fn is_over(&mut self) -> bool {
        self.batch.is_empty()
            && self.in_flight.is_empty()
            && self.reported == self.lost()
            && self.queues.iter_mut().all(Consumer::is_over)
    }

    /// Give up on what is not sent yet, or not confirmed, and say how many events that is.
    pub fn abandon(&mut self) -> u64 {
        let waiting =
            self.queues.iter_mut().map(|queue| std::iter::from_fn(|| queue.pop()).count()).sum::<usize>();
        (std::mem::take(&mut self.batch).len() + self.in_flight.take_back().count() + waiting) as u64
    }

    fn lost(&self) -> u64 {
        self.refused + self.queues.iter().map(Consumer::lost).sum::<u64>()
    }

    /// Take events from all queues in turn.
    fn fill(&mut self) {
        loop {
            let before = self.batch.len();
            for queue in &mut self.queues {
                if self.batch.len() >= BATCH {
                    return;
                }
                self.batch.extend(queue.pop());
            }
            if self.batch.len() == before {
                return;
            }
        }
    }

    fn send(&mut self, now_ms: u64) -> Result<(), ()> {
        let lost = self.lost();
        let Self { encoder, sender, statistics, batch, refused, reported, written, .. } = self;
        written.clear();
        let (mut sent, mut last) = (Ok(()), Ok(()));
        let mut out = |message: &[u8], events: u32| {
            // After a break in the stream, the rest of the batch waits.
            if sent.is_err() && sender.is_stream() {
                return;
            }
            last = match sender.send(now_ms, message) {
                Ok(()) => {
                    statistics.events += u64::from(events);
                    statistics.messages += 1;
                    statistics.bytes += message.len() as u64;
                    written.push(SentMessage { end: sender.written(), events, lost: None });
                    Ok(())
                }
                Err(_) => {
                    statistics.errors += 1;
                    *refused += if sender.is_stream() { 0 } else { u64::from(events) };
                    sent = Err(());
                    sent
                }
            };
        };
        for event in batch.iter() {
            encoder.event(now_ms, event, &mut out);
        }
        if lost > *reported {
            encoder.lost(now_ms, lost - *reported, lost, &mut out);
        }
        encoder.flush(now_ms, &mut out);
        // The last message says it. In a stream it is said again with the batch.
        if sent.is_ok() || last.is_ok() && !sender.is_stream() {
            *reported = lost;
            written.iter_mut().next_back().into_iter().for_each(|message| message.lost = Some(lost));
        }
        if sender.is_stream() {
            let events: usize = written.iter().map(|message| message.events as usize).sum();
            self.in_flight.push(batch.drain(..events.min(batch.len())), written);
        }
        sent
    }
}

#[cfg(test)]
#[path = "logger_tests.rs"]
mod tests;
