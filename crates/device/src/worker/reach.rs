//! Opening a device's connection: to the address that works, and to the next where one cannot be reached.

use super::conn::Conn;
use super::{State, Worker};
use crate::conn_error::ConnError;
use crate::endpoint::{Connection, Endpoint, Token};
use protocol::cause::{Cause, Detail};
use protocol::model::{Model, Outbox};
use protocol::target::Carrier;
use std::time::Duration;

impl<E: Endpoint, D: Model> Worker<E, D> {
    /// Begin to connect device `i`.
    pub(super) fn open(&mut self, i: u32) -> Result<(), ConnError> {
        self.close(i);
        let slot = &mut self.slots[i as usize];
        let g = usize::from(slot.group);
        let reach = &self.groups[g].reach;
        // a flow under way stays with its server, where that takes another connection
        if slot.unsent || !reach.fails_over() {
            slot.address = reach.start(&self.plan.groups[g].addresses, slot.index, self.now) as u8;
        }
        slot.tried = 0;
        slot.connect_asked = self.now;
        self.open_address(i)
    }

    /// The same, to its present address, or the next to which it can begin.
    fn open_address(&mut self, i: u32) -> Result<(), ConnError> {
        loop {
            let slot = &mut self.slots[i as usize];
            let g = usize::from(slot.group);
            let group = &self.plan.groups[g];
            slot.generation = slot.generation.wrapping_add(1);
            let (address, token) = (slot.address.into(), Token::new(i, slot.generation));
            let conn = match self.endpoint.open(group, slot.index, address, token) {
                Ok(conn) => conn,
                Err(broken) => {
                    self.next_address(i, broken)?;
                    continue;
                }
            };
            let datagrams = conn.is_datagram();
            if datagrams {
                self.groups[g].reach.opened(slot.address.into());
            } else {
                // what is left of the time is shared with the addresses that may be tried after this one
                let by = slot.connect_asked + Duration::from_nanos(group.connect_timeout);
                let tried = slot.tried.count_ones() as usize;
                let left = group.addresses.tries().saturating_sub(tried).max(1) as u64;
                slot.connect_by = self.now + Duration::from_nanos(by.since(self.now) / left);
            }
            slot.conn = Some(Conn::new(conn, datagrams));
            self.arm(i);
            return Ok(());
        }
    }

    /// Note that the present address of device `i` could not be reached, and turn to the next. An error when none is left, or
    /// another would do no better: what the model is to be told.
    fn next_address(&mut self, i: u32, broken: ConnError) -> Result<(), ConnError> {
        let slot = &mut self.slots[i as usize];
        let g = usize::from(slot.group);
        let (n, group) = (usize::from(slot.address), &self.plan.groups[g]);
        let reach = &mut self.groups[g].reach;
        reach.failed(n, &broken);
        slot.tried |= 1 << n;
        let tries = group.addresses.tries();
        if tries == 1 || !reach.is_of_the_address(n, &broken) {
            return Err(broken.to(group.addresses.at(n)));
        }
        if slot.tried.count_ones() as usize >= tries {
            slot.tried = 0;
            return Err(broken.of_all(reach.causes(&group.host, &group.addresses)));
        }
        slot.address = reach.next(&group.addresses, slot.index, n, slot.tried, self.now) as u8;
        Ok(())
    }

    /// The connection of device `i` is gone: when it had not come up yet, and there is another address, it is tried. An error
    /// is what the model is to be told.
    pub(super) fn try_next_address(&mut self, i: u32, broken: ConnError) -> Result<(), ConnError> {
        let slot = &self.slots[i as usize];
        let stream = self.plan.groups[usize::from(slot.group)].scheme.carrier == Carrier::Stream;
        let connecting = slot.conn.as_ref().is_some_and(|conn| !conn.up && !conn.closing);
        if !(stream && connecting && slot.state == State::Active) {
            return Err(broken);
        }
        self.next_address(i, broken)?;
        self.close(i);
        self.open_address(i)
    }

    /// The connection of device `i` came up.
    pub(super) fn reached(&mut self, i: u32) {
        let slot = &mut self.slots[i as usize];
        let reach = &mut self.groups[usize::from(slot.group)].reach;
        // a server that takes connections may still answer nothing
        if !reach.fails_over() {
            slot.tried = 0;
        }
        reach.opened(slot.address.into());
        reach.prefer(slot.address.into());
    }

