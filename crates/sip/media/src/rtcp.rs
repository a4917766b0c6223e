//! RTCP reports (RFC 3550 section 6): sender and receiver reports with SDES, and BYE.

use crate::stream::Stream;
use protocol::time::Time;
use rtcp_types::{
    Bye, Compound, Packet, ReceiverReport, ReportBlock, RtcpPacketWriterExt, Sdes, SdesChunk, SdesItem,
    SenderReport,
};

/// SDES item CNAME.
const CNAME: u8 = 1;
/// Largest report that is written.
const REPORT_MAX: usize = 256;

/// Elapsed time as NTP timestamp: who has no wall clock counts from when it joined (RFC 3550 section 6.4.1).
fn ntp(at: Time) -> u64 {
    let (seconds, rest) = (at.0 / 1_000_000_000, at.0 % 1_000_000_000);
    (seconds << 32) | ((rest << 32) / 1_000_000_000)
}

/// The middle 32 bits of an NTP timestamp.
fn middle(ntp: u64) -> u32 {
    (ntp >> 16) as u32
}

/// What this side has sent, for its sender report.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Sent {
    pub ssrc: u32,
    pub packets: u32,
    pub bytes: u32,
    /// RTP timestamp of now.
    pub timestamp: u32,
}

/// What the last report of the peer says of this side's stream.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PeerReport {
    /// Packets that it lacks, from the beginning.
    pub lost: u32,
    /// Highest number that it received, extended.
    pub highest: u32,
    /// Interarrival jitter there, ns.
    pub jitter: f64,
}

/// Reports of one call, sent and received.
#[derive(Debug, Clone, Default)]
pub struct Reports {
    /// Reports sent.
    pub sent: u32,
    /// Reports that came from the peer.
    pub received: u32,
    /// Datagrams that are no RTCP.
    pub malformed: u32,
    /// What the peer's last report says of our stream; none where it has heard nothing of it.
    pub peer: Option<PeerReport>,
    /// When that report came.
    pub peer_at: Option<Time>,
    /// Shortest round-trip time, ns.
    pub round_trip: Option<u64>,
    /// Whether the peer has said goodbye, and how many packets its last sender report counts.
    pub goodbye: bool,
    /// Packets that the peer has sent, by its last sender report.
    pub peer_sent: Option<u32>,
    /// Middle of the peer's last NTP timestamp, and when that came.
    last: Option<(u32, Time)>,
    /// Fractions: packets expected and received at the last report.
    before: (u64, u64),
    stream: Option<u32>,
}

impl Reports {
    /// Append a compound report: a sender report where this side has sent, else a receiver report; `goodbye` ends the session.
    pub(crate) fn write(
        &mut self,
        sent: Sent,
        heard: Option<&Stream>,
        now: Time,
        goodbye: bool,
        out: &mut Vec<u8>,
    ) {
        let start = out.len();
        out.resize(start + REPORT_MAX, 0);
        let block = heard.map(|stream| self.block(stream, now));
        let name = format!("{:08x}@netdyno", sent.ssrc);
        let mut compound = Compound::builder();
        if sent.packets > 0 {
            let mut report = SenderReport::builder(sent.ssrc)
                .ntp_timestamp(ntp(now))
                .rtp_timestamp(sent.timestamp)
                .packet_count(sent.packets)
                .octet_count(sent.bytes);
            report = block.into_iter().fold(report, |report, block| report.add_report_block(block));
            compound = compound.add_packet(report);
        } else {
            let report = ReceiverReport::builder(sent.ssrc);
            let report = block.into_iter().fold(report, |report, block| report.add_report_block(block));
            compound = compound.add_packet(report);
        }
        let chunk = SdesChunk::builder(sent.ssrc).add_item(SdesItem::builder(CNAME, &name));
        compound = compound.add_packet(Sdes::builder().add_chunk(chunk));
        if goodbye {
            compound = compound.add_packet(Bye::builder().add_source(sent.ssrc));
        }
        // every field is within its bounds: it is written
        let written = compound.write_into(&mut out[start..]).unwrap_or(0);
        out.truncate(start + written);
        self.sent += 1;
    }

    fn block(&mut self, stream: &Stream, now: Time) -> rtcp_types::ReportBlockBuilder {
        if self.stream.replace(stream.ssrc) != Some(stream.ssrc) {
            self.before = (0, 0);
        }
        let (expected, received) = (stream.expected(), stream.received);
        let more = (expected.saturating_sub(self.before.0), received.saturating_sub(self.before.1));
        self.before = (expected, received);
        // appendix A.3
        let fraction = (more.0.saturating_sub(more.1) * 256).checked_div(more.0).unwrap_or(0);
        let (lsr, dlsr) = self.last.map_or((0, 0), |(lsr, at)| (lsr, middle(ntp(Time(now.since(at))))));
        ReportBlock::builder(stream.ssrc)
            .fraction_lost(fraction.min(255) as u8)
            .cumulative_lost(stream.lost().min(0x7f_ffff) as u32)
            .extended_sequence_number(stream.extended_highest())
            .interarrival_jitter((stream.jitter() * f64::from(crate::g711::RATE) / 1e9) as u32)
            .last_sender_report_timestamp(lsr)
            .delay_since_last_sender_report_timestamp(dlsr)
    }

