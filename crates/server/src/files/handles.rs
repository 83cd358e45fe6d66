//! The file handles of a session: its open files and uploads, by the ids that its client chose. They belong to the session and not to a
//! connection, so that a transfer continues after a reconnection.

use std::collections::HashMap;
use std::sync::{Arc, OnceLock};

use files::{RegularFile, Upload};
use parking_lot::Mutex;
use tokio::sync::{OwnedRwLockReadGuard, OwnedRwLockWriteGuard, RwLock};

/// The file or upload that a handle refers to.
pub(crate) enum HandleState {
    /// The file is not open yet, could not be opened, or was closed.
    Closed,
    /// A file that is read in blocks.
    File(RegularFile),
    /// A file that is written in blocks.
    Upload(Upload),
    /// The upload was committed: the file has its final name. The handle remembers this until it is closed, so that a client that lost the
    /// answer can repeat the commit.
    Committed,
}

/// A file handle. Requests for blocks hold its lock shared; opening and committing hold it exclusively. The lock is fair, so requests are
/// carried out in the order in which they ask for it.
#[derive(Clone)]
pub(crate) struct FileHandle {
    state: Arc<RwLock<HandleState>>,
    /// Why a block of this upload was refused before it was written. The file would lack the block, so later blocks and a commit fail.
    refused_block: Arc<OnceLock<String>>,
}

impl FileHandle {
    pub(crate) fn lock_shared(&self) -> impl Future<Output = OwnedRwLockReadGuard<HandleState>> + use<> {
        Arc::clone(&self.state).read_owned()
    }

    pub(crate) fn lock_exclusive(&self) -> impl Future<Output = OwnedRwLockWriteGuard<HandleState>> + use<> {
        Arc::clone(&self.state).write_owned()
    }

    /// Makes the upload fail from now on; `sentence` says why. Only the first call counts.
    pub(crate) fn note_refused_block(&self, sentence: &str) {
        // Later refusals are consequences of the first one, which explains them best.
        let _already_refused = self.refused_block.set(sentence.to_owned());
    }

    /// Why the upload has failed. None if no block was refused.
    pub(crate) fn refused_block(&self) -> Option<&str> {
        self.refused_block.get().map(String::as_str)
    }

    fn is_committed(&self) -> bool {
        self.state.try_read().is_ok_and(|state| matches!(*state, HandleState::Committed))
    }
}

/// Why a handle could not be made.
pub(crate) enum HandleRefusal {
    Exists,
    TooMany(usize),
}

/// All handles of a session.
pub(crate) struct Handles {
    limit: usize,
    by_id: Mutex<HashMap<String, FileHandle>>,
}

impl Handles {
    pub(crate) fn new(limit: usize) -> Self {
        Self { limit, by_id: Mutex::default() }
    }

    /// Makes a closed handle, and locks it exclusively. The caller opens the file and drops the guard; requests that use the handle wait
    /// until then.
    pub(crate) fn begin(&self, id: &str) -> Result<(FileHandle, OwnedRwLockWriteGuard<HandleState>), HandleRefusal> {
        let lock = Arc::new(RwLock::new(HandleState::Closed));
        let mut by_id = self.by_id.lock();
        if by_id.contains_key(id) {
            return Err(HandleRefusal::Exists);
        }
        if by_id.len() >= self.limit {
            by_id.retain(|_, handle| !handle.is_committed());
        }
        let Ok(guard) = Arc::clone(&lock).try_write_owned() else { return Err(HandleRefusal::Exists) };
        if by_id.len() >= self.limit {
            return Err(HandleRefusal::TooMany(self.limit));
        }
        let handle = FileHandle { state: lock, refused_block: Arc::default() };
        by_id.insert(id.to_owned(), handle.clone());
        Ok((handle, guard))
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.by_id.lock().is_empty()
    }

    pub(crate) fn find(&self, id: &str) -> Option<FileHandle> {
        self.by_id.lock().get(id).cloned()
    }

    /// Makes every upload fail from now on; `sentence` says why. Files that are read are not affected.
    pub(crate) fn fail_all_uploads(&self, sentence: &str) {
        self.by_id.lock().values().for_each(|handle| handle.note_refused_block(sentence));
    }

    /// Forgets a handle. A newer handle with the same id stays.
    pub(crate) fn forget(&self, id: &str, handle: &FileHandle) {
        let mut by_id = self.by_id.lock();
        if by_id.get(id).is_some_and(|known| Arc::ptr_eq(&known.state, &handle.state)) {
            by_id.remove(id);
        }
    }

    pub(crate) fn remove(&self, id: &str) -> Option<FileHandle> {
        self.by_id.lock().remove(id)
    }

    /// Takes all handles out. Dropping them closes files, which may block.
    pub(crate) fn take_all(&self) -> Vec<FileHandle> {
        self.by_id.lock().drain().map(|(_, handle)| handle).collect()
    }
}
