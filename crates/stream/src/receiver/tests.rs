use super::*;
use crate::expected::PlainUdp;
use packet::ethernet::{self, kind};
use packet::frame::{Sizes, Written};
use packet::{Flow, Program, checksum, ipv4, ipv6, udp};
use proptest::prelude::*;
use protocol::meter::{Pattern, Tally};

fn measured() -> Measurements {
    let meter = [(); 3].map(|()| Tally::new(1));
    let group = ExpectedGroup { group: 0, streams: 0..2, meter, delay: Some(0), whole: false, plain: None };
    of(group)
}

fn of(group: ExpectedGroup) -> Measurements {
    let window = Window { measure: Time(1_000), drain: Time(1_000_000) };
    Measurements { zero: 500, ..Measurements::new(vec![group], Lane::ALL, true, window) }
}

fn frame(stream: u32, sequence: u64, sent_ns: u64) -> Vec<u8> {
    let flow = Flow {
        source_mac: [2, 0, 0, 0, 0, 1],
        destination_mac: [2, 0, 0, 0, 0, 2],
        source: "10.0.0.1:1".parse().expect("an address"),
        destination: "10.0.0.2:2".parse().expect("an address"),
    };
    let mut frame = vec![0; 60];
    let mut program = Program::udp(&flow, 60).expect("it fits");
    assert_eq!(program.write(&mut frame, 0, &Signature { stream, sequence, sent_ns }), Written::Signed);
    frame
}

#[test]
fn each_datagram_counts_in_the_phase_it_was_meant_for() {
    let mut measured = measured();
    // Run time 999 is still warm-up, 1000 is not.
    for (sequence, sent) in [(0, 1499), (1, 1500)] {
        assert!(matches!(measured.frame(&frame(0, sequence, sent), 2_000_000), Verdict::Done));
    }
    measured.settle();
    let [warmup, measure, drain] = &measured.groups[0].meter;
    assert_eq!((warmup.counts.messages_delivered, measure.counts.messages_delivered), (1, 1));
    assert_eq!(drain.counts, Default::default());
    assert_eq!(measure.delays[0].max() / 1000, (2_000_000 - 1500) / 1000);
    assert_eq!(measure.counts.bytes_received, 18);
}

#[test]
fn loss_order_and_copies_are_told_apart_per_stream() {
    let mut measured = measured();
    for (stream, sequence) in [(0, 0), (1, 0), (0, 2), (0, 1), (0, 1), (1, 1)] {
        measured.frame(&frame(stream, sequence, 5_000), 6_000);
    }
    let tally = &measured.groups[0].meter[Phase::Measure as usize];
    let (counts, reordering) = (tally.counts, tally.reordering().expect("there is some"));
    assert_eq!((reordering.extent.len(), reordering.extent.max(), reordering.by_three), (1, 1, 0));
    assert_eq!((counts.messages_delivered, counts.reordered, counts.duplicates), (5, 1, 1));
    let tallies = [0, 1].map(|stream| measured.streams.summary(stream).expect("it came back"));
    assert_eq!((tallies[0].delivered, tallies[0].reordered, tallies[0].duplicates), (3, 1, 1));
    assert_eq!((tallies[1].delivered, tallies[1].reordered, tallies[1].duplicates), (2, 0, 0));
    assert_eq!((tallies[1].delay_sum, tallies[1].delay_max), (2_000, 1_000));
}

#[test]
fn places_and_losses_are_kept_of_each_stream() {
    let mut measured = measured();
    for (stream, sequence) in [(0, 0), (1, 0), (0, 3), (1, 1), (0, 2), (1, 2), (0, 4)] {
        measured.frame(&frame(stream, sequence, 5_000), 6_000);
    }
    measured.finish();
    measured.finish();
    let order = measured.groups[0].meter[Phase::Measure as usize].reordering().expect("there is some");
    assert_eq!((order.densities.early[0], order.densities.late[0]), (1, 1));
    assert_eq!((order.losses.lengths.len(), order.losses.lost()), (1, 1));
    let patterns = [0, 1].map(|stream| measured.streams.summary(stream).expect("it came back").pattern);
    let one = Pattern { loss_periods: 1, longest_loss: 1, furthest: 1, most_waiting: 3 };
    assert_eq!(patterns, [one, Pattern::default()]);
}

