//! Protocol models, one per file, without I/O; and what every model is made of: its interface ([`model`]), what it says
//! of itself ([`describe`]), what it counts ([`meter`]).
//!
//! To add one: `./do new-model NAME` (see CONTRIBUTING.md), which also adds its line to the registry, the crate `models`.

pub mod cause;
pub mod coap;
pub mod data;
pub mod describe;
pub mod failure;
pub mod fine_time;
pub mod histogram;
pub mod http;
pub mod loss_pattern;
pub mod media;
pub mod meter;
pub mod model;
pub mod mqtt;
pub mod pace;
pub mod pacer;
pub mod ping;
pub mod problem;
pub mod rate_timeline;
pub mod redaction;
pub mod reorder_density;
pub mod reordering;
pub mod script;
pub mod sequence_window;
pub mod shared_socket;
pub mod stream;
pub mod target;
pub mod template;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
pub mod time;
pub mod turns;
pub mod unit;
pub mod variation;

// What `./do new-model` copies: it compiles, and its tests pass, with every change of what models are made of.
#[cfg(test)]
#[path = "../../../tools/new_model/model.rs"]
mod new_model;
