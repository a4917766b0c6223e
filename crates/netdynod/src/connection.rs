//! One connection: a thread that reads calls and answers them, and one that writes what is in the outbox.

use crate::core::{Core, Session};
use crate::lines::{End, LINE_MAX, Lines};
use crate::method;
use crate::outbox::Outbox;
use crate::rpc::{self, Error, NO_REQUEST, NOT_ALLOWED, Request};
use crate::stream::Stream;
use crate::token::Token;
use serde_json::{Map, Value};
use std::io::{self, Write};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How long who has not shown the token may take to do so.
const TOKEN_TIME: Duration = Duration::from_secs(5);
/// Longest line of who has not shown the token.
const TOKEN_LINE: usize = 4 << 10;
/// Lines of who has not shown the token.
const TOKEN_TRIES: usize = 10;

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
pub fn serve(stream: Stream, core: &Arc<Core>, token: Option<Arc<Token>>, seat: Seat) -> io::Result<()> {
    let (mut writer, ends) = (stream.clone(), stream.clone());
    let outbox = Arc::new(Outbox::new(move || ends.hang_up()));
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
    let reading = move || read(Lines::new(stream), &caller, token.as_deref());
    spawn("nd-write", writing)?;
    spawn("nd-read", reading)
}

/// Start a thread of this name.
pub fn spawn(name: &str, f: impl FnOnce() + Send + 'static) -> io::Result<()> {
    std::thread::Builder::new().name(name.into()).spawn(f).map(drop)
}

fn read(mut lines: Lines<Stream>, caller: &Caller, token: Option<&Token>) {
    if token.is_some_and(|token| !admit(&mut lines, caller, token)) {
        return;
    }
    while let Some(line) = next(&mut lines, caller, LINE_MAX, None) {
        respond(line, caller, |method, params| {
            tracing::debug!(session = caller.session, %method, "call");
            caller.core.hearing(caller.session, || method::call(caller, method, params))
        });
    }
}

/// Whether the token is shown: in time, and within a few lines.
fn admit(lines: &mut Lines<Stream>, caller: &Caller, token: &Token) -> bool {
    let late = Instant::now() + TOKEN_TIME;
    let mut shown = false;
    for _ in 0..TOKEN_TRIES {
        let Some(line) = next(lines, caller, TOKEN_LINE, Some(late)) else { break };
        respond(line, caller, |method, params| {
            let text = params.get("token").and_then(Value::as_str).unwrap_or("");
            shown = method == "control.hello" && token.is(text);
            if shown {
                return Ok(Value::Bool(true));
            }
            tracing::warn!(session = caller.session, %method, "refused: no or a wrong token");
            Err(not_allowed("the token is missing or wrong"))
        });
        if shown {
            break;
        }
    }
    shown
}

/// The next line. When there is none the other side is told why, if it can be.
fn next<'a>(
    lines: &'a mut Lines<Stream>,
    caller: &Caller,
    max: usize,
    deadline: Option<Instant>,
) -> Option<&'a [u8]> {
    let why = match lines.next(max, deadline) {
        Ok(line) => return Some(line.trim_ascii()),
        Err(End::Closed) => return None,
        Err(End::TooLong) => {
            let what = format!("a line of over {max} bytes");
            Error::request(NO_REQUEST, what, "End each request with a line feed")
        }
        Err(End::TooLate) => not_allowed(format!("no token within {} s", TOKEN_TIME.as_secs())),
    };
    tracing::warn!(session = caller.session, "hung up: {}", why.message);
    caller.outbox.answer(rpc::answer(&Value::Null, Err(why)));
    None
}

/// One line in, at most one line out.
fn respond<F>(line: &[u8], caller: &Caller, call: F)
where
    F: FnOnce(&str, Map<String, Value>) -> Result<Value, Error>,
{
    if line.is_empty() {
        return;
    }
    let answer = match Request::parse(line) {
        Ok(Request { id, method, params }) => {
            let result = call(&method, params);
            id.map(|id| rpc::answer(&id, result))
        }
        Err((id, error)) => Some(rpc::answer(&id, Err(error))),
    };
    if let Some(answer) = answer {
        caller.outbox.answer(answer);
    }
}

fn not_allowed(what: impl Into<String>) -> Error {
    Error::new(NOT_ALLOWED, "ND-104-13", "control.hello", what, "Call control.hello {token} first")
}