#[test]
fn what_cannot_be_measured_is_named() {
    let mut measured = measured();
    let mut verdict = |frame: &[u8]| match measured.frame(frame, 0) {
        Verdict::Done => "done",
        Verdict::Other => "other",
        Verdict::Bad(reason) => DROPS[reason],
    };
    assert_eq!(verdict(&frame(2, 0, 0)), "unknown_stream");
    let mut flipped = frame(0, 0, 0);
    flipped[50] ^= 4;
    assert_eq!(verdict(&flipped), "bad_checksum");
    flipped = frame(0, 0, 0);
    flipped[42] = 0; // no longer our magic
    flipped[40..42].fill(0);
    assert_eq!(verdict(&flipped), "no_signature");
    assert_eq!(verdict(&frame(0, 0, 0)[..50]), "bad_length");
    assert_eq!(verdict(&[0; 60]), "other");
    // A time from the future is no delay rather than a huge one.
    assert_eq!(verdict(&frame(1, 0, u64::MAX)), "done");
}

#[test]
fn the_ports_word_on_checksums_is_taken() {
    let mut measured = measured();
    let mut wrong = frame(0, 0, 2_000);
    wrong[40] ^= 4;
    let looked = |verdict| matches!(verdict, Verdict::Bad(why) if DROPS[why] == "bad_checksum");
    assert!(looked(measured.checked(&wrong, 3_000, Checked::Unknown)));
    assert!(looked(measured.checked(&frame(0, 0, 2_000), 3_000, Checked::Bad)));
    let counts = |measured: &Measurements| measured.groups[0].meter[Phase::Measure as usize].counts;
    assert_eq!((counts(&measured).corrupted, counts(&measured).messages_delivered), (2, 0));
    assert!(matches!(measured.checked(&wrong, 3_000, Checked::Good), Verdict::Done));
    assert_eq!((counts(&measured).corrupted, counts(&measured).messages_delivered), (2, 1));
    // And on nothing else.
    let odd = measured.checked(&frame(0, 1, 2_000)[..50], 3_000, Checked::Good);
    assert!(matches!(odd, Verdict::Bad(why) if DROPS[why] == "bad_length"));
}

proptest! {
    #[test]
    fn hostile_frames_are_counted_not_believed(
        changes in proptest::collection::vec((0usize..60, any::<u8>()), 0..6),
        cut in 0usize..=60,
    ) {
        let mut measured = measured();
        let mut frame = frame(0, 7, 1_500);
        changes.into_iter().for_each(|(at, value)| frame[at] = value);
        let _any = measured.frame(&frame[..cut], 9_000);
    }
}

/// Two devices of a group send frames of these sizes, which are to come back unless they go one way.
fn plain(v6: bool, sizes: &[usize], echo: bool) -> Measurements {
    let meter = [(); 3].map(|()| Tally::new(1));
    let (headers, sizes) = (if v6 { 62 } else { 42 }, Sizes::Cycle(sizes.to_vec()));
    let Flow { source, destination, .. } = ours(v6, 0);
    let plain = PlainUdp::new((vec![source.ip()], 2), destination, (&sizes, headers), echo);
    of(ExpectedGroup { group: 0, streams: 0..2, meter, delay: Some(0), whole: false, plain: Some(plain) })
}

/// Source and destination of a device's frames.
fn ours(v6: bool, device: u16) -> Flow {
    let ends = |own: [&str; 2]| [own[0].parse().expect("an address"), own[1].parse().expect("an address")];
    let [mut source, destination]: [std::net::SocketAddr; 2] = match v6 {
        false => ends(["10.0.0.1:10000", "10.0.0.2:7"]),
        true => ends(["[2001:db8::1]:10000", "[2001:db8::2]:7"]),
    };
    source.set_port(10_000 + device);
    Flow { source_mac: [2, 0, 0, 0, 0, 1], destination_mac: [2, 0, 0, 0, 0, 2], source, destination }
}

