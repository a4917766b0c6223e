//! Controlled delay: RFC 8289 section 5, asked packet by packet.

use crate::spec::Codel as Spec;

/// What is remembered from packet to packet; names as in the RFC's appendix.
#[derive(Debug, Clone)]
pub(crate) struct Codel {
    target: u64,
    interval: u64,
    /// When the delay will have been above target for an interval; 0: it is not above.
    first_above_time: u64,
    drop_next: u64,
    count: u32,
    lastcount: u32,
    dropping: bool,
    /// A drop that enters the drop state was said, and the packet after it was not yet looked at.
    entering: bool,
    /// Largest packet seen: a queue of one is not standing.
    maxpacket: u64,
}

impl Codel {
    pub(crate) fn new(spec: &Spec) -> Self {
        Self {
            target: spec.target.ns(),
            interval: spec.interval.ns(),
            first_above_time: 0,
            drop_next: 0,
            count: 0,
            lastcount: 0,
            dropping: false,
            entering: false,
            maxpacket: 0,
        }
    }

    /// New parameters, same history.
    pub(crate) fn set(&mut self, spec: &Spec) {
        (self.target, self.interval) = (spec.target.ns(), spec.interval.ns());
    }

    /// Is the packet that could leave at `now`, after `sojourn`, dropped instead? It has `bytes`; `rest`
    /// bytes wait behind it. `again`: the one before it was dropped at the same moment.
    pub(crate) fn drops(&mut self, now: u64, sojourn: u64, bytes: u64, rest: u64, again: bool) -> bool {
        self.maxpacket = self.maxpacket.max(bytes);
        let ok_to_drop = self.ok_to_drop(now, sojourn, rest);
        if again && std::mem::take(&mut self.entering) {
            self.enter(now);
            return false;
        }
        if self.dropping {
            if !ok_to_drop {
                self.dropping = false;
                return false;
            }
            if again {
                self.drop_next = self.next_drop(self.drop_next);
            }
            if now >= self.drop_next {
                self.count = self.count.saturating_add(1);
                return true;
            }
            return false;
        }
        self.entering = ok_to_drop;
        ok_to_drop
    }

    /// There is no packet. `again` as for [`drops`](Self::drops).
    pub(crate) fn queue_empty(&mut self, now: u64, again: bool) {
        self.first_above_time = 0;
        if again && std::mem::take(&mut self.entering) {
            self.enter(now);
        } else {
            self.dropping = false;
        }
    }

    fn ok_to_drop(&mut self, now: u64, sojourn: u64, rest: u64) -> bool {
        if sojourn < self.target || rest <= self.maxpacket {
            self.first_above_time = 0;
            return false;
        }
        if self.first_above_time == 0 {
            self.first_above_time = now + self.interval;
            return false;
        }
        now >= self.first_above_time
    }

    /// Into the drop state, at the rate that it had lately.
    fn enter(&mut self, now: u64) {
        self.dropping = true;
        let delta = self.count.saturating_sub(self.lastcount);
        let lately = now.saturating_sub(self.drop_next) < 16 * self.interval;
        self.count = if delta > 1 && lately { delta } else { 1 };
        self.drop_next = self.next_drop(now);
        self.lastcount = self.count;
    }

    /// The control law, section 4.3: drops come closer with the square root of their number.
    fn next_drop(&self, at: u64) -> u64 {
        at + (self.interval as f64 / f64::from(self.count.max(1)).sqrt()) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;
    const PACKET: u64 = 1538;
    const MANY: u64 = 100 * PACKET;

    /// One packet a millisecond, all waiting `sojourn`, for `ms`: when were packets dropped?
    fn drops(codel: &mut Codel, from: u64, ms: u64, sojourn: u64, rest: u64) -> Vec<u64> {
        let mut drops = Vec::new();
        for now in from..from + ms {
            let mut again = false;
            while codel.drops(now * MS, sojourn, PACKET, rest, again) {
                drops.push(now);
                again = true;
            }
        }
        drops
    }

    #[test]
    fn a_delay_below_target_or_a_queue_of_one_is_never_dropped_from() {
        let mut codel = Codel::new(&Spec::default());
        assert_eq!(drops(&mut codel, 1, 1000, 5 * MS - 1, MANY), [0; 0]);
        assert_eq!(drops(&mut codel, 1001, 1000, 50 * MS, PACKET), [0; 0]);
    }

    #[test]
    fn drops_begin_after_an_interval_and_come_by_the_control_law() {
        let mut codel = Codel::new(&Spec::default());
        let at = drops(&mut codel, 1, 400, 5 * MS, MANY);
        // Above since 1: dropped at 101, then 100/√1 = 100, 100/√2 = 70.7, 100/√3 = 57.7, 100/√4 = 50 later.
        assert_eq!(at, [101, 201, 272, 330, 380]);
        // One packet below target ends it; the next time it takes an interval again,
        assert!(drops(&mut codel, 401, 1, MS, MANY).is_empty());
        let again = drops(&mut codel, 402, 200, 5 * MS, MANY);
        // and goes on at nearly the rate it had: count was 5, lastcount 1, so it is 4: 100/√4 = 50.
        assert_eq!(again, [502, 552, 597]);
    }

    #[test]
    fn long_after_it_begins_anew() {
        let mut codel = Codel::new(&Spec::default());
        drops(&mut codel, 1, 400, 5 * MS, MANY);
        drops(&mut codel, 401, 1, MS, MANY);
        assert_eq!(drops(&mut codel, 5000, 250, 5 * MS, MANY), [5100, 5200]);
    }

    #[test]
    fn an_empty_queue_ends_it() {
        let mut codel = Codel::new(&Spec::default());
        assert_eq!(drops(&mut codel, 1, 150, 5 * MS, MANY), [101]);
        codel.queue_empty(151 * MS, false);
        assert_eq!(drops(&mut codel, 152, 101, 5 * MS, MANY), [252]);
    }
}
