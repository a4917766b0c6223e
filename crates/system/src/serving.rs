//! Why a server that was there ended.

use run::SetupError;
use std::io;

/// Too many files are open in the system.
const ENFILE: i32 = 23;
/// Too many files are open in this process.
const EMFILE: i32 = 24;

/// The error of a server at `at` that has listened: what its network said of itself, what the system refused, or a fault of
/// netdyno itself. That it cannot listen is another error, which who binds knows.
pub fn end_error(at: &str, error: io::Error) -> SetupError {
    error.downcast::<SetupError>().unwrap_or_else(|error| {
        let (code, fix) = match error.raw_os_error() {
            Some(ENFILE | EMFILE) => ("ND-92-01", "Raise ulimit -n"),
            Some(_) => ("ND-92-05", "See ulimit -a"),
            None => ("ND-92-50", "Report it, with what standard error has above"),
        };
        SetupError::new(code, at, error.to_string(), fix)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_end_has_its_own_code() {
        let lost =
            SetupError::new("ND-91-01", "transport.dpdk.ports[0]", "port a was lost", "See what ended it");
        assert_eq!(end_error("here", io::Error::other(lost.clone())), lost);
        let refused = end_error("127.0.0.1:80", io::Error::from_raw_os_error(12));
        assert_eq!((refused.code, refused.at.as_str()), ("ND-92-05", "127.0.0.1:80"));
        assert_eq!(end_error("here", io::Error::from_raw_os_error(EMFILE)).code, "ND-92-01");
        let panicked = end_error("127.0.0.1:80", io::Error::other("a worker panicked"));
        assert_eq!((panicked.code, panicked.what.as_str()), ("ND-92-50", "a worker panicked"));
    }
}
