//! One received RTP stream: sequence numbers, jitter (RFC 3550 appendix A), and which packets come in time to be played.

use crate::g711::RATE;
use crate::loss_pattern::LossPattern;
use protocol::time::Time;
use std::time::Duration;

/// Numbers of which it is still open whether their packets come: what is later is lost for good.
const WINDOW: u64 = 128;
/// A jump forward of more numbers is a stream that began anew (MAX_DROPOUT), and so is one back of more (MAX_MISORDER).
const DROPOUT_MAX: i64 = 3_000;
const MISORDER_MAX: i64 = 100;
/// What first numbers are extended by, whole cycles: room below for what they overtook.
const FIRST: u64 = 1 << 40;
/// Nanoseconds of a sample.
const SAMPLE: i64 = 1_000_000_000 / RATE as i64;
/// For so long the shortest transit counts, so that clocks that drift apart make no packet late.
const REFERENCE: Duration = Duration::from_secs(10);

/// What a packet was to its stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Arrival {
    /// New, and in time.
    InTime,
    /// New, and too late to be played.
    Late,
    /// Its number has come before.
    Duplicate,
    /// Its number is far from all others: it counts if the next one follows it.
    Astray,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Missing,
    Played,
    Late,
}

/// Shortest transit over the present interval and the one before.
#[derive(Debug, Clone, Copy)]
struct Reference {
    present: i64,
    before: i64,
    began: Time,
}

/// A stream of one source.
#[derive(Debug, Clone)]
pub struct Stream {
    /// Its synchronization source.
    pub ssrc: u32,
    /// Packets received, each number once.
    pub received: u64,
    /// Packets whose number had come before.
    pub duplicates: u64,
    /// Packets that came behind a later one.
    pub reordered: u64,
    /// Packets that came too late to be played.
    pub late: u64,
    /// When its last packet came.
    pub last: Time,
    buffer: i64,
    /// Extended numbers: the first and the highest; every number below `open` is decided.
    base: u64,
    highest: u64,
    open: u64,
    window: [State; WINDOW as usize],
    pattern: LossPattern,
    /// What would follow the last packet that was astray.
    astray: Option<u16>,
    /// Timestamp of the last packet, extended, and its transit; the sum of jitter estimates for their mean.
    timestamp: (u32, i64),
    transit: i64,
    jitter: f64,
    jitters: (f64, u64),
    reference: Reference,
    /// Whether its sender is on hold, and whether the next packet sets the reference anew.
    held: bool,
    anew: bool,
}

impl Stream {
    /// A stream that begins with this packet; `buffer` is how long the playout buffer holds the fastest packet.
    pub fn new(ssrc: u32, sequence: u16, timestamp: u32, at: Time, buffer: Duration) -> Self {
        let base = u64::from(sequence) + FIRST;
        let transit = at.0 as i64;
        let mut stream = Self {
            ssrc,
            received: 1,
            duplicates: 0,
            reordered: 0,
            late: 0,
            last: at,
            buffer: buffer.as_nanos() as i64,
            base,
            highest: base,
            open: base,
            window: [State::Missing; WINDOW as usize],
            pattern: LossPattern::default(),
            astray: None,
            timestamp: (timestamp, 0),
            transit,
            jitter: 0.0,
            jitters: (0.0, 0),
            reference: Reference { present: transit, before: i64::MAX, began: at },
            held: false,
            anew: false,
        };
        *stream.state(base) = State::Played;
        stream
    }

    fn state(&mut self, number: u64) -> &mut State {
        &mut self.window[(number % WINDOW) as usize]
    }

    /// One more packet, which arrived at `at`.
    pub fn push(&mut self, sequence: u16, timestamp: u32, at: Time) -> Arrival {
        self.put(sequence, Some(timestamp), at)
    }

    /// The same of a packet whose timestamp does not tell when it was sent.
    pub fn push_untimed(&mut self, sequence: u16, at: Time) -> Arrival {
        self.put(sequence, None, at)
    }

