//! Segments in flight, and which of them are lost: RACK (RFC 8985 section 6) by the times at which they were sent.

use crate::seq::Seq;
use std::collections::VecDeque;

/// A segment that was sent and is not acknowledged.
#[derive(Debug, Clone, Copy)]
pub(crate) struct InFlight {
    pub start: Seq,
    pub end: Seq,
    /// When it was last sent, ns.
    pub at: u64,
    pub sacked: bool,
    pub lost: bool,
    pub again: bool,
}

impl InFlight {
    fn len(&self) -> u32 {
        self.end.since(self.start)
    }
}

/// Result of an acknowledgment.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Acknowledged {
    /// Round-trip time of the segment sent last of those that were delivered and sent once, ns.
    pub rtt: Option<u64>,
    /// Whether anything was delivered that was not known to be.
    pub progress: bool,
    /// A segment that was sent once was delivered after one that was sent later.
    pub reordered: bool,
    /// Bytes that were delivered and were not known to be.
    pub delivered: u32,
}

/// All segments in flight of a connection.
#[derive(Debug, Default)]
pub(crate) struct Flight {
    sent: VecDeque<InFlight>,
    sacked: u32,
    lost: u32,
    /// Time and end of the segment that was sent last of all that were delivered, and how long it took.
    latest: Option<(u64, Seq)>,
    latest_rtt: u64,
    /// The highest that was delivered.
    highest: Option<Seq>,
}

