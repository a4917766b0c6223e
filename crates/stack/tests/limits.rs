//! Limits and rules of a whole stack: what is just within them, and what is just beyond.

use crate::datagrams::error;
use crate::wire::{Frames, MS, config, ip, mac, segment};
use packet::Layers;
use packet::arp::{Arp, Operation};
use packet::ethernet::Tags;
use packet::nd::Nd;
use packet::tcp::{Header, Options, flag};
use stack::{Config, ConnectError, DropReason, Handle, Network, Stack, State, TcpConfig};
use std::net::{IpAddr, SocketAddr};

/// A stack whose peer's Ethernet address is known.
pub fn stack(change: impl FnOnce(&mut Config)) -> Stack {
    let mut config = Config { peer: Some(mac(1)), ..config(0, TcpConfig::default()) };
    change(&mut config);
    Stack::new(config)
}

fn connect(stack: &mut Stack, now: u64) -> Result<Handle, ConnectError> {
    stack.connect(ip(0, false), SocketAddr::new(ip(1, false), 80), 1, now)
}

/// The frames that it sends now.
pub fn sent(stack: &mut Stack, now: u64) -> Vec<Vec<u8>> {
    stack.advance(now);
    let mut out = Frames::default();
    assert!(stack.transmit(now, &mut out));
    out.0
}

/// TCP header and payload's length of a frame.
pub fn tcp(frame: &[u8]) -> (Header, usize) {
    let layers = Layers::find(frame).expect("headers");
    let (header, payload) = Header::parse(layers.segment(frame)).expect("a segment");
    (header, payload.len())
}

/// What the peer sends next after `last`, with these flags.
fn answer(last: &Header, sequence: u32, flags: u8) -> Header {
    let length = u32::from(last.flags & (flag::SYN | flag::FIN) != 0);
    Header {
        source: last.destination,
        destination: last.source,
        sequence,
        acknowledgment: last.sequence.wrapping_add(length),
        flags,
        window: 60_000,
        options: Options { mss: (flags & flag::SYN != 0).then_some(1460), ..Options::default() },
    }
}

/// A connection that is up, and the SYN that began it. The peer's first byte is number 1.
pub fn established(stack: &mut Stack, now: u64) -> (Handle, Header) {
    let handle = connect(stack, now).expect("a port");
    let (syn, _) = tcp(&sent(stack, now)[0]);
    stack.receive(&segment(0, false, &answer(&syn, 0, flag::SYN | flag::ACK), &[]), now);
    assert_eq!(stack.status(handle).map(|status| status.state), Some(State::Established));
    sent(stack, now);
    (handle, syn)
}

#[test]
fn there_are_as_many_connections_as_were_asked_for() {
    let mut stack = stack(|config| config.connections = 3);
    let handles: Vec<_> = (0..3).map(|_| connect(&mut stack, 0).expect("room")).collect();
    assert_eq!(connect(&mut stack, 0), Err(ConnectError::NoRoom));
    stack.abort(handles[1], 0);
    sent(&mut stack, 0);
    assert!(connect(&mut stack, 0).is_ok(), "one has gone");
}

#[test]
fn a_paths_mtu_is_believed_down_to_552() {
    let now = 10_000 * MS;
    for (told, payload) in [(1400, 1360), (552, 512), (551, 512), (68, 512)] {
        let mut stack = stack(|config| config.tcp.timestamps = false);
        let (handle, _) = established(&mut stack, now);
        stack.write(handle, &[0; 1460], now).expect("up");
        let frames = sent(&mut stack, now);
        assert_eq!(tcp(&frames[0]).1, 1460);
        // fragmentation needed (RFC 1191): the MTU is in the header's last two bytes
        let mut message = error(3, 4, &frames[0][14..14 + 40]);
        let at = 14 + 20;
        message[at + 6..at + 8].copy_from_slice(&u16::to_be_bytes(told));
        message[at + 2..at + 4].fill(0);
        let sum = packet::checksum::of(&message[at..]).to_be_bytes();
        message[at + 2..at + 4].copy_from_slice(&sum);
        stack.receive(&message, now);
        let again = sent(&mut stack, now);
        let longest = again.iter().map(|frame| tcp(frame).1).max();
        assert_eq!(longest, Some(payload), "of an MTU of {told}");
    }
}

