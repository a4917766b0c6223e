//! Frames made of layers, with fields that vary from one frame to the next.
//!
//! ```text
//!  [Layer], [Vary], sizes ──compose──► Program ──write──► frame, frame, …
//! ```
//! [`layer`] says what a frame is made of, [`vary`] what changes; [`compose`] lays the headers out once, finds
//! each field's place and what every checksum covers; [`Program`] then writes frames, some at a time: a copy, the
//! fields that vary, the signature, and the checksums from sums that were made beforehand.

mod address;
mod compose;
mod cut;
mod field;
mod flow;
mod headers;
mod layer;
mod program;
mod select;
mod vary;

pub use address::MacAddress;
pub use compose::{Devices, Left, Recipe, Sizes, compose, compose_for};
pub use cut::{Cut, longest_packet};
pub use flow::Flow;
pub use headers::tags;
pub use layer::{
    ArpLayer, EthernetLayer, Fill, GreLayer, IcmpLayer, Ipv4Layer, Ipv6Layer, Layer, MplsLayer, PayloadLayer,
    TcpLayer, UdpLayer, VlanLayer, VxlanLayer,
};
pub use program::{Carried, Marks, Program, ROWS, Written};
pub use vary::{Change, Range, Steps, Value, Vary};

/// Why a frame cannot be made.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{at}: {what}")]
pub struct FrameError {
    /// Which part: `layers[2].vlan.id`.
    pub at: String,
    /// What is wrong with it.
    pub what: String,
    /// What to do.
    pub fix: &'static str,
}

impl FrameError {
    fn new(at: impl Into<String>, what: impl Into<String>, fix: &'static str) -> Self {
        Self { at: at.into(), what: what.into(), fix }
    }
}

#[cfg(test)]
mod tests;
