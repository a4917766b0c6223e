//! Frames that nobody should send, by kind, with what may become of them.

use super::*;
use packet::ethernet::kind;
use packet::frame::Written;
use packet::signature::Signature;
use packet::{Fault, Flow, Program, checksum};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

/// A packet in its segments.
pub(super) type Frame = Vec<Vec<u8>>;

/// Frames of one kind, and what may become of them.
pub(super) struct Case {
    pub(super) name: &'static str,
    pub(super) frames: Vec<Frame>,
    pub(super) receiver: &'static [&'static str],
    pub(super) reflector: &'static [&'static str],
    pub(super) neighbour: &'static [&'static str],
    /// At a neighbour with an IPv6 address.
    pub(super) neighbour6: &'static [&'static str],
}

fn ours(v6: bool, len: usize) -> Vec<u8> {
    let ip = |ours: bool| match (v6, ours) {
        (false, true) => ADDR.ip,
        (false, false) => [10, 0, 0, 1].into(),
        (true, _) => IpAddr::from([0xfd00, 0, 0, 0, 0, 0, 0, 1]),
    };
    let flow = Flow {
        source_mac: [2, 0, 0, 0, 0, 1],
        destination_mac: ADDR.mac,
        source: (ip(false), 1000).into(),
        destination: (ip(true), 7).into(),
    };
    let mut program = Program::udp(&flow, len).expect("it fits");
    let mut frame = vec![0; len];
    assert_eq!(
        program.write(&mut frame, 0, &Signature { stream: 0, sequence: 3, sent_ns: 5 }),
        Written::Signed
    );
    frame
}

/// An Ethernet frame around `rest`.
fn ether(kind: u16, rest: &[u8]) -> Vec<u8> {
    let mut frame = [&ADDR.mac[..], &[2, 0, 0, 0, 0, 1]].concat();
    frame.extend(kind.to_be_bytes());
    frame.extend(rest);
    frame
}

/// `frame` with its IPv4 header changed, and the header's checksum right again.
fn v4(mut frame: Vec<u8>, change: impl FnOnce(&mut [u8])) -> Vec<u8> {
    change(&mut frame[14..34]);
    frame[24..26].fill(0);
    let sum = checksum::of(&frame[14..34]);
    frame[24..26].copy_from_slice(&sum.to_be_bytes());
    frame
}

fn v4_length(frame: Vec<u8>, length: u16) -> Vec<u8> {
    v4(frame, |ip| ip[2..4].copy_from_slice(&length.to_be_bytes()))
}

/// A UDP datagram over IPv4 whose header says `length`, with `payload` and no checksum.
fn udp(length: u16, payload: usize) -> Vec<u8> {
    let mut frame = ours(false, 60);
    frame.truncate(34);
    frame.extend([0, 1, 0, 7]);
    frame.extend(length.to_be_bytes());
    frame.resize(frame.len() + 2 + payload, 0);
    v4_length(frame, 28 + payload as u16)
}

/// An IPv6 packet with these bytes after its header; `length` is what the header says of them.
fn v6(next: u8, length: usize, rest: &[u8]) -> Vec<u8> {
    let mut frame = ours(true, 100)[..54].to_vec();
    frame[18..20].copy_from_slice(&(length as u16).to_be_bytes());
    frame[20] = next;
    frame.extend(rest);
    frame
}

/// Extension headers of these kinds in a row, then our UDP.
fn extended(kinds: &[u8]) -> Vec<u8> {
    let udp = &ours(true, 100)[54..];
    let mut next = kinds[1..].to_vec();
    next.push(17);
    let mut rest: Vec<u8> = next.iter().flat_map(|next| [*next, 0, 0, 0, 0, 0, 0, 0]).collect();
    rest.extend(udp);
    v6(kinds[0], rest.len(), &rest)
}

fn tagged(tags: &[u16]) -> Vec<u8> {
    let mut frame = ours(false, 100);
    for tag in tags {
        let kind = [frame[12], frame[13]];
        frame.splice(12..14, [(tag >> 8) as u8, *tag as u8, 0, 1, kind[0], kind[1]]);
    }
    frame
}

pub(super) fn arp() -> Vec<u8> {
    let mut frame = [0; packet::arp::FRAME];
    Arp::request([2, 0, 0, 0, 0, 1], [10, 0, 0, 1].into(), [10, 0, 0, 2].into()).emit(&mut frame);
    frame.to_vec()
}

pub(super) fn echo() -> Vec<u8> {
    let mut frame = ours(false, 60);
    frame[23] = packet::layers::protocol::ICMP;
    frame[34..].fill(0);
    frame[34] = 8;
    let sum = checksum::of(&frame[34..]);
    frame[36..38].copy_from_slice(&sum.to_be_bytes());
    v4(frame, |_| ())
}

