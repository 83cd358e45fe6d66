//! Turns the entries of a client into concrete paths and globs.

use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use super::glob::{ParsedGlob, expand};
use super::limits::{
    MAX_GLOB_BYTES, MAX_PATH_BYTES, MAX_PATH_TIMES_GLOB_BYTES, MAX_REQUESTED_ENTRIES, MAX_RESOLVED_ENTRIES,
    MAX_TOTAL_BYTES, MAX_WORKSPACE_ROOTS,
};
use super::protection::protections;
use super::{
    Access, EntrySource, EntryTarget, FilePolicy, GlobPattern, MachineFacts, PolicyEntry, PolicyError, PolicyRequest,
    RequestedFiles, RequestedTarget, lexical,
};

/// A pattern with this prefix is relative to each workspace root.
const PROJECT_ROOTS_PREFIX: &str = "codex-project-roots://";

/// Makes a policy concrete: directories that the machine or the context define are filled in, and protections are
/// added. The order of the entries has no influence on what the policy allows.
pub fn resolve_policy(request: &PolicyRequest, facts: &mut MachineFacts<'_>) -> Result<FilePolicy, PolicyError> {
    let RequestedFiles::Restricted { entries, glob_scan_max_depth } = &request.files else {
        return Ok(everything(EntrySource::Unrestricted));
    };
    if entries.len() > MAX_REQUESTED_ENTRIES {
        return Err(PolicyError::TooManyEntries(entries.len()));
    }
    if request.workspace_roots.len() > MAX_WORKSPACE_ROOTS {
        return Err(PolicyError::TooManyWorkspaceRoots(request.workspace_roots.len()));
    }
    if request.cwd.is_none()
        && entries.iter().any(|entry| matches!(entry.target, RequestedTarget::ProjectRoots { .. }))
    {
        return Err(PolicyError::MissingCwd);
    }
    let context = Context {
        cwd: request.cwd.as_deref().map(absolute).transpose()?,
        roots: request.workspace_roots.iter().map(|root| absolute(root)).collect::<Result<_, _>>()?,
    };

    let mut resolved = Vec::new();
    let mut size = PolicySize::default();
    for (index, entry) in entries.iter().enumerate() {
        let access = match entry.target {
            RequestedTarget::Minimal => entry.access.min(Access::Read),
            _ => entry.access,
        };
        for target in targets(&entry.target, access, &context, facts)? {
            size.add(&target)?;
            resolved.push(PolicyEntry { target, access, source: EntrySource::Request(index) });
        }
    }

    let mut policy = FilePolicy::new(resolved, *glob_scan_max_depth);
    if policy.writes_everything() {
        let source = policy.entries()[0].source.clone();
        return Ok(everything(source));
    }
    let protections = protections(&policy, facts.git_directories_of)?;
    if !protections.is_empty() {
        policy = FilePolicy::new([policy.entries(), &protections].concat(), *glob_scan_max_depth);
    }
    Ok(policy)
}

/// The directories to which entries refer, normalised.
struct Context {
    cwd: Option<PathBuf>,
    roots: Vec<PathBuf>,
}

fn everything(source: EntrySource) -> FilePolicy {
    let root = PolicyEntry { target: EntryTarget::Path(PathBuf::from("/")), access: Access::Write, source };
    FilePolicy::new(vec![root], None)
}

fn targets(
    target: &RequestedTarget,
    access: Access,
    context: &Context,
    facts: &MachineFacts<'_>,
) -> Result<Vec<EntryTarget>, PolicyError> {
    let paths = match target {
        RequestedTarget::Path(path) => vec![absolute(path)?],
        RequestedTarget::Glob(pattern) if access != Access::Deny => {
            return Err(PolicyError::GlobAllows(pattern.clone()));
        }
        RequestedTarget::Glob(pattern) => return globs(pattern, context),
        RequestedTarget::Root => vec![PathBuf::from("/")],
        RequestedTarget::Minimal => {
            facts.minimal_roots.iter().map(|root| absolute(root)).collect::<Result<_, _>>()?
        }
        RequestedTarget::ProjectRoots { subpath: None } => context.roots.clone(),
        RequestedTarget::ProjectRoots { subpath: Some(subpath) } => {
            context.roots.iter().map(|root| below_root(root, subpath)).collect::<Result<_, _>>()?
        }
        // A relative TMPDIR would name another directory in each working directory, so it is ignored.
        RequestedTarget::Tmpdir => facts
            .tmpdir
            .iter()
            .filter(|path| path.is_absolute())
            .map(|path| absolute(path))
            .collect::<Result<_, _>>()?,
        RequestedTarget::SlashTmp if facts.slash_tmp_is_directory => vec![PathBuf::from("/tmp")],
        RequestedTarget::SlashTmp | RequestedTarget::Unknown => Vec::new(),
    };
    Ok(paths.into_iter().map(EntryTarget::Path).collect())
}

