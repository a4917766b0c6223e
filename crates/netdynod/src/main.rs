//! The netdyno core: a daemon that carries profiles' traffic and answers on a socket.

mod clock;
mod core;
mod log;
mod method;
mod reflect;
mod rpc;
mod run;
mod server;

use anyhow::{Context, Result, bail};
use clap::{Parser, Subcommand};
use std::fs::Permissions;
use std::io::Write;
use std::net::TcpListener;
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

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
    /// Unix socket to serve.
    #[arg(long, value_name = "PATH", default_value = "/run/netdyno/core.sock")]
    socket: PathBuf,
    /// Serve TCP too, to those who show the token.
    #[arg(long, value_name = "HOST:PORT", requires = "token_file")]
    tcp: Option<String>,
    /// File with the token.
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,
    /// Log as JSON, one object a line.
    #[arg(long)]
    log_json: bool,
    /// error, warn, info, debug or trace.
    #[arg(long, value_name = "LEVEL", default_value = "info")]
    log_level: tracing::Level,
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
        None => serve(&cli).map(|()| ExitCode::SUCCESS),
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

/// The socket's file; removed when the daemon ends.
struct SocketFile<'a>(&'a Path);

impl Drop for SocketFile<'_> {
    fn drop(&mut self) {
        let _gone = std::fs::remove_file(self.0);
    }
}

fn serve(cli: &Cli) -> Result<()> {
    let tail = log::start(cli.log_level, cli.log_json);
    let token = match &cli.token_file {
        Some(path) => {
            let token =
                std::fs::read_to_string(path).with_context(|| format!("token file {}", path.display()))?;
            let token = token.trim().to_owned();
            if token.len() < 16 {
                bail!(
                    "the token in {} is shorter than 16 characters; make one with: openssl rand -hex 32",
                    path.display()
                );
            }
            Some(token)
        }
        None => None,
    };
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [signal_hook::consts::SIGTERM, signal_hook::consts::SIGINT] {
        signal_hook::flag::register(signal, Arc::clone(&stop)).context("signal handler")?;
    }
    let listener = listen(&cli.socket)?;
    let _file = SocketFile(&cli.socket);
    let core = core::Core::new(tail);
    server::unix(listener, &core).context("listener thread")?;
    if let (Some(address), Some(token)) = (&cli.tcp, token) {
        let listener =
            TcpListener::bind(address).with_context(|| format!("{address} cannot be listened on"))?;
        server::tcp(listener, token, &core).context("listener thread")?;
    }
    print(&format!("{}\n", serde_json::json!({"ready": cli.socket, "pid": std::process::id()})))?;
    tracing::info!(socket = %cli.socket.display(), "ready");
    while !stop.load(Ordering::Relaxed) && !core.ending.load(Ordering::Relaxed) {
        std::thread::sleep(Duration::from_millis(100));
        core.watch_lease();
    }
    if let Some(run) = core.run() {
        run.abort();
    }
    *core.capture() = None;
    // let the answer to core.shutdown leave, and workers see the end
    std::thread::sleep(Duration::from_millis(100));
    tracing::info!("ended");
    Ok(())
}

/// Listen on `path`, in place of a socket that nobody answers on.
fn listen(path: &Path) -> Result<UnixListener> {
    if let Some(folder) = path.parent().filter(|f| !f.as_os_str().is_empty()) {
        std::fs::create_dir_all(folder).with_context(|| format!("{} cannot be made", folder.display()))?;
    }
    if std::fs::symlink_metadata(path).is_ok_and(|m| m.file_type().is_socket()) {
        if UnixStream::connect(path).is_ok() {
            bail!("another daemon answers on {}; use it, end it, or choose another --socket", path.display());
        }
        std::fs::remove_file(path)
            .with_context(|| format!("the stale {} cannot be removed", path.display()))?;
    }
    // made without rights for others from the start: no moment in which anybody could connect
    let before = rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o177));
    let listener = UnixListener::bind(path);
    rustix::process::umask(before);
    let listener = listener.with_context(|| format!("{} cannot be listened on", path.display()))?;
    std::fs::set_permissions(path, Permissions::from_mode(0o600)).context("socket permissions")?;
    Ok(listener)
}
