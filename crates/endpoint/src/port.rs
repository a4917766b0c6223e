//! One port with its stack: frames from the receive queue into the stack, and from the stack into the transmit queue.

use dataplane::link_watch::Watch;
use dataplane::ports::OpenPort;
use dpdk::{Batch, Mempool, Port, RxQueue, TxQueue};
use profile::parse_mac;
use rand::{Rng, SeedableRng, rngs::SmallRng};
use run::SetupError;
use run::interfaces::{Interface, Interfaces};
use stack::{Config, Drop, Network, Sent, SentTo, SocketHandle, Stack, TcpConfig, Transmit};
use std::net::{IpAddr, SocketAddr};

/// Bursts received before anything else is done: the kernel's queues are longer than the ring of a port.
const BURSTS: usize = 32;
/// Ports of connections: those below are services'.
const PORTS: std::ops::RangeInclusive<u16> = 16_384..=65_535;
/// 2 MSL, ns. What is remembered keeps no device from connecting: its place and its port are used again when they are needed.
const TIME_WAIT: u64 = 10_000_000_000;

/// A port, and the connections on it.
#[derive(Debug)]
pub struct StackPort {
    pub stack: Stack,
    pub name: String,
    port: Port,
    rx: RxQueue,
    out: Outgoing,
    batch: Batch,
    addresses: Vec<IpAddr>,
    watch: Watch,
    before: Interface,
    received_bytes: u64,
    /// The frame of several segments that was received last.
    whole: Vec<u8>,
}

/// Frames on their way to the port.
#[derive(Debug)]
struct Outgoing {
    tx: TxQueue,
    pool: Mempool,
    batch: Batch,
    bytes: u64,
}

impl Transmit for Outgoing {
    #[inline]
    fn frame(&mut self, len: usize) -> Option<&mut [u8]> {
        if self.batch.room() == 0 {
            self.flush();
            if self.batch.room() == 0 {
                return None;
            }
        }
        let frames = self.batch.len() + 1;
        if !self.pool.fill_frames(&mut self.batch, frames, len) {
            return None;
        }
        self.bytes += len as u64;
        self.batch.frames_mut().last_mut().map(|mbuf| mbuf.data_mut())
    }
}

impl Outgoing {
    fn flush(&mut self) {
        if !self.batch.is_empty() {
            self.tx.send(&mut self.batch);
        }
    }
}

impl StackPort {
    /// The stack of an open port, for so many devices with connections and with datagram sockets.
    pub fn new(
        open: OpenPort<'_>,
        (devices, sockets): (usize, usize),
        seed: u64,
    ) -> Result<Self, SetupError> {
        let settings = open.settings;
        let at = |key: &str| format!("transport.dpdk.ports[{}].{key}", open.index);
        let none = |what| SetupError::new("ND-92-12", at("device"), what, "Use another port");
        let mut rng = SmallRng::seed_from_u64(seed.wrapping_add(open.index as u64));
        let bare = open.addrs.bare();
        let networks =
            settings.ip.0.iter().filter_map(|own| Some(Network { address: own.ip, prefix: own.prefix? }));
        let config = Config {
            mac: bare.mac,
            tags: bare.tags,
            addresses: open.addrs.all().to_vec(),
            networks: networks.collect(),
            gateways: settings.gateway.0.clone(),
            peer: settings.peer_mac.as_deref().and_then(parse_mac),
            mtu: open.link_mtu,
            ports: PORTS,
            connections: devices.saturating_mul(2) + 1024,
            sockets,
            secret: [rng.random(), rng.random()],
            tcp: TcpConfig { time_wait: TIME_WAIT, ..TcpConfig::default() },
        };
        let addresses = settings.ip.0.iter().map(|own| own.ip).collect();
        let rx = open.rx.into_iter().next().ok_or_else(|| none("the port has no receive queue"))?;
        let tx = open.tx.into_iter().next().ok_or_else(|| none("the port has no transmit queue"))?;
        let mut this = Self {
            stack: Stack::new(config),
            name: settings.name.clone(),
            rx,
            out: Outgoing { tx, pool: open.pool, batch: Batch::new(), bytes: 0 },
            batch: Batch::new(),
            addresses,
            watch: Watch::new(&open.port),
            port: open.port,
            before: Interface::default(),
            received_bytes: 0,
            whole: Vec::new(),
        };
        this.before = this.counters();
        Ok(this)
    }

