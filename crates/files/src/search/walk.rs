//! Which files are looked at: globs, ignore files, depth and size.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use ignore::overrides::{Override, OverrideBuilder};
use ignore::{DirEntry, Error, WalkBuilder};

use super::ignore_files::{self, LeftOut};
use super::{RIPGREP_IGNORE, Search, SearchError, SearchFailure, shortened};
use crate::FileError;

pub(super) fn build(search: &Search, left_out: &LeftOut) -> Result<WalkBuilder, SearchError> {
    let mut walk = WalkBuilder::new(&search.root);
    walk.overrides(overrides(search)?)
        .standard_filters(search.respect_ignore)
        .hidden(!search.hidden)
        .follow_links(search.follow_symlinks)
        .max_depth(search.max_depth)
        .max_filesize(search.max_file_size)
        .threads(search.thread_count())
        // Global excludes are relative to it, and ours is not that of who asks.
        .current_dir(&search.root);
    if search.respect_ignore {
        check_root(&search.root)?;
        if let Some(path) = ignore_files::unreadable_of_git() {
            left_out.note(path, ignore_files::GLOBAL_REFUSAL);
            walk.git_global(false);
        }
        let left_out = left_out.clone();
        walk.add_custom_ignore_filename(RIPGREP_IGNORE)
            .filter_entry(move |entry| !is_directory(entry) || left_out.admits(entry.path()));
    }
    Ok(walk)
}

fn is_directory(entry: &DirEntry) -> bool {
    entry.file_type().is_some_and(|kind| kind.is_dir())
}

/// The walker reads the ignore files of the root and of everything above it whatever we say.
fn check_root(root: &Path) -> Result<(), FileError> {
    let canonical = root.canonicalize().map_err(FileError::at(root))?;
    match canonical.ancestors().find_map(ignore_files::unreadable) {
        Some(path) => Err(FileError::check(ErrorKind::InvalidData, ignore_files::REFUSAL, &path)),
        None => Ok(()),
    }
}

fn overrides(search: &Search) -> Result<Override, SearchError> {
    let refused = |glob: &str, error: &Error| SearchError::Glob {
        glob: shortened(glob),
        text: shortened(&reason(error).to_string()),
    };
    let mut builder = OverrideBuilder::new(&search.root);
    for glob in &search.globs {
        builder.add(glob).map_err(|error| refused(glob, &error))?;
    }
    builder.build().map_err(|error| refused(&search.globs.join(" "), &error))
}

/// What the walker could not do, and where; `root` if it does not say.
pub(super) fn failure(error: &Error, root: &Path) -> SearchFailure {
    let path = path_of(error).unwrap_or_else(|| root.to_owned());
    SearchFailure { path, text: shortened(&reason(error).to_string()) }
}

fn path_of(error: &Error) -> Option<PathBuf> {
    match error {
        Error::WithPath { path, .. } => Some(path.clone()),
        Error::Loop { child, .. } => Some(child.clone()),
        Error::WithDepth { err, .. } | Error::WithLineNumber { err, .. } => path_of(err),
        Error::Partial(errors) => errors.iter().find_map(path_of),
        _ => None,
    }
}

/// The error without its path, which is told beside it.
fn reason(error: &Error) -> &Error {
    match error {
        Error::WithPath { err, .. } | Error::WithDepth { err, .. } => reason(err),
        Error::Partial(errors) if errors.len() == 1 => reason(&errors[0]),
        other => other,
    }
}
