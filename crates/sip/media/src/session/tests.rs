use super::*;
use crate::e_model::{self, Impairments};

const MS: u64 = 1_000_000;

fn address(port: u16) -> SocketAddr {
    SocketAddr::from(([192, 0, 2, 1], port))
}

fn config(mode: Mode) -> Arc<Config> {
    Arc::new(Config {
        clip: Clip::tone(1000, -10.0),
        mode,
        buffer: Duration::from_millis(60),
        concealment: false,
        reports: Some(Duration::from_secs(5)),
        keys: Vec::new(),
        srtp: false,
    })
}

/// A way from one side to the other.
#[derive(Clone, Copy)]
struct Way {
    delay: u64,
    /// Every so many-th RTP packet is lost; 0: none, 1: all.
    loss: u64,
}

struct Call {
    sides: [Session; 2],
    ways: [Way; 2],
    now: Time,
    /// What is on its way: when it comes, to whom, and what.
    flight: Vec<(Time, usize, Channel, Vec<u8>)>,
    counts: [u64; 2],
}

impl Call {
    fn new(modes: [Mode; 2], ways: [Way; 2]) -> Self {
        let side = |n: usize| {
            let mut session = Session::new(config(modes[n]), 77 + n as u64, None);
            let (send, receive) = modes[n].directions();
            let (speaks, hears) = modes[1 - n].directions();
            let (rtp, rtcp) = (address(4000 + n as u16), address(5000));
            let (law, payload_type, ptime) = (Law::Mu, 0, PTIME);
            let agreed = Agreed {
                rtp,
                rtcp,
                law,
                payload_type,
                events: None,
                ptime,
                send: send && hears,
                receive: receive && speaks,
            };
            session.agree(agreed, None, Time(0));
            session.answer(Time(0));
            session.begin(Time(0));
            session
        };
        Self { sides: [side(0), side(1)], ways, now: Time(0), flight: Vec::new(), counts: [0; 2] }
    }

    fn deliver(&mut self, from: usize, outbox: &MediaOutbox) {
        let way = self.ways[from];
        for (channel, _, bytes) in outbox.iter() {
            if channel == Channel::Rtp {
                self.counts[from] += 1;
                if way.loss > 0 && self.counts[from].is_multiple_of(way.loss) {
                    continue;
                }
            }
            self.flight.push((Time(self.now.0 + way.delay * MS), 1 - from, channel, bytes.to_vec()));
        }
    }

    /// Let time pass in steps of a millisecond.
    fn run(&mut self, until: u64) {
        while self.now.0 < until * MS {
            self.now.0 += MS;
            let (due, later) =
                std::mem::take(&mut self.flight).into_iter().partition(|one| one.0 <= self.now);
            self.flight = later;
            for (at, to, channel, bytes) in Vec::<(Time, usize, Channel, Vec<u8>)>::from_iter(due) {
                let mut out = MediaOutbox::default();
                let from = address(4000 + to as u16);
                self.sides[to].receive(&MediaPacket { channel, from, at, bytes: &bytes }, &mut out);
                self.deliver(to, &out);
            }
            for n in 0..2 {
                let mut out = MediaOutbox::default();
                if self.sides[n].due() <= self.now {
                    self.sides[n].send(self.now, &mut out, |_| panic!("nothing is late"));
                }
                self.deliver(n, &out);
            }
        }
    }

    /// Side 0 puts the call on hold, or goes on with it.
    fn hold(&mut self, held: bool) {
        let [holds, is_held] = self.sides.each_ref().map(|side| side.agreed.expect("agreed"));
        self.sides[0].agree(Agreed { receive: !held, ..holds }, None, self.now);
        self.sides[1].agree(Agreed { send: !held, ..is_held }, None, self.now);
    }

    /// What side 0 heard if it hangs up now and hears nothing any more.
    fn cut_off(&mut self) -> Summary {
        self.sides[0].end(self.now, true, &mut MediaOutbox::default());
        self.sides[0].summary(self.now).expect("audio")
    }

