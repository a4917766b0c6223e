//! Frames made of layers, with fields that vary from one frame to the next.
//!
//! ```text
//!  [Layer], [Vary], sizes ──compose──► Program ──write──► frame, frame, …
//! ```
//! [`layer`] says what a frame is made of, [`vary`] what changes; [`compose`] lays the headers out once, finds
//! each field's place and what every checksum covers; [`Program`] then writes frames, some at a time: a copy, the
//! fields that vary, the signature, and the checksums from sums that were made beforehand.

mod address;
mod carried;
mod compose;
mod error;
mod field;
mod flow;
mod headers;
mod layer;
mod program;
mod recipe;
mod segmentation;
mod select;
mod vary;

pub use address::MacAddress;
pub use carried::Carried;
pub use compose::{ChecksumOffload, compose, compose_for};
pub use error::FrameError;
pub use flow::Flow;
pub use headers::tags;
pub use layer::{
    ArpLayer, EthernetLayer, Fill, GreLayer, IcmpLayer, Ipv4Layer, Ipv6Layer, Layer, MplsLayer, PayloadLayer,
    TcpLayer, UdpLayer, VlanLayer, VxlanLayer,
};
pub use program::{Marks, Program, ROWS, Written};
pub use recipe::{Devices, Recipe, Sizes};
pub use segmentation::{Segmentation, longest_packet};
pub use vary::{Change, Range, Steps, Value, Vary};

#[cfg(test)]
mod tests;
