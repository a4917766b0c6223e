//! One EAL per process, without huge pages: any machine will do.

use dpdk::{Batch, Eal, EalOptions, Mempool};

pub fn eal() -> &'static Eal {
    Eal::start(&EalOptions::default()).expect("DPDK starts without huge pages")
}

/// `n` frames of 60 bytes, numbered from `first` in byte 20 on, from a made-up station to everybody.
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
