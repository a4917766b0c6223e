use super::*;
use nat_core::config::SECOND;
use nat_core::testing::{NOW, config, inside};
use nat_core::{Endpoint, Frame, Verdict};
use nat_pcp::testing::{Ask, filter, option, prefer_failure, third_party};
use nat_pcp::{Nonce, ResultCode};
use packet::Parsed;
use packet::frame::{Flow, Program};
use packet::signature::Signature;
use proptest::prelude::*;

const OWN: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 254);
const NONE: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, 0);
const STRANGER: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::new(198, 51, 100, 66), 7000);
const TAGS: Realm = 7 << 12 | 9;

struct Box {
    nat: Nat,
    answers: Answers,
    now: u64,
}

/// What a client reads in an answer.
#[derive(Debug, PartialEq, Eq)]
struct Answered {
    code: u8,
    lifetime_s: u32,
    epoch: u32,
    outside: Option<SocketAddrV4>,
}

impl Box {
    fn new(options: &str) -> Self {
        let options: PcpOptions = serde_json::from_str(options).unwrap();
        assert!(options.check().is_empty());
        let mut config = config();
        config.filtering.udp = nat_core::config::Filtering::AddressAndPortDependent;
        let answers = Answers::new(&options, OWN, &Tags::NONE, true);
        Self { nat: Nat::new(config).unwrap(), answers, now: NOW }
    }

    /// A datagram of a subscriber, and the answer as it goes out.
    fn asked(&mut self, from: SocketAddrV4, realm: Realm, datagram: &[u8]) -> Option<Vec<u8>> {
        let head = head(from, SocketAddrV4::new(OWN, SERVER_PORT), datagram);
        let frame = [&[2; 12], &[8, 0][..], &head, datagram].concat();
        let headers = Headers { realm, ..Headers::of(&frame).unwrap() };
        assert!(self.answers.is_request(&headers));
        self.answers.answer(&mut self.nat, &frame, &headers, 5, self.now);
        let (forward, packet) = self.nat.pop_output()?;
        assert_eq!(forward, Forward { to: Side::Inside, hop: 5, realm });
        let frame = [&[2; 12], &[8, 0][..], packet].concat();
        let headers = Headers::of(&frame).unwrap();
        assert!(Parsed::of(&frame).unwrap().is_intact(&frame), "checksums");
        let end = |end: Endpoint| SocketAddrV4::new(Ipv4Addr::from_bits(end.address), end.port);
        assert_eq!((end(headers.source()), end(headers.destination())), (SocketAddrV4::new(OWN, 5351), from));
        Some(packet[28..].to_vec())
    }

    fn told(&mut self, ask: &Ask, options: &[Vec<u8>]) -> Answered {
        let from = SocketAddrV4::new(ask.client, 40_000);
        let answer = self.asked(from, TAGS, &ask.bytes(options)).unwrap();
        let word = |at: usize| u32::from_be_bytes(answer[at..at + 4].try_into().unwrap());
        let outside = (answer[3] == 0 && answer.len() >= 60).then(|| {
            let port = u16::from_be_bytes(answer[42..44].try_into().unwrap());
            SocketAddrV4::new(Ipv4Addr::from_bits(word(56)), port)
        });
        Answered { code: answer[3], lifetime_s: word(4), epoch: word(8), outside }
    }

    fn wait(&mut self, seconds: u64) {
        for _ in 0..seconds {
            self.now += SECOND;
            while self.nat.advance(self.now, 1_000) {}
        }
    }

    fn lets_in(&mut self, from: SocketAddrV4, to: SocketAddrV4) -> bool {
        let flow =
            Flow { source_mac: [2; 6], destination_mac: [4; 6], source: from.into(), destination: to.into() };
        let (mut bytes, mark) = (vec![0; 80], Signature { stream: 1, sequence: 2, sent_ns: 3 });
        let _written = Program::udp(&flow, 80).unwrap().write(&mut bytes, 0, &mark);
        let mut frames = [Frame::new(&mut bytes)];
        self.nat.process(Side::Outside, &mut frames, self.now);
        matches!(frames[0].verdict, Verdict::Forward(_))
    }
}

fn map(last: u8, port: u16, lifetime_s: u32, nonce: u8) -> Ask {
    let (client, nonce) = (*inside(last, port).ip(), [nonce; 12]);
    Ask { opcode: 1, lifetime_s, client, nonce, protocol: 17, port, external: NONE, remote: NONE }
}

