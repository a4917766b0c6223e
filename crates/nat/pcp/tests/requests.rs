//! Requests and their answers, by the sections of RFC 6887.

use nat_pcp::testing::{Ask, MappingTable, filter, option, prefer_failure, third_party};
use nat_pcp::{
    Client, Config, Epoch, Explicit, Filter, Inside, Limit, MAX_LEN, Mappings, Origin, Refusal, ResultCode,
    Server,
};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddrV4};

const ADDRESS: Ipv4Addr = Ipv4Addr::new(100, 64, 0, 7);
const CLIENT: Client = Client { address: ADDRESS, realm: 100 };
const OUTSIDE: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);
const ANY: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, 0);
const REMOTE: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::new(198, 51, 100, 9), 443);
const MAP: Ask = Ask {
    opcode: 1,
    lifetime_s: 3600,
    client: ADDRESS,
    nonce: *b"nonce-number",
    protocol: 6,
    port: 8080,
    external: ANY,
    remote: REMOTE,
};
const PEER: Ask = Ask { opcode: 2, ..MAP };
const INSIDE: Inside = Inside { client: CLIENT, protocol: 6, port: 8080 };
/// Seconds since the epoch of the servers here.
const NOW: u64 = 5_000_000;

fn server(config: Config) -> Server {
    Server::new(config, Epoch::since(1_000_000))
}

/// Result code, lifetime, external port, and what follows the opcode's part.
#[derive(Debug, PartialEq)]
struct Answer(ResultCode, u32, u16);

fn read(answer: &[u8]) -> Answer {
    assert_eq!(answer[0], 2);
    assert_eq!(answer[1] & 0x80, 0x80);
    assert!(answer.len() <= MAX_LEN && answer.len().is_multiple_of(4) && answer.len() >= 24);
    assert_eq!(answer[8..12], 4000u32.to_be_bytes(), "epoch");
    let code = CODES[usize::from(answer[3])];
    let lifetime = u32::from_be_bytes(answer[4..8].try_into().expect("four bytes"));
    let port = answer.get(42..44).map_or(0, |port| u16::from_be_bytes([port[0], port[1]]));
    Answer(code, lifetime, port)
}

use ResultCode::*;
const CODES: [ResultCode; 14] = [
    Success,
    UnsuppVersion,
    NotAuthorized,
    MalformedRequest,
    UnsuppOpcode,
    UnsuppOption,
    MalformedOption,
    NetworkFailure,
    NoResources,
    UnsuppProtocol,
    UserExQuota,
    CannotProvideExternal,
    AddressMismatch,
    ExcessiveRemotePeers,
];

fn ask(book: &mut MappingTable, ask: Ask, options: &[Vec<u8>]) -> Answer {
    raw(book, &ask.bytes(options))
}

fn raw(book: &mut MappingTable, bytes: &[u8]) -> Answer {
    let answer = server(Config::default()).answer(NOW, CLIENT, bytes, book).expect("an answer");
    // Zeros where the request was read, else what it had there (section 7.2).
    assert!(answer[12..24] == [0; 12] || (answer[3] != 0 && answer[12..24] == bytes[12..24]));
    read(&answer)
}

fn wish(port: u16) -> SocketAddrV4 {
    SocketAddrV4::new(OUTSIDE, port)
}

fn error(code: ResultCode, ask: Ask) -> Answer {
    // The suggested port, as it came.
    Answer(code, code.lifetime_s(), if ask.opcode == 0 { 0 } else { ask.external.port() })
}

#[test]
fn names_are_by_number() {
    for (number, code) in CODES.into_iter().enumerate() {
        assert_eq!(code as usize, number);
    }
    assert_eq!(ResultCode::NAMES[AddressMismatch as usize], "ADDRESS_MISMATCH");
}

#[test]
fn a_mapping_is_made_renewed_and_deleted() {
    let book = &mut MappingTable::default();
    assert_eq!(ask(book, Ask { external: wish(8081), ..MAP }, &[]), Answer(Success, 3600, 8081));
    // Renewed: what is suggested now counts no more (section 11.3).
    assert_eq!(
        ask(book, Ask { external: wish(9999), lifetime_s: 7200, ..MAP }, &[]),
        Answer(Success, 7200, 8081)
    );
    assert_eq!(book.explicit[&INSIDE].lifetime_s, 7200);
    assert_eq!(ask(book, Ask { lifetime_s: 0, ..MAP }, &[]), Answer(Success, 0, 0));
    assert!(book.explicit.is_empty());
    // Section 15.1: to delete it once more is no error.
    assert_eq!(ask(book, Ask { lifetime_s: 0, ..MAP }, &[]), Answer(Success, 0, 0));
}

