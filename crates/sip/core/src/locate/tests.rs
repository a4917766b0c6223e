use super::*;
use crate::uri::Uri;

const ALL: &[Transport] = &[Transport::Udp, Transport::Tcp, Transport::Tls];

fn naptr(order: u16, preference: u16, service: &str, replacement: &str) -> Naptr {
    let (flags, service, replacement) = ("s".into(), service.into(), replacement.into());
    Naptr { order, preference, flags, service, replacement }
}

fn srv(priority: u16, weight: u16, port: u16, target: &str) -> Srv {
    Srv { priority, weight, port, target: target.into() }
}

fn locator(uri: &str, supported: &[Transport], ipv6: bool) -> Result<Locator, LocateError> {
    let uri = Uri::parse(uri).unwrap();
    Locator::new(uri.sip().unwrap(), supported, ipv6, 1)
}

/// Answers from a zone; what was asked, and what was found.
fn run(mut locator: Locator, zone: &[(Query, Answer)]) -> (Vec<Query>, Result<Vec<String>, LocateError>) {
    let mut asked = Vec::new();
    loop {
        match locator.step() {
            Err(error) => return (asked, Err(error)),
            Ok(Step::Done(targets)) => {
                let written =
                    targets.iter().map(|t| format!("{} {} {}", t.transport.as_str(), t.address, t.port));
                return (asked, Ok(written.collect()));
            }
            Ok(Step::Ask(query)) => {
                let found = zone.iter().find(|(known, _)| *known == query).map(|(_, answer)| answer.clone());
                let none = match query {
                    Query::Naptr(_) => Answer::Naptr(Vec::new()),
                    Query::Srv(_) => Answer::Srv(Vec::new()),
                    Query::A(_) | Query::Aaaa(_) => Answer::Addresses(Vec::new()),
                };
                locator.answer(found.unwrap_or(none)).unwrap();
                asked.push(query);
            }
        }
    }
}

fn a(name: &str, address: &str) -> (Query, Answer) {
    (Query::A(name.into()), Answer::Addresses(vec![address.parse().unwrap()]))
}

/// URI, queries, places: what needs no NAPTR.
#[test]
fn the_uri_decides() {
    let zone = [a("h", "192.0.2.1"), a("m", "192.0.2.2")];
    for (uri, queries, places) in [
        ("sip:192.0.2.9", 0, "UDP 192.0.2.9 5060"),
        ("sips:192.0.2.9", 0, "TLS 192.0.2.9 5061"),
        ("sip:192.0.2.9:5070;transport=tcp", 0, "TCP 192.0.2.9 5070"),
        ("sips:192.0.2.9;transport=tcp", 0, "TLS 192.0.2.9 5061"),
        ("sip:h:5062", 1, "UDP 192.0.2.1 5062"),
        ("sips:h:5062", 1, "TLS 192.0.2.1 5062"),
        ("sip:h;transport=TCP", 2, "TCP 192.0.2.1 5060"),
        ("sip:h;transport=tls", 2, "TLS 192.0.2.1 5061"),
        ("sip:x:5060;maddr=m", 1, "UDP 192.0.2.2 5060"),
        ("sip:x;maddr=192.0.2.7", 0, "UDP 192.0.2.7 5060"),
        ("sip:h", 5, "UDP 192.0.2.1 5060"),
        ("sips:h", 3, "TLS 192.0.2.1 5061"),
    ] {
        let (asked, found) = run(locator(uri, ALL, false).unwrap(), &zone);
        assert_eq!(found, Ok(vec![places.to_owned()]), "{uri}");
        assert_eq!(asked.len(), queries, "{uri} {asked:?}");
    }
    assert_eq!(locator("sips:h;transport=udp", ALL, false).map(|_| ()), Err(LocateError::Insecure));
    assert_eq!(locator("sip:h;transport=sctp", ALL, false).map(|_| ()), Err(LocateError::Transport));
    assert_eq!(locator("sip:h;transport=ws", ALL, false).map(|_| ()), Err(LocateError::Transport));
    assert_eq!(run(locator("sip:none", ALL, true).unwrap(), &zone).1, Err(LocateError::NoAddress));
    let ws = run(locator("sips:h;transport=ws", &[Transport::Wss], false).unwrap(), &zone);
    assert_eq!(ws, (vec![Query::A("h".into())], Ok(vec!["WSS 192.0.2.1 443".into()])));
}

