//! What can go wrong with DPDK, and what to do about it.

use crate::log;
use std::ffi::CStr;
use std::io;

/// The result of everything in this crate that can fail.
pub type Result<T> = std::result::Result<T, Error>;

/// A DPDK operation that failed. Every message says what to do.
#[derive(Debug, Clone, thiserror::Error)]
pub enum Error {
    /// The EAL could not start.
    #[error("DPDK did not start ({cause}). {hint}{log}", log = quoted(log))]
    Eal {
        /// The system's word for it.
        cause: String,
        /// What to try.
        hint: String,
        /// What DPDK logged meanwhile.
        log: Vec<String>,
    },
    /// The EAL runs already, once per process, and lacks what is asked for now.
    #[error("DPDK already runs in this process without {lacks}; end the process and start it with {lacks}")]
    EalLacks {
        /// What it was not started with.
        lacks: String,
    },
    /// The device string cannot be read.
    #[error("cannot read device '{device}': {why}; examples: {examples}", examples = crate::device::EXAMPLES)]
    Device {
        /// The string as given.
        device: String,
        /// What is wrong with it.
        why: String,
    },
    /// Too little packet memory.
    #[error(
        "no memory for {what} ({cause}); give DPDK more memory (`memory_mib`, now {memory_mib} MiB) or ask for less"
    )]
    Memory {
        /// What it was for.
        what: String,
        /// The system's word for it.
        cause: String,
        /// What the EAL was started with, MiB.
        memory_mib: u32,
    },
    /// A port operation failed.
    #[error("port '{port}': {action} failed ({cause}). {hint}{log}", log = quoted(log))]
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
    /// A thread could not be made known to the EAL.
    #[error(
        "no free DPDK thread slot ({cause}); at most {max} threads may use DPDK at once, use fewer workers",
        max = dpdk_sys::RTE_MAX_LCORE
    )]
    Thread {
        /// The system's word for it.
        cause: String,
    },
}

fn quoted(lines: &[String]) -> String {
    lines.iter().map(|line| format!("\n  dpdk: {line}")).collect()
}

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

/// Why the system itself refused something.
pub(crate) fn io(why: &io::Error) -> String {
    why.to_string()
}