#[test]
fn a_map_answer_byte_by_byte() {
    let book = &mut MappingTable::default();
    let request = Ask { external: wish(8081), ..MAP }.bytes(&[prefer_failure()]);
    let answer = server(Config::default()).answer(NOW, CLIENT, &request, book).expect("an answer");
    let want = "02 81 00 00 00000e10 00000fa0 000000000000000000000000
                6e6f6e63652d6e756d626572 06 000000 1f90 1f91
                00000000000000000000ffffc0000201 02 00 0000";
    let hex: String = answer.iter().map(|byte| format!("{byte:02x}")).collect();
    assert_eq!(hex, want.split_whitespace().collect::<String>());
}

#[test]
fn lifetimes_have_bounds() {
    let book = &mut MappingTable::default();
    for (asked, given) in
        [(1, 120), (119, 120), (120, 120), (86_400, 86_400), (86_401, 86_400), (u32::MAX, 86_400)]
    {
        assert_eq!(
            ask(book, Ask { lifetime_s: asked, external: wish(9), ..MAP }, &[]),
            Answer(Success, given, 9)
        );
    }
}

#[test]
fn only_the_nonce_changes_a_mapping() {
    let book = &mut MappingTable::default();
    ask(book, Ask { external: wish(9), ..MAP }, &[]);
    let other = Ask { nonce: *b"nonce-guess!", ..MAP };
    // For as long as the mapping lives.
    for ask_other in [other, Ask { lifetime_s: 0, ..other }, Ask { opcode: 2, ..other }] {
        assert_eq!(ask(book, ask_other, &[]), Answer(NotAuthorized, 3600, 0));
    }
    assert_eq!(ask(book, Ask { lifetime_s: 0, protocol: 0, port: 0, ..other }, &[]), Answer(Success, 0, 0));
    assert_eq!(book.explicit.len(), 1);
}

#[test]
fn all_mappings_of_a_client_are_deleted_at_once() {
    let book = &mut MappingTable::default();
    for (protocol, port) in [(6, 1), (6, 2), (17, 1)] {
        ask(book, Ask { protocol, port, ..MAP }, &[]);
    }
    ask(book, Ask { lifetime_s: 0, port: 0, ..MAP }, &[]);
    assert_eq!(book.explicit.keys().map(|inside| inside.protocol).collect::<Vec<_>>(), [17]);
    ask(book, Ask { lifetime_s: 0, port: 0, protocol: 0, ..MAP }, &[]);
    assert!(book.explicit.is_empty());
}

#[test]
fn a_static_mapping_is_told_and_never_changed() {
    let book = &mut MappingTable::default();
    let there = Explicit { origin: Origin::Static, external: wish(80), lifetime_s: u32::MAX };
    book.explicit.insert(INSIDE, there);
    assert_eq!(ask(book, MAP, &[]), Answer(Success, 3600, 80));
    // It lets everybody in: nobody is told otherwise.
    let only = filter(128, 0, OUTSIDE.to_ipv6_mapped());
    assert_eq!(ask(book, MAP, &[only]), error(ExcessiveRemotePeers, MAP));
    assert_eq!(ask(book, MAP, &[filter(0, 0, OUTSIDE.to_ipv6_mapped())]), Answer(Success, 3600, 80));
    let gone = Ask { lifetime_s: 0, ..MAP };
    assert_eq!(ask(book, gone, &[]), error(NotAuthorized, gone));
    assert_eq!(book.explicit[&INSIDE], there);
}

