//! What must hold for any frame in everything that receives; and the frames that nobody should send.

use crate::expected::{Expected, Plain};
use crate::receiver::Measured;
use crate::stream_table::Lane;
use dpdk::Checked;
use element::interface_addr::InterfaceAddr;
use element::reflect::reflect;
use packet::arp::{Arp, Operation};
use packet::ethernet::{self, Tags};
use packet::frame::Sizes;
use packet::nd::{self, Nd};
use packet::{Layers, ipv4, ipv6};
use protocol::meter::{Tally, Window};
use protocol::time::Time;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

const STATION: InterfaceAddr =
    InterfaceAddr { mac: [2, 0, 0, 0, 0, 2], ip: IpAddr::V4(Ipv4Addr::new(10, 0, 0, 2)), tags: Tags::NONE };
const STATION6: InterfaceAddr =
    InterfaceAddr { ip: IpAddr::V6(Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 2)), ..STATION };

/// What a receiver knows that expects one stream.
fn measured() -> Measured {
    let window = Window { measure: Time(1), drain: Time::NEVER };
    Measured::new(vec![expected(None)], Lane::ALL, true, window)
}

fn expected(plain: Option<Plain>) -> Expected {
    let meter = [(); 3].map(|()| Tally::new(1));
    Expected { group: 0, streams: 0..1, meter, delay: Some(0), whole: false, plain }
}

/// The group's frames are plain datagrams from the station that is asked to the one that asks.
fn plain(v6: bool) -> Plain {
    let sources = vec![if v6 { STATION6.ip } else { STATION.ip }];
    let peer: IpAddr = match v6 {
        false => Ipv4Addr::new(10, 0, 0, 1).into(),
        true => Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 1).into(),
    };
    Plain::new((sources, 1), SocketAddr::new(peer, 7), (&Sizes::Cycle(vec![100]), 42), true)
}

/// Show `frame` to everything that receives. Panics when one of them does, or does what it must not.
pub fn show(frame: &[u8]) {
    let _any = measured().frame(frame, 9_000);
    for v6 in [false, true] {
        let window = Window { measure: Time(1), drain: Time::NEVER };
        let mut strict = Measured::new(vec![expected(Some(plain(v6)))], Lane::ALL, true, window);
        for said in [Checked::Unknown, Checked::Good, Checked::Bad] {
            let _any = strict.checked(frame, 9_000, said);
        }
    }
    let mut copy = frame.to_vec();
    let anybody = InterfaceAddr { ip: Ipv4Addr::UNSPECIFIED.into(), ..STATION }.into();
    if reflect(&mut copy, &anybody).is_ok() {
        assert_eq!(reflect(&mut copy, &anybody), Ok(()), "what was sent back can be sent back");
    }
    assert_eq!(copy, frame, "dropped frames are left alone, and there and back is where it was");
    answers(&STATION, frame);
    answers(&STATION6, frame);
}

