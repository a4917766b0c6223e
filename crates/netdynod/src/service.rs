//! `netdynod service`: a server to test against.

use clap::Args;
use endpoint::ListeningPort;
use profile::Dpdk;
use run::SetupError;
use run::tls::{ServerIdentity, ServerTls};
use serde::Deserialize;
use serde_json::{Value, json};
use service::Settings;
use service::listen::{self, Listener};
use sockets::listener::DatagramListener;
use std::net::SocketAddr;
use std::time::Duration;
use system::serving::end_error;
use system::signals;
use system::standard_input::{self, print};

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

/// Settings of a server, the DPDK port that it serves on and its TLS, if it is to use them.
#[derive(Debug, Deserialize)]
#[serde(try_from = "Value")]
struct ServiceSettings {
    settings: Settings,
    dpdk: Option<Dpdk>,
    tls: Option<ServerTls>,
}

impl TryFrom<Value> for ServiceSettings {
    type Error = serde_json::Error;

    fn try_from(mut value: Value) -> Result<Self, Self::Error> {
        let mut take = |key| value.as_object_mut().and_then(|object| object.remove(key));
        let transport = take("port").map(|port| serde_json::from_value(json!({"ports": [port]})));
        let tls = take("tls").map(serde_json::from_value);
        Ok(Self {
            settings: serde_json::from_value(value)?,
            dpdk: transport.transpose()?,
            tls: tls.transpose()?,
        })
    }
}

/// Serve. Standard output gets `{"ready": …}`, then `{"counters": …}` every second or as `--settings` says, and at the end.
pub fn run(args: &Service) -> Result<(), SetupError> {
    crate::log::start(tracing::Level::WARN, true);
    let unwatched =
        |error: std::io::Error| SetupError::new("ND-92-05", "signals", error.to_string(), "See ulimit -a");
    let (wanted, stop): (ServiceSettings, _) = match &args.settings {
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
    let ServiceSettings { settings, dpdk, tls } = wanted;
    settings.check().map_err(|error| SetupError::new("ND-104-04", error.at, error.what, HELP))?;
    let identity = tls.map(|tls| secure(&settings, &tls)).transpose()?;
    let config = identity.as_ref().map(|identity| &identity.config);
    let every = args.settings.is_none().then_some(EVERY);
    let told = |counters: &_| print(&json!({"counters": counters}));
    let ready = |address: SocketAddr| {
        let mut ready = json!({"address": address});
        if let Some(made) = identity.as_ref().and_then(|identity| identity.made.as_ref()) {
            ready["certificate"] = json!(made);
        }
        print(&json!({"ready": ready, "pid": std::process::id()}));
    };
    let counters = match dpdk {
        Some(mut transport) => {
            if let Some(fault) = dataplane::ports::check_devices(&transport.ports).into_iter().next() {
                return Err(at_option(fault));
            }
            check_address(&settings, &transport)?;
            let queues = u16::try_from(settings.workers).unwrap_or(u16::MAX);
            for port in &mut transport.ports {
                port.queues = queues;
                if let Some(fault) = profile::check_port(port, "transport.dpdk.ports[0]").into_iter().next() {
                    return Err(at_option(fault));
                }
            }
            let is_datagram = settings.protocol.is_datagram();
            let listening =
                ListeningPort::open(&transport, settings.listen, is_datagram).map_err(at_option)?;
            ready(settings.listen);
            let ended = |error| end_error("port", error);
            if is_datagram {
                let arrive = |one: ListeningPort| move || one.arrive_datagrams();
                let networks = listening.into_iter().map(arrive).collect();
                listen::serve_datagrams(networks, &settings, &stop, &asked, every, told).map_err(ended)?
            } else {
                let arrive = |one: ListeningPort| move || one.arrive();
                let networks = listening.into_iter().map(arrive).collect();
                listen::serve(networks, &settings, config, &stop, &asked, every, told).map_err(ended)?
            }
        }
        None => {
            let at = settings.listen.to_string();
            let refused = |error: std::io::Error| {
                let fix = "Use --listen with another address or port";
                SetupError::new("ND-92-10", at.clone(), error.to_string(), fix)
            };
            let ended = |error| end_error(&at, error);
            if settings.protocol.is_datagram() {
                let listener = DatagramListener::bind(settings.listen, settings.workers).map_err(refused)?;
                ready(listener.local());
                let networks = listener.networks().into_iter().map(|socket| move || Ok(socket)).collect();
                listen::serve_datagrams(networks, &settings, &stop, &asked, every, told).map_err(ended)?
            } else {
                let listener = Listener::bind(settings.listen, settings.workers).map_err(refused)?;
                ready(listener.local());
                listener.serve(&settings, config, &stop, &asked, every, told).map_err(ended)?
            }
        }
    };
    print(&json!({"counters": counters, "end": true}));
    Ok(())
}

/// The TLS configuration of a server.
fn secure(settings: &Settings, tls: &ServerTls) -> Result<ServerIdentity, SetupError> {
    if settings.protocol.is_datagram() {
        let what = "TLS runs over TCP; DTLS is not served";
        return Err(SetupError::new("ND-104-07", "tls", what, "Leave it out, or serve http or mqtt"));
    }
    let wrong = |(key, what, fix): (&str, String, String)| {
        SetupError::new("ND-104-04", format!("tls.{key}"), what, fix)
    };
    tls.build(settings.listen.ip(), settings.protocol.alpn()).map_err(wrong)
}

/// Whether a DPDK port can serve so: it has the address that is listened at.
/// An error of the port where its user typed it: a server has no profile.
fn at_option(mut error: SetupError) -> SetupError {
    const OPTIONS: [(&str, &str); 8] = [
        ("device", "--port"),
        ("ip", "--listen"),
        ("gateway", "--gateway"),
        ("mtu", "--mtu"),
        ("vlan", "--vlan"),
        ("offloads", "--offloads"),
        ("tcp.mss", "--mss"),
        ("tcp.window", "--window"),
    ];
    let key = error.at.strip_prefix("transport.dpdk.ports[0].");
    if let Some((_, option)) = OPTIONS.iter().find(|(of, _)| key == Some(*of)) {
        error.at = (*option).to_owned();
    }
    error
}

fn check_address(settings: &Settings, transport: &Dpdk) -> Result<(), SetupError> {
    let conflict = |at: &str, what: &str, fix: &str| Err(SetupError::new("ND-104-07", at, what, fix));
    if settings.listen.port() == 0 {
        return conflict("listen", "a DPDK port has no free port to pick", "Give --listen a port");
    }
    let mut addresses = transport.ports.iter().flat_map(|port| &port.ip.0);
    if !addresses.any(|own| own.ip == settings.listen.ip()) {
        let what = "the DPDK port does not have the address that is listened at";
        return conflict("port.ip", what, "Give both the same address");
    }
    Ok(())
}
