use super::dns::{Random, in_order};
use super::{Answer, LocateError, Query, Target, Transport, numeric};
use crate::uri::SipUri;
use std::collections::VecDeque;
use std::net::IpAddr;

/// Most places that are returned, and most queries that are made.
pub const MAX_TARGETS: usize = 64;

/// Next step of a [`Locator`]: a query, or the result.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// Give [`Locator::answer`] the answer to this query.
    Ask(Query),
    /// Places to try, in this order.
    Done(Vec<Target>),
}

/// Finds where a request to a URI goes (RFC 3263 section 4).
#[derive(Debug, Clone)]
pub struct Locator {
    host: String,
    secure: bool,
    supported: Vec<Transport>,
    ipv6: bool,
    random: Random,
    tasks: VecDeque<Task>,
    hosts: Vec<Host>,
    known: Vec<(Query, Vec<IpAddr>)>,
    queries: usize,
    targets: Vec<Target>,
}

#[derive(Debug, Clone)]
enum Task {
    Naptr,
    Srv(String, Transport),
    /// The hosts of the SRV records, or the host of the URI if there are none.
    Hosts,
    Address(Host, bool),
}

#[derive(Debug, Clone)]
struct Host {
    name: String,
    port: u16,
    transport: Transport,
}

impl Locator {
    /// For a URI, with the transports that can be used, most wanted first, and whether IPv6 can. The seed decides among SRV records.
    pub fn new(uri: &SipUri, supported: &[Transport], ipv6: bool, seed: u64) -> Result<Self, LocateError> {
        let host = uri.param("maddr").flatten().unwrap_or(&uri.host).to_owned();
        let asked = uri.param("transport").flatten().map(|name| transport(name, uri.secure)).transpose()?;
        // Without a choice it is UDP, or TLS (section 4.1).
        let default = if uri.secure { Transport::Tls } else { Transport::Udp };
        let mut locator = Self {
            host,
            secure: uri.secure,
            supported: supported.iter().copied().filter(|one| one.secure() || !uri.secure).collect(),
            ipv6,
            random: Random(seed),
            tasks: VecDeque::new(),
            hosts: Vec::new(),
            known: Vec::new(),
            queries: 0,
            targets: Vec::new(),
        };
        let fixed = uri.port.is_some() || numeric(&locator.host).is_some();
        match asked {
            None if !fixed => locator.tasks.push_back(Task::Naptr),
            _ => {
                let transport = asked.unwrap_or(default);
                if !supported.contains(&transport) {
                    return Err(LocateError::Transport);
                }
                match transport.srv_prefix().filter(|_| !fixed) {
                    Some(prefix) => {
                        locator.tasks.push_back(Task::Srv(format!("{prefix}{}", locator.host), transport));
                        // Without SRV records the transport stays.
                        locator.supported = vec![transport];
                    }
                    None => {
                        let (name, port) = (locator.host.clone(), uri.port.unwrap_or(transport.port()));
                        locator.hosts.push(Host { name, port, transport });
                    }
                }
            }
        }
        locator.tasks.push_back(Task::Hosts);
        Ok(locator)
    }

    /// The next query, or the places.
    pub fn step(&mut self) -> Result<Step, LocateError> {
        while let Some(task) = self.tasks.front().cloned() {
            match task {
                Task::Naptr => return Ok(Step::Ask(Query::Naptr(self.host.clone()))),
                Task::Srv(name, _) => return Ok(Step::Ask(Query::Srv(name))),
                Task::Hosts => {
                    self.tasks.pop_front();
                    self.expand()?;
                }
                Task::Address(host, ipv6) => {
                    if let Some(address) = numeric(&host.name) {
                        self.tasks.pop_front();
                        self.found(&host, &[address]);
                        continue;
                    }
                    let name = host.name.clone();
                    let query = if ipv6 { Query::Aaaa(name) } else { Query::A(name) };
                    let known = self.known.iter().find(|(asked, _)| *asked == query);
                    if let Some((_, addresses)) = known.cloned() {
                        self.tasks.pop_front();
                        self.found(&host, &addresses);
                        continue;
                    }
                    if self.queries >= MAX_TARGETS || self.targets.len() >= MAX_TARGETS {
                        self.tasks.clear();
                        break;
                    }
                    return Ok(Step::Ask(query));
                }
            }
        }
        if self.targets.is_empty() {
            return Err(LocateError::NoAddress);
        }
        Ok(Step::Done(self.targets.clone()))
    }