#[test]
fn another_port_is_given_unless_failure_is_preferred() {
    let book = &mut MappingTable::default();
    ask(book, Ask { port: 1, external: wish(8081), ..MAP }, &[]);
    let taken = Ask { external: wish(8081), ..MAP };
    assert_eq!(ask(book, taken, &[prefer_failure()]), error(CannotProvideExternal, taken));
    assert_eq!(ask(book, taken, &[]), Answer(Success, 3600, 1024));
    // The same mapping, under another port than it has.
    assert_eq!(ask(book, taken, &[prefer_failure()]), error(CannotProvideExternal, taken));
    let its = Ask { external: wish(1024), ..MAP };
    assert_eq!(ask(book, its, &[prefer_failure()]), Answer(Success, 3600, 1024));
    // An IPv6 address outside.
    let mut ipv6 = Ask { port: 3, ..MAP }.bytes(&[prefer_failure()]);
    ipv6[44..60].copy_from_slice(&Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1).octets());
    assert_eq!(raw(book, &ipv6).0, CannotProvideExternal);
}

#[test]
fn what_the_nat_refuses_has_its_code() {
    for (refusal, code) in [
        (Refusal::NotAuthorized, NotAuthorized),
        (Refusal::NetworkFailure, NetworkFailure),
        (Refusal::NoResources, NoResources),
        (Refusal::Quota, UserExQuota),
        (Refusal::CannotProvideExternal, CannotProvideExternal),
        (Refusal::ExcessiveRemotePeers, ExcessiveRemotePeers),
    ] {
        let book = &mut MappingTable { refusal: Some(refusal), ..MappingTable::default() };
        assert_eq!(ask(book, MAP, &[]), error(code, MAP));
        assert_eq!(ask(book, PEER, &[]), error(code, PEER));
    }
    assert_eq!((NoResources.lifetime_s(), NotAuthorized.lifetime_s()), (30, 1800));
}

#[test]
fn a_subscriber_has_a_quota() {
    let book = &mut MappingTable::default();
    for port in 1..=32 {
        assert_eq!(ask(book, Ask { port, ..MAP }, &[]).0, Success);
    }
    let one_more = Ask { port: 33, ..MAP };
    assert_eq!(ask(book, one_more, &[]), error(UserExQuota, one_more));
    assert_eq!(ask(book, Ask { port: 32, ..MAP }, &[]).0, Success, "renewed");
    assert_eq!(book.count(CLIENT), 32);
}

#[test]
fn ports_and_protocols_that_are_not_mapped() {
    let book = &mut MappingTable::default();
    for (protocol, port, code) in [
        (0, 8080, MalformedRequest), // section 11.1
        (0, 0, UnsuppProtocol),      // all protocols
        (6, 0, NotAuthorized),       // all ports
        (132, 8080, UnsuppProtocol), // SCTP
    ] {
        let odd = Ask { protocol, port, ..MAP };
        assert_eq!(ask(book, odd, &[]), error(code, odd));
    }
    for (protocol, port, remote, code) in [
        (0, 8080, REMOTE, MalformedRequest),
        (6, 0, REMOTE, MalformedRequest),
        (6, 8080, SocketAddrV4::new(*REMOTE.ip(), 0), MalformedRequest),
        (6, 8080, SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, 443), MalformedRequest),
        (132, 8080, REMOTE, UnsuppProtocol),
    ] {
        let odd = Ask { protocol, port, remote, ..PEER };
        assert_eq!(ask(book, odd, &[]), error(code, odd));
    }
}

#[test]
fn a_session_lives_longer_and_is_never_shortened() {
    let book = &mut MappingTable::default();
    assert_eq!(ask(book, Ask { external: wish(5000), ..PEER }, &[]), Answer(Success, 3600, 5000));
    assert_eq!(ask(book, Ask { lifetime_s: 0, ..PEER }, &[]), Answer(Success, 300, 2048));
    // With a lifetime of 0 none begins, as nothing is deleted that is not there.
    book.refusal = Some(Refusal::NotThere);
    assert_eq!(ask(book, Ask { lifetime_s: 0, external: wish(5000), ..PEER }, &[]), Answer(Success, 0, 5000));
    book.refusal = None;
    // It takes the outside port of the mapping.
    ask(book, Ask { external: wish(9), ..MAP }, &[]);
    let answer = server(Config::default()).answer(NOW, CLIENT, &PEER.bytes(&[]), book).expect("an answer");
    assert_eq!(read(&answer), Answer(Success, 3600, 9));
    assert_eq!(answer.len(), 80);
    assert_eq!(answer[60..62], 443u16.to_be_bytes());
    assert_eq!(answer[64..80], REMOTE.ip().to_ipv6_mapped().octets());
}

