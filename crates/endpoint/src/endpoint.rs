//! Ports with stacks as an endpoint of devices.

use crate::conn::{Conn, not_begun};
use crate::port::StackPort;
use dataplane::ports::setup_error;
use device::{Closed, ConnError, Endpoint, Event, Input, Token};
use dpdk::{Eal, ThreadGuard};
use protocol::meter::Failure;
use protocol::model::Outbox;
use run::interfaces::Interfaces;
use run::{GroupPlan, SetupError};
use stack::Received;
use std::collections::HashMap;
use std::time::{Duration, Instant};

/// What may wait for a server that takes nothing when a model has more to send.
const OUT_MAX: usize = 16 << 20;
/// Events taken between two looks at the timers.
const EVENTS_PER_TURN: usize = 256;
/// Empty turns before it rests between two.
const SPINS: u32 = 64;
/// Rest between two turns: cores may be shared.
const REST: Duration = Duration::from_micros(20);
/// How often to look whether all ports are there.
const WATCH: Duration = Duration::from_millis(200);
/// How long connections may take to close when the run is over.
const LINGER: Duration = Duration::from_millis(500);

/// Ports, and which group uses which.
pub struct DpdkEndpoint {
    ports: Vec<StackPort>,
    port_of: HashMap<String, usize>,
    epoch: Instant,
    watched: Instant,
    /// Its thread is known to DPDK as long as this lives.
    _guard: ThreadGuard,
}

impl DpdkEndpoint {
    fn now(&self) -> u64 {
        self.epoch.elapsed().as_nanos() as u64
    }

    /// One turn of all ports; whether anything came.
    fn turn(&mut self, events: &mut Vec<Event>) -> bool {
        let now = self.now();
        let mut any = false;
        for port in &mut self.ports {
            any |= port.turn(now);
            while events.len() < EVENTS_PER_TURN
                && let Some(event) = port.stack.event()
            {
                let stack::Event { owner, readable, writable, ended } = event;
                events.push(Event { token: Token(owner), readable, writable, ended });
            }
        }
        any
    }

    /// Let what the stack has no room for wait no longer than it must.
    fn flush(&mut self, conn: &mut Conn) -> Result<(), ConnError> {
        let now = self.now();
        let stack = &mut self.ports[conn.port].stack;
        let result = stack.write(conn.handle, &conn.out[conn.out_at..], now);
        Self::look(stack, conn);
        let taken = result.map_err(|why| conn.broken(why, "send"))?;
        conn.out_at += taken;
        if conn.out_at == conn.out.len() {
            conn.out.clear();
            conn.out_at = 0;
        }
        Ok(())
    }

    fn look(stack: &stack::Stack, conn: &mut Conn) {
        if let Some(status) = stack.status(conn.handle) {
            conn.is_up |= status.is_up;
            conn.unsent = status.unsent as u64;
        }
    }
}

/// An endpoint on its way to the thread that uses it.
#[derive(Debug)]
pub struct OnItsWay {
    pub eal: &'static Eal,
    pub ports: Vec<StackPort>,
    pub port_of: HashMap<String, usize>,
}

impl OnItsWay {
    /// The endpoint, on the thread that uses it.
    pub fn arrive(self) -> Result<DpdkEndpoint, SetupError> {
        let Self { eal, ports, port_of } = self;
        let _guard = eal.register_thread().map_err(|why| setup_error("transport.dpdk", &why))?;
        let now = Instant::now();
        Ok(DpdkEndpoint { ports, port_of, epoch: now, watched: now, _guard })
    }
}

impl Endpoint for DpdkEndpoint {
    type Conn = Conn;