/// Number `sequence` of a device's frames, as it leaves.
fn sent(v6: bool, device: u16, size: usize, sequence: u64) -> Vec<u8> {
    let mut frame = vec![0; size];
    let mut program = Program::udp(&ours(v6, device), size).expect("it fits");
    program.write(&mut frame, 0, &Signature { stream: device.into(), sequence, sent_ns: 5_000 });
    frame
}

/// The same as a host sends it back.
fn echo(v6: bool, device: u16, size: usize, sequence: u64) -> Vec<u8> {
    let mut frame = sent(v6, device, size, sequence);
    swap(&mut frame);
    frame
}

fn swap(frame: &mut [u8]) {
    let layers = Layers::find(frame).expect("headers");
    if layers.is_v6() {
        ipv6::swap(frame, layers.ip)
    } else {
        ipv4::swap(frame, layers.ip)
    }
    udp::swap(frame, layers.l4);
    ethernet::swap(frame);
}

/// The frame with its checksums made anew.
fn summed(mut frame: Vec<u8>) -> Vec<u8> {
    let (ip, l4) = if frame[12..14] == kind::IPV6.to_be_bytes() { (14, 54) } else { (14, 34) };
    if l4 == 34 {
        frame[24..26].fill(0);
        let sum = checksum::of(&frame[ip..l4]);
        frame[24..26].copy_from_slice(&sum.to_be_bytes());
    }
    frame[l4 + 6..l4 + 8].fill(0);
    let layers = Layers::find(&frame).expect("headers");
    let length = u16::from_be_bytes([frame[l4 + 4], frame[l4 + 5]]);
    let pseudo = checksum::pseudo_header(layers.addresses(&frame), UDP, length.into());
    let sum = pseudo.plus(checksum::Sum::ZERO.bytes(&frame[l4..l4 + usize::from(length)])).checksum();
    frame[l4 + 6..l4 + 8].copy_from_slice(&if sum == 0 { 0xffff } else { sum }.to_be_bytes());
    frame
}

fn said(measured: &mut Measurements, frame: &[u8]) -> &'static str {
    match measured.frame(frame, 6_000) {
        Verdict::Done => "done",
        Verdict::Other => "other",
        Verdict::Bad(reason) => DROPS[reason],
    }
}

/// Delivered, corrupted, refused, unreachable.
fn became(measured: &Measurements) -> [u64; 4] {
    let of = |tally: &Tally| {
        let counts = &tally.counts;
        let failed = |why: Failure| counts.failures[why as usize];
        let failed = [failed(Failure::Refused), failed(Failure::Unreachable)];
        [counts.messages_delivered, counts.corrupted, failed[0], failed[1]]
    };
    let phases = measured.groups[0].meter.each_ref().map(of);
    std::array::from_fn(|i| phases.iter().map(|phase| phase[i]).sum())
}

#[test]
fn only_what_the_target_sends_back_to_the_device_is_measured() {
    for v6 in [false, true] {
        let mut measured = plain(v6, &[100], true);
        assert_eq!(said(&mut measured, &echo(v6, 0, 100, 0)), "done");
        assert_eq!(said(&mut measured, &sent(v6, 1, 100, 0)), "done", "a forwarder changes no addresses");
        assert_eq!(became(&measured), [2, 0, 0, 0]);
        let l4 = if v6 { 54 } else { 34 };
        // from and to whom: addresses, and ports
        for at in [l4 - 1, l4 - (if v6 { 17 } else { 5 }), l4 + 1, l4 + 3] {
            let mut other = echo(v6, 0, 100, 1);
            other[at] ^= 8;
            assert_eq!(said(&mut measured, &summed(other)), "other_addresses", "{v6} {at}");
        }
        // the signature of another device
        let mut other = echo(v6, 0, 100, 1);
        let of_other = sent(v6, 1, 100, 1);
        other[82..].copy_from_slice(&of_other[82..]);
        assert_eq!(said(&mut measured, &summed(other)), "other_addresses");
        assert_eq!(became(&measured), [2, 0, 0, 0]);
    }
}