/// The next hop is gone for seconds, again and again: a connection that only hears lives on.
#[test]
fn short_silences_of_a_neighbour_do_not_add_up() {
    let (mut stack, mut now) = (stack(|config| config.peer = None), 10_000 * MS);
    let handle = connect(&mut stack, now).expect("a port");
    let found = |stack: &mut Stack, now| {
        let asks = Arp::request(mac(1), [10, 0, 0, 2].into(), [10, 0, 0, 1].into());
        let mut frame = vec![0; packet::arp::FRAME];
        Arp { operation: Operation::Reply, target_mac: mac(0), ..asks }
            .emit_tagged(&mut frame, &Tags::NONE)
            .expect("room");
        stack.receive(&frame, now);
        sent(stack, now)
    };
    sent(&mut stack, now);
    let (syn, _) = tcp(found(&mut stack, now).last().expect("a SYN"));
    stack.receive(&segment(0, false, &answer(&syn, 0, flag::SYN | flag::ACK), &[]), now);
    sent(&mut stack, now);
    let mut next = answer(&syn, 1, flag::ACK);
    for outage in 0..20 {
        // what is known of it is too old
        now += 40_000 * MS;
        // the first acknowledgment goes to where it was, and the second waits
        for _ in 0..2 {
            stack.receive(&segment(0, false, &next, b"x"), now);
            next.sequence += 1;
            for _ in 0..50 {
                now += 100 * MS;
                sent(&mut stack, now);
            }
        }
        let (acknowledgment, _) = tcp(found(&mut stack, now).last().expect("one that waited"));
        assert_eq!(acknowledgment.acknowledgment, next.sequence, "{outage}");
        assert_eq!(stack.status(handle).map(|status| status.state), Some(State::Established), "{outage}");
    }
    assert_eq!(stack.counters().timeouts, 0);
}

/// RFC 6191: a segment of the connection that had the port before must not be in the new one's window.
#[test]
fn a_port_that_is_only_remembered_is_used_with_a_higher_sequence_number() {
    let now = 10_000 * MS;
    let mut stack = stack(|config| config.ports = 40_000..=40_000);
    let (handle, first) = established(&mut stack, now);
    stack.close(handle, now);
    let (fin, _) = tcp(&sent(&mut stack, now)[0]);
    assert!(fin.has(flag::FIN));
    stack.receive(&segment(0, false, &answer(&fin, 1, flag::FIN | flag::ACK), &[]), now);
    sent(&mut stack, now);
    assert_eq!(stack.connections(), 1, "it is remembered");
    connect(&mut stack, now).expect("the port again");
    let (syn, _) = tcp(&sent(&mut stack, now)[0]);
    assert_eq!((syn.flags, syn.source), (flag::SYN, first.source));
    let ahead = syn.sequence.wrapping_sub(fin.sequence.wrapping_add(1));
    assert!((65_535..1 << 20).contains(&ahead), "{ahead}");
}

/// RFC 6528: who knows the time and sees other connections does not know the sequence number.
#[test]
fn sequence_numbers_depend_on_the_secret_and_on_both_ends() {
    let iss = |secret: [u64; 2], port: u16| {
        let mut stack = stack(|config| config.secret = secret);
        let remote = SocketAddr::new(ip(1, false), port);
        stack.connect(ip(0, false), remote, 1, 0).expect("a port");
        let (syn, _) = tcp(&sent(&mut stack, 0)[0]);
        (syn.source, syn.sequence)
    };
    let one = iss([7, 11], 80);
    assert_eq!(one, iss([7, 11], 80));
    // the port follows from the secret, too: of these it is the same
    let (port, other) = iss([107, 11], 80);
    assert_eq!(port, one.0);
    let far = |a: u32, b: u32| a.wrapping_sub(b).min(b.wrapping_sub(a)) > 1 << 12;
    assert!(far(one.1, other) && far(one.1, iss([7, 12], 80).1) && far(one.1, iss([7, 11], 81).1));
}

