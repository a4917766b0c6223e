//! One connection: a thread that reads calls and answers them, and one that writes what is in the outbox.

use crate::core::{Core, Session};
use crate::lines::{End, LINE_MAX, Lines, Patient};
use crate::method;
use crate::outbox::Outbox;
use crate::rpc::{self, Error, NO_REQUEST, NOT_ALLOWED, Request};
use crate::token::Token;
use serde_json::Value;
use std::io::{self, Write};
use std::net::{Shutdown, TcpStream};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How long who has not shown the token may take to do so.
const TOKEN_TIME: Duration = Duration::from_secs(5);
/// Longest line of who has not shown the token.
const TOKEN_LINE: usize = 4 << 10;

/// Both kinds of connection.
pub trait Stream: Patient + Write + Send + Sync + Sized + 'static {
    /// Another handle on it.
    fn twin(&self) -> io::Result<Self>;
    /// Make all who read or write it stop.
    fn hang_up(&self);
}

impl Patient for UnixStream {
    fn patience(&self, limit: Option<Duration>) -> io::Result<()> {
        self.set_read_timeout(limit)
    }
}

impl Stream for UnixStream {
    fn twin(&self) -> io::Result<Self> {
        self.try_clone()
    }
    fn hang_up(&self) {
        let _gone = self.shutdown(Shutdown::Both);
    }
}

impl Patient for TcpStream {
    fn patience(&self, limit: Option<Duration>) -> io::Result<()> {
        self.set_read_timeout(limit)
    }
}

impl Stream for TcpStream {
    fn twin(&self) -> io::Result<Self> {
        self.try_clone()
    }
    fn hang_up(&self) {
        let _gone = self.shutdown(Shutdown::Both);
    }
}

/// What one connection's calls need.
pub struct Caller {
    /// Everything shared.
    pub core: Arc<Core>,
    /// Which connection.
    pub session: Session,
    /// Its way out.
    pub outbox: Arc<Outbox>,
}

impl Drop for Caller {
    fn drop(&mut self) {
        self.core.forget(self.session);
        self.outbox.end();
    }
}

/// One of the connections that there may be; counted until nothing more is written to it.
pub type Seat = Arc<()>;

/// Serve `stream` until it ends. With a token the first call must show it.
pub fn serve<S: Stream>(
    stream: S,
    core: &Arc<Core>,
    token: Option<Arc<Token>>,
    seat: Seat,
) -> io::Result<()> {
    let mut writer = stream.twin()?;
    let twin = stream.twin()?;
    let outbox = Arc::new(Outbox::new(move || twin.hang_up()));
    let caller = Caller { session: core.session(), core: Arc::clone(core), outbox: Arc::clone(&outbox) };
    let writing = move || {
        while let Some(line) = outbox.next() {
            if writer.write_all(line.as_bytes()).is_err() {
                break;
            }
        }
        outbox.hang_up();
        drop(seat);
    };
    let reading = move || read(Lines::new(stream), &caller, token);
    spawn("nd-write", writing)?;
    spawn("nd-read", reading)
}

/// Start a thread of this name.
pub fn spawn(name: &str, f: impl FnOnce() + Send + 'static) -> io::Result<()> {
    std::thread::Builder::new().name(name.into()).spawn(f).map(drop)
}

fn read<S: Patient>(mut lines: Lines<S>, caller: &Caller, mut token: Option<Arc<Token>>) {
    let late = Instant::now() + TOKEN_TIME;
    loop {
        let (max, deadline) = if token.is_some() { (TOKEN_LINE, Some(late)) } else { (LINE_MAX, None) };
        let reply = match lines.next(max, deadline).map(<[u8]>::trim_ascii) {
            Ok([]) => continue,
            Ok(line) => handle(line, caller, &mut token),
            Err(end) => {
                let why = match end {
                    End::Closed => return,
                    End::TooLong => Error::request(
                        NO_REQUEST,
                        format!("a line of over {max} bytes"),
                        "End each request with a line feed",
                    ),
                    End::TooLate => not_allowed(format!("no token within {} s", TOKEN_TIME.as_secs())),
                };
                tracing::warn!(session = caller.session, "hung up: {}", why.message);
                caller.outbox.answer(rpc::answer(&Value::Null, Err(why)));
                return;
            }
        };
        if let Some(reply) = reply {
            caller.outbox.answer(reply);
        }
    }
}

/// One line in, at most one line out.
fn handle(line: &[u8], caller: &Caller, token: &mut Option<Arc<Token>>) -> Option<String> {
    let request = match Request::parse(line) {
        Ok(request) => request,
        Err((id, error)) => return Some(rpc::answer(&id, Err(error))),
    };
    let result = if let Some(wanted) = token {
        let shown = request.params.get("token").and_then(Value::as_str).unwrap_or("");
        if request.method == "control.hello" && wanted.is(shown) {
            *token = None;
            Ok(Value::Bool(true))
        } else {
            tracing::warn!(session = caller.session, method = %request.method, "refused: no or a wrong token");
            Err(not_allowed("the token is missing or wrong"))
        }
    } else {
        tracing::debug!(session = caller.session, method = %request.method, "call");
        caller.core.hearing(caller.session, || method::call(caller, &request.method, request.params))
    };
    request.id.map(|id| rpc::answer(&id, result))
}

fn not_allowed(what: impl Into<String>) -> Error {
    Error::new(NOT_ALLOWED, "ND-104-13", "control.hello", what, "Call control.hello {token} first")
}
