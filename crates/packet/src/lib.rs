//! Headers in place: what a frame says, and how to change it, without a copy.

pub mod signature;