#[test]
fn frames_of_another_vlan_are_for_another_host() {
    let tags = |ids: &[u16]| Tags::vlans(ids).expect("few enough");
    let cases = [
        (tags(&[5]), tags(&[6])),
        (tags(&[5]), Tags::NONE),
        (tags(&[5, 7]), tags(&[5])),
        (Tags::NONE, tags(&[5])),
        (Tags::NONE, tags(&[0, 5])),
    ];
    for (own, foreign) in cases {
        let mut near = stack(|config| config.tags = own);
        near.listen(80, 10);
        // the peer's SYN and what it asks, as a stack in that VLAN sends it
        let syn = |tags| {
            let mut far = Stack::new(Config { peer: Some(mac(0)), tags, ..config(1, TcpConfig::default()) });
            let remote = SocketAddr::new(ip(0, false), 80);
            far.connect(ip(1, false), remote, 1, 0).expect("a port");
            sent(&mut far, 0).remove(0)
        };
        let ask = |tags: Tags| {
            let mut frame = vec![0; packet::arp::FRAME + tags.bytes().len()];
            let request = Arp::request(mac(1), [10, 0, 0, 2].into(), [10, 0, 0, 1].into());
            request.emit_tagged(&mut frame, &tags).expect("room");
            frame
        };
        near.receive(&syn(foreign), 0);
        near.receive(&ask(foreign), 0);
        assert_eq!((near.connections(), near.counters().dropped(DropReason::OtherVlan)), (0, 2));
        assert!(sent(&mut near, 0).is_empty());
        near.receive(&syn(own), 0);
        near.receive(&ask(own), 0);
        assert_eq!((near.connections(), near.counters().dropped(DropReason::OtherVlan)), (1, 2));
        assert_eq!(sent(&mut near, 0).len(), 2);
    }
    // VLAN 0 is none
    let mut near = stack(|_| ());
    near.listen(80, 10);
    let mut syn = {
        let mut far = Stack::new(Config { peer: Some(mac(0)), ..config(1, TcpConfig::default()) });
        far.connect(ip(1, false), SocketAddr::new(ip(0, false), 80), 1, 0).expect("a port");
        sent(&mut far, 0).remove(0)
    };
    syn.splice(12..12, [0x81, 0, 0xe0, 0]);
    near.receive(&syn, 0);
    assert_eq!(near.connections(), 1);
}

/// A stack with an address in each of two networks, and a router in the second.
fn in_two_networks() -> Stack {
    stack(|config| {
        config.peer = None;
        let parse = |ip: &str| ip.parse().expect("an address");
        config.addresses = ["10.0.0.1", "10.1.0.1", "fd00::1", "fd01::1"].map(parse).into();
        let prefixes = [24, 24, 64, 64];
        let networks = config.addresses.iter().zip(prefixes);
        config.networks = networks.map(|(address, prefix)| Network { address: *address, prefix }).collect();
        config.gateways = ["10.1.0.254", "fd01::ff"].map(parse).into();
    })
}

/// Whoever is asked from an address of another network does not answer.
#[test]
fn a_neighbour_is_asked_from_the_address_in_its_network() {
    let mut stack = in_two_networks();
    let cases = [
        ("10.0.0.2", "10.0.0.1"),
        ("10.1.0.2", "10.1.0.1"),
        ("192.0.2.1", "10.1.0.1"),
        ("fd00::2", "fd00::1"),
        ("fd01::2", "fd01::1"),
        ("2001:db8::1", "fd01::1"),
    ];
    for (to, from) in cases {
        let (to, from): (IpAddr, IpAddr) = (to.parse().expect("one"), from.parse().expect("one"));
        assert_eq!(stack.address_towards(to), Some(from), "{to}");
        stack.connect(from, SocketAddr::new(to, 80), 1, 0).expect("a port");
        // what is to be sent asks for its next hop, and the question is due at once
        assert!(sent(&mut stack, 0).is_empty());
        let frames = sent(&mut stack, 0);
        let asks = match from {
            IpAddr::V4(_) => Arp::parse(&frames[0]).map(|arp| arp.sender.into()),
            IpAddr::V6(_) => Nd::parse(&frames[0]).map(|nd| nd.source.into()),
        };
        assert_eq!(asks, Some(from), "{to}");
    }
}

