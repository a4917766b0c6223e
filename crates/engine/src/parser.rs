//! The one stage that reads headers: what it finds it writes into each packet's [`Meta`], where later stages read it.

use crate::element::{Cx, Element, ElementInfo};
use dpdk::{Batch, Mbuf, Meta, MetaFlags};
use packet::{Fault, FlowKey, Parsed};

/// Parses packets that come in by one port. What is no IP, such as ARP, passes with what is known of it; what is broken is
/// dropped by its [`Fault`], and what is not in one piece of memory as `scattered`.
#[derive(Debug)]
pub struct Parser {
    in_port: u16,
    key: FlowKey,
    verify: bool,
    hash: bool,
}

/// Its reasons to drop: those of [`Fault`], and one more.
pub const DROPS: [&str; Fault::NAMES.len() + 1] = {
    let mut names = ["scattered"; Fault::NAMES.len() + 1];
    let mut i = 0;
    while i < Fault::NAMES.len() {
        names[i] = Fault::NAMES[i];
        i += 1;
    }
    names
};

/// Observer of each packet as it is parsed. Inlined, so that what was found need not go through memory, where it would be written in parts
/// and read as a whole, which waits.
pub trait ParseObserver {
    /// Its finding on a packet.
    type Output;
    /// A frame, and what was found in it.
    fn observe(&self, frame: &[u8], meta: &Meta) -> Self::Output;
}

impl ParseObserver for () {
    type Output = ();
    #[inline(always)]
    fn observe(&self, _: &[u8], _: &Meta) {}
}

impl Parser {
    /// For packets that come in by the port of this number. All parsers of a process use the same key for flow hashes, so that
    /// both directions of a flow have the same one, whichever port they come by.
    pub fn new(in_port: u16) -> Self {
        Self { in_port, key: FlowKey::shared(), verify: false, hash: true }
    }

    /// The same, which verifies checksums of TCP, UDP and ICMP, drops those that are wrong, and marks the others
    /// [`MetaFlags::CHECKED`]. The checksum of IPv4 headers is always verified.
    #[must_use]
    pub fn verifying(self) -> Self {
        Self { verify: true, ..self }
    }

    /// The same, which leaves flow hashes to who asks for them: for where few do.
    #[must_use]
    pub fn unhashed(self) -> Self {
        Self { hash: false, ..self }
    }

    #[inline]
    fn hash(&self, frame: &[u8], parsed: &Parsed) -> Option<u32> {
        self.hash.then(|| self.key.hash(frame, parsed))
    }

    /// Write what there is to know of a packet into its [`Meta`]. What is broken is a reason of [`DROPS`].
    #[inline]
    pub fn parse(&self, mbuf: &mut Mbuf) -> Result<(), usize> {
        self.parse_and(mbuf, &())
    }

    /// The same, and let `look` see the frame and what was found. It is there twice, and in the one for plain packets nothing is asked
    /// that is known of these.
    #[inline(always)]
    pub fn parse_and<L: ParseObserver>(&self, mbuf: &mut Mbuf, look: &L) -> Result<L::Output, usize> {
        if !mbuf.is_whole() {
            return Err(Fault::NAMES.len());
        }
        let frame = mbuf.data();
        let plain = if self.verify { Parsed::plain::<true>(frame) } else { Parsed::plain::<false>(frame) };
        let Some(parsed) = plain else {
            let meta = self.parse_any(mbuf)?;
            return Ok(look.observe(mbuf.data(), &meta));
        };
        let meta = meta(frame, &parsed, self.hash(frame, &parsed), self.in_port);
        let meta = Meta { flags: meta.flags.with_if(self.verify, MetaFlags::CHECKED), ..meta };
        let seen = look.observe(frame, &meta);
        mbuf.set_meta(meta);
        Ok(seen)
    }

    /// The same for what is no plain packet, or broken.
    #[inline(never)]
    fn parse_any(&self, mbuf: &mut Mbuf) -> Result<Meta, usize> {
        let frame = mbuf.data();
        let parsed = Parsed::of(frame).map_err(|fault| fault as usize)?;
        let checked = self.verify && parsed.layers().is_some();
        if checked && !parsed.is_intact(frame) {
            return Err(Fault::BadChecksum as usize);
        }
        let meta = meta(frame, &parsed, self.hash(frame, &parsed), self.in_port);
        let meta = Meta { flags: meta.flags.with_if(checked, MetaFlags::CHECKED), ..meta };
        mbuf.set_meta(meta);
        Ok(meta)
    }
}

/// What was parsed, in the form in which it is kept with the packet, with the flow's hash if it is known.
#[inline]
pub fn meta(frame: &[u8], parsed: &Parsed, hash: Option<u32>, in_port: u16) -> Meta {
    let Parsed { tags, tagged, kind, l3, ip } = *parsed;
    let flags = MetaFlags::NONE.with_if(hash.is_some(), MetaFlags::HASHED);
    let hash = hash.unwrap_or_default();
    let Some(ip) = ip else {
        let end = u16::try_from(frame.len()).unwrap_or(u16::MAX);
        return Meta { hash, tags, l2: 0, l3, l4: l3, end, kind, in_port, protocol: 0, tagged, flags };
    };
    let flags = flags
        .with(MetaFlags::IP)
        .with_if(ip.v6, MetaFlags::V6)
        .with_if(ip.fragment, MetaFlags::FRAGMENT)
        .with_if(ip.later, MetaFlags::LATER_FRAGMENT)
        .with_if(ip.l4_whole, MetaFlags::L4);
    Meta {
        hash,
        tags,
        l2: 0,
        l3,
        l4: ip.l4,
        end: ip.end,
        kind,
        in_port,
        protocol: ip.protocol,
        tagged,
        flags,
    }
}

impl Element for Parser {
    fn about(&self) -> ElementInfo {
        ElementInfo { kind: "parser", takes: true, outputs: &["out"], drops: &DROPS, polled: false }
    }

    fn push(&mut self, batch: &mut Batch, cx: &mut Cx<'_>) {
        cx.drop_rejected(batch, |mbuf| self.parse(mbuf));
    }
}
