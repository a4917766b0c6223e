//! A keyed hash of flows that is the same for both directions.

use crate::bytes::take;
use crate::parse::Parsed;
use std::hash::{BuildHasher, RandomState};
use std::sync::OnceLock;

/// The key of a flow hash. Without it no flows can be chosen whose hashes collide.
#[derive(Clone, Copy)]
pub struct FlowKey {
    key: [u64; 2],
}

impl FlowKey {
    /// This key; the same for tests and for processes that must agree.
    pub const fn new(key: [u64; 2]) -> Self {
        Self { key }
    }

    /// A random key.
    pub fn random() -> Self {
        // The standard library's hasher is keyed by the system's random numbers.
        let source = RandomState::new();
        Self { key: [source.hash_one(0), source.hash_one(1)] }
    }

    /// The key that all of this process use, so that their hashes compare: a random one, made at first use.
    pub fn shared() -> Self {
        static KEY: OnceLock<FlowKey> = OnceLock::new();
        *KEY.get_or_init(Self::random)
    }

    /// The hash of the frame's flow: protocol, addresses and ports, or the identifier of an ICMP query. All fragments of a
    /// packet, the first one too, have the hash of their addresses and protocol, as the others know no ports; so have
    /// ICMP errors. Of what is not IP it is that of the Ethernet addresses.
    #[inline]
    pub fn hash(&self, frame: &[u8], parsed: &Parsed) -> u32 {
        let Some(ip) = parsed.ip else { return self.of_macs(frame, parsed.kind) };
        let [source, destination] = match parsed.ports(frame) {
            Some(ports) if !ip.fragment => ports.map(u64::from),
            _ => [0; 2],
        };
        let l3 = usize::from(parsed.l3);
        let rest = u64::from(ip.protocol);
        if ip.v6 {
            let end = |at| take::<16>(frame, at).map_or(0, |bytes| u128::from_be_bytes(*bytes));
            let (a, b) = sorted((end(l3 + 8), source), (end(l3 + 24), destination));
            let halves = |address: u128| ((address >> 64) as u64, address as u64);
            let ((a0, a1), (b0, b1)) = (halves(a.0), halves(b.0));
            let first = fold(a0 ^ self.key[0], a1 ^ self.key[1]);
            let second = fold(b0 ^ self.key[1], b1 ^ self.key[0]);
            self.mix(first ^ a.1 << 32 ^ b.1 << 16 ^ rest, second.rotate_left(32))
        } else {
            let end = |at| take::<4>(frame, at).map_or(0, |bytes| u64::from(u32::from_be_bytes(*bytes)));
            let (a, b) = sorted(end(l3 + 12) << 16 | source, end(l3 + 16) << 16 | destination);
            self.mix(a ^ rest << 48, b)
        }
    }

    #[inline]
    fn of_macs(&self, frame: &[u8], kind: u16) -> u32 {
        let address = |at| {
            take::<6>(frame, at).map_or(0, |mac| mac.iter().fold(0, |all, byte| all << 8 | u64::from(*byte)))
        };
        let (a, b) = sorted(address(0), address(6));
        self.mix(a ^ u64::from(kind) << 48, b)
    }

    /// Two folded products, as wyhash does: the second spreads what the first left in few bits.
    #[inline]
    fn mix(&self, a: u64, b: u64) -> u32 {
        let once = fold(a ^ self.key[0], b ^ self.key[1]);
        let twice = fold(once ^ self.key[1], once.rotate_left(29) ^ 0x9e37_79b9_7f4a_7c15);
        (twice >> 32) as u32 ^ twice as u32
    }
}

/// The key is secret: it is not shown.
impl std::fmt::Debug for FlowKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("FlowKey")
    }
}

#[inline]
fn sorted<T: PartialOrd>(a: T, b: T) -> (T, T) {
    if a <= b { (a, b) } else { (b, a) }
}

