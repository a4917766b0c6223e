//! Audio of calls whose other side is the test.

use crate::agent::UserAgent;
use crate::agent::tests::{
    begin, bench_of, counter, incoming, one, receive, registered_of, response, sent, value,
};
use crate::media::Media;
use crate::scenario::{Preset, Scenario};
use crate::{DESCRIPTION, Params};
use protocol::media::Channel;
use protocol::meter::Phase;
use protocol::testing::Bench;
use protocol::unit::Interval;
use std::net::SocketAddr;

const MS: u64 = 1_000_000;
const ANSWER: &str =
    "v=0\r\no=- 1 1 IN IP4 10.0.0.9\r\ns=-\r\nc=IN IP4 10.0.0.9\r\nt=0 0\r\nm=audio 6000 RTP/AVP 8\r\n";

fn params(preset: Preset) -> Params {
    let hold = Interval::secs(2);
    Params { scenario: Scenario::Preset(preset), hold, media: Some(Media::default()), ..Params::default() }
}

fn bench(preset: Preset) -> Bench<UserAgent> {
    let mut bench = bench_of(0, params(preset));
    bench.media = Some("10.0.0.1:16384".parse().expect("address"));
    bench
}

/// A response with a session description.
fn with_body(message: &str, body: &str) -> String {
    let more = format!("Content-Type: application/sdp\r\nContent-Length: {}\r\n\r\n{body}", body.len());
    message.replace("Content-Length: 0\r\n\r\n", &more)
}

/// RTP and RTCP that were sent: where from, where to, how long.
fn media(bench: &mut Bench<UserAgent>) -> Vec<(Channel, SocketAddr, Vec<u8>)> {
    let all = bench.out.media.iter().map(|(channel, to, bytes)| (channel, to, bytes.to_vec())).collect();
    bench.out.media.clear();
    all
}

/// Let the call last until `ms`, and send back each RTP packet that was sent, if `echo`.
fn talk(bench: &mut Bench<UserAgent>, ms: u64, echo: bool) -> usize {
    let mut packets = 0;
    while bench.now.0 < ms * MS {
        bench.run_to_ms(bench.now.0 / MS + 10);
        for (channel, to, bytes) in media(bench) {
            if channel == Channel::Rtp {
                packets += 1;
                if echo {
                    bench.media_datagram(Channel::Rtp, to, &bytes);
                }
            }
        }
    }
    packets
}

fn call(answer: &str) -> (Bench<UserAgent>, String) {
    let mut bench = bench(Preset::Call);
    begin(&mut bench);
    let invite = one(&mut bench);
    let contact = "Contact: <sip:b@10.0.0.9>\r\n";
    receive(&mut bench, &with_body(&response(&invite, 200, "b1", contact), answer));
    (bench, invite)
}

#[test]
fn a_call_offers_audio_plays_it_and_hears_the_other_side() {
    let (mut bench, invite) = call(ANSWER);
    assert!(
        invite.contains("m=audio 16384 RTP/AVP 0 8\r\n") && invite.contains("a=ptime:20\r\n"),
        "{invite}"
    );
    assert!(invite.contains("c=IN IP4 10.0.0.1\r\n"), "{invite}");
    let first = media(&mut bench);
    assert_eq!(first.len(), 1);
    assert_eq!((first[0].0, first[0].1), (Channel::Rtp, "10.0.0.9:6000".parse().expect("address")));
    // A-law: what was answered, not what was offered first
    assert_eq!((first[0].2[1] & 0x7f, first[0].2.len()), (8, 172));
    assert!(one(&mut bench).starts_with("ACK "));
    let packets = talk(&mut bench, 1_990, true);
    assert_eq!(packets, 99);
    bench.run_to_ms(2_000);
    let bye = one(&mut bench);
    assert!(bye.starts_with("BYE "), "{bye}");
    receive(&mut bench, &response(&bye, 200, "", ""));
    let counted = ["audio_calls", "audio_judged_calls", "one_way_audio_calls", "audio_refused", "rtp_lost"];
    assert_eq!(counted.map(|name| counter(&bench, name)), [1, 1, 0, 0, 0]);
    let mos = DESCRIPTION.values.iter().position(|one| one.name == "mos").expect("a value");
    let rated = &bench.tally_of(Phase::Measure).values[mos];
    assert_eq!(rated.len(), 1);
    assert!((4_200..4_410).contains(&rated.max()), "{}", rated.max());
}

#[test]
fn a_caller_that_hears_nothing_had_one_way_audio() {
    let (mut bench, _) = call(ANSWER);
    one(&mut bench);
    talk(&mut bench, 1_990, false);
    bench.run_to_ms(2_000);
    // a goodbye goes to the port above that for RTP
    let last = media(&mut bench);
    let bye = one(&mut bench);
    assert!(last.iter().any(|one| one.0 == Channel::Rtcp && one.1.port() == 6001), "{last:?}");
    receive(&mut bench, &response(&bye, 200, "", ""));
    let counted = ["audio_judged_calls", "one_way_audio_calls", "audio_heard_by_none", "rtp_received"];
    assert_eq!(counted.map(|name| counter(&bench, name)), [1, 1, 1, 0]);
    let rated = bench.tally_of(Phase::Measure).values.iter().map(|one| one.len()).sum::<u64>();
    assert_eq!(rated, 0, "what was not heard is not rated");
}

