//! What a worker's thread cost, and how long it waited for a CPU.

use rustix::time::{ClockId, clock_gettime};
use std::fs::File;
use std::os::unix::fs::FileExt;

/// The calling thread's CPU use. Make it on the thread that it watches.
#[derive(Debug)]
pub struct ThreadCpu {
    /// `/proc/thread-self/schedstat`: time run, time runnable but waiting, slices. Absent where the
    /// kernel keeps no such statistics.
    schedstat: Option<File>,
}

/// Nanoseconds since the thread began.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CpuTime {
    /// On a CPU.
    pub ran: u64,
    /// Runnable, waiting for one.
    pub waited: u64,
}

impl ThreadCpu {
    /// Watch the calling thread.
    pub fn here() -> Self {
        Self { schedstat: File::open("/proc/thread-self/schedstat").ok() }
    }

    /// So far.
    pub fn now(&self) -> CpuTime {
        let t = clock_gettime(ClockId::ThreadCPUTime);
        let ran = t.tv_sec.unsigned_abs() * 1_000_000_000 + t.tv_nsec.unsigned_abs();
        let mut text = [0u8; 96];
        let waited = self
            .schedstat
            .as_ref()
            .and_then(|f| f.read_at(&mut text, 0).ok())
            .and_then(|n| std::str::from_utf8(&text[..n]).ok()?.split_whitespace().nth(1)?.parse().ok())
            .unwrap_or(0);
        CpuTime { ran, waited }
    }
}

/// Pin the calling thread to `core`.
pub fn pin(core: u16) -> std::io::Result<()> {
    let mut set = rustix::thread::CpuSet::new();
    set.set(usize::from(core));
    rustix::thread::sched_setaffinity(None, &set)?;
    Ok(())
}

/// The cores this process may use.
pub fn cores() -> Vec<u16> {
    let Ok(set) = rustix::thread::sched_getaffinity(None) else { return vec![0] };
    (0..1024u16).filter(|c| set.is_set(usize::from(*c))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_on_the_cpu_is_seen() {
        let cpu = ThreadCpu::here();
        let before = cpu.now();
        let mut x = 1u64;
        while cpu.now().ran < before.ran + 2_000_000 {
            x = std::hint::black_box(x.wrapping_mul(3));
        }
        assert!(cpu.now().ran >= before.ran + 2_000_000);
        assert!(!cores().is_empty());
    }
}
