//! Traffic over the kernel's sockets: any machine, any server, no privileges.

mod conn;
mod datagram;
mod endpoint;
mod icmp;
pub mod listener;
mod media;
pub mod receive_queue;
pub mod reflector;
mod shared;
mod stream;

use endpoint::KernelSockets;
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use protocol::shared_socket::SharedSocket;
use protocol::target::Carrier;
use run::topology::{CoreRequest, worker_cores};
use run::{Control, GroupPlan, Plan, Sample, SetupError, Transport};
use std::collections::{BTreeSet, HashMap};
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::mpsc::Sender;
use std::thread::JoinHandle;

/// Descriptors that the daemon needs besides those of devices: those of as many connections to it as there may be, some
/// others, and those that each worker polls and reads its share of the CPU from.
const OTHER_FILES: u64 = 256;
const WORKER_FILES: u64 = 2;

/// The transport.
#[derive(Debug)]
pub struct Sockets {
    cores: Vec<u16>,
}

impl Sockets {
    /// One worker on each of these cores; none named: one worker on the last core that we may use.
    pub fn new(settings: &profile::Sockets) -> Result<Self, SetupError> {
        let on = |core: &u16| CoreRequest { core: Some((*core).into()), ..CoreRequest::default() };
        let requests: Vec<CoreRequest> = settings.cores.iter().map(on).collect();
        let cores = worker_cores(&requests).map_err(|why| {
            SetupError::new("ND-92-06", "transport.sockets.cores", why.to_string(), "Name some of those")
        })?;
        Ok(Self { cores: cores.into_iter().map(|core| core as u16).collect() })
    }
}

impl Transport for Sockets {
    fn start(
        &self,
        plan: Arc<Plan>,
        control: Arc<Control>,
        samples: Sender<Sample>,
    ) -> Result<Vec<JoinHandle<()>>, SetupError> {
        enough_files(&plan, self.cores.len())?;
        if let Some(ports) = local_ports() {
            enough_ports(&plan, ports)?;
        }
        for (i, group) in plan.groups.iter().enumerate() {
            sources_are_ours(i, &group.sources)?;
            may_ping(i, group)?;
            has_sctp(i, group)?;
            ports_are_free(i, group, self.cores.len())?;
        }
        device::start(&self.cores, &plan, &control, &samples, KernelSockets::new)
    }

    fn cores(&self) -> Vec<u16> {
        self.cores.clone()
    }
}

/// Open files that a run needs.
fn files(plan: &Plan, workers: usize) -> u64 {
    // media take two more sockets each; devices that share sockets need one for each worker and address, or connections
    let needed = |group: &GroupPlan| {
        let own = if group.shared.is_none() { u64::from(group.devices) } else { 0 };
        let shared = group.shared.map_or(0, |shared| match group.scheme.carrier {
            Carrier::Stream => connections(group, shared, workers),
            _ => (group.sources.len().max(1) * workers) as u64,
        });
        let media = if group.has_media { 2 * u64::from(group.devices) } else { 0 };
        own + shared + media
    };
    let of_devices = plan.groups.iter().map(needed);
    OTHER_FILES + WORKER_FILES * workers as u64 + of_devices.sum::<u64>()
}

/// Connections that the devices of `group` share, at most.
fn connections(group: &GroupPlan, shared: SharedSocket, workers: usize) -> u64 {
    let each = u64::from(shared.connections) + workers as u64 - 1;
    let all = each * (group.sources.len().max(1) * group.addresses.count()) as u64;
    all.min(u64::from(group.devices) * group.addresses.count() as u64)
}

/// Raise the limit of open files as far as the devices need; say how when that is not allowed.
fn enough_files(plan: &Plan, workers: usize) -> Result<(), SetupError> {
    let need = files(plan, workers);
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
    Err(SetupError::new("ND-92-01", "groups", what, fix))
}

/// Ports that the kernel hands out.
fn local_ports() -> Option<u64> {
    let range = std::fs::read_to_string("/proc/sys/net/ipv4/ip_local_port_range").ok()?;
    let mut ends = range.split_whitespace().filter_map(|n| n.parse::<u64>().ok());
    let (low, high) = (ends.next()?, ends.next()?);
    Some(high.saturating_sub(low) + 1)
}

/// A local address has only so many ports towards one server, for all groups together.
fn enough_ports(plan: &Plan, ports: u64) -> Result<(), SetupError> {
    let mut needed: HashMap<(Option<IpAddr>, SocketAddr), u64> = HashMap::new();
    for (index, group) in plan.groups.iter().enumerate() {
        if group.scheme.carrier != Carrier::Stream {
            continue;
        }
        let shares = group.sources.len().max(1) as u64;
        for i in 0..shares {
            let source = group.sources.get(i as usize).copied();
            let devices = (u64::from(group.devices) + shares - 1 - i) / shares;
            // those that are spread over several addresses need as many ports towards each as it has of them
            let spread = if group.addresses.own(0).is_some() { group.addresses.count() as u64 } else { 1 };
            let devices = match group.shared {
                Some(shared) => devices.min(shared.connections.into()),
                None => devices.div_ceil(spread),
            };
            let need = needed.entry((source, group.address())).or_default();
            *need += devices;
            if *need > ports {
                let from = source.map_or_else(|| "one address".to_owned(), |source| source.to_string());
                let what = format!(
                    "{need} devices need a local port each from {from} to {}, and there are {ports}",
                    group.address()
                );
                let fix =
                    "Give the group more source addresses, or widen sysctl net.ipv4.ip_local_port_range";
                return Err(SetupError::new("ND-92-02", format!("groups[{index}].source"), what, fix));
            }
        }
    }
    Ok(())
}

