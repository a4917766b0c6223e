//! One worker's part of a port: its stack, and its queues. Frames from the receive queue go into the stack or to the worker whose they
//! are, and from the stack into the transmit queue.

use crate::exchange::Exchange;
use crate::frames::{Incoming, Outgoing};
use crate::polling::REST;
use dataplane::link_watch::Watch;
use dataplane::offloads;
use dataplane::ports::{OpenPort, setup_error};
use dpdk::{Batch, Eal, Port, RxQueue};
use profile::{Congestion, parse_mac};
use run::SetupError;
use run::interfaces::{Interface, Interfaces};
use stack::{
    Config, CongestionControl, Counters, DropReason, Network, Offload, SendOutcome, Sent, Share,
    SocketHandle, Stack, TcpConfig,
};
use std::collections::BTreeMap;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Frames received at once, and events told, before what is answered to them is sent: the other end goes on with the first while the
/// next are at work.
pub const BURST: usize = 32;
/// Bursts received before anything else is done: the kernel's queues are longer than the ring of a port.
const BURSTS: usize = 128;
/// Bursts after which acknowledgments wait no longer for what is answered.
const UNACKNOWLEDGED: usize = 4;
/// Ports of connections: those below are services'.
const PORTS: std::ops::RangeInclusive<u16> = 16_384..=65_535;
/// 2 MSL, ns. What is remembered keeps no device from connecting: its place and its port are used again when they are needed.
const TIME_WAIT: u64 = 10_000_000_000;

/// How long connections may take to close when the run is over.
const LINGER: Duration = Duration::from_millis(500);

/// A port, and a worker's connections on it.
#[derive(Debug)]
pub struct StackPort {
    pub stack: Stack,
    pub name: String,
    port: Port,
    /// None: another worker receives for it.
    rx: Option<RxQueue>,
    out: Outgoing,
    batch: Batch,
    exchange: Exchange,
    addresses: Vec<IpAddr>,
    watch: Watch,
    before: Interface,
    incoming: Incoming,
}

impl StackPort {
    /// The stacks of an open port, one for each of so many workers, and each for so many devices with connections and with
    /// datagram sockets.
    pub fn for_workers(
        open: OpenPort<'_>,
        eal: &'static Eal,
        workers: usize,
        room: (usize, usize),
    ) -> Result<Vec<Self>, SetupError> {
        let at = format!("transport.dpdk.ports[{}]", open.index);
        if open.port.tx_rings().unwrap_or(open.tx.len()).min(open.tx.len()) < workers {
            return Err(too_few_queues(&open, workers, &at));
        }
        let all = Exchange::for_workers(eal, workers).map_err(|why| setup_error(&at, &why))?;
        let OpenPort { settings, rx, tx, addrs, port, pool, link_mtu, does, info, taps, .. } = open;
        let bare = addrs.bare();
        let link = packet::ethernet::LEN + bare.tags.bytes().len();
        let segmentation = offloads::tso_limits(does, &info, (link, link_mtu.into()), pool.room());
        let offload = Offload { checksums: does.tx_checksum, segmentation };
        let networks =
            settings.ip.0.iter().filter_map(|own| Some(Network { address: own.ip, prefix: own.prefix? }));
        let networks: Vec<Network> = networks.collect();
        let mut rx = rx.into_iter();
        let taps = taps.rx.iter().zip(&taps.tx);
        let stacks = all.into_iter().zip(tx).zip(taps).map(|((exchange, tx), (received, sent))| {
            let config = Config {
                mac: bare.mac,
                tags: bare.tags,
                addresses: addrs.all().to_vec(),
                networks: networks.clone(),
                gateways: settings.gateway.0.clone(),
                peer: settings.peer_mac.as_deref().and_then(parse_mac),
                mtu: link_mtu,
                ports: PORTS,
                connections: room.0.saturating_mul(2) + 1024,
                sockets: room.1,
                share: exchange.share,
                secret: secret(),
                tcp: tcp(&settings.tcp),
            };
            let mut this = Self {
                stack: Stack::new(config),
                name: settings.name.clone(),
                rx: rx.next().map(limited),
                out: Outgoing::new(tx, pool.clone(), (offload, does.tx_ipv4_checksum), Arc::clone(sent)),
                batch: Batch::new(),
                exchange,
                addresses: settings.ip.0.iter().map(|own| own.ip).collect(),
                watch: Watch::new(&port),
                port: port.clone(),
                before: Interface::default(),
                incoming: Incoming::new(does.rx_checksum, Arc::clone(received)),
            };
            this.before = this.counters();
            this
        });
        Ok(stacks.collect())
    }

