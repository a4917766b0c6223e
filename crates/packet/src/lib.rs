//! Headers in place: what a frame says, and how to change it, without a copy.
//!
//! A frame is a byte slice from the Ethernet header to the last payload byte, without FCS. [`layers`]
//! finds the headers in it and says precisely why it cannot; the modules named after protocols read and
//! write single headers. No input makes anything here panic.

pub mod arp;
pub mod checksum;
pub mod ethernet;
pub mod frame;
pub mod icmp;
pub mod icmp_error;
pub mod ipv4;
pub mod ipv6;
pub mod layers;
pub mod nd;
pub mod signature;
mod summary;
pub mod udp;

pub use frame::{Flow, Program};
pub use layers::{Fault, Layers};
pub use summary::summary;

/// An Ethernet address.
pub type Mac = [u8; 6];

/// Bytes that every Ethernet frame has on the wire besides the ones here: the frame check sequence.
pub const FCS: usize = 4;

/// `N` bytes of `bytes` from `at` on.
#[inline]
fn take<const N: usize>(bytes: &[u8], at: usize) -> Option<&[u8; N]> {
    bytes.get(at..)?.first_chunk()
}

/// `N` bytes of `bytes` from `at` on, to change.
#[inline]
fn take_mut<const N: usize>(bytes: &mut [u8], at: usize) -> Option<&mut [u8; N]> {
    bytes.get_mut(at..)?.first_chunk_mut()
}
