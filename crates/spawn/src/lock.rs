//! Locking that survives a panic in another thread. Every value behind a lock in this crate is changed in single steps,
//! so it is whole even if its last holder panicked.

use std::sync::{Mutex, MutexGuard, PoisonError};

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
