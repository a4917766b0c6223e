//! Addresses and ports replaced in place, checksums followed by a difference that is known beforehand (RFC 1624).

use crate::headers::Headers;
use crate::key::Endpoint;
use packet::layers::protocol;
use packet::{ethernet, ipv4};

/// What to add to one's complement sums so that they follow `old` becoming `new`: under addresses, and under addresses and ports.
pub fn deltas(old: Endpoint, new: Endpoint, protocol: u8) -> (u16, u16) {
    let halves = |address: u32| (address >> 16) + (address & 0xffff);
    let address = halves(!old.address) + halves(new.address);
    let port = u32::from(!old.port) + u32::from(new.port);
    // ICMP's checksum is without addresses.
    let under = if protocol == protocol::ICMP { 0 } else { address };
    (fold(address), fold(under + port))
}

#[inline(always)]
fn fold(sum: u32) -> u16 {
    let sum = (sum & 0xffff) + (sum >> 16);
    ((sum & 0xffff) + (sum >> 16)) as u16
}

/// One's complement addition.
#[inline(always)]
fn add(sum: u16, more: u16) -> u16 {
    let (sum, carry) = sum.overflowing_add(more);
    sum + u16::from(carry)
}

/// A checksum after its sum changed by `delta`.
#[inline(always)]
pub fn follow(checksum: [u8; 2], delta: u16) -> [u8; 2] {
    (!add(!u16::from_be_bytes(checksum), delta)).to_be_bytes()
}

/// The end of a packet that is replaced.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// That of its sender.
    Source,
    /// That of its receiver.
    Destination,
}

/// Replace the address at one end of the IP header at `l3`; with `hop`, one hop is used up too. `None`: there is no such header.
#[inline(always)]
pub fn address(frame: &mut [u8], l3: usize, end: End, to: u32, delta: u16, hop: bool) -> Option<()> {
    let header: &mut [u8; 20] = frame.get_mut(l3..)?.first_chunk_mut()?;
    // The word of which TTL is the high byte becomes 256 less.
    let delta = if hop { add(delta, !0x0100) } else { delta };
    header[8] = header[8].wrapping_sub(u8::from(hop));
    let sum = follow([header[10], header[11]], delta);
    header[10..12].copy_from_slice(&sum);
    match end {
        End::Source => header[12..16].copy_from_slice(&to.to_be_bytes()),
        End::Destination => header[16..20].copy_from_slice(&to.to_be_bytes()),
    }
    Some(())
}

/// Replace the port at one end of the transport header at `l4`, and follow with its checksum as far as it is there.
#[inline(always)]
pub fn port(frame: &mut [u8], l4: usize, carried: u8, end: End, to: u16, delta: u16) -> Option<()> {
    let segment = frame.get_mut(l4..)?;
    let at = match (carried, end) {
        (protocol::ICMP, _) => 4,
        (_, End::Source) => 0,
        (_, End::Destination) => 2,
    };
    segment.get_mut(at..)?.first_chunk_mut::<2>()?.copy_from_slice(&to.to_be_bytes());
    let at = match carried {
        protocol::TCP => 16,
        protocol::UDP => 6,
        _ => 2,
    };
    if let Some(sum) = segment.get_mut(at..).and_then(|rest| rest.first_chunk_mut::<2>()) {
        // UDP without a checksum stays without, and one that comes out as 0 is written as all ones (RFC 768).
        if carried != protocol::UDP {
            *sum = follow(*sum, delta);
        } else if *sum != [0, 0] {
            *sum = follow(*sum, delta);
            if *sum == [0, 0] {
                *sum = [0xff, 0xff];
            }
        }
    }
    Some(())
}

/// Replace address and port at one end of a packet, and use up a hop.
#[inline(always)]
pub fn endpoint(
    frame: &mut [u8],
    headers: &Headers,
    end: End,
    to: Endpoint,
    deltas: (u16, u16),
    hop: bool,
) -> Option<()> {
    address(frame, headers.l3.into(), end, to.address, deltas.0, hop)?;
    port(frame, headers.l4.into(), headers.protocol, end, to.port, deltas.1)
}