    /// The port's own address towards `ip`.
    pub fn own(&self, ip: IpAddr) -> Option<IpAddr> {
        self.addresses.iter().find(|own| own.is_ipv4() == ip.is_ipv4()).copied()
    }

    /// Take what came, let what is due happen, and send. Whether anything came.
    pub fn turn(&mut self, now: u64) -> bool {
        let mut any = false;
        for _ in 0..BURSTS {
            self.rx.receive(&mut self.batch);
            if self.batch.is_empty() {
                break;
            }
            any = true;
            for mbuf in self.batch.frames() {
                self.received_bytes += mbuf.len() as u64;
                if mbuf.is_whole() {
                    self.stack.receive(mbuf.data(), now);
                } else {
                    self.whole.resize(mbuf.len(), 0);
                    if mbuf.copy_to(&mut self.whole) {
                        self.stack.receive(&self.whole, now);
                    }
                }
            }
            self.batch.clear();
            // acknowledgments leave before more is received
            self.send(now);
        }
        self.stack.advance(now);
        self.send(now);
        any
    }

    /// Send what the stack has to send, as far as the port takes it.
    pub fn send(&mut self, now: u64) {
        self.stack.transmit(now, &mut self.out);
        self.out.flush();
    }

    /// Send a datagram of a socket.
    #[inline]
    pub fn send_datagram(&mut self, socket: SocketHandle, datagram: &[u8], now: u64) -> Sent {
        self.stack.send_datagram(socket, datagram, now, &mut self.out)
    }

    /// Send a datagram of a server.
    #[inline]
    pub fn send_datagram_to(&mut self, to: SocketAddr, datagram: &[u8], now: u64) -> SentTo {
        self.stack.send_datagram_to(to, datagram, now, &mut self.out)
    }

    fn counters(&self) -> Interface {
        let stats = self.port.stats();
        let or = |port: u64, own: u64| if port > 0 { port } else { own };
        Interface {
            rx_packets: stats.rx_packets,
            rx_bytes: or(stats.rx_bytes, self.received_bytes),
            tx_packets: stats.tx_packets,
            tx_bytes: or(stats.tx_bytes, self.out.bytes),
            rx_dropped: stats.rx_missed + stats.rx_no_memory,
            tx_dropped: stats.tx_unfit,
            rx_errors: stats.rx_errors,
            tx_errors: stats.tx_errors,
        }
    }

    /// What the port counted in this run.
    pub fn interface(&self, into: &mut Interfaces) {
        into.insert(self.name.clone(), self.counters().since(&self.before));
    }

    /// The port was lost, and why.
    pub fn lost(&mut self, index: usize) -> Option<SetupError> {
        let what = self.watch.lost(false)?;
        let (name, device) = (&self.name, self.port.device());
        Some(SetupError::new(
            "ND-91-01",
            format!("transport.dpdk.ports[{index}]"),
            format!("port {name} ({device}) was lost: {what}"),
            "See what ended it; what was measured until then is kept",
        ))
    }

    /// Say what went wrong below the connections.
    pub fn conclude(&self) {
        let counters = self.stack.counters();
        tracing::debug!(port = %self.name, ?counters, "connections over DPDK");
        let wrong = counters.dropped(Drop::BadChecksum);
        if wrong > 0 {
            let hint = "of a kernel's interface at the other end, turn them on: ethtool -K INTERFACE tx off";
            tracing::warn!(port = %self.name, wrong, "packets had wrong checksums; {hint}");
        }
    }
}
