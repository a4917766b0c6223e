//! Work left to ports: what a peer that was told nothing receives is right, and what a port says of what it received is true.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use crate::common::{alone, eal, ip, write_pcap};
use dpdk::{Batch, Checked, Headers, Mempool, Offloads, Port, PortConfig, RxQueue, TxQueue, TxWork};
use packet::frame::{
    ChecksumOffload, Devices, Fill, Layer, PayloadLayer, Recipe, Segmentation, Sizes, TcpLayer, compose,
    compose_for,
};
use packet::signature::Signature;
use packet::udp::Datagram;
use packet::{Flow, Layers};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

const PATIENCE: Duration = Duration::from_secs(5);

struct Open {
    port: Port,
    rx: RxQueue,
    tx: TxQueue,
    does: Offloads,
}

/// The port, doing all that it offers, or nothing.
fn open(device: &str, pool: &Mempool, all: bool) -> Open {
    let port = Port::open(eal(), device).unwrap_or_else(|why| panic!("{why}"));
    let does = if all { Offloads::of(&port.info().unwrap()) } else { Offloads::default() };
    let config = PortConfig { offloads: does, ..PortConfig::default() };
    let (mut rx, mut tx) = port.start(&config, pool).unwrap_or_else(|why| panic!("{why}"));
    Open { port, rx: rx.remove(0), tx: tx.remove(0), does }
}

/// A frame of UDP or TCP with its checksums right, and where its headers are.
fn frame(v6: bool, tcp: bool, len: usize) -> (Vec<u8>, Headers) {
    let (source, destination) =
        if v6 { ("[fd00::1]:5", "[fd00::2]:7") } else { ("10.0.0.1:5", "10.0.0.2:7") };
    let flow = Flow {
        source_mac: [2, 0, 0, 0, 0, 9],
        destination_mac: [255; 6],
        source: source.parse().unwrap(),
        destination: destination.parse().unwrap(),
    };
    let mut layers = Layer::udp(v6);
    if tcp {
        layers[2] = Layer::Tcp(TcpLayer::default());
    }
    let (sizes, devices) = (Sizes::Cycle(vec![len]), Devices::default());
    let recipe =
        Recipe { layers: &layers, vary: &[], sizes: &sizes, measured: true, flow: &flow, devices, seed: 0 };
    let mut frame = vec![0; len];
    compose(&recipe).unwrap().write(
        &mut frame,
        0,
        &Signature { stream: 1, sequence: len as u64, sent_ns: 3 },
    );
    let layers = Layers::find(&frame).unwrap();
    let (l2, l3) = (layers.ip as u8, (layers.l4 - layers.ip) as u16);
    (frame, Headers { l2, l3, l4: if tcp { 20 } else { 8 }, v6, tcp })
}

/// Where its checksum stands.
fn place(headers: &Headers) -> usize {
    usize::from(headers.l2) + usize::from(headers.l3) + if headers.tcp { 16 } else { 6 }
}

fn right(frame: &[u8]) -> bool {
    Layers::find(frame).is_ok_and(|layers| {
        layers.is_intact(frame) && !matches!(Datagram::parse(frame, &layers), Err(packet::Fault::BadChecksum))
    })
}

fn send(from: &mut Open, pool: &Mempool, frame: &[u8], work: Option<TxWork>) {
    let mut batch = Batch::new();
    assert!(pool.fill(&mut batch, 1));
    batch.frames_mut()[0].set_len(frame.len()).unwrap().copy_from_slice(frame);
    work.iter().for_each(|work| batch.frames_mut()[0].request_tx_offload(work));
    let deadline = Instant::now() + PATIENCE;
    while from.tx.send(&mut batch) == 0 {
        assert!(Instant::now() < deadline, "it is not sent");
    }
}

/// The next frame that comes, and what the port says of its checksum.
fn receive(to: &mut Open) -> (Vec<u8>, Checked) {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let mut batch = Batch::new();
        to.rx.receive(&mut batch);
        if let [mbuf, rest @ ..] = batch.frames() {
            assert!(rest.is_empty(), "one was sent");
            return (mbuf.data().to_vec(), mbuf.checksum());
        }
        assert!(Instant::now() < deadline, "nothing came");
        std::thread::sleep(Duration::from_micros(100));
    }
}

