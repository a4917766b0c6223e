//! The NAT of one worker, between its ports.

use crate::link;
use crate::next_hops::{GATEWAY, NextHops, UNKNOWN};
use ::element::interface_addr::{InterfaceAddrs, Wanted};
use cgnat::{BURST, Config, ConfigError, Forward, Frame, Reason, Side, Verdict};
use dpdk::{Batch, Mbuf, Mempool, MetaFlags};
use engine::{About, Cx, Element};
use packet::{Mac, ipv4};
use std::net::{IpAddr, Ipv4Addr};

/// What it is called.
pub const KIND: &str = "nat";
/// Its outputs; what is left in a batch goes to the first.
pub const OUTPUTS: [&str; 4] = ["outside", "inside", "inside_local", "outside_local"];
const INSIDE: usize = 1;
const LOCAL: [usize; 2] = [2, 3];

/// Its reasons to drop: those of the NAT, and what the links add.
pub const DROPS: [&str; Reason::NAMES.len() + 3] = {
    let mut names = ["no_next_hop"; Reason::NAMES.len() + 3];
    let mut i = 0;
    while i < Reason::NAMES.len() {
        names[i] = Reason::NAMES[i];
        i += 1;
    }
    names[NO_ROOM] = "no_room";
    names[UNKNOWN_PORT] = "unknown_port";
    names
};
/// The Ethernet address of the next hop is not known (yet).
const NO_NEXT_HOP: usize = Reason::NAMES.len();
/// There is no room for its tags.
const NO_ROOM: usize = NO_NEXT_HOP + 1;
/// No parser told by which of the two ports it came.
const UNKNOWN_PORT: usize = NO_NEXT_HOP + 2;

/// Time between two looks at what has expired, ns.
const TURN: u64 = 500_000;
/// Sessions that are looked at in one of them.
const BUDGET: usize = 512;
/// Time between two questions for the router's address, ns.
const ASK: u64 = 1_000_000_000;
/// Bytes of a question, and of the shortest frame.
const QUESTION: usize = 60;
/// Hosts inside that are remembered for packets of no session.
const HOSTS: usize = 1 << 16;

/// A port, as the NAT knows it.
#[derive(Debug)]
struct Port {
    number: u16,
    addrs: InterfaceAddrs,
    mac: Mac,
}

/// What becomes of a packet, and where its IP header begins.
#[derive(Debug, Clone, Copy)]
struct Decision {
    verdict: Verdict,
    l3: u16,
}

/// Element: translates between the inside and the outside.
#[derive(Debug)]
pub struct Nat {
    nat: cgnat::Nat,
    /// Inside and outside.
    ports: [Port; 2],
    gateway: Ipv4Addr,
    /// The addresses of the pool: who asks for them outside gets the port's Ethernet address.
    proxied: InterfaceAddrs,
    hops: NextHops,
    /// For packets of its own.
    pool: Mempool,
    advanced: u64,
    asked: u64,
    /// Fragments whose time was over, as far as they are counted here.
    timeouts: u64,
}

/// Whether its parser found an IP header.
fn is_ip(mbuf: &Mbuf) -> bool {
    mbuf.meta().is_some_and(|meta| meta.flags.has(MetaFlags::IP))
}

impl Nat {
    /// Between these ports: the number and the addresses of each, inside first.
    pub fn new(
        config: Config,
        sides: [(u16, InterfaceAddrs); 2],
        gateway: Ipv4Addr,
        pool: Mempool,
    ) -> Result<Self, ConfigError> {
        let pooled: Vec<IpAddr> = config.pool.iter().map(|one| one.address.into()).collect();
        let ports = sides.map(|(number, addrs)| Port { number, mac: addrs.bare().mac, addrs });
        let outside = ports[1].addrs.bare();
        let proxied = InterfaceAddrs::new(outside.mac, outside.tags, &pooled, &[]);
        let (nat, hops) = (cgnat::Nat::new(config)?, NextHops::new(HOSTS));
        Ok(Self { nat, ports, gateway, proxied, hops, pool, advanced: 0, asked: 0, timeouts: 0 })
    }

