//! Takes connections: so many from the Unix socket, and so many from TCP.

use crate::connection::{Seat, serve, spawn};
use crate::core::Core;
use crate::rpc::{self, Error, TOO_MANY};
use crate::stream::Stream;
use crate::token::Token;
use nix::sys::socket::{setsockopt, sockopt};
use serde_json::Value;
use std::io::{self, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::net::UnixListener;
use std::sync::Arc;
use std::time::Duration;

/// Connections at a time that each listener takes. Strangers on TCP cannot lock out the owner of the socket.
pub const CONNECTIONS: usize = 64;

/// Serve the Unix socket: who can open it may speak.
pub fn unix(listener: UnixListener, core: &Arc<Core>) -> io::Result<()> {
    let core = Arc::clone(core);
    spawn("nd-listen", move || take(|| Ok(listener.accept()?.0.into()), &core, None))
}

/// Serve TCP: the first call must show the token.
pub fn tcp(listener: TcpListener, token: Token, core: &Arc<Core>) -> io::Result<()> {
    let (core, token) = (Arc::clone(core), Arc::new(token));
    let accept = move || {
        let (stream, from) = listener.accept()?;
        watch_over(&stream)?;
        tracing::info!(%from, "a connection over TCP");
        Ok(stream.into())
    };
    spawn("nd-listen-tcp", move || take(accept, &core, Some(&token)))
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

fn take(accept: impl Fn() -> io::Result<Stream>, core: &Arc<Core>, token: Option<&Arc<Token>>) {
    let seats = Seat::default();
    loop {
        let served = accept().and_then(|stream| {
            if Arc::strong_count(&seats) > CONNECTIONS {
                return refuse(stream);
            }
            serve(stream, core, token.cloned(), Arc::clone(&seats))
        });
        if let Err(e) = served {
            // out of descriptors, say: the connection still waits, and asking again at once would burn a core
            tracing::warn!("a connection cannot be taken: {e}");
            std::thread::sleep(Duration::from_millis(200));
        }
    }
}

fn refuse(mut stream: Stream) -> io::Result<()> {
    tracing::warn!("a connection is refused: {CONNECTIONS} are open");
    let error = Error::new(
        TOO_MANY,
        "ND-104-15",
        "connection",
        format!("{CONNECTIONS} connections are open already"),
        "Close some of them",
    );
    let _gone = stream.write_all(rpc::answer(&Value::Null, Err(error)).as_bytes());
    Ok(())
}