/// What was left to `ours` is right at a peer that does nothing.
fn leaves(ours: &mut Open, peer: &mut Open, pool: &Mempool) {
    for (v6, tcp, len) in [(false, false, 100), (true, false, 101), (false, true, 1400), (true, true, 99)] {
        let (whole, headers) = frame(v6, tcp, len);
        let mut left = whole.clone();
        left[place(&headers)..][..2].copy_from_slice(&[0xde, 0xad]);
        let ipv4 = ours.does.tx_ipv4_checksum && !v6;
        if ipv4 {
            left[24..26].copy_from_slice(&[0xbe, 0xef]);
        }
        send(ours, pool, &left, Some(TxWork::checksums(&headers, ipv4)));
        assert_eq!(receive(peer).0, whole, "{headers:?}");
        // What nothing is left of goes as it is, right or wrong.
        left[place(&headers)..][..2].copy_from_slice(&[0xde, 0xad]);
        let as_it_is = if ipv4 { &whole } else { &left };
        send(ours, pool, as_it_is, None);
        assert_eq!(receive(peer).0, *as_it_is);
    }
}

/// What `ours` says of checksums is true; `exact`: and it always says something.
fn looks(ours: &mut Open, peer: &mut Open, pool: &Mempool, exact: bool) {
    for (v6, tcp) in [(false, false), (true, false), (false, true), (true, true)] {
        let (mut frame, headers) = frame(v6, tcp, 120);
        send(peer, pool, &frame, None);
        let (got, said) = receive(ours);
        assert!(got == frame && right(&got));
        assert!(said == Checked::Good || !exact && said == Checked::Unknown, "{headers:?}: {said:?}");
        frame[80] ^= 4;
        send(peer, pool, &frame, None);
        let (got, said) = receive(ours);
        assert!(got == frame && !right(&got));
        assert!(said == Checked::Bad || !exact && said == Checked::Unknown, "{headers:?}: {said:?}");
    }
}

const UNTAGGED: &[u8] = &[];
const DOT1Q: &[u8] = &[0x81, 0, 0x60, 100];
const DOT1AD: &[u8] = &[0x88, 0xa8, 0, 200, 0x81, 0, 0, 100];
/// QinQ as it was before 802.1ad.
const DOT1Q_TWICE: &[u8] = &[0x81, 0, 0, 200, 0x81, 0, 0, 100];

fn tagged(plain: &[u8], tags: &[u8]) -> Vec<u8> {
    [&plain[..12], tags, &plain[12..]].concat()
}

/// Tags are where they belong, whoever puts them in or takes them out.
fn tags(ours: &mut Open, peer: &mut Open, pool: &Mempool, all: &[&[u8]]) {
    let (plain, headers) = frame(false, false, 100);
    for tags in all {
        let whole = tagged(&plain, tags);
        send(ours, pool, &whole, None);
        assert_eq!(receive(peer).0, whole, "sent with {tags:x?}");
        send(peer, pool, &whole, None);
        assert_eq!(receive(ours).0, whole, "received with {tags:x?}");
        if ours.does.tx_checksum {
            let headers = Headers { l2: headers.l2 + tags.len() as u8, ..headers };
            let mut left = whole.clone();
            left[place(&headers)..][..2].copy_from_slice(&[0, 0]);
            send(ours, pool, &left, Some(TxWork::checksums(&headers, false)));
            assert_eq!(receive(peer).0, whole, "left with {tags:x?}");
        }
    }
}

/// A frame of TCP with `payload` bytes, to be segmented into packets of `segment`, whose checksums are left; and how.
fn large(v6: bool, payload: usize, segment: u16, left: ChecksumOffload) -> (Vec<u8>, Segmentation) {
    let address =
        |last: u8| if v6 { format!("[fd00::{last}]:{last}") } else { format!("10.0.0.{last}:{last}") };
    let flow = Flow {
        source_mac: [2, 0, 0, 0, 0, 9],
        destination_mac: [255; 6],
        source: address(1).parse().unwrap(),
        destination: address(2).parse().unwrap(),
    };
    let mut layers = Layer::udp(v6).to_vec();
    let flags = "FPA".to_owned();
    layers[2] =
        Layer::Tcp(TcpLayer { flags, segment: Some(segment), sequence: u32::MAX, ..TcpLayer::default() });
    layers.push(Layer::Payload(PayloadLayer { fill: Fill::Random, ..PayloadLayer::default() }));
    let len = if v6 { 74 } else { 54 } + payload;
    let (sizes, devices) = (Sizes::Cycle(vec![len]), Devices::default());
    let recipe =
        Recipe { layers: &layers, vary: &[], sizes: &sizes, measured: false, flow: &flow, devices, seed: 0 };
    let mut program = compose_for(&recipe, left).unwrap();
    let mut frame = vec![0; len];
    program.write(&mut frame, 0, &Signature { stream: 0, sequence: 0, sent_ns: 0 });
    (frame, program.segmentation().unwrap())
}