    /// A datagram that arrived at `at`; `ssrc` is our own. False: it is no RTCP.
    pub fn read(&mut self, datagram: &[u8], ssrc: u32, at: Time) -> bool {
        let Ok(compound) = Compound::parse(datagram) else {
            self.malformed += 1;
            return false;
        };
        let mut reports = false;
        for packet in compound {
            match packet {
                // our own, sent back by who reflects all
                Ok(Packet::Sr(report)) if report.ssrc() == ssrc => return true,
                Ok(Packet::Sr(report)) => {
                    self.last = Some((middle(report.ntp_timestamp()), at));
                    self.peer_sent = Some(report.packet_count());
                    self.take(report.report_blocks(), ssrc, at);
                    reports = true;
                }
                Ok(Packet::Rr(report)) if report.ssrc() != ssrc => {
                    self.take(report.report_blocks(), ssrc, at);
                    reports = true;
                }
                Ok(Packet::Bye(_)) => self.goodbye = true,
                Ok(_) => {}
                Err(_) => {
                    self.malformed += 1;
                    break;
                }
            }
        }
        self.received += u32::from(reports);
        true
    }

    fn take<'a>(&mut self, blocks: impl Iterator<Item = ReportBlock<'a>>, ssrc: u32, at: Time) {
        self.peer_at = Some(at);
        for block in blocks.filter(|block| block.ssrc() == ssrc) {
            self.peer = Some(PeerReport {
                lost: block.cumulative_lost(),
                highest: block.extended_sequence_number(),
                jitter: f64::from(block.interarrival_jitter()) * 1e9 / f64::from(crate::g711::RATE),
            });
            let (lsr, dlsr) =
                (block.last_sender_report_timestamp(), block.delay_since_last_sender_report_timestamp());
            if lsr != 0 {
                // section 6.4.1: A − LSR − DLSR, in 1/65,536 s
                let units = middle(ntp(at)).wrapping_sub(lsr).wrapping_sub(dlsr);
                // clocks of two hosts run apart by a little: less than nothing is nothing
                let units = if units > 1 << 31 { 0 } else { u64::from(units) };
                let round_trip = (units * 1_000_000_000) >> 16;
                self.round_trip = Some(self.round_trip.map_or(round_trip, |known| known.min(round_trip)));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::time::Duration;

    const MS: u64 = 1_000_000;

    fn sent(ssrc: u32, packets: u32) -> Sent {
        Sent { ssrc, packets, bytes: packets * 160, timestamp: 160 * packets }
    }

    fn write(reports: &mut Reports, sent: Sent, heard: Option<&Stream>, at: u64, goodbye: bool) -> Vec<u8> {
        let mut out = Vec::new();
        reports.write(sent, heard, Time(at * MS), goodbye, &mut out);
        out
    }

    #[test]
    fn two_sides_measure_their_round_trip_and_what_the_other_lacks() {
        let (mut caller, mut callee) = (Reports::default(), Reports::default());
        let mut heard = Stream::new(1, 65_530, 0, Time(1_000 * MS), Duration::from_millis(60));
        // 10 of 12 packets arrive, and numbers wrap
        for n in [1u16, 2, 3, 5, 6, 7, 9, 10, 11] {
            heard.push(65_530u16.wrapping_add(n), 160 * u32::from(n), Time((1_000 + 20 * u64::from(n)) * MS));
        }
        // the way takes 30 ms each way; the callee's clock counts from another moment
        let report = write(&mut caller, sent(1, 12), None, 2_000, false);
        assert!(callee.read(&report, 2, Time((2_030 - 900) * MS)));
        let answer = write(&mut callee, sent(2, 5), Some(&heard), 2_500 - 900, true);
        assert!(caller.read(&answer, 1, Time(2_530 * MS)));
        let round_trip = caller.round_trip.expect("measured") as f64 / MS as f64;
        assert!((round_trip - 60.0).abs() < 0.1, "{round_trip}");
        let peer = caller.peer.expect("a block");
        assert_eq!((peer.lost, peer.highest), (2, 65_541));
        assert_eq!((caller.peer_sent, caller.goodbye, callee.peer_sent), (Some(5), true, Some(12)));
        assert_eq!(callee.peer, None, "the caller has heard nothing");
    }

    #[test]
    fn who_has_sent_nothing_sends_a_receiver_report() {
        let mut reports = Reports::default();
        let bytes = write(&mut reports, sent(1, 0), None, 100, false);
        assert_eq!(bytes[1], 201);
        let mut peer = Reports::default();
        assert!(peer.read(&bytes, 2, Time(0)));
        assert_eq!((peer.peer_sent, peer.received), (None, 1));
    }

    #[test]
    fn our_own_report_that_comes_back_says_nothing() {
        let mut reports = Reports::default();
        let bytes = write(&mut reports, sent(1, 3), None, 100, false);
        assert!(reports.read(&bytes, 1, Time(200 * MS)));
        assert_eq!((reports.received, reports.peer_sent), (0, None));
    }

    proptest! {
        #[test]
        fn noise_does_no_harm(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let mut reports = Reports::default();
            reports.read(&bytes, 1, Time(1));
        }
    }
}
