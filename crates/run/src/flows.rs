//! What became of each device over a whole run: kept by the worker that drove it, and read page by page.

use protocol::meter::DeviceTally;
use std::fmt::Debug;

/// What one device delivered, as `run.flows` shows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Flow {
    /// Number of the group in the plan.
    pub group: u16,
    /// Number of the device in the group.
    pub device: u32,
    /// Its summary.
    pub tally: DeviceTally,
}

/// The devices of one owner. Their state is handed over as it is: a summary is made when it is asked for.
pub trait DeviceSummaries: Debug + Send + Sync {
    /// How many devices there are.
    fn count(&self) -> usize;

    /// The summary of the one with this number among them.
    fn get(&self, index: usize) -> Option<Flow>;
}

impl DeviceSummaries for Vec<Flow> {
    fn count(&self) -> usize {
        self.len()
    }

    fn get(&self, index: usize) -> Option<Flow> {
        self.as_slice().get(index).copied()
    }
}

/// The devices of all owners.
#[derive(Debug, Default)]
pub struct Flows(Vec<Box<dyn DeviceSummaries>>);

impl Flows {
    /// One owner's more.
    pub fn add(&mut self, devices: Box<dyn DeviceSummaries>) {
        self.0.push(devices);
    }

    /// How many devices there are.
    pub fn len(&self) -> usize {
        self.0.iter().map(|devices| devices.count()).sum()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// At most `limit` summaries from number `offset` on.
    pub fn page(&self, offset: usize, limit: usize) -> impl Iterator<Item = Flow> {
        let mut before = 0;
        let each = self.0.iter().flat_map(move |devices| {
            let (first, count) = (offset.saturating_sub(before), devices.count());
            before += count;
            (first.min(count)..count).filter_map(|index| devices.get(index))
        });
        each.take(limit)
    }

    /// All summaries.
    pub fn iter(&self) -> impl Iterator<Item = Flow> {
        self.page(0, usize::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    /// Counts how often a summary is made.
    #[derive(Debug)]
    struct CountingSummaries(u16, u32, Arc<AtomicUsize>);

    impl DeviceSummaries for CountingSummaries {
        fn count(&self) -> usize {
            self.1 as usize
        }

        fn get(&self, index: usize) -> Option<Flow> {
            self.2.fetch_add(1, Ordering::Relaxed);
            Some(Flow { group: self.0, device: index as u32, tally: DeviceTally::default() })
        }
    }

    #[test]
    fn a_page_asks_for_no_more_than_it_shows() {
        let asked = Arc::new(AtomicUsize::new(0));
        let mut flows = Flows::default();
        for (group, devices) in [(0, 10), (1, 0), (2, 1_000_000), (3, 5)] {
            flows.add(Box::new(CountingSummaries(group, devices, asked.clone())));
        }
        let page = |offset, limit| -> Vec<(u16, u32)> {
            flows.page(offset, limit).map(|flow| (flow.group, flow.device)).collect()
        };
        assert_eq!(flows.len(), 1_000_015);
        assert_eq!(page(8, 4), [(0, 8), (0, 9), (2, 0), (2, 1)]);
        assert_eq!(page(1_000_009, 3), [(2, 999_999), (3, 0), (3, 1)]);
        assert_eq!(page(1_000_014, 3), [(3, 4)]);
        assert_eq!(page(1_000_015, 3), []);
        assert_eq!(asked.load(Ordering::Relaxed), 8);
    }
}
