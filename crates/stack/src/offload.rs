//! Work that whoever sends frames does in place of the stack, as ports do: checksums, and segmentation of TCP.

use packet::tcp::TsoLimits;

/// What it does.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Offload {
    /// It makes the checksums of UDP and TCP; those of IPv4 headers are right in what it is given, unless it segments.
    pub checksums: bool,
    /// How it segments TCP; `None`: it does not.
    pub segmentation: Option<TsoLimits>,
}

/// The work on one frame, and where its headers are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Work {
    /// Bytes before the IP header.
    pub l2: usize,
    /// Bytes of the IP header.
    pub l3: usize,
    /// Bytes of the header of UDP or TCP.
    pub l4: usize,
    /// Whether it is IPv6.
    pub v6: bool,
    /// Whether it is TCP, else UDP.
    pub tcp: bool,
    /// Most payload of a packet that it becomes; `None`: it is one.
    pub segment: Option<u16>,
}

/// Segmentation as a connection uses it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Large {
    /// Most payload of a frame before it is segmented.
    pub payload: u32,
    /// Most bytes of a segment behind its TCP header without options.
    pub mss: u16,
}

impl Large {
    /// Of connections whose frames have so many bytes before the TCP header. `None`: their frames are not segmented.
    pub fn within(limits: &TsoLimits, v6: bool, before: usize) -> Option<Self> {
        /// A TCP header without options, and with all.
        const TCP: [usize; 2] = [20, 60];
        /// The length of a packet has 16 bits.
        const PACKET: usize = u16::MAX as usize;
        let payload = limits.longest.min(PACKET).checked_sub(before + TCP[1])?;
        let mss = limits.longest_segment.checked_sub(before + TCP[0])?;
        let large = Self { payload: payload as u32, mss: u16::try_from(mss).unwrap_or(u16::MAX) };
        (limits.v6 || !v6).then_some(large)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_segmented_has_its_headers_in_each_segment() {
        let tap = TsoLimits { v6: false, longest: 65_000, longest_segment: 1_500 };
        let large = Large::within(&tap, false, 34).expect("IPv4");
        assert_eq!((large.payload, large.mss), (64_906, 1_446));
        assert!(Large::within(&tap, true, 54).is_none() && Large::within(&tap, false, 1_490).is_none());
        let long = TsoLimits { v6: true, longest: 1 << 20, longest_segment: 1 << 20 };
        let large = Large::within(&long, true, 54).expect("IPv6");
        assert_eq!((large.payload, large.mss), (65_535 - 114, u16::MAX));
    }
}
