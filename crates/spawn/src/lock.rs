//! Locks a mutex even if a thread has panicked while it held the lock. This is safe here because every value behind a lock in this crate is
//! changed in single steps, so a panic leaves it consistent.

use std::sync::{Mutex, MutexGuard, PoisonError};

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