    fn side(&self, mbuf: &Mbuf) -> Option<Side> {
        let port = mbuf.meta()?.in_port;
        [Side::Inside, Side::Outside]
            .into_iter()
            .zip(&self.ports)
            .find(|(_, of)| of.number == port)
            .map(|(s, _)| s)
    }

    /// Whether a packet is for the box itself, or is no IP.
    fn is_local(&self, mbuf: &Mbuf, side: Side) -> bool {
        let Some(meta) = mbuf.meta().filter(|_| is_ip(mbuf)) else { return true };
        let Some((_, to)) = ipv4::addresses(mbuf.data(), meta.l3.into()) else { return true };
        // The first address is the box's; the others may be those of the pool.
        self.ports[side as usize].addrs.own().iter().any(|own| own.ip == to)
    }

    /// Learn the router's address from what it says.
    fn hear(&mut self, frame: &[u8]) {
        let wanted = Wanted { ip: self.gateway.into(), tags: self.ports[1].addrs.bare().tags };
        if let Some(mac) = wanted.heard(frame) {
            self.hops.set_gateway(mac);
        }
    }

    /// Translate packets of one side, at most [`BURST`].
    fn translate(&mut self, side: Side, mbufs: &mut [Mbuf], now: u64, decisions: &mut [Decision]) {
        let count = mbufs.len().min(BURST);
        let mut frames: [Frame<'_>; BURST] = std::array::from_fn(|_| Frame::new(&mut []));
        for (frame, mbuf) in frames.iter_mut().zip(mbufs.iter_mut()) {
            *frame = Frame::new(mbuf.data_mut());
        }
        let frames = &mut frames[..count];
        self.nat.process_steady(side, frames, now);
        for frame in frames.iter_mut().filter(|frame| frame.verdict == Verdict::Pending) {
            if side == Side::Inside {
                self.learn(frame, now);
            }
            self.nat.process_pending(side, frame, now);
        }
        for (frame, decision) in frames.iter().zip(decisions) {
            *decision = Decision { verdict: frame.verdict, l3: frame.headers.l3 };
        }
    }

    /// Whoever begins something is to be found again: at the Ethernet address that it sent from.
    fn learn(&mut self, frame: &Frame<'_>, now: u64) {
        let Some(mac) = frame.bytes.get(6..12).and_then(|mac| Mac::try_from(mac).ok()) else { return };
        let headers = &frame.headers;
        // What only pretends to be a subscriber takes no room.
        if !self.nat.config().inside.iter().any(|prefix| prefix.has(headers.source.address)) {
            return;
        }
        if let Some(hop) = self.hops.learn(headers.source.address, headers.realm, mac) {
            // Who may be no subscriber gets nothing, as the packet's own verdict will say.
            let host = Ipv4Addr::from_bits(headers.source.address);
            let _not_a_subscriber = self.nat.set_hops(host, headers.realm, GATEWAY, hop, now);
        }
    }

    /// Write the link header for where a packet goes.
    fn send_on(&self, mbuf: &mut Mbuf, l3: u16, forward: Forward) -> Result<(), usize> {
        let (port, hop) = match forward.to {
            Side::Outside => (&self.ports[1], GATEWAY),
            Side::Inside if forward.hop != UNKNOWN => (&self.ports[0], forward.hop),
            Side::Inside => {
                let to = ipv4::addresses(mbuf.data(), l3.into()).map(|(_, to)| to);
                let hop = to.and_then(|to| self.hops.host(to, forward.realm));
                (&self.ports[0], hop.unwrap_or(UNKNOWN))
            }
        };
        let to = self.hops.mac(hop).ok_or(NO_NEXT_HOP)?;
        if link::rewrite(mbuf, l3.into(), forward.realm, (to, port.mac)) { Ok(()) } else { Err(NO_ROOM) }
    }

    /// Hand a packet to the output that it goes to; what goes outside is given back, for the batch.
    fn emit(mbuf: Mbuf, to: Side, cx: &mut Cx<'_>) -> Option<Mbuf> {
        match to {
            Side::Outside => Some(mbuf),
            Side::Inside => {
                cx.emit(INSIDE, mbuf);
                None
            }
        }
    }

    /// Packets that the NAT sends by itself.
    fn send_own(&mut self, batch: &mut Batch, cx: &mut Cx<'_>) {
        while batch.room() > 0 && cx.room(INSIDE) > 0 {
            let Some((forward, packet)) = self.nat.pop_output() else { return };
            let Some(mut mbuf) = self.pool.packet(packet) else { return };
            match self.send_on(&mut mbuf, 0, forward) {
                Ok(()) => {
                    if let Some(mbuf) = Self::emit(mbuf, forward.to, cx) {
                        let _room_was_asked_for = batch.push(mbuf);
                    }
                }
                Err(reason) => cx.count(reason, 1),
            }
        }
    }

    /// Ask who the router is.
    fn ask(&self, batch: &mut Batch) {
        let Some(own) = self.ports[1].addrs.like(self.gateway.into()) else { return };
        let wanted = Wanted { ip: self.gateway.into(), tags: own.tags };
        let Some(mut mbuf) = self.pool.packet(&[0; QUESTION]) else { return };
        if own.solicit(&wanted, mbuf.data_mut()).is_some() {
            let _room_was_asked_for = batch.push(mbuf);
        }
    }
}

impl Element for Nat {
    fn about(&self) -> About {
        About { kind: KIND, takes: true, outputs: &OUTPUTS, drops: &DROPS, polled: true }
    }

