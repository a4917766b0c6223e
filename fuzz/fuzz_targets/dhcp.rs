//! What comes from a DHCP server must not break a client, nor give it what no host can have.
#![no_main]

use nat_dhcp::Clients;
use nat_dhcp::client::Config;
use packet::ethernet::{self, Ethernet};
use packet::ipv4::Ipv4;
use std::net::Ipv4Addr;

const MAC: packet::Mac = [2, 0, 0, 0, 0, 1];

/// From a server to the client, without UDP checksum.
fn frame(payload: &[u8]) -> Option<Vec<u8>> {
    let length = u16::try_from(payload.len() + 8).ok()?;
    let mut frame = vec![0; 34];
    Ethernet { destination: MAC, source: [2; 6], kind: ethernet::kind::IPV4 }.emit(frame.first_chunk_mut()?);
    let (source, destination) = (Ipv4Addr::new(192, 0, 2, 1), Ipv4Addr::BROADCAST);
    let ip = Ipv4 { source, destination, protocol: 17, ttl: 64, dscp: 0, payload: length };
    ip.emit(frame[14..].first_chunk_mut()?);
    frame.extend([67_u16, 68, length, 0].map(u16::to_be_bytes).as_flattened());
    frame.extend(payload);
    Some(frame)
}

// Messages, each after how long it comes and how long it is. What is to fit the exchange does: xid and chaddr are filled in.
libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    let mut clients = Clients::new(Config { start_delay: [0, 0], ..Config::default() }, 1);
    assert!(clients.add(MAC, 0).is_ok());
    let (mut now, mut rest, mut xid) = (0, data, [0; 4]);
    while let Some(([wait, fits, high, low], after)) = rest.split_first_chunk() {
        now += u64::from(*wait).pow(2) * 1_000_000_000;
        clients.advance(now);
        while let Some(sent) = clients.transmit() {
            xid.copy_from_slice(&sent[46..50]);
        }
        let length = usize::from(u16::from_be_bytes([*high, *low])).min(after.len());
        let mut payload = after[..length].to_vec();
        rest = &after[length..];
        if fits & 1 == 1 && payload.len() >= 240 {
            payload[..3].copy_from_slice(&[2, 1, 6]);
            payload[4..8].copy_from_slice(&xid);
            payload[28..34].copy_from_slice(&MAC);
            payload[236..240].copy_from_slice(&[99, 130, 83, 99]);
        }
        if let Some(frame) = frame(&payload) {
            clients.receive(&frame, now);
        }
        while clients.event().is_some() {}
        if let Some(lease) = clients.lease(MAC) {
            let address = lease.address;
            assert!(!address.is_unspecified() && !address.is_multicast() && !address.is_broadcast());
            assert!(lease.seconds.is_none_or(|seconds| seconds >= 60));
        }
    }
});
