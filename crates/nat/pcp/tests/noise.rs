//! Whatever comes, there is a well-formed answer or none, and nobody else's mapping changes.

use nat_pcp::testing::{Ask, MappingTable, filter, option, prefer_failure, third_party};
use nat_pcp::{Client, Config, Epoch, Limit, MAX_LEN, Server};
use proptest::prelude::*;
use std::net::{Ipv4Addr, SocketAddrV4};

const ADDRESS: Ipv4Addr = Ipv4Addr::new(100, 64, 0, 7);
const CLIENT: Client = Client { address: ADDRESS, realm: 0 };

fn server(third_party: bool) -> Server {
    let limit = Limit { burst: 100_000, per_second: 0 };
    let third_party = if third_party { vec![ADDRESS] } else { Vec::new() };
    Server::new(Config { limit, third_party, ..Config::default() }, Epoch::since(0))
}

fn address() -> impl Strategy<Value = Ipv4Addr> {
    prop_oneof![Just(ADDRESS), Just(Ipv4Addr::UNSPECIFIED), any::<u32>().prop_map(Ipv4Addr::from_bits)]
}

fn options() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        address().prop_map(third_party),
        Just(prefer_failure()),
        (any::<u8>(), any::<u16>(), address()).prop_map(|(prefix, port, address)| filter(
            prefix,
            port,
            address.to_ipv6_mapped()
        )),
        (any::<u8>(), prop::collection::vec(any::<u8>(), 0..40))
            .prop_map(|(code, value)| option(code, &value)),
        prop::collection::vec(any::<u8>(), 0..8),
    ]
}

fn ask() -> impl Strategy<Value = Ask> {
    let nonce = prop_oneof![Just([0; 12]), any::<[u8; 12]>()];
    let number = || prop_oneof![Just(0u16), 1..4u16, any::<u16>()];
    let lifetime_s = prop_oneof![Just(0), any::<u32>()];
    let protocol = prop_oneof![Just(0), Just(6), Just(17), any::<u8>()];
    (0..4u8, lifetime_s, nonce, protocol, [number(), number(), number()], [address(), address()]).prop_map(
        |(opcode, lifetime_s, nonce, protocol, ports, addresses)| Ask {
            opcode,
            lifetime_s,
            client: ADDRESS,
            nonce,
            protocol,
            port: ports[0],
            external: SocketAddrV4::new(addresses[0], ports[1]),
            remote: SocketAddrV4::new(addresses[1], ports[2]),
        },
    )
}

fn well_formed(request: &[u8], answer: &[u8]) {
    assert!(answer.len().is_multiple_of(4) && (24..=MAX_LEN).contains(&answer.len()));
    assert_eq!((answer[0], answer[1], answer[2]), (2, request[1] | 0x80, 0));
    assert!(answer[3] < 14);
}

proptest! {
    #[test]
    fn any_bytes_are_answered_or_not(bytes in prop::collection::vec(any::<u8>(), 0..1200)) {
        if let Some(answer) = server(true).answer(1, CLIENT, &bytes, &mut MappingTable::default()) {
            well_formed(&bytes, &answer);
        }
    }

    #[test]
    fn any_requests_leave_the_mappings_of_others_alone(
        requests in prop::collection::vec((ask(), prop::collection::vec(options(), 0..4)), 1..60),
    ) {
        let mut book = MappingTable::default();
        let other = Client { address: Ipv4Addr::new(100, 64, 0, 8), realm: 0 };
        let mapping = Ask {
            opcode: 1, lifetime_s: 600, client: other.address, nonce: [7; 12], protocol: 6, port: 1,
            external: SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, 0),
            remote: SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, 0),
        };
        let mut server = server(false);
        server.answer(0, other, &mapping.bytes(&[]), &mut book);
        let before = book.explicit.clone();
        prop_assert_eq!(before.len(), 1);
        for (ask, options) in requests {
            let bytes = ask.bytes(&options);
            if let Some(answer) = server.answer(1, CLIENT, &bytes, &mut book) {
                well_formed(&bytes, &answer);
                // A mapping that was given is there, with that port.
                if answer[1] == 0x81 && answer[3] == 0 && ask.lifetime_s > 0 {
                    let port = u16::from_be_bytes([answer[42], answer[43]]);
                    prop_assert!(book.explicit.values().any(|there| there.external.port() == port));
                }
            }
            prop_assert!(before.iter().all(|(inside, there)| book.explicit.get(inside) == Some(there)));
            prop_assert!(book.explicit.len() <= 33);
        }
    }
}
