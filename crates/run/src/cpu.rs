//! What a worker's thread cost, and how long it waited for a CPU.

use rustix::time::{ClockId, clock_gettime};
use std::fs::File;
use std::os::unix::fs::FileExt;

/// One thread's CPU use.
#[derive(Debug)]
pub struct ThreadCpu {
    /// `/proc/self/task/THREAD/schedstat`: time run, time runnable but waiting, slices. Absent where the
    /// kernel keeps no such statistics.
    schedstat: Option<File>,
    /// It is the thread that asks: its own clock is exact between two ticks of the kernel's, too.
    own: bool,
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
    /// Watch the calling thread, which is the one to ask.
    pub fn current() -> Self {
        let thread = rustix::thread::gettid().as_raw_nonzero().get().unsigned_abs();
        Self { own: true, ..Self::of(thread.into()) }
    }

    /// Watch the thread of this process with this number.
    pub fn of(thread: u64) -> Self {
        Self { schedstat: File::open(format!("/proc/self/task/{thread}/schedstat")).ok(), own: false }
    }

    /// CPU time so far; zero for a thread that has ended.
    pub fn now(&self) -> CpuTime {
        let told = self.schedstat.as_ref().and_then(read).unwrap_or_default();
        if !self.own {
            return told;
        }
        let t = clock_gettime(ClockId::ThreadCPUTime);
        CpuTime { ran: t.tv_sec.unsigned_abs() * 1_000_000_000 + t.tv_nsec.unsigned_abs(), ..told }
    }
}

fn read(schedstat: &File) -> Option<CpuTime> {
    let mut text = [0u8; 96];
    let length = schedstat.read_at(&mut text, 0).ok()?;
    let text = std::str::from_utf8(text.get(..length)?).ok()?;
    let mut numbers = text.split_whitespace().map_while(|number| number.parse().ok());
    Some(CpuTime { ran: numbers.next()?, waited: numbers.next()? })
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
        let cpu = ThreadCpu::current();
        let before = cpu.now();
        let mut x = 1u64;
        while cpu.now().ran < before.ran + 2_000_000 {
            x = std::hint::black_box(x.wrapping_mul(3));
        }
        assert!(cpu.now().ran >= before.ran + 2_000_000);
        assert!(!cores().is_empty());
    }

    #[test]
    fn another_thread_is_seen_until_it_is_gone() {
        let (to, threads) = std::sync::mpsc::channel();
        let (go_on, ends) = std::sync::mpsc::channel::<()>();
        let thread = std::thread::spawn(move || {
            let mut x = 1u64;
            let here = ThreadCpu::current();
            while here.now().ran < 20_000_000 {
                x = std::hint::black_box(x.wrapping_mul(3));
            }
            let number = rustix::thread::gettid().as_raw_nonzero().get().unsigned_abs();
            to.send(u64::from(number)).expect("somebody waits");
            // Asleep its time is accounted for whole.
            let _over = ends.recv();
        });
        let cpu = ThreadCpu::of(threads.recv().expect("its number"));
        if cpu.schedstat.is_some() {
            while cpu.now().ran < 15_000_000 {
                std::thread::sleep(std::time::Duration::from_millis(1));
            }
        }
        go_on.send(()).expect("it waits");
        thread.join().expect("it ends");
        assert_eq!(ThreadCpu::of(u64::MAX).now(), CpuTime::default());
    }
}
