//! Transports of runs.

use crate::Registry;
use profile::Profile;
use run::{SetupError, Transport};

/// A transport that is ready to start.
pub type BoxedTransport = Box<dyn Transport + Send + Sync>;

/// Makes the transport of a profile; `None`: the profile chose another. The registry has the kinds of elements for its graph.
pub type OpenTransport = fn(&Profile, &Registry) -> Option<Result<BoxedTransport, SetupError>>;

/// A transport as a registry gives it.
pub fn boxed(transport: impl Transport + Send + Sync + 'static) -> BoxedTransport {
    Box::new(transport)
}
