//! What a port says of the frames it received, for those who measure them.

use crate::device_clock::{DeviceClock, Reading};
use dpdk::{Checked, Mbuf, Offloads, Port, Result, Stamps};
use engine::Clock;

/// How often a port's clock is compared with ours, ns; sooner at first, until there are two readings.
const COMPARE_NS: u64 = 1_000_000_000;

/// What a port tells.
#[derive(Debug, Clone)]
pub struct RxOffload {
    /// It looks at checksums.
    checksums: bool,
    /// It stamps.
    stamps: Option<TimestampSource>,
}

#[derive(Debug, Clone)]
struct TimestampSource {
    place: Stamps,
    port: Port,
    clock: DeviceClock,
    /// When to compare the clocks again, ns on ours.
    due: u64,
}

impl TimestampSource {
    fn compare(&mut self) {
        let ours = Clock::get();
        if let Some(reading) = Reading::take(|| self.port.clock(), || ours.now()) {
            self.clock.follow(reading);
            self.due = reading.ours + COMPARE_NS;
        }
    }
}

impl RxOffload {
    /// Of a port that does this. `None`: it tells nothing.
    pub fn of(port: &Port, does: Offloads) -> Result<Option<Self>> {
        let stamping = |place| {
            let (port, clock) = (port.clone(), DeviceClock::new());
            let mut stamping = TimestampSource { place, port, clock, due: 0 };
            stamping.compare();
            // The second is taken on the first tick.
            stamping.due = 0;
            stamping
        };
        let stamps = does.rx_timestamp.then(|| port.stamps()).transpose()?.map(stamping);
        Ok((does.rx_checksum || stamps.is_some()).then_some(Self { checksums: does.rx_checksum, stamps }))
    }

    /// What it says of the packet's checksum.
    #[inline]
    pub fn checksum(&self, mbuf: &Mbuf) -> Checked {
        if self.checksums { mbuf.checksum() } else { Checked::Unknown }
    }

    /// When the packet came, on our clock, ns; as it was taken `now`, unless the port says it better.
    #[inline]
    pub fn arrived(&self, mbuf: &Mbuf, now: u64) -> u64 {
        let stamped = |stamping: &TimestampSource| stamping.clock.to_local(mbuf.stamp(&stamping.place)?);
        // It did not come later than it was taken: that is the error of the comparison.
        self.stamps.as_ref().and_then(stamped).map_or(now, |ours| ours.min(now))
    }

    /// Compare clocks, if it is time to.
    pub fn tick(&mut self, now: u64) {
        if let Some(stamping) = self.stamps.as_mut().filter(|stamping| now >= stamping.due) {
            stamping.compare();
        }
    }
}
