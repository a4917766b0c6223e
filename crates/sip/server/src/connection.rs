//! One connection: bytes of a socket to messages and back, in TLS or not, in WebSocket messages or in the stream itself.

use crate::peer::{Broken, Given};
use rustls::client::verify_server_name;
use rustls::pki_types::ServerName;
use rustls::server::ParsedCertificate;
use rustls::{ServerConfig, ServerConnection};
use sip_core::message::{Framer, MAX_BODY, MAX_HEAD};
use std::io::{self, ErrorKind, Read, Write};
use std::net::TcpStream;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::Instant;
use websocket::{Fault, Incoming, Socket};

/// Bytes that wait for a connection to take them; beyond, it is closed.
const BACKLOG: usize = 8 << 20;
/// Bytes that go to the socket at once: what there is less of waits for the end of the turn.
const AT_ONCE: usize = 16 << 10;
/// Reads of a connection before others, and timers, have their turn.
const BURST: usize = 4;
/// Bytes of a read.
const READ: usize = 16 << 10;

/// A connection.
#[derive(Debug)]
pub(crate) struct Connection {
    stream: TcpStream,
    tls: Option<Box<ServerConnection>>,
    websocket: Option<Box<Socket>>,
    framer: Framer,
    buffer: Vec<u8>,
    /// Bytes that the socket has not taken.
    waiting: Vec<u8>,
    open: bool,
    /// Nothing more can be read from it; what is to be sent still is.
    ends: bool,
    fault: Option<Broken>,
    /// When a client has to have sent its first message; none: it has, or we opened the connection.
    speak_by: Option<Instant>,
}

impl AsFd for Connection {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }
}

impl Connection {
    /// One of a client, which has to send a message by then; none: TLS cannot begin.
    pub fn accepted(
        stream: TcpStream,
        tls: Option<&Arc<ServerConfig>>,
        in_websocket: bool,
        speak_by: Instant,
    ) -> Option<Self> {
        let tls = match tls {
            None => None,
            Some(config) => {
                let mut session = ServerConnection::new(Arc::clone(config)).ok()?;
                // what waits is bounded by the backlog
                session.set_buffer_limit(None);
                Some(Box::new(session))
            }
        };
        let websocket = match in_websocket {
            true => Some(Box::new(Socket::server("sip", MAX_HEAD + MAX_BODY).ok()?)),
            false => None,
        };
        Some(Self { tls, websocket, speak_by: Some(speak_by), ..Self::new(stream) })
    }

    /// One of TCP alone.
    pub fn new(stream: TcpStream) -> Self {
        Self {
            stream,
            tls: None,
            websocket: None,
            framer: Framer::default(),
            buffer: Vec::new(),
            waiting: Vec::new(),
            open: true,
            ends: false,
            fault: None,
            speak_by: None,
        }
    }

    /// Whether the client has shown a certificate of this host, which our authorities signed.
    pub fn proves(&self, host: &str) -> bool {
        let shown = self.tls.as_ref().and_then(|session| session.peer_certificates()?.first());
        let host = host.trim_start_matches('[').trim_end_matches(']');
        let Some((certificate, Ok(name))) = shown.map(|shown| (shown, ServerName::try_from(host))) else {
            return false;
        };
        ParsedCertificate::try_from(certificate)
            .is_ok_and(|certificate| verify_server_name(&certificate, &name).is_ok())
    }

    /// Ends the connection of a client that has sent no message in time.
    pub fn expire(&mut self, now: Instant) {
        if self.speak_by.is_some_and(|by| by <= now) {
            self.close(Given::Silent);
        }
    }

    /// By when its client has to have sent its first message; none: it has.
    pub fn silent_until(&self) -> Option<Instant> {
        self.speak_by
    }

    fn close(&mut self, why: Given) {
        self.open = false;
        self.fault = Some(Broken::GivenUp(why));
    }

    pub fn is_open(&self) -> bool {
        self.open
    }

    pub fn is_flushed(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Whether messages can come.
    pub fn reads(&self) -> bool {
        self.open && !self.ends
    }

    /// Close it if nothing more can be read from it, and all is sent.
    pub fn end(&mut self) {
        self.open &= !(self.ends && self.is_flushed());
    }

    /// What was wrong with it.
    pub fn fault(&self) -> Option<&Broken> {
        self.fault.as_ref()
    }

    /// Send a message, at [`Self::flush`] at the latest.
    pub fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        if self.waiting.len() + bytes.len() > BACKLOG {
            self.close(Given::Unread);
            return Err(ErrorKind::OutOfMemory.into());
        }
        match &mut self.websocket {
            Some(socket) => {
                socket.send(bytes);
                self.take_frames()?;
            }
            None => self.put(bytes)?,
        }
        self.seal();
        if self.waiting.len() >= AT_ONCE {
            self.flush();
        }
        Ok(())
    }

