//! Locks a mutex even if a thread has panicked while it held the lock. This is safe here: no code in this crate
//! panics between two steps of one change, so a panic leaves every value behind a lock consistent.

use std::sync::{Mutex, MutexGuard, PoisonError};

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
