//! A port with its stack as the network of a server of datagrams.

use crate::polling;
use crate::port::StackPort;
use crate::server::ListeningPort;
use dpdk::ThreadGuard;
use service::listen::DatagramNetwork;
use stack::SendOutcome;
use std::collections::VecDeque;
use std::io::{Error, Result};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

/// How often to look whether the port is there.
const WATCH: Duration = Duration::from_millis(200);
/// Bytes of replies that wait for their next hop, or for the port.
const WAITING: usize = 8 << 20;
/// How long one waits.
const PATIENCE: u64 = 4_000_000_000;

/// Datagrams of one port.
#[derive(Debug)]
pub struct PortDatagrams {
    port: StackPort,
    epoch: Instant,
    watched: Instant,
    /// Replies that could not be sent at once, and until when they are tried.
    waiting: VecDeque<(u64, SocketAddr, Vec<u8>)>,
    waiting_bytes: usize,
    /// Replies that were given up.
    lost: u64,
    /// Its thread is known to DPDK as long as this lives.
    _guard: ThreadGuard,
}

impl ListeningPort {
    /// The network for datagrams, on the thread that uses it.
    pub fn arrive_datagrams(self) -> Result<PortDatagrams> {
        let (port, guard) = self.take()?;
        let now = Instant::now();
        let waiting = VecDeque::new();
        Ok(PortDatagrams {
            port,
            epoch: now,
            watched: now,
            waiting,
            waiting_bytes: 0,
            lost: 0,
            _guard: guard,
        })
    }
}

impl PortDatagrams {
    fn now(&self) -> u64 {
        self.epoch.elapsed().as_nanos() as u64
    }

    /// Try again with what waits.
    fn retry(&mut self) {
        let now = self.now();
        for _ in 0..self.waiting.len() {
            let Some((until, to, bytes)) = self.waiting.pop_front() else { break };
            match self.port.send_datagram_to(to, &bytes, now) {
                SendOutcome::Later if now < until => {
                    self.waiting.push_back((until, to, bytes));
                    continue;
                }
                SendOutcome::Sent => {}
                SendOutcome::Later | SendOutcome::Lost => self.lost += 1,
            }
            self.waiting_bytes -= bytes.len();
        }
        self.port.send(now);
    }
}

impl DatagramNetwork for PortDatagrams {
    fn wait(&mut self, longest: Duration) -> Result<()> {
        let begun = Instant::now();
        if begun.duration_since(self.watched) >= WATCH {
            self.watched = begun;
            if let Some(lost) = self.port.loss_reason(0, true) {
                return Err(Error::other(lost));
            }
        }
        let mut came = Vec::new();
        polling::until_event(longest, &mut came, |came| {
            let any = self.port.turn(self.epoch.elapsed().as_nanos() as u64);
            while self.port.stack.event().is_some() {}
            if self.port.stack.has_datagram() {
                came.push(());
            }
            if any && !self.waiting.is_empty() {
                self.retry();
            }
            any
        });
        if !self.waiting.is_empty() {
            self.retry();
        }
        Ok(())
    }

    fn receive(&mut self, buffer: &mut [u8]) -> Result<Option<(usize, SocketAddr)>> {
        Ok(self.port.stack.take_datagram(buffer))
    }

    fn send(&mut self, to: SocketAddr, bytes: &[u8]) -> bool {
        let now = self.now();
        // those before it go first
        let sent = if self.waiting.is_empty() {
            self.port.send_datagram_to(to, bytes, now)
        } else {
            SendOutcome::Later
        };
        match sent {
            SendOutcome::Sent => true,
            SendOutcome::Later if self.waiting_bytes + bytes.len() <= WAITING => {
                self.waiting_bytes += bytes.len();
                self.waiting.push_back((now + PATIENCE, to, bytes.to_vec()));
                true
            }
            SendOutcome::Later | SendOutcome::Lost => false,
        }
    }

    fn flush(&mut self) {
        let now = self.now();
        self.port.send(now);
    }

    fn overflowed(&mut self) -> u64 {
        self.port.stack.overflowed_datagrams() + self.port.missed()
    }

    fn unsent(&self) -> u64 {
        self.lost
    }
}

impl Drop for PortDatagrams {
    fn drop(&mut self) {
        let epoch = self.epoch;
        StackPort::linger(std::slice::from_mut(&mut self.port), || epoch.elapsed().as_nanos() as u64);
    }
}