    /// Whether device `i` goes on with another server where one fails it.
    #[inline]
    pub(super) fn fails_over(&self, i: u32) -> bool {
        self.groups[usize::from(self.slots[i as usize].group)].reach.fails_over()
    }

    /// Whether there is a server that a request of device `i` was not sent to.
    #[inline]
    pub(super) fn has_next(&self, i: u32) -> bool {
        let slot = &self.slots[i as usize];
        let count = self.plan.groups[usize::from(slot.group)].addresses.count();
        let tried = slot.tried | 1 << slot.address;
        self.fails_over(i) && (tried.count_ones() as usize) < count
    }

    /// The model of device `i` says that its server failed: connect to the next.
    pub(super) fn open_next(&mut self, i: u32, why: Cause) {
        let said = match why.detail {
            Detail::None => why.kind.name().to_owned(),
            detail => detail.to_string(),
        };
        self.slots[i as usize].connect_asked = self.now;
        let opened = self.next_address(i, ConnError::new(why, said)).and_then(|()| {
            self.close(i);
            self.open_address(i)
        });
        let datagrams = {
            let group = usize::from(self.slots[i as usize].group);
            self.plan.groups[group].scheme.carrier != Carrier::Stream
        };
        match opened {
            Ok(()) if datagrams => self.call_connected(i),
            Ok(()) => {}
            Err(broken) => self.mark_broken(i, broken),
        }
    }

    /// The server of device `i` confirmed messages.
    #[inline]
    pub(super) fn delivered(&mut self, i: u32, messages: u64) {
        let slot = &mut self.slots[i as usize];
        let reach = &mut self.groups[usize::from(slot.group)].reach;
        reach.delivered(slot.address.into(), slot.index, messages);
        if reach.fails_over() {
            slot.tried = 0;
        }
    }

    /// A datagram came for device `i` from its present address.
    #[inline]
    pub(super) fn mark_answered(&mut self, i: u32) {
        let slot = &mut self.slots[i as usize];
        let reach = &mut self.groups[usize::from(slot.group)].reach;
        if !reach.is_answered(slot.address.into()) {
            if !reach.fails_over() {
                slot.tried = 0;
            }
            reach.prefer(slot.address.into());
        }
    }

    /// Keep the datagrams in the outbox, if the address that they go to has not answered yet and there is another.
    #[inline]
    pub(super) fn keep_unanswered(&mut self, i: u32) {
        let slot = &self.slots[i as usize];
        let g = usize::from(slot.group);
        // the first that a device sends is one, or several alike
        if self.plan.groups[g].addresses.tries() > 1 && self.outbox.sizes.is_empty() {
            let (segment, bytes) = (self.outbox.segment, &self.outbox.bytes);
            self.groups[g].reach.keep(slot.index, slot.address.into(), segment, bytes, self.now);
        }
    }

    /// Datagrams of device `i` did not get through to an address that has never answered: they are sent again to the next.
    /// What is to be counted, if there is none.
    pub(super) fn redirect(&mut self, i: u32, broken: ConnError) -> Option<ConnError> {
        let slot = &self.slots[i as usize];
        let g = usize::from(slot.group);
        let open = slot.conn.as_ref().is_some_and(|conn| !conn.closing) && slot.state == State::Active;
        let one = self.plan.groups[g].addresses.tries() == 1;
        if one || !open || !broken.is_by_path() || self.groups[g].reach.is_answered(slot.address.into()) {
            return Some(broken);
        }
        let (index, times) = (slot.index, broken.times);
        let kept = self.groups[g].reach.take_kept(index);
        let moved = self.next_address(i, broken).and_then(|()| {
            self.close(i);
            self.open_address(i)
        });
        if let Err(all) = moved {
            return Some(all.datagrams(times));
        }
        for (segment, bytes) in kept {
            let slot = &mut self.slots[i as usize];
            self.groups[g].reach.keep(index, slot.address.into(), segment, &bytes, self.now);
            let Some(conn) = slot.conn.as_mut() else { break };
            let mut again = Outbox { segment, bytes, ..Outbox::default() };
            if let Err(broken) = self.endpoint.send(&mut conn.inner, &mut again) {
                self.mark_broken(i, broken);
                break;
            }
        }
        self.refusals(i);
        None
    }
}
