//! The netdyno core: a daemon that carries profiles' traffic and answers on a socket.

mod caller;
mod clock;
mod conformance;
mod connection;
mod connection_limit;
mod core;
mod files;
mod graph;
mod graphs;
mod kinds;
mod lease;
mod lines;
mod links;
mod listen;
mod log;
mod machine;
mod method;
mod outbox;
mod pending_connections;
mod ports;
mod profiles;
mod reflect;
mod run;
mod serve;
mod server;
mod service;
mod session;
mod signals;
mod sip_serve;
mod standard_input;
mod stream;
mod systems;
mod token;
mod trace_lock;
mod validate;
mod watchers;

use anyhow::{Context, Result};
use clap::{Parser, Subcommand};
use std::io::Write;
use std::process::ExitCode;
use system::Registry;

/// Exit code: bad configuration or input.
const EXIT_INPUT: u8 = 104;
/// Exit code: the machine is not ready.
const EXIT_ENVIRONMENT: u8 = 92;
/// Exit code: a host was lost.
const EXIT_LOST: u8 = 91;

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
    /// Play conformance tests against a SIP server: a request as JSON on standard input, verdicts as JSON on standard output.
    SipConformance(conformance::Arguments),
    /// Serve SIP as registrar, proxy, redirect server or UAS: settings as JSON on standard input, counters on standard output.
    SipServe,
    /// Serve HTTP or MQTT: settings as JSON on standard input, counters on standard output.
    Service(service::Service),
    /// Check profiles.
    Validate(validate::Validate),
    /// Open one DPDK port of each kind that works here, and print what it offers as JSON.
    Ports(kinds::Kinds),
    /// Print the JSON Schema of profiles.
    Schema {
        /// Of how a link is impaired instead.
        #[arg(long, conflicts_with = "models")]
        impair: bool,
        /// What the models say about themselves instead: counters, delays, indices, schemes, defaults.
        #[arg(long)]
        models: bool,
        /// Of graphs of packet elements instead.
        #[arg(long, conflicts_with_all = ["impair", "models", "elements"])]
        graph: bool,
        /// What the kinds of elements say about themselves instead: options, outputs, reasons to drop.
        #[arg(long, conflicts_with_all = ["impair", "models"])]
        elements: bool,
        /// Of trial results, run states and model descriptions instead.
        #[arg(long, conflicts_with_all = ["impair", "models", "graph", "elements"])]
        result: bool,
    },
}

fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(e) => {
            let _closed = e.print();
            return if e.use_stderr() { EXIT_INPUT.into() } else { ExitCode::SUCCESS };
        }
    };
    run(&cli, systems::registry()).unwrap_or_else(|e| {
        tell(&format!("error ND-92-11: {}", profile::printable(&format!("{e:#}"))));
        EXIT_ENVIRONMENT.into()
    })
}

fn run(cli: &Cli, registry: Registry) -> Result<ExitCode> {
    match &cli.command {
        None => {
            let faults = serve::run(&cli.serve, registry)?;
            for fault in &faults {
                tell(&serde_json::json!({"fault": fault}).to_string());
            }
            if let Some(fault) = faults.first() {
                return Ok(if fault.code.starts_with("ND-91") { EXIT_LOST } else { EXIT_ENVIRONMENT }.into());
            }
        }
        Some(Command::Reflect(args)) => {
            if let Err(e) = reflect::run(args) {
                tell(&format!("error {e}"));
                return Ok(if e.code.starts_with("ND-104") { EXIT_INPUT } else { EXIT_ENVIRONMENT }.into());
            }
        }
        Some(Command::SipConformance(args)) => {
            if let Err(e) = conformance::run(args) {
                tell(&format!("error {e}"));
                return Ok(EXIT_INPUT.into());
            }
        }
        Some(Command::Service(args)) => {
            if let Err(e) = service::run(args) {
                tell(&format!("error {e}"));
                return Ok(if e.code.starts_with("ND-104") { EXIT_INPUT } else { EXIT_ENVIRONMENT }.into());
            }
        }
        Some(Command::SipServe) => {
            if let Err(e) = sip_serve::run() {
                tell(&format!("error {e}"));
                return Ok(if e.code.starts_with("ND-104") { EXIT_INPUT } else { EXIT_ENVIRONMENT }.into());
            }
        }
        Some(Command::Validate(args)) => {
            if !validate::run(args, registry.kinds())? {
                return Ok(EXIT_INPUT.into());
            }
        }
        Some(Command::Ports(args)) => {
            if let Some(why) = kinds::run(args)? {
                tell(&format!("error {why}"));
                return Ok(EXIT_ENVIRONMENT.into());
            }
        }
        Some(Command::Schema { impair, models, graph, elements, result }) => {
            let schema = match () {
                () if *impair => links::schema(),
                () if *models => serde_json::to_value(models::Catalogue::new())?,
                () if *graph => dataplane::graph::schema::schema(registry.kinds()),
                () if *elements => dataplane::graph::schema::reference(registry.kinds()),
                () if *result => run::schema(),
                () => profile::schema(),
            };
            print(&format!("{schema:#}\n"))?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// To standard error. Who closed it, or let it fill up, does not want to know, and that is no reason to end otherwise.
fn tell(line: &str) {
    let _unread = std::io::stderr().write_all(format!("{line}\n").as_bytes());
}

/// To standard output, at once.
fn print(text: &str) -> Result<()> {
    let mut out = std::io::stdout();
    out.write_all(text.as_bytes()).and_then(|()| out.flush()).context("standard output cannot be written")
}
