//! Receiver of UDP streams: what came of the datagrams that `udp://` groups send, and what did not.
//!
//! Each datagram has its stream, its number and its time ([`packet::signature`]). What clients measure by what comes back is
//! measured here one way, without their help: loss, duplicates and reordering (RFC 4737), and delay variation (RFC 3393).

use crate::share::Share;
use crate::{Counters, DatagramService, Datagrams, Settings};
use hdrhistogram::Histogram;
use packet::signature::{Signature, sequence_near};
use protocol::histogram::{histogram, record};
use protocol::sequence_window::{SequenceClass, SequenceWindow};
use std::collections::{HashMap, VecDeque};
use std::net::{IpAddr, SocketAddr};

/// Numbers back to which a datagram is told from a copy.
const WINDOW: u64 = 1 << 12;
/// Most streams, and senders.
const STREAMS: usize = 1 << 16;
/// Most bytes that wait to be sent back.
const DELAYED: usize = 256 << 20;

/// A receiver.
#[derive(Debug)]
pub struct StreamReceiver {
    sends_back: bool,
    delay: u64,
    drops: Share,
    streams: HashMap<(SocketAddr, u32), Stream>,
    /// The shortest transit time of each sender, on two clocks, ns.
    shortest: HashMap<IpAddr, i64>,
    variation: Histogram<u64>,
    delayed: VecDeque<(u64, SocketAddr, Vec<u8>)>,
    waiting: usize,
    counts: Counts,
}

/// One stream.
#[derive(Debug)]
struct Stream {
    /// Number and time of the datagram that came first.
    first: (u64, u64),
    /// The lowest number that counts.
    from: u64,
    next: u64,
    window: SequenceWindow,
    /// Different datagrams that came.
    distinct: u64,
}

impl Stream {
    /// One that begins with this datagram. The first ones may be lost, but not a whole window of them: a stream that was under way
    /// before counts from here.
    fn new(number: u64, sent_ns: u64) -> Self {
        let from = if number < WINDOW { 0 } else { number };
        Self { first: (number, sent_ns), from, next: from, window: SequenceWindow::new(WINDOW), distinct: 0 }
    }

    fn missing(&self) -> u64 {
        (self.next - self.from).saturating_sub(self.distinct)
    }
}

#[derive(Debug, Default)]
struct Counts {
    received: u64,
    bytes: u64,
    foreign: u64,
    beyond: u64,
    streams: u64,
    /// Of streams that ended.
    lost: u64,
    reordered: u64,
    duplicates: u64,
    too_late: u64,
    sent_back: u64,
    dropped: u64,
}

impl StreamReceiver {
    /// A receiver with these settings.
    pub fn new(settings: &Settings) -> Self {
        Self {
            sends_back: !settings.sink,
            delay: settings.delay_ns,
            drops: Share::new(settings.drop_share, settings.seed.wrapping_add(1)),
            streams: HashMap::new(),
            shortest: HashMap::new(),
            variation: histogram(),
            delayed: VecDeque::new(),
            waiting: 0,
            counts: Counts::default(),
        }
    }

    fn take(&mut self, from: SocketAddr, signature: Signature, now: u64) {
        let key = (from, signature.stream);
        let begun = self.streams.len();
        if begun >= STREAMS && !self.streams.contains_key(&key) {
            self.counts.beyond += 1;
            return;
        }
        let fresh = || Stream::new(signature.sequence, signature.sent_ns);
        let stream = self.streams.entry(key).or_insert_with(fresh);
        let number = sequence_near(stream.next, signature.sequence);
        // the same number with another time: another run from the same port
        if number == stream.first.0 && signature.sent_ns != stream.first.1 {
            self.counts.lost += stream.missing();
            *stream = fresh();
            self.counts.streams += 1;
        }
        match stream.window.arrived(&mut stream.next, number) {
            SequenceClass::InOrder | SequenceClass::Ahead(_) => stream.distinct += 1,
            SequenceClass::Reordered => {
                stream.distinct += 1;
                self.counts.reordered += 1;
            }
            SequenceClass::Duplicate => self.counts.duplicates += 1,
            SequenceClass::TooLate => self.counts.too_late += 1,
        }
        self.counts.streams += (self.streams.len() - begun) as u64;
        let transit = (now as i64).wrapping_sub(signature.sent_ns as i64);
        if self.shortest.len() < STREAMS || self.shortest.contains_key(&from.ip()) {
            let shortest = self.shortest.entry(from.ip()).or_insert(transit);
            *shortest = (*shortest).min(transit);
            record(&mut self.variation, transit.saturating_sub(*shortest).unsigned_abs());
        }
    }
}

