//! A worker over a network that plays what comes.

use super::super::network::{Event, Network};
use super::Worker;
use crate::{ConnectionId, Counters, Output, Service};
use std::collections::VecDeque;
use std::io;
use std::thread::sleep;
use std::time::Duration;

const DELAY: Duration = Duration::from_millis(10);
/// Five are more than may be on their way (256 KiB).
const REPLY: usize = 64 << 10;

/// One connection: a piece comes each turn, an empty one is the end.
struct Pieces {
    accepts: bool,
    waits_for_input: bool,
    coming: VecDeque<&'static [u8]>,
    sent: usize,
    is_over: bool,
}

impl Network for Pieces {
    type Stream = ();

    fn wait(&mut self, longest: Duration, events: &mut Vec<Event>) -> io::Result<()> {
        sleep(longest);
        if self.accepts {
            events.push(Event::Accept);
        } else if self.waits_for_input && !self.coming.is_empty() {
            events.push(Event::Ready { slot: 0, room: false, input: true });
        }
        Ok(())
    }

    fn accept(&mut self, _: u32) -> io::Result<Option<()>> {
        Ok(std::mem::take(&mut self.accepts).then_some(()))
    }

    fn receive(&mut self, (): &mut (), buffer: &mut [u8]) -> io::Result<usize> {
        let piece = self.coming.pop_front().unwrap_or_default();
        buffer[..piece.len()].copy_from_slice(piece);
        Ok(piece.len())
    }

    fn send(&mut self, (): &mut (), bytes: &[u8]) -> io::Result<usize> {
        self.sent += bytes.len();
        Ok(bytes.len())
    }

    fn end(&mut self, (): &mut ()) -> io::Result<()> {
        self.is_over = true;
        Ok(())
    }

    fn watch(&mut self, (): &mut (), _: u32, _: bool, input: bool) -> io::Result<()> {
        self.waits_for_input = input;
        Ok(())
    }

    fn close(&mut self, (): ()) {}
}

/// Each byte is a request.
struct Large;

impl Service for Large {
    fn opened(&mut self, _: ConnectionId, _: &mut Output) {}

    fn received(&mut self, id: ConnectionId, _: &[u8], out: &mut Output) -> usize {
        out.send(id, |out| out.resize(out.len() + REPLY, b'x'));
        1
    }

    fn timer(&mut self, _: ConnectionId, _: &mut Output) {}

    fn closed(&mut self, _: ConnectionId, _: &mut Output) {}

    fn counters(&self) -> Counters {
        Counters::new()
    }
}

fn play(coming: &[&'static [u8]]) -> Pieces {
    let network = Pieces {
        accepts: true,
        waits_for_input: true,
        coming: coming.iter().copied().collect(),
        sent: 0,
        is_over: false,
    };
    let mut worker = Worker::new(network, DELAY.as_nanos() as u64);
    for _ in 0..8 {
        worker.turn(&mut Large, DELAY).expect("a turn");
    }
    worker.network
}

#[test]
fn requests_that_come_as_delayed_replies_leave_are_answered() {
    // the second piece is read in the turn in which the replies to the first are due: two more may be on their way, three wait
    let over = play(&[b"123", b"45678"]);
    assert_eq!((over.sent, over.is_over), (8 * REPLY, false));
    let over = play(&[b"123", b"45678", b""]);
    assert_eq!((over.sent, over.is_over), (8 * REPLY, true), "the client says that it sends no more");
}
