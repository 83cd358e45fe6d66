//! One writer at a time for a file that is written in place: the contents of two that write at once would be mixed. It binds the writers of
//! this process only, and those of one file only, so that a file which hangs, on a dead network mount for example, delays no other.

use std::collections::HashSet;
use std::sync::LazyLock;

use parking_lot::{Condvar, Mutex};

use crate::stat::Identity;

#[derive(Default)]
struct BusyFiles {
    files: Mutex<HashSet<Identity>>,
    freed: Condvar,
}

static BUSY: LazyLock<BusyFiles> = LazyLock::new(BusyFiles::default);

/// The right to write a file, until dropped.
pub(crate) struct OneWriter(Identity);

impl OneWriter {
    /// Waits until nobody else writes this file.
    pub(crate) fn of(file: Identity) -> Self {
        let mut files = BUSY.files.lock();
        while !files.insert(file) {
            BUSY.freed.wait(&mut files);
        }
        Self(file)
    }
}

impl Drop for OneWriter {
    fn drop(&mut self) {
        BUSY.files.lock().remove(&self.0);
        BUSY.freed.notify_all();
    }
}
