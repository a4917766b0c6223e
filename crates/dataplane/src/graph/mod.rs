//! Graphs from files: elements of registered kinds on ports.
//!
//! ```text
//!  file ──► check (nothing is opened) ──► run: ports opened, elements built, placed, started
//! ```

pub mod assemble;
pub mod check;
pub mod edges;
mod packets;
pub mod preset;
pub mod run;
pub mod schema;

pub use check::CheckedGraph;
pub use run::{GraphRun, Stopped};

use element::registry::{KINDS, Registry};

/// The kinds of elements of the platform for any graph; systems bring more.
pub fn kinds() -> Registry {
    Registry::new(&[KINDS, crate::impaired::KINDS])
}