#[test]
fn a_stranger_gets_in_for_as_long_as_the_mapping_lives() {
    let mut box_ = Box::new("{}");
    let told = box_.told(&map(1, 5000, 600, 1), &[]);
    let outside = told.outside.unwrap();
    assert_eq!(told, Answered { code: 0, lifetime_s: 600, epoch: 0, outside: Some(outside) });
    assert!(box_.lets_in(STRANGER, outside));
    // It lives on when it is asked for again, and goes when it is given up.
    box_.wait(400);
    let again = box_.told(&map(1, 5000, 600, 1), &[]);
    assert_eq!(again, Answered { code: 0, lifetime_s: 600, epoch: 400, outside: Some(outside) });
    box_.wait(400);
    assert!(box_.lets_in(STRANGER, outside));
    assert_eq!(box_.told(&map(1, 5000, 0, 1), &[]).code, 0);
    assert!(!box_.lets_in(SocketAddrV4::new(*STRANGER.ip(), 7001), outside));
    // Or by itself.
    let outside = box_.told(&map(1, 5001, 120, 1), &[]).outside.unwrap();
    box_.wait(119);
    assert!(box_.lets_in(STRANGER, outside));
    box_.wait(1_000);
    assert!(!box_.lets_in(STRANGER, outside));
    assert_eq!(box_.nat.sessions().count(), 0);
}