impl Flight {
    /// Whether all is acknowledged.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.sent.is_empty()
    }

    /// How many segments.
    pub fn segments(&self) -> usize {
        self.sent.len()
    }

    /// Bytes that are under way as far as is known: neither delivered nor lost (RFC 6675 "pipe").
    #[inline]
    pub fn pipe(&self) -> u32 {
        match (self.sent.front(), self.sent.back()) {
            (Some(first), Some(last)) => last.end.since(first.start) - self.sacked - self.lost,
            _ => 0,
        }
    }

    /// Whether something is known to be lost, and not sent again.
    #[inline]
    pub fn has_lost(&self) -> bool {
        self.lost > 0
    }

    /// Bytes that are known to be lost, and not sent again.
    pub fn lost(&self) -> u32 {
        self.lost
    }

    /// A new segment was sent.
    pub fn push(&mut self, start: Seq, end: Seq, at: u64) {
        self.sent.push_back(InFlight { start, end, at, sacked: false, lost: false, again: false });
    }

    fn deliver(&mut self, sent: InFlight, now: u64, shortest: u64, result: &mut Acknowledged) {
        result.progress = true;
        result.delivered += sent.len();
        let rtt = now.saturating_sub(sent.at);
        if !sent.again {
            result.rtt = Some(rtt);
            // what was sent before came after it (section 6.2, step 3)
            result.reordered |= self.highest.is_some_and(|highest| sent.end.before(highest));
        } else if rtt < shortest {
            // the acknowledgment is of the first transmission (section 6.2, step 2)
            return;
        }
        self.highest = Some(self.highest.map_or(sent.end, |highest| highest.later(sent.end)));
        let later = self.latest.is_none_or(|(at, end)| (sent.at, true) > (at, !end.before(sent.end)));
        if later {
            self.latest = Some((sent.at, sent.end));
            self.latest_rtt = rtt;
        }
    }

    /// All before `una` is acknowledged.
    pub fn acknowledge(&mut self, una: Seq, now: u64, shortest: u64, result: &mut Acknowledged) {
        while let Some(first) = self.sent.front_mut() {
            if !first.end.until(una) {
                if first.start.before(una) {
                    let part = una.since(first.start);
                    self.sacked -= if first.sacked { part } else { 0 };
                    self.lost -= if first.lost { part } else { 0 };
                    result.delivered += if first.sacked { 0 } else { part };
                    first.start = una;
                    result.progress = true;
                }
                break;
            }
            let sent = *first;
            self.sent.pop_front();
            if sent.sacked {
                self.sacked -= sent.len();
            } else {
                self.lost -= if sent.lost { sent.len() } else { 0 };
                self.deliver(sent, now, shortest, result);
            }
        }
    }

    /// What lies between `left` and `right` was received (RFC 2018).
    pub fn sack(&mut self, left: Seq, right: Seq, now: u64, shortest: u64, result: &mut Acknowledged) {
        for i in 0..self.sent.len() {
            let sent = self.sent[i];
            if right.until(sent.start) {
                break;
            }
            if sent.sacked || sent.start.before(left) || right.before(sent.end) {
                continue;
            }
            self.lost -= if sent.lost { sent.len() } else { 0 };
            self.sacked += sent.len();
            (self.sent[i].sacked, self.sent[i].lost) = (true, false);
            self.deliver(sent, now, shortest, result);
        }
    }

    /// Mark what is lost by now: what was sent before the segment that was delivered last, by more than the reordering window
    /// `window`. When the next may be found to be lost (section 6.2, step 5).
    pub fn detect(&mut self, now: u64, window: u64) -> Option<u64> {
        let (latest_at, latest_end) = self.latest?;
        let mut next = None;
        for sent in &mut self.sent {
            let before = sent.at < latest_at || (sent.at == latest_at && sent.end.before(latest_end));
            if sent.sacked || sent.lost || !before {
                continue;
            }
            let due = sent.at + self.latest_rtt + window;
            if due <= now {
                sent.lost = true;
                self.lost += sent.end.since(sent.start);
            } else {
                next = Some(next.unwrap_or(0).max(due));
            }
        }
        next
    }

    /// How long the first segment is.
    pub fn first_len(&self) -> u32 {
        self.sent.front().map_or(0, InFlight::len)
    }

    /// How many segments were received out of order.
    pub fn sacked_segments(&self) -> usize {
        if self.sacked == 0 { 0 } else { self.sent.iter().filter(|sent| sent.sacked).count() }
    }

    /// The first segment is lost: the peer says so without SACK (RFC 6582).
    pub fn lose_first(&mut self) {
        if let Some(first) = self.sent.front_mut().filter(|first| !first.sacked && !first.lost) {
            first.lost = true;
            self.lost += first.end.since(first.start);
        }
    }

    /// The retransmission timer expired: all is lost, also what was said to be received, which a receiver may have dropped
    /// (RFC 2018 section 8).
    pub fn lose_all(&mut self) {
        self.sent.iter_mut().for_each(|sent| (sent.sacked, sent.lost) = (false, true));
        self.sacked = 0;
        self.lost = self.sent.iter().map(InFlight::len).sum();
        self.latest = None;
    }

    /// The first that is lost.
    pub fn first_lost(&self) -> Option<(usize, InFlight)> {
        if self.lost == 0 {
            return None;
        }
        self.sent.iter().enumerate().find(|(_, sent)| sent.lost).map(|(i, sent)| (i, *sent))
    }

    /// The last that was sent, and not received: what a probe sends again (section 7.3).
    pub fn last(&self) -> Option<(usize, InFlight)> {
        self.sent.iter().enumerate().next_back().map(|(i, sent)| (i, *sent)).filter(|(_, sent)| !sent.sacked)
    }

    /// The first `len` bytes of segment `i` were sent again; what is left of it stays as it was.
    pub fn sent_again(&mut self, i: usize, len: u32, now: u64) {
        let Some(sent) = self.sent.get_mut(i) else { return };
        let (end, was_lost) = (sent.start + len, sent.lost);
        let rest = InFlight { start: end, ..*sent };
        let split = end.before(sent.end);
        if was_lost {
            self.lost -= len;
        }
        (sent.end, sent.at, sent.lost, sent.again) = (if split { end } else { sent.end }, now, false, true);
        if split {
            self.sent.insert(i + 1, rest);
        }
    }

    /// Forget all, keeping the memory.
    pub fn clear(&mut self) {
        self.sent.clear();
        (self.sacked, self.lost, self.latest, self.latest_rtt, self.highest) = (0, 0, None, 0, None);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flight(segments: u32) -> Flight {
        let mut flight = Flight::default();
        (0..segments).for_each(|n| flight.push(Seq(n * 100), Seq(n * 100 + 100), u64::from(n)));
        flight
    }

    #[test]
    fn what_was_sent_before_a_delivered_segment_is_lost_after_the_reordering_window() {
        let mut flight = flight(4);
        let mut result = Acknowledged::default();
        flight.sack(Seq(200), Seq(300), 1_002, 0, &mut result);
        assert_eq!((result.rtt, result.progress, result.reordered), (Some(1_000), true, false));
        assert_eq!(flight.pipe(), 300);
        // segments 0 and 1 were sent 2 and 1 ns before: with a window of 10 they have until 1,010 and 1,011
        assert_eq!(flight.detect(1_002, 10), Some(1_011));
        assert_eq!((flight.detect(1_010, 10), flight.pipe()), (Some(1_011), 200));
        assert_eq!((flight.detect(1_011, 10), flight.pipe()), (None, 100));
        assert_eq!(flight.first_lost().map(|(i, sent)| (i, sent.start)), Some((0, Seq(0))));
        flight.sent_again(0, 60, 2_000);
        assert_eq!(
            flight.first_lost().map(|(i, sent)| (i, sent.start, sent.end)),
            Some((1, Seq(60), Seq(100)))
        );
        flight.sent_again(1, 40, 2_000);
        flight.sent_again(2, 100, 2_000);
        assert_eq!((flight.has_lost(), flight.pipe()), (false, 300));
        let mut result = Acknowledged::default();
        flight.acknowledge(Seq(300), 3_000, 0, &mut result);
        assert_eq!((result.rtt, flight.segments(), flight.pipe()), (None, 1, 100), "Karn: sent twice");
    }

    #[test]
    fn a_segment_that_comes_after_a_later_one_was_reordered() {
        let mut flight = flight(3);
        let mut result = Acknowledged::default();
        flight.sack(Seq(100), Seq(200), 1_000, 0, &mut result);
        assert!(!result.reordered);
        flight.acknowledge(Seq(200), 1_001, 0, &mut result);
        assert!(result.reordered);
    }

    #[test]
    fn part_of_a_segment_may_be_acknowledged() {
        let mut flight = flight(2);
        flight.lose_all();
        flight.acknowledge(Seq(50), 10, 0, &mut Acknowledged::default());
        assert_eq!((flight.pipe(), flight.first_lost().map(|(_, sent)| sent.start)), (0, Some(Seq(50))));
        flight.sent_again(0, 50, 20);
        assert_eq!(flight.pipe(), 50);
    }
}
