//! What a parser found, as the NAT wants it: headers are read once.

use dpdk::{Mbuf, Meta, MetaFlags};
use nat_core::{Headers, key};
use packet::layers::protocol;
use packet::{ethernet, ipv4};

/// The headers of an IPv4 packet that was parsed. `None`: it is something else.
#[inline(always)]
pub fn of(mbuf: &Mbuf, meta: Meta) -> Option<Headers> {
    from(mbuf.data(), meta)
}

#[inline(always)]
fn from(frame: &[u8], meta: Meta) -> Option<Headers> {
    plain(frame, meta).or_else(|| unusual(frame, meta))
}

/// Of most packets: TCP or UDP without tags or options.
#[inline(always)]
fn plain(frame: &[u8], meta: Meta) -> Option<Headers> {
    const L3: usize = ethernet::LEN;
    const L4: usize = L3 + ipv4::LEN;
    const WHOLE: MetaFlags = MetaFlags::IP.with(MetaFlags::L4);
    const FRAGMENT: MetaFlags = MetaFlags::FRAGMENT.with(MetaFlags::LATER_FRAGMENT);
    let whole = meta.flags.masked_equals(WHOLE.with(MetaFlags::V6).with(FRAGMENT), WHOLE);
    // Not one after the other: that is a branch each.
    if !(whole & (meta.tagged == 0) & (meta.l3 == Headers::USUAL.0) & (meta.l4 == Headers::USUAL.1)) {
        return None;
    }
    let head: &[u8; L4 + 8] = frame.first_chunk()?;
    let mut special = if head[L3 + 8] <= 1 { Headers::LAST_HOP } else { 0 };
    match meta.protocol {
        protocol::UDP => {}
        protocol::TCP if frame.get(L4 + 13)? & 0b0000_0111 == 0 => {}
        protocol::TCP => special |= Headers::TCP_CONTROL,
        _ => return None,
    }
    Some(Headers {
        addresses: u64::from_be_bytes(piece(head, L3 + 12)),
        ports: u32::from_be_bytes(piece(head, L4)),
        realm: 0,
        l3: Headers::USUAL.0,
        l4: Headers::USUAL.1,
        end: meta.end,
        protocol: meta.protocol,
        special,
    })
}

/// Bytes of a header.
#[inline(always)]
fn piece<const N: usize, const LEN: usize>(head: &[u8; LEN], at: usize) -> [u8; N] {
    std::array::from_fn(|i| head[at + i])
}

// By value: what only this looks at is not even read of most packets.
#[inline(never)]
fn unusual(frame: &[u8], meta: Meta) -> Option<Headers> {
    if !meta.flags.masked_equals(MetaFlags::IP.with(MetaFlags::V6), MetaFlags::IP) {
        return None;
    }
    let header: &[u8; 20] = frame.get(usize::from(meta.l3)..)?.first_chunk()?;
    let mut special = Headers::place(meta.l3, meta.l4) | if header[8] <= 1 { Headers::LAST_HOP } else { 0 };
    let later = meta.flags.has(MetaFlags::LATER_FRAGMENT);
    if meta.flags.has(MetaFlags::FRAGMENT) {
        special |= Headers::FRAGMENT | if later { Headers::LATER } else { 0 };
    }
    if !meta.flags.has(MetaFlags::L4) {
        special |= Headers::SHORT;
    }
    let mut ports = 0;
    let segment = frame.get(usize::from(meta.l4)..usize::from(meta.end)).unwrap_or(&[]);
    let known = matches!(meta.protocol, protocol::UDP | protocol::TCP);
    match (later, segment.first_chunk()) {
        (false, Some([a, b, c, d, e, f])) => {
            if known {
                ports = u32::from_be_bytes([*a, *b, *c, *d]);
                let controls = || segment.get(13).is_some_and(|flags| flags & 0b0000_0111 != 0);
                if meta.protocol == protocol::TCP && controls() {
                    special |= Headers::TCP_CONTROL;
                }
            } else {
                special |= Headers::OTHER;
                if meta.protocol == protocol::ICMP {
                    ports = u32::from_be_bytes([*e, *f, 0, 0]);
                }
            }
        }
        _ if !known => special |= Headers::OTHER,
        _ => {}
    }
    Some(Headers {
        addresses: u64::from_be_bytes(piece(header, 12)),
        ports,
        realm: key::realm(meta.tags, meta.tagged),
        l3: meta.l3,
        l4: meta.l4,
        end: meta.end,
        protocol: meta.protocol,
        special,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use packet::{FlowKey, Parsed, checksum};
    use proptest::prelude::*;

    proptest! {
        /// Frames that are nearly right: what the parser left is what the NAT's own parser finds.
        #[test]
        fn the_parser_leaves_what_the_nat_would_find(
            rest in proptest::collection::vec(any::<u8>(), 0..60),
            protocol in prop_oneof![Just(6u8), Just(17), Just(1), any::<u8>()],
            fragment in prop_oneof![4 => Just(0u16), 4 => Just(0x4000), 1 => any::<u16>()],
            hops in 0u8..4,
            longer in -3i32..3,
            tags in 0usize..3,
        ) {
            let [f0, f1] = fragment.to_be_bytes();
            let [t0, t1] = ((20 + rest.len() as i32 + longer) as u16).to_be_bytes();
            let mut ip = [0x45, 0, t0, t1, 0, 7, f0, f1, hops, protocol, 0, 0, 10, 0, 0, 1, 198, 51, 100, 2];
            let [c0, c1] = checksum::of(&ip).to_be_bytes();
            (ip[10], ip[11]) = (c0, c1);
            let tagged = [0x88, 0xa8, 0, 7, 0x81, 0, 0x20, 9];
            let frame = [&[2; 12], &tagged[8 - 4 * tags..], &[8, 0][..], &ip, &rest].concat();
            if let Ok(parsed) = Parsed::of(&frame) {
                let meta = engine::parser::meta(&frame, &parsed, Some(FlowKey::shared().hash(&frame, &parsed)), 0);
                prop_assert_eq!(from(&frame, meta), Headers::parsed(&frame, &parsed).ok());
            }
        }
    }
}
