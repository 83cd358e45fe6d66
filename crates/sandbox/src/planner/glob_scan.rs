//! Finds the files that match the deny globs of a policy now. Files that are made later are not found; the plan is made again before every
//! command. Each directory is read once, however many globs there are.

use std::collections::BTreeMap;
use std::fs::DirEntry;
use std::io;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};

use rustix::io::Errno;

use super::PlanError;
use crate::policy::{GlobPattern, GlobWalk, NameCharacters};

/// The most files that globs of one policy may match. Each of them becomes a mount, which every command copies.
pub const MAX_MATCHES: usize = 8192;

/// The most files that are looked at for all globs of one policy.
pub const MAX_SCANNED: usize = 1_000_000;

/// The most steps of comparing names with the globs of one policy. A step is about a nanosecond. An ordinary glob takes a few steps for most
/// files, so a few dozen of them can be compared with as many files as may be looked at.
pub const MAX_COMPARISON_STEPS: usize = 400_000_000;

/// What a search may cost.
#[derive(Clone, Copy)]
struct ScanLimits {
    /// The most files that may match.
    matches: usize,
    /// The most files that are looked at.
    files: usize,
    /// The most steps of comparing names with globs.
    steps: usize,
}

const LIMITS: ScanLimits = ScanLimits { matches: MAX_MATCHES, files: MAX_SCANNED, steps: MAX_COMPARISON_STEPS };

/// What a search has found.
#[derive(Debug, Default)]
pub(super) struct GlobScan {
    /// The paths that match, sorted. What is below a match is covered with it. It is searched for the same glob only if an entry allows a path
    /// there, because that entry uncovers the path.
    pub(super) matches: Vec<PathBuf>,
    /// Directories that this user may not read, sorted.
    pub(super) unreadable: Vec<PathBuf>,
}

/// Searches for the files that match at least one of the globs. `max_depth` counts from the directory of each glob. `granted` are the paths
/// that entries allow.
pub(super) fn scan(
    globs: &[&GlobPattern],
    max_depth: Option<NonZeroUsize>,
    granted: &[&Path],
) -> Result<GlobScan, PlanError> {
    scan_within(globs, max_depth, granted, LIMITS)
}

/// A glob that may match in a directory.
struct ActiveGlob<'a> {
    /// Where in the pattern the directory is.
    walk: GlobWalk<'a>,
    /// 1 in the directory of the glob.
    depth: usize,
}

impl<'a> ActiveGlob<'a> {
    fn new(glob: &'a GlobPattern) -> Self {
        Self { walk: glob.walk(), depth: 1 }
    }
}

fn scan_within(
    globs: &[&GlobPattern],
    max_depth: Option<NonZeroUsize>,
    granted: &[&Path],
    limits: ScanLimits,
) -> Result<GlobScan, PlanError> {
    // A directory is sorted before those below it. So if a start is below another start, the search that begins at the outer one
    // can take it along, if it gets there.
    let mut starts = BTreeMap::<PathBuf, Vec<ActiveGlob<'_>>>::new();
    for glob in globs {
        if glob.directory() == Path::new("/") {
            return Err(PlanError::GlobWithoutDirectory { pattern: glob.to_string() });
        }
        starts.entry(glob.directory().to_owned()).or_default().push(ActiveGlob::new(glob));
    }
    let mut found = GlobScan::default();
    let mut left = limits;
    while let Some(start) = starts.pop_first() {
        let mut directories = vec![start];
        while let Some((directory, globs)) = directories.pop() {
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
                left.files = left.files.checked_sub(1).ok_or(PlanError::TooManyFiles { limit: limits.files })?;
                let name = NameCharacters::new(&entry.file_name());
                let mut steps = 0;
                let is_match = globs.iter().any(|glob| glob.walk.matches_next(&name, &mut steps));
                let path = entry.path();
                let mut below = Vec::new();
                if is_directory(&entry)? {
                    let is_granted_below = is_match && granted.iter().any(|granted| granted.starts_with(&path));
                    let matched = if is_granted_below { BelowMatch::Searched } else { BelowMatch::LeftOut };
                    below = globs_below(&globs, &name, matched, max_depth, &mut steps);
                    below.extend(starts.remove(&path).into_iter().flatten());
                }
                left.steps = left.steps.checked_sub(steps).ok_or(PlanError::TooManyComparisons)?;
                if is_match {
                    let too_many = PlanError::TooManyMatches { limit: limits.matches };
                    left.matches = left.matches.checked_sub(1).ok_or(too_many)?;
                    found.matches.push(path.clone());
                }
                if !below.is_empty() {
                    directories.push((path, below));
                }
            }
        }
    }
    found.matches.sort();
    found.unreadable.sort();
    Ok(found)
}

/// What happens to a glob below a directory that it matches. The directory is covered with everything in it.
#[derive(Clone, Copy, PartialEq, Eq)]
enum BelowMatch {
    /// The glob is left out.
    LeftOut,
    /// An entry allows a path below, so the glob may have to deny something there again.
    Searched,
}

