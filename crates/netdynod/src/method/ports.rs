//! `ports.*`: what traffic can leave by.

use super::{Answer, NoParams};
use crate::caller::Caller;
use crate::ports;
use profile::Transport;
use serde_json::json;

/// Kernel interfaces, and the DPDK ports of the loaded profile.
pub fn list(caller: &Caller, _: NoParams) -> Answer {
    let mut all = ports::kernel();
    if let Some(run) = caller.core.run()
        && let Transport::Dpdk(settings) = &run.plan.profile.transport
    {
        all.extend(ports::dpdk(settings));
    }
    Ok(json!(all))
}