    fn push(&mut self, batch: &mut Batch, cx: &mut Cx<'_>) {
        let now = cx.now();
        let mut answers = Batch::new();
        batch.filter_map(|mut mbuf| {
            let Some(side) = self.side(&mbuf) else {
                cx.count(UNKNOWN_PORT, 1);
                return None;
            };
            if !self.is_local(&mbuf, side) {
                return Some(mbuf);
            }
            if side == Side::Outside && !is_ip(&mbuf) {
                self.hear(mbuf.data());
                if self.proxied.respond(&mut mbuf) {
                    // There is room: it comes from the batch that it goes back to.
                    return answers.push(mbuf).err();
                }
            }
            cx.emit(LOCAL[side as usize], mbuf);
            None
        });
        let mut decisions = [Decision { verdict: Verdict::Held, l3: 0 }; dpdk::BURST];
        let mut done = 0;
        let in_port = |mbuf: &Mbuf| mbuf.meta().map(|meta| meta.in_port);
        for of_a_side in batch.frames_mut().chunk_by_mut(|a, b| in_port(a) == in_port(b)) {
            for burst in of_a_side.chunks_mut(BURST) {
                let Some(side) = burst.first().and_then(|mbuf| self.side(mbuf)) else { continue };
                let decisions = &mut decisions[done..done + burst.len()];
                done += burst.len();
                self.translate(side, burst, now, decisions);
            }
        }
        let mut decisions = decisions.iter();
        batch.filter_map(|mut mbuf| match decisions.next()? {
            Decision { verdict: Verdict::Forward(forward), l3 } => {
                match self.send_on(&mut mbuf, *l3, *forward) {
                    Ok(()) => Self::emit(mbuf, forward.to, cx),
                    Err(reason) => {
                        cx.count(reason, 1);
                        None
                    }
                }
            }
            Decision { verdict: Verdict::Drop(reason), .. } => {
                cx.count(*reason as usize, 1);
                None
            }
            Decision { verdict: Verdict::Held | Verdict::Pending, .. } => None,
        });
        answers.move_to(batch);
    }

    fn poll(&mut self, batch: &mut Batch, cx: &mut Cx<'_>) {
        let now = cx.now();
        if now.saturating_sub(self.advanced) >= TURN {
            self.nat.advance(now, BUDGET);
            self.advanced = now;
            // They were held, and are dropped without a packet at hand.
            let timeouts = self.nat.drops().of(Reason::FragmentTimeout);
            cx.count(Reason::FragmentTimeout as usize, timeouts - self.timeouts);
            self.timeouts = timeouts;
        }
        self.send_own(batch, cx);
        if !self.hops.has_gateway() && now.saturating_sub(self.asked) >= ASK {
            self.asked = now;
            self.ask(batch);
        }
        cx.wake_at(now + TURN);
    }
}
