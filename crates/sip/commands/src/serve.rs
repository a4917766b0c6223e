//! `netdynod sip-serve`: a SIP server to test against.

use run::SetupError;
use serde_json::json;
use sip_server::{Server, Settings, listen::Listener};
use std::time::{Duration, Instant};
use system::standard_input::{self, print};

/// Time between two lines of counters.
const EVERY: Duration = Duration::from_secs(1);
const HELP: &str = "See `netdyno sip serve --help`";

/// Serve. Standard output gets `{"ready": …}`, then `{"counters": …}` every second and at the end.
pub fn run(_: &[&str]) -> Result<(), SetupError> {
    let (mut settings, stop): (Settings, _) = standard_input::settings("sip-serve", HELP)?;
    settings.check().map_err(|error| SetupError::new("ND-104-04", "sip-serve", error.to_string(), HELP))?;
    let at = settings.listen;
    let mut listener = Listener::bind(at)
        .map_err(|error| SetupError::new("ND-92-10", at.to_string(), error.to_string(), "Use --listen"))?;
    settings.listen = listener.local();
    print(&json!({"ready": {"address": settings.listen}, "pid": std::process::id()}));
    let mut server = Server::new(settings);
    let mut told = Instant::now();
    let served = listener.run(&mut server, &stop, |server| {
        if told.elapsed() >= EVERY {
            told = Instant::now();
            print(&json!({"counters": server.counters()}));
        }
    });
    served
        .map_err(|error| SetupError::new("ND-92-10", at.to_string(), error.to_string(), "See ulimit -n"))?;
    print(&json!({"counters": server.counters(), "end": true}));
    Ok(())
}
