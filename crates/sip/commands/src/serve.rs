//! `netdynod sip-serve`: a SIP server to test against.

use run::SetupError;
use run::tls::ServerIdentity;
use serde_json::json;
use sip_server::echo::Echo;
use sip_server::{Server, Settings, TlsListener, Transport, listen::Listener};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant};
use system::serving::end_error;
use system::standard_input::{self, print};

/// Time between two lines of counters.
const EVERY: Duration = Duration::from_secs(1);
const HELP: &str = "See `netdyno sip serve --help`";

/// Serve. Standard output gets `{"ready": …}`, then `{"counters": …}` every second and at the end.
pub fn run(_: &[&str]) -> Result<(), SetupError> {
    let (mut settings, stop): (Settings, _) = standard_input::settings("sip-serve", HELP)?;
    settings.check().map_err(|error| SetupError::new("ND-104-04", "sip-serve", error.to_string(), HELP))?;
    let at = settings.listen;
    let refused = |at: SocketAddr, fix: &'static str| {
        move |error: std::io::Error| SetupError::new("ND-92-10", at.to_string(), error.to_string(), fix)
    };
    let identity = settings.tls.as_ref().map(tls).transpose()?;
    let config = identity.as_ref().map(|identity| Arc::clone(&identity.config));
    let mut listener = Listener::bind(at).map_err(refused(at, "Use --listen"))?;
    settings.listen = listener.local();
    let further = [
        (
            Transport::Tls,
            settings.tls.as_mut().map(|tls| &mut tls.listen),
            config.clone(),
            "Use --tls-listen",
        ),
        (Transport::Ws, settings.ws.as_mut(), None, "Use --ws-listen"),
        (Transport::Wss, settings.wss.as_mut(), config, "Use --wss-listen"),
    ];
    for (transport, at, tls, fix) in further {
        if let Some(at) = at {
            *at = listener.add(transport, *at, tls).map_err(refused(*at, fix))?;
        }
    }
    let mut echo = settings
        .echo
        .map(|port| {
            let at = SocketAddr::new(settings.listen.ip(), port);
            Echo::bind(at).map_err(refused(at, "Use --echo-port"))
        })
        .transpose()?;
    if let Some(Ok(port)) = echo.as_ref().map(Echo::port) {
        settings.echo = Some(port);
    }
    let secure = settings.tls.as_ref().map(|tls| tls.listen);
    let ready = json!({
        "address": settings.listen,
        "tls": secure,
        "ws": settings.ws,
        "wss": settings.wss,
        "rtp": settings.echo.map(|port| SocketAddr::new(settings.listen.ip(), port)),
        "certificate": identity.and_then(|identity| identity.made),
    });
    print(&json!({"ready": ready, "pid": std::process::id()}));
    let mut server = Server::new(settings);
    let (calls, stop) = (&server.echo(), &stop);
    let mut told = Instant::now();
    let (served, echoed) = thread::scope(|scope| {
        let echoing = echo.as_mut().map(|echo| {
            scope.spawn(move || echo.run(calls, stop).inspect_err(|_| stop.store(true, Ordering::Relaxed)))
        });
        let served = listener.run(&mut server, stop, |server| {
            if told.elapsed() >= EVERY {
                told = Instant::now();
                print(&json!({"counters": server.counters()}));
            }
        });
        stop.store(true, Ordering::Relaxed);
        let panicked = |_| Err(std::io::Error::other("the echo of audio panicked"));
        (served, echoing.map_or(Ok(()), |echoing| echoing.join().unwrap_or_else(panicked)))
    });
    served.and(echoed).map_err(|error| end_error(&at.to_string(), error))?;
    print(&json!({"counters": server.counters(), "end": true}));
    Ok(())
}

/// TLS by its settings.
fn tls(secure: &TlsListener) -> Result<ServerIdentity, SetupError> {
    secure.identity.build(secure.listen.ip(), None).map_err(|(key, what, fix)| {
        let option = match key {
            "key" => "--tls-key",
            "client_ca" => "--tls-client-ca",
            "self_signed" => "--tls-self-signed",
            _ => "--tls-cert",
        };
        SetupError::new("ND-104-04", option, what, fix)
    })
}
