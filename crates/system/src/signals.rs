//! Signals as flags that a loop looks at.

use std::io;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// What asks a program to end.
pub const END: [i32; 2] = [signal_hook::consts::SIGTERM, signal_hook::consts::SIGINT];
/// What asks it to show something.
pub const SHOW: [i32; 1] = [signal_hook::consts::SIGUSR1];

/// A flag that any of these raises.
pub fn raised_by(signals: &[i32]) -> io::Result<Arc<AtomicBool>> {
    let flag = Arc::new(AtomicBool::new(false));
    for signal in signals {
        signal_hook::flag::register(*signal, Arc::clone(&flag))?;
    }
    Ok(flag)
}
