//! What a parser found out about a packet, kept with it, so that no later stage parses again.
//!
//! It lies in the second cache line of the packet's header (a dynamic field of DPDK), which is touched anyway when the packet
//! is freed, not in the packet's bytes. Whether it says anything is one bit of the packet's flags, which drivers and pools
//! clear with the others when they hand a packet out: whoever does not use it pays nothing.

use dpdk_sys::rte_mbuf;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// What is known of a packet: written by one parser with [`Mbuf::set_meta`](crate::Mbuf::set_meta), read by later stages
/// with [`Mbuf::meta`](crate::Mbuf::meta).
///
/// It goes along over rings, and into clones and copies. Bytes that come before the packet or are taken off its front make it
/// invalid, as does a new length that ends before [`end`](Meta::end). Rewriting a header in place does not: whoever changes an
/// address or a port that `hash` was made of, and has later stages that go by it, writes it anew. A stage that knows the
/// subscriber may write that in place of it: [`MetaFlags::SUBSCRIBER`].
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[repr(C, align(8))]
pub struct Meta {
    /// Keyed hash of the flow, the same for both directions; with [`MetaFlags::HASHED`].
    pub hash: u32,
    /// Tag control information of up to two VLAN tags, the outer one first; see [`Meta::tagged`].
    pub tags: [u16; 2],
    /// Where the Ethernet header begins: not 0 inside a tunnel.
    pub l2: u16,
    /// Where the network header begins, behind all tags.
    pub l3: u16,
    /// Where the transport header begins; without one, where what the network header carries does.
    pub l4: u16,
    /// Where the network packet ends; padding follows.
    pub end: u16,
    /// EtherType behind all tags.
    pub kind: u16,
    /// Number of the port that it came in by, as its parser was told.
    pub in_port: u16,
    /// IP protocol behind extension headers; 0 in what is not IP.
    pub protocol: u8,
    /// Number of VLAN tags, at most two.
    pub tagged: u8,
    /// What else there is to know.
    pub flags: MetaFlags,
}

/// Yes or no, of a packet.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[repr(transparent)]
pub struct MetaFlags(u16);

impl MetaFlags {
    /// None of them.
    pub const NONE: Self = Self(0);
    /// It is IPv4 or IPv6, and its lengths agree.
    pub const IP: Self = Self(1);
    /// It is IPv6.
    pub const V6: Self = Self(1 << 1);
    /// It is a fragment.
    pub const FRAGMENT: Self = Self(1 << 2);
    /// It is a fragment, and not the first: there is no transport header.
    pub const LATER_FRAGMENT: Self = Self(1 << 3);
    /// Its transport header is there in full, and [`Meta::l4`] is where.
    pub const L4: Self = Self(1 << 4);
    /// All checksums of it that there are were found right.
    pub const CHECKED: Self = Self(1 << 5);
    /// Its sender is a known subscriber: [`Meta::hash`] is the number of the next hop towards it.
    pub const SUBSCRIBER: Self = Self(1 << 6);

    /// [`Meta::hash`] was written: parsers for which nobody behind them asks leave it out.
    pub const HASHED: Self = Self(1 << 7);

    /// Whether it has all of these.
    #[inline]
    pub const fn has(self, others: Self) -> bool {
        self.0 & others.0 == others.0
    }

    /// Whether of these it has just those.
    #[inline]
    pub const fn masked_equals(self, of: Self, those: Self) -> bool {
        self.0 & of.0 == those.0
    }

    /// Whether it has one of these.
    #[inline]
    pub const fn any(self, others: Self) -> bool {
        self.0 & others.0 != 0
    }

    /// These and those.
    #[inline]
    #[must_use]
    pub const fn with(self, others: Self) -> Self {
        Self(self.0 | others.0)
    }

    /// These, and those too if `yes`.
    #[inline]
    #[must_use]
    pub const fn with_if(self, yes: bool, others: Self) -> Self {
        if yes { self.with(others) } else { self }
    }
}

const _: () = assert!(size_of::<Meta>() == 24, "it leaves the field's other third to time stamps");

/// Where it is in packets' headers, and the flag that says so: both written once, before the first packet is made.
static OFFSET: AtomicUsize = AtomicUsize::new(0);
static FLAG: AtomicU64 = AtomicU64::new(0);

/// Have DPDK keep room for it: 0 or a negative errno. To be called when the EAL has started.
pub(crate) fn register() -> i32 {
    let (mut offset, mut flag) = (0, 0);
    // SAFETY: the EAL runs, and both places outlive the call.
    let code =
        unsafe { dpdk_sys::nd_meta_register(size_of::<Meta>() as u32, &raw mut offset, &raw mut flag) };
    if code == 0 {
        OFFSET.store(offset as usize, Ordering::Relaxed);
        FLAG.store(flag, Ordering::Relaxed);
    }
    code
}

/// The bit in a packet's flags that says whether there is any.
#[inline]
pub(crate) fn flag() -> u64 {
    FLAG.load(Ordering::Relaxed)
}

/// Where it is in this packet's header.
#[inline]
pub(crate) fn place(packet: NonNull<rte_mbuf>) -> *mut Meta {
    packet.as_ptr().wrapping_byte_add(OFFSET.load(Ordering::Relaxed)).cast()
}