    /// Its worker uses it from now on.
    pub fn enter(&mut self) {
        self.exchange.enter();
    }

    /// The port's own address towards `ip`: that in the network of the next hop, else the first of its family.
    pub fn own(&self, ip: IpAddr) -> Option<IpAddr> {
        let first = || self.addresses.iter().find(|own| own.is_ipv4() == ip.is_ipv4()).copied();
        self.stack.address_towards(ip).or_else(first)
    }

    /// Take what came, let what is due happen, and send, unless there are events: what is answered to them is sent with the
    /// acknowledgments, by [`send`](Self::send). Whether anything came.
    pub fn turn(&mut self, now: u64) -> bool {
        self.incoming.tap().follow();
        self.out.tap().follow();
        let mut any = false;
        for burst in 1..=BURSTS {
            let got = self.receive(now) | self.receive_from_others(now);
            any |= got;
            if !got || self.stack.events() >= BURST {
                break;
            }
            if burst.is_multiple_of(UNACKNOWLEDGED) {
                self.send(now);
            }
        }
        self.stack.advance(now);
        if self.stack.events() == 0 {
            self.send(now);
        }
        any
    }

    /// A burst from the port: what is another worker's is handed on.
    fn receive(&mut self, now: u64) -> bool {
        let Some(rx) = &mut self.rx else { return false };
        rx.receive(&mut self.batch);
        if self.batch.is_empty() {
            return false;
        }
        self.incoming.tap().received(&mut self.batch);
        let passed = &self.exchange.passed;
        passed.received_bytes.fetch_add(self.batch.bytes(), Ordering::Relaxed);
        let Self { stack, incoming, exchange, out, batch, .. } = self;
        batch.filter_map(|mbuf| {
            let recipient = incoming.take(stack, &mbuf, now);
            exchange.hand_on(mbuf, recipient, out.pool())
        });
        batch.clear();
        exchange.flush();
        true
    }

    /// What other workers received for this one.
    fn receive_from_others(&mut self, now: u64) -> bool {
        let Self { stack, incoming, exchange, batch, .. } = self;
        exchange.receive(batch, |frames| {
            for mbuf in frames.frames() {
                // its flow is one of ours, or it is for all and was given to each
                let _taken = incoming.take(stack, mbuf, now);
            }
        })
    }

    /// Send what the stack has to send, as far as the port takes it.
    pub fn send(&mut self, now: u64) {
        self.stack.transmit(now, &mut self.out);
        self.out.flush();
        let bytes = self.out.take_bytes();
        if bytes > 0 {
            self.exchange.passed.sent_bytes.fetch_add(bytes, Ordering::Relaxed);
        }
    }

    /// Send a datagram of a socket.
    #[inline]
    pub fn send_datagram(&mut self, socket: SocketHandle, datagram: &[u8], now: u64) -> Sent {
        self.stack.send_datagram(socket, datagram, now, &mut self.out)
    }

    /// Send a datagram of a server.
    #[inline]
    pub fn send_datagram_to(&mut self, to: SocketAddr, datagram: &[u8], now: u64) -> SendOutcome {
        self.stack.send_datagram_to(to, datagram, now, &mut self.out)
    }

