//! Finds the files that match a deny glob now. Files that are made later are not found; the plan is made again before every command.

use std::fs::DirEntry;
use std::io;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};

use rustix::io::Errno;

use super::PlanError;
use crate::policy::GlobPattern;

/// The most files that globs of one policy may match. Each of them becomes a mount, which every command copies.
pub const MAX_MATCHES: usize = 8192;

/// The most files that are looked at for all globs of one policy.
pub const MAX_SCANNED: usize = 1_000_000;

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
            Err(error) if is_gone(&error) => continue,
            Err(error) => return Err(PlanError::Host { path: directory, source: error }),
        };
        for entry in entries {
            let entry = entry.map_err(|source| PlanError::Host { path: directory.clone(), source })?;
            budget.scanned = budget.scanned.checked_sub(1).ok_or(PlanError::TooManyFiles { limit: MAX_SCANNED })?;
            let path = entry.path();
            if glob.matches(&path) {
                budget.matches =
                    budget.matches.checked_sub(1).ok_or(PlanError::TooManyMatches { limit: MAX_MATCHES })?;
                found.matches.push(path);
            } else if max_depth.is_none_or(|most| depth < most.get())
                && glob.may_match_below(&path)
                && is_directory(&entry)?
            {
                directories.push((path, depth + 1));
            }
        }
    }
    found.matches.sort();
    found.unreadable.sort();
    Ok(found)
}

fn is_directory(entry: &DirEntry) -> Result<bool, PlanError> {
    match entry.file_type() {
        Ok(kind) => Ok(kind.is_dir()),
        Err(error) if is_gone(&error) => Ok(false),
        Err(source) => Err(PlanError::Host { path: entry.path(), source }),
    }
}

/// Whether an error says that there is no directory at a path, so that nothing in it can match. After every other error, such as too many
/// open files, the plan must fail: files that were not found would not be denied.
fn is_gone(error: &io::Error) -> bool {
    matches!(Errno::from_io_error(error), Some(Errno::NOENT | Errno::NOTDIR | Errno::LOOP))
}

#[cfg(test)]
mod tests {
    use rustix::fs::{CWD, Mode, OFlags, mkdirat, openat};

    use super::*;
    use crate::policy::{
        Access, EntryTarget, MachineFacts, PolicyRequest, RequestedEntry, RequestedFiles, RequestedTarget,
        resolve_policy,
    };

    fn search(pattern: String) -> Result<GlobScan, PlanError> {
        search_to_depth(pattern, None)
    }

    fn search_to_depth(pattern: String, max_depth: Option<usize>) -> Result<GlobScan, PlanError> {
        let entry = RequestedEntry { target: RequestedTarget::Glob(pattern), access: Access::Deny };
        let request = PolicyRequest {
            files: RequestedFiles::Restricted { entries: vec![entry], glob_scan_max_depth: None },
            cwd: None,
            workspace_roots: Vec::new(),
        };
        let mut facts = MachineFacts {
            tmpdir: None,
            slash_tmp_is_directory: false,
            minimal_roots: Vec::new(),
            git_directories_of: &mut |_| Ok(Vec::new()),
        };
        let policy = resolve_policy(&request, &mut facts).unwrap();
        let [entry] = policy.entries() else { panic!("{policy:?}") };
        let EntryTarget::Glob(glob) = &entry.target else { panic!("{entry:?}") };
        scan(glob, max_depth.and_then(NonZeroUsize::new), &mut ScanBudget::default())
    }

    #[test]
    fn a_search_goes_as_deep_as_asked() {
        let base = tempfile::tempdir().unwrap();
        let path = base.path().canonicalize().unwrap();
        std::fs::create_dir_all(path.join("a/b")).unwrap();
        let files = ["1.env", "a/2.env", "a/b/3.env"].map(|name| path.join(name));
        files.iter().for_each(|file| std::fs::write(file, "").unwrap());
        for (max_depth, found) in [(Some(1), 1), (Some(2), 2), (Some(3), 3), (Some(4), 3), (None, 3)] {
            let searched = search_to_depth(format!("{}/**/*.env", path.display()), max_depth).unwrap();
            assert_eq!(searched.matches, files[..found], "{max_depth:?}");
        }
    }

    #[test]
    fn missing_directories_files_and_link_loops_have_no_matches() {
        let base = tempfile::tempdir().unwrap();
        let path = base.path().canonicalize().unwrap();
        std::fs::write(path.join("file"), "").unwrap();
        std::os::unix::fs::symlink("loop", path.join("loop")).unwrap();
        for name in ["missing", "file", "file/below", "loop"] {
            let found = search(format!("{}/{name}/**/*.env", path.display())).unwrap();
            assert!(found.matches.is_empty() && found.unreadable.is_empty(), "{name}: {found:?}");
        }
    }

    /// A process can enter directories one by one whose whole path is too long for the kernel.
    #[test]
    fn a_directory_that_cannot_be_searched_fails_the_plan() {
        let base = tempfile::tempdir().unwrap();
        let path = base.path().canonicalize().unwrap();
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let mut directory = openat(CWD, &path, flags, Mode::empty()).unwrap();
        let name = "d".repeat(250);
        for _ in 0..20 {
            mkdirat(&directory, &name, Mode::RWXU).unwrap();
            directory = openat(&directory, &name, flags, Mode::empty()).unwrap();
        }
        let searched = search(format!("{}/**/*.env", path.display()));
        assert!(
            matches!(&searched, Err(PlanError::Host { path: deep, .. }) if deep.starts_with(&path)),
            "{searched:?}"
        );
    }
}
