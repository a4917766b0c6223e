//! Connections: a thread that reads lines and one that writes them, each.

use crate::core::{Core, Session};
use crate::method;
use crate::rpc::{self, Error, LINE_MAX, NOT_ALLOWED, Request};
use serde_json::Value;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::Arc;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::time::Duration;

/// Lines that wait for a slow reader before he misses some.
const QUEUE: usize = 1024;

/// Both kinds of connection.
trait Stream: Read + Write + Send + Sized + 'static {
    fn twin(&self) -> std::io::Result<Self>;
    fn hang_up(&self);
}

impl Stream for UnixStream {
    fn twin(&self) -> std::io::Result<Self> {
        self.try_clone()
    }
    fn hang_up(&self) {
        let _gone = self.shutdown(Shutdown::Both);
    }
}

impl Stream for TcpStream {
    fn twin(&self) -> std::io::Result<Self> {
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
    pub lines: SyncSender<String>,
}

/// Serve the Unix socket: who can open it may speak.
pub fn unix(listener: UnixListener, core: &Arc<Core>) -> std::io::Result<()> {
    let core = Arc::clone(core);
    spawn("nd-listen", move || {
        for stream in listener.incoming() {
            match stream {
                Ok(stream) => serve(stream, &core, None),
                Err(e) => wait_after(&e),
            }
        }
    })
}

/// Serve TCP: the first call must show the token.
pub fn tcp(listener: TcpListener, token: String, core: &Arc<Core>) -> std::io::Result<()> {
    let core = Arc::clone(core);
    spawn("nd-listen-tcp", move || {
        for stream in listener.incoming() {
            match stream {
                Ok(stream) => {
                    let _best_effort = stream.set_nodelay(true);
                    serve(stream, &core, Some(token.clone()));
                }
                Err(e) => wait_after(&e),
            }
        }
    })
}

/// Out of descriptors, say: the connection still waits, and asking again at once would burn a core.
fn wait_after(e: &std::io::Error) {
    tracing::warn!("a connection cannot be taken: {e}");
    std::thread::sleep(Duration::from_millis(200));
}

fn spawn(name: &str, f: impl FnOnce() + Send + 'static) -> std::io::Result<()> {
    std::thread::Builder::new().name(name.into()).spawn(f).map(drop)
}

fn serve<S: Stream>(stream: S, core: &Arc<Core>, token: Option<String>) {
    let (lines, outgoing) = sync_channel::<String>(QUEUE);
    let Ok(mut writer) = stream.twin() else { return };
    let writing = move || {
        for line in outgoing {
            if writer.write_all(line.as_bytes()).and_then(|()| writer.write_all(b"\n")).is_err() {
                writer.hang_up();
                break;
            }
        }
    };
    let caller = Caller { session: core.number(), core: Arc::clone(core), lines };
    let reading = move || {
        read(stream, &caller, token);
        caller.core.forget(caller.session);
    };
    // without a thread the connection is dropped, which the other side sees
    let _dropped = spawn("nd-write", writing).and_then(|()| spawn("nd-read", reading));
}

fn read<S: Stream>(stream: S, caller: &Caller, mut token: Option<String>) {
    let mut reader = BufReader::new(stream);
    let mut line = Vec::new();
    loop {
        line.clear();
        match reader.by_ref().take(LINE_MAX as u64 + 1).read_until(b'\n', &mut line) {
            Ok(0) | Err(_) => return,
            Ok(n) if n > LINE_MAX => {
                let error = Error {
                    code: -32600,
                    message: format!("a line of over {LINE_MAX} bytes"),
                    data: Value::Null,
                };
                let _gone = caller.lines.send(rpc::answer(&Value::Null, Err(error)));
                reader.get_ref().hang_up();
                return;
            }
            Ok(_) => {}
        }
        let text = line.trim_ascii();
        if text.is_empty() {
            continue;
        }
        let reply = handle(text, caller, &mut token);
        if let Some(reply) = reply
            && caller.lines.send(reply).is_err()
        {
            return;
        }
    }
}

/// One line in, at most one line out.
fn handle(text: &[u8], caller: &Caller, token: &mut Option<String>) -> Option<String> {
    let value: Value = match serde_json::from_slice(text) {
        Ok(value) => value,
        Err(e) => {
            let error = Error { code: -32700, message: format!("not JSON: {e}"), data: Value::Null };
            return Some(rpc::answer(&Value::Null, Err(error)));
        }
    };
    let id = value.get("id").cloned();
    let request: Request = match serde_json::from_value(value) {
        Ok(request) => request,
        Err(e) => {
            let error = Error { code: -32600, message: format!("not a request: {e}"), data: Value::Null };
            return Some(rpc::answer(&id.unwrap_or_default(), Err(error)));
        }
    };
    if request.jsonrpc != "2.0" {
        let error = Error { code: -32600, message: "jsonrpc must be \"2.0\"".into(), data: Value::Null };
        return Some(rpc::answer(&id.unwrap_or_default(), Err(error)));
    }
    let result = if let Some(wanted) = token {
        let shown = request.params.get("token").and_then(Value::as_str).unwrap_or("");
        if request.method == "control.hello" && same(shown.as_bytes(), wanted.as_bytes()) {
            *token = None;
            Ok(Value::Bool(true))
        } else {
            Err(Error::new(
                NOT_ALLOWED,
                "ND-104-13",
                "the token is missing or wrong",
                "Call control.hello {token} first",
            ))
        }
    } else {
        caller.core.heard(caller.session);
        tracing::debug!(session = caller.session, method = %request.method, "call");
        let result = method::call(caller, &request.method, request.params);
        caller.core.served(caller.session);
        result
    };
    request.id.map(|id| rpc::answer(&id, result))
}

/// Compares in a time that does not tell how much was right.
fn same(a: &[u8], b: &[u8]) -> bool {
    a.len() == b.len() && a.iter().zip(b).fold(0, |d, (x, y)| d | (x ^ y)) == 0
}
