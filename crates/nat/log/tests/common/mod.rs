//! Events of every kind, and files that other programs read.

#![allow(dead_code)] // each test file uses some of it

use nat_log::{Block, Endpoint, Event, EventKind, Mapping, Quota, Session, Tags, Volume};
use std::net::Ipv4Addr;

/// 2023-11-14 22:13:20.250 UTC.
pub const AT: u64 = 1_700_000_000_250;

pub const INSIDE: Endpoint = Endpoint { address: Ipv4Addr::new(10, 0, 0, 7), port: 40000 };
pub const OUTSIDE: Endpoint = Endpoint { address: Ipv4Addr::new(192, 0, 2, 1), port: 1024 };
pub const REMOTE: Endpoint = Endpoint { address: Ipv4Addr::new(198, 51, 100, 9), port: 443 };

/// One of each, the first with a tag, the second with two.
pub fn events() -> Vec<Event> {
    let (one, two) = (Tags { outer: 100, inner: 0 }, Tags { outer: 100, inner: 7 });
    let untagged = Tags::default();
    let session = |tags| Session { inside: INSIDE, tags, outside: OUTSIDE, remote: REMOTE, protocol: 6 };
    let volume = Volume { packets_up: 3, bytes_up: 180, packets_down: 4, bytes_down: 5000 };
    let mapping = Mapping { inside: INSIDE, tags: untagged, outside: OUTSIDE, protocol: 17 };
    let (inside, outside) = (INSIDE.address, OUTSIDE.address);
    let block = Block { inside, tags: untagged, outside, first: 1024, last: 1535 };
    let limit = 1000;
    [
        EventKind::SessionCreated(session(one)),
        EventKind::SessionDeleted(session(two), volume),
        EventKind::SessionInterim(session(untagged), volume),
        EventKind::MappingCreated(mapping),
        EventKind::MappingDeleted(mapping),
        EventKind::BlockAllocated(block),
        EventKind::BlockReleased(block),
        EventKind::AddressesExhausted { pool: 3 },
        EventKind::PortsExhausted { outside, protocol: 17 },
        EventKind::QuotaExceeded(Quota::Sessions { limit }),
        EventKind::QuotaExceeded(Quota::Mappings { limit }),
        EventKind::QuotaExceeded(Quota::Subscribers { limit }),
        EventKind::QuotaExceeded(Quota::PerSubscriber { limit, inside, tags: untagged }),
        EventKind::QuotaExceeded(Quota::Fragments { limit, inside, tags: untagged }),
    ]
    .into_iter()
    .map(|what| Event { at_ms: AT, what })
    .collect()
}

/// Whether a UDP socket on this machine has the port, and has read all that came.
pub fn listens(port: u16) -> bool {
    let sockets = std::fs::read_to_string("/proc/net/udp").expect("proc is mounted");
    sockets.contains(&format!(":{port:04X} 00000000:0000 07 00000000:00000000 "))
}
