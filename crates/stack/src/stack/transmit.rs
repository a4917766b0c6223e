//! Frames out: replies first, then datagrams that waited, then what connections have to send.

use super::Stack;
use super::frames::send_ready;
use crate::connection::{Env, flag};
use crate::neighbours::Reach;
use crate::offload::Large;
use crate::path_mtu::segment_size;
use crate::wire::{Link, Transmit, send_segment};
use packet::{ethernet, ipv4, ipv6};

impl Stack {
    /// Send what is to be sent, as long as `to` takes it; whether that was all.
    pub fn transmit(&mut self, now: u64, to: &mut impl Transmit) -> bool {
        if !send_ready(&mut self.replies, &mut self.spare, &mut self.counters, to)
            || !self.transmit_pending(now, to)
        {
            return false;
        }
        for _ in 0..self.queue.len() {
            let Some(index) = self.queue.pop_front() else { break };
            if !self.transmit_one(index, now, to) {
                self.queue.push_front(index);
                return false;
            }
        }
        true
    }

    fn transmit_one(&mut self, index: u32, now: u64, to: &mut impl Transmit) -> bool {
        let Some(conn) = self.connections.get_mut(index as usize) else { return true };
        if !conn.wants_to_send() {
            conn.clear(flag::QUEUED);
            self.free_if_over(index);
            return true;
        }
        let reach = match self.config.peer {
            Some(mac) => Reach::Known(mac),
            None => self.neighbours.reach(conn.neighbour, Some(index), now),
        };
        let Reach::Known(destination) = reach else {
            conn.clear(flag::QUEUED);
            return true;
        };
        let link = Link { source: self.config.mac, destination, tags: self.config.tags };
        let tuple = conn.tuple;
        if !self.paths.is_empty() || conn.has(flag::SMALL_PATH) {
            let mtu = self.paths.get(tuple.remote, now);
            conn.fit_path(mtu.map(|mtu| segment_size(mtu, tuple.remote.is_ipv4())));
        }
        let v6 = !tuple.local.is_ipv4();
        let before = ethernet::LEN + link.tags.bytes().len() + if v6 { ipv6::LEN } else { ipv4::LEN };
        let large = to.offload().segmentation.and_then(|limits| Large::within(&limits, v6, before));
        let (mut frames, mut segments, mut segmented) = (0, 0, 0);
        let (pool, counters) = (&mut self.pool, &mut self.counters);
        let mut env = Env { now, config: &self.config.tcp, pool, counters };
        let all = conn.emit(&mut env, large, |header, payload, size| {
            let taken = send_segment(to, &link, &tuple, header, (payload, size));
            if taken {
                let n = (payload.len() as u64).div_ceil(u64::from(size).max(1)).max(1);
                frames += 1;
                segments += n;
                segmented += u64::from(n > 1);
            }
            taken
        });
        self.counters.segments_sent += segments;
        self.counters.frames_sent += frames;
        self.counters.segmented += segmented;
        if all {
            conn.clear(flag::QUEUED);
            conn.rest(&mut self.pool);
        }
        self.free_if_over(index);
        all
    }

    /// Set its timer after it sent, or let go of it if that was its last segment. What the windows keep from being sent is
    /// not queued again.
    fn free_if_over(&mut self, index: u32) {
        let conn = &mut self.connections[index as usize];
        let queued = conn.has(flag::QUEUED);
        conn.set(flag::QUEUED);
        self.settle(index);
        if !queued {
            self.connections[index as usize].clear(flag::QUEUED);
        }
    }
}