/// The globs that may match below a directory with this name.
fn globs_below<'a>(
    globs: &[ActiveGlob<'a>],
    name: &NameCharacters,
    matched: BelowMatch,
    max_depth: Option<NonZeroUsize>,
    steps: &mut usize,
) -> Vec<ActiveGlob<'a>> {
    let goes_on = |glob: &&ActiveGlob<'a>| max_depth.is_none_or(|most| glob.depth < most.get());
    let below = globs
        .iter()
        .filter(goes_on)
        .map(|ActiveGlob { walk, depth }| ActiveGlob { walk: walk.after(name, steps), depth: depth + 1 });
    below
        .filter(|ActiveGlob { walk, .. }| {
            walk.may_match_below() && (matched == BelowMatch::Searched || !walk.has_matched())
        })
        .collect()
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
        search_within(&[pattern], None, LIMITS)
    }

    fn search_within(
        patterns: &[String],
        max_depth: Option<usize>,
        limits: ScanLimits,
    ) -> Result<GlobScan, PlanError> {
        let entry = |pattern: &String| RequestedEntry {
            target: RequestedTarget::Glob(pattern.clone()),
            access: Access::Deny,
        };
        let entries = patterns.iter().map(entry).collect();
        let request = PolicyRequest {
            files: RequestedFiles::Restricted { entries, glob_scan_max_depth: None },
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
        let globs: Vec<_> = policy
            .entries()
            .iter()
            .map(|entry| match &entry.target {
                EntryTarget::Glob(glob) => glob,
                EntryTarget::Path(path) => panic!("{path:?}"),
            })
            .collect();
        assert_eq!(globs.len(), patterns.len());
        scan_within(&globs, max_depth.and_then(NonZeroUsize::new), &[], limits)
    }

    /// Makes directories and empty files in a new directory.
    fn tree(files: &[&str]) -> (tempfile::TempDir, PathBuf) {
        let base = tempfile::tempdir().unwrap();
        let path = base.path().canonicalize().unwrap();
        for file in files {
            let file = path.join(file);
            std::fs::create_dir_all(file.parent().unwrap()).unwrap();
            std::fs::write(file, "").unwrap();
        }
        (base, path)
    }

    #[test]
    fn many_globs_look_at_each_file_once() {
        let (_base, path) = tree(&["1.env", "a/2.env", "a/b/3.pem", "a/b/c/4.txt", "d/5.txt"]);
        let of = |names: &[&str]| names.iter().map(|name| format!("{}/{name}", path.display())).collect::<Vec<_>>();
        let patterns =
            of(&["**/*.env", "**/*.pem", "**/*.key", "a/**/*.pem", "a/**/*.env", "a/b/*.pem", "**/x*", "**/y*"]);
        // Four directories and five files.
        let enough = ScanLimits { matches: 3, files: 9, ..LIMITS };
        let found = search_within(&patterns, None, enough).unwrap();
        assert_eq!(found.matches, ["1.env", "a/2.env", "a/b/3.pem"].map(|name| path.join(name)));
        let too_few = search_within(&patterns, None, ScanLimits { files: 8, ..enough });
        assert!(matches!(too_few, Err(PlanError::TooManyFiles { limit: 8 })), "{too_few:?}");
        let too_few = search_within(&patterns, None, ScanLimits { matches: 2, ..enough });
        assert!(matches!(too_few, Err(PlanError::TooManyMatches { limit: 2 })), "{too_few:?}");
        let too_few = search_within(&patterns, None, ScanLimits { steps: 9, ..enough });
        assert!(matches!(too_few, Err(PlanError::TooManyComparisons)), "{too_few:?}");
    }

    /// Among others a match above the start of another glob, starts that the search from above does not reach, and a start behind a link.
    #[test]
    fn globs_find_together_what_each_of_them_finds() {
        let (_base, path) = tree(&[
            "1.env",
            "a/2.env",
            "a/secret/3.env",
            "a/secret/deep/4.pem",
            "a/secret/deep/down/5.env",
            "b/c/d/6.pem",
            "b/c/7.env",
            "b/x/8.env",
        ]);
        std::os::unix::fs::symlink("c", path.join("b/link")).unwrap();
        let names = [
            "**/*.env",
            "*.env",
            "a/*",
            "a/**/secret",
            "a/secret/*.env",
            "a/secret/deep/**/*.env",
            "a/secret/deep/*",
            "b/*/*.env",
            "b/c/d/*",
            "b/link/**/*.pem",
            "missing/**/*.env",
            "**/d*",
        ];
        let patterns = names.map(|name| format!("{}/{name}", path.display()));
        for max_depth in [None, Some(1), Some(2), Some(3)] {
            for from in 0..patterns.len() {
                for to in from + 1..=patterns.len() {
                    let some = &patterns[from..to];
                    let mut each: Vec<PathBuf> = some
                        .iter()
                        .flat_map(|pattern| {
                            search_within(std::slice::from_ref(pattern), max_depth, LIMITS).unwrap().matches
                        })
                        .collect();
                    each.sort();
                    each.dedup();
                    assert_eq!(
                        search_within(some, max_depth, LIMITS).unwrap().matches,
                        each,
                        "{some:?} {max_depth:?}"
                    );
                }
            }
        }
    }

    #[test]
    fn a_search_goes_as_deep_as_asked() {
        let base = tempfile::tempdir().unwrap();
        let path = base.path().canonicalize().unwrap();
        std::fs::create_dir_all(path.join("a/b")).unwrap();
        let files = ["1.env", "a/2.env", "a/b/3.env"].map(|name| path.join(name));
        files.iter().for_each(|file| std::fs::write(file, "").unwrap());
        for (max_depth, found) in [(Some(1), 1), (Some(2), 2), (Some(3), 3), (Some(4), 3), (None, 3)] {
            let searched = search_within(&[format!("{}/**/*.env", path.display())], max_depth, LIMITS).unwrap();
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
