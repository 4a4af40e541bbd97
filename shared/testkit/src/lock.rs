//! A lock that outlives a failed assertion in another test thread.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks; what a panicked holder left behind is still whole, because nothing here panics half way
/// through a change.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
