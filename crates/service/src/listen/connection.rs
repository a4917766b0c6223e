//! One connection: what came and was not used, and what waits to be sent.

use super::network::Network;
use std::io::{ErrorKind, Result};
use std::sync::{Arc, LazyLock};

/// Bytes that say nothing, of all connections.
static FILL: LazyLock<Arc<[u8]>> = LazyLock::new(|| vec![b'x'; 64 << 10].into());
/// Bytes that wait for a connection to take them; a connection that has as many and is to get more is given up.
const SLOW: usize = 8 << 20;
/// Bytes on their way above which nothing more is taken from a connection.
const FULL: usize = 256 << 10;

/// How far a connection is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stage {
    Open,
    /// It is closed when everything is sent.
    Finishing,
    /// Everything is sent and said to be the end; what the peer still sends is dropped, so that it is not reset.
    Lingering,
    /// To be closed now.
    Gone,
}

#[derive(Debug)]
pub(super) struct Connection<S> {
    pub stream: S,
    pub stage: Stage,
    /// The peer sends no more.
    pub ended: bool,
    /// What came and was not used.
    pub input: Vec<u8>,
    /// Some of it was not passed, as too much was on its way.
    pub stopped: bool,
    /// What waits to be sent, from `sent` on, and bytes that say nothing after it.
    output: Vec<u8>,
    sent: usize,
    fill: usize,
    /// Bytes that the network took, of which the service was not told yet.
    pub taken: usize,
    /// Bytes that wait for their time.
    pub delayed: usize,
    /// Whether room to send is waited for.
    pub waits_for_room: bool,
    /// Whether input is waited for.
    pub waits_for_input: bool,
}

impl<S> Connection<S> {
    pub fn new(stream: S) -> Self {
        Self {
            stream,
            stage: Stage::Open,
            ended: false,
            input: Vec::new(),
            stopped: false,
            output: Vec::new(),
            sent: 0,
            fill: 0,
            taken: 0,
            delayed: 0,
            waits_for_room: false,
            waits_for_input: true,
        }
    }

    /// Bytes that are not sent.
    pub fn unsent(&self) -> usize {
        self.output.len() - self.sent + self.fill
    }

    /// Whether it is to wait with what it asks for.
    pub fn is_full(&self) -> bool {
        self.fill > 0 || self.unsent() + self.delayed > FULL
    }

    pub fn send(&mut self, network: &mut impl Network<Stream = S>, bytes: &[u8]) {
        if self.unsent() > SLOW {
            self.stage = Stage::Gone;
            return;
        }
        if self.unsent() > 0 {
            self.output.resize(self.output.len() + std::mem::take(&mut self.fill), b'x');
            self.output.extend_from_slice(bytes);
            return;
        }
        let taken = self.push(network, bytes);
        if taken < bytes.len() {
            self.output.extend_from_slice(&bytes[taken..]);
        }
    }

    pub fn fill(&mut self, network: &mut impl Network<Stream = S>, length: usize) {
        self.fill += length;
        self.flush(network);
    }

    /// Send what waits.
    pub fn flush(&mut self, network: &mut impl Network<Stream = S>) {
        if self.sent < self.output.len() {
            let waiting = std::mem::take(&mut self.output);
            self.sent += self.push(network, &waiting[self.sent..]);
            self.output = waiting;
            if self.sent < self.output.len() {
                return;
            }
            // idle connections keep no memory
            (self.output, self.sent) = (Vec::new(), 0);
        }
        while self.fill > 0 {
            let left = self.fill;
            match self.attempt(|stream| network.send_shared(stream, &FILL, left)) {
                0 => break,
                taken => self.fill -= taken,
            }
        }
    }

    /// What the network takes.
    fn push(&mut self, network: &mut impl Network<Stream = S>, mut bytes: &[u8]) -> usize {
        let all = bytes.len();
        while !bytes.is_empty() {
            match self.attempt(|stream| network.send(stream, bytes)) {
                0 => break,
                taken => bytes = &bytes[taken..],
            }
        }
        all - bytes.len()
    }

    /// What the network takes at once; 0: nothing now, or never again.
    fn attempt(&mut self, mut send: impl FnMut(&mut S) -> Result<usize>) -> usize {
        while self.stage != Stage::Gone {
            match send(&mut self.stream) {
                Ok(taken) => {
                    self.taken += taken;
                    return taken;
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(_) => self.stage = Stage::Gone,
            }
        }
        0
    }

    /// Go on to the end, if everything is sent; whether it lingers from now on.
    pub fn finish(&mut self, network: &mut impl Network<Stream = S>) -> bool {
        if self.stage != Stage::Finishing || self.unsent() > 0 || self.delayed > 0 {
            return false;
        }
        self.input = Vec::new();
        match network.end(&mut self.stream) {
            Ok(()) => self.stage = Stage::Lingering,
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            Err(_) => self.stage = Stage::Gone,
        }
        self.stage == Stage::Lingering
    }
}

#[cfg(test)]
mod tests {
    use super::super::network::Event;
    use super::*;
    use std::time::Duration;

    /// Takes 100,000 bytes each time, then nothing until it is asked again; what it copied, and what it refers to.
    #[derive(Default)]
    struct Network {
        copied: Vec<u8>,
        shared: usize,
        is_full: bool,
    }

    impl Network {
        fn take(&mut self, length: usize) -> Result<usize> {
            self.is_full = !self.is_full;
            if self.is_full { Ok(length.min(100_000)) } else { Err(ErrorKind::WouldBlock.into()) }
        }
    }

    impl super::Network for Network {
        type Stream = ();

        fn wait(&mut self, _: Duration, _: &mut Vec<Event>) -> Result<()> {
            Ok(())
        }

        fn accept(&mut self, _: u32) -> Result<Option<()>> {
            Ok(None)
        }

        fn receive(&mut self, (): &mut (), _: &mut [u8]) -> Result<usize> {
            Ok(0)
        }

        fn send(&mut self, (): &mut (), bytes: &[u8]) -> Result<usize> {
            let taken = self.take(bytes.len())?;
            self.copied.extend_from_slice(&bytes[..taken]);
            Ok(taken)
        }

        fn send_shared(&mut self, (): &mut (), body: &Arc<[u8]>, length: usize) -> Result<usize> {
            assert!(body.iter().all(|byte| *byte == b'x'));
            let taken = self.take(length)?;
            self.shared += taken;
            Ok(taken)
        }

        fn end(&mut self, (): &mut ()) -> Result<()> {
            Ok(())
        }

        fn watch(&mut self, (): &mut (), _: u32, _: bool, _: bool) -> Result<()> {
            Ok(())
        }

        fn close(&mut self, (): ()) {}
    }

    #[test]
    fn a_body_is_not_copied() {
        let (mut network, mut connection) = (Network::default(), Connection::new(()));
        connection.send(&mut network, b"head");
        connection.fill(&mut network, 1 << 20);
        while connection.unsent() > 0 {
            connection.flush(&mut network);
            assert!(connection.output.is_empty());
        }
        assert_eq!((&network.copied[..], network.shared), (&b"head"[..], 1 << 20));
        assert_eq!(connection.taken, (1 << 20) + 4);
    }
}
