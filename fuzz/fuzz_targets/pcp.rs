//! What subscribers send must not break the PCP server, nor change the mapping of another.
#![no_main]

use nat_pcp::testing::{Ask, MappingTable};
use nat_pcp::{Client, Config, Epoch, Server};
use std::net::{Ipv4Addr, SocketAddrV4};

const ANY: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, 0);

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    let (mut server, mut book) = (Server::new(Config::default(), Epoch::since(0)), MappingTable::default());
    let client = |last| Client { address: Ipv4Addr::new(100, 64, 0, last), realm: 0 };
    let ask = Ask {
        opcode: 1,
        lifetime_s: 600,
        client: client(8).address,
        nonce: [7; 12],
        protocol: 6,
        port: 1,
        external: ANY,
        remote: ANY,
    };
    server.answer(0, client(8), &ask.bytes(&[]), &mut book);
    let before = book.explicit.clone();
    // Requests behind each other, a length before each.
    let mut rest = data;
    while let [high, low, after @ ..] = rest {
        let len = usize::from(u16::from_be_bytes([*high, *low])).min(after.len());
        let mut request = after[..len].to_vec();
        if let Some(address) = request.get_mut(8..24) {
            address.copy_from_slice(&client(7).address.to_ipv6_mapped().octets());
        }
        if let Some(answer) = server.answer(1, client(7), &request, &mut book) {
            assert!(answer.len() % 4 == 0 && (24..=nat_pcp::MAX_LEN).contains(&answer.len()));
        }
        rest = &after[len..];
    }
    assert!(before.iter().all(|(inside, there)| book.explicit.get(inside) == Some(there)));
});