    fn put(&mut self, sequence: u16, timestamp: Option<u32>, at: Time) -> Arrival {
        let step = i64::from(sequence.wrapping_sub(self.highest as u16) as i16);
        if !(-MISORDER_MAX..=DROPOUT_MAX).contains(&step) {
            // RFC 3550 appendix A.1: two in a row are a stream that began anew
            if self.astray.replace(sequence.wrapping_add(1)) != Some(sequence) {
                return Arrival::Astray;
            }
            self.restart(sequence, timestamp.unwrap_or(self.timestamp.0), at);
            return Arrival::InTime;
        }
        self.astray = None;
        let number = self.highest.saturating_add_signed(step);
        if step > 0 {
            self.advance(number);
        } else if number < self.open {
            if number >= self.base || self.open > self.base {
                // it is decided already; it may have come before
                self.duplicates += 1;
                return Arrival::Duplicate;
            }
            // overtaken by the first
            for number in number..self.open {
                *self.state(number) = State::Missing;
            }
            (self.base, self.open) = (number, number);
        } else if *self.state(number) != State::Missing {
            self.duplicates += 1;
            return Arrival::Duplicate;
        }
        self.reordered += u64::from(step < 0);
        self.received += 1;
        self.last = self.last.max(at);
        let late = timestamp.is_some_and(|timestamp| self.time(timestamp, at));
        self.late += u64::from(late);
        *self.state(number) = if late { State::Late } else { State::Played };
        if late { Arrival::Late } else { Arrival::InTime }
    }

    /// Make room for `number`, the highest so far.
    fn advance(&mut self, number: u64) {
        while self.highest < number {
            self.highest += 1;
            if self.highest - self.open >= WINDOW {
                self.decide();
            }
            let highest = self.highest;
            *self.state(highest) = State::Missing;
        }
    }

    /// The lowest open number is decided.
    fn decide(&mut self) {
        let played = *self.state(self.open) == State::Played;
        self.pattern.push(!played);
        self.open += 1;
    }

    /// The stream goes on with other numbers.
    fn restart(&mut self, sequence: u16, timestamp: u32, at: Time) {
        while self.open <= self.highest {
            self.decide();
        }
        let mut next =
            Self::new(self.ssrc, sequence, timestamp, at, Duration::from_nanos(self.buffer as u64));
        // what was received, lost and decided before stays
        let span = self.highest - self.base + 1;
        next.base = next.base.saturating_sub(span);
        next.received += self.received;
        (next.duplicates, next.reordered, next.late) = (self.duplicates, self.reordered, self.late);
        next.pattern = std::mem::take(&mut self.pattern);
        (next.jitter, next.jitters) = (self.jitter, self.jitters);
        (next.held, next.anew) = (self.held, self.held);
        *self = next;
    }

    /// Its sender is put on hold, or goes on: how long it paused is neither delay nor jitter, whatever its clock did meanwhile.
    pub fn hold(&mut self, held: bool) {
        (self.held, self.anew) = (held, true);
    }

    /// Jitter, and whether the packet comes too late.
    fn time(&mut self, timestamp: u32, at: Time) -> bool {
        let (last, extended) = self.timestamp;
        let extended = extended + i64::from(timestamp.wrapping_sub(last) as i32);
        self.timestamp = (timestamp, extended);
        let transit = at.0 as i64 - extended.saturating_mul(SAMPLE);
        if self.anew {
            self.anew = self.held;
            self.transit = transit;
            self.reference = Reference { present: transit, before: i64::MAX, began: at };
            return false;
        }
        // RFC 3550 appendix A.8
        let change = transit.abs_diff(self.transit) as f64;
        self.transit = transit;
        self.jitter += (change - self.jitter) / 16.0;
        self.jitters = (self.jitters.0 + self.jitter, self.jitters.1 + 1);
        let reference = &mut self.reference;
        if at >= reference.began + REFERENCE {
            *reference = Reference { present: transit, before: reference.present, began: at };
        }
        reference.present = reference.present.min(transit);
        transit - reference.present.min(reference.before) > self.buffer
    }

    /// Packets that the sender has sent, as far as numbers tell.
    pub fn expected(&self) -> u64 {
        self.highest - self.base + 1
    }

    /// Packets that did not come.
    pub fn lost(&self) -> u64 {
        self.expected().saturating_sub(self.received)
    }

