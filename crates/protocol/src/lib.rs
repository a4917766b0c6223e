//! Protocol models, one per file, without I/O; and what every model is made of: its interface ([`model`]), what it says
//! of itself ([`describe`]), what it counts ([`meter`]).
//!
//! To add one: copy the file whose shape is closest (`ping` for datagrams, `http` for connections), and add its line to
//! the registry, the crate `models`.

pub mod cause;
pub mod coap;
pub mod data;
pub mod describe;
pub mod failure;
pub mod fine_time;
pub mod histogram;
pub mod http;
pub mod loss_pattern;
pub mod meter;
pub mod model;
pub mod mqtt;
pub mod pace;
pub mod pacer;
pub mod ping;
pub mod problem;
pub mod redaction;
pub mod reorder_density;
pub mod reordering;
pub mod script;
pub mod sequence_window;
pub mod stream;
pub mod target;
pub mod template;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
pub mod time;
pub mod unit;
pub mod variation;
