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
    /// The upload was committed: the file has its final name. The handle stays until it is closed, or until the
    /// session needs room for another handle. So a client that lost the answer can repeat the commit.
    Committed,
}

/// A file handle. Requests for blocks hold its lock shared; opening, committing and closing hold it exclusively. The
/// lock is fair: requests get it in the order in which they ask for it.
#[derive(Clone)]
pub(crate) struct FileHandle {
    state: Arc<RwLock<HandleState>>,
    /// Why this upload has failed. Set when a block of it was refused before it was written, or when a message was
    /// refused that may have been such a block. The file would lack the block, so later blocks and a commit fail.
    upload_failure: Arc<OnceLock<String>>,
}

impl FileHandle {
    pub(crate) fn lock_shared(&self) -> impl Future<Output = OwnedRwLockReadGuard<HandleState>> + use<> {
        Arc::clone(&self.state).read_owned()
    }

    pub(crate) fn lock_exclusive(&self) -> impl Future<Output = OwnedRwLockWriteGuard<HandleState>> + use<> {
        Arc::clone(&self.state).write_owned()
    }

    /// Makes the upload fail from now on; `sentence` says why. Only the first call counts. Has no effect on a file
    /// that is read.
    pub(crate) fn fail_upload(&self, sentence: &str) {
        // Later refusals are consequences of the first refusal, so the first sentence explains them best.
        let _error_if_set_before = self.upload_failure.set(sentence.to_owned());
    }

    /// The sentence of the first [`Self::fail_upload`]. None if there was no such call.
    pub(crate) fn upload_failure(&self) -> Option<&str> {
        self.upload_failure.get().map(String::as_str)
    }

    fn is_committed(&self) -> bool {
        self.state.try_read().is_ok_and(|state| matches!(*state, HandleState::Committed))
    }
}

/// Why a handle could not be made.
pub(crate) enum HandleRefusal {
    /// The session has a handle with this id already.
    Exists,
    /// The session has reached its limit, which is this many handles.
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

    /// Makes a closed handle, and locks it exclusively. The caller opens the file and drops the guard; requests that
    /// use the handle wait until then. If the limit is reached, the handles of all committed uploads are forgotten
    /// first.
    pub(crate) fn create_locked(
        &self,
        id: &str,
    ) -> Result<(FileHandle, OwnedRwLockWriteGuard<HandleState>), HandleRefusal> {
        let lock = Arc::new(RwLock::new(HandleState::Closed));
        let mut by_id = self.by_id.lock();
        if by_id.contains_key(id) {
            return Err(HandleRefusal::Exists);
        }
        if by_id.len() >= self.limit {
            by_id.retain(|_, handle| !handle.is_committed());
        }
        // Nobody else has this lock, so locking it cannot fail.
        let Ok(guard) = Arc::clone(&lock).try_write_owned() else { return Err(HandleRefusal::Exists) };
        if by_id.len() >= self.limit {
            return Err(HandleRefusal::TooMany(self.limit));
        }
        let handle = FileHandle { state: lock, upload_failure: Arc::default() };
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
        self.by_id.lock().values().for_each(|handle| handle.fail_upload(sentence));
    }

    /// Removes `handle`. If a newer handle has the same id, that one stays.
    pub(crate) fn remove_if_same(&self, id: &str, handle: &FileHandle) {
        let mut by_id = self.by_id.lock();
        if by_id.get(id).is_some_and(|known| Arc::ptr_eq(&known.state, &handle.state)) {
            by_id.remove(id);
        }
    }

    /// Removes the handle that has this id now.
    pub(crate) fn remove(&self, id: &str) -> Option<FileHandle> {
        self.by_id.lock().remove(id)
    }

    /// Takes all handles out. Dropping them closes files, which may block.
    pub(crate) fn take_all(&self) -> Vec<FileHandle> {
        self.by_id.lock().drain().map(|(_, handle)| handle).collect()
    }
}
