//! The netdyno core: a daemon that carries profiles' traffic and answers on a socket.

mod clock;
mod connection;
mod core;
mod lease;
mod lines;
mod listen;
mod log;
mod machine;
mod method;
mod outbox;
mod ports;
mod reflect;
mod rpc;
mod run;
mod serve;
mod server;
mod token;
mod watchers;

use anyhow::{Context, Result};
use clap::{Parser, Subcommand};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Exit code: bad configuration or input.
const EXIT_INPUT: u8 = 104;
/// Exit code: the machine is not ready.
const EXIT_ENVIRONMENT: u8 = 92;

/// The netdyno core. Without a command: serve until told to end.
#[derive(Debug, Parser)]
#[command(version, about)]
struct Cli {
    #[command(subcommand)]
    command: Option<Command>,
    #[command(flatten)]
    serve: serve::Serve,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Answer load: echo or swallow what comes, and count it.
    Reflect(reflect::Reflect),
    /// Check profiles.
    Validate {
        /// Profiles, JSON; `-` is standard input.
        #[arg(required = true)]
        files: Vec<PathBuf>,
        /// One JSON object a file.
        #[arg(long)]
        json: bool,
    },
    /// Print the JSON Schema of profiles.
    Schema,
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    let done = match &cli.command {
        None => serve::run(&cli.serve).map(|()| ExitCode::SUCCESS),
        Some(Command::Reflect(args)) => match reflect::run(args) {
            Ok(()) => Ok(ExitCode::SUCCESS),
            Err(e) => {
                eprintln!("error {e}");
                Ok(ExitCode::from(if e.code.starts_with("ND-104") { EXIT_INPUT } else { EXIT_ENVIRONMENT }))
            }
        },
        Some(Command::Validate { files, json }) => validate(files, *json),
        Some(Command::Schema) => print(&format!("{:#}\n", profile::schema())).map(|()| ExitCode::SUCCESS),
    };
    done.unwrap_or_else(|e| {
        eprintln!("error ND-92-11: {e:#}");
        ExitCode::from(EXIT_ENVIRONMENT)
    })
}

fn print(text: &str) -> Result<()> {
    let mut out = std::io::stdout();
    out.write_all(text.as_bytes()).and_then(|()| out.flush()).context("standard output cannot be written")
}

fn validate(files: &[PathBuf], json: bool) -> Result<ExitCode> {
    let mut bad = false;
    for file in files {
        let text = if file == Path::new("-") {
            std::io::read_to_string(std::io::stdin())
        } else {
            std::fs::read_to_string(file)
        };
        let errors = match text {
            Ok(text) => profile::load(&text).err().unwrap_or_default(),
            Err(e) => vec![profile::Error::new(
                "ND-104-08",
                "",
                format!("it cannot be read ({e})"),
                "Check the path",
            )],
        };
        bad |= !errors.is_empty();
        if json {
            print(&format!("{}\n", serde_json::json!({"file": file, "errors": errors})))?;
        } else if errors.is_empty() {
            print(&format!("{}: good\n", file.display()))?;
        } else {
            for error in &errors {
                eprintln!("{}: {error}", file.display());
            }
        }
    }
    Ok(if bad { ExitCode::from(EXIT_INPUT) } else { ExitCode::SUCCESS })
}
