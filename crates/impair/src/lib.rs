//! Link impairment: delay, jitter, loss, duplication, reordering, corruption, rate and queue, packet by packet.
//!
//! ```text
//!  spec ──► live ──► path ─────────────────────────────────────────────────────────┐
//!  what is  changes  │ bottleneck: tail drop, red, codel   link stage: loss, delay │
//!  asked    read     │ queue and line in virtual time ───► delay queue ────────────►│
//!                    └──────────────────────────────────────────────────────────────┘
//!  element  carries a path's packets between two DPDK ports
//!  tap      carries them between two hosts' kernels, super-segments and all
//!  record   keeps what was changed live
//! ```
//! A [`Path`] is one direction, without input and output: the [`PacketStore`] it carries is a DPDK packet, or up to
//! 64 KiB of TCP that the kernel handed over in one piece. Every decision is about a packet as it is on the
//! wire; a super-segment is split only where its packets are treated differently. The same seed and packets give the
//! same decisions.

pub mod element;
pub mod live;
pub mod packet_store;
pub mod path;
pub mod record;
pub mod tap;

mod bottleneck;
mod codel;
mod delay;
mod delay_queue;
mod link_stage;
mod loss_model;
mod red;
mod stats;

pub use element::Impair;
pub use live::{Direction, DirectionControl, LiveLink};
pub use packet_store::{Burst, PacketStore};
pub use path::Path;
pub use profile::impairment as spec;
pub use record::Recording;
pub use spec::LinkSpec;
pub use stats::Stats;