    /// The answer to the query that [`step`](Self::step) gave.
    pub fn answer(&mut self, answer: Answer) -> Result<(), LocateError> {
        let task = self.tasks.pop_front().ok_or(LocateError::Answer)?;
        self.queries += 1;
        match (task, answer) {
            (Task::Naptr, Answer::Naptr(mut records)) => {
                records.sort_by_key(|record| (record.order, record.preference));
                let services: Vec<_> = records
                    .into_iter()
                    .filter(|record| record.flags.eq_ignore_ascii_case("s"))
                    .filter_map(|record| {
                        let transport = Transport::of_service(&record.service)?;
                        self.supported.contains(&transport).then_some((record.replacement, transport))
                    })
                    .take(MAX_TARGETS)
                    .collect();
                if services.is_empty() {
                    // No NAPTR: SRV of every transport (section 4.1).
                    for transport in self.supported.iter().rev() {
                        if let Some(prefix) = transport.srv_prefix() {
                            let name = format!("{prefix}{}", self.host);
                            self.tasks.push_front(Task::Srv(name, *transport));
                        }
                    }
                }
                for (name, transport) in services.into_iter().rev() {
                    self.tasks.push_front(Task::Srv(name, transport));
                }
                Ok(())
            }
            (Task::Srv(_, transport), Answer::Srv(records)) => {
                let records = in_order(records, &mut self.random);
                let room = MAX_TARGETS.saturating_sub(self.hosts.len());
                self.hosts.extend(records.into_iter().take(room).map(|record| Host {
                    name: record.target.trim_end_matches('.').to_owned(),
                    port: record.port,
                    transport,
                }));
                Ok(())
            }
            (Task::Address(host, ipv6), Answer::Addresses(mut addresses)) => {
                addresses.retain(|address| address.is_ipv6() == ipv6);
                addresses.truncate(MAX_TARGETS);
                let name = host.name.clone();
                let query = if ipv6 { Query::Aaaa(name) } else { Query::A(name) };
                self.found(&host, &addresses);
                self.known.push((query, addresses));
                Ok(())
            }
            (task, _) => {
                self.tasks.push_front(task);
                Err(LocateError::Answer)
            }
        }
    }

    /// Addresses of each host, in order.
    fn expand(&mut self) -> Result<(), LocateError> {
        let mut hosts = std::mem::take(&mut self.hosts);
        if hosts.is_empty() {
            // No SRV: the host itself (section 4.2).
            let default = if self.secure { Transport::Tls } else { Transport::Udp };
            let transport = match self.supported.as_slice() {
                [only] => *only,
                several if several.contains(&default) => default,
                [first, ..] => *first,
                [] => return Err(LocateError::Transport),
            };
            hosts.push(Host { name: self.host.clone(), port: transport.port(), transport });
        }
        for host in hosts {
            if self.ipv6 && numeric(&host.name).is_none() {
                self.tasks.push_back(Task::Address(host.clone(), true));
            }
            self.tasks.push_back(Task::Address(host, false));
        }
        Ok(())
    }

    fn found(&mut self, host: &Host, addresses: &[IpAddr]) {
        for address in addresses.iter().copied().filter(|address| self.ipv6 || address.is_ipv4()) {
            let target = Target { transport: host.transport, address, port: host.port };
            if self.targets.len() < MAX_TARGETS && !self.targets.contains(&target) {
                self.targets.push(target);
            }
        }
    }
}

/// The transport that a URI asks for; `tcp` of a `sips:` URI is TLS (RFC 3261 section 26.2.2).
fn transport(name: &str, secure: bool) -> Result<Transport, LocateError> {
    let transport = Transport::of(name).ok_or(LocateError::Transport)?;
    match (transport, secure) {
        (Transport::Udp, true) => Err(LocateError::Insecure),
        (Transport::Tcp, true) => Ok(Transport::Tls),
        (Transport::Ws, true) => Ok(Transport::Wss),
        _ => Ok(transport),
    }
}
