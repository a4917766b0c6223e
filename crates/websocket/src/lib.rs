//! WebSocket connections (RFC 6455) without I/O: bytes that came go in, messages and bytes to send come out.
//!
//! Handshake and frames are those of `tungstenite`: masks, fragments, pings and the close handshake. Both sides agree on one
//! subprotocol.

mod fault;
mod pipe;
#[cfg(test)]
mod tests;

pub use fault::Fault;

use pipe::Pipe;
use tungstenite::error::Error;
use tungstenite::handshake::client::{ClientHandshake, generate_key};
use tungstenite::handshake::server::{
    Callback, ErrorResponse, Request, Response, ServerHandshake, write_response,
};
use tungstenite::handshake::{HandshakeError, HandshakeRole, MidHandshake};
use tungstenite::http;
use tungstenite::protocol::{CloseFrame, WebSocket, WebSocketConfig};
use tungstenite::{Message, Utf8Bytes};

/// Buffer of a connection for what it reads: a message of usual length.
const BUFFER: usize = 4096;
/// Bytes of a response that are kept to tell what was wrong with it.
const HEAD: usize = 8192;

/// Name of the field by which a client asks for proof that its handshake was read.
const KEY: &str = "Sec-WebSocket-Key";

/// The one subprotocol that a server takes.
#[derive(Debug)]
struct Subprotocol(&'static str);

impl Callback for Subprotocol {
    fn on_request(self, request: &Request, mut response: Response) -> Result<Response, ErrorResponse> {
        const FIELD: &str = "Sec-WebSocket-Protocol";
        let refused = |what: String| {
            let mut refused = ErrorResponse::new(Some(what));
            *refused.status_mut() = http::StatusCode::BAD_REQUEST;
            refused
        };
        // RFC 6455 section 4.2.1: 16 bytes in base64
        if !request.headers().get(KEY).is_some_and(|key| is_key(key.as_bytes())) {
            return Err(refused(format!("{KEY} is not 16 bytes in base64\n")));
        }
        let offered = request.headers().get_all(FIELD).into_iter().filter_map(|value| value.to_str().ok());
        if offered.flat_map(|value| value.split(',')).any(|one| one.trim() == self.0) {
            response.headers_mut().insert(FIELD, http::HeaderValue::from_static(self.0));
            return Ok(response);
        }
        Err(refused(format!("{FIELD}: {} is missing\n", self.0)))
    }
}

/// Whether a key is 16 bytes in base64: 22 digits, of which the last has four bits, and `==`.
fn is_key(key: &[u8]) -> bool {
    let is_digit = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/');
    let Some((digits, b"==")) = key.split_at_checked(22) else { return false };
    digits.iter().all(is_digit) && b"AQgw".contains(&digits[21])
}

#[derive(Debug)]
enum State {
    Asking(Box<MidHandshake<ClientHandshake<Pipe>>>),
    Awaiting(Box<MidHandshake<ServerHandshake<Pipe, Subprotocol>>>),
    Open(Box<WebSocket<Pipe>>),
    Over,
}

/// A WebSocket connection.
#[derive(Debug)]
pub struct Socket {
    state: State,
    protocol: &'static str,
    /// What came before the connection was open, to tell what was wrong with it.
    head: Vec<u8>,
    /// Bytes to send of a handshake that is over.
    rest: Vec<u8>,
}

/// What came.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Incoming {
    /// The handshake is over: messages may be sent.
    Open,
    /// A message, of text or binary.
    Message(Vec<u8>),
}

impl Socket {
    /// A client's. `host`: of the target, with its port where that is not the scheme's; `most`: bytes of a message.
    pub fn client(host: &str, path: &str, protocol: &'static str, most: usize) -> Result<Self, Fault> {
        let request = http::Request::get(format!("ws://{host}{path}"))
            .header("Host", host)
            .header("Connection", "Upgrade")
            .header("Upgrade", "websocket")
            .header("Sec-WebSocket-Version", "13")
            .header("Sec-WebSocket-Key", generate_key())
            .header("Sec-WebSocket-Protocol", protocol)
            .body(())
            .map_err(|why| Fault::Handshake(why.to_string()))?;
        let begun = ClientHandshake::start(Pipe::default(), request, Some(limits(most)));
        let begun = begun.map_err(|why| Fault::of_handshake(&why, b"", protocol))?;
        Self::begun(State::Asking(Box::new(begun)), protocol)
    }

    /// A server's, which refuses clients that do not offer the subprotocol.
    pub fn server(protocol: &'static str, most: usize) -> Result<Self, Fault> {
        let begun = ServerHandshake::start(Pipe::default(), Subprotocol(protocol), Some(limits(most)));
        Self::begun(State::Awaiting(Box::new(begun)), protocol)
    }

    fn begun(state: State, protocol: &'static str) -> Result<Self, Fault> {
        let mut socket = Self { state, protocol, head: Vec::new(), rest: Vec::new() };
        socket.shake()?;
        Ok(socket)
    }

    /// Whether messages can be sent.
    pub fn is_open(&self) -> bool {
        matches!(&self.state, State::Open(socket) if socket.can_write())
    }

    /// Bytes came.
    pub fn receive(&mut self, bytes: &[u8]) {
        if !matches!(self.state, State::Open(_)) {
            let room = HEAD.saturating_sub(self.head.len());
            self.head.extend_from_slice(&bytes[..bytes.len().min(room)]);
        }
        if let Some(pipe) = self.pipe() {
            pipe.came.extend(bytes);
        }
    }

