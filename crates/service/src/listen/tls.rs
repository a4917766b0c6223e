//! TLS between a network and its worker: records below, plain text above.

use super::network::{Event, Network};
use crate::Counters;
use rustls::{AlertDescription, Error, HandshakeKind, ProtocolVersion, ServerConfig, ServerConnection};
use std::io::{self, ErrorKind, Read, Write};
use std::sync::Arc;
use std::time::Duration;

/// Records taken at once: with one that they complete, their plain text fits the worker's buffer.
const CIPHER: usize = 16 << 10;
/// Plain text that becomes records at once.
const PLAIN: usize = 64 << 10;

/// A network whose connections speak TLS.
#[derive(Debug)]
pub struct TlsNetwork<N: Network> {
    network: N,
    config: Arc<ServerConfig>,
    /// By slot.
    sessions: Vec<Option<Session<N::Stream>>>,
    /// Slots whose session is over, which the worker is to be told.
    over: Vec<u32>,
    cipher: Vec<u8>,
    counts: Counts,
}

/// A connection, by its slot.
#[derive(Debug)]
pub struct Slot(u32);

#[derive(Debug)]
struct Session<S> {
    stream: S,
    tls: Box<ServerConnection>,
    /// Records that the network did not take yet, from `sent` on.
    out: Vec<u8>,
    sent: usize,
    /// What the worker waits for, and what the network was told: room, input.
    wanted: (bool, bool),
    watched: (bool, bool),
    handshaking: bool,
    /// The peer has said that it sends no more, or the session failed.
    over: bool,
    /// The worker knows that.
    told: bool,
    failed: bool,
    /// The worker has said that it sends no more.
    ends: bool,
}

#[derive(Debug, Default, Clone, Copy)]
struct Counts {
    handshakes: u64,
    resumed: u64,
    tls12: u64,
    tls13: u64,
    broken: u64,
    failed: [u64; FAILURES.len()],
}

/// Causes of handshakes that failed.
const FAILURES: [&str; 10] = [
    "tls_failed_no_tls",
    "tls_failed_version_or_cipher",
    "tls_failed_alpn",
    "tls_failed_no_client_certificate",
    "tls_failed_client_certificate",
    "tls_failed_alert_unknown_ca",
    "tls_failed_alert_bad_certificate",
    "tls_failed_alert_other",
    "tls_failed_closed",
    "tls_failed_other",
];

fn cause(error: &Error) -> &'static str {
    match error {
        Error::InvalidMessage(_) => "tls_failed_no_tls",
        Error::PeerIncompatible(_) => "tls_failed_version_or_cipher",
        Error::NoApplicationProtocol => "tls_failed_alpn",
        Error::NoCertificatesPresented => "tls_failed_no_client_certificate",
        Error::InvalidCertificate(_) => "tls_failed_client_certificate",
        Error::AlertReceived(AlertDescription::UnknownCA) => "tls_failed_alert_unknown_ca",
        Error::AlertReceived(
            AlertDescription::BadCertificate
            | AlertDescription::UnsupportedCertificate
            | AlertDescription::CertificateRevoked
            | AlertDescription::CertificateExpired
            | AlertDescription::CertificateUnknown,
        ) => "tls_failed_alert_bad_certificate",
        Error::AlertReceived(_) => "tls_failed_alert_other",
        _ => "tls_failed_other",
    }
}

impl Counts {
    fn fail(&mut self, cause: &str) {
        if let Some(at) = FAILURES.iter().position(|name| *name == cause) {
            self.failed[at] += 1;
        }
    }

    fn succeed(&mut self, tls: &ServerConnection) {
        self.handshakes += 1;
        self.resumed += u64::from(tls.handshake_kind() == Some(HandshakeKind::Resumed));
        match tls.protocol_version() {
            Some(ProtocolVersion::TLSv1_2) => self.tls12 += 1,
            _ => self.tls13 += 1,
        }
    }
}

impl<S> Session<S> {
    fn waiting(&self) -> bool {
        self.sent < self.out.len()
    }

