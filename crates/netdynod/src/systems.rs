//! What this program is made of: the platform, and the systems on it. A system has one line here.

use endpoint::DpdkDevices;
use profile::Transport;
use sockets::Sockets;
use stream::Dpdk;
use system::Registry;
use system::transport::boxed;

/// Everything that graphs, calls and profiles can name.
pub fn registry() -> Registry {
    let mut registry = Registry::default();
    platform(&mut registry);
    nat_rpc::register(&mut registry);
    sip_commands::register(&mut registry);
    registry
}

fn platform(registry: &mut Registry) {
    let kinds: Vec<_> = stream::graph::kinds().kinds().copied().collect();
    registry.add_kinds(&kinds);
    registry.add_transport("sockets", |profile, _| match &profile.transport {
        Transport::Sockets(settings) => Some(Sockets::new(settings).map(boxed)),
        _ => None,
    });
    registry.add_transport("dpdk", |profile, registry| match &profile.transport {
        Transport::Dpdk(settings) if profile.has_devices() => Some(DpdkDevices::new(settings).map(boxed)),
        Transport::Dpdk(settings) => Some(Dpdk::new(settings, registry.kinds()).map(boxed)),
        _ => None,
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn whatever_is_registered_has_a_name_of_its_own() {
        let registry = registry();
        let kinds: Vec<_> = registry.kinds().kinds().map(|kind| kind.name).collect();
        let methods: Vec<_> = registry.methods().collect();
        let commands = registry.commands().iter().map(|command| command.name).collect();
        for names in [kinds, methods, registry.transports().collect(), commands] {
            assert!(!names.is_empty());
            assert_eq!(names.iter().collect::<BTreeSet<_>>().len(), names.len(), "{names:?}");
        }
    }
}
