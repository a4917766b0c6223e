//! Traffic over the kernel's sockets: any machine, any server, no privileges.

mod conn;
mod group;
pub(crate) mod tls;
mod worker;

use crate::cpu;
use crate::plan::Plan;
use crate::transport::{Control, Sample, Transport, Unready};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use protocol::registry::Carrier;
use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};
use std::thread::JoinHandle;

/// Descriptors that the daemon needs besides one per device.
const OTHER_FILES: u64 = 64;

/// The transport.
#[derive(Debug)]
pub struct Sockets {
    cores: Vec<u16>,
}

impl Sockets {
    /// One worker on each of these cores; none named: one worker on the last core that we may use.
    pub fn new(settings: &profile::Sockets) -> Result<Self, Unready> {
        let there = cpu::cores();
        let mut cores = settings.cores.clone();
        if cores.is_empty() {
            cores.extend(there.last());
        }
        if let Some(core) = cores.iter().find(|c| !there.contains(c)) {
            let what = format!("core {core} is not one this process may use");
            let fix = format!("Use some of {there:?}");
            return Err(Unready::new("ND-92-06", "transport.sockets.cores", what, fix));
        }
        Ok(Self { cores })
    }
}

impl Sockets {
    /// A worker on its thread, which sends to `ready` whether it can begin.
    fn spawn(
        &self,
        number: usize,
        plan: &Arc<Plan>,
        control: &Arc<Control>,
        samples: &Sender<Sample>,
        ready: &Sender<Result<(), Unready>>,
    ) -> Result<JoinHandle<()>, Unready> {
        let (core, workers) = (self.cores[number], self.cores.len());
        let (plan, control) = (Arc::clone(plan), Arc::clone(control));
        let (samples, ready) = (samples.clone(), ready.clone());
        let work = move || {
            if let Err(e) = cpu::pin(core) {
                tracing::warn!(core, error = %e, "cannot pin the worker");
            }
            // a sleep then ends when it should, not up to 50 µs later
            let _best_effort = nix::sys::prctl::set_timerslack(1);
            match worker::Worker::new(number, workers, plan, control, samples) {
                Ok(worker) => {
                    let _nobody = ready.send(Ok(()));
                    drop(ready);
                    worker.run();
                }
                Err(e) => {
                    let _nobody = ready.send(Err(e));
                }
            }
        };
        std::thread::Builder::new().name(format!("nd-worker-{number}")).spawn(work).map_err(|e| {
            let what = format!("no thread for a worker ({e})");
            Unready::new("ND-92-05", "workers", what, "Raise the limit of threads (ulimit -u)")
        })
    }
}

impl Transport for Sockets {
    fn start(
        &self,
        plan: Arc<Plan>,
        control: Arc<Control>,
        samples: Sender<Sample>,
    ) -> Result<Vec<JoinHandle<()>>, Unready> {
        enough_files(&plan)?;
        for (i, group) in plan.groups.iter().enumerate() {
            enough_ports(i, group)?;
            sources_are_ours(i, &group.sources)?;
            may_ping(i, group)?;
        }
        let (ready, started) = channel();
        let mut threads = Vec::new();
        let mut outcome = Ok(());
        for number in 0..self.cores.len() {
            match self.spawn(number, &plan, &control, &samples, &ready) {
                Ok(thread) => threads.push(thread),
                Err(e) => {
                    outcome = Err(e);
                    break;
                }
            }
        }
        drop(ready);
        // each says how it began; one that could not even say it has let go of its end
        for said in started {
            outcome = outcome.and(said);
        }
        if outcome.is_err() {
            control.abort();
            for thread in threads {
                let _left = thread.join();
            }
            return outcome.map(|()| Vec::new());
        }
        Ok(threads)
    }

    fn workers(&self) -> usize {
        self.cores.len()
    }

    fn cores(&self) -> Vec<u16> {
        self.cores.clone()
    }
}

/// Raise the limit of open files as far as the devices need; say how when that is not allowed.
fn enough_files(plan: &Plan) -> Result<(), Unready> {
    let need = OTHER_FILES + plan.groups.iter().map(|g| u64::from(g.devices)).sum::<u64>();
    let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE).unwrap_or((1024, 1024));
    if need <= soft {
        return Ok(());
    }
    // root may raise the hard limit too
    if setrlimit(Resource::RLIMIT_NOFILE, need, hard.max(need)).is_ok()
        || (need <= hard && setrlimit(Resource::RLIMIT_NOFILE, need, hard).is_ok())
    {
        return Ok(());
    }
    let what = format!("{need} open files are needed, one per device, and {hard} are allowed");
    let fix = format!("Run `ulimit -n {need}` as root before the daemon starts, or use fewer devices");
    Err(Unready::new("ND-92-01", "groups", what, fix))
}

/// A local address has only so many ports towards one server.
fn enough_ports(index: usize, group: &crate::plan::GroupPlan) -> Result<(), Unready> {
    if group.scheme.carrier != Carrier::Stream {
        return Ok(());
    }
    let range = std::fs::read_to_string("/proc/sys/net/ipv4/ip_local_port_range").unwrap_or_default();
    let mut ends = range.split_whitespace().filter_map(|n| n.parse::<u64>().ok());
    let (Some(low), Some(high)) = (ends.next(), ends.next()) else { return Ok(()) };
    let ports = (high.saturating_sub(low) + 1) * group.sources.len().max(1) as u64;
    if u64::from(group.devices) <= ports {
        return Ok(());
    }
    let what = format!("{} devices need a local port each, and there are {ports}", group.devices);
    let fix = "Give the group more source addresses, or widen sysctl net.ipv4.ip_local_port_range";
    Err(Unready::new("ND-92-02", format!("groups[{index}].source"), what, fix))
}

fn sources_are_ours(index: usize, sources: &[IpAddr]) -> Result<(), Unready> {
    for source in sources.iter().collect::<BTreeSet<_>>() {
        conn::can_bind(*source).map_err(|e| {
            let what = format!("{source} cannot be sent from ({})", std::io::Error::from(e));
            let fix = format!("Add it to an interface: ip address add {source} dev INTERFACE");
            Unready::new("ND-92-07", format!("groups[{index}].source"), what, fix)
        })?;
    }
    Ok(())
}

/// Who is not root needs the kernel's leave for ICMP; better said once before than by every device.
fn may_ping(index: usize, group: &crate::plan::GroupPlan) -> Result<(), Unready> {
    if group.scheme.carrier != Carrier::Icmp {
        return Ok(());
    }
    conn::can_ping(group.address.is_ipv6()).map_err(|e| {
        let what = format!("this user may not send ICMP echoes ({})", std::io::Error::from(e));
        let fix = "Run sudo sysctl -w net.ipv4.ping_group_range=\"0 2147483647\", or run as root";
        Unready::new("ND-92-05", format!("groups[{index}].model.ping"), what, fix)
    })
}