/// `frame`, an ICMPv6 packet without tags, with its length and checksum right.
fn icmp6(mut frame: Vec<u8>) -> Vec<u8> {
    let length = frame.len() - 54;
    frame[18..20].copy_from_slice(&(length as u16).to_be_bytes());
    frame[56..58].fill(0);
    let sum = Layers::find(&frame).expect("whole").checksum(&frame);
    frame[56..58].copy_from_slice(&sum.to_be_bytes());
    frame
}

pub(super) fn solicitation() -> Vec<u8> {
    let IpAddr::V6(target) = ADDR6.ip else { unreachable!("it has one") };
    let from = [0xfd00, 0, 0, 0, 0, 0, 0, 1].into();
    let mut frame = vec![0; nd::FRAME];
    Nd::solicitation([2, 0, 0, 0, 0, 1], from, target).emit(&mut frame, &Tags::NONE).expect("it fits");
    frame
}

/// By somebody who has no address yet, as short as can be.
pub(super) fn probe() -> Vec<u8> {
    let mut frame = solicitation();
    frame[22..38].fill(0);
    frame.truncate(78);
    icmp6(frame)
}

pub(super) fn echo6() -> Vec<u8> {
    let mut frame = solicitation();
    let IpAddr::V6(us) = ADDR6.ip else { unreachable!("it has one") };
    frame[38..54].copy_from_slice(&us.octets());
    frame[54] = 128;
    icmp6(frame)
}

fn odd_nd() -> Vec<Vec<u8>> {
    let with = |at: usize, value: u8| {
        let mut frame = solicitation();
        frame[at] = value;
        icmp6(frame)
    };
    let mut odd = vec![
        with(21, 254),
        with(54, 134),
        with(55, 1),
        with(62, 0xff),
        with(79, 0),
        with(79, 2),
        with(79, 255),
    ];
    odd.extend((62..86).filter(|len| *len != 78).map(|len| icmp6(solicitation()[..len].to_vec())));
    let mut broken = solicitation();
    broken[57] ^= 1;
    odd.push(broken);
    // Asked by nobody, who cannot have an Ethernet address.
    let mut nobody = solicitation();
    nobody[22..38].fill(0);
    odd.push(icmp6(nobody));
    odd
}

fn random() -> Vec<Vec<u8>> {
    let mut rng = SmallRng::seed_from_u64(1);
    let mut one = |_| {
        let mut frame = vec![0; rng.random_range(0..1600)];
        rng.fill(&mut frame[..]);
        // Half of them look like something.
        let kinds = [kind::IPV4, kind::IPV6, kind::ARP, kind::VLAN, kind::QINQ];
        let kind = kinds[rng.random_range(0..kinds.len())].to_be_bytes();
        if rng.random() && frame.len() > 14 {
            frame[12..14].copy_from_slice(&kind);
            frame[14] = if rng.random() { 0x45 } else { 0x60 };
        }
        frame
    };
    (0..2000).map(&mut one).collect()
}

const ANY: &[&str] = &{
    let mut names = ["other"; Fault::NAMES.len() + 7];
    let mut i = 0;
    while i < Fault::NAMES.len() {
        names[i] = Fault::NAMES[i];
        i += 1;
    }
    names[i] = "out";
    names[i + 1] = "measured";
    names[i + 2] = "not_for_us";
    names[i + 3] = "unknown_stream";
    names[i + 4] = "icmp_error";
    names[i + 5] = "icmp_unmatched";
    names
};
const NOT_FOR_US: &[&str] = &["not_for_us"];