/// The example of RFC 3263 section 4.1.
#[test]
fn naptr_chooses_the_transport() {
    let zone = [
        (
            Query::Naptr("example.com".into()),
            Answer::Naptr(vec![
                naptr(100, 50, "SIP+D2U", "_sip._udp.example.com"),
                naptr(50, 50, "SIPS+D2T", "_sips._tcp.example.com"),
                naptr(90, 50, "SIP+D2T", "_sip._tcp.example.com"),
                naptr(1, 50, "SIP+D2S", "_sip._sctp.example.com"),
            ]),
        ),
        (
            Query::Srv("_sip._tcp.example.com".into()),
            Answer::Srv(vec![
                srv(1, 2, 5061, "server2.example.com."),
                srv(0, 1, 5060, "server1.example.com"),
            ]),
        ),
        (
            Query::Srv("_sip._udp.example.com".into()),
            Answer::Srv(vec![srv(0, 1, 5060, "server1.example.com")]),
        ),
        a("server1.example.com", "192.0.2.1"),
        a("server2.example.com", "192.0.2.2"),
    ];
    let (asked, found) =
        run(locator("sip:example.com", &[Transport::Udp, Transport::Tcp], false).unwrap(), &zone);
    let places = ["TCP 192.0.2.1 5060", "TCP 192.0.2.2 5061", "UDP 192.0.2.1 5060"];
    assert_eq!(found, Ok(places.map(str::to_owned).to_vec()));
    assert_eq!(asked.len(), 5, "each host is asked for once: {asked:?}");
    // Of a sips URI only what is encrypted counts.
    let (asked, found) = run(locator("sips:example.com", ALL, false).unwrap(), &zone);
    assert_eq!((asked.len(), found), (3, Err(LocateError::NoAddress)));
}

#[test]
fn srv_without_naptr() {
    let zone = [
        (Query::Srv("_sip._tcp.h".into()), Answer::Srv(vec![srv(0, 0, 5070, "t")])),
        (Query::Srv("_sip._udp.h".into()), Answer::Srv(vec![srv(0, 0, 5080, "."), srv(0, 0, 5081, "")])),
        (Query::Aaaa("t".into()), Answer::Addresses(vec!["2001:db8::1".parse().unwrap()])),
        a("t", "192.0.2.1"),
    ];
    let (_, found) = run(locator("sip:h", ALL, true).unwrap(), &zone);
    assert_eq!(found, Ok(vec!["TCP 2001:db8::1 5070".into(), "TCP 192.0.2.1 5070".into()]));
    let (_, found) = run(locator("sip:h", ALL, false).unwrap(), &zone);
    assert_eq!(found, Ok(vec!["TCP 192.0.2.1 5070".into()]));
}

#[test]
fn weights_are_shares() {
    let records = vec![srv(1, 0, 1, "last"), srv(0, 1, 1, "a"), srv(0, 3, 1, "b"), srv(0, 0, 1, "c")];
    let mut first = [0_u32; 3];
    for seed in 0..4_000 {
        let order = dns::in_order(records.clone(), &mut dns::Random(seed));
        let names: Vec<_> = order.iter().map(|record| record.target.as_str()).collect();
        assert_eq!(names[3], "last");
        first[names[0].bytes().next().map_or(0, |name| usize::from(name - b'a'))] += 1;
        assert_eq!(order, dns::in_order(records.clone(), &mut dns::Random(seed)), "a seed decides");
    }
    // Of the five numbers from 0 to 4 one is c's, one a's and three b's.
    assert!(first.iter().zip([800, 2_400, 800]).all(|(n, expected)| n.abs_diff(expected) < 150), "{first:?}");
}

#[test]
fn answers_are_bounded_and_must_fit() {
    let mut many = locator("sip:h;transport=udp", ALL, false).unwrap();
    assert_eq!(many.step(), Ok(Step::Ask(Query::Srv("_sip._udp.h".into()))));
    assert_eq!(many.answer(Answer::Addresses(Vec::new())), Err(LocateError::Answer));
    many.answer(Answer::Srv((0..500).map(|at| srv(0, 0, at, "t")).collect())).unwrap();
    assert_eq!(many.step(), Ok(Step::Ask(Query::A("t".into()))));
    let addresses = (0..200).map(|last| std::net::Ipv4Addr::new(192, 0, 2, last).into()).collect();
    many.answer(Answer::Addresses(addresses)).unwrap();
    let Ok(Step::Done(targets)) = many.step() else { panic!() };
    assert_eq!(targets.len(), MAX_TARGETS);
    assert_eq!(many.answer(Answer::Srv(Vec::new())), Err(LocateError::Answer));
}

/// RFC 3261 section 18.2.2 and RFC 3581 section 4.
#[test]
fn responses_go_back() {
    use crate::message::header::parse;
    for (via, host, port) in [
        ("SIP/2.0/UDP h", "h", 5_060),
        ("SIP/2.0/TLS h", "h", 5_061),
        ("SIP/2.0/UDP h:5070;received=192.0.2.1", "192.0.2.1", 5_070),
        ("SIP/2.0/UDP h:5070;received=192.0.2.1;rport=9", "192.0.2.1", 9),
        ("SIP/2.0/UDP h:5070;rport", "h", 5_070),
        ("SIP/2.0/UDP h:5070;received=192.0.2.1;rport=9;maddr=239.1.1.1", "239.1.1.1", 5_070),
    ] {
        assert_eq!(response_target(&parse::<Via>(via).unwrap()), (host.to_owned(), port), "{via}");
    }
}
