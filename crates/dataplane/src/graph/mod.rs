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

/// The kinds of elements that graphs of this program can have.
pub fn kinds() -> Registry {
    Registry::new(&[KINDS, crate::impaired::KINDS, nat_elements::KINDS])
}
