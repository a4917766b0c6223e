//! Takes connections: so many from the Unix socket, so many over TCP with the
//! token or a certificate, and a few without.

use crate::connection::{TokenChallenge, serve, spawn};
use crate::connection_limit::{ConnectionLimit, full};
use crate::core::Core;
use crate::files::Door;
use crate::pending_connections::PendingConnections;
use crate::stream::Stream;
use crate::token::Token;
use crate::tunnel::Tunnel;
use nix::sys::socket::{setsockopt, sockopt};
use rustls::ServerConfig;
use serde_json::Value;
use std::io::{self, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::net::UnixListener;
use std::sync::Arc;
use std::time::Duration;
use system::rpc;

/// Serve the Unix socket: who can open it may speak.
pub fn unix(listener: UnixListener, core: &Arc<Core>) -> io::Result<()> {
    let (core, limit) = (Arc::clone(core), Arc::new(ConnectionLimit::default()));
    let take = move || {
        let stream: Stream = listener.accept()?.0.into();
        match limit.acquire() {
            Some(permit) => serve(stream, &core, core.unix, Ok(permit)),
            None => refuse(stream),
        }
    };
    spawn("nd-listen", move || forever(take))
}

/// Serve TCP: the first call must show the token.
pub fn tcp(listener: TcpListener, token: Token, core: &Arc<Core>) -> io::Result<()> {
    let (core, token) = (Arc::clone(core), Arc::new(token));
    let (limit, waiting) = (Arc::new(ConnectionLimit::default()), PendingConnections::default());
    let take = move || {
        let (stream, from) = listener.accept()?;
        watch_over(&stream)?;
        let stream = stream.into();
        // Without a place it is closed, and its other end may try again.
        let Some(place) = waiting.enter(from.ip().to_canonical(), &stream) else { return Ok(()) };
        tracing::debug!(%from, "a connection over TCP that has to show the token");
        let (token, limit) = (Arc::clone(&token), Arc::clone(&limit));
        serve(stream, &core, Door::Tcp, Err(TokenChallenge { token, place, limit }))
    };
    spawn("nd-listen-tcp", move || forever(take))
}

/// Serve TCP with mutual TLS: who has a certificate that the identity's CA signed may speak.
pub fn mtls(listener: TcpListener, config: Arc<ServerConfig>, core: &Arc<Core>) -> io::Result<()> {
    let (core, limit) = (Arc::clone(core), Arc::new(ConnectionLimit::default()));
    let waiting = PendingConnections::default();
    let take = move || {
        let (socket, from) = listener.accept()?;
        watch_over(&socket)?;
        let socket = Arc::new(socket);
        // Without a place it is closed, and its other end may try again.
        let Some(place) = waiting.enter(from.ip().to_canonical(), &Arc::clone(&socket).into()) else {
            return Ok(());
        };
        let (core, limit, config) = (Arc::clone(&core), Arc::clone(&limit), Arc::clone(&config));
        spawn("nd-tls", move || {
            let Some(tunnel) = Tunnel::open(socket, config, &place) else { return };
            drop(place);
            let Some(permit) = limit.acquire() else { return tunnel.refuse(full()) };
            if let Err(e) = tunnel.serve(&core, permit) {
                tracing::debug!(%from, "a connection over TLS ended: {e}");
            }
        })
    };
    spawn("nd-listen-tls", move || forever(take))
}

/// Notice within half a minute that the other machine has gone, also when nobody says anything.
fn watch_over(stream: &TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    setsockopt(stream, sockopt::KeepAlive, &true)?;
    setsockopt(stream, sockopt::TcpKeepIdle, &10)?;
    setsockopt(stream, sockopt::TcpKeepInterval, &5)?;
    setsockopt(stream, sockopt::TcpKeepCount, &4)?;
    setsockopt(stream, sockopt::TcpUserTimeout, &30_000)?;
    Ok(())
}

fn forever(take: impl Fn() -> io::Result<()>) {
    loop {
        if let Err(e) = take() {
            // out of descriptors, say: the connection still waits, and asking again at once would burn a core
            tracing::warn!("a connection cannot be taken: {e}");
            std::thread::sleep(Duration::from_millis(200));
        }
    }
}

fn refuse(mut stream: Stream) -> io::Result<()> {
    let _gone = stream.write_all(rpc::answer(&Value::Null, Err(full())).as_bytes());
    Ok(())
}
