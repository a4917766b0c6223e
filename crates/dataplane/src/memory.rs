//! Nobody asks for more memory than there is: see [`element::memory`].

use protocol::unit::Size;
use run::SetupError;

/// Whether there are `bytes`, which the key `at` asks for.
pub fn require_bytes(at: &str, bytes: u64, there: Option<u64>) -> Result<(), SetupError> {
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
        let there = Some(2 << 20);
        assert!(
            require_bytes("memory", 2 << 20, there).is_ok()
                && require_bytes("memory", u64::MAX, None).is_ok()
        );
        let why = require_bytes("memory", (2 << 20) + 1, there).expect_err("one byte more");
        assert_eq!((why.code, why.at.as_str()), ("ND-92-12", "memory"));
        assert!(why.what.contains("2097153B") && why.what.contains("2MiB are free"), "{why}");
    }
}