fn sources_are_ours(index: usize, sources: &[IpAddr]) -> Result<(), SetupError> {
    for source in sources.iter().collect::<BTreeSet<_>>() {
        conn::can_bind(*source).map_err(|e| {
            let what = format!("{source} cannot be sent from ({})", std::io::Error::from(e));
            let fix = format!("Add it to an interface: ip address add {source} dev INTERFACE");
            SetupError::new("ND-92-07", format!("groups[{index}].source"), what, fix)
        })?;
    }
    Ok(())
}

/// A group that listens needs a port for each worker on each of its addresses.
fn ports_are_free(index: usize, group: &GroupPlan, workers: usize) -> Result<(), SetupError> {
    let Some(first) = group.shared.and_then(|shared| shared.listen) else { return Ok(()) };
    let told = |at: &str, what: String| {
        SetupError::new(
            "ND-92-10",
            format!("groups[{index}].{at}"),
            what,
            "Choose a free port, or end what uses it (ss -lnp)",
        )
    };
    let sources = match group.sources.is_empty() {
        false => group.sources.clone(),
        true => vec![shared::route(group.address()).map_err(|e| told("target", e.to_string()))?],
    };
    let port = format!("model.{}.port", group.about.name);
    for worker in 0..workers {
        let Some(number) = u16::try_from(worker).ok().and_then(|worker| first.checked_add(worker)) else {
            return Err(told(&port, format!("{workers} workers need a port each, from {first} on")));
        };
        for source in sources.iter().collect::<BTreeSet<_>>() {
            let address = SocketAddr::new(*source, number);
            UdpSocket::bind(address)
                .map_err(|e| told(&port, format!("{address} cannot be listened on ({e})")))?;
        }
    }
    Ok(())
}

/// Who is not root needs the kernel's leave for ICMP; better said once before than by every device.
fn may_ping(index: usize, group: &GroupPlan) -> Result<(), SetupError> {
    if group.scheme.carrier != Carrier::Icmp {
        return Ok(());
    }
    icmp::can_ping(group.address().is_ipv6()).map_err(|e| {
        let what = format!("this user may not send ICMP echoes ({})", std::io::Error::from(e));
        let fix = "Run sudo sysctl -w net.ipv4.ping_group_range=\"0 2147483647\", or run as root";
        SetupError::new("ND-92-05", format!("groups[{index}].model.ping"), what, fix)
    })
}

/// SCTP is a module of the kernel, which not every one has.
fn has_sctp(index: usize, group: &GroupPlan) -> Result<(), SetupError> {
    if !group.scheme.is_sctp() {
        return Ok(());
    }
    conn::stream_socket(group.address().is_ipv4(), true).map(drop).map_err(|e| {
        let what = format!("the kernel has no SCTP ({})", std::io::Error::from(e));
        let fix = "Load it (sudo modprobe sctp), or use TCP: sip+tcp://";
        SetupError::new("ND-92-52", format!("groups[{index}].target"), what, fix)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use run::Trial;
    use serde_json::{Value, json};

    /// Target, devices, sources.
    type Groups = [(&'static str, u32, Value)];

    fn plan(groups: &Groups) -> Plan {
        let groups: Vec<Value> = (0..)
            .zip(groups)
            .map(|(i, (target, devices, source))| {
                json!({"name": format!("g{i}"), "target": target, "devices": devices, "source": source,
                    "model": {"script": {"steps": [{"send": "x"}]}}})
            })
            .collect();
        let text = json!({"name": "p", "groups": groups}).to_string();
        Plan::new(profile::load(&text).expect("good"), &Trial::default()).expect("a plan")
    }

    /// Whether these have enough with 100 ports.
    fn enough(groups: &Groups) -> Result<(), SetupError> {
        enough_ports(&plan(groups), 100)
    }

    #[test]
    fn each_device_needs_an_open_file() {
        let plan = plan(&[("tcp://127.0.0.1:81", 100, json!([])), ("udp://127.0.0.1:81", 1000, json!([]))]);
        assert_eq!(files(&plan, 3), OTHER_FILES + 3 * WORKER_FILES + 1100);
    }

    #[test]
    fn groups_that_share_a_target_share_its_ports() {
        const A: &str = "tcp://127.0.0.1:81";
        const B: &str = "tcp://127.0.0.1:82";
        let any = || json!([]);
        let of = |sources: &[&str]| json!(sources);
        let good: [&Groups; 6] = [
            &[(A, 100, any())],
            &[(A, 60, any()), (A, 40, any())],
            &[(A, 100, any()), (B, 100, any())],
            &[(A, 100, of(&["127.0.0.1"])), (A, 100, of(&["127.0.0.2"]))],
            &[(A, 300, of(&["127.0.0.1-127.0.0.3"]))],
            &[("udp://127.0.0.1:81", 1000, any())],
        ];
        for groups in good {
            assert_eq!(enough(groups), Ok(()), "{groups:?}");
        }
        let bad: [(&Groups, &str, &str); 3] = [
            (&[(A, 101, any())], "groups[0].source", "101 devices"),
            (&[(A, 60, any()), (B, 60, any()), (A, 41, any())], "groups[2].source", "101 devices"),
            (&[(A, 301, of(&["127.0.0.1-127.0.0.3"]))], "groups[0].source", "127.0.0.1 to 127.0.0.1:81"),
        ];
        for (groups, at, word) in bad {
            let why = enough(groups).expect_err(at);
            assert_eq!((why.code, why.at.as_str()), ("ND-92-02", at));
            assert!(why.what.contains(word), "{why}");
        }
    }
}