    /// Side 0 hangs up; the other hears of it as long after as its way takes.
    fn hang_up(&mut self) -> [Summary; 2] {
        for n in 0..2 {
            let mut out = MediaOutbox::default();
            self.sides[n].end(self.now, n == 0, &mut out);
            self.deliver(n, &out);
            let later = self.now.0 / MS + self.ways[0].delay + self.ways[1].delay + 2;
            if n == 0 {
                self.run(self.now.0 / MS + self.ways[0].delay);
            } else {
                self.run(later);
            }
        }
        [0, 1].map(|n: usize| self.sides[n].summary(self.now).expect("audio"))
    }
}

const CLEAR: Way = Way { delay: 30, loss: 0 };

#[test]
fn a_clear_call_is_heard_by_both() {
    let mut call = Call::new([Mode::SendReceive; 2], [CLEAR; 2]);
    call.run(10_000);
    for side in call.hang_up() {
        assert!(side.heard && side.judged && !side.silent, "{side:?}");
        assert_eq!((side.lost, side.late, side.reordered, side.duplicated), (0, 0, 0, 0), "{side:?}");
        assert_eq!(side.peer, PeerView::Heard);
        let round_trip = side.round_trip.expect("measured") as f64 / MS as f64;
        assert!((round_trip - 60.0).abs() < 1.1, "{round_trip}");
        let quality = side.quality.expect("measured");
        assert!((quality.listening - 93.2).abs() < 0.1, "{quality:?}");
        // 30 ms of the way, 20 of the packet, 60 of the buffer
        let expected = e_model::rating(&Impairments { delay: 110.0, ..Impairments::default() });
        assert!((quality.conversational.expect("measured") - expected).abs() < 0.1, "{quality:?}");
        assert!(side.sent >= 500 && side.received >= 499, "{side:?}");
    }
}

#[test]
fn one_way_audio_is_seen_by_both_sides() {
    let mut call = Call::new([Mode::SendReceive; 2], [CLEAR, Way { delay: 30, loss: 1 }]);
    call.run(10_000);
    let [caller, callee] = call.hang_up();
    assert!(!caller.heard && caller.peer == PeerView::Heard, "{caller:?}");
    assert!(callee.heard && callee.peer == PeerView::Unheard, "{callee:?}");
    assert_eq!(caller.quality, None, "nothing was measured");
    assert_eq!((caller.jitter, caller.first_audio), (None, None));
}

#[test]
fn a_call_of_under_a_second_is_not_judged() {
    let mut call = Call::new([Mode::SendReceive; 2], [CLEAR, Way { delay: 30, loss: 1 }]);
    call.run(900);
    let [caller, _] = call.hang_up();
    assert!(!caller.judged && !caller.heard);
}

#[test]
fn loss_gives_the_rating_of_the_formula() {
    let mut call = Call::new([Mode::SendReceive; 2], [CLEAR, Way { delay: 30, loss: 20 }]);
    call.run(60_000);
    let [caller, callee] = call.hang_up();
    assert_eq!(callee.lost, 0);
    assert!((caller.pattern.percent() - 5.0).abs() < 0.1, "{caller:?}");
    let expected = e_model::rating(&Impairments { loss: caller.pattern.percent(), ..Impairments::default() });
    assert!((caller.quality.expect("measured").listening - expected).abs() < 1e-9);
}

#[test]
fn audio_that_stops_in_the_middle_is_lost() {
    let mut call = Call::new([Mode::SendReceive; 2], [CLEAR; 2]);
    call.run(5_000);
    call.ways[1].loss = 1;
    call.run(10_000);
    let [caller, _] = call.hang_up();
    assert!((240..=260).contains(&caller.lost), "{}", caller.lost);
    assert!((caller.pattern.percent() - 50.0).abs() < 2.0);
}

#[test]
fn the_time_on_hold_is_neither_late_nor_lost() {
    let mut call = Call::new([Mode::SendReceive; 2], [CLEAR; 2]);
    call.run(3_000);
    call.hold(true);
    call.run(6_000);
    call.hold(false);
    call.run(9_000);
    for side in call.hang_up() {
        assert_eq!((side.lost, side.late, side.pattern.lost), (0, 0, 0), "{side:?}");
        assert!(side.jitter.is_some_and(|jitter| jitter < 1e6), "{side:?}");
        assert!(side.quality.is_some_and(|quality| quality.listening > 93.0), "{side:?}");
    }
}