    /// Send records, as far as the network takes them.
    fn flush(&mut self, network: &mut impl Network<Stream = S>) -> io::Result<()> {
        while self.tls.wants_write() {
            self.tls.write_tls(&mut self.out)?;
        }
        while self.waiting() {
            match network.send(&mut self.stream, &self.out[self.sent..]) {
                Ok(taken) => self.sent += taken,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) => return Err(error),
            }
        }
        // idle connections keep no memory
        (self.out, self.sent) = (Vec::new(), 0);
        Ok(())
    }

    /// Tell the network what is waited for, if that has changed.
    fn watch(&mut self, network: &mut impl Network<Stream = S>, slot: u32) -> io::Result<()> {
        let wanted = (self.wanted.0 || self.waiting(), self.wanted.1);
        if wanted != self.watched {
            self.watched = wanted;
            network.watch(&mut self.stream, slot, wanted.0, wanted.1)?;
        }
        Ok(())
    }

    /// Take records, and give their plain text; how many bytes.
    fn open(&mut self, mut records: &[u8], buffer: &mut [u8], counts: &mut Counts) -> io::Result<usize> {
        let mut filled = 0;
        while !records.is_empty() && !self.over {
            self.tls.read_tls(&mut records)?;
            match self.tls.process_new_packets() {
                Ok(state) => {
                    let mut plain = state.plaintext_bytes_to_read();
                    while plain > 0 && filled < buffer.len() {
                        let taken = self.tls.reader().read(&mut buffer[filled..])?;
                        (filled, plain) = (filled + taken, plain.saturating_sub(taken));
                    }
                    if self.handshaking && !self.tls.is_handshaking() {
                        self.handshaking = false;
                        counts.succeed(&self.tls);
                    }
                    self.over |= state.peer_has_closed();
                }
                Err(error) => {
                    match self.handshaking {
                        true => counts.fail(cause(&error)),
                        false => counts.broken += 1,
                    }
                    (self.over, self.failed, self.handshaking) = (true, true, false);
                }
            }
        }
        Ok(filled)
    }
}

impl<N: Network> TlsNetwork<N> {
    /// TLS over `network`.
    pub fn new(network: N, config: Arc<ServerConfig>) -> Self {
        let (sessions, over) = (Vec::new(), Vec::new());
        Self { network, config, sessions, over, cipher: vec![0; CIPHER], counts: Counts::default() }
    }

    fn parts(&mut self, slot: u32) -> io::Result<(&mut N, &mut Session<N::Stream>)> {
        let session = self.sessions.get_mut(slot as usize).and_then(Option::as_mut);
        session.map(|session| (&mut self.network, session)).ok_or_else(|| ErrorKind::NotConnected.into())
    }

    /// Events of slots whose session is over, though nothing more comes below.
    fn tell_over(&mut self, events: &mut Vec<Event>) {
        let sessions = &self.sessions;
        self.over.retain(|slot| {
            let session = sessions.get(*slot as usize).and_then(Option::as_ref);
            session.is_some_and(|session| session.over && !session.told && session.wanted.1)
        });
        events.extend(self.over.iter().map(|slot| Event::Ready { slot: *slot, room: false, input: true }));
    }
}

impl<N: Network> Network for TlsNetwork<N> {
    type Stream = Slot;

    fn wait(&mut self, longest: Duration, events: &mut Vec<Event>) -> io::Result<()> {
        self.tell_over(events);
        let longest = if events.is_empty() { longest } else { Duration::ZERO };
        self.network.wait(longest, events)?;
        for event in events {
            if let Event::Ready { slot, room, .. } = event
                && *room
                && let Ok((network, session)) = self.parts(*slot)
            {
                // a connection that broke is told by what is done with it next
                let sent = session.flush(network).and_then(|()| session.watch(network, *slot));
                *room = sent.is_err() || !session.waiting();
            }
        }
        Ok(())
    }

