//! A session: what a packet of it needs, in one cache line.

use crate::key::{Endpoint, Key, Realm};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Nothing: no session, the end of a list.
pub const NONE: u32 = u32::MAX;

/// Time in steps of 2^20 ns (1.05 ms). It wraps after 52 days, and is only compared over hours.
pub type Tick = u32;

/// The tick of a time.
#[inline]
pub fn tick(now_ns: u64) -> Tick {
    (now_ns >> 20) as Tick
}

/// Ticks of a duration, rounded up.
pub fn ticks(ns: u64) -> u32 {
    u32::try_from(ns.div_ceil(1 << 20)).unwrap_or(u32::MAX / 4).min(u32::MAX / 4)
}

/// What a session is doing (RFC 7857 section 2, after RFC 6146 section 3.5.2).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum State {
    /// Its line is free.
    Free,
    /// It is over; its line is free when its timer comes.
    Ended,
    /// No session: a mapping that was asked for.
    Pinned,
    /// The inside sent a SYN.
    SynUp,
    /// The outside sent a SYN.
    SynDown,
    /// The inside sent a FIN.
    FinUp,
    /// The outside sent a FIN.
    FinDown,
    /// Both sent a FIN.
    FinBoth,
    /// A side sent a RST: kept a while, since it may have been forged.
    Reset,
    /// TCP: both sides sent a SYN.
    Established,
    /// UDP, or an ICMP query.
    Open,
}

impl State {
    /// All of them, by number.
    pub const ALL: [Self; 11] = [
        Self::Free,
        Self::Ended,
        Self::Pinned,
        Self::SynUp,
        Self::SynDown,
        Self::FinUp,
        Self::FinDown,
        Self::FinBoth,
        Self::Reset,
        Self::Established,
        Self::Open,
    ];
    /// The name in listings.
    pub fn name(self) -> &'static str {
        match self {
            Self::Free => "free",
            Self::Ended => "ended",
            Self::Pinned => "mapping",
            Self::SynUp => "syn-up",
            Self::SynDown => "syn-down",
            Self::FinUp => "fin-up",
            Self::FinDown => "fin-down",
            Self::FinBoth => "fin-both",
            Self::Reset => "reset",
            Self::Established => "established",
            Self::Open => "open",
        }
    }

    /// Packets of sessions in a state from here on need no look at the state.
    const STEADY: u8 = Self::Established as u8;
}

/// Packets and bytes of a direction in 64 bits: 26 and 38 of them, whose highest says that it is time to report and begin anew.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(transparent)]
pub struct Traffic(u64);

impl Traffic {
    const PACKET: u64 = 1 << 38;
    const DUE: u64 = 1 << 63 | 1 << 37;

    /// Count a packet of so many bytes.
    #[inline(always)]
    pub fn add(&mut self, bytes: u64) {
        self.0 = self.0.wrapping_add(Self::PACKET | bytes);
    }

    /// Whether it is half full.
    #[inline(always)]
    pub fn is_due(self) -> bool {
        self.0 & Self::DUE != 0
    }

    /// Packets.
    pub fn packets(self) -> u64 {
        self.0 / Self::PACKET
    }

    /// Bytes of IP packets.
    pub fn bytes(self) -> u64 {
        self.0 % Self::PACKET
    }

    /// As it is kept.
    pub(crate) fn to_bits(self) -> u64 {
        self.0
    }

    /// As it was kept; more than it could be is reported with the next packet.
    pub(crate) fn from_bits(bits: u64) -> Self {
        Self(bits)
    }
}

/// One cache line. Of its two checksum differences, the way back takes the complements.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C, align(64))]
pub struct Session {
    // In this order what each direction compares lies together: a key is two or three loads.
    pub(crate) outside: u32,
    pub(crate) remote: u32,
    pub(crate) inside: u32,
    pub(crate) outside_port: u16,
    pub(crate) remote_port: u16,
    pub(crate) inside_port: u16,
    pub(crate) state: u8,
    pub(crate) flags: u8,
    /// Protocol in the highest byte, realm in the others.
    pub(crate) protocol_realm: u32,
    pub(crate) l3_delta: u16,
    pub(crate) l4_delta: u16,
    pub(crate) up_hop: u16,
    pub(crate) down_hop: u16,
    pub(crate) last_seen: Tick,
    pub(crate) subscriber: u32,
    /// The ring of the mapping's sessions; of a free line, the next free one.
    pub(crate) next: u32,
    pub(crate) previous: u32,
    pub(crate) up: Traffic,
    pub(crate) down: Traffic,
}

