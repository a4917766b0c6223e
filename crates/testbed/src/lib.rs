//! What tests of transports share: a trial from its profile's text to its result, and network namespaces.

pub mod net;
pub mod trial;
