//! Servers of datagrams over a network: the kernel's UDP, or a stack over a port.

use super::board::Board;
use crate::{Counters, DatagramService, Datagrams};
use std::io;
use std::net::SocketAddr;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// Datagrams that are received before what is due is sent.
const BURST: usize = 256;
/// Longest wait, so that the end is noticed.
const TURN: Duration = Duration::from_millis(50);
/// Largest datagram.
const LARGEST: usize = 1 << 16;

/// Datagrams from and to anybody.
pub trait DatagramNetwork {
    /// Wait until a datagram has come, for `longest` at most.
    fn wait(&mut self, longest: Duration) -> io::Result<()>;

    /// Take a datagram: its length, and who sent it; `None`: there is none for now.
    fn receive(&mut self, buffer: &mut [u8]) -> io::Result<Option<(usize, SocketAddr)>>;

    /// Send a datagram; whether there was room for it.
    fn send(&mut self, to: SocketAddr, bytes: &[u8]) -> bool;

    /// Let go of what was sent and is still here.
    fn flush(&mut self) {}

    /// Datagrams of clients for which the receive queue had no room, so far.
    fn overflowed(&mut self) -> u64;

    /// Datagrams that were taken by [`Self::send`] and could not be sent, so far.
    fn unsent(&self) -> u64 {
        0
    }
}

/// Serve until all are to end.
pub(super) fn serve(
    network: impl DatagramNetwork,
    service: impl DatagramService,
    number: usize,
    board: &Board,
) -> io::Result<()> {
    Worker { network, service, number, board }.run()
}

/// A service on its network.
struct Worker<'a, N, S> {
    network: N,
    service: S,
    number: usize,
    board: &'a Board,
}

impl<N: DatagramNetwork, S: DatagramService> Worker<'_, N, S> {
    /// Leave the counts on the board now and then, and when they are asked for.
    fn run(&mut self) -> io::Result<()> {
        let (mut out, mut buffer, mut refused) = (Datagrams::default(), vec![0; LARGEST], 0);
        let (began, mut told, mut answered) = (Instant::now(), Instant::now(), 0);
        let now = || u64::try_from(began.elapsed().as_nanos()).unwrap_or(u64::MAX);
        while !self.board.over.load(Ordering::Relaxed) {
            // before what came up to now is read
            let asked = self.board.asked.load(Ordering::Relaxed);
            let next = self.service.next_at();
            let due = next.map_or(TURN, |at| Duration::from_nanos(at.saturating_sub(now())));
            self.network.wait(due.min(TURN))?;
            let mut drained = false;
            for _ in 0..BURST {
                let Some((length, from)) = self.network.receive(&mut buffer)? else {
                    drained = true;
                    break;
                };
                out.now = now();
                self.service.received(from, &buffer[..length], &mut out);
                out.drain(|to, bytes| refused += u64::from(!self.network.send(to, bytes)));
            }
            out.now = now();
            self.service.advance(&mut out);
            out.drain(|to, bytes| refused += u64::from(!self.network.send(to, bytes)));
            self.network.flush();
            if drained && asked > answered || told.elapsed() >= TURN {
                if drained {
                    answered = asked;
                }
                told = Instant::now();
                let counters = self.counters(refused);
                self.board.leave(self.number, answered, counters);
            }
        }
        let counters = self.counters(refused);
        self.board.leave(self.number, u64::MAX, counters);
        Ok(())
    }

    fn counters(&mut self, refused: u64) -> Counters {
        let mut counters = self.service.counters();
        counters.insert("receive_queue_drops", self.network.overflowed());
        counters.insert("unsent_datagrams", refused + self.network.unsent());
        counters
    }
}
