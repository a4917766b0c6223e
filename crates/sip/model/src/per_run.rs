//! What the groups of a run have in common, found by the number of the run and kept as long as one of them has it.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

/// That of the runs under way.
pub(crate) type Runs<T> = Mutex<Vec<(u64, Weak<T>)>>;

/// That of run number `trial`.
pub(crate) fn of<T: Default>(runs: &Runs<T>, trial: u64) -> Arc<T> {
    let mut runs = locked(runs);
    runs.retain(|(_, run)| run.strong_count() > 0);
    if let Some(known) = runs.iter().find(|(run, _)| *run == trial).and_then(|(_, run)| run.upgrade()) {
        return known;
    }
    let new = Arc::new(T::default());
    runs.push((trial, Arc::downgrade(&new)));
    new
}

/// What is in it: no change leaves it half done.
pub(crate) fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
