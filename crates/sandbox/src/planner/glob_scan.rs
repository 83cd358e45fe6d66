//! Finds the files that match a deny glob now. Files that are made later are not found; the plan is made again before every command.

use std::io;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};

use super::PlanError;
use crate::policy::GlobPattern;

/// The most files that globs of one policy may match. Each of them becomes a mount, which every command copies.
const MAX_MATCHES: usize = 8192;

/// The most files that are looked at for all globs of one policy.
const MAX_SCANNED: usize = 1_000_000;

/// What is left of the limits for a policy.
#[derive(Debug)]
pub(super) struct ScanBudget {
    matches: usize,
    scanned: usize,
}

impl Default for ScanBudget {
    fn default() -> Self {
        Self { matches: MAX_MATCHES, scanned: MAX_SCANNED }
    }
}

/// What a search has found.
#[derive(Debug, Default)]
pub(super) struct GlobScan {
    /// The paths that match, sorted. What is below a match is covered with it and not searched.
    pub(super) matches: Vec<PathBuf>,
    /// Directories that this user may not read, sorted.
    pub(super) unreadable: Vec<PathBuf>,
}

/// Searches for the files that match.
pub(super) fn scan(
    glob: &GlobPattern,
    max_depth: Option<NonZeroUsize>,
    budget: &mut ScanBudget,
) -> Result<GlobScan, PlanError> {
    let start = glob.directory();
    if start == Path::new("/") {
        return Err(PlanError::GlobWithoutDirectory { pattern: glob.to_string() });
    }
    let mut found = GlobScan::default();
    let mut directories = vec![(start.to_owned(), 1_usize)];
    while let Some((directory, depth)) = directories.pop() {
        let entries = match std::fs::read_dir(&directory) {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                found.unreadable.push(directory);
                continue;
            }
            // It has vanished, or is no directory.
            Err(_) => continue,
        };
        for entry in entries.flatten() {
            budget.scanned = budget.scanned.checked_sub(1).ok_or(PlanError::TooManyFiles { limit: MAX_SCANNED })?;
            let path = entry.path();
            if glob.matches(&path) {
                budget.matches =
                    budget.matches.checked_sub(1).ok_or(PlanError::TooManyMatches { limit: MAX_MATCHES })?;
                found.matches.push(path);
            } else if max_depth.is_none_or(|most| depth < most.get())
                && entry.file_type().is_ok_and(|kind| kind.is_dir())
                && glob.may_match_below(&path)
            {
                directories.push((path, depth + 1));
            }
        }
    }
    found.matches.sort();
    found.unreadable.sort();
    Ok(found)
}
