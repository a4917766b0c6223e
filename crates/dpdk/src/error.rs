//! What can go wrong with DPDK, and what to do about it.

use crate::log;
use std::ffi::CStr;
use std::fmt;
use std::io;

/// Shown in errors about device strings.
const EXAMPLES: &str =
    "pair:cable1, af_packet:veth0, tap:tap0, null, 0000:03:00.0, net_memif,role=server,id=0";

/// The result of everything in this crate that can fail.
pub type Result<T> = std::result::Result<T, Error>;

/// A DPDK operation that failed. Every message says what to do.
#[derive(Debug, Clone)]
pub enum Error {
    /// The EAL could not start.
    Eal {
        /// The system's word for it.
        cause: String,
        /// What to try.
        hint: String,
        /// What DPDK logged meanwhile.
        log: Vec<String>,
    },
    /// The EAL runs already, once per process, and lacks what is asked for now.
    EalLacks {
        /// What it was not started with.
        lacks: String,
    },
    /// The device string cannot be read.
    Device {
        /// The string as given.
        device: String,
        /// What is wrong with it.
        why: String,
    },
    /// Too little packet memory.
    Memory {
        /// What it was for.
        what: String,
        /// The system's word for it.
        cause: String,
        /// What the EAL was started with, MiB.
        memory_mib: u32,
    },
    /// A port operation failed.
    Port {
        /// Device string of the port.
        port: String,
        /// What was being done.
        action: &'static str,
        /// The system's word for it.
        cause: String,
        /// What to try.
        hint: String,
        /// What DPDK logged meanwhile.
        log: Vec<String>,
    },
    /// A path that a port is to serve at is another's.
    Path {
        /// Device string of the port.
        port: String,
        /// The path.
        path: String,
        /// What is there.
        why: String,
        /// What to try.
        fix: &'static str,
    },
    /// A thread could not be made known to the EAL.
    Thread {
        /// The system's word for it.
        cause: String,
    },
}

impl Error {
    /// What is wrong.
    pub fn describe(&self) -> String {
        match self {
            Self::Eal { cause, .. } => format!("DPDK did not start ({cause})"),
            Self::EalLacks { lacks } => format!("DPDK already runs in this process without {lacks}"),
            Self::Device { device, why } => format!("cannot read device '{device}': {why}"),
            Self::Memory { what, cause, .. } => format!("no memory for {what} ({cause})"),
            Self::Port { port, action, cause, .. } => format!("port '{port}': {action} failed ({cause})"),
            Self::Path { port, path, why, .. } => format!("port '{port}': {path} cannot be served ({why})"),
            Self::Thread { cause } => format!("no free DPDK thread slot ({cause})"),
        }
    }

    /// What to do about it.
    pub fn fix(&self) -> String {
        match self {
            Self::Eal { hint, .. } | Self::Port { hint, .. } => hint.trim_end_matches('.').to_owned(),
            Self::EalLacks { lacks } => {
                format!("DPDK starts once per process: end the daemon and start it with {lacks}")
            }
            Self::Device { .. } => format!("Write it like one of these: {}", EXAMPLES),
            Self::Memory { memory_mib, .. } => {
                format!("Give DPDK more `memory` (it has {memory_mib} MiB), or ask for less")
            }
            Self::Path { fix, .. } => (*fix).to_owned(),
            Self::Thread { .. } => {
                let max = dpdk_sys::RTE_MAX_LCORE;
                format!("Use fewer workers: at most {max} threads may use DPDK at once")
            }
        }
    }

    /// What DPDK itself said meanwhile.
    pub fn log(&self) -> &[String] {
        match self {
            Self::Eal { log, .. } | Self::Port { log, .. } => log,
            _ => &[],
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}. {}", self.describe(), self.fix())?;
        self.log().iter().try_for_each(|line| write!(f, "\n  dpdk: {line}"))
    }
}

impl std::error::Error for Error {}

/// Words for an errno, positive or negative, as DPDK returns them.
pub(crate) fn strerror(code: i32) -> String {
    // SAFETY: rte_strerror returns a NUL-terminated string in thread-local or static storage, copied at once.
    unsafe { CStr::from_ptr(dpdk_sys::rte_strerror(code.abs())) }.to_string_lossy().into_owned()
}

/// The calling thread's `rte_errno`.
pub(crate) fn errno() -> i32 {
    // SAFETY: reads a thread-local variable.
    unsafe { dpdk_sys::nd_errno() }
}

/// A port error from a negative return code, with the lines that DPDK logged about it.
pub(crate) fn port(port: &str, action: &'static str, code: i32, hint: impl Into<String>) -> Error {
    Error::Port { port: port.into(), action, cause: strerror(code), hint: hint.into(), log: log::recent() }
}

/// A virtual device that DPDK does not make: by -1 it means that there is no such driver, and not EPERM.
pub(crate) fn not_made(port: &str, name: &str, code: i32, hint: &str) -> Error {
    if code != -1 {
        return self::port(port, "opening", code, hint);
    }
    let driver = name.trim_end_matches(|c: char| c.is_ascii_digit());
    let hint = format!("Is DPDK's driver {driver} installed (`apt-cache search librte-net`)? {hint}");
    self::port(port, "opening", -nix::libc::ENODEV, hint)
}

/// Why the system itself refused something.
pub(crate) fn io(why: &io::Error) -> String {
    why.to_string()
}

#[cfg(test)]
mod tests {
    use super::not_made;

    #[test]
    fn a_driver_that_is_not_installed_is_named() {
        let why = not_made("af_packet:veth0", "net_null100", -1, "").to_string();
        assert!(why.contains("DPDK's driver net_null installed") && !why.contains("not permitted"), "{why}");
        assert!(not_made("null", "net_null100", -17, "").to_string().contains("exists"));
    }
}