/// What `station` says to it is right.
fn answers(station: &InterfaceAddr, frame: &[u8]) {
    let mut copy = frame.to_vec();
    if !station.answer(&mut copy) {
        assert_eq!(copy, frame, "what is not answered is left alone");
        let Some(longer) = station.longer(frame) else { return };
        copy.resize(longer, 0xff);
        assert!(station.answer(&mut copy), "with room it is answered");
    }
    assert!(!station.answer(&mut copy), "an answer is no question");
    assert_eq!(Tags::of(&copy), Tags::of(frame), "an answer stays in its VLAN");
    let ethernet = ethernet::Ethernet::parse(&copy).expect("answers are frames");
    if let Some(said) = Arp::parse(&copy) {
        let asked = Arp::parse(frame).expect("answers are for questions");
        assert_eq!((said.operation, said.sender_mac), (Operation::Reply, station.mac));
        assert_eq!((IpAddr::from(said.sender), said.target), (station.ip, asked.sender));
        return assert_eq!((ethernet.destination, ethernet.source), (asked.sender_mac, station.mac));
    }
    if let Some(said) = Nd::parse(&copy) {
        let asked = Nd::parse(frame).expect("answers are for questions");
        let solicited = !asked.source.is_unspecified();
        assert_eq!(said.operation, nd::Operation::Advertisement { solicited });
        assert_eq!((IpAddr::from(said.target), said.mac), (station.ip, Some(station.mac)));
        let back = if solicited { asked.source } else { nd::ALL_NODES };
        return assert_eq!((IpAddr::from(said.source), said.destination), (station.ip, back));
    }
    let layers = Layers::find(&copy).expect("a whole packet");
    let (source, reply) = match layers.is_v6() {
        false => (ipv4::addresses(&copy, layers.ip).map(|(source, _)| IpAddr::from(source)), 0),
        true => (ipv6::addresses(&copy, layers.ip).map(|(source, _)| IpAddr::from(source)), 129),
    };
    assert_eq!((source, &ethernet.destination[..]), (Some(station.ip), &frame[6..12]));
    assert_eq!((copy[layers.l4], layers.is_intact(&copy)), (reply, true), "a right echo reply");
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::receiver::Receiver;
    use crate::report::{Reporter, Run};
    use capture::{Direction, Source, Turn};
    use dpdk::{Batch, Eal, EalOptions, Mempool};
    use element::arp_nd::ArpNd;
    use element::capture::{Captured, PortCapture, Taps};
    use element::distribute::Distribute;
    use element::l2fwd::L2fwd;
    use element::reflect::Reflector;
    use engine::{About, Cx, Element, ElementStats, Engine, Graph, Options, Placement};
    use packet::ethernet::kind;
    use packet::frame::Written;
    use packet::signature::Signature;
    use packet::{Fault, Flow, Program, checksum};
    use proptest::prelude::*;
    use rand::rngs::SmallRng;
    use rand::{Rng, SeedableRng};
    use run::Control;
    use std::ops::ControlFlow;
    use std::sync::Arc;
    use std::sync::mpsc::channel;
    use std::time::{Duration, Instant};

    /// A packet in its segments.
    type Frame = Vec<Vec<u8>>;

    /// Frames of one kind, and what may become of them.
    struct Case {
        name: &'static str,
        frames: Vec<Frame>,
        receiver: &'static [&'static str],
        reflector: &'static [&'static str],
        neighbour: &'static [&'static str],
        /// At a neighbour with an IPv6 address.
        neighbour6: &'static [&'static str],
    }

    fn ours(v6: bool, len: usize) -> Vec<u8> {
        let ip = |ours: bool| match (v6, ours) {
            (false, true) => STATION.ip,
            (false, false) => [10, 0, 0, 1].into(),
            (true, _) => IpAddr::from([0xfd00, 0, 0, 0, 0, 0, 0, 1]),
        };
        let flow = Flow {
            source_mac: [2, 0, 0, 0, 0, 1],
            destination_mac: STATION.mac,
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
        let mut frame = [&STATION.mac[..], &[2, 0, 0, 0, 0, 1]].concat();
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

    fn arp() -> Vec<u8> {
        let mut frame = [0; packet::arp::FRAME];
        Arp::request([2, 0, 0, 0, 0, 1], [10, 0, 0, 1].into(), [10, 0, 0, 2].into()).emit(&mut frame);
        frame.to_vec()
    }

    fn echo() -> Vec<u8> {
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

    fn solicitation() -> Vec<u8> {
        let IpAddr::V6(target) = STATION6.ip else { unreachable!("it has one") };
        let from = [0xfd00, 0, 0, 0, 0, 0, 0, 1].into();
        let mut frame = vec![0; nd::FRAME];
        Nd::solicitation([2, 0, 0, 0, 0, 1], from, target).emit(&mut frame, &Tags::NONE).expect("it fits");
        frame
    }

    /// By somebody who has no address yet, as short as can be.
    fn probe() -> Vec<u8> {
        let mut frame = solicitation();
        frame[22..38].fill(0);
        frame.truncate(78);
        icmp6(frame)
    }

    fn echo6() -> Vec<u8> {
        let mut frame = solicitation();
        let IpAddr::V6(us) = STATION6.ip else { unreachable!("it has one") };
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
    fn corpus() -> Vec<Case> {
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

    fn eal() -> &'static Eal {
        Eal::start(&EalOptions::default()).expect("DPDK starts without huge pages")
    }

    /// Source of given frames.
    struct Feed {
        frames: std::vec::IntoIter<Frame>,
        pool: Mempool,
    }

    impl Element for Feed {
        fn about(&self) -> About {
            About { kind: "feed", takes: false, outputs: &["out"], drops: &[], polled: true }
        }

        fn poll(&mut self, batch: &mut Batch, _: &mut Cx<'_>) {
            // Few at a time: they are long, and the pool is small.
            while batch.len() < 32
                && let Some(frame) = self.frames.next()
            {
                let mut segments = frame.iter().map(|bytes| {
                    let mut one = Batch::new();
                    assert!(self.pool.fill(&mut one, 1));
                    let mut mbuf = one.into_iter().next().expect("filled");
                    mbuf.set_len(bytes.len()).expect("room").copy_from_slice(bytes);
                    mbuf
                });
                let mut whole = segments.next().expect("at least one segment");
                segments.for_each(|segment| whole.chain(segment).expect("few"));
                batch.push(whole).expect("room");
            }
        }
    }

    /// Sink: the end of everything.
    struct End;

    impl Element for End {
        fn about(&self) -> About {
            About { kind: "end", takes: true, outputs: &[], drops: &[], polled: false }
        }

        fn push(&mut self, batch: &mut Batch, cx: &mut Cx<'_>) {
            cx.consume(batch);
        }
    }

    /// Let `frames` go through `element`; what it counted. `taps` is where they can be captured.
    fn through(frames: Vec<Frame>, element: impl Element + 'static, taps: &Taps, run: &Run) -> ElementStats {
        let count = frames.len() as u64;
        let pool = Mempool::new(eal(), 127, 65_200).expect("memory");
        let mut graph = Graph::new();
        let feed =
            graph.add("feed", Captured::new(Feed { frames: frames.into_iter(), pool }, taps.rx[0].clone()));
        let element = graph.add("element", element);
        let end = graph.add("end", Captured::new(End, taps.tx[0].clone()));
        graph.chain(&[feed, element, end]);
        let engine =
            Engine::start(eal(), graph, &Placement::single(None), &Options::default()).expect("it runs");
        let began = Instant::now();
        while engine.elements()[0].packets_out < count {
            assert!(began.elapsed() < Duration::from_secs(20), "{:?}", engine.elements());
            std::thread::sleep(Duration::from_micros(200));
        }
        run.end();
        engine.stop().swap_remove(1)
    }

    fn standing() -> Run {
        Run::new(Arc::new(Control::new(0, u64::MAX, 0, u64::MAX)))
    }

    /// Every frame went out, was used, or was dropped for a reason that `allowed` names.
    fn all_counted(case: &Case, stats: &ElementStats, (out, used): (&str, u64), allowed: &[&str]) {
        let name = case.name;
        assert_eq!(stats.packets_in, case.frames.len() as u64, "{name}");
        assert_eq!(stats.packets_in, stats.packets_out + used + stats.dropped(), "{name}: {stats:?}");
        let mut became: Vec<&str> = stats.drops.iter().map(|(reason, _)| reason.as_str()).collect();
        became.extend((stats.packets_out > 0).then_some(out));
        became.extend((used > 0).then_some("measured"));
        assert!(became.iter().all(|what| allowed.contains(what)), "{name}: {became:?}, not only {allowed:?}");
    }

    #[test]
    fn the_receiver_counts_every_frame_under_a_reason() {
        for case in corpus() {
            let (to, reports) = channel();
            let run = Arc::new(standing());
            let reporter = Reporter::new(run.clone(), 0, to);
            let receiver = Receiver::new(vec![expected(None)], (Lane::ALL, true), reporter, None);
            let stats = through(case.frames.clone(), receiver, &Taps::new(1), &run);
            let tallies = reports.iter().flat_map(|report| report.groups).flat_map(|(_, phases)| phases);
            let used = tallies.map(|tally| tally.counts.messages_delivered + tally.counts.duplicates).sum();
            all_counted(&case, &stats, ("other", used), case.receiver);
        }
    }

    #[test]
    fn the_reflector_counts_every_frame_under_a_reason() {
        for case in corpus() {
            let stats = through(case.frames.clone(), Reflector(STATION.into()), &Taps::new(1), &standing());
            all_counted(&case, &stats, ("out", 0), case.reflector);
        }
    }

    #[test]
    fn the_neighbour_counts_every_frame_under_a_reason() {
        for case in corpus() {
            let stats = through(case.frames.clone(), ArpNd(STATION.into()), &Taps::new(1), &standing());
            all_counted(&case, &stats, ("out", 0), case.neighbour);
            let stats = through(case.frames.clone(), ArpNd(STATION6.into()), &Taps::new(1), &standing());
            all_counted(&case, &stats, ("out", 0), case.neighbour6);
        }
    }

    #[test]
    fn the_spreader_drops_nothing() {
        for case in corpus() {
            let stats = through(case.frames.clone(), Distribute::new(1), &Taps::new(1), &standing());
            all_counted(&case, &stats, ("out", 0), &["out"]);
        }
    }

    #[test]
    fn the_forwarder_hands_on_all_that_has_addresses() {
        for case in corpus() {
            let forward = L2fwd(profile::Forward::Macswap);
            let stats = through(case.frames.clone(), forward, &Taps::new(1), &standing());
            all_counted(&case, &stats, ("out", 0), &["out", "truncated"]);
            let short = case.frames.iter().filter(|frame| frame[0].len() < ethernet::LEN).count();
            assert_eq!(stats.dropped(), short as u64, "{}", case.name);
        }
    }

    /// An element that lets all pass.
    struct Pass;

    impl Element for Pass {
        fn about(&self) -> About {
            About { kind: "pass", takes: true, outputs: &["out"], drops: &[], polled: false }
        }
    }

    #[test]
    fn the_capture_has_every_frame_as_it_was() {
        let filtered = |text: &str| profile::Capture { filter: text.into(), ..profile::Capture::default() };
        for case in corpus() {
            let taps = Taps::new(1);
            let mut capture = PortCapture::start("a", &taps, &filtered("")).expect("it starts");
            through(case.frames.clone(), Pass, &taps, &standing());
            capture.stop();
            let mut seen: [Vec<(Vec<u8>, usize)>; 2] = Default::default();
            let mut keep = |packet: &capture::Packet<'_>| {
                let which = usize::from(packet.direction == Some(Direction::Out));
                seen[which].push((packet.data.to_vec(), packet.len as usize));
                ControlFlow::Continue(())
            };
            while !matches!(capture.turn(&mut keep).expect("it reads"), Turn::Over) {}
            assert_eq!(capture.dropped(), 0, "{}", case.name);
            let whole = |frame: &Frame| (frame[0].clone(), frame.iter().map(Vec::len).sum());
            let expected: Vec<(Vec<u8>, usize)> = case.frames.iter().map(whole).collect();
            assert!(seen[0] == expected && seen[1] == expected, "{}", case.name);

            // No filter is broken by them either.
            let taps = Taps::new(1);
            let mut capture =
                PortCapture::start("a", &taps, &filtered("vlan and udp and ip[6:2] & 0x3fff = 0"));
            let stats = through(case.frames.clone(), Pass, &taps, &standing());
            assert_eq!(stats.packets_out, case.frames.len() as u64);
            capture.as_mut().expect("it started").stop();
        }
    }

    #[test]
    fn each_of_the_corpus_is_shown_to_all() {
        corpus().iter().flat_map(|case| &case.frames).for_each(|frame| show(&frame.concat()));
    }

    proptest! {
        /// Near to a question, so that some are one.
        #[test]
        fn nothing_breaks_the_neighbour_or_makes_it_say_what_is_wrong(
            kind in 0usize..5,
            changes in proptest::collection::vec((0usize..90, any::<u8>()), 0..4),
            more in proptest::collection::vec(any::<u8>(), 0..80),
            cut in 0usize..=170,
        ) {
            let mut frame = [arp, echo, solicitation, probe, echo6][kind]();
            for (at, value) in changes {
                if let Some(byte) = frame.get_mut(at) {
                    *byte = value;
                }
            }
            frame.extend(more);
            frame.truncate(cut.max(1));
            show(&frame);
        }

        #[test]
        fn nothing_breaks_anything(frame in proptest::collection::vec(any::<u8>(), 0..256)) {
            show(&frame);
        }
    }
}