    fn accept(&mut self, slot: u32) -> io::Result<Option<Slot>> {
        let Some(stream) = self.network.accept(slot)? else { return Ok(None) };
        let mut tls = ServerConnection::new(Arc::clone(&self.config)).map_err(io::Error::other)?;
        // what is written leaves it at once: a message may be larger than its buffer
        tls.set_buffer_limit(None);
        let at = slot as usize;
        if self.sessions.len() <= at {
            self.sessions.resize_with(at + 1, || None);
        }
        self.sessions[at] = Some(Session {
            stream,
            tls: Box::new(tls),
            out: Vec::new(),
            sent: 0,
            wanted: (false, true),
            watched: (false, true),
            handshaking: true,
            over: false,
            told: false,
            failed: false,
            ends: false,
        });
        Ok(Some(Slot(slot)))
    }

    fn receive(&mut self, Slot(slot): &mut Slot, buffer: &mut [u8]) -> io::Result<usize> {
        let session = self.sessions.get_mut(*slot as usize).and_then(Option::as_mut);
        let session = session.ok_or(ErrorKind::NotConnected)?;
        if session.over && !session.told {
            session.told = true;
            return Ok(0);
        }
        let length = self.network.receive(&mut session.stream, &mut self.cipher)?;
        if session.ends || session.over {
            // what still comes is dropped
            return if length == 0 { Ok(0) } else { Err(ErrorKind::WouldBlock.into()) };
        }
        if length == 0 {
            // without close_notify: many clients leave so
            if std::mem::take(&mut session.handshaking) {
                self.counts.fail("tls_failed_closed");
                session.failed = true;
            }
            (session.over, session.told) = (true, true);
            return Ok(0);
        }
        let filled = session.open(&self.cipher[..length], buffer, &mut self.counts)?;
        session.flush(&mut self.network)?;
        session.watch(&mut self.network, *slot)?;
        if filled == 0 && session.over {
            session.told = true;
            return Ok(0);
        }
        if session.over {
            self.over.push(*slot);
        }
        if filled > 0 { Ok(filled) } else { Err(ErrorKind::WouldBlock.into()) }
    }

    fn send(&mut self, Slot(slot): &mut Slot, bytes: &[u8]) -> io::Result<usize> {
        let (network, session) = self.parts(*slot)?;
        if session.failed {
            return Err(ErrorKind::BrokenPipe.into());
        }
        session.flush(network)?;
        if session.waiting() {
            session.watch(network, *slot)?;
            return Err(ErrorKind::WouldBlock.into());
        }
        let taken = bytes.len().min(PLAIN);
        session.tls.writer().write_all(&bytes[..taken])?;
        session.flush(network)?;
        session.watch(network, *slot)?;
        Ok(taken)
    }

    fn end(&mut self, Slot(slot): &mut Slot) -> io::Result<()> {
        let (network, session) = self.parts(*slot)?;
        if !std::mem::replace(&mut session.ends, true) && !session.failed {
            session.tls.send_close_notify();
        }
        session.flush(network)?;
        session.watch(network, *slot)?;
        if session.waiting() { Err(ErrorKind::WouldBlock.into()) } else { network.end(&mut session.stream) }
    }

    fn watch(&mut self, stream: &mut Slot, slot: u32, room: bool, input: bool) -> io::Result<()> {
        let (network, session) = self.parts(stream.0)?;
        session.wanted = (room, input);
        session.watch(network, slot)?;
        if input && session.over && !session.told {
            self.over.push(slot);
        }
        Ok(())
    }

    fn close(&mut self, Slot(slot): Slot) {
        if let Some(session) = self.sessions.get_mut(slot as usize).and_then(Option::take) {
            if session.handshaking {
                self.counts.fail("tls_failed_closed");
            }
            self.network.close(session.stream);
        }
    }

    fn count(&self, into: &mut Counters) {
        let Counts { handshakes, resumed, tls12, tls13, broken, failed } = self.counts;
        into.extend([
            ("tls_handshakes", handshakes),
            ("tls_handshakes_resumed", resumed),
            ("tls_handshakes_tls12", tls12),
            ("tls_handshakes_tls13", tls13),
            ("tls_handshakes_failed", failed.iter().sum()),
            ("tls_broken", broken),
        ]);
        into.extend(FAILURES.into_iter().zip(failed));
        self.network.count(into);
    }
}
