//! Very many idle connections between two stacks in one process: what each takes of memory, and what a turn costs while all are idle.
//!
//! ```text
//! cargo run --release -p stack --example idle -- 10000000
//! ```
//!
//! Every second it says how many are up, how fast they come, and the bytes of a connection on each side: what the process has grown by,
//! halved. When all are up a thousand of them carry a byte each way: they live.

use packet::ethernet::Tags;
use stack::{Config, Handle, Network, Received, Share, Stack, TcpConfig, Transmit};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Instant;

/// Connections that begin between two turns.
const BURST: usize = 512;
/// Ports of a client's address.
const PORTS: std::ops::RangeInclusive<u16> = 10_000..=59_999;
/// Connections that carry a byte at the end.
const ASKED: usize = 1_000;
/// Turns of which the cost is the mean.
const TURNS: u32 = 100_000;

/// Frames from one side to the other, in one memory.
#[derive(Default)]
struct Wire {
    bytes: Vec<u8>,
    ends: Vec<usize>,
}

impl Transmit for Wire {
    fn frame(&mut self, len: usize) -> Option<&mut [u8]> {
        let from = self.bytes.len();
        self.bytes.resize(from + len, 0);
        self.ends.push(self.bytes.len());
        self.bytes.get_mut(from..)
    }
}

impl Wire {
    fn deliver(&mut self, to: &mut Stack, now: u64) {
        let mut from = 0;
        for end in self.ends.drain(..) {
            let _ours = to.receive(&self.bytes[from..end], now);
            from = end;
        }
        self.bytes.clear();
    }
}

/// Both stacks, and what is between them.
struct Pair {
    clients: Stack,
    server: Stack,
    up: Wire,
    down: Wire,
    /// The connections that the server accepted.
    accepted: Vec<Handle>,
    began: Instant,
}

impl Pair {
    fn now(&self) -> u64 {
        // a stack's time begins after 0
        1_000_000_000 + self.began.elapsed().as_nanos() as u64
    }

    /// One turn of both: who can read, of the clients' connections and of the server's, by their number.
    fn turn(&mut self, readable: &mut [Vec<usize>; 2]) {
        let now = self.now();
        self.clients.advance(now);
        self.clients.transmit(now, &mut self.up);
        self.up.deliver(&mut self.server, now);
        self.server.advance(now);
        while let Some(handle) = self.server.accept(self.accepted.len() as u64) {
            self.accepted.push(handle);
        }
        self.server.transmit(now, &mut self.down);
        self.down.deliver(&mut self.clients, now);
        for (stack, readable) in [&mut self.clients, &mut self.server].into_iter().zip(readable) {
            while let Some(event) = stack.event() {
                if event.readable {
                    readable.push(event.owner as usize);
                }
            }
        }
    }

    /// What a turn takes while nothing is to be done, ns.
    fn turn_cost(&mut self) -> f64 {
        let begun = Instant::now();
        for _ in 0..TURNS {
            self.turn(&mut Default::default());
        }
        begun.elapsed().as_nanos() as f64 / f64::from(TURNS)
    }
}

fn config(addresses: Vec<IpAddr>, last: u8, connections: usize) -> Config {
    Config {
        mac: [2, 0, 0, 0, 0, last],
        tags: Tags::NONE,
        networks: vec![Network { address: addresses[0], prefix: 8 }],
        addresses,
        gateways: Vec::new(),
        peer: Some([2, 0, 0, 0, 0, 3 - last]),
        mtu: 1500,
        ports: PORTS,
        connections,
        sockets: 0,
        share: Share::ALL,
        secret: [7 + u64::from(last), 11],
        tcp: TcpConfig::default(),
    }
}

/// What the process has in memory, bytes (Linux).
fn resident() -> u64 {
    let text = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    text.split_whitespace().nth(1).and_then(|pages| pages.parse::<u64>().ok()).unwrap_or(0) * 4096
}

fn main() -> Result<(), String> {
    let count = match std::env::args().nth(1) {
        None => 1_000_000,
        Some(word) => word
            .replace('_', "")
            .parse::<usize>()
            .ok()
            .filter(|count| (ASKED..=20_000_000).contains(count))
            .ok_or(format!("COUNT is a number from {ASKED} to 20000000, not {word}"))?,
    };
    let each = PORTS.len();
    let sources: Vec<IpAddr> =
        (0..count.div_ceil(each) as u32).map(|i| Ipv4Addr::from_bits(0x0a01_0000 + i).into()).collect();
    let service = IpAddr::from(Ipv4Addr::new(10, 0, 0, 1));
    let before = resident();
    let mut pair = Pair {
        clients: Stack::new(config(sources.clone(), 2, count)),
        server: Stack::new(config(vec![service], 1, count)),
        up: Wire::default(),
        down: Wire::default(),
        accepted: Vec::with_capacity(count),
        began: Instant::now(),
    };
    pair.server.listen(80, BURST * 4);
    let mut opened: Vec<Handle> = Vec::with_capacity(count);
    let few = pair.turn_cost();
    let (mut said, mut then) = (Instant::now(), 0);
    while pair.accepted.len() < count {
        for _ in 0..BURST.min(count - opened.len()) {
            let (source, now) = (sources[opened.len() / each], pair.now());
            let to = SocketAddr::new(service, 80);
            let handle = pair.clients.connect(source, to, opened.len() as u64, now);
            opened.push(handle.map_err(|error| error.to_string())?);
        }
        pair.turn(&mut Default::default());
        let up = pair.accepted.len();
        if said.elapsed().as_secs() >= 1 || up == count {
            let rate = (up - then) as f64 / said.elapsed().as_secs_f64();
            // the handles belong to this program
            let own = (2 * up * size_of::<Handle>()) as u64;
            let bytes = resident().saturating_sub(before + own) as f64 / up as f64 / 2.0;
            println!("{up:>10} up, {rate:>9.0}/s, {bytes:>5.0} bytes each on each side");
            (said, then) = (Instant::now(), up);
        }
    }
    let all = pair.turn_cost();
    println!("a turn of both stacks: {few:.0} ns without connections, {all:.0} ns with {count} idle ones");
    let (asked, mut byte) = (count.div_ceil(count / ASKED), [b'?']);
    for handle in opened.iter().step_by(count / ASKED) {
        pair.clients.write(*handle, &byte, pair.now()).map_err(|why| why.to_string())?;
    }
    let (begun, mut answered) = (Instant::now(), 0);
    while answered < asked && begun.elapsed().as_secs() < 60 {
        let mut readable = <[Vec<usize>; 2]>::default();
        pair.turn(&mut readable);
        let now = pair.now();
        for handle in readable[1].iter().map(|number| pair.accepted[*number]) {
            if matches!(pair.server.read(handle, &mut byte, now), Ok(Received::Bytes(1, _))) {
                pair.server.write(handle, &byte, now).map_err(|why| why.to_string())?;
            }
        }
        for handle in readable[0].iter().map(|number| opened[*number]) {
            answered +=
                usize::from(matches!(pair.clients.read(handle, &mut byte, now), Ok(Received::Bytes(1, _))));
        }
    }
    let ends = [pair.clients.connections(), pair.server.connections()];
    let again = pair.clients.counters().retransmitted + pair.server.counters().retransmitted;
    println!(
        "{answered} of {asked} that were asked answered; connections: {ends:?}; segments sent again: {again}"
    );
    if answered == asked && ends == [count; 2] { Ok(()) } else { Err("not all of them live".into()) }
}