#[rustfmt::skip]
pub(super) fn corpus() -> Vec<Case> {
    fn case(
        name: &'static str,
        frames: impl IntoIterator<Item = Vec<u8>>,
        receiver: &'static [&'static str],
        reflector: &'static [&'static str],
    ) -> Case {
        let frames = frames.into_iter().map(|frame| vec![frame]).collect();
        Case { name, frames, receiver, reflector, neighbour: NOT_FOR_US, neighbour6: NOT_FOR_US }
    }
    let (udp4, udp6) = (ours(false, 100), ours(true, 100));
    let cut = |frame: &Vec<u8>| (0..frame.len()).map(|len| frame[..len].to_vec()).collect::<Vec<_>>();
    let all = [&udp4, &udp6, &arp(), &echo(), &tagged(&[kind::VLAN]), &extended(&[0, 43]), &solicitation(), &echo6()]
        .map(Clone::clone);
    let mutated = all.iter().flat_map(|frame| (0..frame.len()).flat_map(|at| [0, 1, 0x7f, 0xff].map(|value| {
        let mut frame = frame.clone();
        frame[at] = value;
        frame
    })));
    let fragment = |word: u16| v4(udp4.clone(), |ip| ip[6..8].copy_from_slice(&word.to_be_bytes()));
    let odd_arp = (14..19).flat_map(|at| [0, 2, 5, 255].map(|value| {
        let mut frame = arp();
        frame[at] = value;
        frame
    })).chain([0u16, 3, 0xffff].map(|operation| {
        let mut frame = arp();
        frame[20..22].copy_from_slice(&operation.to_be_bytes());
        frame
    })).filter(|frame| *frame != arp());
    let big = |payload: u16| v4_length(udp(8 + payload, payload.into()), 28 + payload);
    let split = |at: usize| vec![udp4[..at].to_vec(), udp4[at..].to_vec()];
    vec![
        case("truncated", all.iter().flat_map(cut), &["truncated", "bad_length", "other"],
            &["truncated", "bad_length", "not_ip"]),
        case("two tags", [tagged(&[kind::VLAN]), tagged(&[kind::VLAN, kind::QINQ])], &["measured"], &["out"]),
        case("too many tags", (3..40).map(|n| tagged(&vec![kind::VLAN; n])), &["measured"], &["not_ip"]),
        case("too many service tags", (3..9).map(|n| tagged(&vec![kind::QINQ; n])), &["measured"], &["not_ip"]),
        case("an IPv4 length that cannot be", [0, 1, 19, 87, 0xffff].map(|n| v4_length(udp4.clone(), n)),
            &["bad_length"], &["bad_length"]),
        case("no room for UDP", (20..28).map(|n| v4_length(udp4.clone(), n)), &["truncated"], &["truncated"]),
        case("an IHL below 5", (0..5).map(|ihl| v4(udp4.clone(), |ip| ip[0] = 0x40 | ihl)),
            &["bad_header"], &["bad_header"]),
        case("an IHL beyond the frame", [v4(udp(8, 0), |ip| ip[0] = 0x4f)], &["truncated"], &["truncated"]),
        case("an IP version that is none", (0..16).filter(|n| *n != 4).map(|n| v4(udp4.clone(), |ip| ip[0] = n << 4 | 5)),
            &["bad_header"], &["bad_header"]),
        case("IPv4 that says it is IPv6", [ether(kind::IPV6, &udp4[14..])], &["bad_header"], &["bad_header"]),
        case("fragments", [0x2000, 1, 0x3fff].map(fragment).into_iter().chain([extended(&[44]), extended(&[0, 44])]),
            &["fragment"], &["fragment"]),
        case("IPv6 extensions", [extended(&[0]), extended(&[0, 43, 60, 60])], &["measured"], NOT_FOR_US),
        case("too many extensions", (5..40).map(|n| extended(&vec![60; n])), &["bad_header"], &["bad_header"]),
        case("an extension beyond the packet", [1, 20, 255].map(|len| v6(0, 8, &[17, len, 0, 0, 0, 0, 0, 0])),
            &["bad_length"], &["bad_length"]),
        case("an extension that is not there", [v6(0, 0, &[]), v6(43, 1, &[17])], &["truncated"], &["truncated"]),
        case("an IPv6 length beyond the frame", [v6(17, 47, &udp6[54..]), v6(17, 0xffff, &[])],
            &["bad_length"], &["bad_length"]),
        case("UDP without payload", [udp(8, 0)], &["no_signature"], &["out"]),
        case("a UDP length that cannot be", [udp(0, 0), udp(7, 0), udp(9, 0), udp(0xffff, 9)],
            &["bad_length"], &["out"]),
        case("UDP over IPv6 without checksum", [v6(17, 8, &[0, 1, 0, 7, 0, 8, 0, 0])], &["bad_checksum"], NOT_FOR_US),
        case("jumbo", [big(8972), big(65_000)], &["no_signature"], &["out"]),
        Case { neighbour: &["segmented"], neighbour6: &["segmented"], frames: (0..=100).map(split).collect(),
            ..case("segmented", [], &["segmented"], &["segmented"]) },
        Case { neighbour: &["out"], ..case("questions", [arp(), echo()], &["other"], &["out"]) },
        Case { neighbour6: &["out"],
            ..case("questions over IPv6", [solicitation(), probe(), echo6()], &["other"], &["not_udp"]) },
        case("odd neighbour discovery", odd_nd(), &["other"], &["not_udp"]),
        case("odd ARP", odd_arp, &["other"], &["not_ip"]),
        case("ones", (0..1600).step_by(7).map(|n| vec![0xff; n]), &["truncated", "other"], &["truncated", "not_ip"]),
        case("zeros", (0..1600).step_by(7).map(|n| vec![0; n]), &["truncated", "other"], &["truncated", "not_ip"]),
        Case { neighbour: ANY, neighbour6: ANY, ..case("random", random(), ANY, ANY) },
        Case { neighbour: ANY, neighbour6: ANY, ..case("changed", mutated, ANY, ANY) },
    ]
}
