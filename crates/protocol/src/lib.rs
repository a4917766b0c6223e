//! Protocol models, one per file, without I/O.
//!
//! To add one: copy the file whose shape is closest (`ping` for datagrams, `http` for connections), and
//! add its line to [`registry`].

pub mod density;
pub mod http;
pub mod losses;
pub mod meter;
pub mod model;
pub mod mqtt;
pub mod order;
pub mod pace;
pub mod ping;
pub mod problem;
pub mod registry;
pub mod script;
pub mod stream;
pub mod template;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
pub mod time;
pub mod unit;
pub mod variation;
