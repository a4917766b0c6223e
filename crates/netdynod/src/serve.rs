//! The daemon's life: from the socket to the signal.

use crate::core::Core;
use crate::files::Door;
use crate::listen::listen;
use crate::token::Token;
use crate::{print, server};
use anyhow::{Context, Result, anyhow};
use clap::Args;
use run::tls::ServerTls;
use rustls::ServerConfig;
use std::net::{Ipv4Addr, TcpListener};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use system::{Registry, signals};

/// How long workers may take to leave when the daemon ends.
const LEAVING: Duration = Duration::from_secs(2);
/// How often the lease and the signals are looked at.
const POLL: Duration = Duration::from_millis(100);

/// Where to serve, and what to log.
#[derive(Debug, Args)]
pub struct Serve {
    /// Unix socket to serve.
    #[arg(long, value_name = "PATH", default_value = "/run/netdyno/core.sock")]
    socket: PathBuf,
    /// Serve TCP too, to those who show the token.
    #[arg(long, value_name = "HOST:PORT", requires = "token_file", group = "doors")]
    tcp: Option<String>,
    /// File with the token.
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,
    /// Serve TCP with mutual TLS too, to those whose certificate is signed by the CA of --identity.
    #[arg(long, value_name = "HOST:PORT", requires = "identity", group = "doors")]
    mtls: Option<String>,
    /// Folder with the daemon's certificate agent.pem, its key agent.key, and the CA's certificate ca.pem.
    #[arg(long, value_name = "FOLDER", requires = "mtls")]
    identity: Option<PathBuf>,
    /// Folder of the files that may be named over TCP: captures to be written, CA files and recordings to be read.
    #[arg(long, value_name = "FOLDER", requires = "doors")]
    files: Option<PathBuf>,
    /// Give connections to the Unix socket the rights of TCP: no files but those of --files, no driver's arguments.
    #[arg(long, group = "doors")]
    confined: bool,
    /// Log as JSON, one object a line.
    #[arg(long)]
    log_json: bool,
    /// error, warn, info, debug or trace.
    #[arg(long, value_name = "LEVEL", default_value = "info")]
    log_level: tracing::Level,
}

/// Serve until SIGTERM, SIGINT or `core.shutdown`. What graphs failed to do at their end, if some ran until then.
pub fn run(settings: &Serve, registry: Registry) -> Result<Vec<profile::Error>> {
    let files = settings.files.as_deref().map(folder).transpose()?;
    let unix = if settings.confined { Door::Tcp } else { Door::Socket };
    let core = Core::new(registry, crate::log::start(settings.log_level, settings.log_json), files, unix);
    let token = settings.token_file.as_deref().map(Token::read).transpose()?;
    let config = settings.identity.as_deref().map(identity).transpose()?;
    let stop = signals::raised_by(&signals::END).context("signal handler")?;
    let (listener, _file) = listen(&settings.socket)?;
    server::unix(listener, &core).context("listener thread")?;
    if let (Some(address), Some(token)) = (&settings.tcp, token) {
        let listener =
            TcpListener::bind(address).with_context(|| format!("{address} cannot be listened on"))?;
        tracing::info!(address = %listener.local_addr()?, "serving TCP");
        server::tcp(listener, token, &core).context("listener thread")?;
    }
    let mut ready = serde_json::json!({"ready": settings.socket, "pid": std::process::id()});
    if let (Some(address), Some(config)) = (&settings.mtls, config) {
        let listener =
            TcpListener::bind(address).with_context(|| format!("{address} cannot be listened on"))?;
        let address = listener.local_addr()?;
        tracing::info!(%address, "serving TCP with mutual TLS");
        ready["mtls"] = address.to_string().into();
        server::mtls(listener, config, &core).context("listener thread")?;
    }
    print(&format!("{ready}\n"))?;
    tracing::info!(socket = %settings.socket.display(), "ready");
    while !stop.load(Ordering::Relaxed) && !core.ending.load(Ordering::Acquire) {
        std::thread::sleep(POLL);
        core.watch_lease();
        core.links.publish_status(&core.watchers);
    }
    Ok(end(&core))
}

/// The TLS settings of an agent: its own certificate, and the CA of who may speak. No session is resumed: each connection
/// shows its certificate.
fn identity(folder: &Path) -> Result<Arc<ServerConfig>> {
    let file = |name: &str| folder.join(name).to_string_lossy().into_owned();
    let settings = ServerTls {
        cert: Some(file("agent.pem")),
        key: Some(file("agent.key")),
        client_ca: Some(file("ca.pem")),
        self_signed: false,
        resumption: false,
    };
    let made = settings.build(Ipv4Addr::UNSPECIFIED.into(), None);
    let made = made.map_err(|(_, what, fix)| anyhow!("--identity {}: {what}. {fix}", folder.display()))?;
    Ok(made.config)
}

/// The folder, whatever the daemon's own folder is.
fn folder(path: &Path) -> Result<PathBuf> {
    let there = || format!("the folder {} cannot be used", path.display());
    let whole = path.canonicalize().with_context(there)?;
    anyhow::ensure!(whole.is_dir(), "{} is no folder", path.display());
    Ok(whole)
}

/// Let the run, the capture and the links close what they have open. What graphs failed to do at their end.
fn end(core: &Core) -> Vec<profile::Error> {
    let until = Instant::now() + LEAVING;
    if let Some(run) = core.run() {
        run.abort();
        while run.is_active() && Instant::now() < until {
            std::thread::sleep(POLL);
        }
    }
    drop(core.capture().take());
    core.links.clear();
    let (_, faults) = core.graphs.clear();
    if let Some(outbox) = core.ended_by.get()
        && !outbox.wait_closed(LEAVING)
    {
        tracing::warn!("who asked for the end did not take the answer");
    }
    tracing::info!("ended");
    faults
}