#[test]
fn many_may_answer_who_asks_many() {
    let meter = [(); 3].map(|()| Tally::new(1));
    let everybody = "255.255.255.255:7".parse().expect("an address");
    let sizes = (&Sizes::Cycle(vec![100]), 42);
    let plain = PlainUdp::new((vec![ours(false, 0).source.ip()], 2), everybody, sizes, true);
    let mut measured = of(ExpectedGroup {
        group: 0,
        streams: 0..2,
        meter,
        delay: Some(0),
        whole: false,
        plain: Some(plain),
    });
    assert_eq!(said(&mut measured, &echo(false, 0, 100, 0)), "done");
    let mut other = echo(false, 0, 100, 1);
    other[35] ^= 1;
    assert_eq!(said(&mut measured, &summed(other)), "other_addresses", "from another port");
}

#[test]
fn a_reply_of_another_length_is_corrupted() {
    let longer = |frame: &[u8], more: usize, front: bool| {
        let mut frame = frame.to_vec();
        let at = if front { 42 } else { frame.len() };
        frame.splice(at..at, std::iter::repeat_n(0, more));
        for (at, header) in [(16, 14), (38, 34)] {
            let length = (frame.len() - header) as u16;
            frame[at..at + 2].copy_from_slice(&length.to_be_bytes());
        }
        summed(frame)
    };
    let mut measured = plain(false, &[100, 600], true);
    let whole = echo(false, 0, 100, 0);
    let mut short = whole[..80].to_vec();
    short = longer(&short, 0, false);
    assert_eq!(said(&mut measured, &short), "corrupted", "its end is gone, and with it the signature");
    assert_eq!(said(&mut measured, &longer(&whole, 2, false)), "corrupted");
    assert_eq!(said(&mut measured, &longer(&whole, 2, true)), "corrupted");
    let mut front = whole.clone();
    front.drain(42..44);
    assert_eq!(said(&mut measured, &longer(&front, 0, false)), "corrupted");
    assert_eq!(said(&mut measured, &longer(&whole[..42], 0, false)), "corrupted", "an empty one");
    // a packet with something behind its datagram
    let mut behind = whole.clone();
    behind.extend([0; 4]);
    behind[16..18].copy_from_slice(&90u16.to_be_bytes());
    assert_eq!(said(&mut measured, &summed(behind)), "corrupted");
    assert_eq!(became(&measured), [0, 6, 0, 0]);
    assert_eq!(said(&mut measured, &whole), "done");
    assert_eq!(said(&mut measured, &echo(false, 0, 600, 1)), "done");
    // padding of the frame is not the packet's
    let mut padded = echo(false, 0, 100, 2);
    padded.extend([7; 9]);
    assert_eq!(said(&mut measured, &padded), "done");
}

#[test]
fn one_way_may_come_in_a_tunnel() {
    let mut measured = plain(false, &[100], false);
    let mut tunnel = ethernet_in_udp(&sent(false, 0, 100, 0));
    assert_eq!(said(&mut measured, &tunnel), "done");
    assert_eq!(said(&mut measured, &sent(false, 0, 100, 1)), "done");
    let mut changed = sent(false, 0, 100, 2);
    changed[60] ^= 1;
    assert_eq!(said(&mut measured, &summed(changed)), "corrupted");
    let last = tunnel.len() - 1;
    tunnel[last] ^= 1;
    assert_eq!(said(&mut measured, &summed(tunnel)), "no_signature");
    // but nothing that goes there and back
    let mut strict = plain(false, &[100], true);
    assert_eq!(said(&mut strict, &ethernet_in_udp(&echo(false, 0, 100, 0))), "other_addresses");
}

