//! Servers that are children of another program: settings come as one line of JSON on standard input, since they may have
//! passwords, and the end of standard input ends them: who started one may be killed.

use crate::signals;
use run::SetupError;
use serde::de::DeserializeOwned;
use std::io::{BufRead, Read, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Longest line of settings, bytes.
const LONGEST: u64 = 16 << 20;

/// The settings of the command `name`, and what is raised at the end: of standard input, or by SIGTERM or SIGINT.
pub fn settings<T: DeserializeOwned>(
    name: &'static str,
    help: &str,
) -> Result<(T, Arc<AtomicBool>), SetupError> {
    let wrong = |what: String| SetupError::new("ND-104-10", name, what, help);
    let mut line = String::new();
    let mut input = std::io::BufReader::new(std::io::stdin());
    let read = input.by_ref().take(LONGEST).read_line(&mut line);
    read.map_err(|error| wrong(format!("standard input cannot be read: {error}")))?;
    let settings = serde_json::from_str(&line).map_err(|error| wrong(error.to_string()))?;
    let stop = signals::raised_by(&signals::END)
        .map_err(|error| SetupError::new("ND-92-05", "signals", error.to_string(), "See ulimit -a"))?;
    let raised = Arc::clone(&stop);
    std::thread::spawn(move || {
        let mut bytes = [0; 256];
        while input.read(&mut bytes).is_ok_and(|length| length > 0) {}
        raised.store(true, Ordering::Relaxed);
    });
    Ok((settings, stop))
}

/// Print a line of JSON. Who started it may have closed its output.
pub fn print(line: &serde_json::Value) {
    let mut out = std::io::stdout();
    let _closed = out.write_all(format!("{line}\n").as_bytes()).and_then(|()| out.flush());
}