#[test]
fn nobody_has_the_address_of_a_group_or_none() {
    let mut stack = stack(|_| ());
    let ask = |sender: packet::Mac| {
        let mut frame = vec![0; packet::arp::FRAME];
        let request =
            Arp { sender_mac: sender, ..Arp::request(mac(1), [10, 0, 0, 2].into(), [10, 0, 0, 1].into()) };
        request.emit_tagged(&mut frame, &Tags::NONE).expect("room");
        frame
    };
    let solicit = |sender: packet::Mac| {
        let (v6, own) = ("fd00::2".parse().expect("v6"), "fd00::1".parse().expect("v6"));
        let mut frame = vec![0; packet::nd::FRAME];
        Nd::solicitation(sender, v6, own).emit(&mut frame, &Tags::NONE).expect("room");
        frame
    };
    for (n, sender) in [[0xff; 6], [1, 0, 0x5e, 0, 0, 1], [0; 6]].into_iter().enumerate() {
        stack.receive(&ask(sender), 0);
        stack.receive(&solicit(sender), 0);
        assert_eq!(stack.counters().dropped(DropReason::BadSource), 2 * (n as u64 + 1), "{sender:?}");
        assert!(sent(&mut stack, 0).is_empty());
    }
    // the kernel's end of a tap has our Ethernet address
    for sender in [mac(1), mac(0)] {
        stack.receive(&ask(sender), 0);
        stack.receive(&solicit(sender), 0);
        assert_eq!((sent(&mut stack, 0).len(), stack.counters().dropped(DropReason::BadSource)), (2, 6));
    }
    // what came back to us is no other host's
    let own = [10, 0, 0, 1].into();
    let mut echo = vec![0; packet::arp::FRAME];
    Arp::request(mac(0), own, own).emit_tagged(&mut echo, &Tags::NONE).expect("room");
    stack.receive(&echo, 0);
    let dropped = |why| stack.counters().dropped(why);
    assert_eq!((dropped(DropReason::BadSource), dropped(DropReason::DuplicateAddress)), (7, 0));
}

/// RFC 5227 section 2.4, RFC 4862 section 5.4.4.
#[test]
fn another_host_with_our_address_is_noticed() {
    for worker in [0, 1] {
        let mut stack = stack(|config| config.share = stack::Share { worker, workers: 2 });
        let (v4, v6) = ([10, 0, 0, 1].into(), "fd00::1".parse().expect("v6"));
        let mut announced = vec![0; packet::arp::FRAME];
        Arp::request(mac(1), v4, v4).emit_tagged(&mut announced, &Tags::NONE).expect("room");
        let mut advertised = vec![0; packet::nd::FRAME];
        Nd::announcement(mac(1), v6).emit(&mut advertised, &Tags::NONE).expect("room");
        for frame in [&announced, &advertised] {
            assert_eq!(stack.receive(frame, 0), stack::Recipient::All);
        }
        assert!(sent(&mut stack, 0).is_empty());
        assert_eq!(stack.counters().dropped(DropReason::DuplicateAddress), if worker == 0 { 2 } else { 0 });
    }
}

/// RFC 5095, RFC 8200 section 4.4: a routing header of which nothing is left says nothing.
#[test]
fn nobody_sends_packets_on_by_a_routing_header() {
    let mut stack = stack(|_| ());
    stack.listen(80, 10);
    let header = Header {
        source: 7,
        destination: 80,
        sequence: 1,
        acknowledgment: 0,
        flags: flag::SYN,
        window: 9,
        options: Options::default(),
    };
    for (left, taken) in [(1, 0), (0, 1)] {
        let mut frame = segment(0, true, &header, &[]);
        let payload = u16::from_be_bytes([frame[18], frame[19]]) + 8;
        frame[18..20].copy_from_slice(&payload.to_be_bytes());
        let next = std::mem::replace(&mut frame[20], 43);
        frame.splice(54..54, [next, 0, 0, left, 0, 0, 0, 0]);
        stack.receive(&frame, 0);
        assert_eq!((stack.connections(), stack.counters().dropped(DropReason::RoutingHeader)), (taken, 1));
    }
}