/// A frame in a datagram between others.
fn ethernet_in_udp(frame: &[u8]) -> Vec<u8> {
    let mut outer = sent(false, 0, 60, 0)[..42].to_vec();
    outer[29] = 9;
    outer[33] = 8;
    outer[36..38].copy_from_slice(&4789u16.to_be_bytes());
    outer[16..18].copy_from_slice(&(28 + frame.len() as u16).to_be_bytes());
    outer[38..40].copy_from_slice(&(8 + frame.len() as u16).to_be_bytes());
    outer.extend_from_slice(frame);
    summed(outer)
}

/// An ICMP error of that type and code from the target, quoting `quoted` from its IP header on.
fn icmp(v6: bool, (kind, code): (u8, u8), quoted: &[u8]) -> Vec<u8> {
    let mut frame = echo(v6, 0, 100, 0);
    let l4 = if v6 { 54 } else { 34 };
    frame.truncate(l4);
    frame.extend([kind, code, 0, 0, 0, 0, 0, 0]);
    frame.extend_from_slice(quoted);
    let length = frame.len() - if v6 { 54 } else { 14 };
    let at = if v6 { 18 } else { 16 };
    frame[at..at + 2].copy_from_slice(&(length as u16).to_be_bytes());
    if v6 {
        frame[20] = ICMPV6;
    } else {
        frame[23] = ICMP;
        frame[24..26].fill(0);
        let sum = checksum::of(&frame[14..34]);
        frame[24..26].copy_from_slice(&sum.to_be_bytes());
    }
    let sum = Layers::find(&frame).expect("headers").checksum(&frame);
    frame[l4 + 2..l4 + 4].copy_from_slice(&sum.to_be_bytes());
    frame
}

#[test]
fn an_icmp_error_is_a_failure_and_its_quotation_no_reply() {
    for v6 in [false, true] {
        let (refused, unreachable) = if v6 { ((1, 4), (1, 0)) } else { ((3, 3), (3, 1)) };
        let advice = if v6 { (137, 0) } else { (5, 0) };
        for tags in [&[][..], &[kind::VLAN], &[kind::QINQ, kind::VLAN]] {
            // with its own layers a group is known by the signature alone, so the quotation must not be taken for it
            for mut measured in [plain(v6, &[100], true), plain(v6, &[100], false), self::measured()] {
                let tagged = |mut frame: Vec<u8>| {
                    for kind in tags.iter().rev() {
                        frame.splice(12..12, [(kind >> 8) as u8, *kind as u8, 0, 5]);
                    }
                    frame
                };
                let quoted = |sequence| sent(v6, 0, 100, sequence).split_off(14);
                let error = |what, sequence| tagged(icmp(v6, what, &quoted(sequence)));
                assert_eq!(said(&mut measured, &error(refused, 0)), "icmp_error");
                assert_eq!(said(&mut measured, &error(unreachable, 1)), "icmp_error");
                assert_eq!(became(&measured), [0, 0, 1, 1], "{v6} {tags:?}");
                assert_eq!(said(&mut measured, &error(unreachable, 1)), "icmp_error");
                assert_eq!(said(&mut measured, &error(advice, 2)), "icmp_error");
                assert_eq!(became(&measured), [0, 0, 1, 1], "once each, and advice is none");
                // What is on its way is measured by its own time, an error by when it comes: 6,000 is in the phase.
                let counts = &measured.groups[0].meter[Phase::Measure as usize].counts;
                assert_eq!(counts.failures[Failure::Refused as usize], 1);
            }
        }
    }
}