    /// The highest number received, with how often numbers have wrapped.
    pub fn extended_highest(&self) -> u32 {
        (self.highest - FIRST) as u32
    }

    /// Interarrival jitter now, ns.
    pub fn jitter(&self) -> f64 {
        self.jitter
    }

    /// Mean of interarrival jitter over the packets, ns; none before the second.
    pub fn mean_jitter(&self) -> Option<f64> {
        (self.jitters.1 > 0).then(|| self.jitters.0 / self.jitters.1 as f64)
    }

    /// The loss pattern if nothing more came; `missing` packets were sent behind the last that came.
    pub fn pattern(&self, missing: u64) -> LossPattern {
        let mut pattern = self.pattern.clone();
        for number in self.open..=self.highest {
            pattern.push(self.window[(number % WINDOW) as usize] != State::Played);
        }
        (0..missing).for_each(|_| pattern.push(true));
        pattern
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const MS: u64 = 1_000_000;
    const BUFFER: Duration = Duration::from_millis(60);

    /// A stream of packets, each with its number and how late it comes against its schedule of 20 ms.
    fn stream(first: u16, packets: &[(u16, u64)]) -> Stream {
        let at = |n: u16, late: u64| Time((1_000 + 20 * u64::from(n) + late) * MS);
        let (n, late) = packets[0];
        let number = |n: u16| first.wrapping_add(n);
        let timestamp = |n: u16| 4_294_967_000u32.wrapping_add(160 * u32::from(n));
        let mut stream = Stream::new(7, number(n), timestamp(n), at(n, late), BUFFER);
        for (n, late) in &packets[1..] {
            stream.push(number(*n), timestamp(*n), at(*n, *late));
        }
        stream
    }

    fn counts(stream: &Stream) -> [u64; 5] {
        [stream.received, stream.lost(), stream.reordered, stream.duplicates, stream.late]
    }

    #[test]
    fn numbers_wrap() {
        let packets: Vec<_> = (0..300).map(|n| (n, 5)).collect();
        let stream = stream(65_400, &packets);
        assert_eq!(counts(&stream), [300, 0, 0, 0, 0]);
        assert_eq!(stream.extended_highest(), 65_536 + 163);
        assert_eq!(stream.pattern(0).lost, 0);
        assert_eq!(stream.mean_jitter(), Some(0.0));
    }

    #[test]
    fn losses_reordering_and_duplicates_are_told_apart() {
        let stream = stream(10, &[(0, 5), (1, 5), (4, 5), (3, 30), (4, 5), (6, 5), (3, 40)]);
        // 2 and 5 never came, 3 came behind 4, 4 and 3 came twice
        assert_eq!(counts(&stream), [5, 2, 1, 2, 0]);
        let pattern = stream.pattern(0);
        assert_eq!((pattern.packets, pattern.lost), (7, 2));
        let (packets, lost) = {
            let p = stream.pattern(3);
            (p.packets, p.lost)
        };
        assert_eq!((packets, lost), (10, 5), "what was sent behind the last is lost too");
    }

    #[test]
    fn what_the_first_packet_overtook_belongs_to_the_stream() {
        let stream = stream(10, &[(2, 5), (0, 50), (1, 30), (3, 5)]);
        assert_eq!(counts(&stream), [4, 0, 2, 0, 0]);
    }

    #[test]
    fn a_packet_later_than_the_buffer_is_lost_to_the_listener() {
        let stream = stream(0, &[(0, 5), (1, 5), (2, 65), (3, 66), (4, 5)]);
        assert_eq!(counts(&stream), [5, 0, 0, 0, 1], "60 ms behind the fastest is in time, 61 ms is not");
        let pattern = stream.pattern(0);
        assert_eq!((pattern.packets, pattern.lost), (5, 1));
    }

    #[test]
    fn the_pause_of_a_sender_on_hold_is_no_delay_whatever_its_clock_did() {
        // the timestamps of three seconds on hold, or of none
        for pause in [24_000, 0] {
            let mut stream = stream(0, &[(0, 5), (1, 5), (2, 5)]);
            let push = |stream: &mut Stream, n: u16, late: u64, pause: u32| {
                let at = 1_000 + 20 * u64::from(n) + late;
                stream.push(n, 4_294_967_000u32.wrapping_add(160 * u32::from(n) + pause), Time(at * MS))
            };
            stream.hold(true);
            // on its way before the other side knew
            assert_eq!(push(&mut stream, 3, 5, 0), Arrival::InTime);
            // it may go on before the answer says so
            assert_eq!(push(&mut stream, 4, 3_005, pause), Arrival::InTime);
            stream.hold(false);
            for n in 5..20 {
                assert_eq!(push(&mut stream, n, 3_005, pause), Arrival::InTime);
            }
            assert_eq!((stream.mean_jitter(), stream.lost()), (Some(0.0), 0));
            assert_eq!(push(&mut stream, 20, 3_005 + 61, pause), Arrival::Late, "against the packets since");
        }
    }

    #[test]
    fn clocks_that_drift_apart_make_no_packet_late() {
        // 100 ppm over an hour are 360 ms
        let mut stream = Stream::new(1, 0, 0, Time(0), BUFFER);
        for n in 1..180_000u64 {
            let at = Time(n * 20 * MS + n * 20 * MS / 10_000);
            stream.push(n as u16, (n * 160) as u32, at);
        }
        assert_eq!(counts(&stream), [180_000, 0, 0, 0, 0]);
    }

    #[test]
    fn jitter_follows_the_formula_of_rfc_3550() {
        // transit changes by 8 ms each packet: J converges to 8 ms
        let packets: Vec<_> = (0..400).map(|n| (n, if n % 2 == 0 { 0 } else { 8 })).collect();
        let stream = stream(0, &packets);
        assert!((stream.jitter() / MS as f64 - 8.0).abs() < 0.01, "{}", stream.jitter());
        let mut two = Stream::new(1, 0, 0, Time(0), BUFFER);
        two.push(1, 160, Time(36 * MS));
        assert_eq!(two.jitter(), 1e6, "16 ms / 16");
    }

    #[test]
    fn a_stream_that_begins_anew_goes_on() {
        let mut stream = stream(100, &[(0, 0), (1, 0), (3, 0)]);
        let at = |n: u64| Time((2_000 + 20 * n) * MS);
        assert_eq!(stream.push(40_000, 9, at(0)), Arrival::Astray);
        assert_eq!(stream.push(104, 4_294_967_000u32.wrapping_add(640), Time(1_080 * MS)), Arrival::InTime);
        assert_eq!(stream.push(50_000, 160, at(2)), Arrival::Astray);
        assert_eq!(stream.push(50_001, 320, at(3)), Arrival::InTime);
        assert_eq!(stream.push(50_002, 480, at(4)), Arrival::InTime);
        assert_eq!(counts(&stream)[..2], [6, 1]);
        assert_eq!(stream.pattern(0).packets, 7);
    }

    proptest! {
        #[test]
        fn any_order_is_counted_once(
            first in any::<u16>(),
            packets in prop::collection::vec((0u16..60, 0u64..200), 1..200),
        ) {
            let stream = stream(first, &packets);
            let numbers: std::collections::BTreeSet<u16> = packets.iter().map(|(n, _)| *n).collect();
            let span = u64::from(numbers.last().expect("one") - numbers.first().expect("one")) + 1;
            prop_assert_eq!(stream.received, numbers.len() as u64);
            prop_assert_eq!(stream.expected(), span);
            prop_assert_eq!(stream.duplicates, (packets.len() - numbers.len()) as u64);
            let pattern = stream.pattern(0);
            prop_assert_eq!(pattern.packets, span);
            prop_assert_eq!(pattern.lost, stream.lost() + stream.late);
        }

        #[test]
        fn noise_does_no_harm(packets in prop::collection::vec((any::<u16>(), any::<u32>(), any::<u32>()), 1..300)) {
            let mut stream = Stream::new(1, packets[0].0, packets[0].1, Time(0), BUFFER);
            for (sequence, timestamp, at) in packets {
                stream.push(sequence, timestamp, Time(u64::from(at) * 1_000));
            }
            prop_assert!(stream.received <= stream.expected() + 1);
            prop_assert_eq!(stream.pattern(0).packets, stream.expected());
        }
    }
}
