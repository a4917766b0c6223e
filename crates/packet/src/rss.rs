//! RSS by one address: keys with which a NIC steers frames by their IPv4 source, or destination, alone.
//!
//! A NIC's Toeplitz hash is linear: bit *i* of addresses and ports, if set, adds the 32 bits of the key from bit *i* on. The queue
//! follows, by the redirection table (RETA), from the hash's last seven bits, for which only 26 bits of the key matter to an address, and no other input
//! uses these: where all others are zero, ports and the other address change nothing, whether the NIC hashes them or not.
//! Fragments, ICMP and what has ports then go to the same queue.
//!
//! With the bits chosen here, those seven bits are what [`bucket`] says, mirrored: the address folded, so that any 128 addresses
//! in a row, or 128 a power of two apart, are each in a bucket of their own.

use std::net::Ipv4Addr;

/// What addresses fall into: as many as the entries of the smallest RETA that most NICs have.
pub const BUCKETS: usize = 128;
/// The bytes of a key that are not zero; NICs want longer ones.
const KEY: usize = 40;
/// How far an address is shifted before it is folded.
const FOLDS: [u32; 4] = [0, 7, 14, 21];

/// The address that decides.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum By {
    /// Who sent it.
    Source,
    /// Whom it is for.
    Destination,
}

impl By {
    /// A key for Toeplitz hashes over addresses, or addresses and ports; what a NIC wants beyond it is zero.
    pub const fn key(self) -> [u8; KEY] {
        // The last bit of an address is number 31 or 63 of the input, and its window's 26th bit is the first of the last seven.
        let last = match self {
            By::Source => 31 + 25,
            By::Destination => 63 + 25,
        };
        let (mut key, mut i) = ([0; KEY], 0);
        while i < FOLDS.len() {
            let bit = last - FOLDS[i] as usize;
            key[bit / 8] |= 0x80 >> (bit % 8);
            i += 1;
        }
        key
    }
}

/// The bucket of an address.
#[inline]
pub const fn bucket(address: u32) -> usize {
    let folded = address ^ (address >> FOLDS[1]) ^ (address >> FOLDS[2]) ^ (address >> FOLDS[3]);
    folded as usize % BUCKETS
}

/// The queue, of so many, that gets what an address decides.
#[inline]
pub const fn queue(address: u32, queues: usize) -> usize {
    bucket(address) % queues
}

/// The queue of each bucket: without a division for each packet.
pub fn queues(queues: usize) -> [u8; BUCKETS] {
    std::array::from_fn(|bucket| (bucket % queues) as u8)
}

/// The queue of entry `at` of a NIC's RETA, which a hash's last bits are the number of: the same queue.
pub const fn entry(at: usize, queues: usize) -> usize {
    let mirrored = ((at % BUCKETS) as u8).reverse_bits() >> 1;
    mirrored as usize % queues
}

/// Which of so many queues an address leads to.
pub fn queue_of(address: Ipv4Addr, queues: usize) -> usize {
    queue(address.to_bits(), queues)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The hash as Microsoft specified it, bit by bit.
    fn toeplitz(key: &[u8], input: &[u8]) -> u32 {
        let bit = |at: usize| key.get(at / 8).is_some_and(|byte| byte & (0x80 >> (at % 8)) != 0);
        let window = |from: usize| (from..from + 32).fold(0, |window, at| (window << 1) | u32::from(bit(at)));
        let set = |at: &usize| input[at / 8] & (0x80 >> (at % 8)) != 0;
        (0..input.len() * 8).filter(set).fold(0, |hash, at| hash ^ window(at))
    }

    fn input(source: Ipv4Addr, destination: Ipv4Addr, ports: Option<(u16, u16)>) -> Vec<u8> {
        let mut input = [source.octets(), destination.octets()].concat();
        for port in ports.iter().flat_map(|(source, destination)| [source, destination]) {
            input.extend(port.to_be_bytes());
        }
        input
    }

    /// The specification's own key and examples ("Verifying the RSS Hash Calculation").
    #[test]
    fn the_hash_of_these_tests_is_that_of_the_specification() {
        let key = [
            0x6d, 0x5a, 0x56, 0xda, 0x25, 0x5b, 0x0e, 0xc2, 0x41, 0x67, 0x25, 0x3d, 0x43, 0xa3, 0x8f, 0xb0,
            0xd0, 0xca, 0x2b, 0xcb, 0xae, 0x7b, 0x30, 0xb4, 0x77, 0xcb, 0x2d, 0xa3, 0x80, 0x30, 0xf2, 0x0c,
            0x6a, 0x42, 0xb7, 0x3b, 0xbe, 0xac, 0x01, 0xfa,
        ];
        let (from, to) = (Ipv4Addr::new(66, 9, 149, 187), Ipv4Addr::new(161, 142, 100, 80));
        assert_eq!(toeplitz(&key, &input(from, to, None)), 0x323e_8fc2);
        assert_eq!(toeplitz(&key, &input(from, to, Some((2794, 1766)))), 0x51cc_c178);
    }

    proptest! {
        #[test]
        fn a_nic_with_these_keys_goes_by_one_address(
            source: u32, destination: u32, ports: (u16, u16), queues in 1_usize..=128, log in 7_u32..12,
        ) {
            for (by, address) in [(By::Source, source), (By::Destination, destination)] {
                for ports in [None, Some(ports)] {
                    let hash = toeplitz(&by.key(), &input(source.into(), destination.into(), ports));
                    let entries = 1_usize << log;
                    let at = hash as usize % entries;
                    prop_assert_eq!(entry(at, queues), queue(address, queues));
                }
            }
        }

        #[test]
        fn neighbours_are_in_buckets_of_their_own(base: u32, log in 0_u32..22) {
            let first = base & !(127_u32 << log);
            let mut found: Vec<usize> = (0..128).map(|i| bucket(first | i << log)).collect();
            found.sort_unstable();
            prop_assert!(found.into_iter().eq(0..BUCKETS));
        }
    }
}
