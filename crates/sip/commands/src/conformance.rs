//! `netdynod sip-conformance`: conformance tests against a SIP server.
//!
//! The request comes on standard input, since it has passwords, which everybody could read among the arguments.

use run::SetupError;
use serde_json::json;
use sip_conformance::Request;
use std::io::Read;
use system::standard_input::print;

/// Largest request, bytes.
const LONGEST: u64 = 16 << 20;

/// Plays the tests. Standard output gets a line `{"outcome": …}` for each test as it ends, and `{"report": …}` at the end.
pub fn run(flags: &[&str]) -> Result<(), SetupError> {
    if flags.contains(&"messages") {
        print(&json!(sip_conformance::torture::MESSAGES));
        return Ok(());
    }
    let wrong = |code, what: String| {
        SetupError::new(code, "sip-conformance", what, "See `netdyno sip conformance --help`")
    };
    let mut text = String::new();
    let read = std::io::stdin().take(LONGEST).read_to_string(&mut text);
    read.map_err(|error| wrong("ND-104-10", format!("standard input cannot be read: {error}")))?;
    let request: Request =
        serde_json::from_str(&text).map_err(|error| wrong("ND-104-10", error.to_string()))?;
    let report = sip_conformance::run(&request, |outcome| {
        print(&json!({"outcome": {"id": outcome.id, "verdict": outcome.verdict}}));
    });
    let report = report.map_err(|error| wrong("ND-104-04", error.to_string()))?;
    print(&json!({"report": report}));
    Ok(())
}