#[test]
fn what_is_not_granted_is_told_why() {
    let mut box_ = Box::new(r#"{"mappings_per_subscriber": 2, "lifetime": {"least": "10s", "most": "1h"}}"#);
    let code = |told: Answered| ResultCode::NAMES[usize::from(told.code)];
    let first = box_.told(&map(1, 5000, u32::MAX, 1), &[]);
    assert_eq!((first.code, first.lifetime_s), (0, 3_600));
    assert_eq!(box_.told(&map(1, 5001, 1, 1), &[]).lifetime_s, 10);
    // Another's nonce, and one more than there may be; neither hinders another subscriber.
    assert_eq!(code(box_.told(&map(1, 5000, 600, 2), &[])), "NOT_AUTHORIZED");
    assert_eq!(code(box_.told(&map(1, 5000, 0, 2), &[])), "NOT_AUTHORIZED");
    assert_eq!(code(box_.told(&map(1, 5002, 600, 1), &[])), "USER_EX_QUOTA");
    assert_eq!(code(box_.told(&map(2, 5000, 600, 2), &[])), "SUCCESS");
    // A port that somebody has.
    let taken = first.outside.unwrap();
    let wish = Ask { external: taken, ..map(2, 5001, 600, 2) };
    assert_eq!(code(box_.told(&wish, &[prefer_failure()])), "CANNOT_PROVIDE_EXTERNAL");
    assert_ne!(box_.told(&wish, &[]).outside, Some(taken));
    for (ask, options, why) in [
        (map(3, 5000, 600, 1), vec![third_party(Ipv4Addr::new(10, 0, 0, 1))], "UNSUPP_OPTION"),
        (map(3, 0, 600, 1), vec![], "NOT_AUTHORIZED"),
        (Ask { protocol: 132, ..map(3, 5000, 600, 1) }, vec![], "UNSUPP_PROTOCOL"),
        (Ask { opcode: 3, ..map(3, 5000, 600, 1) }, vec![], "UNSUPP_OPCODE"),
        (map(3, 5000, 600, 1), vec![option(2, &[1])], "MALFORMED_OPTION"),
        (map(3, 5000, 600, 1), vec![vec![3, 0, 0, 200]], "MALFORMED_OPTION"),
        (map(3, 5000, 600, 1), vec![filter(127, 0, OWN.to_ipv6_mapped()); 9], "EXCESSIVE_REMOTE_PEERS"),
        (Ask { client: Ipv4Addr::new(192, 0, 2, 7), ..map(3, 1, 600, 1) }, vec![], "NOT_AUTHORIZED"),
    ] {
        assert_eq!(code(box_.told(&ask, &options)), why, "{ask:?}");
    }
    assert_eq!(box_.nat.explicit_count(map(3, 1, 1, 1).client.to_bits(), TAGS), 0);
    // A NAT between client and box, a datagram that is too short, one of NAT-PMP, an answer, and nothing.
    let other = map(4, 5000, 600, 1).bytes(&[]);
    let from = inside(3, 40_000);
    let mut result = |datagram: &[u8]| box_.asked(from, TAGS, datagram).map(|answer| answer[..4].to_vec());
    assert_eq!(result(&other), Some(vec![2, 0x81, 0, ResultCode::AddressMismatch as u8]));
    assert_eq!(result(&other[..58]), Some(vec![2, 0x81, 0, ResultCode::MalformedRequest as u8]));
    assert_eq!(result(&[0, 0]), Some(vec![2, 0x80, 0, ResultCode::UnsuppVersion as u8]));
    assert_eq!(result(&[2, 0x81, 0, 0]), None);
    assert_eq!(result(&[]), None);
    assert_eq!(box_.answers.unanswered(), (2, 0));
    assert_eq!(box_.answers.results()["UNSUPP_VERSION"], 1);
}

#[test]
fn tags_tell_subscribers_apart() {
    let mut box_ = Box::new("{}");
    let ask = map(1, 5000, 600, 1).bytes(&[]);
    let (a, b) =
        (box_.asked(inside(1, 4000), 0, &ask).unwrap(), box_.asked(inside(1, 4000), TAGS, &ask).unwrap());
    assert_ne!(a[42..60], b[42..60], "each has an endpoint of its own");
    assert_eq!(box_.nat.sessions().count(), 2);
}

#[test]
fn static_forwards_are_told_and_stay() {
    let mut config = config();
    config.static_forwards = vec![nat_core::config::StaticForward {
        protocol: 17,
        outside: (Ipv4Addr::new(203, 0, 113, 1), 443),
        inside: (Ipv4Addr::new(10, 0, 0, 1), 5000),
        realm: TAGS,
    }];
    let mut box_ = Box { nat: Nat::new(config).unwrap(), ..Box::new("{}") };
    let outside = Some("203.0.113.1:443".parse().unwrap());
    assert_eq!(box_.told(&map(1, 5000, 600, 1), &[]).outside, outside);
    assert_eq!(box_.told(&map(1, 5000, 0, 1), &[]).code, ResultCode::NotAuthorized as u8);
    assert_eq!(box_.told(&map(1, 5000, 600, 2), &[]).outside, outside);
}

#[test]
fn a_peer_gets_a_session_that_lives() {
    let mut box_ = Box::new("{}");
    let peer = Ask { opcode: 2, remote: STRANGER, ..map(1, 5000, 3_000, 1) };
    let told = box_.told(&peer, &[]);
    assert_eq!((told.code, told.lifetime_s), (0, 3_000));
    box_.wait(2_900);
    assert!(box_.lets_in(STRANGER, told.outside.unwrap()));
    assert!(!box_.lets_in(SocketAddrV4::new(*STRANGER.ip(), 1), told.outside.unwrap()));
    assert_eq!(box_.nat.session_count(), 1);
    // At another outside endpoint its connection could not go on.
    let elsewhere = SocketAddrV4::new(*told.outside.unwrap().ip(), told.outside.unwrap().port() ^ 1);
    for (port, external) in [(5000, elsewhere), (5001, told.outside.unwrap())] {
        let peer = Ask { opcode: 2, remote: STRANGER, external, ..map(1, port, 3_000, 1) };
        assert_eq!(box_.told(&peer, &[]).code, ResultCode::CannotProvideExternal as u8, "{port}");
    }
    let again = Ask { external: told.outside.unwrap(), ..peer };
    assert_eq!(box_.told(&again, &[]).outside, told.outside);
}

#[test]
fn a_restart_is_announced_to_all() {
    let mut answers = Answers::new(&PcpOptions::default(), OWN, &Tags::vlans(&[7, 9]).unwrap(), true);
    let mut times = Vec::new();
    for ms in 0..200_000 {
        let Some((packet, realm)) = answers.announcement(NOW + ms * 1_000_000) else { continue };
        let frame = [&[2; 12], &[8, 0][..], &packet].concat();
        assert!(Parsed::of(&frame).unwrap().is_intact(&frame));
        let headers = Headers::of(&frame).unwrap();
        assert_eq!(headers.source(), Endpoint::new(OWN.to_bits(), 5351));
        assert_eq!(headers.destination(), Endpoint::new(0xe000_0001, 5350));
        let epoch = (ms / 1_000) as u32;
        assert_eq!(packet[28..40], [&[2, 0x80, 0, 0, 0, 0, 0, 0][..], &epoch.to_be_bytes()].concat());
        assert_eq!(realm, TAGS);
        times.push(ms);
    }
    assert_eq!(times, [0, 250, 750, 1750, 3750, 7750, 15_750, 31_750, 63_750, 127_750]);
    let mut other = Answers::new(&PcpOptions::default(), OWN, &Tags::NONE, false);
    assert_eq!(other.announcement(NOW), None, "one of several workers does it");
}

#[test]
fn each_bound_has_a_value_that_passes_and_one_that_does_not() {
    let keys = |text: &str| -> Vec<String> {
        let options: PcpOptions = serde_json::from_str(text).unwrap();
        options.check().into_iter().map(|problem| problem.key).collect()
    };
    for (text, wrong) in [
        (r#"{"mappings_per_subscriber": 4096}"#, None),
        (r#"{"mappings_per_subscriber": 4097}"#, Some("mappings_per_subscriber")),
        (r#"{"mappings_per_subscriber": 0}"#, Some("mappings_per_subscriber")),
        (r#"{"lifetime": {"least": "1s", "most": "24h"}}"#, None),
        (r#"{"lifetime": {"least": "999ms"}}"#, Some("lifetime.least")),
        (r#"{"lifetime": {"most": "25h"}}"#, Some("lifetime.most")),
        (r#"{"lifetime": {"least": "3h"}}"#, Some("lifetime.most")),
        (r#"{"lifetime": {"least": "2h", "most": "2h"}}"#, None),
    ] {
        assert_eq!(keys(text), wrong.map(str::to_owned).into_iter().collect::<Vec<_>>(), "{text}");
    }
}

/// Requests that are nearly right, from a subscriber that wants what another one has.
fn hostile() -> impl Strategy<Value = Vec<u8>> {
    let ask = (
        0u8..4,
        1u8..4,
        4_998u16..5_003,
        0u8..3,
        prop_oneof![Just(0u32), Just(1), Just(600), Just(u32::MAX)],
    );
    let port = prop_oneof![Just(0u16), 1024u16..1100, any::<u16>()];
    let options = proptest::collection::vec(
        prop_oneof![
            Just(prefer_failure()),
            Just(third_party(Ipv4Addr::new(10, 0, 0, 2))),
            (any::<u8>(), any::<u16>()).prop_map(|(bits, port)| filter(bits, port, OWN.to_ipv6_mapped())),
            (any::<u8>(), proptest::collection::vec(any::<u8>(), 0..40))
                .prop_map(|(code, value)| option(code, &value)),
        ],
        0..4,
    );
    let cut = prop_oneof![4 => Just(usize::MAX), 1 => 0usize..120];
    let flip = prop_oneof![4 => Just(None), 1 => (0usize..100, any::<u8>()).prop_map(Some)];
    (ask, port, options, cut, flip).prop_map(
        |((opcode, client, port, nonce, lifetime_s), outside, options, cut, flip)| {
            let external = SocketAddrV4::new(Ipv4Addr::new(203, 0, 113, 1), outside);
            let ask = Ask { opcode, external, remote: STRANGER, ..map(client, port, lifetime_s, nonce) };
            let mut bytes = ask.bytes(&options);
            bytes.truncate(cut);
            if let Some((at, bits)) = flip
                && let Some(byte) = bytes.get_mut(at)
            {
                *byte ^= bits;
            }
            bytes
        },
    )
}

fn explicit(nat: &Nat, last: u8, port: u16) -> Option<(Endpoint, Nonce, u64)> {
    let end = Endpoint::new(inside(last, port).ip().to_bits(), port);
    match nat.explicit(end, 17, TAGS)? {
        nat_core::ExplicitMapping::Requested(outside, explicit) => {
            Some((outside, explicit.nonce, explicit.until))
        }
        nat_core::ExplicitMapping::Static(_) => None,
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    /// Whatever a subscriber sends, its answer is as it should be, it has no more than it may, and nothing of another changes.
    #[test]
    fn nobody_changes_what_another_has(requests in proptest::collection::vec((hostile(), 0u64..3), 1..40)) {
        let mut box_ = Box::new(r#"{"mappings_per_subscriber": 4}"#);
        let theirs: Vec<u16> = (4_999..5_002).collect();
        for port in &theirs {
            assert_eq!(box_.told(&map(2, *port, 7_200, 0), &[]).code, 0);
        }
        let had: Vec<_> = theirs.iter().map(|port| explicit(&box_.nat, 2, *port).unwrap()).collect();
        for (request, seconds) in requests {
            box_.wait(seconds);
            let answer = box_.asked(inside(1, 4_000), TAGS, &request);
            if let Some(answer) = answer {
                prop_assert!(answer.len() >= 24 && answer.len() <= MAX_LEN && answer.len().is_multiple_of(4));
                prop_assert_eq!((answer[0], answer[1] & 0x80), (2, 0x80));
                prop_assert!(usize::from(answer[3]) < ResultCode::NAMES.len());
            }
            prop_assert!(box_.nat.explicit_count(inside(1, 0).ip().to_bits(), TAGS) <= 4);
            prop_assert_eq!(box_.nat.explicit_count(inside(3, 0).ip().to_bits(), TAGS), 0);
            let has: Vec<_> = theirs.iter().map(|port| explicit(&box_.nat, 2, *port).unwrap()).collect();
            prop_assert_eq!(&has, &had);
        }
    }
}