/// What `ours` segments is what the software would.
fn segments(ours: &mut Open, peer: &mut Open, pool: &Mempool, v6: bool, sizes: &[(usize, u16)]) {
    let ipv4 = ours.does.tx_ipv4_checksum && !v6;
    for (payload, segment) in sizes {
        let (frame, segmentation) = large(
            v6,
            *payload,
            *segment,
            if ipv4 { ChecksumOffload::All } else { ChecksumOffload::Transport },
        );
        let headers = Headers { l2: 14, l3: if v6 { 40 } else { 20 }, l4: 20, v6, tcp: true };
        let mut mbuf = pool.packet(&frame).unwrap();
        mbuf.request_tx_offload(&TxWork::segments(&headers, ipv4, *segment));
        let mut batch = Batch::new();
        batch.push(mbuf).unwrap();
        assert_eq!(ours.tx.send(&mut batch), 1, "{payload} {segment}");
        let mut got: Vec<Vec<u8>> = Vec::new();
        let deadline = Instant::now() + PATIENCE;
        while got.len() < segmentation.packets() {
            assert!(Instant::now() < deadline, "{} of {payload} by {segment} came", got.len());
            peer.rx.receive(&mut batch);
            got.extend(batch.frames().iter().map(|mbuf| mbuf.data().to_vec()));
            batch.clear();
        }
        for (number, got) in got.iter().enumerate() {
            let mut expected = vec![0; segmentation.packet_len(number)];
            segmentation.write(&frame, number, &mut expected);
            // Ports do not pad what is shorter than Ethernet's least.
            let padding = expected.split_off(got.len());
            assert!(*got == expected && padding.len() < 6, "{number} of {payload} by {segment}");
        }
    }
}

