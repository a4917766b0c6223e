//! Ports opened and watched, and graphs of packet elements between them.

pub mod graph;
pub mod impaired;
pub mod interfaces;
pub mod kernel_addresses;
pub mod library;
pub mod link_up;
pub mod link_watch;
pub mod memory;
pub mod observe;
pub mod offloads;
pub mod port_bridge;
pub mod port_kinds;
pub mod ports;
pub mod queue_pairs;
pub mod workers;

use engine::EngineError;
use run::SetupError;

/// Why the engine did not start, and what to do.
pub fn engine_error(why: &EngineError) -> SetupError {
    let (at, fix) = match why {
        EngineError::Dpdk(why) => return ports::setup_error("transport.dpdk", why),
        EngineError::Graph(_) => (
            "transport.dpdk.placement",
            "Name each element once, as PORT.generator, PORT.receiver, PORT.reflector, PORT.l2fwd or PORT.impair; what is \
             not named runs on the first worker",
        ),
        EngineError::Core { .. } => (
            "transport.dpdk.placement",
            "Name a core that `taskset -p $$` shows, or leave core out to have one chosen",
        ),
        EngineError::Thread { .. } => ("transport.dpdk.placement", "Raise ulimit -u, or use fewer workers"),
    };
    SetupError::new("ND-92-14", at, why.to_string(), fix)
}
