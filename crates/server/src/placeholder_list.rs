//! The list of placeholders, which are empty directories that sandboxes of this server have made on the host. The list is
//! in the notes for the guard, so that the guard removes the directories if the server is killed.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::Mutex;
use sandbox::PlaceholderNotes;
use spawn::GuardNotes;

/// The placeholders that sandboxes of all sessions use.
pub(crate) struct PlaceholderList {
    /// With the number of uses.
    paths: Mutex<BTreeMap<PathBuf, usize>>,
    notes: Option<Arc<GuardNotes>>,
}

impl PlaceholderList {
    pub(crate) fn new(notes: Option<Arc<GuardNotes>>) -> Arc<Self> {
        Arc::new(Self { paths: Mutex::default(), notes })
    }

    fn write(&self, paths: &BTreeMap<PathBuf, usize>) {
        let Some(notes) = &self.notes else { return };
        let text = paths.keys().flat_map(|path| [path.as_os_str().as_bytes(), b"\0"]).collect::<Vec<_>>().concat();
        if let Err(error) = notes.write(&text) {
            tracing::warn!("placeholders of sandboxes cannot be noted for the guard: {error}");
        }
    }
}

impl PlaceholderNotes for PlaceholderList {
    fn add(&self, path: &Path) {
        let mut paths = self.paths.lock();
        let uses = paths.entry(path.to_owned()).or_default();
        *uses += 1;
        if *uses == 1 {
            self.write(&paths);
        }
    }

    fn remove(&self, path: &Path) {
        let mut paths = self.paths.lock();
        let Some(uses) = paths.get_mut(path) else { return };
        *uses -= 1;
        if *uses == 0 {
            paths.remove(path);
            self.write(&paths);
        }
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
        let path = Path::new("/ws/.git");
        list.add(path);
        list.add(path);
        list.remove(path);
        assert_eq!(list.paths.lock().len(), 1);
        list.remove(path);
        list.remove(path);
        assert!(list.paths.lock().is_empty());
    }
}