fn folder(kind: &str) -> PathBuf {
    let folder = std::env::temp_dir().join(format!("nd-offload-{}-{kind}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    folder
}

fn up(ours: &Open, peer: &Open) {
    let deadline = Instant::now() + PATIENCE;
    while !(ours.port.link().up && peer.port.link().up) {
        assert!(Instant::now() < deadline, "the links do not come up");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Work that the driver does by writing into the packet is done to none of the bytes that another packet has, too.
fn shares(ours: &mut Open, peer: &mut Open, pool: &Mempool) {
    let (mut untagged, headers) = frame(false, false, 100);
    untagged[place(&headers)..][..2].copy_from_slice(&[0xde, 0xad]);
    let mut tagged = untagged.clone();
    tagged.splice(12..12, [0x81, 0, 0, 100]);
    for (bytes, work) in [(untagged, Some(TxWork::checksums(&headers, false))), (tagged, None)] {
        let mut first = pool.packet(&bytes).unwrap();
        if let Some(work) = &work {
            first.request_tx_offload(work);
        }
        let mut batch = Batch::new();
        batch.push(pool.clone_of(&first).unwrap()).unwrap();
        let deadline = Instant::now() + PATIENCE;
        while ours.tx.send(&mut batch) == 0 {
            assert!(Instant::now() < deadline, "it is not sent");
        }
        let (came, _) = receive(peer);
        assert_eq!(first.data(), bytes, "another packet's bytes were written");
        assert_eq!((came.len(), &came[..14]), (bytes.len(), &bytes[..14]));
    }
}

fn pool() -> Mempool {
    Mempool::new(eal(), 8191, 2048).unwrap()
}

/// The kernel's side of the tap is what a raw socket on it sends and gets.
#[test]
fn tap() {
    if let Err(why) = alone() {
        return outcome::skipped(why);
    }
    let pool = pool();
    let mut ours = open("tap:ndtap1", &pool, true);
    assert!(ours.does.tx_checksum && ours.does.tx_ipv4_checksum && ours.does.rx_checksum, "{:?}", ours.does);
    let mut peer = open("af_packet:ndtap1", &pool, false);
    up(&ours, &peer);
    leaves(&mut ours, &mut peer, &pool);
    looks(&mut ours, &mut peer, &pool, true);
    assert!(ours.does.tso, "{:?}", ours.does);
    segments(&mut ours, &mut peer, &pool, false, &[(3000, 1446), (65, 64), (40_000, 1000)]);
}

#[test]
fn vhost_and_virtio() {
    let (pool, folder) = (pool(), folder("vhost"));
    let path = folder.join("socket");
    let (vhost, virtio) =
        (format!("net_vhost,iface={}", path.display()), format!("virtio:{}", path.display()));
    for ours_first in [true, false] {
        let mut vhost = open(&vhost, &pool, ours_first);
        let mut virtio = open(&virtio, &pool, !ours_first);
        up(&vhost, &virtio);
        let (ours, peer) = if ours_first { (&mut vhost, &mut virtio) } else { (&mut virtio, &mut vhost) };
        assert!(ours.does.tx_checksum && ours.does.vlan_strip && ours.does.vlan_insert, "{:?}", ours.does);
        leaves(ours, peer, &pool);
        looks(ours, peer, &pool, false);
        tags(ours, peer, &pool, &[UNTAGGED, DOT1Q, DOT1AD, DOT1Q_TWICE]);
        shares(ours, peer, &pool);
    }
    std::fs::remove_dir_all(folder).unwrap();
}

/// Between virtual machines nothing is segmented: the packet goes whole, and says how it would be.
#[test]
fn large_packets_go_whole_from_virtio_to_vhost() {
    let (pool, folder) = (pool(), folder("tso"));
    let path = folder.join("socket");
    let mut vhost = open(&format!("net_vhost,iface={},tso=1", path.display()), &pool, false);
    let mut virtio = open(&format!("virtio:{}", path.display()), &pool, true);
    up(&vhost, &virtio);
    assert!(virtio.does.tso, "{:?}", virtio.does);
    for v6 in [false, true] {
        let (mut frame, segmentation) = large(v6, 60_000, 1460, ChecksumOffload::Transport);
        let (l3, l4) = (if v6 { 40 } else { 20 }, 20);
        let mut mbuf = pool.packet(&frame).unwrap();
        mbuf.request_tx_offload(&TxWork::segments(&Headers { l2: 14, l3, l4, v6, tcp: true }, false, 1460));
        let mut batch = Batch::new();
        batch.push(mbuf).unwrap();
        assert_eq!(virtio.tx.send(&mut batch), 1);
        let deadline = Instant::now() + PATIENCE;
        while batch.is_empty() {
            assert!(Instant::now() < deadline, "nothing came");
            vhost.rx.receive(&mut batch);
        }
        let [whole] = batch.frames() else { panic!("{} came", batch.len()) };
        assert_eq!((whole.len(), whole.is_whole(), segmentation.packets()), (frame.len(), false, 42));
        // Its checksum, which nobody needs in memory, is the pseudo-header's.
        let at = segmentation.headers() - 4;
        frame[at..at + 2].copy_from_slice(&whole.data()[at..at + 2]);
        assert_eq!(whole.data(), &frame[..whole.data().len()]);
    }
    // Headers that are longer than the packet: nobody gets it, and it is counted.
    let headers = Headers { l2: 14, l3: 400, l4: 20, v6: false, tcp: true };
    send(&mut virtio, &pool, &frame(false, true, 100).0, Some(TxWork::segments(&headers, false, 1460)));
    let (ours, theirs) = (virtio.port.stats(), vhost.port.stats());
    assert_eq!((ours.tx_unfit, ours.tx_packets, theirs.rx_packets), (1, 2, 2));
    std::fs::remove_dir_all(folder).unwrap();
}

/// The kernel takes tags out of what it hands to a packet socket, and says which kind each was: they are put back as they were.
#[test]
fn af_packet() {
    if let Err(why) = alone() {
        return outcome::skipped(why);
    }
    ip("link add left type veth peer name right");
    ip("link set left up");
    ip("link set right up");
    let pool = pool();
    let mut ours = open("af_packet:left", &pool, true);
    assert_eq!(ours.does, Offloads::default(), "it does no work by itself");
    let mut peer = open("af_packet:right", &pool, false);
    up(&ours, &peer);
    tags(&mut ours, &mut peer, &pool, &[UNTAGGED, DOT1Q, DOT1AD, DOT1Q_TWICE]);
}

/// DPDK's pcap writes the recording's times, in µs, where ports that offer time stamps write theirs.
#[test]
fn stamps_are_read_where_ports_write_them() {
    let (pool, folder) = (pool(), folder("stamps"));
    let file: &Path = &folder.join("in.pcap");
    write_pcap(file, 2);
    let mut bytes = std::fs::read(file).unwrap();
    bytes[24..28].copy_from_slice(&3u32.to_le_bytes());
    bytes[28..32].copy_from_slice(&14u32.to_le_bytes());
    std::fs::write(file, bytes).unwrap();
    let device = format!("net_pcap,rx_pcap={},tx_pcap={}", file.display(), folder.join("out.pcap").display());
    let mut ours = open(&device, &pool, false);
    let stamps = ours.port.stamps().unwrap();
    let mut got = Vec::new();
    let deadline = Instant::now() + PATIENCE;
    while got.len() < 2 {
        assert!(Instant::now() < deadline, "the file is not read");
        let mut batch = Batch::new();
        ours.rx.receive(&mut batch);
        got.extend(batch.frames().iter().map(|mbuf| mbuf.stamp(&stamps)));
    }
    assert_eq!(got, [Some(3_000_014), Some(0)]);
    assert_eq!(ours.port.clock(), None, "it has no clock");
    let mut batch = Batch::new();
    assert!(pool.fill(&mut batch, 1));
    assert_eq!(batch.frames()[0].stamp(&stamps), None, "nobody received it");
    drop(ours);
    std::fs::remove_dir_all(folder).unwrap();
}