    /// The next of what came. After a fault nothing is read any more; what is to be sent is still sent.
    pub fn poll(&mut self) -> Result<Option<Incoming>, Fault> {
        if matches!(self.state, State::Asking(_) | State::Awaiting(_)) {
            return Ok(self.shake()?.then_some(Incoming::Open));
        }
        let State::Open(socket) = &mut self.state else { return Ok(None) };
        loop {
            let fault = match socket.read() {
                Ok(Message::Text(text)) => return Ok(Some(Incoming::Message(text.as_bytes().to_vec()))),
                Ok(Message::Binary(bytes)) => return Ok(Some(Incoming::Message(bytes.to_vec()))),
                // a ping is answered with what is sent next
                Ok(Message::Ping(_) | Message::Pong(_) | Message::Frame(_)) => continue,
                Ok(Message::Close(frame)) => {
                    let (code, reason) = frame.map_or((None, String::new()), |frame| {
                        (Some(frame.code.into()), frame.reason.to_string())
                    });
                    Fault::Closed { code, reason }
                }
                Err(Error::Io(_)) => return Ok(None),
                Err(error) => Fault::of_frame(&error),
            };
            // the close handshake is answered, and a fault of the other side's is its end (RFC 6455 section 7.1.7)
            let why = fault.close_code().map(|code| CloseFrame { code, reason: Utf8Bytes::default() });
            let _nothing_more = socket.close(why);
            self.end();
            return Err(fault);
        }
    }

    /// Send a message: text where it is UTF-8, else binary.
    pub fn send(&mut self, message: &[u8]) {
        if let State::Open(socket) = &mut self.state {
            let message = match std::str::from_utf8(message) {
                Ok(text) => Message::text(text),
                Err(_) => Message::binary(message.to_vec()),
            };
            let _is_closing = socket.send(message);
        }
    }

    /// Say that nothing more will be sent.
    pub fn close(&mut self) {
        if let State::Open(socket) = &mut self.state {
            let _is_closing = socket.close(None);
        }
    }

    /// Put bytes to send behind `out`.
    pub fn take(&mut self, out: &mut Vec<u8>) {
        if let State::Open(socket) = &mut self.state {
            let _pongs = socket.flush();
        }
        out.append(&mut self.rest);
        if let Some(pipe) = self.pipe() {
            out.append(&mut pipe.out);
        }
    }

    fn pipe(&mut self) -> Option<&mut Pipe> {
        match &mut self.state {
            State::Asking(begun) => Some(begun.get_mut().get_mut()),
            State::Awaiting(begun) => Some(begun.get_mut().get_mut()),
            State::Open(socket) => Some(socket.get_mut()),
            State::Over => None,
        }
    }

    /// Nothing is read any more.
    fn end(&mut self) {
        if let Some(pipe) = self.pipe() {
            let mut out = std::mem::take(&mut pipe.out);
            self.rest.append(&mut out);
        }
        self.state = State::Over;
    }

    /// Move the handshake on; whether it is over.
    fn shake(&mut self) -> Result<bool, Fault> {
        let done = match std::mem::replace(&mut self.state, State::Over) {
            State::Asking(begun) => {
                step(*begun, |begun| State::Asking(Box::new(begun)), |(socket, _)| socket)
            }
            State::Awaiting(begun) => {
                let done = step(*begun, |begun| State::Awaiting(Box::new(begun)), |socket| socket);
                if let Err(error) = &done {
                    refuse(error, &mut self.rest);
                }
                done
            }
            other => {
                self.state = other;
                return Ok(false);
            }
        };
        match done {
            Ok(state) => self.state = state,
            Err(error) => return Err(Fault::of_handshake(&error, &self.head, self.protocol)),
        }
        let open = matches!(self.state, State::Open(_));
        if open {
            self.head = Vec::new();
        }
        Ok(open)
    }
}

/// One step of a handshake.
fn step<R: HandshakeRole<InternalStream = Pipe>>(
    begun: MidHandshake<R>,
    again: impl FnOnce(MidHandshake<R>) -> State,
    socket: impl FnOnce(R::FinalResult) -> WebSocket<Pipe>,
) -> Result<State, Error> {
    match begun.handshake() {
        Ok(done) => Ok(State::Open(Box::new(socket(done)))),
        Err(HandshakeError::Interrupted(begun)) => Ok(again(begun)),
        Err(HandshakeError::Failure(error)) => Err(error),
    }
}

/// What a server answers a request for no connection of this kind.
fn refuse(error: &Error, out: &mut Vec<u8>) {
    let mut refused = http::Response::new(None);
    *refused.status_mut() = http::StatusCode::BAD_REQUEST;
    let refused = match error {
        Error::Http(response) => response,
        _ => &Box::new(refused),
    };
    let body = refused.body().clone().unwrap_or_default();
    let mut head = Vec::new();
    if write_response(&mut head, refused).is_ok() {
        // before the empty line
        out.extend_from_slice(head.strip_suffix(b"\r\n").unwrap_or(&head));
        out.extend_from_slice(
            format!("Connection: close\r\nContent-Length: {}\r\n\r\n", body.len()).as_bytes(),
        );
        out.extend_from_slice(&body);
    }
}

fn limits(most: usize) -> WebSocketConfig {
    WebSocketConfig::default()
        .read_buffer_size(BUFFER)
        .write_buffer_size(0)
        .max_message_size(Some(most))
        .max_frame_size(Some(most))
}