#[test]
fn filters_are_added_and_dropped() {
    let book = &mut MappingTable::default();
    let peer = Ipv4Addr::new(198, 51, 100, 200).to_ipv6_mapped();
    let want = |prefix, address, port| Filter { address, prefix, port };
    let host = want(32, Ipv4Addr::new(198, 51, 100, 200), 5060);
    assert_eq!(ask(book, MAP, &[filter(128, 5060, peer)]).0, Success);
    assert_eq!(book.filters[&INSIDE], [host]);
    assert_eq!(ask(book, MAP, &[filter(120, 0, peer)]).0, Success);
    assert_eq!(book.filters[&INSIDE], [host, want(24, Ipv4Addr::new(198, 51, 100, 0), 0)]);
    let everything = filter(96, 0, peer);
    assert_eq!(
        ask(book, MAP, &[filter(128, 1, peer), filter(0, 0, Ipv6Addr::UNSPECIFIED), everything]).0,
        Success
    );
    assert_eq!(book.filters[&INSIDE], [want(0, Ipv4Addr::UNSPECIFIED, 0)]);
    let many = |count| (0..count).map(|port| filter(128, port, peer)).collect::<Vec<_>>();
    assert_eq!(ask(book, MAP, &many(8)).0, Success);
    assert_eq!(ask(book, MAP, &many(9)), error(ExcessiveRemotePeers, MAP));
    for (prefix, address) in [(95, peer), (129, peer), (64, Ipv6Addr::LOCALHOST), (128, Ipv6Addr::LOCALHOST)]
    {
        assert_eq!(ask(book, MAP, &[filter(prefix, 0, address)]), error(MalformedOption, MAP));
    }
}

#[test]
fn a_third_party_is_served_only_for_whom_is_allowed() {
    let other = Client { address: Ipv4Addr::new(100, 64, 0, 8), realm: 100 };
    let for_other = MAP.bytes(&[third_party(other.address)]);
    let answer = |third_party: &[Ipv4Addr], bytes: &[u8], book: &mut MappingTable| {
        let config = Config { third_party: third_party.to_vec(), ..Config::default() };
        read(&server(config).answer(NOW, CLIENT, bytes, book).expect("an answer"))
    };
    let book = &mut MappingTable::default();
    assert_eq!(answer(&[], &for_other, book), error(UnsuppOption, MAP));
    assert_eq!(answer(&[other.address], &for_other, book), error(NotAuthorized, MAP));
    assert_eq!(answer(&[ADDRESS], &MAP.bytes(&[third_party(ADDRESS)]), book), error(MalformedRequest, MAP));
    assert!(book.explicit.is_empty());
    assert_eq!(answer(&[ADDRESS], &for_other, book), Answer(Success, 3600, 1024));
    assert_eq!(book.explicit.keys().map(|inside| inside.client).collect::<Vec<_>>(), [other]);
}

#[test]
fn options_are_checked() {
    let book = &mut MappingTable::default();
    for (ask_with, options, code) in [
        (MAP, vec![option(4, &[])], UnsuppOption),
        (MAP, vec![option(127, &[1, 2, 3])], UnsuppOption),
        (MAP, vec![option(2, &[0; 4])], MalformedOption),
        (MAP, vec![prefer_failure(), prefer_failure()], MalformedOption),
        (MAP, vec![option(1, &[0; 12])], MalformedOption),
        (MAP, vec![option(3, &[0; 19])], MalformedOption),
        (MAP, vec![vec![200, 0, 0, 1]], MalformedOption), // longer than the message
        (PEER, vec![prefer_failure()], MalformedRequest),
        (PEER, vec![filter(128, 0, OUTSIDE.to_ipv6_mapped())], MalformedOption),
        (Ask { opcode: 0, ..MAP }, vec![third_party(OUTSIDE)], MalformedOption),
    ] {
        let got = ask(book, ask_with, &options);
        assert_eq!((got.0, got.1), (code, 1800), "{options:?}");
    }
    // Who does not know an optional one leaves it aside, and does not send it back.
    let request = MAP.bytes(&[option(128, b"a server"), prefer_failure(), option(255, b"odd")]);
    let answer = server(Config::default()).answer(NOW, CLIENT, &request, book).expect("an answer");
    assert_eq!(read(&answer).0, Success);
    assert_eq!(answer[60..], prefer_failure());
}

