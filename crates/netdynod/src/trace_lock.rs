//! One packet trace at a time.

use std::sync::{Mutex, MutexGuard, TryLockError};
use system::rpc::Error;

/// At most one follows packets at a time.
#[derive(Debug, Default)]
pub struct TraceLock(Mutex<()>);

impl TraceLock {
    /// The right to, until it is dropped.
    pub fn acquire(&self) -> Result<MutexGuard<'_, ()>, Error> {
        match self.0.try_lock() {
            Ok(alone) => Ok(alone),
            Err(TryLockError::Poisoned(left)) => Ok(left.into_inner()),
            Err(TryLockError::WouldBlock) => {
                Err(Error::state("another trace is under way", "Ask again when it has its packets"))
            }
        }
    }
}
