//! One connection: a thread that reads calls and answers them, and one that writes what is in the outbox.

use crate::caller::Caller;
use crate::connection_limit::{ConnectionLimit, ConnectionPermit, full};
use crate::core::Core;
use crate::files::Door;
use crate::lines::{LINE_MAX, LineError, Lines};
use crate::method;
use crate::outbox::Outbox;
use crate::pending_connections::PendingSlot;
use crate::stream::Stream;
use crate::token::Token;
use serde_json::{Map, Value};
use std::io::{self, Write};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};
use system::rpc::{self, Error, NO_REQUEST, NOT_ALLOWED, Request};

/// How long who has not shown the token may take to do so.
const TOKEN_TIME: Duration = Duration::from_secs(5);
/// Longest line of who has not shown the token.
const TOKEN_LINE: usize = 4 << 10;
/// Lines of who has not shown the token.
const TOKEN_TRIES: usize = 10;

/// What opens a connection over TCP.
pub struct TokenChallenge {
    /// What must be shown.
    pub token: Arc<Token>,
    /// Where it waits until then.
    pub place: PendingSlot,
    /// Where it goes then.
    pub limit: Arc<ConnectionLimit>,
}

/// Serve `stream`, which came by `door`, until it ends. It has a permit, or must open a lock to get one.
pub fn serve(
    stream: Stream,
    core: &Arc<Core>,
    door: Door,
    by: Result<ConnectionPermit, TokenChallenge>,
) -> io::Result<()> {
    let (mut writer, ends) = (stream.clone(), stream.clone());
    let outbox = Arc::new(Outbox::new(move || ends.hang_up()));
    let caller = Caller {
        session: core.session(),
        core: Arc::clone(core),
        outbox: Arc::clone(&outbox),
        door,
        stream: stream.clone(),
    };
    // Both threads hold the permit: it is free when nothing more is written.
    let permit = Arc::new(OnceLock::new());
    let held = Arc::clone(&permit);
    let writing = move || {
        while let Some(line) = outbox.next() {
            if writer.write_all(line.as_bytes()).is_err() {
                break;
            }
        }
        outbox.hang_up();
        drop(held);
    };
    let reading = move || read(Lines::new(stream), &caller, by, &permit);
    spawn("nd-write", writing)?;
    spawn("nd-read", reading)
}

/// Start a thread of this name.
pub fn spawn(name: &str, f: impl FnOnce() + Send + 'static) -> io::Result<()> {
    std::thread::Builder::new().name(name.into()).spawn(f).map(drop)
}

fn read(
    mut lines: Lines<Stream>,
    caller: &Caller,
    by: Result<ConnectionPermit, TokenChallenge>,
    permit: &OnceLock<ConnectionPermit>,
) {
    let Some(own) = by.map_or_else(|lock| admit(&mut lines, caller, lock), Some) else { return };
    permit.get_or_init(|| own);
    while let Some(line) = next(&mut lines, caller, LINE_MAX, None) {
        respond(line, caller, |method, params| {
            tracing::debug!(session = caller.session, method, "call");
            caller.core.hearing(caller.session, || method::call(caller, method, params))
        });
    }
}

/// A permit, if the token is shown: in time, and within a few lines.
fn admit(lines: &mut Lines<Stream>, caller: &Caller, lock: TokenChallenge) -> Option<ConnectionPermit> {
    let TokenChallenge { token, place, limit } = lock;
    let late = Instant::now() + TOKEN_TIME;
    for _ in 0..TOKEN_TRIES {
        let line = next(lines, caller, TOKEN_LINE, Some(late))?;
        let (mut shown, mut permit) = (false, None);
        respond(line, caller, |method, params| {
            let text = params.get("token").and_then(Value::as_str).unwrap_or("");
            shown = method == "control.hello" && token.is(text);
            if !shown {
                if place.is_worth_a_line() {
                    tracing::warn!(session = caller.session, method, "refused: no or a wrong token");
                }
                return Err(not_allowed("the token is missing or wrong"));
            }
            permit = limit.acquire();
            if permit.is_some() { Ok(Value::Bool(true)) } else { Err(full()) }
        });
        if shown {
            tracing::info!(
                session = caller.session,
                admitted = permit.is_some(),
                "the token was shown over TCP"
            );
            return permit;
        }
    }
    None
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
        Err(LineError::Closed) => return None,
        Err(LineError::TooLong) => {
            let what = format!("a line of over {max} bytes");
            Error::request(NO_REQUEST, what, "End each request with a line feed")
        }
        Err(LineError::TooLate) => not_allowed(format!("no token within {} s", TOKEN_TIME.as_secs())),
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
