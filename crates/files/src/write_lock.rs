//! A lock for each file that [`write_file`](crate::write_file) writes, so that two calls at once do not mix their
//! data. Copies do not take it, and it works only within this process. Each file has its own lock, so that a file
//! that hangs, on a dead network mount for example, delays no other file.

use std::collections::HashSet;
use std::sync::LazyLock;

use parking_lot::{Condvar, Mutex};

use crate::stat::FileIdentity;

#[derive(Default)]
struct LockedFiles {
    files: Mutex<HashSet<FileIdentity>>,
    unlocked: Condvar,
}

static LOCKED: LazyLock<LockedFiles> = LazyLock::new(LockedFiles::default);

/// The lock of one file. Dropping it unlocks the file.
pub(crate) struct WriteLock(FileIdentity);

impl WriteLock {
    /// Waits until no other `WriteLock` of this file exists, and locks the file.
    pub(crate) fn acquire(file: FileIdentity) -> Self {
        let mut files = LOCKED.files.lock();
        while !files.insert(file) {
            LOCKED.unlocked.wait(&mut files);
        }
        Self(file)
    }
}

impl Drop for WriteLock {
    fn drop(&mut self) {
        LOCKED.files.lock().remove(&self.0);
        LOCKED.unlocked.notify_all();
    }
}
