//! One contract that every kind of port keeps. What this machine lacks is skipped, and says why.
//!
//! A port opens and says what it is and can; the peer gets exactly the frames that it sends, and it gets exactly those that the
//! peer sends; the counters agree; a peer that vanishes is noticed where the kind can know, and is harmless everywhere;
//! and what was closed can be opened again.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use crate::common::{alone, eal, frame, ip, read_pcap, write_pcap};
use dpdk::{Batch, Mempool, Port, PortConfig, RxQueue, TxQueue};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Frames in each direction: no more than any kind can queue while nobody reads.
const COUNT: u32 = 128;
/// Longest wait for a link or for frames: a busy machine may let a peer's thread wait.
const PATIENCE: Duration = Duration::from_secs(5);

/// What is at the other end.
enum Peer {
    /// Another port, in this process or on the kernel's interface at the other end.
    Port(String),
    /// Files: one that the port's frames come from, one that they go to.
    Files(PathBuf, PathBuf),
    /// Nothing: what is sent is gone, and frames come from nowhere.
    Nothing,
}

/// What happens when the peer vanishes.
enum Vanishing {
    /// The link goes down.
    LinkDown,
    /// This deletes it; who watches the kernel's interface knows.
    Interface(fn()),
    /// Nobody can know.
    Harmless,
}

/// How a kind of port is set up for the test.
struct Bed {
    device: String,
    peer: Peer,
    vanishing: Vanishing,
    /// The peer opens first; else last.
    after_peer: bool,
}

impl Bed {
    fn ports(device: impl Into<String>, peer: impl Into<String>, vanishing: Vanishing) -> Self {
        Self { device: device.into(), peer: Peer::Port(peer.into()), vanishing, after_peer: false }
    }
}

struct Open {
    port: Port,
    rx: RxQueue,
    tx: TxQueue,
}

fn open(device: &str, pool: &Mempool) -> Open {
    let port = Port::open(eal(), device).unwrap_or_else(|why| panic!("{why}"));
    let (mut rx, mut tx) = port.start(&PortConfig::default(), pool).unwrap_or_else(|why| panic!("{why}"));
    assert!(port.start(&PortConfig::default(), pool).is_err(), "a port is started once");
    Open { port, rx: rx.remove(0), tx: tx.remove(0) }
}

fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !holds() {
        assert!(Instant::now() < deadline, "{what}: not within {PATIENCE:?}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Send all frames of the test, then wait for what is asked of `arrived`.
fn send(from: &mut Open, pool: &Mempool, mut arrived: impl FnMut() -> bool) {
    let mut next = 0;
    until("sending and receiving", || {
        if next < COUNT {
            let mut batch = Batch::new();
            assert!(pool.fill(&mut batch, 1));
            let bytes = frame(next);
            batch.frames_mut()[0].set_len(bytes.len()).unwrap().copy_from_slice(&bytes);
            next += from.tx.send(&mut batch) as u32;
        }
        arrived() && next == COUNT
    });
}

/// All frames arrive at `to`, byte for byte and in order, and no other.
fn carries(from: &mut Open, to: &mut Open, pool: &Mempool) {
    let (sent, received) = (from.port.stats(), to.port.stats());
    let mut got = 0;
    send(from, pool, || {
        let mut batch = Batch::new();
        to.rx.receive(&mut batch);
        for mbuf in batch.frames() {
            assert_eq!(mbuf.data(), frame(got), "frame {got}");
            got += 1;
        }
        got == COUNT
    });
    let bytes: u64 = (0..COUNT).map(|i| frame(i).len() as u64).sum();
    let after = from.port.stats();
    assert_eq!(after.tx_packets - sent.tx_packets, u64::from(COUNT), "{after:?}");
    // A port may count no bytes, but no wrong ones.
    assert!([0, bytes].contains(&(after.tx_bytes - sent.tx_bytes)), "{after:?}, not {bytes} bytes");
    let after = to.port.stats();
    assert_eq!(after.rx_packets - received.rx_packets, u64::from(COUNT), "{after:?}");
    assert!([0, bytes].contains(&(after.rx_bytes - received.rx_bytes)), "{after:?}, not {bytes} bytes");
}

fn describe(kind: &str, port: &Port) {
    let info = port.info().unwrap();
    assert!(!info.driver.is_empty() && info.max_rx_queues > 0 && info.max_tx_queues > 0, "{info:?}");
    assert_eq!(port.mac()[0] & 1, 0, "a port's own address is no group's");
    println!("{kind}: {:02x?}, {:?}, {info:?}", port.mac(), port.link());
}

fn contract(kind: &str, bed: impl Fn(&Path) -> Result<Bed, String>) {
    let folder = std::env::temp_dir().join(format!("nd-{}-{kind}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let pool = Mempool::new(eal(), 8191, 2048).unwrap();
    // Twice: what was closed can be opened again, also when its peer vanished.
    for _ in 0..2 {
        match bed(&folder) {
            Ok(bed) => once(kind, bed, &pool),
            Err(why) => {
                outcome::skipped(why);
                break;
            }
        }
    }
    std::fs::remove_dir_all(folder).unwrap();
    // DPDK's af_xdp keeps those that it gave the kernel to receive into.
    let kept = if kind == "af_xdp" { pool.capacity() } else { 0 };
    assert!(pool.available() + kept >= pool.capacity(), "packets are left in a closed port");
}

fn once(kind: &str, bed: Bed, pool: &Mempool) {
    match &bed.peer {
        Peer::Port(peer) => {
            let peer_first = bed.after_peer.then(|| open(peer, pool));
            let mut ours = open(&bed.device, pool);
            let mut peer = peer_first.unwrap_or_else(|| open(peer, pool));
            until("both links come up", || ours.port.link().up && peer.port.link().up);
            describe(kind, &ours.port);
            carries(&mut ours, &mut peer, pool);
            carries(&mut peer, &mut ours, pool);
            vanish(&bed, &mut ours, peer, pool);
        }
        Peer::Files(from, to) => {
            write_pcap(from, COUNT);
            let mut ours = open(&bed.device, pool);
            describe(kind, &ours.port);
            send(&mut ours, pool, || true);
            let mut got = Vec::new();
            until("the file is read", || {
                let mut batch = Batch::new();
                ours.rx.receive(&mut batch);
                got.extend(batch.frames().iter().map(|mbuf| mbuf.data().to_vec()));
                got.len() >= COUNT as usize
            });
            let stats = ours.port.stats();
            assert_eq!((stats.rx_packets, stats.tx_packets), (COUNT.into(), COUNT.into()));
            drop(ours);
            let all: Vec<_> = (0..COUNT).map(frame).collect();
            assert!(got == all && read_pcap(to) == all);
        }
        Peer::Nothing => {
            let mut ours = open(&bed.device, pool);
            describe(kind, &ours.port);
            send(&mut ours, pool, || true);
            let mut batch = Batch::new();
            let got = ours.rx.receive(&mut batch);
            let stats = ours.port.stats();
            assert_eq!((stats.rx_packets, stats.tx_packets), (got as u64, COUNT.into()));
        }
    }
}

/// The peer goes; ours goes on, or tells.
fn vanish(bed: &Bed, ours: &mut Open, peer: Open, pool: &Mempool) {
    match bed.vanishing {
        Vanishing::Interface(delete) => delete(),
        Vanishing::LinkDown | Vanishing::Harmless => {}
    }
    drop(peer);
    if matches!(bed.vanishing, Vanishing::LinkDown) {
        until("the link goes down", || !ours.port.link().up);
    }
    for i in 0..8 {
        let mut batch = Batch::new();
        assert!(pool.fill(&mut batch, 1));
        let bytes = frame(i);
        batch.frames_mut()[0].set_len(bytes.len()).unwrap().copy_from_slice(&bytes);
        ours.tx.send(&mut batch);
        assert_eq!(ours.rx.receive(&mut Batch::new()), 0, "nothing comes from nobody");
    }
}

#[test]
fn pair() {
    contract("pair", |_| Ok(Bed::ports("pair:contract", "pair:contract", Vanishing::Harmless)));
}

fn memif(role: &str, folder: &Path) -> String {
    format!("net_memif,role={role},id=0,socket-abstract=no,socket={}/memif", folder.display())
}

#[test]
fn memif_server() {
    contract("memif-server", |folder| {
        Ok(Bed::ports(memif("server", folder), memif("client", folder), Vanishing::LinkDown))
    });
}

#[test]
fn memif_client() {
    contract("memif-client", |folder| {
        let bed = Bed::ports(memif("client", folder), memif("server", folder), Vanishing::LinkDown);
        Ok(Bed { after_peer: true, ..bed })
    });
}

fn vhost(folder: &Path) -> (String, String) {
    let path = folder.join("vhost");
    (format!("net_vhost,iface={}", path.display()), format!("virtio:{}", path.display()))
}

#[test]
fn vhost_user() {
    contract("vhost", |folder| {
        let (vhost, virtio) = vhost(folder);
        Ok(Bed::ports(vhost, virtio, Vanishing::LinkDown))
    });
}

#[test]
fn virtio_user() {
    contract("virtio-user", |folder| {
        let (vhost, virtio) = vhost(folder);
        Ok(Bed { after_peer: true, ..Bed::ports(virtio, vhost, Vanishing::LinkDown) })
    });
}

/// A cable between two of the kernel's interfaces, in a namespace of this thread's own.
fn veth(device: &str) -> Result<Bed, String> {
    alone()?;
    ip("link add left type veth peer name right");
    ip("link set left up");
    ip("link set right up");
    Ok(Bed::ports(device, "af_packet:right", Vanishing::Interface(|| ip("link del left"))))
}

#[test]
fn af_packet() {
    contract("af_packet", |_| veth("af_packet:left"));
}

#[test]
fn af_xdp() {
    contract("af_xdp", |_| veth("af_xdp:left"));
}

#[test]
fn tap() {
    contract("tap", |_| {
        alone()?;
        // The kernel's side of the tap is what a raw socket on it sends and gets.
        Ok(Bed::ports("tap:ndtap0", "af_packet:ndtap0", Vanishing::Interface(|| ip("link del ndtap0"))))
    });
}

#[test]
fn pcap() {
    contract("pcap", |folder| {
        let (from, to) = (folder.join("in.pcap"), folder.join("out.pcap"));
        let device = format!("net_pcap,rx_pcap={},tx_pcap={}", from.display(), to.display());
        Ok(Bed { device, peer: Peer::Files(from, to), vanishing: Vanishing::Harmless, after_peer: false })
    });
}

#[test]
fn null() {
    contract("null", |_| {
        let (peer, vanishing) = (Peer::Nothing, Vanishing::Harmless);
        Ok(Bed { device: "null".into(), peer, vanishing, after_peer: false })
    });
}

/// Two ports of a NIC that a cable joins.
#[test]
fn pci() {
    contract("pci", |_| {
        let named = std::env::var(crate::common::NICS).map_err(|_| {
            format!(
                "name two ports that a cable joins, bound to vfio-pci: {}=0000:83:00.0,0000:83:00.1",
                crate::common::NICS
            )
        })?;
        let (left, right) = named.split_once(',').ok_or("two addresses with a comma between are wanted")?;
        Ok(Bed::ports(left, right, Vanishing::Harmless))
    });
}
