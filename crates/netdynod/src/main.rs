//! The netdyno core: a daemon that carries profiles' traffic and answers on a socket.

mod caller;
mod certificates;
mod clock;
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
mod stream;
mod systems;
mod token;
mod trace_lock;
mod tunnel;
mod validate;
mod watchers;

use ::run::SetupError;
use anyhow::{Context, Result};
use clap::{Arg, ArgAction, CommandFactory, FromArgMatches, Parser, Subcommand};
use std::io::Write;
use std::process::ExitCode;
use system::Registry;
use system::command::Flag;

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
    /// Serve HTTP or MQTT: settings as JSON on standard input, counters on standard output.
    Service(service::Service),
    /// Make certificates for agents of a fleet and for who calls them: names as JSON on standard input, PEM in JSON on
    /// standard output. The key of the CA that signs them is not kept.
    Certificates,
    /// Check profiles.
    Validate(validate::Validate),
    /// Open one DPDK port of each kind that works here, and print what it offers as JSON.
    Ports(kinds::Kinds),
    /// Print DPDK's version, and the drivers that are built in, as JSON.
    Dpdk,
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
    let registry = systems::registry();
    let cli = match invocation(&registry) {
        Ok(Invocation::System(command, flags)) => return exit_code((command.run)(&flags)),
        Ok(Invocation::Platform(cli)) => cli,
        Err(e) => {
            let _closed = e.print();
            return if e.use_stderr() { EXIT_INPUT.into() } else { ExitCode::SUCCESS };
        }
    };
    run(&cli, registry).unwrap_or_else(|e| {
        write_to_stderr(&format!("error ND-92-11: {}", profile::printable(&format!("{e:#}"))));
        EXIT_ENVIRONMENT.into()
    })
}

/// What was asked of the program.
enum Invocation {
    /// A system's command, with the names of its flags that were given.
    System(system::command::Command, Vec<&'static str>),
    /// The platform's own.
    Platform(Cli),
}

fn invocation(registry: &Registry) -> Result<Invocation, clap::Error> {
    let commands = registry.commands().iter().map(|one| {
        let flag =
            |flag: &Flag| Arg::new(flag.name).long(flag.name).help(flag.about).action(ArgAction::SetTrue);
        clap::Command::new(one.name).about(one.about).args(one.flags.iter().map(flag))
    });
    let matches = Cli::command().subcommands(commands).try_get_matches()?;
    let named = matches.subcommand().and_then(|(name, given)| Some((*registry.command(name)?, given)));
    Ok(match named {
        Some((command, given)) => {
            let flags = command.flags.iter().map(|flag| flag.name).filter(|name| given.get_flag(name));
            Invocation::System(command, flags.collect())
        }
        None => Invocation::Platform(Cli::from_arg_matches(&matches)?),
    })
}

/// Tells why a command failed, if it did.
fn exit_code(result: Result<(), SetupError>) -> ExitCode {
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            write_to_stderr(&format!("error {e}"));
            if e.code.starts_with("ND-104") { EXIT_INPUT } else { EXIT_ENVIRONMENT }.into()
        }
    }
}

fn run(cli: &Cli, registry: Registry) -> Result<ExitCode> {
    match &cli.command {
        None => {
            let faults = serve::run(&cli.serve, registry)?;
            for fault in &faults {
                write_to_stderr(&serde_json::json!({"fault": fault}).to_string());
            }
            if let Some(fault) = faults.first() {
                return Ok(if fault.code.starts_with("ND-91") { EXIT_LOST } else { EXIT_ENVIRONMENT }.into());
            }
        }
        Some(Command::Reflect(args)) => return Ok(exit_code(reflect::run(args))),
        Some(Command::Service(args)) => return Ok(exit_code(service::run(args))),
        Some(Command::Certificates) => return Ok(exit_code(certificates::run())),
        Some(Command::Validate(args)) => {
            if !validate::run(args, registry.kinds())? {
                return Ok(EXIT_INPUT.into());
            }
        }
        Some(Command::Ports(args)) => {
            if let Some(why) = kinds::run(args)? {
                write_to_stderr(&format!("error {why}"));
                return Ok(EXIT_ENVIRONMENT.into());
            }
        }
        Some(Command::Dpdk) => {
            print(&(serde_json::to_string(&dataplane::library::Library::linked())? + "\n"))?;
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
fn write_to_stderr(line: &str) {
    let _unread = std::io::stderr().write_all(format!("{line}\n").as_bytes());
}

/// To standard output, at once.
fn print(text: &str) -> Result<()> {
    let mut out = std::io::stdout();
    out.write_all(text.as_bytes()).and_then(|()| out.flush()).context("standard output cannot be written")
}
