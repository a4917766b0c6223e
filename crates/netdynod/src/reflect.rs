//! `netdynod reflect`: the DUT test mode as a program of its own.

use clap::{Args, ValueEnum};
use run::SetupError;
use serde_json::json;
use sockets::reflector::{Mode, Reflector};
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::Ordering;
use system::signals;

/// What to listen on, and what to do with it.
#[derive(Debug, Args)]
pub struct Reflect {
    /// UDP port.
    #[arg(long, value_name = "PORT")]
    udp: Option<u16>,
    /// TCP port.
    #[arg(long, value_name = "PORT")]
    tcp: Option<u16>,
    /// Address to listen on.
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1")]
    bind: IpAddr,
    /// Send it back, or swallow it.
    #[arg(long, value_enum, default_value_t = ReflectMode::Echo)]
    mode: ReflectMode,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum ReflectMode {
    Echo,
    Sink,
}

/// Answer until SIGTERM or SIGINT. Counters go to standard output as a line of JSON: at the end, and on SIGUSR1.
pub fn run(args: &Reflect) -> Result<(), SetupError> {
    if args.udp.is_none() && args.tcp.is_none() {
        return Err(SetupError::new(
            "ND-104-14",
            "reflect",
            "there is nothing to listen on",
            "Give --udp PORT or --tcp PORT",
        ));
    }
    let mode = match args.mode {
        ReflectMode::Echo => Mode::Echo,
        ReflectMode::Sink => Mode::Sink,
    };
    let at = |port: Option<u16>| port.map(|p| SocketAddr::new(args.bind, p));
    let mut reflector = Reflector::new(mode, at(args.udp), at(args.tcp))?;
    let signal = |numbers: &[i32]| {
        signals::raised_by(numbers)
            .map_err(|e| SetupError::new("ND-92-05", "signals", e.to_string(), "See ulimit -a"))
    };
    let (stop, show) = (signal(&signals::END)?, signal(&signals::SHOW)?);
    // who started it may have closed its output; it reflects all the same
    let print = |line: serde_json::Value| drop(crate::print(&format!("{line}\n")));
    let ready = json!({"udp": reflector.udp_address(), "tcp": reflector.tcp_address()});
    print(json!({"ready": ready, "pid": std::process::id()}));
    reflector.run(&stop, |counters| {
        if show.swap(false, Ordering::Relaxed) {
            print(json!(counters));
        }
    });
    print(json!(reflector.counters()));
    Ok(())
}
