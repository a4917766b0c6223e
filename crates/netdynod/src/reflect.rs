//! `netdynod reflect`: the DUT test mode as a program of its own.

use clap::{Args, ValueEnum};
use std::io::Write;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use traffic::Unready;
use traffic::reflector::{Counters, Mode, Reflector};

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
    #[arg(long, value_enum, default_value_t = How::Echo)]
    mode: How,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum How {
    Echo,
    Sink,
}

/// Answer until SIGTERM or SIGINT. Counters go to standard output as a line of JSON: at the end, and on SIGUSR1.
pub fn run(args: &Reflect) -> Result<(), Unready> {
    if args.udp.is_none() && args.tcp.is_none() {
        return Err(Unready::new(
            "ND-104-14",
            "reflect",
            "there is nothing to listen on",
            "Give --udp PORT or --tcp PORT",
        ));
    }
    let mode = match args.mode {
        How::Echo => Mode::Echo,
        How::Sink => Mode::Sink,
    };
    let at = |port: Option<u16>| port.map(|p| SocketAddr::new(args.bind, p));
    let mut reflector = Reflector::new(mode, at(args.udp), at(args.tcp))?;
    let signal = |number| {
        let flag = Arc::new(AtomicBool::new(false));
        signal_hook::flag::register(number, Arc::clone(&flag))
            .map(|_| flag)
            .map_err(|e| Unready::new("ND-92-05", "signals", e.to_string(), ""))
    };
    let stop = signal(signal_hook::consts::SIGTERM)?;
    signal_hook::flag::register(signal_hook::consts::SIGINT, Arc::clone(&stop))
        .map_err(|e| Unready::new("ND-92-05", "signals", e.to_string(), ""))?;
    let show = signal(signal_hook::consts::SIGUSR1)?;
    let mut out = std::io::stdout();
    let ready = serde_json::json!({"ready": {"udp": reflector.udp_address(), "tcp": reflector.tcp_address()}, "pid": std::process::id()});
    let _gone = writeln!(out, "{ready}").and_then(|()| out.flush());
    let print = |counters: &Counters| {
        let line = serde_json::to_string(counters).unwrap_or_default();
        let mut out = std::io::stdout();
        let _gone = writeln!(out, "{line}").and_then(|()| out.flush());
    };
    reflector.run(&stop, |counters| {
        if show.swap(false, Ordering::Relaxed) {
            print(counters);
        }
    });
    print(&reflector.counters());
    Ok(())
}
