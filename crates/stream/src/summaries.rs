//! What became of each stream, from what its generator and its receivers kept of it.

use crate::report::{SentStreams, StreamRecords};
use crate::stream_table::StreamTable;
use protocol::meter::DeviceTally;
use run::flows::{DeviceSummaries, Flow};

/// All streams of a run, in the order of their groups and devices.
#[derive(Debug, Default)]
pub struct Summaries {
    /// For each group: how many streams there were before it and with it, and whether each datagram was to come back.
    groups: Vec<(usize, bool)>,
    sent: Vec<SentStreams>,
    received: Vec<StreamTable>,
}

impl Summaries {
    /// Of groups with so many devices each, whose datagrams are to come back or not.
    pub fn new(groups: impl Iterator<Item = (u32, bool)>) -> Self {
        let mut streams = 0;
        let with_ends = |(devices, echo): (u32, bool)| {
            streams += devices as usize;
            (streams, echo)
        };
        Self { groups: groups.map(with_ends).collect(), ..Self::default() }
    }

    /// What one element kept.
    pub fn add(&mut self, kept: StreamRecords) {
        match kept {
            StreamRecords::Sent(streams) => self.sent.extend(streams),
            StreamRecords::Received(streams) => self.received.push(streams),
        }
    }
}

impl DeviceSummaries for Summaries {
    fn count(&self) -> usize {
        self.groups.last().map_or(0, |(end, _)| *end)
    }

    fn get(&self, index: usize) -> Option<Flow> {
        let group = self.groups.partition_point(|(end, _)| *end <= index);
        let (_, echo) = *self.groups.get(group)?;
        let first =
            group.checked_sub(1).and_then(|before| self.groups.get(before)).map_or(0, |(end, _)| *end);
        let device = u32::try_from(index - first).ok()?;
        let mut tally = DeviceTally::default();
        for streams in self.sent.iter().filter(|streams| streams.group == group) {
            let sent = device.checked_sub(streams.from).and_then(|device| streams.schedule.sent(device));
            if let Some((sent, flows)) = sent {
                tally.flows = (flows, flows);
                tally.sent = sent.saturating_mul(streams.packets);
            }
        }
        let stream = u32::try_from(index).ok()?;
        for part in self.received.iter().filter_map(|streams| streams.summary(stream)) {
            tally.delivered += part.delivered;
            tally.duplicates = tally.duplicates.saturating_add(part.duplicates);
            tally.reordered = tally.reordered.saturating_add(part.reordered);
            tally.delay_sum = tally.delay_sum.saturating_add(part.delay_sum);
            tally.delay_max = tally.delay_max.max(part.delay_max);
            tally.pattern.merge(&part.pattern);
        }
        if echo {
            let lost = tally.sent.saturating_sub(tally.delivered);
            tally.failed = u32::try_from(lost).unwrap_or(u32::MAX);
        }
        Some(Flow { group: group as u16, device, tally })
    }
}
