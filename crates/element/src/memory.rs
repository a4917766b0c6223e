//! How much memory there is, so that nobody asks for more: what is asked for is touched, and the kernel kills for it.

/// Bytes that may be had now, if the kernel says.
pub fn available() -> Option<u64> {
    of(&std::fs::read_to_string("/proc/meminfo").ok()?)
}

/// From the text of proc_meminfo(5).
fn of(meminfo: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_kernel_says_is_available_is() {
        let there = of("MemTotal:  9 kB\nMemFree: 1 kB\nMemAvailable:    2048 kB\nBuffers: 1 kB\n");
        assert_eq!((there, of("MemTotal: 9 kB\n")), (Some(2 << 20), None));
        assert!(available().is_some_and(|bytes| bytes > 1 << 20));
    }
}