#[test]
fn silence_counts_from_when_the_other_side_was_to_speak() {
    // hung up on hold, at once when it was over, and a second later without a packet since
    for (after, lost) in [(None, 0..=0), (Some(20), 0..=0), (Some(1_000), 45..=50)] {
        let mut call = Call::new([Mode::SendReceive; 2], [CLEAR; 2]);
        call.run(3_000);
        call.hold(true);
        call.run(6_000);
        if let Some(after) = after {
            call.ways[1].loss = 1;
            call.hold(false);
            call.run(6_000 + after);
        }
        let summary = call.cut_off();
        assert!(lost.contains(&summary.lost), "{after:?}: {summary:?}");
    }
}

#[test]
fn the_timestamp_goes_on_while_the_call_is_on_hold() {
    let mut session = Session::new(config(Mode::SendReceive), 5, None);
    let (law, payload_type, ptime) = (Law::A, 8, PTIME);
    let (rtp, rtcp) = (address(1), address(2));
    let agreed = Agreed { rtp, rtcp, law, payload_type, events: None, ptime, send: true, receive: true };
    session.agree(agreed, None, Time(0));
    session.begin(Time(0));
    let sent = |session: &mut Session, ms: u64| {
        let mut out = MediaOutbox::default();
        session.send(Time(ms * MS), &mut out, |_| {});
        let packets = out.iter().filter(|one| one.0 == Channel::Rtp).map(|(_, _, bytes)| {
            let rtp = RtpPacket::parse(bytes).expect("RTP");
            (rtp.sequence_number(), rtp.timestamp())
        });
        packets.collect::<Vec<_>>()
    };
    let first = sent(&mut session, 0)[0];
    let behind =
        |(number, timestamp): (u16, u32)| (number.wrapping_sub(first.0), timestamp.wrapping_sub(first.1));
    session.agree(Agreed { send: false, ..agreed }, None, Time(10 * MS));
    assert!(sent(&mut session, 2_000).is_empty());
    // resumed before the next packet is due, none is sent early
    session.agree(agreed, None, Time(15 * MS));
    assert!(sent(&mut session, 15).is_empty());
    assert_eq!(sent(&mut session, 20).into_iter().map(behind).collect::<Vec<_>>(), [(1, 160)]);
    session.agree(Agreed { send: false, ..agreed }, None, Time(30 * MS));
    session.agree(agreed, None, Time(3_030 * MS));
    assert_eq!(sent(&mut session, 3_030).into_iter().map(behind).collect::<Vec<_>>(), [(2, 3_030 * 8)]);
}

#[test]
fn audio_counts_from_the_answer_and_a_call_without_one_is_not_judged() {
    // audio before the answer, behind it, and none
    for (heard, first) in [(Some(2_000), Some(0)), (Some(5_020), Some(20 * MS)), (None, None)] {
        for answered in [true, false] {
            let mut session = Session::new(config(Mode::SendReceive), 5, None);
            let (law, payload_type, ptime) = (Law::Mu, 0, PTIME);
            let (rtp, rtcp) = (address(1), address(2));
            let agreed =
                Agreed { rtp, rtcp, law, payload_type, events: None, ptime, send: true, receive: true };
            session.agree(agreed, None, Time(0));
            session.begin(Time(0));
            let mut hear = |at: u64, number: u16| {
                let audio = RtpPacketBuilder::<&[u8], &[u8]>::new()
                    .ssrc(7)
                    .sequence_number(number)
                    .payload_type(0)
                    .payload(&[0; 160]);
                let bytes = audio.write_vec().expect("a packet");
                let packet =
                    MediaPacket { channel: Channel::Rtp, from: rtp, at: Time(at * MS), bytes: &bytes };
                session.receive(&packet, &mut MediaOutbox::default());
            };
            if let Some(at) = heard {
                hear(at, 1);
                hear(at + 20, 2);
            }
            if answered {
                session.answer(Time(5_000 * MS));
                // a further answer is that to a re-INVITE
                session.answer(Time(5_500 * MS));
            }
            let judged = |ms: u64| session.summary(Time(ms * MS)).is_some_and(|audio| audio.judged);
            let early = heard == Some(2_000);
            assert_eq!((judged(5_900), judged(6_000)), (answered && early, answered), "{heard:?}");
            let audio = session.summary(Time(6_000 * MS)).expect("audio");
            assert_eq!(
                (audio.answered, audio.first_audio),
                (answered, first.filter(|_| answered)),
                "{heard:?}"
            );
        }
    }
}

