//! One EAL per process, without huge pages unless NICs are named: any machine will do.
#![allow(dead_code, reason = "each test file uses some of it")]

use dpdk::{Batch, Eal, EalOptions, Mempool};
use nix::sched::{CpuSet, sched_getcpu, sched_setaffinity};
use nix::unistd::Pid;
use std::path::Path;
use std::process::Command;

/// The variable that names the NICs to test with.
pub const NICS: &str = "NETDYNO_TEST_NICS";

pub fn eal() -> &'static Eal {
    let pci: Vec<_> =
        std::env::var(NICS).iter().flat_map(|nics| nics.split(',')).map(str::to_owned).collect();
    let options = EalOptions { huge_pages: !pci.is_empty(), pci, ..EalOptions::default() };
    Eal::start(&options).expect("DPDK starts")
}

/// Move this thread into a network namespace of its own in which the kernel says nothing by itself. What is made there
/// is not seen outside, and ends with the thread. Else: why not. The thread stays on one core: each has a queue of its own
/// in a veth, and frames would overtake each other when it moves.
pub fn alone() -> Result<(), String> {
    let mut here = CpuSet::new();
    let pinned = sched_getcpu().and_then(|core| here.set(core));
    pinned
        .and_then(|()| sched_setaffinity(Pid::from_raw(0), &here))
        .map_err(|why| format!("no core of its own ({why})"))?;
    outcome::unshare_network()?;
    for which in ["all", "default"] {
        // Absent where the kernel has no IPv6, which is as quiet.
        let path = format!("/proc/sys/net/ipv6/conf/{which}/disable_ipv6");
        let _absent = std::fs::write(path, "1");
    }
    Ok(())
}

pub fn ip(arguments: &str) {
    let status = Command::new("ip").args(arguments.split(' ')).status().expect("iproute2 is installed");
    assert!(status.success(), "ip {arguments}");
}

/// Frame number `i` of those that every port must carry: of any length up to 1514 bytes, from a made-up address to
/// everybody, with bytes that look like chance.
pub fn frame(i: u32) -> Vec<u8> {
    let mut seed = u64::from(i) << 32 | 0x9e37_79b9;
    let noise = std::iter::repeat_with(|| {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        seed as u8
    });
    let head =
        [255, 255, 255, 255, 255, 255, 2, 0, 0, 0, 0, 9, 0x88, 0xb5].into_iter().chain(i.to_be_bytes());
    head.chain(noise).take(60 + i as usize * 97 % 1455).collect()
}

/// The first `count` frames as a capture file.
pub fn write_pcap(path: &Path, count: u32) {
    let mut bytes: Vec<u8> = [0xa1b2_c3d4u32, 0x0004_0002, 0, 0, 65_535, 1].map(u32::to_le_bytes).concat();
    for frame in (0..count).map(frame) {
        let len = frame.len() as u32;
        bytes.extend([0, 0, len, len].map(u32::to_le_bytes).concat());
        bytes.extend(frame);
    }
    std::fs::write(path, bytes).expect("the folder is writable");
}

/// The frames of a capture file.
pub fn read_pcap(path: &Path) -> Vec<Vec<u8>> {
    let bytes = std::fs::read(path).expect("the file exists");
    let (mut rest, mut frames) = (&bytes[24..], Vec::new());
    while let Some((head, after)) = rest.split_at_checked(16) {
        let len = u32::from_le_bytes(head[8..12].try_into().expect("4 bytes")) as usize;
        frames.push(after[..len].to_vec());
        rest = &after[len..];
    }
    frames
}

/// `n` frames of 60 bytes, numbered from `first` in byte 20 on, from a made-up address to the broadcast address.
pub fn frames(pool: &Mempool, first: u32, n: usize) -> Batch {
    let mut batch = Batch::new();
    assert!(pool.fill(&mut batch, n));
    for (i, mbuf) in batch.frames_mut().iter_mut().enumerate() {
        let frame = mbuf.set_len(60).expect("60 bytes fit");
        frame.fill(0);
        frame[..14].copy_from_slice(&[255, 255, 255, 255, 255, 255, 2, 0, 0, 0, 0, 9, 0x88, 0xb5]);
        frame[20..24].copy_from_slice(&(first + i as u32).to_be_bytes());
    }
    batch
}

/// The numbers of the frames that [`frames`] made; frames of others (the kernel sends some) are left out.
pub fn numbers(batch: &Batch) -> Vec<u32> {
    let ours = |frame: &&[u8]| frame.get(12..14) == Some(&[0x88, 0xb5]);
    let number = |frame: &[u8]| u32::from_be_bytes([frame[20], frame[21], frame[22], frame[23]]);
    batch.frames().iter().map(dpdk::Mbuf::data).filter(ours).map(number).collect()
}