fn globs(pattern: &str, context: &Context) -> Result<Vec<EntryTarget>, PolicyError> {
    refuse_nul(Path::new(pattern))?;
    let in_roots = pattern.strip_prefix(PROJECT_ROOTS_PREFIX);
    if in_roots.is_some() && context.cwd.is_none() {
        return Err(PolicyError::MissingCwd);
    }
    let mut targets = Vec::new();
    for alternative in expand(in_roots.unwrap_or(pattern))? {
        // An empty pattern would deny the whole directory to which patterns are relative.
        if alternative.trim_start_matches('/').is_empty() && (in_roots.is_some() || alternative.is_empty()) {
            return Err(PolicyError::BadPattern {
                pattern: pattern.to_owned(),
                reason: "the pattern, or one of its alternatives, is empty",
            });
        }
        if in_roots.is_none() {
            let base = match &context.cwd {
                Some(cwd) => cwd,
                None if alternative.starts_with('/') => Path::new("/"),
                None => return Err(PolicyError::MissingCwd),
            };
            targets.push(glob_target(GlobPattern::parse(&alternative, base)?));
            continue;
        }
        for root in &context.roots {
            let parsed = GlobPattern::parse(alternative.trim_start_matches('/'), root)?;
            let directory = match &parsed {
                ParsedGlob::Path(path) => path,
                ParsedGlob::Glob(glob) => glob.directory(),
            };
            if !directory.starts_with(root) {
                return Err(PolicyError::SubpathLeavesRoot(alternative));
            }
            targets.push(glob_target(parsed));
        }
    }
    Ok(targets)
}

fn glob_target(parsed: ParsedGlob) -> EntryTarget {
    match parsed {
        ParsedGlob::Path(path) => EntryTarget::Path(path),
        ParsedGlob::Glob(glob) => EntryTarget::Glob(glob),
    }
}

/// The path below a workspace root. An absolute subpath, or one with too many `..`, would name a directory elsewhere.
fn below_root(root: &Path, subpath: &Path) -> Result<PathBuf, PolicyError> {
    let joined = absolute(&root.join(subpath))?;
    if subpath.is_absolute() || !joined.starts_with(root) {
        return Err(PolicyError::SubpathLeavesRoot(subpath.display().to_string()));
    }
    Ok(joined)
}

fn absolute(path: &Path) -> Result<PathBuf, PolicyError> {
    // Checked before anything is copied, because a long root is copied for each entry that stands for all roots.
    if path.as_os_str().len() > MAX_PATH_BYTES {
        return Err(PolicyError::PathTooLong(path.as_os_str().len()));
    }
    refuse_nul(path)?;
    lexical::normalised(path).ok_or_else(|| PolicyError::RelativePath(path.to_path_buf()))
}

fn refuse_nul(path: &Path) -> Result<(), PolicyError> {
    if path.as_os_str().as_bytes().contains(&0) {
        return Err(PolicyError::NulByte(path.display().to_string().replace('\0', "\\0")));
    }
    Ok(())
}

/// Counts what a policy holds, so that a small request cannot stand for a large policy.
#[derive(Default)]
struct PolicySize {
    entries: usize,
    bytes: usize,
    wildcard_bytes: usize,
}

impl PolicySize {
    fn add(&mut self, target: &EntryTarget) -> Result<(), PolicyError> {
        let (literal, wildcard_bytes) = match target {
            EntryTarget::Path(path) => (path.as_path(), 0),
            EntryTarget::Glob(glob) => (glob.directory(), glob.wildcard_bytes()),
        };
        let bytes = literal.as_os_str().len() + wildcard_bytes;
        if bytes > MAX_PATH_BYTES {
            return Err(PolicyError::PathTooLong(bytes));
        }
        self.entries += 1;
        self.bytes += bytes;
        self.wildcard_bytes += wildcard_bytes;
        if self.entries > MAX_RESOLVED_ENTRIES {
            return Err(PolicyError::TooManyPaths);
        }
        if self.bytes > MAX_TOTAL_BYTES {
            return Err(PolicyError::PathsTooLong);
        }
        if self.wildcard_bytes > MAX_GLOB_BYTES {
            return Err(PolicyError::PatternsTooLong);
        }
        if self.bytes.saturating_mul(self.wildcard_bytes) > MAX_PATH_TIMES_GLOB_BYTES {
            return Err(PolicyError::PatternsTooCostly { wildcards: self.wildcard_bytes, paths: self.bytes });
        }
        Ok(())
    }
}