#[test]
fn an_echo_sends_back_what_it_hears() {
    let mut call = Call::new([Mode::SendReceive, Mode::Echo], [CLEAR; 2]);
    call.run(3_000);
    let [caller, callee] = call.hang_up();
    assert!(caller.heard && callee.heard && !caller.silent);
    assert_eq!((callee.sent, caller.lost), (callee.received, 0));
    assert!(caller.received >= 145, "{caller:?}");
}

#[test]
fn packets_that_come_back_as_they_were_give_the_round_trip() {
    let mut session = Session::new(config(Mode::SendReceive), 5, None);
    let (law, payload_type, ptime) = (Law::A, 8, PTIME);
    let (rtp, rtcp) = (address(1), address(2));
    let agreed = Agreed { rtp, rtcp, law, payload_type, events: None, ptime, send: true, receive: true };
    session.agree(agreed, None, Time(0));
    session.begin(Time(0));
    for n in 0..100u64 {
        let mut out = MediaOutbox::default();
        session.send(Time(n * 20 * MS), &mut out, |_| {});
        let mut back = MediaOutbox::default();
        for (channel, from, bytes) in out.iter().filter(|one| one.0 == Channel::Rtp) {
            assert_eq!(bytes.len(), 12 + 160);
            let at = Time((n * 20 + 7) * MS);
            session.receive(&MediaPacket { channel, from, at, bytes }, &mut back);
        }
    }
    let mut out = MediaOutbox::default();
    session.end(Time(2_000 * MS), true, &mut out);
    let summary = session.summary(Time(2_000 * MS)).expect("audio");
    assert_eq!((summary.round_trip, summary.peer), (Some(7 * MS), PeerView::Heard));
}

#[test]
fn a_late_generator_catches_up_and_gives_up_what_is_too_old() {
    let mut session = Session::new(config(Mode::SendReceive), 5, None);
    let (law, payload_type, ptime) = (Law::A, 8, PTIME);
    let (rtp, rtcp) = (address(1), address(2));
    let agreed = Agreed { rtp, rtcp, law, payload_type, events: None, ptime, send: true, receive: true };
    session.agree(agreed, None, Time(0));
    session.begin(Time(0));
    let mut out = MediaOutbox::default();
    let mut late = Vec::new();
    session.send(Time(100 * MS), &mut out, |due| late.push(due.0 / MS));
    assert_eq!(late, [20, 40, 60, 80, 100]);
    session.send(Time(2_100 * MS), &mut out, |_| {});
    let summary = session.summary(Time(2_100 * MS)).expect("audio");
    assert_eq!((summary.sent, summary.skipped), (6 + 25, 75));
}

#[test]
fn the_last_packets_of_the_call_before_and_noise_are_not_heard() {
    let mut session = Session::new(config(Mode::SendReceive), 5, Some(99));
    let (law, payload_type, ptime) = (Law::Mu, 0, PTIME);
    let (rtp, rtcp) = (address(1), address(2));
    let agreed = Agreed { rtp, rtcp, law, payload_type, events: None, ptime, send: true, receive: true };
    session.agree(agreed, None, Time(0));
    session.begin(Time(0));
    let mut out = MediaOutbox::default();
    let mut hear = |bytes: &[u8], n: u64| {
        let packet = MediaPacket { channel: Channel::Rtp, from: address(1), at: Time(n * 20 * MS), bytes };
        session.receive(&packet, &mut out);
    };
    for n in 0..5u16 {
        let old = RtpPacketBuilder::<&[u8], &[u8]>::new()
            .ssrc(99)
            .sequence_number(n)
            .payload_type(0)
            .payload(&[0; 160]);
        hear(&old.write_vec().expect("a packet"), n.into());
        hear(b"no RTP", n.into());
        // another codec than was agreed on
        let other = RtpPacketBuilder::<&[u8], &[u8]>::new()
            .ssrc(7)
            .sequence_number(n)
            .payload_type(18)
            .payload(&[0; 20]);
        hear(&other.write_vec().expect("a packet"), n.into());
    }
    let summary = session.summary(Time(2_000 * MS)).expect("audio");
    assert_eq!((summary.unrelated, summary.received, summary.heard), (10, 5, false));
    assert_eq!(summary.quality, None);
}

