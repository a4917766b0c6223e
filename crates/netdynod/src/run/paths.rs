//! Impaired ports of a run, changed by hand while it goes on.

use super::Run;
use profile::Error as Fault;
use run::graph::{ImpairedPort, PortImpairment};
use run::result::ImpairmentChange;
use serde_json::Value;
use std::collections::BTreeMap;
use std::sync::PoisonError;
use system::rpc::{BAD_PARAMS, Error, TOO_MANY};

/// Changes of a run: its result has them all.
const CHANGES: usize = 1_000;

/// Read and check what is to hold of the path into `port`.
pub fn parse_impairment(port: &str, impairment: &Value) -> Result<PortImpairment, Error> {
    let under = |inner: &str| if inner.is_empty() { port.into() } else { format!("{port}.{inner}") };
    let refuse = |fault: Fault| Error::of(BAD_PARAMS, &Fault { at: under(&fault.at), ..fault });
    let impairment: PortImpairment = profile::read(&impairment.to_string()).map_err(refuse)?;
    impairment.check().map_err(|p| refuse(Fault::new("ND-104-05", p.key, p.what, p.fix)))?;
    Ok(impairment)
}

impl Run {
    /// From now on so: all of these ports, or none when one of them cannot be.
    pub fn impair(&self, ports: BTreeMap<String, PortImpairment>) -> Result<(), Error> {
        let mut changes = self.changes.lock().unwrap_or_else(PoisonError::into_inner);
        if !self.is_active() {
            return Err(Error::state(
                "the run is not under impairment",
                "Change its paths while it is `running`",
            ));
        }
        let there = self.transport.impaired();
        let find = |name: &String| {
            there.iter().find(|one| one.port() == *name).ok_or_else(|| unknown_port(name, &there))
        };
        let hands = ports.keys().map(find).collect::<Result<Vec<_>, Error>>()?;
        if changes.len() + ports.len() > CHANGES {
            let what = format!("the paths of this run were changed {} times", changes.len());
            let fix = "Say with impair_timeline what changes when";
            return Err(Error::new(TOO_MANY, "ND-104-11", "run.impair", what, fix));
        }
        let t = self.status().elapsed;
        for (hand, (port, impairment)) in hands.into_iter().zip(ports) {
            hand.set(impairment.clone());
            tracing::info!(run = %self.id, %port, "its path was changed by hand");
            changes.push(ImpairmentChange { t, port, impairment });
        }
        Ok(())
    }

    /// What was changed; nothing can be after this.
    pub(super) fn changed(&self) -> Vec<ImpairmentChange> {
        self.changes.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

fn unknown_port(name: &str, there: &[Box<dyn ImpairedPort>]) -> Error {
    let what = format!("the run has no impaired port {name:?}");
    let fix = match there {
        [] => "Give a port of its profile `impair`, which may say nothing: `impair: {}`".into(),
        all => {
            let names: Vec<&str> = all.iter().map(|one| one.port()).collect();
            format!("Name one of {}; others have no `impair` in the profile", names.join(", "))
        }
    };
    Error::new(BAD_PARAMS, "ND-104-06", name, what, &fix)
}