#[test]
fn a_call_that_rings_with_audio_agreed_on_and_is_never_answered_is_not_judged() {
    let takes = ANSWER.replace("AVP 8", "AVP 8 96") + "a=rtpmap:96 telephone-event/8000\r\n";
    for heard in [false, true] {
        let keys = Some("1234567890123456789".into());
        let media = Media { keys, ..Media::default() };
        let mut bench = bench_of(0, Params { media: Some(media), ..params(Preset::Call) });
        bench.media = Some("10.0.0.1:16384".parse().expect("address"));
        begin(&mut bench);
        let invite = one(&mut bench);
        receive(&mut bench, &with_body(&response(&invite, 183, "b1", ""), &takes));
        talk(&mut bench, 3_000, heard);
        receive(&mut bench, &response(&invite, 486, "b1", ""));
        let counted = ["audio_calls", "audio_judged_calls", "one_way_audio_calls", "keys_unsent_calls"];
        assert_eq!(counted.map(|name| counter(&bench, name)), [1, 0, 0, 0], "{heard}");
        let tally = bench.tally_of(Phase::Measure);
        let rated = tally.values.iter().map(|one| one.len()).sum::<u64>();
        assert_eq!((rated, tally.delays[crate::description::delay::FIRST_AUDIO].len()), (0, 0), "{heard}");
    }
}

#[test]
fn the_first_audio_counts_from_the_answer_although_the_call_rang_with_audio_agreed_on() {
    for (rings_with_audio, first) in [(false, 19 * MS..21 * MS), (true, 0..1)] {
        let mut bench = bench(Preset::Call);
        begin(&mut bench);
        let invite = one(&mut bench);
        receive(&mut bench, &with_body(&response(&invite, 183, "b1", ""), ANSWER));
        talk(&mut bench, 3_000, rings_with_audio);
        let contact = "Contact: <sip:b@10.0.0.9>\r\n";
        receive(&mut bench, &with_body(&response(&invite, 200, "b1", contact), ANSWER));
        one(&mut bench);
        talk(&mut bench, 4_990, true);
        bench.run_to_ms(5_000);
        let bye = one(&mut bench);
        receive(&mut bench, &response(&bye, 200, "", ""));
        assert_eq!((counter(&bench, "audio_judged_calls"), counter(&bench, "one_way_audio_calls")), (1, 0));
        let delays = &bench.tally_of(Phase::Measure).delays[crate::description::delay::FIRST_AUDIO];
        assert!(delays.len() == 1 && first.contains(&delays.max()), "{}", delays.max());
    }
}

#[test]
fn an_answer_without_audio_is_a_refusal() {
    for answer in [ANSWER.replace("6000", "0"), ANSWER.replace("AVP 8", "AVP 18"), "v=1\r\n".into()] {
        let (mut bench, _) = call(&answer);
        one(&mut bench);
        assert_eq!(talk(&mut bench, 1_990, false), 0);
        assert_eq!((counter(&bench, "audio_refused"), counter(&bench, "audio_calls")), (1, 0));
    }
}

#[test]
fn a_callee_answers_what_was_offered_and_the_ack_answers_its_own_offer() {
    let mut bench = registered_of(bench(Preset::Answer));
    let offer = ANSWER.replace("AVP 8", "AVP 18 0 8");
    receive(&mut bench, &with_body(&incoming("INVITE", 1, "call-1", "<sip:b@x>"), &offer));
    let answered = sent(&mut bench);
    assert!(answered[1].contains("m=audio 16384 RTP/AVP 0\r\n"), "{answered:?}");
    let to = value(&answered[1], "To").to_owned();
    receive(&mut bench, &incoming("ACK", 1, "call-1", &to));
    assert_eq!(talk(&mut bench, 1_500, true), 75, "the first left with the 200");
    receive(&mut bench, &incoming("BYE", 2, "call-1", &to));
    sent(&mut bench);
    assert_eq!((counter(&bench, "audio_judged_calls"), counter(&bench, "one_way_audio_calls")), (1, 0));
    // an INVITE without an offer: the 200 has it, the ACK answers it
    receive(&mut bench, &incoming("INVITE", 1, "call-2", "<sip:b@x>"));
    let answered = sent(&mut bench);
    assert!(answered[1].contains("m=audio 16384 RTP/AVP 0 8\r\n"), "{answered:?}");
    let to = value(&answered[1], "To").to_owned();
    receive(&mut bench, &with_body(&incoming("ACK", 1, "call-2", &to), ANSWER));
    let first = media(&mut bench);
    assert_eq!(first.len(), 1, "audio begins with the ACK");
    assert_eq!(first[0].2[1] & 0x7f, 8);
}

