//! How much memory there is, so that nobody asks for more: what is asked for is touched, and the kernel kills for it.

use protocol::unit::Size;
use run::SetupError;

/// Bytes that may be had now, if the kernel says.
pub fn available() -> Option<u64> {
    of(&std::fs::read_to_string("/proc/meminfo").ok()?)
}

/// From the text of proc_meminfo(5).
fn of(meminfo: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
}

/// Whether there are `bytes`, which the key `at` asks for.
pub fn enough(at: &str, bytes: u64, there: Option<u64>) -> Result<(), SetupError> {
    match there {
        Some(there) if bytes > there => {
            let free = Size(there >> 20 << 20);
            let what = format!("{} of memory are asked for, and {free} are free", Size(bytes));
            Err(SetupError::new("ND-92-12", at, what, "Ask for less, or end what else is running"))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_there_is_just_suffices() {
        let there = of("MemTotal:  9 kB\nMemFree: 1 kB\nMemAvailable:    2048 kB\nBuffers: 1 kB\n");
        assert_eq!((there, of("MemTotal: 9 kB\n")), (Some(2 << 20), None));
        assert!(enough("memory", 2 << 20, there).is_ok() && enough("memory", u64::MAX, None).is_ok());
        let why = enough("memory", (2 << 20) + 1, there).expect_err("one byte more");
        assert_eq!((why.code, why.at.as_str()), ("ND-92-12", "memory"));
        assert!(why.what.contains("2097153B") && why.what.contains("2MiB are free"), "{why}");
        assert!(available().is_some_and(|bytes| bytes > 1 << 20));
    }
}
