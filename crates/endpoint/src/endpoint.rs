//! Ports with stacks as an endpoint of devices.

use crate::conn::{Conn, not_begun};
use crate::datagrams::Datagrams;
use crate::link::Link;
use crate::polling;
use crate::port::{BURST, StackPort};
use dataplane::ports::setup_error;
use device::tls::Session;
use device::{Closed, ConnError, Endpoint, Event, Input, Token};
use dpdk::{Eal, ThreadGuard};
use protocol::meter::Failure;
use protocol::model::Outbox;
use protocol::target::Carrier;
use run::interfaces::Interfaces;
use run::{GroupPlan, SetupError};
use stack::SocketKind;
use std::collections::HashMap;
use std::time::{Duration, Instant};

/// Room for TLS records.
const CIPHER: usize = 64 * 1024;
/// How often to look whether all ports are there.
const WATCH: Duration = Duration::from_millis(200);

/// Ports, and which group uses which.
pub struct DpdkEndpoint {
    ports: Vec<StackPort>,
    port_of: HashMap<String, usize>,
    epoch: Instant,
    /// When the last turn began, ns since then.
    now: u64,
    watched: Instant,
    /// Room for TLS records.
    cipher: Box<[u8]>,
    /// Its thread is known to DPDK as long as this lives.
    _guard: ThreadGuard,
}

impl DpdkEndpoint {
    fn tick(&mut self) -> u64 {
        self.now = self.epoch.elapsed().as_nanos() as u64;
        self.now
    }

    /// One turn of all ports; whether anything came.
    fn turn(&mut self, events: &mut Vec<Event>) -> bool {
        let now = self.tick();
        let mut any = false;
        for port in &mut self.ports {
            any |= port.turn(now);
            while events.len() < BURST
                && let Some(event) = port.stack.event()
            {
                let stack::Event { owner, readable, writable, ended } = event;
                events.push(Event { token: Token(owner), readable, writable, ended });
            }
        }
        any
    }
}

/// An endpoint on its way to the thread that uses it.
#[derive(Debug)]
pub struct UnstartedEndpoint {
    pub eal: &'static Eal,
    pub ports: Vec<StackPort>,
    pub port_of: HashMap<String, usize>,
}

impl UnstartedEndpoint {
    /// The endpoint, on the thread that uses it.
    pub fn arrive(self) -> Result<DpdkEndpoint, SetupError> {
        let Self { eal, mut ports, port_of } = self;
        let _guard = eal.register_thread().map_err(|why| setup_error("transport.dpdk", &why))?;
        ports.iter_mut().for_each(StackPort::enter);
        let now = Instant::now();
        let cipher = vec![0; CIPHER].into();
        Ok(DpdkEndpoint { ports, port_of, epoch: now, now: 0, watched: now, cipher, _guard })
    }
}

impl Endpoint for DpdkEndpoint {
    type Conn = Link;

    const POLLS: bool = true;

    const EVENTS: usize = BURST;

    fn open(
        &mut self,
        group: &GroupPlan,
        device: u32,
        address: usize,
        token: Token,
    ) -> Result<Link, ConnError> {
        let address = group.addresses.at(address);
        let number = self.port_of.get(&group.name).copied().unwrap_or(0);
        let now = self.now;
        let port = &mut self.ports[number];
        let local = group.source(device).or_else(|| port.own(address.ip())).ok_or_else(|| {
            let family = if address.is_ipv4() { "IPv4" } else { "IPv6" };
            let what = format!("connect to {address}: port {} has no {family} address", port.name);
            ConnError::new(Failure::Local, what)
        })?;
        let tls = match &group.tls {
            Some((config, name)) => Some(Box::new(Session::new(config, name)?)),
            None => None,
        };
        let stack = &mut port.stack;
        let kind = match group.scheme.carrier {
            Carrier::Stream => {
                let handle = stack.connect(local, address, token.0, now);
                let handle = handle.map_err(|why| not_begun(why, address))?;
                let local = stack.status(handle).map_or(address, |status| status.local);
                return Ok(Link::Stream(Box::new(Conn::new(number, handle, local, tls))));
            }
            Carrier::Datagram => SocketKind::Udp,
            Carrier::Icmp => SocketKind::Echo,
        };
        let handle = stack.open_socket(kind, local, address, token.0, group.receive_room);
        let handle = handle.map_err(|why| not_begun(why, address))?;
        Ok(Link::Datagrams(Box::new(Datagrams::new(number, kind, handle, stack.socket_local(handle)))))
    }

    #[inline]
    fn send(&mut self, link: &mut Link, outbox: &mut Outbox) -> Result<(), ConnError> {
        let now = self.now;
        match link {
            Link::Stream(conn) => conn.send(&mut self.ports[conn.port].stack, outbox, now),
            Link::Datagrams(socket) => socket.send(&mut self.ports[socket.port], outbox, now),
        }
    }

    #[inline]
    fn receive(&mut self, link: &mut Link, buffer: &mut [u8]) -> Result<Input, ConnError> {
        let now = self.now;
        match link {
            Link::Stream(conn) => {
                let stack = &mut self.ports[conn.port].stack;
                conn.receive(stack, buffer, &mut self.cipher, now)
            }
            Link::Datagrams(socket) => socket.receive(&mut self.ports[socket.port], buffer),
        }
    }

    fn close(&mut self, link: Link) -> Closed {
        let now = self.now;
        match link {
            Link::Stream(conn) => {
                let port = &mut self.ports[conn.port];
                conn.close(&mut port.stack, now);
                Closed::default()
            }
            Link::Datagrams(socket) => {
                let port = &mut self.ports[socket.port];
                socket.close(port)
            }
        }
    }

    fn flush(&mut self) {
        let now = self.tick();
        self.ports.iter_mut().for_each(|port| port.send(now));
    }

    fn poll(&mut self, timeout: Duration, events: &mut Vec<Event>) -> Result<(), SetupError> {
        let begun = Instant::now();
        if begun.duration_since(self.watched) >= WATCH {
            self.watched = begun;
            let lost = self.ports.iter_mut().enumerate().find_map(|(i, port)| port.loss_reason(i, false));
            if let Some(lost) = lost {
                return Err(lost);
            }
        }
        polling::until_event(timeout, events, |events| self.turn(events));
        Ok(())
    }

    fn interfaces(&mut self) -> Interfaces {
        let mut all = Interfaces::new();
        self.ports.iter().for_each(|port| port.interface(&mut all));
        all
    }
}

impl Drop for DpdkEndpoint {
    fn drop(&mut self) {
        let epoch = self.epoch;
        StackPort::linger(&mut self.ports, || epoch.elapsed().as_nanos() as u64);
    }
}