#[test]
fn keys_are_offered_pressed_and_counted_as_refused_where_they_are_not_taken() {
    let keys = |media: Media| {
        let params = Params { media: Some(media), ..params(Preset::Call) };
        let mut bench = bench_of(0, params);
        bench.media = Some("10.0.0.1:16384".parse().expect("address"));
        begin(&mut bench);
        let invite = one(&mut bench);
        (bench, invite)
    };
    let counted = ["keys_sent", "keys_received", "keys_refused", "keys_unsent_calls", "keys_wrong_calls"];
    let takes = ANSWER.replace("AVP 8", "AVP 8 96") + "a=rtpmap:96 telephone-event/8000\r\n";
    // the keys come back as they were pressed
    for (answer, expected, result) in [
        (ANSWER, None, [0, 0, 1, 0, 0]),
        (takes.as_str(), None, [3, 3, 0, 0, 0]),
        (takes.as_str(), Some("1*a"), [3, 3, 0, 0, 0]),
        (takes.as_str(), Some("12"), [3, 3, 0, 0, 1]),
    ] {
        let expected_keys = expected.map(str::to_owned);
        let (mut bench, invite) = keys(Media { keys: Some("1*A".into()), expected_keys, ..Media::default() });
        assert!(invite.contains("m=audio 16384 RTP/AVP 0 8 101\r\n"), "{invite}");
        assert!(invite.contains("a=rtpmap:101 telephone-event/8000\r\na=fmtp:101 0-15\r\n"), "{invite}");
        let contact = "Contact: <sip:b@10.0.0.9>\r\n";
        receive(&mut bench, &with_body(&response(&invite, 200, "b1", contact), answer));
        one(&mut bench);
        assert_eq!(talk(&mut bench, 1_990, true), 99);
        bench.run_to_ms(2_000);
        let bye = one(&mut bench);
        receive(&mut bench, &response(&bye, 200, "", ""));
        assert_eq!(counted.map(|name| counter(&bench, name)), result, "{expected:?}");
    }
}

/// A call that offers SRTP, and its INVITE.
fn protected_call(answer: impl FnOnce(&str) -> String) -> (Bench<UserAgent>, String) {
    let media = Media { srtp: Some(crate::media::Srtp::default()), ..Media::default() };
    let mut bench = bench_of(0, Params { media: Some(media), ..params(Preset::Call) });
    bench.media = Some("10.0.0.1:16384".parse().expect("address"));
    begin(&mut bench);
    let invite = one(&mut bench);
    let body = answer(&invite);
    receive(&mut bench, &with_body(&response(&invite, 200, "b1", "Contact: <sip:b@10.0.0.9>\r\n"), &body));
    one(&mut bench);
    (bench, invite)
}

fn hang_up(bench: &mut Bench<UserAgent>) {
    bench.run_to_ms(2_000);
    let bye = one(bench);
    receive(bench, &response(&bye, 200, "", ""));
}

#[test]
fn srtp_is_offered_with_a_key_for_each_suite_and_no_plain_answer_is_taken() {
    let (mut bench, invite) = protected_call(|_| ANSWER.into());
    let keys: std::collections::BTreeSet<_> =
        invite.lines().filter_map(|line| line.strip_prefix("a=crypto:")?.split("inline:").nth(1)).collect();
    assert!(invite.contains("m=audio 16384 RTP/SAVP 0 8\r\n") && keys.len() == 6, "{invite}");
    assert_eq!(talk(&mut bench, 1_990, true), 0, "nothing is sent in the clear");
    hang_up(&mut bench);
    let counted = ["audio_refused", "srtp_plain_calls", "srtp_suite_refused", "rtp_sent"];
    assert_eq!(counted.map(|name| counter(&bench, name)), [1, 1, 0, 0]);
}

#[test]
fn a_protected_call_is_heard_and_one_with_another_key_is_not() {
    for (right, counts) in [(true, [1, 0, 0, 0]), (false, [1, 1, 1, 99])] {
        let (mut bench, _) = protected_call(|invite| {
            let line = invite.lines().find(|line| line.starts_with("a=crypto:1 ")).expect("a key");
            // with our own key what is sent back as it came is authentic
            let (start, key) = line.split_once("inline:").expect("a key");
            let key = if right { key.to_owned() } else { "A".repeat(40) };
            let answer = ANSWER.replace("RTP/AVP", "RTP/SAVP");
            format!("{answer}{start}inline:{key}\r\n")
        });
        assert_eq!(talk(&mut bench, 1_990, true), 99);
        hang_up(&mut bench);
        let names =
            ["audio_judged_calls", "one_way_audio_calls", "srtp_wrong_key_calls", "srtp_unauthenticated"];
        assert_eq!(names.map(|name| counter(&bench, name)), counts, "{right}");
    }
}
