//! Flows of a port shared out over workers, each with a stack: both directions of a flow belong to the same one.
//!
//! The worker follows from the hash that a NIC makes with the symmetric RSS key `6d 5a 6d 5a …`, and from the usual redirection
//! table (entry *i* leads to queue *i* mod queues). Where a port spreads frames so, each arrives at its owner; where it does
//! not, the worker that receives a frame hands it on. Nothing rests on what the port does.

use packet::Layers;
use packet::layers::protocol;
use std::net::IpAddr;

/// The period of the symmetric RSS key (S. Woo, K. Park: Scalable TCP session monitoring with symmetric receive-side scaling).
const KEY: u16 = 0x6d5a;
/// Bits of a hash that choose an entry of the smallest usual redirection table.
const ENTRY: u16 = 127;

/// Who takes a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Recipient {
    /// The stack that received it has taken it.
    Here,
    /// Only the stack of this worker, which has not seen it yet.
    Worker(usize),
    /// Every stack; the one that received it has taken it.
    All,
}

/// Which flows of a port belong to a stack.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Share {
    /// The number of its worker.
    pub worker: usize,
    /// How many workers share the port.
    pub workers: usize,
}

impl Share {
    /// All flows: there is one worker.
    pub const ALL: Self = Self { worker: 0, workers: 1 };

    /// Whether this stack answers what is asked of the port as a whole: ARP and neighbour discovery.
    pub(crate) fn answers(self) -> bool {
        self.worker == 0
    }

    /// The worker of the flow between two ends, whichever is ours.
    #[inline]
    fn owner(self, (a, b): (IpAddr, IpAddr), (a_port, b_port): (u16, u16)) -> usize {
        usize::from(hash(fold(a) ^ fold(b) ^ a_port ^ b_port) & ENTRY) % self.workers
    }

    /// Whether the flow between two ends belongs to this stack. Of echoes the identifier stands for our port, and theirs is 0.
    #[inline]
    pub(crate) fn has(self, ips: (IpAddr, IpAddr), ports: (u16, u16)) -> bool {
        self.workers == 1 || self.owner(ips, ports) == self.worker
    }

    /// Who takes a packet that is no fragment, between these addresses.
    #[inline]
    pub(crate) fn recipient(self, frame: &[u8], layers: &Layers, ips: (IpAddr, IpAddr)) -> Recipient {
        if self.workers == 1 {
            return Recipient::Here;
        }
        let ports = match (layers.protocol, layers.segment(frame)) {
            (protocol::TCP | protocol::UDP, &[a, b, c, d, ..]) => {
                (u16::from_be_bytes([a, b]), u16::from_be_bytes([c, d]))
            }
            // echo requests and replies by their identifiers
            (protocol::ICMP, &[0 | 8, _, _, _, high, low, ..])
            | (protocol::ICMPV6, &[128 | 129, _, _, _, high, low, ..]) => {
                (u16::from_be_bytes([high, low]), 0)
            }
            // errors quote a flow that any of them may have, and neighbour discovery concerns each
            (protocol::ICMP | protocol::ICMPV6, _) => return Recipient::All,
            _ => return Recipient::Here,
        };
        match self.owner(ips, ports) {
            own if own == self.worker => Recipient::Here,
            other => Recipient::Worker(other),
        }
    }
}

/// All words of an address, by exclusive or: the key repeats with each word, so that its place does not matter.
#[inline]
fn fold(ip: IpAddr) -> u16 {
    match ip {
        IpAddr::V4(ip) => {
            let bits = ip.to_bits();
            (bits >> 16) as u16 ^ bits as u16
        }
        IpAddr::V6(ip) => ip.segments().into_iter().fold(0, |folded, word| folded ^ word),
    }
}

/// The last 16 bits of the Toeplitz hash of folded input: bit *i* from the left adds the key rotated left by *i*.
#[inline]
fn hash(folded: u16) -> u16 {
    let mut hash = 0;
    for i in 0..u16::BITS {
        if folded & (0x8000 >> i) != 0 {
            hash ^= KEY.rotate_left(i);
        }
    }
    hash
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The hash as Microsoft specified it, bit by bit.
    fn toeplitz(input: &[u8]) -> u32 {
        let key = |at: usize| KEY.to_be_bytes()[at / 8 % 2] & (0x80 >> (at % 8)) != 0;
        let window = |from: usize| (from..from + 32).fold(0, |window, at| (window << 1) | u32::from(key(at)));
        let set = |at: &usize| input[at / 8] & (0x80 >> (at % 8)) != 0;
        (0..input.len() * 8).filter(set).fold(0, |hash, at| hash ^ window(at))
    }

    fn input(ip: IpAddr) -> Vec<u8> {
        match ip {
            IpAddr::V4(ip) => ip.octets().to_vec(),
            IpAddr::V6(ip) => ip.octets().to_vec(),
        }
    }

    proptest! {
        #[test]
        fn a_nic_with_the_symmetric_key_finds_the_same_worker(
            v4: (u32, u32), v6: (u128, u128), ports: (u16, u16), workers in 1_usize..=16,
        ) {
            let share = Share { worker: 0, workers };
            let pairs: [(IpAddr, IpAddr); 2] = [
                (IpAddr::V4(v4.0.into()), IpAddr::V4(v4.1.into())),
                (IpAddr::V6(v6.0.into()), IpAddr::V6(v6.1.into())),
            ];
            for (a, b) in pairs {
                let all = [input(a), input(b), ports.0.to_be_bytes().into(), ports.1.to_be_bytes().into()];
                let entry = toeplitz(&all.concat()) as usize % 128;
                prop_assert_eq!(share.owner((a, b), ports), entry % workers);
                prop_assert_eq!(share.owner((b, a), (ports.1, ports.0)), entry % workers, "the way back");
            }
        }
    }

    #[test]
    fn ports_in_a_row_are_shared_out_evenly() {
        let ips = ("10.0.0.1".parse().expect("an address"), "10.0.0.2".parse().expect("an address"));
        for workers in [2, 4] {
            for worker in 0..workers {
                let share = Share { worker, workers };
                let own = (16_384..=u16::MAX).filter(|port| share.has(ips, (*port, 80))).count();
                assert_eq!(own, 49_152 / workers, "worker {worker} of {workers}");
            }
        }
        assert!(Share::ALL.has(ips, (1, 2)));
    }
}
