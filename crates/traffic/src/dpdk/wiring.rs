//! Which elements a run has, and how they are connected: what is built, and what can be shown before.

use profile::{Dpdk, Role};

/// Elements by name, in the order in which they are built, and the edges between them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Wiring {
    /// `PORT.KIND`.
    pub elements: Vec<String>,
    /// From the only output of one to another.
    pub edges: Vec<(String, String)>,
}

impl Wiring {
    /// Of the ports that the settings name.
    pub fn new(settings: &Dpdk) -> Self {
        let mut wiring = Self::default();
        for port in &settings.ports {
            let own = |kind: &str| format!("{}.{kind}", port.name);
            let onward = format!("{}.tx", port.to.as_ref().unwrap_or(&port.name));
            wiring.elements.extend([own("tx"), own("rx")]);
            let mut comes = own("rx");
            if port.impair.is_some() {
                wiring.way(&[comes, own("impair")]);
                comes = own("impair");
            }
            match port.role {
                Role::Reflector => wiring.way(&[comes, own("reflector"), own("tx")]),
                Role::L2fwd => wiring.way(&[comes, own("l2fwd"), onward]),
                Role::Generator => {
                    wiring.way(&[own("generator"), own("tx")]);
                    wiring.way(&[comes, own("receiver"), own("neighbour"), own("tx")]);
                }
            }
        }
        wiring
    }

    fn way(&mut self, elements: &[String]) {
        for element in elements {
            let known = self.elements.contains(element) || element.ends_with(".tx");
            self.elements.extend((!known).then(|| element.clone()));
        }
        let pairs = elements.windows(2).map(|pair| (pair[0].clone(), pair[1].clone()));
        self.edges.extend(pairs);
    }
}