#[test]
fn keys_are_heard_through_loss_and_do_not_count_as_jitter() {
    for loss in [0, 3] {
        let mut call =
            Call::new([Mode::SendReceive; 2], [Way { delay: 10, loss }, Way { delay: 10, loss: 0 }]);
        for side in &mut call.sides {
            let agreed = Agreed { events: Some(101), ..side.agreed.expect("an agreement") };
            side.agree(agreed, None, Time(0));
        }
        let pressing = Config { keys: vec![1, 1, 11, 13], ..(*config(Mode::SendReceive)).clone() };
        call.sides[0].config = Arc::new(pressing);
        call.run(3_000);
        let [caller, callee] = call.sides.each_ref().map(|side| side.summary(call.now).expect("audio"));
        assert_eq!((caller.pressed, callee.keys.as_slice()), (4, &b"11#B"[..]), "{loss}");
        assert!(callee.takes_keys && callee.heard && caller.keys.is_empty());
        assert_eq!((callee.late, callee.jitter.map(|jitter| jitter < 1e6)), (0, Some(true)), "{loss}");
        assert!(loss > 0 || callee.lost == 0);
    }
}

/// A protected call of six seconds; the second side has keys of its own.
fn protected(second: crate::srtp::Keys, early: bool) -> [Summary; 2] {
    use crate::srtp::{Keys as SrtpKeys, Suite};
    let suite = Suite::Aes128Sha80;
    let first = SrtpKeys { suite, local: vec![1; 30], remote: vec![2; 30] };
    let mut call = Call::new([Mode::SendReceive; 2], [Way { delay: 5, loss: 0 }; 2]);
    for (side, keys) in call.sides.iter_mut().zip([first, second]) {
        let config = Config { srtp: true, ..(*side.config).clone() };
        let agreed = side.agreed.expect("agreed");
        *side = Session::new(Arc::new(config), keys.local[0].into(), None);
        if early {
            let mut out = MediaOutbox::default();
            let packet =
                MediaPacket { channel: Channel::Rtp, from: address(1), at: Time(0), bytes: &[0x80; 50] };
            side.receive(&packet, &mut out);
        }
        side.agree(agreed, Some(keys), Time(0));
        side.begin(Time(0));
    }
    call.run(6_000);
    let mut out = MediaOutbox::default();
    call.sides.each_mut().map(|side| {
        side.end(call.now, true, &mut out);
        side.summary(call.now).expect("audio")
    })
}

fn keys_of(local: u8, remote: u8) -> crate::srtp::Keys {
    let suite = crate::srtp::Suite::Aes128Sha80;
    crate::srtp::Keys { suite, local: vec![local; 30], remote: vec![remote; 30] }
}

#[test]
fn a_protected_call_is_heard_and_its_reports_are_read() {
    for audio in protected(keys_of(2, 1), true) {
        assert!(audio.heard && audio.peer == PeerView::Heard && audio.lost == 0, "{audio:?}");
        assert!(audio.reports.1 > 0 && audio.round_trip.is_some() && !audio.wrong_key);
        assert_eq!((audio.refused.unauthenticated, audio.refused.replayed, audio.refused.early), (0, 0, 1));
    }
}

#[test]
fn a_side_with_another_key_is_not_heard_and_named() {
    let [caller, callee] = protected(keys_of(3, 1), false);
    assert!(!caller.heard && caller.wrong_key && caller.refused.unauthenticated > 90, "{caller:?}");
    assert!(callee.heard && !callee.wrong_key && callee.refused.unauthenticated == 0, "{callee:?}");
}
