//! Which files are looked at: globs, ignore files, depth and size.

use std::path::{Path, PathBuf};

use ignore::overrides::{Override, OverrideBuilder};
use ignore::{Error, WalkBuilder};

use super::{Search, SearchError, SearchFailure, shortened};

/// What ripgrep reads besides `.ignore`.
const RIPGREP_IGNORE: &str = ".rgignore";

pub(super) fn build(search: &Search) -> Result<WalkBuilder, SearchError> {
    let mut walk = WalkBuilder::new(&search.root);
    walk.overrides(overrides(search)?)
        .standard_filters(search.respect_ignore)
        .hidden(!search.hidden)
        .follow_links(search.follow_symlinks)
        .max_depth(search.max_depth)
        .max_filesize(search.max_file_size)
        .threads(search.threads.unwrap_or(0))
        // Global excludes are relative to it, and ours is not that of who asks.
        .current_dir(&search.root);
    if search.respect_ignore {
        walk.add_custom_ignore_filename(RIPGREP_IGNORE);
    }
    Ok(walk)
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
