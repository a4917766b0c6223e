//! Protocol models, one per file, without I/O.

pub mod meter;
pub mod model;
pub mod time;
pub mod unit;
