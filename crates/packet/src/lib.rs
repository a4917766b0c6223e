//! Headers in place: what a frame says, and how to change it, without a copy.
//!
//! A frame is a byte slice from the Ethernet header to the last payload byte, without FCS. [`layers`]
//! finds the headers in it and says precisely why it cannot; the modules named after protocols read and
//! write single headers. No input makes anything here panic.

pub mod arp;
mod bytes;
pub mod checksum;
pub mod ethernet;
pub mod flow_hash;
pub mod frame;
pub mod icmp;
pub mod icmp_error;
pub mod ipv4;
pub mod ipv6;
pub mod layers;
pub mod nd;
pub mod parse;
pub mod rss;
pub mod signature;
mod summary;
pub mod tcp;
pub mod udp;

pub use ethernet::{FCS, Mac};
pub use flow_hash::FlowKey;
pub use frame::{Flow, Program};
pub use layers::{Fault, Layers};
pub use parse::Parsed;
pub use summary::summary;
