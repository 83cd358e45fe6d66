//! Walking a tree of this machine, with an answer of the same size as a server gives.

use std::ops::ControlFlow;
use std::path::Path;

use files::{Cancel, EntryKind, FileError, WalkItem};
use protocol::PathUri;
use protocol::fs::{WalkEntry, WalkFailure, WalkKind, WalkOptions, WalkResult};

/// As published: so much text, and so much around each entry.
const RESULT_BYTES: usize = 4 << 20;
const ENTRY_BYTES: usize = 64;

pub(super) fn walk(root: &Path, options: WalkOptions, cancel: &Cancel) -> Result<WalkResult, FileError> {
    let options = files::TreeWalkOptions {
        max_depth: options.max_depth,
        max_directories: options.max_directories,
        max_entries: options.max_entries,
        follow_directory_symlinks: options.follow_directory_symlinks,
        prune_hidden_directories: options.prune_hidden_directories,
    };
    let mut result = WalkResult::default();
    let mut left = RESULT_BYTES;
    let mut take = |bytes: usize| match left.checked_sub(bytes) {
        Some(rest) => {
            left = rest;
            ControlFlow::Continue(())
        }
        None => ControlFlow::Break(()),
    };
    let end = files::walk(root, &options, cancel, &mut |item| {
        match item {
            WalkItem::Entry { path, kind } => {
                let Some(path) = PathUri::from_native(path) else { return ControlFlow::Continue(()) };
                take(path.as_str().len() + ENTRY_BYTES)?;
                let kind = match kind {
                    EntryKind::Directory => WalkKind::Directory,
                    EntryKind::File => WalkKind::File,
                };
                result.entries.push(WalkEntry { path, kind });
            }
            WalkItem::Error { path, error } => {
                let Some(path) = PathUri::from_native(path) else { return ControlFlow::Continue(()) };
                let message = error.to_string();
                take(path.as_str().len() + message.len() + ENTRY_BYTES)?;
                result.errors.push(WalkFailure { path, message });
            }
        }
        ControlFlow::Continue(())
    })?;
    result.truncated = end.truncated;
    Ok(result)
}
