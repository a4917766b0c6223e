//! `netdynod sip-serve`: a SIP server to test against.
//!
//! Settings come as one line of JSON on standard input, since they may have passwords. It serves until standard input ends,
//! SIGTERM or SIGINT: who started it may be killed, and then it ends too.

use crate::signals;
use crate::systems::sip_service::{Server, Settings, listen::Listener};
use run::SetupError;
use serde_json::json;
use std::io::{BufRead, Read};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Longest line of settings, bytes.
const LONGEST: u64 = 16 << 20;
/// Time between two lines of counters.
const EVERY: Duration = Duration::from_secs(1);

/// Serve. Standard output gets `{"ready": …}`, then `{"counters": …}` every second and at the end.
pub fn run() -> Result<(), SetupError> {
    let wrong =
        |code, what: String| SetupError::new(code, "sip-serve", what, "See `netdyno sip serve --help`");
    let mut line = String::new();
    let mut input = std::io::BufReader::new(std::io::stdin());
    let read = input.by_ref().take(LONGEST).read_line(&mut line);
    read.map_err(|error| wrong("ND-104-10", format!("standard input cannot be read: {error}")))?;
    let mut settings: Settings =
        serde_json::from_str(&line).map_err(|error| wrong("ND-104-10", error.to_string()))?;
    settings.check().map_err(|error| wrong("ND-104-04", error.to_string()))?;
    let at = settings.listen;
    let mut listener = Listener::bind(at)
        .map_err(|error| SetupError::new("ND-92-10", at.to_string(), error.to_string(), "Use --listen"))?;
    settings.listen = listener.local();
    let stop = signals::raised_by(&signals::END)
        .map_err(|error| SetupError::new("ND-92-05", "signals", error.to_string(), "See ulimit -a"))?;
    end_with(input, Arc::clone(&stop));
    // Who started it may have closed its output.
    let print = |line: serde_json::Value| drop(crate::print(&format!("{line}\n")));
    print(json!({"ready": {"address": settings.listen}, "pid": std::process::id()}));
    let mut server = Server::new(settings);
    let mut told = Instant::now();
    let served = listener.run(&mut server, &stop, |server| {
        if told.elapsed() >= EVERY {
            told = Instant::now();
            print(json!({"counters": server.counters()}));
        }
    });
    served
        .map_err(|error| SetupError::new("ND-92-10", at.to_string(), error.to_string(), "See ulimit -n"))?;
    print(json!({"counters": server.counters(), "end": true}));
    Ok(())
}

/// Raises `stop` when the input ends.
fn end_with(mut input: impl Read + Send + 'static, stop: Arc<AtomicBool>) {
    std::thread::spawn(move || {
        let mut bytes = [0; 256];
        while input.read(&mut bytes).is_ok_and(|length| length > 0) {}
        stop.store(true, Ordering::Relaxed);
    });
}
