//! What DPDK logs, on any of its threads, goes to `tracing` under the target `dpdk`.
//!
//! The latest complaints are also kept, so that an error can quote them: DPDK's return codes alone
//! seldom say what was wrong.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};

/// Complaints kept for the next error message.
const KEPT: usize = 6;

static RECENT: Mutex<VecDeque<String>> = Mutex::new(VecDeque::new());

/// Send DPDK's log to us. Called once, before the EAL starts.
pub(crate) fn capture() {
    // SAFETY: `line` is a function without captured state that lives as long as the process.
    let code = unsafe { dpdk_sys::nd_log_to(Some(line)) };
    if code != 0 {
        tracing::warn!(target: "dpdk", code, "DPDK logs to stderr: its log could not be redirected");
    }
}

/// Forget what was complained about before: the next operation's errors quote only its own lines.
pub(crate) fn forget() {
    RECENT.lock().unwrap_or_else(PoisonError::into_inner).clear();
}

/// Complaints since [`forget`].
pub(crate) fn recent() -> Vec<String> {
    RECENT.lock().unwrap_or_else(PoisonError::into_inner).iter().cloned().collect()
}

unsafe extern "C" fn line(level: u32, text: *const std::ffi::c_char, len: usize) {
    // SAFETY: the shim passes the buffer that stdio gave it, valid for `len` bytes during this call.
    let bytes = unsafe { std::slice::from_raw_parts(text.cast::<u8>(), len) };
    for line in String::from_utf8_lossy(bytes).lines().filter(|line| !line.trim().is_empty()) {
        match level {
            0..=4 => tracing::error!(target: "dpdk", "{line}"),
            5 => tracing::warn!(target: "dpdk", "{line}"),
            6 | 7 => tracing::debug!(target: "dpdk", "{line}"),
            _ => tracing::trace!(target: "dpdk", "{line}"),
        }
        if level <= 5 {
            let mut recent = RECENT.lock().unwrap_or_else(PoisonError::into_inner);
            if recent.len() == KEPT {
                recent.pop_front();
            }
            recent.push_back(line.to_owned());
        }
    }
}
