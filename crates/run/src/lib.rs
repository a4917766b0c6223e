//! A run, from its profile to its result: what steers, samples and judges it. It knows neither sockets nor DPDK.
//!
//! ```text
//!  profile ─► plan ─► Transport ─► Sample … ─► collect ─► result
//!                        ▲                        └─► validity
//!                     Control
//! ```
//! [`plan`] resolves a profile, a [`Transport`] carries it with workers that [`Control`] steers, and [`collect`] sums
//! their samples up to the trial's result.

pub mod addresses;
pub mod answer_times;
pub mod collect;
mod control;
pub mod cpu;
pub mod distribution;
pub mod flows;
pub mod graph;
mod group_sum;
pub mod interfaces;
pub mod pauses;
pub mod plan;
pub mod rates;
pub mod receive_room;
mod reordering;
pub mod result;
mod sample;
mod setup_error;
pub mod stalls;
pub mod tls;
pub mod topology;
mod transport;
mod validity;

pub use control::Control;
pub use plan::{GroupPlan, Plan, Trial};
pub use sample::{AddressTally, ElementCounts, FailureExample, Sample};
pub use setup_error::SetupError;
pub use transport::Transport;
