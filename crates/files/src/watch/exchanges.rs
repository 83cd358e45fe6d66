//! Recognizes exchanges of two names (`RENAME_EXCHANGE`). The kernel reports an exchange as two renames, from the first name to the second
//! and back. One entry that is renamed and renamed back causes the same events, so a pair of such renames always counts as an exchange.
//! This is a value without system calls; [`tree`](super::tree) decides what an exchange means for the watch. Start with [`RecentRenames`].

use std::ffi::{OsStr, OsString};

use super::directories::DirectoryId;

/// Maximum number of renames that are remembered. The kernel queues the two renames of an exchange one after the
/// other, so only renames that other CPUs make at the same time can come in between.
const MAX_RECENT_RENAMES: usize = 16;

/// A name and the watched directory that contains it.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct EntryName {
    pub(super) parent: DirectoryId,
    pub(super) name: OsString,
}

/// A rename whose `MOVED_TO` event has come, so that no further event is expected for it.
#[derive(Debug)]
pub(super) struct CompletedRename {
    /// `None` if the old name is in a directory that is not watched.
    pub(super) from: Option<EntryName>,
    pub(super) to: EntryName,
    pub(super) is_directory: bool,
}

impl CompletedRename {
    fn is_reverse_of(&self, other: &Self) -> bool {
        self.from.as_ref() == Some(&other.to) && other.from.as_ref() == Some(&self.to)
    }

    /// Whether the old or the new name is in this directory.
    fn concerns(&self, directory: DirectoryId) -> bool {
        self.to.parent == directory || self.from.as_ref().is_some_and(|from| from.parent == directory)
    }

    /// Whether this renames an entry from a directory that is not watched to this name.
    fn is_arrival_at(&self, parent: DirectoryId, name: &OsStr) -> bool {
        self.from.is_none() && self.to.parent == parent && self.to.name == name
    }
}

/// Two names that have probably been exchanged.
#[derive(Debug, PartialEq)]
pub(super) struct Exchange {
    /// Whether at least one of the two entries is a directory.
    pub(super) has_directory: bool,
}

/// The last renames, each of which may be the first half of an exchange. A rename is forgotten when later events in
/// its old or new directory show that they are not the second half.
#[derive(Debug, Default)]
pub(super) struct RecentRenames(Vec<CompletedRename>);

impl RecentRenames {
    /// Remembers a rename. Returns the exchange that it completes, if an earlier rename is its reverse.
    pub(super) fn push(&mut self, rename: CompletedRename) -> Option<Exchange> {
        let reverse = self.0.iter().find(|earlier| rename.is_reverse_of(earlier));
        let exchange = reverse.map(|earlier| Exchange { has_directory: rename.is_directory || earlier.is_directory });
        self.forget_directory(rename.to.parent);
        if let Some(from) = &rename.from {
            self.forget_directory(from.parent);
        }
        if self.0.len() == MAX_RECENT_RENAMES {
            self.0.remove(0);
        }
        self.0.push(rename);
        exchange
    }

    /// Handles a `MOVED_FROM` event: a name disappears by a rename. Returns an exchange if an entry from a directory
    /// that is not watched has just been renamed to this name. If a name is exchanged with a name in such a
    /// directory, the events can say that an entry arrives at the watched name and leaves it again, although the name
    /// still exists afterwards.
    pub(super) fn handle_moved_from(
        &mut self,
        parent: DirectoryId,
        name: &OsStr,
        is_directory: bool,
    ) -> Option<Exchange> {
        let arrival = self.0.iter().find(|earlier| earlier.is_arrival_at(parent, name));
        let exchange = arrival.map(|arrival| Exchange { has_directory: is_directory || arrival.is_directory });
        self.0.retain(|earlier| earlier.from.is_some() || !earlier.concerns(parent));
        exchange
    }

    /// Forgets the renames from and to a directory. To be called when a name in this directory was created, deleted
    /// or moved out of the tree.
    pub(super) fn forget_directory(&mut self, directory: DirectoryId) {
        self.0.retain(|rename| !rename.concerns(directory));
    }
}

#[cfg(test)]
mod tests {
    use super::super::directories::ROOT;
    use super::*;

    fn entry(name: &str) -> EntryName {
        EntryName { parent: ROOT, name: name.into() }
    }

    fn rename(from: Option<&str>, to: &str, is_directory: bool) -> CompletedRename {
        CompletedRename { from: from.map(entry), to: entry(to), is_directory }
    }

    #[test]
    fn a_rename_and_its_reverse_are_an_exchange() {
        let mut renames = RecentRenames::default();
        assert_eq!(renames.push(rename(Some("a"), "b", true)), None);
        assert_eq!(renames.push(rename(Some("b"), "a", false)), Some(Exchange { has_directory: true }));
    }

    #[test]
    fn another_event_in_between_ends_a_possible_exchange() {
        let mut renames = RecentRenames::default();
        renames.push(rename(Some("a"), "b", false));
        renames.forget_directory(ROOT);
        assert_eq!(renames.push(rename(Some("b"), "a", false)), None);
    }

    #[test]
    fn an_arrival_from_an_unwatched_directory_and_a_move_away_of_the_same_name_are_an_exchange() {
        let mut renames = RecentRenames::default();
        renames.push(rename(None, "a", false));
        assert_eq!(renames.handle_moved_from(ROOT, OsStr::new("a"), false), Some(Exchange { has_directory: false }));
        renames.push(rename(None, "a", false));
        assert_eq!(renames.handle_moved_from(ROOT, OsStr::new("b"), false), None, "another name moves away");
    }
}
