//! Services over TCP: the kernel's, with one epoll set per worker, or another [`Network`]. Services over a [`DatagramNetwork`].

mod board;
mod connection;
mod datagrams;
mod kernel;
mod network;
mod tls;
mod worker;

pub use datagrams::DatagramNetwork;
pub use network::{Event, Network};
pub use tls::TlsNetwork;

use crate::coap::Coap;
use crate::http::Http;
use crate::mqtt::Mqtt;
use crate::script::ScriptServer;
use crate::settings::Protocol;
use crate::stream::StreamReceiver;
use crate::{Counters, Settings};
use board::Board;
use kernel::Kernel;
use rustix::net::{AddressFamily, SocketFlags, SocketType, sockopt};
use rustls::ServerConfig;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};
use worker::Worker;

/// Connections that may wait to be accepted.
const BACKLOG: i32 = 4096;
/// Time between two looks at whether it is to end, or to tell its counts.
const TURN: Duration = Duration::from_millis(50);

/// Sockets that listen, one per worker.
#[derive(Debug)]
pub struct Listener {
    sockets: Vec<TcpListener>,
    local: SocketAddr,
}

impl Listener {
    /// Listen on an address with so many sockets; port 0 picks one.
    pub fn bind(at: SocketAddr, workers: usize) -> io::Result<Self> {
        // with several sockets on a port nobody would be told that it is in use
        let first = socket(at, false)?;
        let local = first.local_addr()?;
        if workers == 1 {
            return Ok(Self { sockets: vec![first], local });
        }
        drop(first);
        let sockets = (0..workers).map(|_| socket(local, true)).collect::<io::Result<_>>()?;
        Ok(Self { sockets, local })
    }

    /// Address and port.
    pub fn local(&self) -> SocketAddr {
        self.local
    }

    /// Serve until `stop`. `told` gets the counts in these intervals, if any, and at once when `asked` is raised: all that was
    /// received before is in them. The last ones are returned.
    pub fn serve(
        self,
        settings: &Settings,
        tls: Option<&Arc<ServerConfig>>,
        stop: &AtomicBool,
        asked: &AtomicBool,
        every: Option<Duration>,
        told: impl FnMut(&Counters),
    ) -> io::Result<Counters> {
        raise_file_limit();
        let networks = self.sockets.into_iter().map(|socket| move || Kernel::new(socket)).collect();
        serve(networks, settings, tls, stop, asked, every, told)
    }
}

/// Serve over these networks until `stop`, each made on the thread of its worker, as [`Listener::serve`] does.
pub fn serve<N: Network>(
    networks: Vec<impl FnOnce() -> io::Result<N> + Send>,
    settings: &Settings,
    tls: Option<&Arc<ServerConfig>>,
    stop: &AtomicBool,
    asked: &AtomicBool,
    every: Option<Duration>,
    told: impl FnMut(&Counters),
) -> io::Result<Counters> {
    let work = |network: N, number: usize, settings: &Settings, board: &Board| match tls {
        Some(config) => run_worker(number, TlsNetwork::new(network, Arc::clone(config)), settings, board),
        None => run_worker(number, network, settings, board),
    };
    on_threads(networks, settings, work, (stop, asked, every), told)
}

/// The same with datagrams.
pub fn serve_datagrams<N: DatagramNetwork>(
    networks: Vec<impl FnOnce() -> io::Result<N> + Send>,
    settings: &Settings,
    stop: &AtomicBool,
    asked: &AtomicBool,
    every: Option<Duration>,
    told: impl FnMut(&Counters),
) -> io::Result<Counters> {
    let work = |network: N, number: usize, settings: &Settings, board: &Board| match settings.protocol {
        Protocol::Coap => datagrams::serve(network, Coap::new(settings), number, board),
        Protocol::Stream => datagrams::serve(network, StreamReceiver::new(settings), number, board),
        Protocol::Http | Protocol::Mqtt | Protocol::Script => Err(io::Error::other("it is served over TCP")),
    };
    on_threads(networks, settings, work, (stop, asked, every), told)
}

/// A thread for each network; its seed differs from the others'.
fn on_threads<N>(
    networks: Vec<impl FnOnce() -> io::Result<N> + Send>,
    settings: &Settings,
    work: impl Fn(N, usize, &Settings, &Board) -> io::Result<()> + Sync,
    (stop, asked, every): (&AtomicBool, &AtomicBool, Option<Duration>),
    mut told: impl FnMut(&Counters),
) -> io::Result<Counters> {
    let board = Board::new(networks.len());
    let ended: io::Result<()> = thread::scope(|scope| {
        let workers: Vec<_> = (0..)
            .zip(networks)
            .map(|(number, network)| {
                let settings =
                    Settings { seed: settings.seed.wrapping_add(2 * number as u64), ..settings.clone() };
                let (board, work) = (&board, &work);
                scope.spawn(move || {
                    let ended = network().and_then(|network| work(network, number, &settings, board));
                    // one that cannot go on ends all
                    board.over.store(true, Ordering::Relaxed);
                    ended
                })
            })
            .collect();
        let mut last = Instant::now();
        while !stop.load(Ordering::Relaxed) && !board.over.load(Ordering::Relaxed) {
            thread::sleep(TURN);
            let wants = asked.swap(false, Ordering::Relaxed);
            if wants {
                board.ask();
            }
            if wants || every.is_some_and(|every| last.elapsed() >= every) {
                last = Instant::now();
                told(&board.sum());
            }
        }
        board.over.store(true, Ordering::Relaxed);
        let panicked = |_| Err(io::Error::other("a worker panicked"));
        workers.into_iter().try_for_each(|one| one.join().unwrap_or_else(panicked))
    });
    ended.map(|()| board.sum())
}

fn run_worker(number: usize, network: impl Network, settings: &Settings, board: &Board) -> io::Result<()> {
    let mut worker = Worker::new(network, settings.delay_ns);
    match settings.protocol {
        Protocol::Http => worker.run(&mut Http::new(settings), number, board),
        Protocol::Mqtt => worker.run(&mut Mqtt::new(settings), number, board),
        Protocol::Script => worker.run(&mut ScriptServer::new(settings), number, board),
        Protocol::Coap | Protocol::Stream => Err(io::Error::other("it is served over UDP")),
    }
}

fn socket(at: SocketAddr, shares: bool) -> io::Result<TcpListener> {
    let family = if at.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let socket = rustix::net::socket_with(family, SocketType::STREAM, flags, None)?;
    sockopt::set_socket_reuseaddr(&socket, true)?;
    if shares {
        sockopt::set_socket_reuseport(&socket, true)?;
    }
    rustix::net::bind(&socket, &at)?;
    rustix::net::listen(&socket, BACKLOG)?;
    Ok(TcpListener::from(socket))
}

/// As many connections as this user may have.
fn raise_file_limit() {
    use rustix::process::{Resource, getrlimit, setrlimit};
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    let _as_it_was = setrlimit(Resource::Nofile, limit);
}