    fn open(
        &mut self,
        group: &GroupPlan,
        device: u32,
        address: usize,
        token: Token,
    ) -> Result<Conn, ConnError> {
        let address = group.addresses.at(address);
        let number = self.port_of.get(&group.name).copied().unwrap_or(0);
        let now = self.now();
        let port = &mut self.ports[number];
        let local = group.source(device).or_else(|| port.own(address.ip())).ok_or_else(|| {
            let family = if address.is_ipv4() { "IPv4" } else { "IPv6" };
            let what = format!("connect to {address}: port {} has no {family} address", port.name);
            ConnError::new(Failure::Local, what)
        })?;
        let handle = port.stack.connect(local, address, token.0, now);
        let handle = handle.map_err(|why| not_begun(why, address))?;
        let local = port.stack.status(handle).map_or(address, |status| status.local);
        Ok(Conn::new(number, handle, local))
    }

    #[inline]
    fn send(&mut self, conn: &mut Conn, outbox: &mut Outbox) -> Result<(), ConnError> {
        if outbox.bytes.is_empty() {
            return self.flush(conn);
        }
        if conn.waiting() > OUT_MAX {
            let what = format!("the server does not read: {} bytes wait for it", conn.waiting());
            return Err(ConnError::new(Failure::Timeout, what));
        }
        conn.given += outbox.bytes.len() as u64;
        if conn.waiting() > 0 {
            if conn.out_at > conn.out.len() / 2 {
                conn.out.drain(..conn.out_at);
                conn.out_at = 0;
            }
            conn.out.append(&mut outbox.bytes);
            return Ok(());
        }
        let now = self.now();
        let stack = &mut self.ports[conn.port].stack;
        let result = stack.write(conn.handle, &outbox.bytes, now);
        Self::look(stack, conn);
        let taken = result.unwrap_or(0);
        conn.out.extend_from_slice(&outbox.bytes[taken..]);
        outbox.bytes.clear();
        result.map(|_| ()).map_err(|why| conn.broken(why, "send"))
    }

    #[inline]
    fn receive(&mut self, conn: &mut Conn, buffer: &mut [u8]) -> Result<Input, ConnError> {
        let now = self.now();
        let stack = &mut self.ports[conn.port].stack;
        let result = stack.read(conn.handle, buffer, now);
        Self::look(stack, conn);
        match result {
            Ok(Received::Dry) => Ok(Input::Dry),
            Ok(Received::Bytes(len, more)) => Ok(Input::Bytes { len, dry: !more }),
            Ok(Received::End) => Ok(Input::End { complete: true }),
            Err(why) => Err(conn.broken(why, "receive")),
        }
    }

    fn close(&mut self, conn: Conn) -> Closed {
        let now = self.now();
        self.ports[conn.port].stack.close(conn.handle, now);
        Closed::default()
    }

    fn poll(&mut self, timeout: Duration, events: &mut Vec<Event>) -> Result<(), SetupError> {
        let begun = Instant::now();
        if begun.duration_since(self.watched) >= WATCH {
            self.watched = begun;
            let lost = self.ports.iter_mut().enumerate().find_map(|(i, port)| port.lost(i));
            if let Some(lost) = lost {
                return Err(lost);
            }
        }
        let mut idle = 0;
        loop {
            let any = self.turn(events);
            if !events.is_empty() || begun.elapsed() >= timeout {
                return Ok(());
            }
            idle = if any { 0 } else { idle + 1 };
            if idle > SPINS {
                std::thread::sleep(REST);
            } else if idle > 0 {
                std::thread::yield_now();
            }
        }
    }

    fn interfaces(&mut self) -> Interfaces {
        let mut all = Interfaces::new();
        self.ports.iter().for_each(|port| port.interface(&mut all));
        all
    }
}

impl Drop for DpdkEndpoint {
    /// Connections that were closed say so, and hear the answer.
    fn drop(&mut self) {
        let begun = Instant::now();
        let mut events = Vec::new();
        while begun.elapsed() < LINGER && self.ports.iter().any(|port| port.stack.closing() > 0) {
            self.turn(&mut events);
            events.clear();
            std::thread::sleep(REST);
        }
        let now = self.now();
        self.ports.iter_mut().for_each(|port| port.send(now));
        self.ports.iter().for_each(StackPort::conclude);
    }
}