    fn counters(&self) -> Interface {
        let stats = self.port.stats();
        let passed = &self.exchange.passed;
        let own = |count: &AtomicU64| count.load(Ordering::Relaxed);
        let or = |port: u64, own: u64| if port > 0 { port } else { own };
        Interface {
            rx_packets: stats.rx_packets,
            rx_bytes: or(stats.rx_bytes, own(&passed.received_bytes)),
            tx_packets: stats.tx_packets,
            tx_bytes: or(stats.tx_bytes, own(&passed.sent_bytes)),
            rx_dropped: stats.rx_missed + stats.rx_no_memory + own(&passed.dropped),
            tx_dropped: stats.tx_unfit,
            rx_errors: stats.rx_errors,
            tx_errors: stats.tx_errors,
            stack: counted(self.stack.counters()),
        }
    }

    /// Frames for which the port's receive queue, or another worker's ring, had no room: told by the first worker.
    pub fn missed(&self) -> u64 {
        if self.exchange.share.worker > 0 { 0 } else { self.counters().since(&self.before).rx_dropped }
    }

    /// What the port counted in this run, and of its stacks this worker's.
    pub fn interface(&self, into: &mut Interfaces) {
        into.insert(self.name.clone(), self.counters().since(&self.before));
    }

    /// The port was lost, and why. When `patient`, a link that is down is no loss: it may come again.
    pub fn loss_reason(&mut self, index: usize, patient: bool) -> Option<SetupError> {
        let what = self.watch.loss_reason(patient)?;
        let (name, device) = (&self.name, self.port.device());
        Some(SetupError::new(
            "ND-91-01",
            format!("transport.dpdk.ports[{index}]"),
            format!("port {name} ({device}) was lost: {what}"),
            "See what ended it; what was measured until then is kept",
        ))
    }

    /// Let connections that were closed say so and hear the answer, and hand on what comes for workers that are not done yet.
    /// `now` is the time of the run.
    pub fn linger(ports: &mut [Self], now: impl Fn() -> u64) {
        let begun = Instant::now();
        let mut turn = || {
            for port in &mut *ports {
                port.turn(now());
                while port.stack.event().is_some() {}
                // the acknowledgment of the peer's FIN, too
                port.send(now());
            }
            let closing = ports.iter().any(|port| port.stack.closing() > 0) && begun.elapsed() < LINGER;
            if !closing {
                ports.iter_mut().for_each(|port| port.exchange.leave());
            }
            closing || ports.iter().any(|port| port.exchange.is_used())
        };
        while turn() {
            std::thread::sleep(REST);
        }
        ports.iter().for_each(Self::conclude);
    }

    /// Say what went wrong below the connections.
    fn conclude(&self) {
        let counters = self.stack.counters();
        let counted = counted(counters);
        tracing::debug!(port = %self.name, ?counted, "connections over DPDK");
        let Share { worker, workers } = self.exchange.share;
        let (redirected, full) = self.exchange.redirected();
        if workers > 1 && worker == 0 {
            tracing::info!(port = %self.name, workers, redirected, full, "frames handed from worker to worker");
        }
        let wrong = counters.dropped(DropReason::BadChecksum);
        if wrong > 0 {
            let hint = "of a kernel's interface at the other end, turn them on: ethtool -K INTERFACE tx off";
            tracing::warn!(port = %self.name, wrong, "packets had wrong checksums; {hint}");
        }
    }
}

/// What nobody can guess, and no other run has: sequence numbers, ports and the clock of timestamps begin with it.
fn secret() -> [u64; 2] {
    [(); 2].map(|()| RandomState::new().build_hasher().finish())
}