#[test]
fn an_announcement_is_answered_and_sent() {
    let book = &mut MappingTable::default();
    let announce = Ask { opcode: 0, lifetime_s: 0, ..MAP };
    assert_eq!(ask(book, announce, &[]), Answer(Success, 0, 0));
    let mut server = server(Config::default());
    assert_eq!(read(&server.announcement(NOW)), Answer(Success, 0, 0));
    server.restart(NOW);
    assert_eq!(server.announcement(NOW + 1500)[8..12], [0, 0, 0, 1]);
}

#[test]
fn what_cannot_be_read() {
    let book = &mut MappingTable::default();
    let request = MAP.bytes(&[]);
    let mut server = server(Config { limit: Limit { burst: 1000, per_second: 0 }, ..Config::default() });
    let mut code = |bytes: &[u8]| {
        let answer = server.answer(NOW, CLIENT, bytes, book)?;
        let code = read(&answer).0;
        let back = if code == Success { &[0; 12] } else { bytes.get(12..24).unwrap_or(&[0; 12]) };
        assert_eq!(&answer[12..24], back, "the last 96 bits of the client's address");
        Some((code, answer[1], answer.len()))
    };
    assert_eq!(code(&[]), None);
    assert_eq!(code(&[2]), None);
    assert_eq!(code(&[2, 0x81]), None, "an answer");
    assert_eq!(code(&[2, 1]), Some((MalformedRequest, 0x81, 24)));
    assert_eq!(code(&request[..20]), Some((MalformedRequest, 0x81, 24)));
    assert_eq!(code(&request[..56]), Some((MalformedRequest, 0x81, 56)), "shorter than MAP");
    assert_eq!(code(&request[..59]), Some((MalformedRequest, 0x81, 60)), "no multiple of four");
    let mut long = request.clone();
    long.extend(option(200, &[0; 1036]));
    assert_eq!((long.len(), code(&long)), (1100, Some((Success, 0x81, 60))));
    long.extend(option(200, &[]));
    assert_eq!((long.len(), code(&long)), (1104, Some((MalformedRequest, 0x81, 1100))));
    let change = |at: usize, to: u8| {
        let mut changed = request.clone();
        changed[at] = to;
        changed
    };
    assert_eq!(code(&change(0, 1)), Some((UnsuppVersion, 0x81, 24)));
    assert_eq!(code(&change(0, 3)), Some((UnsuppVersion, 0x81, 24)));
    assert_eq!(code(&change(1, 3)), Some((UnsuppOpcode, 0x83, 60)));
    assert_eq!(code(&change(1, 127)), Some((UnsuppOpcode, 0xff, 60)));
    assert_eq!(code(&change(23, 9)), Some((AddressMismatch, 0x81, 60)));
    let statistics = server.statistics();
    assert_eq!((statistics.noise, statistics.answers[UnsuppVersion as usize]), (3, 2));
}

#[test]
fn nat_pmp_is_told_the_version_in_its_own_form() {
    let book = &mut MappingTable::default();
    // RFC 6886 section 3.2: version 0, opcode 0. Its answer has the code in the third and fourth byte, 1: unsupported version.
    let answer = server(Config::default()).answer(NOW, CLIENT, &[0, 0], book).expect("an answer");
    assert_eq!(answer[..4], [2, 0x80, 0, 1]);
    assert_eq!(read(&answer).0, UnsuppVersion);
}

#[test]
fn a_subscriber_that_asks_too_often_is_not_answered() {
    let book = &mut MappingTable::default();
    let mut server = server(Config { limit: Limit { burst: 2, per_second: 1 }, ..Config::default() });
    let mut answered = |client, now_ms| server.answer(now_ms, client, &MAP.bytes(&[]), book).is_some();
    let neighbour = Client { realm: 101, ..CLIENT };
    assert_eq!([(); 3].map(|()| answered(CLIENT, NOW)), [true, true, false]);
    assert!(answered(neighbour, NOW));
    assert!(!answered(CLIENT, NOW + 999));
    assert!(answered(CLIENT, NOW + 1000));
    assert_eq!(server.statistics().limited, 2);
}