#[inline]
fn fold(a: u64, b: u64) -> u64 {
    let product = u128::from(a) * u128::from(b);
    (product >> 64) as u64 ^ product as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame::{Flow, Program};
    use crate::signature::Signature;
    use proptest::prelude::*;
    use std::net::{IpAddr, SocketAddr};

    const KEY: FlowKey = FlowKey::new([0x0123_4567_89ab_cdef, 0xfedc_ba98_7654_3210]);

    fn frame(source: SocketAddr, destination: SocketAddr) -> Vec<u8> {
        let (source_mac, destination_mac) = ([2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2]);
        let flow = Flow { source_mac, destination_mac, source, destination };
        let mut frame = vec![0; 100];
        let signature = Signature { stream: 1, sequence: 2, sent_ns: 3 };
        Program::udp(&flow, 100).expect("it fits").write(&mut frame, 0, &signature);
        frame
    }

    fn hash(key: &FlowKey, frame: &[u8]) -> u32 {
        key.hash(frame, &Parsed::of(frame).expect("right"))
    }

    fn pair() -> impl Strategy<Value = (SocketAddr, SocketAddr)> {
        let v4 = any::<([u8; 4], [u8; 4])>().prop_map(|(a, b)| (IpAddr::from(a), IpAddr::from(b)));
        let v6 = any::<([u8; 16], [u8; 16])>().prop_map(|(a, b)| (IpAddr::from(a), IpAddr::from(b)));
        let ends = prop_oneof![v4, v6];
        (ends, any::<(u16, u16)>()).prop_map(|((a, b), (p, q))| ((a, p).into(), (b, q).into()))
    }

    proptest! {
        #[test]
        fn both_directions_have_one_hash((a, b) in pair()) {
            prop_assert_eq!(hash(&KEY, &frame(a, b)), hash(&KEY, &frame(b, a)));
        }

        #[test]
        fn each_part_of_the_key_and_of_the_flow_counts((a, b) in pair(), port in any::<u16>()) {
            let other = SocketAddr::new(a.ip(), port);
            prop_assume!(port != a.port() && port != b.port() && a != b);
            let usual = hash(&KEY, &frame(a, b));
            // One in four thousand million pairs is equal by chance.
            prop_assert_ne!(usual, hash(&KEY, &frame(other, b)));
            prop_assert_ne!(usual, hash(&FlowKey::new([1 ^ KEY.key[0], KEY.key[1]]), &frame(a, b)));
            prop_assert_ne!(usual, hash(&FlowKey::new([KEY.key[0], 1 ^ KEY.key[1]]), &frame(a, b)));
        }
    }

    /// Flows that differ in few bits, as those of a test do, fill a table evenly, whichever bits it takes.
    #[test]
    fn flows_that_are_alike_are_spread_evenly() {
        const FLOWS: u32 = 1 << 14;
        for shift in [0, 8, 24] {
            let mut counts = [0u32; 256];
            for i in 0..FLOWS {
                let [_, _, high, low] = i.to_be_bytes();
                let frame = frame(([10, 0, high, low], 5000).into(), ([10, 1, 0, 1], 7).into());
                counts[(hash(&KEY, &frame) >> shift & 0xff) as usize] += 1;
            }
            let expected = f64::from(FLOWS) / 256.0;
            let chi: f64 = counts.iter().map(|n| (f64::from(*n) - expected).powi(2) / expected).sum();
            // 255 degrees of freedom: 99.99 % are below 347.
            assert!(chi < 347.0, "{shift}: {chi}");
        }
    }

    #[test]
    fn fragments_stay_together_and_what_is_not_ip_has_a_hash_too() {
        let whole = frame(([10, 0, 0, 1], 5000).into(), ([10, 1, 0, 1], 7).into());
        let piece = |field: u16| {
            let mut frame = whole.clone();
            frame[20..22].copy_from_slice(&field.to_be_bytes());
            frame[24..26].fill(0);
            let sum = crate::checksum::of(&frame[14..34]).to_be_bytes();
            frame[24..26].copy_from_slice(&sum);
            hash(&KEY, &frame)
        };
        assert_eq!(piece(0x2000), piece(0x2002));
        assert_eq!(piece(0x2000), piece(0x0004));
        assert_ne!(piece(0x2000), piece(0));
        let mut arp = whole;
        arp[12..14].copy_from_slice(&[8, 6]);
        let there = hash(&KEY, &arp);
        let (to, from) = arp[..12].split_at_mut(6);
        to.swap_with_slice(from);
        assert_eq!(hash(&KEY, &arp), there);
        assert_ne!(FlowKey::random().key, FlowKey::random().key);
    }
}