    fn put(&mut self, bytes: &[u8]) -> io::Result<()> {
        match &mut self.tls {
            Some(session) => session.writer().write_all(bytes),
            None => self.waiting.write_all(bytes),
        }
    }

    /// Send what WebSocket wants to send.
    fn take_frames(&mut self) -> io::Result<()> {
        let mut frames = Vec::new();
        if let Some(socket) = &mut self.websocket {
            socket.take(&mut frames);
        }
        self.put(&frames)
    }

    /// Make records of what is to go over TLS.
    fn seal(&mut self) {
        if let Some(session) = &mut self.tls {
            while session.wants_write() && session.write_tls(&mut self.waiting).is_ok() {}
        }
    }

    /// Send what waits.
    pub fn flush(&mut self) {
        self.seal();
        while self.open && !self.waiting.is_empty() {
            match self.stream.write(&self.waiting) {
                Ok(0) => self.open = false,
                Ok(length) => drop(self.waiting.drain(..length)),
                Err(error) if later(&error) => break,
                Err(_) => self.open = false,
            }
        }
    }

    /// Read what came, as much as a connection may at a time.
    pub fn read(&mut self, mut message: impl FnMut(Vec<u8>)) {
        let mut chunk = [0; READ];
        let mut came = false;
        let mut message = |bytes| {
            came = true;
            message(bytes);
        };
        for _ in 0..BURST {
            if !self.reads() {
                break;
            }
            match self.stream.read(&mut chunk) {
                Ok(0) => self.open = false,
                Ok(length) => {
                    if let Err(error) = self.take(&chunk[..length]) {
                        // the alert tells the client
                        self.flush();
                        self.open = false;
                        self.fault = Some(Broken::Tls(error.to_string()));
                        break;
                    }
                    self.split(&mut message);
                }
                Err(error) if later(&error) => break,
                Err(_) => self.open = false,
            }
        }
        if came {
            self.speak_by = None;
        }
    }

    /// Bytes came: they are text, or records of it.
    fn take(&mut self, mut bytes: &[u8]) -> Result<(), rustls::Error> {
        let Some(session) = &mut self.tls else {
            self.buffer.extend_from_slice(bytes);
            return Ok(());
        };
        while !bytes.is_empty() {
            // a buffer that takes no more is a fault of who sent records without end
            if session.read_tls(&mut bytes).is_err() {
                return Err(rustls::Error::General("no room for records".into()));
            }
            let state = session.process_new_packets()?;
            // as much as there is
            let _none_left = session.reader().read_to_end(&mut self.buffer);
            if state.peer_has_closed() {
                self.open = false;
            }
        }
        self.flush();
        Ok(())
    }

    fn split(&mut self, message: &mut impl FnMut(Vec<u8>)) {
        if self.websocket.is_some() {
            return self.messages(message);
        }
        let mut begin = 0;
        loop {
            let rest = &self.buffer[begin..];
            match self.framer.frame(rest) {
                Ok(Some(length)) => {
                    message(rest[..length].to_vec());
                    begin += length;
                }
                Ok(None) => break,
                Err(_) => {
                    // a stream without Content-Length cannot be read any further (RFC 3261 section 18.3)
                    message(rest.to_vec());
                    begin = self.buffer.len();
                    self.ends = true;
                    break;
                }
            }
        }
        self.buffer.drain(..begin);
    }

    /// Messages of WebSocket.
    fn messages(&mut self, message: &mut impl FnMut(Vec<u8>)) {
        let Some(socket) = &mut self.websocket else { return };
        socket.receive(&std::mem::take(&mut self.buffer));
        loop {
            match socket.poll() {
                Ok(Some(Incoming::Message(bytes)))
                    if bytes.iter().all(|byte| matches!(byte, b'\r' | b'\n')) =>
                {
                    // a keep-alive (RFC 5626 section 4.4.1)
                    socket.send(b"\r\n");
                }
                Ok(Some(Incoming::Message(bytes))) => message(bytes),
                Ok(Some(Incoming::Open)) => {}
                Ok(None) => break,
                Err(fault) => {
                    if !matches!(fault, Fault::Closed { .. }) {
                        self.fault = Some(Broken::WebSocket(fault.to_string()));
                    }
                    // the answer to a close, or to what was no handshake
                    let _as_far_as_it_goes = self.take_frames();
                    self.flush();
                    self.open = false;
                    return;
                }
            }
        }
        if self.take_frames().is_err() {
            self.open = false;
        }
        self.flush();
    }
}

fn later(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted | ErrorKind::NotConnected)
}
