//! Listing a directory tree of this machine. `WalkAnswer` limits the size of the result, as on a server.

use std::path::Path;

use files::{Cancel, EntryKind, FileError, FileRoot, WalkItem};
use protocol::fs::{WalkAnswer, WalkKind, WalkOptions, WalkResult};

pub(super) fn walk(
    file_root: &FileRoot,
    root: &Path,
    options: WalkOptions,
    cancel: &Cancel,
) -> Result<WalkResult, FileError> {
    let options = files::TreeWalkOptions {
        max_depth: options.max_depth,
        max_directories: options.max_directories,
        max_entries: options.max_entries,
        follow_directory_symlinks: options.follow_directory_symlinks,
        prune_hidden_directories: options.prune_hidden_directories,
    };
    let mut answer = WalkAnswer::default();
    let end = files::walk(file_root, root, &options, cancel, &mut |item| match item {
        WalkItem::Entry { path, kind: EntryKind::Directory } => answer.add_entry(path, WalkKind::Directory),
        WalkItem::Entry { path, kind: EntryKind::File } => answer.add_entry(path, WalkKind::File),
        WalkItem::Error { path, error } => answer.add_failure(path, error.to_string()),
    })?;
    Ok(answer.finish(end.truncated))
}
