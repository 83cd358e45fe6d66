//! The list of placeholders, which are empty directories that sandboxes of this server have made on the host. The list is
//! also written to memory that the guard reads ([`GuardNotes`]), so that the guard removes the directories if the server
//! is killed.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;
use sandbox::PlaceholderNotes;
use spawn::GuardNotes;

/// The placeholders that sandboxes of all sessions use.
pub(crate) struct PlaceholderList {
    /// Each path, and how many sandboxes use it. A path whose directory could not be removed stays in the list, with 0, until a later
    /// sandbox uses the directory and removes it.
    paths: Mutex<HashMap<PathBuf, usize>>,
    /// How often all sandboxes together use a placeholder, so that nobody has to lock `paths` to find out that there is none.
    uses: AtomicUsize,
    notes: Option<Arc<GuardNotes>>,
}

impl PlaceholderList {
    pub(crate) fn new(notes: Option<Arc<GuardNotes>>) -> Arc<Self> {
        Arc::new(Self { paths: Mutex::default(), uses: AtomicUsize::new(0), notes })
    }

    /// Whether no sandbox has a placeholder. Costs next to nothing.
    pub(crate) fn has_none(&self) -> bool {
        self.uses.load(Ordering::Relaxed) == 0
    }

    fn write(&self, paths: &HashMap<PathBuf, usize>) {
        let Some(notes) = &self.notes else { return };
        let text = paths.keys().flat_map(|path| [path.as_os_str().as_bytes(), b"\0"]).collect::<Vec<_>>().concat();
        if let Err(error) = notes.write(&text) {
            tracing::warn!(
                "cannot tell the guard about placeholder directories: {error}; if the server is killed, empty directories such as .git may stay"
            );
        }
    }
}

impl PlaceholderNotes for PlaceholderList {
    fn add(&self, paths: &[PathBuf]) {
        self.uses.fetch_add(paths.len(), Ordering::Relaxed);
        let mut known = self.paths.lock();
        let count = known.len();
        for path in paths {
            *known.entry(path.clone()).or_default() += 1;
        }
        if known.len() > count {
            self.write(&known);
        }
    }

    fn remove(&self, paths: &[PathBuf]) {
        let mut known = self.paths.lock();
        let count = known.len();
        for path in paths {
            if let Some(uses) = known.get_mut(path) {
                *uses = uses.saturating_sub(1);
                if *uses == 0 {
                    known.remove(path);
                }
            }
        }
        if known.len() < count {
            self.write(&known);
        }
        self.uses.fetch_sub(paths.len(), Ordering::Relaxed);
    }

    fn leave(&self, paths: &[PathBuf]) {
        let mut known = self.paths.lock();
        for path in paths {
            if let Some(uses) = known.get_mut(path) {
                *uses = uses.saturating_sub(1);
            }
        }
        self.uses.fetch_sub(paths.len(), Ordering::Relaxed);
    }
}

/// Removes the placeholders that a killed server has left behind. `notes` are those that it wrote for its guard. Call it
/// when all processes of the server have ended.
pub fn clean_up_after_server(notes: &[u8]) {
    for path in notes.split(|byte| *byte == 0).filter(|path| !path.is_empty()) {
        sandbox::remove_unused_placeholder(Path::new(OsStr::from_bytes(path)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_stays_in_the_list_until_its_last_use_ends() {
        let list = PlaceholderList::new(None);
        let paths = [PathBuf::from("/ws/.git"), PathBuf::from("/ws/.codex")];
        list.add(&paths);
        list.add(&paths[..1]);
        list.remove(&paths);
        assert_eq!(list.paths.lock().len(), 1);
        assert!(!list.has_none());
        list.remove(&paths[..1]);
        assert!(list.paths.lock().is_empty());
        assert!(list.has_none());
    }

    #[test]
    fn a_path_that_could_not_be_removed_stays_in_the_list_until_a_later_sandbox_removes_it() {
        let list = PlaceholderList::new(None);
        let paths = [PathBuf::from("/ws/.git")];
        for _ in 0..3 {
            list.add(&paths);
            list.leave(&paths);
            assert_eq!(list.paths.lock().len(), 1);
            assert!(list.has_none(), "no sandbox uses it");
        }
        list.add(&paths);
        list.remove(&paths);
        assert!(list.paths.lock().is_empty());
    }
}
