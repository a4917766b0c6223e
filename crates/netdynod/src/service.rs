//! `netdynod service`: an HTTP or MQTT server to test against.

use crate::signals;
use crate::standard_input::{self, print};
use clap::Args;
use run::SetupError;
use serde_json::json;
use service::{Settings, listen::Listener};
use std::time::Duration;

/// Time between two lines of counters.
const EVERY: Duration = Duration::from_secs(1);
const HELP: &str = "See `netdyno serve --help`";

/// What is served.
#[derive(Debug, Args)]
pub struct Service {
    /// Settings as JSON. Then standard input is not read, only SIGTERM or SIGINT end it, and counters are printed only on
    /// SIGUSR1 and at the end.
    #[arg(long, value_name = "JSON")]
    settings: Option<String>,
}

/// Serve. Standard output gets `{"ready": …}`, then `{"counters": …}` every second or as `--settings` says, and at the end.
pub fn run(args: &Service) -> Result<(), SetupError> {
    let unwatched =
        |error: std::io::Error| SetupError::new("ND-92-05", "signals", error.to_string(), "See ulimit -a");
    let (settings, stop): (Settings, _) = match &args.settings {
        None => standard_input::settings("service", HELP)?,
        Some(text) => {
            let wrong = |error: serde_json::Error| {
                SetupError::new("ND-104-10", "--settings", error.to_string(), HELP)
            };
            (
                serde_json::from_str(text).map_err(wrong)?,
                signals::raised_by(&signals::END).map_err(unwatched)?,
            )
        }
    };
    let asked = signals::raised_by(&signals::SHOW).map_err(unwatched)?;
    settings.check().map_err(|error| SetupError::new("ND-104-04", error.at, error.what, HELP))?;
    let at = settings.listen.to_string();
    let failed = |error: std::io::Error| {
        SetupError::new(
            "ND-92-10",
            at.clone(),
            error.to_string(),
            "Use --listen with another address or port",
        )
    };
    let listener = Listener::bind(settings.listen, settings.workers).map_err(failed)?;
    print(&json!({"ready": {"address": listener.local()}, "pid": std::process::id()}));
    let every = args.settings.is_none().then_some(EVERY);
    let told = |counters: &_| print(&json!({"counters": counters}));
    let counters = listener.serve(&settings, &stop, &asked, every, told).map_err(failed)?;
    print(&json!({"counters": counters, "end": true}));
    Ok(())
}