impl DatagramService for StreamReceiver {
    fn received(&mut self, from: SocketAddr, bytes: &[u8], out: &mut Datagrams) {
        self.counts.received += 1;
        self.counts.bytes += bytes.len() as u64;
        // of devices it stands at the beginning, of frames at the end
        match Signature::parse(bytes).or_else(|| Signature::find(bytes, bytes.len())) {
            Some(signature) => self.take(from, signature, out.now),
            None => self.counts.foreign += 1,
        }
        if !self.sends_back {
            return;
        }
        if self.drops.draw() || self.waiting + bytes.len() > DELAYED {
            self.counts.dropped += 1;
            return;
        }
        self.counts.sent_back += 1;
        if self.delay == 0 {
            out.send(from, |out| out.extend_from_slice(bytes));
        } else {
            self.waiting += bytes.len();
            self.delayed.push_back((out.now + self.delay, from, bytes.to_vec()));
        }
    }

    fn next_at(&self) -> Option<u64> {
        self.delayed.front().map(|(at, ..)| *at)
    }

    fn advance(&mut self, out: &mut Datagrams) {
        while self.delayed.front().is_some_and(|(at, ..)| *at <= out.now) {
            let Some((_, to, bytes)) = self.delayed.pop_front() else { break };
            self.waiting -= bytes.len();
            out.send(to, |out| out.extend_from_slice(&bytes));
        }
    }

    fn counters(&self) -> Counters {
        let counts = &self.counts;
        let lost = counts.lost + self.streams.values().map(Stream::missing).sum::<u64>();
        let quantile = |at| self.variation.value_at_quantile(at);
        Counters::from([
            ("datagrams_received", counts.received),
            ("bytes_received", counts.bytes),
            ("streams", counts.streams),
            ("datagrams_lost", lost),
            ("datagrams_reordered", counts.reordered),
            ("duplicates", counts.duplicates),
            ("datagrams_too_late", counts.too_late),
            ("datagrams_without_signature", counts.foreign),
            ("datagrams_beyond_streams", counts.beyond),
            ("datagrams_sent_back", counts.sent_back),
            ("unanswered_datagrams", counts.dropped),
            ("delay_variation_p50_ns", quantile(0.5)),
            ("delay_variation_p99_ns", quantile(0.99)),
            ("delay_variation_max_ns", self.variation.max()),
        ])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use packet::signature;

    fn datagram(stream: u32, sequence: u64, sent_ns: u64) -> Vec<u8> {
        let mut bytes = [0; signature::LEN];
        Signature { stream, sequence, sent_ns }.emit(&mut bytes);
        bytes.to_vec()
    }

    fn settings() -> Settings {
        let text = r#"{"protocol": "stream", "listen": "127.0.0.1:0"}"#;
        serde_json::from_str(text).expect("settings")
    }

    fn counted(arrivals: &[(u32, u64, u64, u64)]) -> (Counters, usize) {
        let mut receiver = StreamReceiver::new(&settings());
        let (mut out, mut back) = (Datagrams::default(), 0);
        for (stream, number, sent, now) in arrivals {
            out.now = *now;
            receiver.received(
                "10.0.0.1:9".parse().expect("a peer"),
                &datagram(*stream, *number, *sent),
                &mut out,
            );
            out.drain(|_, _| back += 1);
        }
        (receiver.counters(), back)
    }

    #[test]
    fn loss_copies_and_disorder_are_told_apart() {
        // of stream 1: 0 and 4 are missing, 2 is late, 3 comes twice; of stream 2 the beginning was not seen
        let arrivals = [
            (1, 1, 10, 110),
            (1, 3, 30, 130),
            (1, 2, 20, 131),
            (1, 3, 30, 140),
            (1, 5, 50, 150),
            (2, 9_000, 7, 107),
        ];
        let (counters, back) = counted(&arrivals);
        let of = |name| counters[name];
        assert_eq!((of("datagrams_received"), of("streams")), (6, 2));
        assert_eq!((of("datagrams_lost"), of("datagrams_reordered"), of("duplicates")), (2, 1, 1));
        assert_eq!((of("datagrams_sent_back"), back), (6, 6));
        // datagram 2 took 11 ns longer than the others, and the copy of 3 took 10
        assert_eq!(of("delay_variation_max_ns"), 11);
    }

    #[test]
    fn another_run_from_the_same_port_is_another_stream() {
        let (counters, _) = counted(&[(1, 0, 5, 10), (1, 2, 7, 12), (1, 0, 9, 90), (1, 1, 10, 91)]);
        assert_eq!((counters["streams"], counters["datagrams_lost"], counters["duplicates"]), (2, 1, 0));
    }
}