const _: () = assert!(size_of::<Session>() == 64);

impl Session {
    /// Its remote side is an address of the pool: packets come back in.
    pub(crate) const HAIRPIN: u8 = 1;
    /// Its outside endpoint is that of a static forward, and no port of a block.
    pub(crate) const STATIC: u8 = 2;
    /// It has a mapping that other sessions may share.
    pub(crate) const SHARED: u8 = 4;
    /// Somebody asked that it lives longer than it would.
    pub(crate) const EXTENDED: u8 = 8;
    /// Of a standby: sweeps since it was told of, in two bits.
    const AGE: u8 = 0x30;
    const SWEEP: u8 = 0x10;

    /// A standby was told of it.
    pub(crate) fn be_young(&mut self) {
        self.flags &= !Self::AGE;
    }

    /// A standby's sweep is over. Whether it was told of it in none of three.
    pub(crate) fn grow_old(&mut self) -> bool {
        self.flags += if self.flags & Self::AGE < Self::AGE { Self::SWEEP } else { 0 };
        self.flags & Self::AGE == Self::AGE
    }

    /// A line that is in no use.
    pub(crate) fn free() -> Self {
        zerocopy::FromZeros::new_zeroed()
    }

    /// Its state.
    pub fn state(&self) -> State {
        State::ALL.get(usize::from(self.state)).copied().unwrap_or(State::Free)
    }

    /// Whether somebody asked that it is there, or that it lives on (RFC 6887).
    pub(crate) fn is_asked(&self) -> bool {
        self.state() == State::Pinned || self.has(Self::EXTENDED)
    }

    /// Protocol: 1, 6 or 17.
    #[inline]
    pub fn protocol(&self) -> u8 {
        (self.protocol_realm >> 24) as u8
    }

    /// Tags of the inside.
    #[inline]
    pub fn realm(&self) -> Realm {
        self.protocol_realm & 0xff_ffff
    }

    /// The subscriber's endpoint.
    #[inline]
    pub fn inside(&self) -> Endpoint {
        Endpoint::new(self.inside, self.inside_port)
    }

    /// The endpoint that it talks to.
    #[inline]
    pub fn remote(&self) -> Endpoint {
        Endpoint::new(self.remote, self.remote_port)
    }

    /// What stands for the subscriber's endpoint outside.
    #[inline]
    pub fn outside(&self) -> Endpoint {
        Endpoint::new(self.outside, self.outside_port)
    }

    /// Packets and bytes from the inside since it began or was reported.
    pub fn outbound(&self) -> Traffic {
        self.up
    }

    /// Packets and bytes from the outside since it began or was reported.
    pub fn inbound(&self) -> Traffic {
        self.down
    }

    /// For how long no packet of it came, in ns, to 1 ms.
    pub fn idle(&self, now: u64) -> u64 {
        let idle = tick(now).wrapping_sub(self.last_seen);
        // A packet that was stamped after `now` was read is no long time ago.
        if idle > u32::MAX / 2 { 0 } else { u64::from(idle) << 20 }
    }

    #[inline]
    pub(crate) fn has(&self, flag: u8) -> bool {
        self.flags & flag != 0
    }

    /// Whether a packet that is no SYN, FIN or RST changes nothing but time and counters.
    #[inline(always)]
    pub(crate) fn is_steady(&self) -> bool {
        self.state >= State::STEADY && self.flags & Self::HAIRPIN == 0
    }

    /// Whether it is there for packets.
    #[inline]
    pub(crate) fn is_alive(&self) -> bool {
        self.state > State::Ended as u8
    }

    /// The key of packets from the inside.
    #[inline]
    pub(crate) fn up_key(&self) -> Key {
        Key::outbound(self.inside(), self.remote(), self.protocol(), self.realm())
    }

    /// The key of packets from the outside.
    #[inline]
    pub(crate) fn down_key(&self) -> Key {
        Key::inbound(self.remote(), self.outside(), self.protocol())
    }
}

impl Session {
    /// What it is known by.
    pub fn record(&self) -> crate::event::SessionRecord {
        crate::event::SessionRecord {
            inside: self.inside(),
            realm: self.realm(),
            outside: self.outside(),
            remote: self.remote(),
            protocol: self.protocol(),
        }
    }

    /// How much went over it since it began or was reported.
    pub fn volume(&self) -> crate::event::Volume {
        crate::event::Volume {
            packets_up: self.up.packets(),
            bytes_up: self.up.bytes(),
            packets_down: self.down.packets(),
            bytes_down: self.down.bytes(),
        }
    }
}
