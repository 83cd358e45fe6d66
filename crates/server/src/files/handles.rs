//! The open files and the uploads of a session, by the names its client gave them. They belong to the session, so that a
//! transfer goes on over the next connection.

use std::collections::HashMap;
use std::sync::{Arc, OnceLock};

use files::{RegularFile, Upload};
use parking_lot::Mutex;
use tokio::sync::{OwnedRwLockReadGuard, OwnedRwLockWriteGuard, RwLock};

/// What a handle stands for.
pub(crate) enum Opened {
    /// It is being opened, or could not be.
    Nothing,
    File(RegularFile),
    Upload(Upload),
    /// An upload that is in its place. Remembered until the handle is closed, so that a client that lost the answer can
    /// ask again.
    Committed,
}

/// A handle. Blocks share its lock, opening and committing have it alone; it is fair, so that the order of asking is the
/// order of doing.
#[derive(Clone)]
pub(crate) struct Slot {
    opened: Arc<RwLock<Opened>>,
    /// Why a block of this upload was refused before it was tried. The file would lack the block, so later blocks and a commit fail.
    refused_block: Arc<OnceLock<String>>,
}

impl Slot {
    pub(crate) fn share(&self) -> impl Future<Output = OwnedRwLockReadGuard<Opened>> + use<> {
        Arc::clone(&self.opened).read_owned()
    }

    pub(crate) fn take(&self) -> impl Future<Output = OwnedRwLockWriteGuard<Opened>> + use<> {
        Arc::clone(&self.opened).write_owned()
    }

    /// Ends an upload for good; `sentence` says why.
    pub(crate) fn note_refused_block(&self, sentence: &str) {
        // The first refusal explains those that follow it.
        let _explained = self.refused_block.set(sentence.to_owned());
    }

    /// Why the upload cannot go on.
    pub(crate) fn refused_block(&self) -> Option<&str> {
        self.refused_block.get().map(String::as_str)
    }

    fn is_committed(&self) -> bool {
        self.opened.try_read().is_ok_and(|opened| matches!(*opened, Opened::Committed))
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
    slots: Mutex<HashMap<String, Slot>>,
}

impl Handles {
    pub(crate) fn new(limit: usize) -> Self {
        Self { limit, slots: Mutex::default() }
    }

    /// Makes a handle that is being opened by whoever has the guard.
    pub(crate) fn begin(&self, id: &str) -> Result<(Slot, OwnedRwLockWriteGuard<Opened>), HandleRefusal> {
        let lock = Arc::new(RwLock::new(Opened::Nothing));
        let mut slots = self.slots.lock();
        if slots.contains_key(id) {
            return Err(HandleRefusal::Exists);
        }
        if slots.len() >= self.limit {
            slots.retain(|_, slot| !slot.is_committed());
        }
        let Ok(guard) = Arc::clone(&lock).try_write_owned() else { return Err(HandleRefusal::Exists) };
        if slots.len() >= self.limit {
            return Err(HandleRefusal::TooMany(self.limit));
        }
        let slot = Slot { opened: lock, refused_block: Arc::default() };
        slots.insert(id.to_owned(), slot.clone());
        Ok((slot, guard))
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.slots.lock().is_empty()
    }

    pub(crate) fn find(&self, id: &str) -> Option<Slot> {
        self.slots.lock().get(id).cloned()
    }

    /// Ends every upload for good; `sentence` says why. Files that are read are not concerned.
    pub(crate) fn note_refused_block_of_any(&self, sentence: &str) {
        self.slots.lock().values().for_each(|slot| slot.note_refused_block(sentence));
    }

    /// Forgets a handle, if it has not been made anew meanwhile.
    pub(crate) fn forget(&self, id: &str, slot: &Slot) {
        let mut slots = self.slots.lock();
        if slots.get(id).is_some_and(|known| Arc::ptr_eq(&known.opened, &slot.opened)) {
            slots.remove(id);
        }
    }

    pub(crate) fn remove(&self, id: &str) -> Option<Slot> {
        self.slots.lock().remove(id)
    }

    /// Takes all of them. Dropping them may block.
    pub(crate) fn take_all(&self) -> Vec<Slot> {
        self.slots.lock().drain().map(|(_, slot)| slot).collect()
    }
}