fn tcp(settings: &profile::Tcp) -> TcpConfig {
    let usual = TcpConfig::default();
    let window = settings.window.and_then(|window| u32::try_from(window.0).ok());
    TcpConfig {
        receive_buffer: window.unwrap_or(usual.receive_buffer),
        send_buffer: window.unwrap_or(usual.send_buffer),
        mss: settings.mss.unwrap_or(usual.mss),
        time_wait: TIME_WAIT,
        control: match settings.congestion {
            Congestion::NewReno => CongestionControl::NewReno,
            Congestion::Cubic => CongestionControl::Cubic,
        },
        keep_alive: settings.keep_alive.map_or(0, |interval| interval.ns()),
        ..usual
    }
}

/// What a user asks of a stack first: what it had to send again and why, and what it dropped, where it dropped anything.
fn counted(counters: &Counters) -> BTreeMap<String, u64> {
    let of_tcp = [
        ("tcp_segments_sent", counters.segments_sent),
        ("tcp_retransmitted", counters.retransmitted),
        ("tcp_timeouts", counters.timeouts),
        ("tcp_resets_sent", counters.resets_sent),
    ];
    let by_port = (counters.segmented > 0).then_some(("tcp_frames_segmented_by_port", counters.segmented));
    let of_icmp = [
        ("icmp_errors_sent", counters.icmp_errors_sent),
        ("icmp_errors_limited", counters.icmp_errors_limited),
    ];
    let of_icmp = of_icmp.into_iter().filter(|(_, n)| *n > 0);
    let drops = DropReason::NAMES.iter().zip(counters.drops).filter(|(_, n)| *n > 0);
    let drops = drops.map(|(name, n)| (format!("dropped_{name}"), n));
    let named = of_tcp.into_iter().chain(by_port).chain(of_icmp).map(|(name, n)| (name.to_owned(), n));
    named.chain(drops).collect()
}

fn limited(mut rx: RxQueue) -> RxQueue {
    rx.limit(BURST);
    rx
}

/// The port cannot have so many workers.
fn too_few_queues(open: &OpenPort<'_>, workers: usize, at: &str) -> SetupError {
    let (name, device) = (&open.settings.name, open.port.device());
    let most = open.port.tx_rings().unwrap_or(open.info.max_tx_queues.into());
    let what = format!("each of {workers} workers needs a queue of port {name} ({device}), which has {most}");
    let fix = "Use fewer workers, or give the port more queues: qpairs=N of af_packet, queue_count=N of af_xdp, queues=N of \
               vhost and virtio; at both ends of a memif as many";
    SetupError::new("ND-92-12", format!("{at}.queues"), what, fix)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    /// Thresholds name counters by a list of the profile's: it has all of them, and no other.
    #[test]
    fn thresholds_know_each_counter() {
        let all = Counters {
            segmented: 1,
            icmp_errors_sent: 1,
            icmp_errors_limited: 1,
            drops: [1; DropReason::NAMES.len()],
            ..Counters::default()
        };
        let interface = Interface { stack: counted(&all), ..Interface::default() };
        let told = serde_json::to_value(interface).expect("JSON");
        let told: BTreeSet<&str> = told.as_object().expect("an object").keys().map(String::as_str).collect();
        assert_eq!(told, BTreeSet::from(profile::PORT_COUNTERS));
    }

    #[test]
    fn what_a_stack_counted_has_names() {
        let mut counters = Counters {
            segments_sent: 9,
            retransmitted: 3,
            timeouts: 2,
            icmp_errors_sent: 5,
            ..Counters::default()
        };
        counters.drops[DropReason::BadChecksum as usize] = 4;
        let said: Vec<_> = counted(&counters).into_iter().collect();
        let expected = [
            ("dropped_bad_checksum", 4),
            ("icmp_errors_sent", 5),
            ("tcp_resets_sent", 0),
            ("tcp_retransmitted", 3),
            ("tcp_segments_sent", 9),
            ("tcp_timeouts", 2),
        ];
        assert_eq!(said, expected.map(|(name, n)| (name.to_owned(), n)));
    }
}
