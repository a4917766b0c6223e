//! Media sockets of devices: opened with their first connection, closed at the end of the run.

use super::{State, Worker};
use crate::endpoint::{Connection, Endpoint};
use protocol::media::{Channel, MediaPacket};
use protocol::model::Model;
use protocol::time::Time;
use std::net::SocketAddr;

impl<E: Endpoint, D: Model> Worker<E, D> {
    /// The address of the media socket for RTP of device `i`, if its group has any; opened where it is not yet.
    pub(super) fn media_address(&mut self, i: u32) -> Option<SocketAddr> {
        let slot = &self.slots[i as usize];
        let g = usize::from(slot.group);
        if !self.plan.groups[g].has_media || slot.media.is_some() {
            return slot.media;
        }
        let ip = slot.conn.as_ref()?.inner.local()?.ip();
        match self.endpoint.open_media(i, ip) {
            Ok(address) => self.slots[i as usize].media = Some(address),
            Err(broken) => self.count_local(i, broken),
        }
        self.slots[i as usize].media
    }

    /// Send what the model put into the outbox for the media sockets of device `i`.
    #[inline]
    pub(super) fn send_media(&mut self, i: u32) {
        if let Some(broken) = self.endpoint.send_media(i, &self.outbox.media) {
            self.count_local(i, broken);
        }
        self.outbox.media.clear();
    }

    /// Give models what came to the media sockets that the last poll found.
    pub(super) fn media_events(&mut self) {
        let mut ready = std::mem::take(&mut self.media_ready);
        self.endpoint.ready_media(&mut ready);
        for (i, channel) in ready.drain(..) {
            self.media_event(i, channel);
        }
        self.media_ready = ready;
    }

    fn media_event(&mut self, i: u32, channel: Channel) {
        let mut buffer = std::mem::take(&mut self.buffer);
        if let Some(input) = self.endpoint.receive_media(i, channel, &mut buffer) {
            self.tick();
            let slot = &self.slots[i as usize];
            if slot.state == State::Active {
                let at = Time(self.now.0.saturating_sub(input.age.as_nanos() as u64));
                let packet = MediaPacket { channel, from: input.from, at, bytes: &buffer[..input.len] };
                let begun = slot.begun;
                self.call(i, begun, |device, cx| device.media(cx, packet));
            }
        }
        self.buffer = buffer;
    }

    /// Close the media sockets of device `i`.
    pub(super) fn close_media(&mut self, i: u32) {
        if self.slots[i as usize].media.take().is_some() {
            let dropped = self.endpoint.close_media(i);
            self.dropped(i, dropped);
        }
    }
}