#[test]
fn short_and_foreign_quotations_are_told_apart() {
    let packet = |device, sequence| sent(false, device, 100, sequence).split_off(14);
    let mut measured = plain(false, &[100], true);
    // by its ports, as eight bytes are quoted at least
    assert_eq!(said(&mut measured, &icmp(false, (3, 3), &packet(1, 0)[..28])), "icmp_error");
    assert_eq!(became(&measured), [0, 0, 1, 0]);
    for len in 0..24 {
        assert_eq!(said(&mut measured, &icmp(false, (3, 3), &packet(1, 0)[..len])), "icmp_unmatched");
    }
    // from the port of no device, to another port and host, of another protocol; for somebody else
    for at in [20, 23, 19, 9, 15] {
        let mut other = packet(0, 1);
        other[at] ^= 0x40;
        assert_eq!(said(&mut measured, &icmp(false, (3, 3), &other)), "icmp_unmatched", "{at}");
    }
    let mut wrong = icmp(false, (3, 3), &packet(0, 1));
    wrong[50] ^= 1;
    assert_eq!(said(&mut measured, &wrong), "icmp_unmatched", "a wrong checksum");
    let unknown = sent(false, 7, 100, 0).split_off(14);
    assert_eq!(said(&mut measured, &icmp(false, (3, 3), &unknown)), "icmp_unmatched");
    assert_eq!(became(&measured), [0, 0, 1, 0]);
}

proptest! {
    #[test]
    fn no_bit_of_a_reply_can_change_unseen(
        v6: bool, size in 84usize..300, bit: prop::sample::Index, offloaded: bool,
    ) {
        let l4 = if v6 { 62 } else { 42 };
        let mut frame = echo(v6, 1, size, 3);
        let bit = bit.index(8 * (size - l4));
        frame[l4 + bit / 8] ^= 1 << (bit % 8);
        let frame = summed(frame);
        let mut measured = plain(v6, &[size], true);
        let verdict = match offloaded {
            true => measured.checked(&frame, 6_000, Checked::Good),
            false => measured.frame(&frame, 6_000),
        };
        prop_assert!(matches!(verdict, Verdict::Bad(CORRUPTED)));
        prop_assert_eq!(became(&measured), [0, 1, 0, 0]);
        prop_assert_eq!(said(&mut measured, &echo(v6, 1, size, 3)), "done");
    }

    /// The quotation may be of anything, and say anything: it is not delivered.
    #[test]
    fn nothing_that_is_quoted_is_delivered(
        v6: bool, kind: u8, code: u8, cut in 0usize..=86, tag: bool,
        changes in proptest::collection::vec((0usize..86, any::<u8>()), 0..4),
    ) {
        let mut quoted = sent(v6, 0, 100, 0).split_off(14);
        changes.into_iter().for_each(|(at, value)| quoted[at] = value);
        let quotes = if v6 { kind < 128 || kind == 137 } else { matches!(kind, 3 | 4 | 5 | 11 | 12) };
        let mut frame = icmp(v6, (kind, code), &quoted[..cut]);
        if tag {
            frame.splice(12..12, [0x81, 0, 0, 5]);
        }
        for mut measured in [plain(v6, &[100], true), self::measured()] {
            let _counted = said(&mut measured, &frame);
            let of_layers = measured.groups[0].plain.is_none();
            prop_assert!(became(&measured)[0] == 0 || of_layers && !quotes);
        }
    }
}

proptest! {
    #[test]
    fn each_delivered_message_has_a_delay(
        batches in proptest::collection::vec((proptest::collection::vec(0u64..40, 1..32), any::<u64>(), any::<bool>()), 1..20),
    ) {
        let mut measured = measured();
        let mut sums = [(); 3].map(|()| Tally::new(1));
        let mut sequence = 0;
        for (shifts, value, taken) in batches {
            for shift in shifts {
                let delay = (value >> 24) >> shift;
                let now = 2_000 + delay;
                measured.frame(&frame(0, sequence, now - delay), now);
                sequence += 1;
            }
            measured.settle();
            if taken {
                let report = take(&mut measured.groups[0].meter);
                sums.iter_mut().zip(&report).for_each(|(sum, more)| sum.merge(more));
            }
        }
        let report = take(&mut measured.groups[0].meter);
        sums.iter_mut().zip(&report).for_each(|(sum, more)| sum.merge(more));
        for sum in &sums {
            prop_assert_eq!(sum.delays[0].len(), sum.counts.messages_delivered);
        }
    }
}
