//! Shared memory that goes while a queue uses it, as DPDK's memif driver takes it away when the process at the other end dies:
//! the burst ends, and this process does not.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]
#![allow(unsafe_code, reason = "memory is made unreachable: that is what is tested")]

mod common;

use common::{eal, frame};
use dpdk::{Batch, Mempool, Port, PortConfig};
use nix::sys::mman::{MapFlags, ProtFlags, mmap_anonymous};
use std::num::NonZeroUsize;
use std::time::{Duration, Instant};

const PATIENCE: Duration = Duration::from_secs(60);
const COUNT: usize = 32;

/// Where the memory that memif ports share is mapped: from, to.
fn shared() -> Vec<(usize, usize)> {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let range = |line: &str| {
        let (from, to) = line.split_once(' ')?.0.split_once('-')?;
        Some((usize::from_str_radix(from, 16).ok()?, usize::from_str_radix(to, 16).ok()?))
    };
    maps.lines().filter(|line| line.contains("memfd:memif")).filter_map(range).collect()
}

#[test]
fn a_burst_whose_memory_has_gone_ends_and_the_process_goes_on() {
    let folder = tempfile::tempdir().unwrap();
    let pool = Mempool::new(eal(), 4_096, 2_048).unwrap();
    let open = |role: &str| {
        let device =
            format!("net_memif,role={role},socket-abstract=no,socket={}/memif", folder.path().display());
        let port = Port::open(eal(), &device).unwrap();
        let (mut rx, mut tx) = port.start(&PortConfig::default(), &pool).unwrap();
        (port, rx.remove(0), tx.remove(0))
    };
    let (server, client) = (open("server"), open("client"));
    let began = Instant::now();
    while !(server.0.link().up && client.0.link().up) {
        assert!(began.elapsed() < PATIENCE, "they do not connect");
        std::thread::sleep(Duration::from_millis(1));
    }
    let filled = || {
        let mut batch = Batch::new();
        for i in 0..COUNT as u32 {
            batch.push(pool.packet(&frame(i)).unwrap()).unwrap();
        }
        batch
    };
    let ends = &mut [server, client];
    // The client gives its server room by receiving. Then frames wait at both ends.
    for (_, rx, _) in ends.iter_mut() {
        assert_eq!(rx.receive(&mut Batch::new()), 0);
    }
    for (_, _, tx) in ends.iter_mut() {
        assert_eq!(tx.send(&mut filled()), COUNT);
    }
    let memory = shared();
    assert!(!memory.is_empty(), "memif shares no memory");
    for (from, to) in memory {
        let (from, len) = (NonZeroUsize::new(from).unwrap(), NonZeroUsize::new(to - from).unwrap());
        // Still mapped, so that nothing else comes there before the driver unmaps it.
        // SAFETY: nobody but the driver uses that memory, and its use is what is tested.
        unsafe {
            mmap_anonymous(Some(from), len, ProtFlags::PROT_NONE, MapFlags::MAP_PRIVATE | MapFlags::MAP_FIXED)
        }
        .unwrap();
    }
    for (_, rx, tx) in ends.iter_mut() {
        let mut batch = Batch::new();
        assert_eq!((rx.receive(&mut batch), batch.len()), (0, 0));
        // What is sent is gone: some of it might have been given back to the pool.
        assert_eq!(tx.send(&mut filled()), COUNT);
    }
    // Each may come again, and each is counted.
    for (port, rx, _) in ends.iter_mut() {
        assert_eq!(rx.receive(&mut Batch::new()), 0);
        assert_eq!(port.faults(), 3);
    }
}

/// What is none of a burst's ends the process as it would without us.
#[test]
fn another_fault_is_not_swallowed() {
    const CHILD: &str = "NETDYNO_TEST_FAULT";
    if std::env::var_os(CHILD).is_some() {
        let folder = tempfile::tempdir().unwrap();
        let pool = Mempool::new(eal(), 4_096, 2_048).unwrap();
        let device = format!("net_memif,role=server,socket-abstract=no,socket={}/m", folder.path().display());
        let port = Port::open(eal(), &device).unwrap();
        let _queues = port.start(&PortConfig::default(), &pool).unwrap();
        let page = NonZeroUsize::new(1 << 12).unwrap();
        // SAFETY: new memory, that nobody may read: this ends the process.
        unsafe {
            let there = mmap_anonymous(None, page, ProtFlags::PROT_NONE, MapFlags::MAP_PRIVATE).unwrap();
            there.cast::<u8>().as_ptr().read_volatile();
        }
        return;
    }
    let me = std::env::current_exe().unwrap();
    let mut child = std::process::Command::new(me);
    let child = child.args(["--exact", "another_fault_is_not_swallowed"]).env(CHILD, "1").output().unwrap();
    let status = std::os::unix::process::ExitStatusExt::signal(&child.status);
    assert_eq!(status, Some(nix::libc::SIGSEGV), "{child:?}");
}