/// The same of TCP or UDP without tags and options, where most headers are: places that are known need not be computed.
#[inline(always)]
pub fn usual(frame: &mut [u8], protocol: u8, end: End, to: Endpoint, deltas: (u16, u16)) -> Option<()> {
    const L3: usize = ethernet::LEN;
    const L4: usize = L3 + ipv4::LEN;
    const HOP: u32 = 1 << 24;
    let head: &mut [u8; L4 + 8] = frame.first_chunk_mut()?;
    // TTL, protocol and checksum. The word of which TTL is the high byte becomes 256 less.
    let word: &mut [u8; 4] = (&mut head[L3 + 8..L3 + 12]).try_into().ok()?;
    let was = u32::from_be_bytes(*word);
    let sum = fold(u32::from(!was as u16) + u32::from(deltas.0) + u32::from(!(HOP >> 16) as u16));
    *word = (was.wrapping_sub(HOP) & 0xffff_0000 | u32::from(!sum)).to_be_bytes();
    let (address, port) = match end {
        End::Source => (L3 + 12, L4),
        End::Destination => (L3 + 16, L4 + 2),
    };
    head[address..address + 4].copy_from_slice(&to.address.to_be_bytes());
    head[port..port + 2].copy_from_slice(&to.port.to_be_bytes());
    if protocol == protocol::UDP {
        let sum: &mut [u8; 2] = (&mut head[L4 + 6..]).try_into().ok()?;
        // Without a checksum it stays without, and one that comes out as 0 is written as all ones (RFC 768).
        if *sum != [0, 0] {
            let new = u16::from_be_bytes(follow(*sum, deltas.1));
            *sum = if new == 0 { u16::MAX } else { new }.to_be_bytes();
        }
    } else {
        let sum: &mut [u8; 2] = frame.get_mut(L4 + 16..)?.first_chunk_mut()?;
        *sum = follow(*sum, deltas.1);
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use packet::checksum;
    use packet::frame::{Flow, Program};
    use packet::signature::Signature;
    use packet::{Layers, Parsed};
    use proptest::prelude::*;

    const MARK: Signature = Signature { stream: 7, sequence: 9, sent_ns: 11 };

    proptest! {
        #[test]
        fn checksums_follow_and_the_way_back_restores(from: (u32, u16), to: (u32, u16), seen: u16) {
            let old = Endpoint::new(from.0, from.1);
            let new = Endpoint::new(to.0, to.1);
            let flow = Flow {
                source_mac: [2; 6],
                destination_mac: [4; 6],
                source: (std::net::Ipv4Addr::from_bits(old.address), old.port).into(),
                destination: ([198, 51, 100, 1], seen).into(),
            };
            let mut frame = vec![0; 90];
            Program::udp(&flow, 90).unwrap().write(&mut frame, 0, &MARK);
            let original = frame.clone();
            let headers = Headers::of(&frame).unwrap();
            let (l3, l4) = deltas(old, new, headers.protocol);
            endpoint(&mut frame, &headers, End::Source, new, (l3, l4), true).unwrap();
            prop_assert_eq!(checksum::of(&frame[14..34]), 0);
            prop_assert!(Parsed::of(&frame).unwrap().is_intact(&frame));
            let layers = Layers::find(&frame).unwrap();
            prop_assert_eq!(&layers.addresses(&frame)[..4], &new.address.to_be_bytes()[..]);
            endpoint(&mut frame, &headers, End::Source, old, (!l3, !l4), false).unwrap();
            packet::ipv4::set_ttl(&mut frame, 14, original[22]);
            prop_assert_eq!(frame, original);
        }
    }

    #[test]
    fn no_checksum_stays_none() {
        let mut udp = [0, 1, 0, 2, 0, 8, 0, 0];
        port(&mut udp, 0, 17, End::Source, 99, 0x1234).unwrap();
        assert_eq!(udp, [0, 99, 0, 2, 0, 8, 0, 0]);
        // One that would come out as 0 is all ones.
        let mut udp = [0, 1, 0, 2, 0, 8, 0xff, 0xfe];
        port(&mut udp, 0, 17, End::Source, 2, 0xfffe).unwrap();
        assert_eq!(udp[6..], [0xff, 0xff]);
    }
}
